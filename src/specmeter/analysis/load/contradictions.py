"""What a cell and its requests say twice, and not alike.

When a client's request is due follows from the end of its last one, how late it was from when it was due and sent, and
a forward has no more slots than there are: arithmetic on the record. That requests lie within their cell rests on two
clocks, so that it is doubted and not refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from specmeter.analysis.load.times import CellTimes
    from specmeter.record import Load, LoadCell, Severity

_ROUNDED_MS = 0.01
"""Seconds since 1970 have no more digits."""
_CLOCKS_MS = 20.0
"""Between two clocks."""
_ROUNDED = 1e-5
"""Share by which a count of slots may be off: it is printed as a mean with six digits."""


class Contradiction(NamedTuple):
    """What is not alike."""

    severity: Severity
    what: str


def contradiction(cell: LoadCell, times: CellTimes, load: Load) -> Contradiction | None:
    """The gravest one of a cell and its requests; None where they agree."""
    forwards, busy = cell.counters.get("n_decode_total"), cell.counters.get("n_busy_slots_total")
    if forwards is not None and busy is not None:
        if busy > cell.slots * forwards * (1 + _ROUNDED):
            return Contradiction("invalid", "more slots were busy in its forwards than the engine has")
        if forwards > busy * (1 + _ROUNDED):
            return Contradiction("invalid", "it counts forwards in which no slot was busy")
    if (times.started < times.due - _ROUNDED_MS).any():
        return Contradiction("invalid", "a request was sent before it was due")
    late = np.maximum(0.0, times.started - times.due)
    if (np.abs(late - times.late_ms) > _ROUNDED_MS).any():
        return Contradiction("invalid", "a request was not as late as the time from its being due says")
    if load.clients is not None:
        if ((times.client < 0) | (times.client >= load.clients)).any():
            return Contradiction("invalid", "a request has a client that its load does not have")
        order = np.lexsort((times.due, times.client))
        same = np.diff(times.client[order]) == 0
        with np.errstate(invalid="ignore"):
            apart = np.abs(times.due[order][1:] - times.ended[order][:-1]) > _ROUNDED_MS
        if (same & apart).any():
            return Contradiction("invalid", "a client's request was not due when its last one had ended")
    length = 1000 * (cell.ended_at - cell.began_at)
    outside = max(-float(times.due.min(initial=0.0)), float(np.nanmax(times.ended, initial=0.0)) - length)
    if cell.complete and outside > _CLOCKS_MS:
        return Contradiction("suspect", "a request was due before its cell began, or ended after it")
    return None
