"""What engines say of themselves by the same words: what they tell, and how they draft."""

from __future__ import annotations

from specmeter.record import MethodTraits, Truth

WHOLE: tuple[Truth, ...] = (
    *("drafts", "forwards", "steps", "tokens", "arrivals", "candidates"),
    *("activation", "identity", "processes"),
)
"""What an engine tells that is seen from inside."""


def by_model(name: str, *more: str) -> MethodTraits:
    """Drafts of a draft model, by the engine's own name for it; `more`: what can be set besides their length."""
    return MethodTraits(name=name, drafter="model", draft_model="needed", parameters=("gamma", *more))


def by_lookup(name: str) -> MethodTraits:
    """Drafts copied from behind an earlier place like this one."""
    return MethodTraits(name=name, drafter="lookup", parameters=("gamma", "ngram_n"))
