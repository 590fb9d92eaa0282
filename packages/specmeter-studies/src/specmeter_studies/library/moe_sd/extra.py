"""moe-sd: its data, and rules that compare the same draft on a mixture and on a dense target, or count bytes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from specmeter_studies import apple_published
from specmeter_studies.library.apple_sd import extra as of_ratios
from specmeter_studies.pairings import Pairing, pairings
from specmeter_studies.rules import lies
from specmeter_studies.study import by_counts, quoted, share

if TYPE_CHECKING:
    from specmeter_studies.study import Found, StudyData

TARGET = "35B_Q4"
DENSE = "9B_Q8"
"""The dense target that the small draft is measured on as well: whether experts make its drafts unreliable can only be
seen beside a target without any."""


def published() -> StudyData:
    """Six runs on the MoE, and those of the same draft on the dense target; all of them refuted."""
    data = apple_published.speculation("moe-sd", TARGET, (DENSE,))
    kept = {line.draft for line in data.arms if line.target == TARGET}
    short = {line.config for line in data.arms if line.target == DENSE and line.draft in kept and line.gamma == 4}
    wanted = [line for line in data.arms if line.target == TARGET or line.config in short or not line.speculates]
    rows = [row for row in data.results if row.target == TARGET or row.config in short]
    return replace(data, arms=tuple(wanted), results=tuple(rows))


def mixtures(data: StudyData) -> tuple[Pairing, ...]:
    """The arms on mixtures of experts."""
    return pairings(data, _mixtures(data))


def all_lose(data: StudyData) -> Found:
    """Whether every arm on a mixture is slower than plain decoding."""
    return lies(
        mixtures(data),
        "line.speedup",
        high=1,
        told="told",
        found={
            "supported": "All {n} lose: {shown}.",
            "contradicted": "{shown}.",
            "cannot tell": "Intervals do not decide: {shown}.",
        },
        missing="No speedup is left.",
    )


def sufficient(data: StudyData) -> Found:
    """The rule of ratios, on the mixtures alone."""
    return of_ratios.sufficient(data, _mixtures(data))


def _mixtures(data: StudyData) -> tuple[str, ...]:
    """Names of the mixtures of experts; the study's own where models say nothing of experts."""
    return tuple(model.name for model in data.models if model.experts) or (TARGET,)


def unreliable(data: StudyData) -> Found:
    """Whether the same draft with the same length is accepted less on the mixture than on the dense target.

    Acceptance has its interval over prompts, of which there are few: what cannot be told apart is left so, unless the
    mixture accepts a share that no doubt of the draft explains (half or more): such drafts are not unreliable.
    """
    mixed = _mixtures(data)
    moe = pairings(data, mixed)
    dense = pairings(data, [model.name for model in data.models if model.name not in mixed])
    usable_dense = {(pair.line.draft, pair.line.gamma): pair for pair in dense if pair.line.stands}
    for pair in moe:
        other = usable_dense.get((pair.line.draft, pair.line.gamma))
        if not pair.line.stands or other is None:
            continue
        ours, theirs = pair.line.acceptance, other.line.acceptance
        if ours is None or theirs is None:
            continue
        said = f"{pair.name}: {_shares(pair)} accepted on {pair.line.target}, {_shares(other)} on {other.line.target}"
        costs = pair.line.step_cost, other.line.step_cost
        dearer = costs[0] is not None and costs[1] is not None and costs[0] > costs[1]
        if costs[0] is not None and costs[1] is not None:
            said += f"; a step costs {costs[0]:.2f} and {costs[1]:.2f} target forwards"
        if ours.high is not None and theirs.low is not None and ours.high < theirs.low:
            return "supported", f"{said}."
        if ours.low is not None and (ours.low > 0.5 or (theirs.high is not None and ours.low > theirs.high)):
            why = ": experts change the cost of a step, not the drafts" if dearer else ""
            return "contradicted", f"{said}{why}."
        return "cannot tell", f"{said}."
    if any(not pair.line.stands for pair in moe):
        counted = "; ".join(f"{it.name} on {it.line.target}: {share(it.line.acceptance)}" for it in (*moe, *dense))
        return (
            "cannot tell",
            "Acceptance was counted while most verifications failed, on the dense target as on this one, and "
            f"says nothing about drafts ({counted}).",
        )
    return "cannot tell", "The same draft was not measured on a dense target."


def _shares(pair: Pairing) -> str:
    acceptance = pair.line.acceptance
    if acceptance is None or acceptance.low is None or acceptance.high is None:
        return share(acceptance)
    return f"{share(acceptance)} [{100 * acceptance.low:.1f}, {100 * acceptance.high:.1f}]"


def few_active(data: StudyData) -> Found:
    """Whether the rate shows that not all weights are read: all of them at that rate would exceed the memory."""
    moe = _mixtures(data)
    for model in data.models:
        rate = next(
            (
                line.decode_rate
                for line in data.arms
                if line.target == model.name and not line.speculates and line.prompt is None
            ),
            None,
        )
        if model.name not in moe or rate is None or model.size_bytes is None:
            continue
        if data.bandwidth_bytes_per_s is None:
            return (
                "cannot tell",
                "The bandwidth of the memory is not known: measure it with `specmeter doctor --bandwidth`.",
            )
        low = rate.low if rate.low is not None else rate.point
        all_bytes = low * model.size_bytes / 1e9
        peak = data.bandwidth_bytes_per_s / 1e9
        said = (
            f"{model.name} decodes at {quoted(rate, 1, ' tok/s')}: reading all of its "
            f"{model.size_bytes / 1e9:.3g} GB for every token would take {all_bytes:.0f} GB/s, and the memory "
            f"has {peak:.0f}"
        )
        if model.bytes_per_token:
            moved = rate.point * model.bytes_per_token / 1e9
            said += f"; its active weights, {model.bytes_per_token / 1e9:.3g} GB, take {moved:.1f} GB/s"
        if all_bytes > peak:
            return by_counts("supported", f"{said}.")
        return "cannot tell", f"{said}: the rate alone does not show that fewer are read."
    return "cannot tell", "The mixture alone was not measured, or its size is not known."
