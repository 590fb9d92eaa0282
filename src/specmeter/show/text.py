"""Numbers as people read them; the one place where digits are cut."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from specmeter.record import Estimate


_FAR = 10_000


def bound(value: float, digits: int) -> str:
    """An end of an interval; ends that say nothing are not worth their digits: `<0.01`, `>10000`."""
    if abs(value) >= _FAR:
        return f"{'<-' if value < 0 else '>'}{_FAR:.0f}"
    least = 10.0**-digits
    return f"<{least:.{digits}f}" if 0 < value < least / 2 else f"{value:.{digits}f}"


def brackets(estimate: Estimate, digits: int, scale: float = 1.0) -> str:
    """`[1.85, 2.01]`, or `[?]` where there is no interval."""
    if estimate.low is None or estimate.high is None:
        return "[?]"
    return f"[{bound(estimate.low * scale, digits)}, {bound(estimate.high * scale, digits)}]"


def size(size_bytes: int) -> str:
    """`1.2 GB`, in powers of ten as on the box of a disk."""
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size_bytes >= factor:
            return f"{size_bytes / factor:.1f} {unit}"
    return f"{size_bytes} B"
