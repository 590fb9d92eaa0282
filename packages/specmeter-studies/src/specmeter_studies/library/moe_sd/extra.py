"""moe-sd: its data, and rules that compare the same draft on a mixture and on a dense target, or count bytes."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from specmeter.messages import Message
from specmeter_studies import apple_published
from specmeter_studies.library.apple_sd import extra as of_ratios
from specmeter_studies.pairings import Pairing, pairings
from specmeter_studies.rules import SHOWN, lies
from specmeter_studies.telling import by_counts, in_percent, quoted, share

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
    """Whether every arm on a mixture is slower than no speculation."""
    return lies(
        mixtures(data),
        "line.speedup",
        high=1,
        told="message",
        found={
            "supported": "study.all_lose",
            "contradicted": SHOWN,
            "cannot tell": "study.undecided",
        },
        missing=of_ratios.NO_SPEEDUP,
    )


def sufficient(data: StudyData) -> Found:
    """The rule of ratios, on the mixtures alone."""
    return of_ratios.sufficient(data, _mixtures(data))


def _mixtures(data: StudyData) -> tuple[str, ...]:
    """Names of the mixtures of experts; the study's own where models say nothing of experts."""
    return tuple(model.name for model in data.models if model.experts) or (TARGET,)


def unreliable(data: StudyData) -> Found:
    """Whether the same draft with the same length is accepted less on the mixture than on the dense target.

    Acceptance has its interval over prompts, of which there are few: what cannot be distinguished is left so, unless
    the mixture accepts a share that no doubt of the draft explains (half or more): such drafts are not unreliable.
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
        costs = pair.line.step_cost, other.line.step_cost
        known, dearer = None not in costs, (costs[0] or 0) > (costs[1] or math.inf)
        less = ours.high is not None and theirs.low is not None and ours.high < theirs.low
        reliable = ours.low is not None and (ours.low > 0.5 or (theirs.high is not None and ours.low > theirs.high))
        said = Message(
            "moe-sd.accepted",
            name=pair.name,
            here=in_percent(ours),
            target=pair.line.target,
            there=in_percent(theirs),
            dense=other.line.target,
            costs=Message("moe-sd.costs", here=costs[0], there=costs[1]) if known else "",
            why=Message("moe-sd.dearer") if reliable and not less and dearer else "",
        )
        return "supported" if less else "contradicted" if reliable else "cannot tell", said
    if any(not pair.line.stands for pair in moe):
        counted = [
            Message("moe-sd.counted", name=it.name, target=it.line.target, share=share(it.line.acceptance))
            for it in (*moe, *dense)
        ]
        return "cannot tell", Message("moe-sd.failed", counted=counted)
    return "cannot tell", Message("moe-sd.no_dense")


def few_active(data: StudyData) -> Found:
    """Whether the rate shows that not all weights are read: all of them at that rate would exceed the memory."""
    moe = _mixtures(data)
    for model in data.models:
        plain = (line.decode_rate for line in data.whole if line.target == model.name and not line.speculates)
        rate = next(plain, None)
        if model.name not in moe or rate is None or model.size_bytes is None:
            continue
        if data.bandwidth_bytes_per_s is None:
            return "cannot tell", Message("moe-sd.no_bandwidth")
        low = rate.low if rate.low is not None else rate.point
        all_bytes = low * model.size_bytes / 1e9
        peak = data.bandwidth_bytes_per_s / 1e9
        active = ""
        if model.bytes_per_token:
            moved = rate.point * model.bytes_per_token / 1e9
            active = Message("moe-sd.active", gb=model.bytes_per_token / 1e9, moved=moved)
        said = Message(
            "moe-sd.decodes",
            name=model.name,
            rate=quoted(rate, " tok/s"),
            gb=model.size_bytes / 1e9,
            whole=all_bytes,
            peak=peak,
            active=active,
            decides="" if all_bytes > peak else Message("moe-sd.rate_alone"),
        )
        return by_counts("supported", said) if all_bytes > peak else ("cannot tell", said)
    return "cannot tell", Message("moe-sd.not_alone")
