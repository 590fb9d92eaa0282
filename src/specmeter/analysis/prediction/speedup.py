"""Speedups from yields and costs: at one gamma, over ranges of gamma and alpha, and for several requests at once.

At several requests

    S = 1 / (p + (1 - p) / S_decoding)          p: the part of the baseline's time that prompts take

S_decoding is the speedup with costs in plain steps of all clients together: what a step of b requests with drafts costs
over one that emits a token for each. p stays what it is for the baseline: that a draft model reads prompts as well is
left out.

Where the speedup crosses 1 is found as for measured curves (`load.crossover`). Errors of predictions at different loads
are largely the same, so the ends of the interval are where the lower and the upper ends of the speedups cross.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

import numpy as np

from specmeter.analysis.prediction import DRAWS, LEVEL, LONGEST, SEED
from specmeter.analysis.prediction.costs import Costs, DrawnCosts, probed, slowed_drafts
from specmeter.analysis.prediction.drafts import Given, Yields
from specmeter.errors import UsageError
from specmeter.messages import Message
from specmeter.numbers.estimates import bare, between, of_draws
from specmeter.probe.reading import surface_of
from specmeter.record import Estimate, Record
from specmeter.theory.acceptance import alpha_from_acceptance_rate
from specmeter.theory.arguments import numbers, probabilities

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.random import Generator

    from specmeter.analysis.prediction.drafts import Acceptance
    from specmeter.probe.record import Probe
    from specmeter.theory.arguments import Floats


_HALVINGS = 30
"""Until a break-even alpha is known to nine digits."""


class Parts(Record):
    """What a step costs, in plain tokens; points."""

    draft: float
    """Making drafts."""
    verify: float
    """The target's forward over the drafts and one token more."""
    restore: float
    """Restoring and replaying a recurrent target's state."""
    rest: float
    """Choosing tokens and the like."""
    first: float = 0.0
    """Its share of what the first step of a request takes beyond the others: a draft model reads the prompt in it."""

    @property
    def total(self) -> float:
        """The whole step."""
        return self.draft + self.verify + self.restore + self.rest + self.first


PARTS = tuple(Parts.model_fields)


class AtGamma(Record):
    """What is predicted for one gamma."""

    gamma: int
    speedup: Estimate
    tau: float
    """Tokens emitted per step, forwards without a draft among the steps; a replay belongs to its step."""
    drafted: float
    """Tokens drafted per step."""
    parts: Parts
    extrapolated: bool
    """Acceptance or cost was not measured for drafts this long, and goes on from shorter ones."""


class Surface(Record):
    """Points of the speedup over gamma and alpha, for drafts of full length; no intervals."""

    gammas: tuple[int, ...]
    alphas: tuple[float, ...]
    speedups: tuple[tuple[float, ...], ...]
    """One row for each gamma, one column for each alpha."""
    break_even: tuple[Estimate | None, ...]
    """The alpha at which each gamma gains nothing and loses nothing; None where no acceptance suffices."""
    best: tuple[int, ...]
    """The gamma among them with the highest speedup, for each alpha; 0 where none gains."""


@dataclass(frozen=True)
class Predicted:
    """Predictions for several gammas from one source of costs and one of acceptance."""

    by_gamma: tuple[AtGamma, ...]
    """One per draft length, the shortest first."""
    cost: Message
    """Where costs are from."""
    acceptance: Message
    """Where acceptance is from."""
    recurrent: bool
    """The target restores a checkpoint after each rejection, and replays what was accepted."""

    @property
    def best(self) -> AtGamma | None:
        """The gamma with the highest speedup; None where none gains."""
        best = max(self.by_gamma, key=lambda at: at.speedup.point)
        return best if best.speedup.point > 1 else None


def predict(acceptance: Acceptance, costs: Costs, gammas: Sequence[int], *, by_model: bool) -> Predicted:
    """The speedup at each of `gammas`; `by_model` says that a draft model makes the drafts.

    Raises `UsageError` for a gamma below 1 or above `LONGEST`, and where the costs do not know the draft model.
    """
    wanted = check_gammas(gammas)
    yields, table = _draw(acceptance, costs, max(wanted), by_model)
    return Predicted(
        tuple(_at(gamma, yields, table) for gamma in wanted), costs.basis, acceptance.basis, table.recurrent
    )


def draw_costs(costs: Costs, gamma: int, *, by_model: bool, rng: Generator) -> DrawnCosts:
    """What steps of up to `gamma` drafts cost. Raises `UsageError` where the costs do not know the draft model.

    Arms that share costs and whose `rng` begins alike meet the same costs in every draw, so that their ratios leave
    open only what they do not share.
    """
    if by_model and not costs.has_draft:
        raise UsageError(
            f"{costs.basis}: it does not say what the draft model costs",
            fix="probe the target together with its draft, or name the draft model",
        )
    return costs.draw(gamma, DRAWS, rng, by_model)


def draw_speedup(acceptance: Acceptance, table: DrawnCosts, gamma: int, *, rng: Generator) -> tuple[Floats, float]:
    """(drawn speedups at `gamma`, the first one the point; tokens emitted per step at the point).

    `table` was drawn for `gamma`. Raises `UsageError` where no step was measured.
    """
    speedups, _, tau = _speedup(gamma, acceptance.draw(gamma, DRAWS, rng), table)
    return speedups, tau


def surface(costs: Costs, gammas: Sequence[int], alphas: Sequence[float], *, by_model: bool) -> Surface:
    """Speedups over gamma x alpha, the break-even alpha of each gamma and the best gamma of each alpha."""
    wanted = check_gammas(gammas)
    columns = tuple(float(alpha) for alpha in np.atleast_1d(probabilities("alpha", list(alphas))))
    rows = np.empty((len(wanted), len(columns)))
    table = costs.draw(max(wanted), DRAWS, np.random.default_rng(SEED), by_model)
    only = _first(table)
    for column, alpha in enumerate(columns):
        yields = Given.alpha(alpha).draw(max(wanted), 1, np.random.default_rng(SEED))
        for row, gamma in enumerate(wanted):
            rows[row, column] = _speedup(gamma, yields, only)[0][0]
    best = tuple(wanted[int(np.argmax(column))] if column.max() > 1 else 0 for column in rows.T)
    return Surface(
        gammas=wanted,
        alphas=columns,
        speedups=tuple(tuple(float(value) for value in row) for row in rows),
        break_even=tuple(_break_even(gamma, table) for gamma in wanted),
        best=best,
    )


def check_gammas(gammas: Sequence[int]) -> tuple[int, ...]:
    """`gammas` in order, each once. Raises `UsageError` for none, or for a value that is not a draft length."""
    if not gammas:
        raise UsageError("gamma: there is none", fix="give at least one draft length")
    values = np.atleast_1d(numbers("gamma", list(gammas), least=1, most=LONGEST, whole=True))
    return tuple(sorted({int(value) for value in values}))


def _draw(acceptance: Acceptance, costs: Costs, longest: int, by_model: bool) -> tuple[Yields, DrawnCosts]:
    rng = np.random.default_rng(SEED)
    yields = acceptance.draw(longest, DRAWS, rng)
    return yields, draw_costs(costs, longest, by_model=by_model, rng=rng)


def _at(gamma: int, yields: Yields, table: DrawnCosts) -> AtGamma:
    speedups, parts, tau = _speedup(gamma, yields, table)
    return AtGamma(
        gamma=gamma,
        speedup=of_draws(speedups, "x", level=LEVEL),
        tau=tau,
        drafted=float(yields.drafted[0, :gamma].sum()),
        parts=parts,
        extrapolated=gamma > min(yields.measured, table.measured),
    )


def _speedup(gamma: int, yields: Yields, table: DrawnCosts) -> tuple[Floats, Parts, float]:
    """Drawn speedups, at most gamma + 1, what a step emits, where noise puts costs below a plain token; the parts of a
    step's cost and the tokens that it emits, at the point."""
    lengths = yields.lengths(gamma)
    draft = (lengths * table.draft[:, : gamma + 1]).sum(axis=1)
    verify = (lengths * table.verify[:, : gamma + 1]).sum(axis=1)
    tau, restore = yields.tau(gamma), np.zeros(len(lengths))
    if table.recurrent:
        chance, kept = yields.rejected(gamma)
        # A replay goes over what was accepted and the token in place of the rejected one, and emits one more.
        restore = chance * (table.verify_at(kept + 1) + table.restore)
        tau = tau + chance
    means = (it[0] for it in (draft, verify, restore, table.rest, table.first * tau))
    parts = Parts(**dict(zip(PARTS, map(float, means), strict=True)))
    speedups = tau / (draft + verify + restore + table.rest + table.first * tau)
    return np.minimum(speedups, gamma + 1), parts, float(tau[0])


def _break_even(gamma: int, table: DrawnCosts) -> Estimate | None:
    """The alpha at which steps of full drafts yield what they cost."""
    if not table.recurrent:
        rates = (table.draft[:, gamma] + table.verify[:, gamma] + table.rest - 1) / gamma
        if rates[0] > 1:
            return None
        alpha = np.asarray(alpha_from_acceptance_rate(np.clip(rates, 0.0, 1.0), gamma))
        return of_draws(alpha, "1", level=LEVEL)
    # How often there is a replay depends on alpha as well, so it is looked for by halving.
    low, high = np.zeros(len(table.rest)), np.ones(len(table.rest))
    if _speedup(gamma, _full(high, gamma), table)[0][0] < 1:
        return None
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        gains = _speedup(gamma, _full(middle, gamma), table)[0] >= 1
        low, high = np.where(gains, low, middle), np.where(gains, middle, high)
    return of_draws(high, "1", level=LEVEL)


def _full(alpha: Floats, gamma: int) -> Yields:
    """Of full drafts, every token accepted with the same probability; one alpha for each draw."""
    rates = np.repeat(alpha[:, np.newaxis], gamma, axis=1)
    return Yields(np.cumprod(rates, axis=1, dtype=np.float64), np.ones_like(rates), rates, gamma)


def _first(table: DrawnCosts) -> DrawnCosts:
    """The point alone."""
    return type(table)(
        verify=table.verify[:1],
        draft=table.draft[:1],
        rest=table.rest[:1],
        restore=table.restore[:1],
        recurrent=table.recurrent,
        measured=table.measured,
        first=table.first,
    )


Course = Literal["stops", "starts", "pays", "never", "mixed"]


class ExpectedCrossover(Record):
    """How a predicted speedup goes with the number of clients."""

    course: Course
    """`stops`: pays with few clients and not with more; `starts`: the other way round; `pays`, `never`: at all loads
    that are predicted; `mixed`: it crosses more than once."""
    clients: Estimate | None
    """Where the speedup is 1; None where it does not cross. An end at the first or last load is open: it may lie
    beyond."""
    loads: tuple[int, ...]
    """Clients that are predicted."""


class AtClients(Record):
    """What is predicted at one number of clients."""

    clients: int
    by_gamma: tuple[AtGamma, ...]
    """The shortest drafts first."""

    @property
    def best(self) -> AtGamma | None:
        """The gamma with the highest speedup; None where none gains."""
        best = max(self.by_gamma, key=lambda at: at.speedup.point)
        return best if best.speedup.point > 1 else None


class LoadForecast(Record):
    """Predictions over clients and gamma, from one source of costs and one of acceptance; while decoding."""

    cost: Message
    """Where costs are from."""
    acceptance: Message
    """Where acceptance is from."""
    loads: tuple[AtClients, ...]
    """The fewest clients first."""

    def crossover(self, gamma: int) -> ExpectedCrossover:
        """Of one draft length."""
        return expected_crossover(
            [(at.clients, next(it.speedup for it in at.by_gamma if it.gamma == gamma)) for at in self.loads]
        )

    @property
    def best_crossover(self) -> ExpectedCrossover:
        """Of the best draft length at each load."""
        best = [max(at.by_gamma, key=lambda it: it.speedup.point) for at in self.loads]
        return expected_crossover([(at.clients, it.speedup) for at, it in zip(self.loads, best, strict=True)])


def with_prompts(speedup: Estimate, share: float) -> Estimate:
    """A speedup while decoding as one of the whole time, of which prompts take `share` of the baseline's."""
    if share <= 0:
        return speedup

    def whole(value: float) -> float:
        return 1 / (share + (1 - share) / value)

    low, high = (None if it is None else whole(it) for it in (speedup.low, speedup.high))
    return speedup.model_copy(update={"point": whole(speedup.point), "low": low, "high": high})


def covers(probe: Probe, clients: float) -> bool:
    """Whether forwards over so many sequences were measured, or over fewer and more."""
    known = surface_of(probe)
    return known is not None and bool(known.sequences[0] <= clients <= known.sequences[-1])


def probed_at(probe: Probe, basis: Message, clients: float) -> Costs:
    """Costs at so many clients, from the T(b, n) of a probe, which `basis` names.

    What drafts cost there was not measured: drawn from between forwards over all requests that grow as the target's do,
    and one request after the other. Raises `UsageError` for clients beyond those that were measured.
    """
    if clients == 1:
        return probed(probe, basis)
    known = surface_of(probe)
    if known is None:
        raise UsageError(
            f"{basis}: it has no forwards over several sequences, and {clients:g} clients are asked for",
            fix="probe with --batch 1,2,4,8",
        )
    curve = known.curve(clients)
    plain = curve.points[0].ms.point
    alone = known.curve(1).points[0].ms.point if covers(probe, 1) else probe.target_ms.points[0].ms.point
    overhead = probe.overhead_ms
    scaled = (
        None
        if overhead is None
        else overhead.model_copy(
            update={
                name: None if value is None else value * clients
                for name, value in (("point", overhead.point), ("low", overhead.low), ("high", overhead.high))
            }
        )
    )
    at_load = probe.model_copy(update={"target_ms": curve, "overhead_ms": scaled, "union": None})
    told = Message("costs.at_clients", probe=basis, clients=clients)
    return slowed_drafts(probed(at_load, told), min(max(1.0, plain / alone), clients), clients)


def mixed(low: Costs, high: Costs, share: float, basis: Message) -> Costs:
    """Costs at a place between two, `share` of the way from the first to the second; errors of both are the same."""

    def draw(longest: int, draws: int, rng: Generator, by_model: bool) -> DrawnCosts:
        same = int(rng.integers(2**32))
        ends = [it.draw(longest, draws, np.random.default_rng(same), by_model) for it in (low, high)]

        def between(name: str) -> Floats:
            first, second = (getattr(it, name) for it in ends)
            return (1 - share) * first + share * second

        return DrawnCosts(
            verify=between("verify"),
            draft=between("draft"),
            rest=between("rest"),
            restore=between("restore"),
            recurrent=ends[0].recurrent,
            measured=min(it.measured for it in ends),
            first=(1 - share) * ends[0].first + share * ends[1].first,
        )

    return Costs(basis, low.has_draft and high.has_draft, draw)


def over_clients(
    acceptance: Acceptance,
    costs_at: Callable[[int], Costs],
    gammas: Sequence[int],
    clients: Sequence[int],
    *,
    by_model: bool,
) -> LoadForecast:
    """Predictions at each number of `clients` and each gamma. Raises `UsageError` as `predict` does, and for no
    clients."""
    if not clients:
        raise UsageError("clients: there are none", fix="give at least one number of clients")
    counts = sorted(set(clients))
    found = [predict(acceptance, costs_at(count), gammas, by_model=by_model) for count in counts]
    return LoadForecast(
        cost=found[-1].cost,
        acceptance=found[0].acceptance,
        loads=tuple(AtClients(clients=count, by_gamma=it.by_gamma) for count, it in zip(counts, found, strict=True)),
    )


def expected_crossover(speedups: Sequence[tuple[int, Estimate]], made: str = "prediction") -> ExpectedCrossover:
    """Where speedups at several numbers of clients cross 1, by their ends alone; `made` says how these were made."""
    ordered = sorted(speedups, key=lambda it: it[0])
    counts = tuple(clients for clients, _ in ordered)
    points = [math.log(it.point) for _, it in ordered]
    turns = sum((one > 0) != (other > 0) for one, other in pairwise(points))
    if turns != 1:
        course: Course = "mixed" if turns else "pays" if points[0] > 0 else "never"
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
