"""quant-acceptance: what a format costs in perplexity beside what it costs in acceptance, for targets and for drafts.

Two series of formats, each against one partner that stays: drafts of one model for one target, and targets of one model
with one draft. Perplexities are those of the same files (models of one name are one model), acceptance and speedups are
those of the arms. The document measured both, for the same model, in two of its tables, and never joined them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import permutations
from typing import TYPE_CHECKING, Literal

import numpy as np

from specmeter.messages import Message
from specmeter.numbers.estimates import above, below, exceeds, student_mean
from specmeter.record import Estimate
from specmeter_studies import apple_published
from specmeter_studies.library.apple_quant_ladder import published as quant_published
from specmeter_studies.pairings import Pairing, believable, pairings
from specmeter_studies.rungs import Rung, named, percent_change, rungs, worse
from specmeter_studies.study import StudyCell
from specmeter_studies.telling import decided, quoted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from specmeter_studies.study import Found, StudyData

TARGET = "4B_Q8"
_NAMES = {"Q8_0": "4B_Q8", "Q6_K": "4B_Q6", "Q4_K_M": "4B_Q4", "Q3_K_M": "4B_Q3", "Q2_K": "4B_Q2"}
"""The document's rungs -> its names in the table of variants."""


def published() -> StudyData:
    """The document's ladder and its runs of self-speculation, put together; the audit lets none of the runs stand."""
    ladder, runs = quant_published.ladder(), apple_published.speculation("quant-acceptance", TARGET)
    (report,) = ladder.quality
    models = tuple(
        item.model_copy(update={"model": item.model.model_copy(update={"name": _NAMES[item.model.name]})})
        for item in report.models
        if item.model.name in _NAMES
    )
    family = {line.config for line in runs.arms if line.draft is None or line.draft in _NAMES.values()}
    arms = tuple(line for line in runs.arms if line.config in family)
    rows = tuple(row for row in runs.results if row.config in family)
    quality = (report.model_copy(update={"models": models}),)
    return replace(runs, arms=arms, results=rows, quality=quality, notes=(*runs.notes, *ladder.notes))


# --- the two series ---------------------------------------------------------------------------------------------------


def _series(
    pairs: Sequence[Pairing], ladder: Sequence[Rung], vary: Literal["draft", "target"]
) -> dict[Message, list[tuple[Pairing, Rung]]]:
    """Title of a series -> its arms, each with the model whose format varies; the other model stays what it is."""
    stay = "target" if vary == "draft" else "draft"
    groups: dict[tuple[str, str, int | None], list[tuple[Pairing, Rung]]] = {}
    for pair in pairs:
        rung = named(ladder, getattr(pair.line, vary) or "")
        if rung is not None:
            groups.setdefault((getattr(pair.line, stay), rung.family, pair.line.gamma), []).append((pair, rung))
    kept = {key: group for key, group in groups.items() if len(group) > 1}
    several = len({gamma for _, _, gamma in kept}) > 1

    def title(partner: str, family: str, gamma: int | None) -> Message:
        formats = Message(f"quant-acceptance.formats.{vary}", family=f" {family}" if family else "", partner=partner)
        return Message("quant-acceptance.of_gamma", formats=formats, gamma=gamma) if several else formats

    return {title(*key): group for key, group in kept.items()}


# --- claims -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _FormatPair:
    """Two formats of one draft for one target."""

    better: Pairing
    worse: Pairing
    perplexity: Estimate
    """Ratio of the perplexities."""
    lost: Estimate | None
    """Acceptance that the worse one lacks, in percentage points, prompt by prompt."""


def follows(data: StudyData) -> Found:
    """Whether acceptance falls wherever the interval of two perplexities' ratio says that perplexity rises."""
    pairs, ladder = pairings(data), rungs(data)
    steps = _steps(data, pairs, ladder)
    if not steps:
        return "cannot tell", _nothing(pairs, Message("quant-acceptance.alike"))
    agree = [step for step in steps if step.lost is not None and above(step.lost, 0)]
    against = [step for step in steps if step.lost is not None and below(step.lost, 0)]
    far = max(steps, key=lambda step: step.perplexity.point)
    told = Message(
        "quant-acceptance.follows",
        pairs=len(steps),
        agree=len(agree),
        against=len(against),
        worse=far.worse.line.draft,
        better=far.better.line.draft,
        perplexity=quoted(far.perplexity, "x"),
        lost=quoted(far.lost),
    )
    return decided(supported=len(agree) == len(steps), contradicted=bool(against)), told


def _steps(data: StudyData, pairs: Sequence[Pairing], ladder: Sequence[Rung]) -> list[_FormatPair]:
    rates = _by_prompt(data)
    found: list[_FormatPair] = []
    for group in _series(pairs, ladder, "draft").values():
        usable = [(pair, rung) for pair, rung in group if pair.line.stands]
        for (bad, bad_rung), (good, good_rung) in permutations(usable, 2):
            ratio = worse(bad_rung, good_rung)
            if ratio is not None and above(ratio, 1):
                lost = _lost(rates.get(bad.line.config, {}), rates.get(good.line.config, {}))
                found.append(_FormatPair(better=good, worse=bad, perplexity=ratio, lost=lost))
    return found


def _by_prompt(data: StudyData) -> dict[str, dict[str, float]]:
    """Arm -> prompt -> accepted / drafted over all repeats."""
    sums: dict[str, dict[str, list[int]]] = {}
    for row in data.results:
        if row.drafted and row.accepted is not None and row.verdict not in ("invalid", "implausible"):
            both = sums.setdefault(row.config, {}).setdefault(row.prompt, [0, 0])
            both[0] += row.accepted
            both[1] += row.drafted
    return {arm: {prompt: part / whole for prompt, (part, whole) in of.items()} for arm, of in sums.items()}


def _lost(mine: Mapping[str, float], theirs: Mapping[str, float]) -> Estimate | None:
    """Mean over prompts of theirs less mine, in percentage points; None without a prompt that both have."""
    differences = np.array([100 * (theirs[prompt] - mine[prompt]) for prompt in mine if prompt in theirs])
    if not len(differences):
        return None
    method = "mean difference of acceptance, prompt by prompt; Student t over prompts"
    return student_mean(differences, "%", method, alone="mean difference; no interval", of="prompts")


def fewest(data: StudyData) -> Found:
    """Whether the draft of fewest bits is ahead of every other format of it."""
    pairs, ladder = pairings(data), rungs(data)
    groups = [
        sorted(group, key=lambda item: item[1].quality.bits_per_weight)
        for group in _series(believable(pairs), ladder, "draft").values()
    ]
    if not groups:
        return "cannot tell", _nothing(pairs, Message("quant-acceptance.one_format"))
    told: list[Message] = []
    ahead = behind = others = 0
    for (least, rung), *rest in groups:
        others += len(rest)
        ahead += sum(exceeds(least.line.speedup, other.line.speedup) for other, _ in rest)
        behind += sum(exceeds(other.line.speedup, least.line.speedup) for other, _ in rest)
        told.append(
            Message(
                "quant-acceptance.smallest",
                draft=least.line.draft,
                bits=rung.quality.bits_per_weight,
                speedup=quoted(least.line.speedup, "x"),
            )
        )
        told += [Message("study.row", name=it.line.draft, number=quoted(it.line.speedup, "x")) for it, _ in rest]
    said = Message("quant-acceptance.fewest", ahead=ahead, others=others, behind=behind, told=told)
    return decided(supported=ahead == others, contradicted=bool(behind)), said


def _nothing(pairs: Sequence[Pairing], otherwise: Message) -> Message:
    bad = sum(not pair.line.stands for pair in pairs)
    return Message("quant-acceptance.fallen", bad=bad, of=len(pairs)) if bad else otherwise


# --- rows -------------------------------------------------------------------------------------------------------------


def formats(data: StudyData) -> Iterator[Mapping[str, object]]:
    """Every arm with the files of its target and its draft; perplexity of the target over the first model's."""
    ladder = rungs(data)
    for pair in pairings(data):
        target, draft = named(ladder, pair.line.target), named(ladder, pair.line.draft or "")
        first = ladder[0] if ladder else None
        change = None if target is None or first is None or target is first else worse(target, first)
        told = Message("quant-acceptance.first") if target and target is first else "-"
        cell = StudyCell(text=told, value=percent_change(change), digits=1)
        yield {"pair": pair, "target": target, "draft": draft, "change": cell}


def varied(data: StudyData) -> Iterator[Mapping[str, object]]:
    """Arms of both series, with the model whose format varies."""
    pairs, ladder = pairings(data), rungs(data)
    for vary in ("draft", "target"):
        for series, group in _series(pairs, ladder, vary).items():
            for pair, rung in group:
                told = Message(
                    "quant-acceptance.arm",
                    draft=pair.line.draft,
                    target=pair.line.target,
                    name=rung.title,
                    bits=rung.quality.bits_per_weight,
                )
                yield {"line": pair.line, "rung": rung, "series": series, "label": told}


def rates(data: StudyData) -> Iterator[Mapping[str, object]]:
    """Arms and baselines with the file of their target; baselines are named by its bits per weight."""
    ladder = rungs(data)
    for line in data.whole:
        rung = named(ladder, line.target)
        if rung is not None:
            yield {
                "line": line,
                "rung": rung,
                "series": line.draft or Message("quant-acceptance.no_draft"),
                "label": Message("quant-acceptance.with", target=line.target, draft=line.draft)
                if line.draft
                else line.target,
                "name": "" if line.draft else rung.bits_told,
            }
