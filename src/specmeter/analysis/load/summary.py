"""Throughput, latencies and speedup of an arm under load, from its cells.

Cells are the units: in each block the arm and its baseline have one each, at the same load. If clients were asked for,
the speedup is the ratio of total tokens per second inside the steady windows, prompts included; if a rate was,
throughput is what was offered, and the speedup is the ratio of times per output token. There is no speedup of one kind
of text, since texts share the machine. A cell that was broken off, or has no steady window, does not count.

"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from specmeter.analysis.gain import Gain, pooled_speedup, speedup_of, units_of
from specmeter.numbers.quantiles import quantile_over
from specmeter.numbers.stats import Pair, Pool, pooled_rate, pooled_ratio, simultaneous
from specmeter.record import Estimate, Load, Record

if TYPE_CHECKING:
    from specmeter.analysis.load.figures import CellFigures, MeasuredCell
    from specmeter.analysis.load.window import Singles
    from specmeter.numbers.stats import Floats
    from specmeter.store import RunReader


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


def cells_of(store: RunReader, *, superseded: bool = False) -> Iterable[MeasuredCell]:
    """The cells of a run as `measured_cells` reads them; none if no arm is under load."""
    if all(arm.load is None for arm in store.arms()):
        return ()
    from specmeter.analysis.load.figures import measured_cells

    return measured_cells(store, superseded=superseded)


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
