"""What came of holding a claim against one bound."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from specmeter.audit.claim import Claim

SEQUENTIAL = frozenset({"draft-simple"})
"""Methods whose drafts are known to cost one forward of the draft model per token."""


@dataclass(frozen=True)
class Outcome:
    """One bound, tried."""

    bound: str
    """By the names of the checks."""
    result: Literal["broken", "doubtful", "holds", "weak", "undecided"]
    """`doubtful`: broken by less than noise explains, or by numbers that may mean something else; `weak`: holds, but
    nearly anything would; `undecided`: something is missing."""
    line: str
    """The arithmetic, or what is missing."""


def is_baseline(claim: Claim) -> bool:
    """Plain decoding, said so."""
    return claim.method == "none"


def speculates(claim: Claim) -> bool:
    """Whether anything in the claim says that tokens were drafted."""
    if claim.method is not None:
        return claim.method != "none"
    signs = (claim.gamma, claim.acceptance, claim.tau, claim.drafted, claim.accepted, claim.steps, claim.draft_rate)
    return any(sign is not None for sign in (*signs, claim.speed_ratio))


def drafts_one_by_one(claim: Claim) -> bool:
    """Whether each draft token cost one forward of a draft model: `draft-simple`, or a method that is not named."""
    return claim.method is None or claim.method in SEQUENTIAL


def decoded_tokens(claim: Claim) -> int | None:
    """Tokens after the first of each generation, which the prompt's own forward gives; None below 1."""
    if claim.predicted_n is None:
        return None
    decoded = claim.predicted_n - (claim.runs or 1)
    return decoded if decoded > 0 else None
