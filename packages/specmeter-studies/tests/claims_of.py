"""What a study says about its claims, by their names; and what messages hold."""

from __future__ import annotations

from collections.abc import Mapping

from said import all_said
from specmeter.messages import Message, Value
from specmeter_studies import find
from specmeter_studies.study import ClaimRuling, RulingWord, StudyData


def ruled(data: StudyData) -> dict[str, ClaimRuling]:
    return {claim.id: claim for claim in find(data.study).claims(data)}


def rulings(data: StudyData) -> dict[str, RulingWord]:
    return {name: claim.ruling for name, claim in ruled(data).items()}


def said(data: StudyData, claim: str) -> Message:
    """What was found."""
    return ruled(data)[claim].found


def values(message: Value, code: str, *, at: int = 0) -> Mapping[str, Value]:
    """What the message of a code holds, which may lie within another; `at` of several."""
    return [it for it in all_said(message) if it.code == code][at].values
