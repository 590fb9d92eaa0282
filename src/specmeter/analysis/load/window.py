"""The steady window of a cell under load, and what lies inside it.

It begins when the first request ends, and every client has begun; of one client, whose load is steady from the first
moment, when the cell does. Closed loop: it ends when the first client finds the
queue empty, at the end of its last request; in between as many clients are busy as were asked for. Open loop: it ends
with the last arrival. What lies before is ramp, what lies after is drain; neither counts.

From an end to an end: so a window holds the prompts of the answers that it holds. One that began with first tokens
would leave out the prompts of the first wave and count their answers, in two rounds at eight clients up to a third too
many tokens per second. A window that is a small part of its cell says little about it; below `LEAST` it is none.

A window holds its end and not its beginning, (start, end]: it runs from one event to another, so a token at the
beginning is not counted and one at the end is, and a steady stream is counted exactly. Tokens are counted by when they
arrive, so a request across an edge counts by its part.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from specmeter.analysis.load.times import Bools, CellTimes
    from specmeter.numbers.stats import Floats, Ints
    from specmeter.record import Load

NoWindow = Literal["broken off", "few clients", "no arrival times", "too short"]
"""Why a cell has no window:

- `broken off`: the cell did not come to its end;
- `few clients`: not every client had an answer;
- `no arrival times`: the engine does not say when tokens arrived;
- `too short`: a client was done when the first request ended, or hardly later.
"""
LEAST = 0.1
"""Of the cell's time, that a window has to be."""


class Window(NamedTuple):
    """(start, end] in ms from the beginning of the cell."""

    start: float
    end: float

    @property
    def ms(self) -> float:
        """Its length."""
        return self.end - self.start


def steady_window(times: CellTimes, load: Load) -> Window | NoWindow:
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
    start = max(first, float(begun.max())) if load.clients > 1 else float(begun.min())
    return _window(start, float(done.min()), duration)


def _window(start: float, end: float, duration: float) -> Window | NoWindow:
    return Window(start, end) if end - start > LEAST * duration else "too short"


def clients_seen(times: CellTimes) -> int:
    """Clients that sent anything."""
    return len(np.unique(times.client[times.client >= 0]))


def inside(times: CellTimes, window: Window) -> Ints:
    """Tokens of each request that arrive inside the window."""
    within = np.concatenate([[0], np.cumsum((times.arrivals > window.start) & (times.arrivals <= window.end))])
    return within[times.offsets[1:]] - within[times.offsets[:-1]]


def overlap(begin: Floats, end: Floats, window: Window) -> Floats:
    """How many ms of each of these times lie inside the window; 0 for what is not known."""
    found = np.minimum(end, window.end) - np.maximum(begin, window.start)
    return np.maximum(np.nan_to_num(found, nan=0.0), 0.0)


def in_flight_ms(times: CellTimes, window: Window) -> Floats:
    """How many ms each request was in flight inside the window. A client that failed one goes on with the next, so a
    failed request is in flight until then; in an open loop nothing says how long it was, and it counts nothing."""
    order = np.lexsort((times.due, times.client))
    upcoming = np.full(len(order), np.nan)
    same = times.client[order[1:]] == times.client[order[:-1]]
    upcoming[order[:-1][same]] = times.due[order[1:][same]]
    ended = np.where(times.answered, times.ended, np.where(times.client >= 0, upcoming, np.nan))
    return overlap(times.started, ended, window)


def within(arrivals: Floats, spans: Floats) -> int:
    """How many of the sorted `arrivals` lie in any of the spans (start, end], which do not overlap."""
    ends = np.searchsorted(arrivals, spans, side="right")
    return int((ends[:, 1] - ends[:, 0]).sum())


def decoding_spans(times: CellTimes, window: Window, clients: int) -> Floats:
    """(k, 2): the parts of the window in which so many clients, all of them or one for each slot, are between the first
    and the last token of a request, so that no prompt is processed and no slot rests."""
    told: Bools = times.tokens > 0
    at = np.concatenate([times.first[told], times.last[told]])
    change = np.concatenate([np.ones(told.sum(), np.int64), -np.ones(told.sum(), np.int64)])
    # Of events at the same time the ends come first: two requests that touch do not overlap.
    order = np.lexsort((change, at))
    at, busy = at[order], np.cumsum(change[order])
    full = np.flatnonzero(busy[:-1] >= clients)
    spans = np.stack([np.maximum(at[full], window.start), np.minimum(at[full + 1], window.end)], axis=1)
    return spans[spans[:, 1] > spans[:, 0]]
