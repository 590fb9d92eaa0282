"""self-speculation: a model drafts for itself, in a lower quantization."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specmeter.studies import apple_published
from specmeter.studies.speed_ratio.claims import all_lose, necessary
from specmeter.studies.speed_ratio.ratio import RULE, Pairing, pairings
from specmeter.studies.speed_ratio.view import acceptance_figure, drawn, ratio_figure, ratio_tables
from specmeter.studies.telling import by_intervals, only_of, quoted, ruling

if TYPE_CHECKING:
    from specmeter.studies.study import ClaimRuling, StudyData, StudyFigure, StudyTable
    from specmeter.studies.telling import Found

TITLE = "Self-speculation: a 4B model in Q2 to Q6 drafts for itself in Q8"
SOURCE = apple_published.SOURCE
PARTS = ("self-speculation",)

TARGET = "4B_Q8"
CLAIMED_RATIO, ABOUT = 1.35, 0.1
"""As printed, and by which share a measured one may differ."""
NAMED = "a 4B model in Q2"


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
            all_lose(pairs, "Not all lose: "),
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
            only_of(data, NAMED, _slow(pairs)),
        ),
    )


def tables(data: StudyData) -> tuple[StudyTable, ...]:
    """The table of variants, its first four rows; and the runs by kind of text."""
    return ratio_tables(
        data,
        "variants",
        "The same model in lower quantizations as drafts",
        "The document's columns (draft, ratio, tok/s, baseline, change) and what it lacks: acceptance, tau, verdicts, "
        "and the acceptance that break-even needs.",
    )


def figures(data: StudyData) -> tuple[StudyFigure, ...]:
    """Speedup over speed ratio; acceptance and what break-even needs. The document draws none of them."""
    pairs = pairings(data)
    return drawn(
        ratio_figure(pairs, "speedup-by-ratio", "Speedup by speed ratio"),
        acceptance_figure(pairs, "break-even", "Acceptance, and what break-even needs"),
    )


def _slow(pairs: tuple[Pairing, ...]) -> Found:
    """Whether the fastest quantization has about the claimed ratio, with its interval."""
    known = [pair for pair in pairs if pair.ratio is not None]
    if not known:
        return "cannot tell", "Rates of drafts by themselves were not measured."
    fastest = max(known, key=lambda pair: pair.ratio.point if pair.ratio else 0.0)
    said = (
        f"{fastest.line.draft} is the fastest, {quoted(fastest.ratio)} times its target (draft "
        f"{quoted(fastest.draft_rate, 1, ' tok/s')}, target {quoted(fastest.target_rate, 1, ' tok/s')})"
    )
    assert fastest.ratio is not None
    found = by_intervals([(fastest.ratio, CLAIMED_RATIO)], ABOUT)
    return found, f"{said}, taken as within {ABOUT:.0%} of {CLAIMED_RATIO:g}."
