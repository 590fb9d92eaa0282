"""How findings are put into words."""

from __future__ import annotations

from specmeter.record import Estimate
from specmeter.studies.study import ClaimRuling, Finding

Found = tuple[Finding, str]
"""A ruling, and what was found, in words."""
FAR = 1e4
"""Ends of intervals beyond this are not printed: such an interval says nothing."""


def ruling(identity: str, claim: str, where: str, found: Found) -> ClaimRuling:
    """A claim with what was found: the one place where a study's claims are made, each stated beside its ruling."""
    return ClaimRuling(id=identity, claim=claim, where=where, ruling=found[0], found=found[1])


def quoted(estimate: Estimate | None, digits: int = 2, unit: str = "") -> str:
    """`1.26 [1.20, 1.31]`, or openly without an interval."""
    if estimate is None:
        return "unknown"
    point = f"{estimate.point:.{digits}f}{unit}"
    if estimate.low is None or estimate.high is None:
        return f"{point} (no interval)"
    return f"{point} [{_end(estimate.low, digits)}, {_end(estimate.high, digits)}]"


def _end(value: float, digits: int) -> str:
    """An end of an interval; of one that says nothing only that it is far away."""
    return f"{value:.{digits}f}" if value < FAR else f"above {FAR:g}"


def share(value: float | Estimate | None) -> str:
    """`3.3 %`."""
    point = value.point if isinstance(value, Estimate) else value
    return "unknown" if point is None else f"{100 * point:.1f} %"
