"""Checks of baselines: are they requested and measured like their arms, and steady?

Automatic baselines are requested alike; one that is named in the experiment need not be.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from statistics import stdev
from typing import TYPE_CHECKING, Any

import numpy as np

from specmeter.analysis.requests import BlockKey
from specmeter.experiments.experiment import DRAFT_ONLY
from specmeter.messages import Message
from specmeter.record import Arm, EngineSettings, Prompt, Session
from specmeter.record.verdict import Findings
from specmeter.validity.checks.check import NONE, Check, compared_arms, not_applicable, not_checkable, of_arm
from specmeter.validity.checks.run_data import RunData
from specmeter.validity.checks.sessions import beside_baseline, identity_of, sessions_by_arm, target_devices_known
from specmeter.validity.checks.speeds import speeds_of, variation

if TYPE_CHECKING:
    pass


# --- baseline-elsewhere ----------------------------------------------------------------------------------------------

_SAME_VALUES = ("n_ctx", "kv_type_k", "kv_type_v", "threads", "batch_threads", "flash_attention")
"""Values in force that an arm and its baseline must share."""


def baseline_elsewhere(data: RunData) -> Findings:
    """Baselines of another engine, with other settings, in another place, or in another block.

    Everything here is as the engine says that it was, and compared exactly; what either side does not say is not
    compared. What was asked for is the business of `baseline-unlike`. How much of the target lies
    where is the business of `memory-fit`; here it is an arm whose target holds weights on other devices altogether.

    Assumes: what both sides report about engine, settings and devices is true; what one side does not report is not
    compared.
    Otherwise: two names for one thing count as different. Without a common block there is no speedup: suspect.
    """
    arms = compared_arms(data)
    if not arms:
        yield not_applicable(None, Message("unchecked.no_baseline"))
        return
    by_arm = sessions_by_arm(data)
    for arm in arms:
        mine = data.by_arm[arm.id].distinct("invocation", "block")[0]
        met = set(data.beside_baseline[arm.id].own.distinct("invocation", "block")[0])
        if not mine:
            yield not_checkable(arm.id, data.unanswered(arm.id))
            continue
        lonely = [cell for cell in mine if cell not in met]
        yield from _lonely(arm, lonely, len(mine))
        if len(lonely) == len(mine):
            continue
        differences: dict[str, Message] = {}
        pairs = list(beside_baseline(arm, by_arm))
        for session, baseline in pairs:
            differences |= _differences(arm, session, baseline)
        if differences:
            yield of_arm(
                "invalid",
                arm.id,
                Message("baseline-elsewhere.unlike", value=_first_of(differences)),
                **differences,
            )
        elif not pairs:
            yield not_checkable(arm.id, Message("unchecked.no_sessions_of_both"))


def _lonely(arm: Arm, lonely: Sequence[tuple[Any, ...]], blocks: int) -> Findings:
    if not lonely:
        return
    none = len(lonely) == blocks
    yield of_arm(
        "suspect" if none else "note",
        arm.id,
        Message("baseline-elsewhere.alone")
        if none
        else Message("baseline-elsewhere.some_alone", blocks_without_baseline=len(lonely), blocks=blocks),
        Message("baseline-elsewhere.fix_alone"),
        baseline=arm.baseline_id,
        blocks=blocks,
        blocks_without_baseline=len(lonely),
        first_invocation=lonely[0][0],
        first_block=lonely[0][1],
    )


def _first_of(differences: Mapping[str, Message]) -> Message:
    name, difference = next(iter(differences.items()))
    told = Message("baseline-elsewhere.target_devices") if name == "target_devices" else name
    return Message("check.is", name=told, value=difference)


def _differences(arm: Arm, session: Session, baseline: Session) -> dict[str, Message]:
    found: dict[str, Message] = {}
    if session.engine is not baseline.engine and identity_of(session.engine) != identity_of(baseline.engine):
        found["engine"] = Message("check.of_baseline", arm=_engine(session), baseline=_engine(baseline))
    for name in _SAME_VALUES:
        mine, base = session.resolved.get(name), baseline.resolved.get(name)
        if mine is not None and base is not None and mine != base:
            found[name] = Message("check.of_baseline", arm=str(mine), baseline=str(base))
    if target_devices_known(arm, session) and baseline.devices:
        mine, base = _places(session), _places(baseline)
        if mine != base:
            found["target_devices"] = Message("check.of_baseline", arm=mine or NONE, baseline=base or NONE)
    return found


def _engine(session: Session) -> str:
    engine = session.engine
    return f"{engine.kind} {engine.build[:60]} {engine.binary_sha256[:12]}"


def _places(session: Session) -> list[str]:
    return sorted(use.device for use in session.devices if use.model_buffer_bytes > 0)


# --- baseline-unstable -----------------------------------------------------------------------------------------------

WILD = 0.15
"""What a speedup may vary by from block to block, as its baseline does and its arm does not."""
_CALM = 0.05
"""A baseline varies by so much on a quiet machine."""


def baseline_unstable(data: RunData) -> Findings:
    """Baselines whose rate varies from block to block, and whether the speedup varies with it.

    An arm and its baseline are measured side by side in every block, and only their ratios are claimed. What both
    share cancels, however large it is: a machine that is slower in one block than in the next changes tokens per
    second, which is a note, and no speedup. The interval holds what they do not share. But a ratio that follows the
    baseline is a baseline that moved alone, or an arm that gains on a fast machine and not on a slow one: it is not
    a speedup of either. It is called so where the part of its variation that goes with the baseline's (the correlation,
    times its standard deviation) is 15 % or more. In a single block nothing repeats and there is no interval: an effect
    is not to be believed there if the baseline's requests vary by as much.

    Assumes: in a single block, requests that vary as much as the effect hide it.
    Otherwise: prompts may differ in speed for good reasons while the ratio is right: suspect at most.
    """
    arms = [arm for arm in compared_arms(data) if arm.role == "speculative"]
    if not arms:
        yield not_applicable(None, Message("unchecked.no_baseline"))
        return
    speedups = data.speedups
    paces = {name: _pace(data, name) for arm in arms for name in (arm.id, arm.baseline_id or "")}
    for name in dict.fromkeys(arm.baseline_id or "" for arm in arms):
        effects = list(paces[name].values())
        if len(effects) > 1 and (varies := stdev(effects)) > _CALM:
            yield of_arm(
                "note", name, Message("baseline-unstable.shared", varies_percent=100 * varies, blocks=len(effects))
            )
    for arm in arms:
        base, speedup = arm.baseline_id or "", speedups.get(arm.id)
        both = sorted(paces[arm.id].keys() & paces[base].keys())
        if len(both) > 1:
            moves = follows([paces[base][it] for it in both], [paces[arm.id][it] - paces[base][it] for it in both])
            if moves >= WILD:
                yield of_arm(
                    "suspect", arm.id, Message("baseline-unstable.alone", varies_percent=100 * moves, blocks=len(both))
                )
            continue
        noise = variation(speeds_of(data.by_arm[base])) if data.arms[base].load is None else None
        if noise is None or speedup is None:
            yield not_checkable(arm.id, Message("unchecked.baseline_once"))
            continue
        effect = abs(math.log(speedup.point))
        if speedup.low is None and 0 < effect <= noise.of_a_block:
            yield of_arm(
                "suspect",
                arm.id,
                Message("baseline-unstable.found", effect_percent=100 * effect, varies_percent=100 * noise.of_a_block),
                prompts=noise.prompts,
            )


def _pace(data: RunData, name: str) -> dict[BlockKey, float]:
    """How much faster than usual an arm was in each block, as the logarithm of a ratio.

    Under load a request's time depends on those beside it, so that only cells as wholes repeat. Total tokens per second
    of their steady windows are compared; where requests arrive by a rate, which these then follow, the tokens per
    second of one request.
    """
    arm = data.arms.get(name)
    if arm is None or arm.load is None:
        return speeds_of(data.by_arm.get(name, data.requests[:0])).by_block()
    cells = [it.figures for it in data.cells if it.figures.arm_id == name and it.figures.counts]
    by_rate = arm.load.rate is not None
    paces = {
        (it.invocation, it.block): (it.decode_tokens, it.decode_ms) if by_rate else (it.tokens, it.window_ms)
        for it in cells
    }
    return {block: math.log(tokens / ms) for block, (tokens, ms) in paces.items() if tokens > 0 and ms > 0}


def follows(baseline: Sequence[float], ratios: Sequence[float]) -> float:
    """The part of the ratios' standard deviation that goes with the baseline."""
    base, ratio = np.array(baseline) - np.mean(baseline), np.array(ratios) - np.mean(ratios)
    length = math.sqrt(float(base @ base))
    return abs(float(base @ ratio)) / length / math.sqrt(len(base) - 1) if length > 0 else 0.0


CHECKS: tuple[Check, ...] = (
    Check("baseline-elsewhere", "invalid", baseline_elsewhere, saw=("arms", "engines", "sessions", "requests")),
    Check("baseline-unstable", "suspect", baseline_unstable, saw=("arms", "requests")),
)


_SAME = tuple(name for name in EngineSettings.model_fields if name not in (*DRAFT_ONLY, "extra_flags", "options"))
"""Settings that an arm and its baseline must share. Flags may be about drafting: their meaning is not known here."""


def baseline_unlike(data: RunData) -> Findings:
    """Baselines of another target or with other settings than the arm's, and prompts that a baseline never runs.

    What does not matter to plain decoding (`DRAFT_ONLY`, and what an engine says of its own options) may differ. Other
    command line flags are suspect, since they may or may not matter. A speedup over some of an arm's prompts is not the
    arm's speedup: suspect too, and invalid where there is no prompt that both run.

    Assumes: a baseline has the same settings and prompts as its configuration, apart from drafting.
    Otherwise: command-line flags may be about drafting, and some prompts may be missing: suspect.
    """
    arms = [arm for arm in data.arms.values() if arm.baseline_id in data.arms]
    if not arms:
        yield not_applicable(None, Message("unchecked.no_baseline"))
        return
    ever: dict[str, frozenset[str]] = {}
    for arm in arms:
        baseline = data.arms[arm.baseline_id or ""]
        differences = dict(_asked_differently(arm, baseline, data.traits.draft_options))
        flags = arm.engine.extra_flags != baseline.engine.extra_flags
        if differences:
            yield of_arm(
                "invalid",
                arm.id,
                Message("baseline-unlike.found", baseline=baseline.id, value=_first_of(differences)),
                **differences,
            )
        elif flags:
            yield of_arm(
                "suspect",
                arm.id,
                Message("baseline-unlike.flags", baseline=baseline.id),
                Message("baseline-unlike.fix_flags"),
                extra_flags=" ".join(arm.engine.extra_flags)[:200],
                of_the_baseline=" ".join(baseline.engine.extra_flags)[:200],
            )
        if baseline.id not in ever:
            ever[baseline.id] = _ever_due(data, baseline)
        yield from _prompts(data, arm, baseline, ever[baseline.id])


def _asked_differently(arm: Arm, baseline: Arm, draft_options: Collection[str]) -> Iterator[tuple[str, Message]]:
    if arm.target != baseline.target:
        yield "target", Message("check.of_baseline", arm=arm.target, baseline=baseline.target)
    if arm.load != baseline.load:
        mine, base = (it.load.label if it.load is not None else NONE for it in (arm, baseline))
        yield "load", Message("check.of_baseline", arm=mine, baseline=base)
    for name in _SAME:
        mine, base = getattr(arm.engine, name), getattr(baseline.engine, name)
        if mine != base:
            yield f"engine.{name}", Message("check.of_baseline", arm=str(mine), baseline=str(base))
    mine, base = arm.engine.options, baseline.engine.options
    for name in sorted((mine.keys() | base.keys()) - set(draft_options)):
        if mine.get(name) != base.get(name):
            differ = Message("check.of_baseline", arm=str(mine.get(name)), baseline=str(base.get(name)))
            yield f"engine.options.{name}", differ


def _prompts(data: RunData, arm: Arm, baseline: Arm, there: frozenset[str]) -> Findings:
    mine = [prompt.id for prompt in _of(data, arm)]
    alone = [prompt_id for prompt_id in mine if prompt_id not in there]
    if alone:
        yield of_arm(
            "invalid" if len(alone) == len(mine) else "suspect",
            arm.id,
            Message(
                "baseline-unlike.prompts",
                baseline=baseline.id,
                without_baseline=len(alone),
                prompts=len(mine),
                first=alone[0],
            ),
            Message("baseline-unlike.fix_prompts"),
        )


def _ever_due(data: RunData, arm: Arm) -> frozenset[str]:
    """Prompts that the arm is to be measured on in any block."""
    prompts, design = _of(data, arm), data.experiment.design
    found: set[str] = set()
    for invocation in data.experiment.invocations:
        for block in range(design.blocks):
            found.update(prompt.id for prompt in data.experiment.due(arm, prompts, invocation, block))
            if len(found) == len(prompts):
                return frozenset(found)
    return frozenset(found)


def _of(data: RunData, arm: Arm) -> list[Prompt]:
    return [prompt for prompt in data.prompts.values() if not arm.workloads or prompt.workload in arm.workloads]


COMPARABILITY_CHECKS: tuple[Check, ...] = (
    Check("baseline-unlike", "invalid", baseline_unlike, saw=("experiment", "arms", "prompts"), before=True),
)
