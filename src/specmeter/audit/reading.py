"""From a file to rulings: the importer that knows it, what the user adds, and the judge."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from specmeter.audit.judge import NOISE, judge
from specmeter.importers import detect, load

if TYPE_CHECKING:
    from specmeter.audit.claim import Claim, Ruling
    from specmeter.importers.table import TableOptions


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
        return claim.model_copy(update={**missing, "rounding": rounding})


_OF_DRAFTING = frozenset({"baseline_rate", "draft_rate", "gamma"})


@dataclass(frozen=True)
class Audit:
    """A source with its rulings, in its own order."""

    source: str
    format: str
    rulings: tuple[Ruling, ...]

    def count(self, verdict: str) -> int:
        """How many rulings have that verdict."""
        return sum(ruling.verdict == verdict for ruling in self.rulings)


def read_claims(path: Path, format_name: str | None, options: TableOptions) -> tuple[str, Iterator[Claim]]:
    """(format, claims) of a file; the format is found by how the file begins where it is not named.

    Raises `UsageError`, here or while the claims are read, for a file that cannot be read.
    """
    name = format_name or detect(path)
    if name == "table":
        from specmeter.importers.table import read

        return name, read(path, options)
    return name, load(name).read(path)


def rule(claims: Iterator[Claim], source: str, format_name: str, given: Given, noise: float = NOISE) -> Audit:
    """All claims of a source, completed and judged."""
    rulings = tuple(judge(given.complete(claim), noise=noise) for claim in claims)
    return Audit(source, format_name, rulings)
