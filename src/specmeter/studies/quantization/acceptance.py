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

from specmeter.numbers.estimates import above, below, exceeds, scaled, student_mean
from specmeter.record import Estimate
from specmeter.studies import apple_published
from specmeter.studies.quantization import published as quant_published
from specmeter.studies.quantization.rungs import named, percent_change, rungs, worse
from specmeter.studies.speed_ratio.ratio import believable, pairings
from specmeter.studies.speed_ratio.view import drawn, speedup_cell
from specmeter.studies.study import Axis, Point, StudyCell, StudyFigure, StudyTable, own_cell
from specmeter.studies.telling import quoted, ruling

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from specmeter.studies.quantization.rungs import Rung
    from specmeter.studies.speed_ratio.ratio import Pairing
    from specmeter.studies.study import ClaimRuling, StudyData
    from specmeter.studies.telling import Found

TITLE = "Quantization, perplexity and acceptance: a target and its drafts in several formats"
SOURCE = apple_published.SOURCE
PARTS = ("quant-perplexity", "quant-acceptance")

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


def claims(data: StudyData) -> tuple[ClaimRuling, ...]:
    """What the data says about each claim."""
    pairs, ladder = pairings(data), rungs(data)
    where = "asked here: the ladder's table beside the table of variants, which the document does not join"
    return (
        ruling(
            "acceptance-follows-perplexity",
            "A draft whose format raises its perplexity is accepted less.",
            where,
            _follows(data, pairs, ladder),
        ),
        ruling(
            "fewest-bits-gain",
            "Of one model's formats, the one with the fewest bits makes the draft that gains most.",
            where,
            _fewest(pairs, ladder),
        ),
    )


def tables(data: StudyData) -> tuple[StudyTable, ...]:
    """Everything about each pair of formats in one row."""
    pairs, ladder = pairings(data), rungs(data)
    if not pairs:
        return ()
    return (
        StudyTable(
            key="formats",
            title="Size, perplexity, acceptance and speed by format",
            about=(
                "Perplexity: of the model by itself, intervals over windows of the text. Accepted and tau: intervals "
                "over prompts. Speedup: over the same target without drafts; the intervals of all rows hold together. "
                "Change: perplexity over that of the first model, on the same windows."
            ),
            columns=(
                *("target", "bits/weight", "GB", "perplexity", "change [%]", "plain [tok/s]"),
                *("draft", "bits/weight", "GB", "perplexity", "accepted [%]", "tau", "tok/s", "speedup"),
            ),
            rows=tuple(_row(pair, ladder) for pair in pairs),
            verdicts=tuple(pair.line.of_rate for pair in pairs),
        ),
    )


def figures(data: StudyData) -> tuple[StudyFigure, ...]:
    """Acceptance over perplexity of the format that varies; rates over perplexity of the target."""
    pairs, ladder = pairings(data), rungs(data)
    return drawn(
        StudyFigure(
            key="acceptance-by-perplexity",
            title="Acceptance by perplexity of the format that varies",
            about=(
                "Labels: bits per weight. In each series one partner stays what it is, so that only the format moves a "
                "point: right by what it costs in quality, down by what it costs in acceptance."
            ),
            kind="points",
            x=Axis(title="perplexity", log=True),
            y=Axis(title="accepted, % of drafted tokens"),
            series_title="what varies",
            points=tuple(
                Point.of(
                    scaled(pair.line.acceptance, 100, "%"),
                    x=rung.perplexity.estimate.point,
                    series=series,
                    name=f"{rung.quality.bits_per_weight:.1f}",
                    label=_label(pair, rung),
                    verdict=pair.line.of_rate,
                )
                for vary in ("draft", "target")
                for series, group in _series(pairs, ladder, vary).items()
                for pair, rung in group
                if pair.line.acceptance is not None and rung.perplexity is not None
            ),
        ),
        StudyFigure(
            key="rate-by-perplexity",
            title="Generation rate by perplexity of the target",
            about="Labels: bits per weight of the target. Drafts leave the target's quality what it is.",
            kind="points",
            x=Axis(title="perplexity of the target", log=True),
            y=Axis(title="generation [tok/s]"),
            series_title="draft",
            points=tuple(_rates(data, ladder)),
        ),
    )


# --- the two series ---------------------------------------------------------------------------------------------------


def _series(
    pairs: Sequence[Pairing], ladder: Sequence[Rung], vary: Literal["draft", "target"]
) -> dict[str, list[tuple[Pairing, Rung]]]:
    """Title of a series -> its arms, each with the model whose format varies; the other model stays what it is."""
    stay = "target" if vary == "draft" else "draft"
    groups: dict[tuple[str, str, int | None], list[tuple[Pairing, Rung]]] = {}
    for pair in pairs:
        rung = named(ladder, getattr(pair.line, vary) or "")
        if rung is not None:
            groups.setdefault((getattr(pair.line, stay), rung.family, pair.line.gamma), []).append((pair, rung))
    kept = {key: group for key, group in groups.items() if len(group) > 1}
    several = len({gamma for _, _, gamma in kept}) > 1

    def title(partner: str, family: str, gamma: int | None) -> str:
        named = f"formats of the {vary}{f' {family}' if family else ''}, with {partner}"
        return f"{named}, gamma {gamma}" if several else named

    return {title(*key): group for key, group in kept.items()}


# --- claims -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Step:
    """Two formats of one draft for one target."""

    better: Pairing
    worse: Pairing
    perplexity: Estimate
    """Ratio of the perplexities."""
    lost: Estimate | None
    """Acceptance that the worse one lacks, in percentage points, prompt by prompt."""


def _follows(data: StudyData, pairs: Sequence[Pairing], ladder: Sequence[Rung]) -> Found:
    """Whether acceptance falls wherever the interval of two perplexities' ratio says that perplexity rises."""
    steps = _steps(data, pairs, ladder)
    if not steps:
        return "cannot tell", _nothing(pairs, "No two formats of one draft differ in perplexity beyond their interval")
    agree = [step for step in steps if step.lost is not None and above(step.lost, 0)]
    against = [step for step in steps if step.lost is not None and below(step.lost, 0)]
    far = max(steps, key=lambda step: step.perplexity.point)
    told = (
        f"In {len(steps)} pairs of formats the perplexities differ beyond their interval; the worse one is accepted "
        f"less in {len(agree)} of them beyond its interval, more in {len(against)}. {far.worse.line.draft} beside "
        f"{far.better.line.draft}: "
        f"perplexity {quoted(far.perplexity, unit='x')}, accepted {quoted(far.lost, 1)} percentage points less."
    )
    if against:
        return "contradicted", told
    return ("supported" if len(agree) == len(steps) else "cannot tell"), told


def _steps(data: StudyData, pairs: Sequence[Pairing], ladder: Sequence[Rung]) -> list[_Step]:
    rates = _by_prompt(data)
    found: list[_Step] = []
    for group in _series(pairs, ladder, "draft").values():
        usable = [(pair, rung) for pair, rung in group if pair.line.stands]
        for (bad, bad_rung), (good, good_rung) in permutations(usable, 2):
            ratio = worse(bad_rung, good_rung)
            if ratio is not None and above(ratio, 1):
                lost = _lost(rates.get(bad.line.config, {}), rates.get(good.line.config, {}))
                found.append(_Step(better=good, worse=bad, perplexity=ratio, lost=lost))
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


def _fewest(pairs: Sequence[Pairing], ladder: Sequence[Rung]) -> Found:
    """Whether the draft of fewest bits is ahead of every other format of it."""
    groups = [
        sorted(group, key=lambda item: item[1].quality.bits_per_weight)
        for group in _series(believable(pairs), ladder, "draft").values()
    ]
    if not groups:
        return "cannot tell", _nothing(pairs, "No draft was measured in two formats")
    told: list[str] = []
    ahead = behind = others = 0
    for (least, rung), *rest in groups:
        others += len(rest)
        ahead += sum(exceeds(least.line.speedup, other.line.speedup) for other, _ in rest)
        behind += sum(exceeds(other.line.speedup, least.line.speedup) for other, _ in rest)
        told.append(
            f"{least.line.draft} ({rung.quality.bits_per_weight:.1f} bits) {quoted(least.line.speedup, unit='x')}; "
            + ", ".join(f"{other.line.draft} {quoted(other.line.speedup, unit='x')}" for other, _ in rest)
        )
    said = f"{'. '.join(told)}. Intervals put it ahead of {ahead} of {others}, behind {behind}."
    if behind:
        return "contradicted", said
    return ("supported" if ahead == others else "cannot tell"), said


def _nothing(pairs: Sequence[Pairing], otherwise: str) -> str:
    bad = sum(not pair.line.stands for pair in pairs)
    return f"{bad} of {len(pairs)} arms are impossible, implausible or invalid." if bad else f"{otherwise}."


# --- cells and points -------------------------------------------------------------------------------------------------


def _row(pair: Pairing, ladder: Sequence[Rung]) -> tuple[StudyCell, ...]:
    line = pair.line
    target, draft = named(ladder, line.target), named(ladder, line.draft or "")
    first = ladder[0] if ladder else None
    change = None if target is None or first is None or target is first else worse(target, first)
    return (
        StudyCell(text=line.target),
        *_file(target),
        StudyCell(text="first" if target and target is first else "-", value=percent_change(change), digits=1),
        StudyCell(text="-", value=pair.target_rate, digits=1),
        StudyCell(text=line.draft or "-"),
        *_file(draft),
        own_cell(line, None if line.acceptance is None else scaled(line.acceptance, 100, "%"), 1),
        own_cell(line, line.tau),
        own_cell(line, line.decode_rate, 1),
        speedup_cell(pair),
    )


def _file(rung: Rung | None) -> tuple[StudyCell, ...]:
    """Bits per weight, size, perplexity."""
    if rung is None:
        return (StudyCell(text="-"),) * 3
    scored = rung.perplexity
    return (
        StudyCell(value=rung.quality.bits_per_weight, digits=2),
        StudyCell(value=rung.size_bytes / 1e9, digits=3),
        StudyCell(text="-", value=scored.estimate if scored else None, digits=3),
    )


def _label(pair: Pairing, rung: Rung) -> str:
    return f"{pair.line.draft} for {pair.line.target}; {rung.title}: {rung.quality.bits_per_weight:.2f} bits per weight"


def _rates(data: StudyData, ladder: Sequence[Rung]) -> list[Point]:
    found: list[Point] = []
    for line in data.arms:
        rung = named(ladder, line.target)
        whole = line.prompt is None and line.prompt_tokens is None and line.decode_rate is not None
        if not whole or rung is None or rung.perplexity is None or line.decode_rate is None:
            continue
        found.append(
            Point.of(
                line.decode_rate,
                x=rung.perplexity.estimate.point,
                series=line.draft or "no draft",
                name=f"{rung.quality.bits_per_weight:.1f}" if line.draft is None else "",
                label=f"{line.target}{f' with {line.draft}' if line.draft else ''}",
                verdict=line.of_rate,
            )
        )
    return found
