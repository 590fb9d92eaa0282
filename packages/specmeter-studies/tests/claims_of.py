"""What a study says about its claims, by their names."""

from __future__ import annotations

from specmeter_studies import find
from specmeter_studies.study import ClaimRuling, RulingWord, StudyData


def ruled(data: StudyData) -> dict[str, ClaimRuling]:
    return {claim.id: claim for claim in find(data.study).claims(data)}


def rulings(data: StudyData) -> dict[str, RulingWord]:
    return {name: claim.ruling for name, claim in ruled(data).items()}


def said(data: StudyData, claim: str) -> str:
    """What was found, in words."""
    return ruled(data)[claim].found
