"""Conversations as others keep them: OpenAI's messages, and ShareGPT.

What is generated is the answer to the last turn of the user. The answers before it stay as they were said; what follows
it is left aside. So one conversation is one prompt, whatever its length.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, cast

from specmeter.errors import ExperimentError
from specmeter.record import Message

MAX_TURNS = 1_000
Role = Literal["system", "user", "assistant"]

_ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "gpt": "assistant",
}
_SHAREGPT = ("conversations", "conversation")


class Chat(NamedTuple):
    """The user's last turn, and what was said before it."""

    text: str
    before: tuple[Message, ...]


def turns_of(entry: Mapping[str, Any]) -> object:
    """The turns of an entry that is a conversation (or a request with one, as in OpenAI's batches); None of others."""
    body = entry.get("body")
    if isinstance(body, Mapping) and "messages" in body:
        return cast("Mapping[str, object]", body)["messages"]
    return next((entry[key] for key in ("messages", *_SHAREGPT) if key in entry), None)


def chat(turns: object, place: str) -> Chat:
    """A conversation. Raises `ExperimentError`, which names the place, for turns that are not text, of unknown roles,
    more than can be meant, or without one of the user."""
    if not isinstance(turns, list):
        raise ExperimentError(f"{place}: the conversation is not a list of turns", fix=_FORMS)
    listed = cast("list[object]", turns)
    if len(listed) > MAX_TURNS:
        raise ExperimentError(f"{place}: more than {MAX_TURNS} turns", fix="use a shorter conversation")
    said = [_message(turn, f"{place}, turn {number}") for number, turn in enumerate(listed, start=1)]
    last = max((number for number, message in enumerate(said) if message.role == "user"), default=None)
    if last is None:
        raise ExperimentError(f"{place}: the conversation has no turn of the user", fix="remove it, or add one")
    return Chat(said[last].content, tuple(said[:last]))


_FORMS = (
    'write {"messages": [{"role": "user", "content": "..."}]} or {"conversations": [{"from": "human", "value": "..."}]}'
)


def _message(turn: object, place: str) -> Message:
    given: Mapping[str, object] = cast("Mapping[str, object]", turn) if isinstance(turn, Mapping) else {}
    role, content = given.get("role", given.get("from")), given.get("content", given.get("value"))
    if not isinstance(role, str) or content is None:
        raise ExperimentError(f"{place}: has no role or no content", fix=_FORMS)
    if role not in _ROLES:
        raise ExperimentError(
            f"{place}: the role {role[:40]!r} is unknown", fix=f"known roles: {', '.join(_ROLES)}; leave others out"
        )
    return Message(role=_ROLES[role], content=_text(content, place))


def _text(content: object, place: str) -> str:
    """Text, or a list of parts that are text."""
    if isinstance(content, str):
        return content
    texts: list[str] = []
    for part in cast("list[object]", content) if isinstance(content, list) else [content]:
        given: Mapping[str, object] = cast("Mapping[str, object]", part) if isinstance(part, Mapping) else {}
        text = given.get("text") if given.get("type", "text") == "text" else None
        if not isinstance(text, str):
            raise ExperimentError(
                f"{place}: its content is not text", fix="leave turns with images, sound or tools out"
            )
        texts.append(text)
    return "".join(texts)
