"""self-speculation: its data, and the rules that tell what break-even needs or name the fastest draft."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specmeter_studies import apple_published
from specmeter_studies.library.apple_sd.extra import necessary
from specmeter_studies.pairings import pairings
from specmeter_studies.rules import lies
from specmeter_studies.study import by_intervals, quoted

if TYPE_CHECKING:
    from specmeter_studies.study import Found, StudyData

__all__ = ["all_lose", "necessary", "published", "slow"]

CLAIMED_RATIO, ABOUT = 1.35, 0.1
"""As printed, and by which share a measured one may differ."""


def published() -> StudyData:
    """Twelve runs, all of them refuted by the document's own rates."""
    return apple_published.speculation("self-speculation", "4B_Q8")


def all_lose(data: StudyData) -> Found:
    """Whether every arm is slower than plain decoding."""
    return lies(
        pairings(data),
        "line.speedup",
        high=1,
        told="told",
        found={
            "supported": "All {n} lose: {shown}.",
            "contradicted": "Not all lose: {shown}.",
            "cannot tell": "Intervals do not decide: {shown}.",
        },
        missing="No speedup is left.",
    )


def slow(data: StudyData) -> Found:
    """Whether the fastest quantization has about the claimed ratio, with its interval."""
    known = [pair for pair in pairings(data) if pair.ratio is not None]
    if not known:
        return "cannot tell", "Rates of drafts alone were not measured."
    fastest = max(known, key=lambda pair: pair.ratio.point if pair.ratio else 0.0)
    said = (
        f"{fastest.line.draft} is the fastest, {quoted(fastest.ratio)} times its target (draft "
        f"{quoted(fastest.draft_rate, 1, ' tok/s')}, target {quoted(fastest.target_rate, 1, ' tok/s')})"
    )
    assert fastest.ratio is not None
    found = by_intervals([(fastest.ratio, CLAIMED_RATIO)], ABOUT)
    return found, f"{said}, taken as within {ABOUT:.0%} of {CLAIMED_RATIO:g}."
