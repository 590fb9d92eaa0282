"""A streamed answer put together from its parts, in OpenAI's form or in SGLang's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from specmeter.engines.url.dialects import field_of
from specmeter.errors import EngineProtocolError
from specmeter.record import UNKNOWN_TOKEN


@dataclass
class Received:
    """An answer, put together from its parts."""

    last: dict[str, Any] = field(default_factory=dict[str, Any])
    """All that stood beside the text; of what came several times, the last."""
    text: str = ""
    reasoning: str = ""
    ids: list[int] = field(default_factory=list[int])
    finish: str = ""
    parts: list[tuple[float, int | None]] = field(default_factory=list[tuple[float, int | None]])
    """(when it came, how many tokens it had) for each part with text."""

    @property
    def count(self) -> int | None:
        """Tokens generated, as the server counts them."""
        for path in ("usage.completion_tokens", "meta_info.completion_tokens"):
            found = field_of(self.last, path)
            if isinstance(found, int) and not isinstance(found, bool) and found >= 0:
                return found
        return len(self.ids) or None


def received(events: Sequence[tuple[float, dict[str, Any]]]) -> Received:
    """The parts of an answer in order. Raises `EngineProtocolError` for one that broke off or makes no sense."""
    found = Received()
    for at, event in events:
        if event.get("error"):
            raise EngineProtocolError(
                f"the server aborted: {str(event['error'])[:300]}", fix="read the log of that server"
            )
        before = len(found.ids)
        text, reasoning = (_native if "meta_info" in event and "choices" not in event else _openai)(found, event)
        found.last |= {name: it for name, it in event.items() if it is not None and name not in ("choices", "text")}
        if text or reasoning or len(found.ids) > before:
            found.text, found.reasoning = found.text + text, found.reasoning + reasoning
            found.parts.append((at, len(found.ids) - before if found.ids else None))
    return found


def _openai(found: Received, event: Mapping[str, Any]) -> tuple[str, str]:
    choices: Any = event.get("choices")
    if not isinstance(choices, list) or not choices:
        return "", ""
    choice: Any = cast("list[Any]", choices)[0]
    said: Any = next((it for name in ("delta", "message") if (it := field_of(choice, name)) is not None), choice)
    ids: Any = field_of(choice, "token_ids")
    if isinstance(ids, list):
        found.ids += [it if isinstance(it, int) else UNKNOWN_TOKEN for it in cast("list[Any]", ids)]
    for name in ("meta_info", "sglext"):
        if isinstance(beside := field_of(choice, name), dict):
            found.last[name] = beside
    found.finish = str(field_of(choice, "finish_reason") or found.finish)[:40]
    text, thought = (
        next((it for name in names if isinstance(it := field_of(said, name), str)), "")
        for names in (("content", "text"), ("reasoning_content", "reasoning"))
    )
    return text, thought


def _native(found: Received, event: Mapping[str, Any]) -> tuple[str, str]:
    """SGLang's own: each part has all that came before, or only what is new."""
    text, ids = event.get("text"), event.get("output_ids")
    counted: Any = field_of(event, "meta_info.completion_tokens")
    listed = (
        [it if isinstance(it, int) else UNKNOWN_TOKEN for it in cast("list[Any]", ids)] if isinstance(ids, list) else []
    )
    if isinstance(counted, int) and len(listed) == counted and listed[: len(found.ids)] == found.ids:
        found.ids = listed
    else:
        found.ids += listed
    found.finish = str(field_of(event, "meta_info.finish_reason.type") or found.finish)[:40]
    whole = text if isinstance(text, str) else ""
    return whole.removeprefix(found.text) if whole.startswith(found.text) else whole, ""
