"""Formats numbers for people, and makes text from outside harmless.

Sizes are decimal, as on the box of a disk. An interval stands in brackets behind its number and unit:
`1.93x [1.85, 2.01]`, or `[?]` if there is none.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Protocol

LIMIT = 20_000
_FAR = 10_000
_PLAIN = str.maketrans({"×": "x", "±": "+-", "·": "-", "–": "-", "—": "-", "−": "-", "…": "...", "→": "->", "’": "'"})
"""What a stream without these characters is given instead."""
_ACTED_ON = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_BARE = re.compile(r"[\w.:\\/=+-]+")
"""What neither cmd nor PowerShell would take apart."""


class Uncertain(Protocol):
    """A number with its interval, such as `record.Estimate`."""

    @property
    def point(self) -> float: ...
    @property
    def low(self) -> float | None: ...
    @property
    def high(self) -> float | None: ...


# --- text from outside -----------------------------------------------------------------------------------------------


def csv_cell(text: str) -> str:
    """`text` with an apostrophe before it where a spreadsheet would run it as a formula; what a terminal would act on,
    or reverses the text, becomes `�`."""
    text = _ACTED_ON.sub("\N{REPLACEMENT CHARACTER}", text)
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text


def printable(text: str) -> str:
    """`text` on one line; characters that a terminal would act on, or that reverse the text, become `�`."""
    return "".join(
        char if char.isprintable() else " " if char.isspace() else "\N{REPLACEMENT CHARACTER}" for char in text
    )


def encodable(text: str, encoding: str) -> str:
    """`text` in the characters that an encoding has, `x` for a cross and so on; others by their numbers."""
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return text.translate(_PLAIN).encode(encoding, "backslashreplace").decode(encoding)
    return text


def printable_lines(text: str, limit: int = LIMIT) -> str:
    """The same, with its lines kept; cut at a length that no reader needs."""
    shown = text if len(text) <= limit else text[:limit] + "..."
    return "\n".join(printable(line) for line in shown.splitlines())


def without_controls(text: str) -> str:
    """`text` on one line, control and formatting characters (those that reverse text included) replaced by spaces."""
    return "".join(char if char.isprintable() else " " for char in text)


def markdown_escaped(text: str) -> str:
    """`text` as Markdown that shows just these characters, on one line: no markup, no HTML, no control characters."""
    visible = without_controls(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    # Within a word an underscore is not markup, and `~/` is a path.
    return re.sub(
        r"([\\`*\[\]|$]|~(?!/)|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9]))", r"\\\1", visible.replace("://", "&#58;//")
    )


def markdown_code(text: str) -> str:
    """`text` as a Markdown code span that is safe within a table too."""
    visible = without_controls(text).replace("|", "\\|").strip()
    if not visible:
        return ""
    fence, gap = markdown_fence(visible), " " if "`" in visible else ""
    return f"{fence}{gap}{visible}{gap}{fence}"


def markdown_fence(text: str, least: int = 1) -> str:
    """Backticks that end no earlier than the text does."""
    return "`" * max(least, max((len(run) + 1 for run in re.findall(r"`+", text)), default=1))


# --- commands --------------------------------------------------------------------------------------------------------


def pasted(argv: Iterable[str], *, windows: bool = os.name == "nt") -> str:
    """A command as it is pasted into a shell: POSIX's, or those of Windows."""
    if not windows:
        return shlex.join(argv)
    return " ".join(it if _BARE.fullmatch(it) else '"' + it.replace('"', '\\"') + '"' for it in argv)


_COMMAND = re.compile(r"(`|^ +)specmeter(?= )", re.MULTILINE)


def as_started(text: str) -> str:
    """`text` with its commands (`specmeter ...` in backticks, or on an indented line of their own) as this user starts
    specmeter. For what is printed here and now; what is kept or sent to others names plain `specmeter`."""
    return _COMMAND.sub(lambda found: found[1] + program(), text) if "specmeter " in text else text


@cache
def program() -> str:
    """How this user starts specmeter: `specmeter`, `uv run specmeter`, `python -m specmeter`, or by its path where it
    is not on the PATH. Within another program (a notebook) it is `specmeter`."""
    import shutil

    # uv names itself to its children; its own command line, up to our arguments, is what the user typed.
    if "UV" in os.environ and (typed := _typed_for_uv(sys.argv[1:])):
        return typed
    own = Path(sys.argv[0] or "-")
    if own.name == "__main__.py" and own.parent.name == "specmeter":
        return f"{quoted(sys.orig_argv[0])} -m specmeter"
    if own.stem != "specmeter":
        return "specmeter"
    found = shutil.which("specmeter")
    on_path = found is not None and Path(found).with_suffix("").resolve() == own.with_suffix("").resolve()
    return "specmeter" if on_path else quoted(sys.argv[0])


def _typed_for_uv(arguments: list[str]) -> str | None:
    import psutil

    try:
        parents = psutil.Process().parents()[:4]  # launchers of Windows may stand between
        for line in (parent.cmdline() for parent in parents):
            words = line[: len(line) - len(arguments)]
            ours = words[-2:] == ["-m", "specmeter"] or (words and Path(words[-1]).stem == "specmeter")
            if ours and Path(words[0]).stem in ("uv", "uvx") and line[len(words) :] == arguments:
                named = ["uvx", *words[3:]] if words[1:3] == ["tool", "uvx"] else [Path(words[0]).stem, *words[1:]]
                return " ".join(map(quoted, named))
    except (psutil.Error, OSError):
        pass
    return None


def quoted(argument: str) -> str:
    """An argument as this system's shell takes it."""
    return pasted([argument])


# --- numbers ---------------------------------------------------------------------------------------------------------


def counted(number: int, one: str, several: str = "") -> str:
    """`1 prompt`, `1,200 prompts`; `several` where the plural is not the word with an s."""
    return f"{number:,} {one if number == 1 else several or one + 's'}"


def number(value: float) -> str:
    """Four significant digits, no exponent for everyday sizes: `0.0025`, `12.97`, `1,139`."""
    return f"{value:,.0f}" if 1e3 <= abs(value) < 1e6 else f"{value or 0:.4g}"


def size(size_bytes: float | None) -> str:
    """`1.2 GB`, in powers of ten; `?` where it is not known."""
    if size_bytes is None:
        return "?"
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size_bytes >= 0.99995 * factor:  # 999.96 MB rounded is 1.0 GB
            return f"{size_bytes / factor:.1f} {unit}"
    return f"{size_bytes:.0f} B"


def bandwidth(bytes_per_s: float) -> str:
    """`38.4 GB/s`."""
    return f"{bytes_per_s / 1e9:.1f} GB/s"


def amount(number: float) -> str:
    """A count of parameters: `3.31 B`, `400 M`."""
    for unit, factor in (("T", 1e12), ("B", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= factor:
            return f"{number / factor:.3g} {unit}"
    return f"{number:.0f}"


def percent(share: float, digits: int = 0, *, signed: bool = False) -> str:
    """`74%` of a share of 0.74; signed, a change: `+3.1%`."""
    return f"{share:{'+' if signed else ''}.{digits}%}"


def ratio(value: float, digits: int = 2) -> str:
    """`2.10x`."""
    return f"{value:.{digits}f}x"


def rate(tokens_per_s: float) -> str:
    """`58.4 tok/s`."""
    return f"{tokens_per_s:.1f} tok/s"


def milliseconds(ms: float, digits: int = 2) -> str:
    """`3.42 ms`."""
    return f"{ms:.{digits}f} ms"


def duration(seconds: float) -> str:
    """`45 s`, `3 min 20 s`, `2 h 05 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


_PARTS_OF_TIME = re.compile(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m(?:in)?)?(?:(\d+(?:\.\d+)?)s)?", re.ASCII)


def seconds_of(text: str) -> float:
    """`90s`, `10m`, `1h`, `1h30m`: a duration as people type it. Raises `ValueError` for anything else."""
    found = _PARTS_OF_TIME.fullmatch(text[:40].replace(" ", "").lower())
    if found is None or not any(found.groups()):
        raise ValueError(text)
    hours, minutes, seconds = (float(it or 0) for it in found.groups())
    return 3600 * hours + 60 * minutes + seconds


def bound(value: float, digits: int) -> str:
    """An end of an interval; ends that say nothing are not worth their digits: `<0.01`, `>10000`."""
    if abs(value) >= _FAR:
        return f"{'<-' if value < 0 else '>'}{_FAR:.0f}"
    least = 10.0**-digits
    return f"<{least:.{digits}f}" if 0 < value < least / 2 else f"{value:.{digits}f}"


def brackets(number: Uncertain, digits: int, scale: float = 1.0) -> str:
    """`[1.85, 2.01]`, or `[?]` where there is no interval."""
    if number.low is None or number.high is None:
        return "[?]"
    low, high = number.low * scale, number.high * scale
    # Of a difference, an end close to 0 is a 0.
    return f"[{bound(low, digits)}, {f'{high:.{digits}f}' if low < 0 and high < 1 else bound(high, digits)}]"


def estimated(number: Uncertain | None, digits: int, unit: str = "", *, scale: float = 1.0, exact: bool = False) -> str:
    """`1.93x [1.85, 2.01]`, or `-` for nothing; `exact` numbers have no `[?]` where they have no interval."""
    if number is None:
        return "-"
    point = f"{number.point * scale:.{digits}f}{unit}"
    return point if exact and number.low is None else f"{point} {brackets(number, digits, scale)}"
