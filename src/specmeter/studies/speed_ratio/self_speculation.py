"""self-speculation: a model drafts for itself, in a lower quantization."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specmeter.studies import apple_published
from specmeter.studies.speed_ratio.claims import necessary, nothing_left
from specmeter.studies.speed_ratio.ratio import RULE, Pairing, believable, pairings
from specmeter.studies.speed_ratio.view import acceptance_figure, prompt_table, ratio_figure, ratio_table, told
from specmeter.studies.telling import quoted, ruling

if TYPE_CHECKING:
    from specmeter.studies.study import ClaimRuling, Finding, StudyData, StudyFigure, StudyTable

TITLE = "Self-speculation: a 4B model in Q2 to Q6 drafts for itself in Q8"
SOURCE = apple_published.SOURCE
PARTS = ("self-speculation",)

TARGET = "4B_Q8"
CLAIMED_RATIO = 1.35


def published() -> StudyData:
    """Twelve runs, all of them refuted by the document's own rates."""
    return apple_published.speculation("self-speculation", TARGET)


def claims(data: StudyData) -> tuple[ClaimRuling, ...]:
    """What the data says about each claim."""
    pairs = pairings(data)
    where = "project page, finding 4 and table of variants"
    return (
        ruling(
            "self-loses",
            "The same model in a lower quantization as draft loses (by about 25 %, the document says).",
            where,
            _loses(pairs),
        ),
        ruling(
            "self-needs-2.5",
            f"It needs a speed ratio of at least {RULE:g} to break even.",
            where,
            necessary(pairs),
        ),
        ruling(
            "self-ratio",
            f"A lower quantization of the same model is only {CLAIMED_RATIO:g} times as fast: too little, whatever it "
            "saves in bytes.",
            where,
            _slow(pairs),
        ),
    )


def tables(data: StudyData) -> tuple[StudyTable, ...]:
    """The table of variants, its first four rows; and the runs by kind of text."""
    pairs = pairings(data)
    by_prompt = pairings(data, by_prompt=True)
    if not pairs:
        return ()
    table = ratio_table(
        pairs,
        "variants",
        "The same model in lower quantizations as drafts",
        "The document's columns (draft, ratio, tok/s, baseline, change) and what it lacks: acceptance, tau, verdicts, "
        "and the acceptance that break-even needs.",
    )
    return (table, prompt_table(by_prompt, "by-text", "The same by kind of text")) if by_prompt else (table,)


def figures(data: StudyData) -> tuple[StudyFigure, ...]:
    """Speedup over speed ratio; acceptance and what break-even needs. The document draws none of them."""
    pairs = pairings(data)
    made = (
        ratio_figure(pairs, "speedup-by-ratio", "Speedup by speed ratio"),
        acceptance_figure(pairs, "break-even", "Acceptance, and what break-even needs"),
    )
    return tuple(figure for figure in made if figure.points)


def _loses(pairs: tuple[Pairing, ...]) -> tuple[Finding, str]:
    known = believable(pairs)
    if not known:
        return "cannot tell", nothing_left(pairs)
    said = "; ".join(told(pair) for pair in known)
    if any(pair.outcome == "gains" for pair in known):
        return "contradicted", f"Not all lose: {said}."
    if all(pair.outcome == "loses" for pair in known):
        return "supported", f"All {len(known)} lose: {said}."
    return "cannot tell", f"Intervals do not decide: {said}."


def _slow(pairs: tuple[Pairing, ...]) -> tuple[Finding, str]:
    """Whether even the fastest quantization stays below the rule's ratio, with its interval."""
    known = [pair for pair in pairs if pair.ratio is not None]
    if not known:
        return "cannot tell", "Rates of drafts by themselves were not measured."
    fastest = max(known, key=lambda pair: pair.ratio.point if pair.ratio else 0.0)
    said = (
        f"{fastest.line.draft} is the fastest, {quoted(fastest.ratio)} times its target (draft "
        f"{quoted(fastest.draft_rate, 1, ' tok/s')}, target {quoted(fastest.target_rate, 1, ' tok/s')})"
    )
    without = fastest.ratio is None or fastest.ratio.low is None
    if without or fastest.side == "across":
        return "cannot tell", f"{said}: the interval reaches from below {RULE:g} to above it."
    return ("supported" if fastest.side == "below" else "contradicted"), f"{said}."
