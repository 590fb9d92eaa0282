"""The race: blocks of the arms that survive, until one is left, or there is no more time.

An arm stays while any question needs it; plain decoding, too, is left out once it is shown to be slower, since the
confirmation measures it again. The confirmation's share of the budget is not touched.

How a race stands, as a function of what lies in its run folder.

After every block `numbers.elimination` looks at all of them. Kinds of text for which the screen expects another arm to
be best are questions of their own, raced in the same requests; the error is shared among them.

A block that others disturbed is set aside by the run itself (`measure.calm`), whatever came out. Where blocks had to be
given up the race ends, and without a calm one the advice says who took the machine.

Settings of the engine that are tried before anything is drafted for: threads, flash attention, type of the KV cache.

Each is an alternative to the default on its own, tried greedily: plain decoding and one usual length of a draft run
under every setting, in balanced blocks. What is shown to be faster is in force from then on, for plain decoding as for
every configuration that is held against it, so that a speedup is that of drafting alone.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from specmeter.advise.advice import GRID_NAME, SETTING_NAMES, TriedSettings
from specmeter.advise.screen import simplicity
from specmeter.advise.session import AdviseSession, StagePlan, cell_s, prepared_for
from specmeter.analysis.answer import MOST_FAILED, least_units
from specmeter.analysis.load.summary import LoadTable, measured_cells, served
from specmeter.engines.process import default_threads
from specmeter.engines.registry import spec_of
from specmeter.errors import EngineError, UsageError
from specmeter.experiments import schedule
from specmeter.experiments.file import load
from specmeter.numbers.elimination import RaceStanding, eliminate
from specmeter.numbers.margin import MARGIN
from specmeter.numbers.stalls import steadied
from specmeter.numbers.stats import Pool
from specmeter.store import RunStore

if TYPE_CHECKING:
    from specmeter.advise.advice import Decision, Fate, Goal
    from specmeter.experiments.experiment import Experiment
    from specmeter.experiments.schedule import Turn
    from specmeter.numbers.stats import Floats
    from specmeter.record import Arm, EngineSettings
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
    """Ids; plain decoding first."""


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
    return {arm: said[0] for arm, said in errors.items() if len(said) > MOST_FAILED * tried[arm]}


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


def rates_in(store: RunReader, arms: Sequence[str], goal: Goal, kind: str = "") -> Floats:
    """What a run measured of some arms, on a kind of text or on all, blocks x arms."""
    by_id = {arm.id: arm for arm in store.arms()}
    if any(arm.load for arm in by_id.values()):
        return log_throughputs(LoadTable(measured_cells(store)), [by_id[arm] for arm in arms])
    prompts = [it.id for it in store.prompts() if kind in ("", it.kind)]
    return log_rates(store.rows(), arms, prompts, goal)


def standings(
    store: RunReader, questions: Sequence[RaceQuestion], experiment: Experiment, goal: Goal
) -> list[Answered]:
    """How each question stands, by all that was measured: a function of the data alone."""
    by_id = {arm.id: arm for arm in store.arms()}
    failed = failed_arms(store.rows())
    found: list[Answered] = []
    for question in questions:
        arms = tuple(arm for arm in question.arms if arm not in failed)
        ranks = sorted({simplicity(by_id[arm]) for arm in arms})
        standing = eliminate(
            rates_in(store, arms, goal, question.kind),
            simplicity=[ranks.index(simplicity(by_id[arm])) for arm in arms],
            margin=MARGIN,
            error=ERROR / len(questions),
            most_blocks=experiment.design.blocks,
        )
        found.append(Answered(question, arms, standing))
    return found


LEAST_BLOCKS = 2
"""Blocks below which a race decides nothing."""
USUAL_BLOCKS = 3
"""Room that each arm which is raced should have."""
MOST_BLOCKS = 16
CONFIRMATION = 1.3
"""A session of the confirmation takes this much longer: its server is a fresh one."""


def race(ledger: AdviseSession) -> list[Answered]:
    """Race what the screen left; how each question stands, none where nothing was raced."""
    place = ledger.folder / "race"
    kept = [it.arm_id for it in ledger.advice.fates if (it.code, it.stage) == ("open", "screen")]
    blocks = 0
    if not RunStore.exists(place):
        kept, blocks = _with_room(ledger, kept)
        if not kept:
            return []
    plan = StagePlan(
        "race",
        "race",
        (*ledger.with_baselines(kept), *kept),
        ledger.halves.search,
        (
            f"design.blocks={blocks}",
            "design.stopping=decided",
            "design.probe=off",
            "design.controls=false",
            *ledger.repeating,
            *ledger.patience,
            *ledger.shorter,
        ),
    )
    racing = _Racing(ledger, prepared_for(ledger.whole, plan, ledger.folder).work.experiment)
    ledger.carry_out(plan, then=racing.after_block)
    with RunStore.open(place, readonly=True) as store:
        return racing.told(store) if any(store.rows()) else []


@dataclass
class _Racing:
    """One start of the race."""

    ledger: AdviseSession
    experiment: Experiment

    def after_block(self, store: RunStore) -> Sequence[Turn] | None:
        """What is measured next; None where all is decided, or there is no more room."""
        if any(not it.again for it in store.disturbances()):
            return None
        ledger, answered = self.ledger, self.told(store)
        block = max(turn.block for turn in store.cells()) + 1
        experiment = self.experiment
        if all(it.settled for it in answered) or block >= experiment.design.blocks:
            return None
        racing = {arm for it in answered if not it.settled for arm in it.survivors}
        arms = [arm for arm in store.arms() if arm.id in racing]
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
        answered = answers_of(store, ledger.advice.fates, ledger.baseline.id, self.experiment, ledger.advice.asked.goal)
        ledger.set_fates([raced_fate(it, answered[0], store, failed) for it in ledger.advice.fates])
        if ledger.advice.basis != "confirmed":
            first, ratios = answered[0], answered[0].standing.ratios
            if first.leader != ledger.baseline.id:
                decision: Decision = "speculate" if first.standing.faster_than_plain else "undecided"
                ledger.answer(decision, "raced", first.leader, ratios.get(first.standing.leader))
            else:
                other = best_other(ledger.arms, first)
                speedup = ratios.get(first.arms.index(other)) if other is not None else None
                ledger.answer("off" if first.decided else "undecided", "raced", other, speedup)
        return answered


def next_block(experiment: Experiment, arms: Sequence[Arm], block: int) -> tuple[Turn, ...]:
    """The cells of a further block of these arms, in the row of their own square that begins with plain decoding."""
    design, first = experiment.design, [arm.id for arm in arms if arm.role == "baseline"]
    turns = schedule.plan([arm.id for arm in arms], block + 1, 1, design.order, design.seed, first=first)
    return tuple(turn for turn in turns if turn.block == block)


def best_other(arms: Mapping[str, Arm], answered: Answered) -> str | None:
    """The fastest arm that drafts."""
    ratios = {answered.arms[number]: it.point for number, it in answered.standing.ratios.items()}
    others = [arm for arm in answered.arms if arms[arm].speculates]
    return max(others, key=lambda arm: ratios.get(arm, 0.0), default=None)


def reserved_s(ledger: AdviseSession) -> float:
    """Seconds that the confirmation of an arm takes."""
    return CONFIRMATION * 2 * least_units(1) * ledger.plain_cell_s


def _with_room(ledger: AdviseSession, kept: Sequence[str]) -> tuple[list[str], int]:
    """(as many arms as can be raced, blocks); others have no room, as their fates say."""
    left = ledger.left() - reserved_s(ledger)
    count, blocks = len(kept), 0
    while count:
        blocks = int(left / (ledger.plain_cell_s * (count + 1)))
        if blocks >= USUAL_BLOCKS or (count == 1 and blocks >= LEAST_BLOCKS):
            break
        count -= 1
    out = set(kept[max(count, 1) :])  # the first one can be confirmed without a race
    ledger.set_fates([without_room(it) if it.arm_id in out else it for it in ledger.advice.fates])
    return list(kept[:count]), min(blocks, MOST_BLOCKS) if count else 0


def without_room(fate: Fate) -> Fate:
    """An arm that is not raced after all; one that was kept for a kind of text alone may not gain on all of them."""
    high = None if fate.predicted is None else fate.predicted.high
    return fate.model_copy(update={"code": "cannot-gain" if high is not None and high <= 1 else "no-room"})


def answers_of(
    store: RunReader, fates: Sequence[Fate], baseline: str, experiment: Experiment, goal: Goal
) -> list[Answered]:
    """How the questions stand that the race was begun with: a function of its run, and of what the screen expected."""
    there = [arm.id for arm in store.arms()]
    raced = sorted(
        (it for it in fates if it.arm_id in there),
        key=lambda it: it.predicted.point if it.predicted else 0.0,
        reverse=True,
    )
    expected = {it.arm_id: {kind: speedup.point for kind, speedup in it.by_kind.items()} for it in raced}
    kept = [it.arm_id for it in raced]
    others = [arm for arm in there if arm not in (baseline, *kept)]
    return standings(store, questions_of([*kept, *others], baseline, expected), experiment, goal)


def raced_fate(fate: Fate, first: Answered, store: RunReader, failed: dict[str, str]) -> Fate:
    """What has become of an arm by now."""
    blocks = len({row.block for row in store.rows() if row.arm_id == fate.arm_id})
    if not blocks:
        return fate
    change: dict[str, Any] = {"stage": "race", "blocks": blocks, "than": None, "ratio": None}
    if fate.arm_id in failed:
        return fate.model_copy(update={**change, "code": "failed", "why": failed[fate.arm_id].splitlines()[0]})
    number = first.arms.index(fate.arm_id)
    change["raced"] = first.standing.ratios.get(number)
    if (out := first.standing.eliminated.get(number)) is not None:
        change |= {"code": out.why, "than": first.arms[out.than], "ratio": out.ratio}
    else:
        change["code"] = "winner" if first.decided and first.leader == fate.arm_id else "open"
    return fate.model_copy(update=change)


LENGTH = 4
"""Of the draft that stands for all: verifying it asks more of the machine than plain decoding does."""
KV_TYPE = "q8_0"
PROMPTS = 2
TOKENS = 48
"""Generated for each prompt, at most."""
TRIAL_BLOCKS = 6
SHARE = 0.25
"""Of the budget; no further block is begun beyond it."""


def to_try(folder: Path) -> tuple[str, ...]:
    """What makes the grid in an advice's folder an experiment on settings, as `--set` takes it.

    Raises `UsageError` where the engine has none of them, or all are given.
    """
    experiment = load(str(folder / GRID_NAME)).experiment
    traits = spec_of(experiment.engine.kind).traits
    settings = list(alternatives(experiment.engine.settings, traits.settings, traits.kv_types, default_threads()))
    if not settings:
        raise UsageError(
            f"--wide: the engine {experiment.engine.kind} leaves nothing to try of threads, flash attention and types "
            "of the KV cache",
            fix="leave --wide out, or leave one of these settings to it",
        )
    ways: list[dict[str, Any]] = [{"method": "none"}]
    if experiment.drafts:
        method = next(it.name for it in traits.methods if it.drafter == "model")
        ways.append({"method": method, "draft": next(iter(experiment.drafts)), "gamma": LENGTH})
    lines = [{**way, "engine": engine} if engine else way for way in ways for engine in ({}, *settings)]
    return (f"arms={json.dumps(lines)}",)


def alternatives(
    given: EngineSettings, known: Sequence[str], kv_types: Sequence[str], cores: int
) -> Iterator[dict[str, int | str]]:
    """Settings to try, each on its own: of those the engine knows, what was not given."""
    if "threads" in known and given.threads is None:
        for count in dict.fromkeys((cores - 1, cores // 2)):
            if 1 <= count < cores:
                yield {"threads": count}
    open_attention = "flash_attention" in known and given.flash_attention in (None, "auto")
    if open_attention:
        yield {"flash_attention": "on"}
        yield {"flash_attention": "off"}
    has_types = {"kv_type_k", "kv_type_v"} <= set(known) and KV_TYPE in kv_types
    if has_types and given.kv_type_k is None and given.kv_type_v is None and given.flash_attention != "off":
        # llama.cpp reads a quantized V cache by flash attention only.
        attention = {"flash_attention": "on"} if open_attention else {}
        yield {"kv_type_k": KV_TYPE, "kv_type_v": KV_TYPE, **attention}


def settle(ledger: AdviseSession) -> None:
    """Measure the settings that a ledger was made for by `to_try`; its advice says which are in force from now on.

    Raises `EngineError` where plain decoding does not work.
    """
    usual = ledger.whole.work.experiment.generation.max_tokens
    plan = StagePlan(
        "settings",
        "settings",
        tuple(ledger.arms),
        tuple(ledger.halves.search[:PROMPTS]),
        (
            f"design.blocks={TRIAL_BLOCKS}",
            "design.stopping=decided",
            "design.probe=off",
            "design.controls=false",
            *ledger.repeating,
            *ledger.patience,
            f"generation.max_tokens={min(usual, TOKENS)}",
        ),
    )
    trial = _Trial(ledger, prepared_for(ledger.whole, plan, ledger.folder).work.experiment)
    ledger.carry_out(plan, then=trial.after_block)
    with RunStore.open(ledger.folder / plan.name, readonly=True) as store:
        ledger.tell(settings=tuple(trial.told(store)) if any(store.rows()) else ())


@dataclass(frozen=True)
class _Trial:
    """One start of the comparison."""

    ledger: AdviseSession
    experiment: Experiment

    def after_block(self, store: RunStore) -> Sequence[Turn] | None:
        """A further block of those that may be the fastest; None where that is decided, or there is no more room."""
        ledger, experiment = self.ledger, self.experiment
        failed = failed_arms(store.rows())
        if (why := failed.get(ledger.baseline.id)) is not None:
            raise EngineError(
                f"plain decoding failed: {why.splitlines()[0]}",
                fix=f"see the logs in {store.folder}, and `specmeter doctor`",
            )
        if any(not it.again for it in store.disturbances()):
            return None
        leading, block = self._leading(store), max(turn.block for turn in store.cells()) + 1
        if leading.settled or block >= experiment.design.blocks:
            return None
        if ledger.spent() > SHARE * ledger.advice.asked.budget_s:
            return None
        arms = [arm for arm in store.arms() if arm.id in leading.survivors]
        ledger.observer.stage_starting("settings", {arm.id: arm for arm in arms}, ledger.left())
        return next_block(experiment, arms, block)

    def told(self, store: RunReader) -> list[TriedSettings]:
        """What became of every setting; by the way of decoding that was the fastest."""
        leading, failed = self._leading(store), failed_arms(store.rows())
        standing = leading.standing
        best = standing.ratios.get(standing.leader)
        chosen = leading.leader if best is not None and best.point > 1 + MARGIN and standing.faster_than_plain else None
        found: list[TriedSettings] = []
        for arm in leading.question.arms[1:]:
            known = arm in leading.arms
            found.append(
                TriedSettings.model_validate(
                    {
                        "engine": self._differs(arm),
                        "speedup": standing.ratios.get(leading.arms.index(arm)) if known else None,
                        "blocks": len({row.block for row in store.rows() if row.arm_id == arm}),
                        "code": "failed" if not known else "chosen" if arm == chosen else "not-faster",
                        "why": "" if known else failed[arm].splitlines()[0],
                    }
                )
            )
        return found

    def _leading(self, store: RunReader) -> Answered:
        """How settings compare for the way of decoding, plain or drafting, that is ahead under any of them."""
        ledger = self.ledger
        plain = [arm.id for arm in store.arms() if not arm.speculates]
        drafting = [arm.id for arm in store.arms() if arm.speculates]
        default = next((arm for arm in drafting if not self._differs(arm)), None)
        questions = [RaceQuestion("", (ledger.baseline.id, *(it for it in plain if it != ledger.baseline.id)))]
        if default is not None and default not in failed_arms(store.rows()):
            others = [it for it in drafting if it != default]
            questions += [
                RaceQuestion("", (default, *others)),
                RaceQuestion("", (*questions[0].arms, default, *others)),
            ]
        answered = standings(store, questions, self.experiment, ledger.advice.asked.goal)
        ahead: Arm = self.ledger.arms[answered[-1].leader]
        return answered[1] if ahead.speculates else answered[0]

    def _differs(self, arm_id: str) -> dict[str, int | str]:
        """In what an arm's engine is not the default."""
        usual, mine = self.ledger.baseline.engine, self.ledger.arms[arm_id].engine
        return {name: getattr(mine, name) for name in SETTING_NAMES if getattr(mine, name) != getattr(usual, name)}
