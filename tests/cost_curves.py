"""Cost curves from columns, as tests give them."""

from __future__ import annotations

from collections.abc import Iterable

from specmeter.numbers.estimates import bare, between
from specmeter.theory.curves import CostCurve, CostPoint


def curve_of(tokens: Iterable[float], ms: Iterable[float], *, spread: float = 0.0, units: int = 1) -> CostCurve:
    """T(n), with an interval from 1 / (1 + `spread`) to 1 + `spread` of it, if that is above 0."""

    def point(n: int, time: float) -> CostPoint:
        if not spread:
            return CostPoint(tokens=n, ms=bare(time, "ms", "given", n=units))
        return CostPoint(tokens=n, ms=between(time, time / (1 + spread), time * (1 + spread), "ms", "given", n=units))

    return CostCurve(points=tuple(point(int(n), float(time)) for n, time in zip(tokens, ms, strict=True)))
