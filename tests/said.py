"""What a message says: the messages within it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

from specmeter.messages import Message, Value


def all_said(said: Value) -> Iterator[Message]:
    """A message and those among its values, at any depth."""
    if isinstance(said, Message):
        yield said
        for value in said.values.values():
            yield from all_said(value)
    elif isinstance(said, Sequence) and not isinstance(said, str):
        for value in cast("Sequence[Value]", said):
            yield from all_said(value)


def codes(said: Value) -> set[str]:
    """Codes of all of them."""
    return {it.code for it in all_said(said)}


def said_of(said: Value, code: str) -> Message:
    """The one of this code."""
    (found,) = (it for it in all_said(said) if it.code == code)
    return found
