"""A cell under load in numbers: how many tokens, how long, and what a client saw of it.

Everything that is told of the load is counted inside the steady window (`window`). With T tokens that arrive in a
window of W ms,

    throughput = 1000 T / W                        total tokens per second, the time of prompts included
    decode throughput = 1000 T' / W'               the same over those parts in which every client is decoding
    requests per second = 1000 sum(t_i / n_i) / W  request i counts by its part: t_i of its n_i tokens

Time per output token of the whole cell is the time that requests spend between their first and last token inside the
window over the tokens that arrive there. Distributions are over whole requests: time to first token of those that were
due inside the window, time per output token of those that decoded there for at least half of their time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from specmeter.analysis.load.contradictions import Contradiction, contradiction
from specmeter.analysis.load.window import (
    NoWindow,
    Window,
    decoding_spans,
    in_flight_ms,
    inside,
    overlap,
    steady_window,
    within,
)
from specmeter.record import Record, Slo

if TYPE_CHECKING:
    from specmeter.analysis.load.times import Bools, CellTimes
    from specmeter.numbers.stats import Floats
    from specmeter.record import Load, LoadCell


ANYTHING = Slo()
"""Nothing is asked of an answer."""


class Latency(Record):
    """How long something took, over the requests of a cell."""

    mean_ms: float
    p50_ms: float
    p95_ms: float
    p99_ms: float


class CellFigures(Record):
    """A cell under load in numbers; all but the first lines are of its steady window."""

    invocation: int
    """Run of the whole experiment, from 0."""
    block: int
    """Pass over all arms, from 0."""
    arm_id: str
    """The arm."""
    session_id: str
    """The session that answered."""
    complete: bool
    """Whether every request came to an end; a cell that did not is told and does not count."""
    no_window: NoWindow | None
    """Why there is no steady window; None where there is one. Without it, all that follows from it is 0 or missing."""
    requests: int
    """Requests that were answered in the whole cell."""
    failed: int
    """Requests that failed."""
    duration_ms: float
    """Of the whole cell."""
    slots: int
    """Requests that the engine works on at once."""
    busy_slots: float | None
    """Slots busy in a forward, mean over the cell; None where the engine does not count them."""
    forwards: float | None
    """Forwards of the engine in the cell."""
    late_ms: float
    """The most by which the client sent a request too late."""
    late_sum_ms: float
    """By how much it sent all of them too late, added up."""
    client_cores: float
    """CPU time of specmeter over the cell's time: 0.02 is a fiftieth of one core."""
    window_ms: float
    """Length of the steady window."""
    tokens: int
    """Tokens that arrive in it."""
    requests_done: float
    """Requests by their part: tokens in the window over the request's tokens, added up."""
    requests_good: float | None
    """The same of those that meet the `slo`; None without one."""
    request_ms: float
    """Time of all requests in flight, added up: over `window_ms` it is how many are in flight."""
    decode_tokens: int
    """Tokens after the first of their request."""
    decode_ms: float
    """Time of all requests between first and last token, added up: over `decode_tokens` it is the time per output
    token."""
    full_tokens: int | None
    """Tokens of the parts in which every client is decoding; None in an open loop."""
    full_ms: float | None
    """Length of these parts."""
    ttft: Latency | None
    """Time to first token, of requests that were due in the window; None where there are none."""
    tpot: Latency | None
    """Time per output token, of requests that decoded there for at least half of their time."""
    queued_ms: float | None
    """Mean time that requests due in the window waited for the engine to begin; None where it does not say."""

    @property
    def counts(self) -> bool:
        """Whether it says anything about its arm: it came to its end, and has a window in which tokens arrived."""
        return self.complete and self.no_window is None and self.tokens > 0


class MeasuredCell(NamedTuple):
    """A cell's numbers, and the latencies of its single requests."""

    figures: CellFigures
    ttft_ms: Floats
    tpot_ms: Floats
    contradiction: Contradiction | None = None
    """What its record says twice, and not alike."""


def cell_figures(cell: LoadCell, times: CellTimes, load: Load, slo: Slo = ANYTHING) -> MeasuredCell:
    """The numbers of a cell from its requests."""
    found: Window | NoWindow = steady_window(times, load) if cell.complete else "broken off"
    window, why = (Window(0.0, 0.0), found) if isinstance(found, str) else (found, None)
    at_once = min(load.clients, max(1, cell.slots)) if load.clients else 0
    duration = max(0.0, 1000 * (cell.ended_at - cell.began_at))
    arrived = inside(times, window)
    decoding = overlap(times.first, times.last, window)
    spans = decoding_spans(times, window, at_once) if at_once and why is None else None
    due: Bools = (times.due > window.start) & (times.due <= window.end) & (times.tokens > 0)
    half: Bools = (times.tokens > 1) & (decoding > 0) & (2 * decoding >= times.last - times.first)
    ttft, tpot = times.ttft_ms[due], times.tpot_ms[half]
    waited = times.queued_ms[due]
    firsts = (times.first > window.start) & (times.first <= window.end)
    parts = arrived / np.maximum(times.tokens, 1)
    forwards, busy = cell.counters.get("n_decode_total"), cell.counters.get("n_busy_slots_total")
    figures = CellFigures(
        invocation=cell.invocation,
        block=cell.block,
        arm_id=cell.arm_id,
        session_id=cell.session_id,
        complete=cell.complete,
        no_window=why,
        requests=int(times.answered.sum()),
        failed=int((~times.answered).sum()),
        duration_ms=duration,
        slots=cell.slots,
        busy_slots=busy / forwards if busy is not None and forwards else None,
        forwards=forwards,
        late_ms=float(times.late_ms.max(initial=0.0)),
        late_sum_ms=float(times.late_ms.sum()),
        client_cores=cell.client_cpu_ms / duration if duration > 0 else 0.0,
        window_ms=window.ms,
        tokens=int(arrived.sum()),
        requests_done=float(parts.sum()),
        requests_good=None if slo == ANYTHING else float(parts[meets(times, slo)].sum()),
        request_ms=float(in_flight_ms(times, window).sum()),
        decode_tokens=int((arrived - firsts).sum()),
        decode_ms=float(decoding.sum()),
        full_tokens=None if spans is None else within(np.sort(times.arrivals), spans),
        full_ms=None if spans is None else float((spans[:, 1] - spans[:, 0]).sum()),
        ttft=latency(ttft),
        tpot=latency(tpot),
        queued_ms=float(waited.mean()) if len(waited) and np.isfinite(waited).all() else None,
    )
    return MeasuredCell(figures, ttft, tpot, contradiction(cell, times, load))


def meets(times: CellTimes, slo: Slo) -> Bools:
    """Which requests were answered as fast as the `slo` asks; a text of one token has no time per output token."""
    good = times.answered & (times.tokens > 0)
    if slo.ttft_ms is not None:
        good = good & (times.ttft_ms <= slo.ttft_ms)
    if slo.tpot_ms is not None:
        good = good & ((times.tokens < 2) | (times.tpot_ms <= slo.tpot_ms))
    return good


def latency(values: Floats) -> Latency | None:
    """Mean and quantiles; None without values."""
    if not len(values):
        return None
    p50, p95, p99 = (float(it) for it in np.quantile(values, [0.5, 0.95, 0.99]))
    return Latency(mean_ms=float(values.mean()), p50_ms=p50, p95_ms=p95, p99_ms=p99)
