"""Predictions of a speedup at several requests at once.

    S = 1 / (p + (1 - p) / S_decoding)          p: the part of the baseline's time that prompts take

S_decoding is the speedup with costs in plain steps of all clients together: what a step of b requests with drafts costs
over one that emits a token for each. p stays what it is for the baseline: that a draft model reads prompts as well is
left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from specmeter.analysis.load.crossover import ExpectedCrossover, expected_crossover
from specmeter.analysis.prediction.costs import Costs, DrawnCosts, probed, slowed_drafts
from specmeter.analysis.prediction.speedup import AtGamma, predict
from specmeter.errors import UsageError
from specmeter.messages import Message
from specmeter.probe.reading import surface_of
from specmeter.record import Estimate, Record

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.random import Generator

    from specmeter.analysis.prediction.drafts import Acceptance
    from specmeter.probe.record import Probe
    from specmeter.theory.arguments import Floats


class AtClients(Record):
    """What is predicted at one number of clients."""

    clients: int
    by_gamma: tuple[AtGamma, ...]
    """The shortest drafts first."""

    @property
    def best(self) -> AtGamma | None:
        """The draft length with the highest speedup; None if none gains."""
        best = max(self.by_gamma, key=lambda at: at.speedup.point)
        return best if best.speedup.point > 1 else None


class LoadForecast(Record):
    """Predictions over clients and gamma, from one source of costs and one of acceptance; while decoding."""

    cost: Message
    """Source of the costs."""
    acceptance: Message
    """Source of the acceptance rate."""
    loads: tuple[AtClients, ...]
    """The fewest clients first."""

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
    """Whether forwards over this many sequences were measured, or over fewer and more."""
    known = surface_of(probe)
    return known is not None and bool(known.sequences[0] <= clients <= known.sequences[-1])


def probed_at(probe: Probe, basis: Message, clients: float) -> Costs:
    """Costs at this many clients, from the T(b, n) of a probe, which `basis` names.

    What drafts cost there was not measured: drawn from between forwards over all requests that grow as the target's do,
    and one request after the other. Raises `UsageError` for clients beyond those that were measured.
    """
    if clients == 1:
        return probed(probe, basis)
    known = surface_of(probe)
    if known is None:
        raise UsageError(
            f"{basis}: no costs for several sequences, which {clients:g} clients need",
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
        raise UsageError("clients: none given", fix="give at least one number of clients")
    counts = sorted(set(clients))
    found = [predict(acceptance, costs_at(count), gammas, by_model=by_model) for count in counts]
    return LoadForecast(
        cost=found[-1].cost,
        acceptance=found[0].acceptance,
        loads=tuple(AtClients(clients=count, by_gamma=it.by_gamma) for count, it in zip(counts, found, strict=True)),
    )
