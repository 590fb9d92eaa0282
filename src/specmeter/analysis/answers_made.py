"""How the answers of a run were made: how many, how long, what ended them, how tokens were chosen.

A speedup holds for answers like these, so this line stands next to every number of a run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from specmeter.messages import Message
from specmeter.record import SAMPLING, Arm, Generation, ModelIdentity, Prompt, Record
from specmeter.store.columns import RequestColumns, columns_of

if TYPE_CHECKING:
    from specmeter.store import RequestRow


class AnswersMade(Record):
    """How the answers of a run were made."""

    prompts: int
    """Different prompts that were answered."""
    answers: int
    """Prompts answered, those of each target."""
    tokens: float
    """Of an answer, the median over these."""
    cut: int
    """Of these, how many were cut off: at their most tokens, or by the end of the context."""
    limits: tuple[int, ...]
    """Most tokens that were asked for, where any was cut off."""
    generation: Generation
    sampling: tuple[tuple[str, float], ...] = ()
    """What was in force, as far as it is known and does anything."""
    contexts: tuple[int, ...] = ()
    """Contexts of the arms, of one slot each; none of a server that ran already, unless one was asked for."""
    multi_turn: int = 0
    """Prompts with turns before them."""
    prompt_cache: bool = False
    """Whether requests may continue from what a server had read."""
    under_load: bool = False
    untemplated: tuple[str, ...] = ()
    """Targets without a chat template, whose chats were continued as plain text."""

    @property
    def line(self) -> Message:
        """All of it but what was done with chats."""
        return Message("made.line", parts=[*self._answers(), self._chosen(), *self._settings()])

    @property
    def remarks(self) -> list[Message]:
        """What has to be told in a sentence of its own."""
        return [Message("made.no_template", model=it) for it in self.untemplated]

    def _answers(self) -> list[Message]:
        tokens = Message("made.tokens", tokens=round(self.tokens), ended=self._ended())
        return [Message("made.prompts", prompts=self.prompts), tokens]

    def _ended(self) -> Message:
        if self.generation.ignore_eos:
            return Message("made.ignored")
        if not self.cut:
            return Message("made.all_ended")
        return Message("made.cut", cut=self.cut, answers=self.answers, limits=list(self.limits))

    def _chosen(self) -> Message:
        heat = self.generation.temperature
        named = [f"{name.replace('_', '-')} {value:g}" for name, value in self.sampling]
        if not heat:
            return Message("made.penalized", settings=named) if named else Message("made.greedy")
        return Message("made.sampled", temperature=heat, settings=Message("made.settings", of=named) if named else "")

    def _settings(self) -> list[Message]:
        stops = [Message("made.stop", words=[repr(it) for it in self.generation.stop])] if self.generation.stop else []
        turns = "single" if not self.multi_turn else "all_turns" if self.multi_turn == self.prompts else "some_turns"
        return [
            *stops,
            *([Message("made.context", contexts=list(self.contexts))] if self.contexts else []),
            Message(f"made.{turns}", chats=self.multi_turn),
            Message("made.cache" if self.prompt_cache else "made.no_cache"),
            *([Message("made.load")] if self.under_load else []),
        ]


def answers_made(
    rows: Iterable[RequestRow] | RequestColumns,
    prompts: Sequence[Prompt],
    arms: Sequence[Arm],
    generation: Generation,
    *,
    models: Sequence[ModelIdentity] = (),
    served: Mapping[str, object] | None = None,
) -> AnswersMade | None:
    """From the requests of `arms`; None where none of them was answered.

    Texts of arms with synthetic acceptance are no answers. `served` says how the engine samples where a request asks
    for nothing: `resolved["sampling"]` of a session.
    """
    targets = {arm.id: arm.target for arm in arms if not arm.synthetic_rates}
    of = {it.id: it for it in prompts}
    lengths: dict[tuple[str, str], tuple[int, int]] = {}
    answered: dict[str, Prompt] = {}
    cut: set[tuple[str, str]] = set()
    limits: set[int] = set()
    for arm_id, prompt_id, stop_reason, count, tokens in _counted(
        rows if isinstance(rows, RequestColumns) else columns_of(rows)
    ):
        if arm_id not in targets or prompt_id not in of:
            continue
        prompt = of[prompt_id]
        key = (targets[arm_id], prompt.of or prompt.id)
        answered.setdefault(key[1], prompt)
        before = lengths.get(key, (0, 0))
        lengths[key] = before[0] + tokens, before[1] + count
        if stop_reason in ("limit", "context"):
            cut.add(key)
            limits.add(prompt.max_tokens or generation.max_tokens)
    if not lengths:
        return None
    known = {name: value for name, value in (served or {}).items() if name in SAMPLING} | generation.sampling
    shown = ("top_k", "top_p", "min_p") if generation.temperature else ()
    usual = {"repeat_penalty": 1, "presence_penalty": 0, "frequency_penalty": 0}
    penalties = [name for name, off in usual.items() if known.get(name, off) != off]
    chats = any(it.format == "chat" for it in answered.values())
    measured = {target for target, _ in lengths}
    return AnswersMade(
        prompts=len(answered),
        answers=len(lengths),
        tokens=median(tokens / count for tokens, count in lengths.values()),
        cut=len(cut),
        limits=tuple(sorted(limits)),
        generation=generation,
        sampling=tuple(
            (name, value) for name in (*shown, *penalties) if isinstance(value := known.get(name), int | float)
        ),
        contexts=tuple(
            sorted({it.engine.slot_context for it in arms if it.id in targets and it.engine.context is not None})
        ),
        multi_turn=sum(bool(it.before) for it in answered.values()),
        prompt_cache=any(arm.engine.prompt_cache for arm in arms),
        under_load=any(arm.load is not None for arm in arms),
        untemplated=tuple(
            it.name
            for it in models
            if chats and it.name in measured and it.header is not None and not it.header.chat_template
        ),
    )


def _counted(read: RequestColumns) -> Iterator[tuple[str, str, str | None, int, int]]:
    """(arm id, prompt id, why they ended, how many, their tokens) of answered requests, in the order of the first."""
    tokens = read.number("predicted_n")
    answered = np.flatnonzero(read.where("status", "ok") & ~np.isnan(tokens))
    names = ("arm_id", "prompt_id", "stop_reason")
    found, number = read.distinct(names, answered)
    added = np.bincount(number, weights=tokens[answered], minlength=len(found)).tolist()
    for of, count, sum_ in zip(
        read.of(names, found), np.bincount(number, minlength=len(found)).tolist(), added, strict=True
    ):
        yield (*of, count, int(sum_))
