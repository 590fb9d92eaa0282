"""open-questions: what the documents leave open, measured.

    open-gamma        drafts of 32 and 64 tokens
    open-contexts     prompts of 4,096 to 32,768 tokens
    open-greedy       temperature 0, and
    open-sampled      temperature 0.8 on the same prompts
    open-moe-drafts   mixtures of experts that draft for a mixture of experts

What every part tells besides: the memory of its drafts, and the energy of its tokens where that can be read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from specmeter.studies.open_questions.claims import claims
from specmeter.studies.open_questions.view import figures, tables

if TYPE_CHECKING:
    from specmeter.studies.study import StudyData

__all__ = ["PARTS", "SOURCE", "TITLE", "claims", "figures", "published", "tables"]

TITLE = "What the documents leave open"
SOURCE = (
    "Advice and limitations (sections 5.4 and 5.5) of AtomGradient, Does Speculative Decoding Help Mixture-of-Experts? "
    "An Empirical Study on Qwen3.5-35B-A3B with Apple Silicon, March 2026, "
    "https://github.com/AtomGradient/speculative-moe-research"
)
PARTS = ("open-gamma", "open-contexts", "open-greedy", "open-sampled", "open-moe-drafts")


def published() -> StudyData | None:
    """None: the document asked these questions and measured nothing of them."""
    return None
