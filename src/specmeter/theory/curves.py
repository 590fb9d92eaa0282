"""A measured cost curve: what a target forward over n tokens took, with intervals, and v(gamma) read off it.

Between measured points the curve is interpolated by straight lines; outside them it says nothing, and refuses.
`theory.fitting` has models that go on beyond the last point, and say that they do.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Self, overload

import numpy as np
from pydantic import Field, model_validator

from specmeter.errors import UsageError
from specmeter.numbers.estimates import bare, between, quotient_in_quadrature
from specmeter.record import Estimate, Record
from specmeter.theory.arguments import numbers, plain, positives, same_length

if TYPE_CHECKING:
    from specmeter.theory.arguments import Floats, Many, Values


class CostPoint(Record):
    """The time of a forward over so many tokens."""

    tokens: Annotated[int, Field(ge=1)]
    """n: positions that the target computed together; gamma + 1 for a verification."""
    ms: Estimate
    """Time of the forward in ms, with its interval where there is one."""


class CostCurve(Record):
    """T(n) of one target on one machine, ascending in n, each n once."""

    points: tuple[CostPoint, ...]

    @model_validator(mode="after")
    def _ascends(self) -> Self:
        if not self.points:
            raise UsageError("a cost curve without points", fix="measure T(n) for n = 1 and for gamma + 1 at least")
        counts = [point.tokens for point in self.points]
        if any(later <= earlier for earlier, later in pairwise(counts)):
            raise UsageError(f"points of a cost curve do not ascend: n = {counts}", fix="give each n once, in order")
        for point in self.points:
            if point.ms.point <= 0:
                raise UsageError(
                    f"T({point.tokens}) is {point.ms.point:g} ms", fix="leave out points that were not measured"
                )
        return self

    @classmethod
    def of(
        cls, tokens: Many, ms: Many, *, low_ms: Many | None = None, high_ms: Many | None = None, units: int = 1
    ) -> Self:
        """A curve from columns of one length, in any order; `low_ms` and `high_ms` together give 95 % intervals.

        `units` are the independent units (blocks, invocations) behind each point.

        For points that come with `Estimate`s of their own, make `CostPoint`s.
        """
        n, times = same_length(tokens=tokens, ms=ms)
        numbers("tokens", n, least=1, whole=True)
        positives("ms", times)
        if (low_ms is None) != (high_ms is None):
            raise UsageError("one end of an interval is missing", fix="give low_ms and high_ms, or neither")
        estimates = [bare(time, "ms", "given without an interval", n=units) for time in times]
        if low_ms is not None and high_ms is not None:
            _, low, high = same_length(tokens=n, low_ms=low_ms, high_ms=high_ms)
            if not ((low <= times) & (times <= high)).all():
                raise UsageError("low_ms <= ms <= high_ms does not hold", fix="give the lower end as low_ms")
            ends = zip(times, low, high, strict=True)
            estimates = [between(time, a, b, "ms", "given", n=units) for time, a, b in ends]
        points = [CostPoint(tokens=int(count), ms=estimate) for count, estimate in zip(n, estimates, strict=True)]
        return cls(points=tuple(sorted(points, key=lambda point: point.tokens)))

    @property
    def tokens(self) -> Floats:
        """n of every point. Shape (points,)."""
        return np.array([point.tokens for point in self.points], dtype=np.float64)

    @property
    def ms(self) -> Floats:
        """T(n) of every point. Shape (points,)."""
        return np.array([point.ms.point for point in self.points], dtype=np.float64)

    @overload
    def ms_at(self, tokens: float) -> float: ...
    @overload
    def ms_at(self, tokens: Many) -> Floats: ...
    @overload
    def ms_at(self, tokens: Values) -> float | Floats: ...
    def ms_at(self, tokens: Values) -> float | Floats:
        """T(n) between the first and the last measured point, by straight lines; any shape.

        Raises `UsageError` outside them: what a machine does beyond (another kernel, a limit of arithmetic) cannot be
        seen from here. Between points lines may miss a step that a kernel makes; measure the n that matter.
        """
        n = np.asarray(numbers("tokens", tokens, least=1))
        known = self.tokens
        outside = (n < known[0]) | (n > known[-1])
        if outside.any():
            raise UsageError(
                f"T({float(n[outside][0]):g}) was not measured: the curve covers n = {known[0]:g} to {known[-1]:g}",
                fix="measure that n, or take a fitted model (theory.fitting) and call it a prediction",
            )
        return plain(np.interp(n, known, self.ms))

    @overload
    def verification(self, gamma: float) -> float: ...
    @overload
    def verification(self, gamma: Many) -> Floats: ...
    @overload
    def verification(self, gamma: Values) -> float | Floats: ...
    def verification(self, gamma: Values) -> float | Floats:
        """v(gamma) = T(gamma + 1) / T(1), interpolated; needs a point at n = 1. Any shape.

        Not forced to 1 or above: a measured curve may dip by its noise.
        """
        one = self._one().ms.point
        return plain(np.asarray(self.ms_at(np.asarray(numbers("gamma", gamma, least=0)) + 1)) / one)

    def verification_estimate(self, gamma: int) -> Estimate:
        """v(gamma) at a measured point, with an interval where T(gamma + 1) and T(1) both have one.

        Half widths of the logarithms add in quadrature, which assumes that the two times were measured independently;
        `n` is that of the point with fewer units. The same machine state in both makes it a little too wide.
        """
        one = self._one().ms
        measured = {point.tokens: point.ms for point in self.points}
        if gamma + 1 not in measured:
            raise UsageError(
                f"T({gamma + 1}) was not measured, only n = {sorted(measured)}",
                fix="measure it; `verification` interpolates, without an interval",
            )
        many, method = measured[gamma + 1], f"T({gamma + 1}) / T(1)"
        return (
            quotient_in_quadrature(many, one, unit="1", method=method)
            if gamma
            else bare(1.0, "1", f"{method}; no interval", n=one.n, level=one.level)
        )

    def _one(self) -> CostPoint:
        if self.points[0].tokens != 1:
            raise UsageError(
                f"T(1) was not measured: the curve begins at n = {self.points[0].tokens}",
                fix="measure plain decoding of one token; ratios are to that",
            )
        return self.points[0]
