"""Which of several builds was the first to decode more slowly: binary search, with a gate against the oldest each time.

Builds are the entries of one folder, in the order of their names, where a number counts as one: b9500, then b10020.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from specmeter.engines.llama_cpp.builds import NEEDED, is_build
from specmeter.errors import SpecmeterError, UsageError
from specmeter.gate.ruling import Gate
from specmeter.record import Record


class Bisection(Record):
    """What a search found."""

    builds: tuple[str, ...]
    """Names from the old build to the new one."""
    last_as_fast: str
    """The newest build that is known to be as fast as the old one."""
    first_slower: str | None
    """The oldest build that is known to be slower; None if none is."""
    gates: dict[str, Gate]
    """Build -> its gate against the old one."""
    stopped: str = ""
    """The build whose gate could not tell, or that could not be measured, and why."""


def builds_between(old: Path, new: Path) -> list[Path]:
    """The builds from `old` to `new`. Raises `UsageError` where these are not two of one folder, in this order."""
    old, new = old.expanduser().absolute(), new.expanduser().absolute()
    for path in (old, new):
        if not is_build(path):
            raise UsageError(f"{path}: not a build", fix=NEEDED)
    if old.parent != new.parent:
        fix = "put all builds into one folder, and name the first and the last"
        raise UsageError(f"{old} and {new}: not in one folder", fix=fix)
    found = sorted(filter(is_build, old.parent.iterdir()), key=_in_order)
    first, last = found.index(old), found.index(new)
    if first >= last:
        fix = "name the older build first, or rename the builds"
        raise UsageError(f"{new.name} does not come after {old.name} by name", fix=fix)
    return found[first : last + 1]


def _in_order(path: Path) -> list[tuple[int, str]]:
    return [(int(it), "") if it.isdecimal() else (-1, it) for it in re.findall(r"\d{1,18}|\D+", path.name)]


def bisect(builds: list[Path], gate_of: Callable[[Path, Path], Gate]) -> Bisection:
    """Search by gates of (old, other). Ends where one cannot tell, or a build cannot be measured."""
    gates, stopped, good, bad = dict[str, Gate](), "", 0, len(builds)
    while bad - good > 1 and not stopped:
        place = len(builds) - 1 if bad == len(builds) else (good + bad) // 2
        name = builds[place].name
        try:
            gates[name] = gate = gate_of(builds[0], builds[place])
        except SpecmeterError as error:
            stopped = f"{name}: {error.message.splitlines()[0]}"
            break
        good, bad = (place, bad) if gate.ruling == "pass" else (good, place if gate.ruling == "fail" else bad)
        stopped = name if gate.ruling == "cannot tell" else ""
    slower = builds[bad].name if bad < len(builds) else None
    names = tuple(it.name for it in builds)
    return Bisection(builds=names, last_as_fast=names[good], first_slower=slower, gates=gates, stopped=stopped)
