"""At how many clients speculation stops paying, or starts to.

The crossover is where the speedup is 1: its logarithm, linear in log2 of the clients between those that were measured
(`numbers.crossing`), with an interval over the blocks that allows for bends.

At each load a gain or a loss is shown if the speedup's interval, made to hold for all loads and ways of drafting
together, lies on one side of 1. "Pays at every load" and "never pays" claim something of every load, so there each
load's own interval is enough (`answer`). Speculation stops paying if a gain is shown first and the mean falls below 1
behind it, and starts to if a loss is shown first and it rises above 1.

Of several ways of drafting, speculation pays for as long as any of them does: it stops where the last one stops, within
[the largest lower end, the largest upper end] of intervals that hold together, and starts where the first one starts.

Predicted speedups cross 1 in the same way. Errors of predictions at different loads are largely the same, so the ends
of the interval are where the lower and the upper ends of the speedups cross.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from specmeter.analysis.answer import least_units
from specmeter.numbers.estimates import above, bare, below, between
from specmeter.numbers.stats import simultaneous
from specmeter.record import Arm, Estimate, Record

if TYPE_CHECKING:
    from specmeter.analysis.load.summary import LoadTable
    from specmeter.analysis.prediction.outcomes import PredictionOutcome
    from specmeter.analysis.summary import ArmSummary, RunSummary
    from specmeter.numbers.crossing import Reach
    from specmeter.numbers.stats import Floats

Course = Literal["stops", "starts", "pays", "never", "mixed", "not shown"]
"""- `stops`: pays with few clients, and not with more; `starts`: the other way round;
- `pays`, `never`: at every number of clients that was measured;
- `mixed`: gains and losses change more than once, or ways of drafting disagree in kind;
- `not shown`: none of these.
"""
ExpectedCourse = Literal["stops", "starts", "pays", "never", "mixed"]
Sign = Literal["gain", "loss", "open"]


class ExpectedCrossover(Record):
    """How a predicted speedup goes with the number of clients."""

    course: ExpectedCourse
    """`stops`: pays with few clients and not with more; `starts`: the other way round; `pays`, `never`: at all loads
    that are predicted; `mixed`: it crosses more than once."""
    clients: Estimate | None
    """Where the speedup is 1; None where it does not cross. An end at the first or last load is open: it may lie
    beyond."""
    loads: tuple[int, ...]
    """Clients that are predicted."""


class AtLoad(Record):
    """A way of drafting at one number of clients."""

    clients: int
    arm_id: str
    speedup: Estimate
    """The arm's own."""
    sign: Sign
    """`gain` or `loss` where the interval that holds for all loads together lies on one side of 1."""


class Crossover(Record):
    """How a speedup goes with the number of clients."""

    target: str
    arm: str
    """The id that its arms have in common; empty for all ways of drafting together."""
    depth: int
    """Tokens of other text before each prompt."""
    course: Course
    clients: Estimate | None
    """Where the speedup is 1; None where it does not cross. An end at the first or last load that was measured is open
    (`open_low`, `open_high`): the crossover may lie beyond it."""
    open_low: bool = False
    open_high: bool = False
    loads: tuple[AtLoad, ...]
    """What was measured, by clients; of all ways together the best at each load."""
    ways: int = 1
    """How many ways of drafting this is about."""

    @property
    def measured(self) -> tuple[int, ...]:
        """The numbers of clients."""
        return tuple(it.clients for it in self.loads)


def way(arm: Arm) -> str:
    """What an arm's id is without its load: the same for the arms that differ in their clients alone."""
    if arm.load is None:
        return arm.id
    before, _, behind = arm.id.rpartition(f"/{arm.load.label}")
    return before + behind


def crossovers(summary: RunSummary, arms: Sequence[Arm], cells: LoadTable) -> tuple[Crossover, ...]:
    """For each target and depth: all ways of drafting together, then each of several on its own."""
    by_id = {arm.arm_id: arm for arm in summary.arms if arm.speedup is not None and arm.cost_probe is None}
    plain = {arm.id: way(arm) for arm in arms}
    groups: dict[tuple[str, int, str], dict[str, list[Arm]]] = {}
    for arm in arms:
        if arm.role == "speculative" and arm.load and arm.load.clients and arm.baseline_id and arm.id in by_id:
            group = groups.setdefault((arm.target, arm.load.depth, plain.get(arm.baseline_id, "")), {})
            group.setdefault(plain[arm.id], []).append(arm)
    found: list[Crossover] = []
    for (target, depth, _), ways in groups.items():
        curves = [
            _curve(name, sorted(of, key=_clients), by_id, cells)
            for name, of in ways.items()
            if len({_clients(arm) for arm in of}) == len(of) > 1
        ]
        every = [_crossover(target, depth, [curve], cells) for curve in curves]
        found += [_crossover(target, depth, curves, cells), *every] if len(curves) > 1 else every
    return tuple(found)


def _clients(arm: Arm) -> int:
    return (arm.load.clients or 0) if arm.load else 0


class _Curve(NamedTuple):
    """One way of drafting."""

    name: str
    loads: tuple[AtLoad, ...]
    logs: Floats
    """Units x loads: logarithms of the speedup; NaN where a unit lacks a load."""


def _curve(name: str, arms: Sequence[Arm], summaries: Mapping[str, ArmSummary], cells: LoadTable) -> _Curve:
    loads: list[AtLoad] = []
    columns: list[dict[tuple[int, int], float]] = []
    for arm in arms:
        speedup = summaries[arm.id].speedup
        if speedup is not None and arm.load is not None and arm.baseline_id is not None:
            sign = _sign(speedup, len(arms))
            loads.append(AtLoad(clients=_clients(arm), arm_id=arm.id, speedup=speedup, sign=sign))
            columns.append(cells.speedups(arm.id, arm.baseline_id, arm.load))
    units = sorted({unit for column in columns for unit in column})
    logs = [[column.get(unit, math.nan) for column in columns] for unit in units]
    return _Curve(name, tuple(loads), np.array(logs, dtype=np.float64).reshape(-1, len(columns)))


def _sign(speedup: Estimate, loads: int) -> Sign:
    """What is shown at one of this many loads."""
    if speedup.n < least_units(loads):
        return "open"
    together = simultaneous(speedup, loads)
    return "gain" if above(together, 1) else "loss" if below(together, 1) else "open"


def _crossover(target: str, depth: int, curves: Sequence[_Curve], cells: LoadTable) -> Crossover:
    """How the best of some ways of drafting goes with the number of clients."""
    every = [it for curve in curves for it in curve.loads]
    counts = sorted({it.clients for it in every})
    best = tuple(max((it for it in every if it.clients == n), key=lambda it: it.speedup.point) for n in counts)
    courses = {_course(curve.loads, len(curves)) for curve in curves}
    course: Course = "not shown"
    crossed: Estimate | None = None
    if "pays" in courses:
        course = "pays"
    elif courses == {"never"}:
        course = "never"
    elif "mixed" in courses or {"stops", "starts"} <= courses:
        course = "mixed"
    else:
        for direction in ("stops", "starts"):
            if direction in courses and (crossed := _crossing(curves, cells, falls=direction == "stops")):
                course = direction
    return Crossover(
        target=target,
        arm=curves[0].name if len(curves) == 1 else "",
        depth=depth,
        course=course,
        clients=crossed,
        open_low=crossed is not None and crossed.low == counts[0],
        open_high=crossed is not None and crossed.high == counts[-1],
        loads=best,
        ways=len(curves),
    )


def _course(loads: Sequence[AtLoad], ways: int) -> Course:
    """What the loads of one of this many ways show; `stops` and `starts` where a gain or a loss comes first.

    That the best of several ways gains is shown by an interval that holds for all of them; that none gains by each
    one's own.
    """
    speedups = [it.speedup for it in loads]
    if all(it.n >= least_units(ways) and above(simultaneous(it, ways), 1) for it in speedups):
        return "pays"
    if all(it.n >= least_units(1) and below(it, 1) for it in speedups):
        return "never"
    shown = [sign for it in speedups if (sign := _sign(it, len(loads) * ways)) != "open"]
    if sum(one != other for one, other in pairwise(shown)) > 1:
        return "mixed"
    last = loads[-1].speedup.point
    if "gain" in shown[:1] and last < 1:
        return "stops"
    return "starts" if "loss" in shown[:1] and last > 1 else "not shown"


def _crossing(curves: Sequence[_Curve], cells: LoadTable, *, falls: bool) -> Estimate | None:
    """Where the last way of drafting stops paying, or the first one starts to; None where that cannot be told.

    What starts is what stops when the loads are read backwards.
    """
    from specmeter.numbers.crossing import reach

    level = curves[0].loads[0].speedup.level
    side = 1 if falls else -1
    reaches: list[Reach] = []
    for curve in curves:
        places = [side * math.log2(it.clients) for it in curve.loads]
        reaches.append(reach(places[::side], curve.logs[:, ::side], level=1 - (1 - level) / len(curves)))
    point, low, high = (max(values) for values in zip(*reaches, strict=True))
    if not math.isfinite(point):
        return None
    counts = sorted({it.clients for curve in curves for it in curve.loads})
    of = "invocations" if cells.several else "blocks"
    n = min(int(np.isfinite(curve.logs).all(axis=1).sum()) for curve in curves)
    how = "log speedup linear in log2 of the clients"
    if len(curves) > 1:
        how += f"; the best of {len(curves)} ways to draft, together"
    if math.isinf(low) and math.isinf(high):
        return bare(2 ** (side * point), "clients", f"{how}; no interval", n=n, of=of, level=level)
    first, last = sorted((side * low, side * high))
    ends = 2 ** max(first, math.log2(counts[0])), 2 ** min(last, math.log2(counts[-1]))
    found = between(2 ** (side * point), ends[0], ends[1], "clients", f"{how}; Fieller over {of}, and bends", n=n)
    return found.model_copy(update={"of": of, "level": level})


def expected_crossover(speedups: Sequence[tuple[int, Estimate]], made: str = "prediction") -> ExpectedCrossover:
    """Where speedups at several numbers of clients cross 1, by their ends alone; `made` says how these were made."""
    ordered = sorted(speedups, key=lambda it: it[0])
    counts = tuple(clients for clients, _ in ordered)
    points = [math.log(it.point) for _, it in ordered]
    turns = sum((one > 0) != (other > 0) for one, other in pairwise(points))
    if turns != 1:
        course: ExpectedCourse = "mixed" if turns else "pays" if points[0] > 0 else "never"
        return ExpectedCrossover(course=course, clients=None, loads=counts)
    course = "stops" if points[0] > 0 else "starts"
    sign = 1 if course == "stops" else -1

    def place(values: Sequence[float]) -> float:
        return 2 ** _reach([math.log2(it) for it in counts], [sign * value for value in values])

    if any(it.low is None or it.high is None for _, it in ordered):
        alone = bare(place(points), "clients", "log speedup linear in log2 of the clients; no interval")
        return ExpectedCrossover(course=course, clients=alone, loads=counts)
    ends = [
        place([math.log(it.point if (end := getattr(it, name)) is None else end) for _, it in ordered])
        for name in ("low", "high")
    ]
    method = f"{made}; log speedup linear in log2 of the clients, ends where those of the speedups cross"
    low, high = sorted(ends)
    clients = between(place(points), low, high, "clients", method, n=1)
    return ExpectedCrossover(course=course, clients=clients, loads=counts)


def _reach(places: Sequence[float], values: Sequence[float]) -> float:
    """How far values stay above zero on straight lines between places; the first place where they begin below."""
    if values[0] <= 0:
        return places[0]
    for (left, high), (right, low) in pairwise(zip(places, values, strict=True)):
        if low <= 0:
            return left + (right - left) * high / (high - low)
    return places[-1]


class CrossoverOutcome(Record):
    """Where a way of drafting was expected to stop paying, or to start to, and where it did."""

    arm: str
    """The id that its arms have in common."""
    depth: int
    """Tokens of other text before each prompt."""
    predicted: ExpectedCrossover
    measured: Crossover


def crossover_outcomes(
    crossovers: Iterable[Crossover], found: Iterable[PredictionOutcome]
) -> tuple[CrossoverOutcome, ...]:
    """Each way of drafting all of whose loads were predicted."""
    speedups = {it.prediction.arm_id: it.prediction.speedup for it in found}
    judged: list[CrossoverOutcome] = []
    for it in crossovers:
        told = [(at.clients, speedup) for at in it.loads if (speedup := speedups.get(at.arm_id)) is not None]
        if it.ways == 1 and len(told) == len(it.loads):
            expected = expected_crossover(told)
            judged.append(CrossoverOutcome(arm=it.arm, depth=it.depth, predicted=expected, measured=it))
    return tuple(judged)
