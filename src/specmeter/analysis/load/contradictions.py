"""What a cell under load and its requests say twice, and not alike.

When a request of a client is due follows from the end of its last one, how late it was from when it was due and sent.
A forward has no more slots than there are. That requests lie within their cell rests on two clocks, so it is doubted
and not refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from specmeter.analysis.load.times import CellTimes
from specmeter.messages import Message

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from specmeter.record import Filler, Load, LoadCell, Severity

    Bools = NDArray[np.bool_]
    Singles = NDArray[np.float32]


def _crosses(cell: LoadCell, times: CellTimes, filler: Filler) -> bool:
    """Whether a filler lies neither before nor behind its client's requests, or a client has no number."""
    began = 1000 * (filler.started_at - cell.began_at)
    mine = times.client == filler.client
    before = began + filler.wall_ms <= times.due[mine].min(initial=np.inf) + _ROUNDED_MS
    behind = began >= np.nanmax(times.ended[mine], initial=-np.inf) - _ROUNDED_MS
    return not (before or behind)


_ROUNDED_MS = 0.01
"""Seconds since 1970 have no more digits."""
_CLOCKS_MS = 20.0
"""Between two clocks."""
_ROUNDED = 1e-5
"""Share by which a count of slots may be off: it is printed as a mean with six digits."""


class Contradiction(NamedTuple):
    """What is not alike."""

    severity: Severity
    what: Message


def contradiction(cell: LoadCell, times: CellTimes, load: Load) -> Contradiction | None:
    """The gravest one of a cell and its requests; None where they agree."""
    forwards, busy = cell.counters.get("n_decode_total"), cell.counters.get("n_busy_slots_total")
    if forwards is not None and busy is not None:
        if busy > cell.slots * forwards * (1 + _ROUNDED):
            return Contradiction("invalid", Message("records-differ.cell_slots"))
        if forwards > busy * (1 + _ROUNDED):
            return Contradiction("invalid", Message("records-differ.cell_idle_forwards"))
    if (times.started < times.due - _ROUNDED_MS).any():
        return Contradiction("invalid", Message("records-differ.cell_early"))
    late = np.maximum(0.0, times.started - times.due)
    if (np.abs(late - times.late_ms) > _ROUNDED_MS).any():
        return Contradiction("invalid", Message("records-differ.cell_lateness"))
    if load.clients is not None:
        if ((times.client < 0) | (times.client >= load.clients)).any():
            return Contradiction("invalid", Message("records-differ.cell_clients"))
        order = np.lexsort((times.due, times.client))
        same = np.diff(times.client[order]) == 0
        with np.errstate(invalid="ignore"):
            apart = np.abs(times.due[order][1:] - times.ended[order][:-1]) > _ROUNDED_MS
        if (same & apart).any() or any(_crosses(cell, times, it) for it in cell.fillers):
            return Contradiction("invalid", Message("records-differ.cell_due"))
    length = 1000 * (cell.ended_at - cell.began_at)
    ends = [1000 * (it.started_at - cell.began_at) + it.wall_ms for it in cell.fillers]
    last = max(0.0, *ends, float(np.nanmax(times.ended, initial=0.0)))
    outside = max(-float(times.due.min(initial=0.0)), last - length)
    if cell.complete and outside > _CLOCKS_MS:
        return Contradiction("suspect", Message("records-differ.cell_outside"))
    return None
