"""What bounds are made of: printed numbers as ranges, and what came of holding a claim against a bound.

A printed number is what it may have been before it was rounded. A bound counts as broken only when no value within
these ranges obeys it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from specmeter.audit.claim import Assumption, Claim


@dataclass(frozen=True)
class BoundOutcome:
    """One bound, tried."""

    bound: str
    """By the names of `specmeter.audit.laws`."""
    result: Literal["broken", "doubtful", "holds", "weak", "undecided"]
    """`doubtful`: broken by less than noise explains, or by numbers that may mean something else; `weak`: holds, but
    nearly anything would; `undecided`: something is missing."""
    line: str
    """The arithmetic, or what is missing."""
    rests_on: tuple[Assumption, ...] = ()
    """Of a broken bound: what would make it hold again. Empty where nothing would: arithmetic."""

    @property
    def impossible(self) -> bool:
        """Broken, whatever the machine."""
        return self.result == "broken" and not self.rests_on


@dataclass(frozen=True)
class Range:
    """What a printed value may have been before it was rounded: `low <= value <= high`, none negative."""

    low: float
    value: float
    high: float

    def over(self, other: Range) -> Range:
        """Quotient of two ranges of positive numbers."""
        return Range(self.low / other.high, self.value / other.value, self.high / other.low)

    def times(self, factor: float) -> Range:
        """All three multiplied by a positive number."""
        return Range(self.low * factor, self.value * factor, self.high * factor)


def printed(claim: Claim, field: str) -> Range | None:
    """The range of a field of the claim, None where it is absent. Rounding takes no share past 0 or 1, no rate to 0."""
    value = getattr(claim, field)
    if value is None:
        return None
    half = max(0.0, claim.rounding.get(field, 0.0))
    low, high = value - half, value + half
    if field == "acceptance":
        low, high = max(0.0, low), min(max(1.0, value), high)
    elif low <= 0 < value:
        low = value / 2
    return Range(low, value, high)


def number(value: float) -> str:
    """A number for people: four significant digits, no exponent for everyday sizes."""
    if value == 0:
        return "0"
    size = abs(value)
    if 1e3 <= size < 1e6:
        return f"{value:,.0f}"
    return f"{value:.4g}"
