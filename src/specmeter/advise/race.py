"""The race: blocks of the arms that are still alive, until one is left, or there is no more time.

An arm stays while any question needs it; plain decoding, too, is left out once it is shown to be slower, since the
confirmation measures it again. The confirmation's share of the budget is not touched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from specmeter.advise.ledger import Ledger, cell_s
from specmeter.advise.stage import Plan, prepared_for
from specmeter.advise.standings import Answered, failed_arms, noisy_blocks, questions_of, standings
from specmeter.analysis.answer import least_units
from specmeter.errors import EngineError
from specmeter.experiments import schedule
from specmeter.store import RunStore

if TYPE_CHECKING:
    from specmeter.advise.advice import Decision, Fate
    from specmeter.advise.standings import Question
    from specmeter.experiments.experiment import Experiment
    from specmeter.experiments.schedule import Turn
    from specmeter.record import Arm
    from specmeter.store import RunReader

LEAST_BLOCKS = 2
"""Blocks below which a race decides nothing."""
USUAL_BLOCKS = 3
"""Room that each arm which is raced should have."""
MOST_BLOCKS = 16
CONFIRMATION = 1.3
"""A session of the confirmation takes this much longer: its warm-up is whole."""


def race(ledger: Ledger) -> list[Answered]:
    """Race what the screen left; how each question stands, none where nothing was raced."""
    place = ledger.folder / "race"
    kept = [it.arm_id for it in ledger.advice.fates if (it.code, it.stage) == ("open", "screen")]
    blocks = 0
    if not RunStore.exists(place):
        kept, blocks = _with_room(ledger, kept)
        if not kept:
            return []
    plan = Plan(
        "race",
        "race",
        (*ledger.with_baselines(kept), *kept),
        ledger.halves.search,
        (
            f"design.blocks={blocks}",
            "design.stopping=decided",
            "design.probe=off",
            "design.warmup=short",
            "design.controls=false",
            *ledger.shorter,
        ),
    )
    racing = _Racing(ledger, plan)
    ledger.carry_out(plan, then=racing.after_block)
    with RunStore.open(place, readonly=True) as store:
        return racing.told(store)


@dataclass
class _Racing:
    """One start of the race."""

    ledger: Ledger
    plan: Plan
    noted: frozenset[int] = frozenset()
    """Blocks whose disturbance was told."""

    def after_block(self, store: RunStore) -> Sequence[Turn] | None:
        """What is measured next; None where all is decided, or there is no more room."""
        ledger, answered = self.ledger, self.told(store)
        block = max(row.block for row in store.rows()) + 1
        experiment = self._experiment
        if all(it.settled for it in answered) or block >= experiment.design.blocks:
            return None
        alive = {arm for it in answered if not it.settled for arm in it.alive}
        arms = [arm for arm in store.arms() if arm.id in alive]
        if sum(cell_s(store, arm.id) for arm in arms) + reserved_s(ledger) > ledger.left():
            return None
        ledger.observer.stage_starting("race", {arm.id: arm for arm in arms}, ledger.left())
        return next_block(experiment, arms, block)

    def told(self, store: RunReader) -> list[Answered]:
        """How the race stands; the advice and the fates of its arms say so, too."""
        ledger = self.ledger
        failed = failed_arms(store.rows())
        if ledger.baseline.id in failed:
            why = failed[ledger.baseline.id].splitlines()[0]
            raise EngineError(f"plain decoding failed in the race: {why}", fix=f"see the logs in {store.folder}")
        questions = _questions(ledger, store)
        answered = standings(store, questions, self._experiment, ledger.advice.asked.goal, self._noisy(store))
        ledger.set_fates([_raced(it, answered[0], store, failed) for it in ledger.advice.fates])
        if ledger.advice.basis != "confirmed":
            _tell(ledger, answered[0])
        return answered

    @cached_property
    def _experiment(self) -> Experiment:
        return prepared_for(self.ledger.whole, self.plan, self.ledger.folder).work.experiment

    def _noisy(self, store: RunReader) -> frozenset[int]:
        noisy = noisy_blocks(store, None if self.ledger.whole.work.simulated else self.ledger.whole.host)
        for block in sorted(noisy - self.noted):
            self.ledger.observer.note(f"block {block + 1} of the race was disturbed by other programs: not counted")
        self.noted |= noisy
        return noisy


def next_block(experiment: Experiment, arms: Sequence[Arm], block: int) -> tuple[Turn, ...]:
    """The cells of a further block of these arms, in the row of their own square that begins with plain decoding."""
    design, first = experiment.design, [arm.id for arm in arms if arm.role == "baseline"]
    turns = schedule.plan([arm.id for arm in arms], block + 1, 1, design.order, design.seed, first=first)
    return tuple(turn for turn in turns if turn.block == block)


def best_other(ledger: Ledger, answered: Answered) -> str | None:
    """The fastest arm that drafts."""
    ratios = {answered.arms[number]: it.point for number, it in answered.standing.ratios.items()}
    others = [arm for arm in answered.arms if ledger.whole.work.arms[arm].speculates]
    return max(others, key=lambda arm: ratios.get(arm, 0.0), default=None)


def reserved_s(ledger: Ledger) -> float:
    """Seconds that the confirmation of an arm takes."""
    return CONFIRMATION * 2 * least_units(1) * ledger.plain_cell_s


def _with_room(ledger: Ledger, kept: Sequence[str]) -> tuple[list[str], int]:
    """(as many arms as can be raced, blocks); others have no room, as their fates say."""
    left = ledger.left() - reserved_s(ledger)
    count, blocks = len(kept), 0
    while count:
        blocks = int(left / (ledger.plain_cell_s * (count + 1)))
        if blocks >= USUAL_BLOCKS or (count == 1 and blocks >= LEAST_BLOCKS):
            break
        count -= 1
    out = set(kept[max(count, 1) :])  # the first one can be confirmed without a race
    ledger.set_fates(
        [it.model_copy(update={"code": "no-room"}) if it.arm_id in out else it for it in ledger.advice.fates]
    )
    return list(kept[:count]), min(blocks, MOST_BLOCKS) if count else 0


def _questions(ledger: Ledger, store: RunReader) -> list[Question]:
    """What is raced, by the arms that the race was begun with."""
    there = {arm.id for arm in store.arms()}
    fates = sorted(
        (it for it in ledger.advice.fates if it.arm_id in there),
        key=lambda it: it.predicted.point if it.predicted else 0.0,
        reverse=True,
    )
    expected = {it.arm_id: {kind: speedup.point for kind, speedup in it.by_kind.items()} for it in fates}
    others = [arm for arm in ledger.with_baselines([it.arm_id for it in fates]) if arm != ledger.baseline.id]
    return questions_of([*(it.arm_id for it in fates), *others], ledger.baseline.id, expected)


def _tell(ledger: Ledger, first: Answered) -> None:
    ratios = first.standing.ratios
    if first.leader != ledger.baseline.id:
        decision: Decision = "speculate" if first.standing.faster_than_plain else "undecided"
        ledger.answer(decision, "raced", first.leader, ratios.get(first.standing.leader))
        return
    other = best_other(ledger, first)
    speedup = ratios.get(first.arms.index(other)) if other is not None else None
    ledger.answer("off" if first.decided else "undecided", "raced", other, speedup)


def _raced(fate: Fate, first: Answered, store: RunReader, failed: dict[str, str]) -> Fate:
    """What has become of an arm by now."""
    blocks = len({row.block for row in store.rows() if row.arm_id == fate.arm_id})
    if not blocks:
        return fate
    change: dict[str, Any] = {"stage": "race", "blocks": blocks, "than": None, "ratio": None}
    if fate.arm_id in failed:
        return fate.model_copy(update={**change, "code": "failed", "why": failed[fate.arm_id].splitlines()[0]})
    number = first.arms.index(fate.arm_id)
    change["raced"] = first.standing.ratios.get(number)
    if (out := first.standing.out.get(number)) is not None:
        change |= {"code": out.why, "than": first.arms[out.than], "ratio": out.ratio}
    else:
        change["code"] = "winner" if first.decided and first.leader == fate.arm_id else "open"
    return fate.model_copy(update=change)
