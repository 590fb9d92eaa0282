"""What a run says of its loads together, in a sentence: up to how many clients speculation pays, in any language.

The tables of a run under load: speedups by load, and what each configuration did at each load.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from specmeter.analysis.answer import least_units, says_nothing
from specmeter.analysis.load.crossover import way
from specmeter.messages import Message
from specmeter.show.names import Names, load_name
from specmeter.show.table import Cell, Column, Row, Table, counted, estimate_cell, numbers
from specmeter.show.words import words
from specmeter.text import bound, brackets, percent, printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from specmeter.analysis.answer import Answer
    from specmeter.analysis.load.crossover import Crossover
    from specmeter.analysis.load.summary import LatencySummary, LoadSummary
    from specmeter.analysis.prediction.forecast import CrossoverOutcome
    from specmeter.analysis.prediction.under_load import ExpectedCrossover
    from specmeter.analysis.reading import RunReport
    from specmeter.analysis.summary import ArmSummary
    from specmeter.record import Estimate, Load
    from specmeter.show.words import Words


def crossover_sentence(found: Crossover, words: Words, names: Names) -> str:
    """Like `dense: speculation pays up to 3.1 clients [2.6, 3.8], with small draft, 4 tokens; measured at 1, 2, 4, 8
    clients`: never without the loads that it is about."""
    deep = words("crossover.deep", depth=found.depth) if found.depth else ""
    arms = {it.arm_id for it in found.loads}
    ways = (
        words("crossover.ways", count=found.ways)
        if found.ways > 1
        else words("crossover.with", method=names.without_load(min(arms), words))
    )
    signs = "".join(
        words(f"crossover.{kind}", loads=_counts(at, words))
        for kind, sign in (("gains", "gain"), ("losses", "loss"))
        if (at := [it.clients for it in found.loads if it.sign == sign])
    )
    needed, least = least_units(len(found.loads) * found.ways), min((it.speedup.n for it in found.loads), default=0)
    return words(
        f"crossover.{found.course}",
        few=words("crossover.few", count=needed) if least < needed else "",
        over=words("crossover.over", target=found.target, deep=deep),
        clients="" if found.clients is None else f"{found.clients.point:.1f}",
        interval=interval(found, words),
        ways=ways,
        signs=signs,
        loads=_counts(found.measured, words),
    )


def foreseen_sentence(found: CrossoverOutcome, words: Words, names: Names) -> str:
    """Like `dense, with small draft, 4 tokens: predicted before measuring, speculation pays up to 3.1 clients
    [2.6, 3.8]; measured, speculation pays up to 2.9 clients [2.4, 3.3]`."""
    measured = found.measured
    deep = words("crossover.deep", depth=found.depth) if found.depth else ""
    way = names.without_load(min(it.arm_id for it in measured.loads), words)
    return words(
        "crossover.foreseen",
        over=words("crossover.over", target=measured.target, deep=deep),
        method=way,
        predicted=_crossing(found.predicted, "", words),
        measured=_crossing(measured, interval(measured, words), words),
    )


def _crossing(found: ExpectedCrossover | Crossover, within: str, words: Words) -> str:
    """What a curve does, after `predicted` or `measured`; its interval `within` where that is told with open ends."""
    at = found.clients
    if at is None:
        return words(f"crossing.{found.course}")
    return words(f"crossing.{found.course}", clients=f"{at.point:.1f}", interval=within or f" {brackets(at, 1)}")


def main_crossovers(found: Iterable[Crossover]) -> list[Crossover]:
    """One for each target and depth: all ways of drafting together, or the only one."""
    first: dict[tuple[str, int], Crossover] = {}
    for it in found:
        first.setdefault((it.target, it.depth), it)
    return list(first.values())


def untold(report: RunReport) -> list[Answer]:
    """Answers that stand beside the crossovers in a heading: one per baseline, by kind of text only where nothing
    competes on all of them; at loads only where no crossover tells of them."""
    whole = {answer.baseline_id for answer in report.answers if not answer.kind}
    heads = [answer for answer in report.answers if not answer.kind or answer.baseline_id not in whole]
    plain = {arm.id: arm.baseline_id for arm in report.arms}
    crossed = {plain.get(at.arm_id) for it in report.crossovers for at in it.loads if it.course != "not shown"}
    return [answer for answer in heads if answer.baseline_id not in crossed]


def interval(found: Crossover, words: Words) -> str:
    """` [2.6, 3.8]`, with `8 or more` for an end that is open."""
    return words.render(spread(found.clients, found.measured, open_low=found.open_low, open_high=found.open_high))


def spread(at: Estimate | None, loads: Sequence[int], *, open_low: bool, open_high: bool) -> str | Message:
    """The interval of a crossover between loads, the fewest clients first; an open end lies at the last of them, or
    beyond."""
    if at is None:
        return ""
    if at.low is None or at.high is None:
        return Message("crossover.no_interval")
    low = Message("crossover.or_fewer", first=loads[0]) if open_low else bound(at.low, 1)
    high = Message("crossover.or_more", last=loads[-1]) if open_high else bound(at.high, 1)
    return Message("crossover.interval", low=low, high=high)


def _counts(counts: Iterable[int], words: Words) -> str:
    """`1, 2, 4, 8 clients`."""
    listed = list(counts)
    if listed == [1]:
        return words("crossover.one_client")
    return words("crossover.clients", counts=words.listed(map(str, listed)))


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
    the total tokens per second without speculation."""
    alike: dict[tuple[int, bool], list[Load]] = {}
    for load in loads_of(report, target):
        alike.setdefault((load.depth, load.clients is None), []).append(load)
    return [_speedups(report, target, loads) for loads in alike.values()]


def _speedups(report: RunReport, target: str, loads: Sequence[Load]) -> Table:
    arms = {arm.id: arm for arm in report.arms}
    names, english = Names(report.arms), words("en")
    labels = {load.label for load in loads}
    rows: dict[str, dict[str, ArmSummary]] = {}
    for arm, it in loaded(report):
        asked = arms[arm.arm_id]
        if asked.target == target and it.load.label in labels:
            rows.setdefault(way(asked), {})[it.load.label] = arm
    shown: list[Row] = []
    for of in rows.values():
        first = next(iter(of.values()))
        name = names.without_load(first.arm_id, english)
        if first.cost_probe:
            name += f" [cost probe: {first.cost_probe}]"
        if first.role == "baseline":
            name += ", tok/s"
        cells = (_of_load(report, of.get(load.label)) for load in loads)
        shown.append(Row((Cell(name), *cells)))
    columns = [
        Column(named, "number", named, narrow="point")
        for named in [words("en").render(load_name(load)) for load in loads]
    ]
    return Table("speedups_by_load", (Column("configuration", title=target), *columns), shown)


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
    low, high = (arm.speedup.low, arm.speedup.high) if arm.speedup else (None, None)
    if low is not None and high is not None and says_nothing(low, high):
        return Cell("too noisy", tone="doubtful")
    return estimate_cell(arm.speedup, 2, mark=mark)


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
                    estimate_cell(it.requests_rate, 2, struck=struck),
                    *((estimate_cell(it.goodput, 2, struck=struck),) if good else ()),
                    *((estimate_cell(it.busy_slots, 2, struck=struck),) if busy else ()),
                    estimate_cell(arm.acceptance, 1, scale=100, struck=struck),
                    estimate_cell(arm.tau, 2, struck=struck),
                    Cell("-" if it.window_share is None else percent(it.window_share), it.window_share),
                    counted(it.cells),
                    Cell(Message(f"verdict.{verdict or 'unchecked'}")),
                )
                rows.append(Row(cells, verdict, filed={"target": printable(target)}))
    return Table("load", columns, rows)


def _speedup(report: RunReport, arm: ArmSummary) -> Cell:
    """A speedup; struck out where it was measured and is false."""
    withheld = report.withheld.get(arm.arm_id)
    return estimate_cell(withheld, 2, struck=True) if withheld else estimate_cell(arm.speedup, 2)


def load_overview(report: RunReport) -> Table:
    """The same in brief, for terminals: points alone, grouped by target and load."""
    arms, names, english = {arm.id: arm for arm in report.arms}, Names(report.arms), words("en")
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
                name = Cell(f"  {names.without_load(arm.arm_id, english)}")
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
    titles += [*(["requests/s"] if arriving else []), *(["good/s"] if good else []), *(["busy slots"] if busy else [])]
    columns = (Column("configuration", title=" "), *numbers(*titles))
    rows = [Row((*row.cells, *(Cell(""),) * (len(columns) - len(row.cells))), tone=row.tone) for row in rows]
    return Table("load", columns, rows)


def _latency(found: LatencySummary | None, digits: int, *, far: bool, struck: bool) -> tuple[Cell, ...]:
    values: Sequence[Estimate | None] = (None,) * 4 if found is None else (found.mean, found.p50, found.p95, found.p99)
    return tuple(estimate_cell(it, digits, struck=struck) for it in (values if far else values[:3]))


def window_span(report: RunReport) -> tuple[str, str] | None:
    """The least and the largest share of an arm's cells that lies in their steady windows."""
    shares = [it.window_share for _, it in loaded(report) if it.window_share is not None]
    return (percent(min(shares)), percent(max(shares))) if shares else None


def left_out(report: RunReport) -> list[str]:
    """Arms whose cells do not all count, each with why; what a reader of the tables must know."""
    english, names = words("en"), Names(report.arms)
    return [
        english(
            "load.left_out",
            arm=names.in_full(arm.arm_id, english),
            broken=it.broken_off,
            windowless=it.without_window,
            all=it.cells + it.broken_off + it.without_window,
        )
        for arm, it in loaded(report)
        if it.broken_off or it.without_window
    ]
