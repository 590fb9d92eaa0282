"""rtx3090-19: whether the document's mechanism, experts below the saturation threshold, explains what was measured."""

from __future__ import annotations

import math
from collections.abc import Sequence

from specmeter.numbers.estimates import above, below
from specmeter.studies.library.rtx3090_19.lines import Line, Lines, blind, drafting, lines, named, percent, ratio
from specmeter.studies.library.rtx3090_19.mechanism import (
    SPARSITY,
    THRESHOLD,
    UNEXPLAINED,
    budget,
    gamma,
    of_model,
    saturation,
)
from specmeter.studies.study import Finding, StudyData
from specmeter.studies.telling import Found, by_counts
from specmeter.theory.experts import expected_union

FULL = 0.95
"""Acceptance that counts as full where the question is what full acceptance brings."""
NINE = 9
"""A draft of eight and the token before it."""


def threshold(data: StudyData) -> Found:
    """Whether drafts lie below the number of tokens that touch nearly all experts."""
    known = lines(data)
    found = saturation(data)
    gammas = sorted({value for line in drafting(known) if (value := gamma(line)) is not None})
    if found is None or not gammas:
        return "cannot tell", "the target is no mixture of experts whose experts are known."
    over = [value for value in gammas if value + 1 >= found.threshold]
    told = (
        f"{found.used} of {found.experts} experts (sparsity {found.sparsity:.3f}): 95 % are touched after "
        f"{found.tokens:.1f} tokens, rounded up {found.threshold} (printed: {THRESHOLD} at {SPARSITY}); drafts have up "
        f"to {', '.join(map(str, gammas))} tokens"
    )
    return by_counts("contradicted" if over else "supported", f"{told}.")


def explains(data: StudyData) -> Found:
    """Whether the union of experts below the threshold can be what the time went into."""
    known = lines(data)
    found = saturation(data)
    under = [line for line in drafting(known) if found and (value := gamma(line)) and value + 1 < found.threshold]
    under = [line for line in under if line.sums and line.sums.drafted]
    if found is None or not under:
        return "cannot tell", "nothing was drafted below a threshold that is known."
    counted = not blind(known)
    gaining = [line for line in under if above(ratio(known, line, among=len(under)), 1)]
    losing = [line for line in under if below(ratio(known, line), 1)]
    over = [line for line in losing if (it := budget(known, line)) and it.unexplained > UNEXPLAINED]
    beyond = over if counted else []
    union = expected_union(NINE, found.experts, found.used)
    told = (
        "whatever the routing, a forward over n tokens reads at most n times the experts of one, so experts of "
        f"accepted drafts cannot make decoding slower ({NINE} tokens: at most {NINE * found.used} of {found.experts}, "
        f"{union:.0f} if it were uniform, and less in text: `specmeter probe` counts them)"
    )
    if beyond:
        shares = [it.unexplained for line in beyond if (it := budget(known, line))]
        told += (
            f". {len(beyond)} of {len(losing)} losing configurations took longer than that permits, with "
            f"{min(shares):.0%} to {max(shares):.0%} of their time beyond it ({named(beyond)})"
        )
    if over and not counted:
        told += (
            f". {len(over)} of {len(losing)} losing configurations spent more than {UNEXPLAINED:.0%} of their time "
            f"beyond what their counts permit ({named(over)}), but the counter is blind (accepted equals drafted "
            "everywhere): rejected drafts that it leaves out, and their experts, may be where the time went"
        )
    if gaining:
        told += f". {len(gaining)} configurations below the threshold gain: {_each(known, gaining)}"
    full = [line for line in losing if line.acceptance >= FULL]
    if counted and not beyond and not gaining:
        told += f". {len(full)} of {len(losing)} losing configurations had acceptance of {FULL:.0%} or more"
    ruling: Finding = "cannot tell"
    if beyond or gaining:
        ruling = "contradicted"
    elif counted and full and len(full) == len(losing):
        ruling = "supported"
    return ruling, f"{told}."


def active_parameters(data: StudyData) -> Found:
    """Whether a model with more active parameters lies above the threshold."""
    own = saturation(data)
    others = [found for model in data.models if own and model.name != own.model.name and (found := of_model(model))]
    larger = [
        found
        for found in others
        if own and (found.model.active_parameters or 0) > (own.model.active_parameters or math.inf)
    ]
    ruling: Finding = "cannot tell"
    told = "no second mixture of experts with more active parameters is in this data"
    if own is not None and larger:
        ruling = "supported" if all(found.threshold < own.threshold for found in larger) else "contradicted"
        told = "; ".join(
            f"{found.model.name}: {found.used} of {found.experts} experts, {found.threshold} tokens; {own.model.name}: "
            f"{own.used} of {own.experts}, {own.threshold} tokens"
            for found in larger
        )
        told += ". The threshold depends on the share of experts, not on how many parameters they have"
    return by_counts(ruling, f"{told}.")


def gain_of_larger(_: StudyData) -> Found:
    """Whether a larger mixture gains 15 to 45 %: quoted by the document from elsewhere, without numbers of its own."""
    told = (
        "The document quotes it from another author and prints no rate, acceptance or draft length of it: no bound can "
        "be tried, and no run here is of that model."
    )
    return "cannot tell", told


def _each(known: Lines, found: Sequence[Line], most: int = 4) -> str:
    return ", ".join(f"{line.name} {percent(ratio(known, line))}" for line in found[:most])
