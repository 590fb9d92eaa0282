"""The race: blocks of the arms that are still alive, until it is decided which is the fastest.

After every block `numbers.elimination` looks at all of them. Plain decoding is in every block, since speedups are over
it, even when it is out. Kinds of text for which the screen expects another arm to be best are raced at once, in the
same requests: an arm stays while any of these questions needs it, and the error is shared among them.

A block in which other programs were busy, or a request stalled, says little about any of its arms: it is measured again
as a whole, whoever it favoured.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from specmeter.analysis.answer import MOST_FAILED
from specmeter.experiments import schedule
from specmeter.numbers.elimination import Standing, judge
from specmeter.record import PLAIN, Arm, EngineTraits

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from specmeter.advise.advice import Goal
    from specmeter.experiments.experiment import Experiment
    from specmeter.experiments.schedule import Turn
    from specmeter.store import RequestRow, RunReader

    Floats = NDArray[np.float64]

MARGIN = 0.02
ERROR = 0.05
MOST_BLOCKS = 8


@dataclass(frozen=True)
class Question:
    """Which of some arms is the fastest on a kind of text."""

    kind: str
    """Empty: on all prompts."""
    arms: tuple[str, ...]
    """Ids; plain decoding first."""


@dataclass(frozen=True)
class Answered:
    """A question, and how it stands."""

    question: Question
    arms: tuple[str, ...]
    """Those of the question that did not fail, as the standing numbers them."""
    standing: Standing

    @property
    def leader(self) -> str:
        return self.arms[self.standing.leader]

    @property
    def alive(self) -> tuple[str, ...]:
        return tuple(self.arms[number] for number in self.standing.alive)

    @property
    def decided(self) -> bool:
        return self.standing.state != "open"


def questions_of(kept: Sequence[str], baseline: str, by_kind: Mapping[str, Mapping[str, float]]) -> list[Question]:
    """What is raced: all arms on all prompts, and on each kind those of them that may differ from the best of all.

    `kept` has the best arm first; `by_kind` is the speedup that the screen expects, arm by arm and kind by kind.
    """
    found = [Question("", (baseline, *kept))]
    kinds = list(dict.fromkeys(kind for arm in kept for kind in by_kind.get(arm, {})))
    for kind in kinds if len(kinds) > 1 else ():
        here = {arm: by_kind[arm][kind] for arm in kept if kind in by_kind.get(arm, {})} | {baseline: 1.0}
        best, usual = max(here, key=here.__getitem__), here.get(kept[0], 1.0)
        if here[best] > (1 + MARGIN) * usual:
            found.append(Question(kind, tuple(dict.fromkeys((baseline, best, kept[0])))))
    return found


def failed_arms(rows: Iterable[RequestRow]) -> dict[str, str]:
    """Arms that failed more than a tenth of their requests -> what the engine said first."""
    tried: dict[str, int] = {}
    errors: dict[str, list[str]] = {}
    for row in rows:
        tried[row.arm_id] = tried.get(row.arm_id, 0) + 1
        if row.status != "ok":
            errors.setdefault(row.arm_id, []).append(row.error or "")
    return {arm: said[0] for arm, said in errors.items() if len(said) > MOST_FAILED * tried[arm]}


def log_rates(
    rows: Iterable[RequestRow], arms: Sequence[str], prompts: Collection[str], goal: Goal, noisy: Collection[int] = ()
) -> Floats:
    """Logarithm of tokens per second, blocks x arms, over these prompts; nan where an arm lacks any of them.

    For `latency` of all tokens over the time of prompt and answer. Blocks in `noisy` are left out.
    """
    sums: dict[tuple[int, str], list[tuple[float, float]]] = {}
    for row in rows:
        if row.prompt_id not in prompts or row.status != "ok" or row.block in noisy:
            continue
        count, ms, before = row.predicted_n or 0, row.predicted_ms or 0.0, row.prompt_ms or 0.0
        part = (count - 1, ms) if goal == "throughput" else (count, before + ms)
        if part[0] > 0 and part[1] > 0:
            sums.setdefault((row.block, row.arm_id), []).append(part)
    blocks = sorted({block for block, _ in sums})
    found = np.full((len(blocks), len(arms)), np.nan)
    for row, block in enumerate(blocks):
        for column, arm in enumerate(arms):
            parts = sums.get((block, arm), [])
            if len(parts) == len(prompts):
                found[row, column] = math.log(1000 * sum(it[0] for it in parts) / sum(it[1] for it in parts))
    return found


def simplicity_of(arm: Arm, traits: EngineTraits) -> tuple[float, ...]:
    """What is simpler comes first: nothing, then looking up, heads of the target, and draft models; shorter drafts."""
    if arm.methods == (PLAIN,):
        return (0.0, 0.0, 0.0, 0.0)
    drafters = traits.drafters(arm.methods)
    rank = 3.0 if arm.draft is not None else 1.0 if drafters <= {"lookup"} else 2.0
    return (rank, len(arm.methods), arm.gamma or 0, float(arm.p_min or 0))


def standings(
    store: RunReader, questions: Sequence[Question], experiment: Experiment, goal: Goal, noisy: Collection[int] = ()
) -> list[Answered]:
    """How each question stands, by all that was measured: a function of the data alone."""
    rows, traits = list(store.rows()), store.traits()
    by_id = {arm.id: arm for arm in store.arms()}
    kinds = {prompt.id: prompt.kind for prompt in store.prompts()}
    failed = failed_arms(rows)
    found: list[Answered] = []
    for question in questions:
        arms = tuple(arm for arm in question.arms if arm not in failed)
        ranks = sorted({simplicity_of(by_id[arm], traits) for arm in arms})
        prompts = [it for it, kind in kinds.items() if question.kind in ("", kind)]
        standing = judge(
            log_rates(rows, arms, prompts, goal, noisy),
            simplicity=[ranks.index(simplicity_of(by_id[arm], traits)) for arm in arms],
            margin=MARGIN,
            error=ERROR / len(questions),
            most_blocks=experiment.design.blocks,
        )
        found.append(Answered(question, arms, standing))
    return found


def next_block(experiment: Experiment, arms: Sequence[Arm], block: int) -> tuple[Turn, ...]:
    """The cells of a further block of these arms, in the row of a square of their own."""
    design = experiment.design
    turns = schedule.plan([arm.id for arm in arms], block + 1, 1, design.order, design.seed)
    return tuple(turn for turn in turns if turn.block == block)
