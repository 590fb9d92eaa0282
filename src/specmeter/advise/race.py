"""The race: blocks of the arms that survive, until one is left, or there is no more time.

An arm stays while any question needs it; decoding without speculation, too, is left out once it is shown to be slower,
since the confirmation measures it again. The confirmation's share of the budget is not touched.

A block that others disturbed is excluded by the run itself (`measure.calm`), whatever came out. Where blocks had to be
given up the race ends, and without a calm one the advice says who took the machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from specmeter.advise.session import AdviseSession
from specmeter.advise.stage import StagePlan, cells_s
from specmeter.advise.standing import blocks_of, questions_of, refuse_failing, standings
from specmeter.analysis.answer import least_units
from specmeter.experiments import schedule
from specmeter.store import RunStore

if TYPE_CHECKING:
    from specmeter.advise.advice import ArmOutcome, Decision
    from specmeter.advise.standing import Answered, RaceQuestion
    from specmeter.experiments.experiment import Experiment
    from specmeter.experiments.schedule import Cell
    from specmeter.record import Arm
    from specmeter.store import RunReader

MIN_BLOCKS = 2
"""Blocks below which a race decides nothing."""
USUAL_BLOCKS = 3
"""Room that each arm which is raced should have."""
MAX_BLOCKS = 16
CONFIRMATION = 1.3
"""A session of the confirmation takes this much longer: its server is a fresh one."""


def race(session: AdviseSession) -> list[Answered]:
    """Race what the screen left; how each question stands, none where nothing was raced."""
    place = session.folder / "race"
    kept = [it.arm_id for it in session.advice.outcomes if (it.code, it.stage) == ("open", "screen")]
    blocks = 0
    if not RunStore.exists(place):
        kept, blocks = _with_room(session, kept)
        if not kept:
            return []
    plan = StagePlan(
        "race",
        "race",
        (*session.with_baselines(kept), *kept),
        session.halves.search,
        {"blocks": blocks, "stopping": "decided", **session.repeating, **session.patience},
        max_tokens=session.shorter,
    )
    racing = _Racing(session, session.part(plan).experiment)
    session.carry_out(plan, next_cells=racing.after_block)
    with RunStore.open(place, readonly=True) as store:
        return racing.standing(store) if any(store.rows()) else []


@dataclass
class _Racing:
    """One start of the race."""

    session: AdviseSession
    experiment: Experiment

    def after_block(self, store: RunStore) -> Sequence[Cell] | None:
        """What is measured next; None where all is decided, or there is no more room."""
        if any(not it.again for it in store.disturbances()):
            return None
        session, answered = self.session, self.standing(store)
        block = max(turn.block for turn in store.cells()) + 1
        experiment = self.experiment
        if all(it.settled for it in answered) or block >= experiment.design.blocks:
            return None
        racing = {arm for it in answered if not it.settled for arm in it.survivors}
        arms = [arm for arm in store.arms() if arm.id in racing]
        if cells_s(store, [arm.id for arm in arms]) + reserved_s(session) > session.left():
            return None
        session.observer.stage_starting("race", {arm.id: arm for arm in arms}, session.left())
        return next_block(experiment, arms, block)

    def standing(self, store: RunReader) -> list[Answered]:
        """How the race stands; the advice and the outcomes of its arms say so, too."""
        session, rows = self.session, list(store.rows())
        failed = refuse_failing(store, rows, session.baseline.id)
        outcomes, goal = session.advice.outcomes, session.advice.asked.goal
        questions = questions_for(store, outcomes, session.baseline.id)
        answered = standings(store, rows, questions, self.experiment, goal)
        blocks = blocks_of(rows)
        session.set_outcomes([raced_outcome(it, answered[0], blocks[it.arm_id], failed) for it in outcomes])
        if session.advice.basis != "confirmed":
            first, ratios = answered[0], answered[0].standing.ratios
            if first.leader != session.baseline.id:
                decision: Decision = "speculate" if first.standing.faster_than_plain else "undecided"
                session.answer(decision, "raced", first.leader, ratios.get(first.standing.leader))
            else:
                other = best_other(session.arms, first)
                speedup = ratios.get(first.arms.index(other)) if other is not None else None
                session.answer("off" if first.decided else "undecided", "raced", other, speedup)
        return answered


def next_block(experiment: Experiment, arms: Sequence[Arm], block: int) -> tuple[Cell, ...]:
    """The cells of a further block of these arms, in the row of their own square that begins with no speculation."""
    design, first = experiment.design, [arm.id for arm in arms if arm.role == "baseline"]
    turns = schedule.plan([arm.id for arm in arms], block + 1, 1, design.order, design.seed, first=first)
    return tuple(turn for turn in turns if turn.block == block)


def best_other(arms: Mapping[str, Arm], answered: Answered) -> str | None:
    """The fastest arm that drafts."""
    ratios = {answered.arms[number]: it.point for number, it in answered.standing.ratios.items()}
    others = [arm for arm in answered.arms if arms[arm].speculates]
    return max(others, key=lambda arm: ratios.get(arm, 0.0), default=None)


def reserved_s(session: AdviseSession) -> float:
    """Seconds that the confirmation of an arm takes."""
    return CONFIRMATION * 2 * least_units(1) * session.plain_cell_s


def _with_room(session: AdviseSession, kept: Sequence[str]) -> tuple[list[str], int]:
    """(as many arms as can be raced, blocks); others have no room, as their outcomes say."""
    left = session.left() - reserved_s(session)
    count, blocks = len(kept), 0
    while count:
        blocks = int(left / (session.plain_cell_s * (count + 1)))
        if blocks >= USUAL_BLOCKS or (count == 1 and blocks >= MIN_BLOCKS):
            break
        count -= 1
    out = set(kept[max(count, 1) :])  # the first one can be confirmed without a race
    session.set_outcomes([without_room(it) if it.arm_id in out else it for it in session.advice.outcomes])
    return list(kept[:count]), min(blocks, MAX_BLOCKS) if count else 0


def without_room(outcome: ArmOutcome) -> ArmOutcome:
    """An arm that is not raced after all; one that was kept for a kind of text alone may not gain on all of them."""
    high = None if outcome.predicted is None else outcome.predicted.high
    return outcome.model_copy(update={"code": "cannot-gain" if high is not None and high <= 1 else "no-room"})


def questions_for(store: RunReader, outcomes: Sequence[ArmOutcome], baseline: str) -> list[RaceQuestion]:
    """The questions that a race was started with: a function of its run, and of what the screen expected."""
    there = [arm.id for arm in store.arms()]
    raced = sorted(
        (it for it in outcomes if it.arm_id in there),
        key=lambda it: it.predicted.point if it.predicted else 0.0,
        reverse=True,
    )
    expected = {it.arm_id: {kind: speedup.point for kind, speedup in it.by_kind.items()} for it in raced}
    kept = [it.arm_id for it in raced]
    others = [arm for arm in there if arm not in (baseline, *kept)]
    return questions_of([*kept, *others], baseline, expected)


def raced_outcome(outcome: ArmOutcome, first: Answered, blocks: int, failed: dict[str, str]) -> ArmOutcome:
    """What has become of an arm by now, after this many blocks."""
    if not blocks:
        return outcome
    change: dict[str, Any] = {"stage": "race", "blocks": blocks, "than": None, "ratio": None}
    if outcome.arm_id in failed:
        return outcome.model_copy(update={**change, "code": "failed", "why": failed[outcome.arm_id].splitlines()[0]})
    number = first.arms.index(outcome.arm_id)
    change["raced"] = first.standing.ratios.get(number)
    if (out := first.standing.eliminated.get(number)) is not None:
        change |= {"code": out.why, "than": first.arms[out.than], "ratio": out.ratio}
    else:
        change["code"] = "winner" if first.decided and first.leader == outcome.arm_id else "open"
    return outcome.model_copy(update=change)
