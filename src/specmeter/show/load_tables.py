"""The tables of a run under load: speedups by load, and what each configuration did at each load."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specmeter.analysis.answer import is_uninformative
from specmeter.analysis.load.crossover import way
from specmeter.messages import Message, Value, words
from specmeter.show.names import Names, load_name
from specmeter.show.report import judged
from specmeter.show.run_words import why_suspect
from specmeter.show.table import Cell, Column, Row, Table, counted, estimate_cell, numbers
from specmeter.text import percent, printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specmeter.analysis.load.summary import LatencySummary, LoadSummary
    from specmeter.analysis.reading import RunReport
    from specmeter.analysis.summary import ArmSummary
    from specmeter.record import Estimate, Load


def loaded(report: RunReport) -> list[tuple[ArmSummary, LoadSummary]]:
    """The arms that were measured under load, by target, then by load, baselines first."""
    return [(arm, arm.load) for arm in report.summary.arms if arm.load is not None]


def loads_of(report: RunReport, target: str) -> list[Load]:
    """The loads of a target, in their order."""
    arms = {arm.id: arm for arm in report.arms}
    found = {it.load.label: it.load for arm, it in loaded(report) if arms[arm.arm_id].target == target}
    return sorted(found.values(), key=lambda it: (it.depth, it.clients is None, it.clients or 0, it.rate or 0.0))


def targets_of(report: RunReport) -> list[str]:
    """Targets that were measured under load."""
    arms = {arm.id: arm for arm in report.arms}
    return list(dict.fromkeys(arms[arm.arm_id].target for arm, _ in loaded(report)))


def speedups_by_load(report: RunReport, target: str) -> list[Table]:
    """One target: ways of drafting against loads, a table for clients and one for rates at each depth; in the first row
    the total tokens per second without speculation. None where nothing decodes without speculation beside it."""
    if not any(arm.target == target and arm.baseline_id for arm in report.arms):
        return []
    alike: dict[tuple[int, bool], list[Load]] = {}
    for load in loads_of(report, target):
        alike.setdefault((load.depth, load.clients is None), []).append(load)
    return [_speedups(report, target, loads) for loads in alike.values()]


def _speedups(report: RunReport, target: str, loads: Sequence[Load]) -> Table:
    arms = {arm.id: arm for arm in report.arms}
    names, english = Names(report.arms), words()
    labels = {load.label for load in loads}
    rows: dict[str, dict[str, ArmSummary]] = {}
    for arm, it in loaded(report):
        asked = arms[arm.arm_id]
        if asked.target == target and it.load.label in labels:
            rows.setdefault(way(asked), {})[it.load.label] = arm
    shown: list[Row] = []
    for of in rows.values():
        first = next(iter(of.values()))
        name = english.render(names.alone(first.arm_id))
        if first.cost_probe:
            name += f" [cost probe: {first.cost_probe}]"
        if first.role == "baseline":
            name += ", tok/s"
        cells = (_of_load(report, of.get(load.label)) for load in loads)
        shown.append(Row((Cell(name), *cells)))
    columns = [
        Column(named, "number", named, narrow="point") for named in [words().render(load_name(load)) for load in loads]
    ]
    name = "-".join(("speedups_by_load", target, *sorted(labels)))
    return Table(name, (Column("configuration", title=target), *columns), shown, Message("table.speedups_by_load"))


def _of_load(report: RunReport, arm: ArmSummary | None) -> Cell:
    if arm is None or arm.load is None:
        return Cell("")
    verdict = report.certificate.arms.get(arm.arm_id, "invalid") if report.certificate else None
    mark = "suspect" if verdict == "suspect" else None
    if verdict == "invalid":
        return Cell("invalid", tone="bad")
    if arm.role == "baseline":
        rate = arm.load.throughput
        return Cell("-" if rate is None else f"{rate.point:.1f}", mark=mark)
    cited = report.cited(arm)
    low, high = (cited.low, cited.high) if cited else (None, None)
    if low is not None and high is not None and is_uninformative(low, high):
        return Cell("too noisy", tone="doubtful")
    return estimate_cell(cited, 2, mark=mark)


def load_table(report: RunReport) -> Table:
    """Every configuration at every load: throughput, what one client gets, latencies, goodput, busy slots."""
    arms, names = {arm.id: arm for arm in report.arms}, Names(report.arms)
    found = loaded(report)
    several = len(targets_of(report)) > 1
    good = any(it.goodput is not None for _, it in found)
    busy = any(it.busy_slots is not None for _, it in found)
    far = any((it.ttft and it.ttft.p99) or (it.tpot and it.tpot.p99) for _, it in found)
    columns = (
        *((Column("target"),) if several else ()),
        Column("load"),
        Column("arm"),
        Column("speedup", "number"),
        Column("throughput", "number", narrow="point"),
        Column("decode_throughput", "number", narrow="drop"),
        Column("per_client", "number", narrow="point"),
        Column("ttft_mean", "number", narrow="drop"),
        *(Column(f"ttft_{it}", "number", narrow="point") for it in ("p50", "p95", *(("p99",) if far else ()))),
        Column("tpot_mean", "number", narrow="drop"),
        *(Column(f"tpot_{it}", "number", narrow="point") for it in ("p50", "p95", *(("p99",) if far else ()))),
        *(Column(f"{of}_{it}", "number", narrow="drop") for of in ("itl", "e2el") for it in ("p50", "p95")),
        Column("requests_rate", "number", narrow="drop"),
        *((Column("goodput", "number", narrow="point"),) if good else ()),
        *((Column("busy_slots", "number", narrow="point"),) if busy else ()),
        Column("acceptance", "number"),
        Column("tau", "number"),
        Column("window_share", "number", narrow="drop"),
        Column("cells", "number"),
        Column("verdict"),
    )
    rows: list[Row] = []
    for target in targets_of(report):
        for load in loads_of(report, target):
            for arm, it in found:
                if it.load != load or arms[arm.arm_id].target != target:
                    continue
                verdict = report.certificate.arms.get(arm.arm_id) if report.certificate else None
                struck = verdict == "invalid"
                cells = (
                    *((Cell(target),) if several else ()),
                    Cell(load_name(load)),
                    Cell(names.alone(arm.arm_id), id=arm.arm_id),
                    Cell(Message("cell.baseline")) if arm.role == "baseline" else _speedup(report, arm),
                    estimate_cell(it.throughput, 1, struck=struck),
                    estimate_cell(it.decode_throughput, 1, struck=struck),
                    estimate_cell(it.per_client, 1, struck=struck),
                    *_latency(it.ttft, 0, far=far, struck=struck),
                    *_latency(it.tpot, 1, far=far, struck=struck),
                    *_latency(it.itl, 1, far=False, struck=struck)[1:],
                    *_latency(it.e2el, 0, far=False, struck=struck)[1:],
                    estimate_cell(it.requests_rate, 2, struck=struck),
                    *((estimate_cell(it.goodput, 2, struck=struck),) if good else ()),
                    *((estimate_cell(it.busy_slots, 2, struck=struck),) if busy else ()),
                    estimate_cell(arm.acceptance, 1, scale=100, struck=struck),
                    estimate_cell(arm.tau, 2, struck=struck),
                    Cell("-" if it.window_share is None else percent(it.window_share), it.window_share),
                    counted(it.cells),
                    judged(verdict, simulated=report.simulated),
                )
                of = {"target": printable(target)}
                rows.append(Row(cells, verdict, filed=of, why=why_suspect(report, arm.arm_id)))
    return Table("load", columns, rows)


def _speedup(report: RunReport, arm: ArmSummary) -> Cell:
    """A speedup; struck out where it was measured and is false."""
    withheld = report.withheld.get(arm.arm_id)
    return estimate_cell(withheld, 2, struck=True) if withheld else estimate_cell(report.cited(arm), 2)


def load_overview(report: RunReport) -> Table:
    """The same in brief, for terminals: points alone, grouped by target and load."""
    arms, names, english = {arm.id: arm for arm in report.arms}, Names(report.arms), words()
    found = loaded(report)
    good = any(it.goodput is not None for _, it in found)
    busy = any(it.busy_slots is not None for _, it in found)
    arriving = any(it.load.clients is None for _, it in found)
    several = len(targets_of(report)) > 1
    rows: list[Row] = []
    for target in targets_of(report):
        for load in loads_of(report, target):
            head = english.render(load_name(load))
            rows.append(Row((Cell(f"{target}, {head}" if several else head),), tone="strong"))
            for arm, it in found:
                if it.load != load or arms[arm.arm_id].target != target:
                    continue
                name = Cell(f"  {english.render(names.alone(arm.arm_id))}")
                if arm.arm_id in report.invalid:
                    rows.append(Row((name, Cell("invalid", tone="bad"))))
                    continue
                ttft, tpot = it.ttft, it.tpot
                values = (
                    (it.throughput, 1),
                    (it.per_client, 1),
                    *(((ttft.p50, 0), (ttft.p95, 0)) if ttft else ((None, 0), (None, 0))),
                    *(((tpot.p50, 1), (tpot.p95, 1)) if tpot else ((None, 0), (None, 0))),
                    *(((it.requests_rate, 2),) if arriving else ()),
                    *(((it.goodput, 2),) if good else ()),
                    *(((it.busy_slots, 1),) if busy else ()),
                )
                rows.append(Row((name, *(Cell("-" if at is None else f"{at.point:.{n}f}") for at, n in values))))
    titles = ["tok/s", "per client", "ttft p50", "ttft p95", "tpot p50", "tpot p95"]
    titles += [
        *(["requests/s"] if arriving else []),
        *(["good/s"] if good else []),
        *(["requests/forward"] if busy else []),
    ]
    columns = (Column("configuration", title=" "), *numbers(*titles))
    rows = [Row((*row.cells, *(Cell(""),) * (len(columns) - len(row.cells))), tone=row.tone) for row in rows]
    return Table("load_overview", columns, rows, Message("table.load"))


def _latency(found: LatencySummary | None, digits: int, *, far: bool, struck: bool) -> tuple[Cell, ...]:
    values: Sequence[Estimate | None] = (None,) * 4 if found is None else (found.mean, found.p50, found.p95, found.p99)
    return tuple(estimate_cell(it, digits, struck=struck) for it in (values if far else values[:3]))


def window_span(report: RunReport) -> Value | None:
    """The least and the largest share of an arm's cells that lies in their steady windows."""
    shares = [it.window_share for _, it in loaded(report) if it.window_share is not None]
    if not shares:
        return None
    least, most = percent(min(shares)), percent(max(shares))
    return least if least == most else Message("check.range", low=least, high=most)


LONG_TAIL = 0.6
"""Share of the cells' time below which a few long answers decide: others waited for their ends, and sent fillers."""


def left_out(report: RunReport) -> list[Message]:
    """Arms whose cells do not all count, or not for most of their time, each with why; what a reader of the tables must
    know."""
    names = Names(report.arms)
    lost = [
        Message(
            "load.left_out",
            arm=names.in_full(arm.arm_id),
            broken=it.broken_off,
            windowless=it.without_window,
            all=it.cells + it.broken_off + it.without_window,
        )
        for arm, it in loaded(report)
        if it.broken_off or it.without_window
    ]
    tails = [
        (it.window_share, arm.arm_id)
        for arm, it in loaded(report)
        if (it.load.clients or 1) > 1 and it.window_share is not None and it.window_share < LONG_TAIL
    ]
    if not tails:
        return lost
    share, worst = min(tails)
    return [*lost, Message("load.long_tail", arms=len(tails), share=share, arm=names.in_full(worst))]
