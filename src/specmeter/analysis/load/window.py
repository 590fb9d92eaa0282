"""The steady window of a cell under load: when it begins and ends, and what lies inside it.

It begins when the first request has ended and every client has started; with one client, when the cell does. Closed
loop: it ends when the first client finds the queue empty, at the end of its last request. Open loop: it ends with the
last arrival. What lies before is ramp, what lies after is drain; neither counts.

If fillers keep the clients busy (`record.Filler`), the window is all that lies between the first and the last moment of
a request of the run. Each of these counts as a whole, by Little's law: with N busy clients, the run's requests have the
share of the window that they have of the clients' time, so throughput is N times their tokens over their times added
up. Tokens in a window from an end to an end are too many, since the last request to end is a long one.

A window goes from an end to an end, so it holds the prompts of the answers that it holds; one that began with first
tokens would count in two rounds at eight clients up to a third too many tokens per second. A window that is a small
part of its cell says little about it; below `MIN_WINDOW_SHARE` there is none. It holds its end and not its beginning,
(start, end], so a steady stream is counted exactly. A request across an edge counts by its part.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from specmeter.analysis.load.times import CellTimes, Window

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from specmeter.numbers.stats import Floats, Ints
    from specmeter.record import Load, LoadCell

    Bools = NDArray[np.bool_]
    Singles = NDArray[np.float32]


NoWindow = Literal["broken off", "few clients", "no arrival times", "too short"]
"""Why a cell has no window:

- `broken off`: the cell did not come to its end;
- `few clients`: not every client had an answer;
- `no arrival times`: the engine does not say when tokens arrived;
- `too short`: a client was done when the first request ended, or hardly later.
"""
MIN_WINDOW_SHARE = 0.1
"""Of the cell's time, that a window has to be."""


def steady_window(times: CellTimes, load: Load, *, filled: bool = False) -> Window | NoWindow:
    """The part of a cell in which the load is the one that was asked for."""
    answered = times.answered
    if answered.any() and not times.tokens[answered].any():
        return "no arrival times"
    if not answered.any():
        return "few clients"
    duration = float(times.ended[answered].max() - times.due.min())
    first = float(times.ended[answered].min())
    if load.clients is None:
        return _window(first, float(times.due.max()), duration)
    if filled:
        return Window(_before(times.due.min()), float(times.ended[answered].max()))
    told = answered & (times.tokens > 0)
    clients = np.unique(times.client[told])
    if len(clients) < load.clients:
        return "few clients"
    known = np.isin(times.client, clients)
    index = np.searchsorted(clients, times.client[known])
    begun = np.full(len(clients), np.inf)
    np.minimum.at(begun, index, times.started[known])
    # Of a request that failed nothing says when it ended, only that it had started.
    done = np.full(len(clients), -np.inf)
    np.maximum.at(done, index, np.where(answered, times.ended, times.started)[known])
    start = max(first, float(begun.max())) if load.clients > 1 else _before(times.due.min())
    return _window(start, float(done.min()), duration)


def _before(moment: float) -> float:
    """A window from there on holds what is due at the moment."""
    return float(np.nextafter(moment, -np.inf))


def _window(start: float, end: float, duration: float) -> Window | NoWindow:
    return Window(start, end) if end - start > MIN_WINDOW_SHARE * duration else "too short"


def inside(times: CellTimes, window: Window) -> Ints:
    """Tokens of each request that arrive inside the window."""
    within = np.concatenate([[0], np.cumsum((times.arrivals > window.start) & (times.arrivals <= window.end))])
    return within[times.offsets[1:]] - within[times.offsets[:-1]]


def overlap(begin: Floats, end: Floats, window: Window) -> Floats:
    """How many ms of each of these times lie inside the window; 0 for what is not known."""
    found = np.minimum(end, window.end) - np.maximum(begin, window.start)
    return np.maximum(np.nan_to_num(found, nan=0.0), 0.0)


def in_flight_ms(times: CellTimes, window: Window) -> Floats:
    """How many ms each request was in flight inside the window. A client that failed one continues with the next, so a
    failed request is in flight until then; in an open loop nothing says how long it was, and it counts nothing."""
    order = np.lexsort((times.due, times.client))
    upcoming = np.full(len(order), np.nan)
    same = times.client[order[1:]] == times.client[order[:-1]]
    upcoming[order[:-1][same]] = times.due[order[1:][same]]
    ended = np.where(times.answered, times.ended, np.where(times.client >= 0, upcoming, np.nan))
    return overlap(times.started, ended, window)


def filler_ms(cell: LoadCell, window: Window) -> float:
    """How many ms fillers were in flight inside the window, added up."""
    began = np.array([1000 * (it.started_at - cell.began_at) for it in cell.fillers], dtype=np.float64)
    return float(overlap(began, began + [it.wall_ms for it in cell.fillers], window).sum())


def within(arrivals: Floats, spans: Floats) -> int:
    """How many of the sorted `arrivals` lie in any of the spans (start, end], which do not overlap."""
    ends = np.searchsorted(arrivals, spans, side="right")
    return int((ends[:, 1] - ends[:, 0]).sum())


def decoding_spans(times: CellTimes, window: Window, clients: int) -> Floats:
    """(k, 2): the parts of the window in which this many clients, all of them or one for each slot, are between the
    first and the last token of a request, so that no prompt is processed and no slot rests."""
    told: Bools = times.tokens > 0
    at = np.concatenate([times.first[told], times.last[told]])
    change = np.concatenate([np.ones(told.sum(), np.int64), -np.ones(told.sum(), np.int64)])
    # Of events at the same time the ends come first: two requests that touch do not overlap.
    order = np.lexsort((change, at))
    at, busy = at[order], np.cumsum(change[order])
    full = np.flatnonzero(busy[:-1] >= clients)
    spans = np.stack([np.maximum(at[full], window.start), np.minimum(at[full + 1], window.end)], axis=1)
    return spans[spans[:, 1] > spans[:, 0]]
