"""Settings of the engine that are tried before anything is drafted for: threads, flash attention, type of the KV cache.

Each is an alternative to the default on its own, tried greedily: plain decoding and one usual length of a draft run
under every setting, in balanced blocks. What is shown to be faster is in force from then on, for plain decoding as for
every configuration that is held against it, so that a speedup is that of drafting alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specmeter.advise.advice import GRID_NAME, SETTING_NAMES, TriedSettings
from specmeter.advise.race import RaceQuestion, failed_arms, next_block, noisy_blocks, standings
from specmeter.advise.session import StagePlan, prepared_for
from specmeter.engines.process import default_threads
from specmeter.engines.registry import spec_of
from specmeter.errors import EngineError, UsageError
from specmeter.experiments.file import load
from specmeter.numbers.margin import MARGIN
from specmeter.store import RunStore

if TYPE_CHECKING:
    from specmeter.advise.race import Answered
    from specmeter.advise.session import AdviseSession
    from specmeter.experiments.experiment import Experiment
    from specmeter.experiments.schedule import Turn
    from specmeter.record import Arm, EngineSettings
    from specmeter.store import RunReader

LENGTH = 4
"""Of the draft that stands for all: verifying it asks more of the machine than plain decoding does."""
KV_TYPE = "q8_0"
PROMPTS = 2
TOKENS = 48
"""Generated for each prompt, at most."""
MOST_BLOCKS = 6
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
            f"design.blocks={MOST_BLOCKS}",
            "design.stopping=decided",
            "design.probe=off",
            "design.warmup=short",
            "design.controls=false",
            f"generation.max_tokens={min(usual, TOKENS)}",
        ),
    )
    trial = _Trial(ledger, prepared_for(ledger.whole, plan, ledger.folder).work.experiment)
    ledger.carry_out(plan, then=trial.after_block)
    with RunStore.open(ledger.folder / plan.name, readonly=True) as store:
        ledger.tell(settings=tuple(trial.told(store)))


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
        leading, block = self._leading(store), max(row.block for row in store.rows()) + 1
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
        noisy = noisy_blocks(store, None if ledger.whole.work.simulated else ledger.whole.host)
        answered = standings(store, questions, self.experiment, ledger.advice.asked.goal, noisy)
        ahead: Arm = self.ledger.arms[answered[-1].leader]
        return answered[1] if ahead.speculates else answered[0]

    def _differs(self, arm_id: str) -> dict[str, int | str]:
        """In what an arm's engine is not the default."""
        usual, mine = self.ledger.baseline.engine, self.ledger.arms[arm_id].engine
        return {name: getattr(mine, name) for name in SETTING_NAMES if getattr(mine, name) != getattr(usual, name)}
