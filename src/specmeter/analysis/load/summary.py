"""Throughput, latencies and speedup of an arm under load, from its cells.

Cells are the units: in each block the arm and its baseline have one each, at the same load. If clients were asked for,
the speedup is the ratio of total tokens per second inside the steady windows, prompts included; if a rate was,
throughput is what was offered, and the speedup is the ratio of times per output token. There is no speedup of one kind
of text, since texts share the machine. A cell that was broken off, or has no steady window, does not count.

Everything is counted inside the steady window (`window`). With T tokens that arrive in a window of W ms,

    throughput = 1000 T / W                        total tokens per second, the time of prompts included
    decode throughput = 1000 T' / W'               the same over those parts in which every client is decoding
    requests per second = 1000 sum(t_i / n_i) / W  request i counts by its part: t_i of its n_i tokens

Time per output token of the whole cell is the time that requests spend between their first and last token inside the
window over the tokens that arrive there. Distributions are over whole requests: time to first token of those that were
due inside the window, time per output token of those that decoded there for at least half of their time.

Cells are read one after the other: only one has its tokens' times in memory at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

import numpy as np

from specmeter.analysis.load.window import (
    CellTimes,
    Contradiction,
    NoWindow,
    Sent,
    Window,
    contradiction,
    decoding_spans,
    filler_ms,
    in_flight_ms,
    inside,
    overlap,
    steady_window,
    within,
)
from specmeter.analysis.pairing import Gain, pooled_speedup, speedup_of, units_of
from specmeter.numbers.quantiles import quantile_over
from specmeter.numbers.stats import (
    Pair,
    Pool,
    pooled_rate,
    pooled_ratio,
    simultaneous,
)
from specmeter.record import Estimate, Load, Record, Slo
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
    """Length of the steady window; where fillers kept clients busy, the share of it that the requests' time has in that
    of all clients."""
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
    ttft_sent: Latency | None
    """The same from when they were sent."""
    tpot: Latency | None
    """Time per output token, of requests that decoded there for at least half of their time."""
    itl: Latency | None
    """Inter-token latency, of tokens that arrived there."""
    e2el: Latency | None
    """End-to-end latency, of requests that were due there."""
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


class LatencySummary(Record):
    """How long something took, over all requests of an arm; intervals over blocks."""

    mean: Estimate
    p50: Estimate | None
    p95: Estimate | None
    """None for fewer than 20 requests."""
    p99: Estimate | None
    """None for fewer than 100 requests."""


class LoadSummary(Record):
    """An arm under load, inside its steady windows."""

    load: Load
    cells: int
    """Cells that count."""
    broken_off: int
    """Cells that did not come to their end and were not measured again."""
    without_window: int
    """Cells without a steady window."""
    window_share: float | None
    """Share of the cells' time that lies inside their steady windows; the rest is ramp and drain."""
    slots: int | None
    """Requests that the engine works on at once."""
    throughput: Estimate | None
    """Total tokens per second, the time of prompts included."""
    decode_throughput: Estimate | None
    """The same over the parts in which every client is decoding; None where there are none, and in an open loop."""
    per_client: Estimate | None
    """Tokens per second that one client gets while it is decoding."""
    requests_rate: Estimate | None
    """Requests per second that were answered."""
    goodput: Estimate | None
    """Those of them that kept to the `slo`; None without one."""
    in_flight: Estimate | None
    """Requests in flight, mean over time."""
    ttft: LatencySummary | None
    """Time to first token, from when a request was due."""
    ttft_sent: LatencySummary | None
    """The same from when it was sent: vLLM's and AIPerf's."""
    tpot: LatencySummary | None
    """Time per output token, of single requests: vLLM's TPOT, AIPerf's inter-token latency."""
    itl: LatencySummary | None
    """Inter-token latency, of single tokens: vLLM's ITL, AIPerf's inter-chunk latency."""
    e2el: LatencySummary | None
    """End-to-end latency, from when a request was sent to its last token: vLLM's E2EL, AIPerf's request latency."""
    busy_slots: Estimate | None
    """Slots busy in a forward, over whole cells; None where the engine does not count them."""
    queued: Estimate | None
    """Time that requests waited for the engine to begin; None where it does not say."""
    late_ms: float
    """The most by which a request was sent too late."""
    client_cores: float
    """The most CPU that specmeter took in a cell, in cores."""


class Spread(NamedTuple):
    """How single requests differ, in ms: quantiles."""

    p5: float
    p25: float
    p50: float
    p75: float
    p95: float


class LoadTable:
    """The cells of a run by arm."""

    def __init__(self, cells: Iterable[MeasuredCell]) -> None:
        self._cells: dict[str, list[MeasuredCell]] = {}
        for cell in cells:
            self._cells.setdefault(cell.figures.arm_id, []).append(cell)
        self.several = len({it.figures.invocation for of in self._cells.values() for it in of}) > 1
        """Whether invocations are the units."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LoadTable) and list(self.figures) == list(other.figures)

    @property
    def figures(self) -> Iterable[CellFigures]:
        """Every cell in numbers."""
        return (cell.figures for cells in self._cells.values() for cell in cells)

    def counting(self, arm_id: str) -> dict[tuple[int, int], MeasuredCell]:
        """(invocation, block) -> the cell of an arm that counts."""
        cells = self._cells.get(arm_id, ())
        return {(it.figures.invocation, it.figures.block): it for it in cells if it.figures.counts}

    def pairs(self, arm_id: str, baseline_id: str, made: Callable[[CellFigures], Pool]) -> dict[int, list[Pair]]:
        """Invocation -> (arm, baseline) of each block in which both have a cell that counts."""
        mine, theirs = self.counting(arm_id), self.counting(baseline_id)
        found: dict[int, list[Pair]] = {}
        for key in sorted(mine.keys() & theirs.keys()):
            pair = made(mine[key].figures), made(theirs[key].figures)
            if all(pool.tokens > 0 and pool.ms > 0 for pool in pair):
                found.setdefault(key[0], []).append(pair)
        return found

    def speedups(self, arm_id: str, baseline_id: str, load: Load) -> dict[tuple[int, int], float]:
        """(invocation, block), or (invocation, 0) of several -> the logarithm of the speedup there."""
        made = served(load)
        mine, theirs = self.counting(arm_id), self.counting(baseline_id)
        logs: dict[tuple[int, int], list[float]] = {}
        for key in sorted(mine.keys() & theirs.keys()):
            ours, plain = made(mine[key].figures), made(theirs[key].figures)
            if min(*ours, *plain) > 0:
                unit = (key[0], 0) if self.several else key
                logs.setdefault(unit, []).append(float(np.log(ours.rate) - np.log(plain.rate)))
        return {unit: float(np.mean(values)) for unit, values in logs.items()}

    def gain(
        self, arm_id: str, baseline_id: str, load: Load, prompts: int, *, level: float = 0.95, among: int = 1
    ) -> Gain | None:
        """The speedup of an arm over its baseline at the same load; None where no block has a cell of both."""
        pairs = self.pairs(arm_id, baseline_id, served(load))
        if not pairs:
            return None
        units, of = units_of(pairs, several=self.several), "invocations" if self.several else "blocks"
        whole = self.pairs(arm_id, baseline_id, lambda it: Pool(it.tokens, it.request_ms))
        return Gain(
            decoding=speedup_of(pairs, several=self.several, level=level),
            with_prompt=simultaneous(speedup_of(whole, several=self.several, level=level), among),
            pooled=simultaneous(pooled_speedup(units, of=of, level=level), among),
            prompts=prompts,
            lowest=None,
            highest=None,
            over_prompts=None,
            completed=0,
        )

    def spread(self, arm_id: str, measure: Literal["ttft", "tpot"]) -> Spread | None:
        """How the requests of an arm differ, over all of its cells that count; None where there are none."""
        of = [it.ttft_ms if measure == "ttft" else it.tpot_ms for it in self.counting(arm_id).values()]
        values = np.concatenate(of) if of else np.empty(0)
        if not len(values):
            return None
        return Spread(*(float(it) for it in np.quantile(values, [0.05, 0.25, 0.5, 0.75, 0.95])))

    def summary(self, arm_id: str, load: Load, *, level: float = 0.95) -> LoadSummary:
        """What the cells of an arm say, as far as they count."""
        every = [it.figures for it in self._cells.get(arm_id, ())]
        kept = self.counting(arm_id)
        of = "invocations" if self.several else "blocks"
        units: dict[tuple[int, int], list[MeasuredCell]] = {}
        for (invocation, block), cell in kept.items():
            units.setdefault((invocation, 0 if self.several else block), []).append(cell)
        cells = [[it.figures for it in unit] for unit in units.values()]

        def ratio(
            parts: Callable[[CellFigures], tuple[float, float]], unit: str, scale: float = 1.0
        ) -> Estimate | None:
            summed = [tuple(map(sum, zip(*map(parts, unit), strict=True))) for unit in cells]
            values = [(above, below) for above, below in summed if below > 0]
            return pooled_ratio(values, unit=unit, of=of, scale=scale, level=level) if values else None

        def rate(made: Callable[[CellFigures], tuple[float, float]]) -> Estimate | None:
            summed = [Pool(*map(sum, zip(*map(made, unit), strict=True))) for unit in cells]
            pools = [pool for pool in summed if pool.ms > 0]
            return pooled_rate(pools, of=of, level=level) if sum(pool.tokens for pool in pools) > 0 else None

        def latency(values: Callable[[MeasuredCell], Floats | Singles]) -> LatencySummary | None:
            sections = [np.concatenate([values(it) for it in unit]).astype(np.float64) for unit in units.values()]
            sums = [(float(values.sum()), float(len(values))) for values in sections if len(values)]
            if not sums:
                return None
            p50, p95, p99 = (quantile_over(sections, it, unit="ms", of=of, level=level) for it in (0.5, 0.95, 0.99))
            mean = pooled_ratio(sums, unit="ms", of=of, level=level)
            return LatencySummary(mean=mean, p50=p50, p95=p95, p99=p99)

        def if_told(value: str) -> bool:
            return bool(kept) and all(getattr(it.figures, value) is not None for it in kept.values())

        return LoadSummary(
            load=load,
            cells=len(kept),
            broken_off=sum(not it.complete for it in every),
            without_window=sum(it.complete and not it.counts for it in every),
            window_share=_share([it.figures for it in kept.values()]),
            slots=every[-1].slots if every else None,
            throughput=rate(lambda it: (it.tokens, it.window_ms)),
            decode_throughput=rate(lambda it: (it.full_tokens or 0, it.full_ms or 0.0)),
            per_client=rate(lambda it: (it.decode_tokens, it.decode_ms)),
            requests_rate=ratio(lambda it: (it.requests_done, it.window_ms), "requests/s", 1000),
            goodput=ratio(lambda it: (it.requests_good or 0.0, it.window_ms), "requests/s", 1000)
            if if_told("requests_good")
            else None,
            in_flight=ratio(lambda it: (it.request_ms, it.window_ms), "requests"),
            ttft=latency(lambda it: it.ttft_ms),
            ttft_sent=latency(lambda it: it.ttft_sent_ms),
            tpot=latency(lambda it: it.tpot_ms),
            itl=latency(lambda it: it.itl_ms),
            e2el=latency(lambda it: it.e2el_ms),
            busy_slots=ratio(lambda it: ((it.busy_slots or 0.0) * (it.forwards or 0.0), it.forwards or 0.0), "slots")
            if if_told("busy_slots")
            else None,
            queued=ratio(lambda it: (it.queued_ms or 0.0, 1.0), "ms") if if_told("queued_ms") else None,
            late_ms=max((it.late_ms for it in every), default=0.0),
            client_cores=max((it.client_cores for it in every), default=0.0),
        )


def served(load: Load) -> Callable[[CellFigures], Pool]:
    """What the speedup at a load is made of, of each cell."""
    if load.clients is None:
        return lambda it: Pool(it.decode_tokens, it.decode_ms)
    return lambda it: Pool(it.tokens, it.window_ms)


def _share(cells: Sequence[CellFigures]) -> float | None:
    whole = sum(it.duration_ms for it in cells)
    return sum(it.window_ms for it in cells) / whole if whole > 0 else None
