"""Chooses calls of recorded sessions to be asked again, and says what each of them stands for.

Calls are put into strata by depth and kind, and one is drawn of each of several equal stretches. So a few dozen
calls speak for a session of hours. A stratum gets calls by its share of all text to be read and written: long prompts
vary most in time (optimal allocation, Cochran, Sampling Techniques, chapter 5, with size in place of the deviation).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from hashlib import sha256

from specmeter.record import ChatMessage, Prompt, Turn
from specmeter.workloads.sessions import Call, Recording
from specmeter.workloads.texts import Item

CALL, CODE, PROSE = "tool-call", "code", "prose"
"""Kinds of turns: by what was answered."""
DEPTHS = (4_096, 16_384, 65_536)
"""Tokens of a prompt at which another stratum begins; also the groups of tables by depth."""
_SLACK = 64
CHARACTERS_PER_TOKEN = 4.0
"""Where nobody counted tokens; strata need no more."""


def depth_of(tokens: float) -> int:
    """Where the group begins that a prompt of so many tokens belongs to."""
    return max((it for it in (0, *DEPTHS) if it <= tokens), default=0)


def stratum_of(prompt: Prompt) -> tuple[int, str]:
    """Depth and kind of a call that was chosen."""
    return depth_of(len(prompt.said) / CHARACTERS_PER_TOKEN), prompt.kind


def kind_of(reply: ChatMessage | None) -> str:
    """What an answer is: a call of a tool, mostly code, or prose."""
    if reply is None:
        return PROSE
    if reply.tool_calls:
        return CALL
    fenced = sum(len(it) for it in reply.content.split("```")[1::2])
    return CODE if 2 * fenced > len(reply.content) else PROSE


def tokens_of(call: Call) -> float:
    """Tokens of its prompt, counted or by its characters."""
    if call.prompt_tokens is not None:
        return float(call.prompt_tokens)
    return sum(_characters(it) for it in call.messages) / CHARACTERS_PER_TOKEN


def chosen(recording: Recording, count: int | None, seed: int) -> list[Item]:
    """Items of a workload: `count` calls (None: all), in the order of their sessions."""
    calls = recording.calls
    numbers = _numbers(calls)
    strata: dict[tuple[int, str], list[int]] = {}
    for place, it in enumerate(calls):
        strata.setdefault((depth_of(tokens_of(it)), kind_of(it.reply)), []).append(place)
    drawn: dict[int, float] = {}
    for stratum, places in strata.items():
        taken = len(places) if count is None else _shares(strata, calls, count)[stratum]
        for place in range(taken):
            # One of each stretch, anywhere in it: at even distances it could always be the same turn of a session.
            start = int.from_bytes(sha256(f"{seed}:{stratum}:{place}".encode()).digest()[:6], "big") / 2**48
            drawn[places[int((place + start) * len(places) / taken)]] = len(places) / taken
    return [_item(calls[place], numbers[place], drawn[place]) for place in sorted(drawn)]


def _shares(strata: dict[tuple[int, str], list[int]], calls: Sequence[Call], count: int) -> dict[tuple[int, str], int]:
    """How many calls of each stratum are asked: one at least, and all of it at most."""
    sizes = {it: sum(_work(calls[place]) for place in places) for it, places in strata.items()}
    taken = dict.fromkeys(strata, 1)
    while sum(taken.values()) < min(count, len(calls)):
        open_ = [it for it in strata if taken[it] < len(strata[it])]
        most = max(open_, key=lambda it: (sizes[it] / taken[it], it))
        taken[most] += 1
    return taken


def _work(call: Call) -> float:
    """Text to be read and written, in tokens; reading is cheaper by far."""
    new = sum(_characters(it) for it in call.messages[call.known :]) / CHARACTERS_PER_TOKEN
    written = call.reply_tokens or (0 if call.reply is None else _characters(call.reply) / CHARACTERS_PER_TOKEN)
    return 1 + math.sqrt(new) + written


def _most_tokens(asked: int | None, recorded: int | None) -> int | None:
    """Where an answer is cut: twice its recorded length, so that one that does not end costs no more."""
    limits = [asked, 2 * recorded + _SLACK if recorded else None]
    return min((it for it in limits if it), default=None)


def _characters(message: ChatMessage) -> int:
    calls = sum(len(it.name) + len(it.arguments) for it in message.tool_calls)
    return len(message.content) + len(message.reasoning) + calls


def _numbers(calls: Sequence[Call]) -> list[int]:
    """Place of each call in its session."""
    seen: dict[str, int] = {}
    numbers: list[int] = []
    for it in calls:
        numbers.append(seen.get(it.session, 0))
        seen[it.session] = numbers[-1] + 1
    return numbers


def _item(call: Call, number: int, weight: float) -> Item:
    tokens = call.reply_tokens
    if tokens is None and call.reply is not None:  # of a chat log: about as long
        tokens = max(1, round(_characters(call.reply) / CHARACTERS_PER_TOKEN))
    last = call.messages[-1]
    ends = last.role == "user"
    cached = None
    if call.cached_tokens is not None and call.prompt_tokens:
        cached = min(1.0, call.cached_tokens / call.prompt_tokens)
    turn = Turn(
        session=call.session,
        number=number,
        weight=weight,
        known=call.known,
        cached=cached,
        reply=call.reply,
        reply_tokens=tokens or None,
        wall_ms=call.wall_ms,
    )
    return Item(
        id=f"{call.session}-{number}",
        kind=kind_of(call.reply),
        text=last.content if ends else "",
        max_tokens=_most_tokens(call.max_tokens, tokens),
        before=call.messages[:-1] if ends else call.messages,
        tools=call.tools,
        held=dict(call.held),
        turn=turn,
    )
