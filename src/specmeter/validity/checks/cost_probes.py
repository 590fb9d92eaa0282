"""Arms that show what steps cost and nothing more: acceptance by dice, experts that are recorded, random weights."""

from __future__ import annotations

from specmeter.validity.checks.check import Check
from specmeter.validity.checks.evidence import first_line, logs_of, not_applicable
from specmeter.validity.checks.run_data import RunData
from specmeter.verdicts import Findings, about_arm


def synthetic_on(data: RunData) -> Findings:
    """Acceptance decided by dice tells what steps cost; as a speedup of a model it is false."""
    for arm in data.arms.values():
        if arm.role == "control":
            yield not_applicable(arm.id, "controls may decide acceptance by dice")
            continue
        flags = [flag for flag in arm.engine.extra_flags if "spec-synth" in flag]
        sign = logs_of(data, data.by_arm[arm.id]).all("synthetic")
        if arm.synthetic_rates or flags or sign:
            rates = ", ".join(f"{rate:g}" for rate in arm.synthetic_rates)
            how = f"synthetic_rates {rates}" if rates else flags[0] if flags else "the engine's log says so"
            yield about_arm(
                "synthetic-on",
                "invalid",
                arm.id,
                f"acceptance is decided by dice ({how}): the speedup does not belong to any draft model",
                "read it as the cost of steps, or remove synthetic_rates",
                synthetic_rates=rates or None,
                flag=flags[0] if flags else None,
                log=first_line(sign),
            )


def experts_recorded(data: RunData) -> Findings:
    """Looking into the graph makes an engine compute it in pieces: what its steps then take says nothing."""
    for arm in data.arms.values():
        if arm.engine.record_experts:
            yield about_arm(
                "experts-recorded",
                "invalid",
                arm.id,
                "recording the experts of every step slows decoding down: its times are not comparable",
                "read which experts were chosen, and measure times without engine.record_experts",
            )
        else:
            yield not_applicable(arm.id, "experts were not recorded")


def timing_only(data: RunData) -> Findings:
    """Random weights cost what real ones cost, but agree with nothing: a cost probe, no result."""
    for arm in data.arms.values():
        used = [data.models.get(name) for name in (arm.target, arm.draft) if name is not None]
        random = [model.name for model in used if model is not None and model.timing_only]
        if not arm.speculates or arm.role == "control":
            yield not_applicable(
                arm.id, "it does not speculate" if not arm.speculates else "controls measure no speedup"
            )
        elif random:
            yield about_arm(
                "timing-only",
                "invalid",
                arm.id,
                (
                    f"{' and '.join(random)} has random weights: its acceptance and its speedup do not belong to "
                    "any trained model"
                ),
                "read it as the cost of steps, or use trained weights; the baseline's decode rate is valid",
                models=", ".join(random),
            )


CHECKS: tuple[Check, ...] = (
    Check(
        "synthetic-on",
        "acceptance decided by dice, reported as real",
        "invalid",
        synthetic_on,
        saw=("arms", "sessions", "logs", "requests"),
        before=True,
        assumes=(
            "what the arm asks for, or the engine's own line about it, is in force: identity of the configuration"
        ),
        otherwise=(
            "an engine that ignores it drafts as usual, and flag-inert tells; the arm is still not what it is called"
        ),
    ),
    Check(
        "experts-recorded",
        "times of an engine slowed down by recording",
        "invalid",
        experts_recorded,
        saw=("arms",),
        before=True,
        assumes="looking into the graph changes how it is computed, always",
        otherwise="nothing else is assumed: it follows from the arm's own settings",
    ),
    Check(
        "timing-only",
        "acceptance of random weights, reported as real",
        "invalid",
        timing_only,
        saw=("arms", "models"),
        before=True,
        assumes="weights that were drawn at random agree with nothing: identity of the model",
        otherwise="a model that is wrongly marked is refused as well; its costs stay readable",
    ),
)
