"""Controllers: arms whose engine decides how long each draft is. What they are held against is added here: plain
decoding, and every fixed length with the same drafts and settings.

A controller is an arm with a `policy`, with a `p_min`, or with `extra_flags` of its own in `engine`, such as the flags
by which a server adapts its drafts. Its flags are the controller: fixed lengths and plain decoding go without them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from specmeter.engines.libllama.methods import DRAFT_GAMMA, NGRAM_GAMMA
from specmeter.engines.registry import spec_of
from specmeter.errors import ExperimentError
from specmeter.experiments.experiment import DRAFT_ONLY
from specmeter.experiments.file import load, written
from specmeter.experiments.spec import as_tuple, split_methods
from specmeter.record import PLAIN

if TYPE_CHECKING:
    from specmeter.experiments.experiment import Experiment
    from specmeter.experiments.file import LoadedExperiment
    from specmeter.experiments.spec import ArmSpec
    from specmeter.record import Arm

GAMMAS = (1, 2, 3, 4, 6, 8, 12, 16)
"""Fixed lengths that a controller is held against, up to its own longest draft, which is one of them."""
OFF = "off"
"""Name of plain decoding where a controller's flags would make it another arm."""
_OWN = ("name", "policy", "p_min", "gamma_min")
"""Keys of a controller's line that fixed lengths do not have."""
_LONGEST_NAME = 64


def is_controller(arm: Arm, arms: Mapping[str, Arm]) -> bool:
    """Whether something decides in this arm how long each draft is; `arms` are those of its run, by id."""
    if arm.role != "speculative" or not arm.speculates or arm.synthetic_rates:
        return False
    return bool(arm.policy or arm.p_min or arm.engine.extra_flags != _plain_flags(arm, arms))


def fixed_lengths(controller: Arm, arms: Mapping[str, Arm]) -> tuple[Arm, ...]:
    """The arms that draft as a controller does, but always the same number of tokens; the shortest first."""
    key = _drafts_like(controller, arms)
    found = [
        arm
        for arm in arms.values()
        if arm.role == "speculative"
        and arm.gamma is not None
        and not arm.gamma_min
        and not is_controller(arm, arms)
        and _drafts_like(arm, arms) == key
    ]
    return tuple(sorted(found, key=lambda arm: arm.gamma or 0))


def _drafts_like(arm: Arm, arms: Mapping[str, Arm]) -> Arm:
    """What an arm and the fixed lengths that it is held against have in common."""
    settings = arm.engine.model_copy(update={"extra_flags": _plain_flags(arm, arms)})
    own = {"id": "", "gamma": None, "gamma_min": None, "p_min": None, "policy": None, "engine": settings}
    return arm.model_copy(update=own)


def _plain_flags(arm: Arm, arms: Mapping[str, Arm]) -> tuple[str, ...]:
    """The flags of its baseline: all others are its own."""
    baseline = arms.get(arm.baseline_id or "")
    return arm.engine.extra_flags if baseline is None else baseline.engine.extra_flags


def with_fixed_lengths(loaded: LoadedExperiment, gammas: Sequence[int] = GAMMAS) -> LoadedExperiment:
    """The experiment with plain decoding and fixed lengths beside each controller, `gammas` up to its own.

    Raises `ExperimentError` where no arm is a controller, and where one cannot be held against fixed lengths.
    """
    experiment = loaded.experiment
    keys = experiment.model_dump(mode="json", exclude_unset=True)
    lines = cast("list[dict[str, Any]]", keys["arms"])
    specs = list(experiment.arms)
    flagged = [_has_own_flags(spec, experiment) for spec in specs]
    fixed = [
        _fixed_line(index, line, spec, experiment, gammas)
        for index, (line, spec, flags) in enumerate(zip(lines, specs, flagged, strict=True))
        if flags or any(as_tuple(spec.policy)) or any(as_tuple(spec.p_min))
    ]
    if not fixed:
        raise ExperimentError(
            f"{loaded.source}: no arm is a controller",
            fix="give an arm a `policy`, a `p_min`, or the engine's own flags (`engine: {extra_flags: [...]}`)",
        )
    both = [*lines, *fixed]
    if any(flags and spec.baseline is None for spec, flags in zip(specs, flagged, strict=True)):
        both = [{"name": OFF, "method": PLAIN}, *(_beside_off(index, line) for index, line in enumerate(both))]
    name = f"certify-{experiment.name}"[:_LONGEST_NAME]
    grown = load({**keys, "name": name, "arms": both})
    return replace(loaded, experiment=grown.experiment, text=written({**keys, "name": name, "arms": both}))


def _has_own_flags(spec: ArmSpec, experiment: Experiment) -> bool:
    flags = spec.engine.extra_flags
    return "extra_flags" in spec.engine.model_fields_set and flags != experiment.engine.extra_flags


def _fixed_line(
    index: int, line: dict[str, Any], spec: ArmSpec, experiment: Experiment, gammas: Sequence[int]
) -> dict[str, Any]:
    engine = {name: value for name, value in line.get("engine", {}).items() if name != "extra_flags"}
    kept = {name: value for name, value in line.items() if name not in (*_OWN, "engine")}
    longest = max((it for it in as_tuple(spec.gamma) if it is not None), default=None)
    if longest is None:
        if spec_of(experiment.engine.kind).traits.drafting is None:
            raise ExperimentError(
                f"arms.{index}: the longest draft of the controller is not known", fix="set its `gamma`"
            )
        by_model = any("draft-simple" in split_methods(method) for method in as_tuple(spec.method))
        longest = DRAFT_GAMMA if by_model else NGRAM_GAMMA
    lengths = sorted({it for it in gammas if it < longest} | {longest})
    return {**kept, "gamma": lengths, **({"engine": engine} if engine else {})}


def _beside_off(index: int, line: dict[str, Any]) -> dict[str, Any]:
    """The line, compared with plain decoding by name: an automatic baseline would have the controller's flags."""
    if line.get("method") == PLAIN or line.get("baseline") is not None:
        return line
    if changed := set(line.get("engine", {})) - {"extra_flags", *DRAFT_ONLY}:
        raise ExperimentError(
            f"arms.{index}: it has flags of its own and changes {', '.join(sorted(changed))}, so plain decoding to "
            "compare with is not clear",
            fix="name a plain arm with these settings and give it as `baseline`",
        )
    return {**line, "baseline": OFF}
