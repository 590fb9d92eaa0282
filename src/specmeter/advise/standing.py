"""How a race stands, as a function of what lies in its run folder.

After every block `numbers.elimination` looks at all of them. Kinds of text for which the screen expects another arm to
be best are questions of their own, raced in the same requests; the error is shared among them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from specmeter.advise.screen import simplicity
from specmeter.analysis.answer import MAX_FAILED
from specmeter.analysis.load.summary import LoadTable, cells_of, served
from specmeter.errors import EngineError
from specmeter.numbers.margin import MARGIN
from specmeter.numbers.stalls import steadied
from specmeter.numbers.stats import Pool

if TYPE_CHECKING:
    from specmeter.advise.advice import Goal
    from specmeter.experiments.experiment import Experiment
    from specmeter.numbers.elimination import RaceStanding
    from specmeter.numbers.stats import Floats
    from specmeter.record import Arm
    from specmeter.store import RequestRow, RunReader

NOTHING = 0.005
"""Speed that is not worth a block."""
ERROR = 0.05


@dataclass(frozen=True)
class RaceQuestion:
    """Which of some arms is the fastest on a kind of text."""

    kind: str
    """Empty: on all prompts."""
    arms: tuple[str, ...]
    """Ids; decoding without speculation first."""


@dataclass(frozen=True)
class Answered:
    """A question, and how it stands."""

    question: RaceQuestion
    arms: tuple[str, ...]
    """Those of the question that did not fail, as the standing numbers them."""
    standing: RaceStanding

    @property
    def leader(self) -> str:
        return self.arms[self.standing.leader]

    @property
    def survivors(self) -> tuple[str, ...]:
        return tuple(self.arms[number] for number in self.standing.survivors)

    @property
    def decided(self) -> bool:
        """Whether one arm is left."""
        return self.standing.state != "open"

    @property
    def settled(self) -> bool:
        """Whether further blocks are not worth their time: one arm is left, or nothing that matters can be lost by
        taking the leader, of which it is known whether it drafts."""
        at_stake, known = self.standing.at_stake, self.standing.faster_than_plain or self.standing.leader == 0
        return self.decided or (known and at_stake is not None and at_stake < NOTHING)


def questions_of(kept: Sequence[str], baseline: str, by_kind: Mapping[str, Mapping[str, float]]) -> list[RaceQuestion]:
    """What is raced: all arms on all prompts, and on each kind those of them that may differ from the best of all.

    `kept` has the best arm first; `by_kind` is the speedup that the screen expects, arm by arm and kind by kind.
    """
    found = [RaceQuestion("", (baseline, *kept))]
    kinds = list(dict.fromkeys(kind for arm in kept for kind in by_kind.get(arm, {})))
    for kind in kinds if len(kinds) > 1 else ():
        here = {arm: by_kind[arm][kind] for arm in kept if kind in by_kind.get(arm, {})} | {baseline: 1.0}
        best, usual = max(here, key=here.__getitem__), here.get(kept[0], 1.0)
        if here[best] > (1 + MARGIN) * usual:
            found.append(RaceQuestion(kind, tuple(dict.fromkeys((baseline, best, kept[0])))))
    return found


def failed_arms(rows: Iterable[RequestRow]) -> dict[str, str]:
    """Arms that failed more than a tenth of their requests -> what the engine said first."""
    tried: dict[str, int] = {}
    errors: dict[str, list[str]] = {}
    for row in rows:
        tried[row.arm_id] = tried.get(row.arm_id, 0) + 1
        if row.status != "ok":
            errors.setdefault(row.arm_id, []).append(row.error or "")
    return {arm: said[0] for arm, said in errors.items() if len(said) > MAX_FAILED * tried[arm]}


def blocks_of(rows: Iterable[RequestRow]) -> Counter[str]:
    """Arm -> blocks in which it was measured."""
    return Counter(arm for arm, _ in {(row.arm_id, row.block) for row in rows})


def refuse_failing(store: RunReader, rows: Iterable[RequestRow], baseline: str) -> dict[str, str]:
    """The arms that failed. Raises `EngineError` if decoding without speculation is one of them."""
    failed = failed_arms(rows)
    if baseline in failed:
        raise EngineError(
            f"the baseline (no speculation) failed: {failed[baseline].splitlines()[0]}",
            fix=f"see the logs in {store.folder}, and run `specmeter doctor`",
        )
    return failed


def log_rates(rows: Iterable[RequestRow], arms: Sequence[str], prompts: Collection[str], goal: Goal) -> Floats:
    """Logarithm of tokens per second, blocks x arms, over these prompts; nan where an arm lacks any of them. Requests
    that were held up count for what the others let expect (`numbers.stalls`).

    For `latency` of all tokens over the time of prompt and answer.
    """
    each = {
        (row.arm_id, row.block, row.prompt_id): part
        for row in rows
        if row.arm_id in arms and row.prompt_id in prompts and row.status == "ok" and (part := counted(row, goal))
    }
    blocks, names = sorted({block for _, block, _ in each}), sorted(prompts)
    parts = np.full((2, len(arms), len(blocks), len(names)), np.nan)
    for (arm, block, prompt), part in each.items():
        parts[:, arms.index(arm), blocks.index(block), names.index(prompt)] = part
    times = parts[0] * np.exp(steadied(np.log(parts[1] / parts[0])))
    return np.log(1000 * parts[0].sum(axis=2) / times.sum(axis=2)).T


def counted(row: RequestRow, goal: Goal) -> Pool | None:
    """Tokens and their time; None where there are none."""
    count, ms, before = row.predicted_n or 0, row.predicted_ms or 0.0, row.prompt_ms or 0.0
    part = Pool(count - 1, ms) if goal == "throughput" else Pool(count, before + ms)
    return part if min(part) > 0 else None


def log_throughputs(cells: LoadTable, arms: Sequence[Arm]) -> Floats:
    """The same of arms under load: logarithm of total tokens per second in their steady windows, the time of prompts
    included; nan where an arm has no cell that counts."""
    of = [cells.counting(arm.id) for arm in arms]
    blocks = sorted({block for mine in of for _, block in mine})
    found = np.full((len(blocks), len(arms)), np.nan)
    for column, (arm, mine) in enumerate(zip(arms, of, strict=True)):
        for (_, block), cell in mine.items():
            if arm.load is not None:
                found[blocks.index(block), column] = math.log(served(arm.load)(cell.figures).rate)
    return found


def rates_in(
    store: RunReader, arms: Sequence[str], goal: Goal, kind: str = "", rows: Sequence[RequestRow] | None = None
) -> Floats:
    """What a run measured of some arms, on a kind of text or on all, blocks x arms; `rows` are its requests, if they
    are read already."""
    by_id = {arm.id: arm for arm in store.arms()}
    if any(arm.load for arm in by_id.values()):
        return log_throughputs(LoadTable(cells_of(store)), [by_id[arm] for arm in arms])
    prompts = [it.id for it in store.prompts() if kind in ("", it.kind)]
    return log_rates(store.rows() if rows is None else rows, arms, prompts, goal)


def standings(
    store: RunReader, rows: Sequence[RequestRow], questions: Sequence[RaceQuestion], experiment: Experiment, goal: Goal
) -> list[Answered]:
    """How each question stands, by all that was measured: a function of the data alone."""
    from specmeter.numbers.elimination import eliminate

    by_id = {arm.id: arm for arm in store.arms()}
    failed = failed_arms(rows)
    found: list[Answered] = []
    for question in questions:
        arms = tuple(arm for arm in question.arms if arm not in failed)
        ranks = sorted({simplicity(by_id[arm]) for arm in arms})
        standing = eliminate(
            rates_in(store, arms, goal, question.kind, rows),
            simplicity=[ranks.index(simplicity(by_id[arm])) for arm in arms],
            margin=MARGIN,
            error=ERROR / len(questions),
            most_blocks=experiment.design.blocks,
        )
        found.append(Answered(question, arms, standing))
    return found
