"""What a study says about its claims, by their names; and what messages hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

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


def within(message: Value) -> Iterator[Message]:
    """A message, and all that it holds."""
    if isinstance(message, Message):
        yield message
        for value in message.values.values():
            yield from within(value)
    elif isinstance(message, Sequence) and not isinstance(message, str):
        for value in message:
            yield from within(value)


def codes(message: Value) -> list[str]:
    return [it.code for it in within(message)]


def values(message: Value, code: str, *, at: int = 0) -> Mapping[str, Value]:
    """What the message of a code holds, which may lie within another; `at` of several."""
    return [it for it in within(message) if it.code == code][at].values
