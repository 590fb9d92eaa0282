"""How a race stands, as a function of what lies in its run folder.

After every block `numbers.elimination` looks at all of them. Kinds of text for which the screen expects another arm to
be best are questions of their own, raced in the same requests; the error is shared among them.

A block in which other programs were busy, or a request stalled, says little about any of its arms: it is left out as a
whole, whichever arm it favoured, and a further one is measured.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from specmeter.advise.screen import simplicity
from specmeter.analysis.answer import MOST_FAILED
from specmeter.analysis.load.reading import measured_cells
from specmeter.analysis.load.summary import LoadTable, served
from specmeter.analysis.request_table import RequestTable
from specmeter.analysis.stalls import excesses, limit
from specmeter.host.telemetry import busy_percent, is_busy
from specmeter.numbers.elimination import Standing, judge

if TYPE_CHECKING:
    from specmeter.advise.advice import Goal
    from specmeter.experiments.experiment import Experiment
    from specmeter.numbers.stats import Floats
    from specmeter.record import Arm, Host
    from specmeter.store import RequestRow, RunReader


MARGIN = 0.02
NOTHING = 0.005
"""Speed that is not worth a block."""
ERROR = 0.05


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
        """Whether one arm is left."""
        return self.standing.state != "open"

    @property
    def settled(self) -> bool:
        """Whether further blocks are not worth their time: one arm is left, or nothing that matters can be lost by
        taking the leader, of which it is known whether it drafts."""
        at_stake, known = self.standing.at_stake, self.standing.faster_than_plain or self.standing.leader == 0
        return self.decided or (known and at_stake is not None and at_stake < NOTHING)


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


def log_throughputs(cells: LoadTable, arms: Sequence[Arm], noisy: Collection[int] = ()) -> Floats:
    """The same of arms under load: logarithm of total tokens per second in their steady windows, the time of prompts
    included; nan where an arm has no cell that counts."""
    of = [cells.counting(arm.id) for arm in arms]
    blocks = sorted({block for mine in of for _, block in mine if block not in noisy})
    found = np.full((len(blocks), len(arms)), np.nan)
    for column, (arm, mine) in enumerate(zip(arms, of, strict=True)):
        for (_, block), cell in mine.items():
            if block not in noisy and arm.load is not None:
                found[blocks.index(block), column] = math.log(served(arm.load)(cell.figures).rate)
    return found


def noisy_blocks(store: RunReader, host: Host | None) -> frozenset[int]:
    """Blocks in which other programs were busy, or a request of any arm stalled; whichever arm that favoured.

    Where half of all blocks are like that, it is how the machine is, and none is left out. `host` is the machine; None
    where it is simulated.
    """
    stalled = () if any(arm.load for arm in store.arms()) else _stalled(store)  # they wait for one another there
    found = frozenset({*stalled, *(() if host is None else _busy(store, host))})
    return found if 2 * len(found) < len({row.block for row in store.rows()}) else frozenset()


def _stalled(store: RunReader) -> Iterator[int]:
    """Blocks with a request that took far longer than the same one in other blocks; see `analysis.stalls`."""
    table = RequestTable(store.rows(), {arm.id: number for number, arm in enumerate(store.arms())})
    for number in np.unique(table.arm).tolist():
        rows = table.of_arm(number)
        rows = rows[table.decoded[rows]]
        times = np.full((len(table.prompts), len(table.cells)), np.nan)
        times[table.prompt[rows], table.cell[rows]] = np.log(table.ms[rows] / table.tokens[rows])
        excess = excesses(times)
        known = np.where(np.isfinite(excess), excess, 0.0)
        yield from (table.cells[cell][1] for cell in np.flatnonzero((known > limit(excess)).any(axis=0)).tolist())


def _busy(store: RunReader, host: Host) -> Iterator[int]:
    cores = host.physical_cores or host.logical_cores
    arms = {arm.id: arm for arm in store.arms()}
    samples = [(it.at, it.other_cpu_percent) for it in store.telemetry()]
    for session in store.sessions():
        shares = [share for at, share in samples if session.started_at <= at <= (session.ended_at or math.inf)]
        engine = arms[session.arm_id].engine
        on_cpu = not host.gpus or not engine.gpu_layers
        threads = engine.threads or cores if on_cpu else None
        if is_busy(shares, busy_percent(threads, cores, host.logical_cores)):
            yield session.block


def standings(
    store: RunReader, questions: Sequence[Question], experiment: Experiment, goal: Goal, noisy: Collection[int] = ()
) -> list[Answered]:
    """How each question stands, by all that was measured: a function of the data alone."""
    rows = list(store.rows())
    by_id = {arm.id: arm for arm in store.arms()}
    kinds = {prompt.id: prompt.kind for prompt in store.prompts()}
    failed = failed_arms(rows)
    cells = LoadTable(measured_cells(store)) if any(arm.load for arm in by_id.values()) else None
    found: list[Answered] = []
    for question in questions:
        arms = tuple(arm for arm in question.arms if arm not in failed)
        ranks = sorted({simplicity(by_id[arm]) for arm in arms})
        prompts = [it for it, kind in kinds.items() if question.kind in ("", kind)]
        standing = judge(
            log_rates(rows, arms, prompts, goal, noisy)
            if cells is None
            else log_throughputs(cells, [by_id[arm] for arm in arms], noisy),
            simplicity=[ranks.index(simplicity(by_id[arm])) for arm in arms],
            margin=MARGIN,
            error=ERROR / len(questions),
            most_blocks=experiment.design.blocks,
        )
        found.append(Answered(question, arms, standing))
    return found
