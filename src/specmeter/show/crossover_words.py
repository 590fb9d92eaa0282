"""What a run says of its loads together: up to how many clients speculation pays, in any language."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specmeter.analysis.answer import least_units
from specmeter.messages import Message
from specmeter.show.names import Name, Names
from specmeter.text import bound, brackets

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from specmeter.analysis.answer import Answer
    from specmeter.analysis.load.crossover import Crossover, CrossoverOutcome, ExpectedCrossover
    from specmeter.analysis.reading import RunReport
    from specmeter.record import Estimate


def crossover_sentence(found: Crossover, names: Names) -> Message:
    """Like `dense: speculation pays up to 3.1 clients [2.6, 3.8] with draft model small, 4 draft tokens; measured at
    1, 2, 4, 8 clients`: never without the loads that it is about."""
    deep = Message("crossover.deep", depth=found.depth) if found.depth else ""
    arms = {it.arm_id for it in found.loads}
    ways = (
        Message("crossover.ways", count=found.ways)
        if found.ways > 1
        else Message("crossover.with", method=names.alone(min(arms)))
    )
    gains, losses = (
        Message(f"crossover.{kind}", loads=clients(at))
        if (at := [it.clients for it in found.loads if it.sign == sign])
        else ""
        for kind, sign in (("gains", "gain"), ("losses", "loss"))
    )
    among = len(found.loads) * found.ways
    needed, least = least_units(among), min((it.speedup.n for it in found.loads), default=0)
    return Message(
        f"crossover.{found.course}",
        few=Message("crossover.few", count=needed, all=among) if least < needed else "",
        over=Message("crossover.over", target=found.target, deep=deep),
        clients="" if found.clients is None else f"{found.clients.point:.1f}",
        interval=interval(found),
        ways=ways,
        gains=gains,
        losses=losses,
        loads=clients(found.measured),
    )


def foreseen_sentence(found: CrossoverOutcome, names: Names) -> Message:
    """Like `dense, with draft model small, 4 draft tokens: predicted before measuring, speculation pays up to 3.1
    clients [2.6, 3.8]; measured, speculation pays up to 2.9 clients [2.4, 3.3]`."""
    measured = found.measured
    deep = Message("crossover.deep", depth=found.depth) if found.depth else ""
    way = names.alone(min(it.arm_id for it in measured.loads))
    return Message(
        "crossover.foreseen",
        over=Message("crossover.over", target=measured.target, deep=deep),
        method=way,
        predicted=crossing(found.predicted),
        measured=crossing(measured, interval(measured)),
    )


def crossing(found: ExpectedCrossover | Crossover, within: Name = "") -> Message:
    """What a curve does, after `predicted` or `measured`; its interval `within` where that is told with open ends."""
    at = found.clients
    if at is None:
        return Message(f"crossing.{found.course}")
    return Message(f"crossing.{found.course}", clients=f"{at.point:.1f}", interval=within or f" {brackets(at, 1)}")


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


def interval(found: Crossover) -> Name:
    """` [2.6, 3.8]`, with `8 or more` for an end that is open."""
    return spread(found.clients, found.measured, open_low=found.open_low, open_high=found.open_high)


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


def clients(counts: Iterable[int]) -> Message:
    """`1, 2, 4, 8 clients`."""
    listed = list(counts)
    if listed == [1]:
        return Message("crossover.one_client")
    return Message("crossover.clients", counts=listed)
