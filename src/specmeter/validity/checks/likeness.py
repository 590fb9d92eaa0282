"""Whether an arm and its baseline were requested alike, which is known before anything is measured.

Automatic baselines always are; one that is named in the experiment need not be.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from specmeter.experiments.experiment import DRAFT_ONLY
from specmeter.record import Arm, EngineSettings, Prompt
from specmeter.validity.checks.check import Check
from specmeter.validity.checks.evidence import not_applicable
from specmeter.validity.checks.run_data import RunData
from specmeter.verdicts import Findings, about_arm

_SAME = tuple(name for name in EngineSettings.model_fields if name not in (*DRAFT_ONLY, "extra_flags", "options"))
"""Settings that an arm and its baseline must share. Flags may be about drafting: their meaning is not known here."""


def baseline_unlike(data: RunData) -> Findings:
    """Baselines of another target or with other settings than the arm's, and prompts that a baseline never runs.

    What does not matter to plain decoding (`DRAFT_ONLY`, and what an engine says of its own options) may differ. Other
    command line flags are suspect, since they may or may not matter. A speedup over some of an arm's prompts is not the
    arm's speedup: suspect too, and invalid where there is no prompt that both run.
    """
    arms = [arm for arm in data.arms.values() if arm.baseline_id in data.arms]
    if not arms:
        yield not_applicable(None, "no arm has a baseline")
        return
    ever: dict[str, frozenset[str]] = {}
    for arm in arms:
        baseline = data.arms[arm.baseline_id or ""]
        differences = dict(_differences(arm, baseline, data.traits.draft_options))
        flags = arm.engine.extra_flags != baseline.engine.extra_flags
        if differences:
            name, difference = next(iter(differences.items()))
            yield about_arm(
                "baseline-unlike",
                "invalid",
                arm.id,
                f"its baseline {baseline.id} differs in more than drafting: {name} is {difference}",
                "compare with a baseline of the same settings; arms that name none get one",
                **differences,
            )
        elif flags:
            yield about_arm(
                "baseline-unlike",
                "suspect",
                arm.id,
                f"its baseline {baseline.id} has other command line flags, which may change plain decoding too",
                "give arm and baseline the same engine.extra_flags, apart from those about drafting",
                extra_flags=" ".join(arm.engine.extra_flags)[:200],
                of_the_baseline=" ".join(baseline.engine.extra_flags)[:200],
            )
        if baseline.id not in ever:
            ever[baseline.id] = _ever_due(data, baseline)
        yield from _prompts(data, arm, baseline, ever[baseline.id])


def _differences(arm: Arm, baseline: Arm, draft_options: Collection[str]) -> Iterator[tuple[str, str]]:
    if arm.target != baseline.target:
        yield "target", f"{arm.target}, the baseline's {baseline.target}"
    if arm.load != baseline.load:
        mine, base = (it.load.label if it.load is not None else "none" for it in (arm, baseline))
        yield "load", f"{mine}, the baseline's {base}"
    for name in _SAME:
        mine, base = getattr(arm.engine, name), getattr(baseline.engine, name)
        if mine != base:
            yield f"engine.{name}", f"{mine}, the baseline's {base}"
    mine, base = arm.engine.options, baseline.engine.options
    for name in sorted((mine.keys() | base.keys()) - set(draft_options)):
        if mine.get(name) != base.get(name):
            yield f"engine.options.{name}", f"{mine.get(name)}, the baseline's {base.get(name)}"


def _prompts(data: RunData, arm: Arm, baseline: Arm, there: frozenset[str]) -> Findings:
    mine = [prompt.id for prompt in _of(data, arm)]
    alone = [prompt_id for prompt_id in mine if prompt_id not in there]
    if alone:
        yield about_arm(
            "baseline-unlike",
            "invalid" if len(alone) == len(mine) else "suspect",
            arm.id,
            f"its baseline {baseline.id} never runs {len(alone)} of its {len(mine)} prompts, such as {alone[0]}",
            "let the baseline run the workloads of its arms; where prompts take turns, use more blocks or a "
            "larger baseline_per_block",
            prompts=len(mine),
            without_baseline=len(alone),
            first=alone[0],
        )


def _ever_due(data: RunData, arm: Arm) -> frozenset[str]:
    """Prompts that the arm is to be measured on in any block."""
    prompts, design = _of(data, arm), data.experiment.design
    found: set[str] = set()
    for invocation in range(design.invocations):
        for block in range(design.blocks):
            found.update(prompt.id for prompt in data.experiment.due(arm, prompts, invocation, block))
            if len(found) == len(prompts):
                return frozenset(found)
    return frozenset(found)


def _of(data: RunData, arm: Arm) -> list[Prompt]:
    return [prompt for prompt in data.prompts.values() if not arm.workloads or prompt.workload in arm.workloads]


CHECKS: tuple[Check, ...] = (
    Check(
        id="baseline-unlike",
        threat="a baseline that differs in more than drafting, or lacks prompts of the arm",
        severity="invalid",
        look=baseline_unlike,
        saw=("experiment", "arms", "prompts"),
        before=True,
        assumes=(
            "a baseline is the arm without drafting: identity of all that was asked for, apart from drafting, and of "
            "the prompts"
        ),
        otherwise="flags of the command line may be about drafting, and some prompts may be missing: suspect",
    ),
)
