"""From a file to rulings: the importer that knows it, what the user adds, and the judge."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specmeter.audit import across
from specmeter.audit import read as importers
from specmeter.audit.claim import VERDICTS
from specmeter.audit.given import Given
from specmeter.audit.judge import judge
from specmeter.audit.noise import Noise, noise_of
from specmeter.audit.read.document import refuse_binary
from specmeter.errors import UsageError

if TYPE_CHECKING:
    from specmeter.audit.claim import Claim, Ruling
    from specmeter.audit.read.options import TableOptions


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
    name = format_name or importers.detect(path)
    if name == "table":
        from specmeter.audit.read.table import read

        return name, read(path, options)
    return name, _any(importers.read(path, name), path, name)


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


# --- percent or fraction, where a table does not say -----------------------------------------------------------------
#
# The reading that does not accuse the table. An acceptance of 0.59 may be 59 % or 0.59 %. As percent it permits far
# less, so every row that is false as a fraction is false as percent. Where several rows would be false as percent
# alone, the column is fractions: one false row is an error, a column of them is a misreading.

FALSE = frozenset({"impossible", "implausible"})
SEVERAL = 2
"""Rows, at least, that a wrong unit must make false."""


def settle(claims: Sequence[Claim], noise: Noise) -> list[Claim]:
    """The claims, those with an acceptance of unsaid unit settled where their table shows which it is."""
    unsaid = [claim for claim in claims if _is_open(claim)]
    as_fraction = sum(_is_false(claim, 1.0, noise) for claim in unsaid)
    as_percent = sum(_is_false(claim, 0.01, noise) for claim in unsaid)
    if as_percent - as_fraction < SEVERAL or 2 * as_fraction > as_percent:
        return list(claims)
    note = f"acceptance is read as a fraction: as percent, {as_percent} rows would be false"
    return [_said(claim, {"notes": (*claim.notes, note)}) if _is_open(claim) else claim for claim in claims]


def _is_open(claim: Claim) -> bool:
    """Whether it has an acceptance that may be in percent or a fraction."""
    return "acceptance" in claim.unit_unsaid and claim.acceptance is not None


def _is_false(claim: Claim, factor: float, noise: Noise) -> bool:
    share = {"acceptance": (claim.acceptance or 0.0) * factor}
    rounding = claim.rounding | {"acceptance": claim.rounding.get("acceptance", 0.0) * factor}
    return judge(_said(claim, share | {"rounding": rounding}), noise=noise.of(claim)).verdict in FALSE


def _said(claim: Claim, update: Mapping[str, object]) -> Claim:
    unsaid = tuple(name for name in claim.unit_unsaid if name != "acceptance")
    return claim.model_copy(update={**update, "unit_unsaid": unsaid})


@cache
def published(name: str) -> Audit:
    """A published data set that comes with specmeter, judged. Raises `UsageError` for an unknown name.

    Its pages and `specmeter audit --published` both have their verdicts from here.
    """
    from specmeter.audit.published import claims

    return rule(claims(name), name, "published")
