"""The steady window of a cell under load: when it begins and ends, and what lies inside it.

It begins when the first request has ended and every client has begun; with one client, when the cell does. Closed loop:
it ends when the first client finds the queue empty, at the end of its last request. Open loop: it ends with the last
arrival. What lies before is ramp, what lies after is drain; neither counts.

If fillers keep the clients busy (`record.Filler`), the window is all that lies between the first and the last moment of
a request of the run. Each of these counts as a whole, by Little's law: with N busy clients, the run's requests have the
share of the window that they have of the clients' time, so throughput is N times their tokens over their times added
up. Tokens in a window from an end to an end are too many, since the last request to end is a long one.

A window goes from an end to an end, so it holds the prompts of the answers that it holds; one that began with first
tokens would count in two rounds at eight clients up to a third too many tokens per second. A window that is a small
part of its cell says little about it; below `LEAST` there is none. It holds its end and not its beginning, (start,
end], so a steady stream is counted exactly. A request across an edge counts by its part.

Requests of a cell are columns of times, in ms from the start of the cell, by the clock of the engine.

What a cell and its requests both say must agree: when a client's request is due follows from the end of its last one,
how late it was from when it was due and sent, and a forward has no more slots than there are.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from specmeter.messages import Message

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from specmeter.numbers.stats import Floats, Ints
    from specmeter.record import Filler, Load, LoadCell, Request, Sending, Severity

    Bools = NDArray[np.bool_]
    Singles = NDArray[np.float32]


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
    return Window(start, end) if end - start > LEAST * duration else "too short"


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


def filler_ms(cell: LoadCell, window: Window) -> float:
    """How many ms fillers were in flight inside the window, added up."""
    began = np.array([1000 * (it.started_at - cell.began_at) for it in cell.fillers], dtype=np.float64)
    return float(overlap(began, began + [it.wall_ms for it in cell.fillers], window).sum())


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


OPEN = -1
"""The client of a request that none sent: those of an open loop."""
_UNKNOWN = float("nan")


class Sent(NamedTuple):
    """A request as it was sent and answered, as far as times are concerned."""

    client: int | None
    due_at: float
    """Seconds, as `started_at`."""
    started_at: float
    late_ms: float
    queued_ms: float | None
    wall_ms: float | None
    """None: it failed."""
    arrival_ms: Sequence[float]
    """Of each token, from the start of the request; empty where it failed, or the engine tells no times."""


def sent(request: Request, sending: Sending) -> Sent:
    """The times of a request."""
    reply = request.reply
    return Sent(
        client=sending.client,
        due_at=sending.due_at,
        started_at=request.started_at,
        late_ms=sending.late_ms,
        queued_ms=sending.queued_ms,
        wall_ms=reply.wall_ms if reply else None,
        arrival_ms=reply.arrival_ms if reply else (),
    )


@dataclass(frozen=True)
class CellTimes:
    """The requests of one cell in the order of being due; n rows."""

    client: Ints
    """`OPEN` in an open loop."""
    due: Floats
    started: Floats
    first: Floats
    """When the first token arrived; NaN where no arrival is known."""
    last: Floats
    ended: Floats
    """NaN where it failed: nothing says when."""
    tokens: Ints
    late_ms: Floats
    queued_ms: Floats
    """NaN where the engine does not say."""
    arrivals: Floats
    """Of all tokens, request after request."""
    offsets: Ints
    """n + 1 places in `arrivals`: tokens of request i are `arrivals[offsets[i]:offsets[i + 1]]`."""

    @classmethod
    def of(cls, began_at: float, requests: Iterable[Sent]) -> CellTimes:
        """The columns of a cell that began at `began_at` seconds.

        Raises `TypeError`, `ValueError` or `OverflowError` for what is not a time: nothing else looks at it before.
        """
        rows, arrivals, counts = array("d"), array("d"), array("q")
        for it in requests:
            start = 1000 * (it.started_at - began_at)
            rows.append(OPEN if it.client is None else it.client)
            rows.append(1000 * (it.due_at - began_at))
            rows.append(start)
            rows.append(_UNKNOWN if it.wall_ms is None else start + it.wall_ms)
            rows.append(it.late_ms)
            rows.append(_UNKNOWN if it.queued_ms is None else it.queued_ms)
            counts.append(len(it.arrival_ms))
            arrivals.extend(it.arrival_ms)
        columns: Floats = np.array(rows, dtype=np.float64).reshape(-1, 6)
        whole = np.isfinite(columns[:, [0, 1, 2, 4]]).all() and np.isfinite(arrivals).all()
        if not whole or np.isinf(columns).any() or (columns[:, 4:] < 0).any():
            raise ValueError("a time is not one")
        order = np.argsort(columns[:, 1], kind="stable")
        tokens: Ints = np.array(counts, dtype=np.int64)
        of_token: Floats = np.array(arrivals, dtype=np.float64) + np.repeat(columns[:, 2], tokens)
        of_token = of_token[np.argsort(np.repeat(np.argsort(order, kind="stable"), tokens), kind="stable")]
        client, due, started, ended, late, queued = columns[order].T
        tokens = tokens[order]
        offsets: Ints = np.concatenate([[0], np.cumsum(tokens)]).astype(np.int64)
        first, last = np.full(len(tokens), np.nan), np.full(len(tokens), np.nan)
        told = tokens > 0
        first[told], last[told] = of_token[offsets[:-1][told]], of_token[offsets[1:][told] - 1]
        return cls(client.astype(np.int64), due, started, first, last, ended, tokens, late, queued, of_token, offsets)

    @property
    def answered(self) -> Bools:
        """Which requests did not fail."""
        return np.isfinite(self.ended)

    @property
    def ttft_ms(self) -> Floats:
        """Time to first token of each request, from when it was due: a late client cannot hide that it waited."""
        return self.first - self.due

    @property
    def ttft_sent_ms(self) -> Floats:
        """The same from when it was sent, as vLLM's benchmark and AIPerf count it."""
        return self.first - self.started

    @property
    def e2el_ms(self) -> Floats:
        """End-to-end latency of each request: from when it was sent to its last token."""
        return self.last - self.started

    def itl_ms(self, window: Window) -> Singles:
        """Inter-token latencies: between tokens of a request that arrived one after the other, the later one inside the
        window. Tokens that arrive in one event have none between them."""
        gaps = np.diff(self.arrivals)
        mine = np.ones(len(gaps), dtype=np.bool_)
        starts = self.offsets[1:-1]
        mine[starts[(starts > 0) & (starts <= len(gaps))] - 1] = False
        later = self.arrivals[1:]
        return gaps[mine & (gaps > 0) & (later > window.start) & (later <= window.end)].astype(np.float32)

    @property
    def tpot_ms(self) -> Floats:
        """Time per output token of each request: from its first to its last token, over the tokens after the first."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(self.tokens > 1, (self.last - self.first) / (self.tokens - 1), np.nan)


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
