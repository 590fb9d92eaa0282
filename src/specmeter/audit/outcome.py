"""What came of holding a claim against one bound."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from specmeter.audit.claim import Assumption, Claim


@dataclass(frozen=True)
class Outcome:
    """One bound, tried."""

    bound: str
    """By the names of `specmeter.audit.laws`."""
    result: Literal["broken", "doubtful", "holds", "weak", "undecided"]
    """`doubtful`: broken by less than noise explains, or by numbers that may mean something else; `weak`: holds, but
    nearly anything would; `undecided`: something is missing."""
    line: str
    """The arithmetic, or what is missing."""
    rests_on: tuple[Assumption, ...] = ()
    """Of a broken bound: what would make it hold again. Empty where nothing would: arithmetic."""

    @property
    def impossible(self) -> bool:
        """Broken, whatever the machine."""
        return self.result == "broken" and not self.rests_on


def is_baseline(claim: Claim) -> bool:
    """Plain decoding, said so."""
    return claim.method == "none"


def drafted_nothing(claim: Claim) -> bool:
    """Plain decoding, whatever it is called: nothing was drafted, or could be."""
    return is_baseline(claim) or claim.gamma == 0 or claim.drafted == 0


def speculates(claim: Claim) -> bool:
    """Whether anything in the claim says that tokens were drafted."""
    if claim.method is not None:
        return claim.method != "none"
    signs = (claim.gamma, claim.acceptance, claim.tau, claim.drafted, claim.accepted, claim.steps, claim.draft_rate)
    return any(sign is not None for sign in (*signs, claim.speed_ratio))


def decoded_tokens(claim: Claim) -> int | None:
    """Tokens after the first of each generation, which the prompt's own forward gives; None below 1."""
    if claim.predicted_n is None:
        return None
    decoded = claim.predicted_n - (claim.runs or 1)
    return decoded if decoded > 0 else None
