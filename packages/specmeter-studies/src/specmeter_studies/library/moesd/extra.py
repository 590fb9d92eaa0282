"""moesd: one drafting arm at several numbers of clients, and rules that follow it along them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from specmeter.messages import Message
from specmeter.numbers.estimates import above, exceeds, scaled
from specmeter.numbers.stats import STUDENT, simultaneous
from specmeter.record import Estimate
from specmeter_studies.telling import quoted

if TYPE_CHECKING:
    from specmeter_studies.study import ArmResult, Found, StudyData


@dataclass(frozen=True)
class ArmAtLoad:
    """A drafting arm at one number of clients."""

    line: ArmResult

    @property
    def efficiency(self) -> Estimate | None:
        """MoESD's T(b, 1) / T(b, gamma + 1), as speedup / tau: the time of drafts and prompts is in it. tau is counted,
        of the same steps, so that the interval is the speedup's."""
        line = self.line
        if line.speedup is None or line.tau is None or line.tau.point <= 0:
            return None
        return scaled(line.speedup, 1 / line.tau.point, "")


def loads(data: StudyData) -> tuple[ArmAtLoad, ...]:
    """Every drafting arm at every number of clients, by target and clients."""
    lines = (it for it in data.whole if it.speculates and it.clients)
    found = sorted(lines, key=lambda it: (it.target, it.draft or "", it.method, it.gamma or 0, it.clients or 0))
    return tuple(ArmAtLoad(line) for line in found)


def more_when_many_ask(data: StudyData) -> Found:
    """Whether some larger number of clients has a speedup that exceeds that of one client; contradicted where that of
    one client exceeds all others."""
    for row in _of_mixtures(data):
        known = [
            (it.line.clients or 0, it.line.speedup) for it in row if it.line.stands and it.line.speedup is not None
        ]
        alone = next((speedup for clients, speedup in known if clients == 1), None)
        more = [(clients, speedup) for clients, speedup in known if clients > 1]
        if alone is None or not more:
            continue
        said = [(1, alone), *more]
        if any(exceeds(_among(speedup, len(more)), _among(alone, len(more))) for _, speedup in more):
            return "supported", _by_clients(row, said)
        if all(exceeds(alone, speedup) for _, speedup in more):
            return "contradicted", _by_clients(row, said)
        return "cannot tell", _by_clients(row, said, _UNDECIDED)
    return "cannot tell", Message("moesd.no_mixture")


def more_than_dense(data: StudyData) -> Found:
    """Whether at some number of clients above one the best speedup of a mixture exceeds that of a dense target;
    contradicted where at all of them it is the other way round."""
    mixtures = _mixtures(data)
    at: dict[int, tuple[list[Estimate], list[Estimate]]] = {}
    for it in loads(data):
        clients, speedup = it.line.clients or 0, it.line.speedup
        if clients > 1 and it.line.stands and speedup is not None:
            at.setdefault(clients, ([], []))[it.line.target not in mixtures].append(speedup)
    both = {clients: sides for clients, sides in sorted(at.items()) if all(sides)}
    if not both:
        return "cannot tell", Message("moesd.no_dense")
    best = {clients: [max(side, key=lambda it: it.point) for side in sides] for clients, sides in both.items()}
    loads_of = [
        Message("moesd.against", mixture=quoted(mixture), dense=quoted(dense), clients=clients)
        for clients, (mixture, dense) in best.items()
    ]
    if any(exceeds(_among(mixture, len(best)), _among(dense, len(best))) for mixture, dense in best.values()):
        return "supported", Message("moesd.beside_dense", loads=loads_of, why="")
    if all(exceeds(dense, mixture) for mixture, dense in best.values()):
        return "contradicted", Message("moesd.beside_dense", loads=loads_of, why="")
    return "cannot tell", Message("moesd.beside_dense", loads=loads_of, why=_UNDECIDED)


def efficiency_rises_then_falls(data: StudyData) -> Found:
    """Whether the highest target efficiency lies between the fewest and the most clients, and exceeds both ends;
    contradicted where that of the fewest clients exceeds all others."""
    for row in _of_mixtures(data):
        known = [(it.line.clients or 0, it.efficiency) for it in row if it.line.stands]
        shown = [(clients, efficiency) for clients, efficiency in known if efficiency is not None]
        if len(shown) < 3:
            continue
        first, *others = (efficiency for _, efficiency in shown)
        peak = _among(max((efficiency for _, efficiency in shown), key=lambda it: it.point), len(shown))
        if exceeds(peak, first) and exceeds(peak, others[-1]):
            return "supported", _by_clients(row, shown)
        if all(exceeds(first, other) for other in others):
            return "contradicted", _by_clients(row, shown)
        return "cannot tell", _by_clients(row, shown, Message("moesd.rises") if exceeds(peak, first) else _UNDECIDED)
    return "cannot tell", Message("moesd.too_few_loads")


def wider_if_sparser(data: StudyData) -> Found:
    """Whether speculation pays at more numbers of clients on the sparser of two mixtures, by whole intervals."""
    share = {it.name: it.experts_used / it.experts for it in data.models if it.experts and it.experts_used}
    paying: dict[float, int] = {}
    for row in _of_mixtures(data):
        name = row[0].line.target
        if name in share and all(it.line.speedup is not None and it.line.stands for it in row):
            paying[share[name]] = sum(above(it.line.speedup, 1.0) for it in row)
    if len(paying) < 2:
        return "cannot tell", Message("moesd.one_sparsity")
    counts = [paying[active] for active in sorted(paying)]
    said = Message("moesd.paying", shown=[Message("moesd.pays", active=it, paying=paying[it]) for it in sorted(paying)])
    if counts[0] > counts[-1]:
        return "supported", said
    return ("contradicted" if counts[0] < counts[-1] else "cannot tell"), said


def _among(estimate: Estimate, several: int) -> Estimate:
    """An estimate that is one of several, any of which decides: its interval is one of so many that hold together."""
    return simultaneous(estimate, several) if STUDENT in estimate.method else estimate


def _mixtures(data: StudyData) -> set[str]:
    """Names of the mixtures of experts; the experiment's own where models say nothing of experts."""
    return {model.name for model in data.models if model.experts} or {"moe"}


def _of_mixtures(data: StudyData) -> Iterator[Sequence[ArmAtLoad]]:
    """The arms of each mixture of experts, one at all its numbers of clients at a time."""
    mixtures = _mixtures(data)
    rows: dict[tuple[object, ...], list[ArmAtLoad]] = {}
    for it in loads(data):
        if it.line.target in mixtures:
            rows.setdefault((it.line.target, it.line.draft, it.line.method, it.line.gamma), []).append(it)
    yield from rows.values()


_UNDECIDED = Message("moesd.undecided")


def _by_clients(row: Sequence[ArmAtLoad], found: Sequence[tuple[int, Estimate]], why: Message | None = None) -> Message:
    """A number of each load of one target, and why they decide nothing."""
    numbers = [Message("moesd.at", number=quoted(estimate), clients=clients) for clients, estimate in found]
    return Message("moesd.by_clients", target=row[0].line.target, numbers=numbers, why=why or "")
