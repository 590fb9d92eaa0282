"""From an arm to a drafter and a policy: what the instrumented engine can do, and with which values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from specmeter.engines.libllama.policies import Confidence, EntropyStop, Fixed
from specmeter.engines.libllama.traits import LIBLLAMA
from specmeter.engines.llama_cpp.methods import check_synthetic
from specmeter.engines.registry import refuse_without_effect
from specmeter.errors import ExperimentError
from specmeter.record import PLAIN

if TYPE_CHECKING:
    from specmeter.engines.libllama.policies import DraftPolicy
    from specmeter.record import Arm

METHODS = (PLAIN, *(method.name for method in LIBLLAMA.traits.methods))
"""What this engine drafts with. Several together: n-grams are asked first, as in llama.cpp's server."""
DRAFT_GAMMA, NGRAM_GAMMA, NGRAM_N = 3, 48, 12
"""llama.cpp's defaults: tokens drafted by a model, tokens drafted by a lookup, tokens looked up."""
ENTROPY_BOUND = 0.2
"""Without `p_min`, drafting by entropy goes on while it lets an acceptance of this much be expected."""

Costs = Callable[[int], Sequence[float]]
"""Longest draft -> ms of a step that drafts and verifies 0, 1, ..., that many tokens."""


def refuse(arm: Arm, *, has_draft: bool) -> None:
    """Raise `ExperimentError`, naming the field, for an arm that this engine cannot run as it is written."""
    check_arm(arm, has_draft)
    refuse_without_effect(LIBLLAMA.traits, arm, has_draft=has_draft)


def check_arm(arm: Arm, has_draft: bool) -> None:  # noqa: ARG001
    """The same for what the traits allow (`EngineSpec.check_arm`)."""
    where = f"arm {arm.id}"
    for method in arm.methods:
        if method not in METHODS:
            raise ExperimentError(
                f"{where}: the instrumented engine does not draft by {method}",
                fix=f"use one of {', '.join(METHODS)}, or the engine `embedded`",
            )
    from_model = "draft-simple" in arm.methods
    needs_model = [("p_min", arm.p_min), ("policy entropy", arm.policy == "entropy" or None)]
    for field, value in needs_model:
        if value is not None and not from_model:
            raise ExperimentError(
                f"{where}: {field} needs a draft model's probabilities, and {' + '.join(arm.methods)} has none",
                fix=f"leave {field} out, or draft with draft-simple",
            )
    if arm.p_min is not None and arm.policy in ("utility", "cost-table"):
        raise ExperimentError(f"{where}: p_min has no effect on policy {arm.policy}", fix="leave one of the two out")
    if not arm.speculates and (arm.policy or arm.rule):
        raise ExperimentError(
            f"{where}: policy and rule have no effect without a draft", fix="leave both out for plain decoding"
        )
    if arm.gamma_min is not None and arm.gamma_min > longest(arm):
        raise ExperimentError(
            f"{where}: gamma_min {arm.gamma_min} is above gamma {longest(arm)}: every draft would be discarded",
            fix="set gamma_min to gamma or less",
        )
    batch = min(arm.engine.batch or 2048, arm.engine.context)
    if arm.speculates and longest(arm) >= batch:
        raise ExperimentError(
            f"{where}: gamma {longest(arm)} and one token more do not fit in a batch of {batch}",
            fix=f"lower gamma, or set engine.batch (and engine.context) to {longest(arm) + 1} or more",
        )
    _check_slots(arm, where)
    check_synthetic(arm, where)


def _check_slots(arm: Arm, where: str) -> None:
    """Several requests at once: their forwards are one, so what belongs to a single request's forward is refused."""
    slots = arm.engine.slots
    if slots == 1:
        return
    if arm.policy in ("utility", "cost-table"):
        raise ExperimentError(
            f"{where}: policy {arm.policy} weighs what a step costs, and with {slots} slots a step's time is that of "
            "all requests together",
            fix="use another policy, or engine.slots: 1",
        )
    if arm.engine.record_experts:
        raise ExperimentError(
            f"{where}: engine.record_experts with {slots} slots: a forward's experts are those of several requests",
            fix="use engine.slots: 1; `specmeter probe --batch` reads the experts of shared forwards",
        )
    batch = min(arm.engine.batch or 2048, arm.engine.context)
    if slots * (longest(arm) + 1) > batch:
        raise ExperimentError(
            f"{where}: {slots} slots with drafts of {longest(arm)} tokens do not fit in a batch of {batch}",
            fix=f"lower gamma or engine.slots, or set engine.batch (and engine.context) to "
            f"{slots * (longest(arm) + 1)} or more",
        )


def longest(arm: Arm) -> int:
    """Most tokens that a draft of this arm may have; 0 for plain decoding."""
    if not arm.speculates:
        return 0
    return arm.gamma or max(
        NGRAM_GAMMA if "ngram-simple" in arm.methods else 0, DRAFT_GAMMA if "draft-simple" in arm.methods else 0
    )


def policy_of(arm: Arm, costs: Costs) -> DraftPolicy:
    """Who decides how long this arm's drafts are. `costs` measures; it is called for the policy that needs it."""
    from specmeter.engines.libllama.adaptive import CostTable, Utility

    gamma = longest(arm)
    match arm.policy:
        case "entropy":
            return EntropyStop(gamma, _least_probability(arm))
        case "utility":
            return Utility(gamma)
        case "cost-table":
            return CostTable(costs(gamma), gamma)
        case _:
            return Confidence(gamma, arm.p_min) if arm.p_min else Fixed(gamma)


def parameters(arm: Arm) -> dict[str, dict[str, Any]]:
    """Method -> value in force by name, as sessions record them."""
    if not arm.speculates:
        return {}
    values: dict[str, dict[str, Any]] = {}
    for method in arm.methods:
        if method == "draft-simple":
            values[method] = {
                "n_max": arm.gamma or DRAFT_GAMMA,
                "n_min": arm.gamma_min or 0,
                "p_min": _least_probability(arm),
            }
        else:
            values[method] = {
                "size_m": arm.gamma or NGRAM_GAMMA,
                "size_n": arm.ngram_n or NGRAM_N,
                "n_min": arm.gamma_min or 0,
            }
    return values


def _least_probability(arm: Arm) -> float:
    """The arm's `p_min`, given (0 too) or by default."""
    if arm.p_min is not None:
        return arm.p_min
    return ENTROPY_BOUND if arm.policy == "entropy" else 0.0
