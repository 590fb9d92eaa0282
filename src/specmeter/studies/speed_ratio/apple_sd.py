"""apple-sd: two drafts, two draft lengths, one dense target; and a rule that looks at speed alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specmeter.numbers.estimates import exceeds
from specmeter.studies import apple_published
from specmeter.studies.speed_ratio.claims import gain_at_low_acceptance, governed, nothing_left, sufficient
from specmeter.studies.speed_ratio.ratio import RULE, Pairing, believable, pairings
from specmeter.studies.speed_ratio.view import acceptance_figure, drawn, ratio_figure, ratio_tables, told
from specmeter.studies.telling import ruling

if TYPE_CHECKING:
    from specmeter.studies.study import ClaimRuling, StudyData, StudyFigure, StudyTable
    from specmeter.studies.telling import Found

TITLE = "Speculation on Apple silicon: drafts of 0.8B and 2B for a dense 9B target"
SOURCE = apple_published.SOURCE
PARTS = ("apple-sd",)

TARGET = "9B_Q8"
BEST = ("0.8B_Q8", 4)
CLAIMED = 1.257


def published() -> StudyData:
    """Twelve runs, all of them refuted by the document's own counters and rates."""
    return apple_published.speculation("apple-sd", TARGET)


def claims(data: StudyData) -> tuple[ClaimRuling, ...]:
    """What the data says about each claim."""
    pairs = pairings(data)
    by_prompt = pairings(data, by_prompt=True)
    where = "project page, finding 3 and table of speculation"
    return (
        ruling(
            "speed-ratio-governs",
            "Whether speculation pays is governed by the speed ratio of draft and target.",
            where,
            governed(pairs, by_prompt),
        ),
        ruling(
            "gain-at-low-acceptance",
            "A speed ratio of 3.3 gives +25.7 % at 2 to 4 % acceptance, by the efficiency of batch verification.",
            where,
            gain_at_low_acceptance(pairs, CLAIMED),
        ),
        ruling(
            "rule-2.5",
            f"A draft that runs at least {RULE:g} times as fast as its target pays, a slower one does not.",
            f"{where}; data, `min_speed_ratio_for_benefit`",
            sufficient(pairs),
        ),
        ruling(
            "best-arm",
            "The fastest draft with the short draft length (0.8B, k = 4) gains most.",
            "table of speculation, marked row; data, `best_config`",
            _best(pairs),
        ),
    )


def tables(data: StudyData) -> tuple[StudyTable, ...]:
    """The table of speculation, with what a ratio leaves out; and the runs by kind of text."""
    return ratio_tables(
        data,
        "speculation",
        "Speculative decoding by draft and draft length",
        "The document's columns (draft, k, speed ratio, acceptance, tok/s, change) and what it lacks: tau, verdicts, "
        "and the acceptance that break-even needs. Rates of ours are those of generated tokens alone.",
        by_text="The same by kind of text (the data's `by_prompt`)",
    )


def figures(data: StudyData) -> tuple[StudyFigure, ...]:
    """Speedup over speed ratio; acceptance and what break-even needs. The document draws none of them."""
    pairs = pairings(data)
    return drawn(
        ratio_figure(pairs, "speedup-by-ratio", "Speedup by speed ratio"),
        ratio_figure(
            pairings(data, by_prompt=True),
            "speedup-by-ratio-and-text",
            "Speedup by speed ratio, each kind of text by itself",
            "If the ratio governed, points above one another would not lie apart.",
        ),
        acceptance_figure(pairs, "break-even", "Acceptance, and what break-even needs"),
    )


def _best(pairs: tuple[Pairing, ...]) -> Found:
    known = believable(pairs)
    named = [pair for pair in known if (pair.line.draft, pair.line.gamma) == BEST]
    others = [pair for pair in known if pair not in named]
    if not named or not others:
        return "cannot tell", nothing_left(pairs) if not known else "The arm, or one to compare it with, is missing."
    best = named[0]
    better = [pair for pair in others if exceeds(pair.line.speedup, best.line.speedup)]
    if better:
        return "contradicted", f"{told(better[0])} gains more than {told(best)}."
    beaten = [pair for pair in others if exceeds(best.line.speedup, pair.line.speedup)]
    said = f"{told(best)}; " + "; ".join(told(pair) for pair in others)
    return ("supported" if len(beaten) == len(others) else "cannot tell"), f"{said}."
