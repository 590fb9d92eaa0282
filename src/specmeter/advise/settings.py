"""Settings of the engine that are tried before anything is drafted for: threads, flash attention, type of the KV cache.

Each is an alternative to the default on its own, tried greedily: decoding without speculation and one usual length of a
draft run under every setting, in balanced blocks. What is shown to be faster is in force from then on, for decoding
without speculation as for every configuration that is compared with it, so that a speedup is that of drafting alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from specmeter.advise.advice import SETTING_NAMES, TriedSettings
from specmeter.advise.race import next_block
from specmeter.advise.session import AdviseSession
from specmeter.advise.stage import StagePlan
from specmeter.advise.standing import RaceQuestion, blocks_of, failed_arms, refuse_failing, standings
from specmeter.engines.registry import spec_of
from specmeter.errors import UsageError
from specmeter.experiments.spec import ArmSpec
from specmeter.numbers.margin import MARGIN
from specmeter.record import EngineSettings
from specmeter.store import RunStore

if TYPE_CHECKING:
    from specmeter.advise.standing import Answered
    from specmeter.experiments.experiment import Experiment
    from specmeter.experiments.schedule import Cell
    from specmeter.record import Arm
    from specmeter.store import RequestRow, RunReader

LENGTH = 4
"""Of the draft that stands for all: verifying it asks more of the machine than no speculation does."""
KV_TYPE = "q8_0"
PROMPTS = 2
TOKENS = 48
"""Generated for each prompt, at most."""
TRIAL_BLOCKS = 6
SHARE = 0.25
"""Of the budget; no further block is started beyond it."""


def to_try(experiment: Experiment) -> Experiment:
    """A grid as an experiment on settings.

    Raises `UsageError` where the engine has none of them, or all are given.
    """
    from specmeter.engines.process import default_threads

    traits = spec_of(experiment.engine.kind).traits
    settings = list(alternatives(experiment.engine.settings, traits.settings, traits.kv_types, default_threads()))
    if not settings:
        raise UsageError(
            f"--wide: the engine {experiment.engine.kind} has no threads, flash attention or KV cache type left to try",
            fix="leave --wide out, or remove one of these options",
        )
    ways = [ArmSpec(method="none")]
    if experiment.drafts:
        method = next(it.name for it in traits.methods if it.drafter == "model")
        ways.append(ArmSpec(method=method, draft=next(iter(experiment.drafts)), gamma=LENGTH))
    engines = [EngineSettings.model_validate(it) for it in ({}, *settings)]
    arms = tuple(way.model_copy(update={"engine": engine}) for way in ways for engine in engines)
    return experiment.model_copy(update={"arms": arms})


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


def settle(session: AdviseSession) -> None:
    """Measure the settings that a session was made for by `to_try`; its advice says which are in force from now on.

    Raises `EngineError` where decoding without speculation does not work.
    """
    plan = StagePlan(
        "settings",
        "settings",
        tuple(session.arms),
        tuple(session.halves.search[:PROMPTS]),
        {"blocks": TRIAL_BLOCKS, "stopping": "decided", **session.repeating, **session.patience},
        max_tokens=min(session.whole.experiment.generation.max_tokens, TOKENS),
    )
    trial = _Trial(session, session.part(plan).experiment)
    session.carry_out(plan, next_cells=trial.after_block)
    with RunStore.open(session.folder / plan.name, readonly=True) as store:
        session.tell(settings=tuple(trial.tried(store)) if any(store.rows()) else ())


@dataclass(frozen=True)
class _Trial:
    """One start of the comparison."""

    session: AdviseSession
    experiment: Experiment

    def after_block(self, store: RunStore) -> Sequence[Cell] | None:
        """A further block of those that may be the fastest; None where that is decided, or there is no more room."""
        session, experiment = self.session, self.experiment
        rows = list(store.rows())
        failed = refuse_failing(store, rows, session.baseline.id)
        if any(not it.again for it in store.disturbances()):
            return None
        leading, block = self._leading(store, rows, failed), max(turn.block for turn in store.cells()) + 1
        if leading.settled or block >= experiment.design.blocks:
            return None
        if session.spent() > SHARE * session.advice.asked.budget_s:
            return None
        arms = [arm for arm in store.arms() if arm.id in leading.survivors]
        session.observer.stage_starting("settings", {arm.id: arm for arm in arms}, session.left())
        return next_block(experiment, arms, block)

    def tried(self, store: RunReader) -> list[TriedSettings]:
        """What became of every setting; by the way of decoding that was the fastest."""
        rows = list(store.rows())
        failed, blocks = failed_arms(rows), blocks_of(rows)
        leading = self._leading(store, rows, failed)
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
                        "blocks": blocks[arm],
                        "code": "failed" if not known else "chosen" if arm == chosen else "not-faster",
                        "why": "" if known else failed[arm].splitlines()[0],
                    }
                )
            )
        return found

    def _leading(self, store: RunReader, rows: Sequence[RequestRow], failed: Mapping[str, str]) -> Answered:
        """How settings compare for the way of decoding, plain or drafting, that is ahead under any of them."""
        session = self.session
        plain = [arm.id for arm in store.arms() if not arm.speculates]
        drafting = [arm.id for arm in store.arms() if arm.speculates]
        default = next((arm for arm in drafting if not self._differs(arm)), None)
        questions = [RaceQuestion("", (session.baseline.id, *(it for it in plain if it != session.baseline.id)))]
        if default is not None and default not in failed:
            others = [it for it in drafting if it != default]
            questions += [
                RaceQuestion("", (default, *others)),
                RaceQuestion("", (*questions[0].arms, default, *others)),
            ]
        answered = standings(store, rows, questions, self.experiment, session.advice.asked.goal)
        ahead: Arm = self.session.arms[answered[-1].leader]
        return answered[1] if ahead.speculates else answered[0]

    def _differs(self, arm_id: str) -> dict[str, int | str]:
        """In what an arm's engine is not the default."""
        usual, mine = self.session.baseline.engine, self.session.arms[arm_id].engine
        return {name: getattr(mine, name) for name in SETTING_NAMES if getattr(mine, name) != getattr(usual, name)}
