"""Profiles of constructed texts."""

from __future__ import annotations

from specmeter.probe.replay import Limits, ModelDrafts, Round, replay
from specmeter.record import MatchProfile


def profile(
    matches: str,
    *,
    gaps: dict[int, float] | None = None,
    confidences: tuple[float, ...] = (),
    branches: dict[int, tuple[float, ...]] | None = None,
) -> MatchProfile:
    """A draft that is sure of everything, but for what is given: `gaps` by position."""
    wide = [9.0] * len(matches)
    for place, gap in (gaps or {}).items():
        wide[place] = gap
    return MatchProfile(
        prompt_id="p",
        prompt_digest="aa",
        text_digest="bb",
        draft_sha256="00" * 32,
        made_by="by hand",
        matches=matches,
        gaps=tuple(wide),
        confidences=confidences or (1.0,) * len(matches),
        branches=branches or {},
        sway=0.0,
    )


def rounds(found: MatchProfile, *, gamma: int, gamma_min: int = 0, p_min: float = 0.0) -> tuple[Round, ...]:
    """Every step of a draft model's arm on a profile's text, where nothing but the text's end shortens drafts and the
    target forgets what it rejects."""
    drafts = ModelDrafts(found, gamma, gamma_min, p_min)
    return replay(drafts, Limits(drafts.length))
