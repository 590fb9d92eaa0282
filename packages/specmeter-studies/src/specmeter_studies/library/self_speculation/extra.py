"""self-speculation: its data, and the rules that tell what break-even needs or name the fastest draft."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specmeter.messages import Message
from specmeter_studies import apple_published
from specmeter_studies.library.apple_sd.extra import NO_SPEEDUP, necessary
from specmeter_studies.pairings import pairings
from specmeter_studies.rules import lies
from specmeter_studies.telling import by_intervals, quoted

if TYPE_CHECKING:
    from specmeter_studies.study import Found, StudyData

__all__ = ["all_lose", "necessary", "published", "slow"]

CLAIMED_RATIO, ABOUT = 1.35, 0.1
"""As printed, and by which share a measured one may differ."""


def published() -> StudyData:
    """Twelve runs, all of them refuted by the document's own rates."""
    return apple_published.speculation("self-speculation", "4B_Q8")


def all_lose(data: StudyData) -> Found:
    """Whether every arm is slower than no speculation."""
    return lies(
        pairings(data),
        "line.speedup",
        high=1,
        told="message",
        found={
            "supported": "study.all_lose",
            "contradicted": "self-speculation.not_all_lose",
            "cannot tell": "study.undecided",
        },
        missing=NO_SPEEDUP,
    )


def slow(data: StudyData) -> Found:
    """Whether the fastest quantization has about the claimed ratio, with its interval."""
    known = [pair for pair in pairings(data) if pair.ratio is not None]
    if not known:
        return "cannot tell", Message("self-speculation.no_rates")
    fastest = max(known, key=lambda pair: pair.ratio.point if pair.ratio else 0.0)
    assert fastest.ratio is not None
    found = by_intervals([(fastest.ratio, CLAIMED_RATIO)], ABOUT)
    return found, Message(
        "self-speculation.fastest",
        draft=fastest.line.draft,
        ratio=quoted(fastest.ratio),
        rate=quoted(fastest.draft_rate, " tok/s"),
        target_rate=quoted(fastest.target_rate, " tok/s"),
        about=ABOUT,
        claimed=CLAIMED_RATIO,
    )
