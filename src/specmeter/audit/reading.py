"""From a file to rulings: the importer that knows it, what the user adds, and the judge."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specmeter.audit import across
from specmeter.audit.claim import VERDICTS
from specmeter.audit.judge import judge
from specmeter.audit.noise import Noise, noise_of
from specmeter.audit.read import detect, load
from specmeter.audit.read.document import refuse_binary
from specmeter.audit.units import settle
from specmeter.errors import UsageError

if TYPE_CHECKING:
    from specmeter.audit.claim import Claim, Ruling
    from specmeter.audit.read.table import TableOptions


@dataclass(frozen=True)
class Given:
    """What the user says about rows that do not say it themselves; field of a claim -> value."""

    values: dict[str, float | int | str] = field(default_factory=dict[str, float | int | str])
    rounding: dict[str, float] = field(default_factory=dict[str, float])

    def complete(self, claim: Claim) -> Claim:
        """The claim with what it lacked. A baseline is given nothing about drafting."""
        if claim.problem is not None:
            return claim
        plain = claim.method == "none"
        missing = {
            name: value
            for name, value in self.values.items()
            if getattr(claim, name) is None and not (plain and name in _OF_DRAFTING)
        }
        if not missing:
            return claim
        rounding = claim.rounding | {name: half for name, half in self.rounding.items() if name in missing}
        update: dict[str, object] = {**missing, "rounding": rounding}
        if "baseline_rate" in missing:
            update["baseline_from"] = "--baseline-rate"
        return claim.model_copy(update=update)


_OF_DRAFTING = frozenset({"baseline_rate", "draft_rate", "gamma", "cheapest_forward"})


@dataclass(frozen=True, repr=False)
class Audit:
    """A source with its rulings, in its own order."""

    source: str
    """File that was read, or `rows`."""
    format: str
    """What it was read as, by the names of `specmeter audit --format`."""
    rulings: tuple[Ruling, ...]
    """One per row of a table, or per run of a log."""
    noise: Noise
    """What timing noise was taken to explain."""
    notes: tuple[str, ...] = ()
    """What stands out in the source as a whole; never a verdict."""

    def __repr__(self) -> str:
        return f"<Audit of {self.source}, {tally(self.rulings)}>"

    def count(self, verdict: str) -> int:
        """How many rulings have that verdict."""
        return sum(ruling.verdict == verdict for ruling in self.rulings)


def counts(rulings: Iterable[Ruling]) -> dict[str, int]:
    """Verdict -> rulings, the worst first."""
    found = Counter(ruling.verdict for ruling in rulings)
    return {verdict: found[verdict] for verdict in VERDICTS}


def tally(rulings: Iterable[Ruling]) -> str:
    """`24 rows: 18 implausible, 6 possible`."""
    counted = counts(rulings)
    total = sum(counted.values())
    parts = ", ".join(f"{count} {verdict}" for verdict, count in counted.items() if count)
    return f"{total} {'row' if total == 1 else 'rows'}{f': {parts}' if parts else ''}"


def read_claims(path: Path, format_name: str | None, options: TableOptions) -> tuple[str, Iterator[Claim]]:
    """(format, claims) of a file; the format is found by how the file begins where it is not named.

    Raises `UsageError`, here or while the claims are read, for a file that cannot be read.
    """
    refuse_binary(path)
    name = format_name or detect(path)
    if name == "table":
        from specmeter.audit.read.table import read

        return name, read(path, options)
    return name, _any(load(name).read(path), path, name)


def read_rows(rows: Iterable[Mapping[str, Any]], options: TableOptions) -> Iterator[Claim]:
    """Claims of rows that are at hand, read like those of a table in JSON. Raises `UsageError` as `read_claims`."""
    from specmeter.audit.read.table import read_table

    told = [{str(name): None if value != value else value for name, value in row.items()} for row in rows]  # no nan
    return read_table(json.dumps(told, default=_plain), Path("rows"), options)


def _plain(value: Any) -> Any:
    """A number of a numeric library as one of Python's; anything else as text."""
    return value.item() if hasattr(value, "item") else str(value)


def _any(claims: Iterator[Claim], path: Path, name: str) -> Iterator[Claim]:
    """The claims; raises `UsageError` where there are none."""
    found = False
    for claim in claims:
        found = True
        yield claim
    if not found:
        raise UsageError(f"{path}: holds no result that {name} writes", fix="leave --format out, or name another one")


def rule(
    claims: Iterable[Claim], source: str, format_name: str, given: Given | None = None, noise: float | None = None
) -> Audit:
    """All claims of a source, completed and judged, with `noise` (a share) or the one that the source itself shows."""
    given = given or Given()
    whole = [given.complete(claim) for claim in claims]
    told = noise_of(whole) if noise is None else Noise(noise, "as given")
    whole = settle(whole, told)
    rulings = tuple(judge(claim, noise=told.of(claim)) for claim in whole)
    return Audit(source, format_name, rulings, told, across.notes(whole))


@cache
def published(name: str) -> Audit:
    """A published data set that comes with specmeter, judged. Raises `UsageError` for an unknown name.

    Its pages and `specmeter audit --published` both have their verdicts from here.
    """
    from specmeter.audit.published import claims

    return rule(claims(name), name, "published")
