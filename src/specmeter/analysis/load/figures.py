"""A cell under load in numbers: how many tokens, how long, and what a client saw of it.

Everything that is told of the load is counted inside the steady window (`window`). With T tokens that arrive in a
window of W ms,

    throughput = 1000 T / W                        total tokens per second, the time of prompts included
    decode throughput = 1000 T' / W'               the same over those parts in which every client is decoding
    requests per second = 1000 sum(t_i / n_i) / W  request i counts by its part: t_i of its n_i tokens

Time per output token of the whole cell is the time that requests spend between their first and last token inside the
window over the tokens that arrive there. Distributions are over whole requests: time to first token of those that were
due inside the window, time per output token of those that decoded there for at least half of their time.

Cells are read one after the other: only one has its tokens' times in memory at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from specmeter.analysis.load.contradictions import Contradiction, contradiction
from specmeter.analysis.load.times import CellTimes, Sent, Window
from specmeter.analysis.load.window import (
    NoWindow,
    decoding_spans,
    filler_ms,
    in_flight_ms,
    inside,
    overlap,
    steady_window,
    within,
)
from specmeter.record import Load, Record, Slo
from specmeter.store.database import unreadable
from specmeter.store.rows import RequestKey

if TYPE_CHECKING:
    from specmeter.analysis.load.window import Bools, Singles
    from specmeter.numbers.stats import Floats
    from specmeter.record import LoadCell
    from specmeter.store import RunReader


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
    """Repetition of the whole experiment, from 0."""
    block: int
    """Block, from 0."""
    arm_id: str
    """Id of the configuration."""
    session_id: str
    """Id of the session."""
    complete: bool
    """Whether every request finished; incomplete measurements do not count."""
    no_window: NoWindow | None
    """Why there is no steady window; if there is none, all values derived from it are 0 or missing."""
    requests: int
    """Requests answered in the whole measurement."""
    failed: int
    """Requests that failed."""
    duration_ms: float
    """Duration of the whole measurement."""
    slots: int
    """Requests that the engine processes in parallel."""
    busy_slots: float | None
    """Mean number of busy slots per forward pass; None if the engine does not count them."""
    forwards: float | None
    """Forward passes of the engine."""
    late_ms: float
    """Largest delay of the client in sending a request."""
    late_sum_ms: float
    """Sum of these delays."""
    client_cores: float
    """CPU time of specmeter / duration: 0.02 is 2% of one core."""
    window_ms: float
    """Length of the steady window; with filler requests, only the share of it spent on measured requests."""
    tokens: int
    """Tokens that arrive in the window."""
    requests_done: float
    """Requests done in the window; a request counts by the share of its tokens in the window."""
    requests_good: float | None
    """The same for requests that meet the `slo`; None without an `slo`."""
    request_ms: float
    """Sum of the time of all requests in the window."""
    decode_tokens: int
    """Tokens in the window, without the first of each request."""
    decode_ms: float
    """Sum of the time between first and last token; divided by `decode_tokens`: time per output token."""
    full_tokens: int | None
    """Tokens while all clients are decoding; None in an open loop."""
    full_ms: float | None
    """Time during which all clients are decoding."""
    ttft: Latency | None
    """Time to first token, of requests that were due in the window; None where there are none."""
    ttft_sent: Latency | None
    """The same from when they were sent."""
    tpot: Latency | None
    """Time per output token, of requests that decoded there for at least half of their time."""
    itl: Latency | None
    """Inter-token latency, of tokens that arrived there."""
    e2el: Latency | None
    """End-to-end latency, of requests that were due there."""
    queued_ms: float | None
    """Mean time in the engine's queue, for requests due in the window; None if the engine does not report it."""

    @property
    def counts(self) -> bool:
        """Whether it says anything about its arm: it came to its end, and has a window in which tokens arrived."""
        return self.complete and self.no_window is None and self.tokens > 0


class MeasuredCell(NamedTuple):
    """A cell's numbers, and the latencies of its single requests."""

    figures: CellFigures
    ttft_ms: Floats
    ttft_sent_ms: Floats
    tpot_ms: Floats
    itl_ms: Singles
    """Of single tokens, in half of the precision."""
    e2el_ms: Floats
    contradiction: Contradiction | None = None
    """What its record says twice, and not alike."""


def cell_figures(cell: LoadCell, times: CellTimes, load: Load, slo: Slo = ANYTHING) -> MeasuredCell:
    """The numbers of a cell from its requests."""
    filled = bool(cell.fillers)
    found: Window | NoWindow = steady_window(times, load, filled=filled) if cell.complete else "broken off"
    window, why = (Window(0.0, 0.0), found) if isinstance(found, str) else (found, None)
    at_once = min(load.clients, max(1, cell.slots)) if load.clients else 0
    duration = max(0.0, 1000 * (cell.ended_at - cell.began_at))
    arrived = inside(times, window)
    decoding = overlap(times.first, times.last, window)
    spans = decoding_spans(times, window, at_once) if at_once and why is None else None
    due: Bools = (times.due > window.start) & (times.due <= window.end) & (times.tokens > 0)
    half: Bools = (times.tokens > 1) & (decoding > 0) & (2 * decoding >= times.last - times.first)
    ttft, sent_to_first, whole = times.ttft_ms[due], times.ttft_sent_ms[due], times.e2el_ms[due]
    tpot, itl = times.tpot_ms[half], times.itl_ms(window)
    waited = times.queued_ms[due]
    firsts = (times.first > window.start) & (times.first <= window.end)
    parts = arrived / np.maximum(times.tokens, 1)
    in_flight = float(in_flight_ms(times, window).sum())
    counted = in_flight / (in_flight + filler_ms(cell, window)) if filled and in_flight else 1.0
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
        window_ms=window.ms * counted,
        tokens=int(arrived.sum()),
        requests_done=float(parts.sum()),
        requests_good=None if slo == ANYTHING else float(parts[meets(times, slo)].sum()),
        request_ms=in_flight,
        decode_tokens=int((arrived - firsts).sum()),
        decode_ms=float(decoding.sum()),
        full_tokens=None if spans is None else within(np.sort(times.arrivals), spans),
        full_ms=None if spans is None else float((spans[:, 1] - spans[:, 0]).sum()),
        ttft=latency(ttft),
        ttft_sent=latency(sent_to_first),
        tpot=latency(tpot),
        itl=latency(itl),
        e2el=latency(whole),
        queued_ms=float(waited.mean()) if len(waited) and np.isfinite(waited).all() else None,
    )
    return MeasuredCell(figures, ttft, sent_to_first, tpot, itl, whole, contradiction(cell, times, load))


def meets(times: CellTimes, slo: Slo) -> Bools:
    """Which requests were answered as fast as the `slo` asks; a text of one token has no time per output token."""
    good = times.answered & (times.tokens > 0)
    if slo.ttft_ms is not None:
        good = good & (times.ttft_ms <= slo.ttft_ms)
    if slo.tpot_ms is not None:
        good = good & ((times.tokens < 2) | (times.tpot_ms <= slo.tpot_ms))
    return good


def latency(values: Floats | Singles) -> Latency | None:
    """Mean and quantiles; None without values."""
    if not len(values):
        return None
    p50, p95, p99 = (float(it) for it in np.quantile(values, [0.5, 0.95, 0.99]))
    return Latency(mean_ms=float(values.mean()), p50_ms=p50, p95_ms=p95, p99_ms=p99)


_SENT = """SELECT session_id, invocation, block, arm_id, prompt_id, client, due_at, started_at, late_ms, queued_ms,
    wall_ms, zlib_json FROM sending JOIN request ON request.id = sending.request_id
    LEFT JOIN reply ON reply.request_id = request.id WHERE {} ORDER BY request.id"""
"""Without objects for requests and sendings, of which there may be a million."""


def measured_cells(store: RunReader, arm_id: str | None = None, *, superseded: bool = False) -> Iterator[MeasuredCell]:
    """Every cell whose requests count, in the order of measurement; of a cell that was measured again only the last,
    or all with those that are `superseded`. Of one arm alone where it is named.

    Raises `StoreError`.
    """
    loads = {arm.id: arm.load for arm in store.arms() if arm.load is not None}
    if not loads:
        return
    load = store.experiment().load
    slo = load.slo if load else ANYTHING
    cells = {cell.session_id: cell for cell in store.load_cells()}
    for session_id, rows in groupby(
        store.raw(_SENT.format("1" if superseded else "superseded = 0")), key=lambda row: cast("str", row[0])
    ):
        cell = cells.get(session_id)
        if cell is None or cell.arm_id not in loads or arm_id not in (None, cell.arm_id):
            continue
        try:
            times = CellTimes.of(cell.began_at, _sent(store, rows))
        except (TypeError, ValueError, OverflowError) as error:
            raise unreadable(store.path, f"how a request of {cell.arm_id} was sent or answered", error) from None
        yield cell_figures(cell, times, loads[cell.arm_id], slo)


def _sent(store: RunReader, rows: Iterator[tuple[Any, ...]]) -> Iterator[Sent]:
    for _, *key, client, due_at, started_at, late_ms, queued_ms, wall_ms, bulk in rows:
        arrivals: list[float] = [] if bulk is None else store.reply(bulk, RequestKey(*key)).get("arrival_ms", [])
        yield Sent(client, due_at, started_at, late_ms, queued_ms, None if bulk is None else wall_ms, arrivals)
