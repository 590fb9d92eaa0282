"""One generation of the mock engine: its script, written before time passes, and its performance, round by round.

What is said and drafted depends on text and chance alone; how long a round takes depends on all the sequences that take
part in it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

from specmeter.engines.mock.words import detokenize
from specmeter.record import Reply, Step, Timings

PREFILL_BATCH = 2048
"""Prompt tokens per target forward."""


class Draft(NamedTuple):
    """What was drafted for one step, and how much of it the target agrees with."""

    drafted: int = 0
    accepted: int = 0
    ms: float = 0.0


class Round(NamedTuple):
    """A step of one sequence."""

    draft: Draft
    positions: int
    """Its part of the target's forward; 0: that failed, and does not count."""
    emitted: int
    """Tokens; of a replay also those that its restore had accepted."""
    stall_ms: float = 0.0
    """Held up for so long."""
    restore_ms: float = 0.0
    """More than 0: it emits nothing and restores a checkpoint."""


@dataclass
class Script:
    """Everything about a generation but its times."""

    tokens: tuple[int, ...]
    stop_reason: str
    prompt_n: int
    pace: float
    """How much longer than by the cost model its rounds take."""
    rounds: list[Round] = field(default_factory=list[Round])
    """After the prompt, which emits the first token."""
    drafted: int = 0
    accepted: int = 0

    def count(self, draft: Draft) -> None:
        """What the engine's counters make of a draft."""
        self.drafted += draft.drafted
        self.accepted += draft.accepted

    @property
    def prompt_forwards(self) -> int:
        return max(1, math.ceil(self.prompt_n / PREFILL_BATCH))

    def counters(self) -> dict[str, float]:
        """What the engine counts for this generation alone."""
        return {
            "n_decode_total": self.prompt_forwards + sum(it.positions > 0 for it in self.rounds),
            "spec_decode_num_drafts_total": sum(it.draft.drafted > 0 for it in self.rounds),
            "spec_decode_num_draft_tokens_total": self.drafted,
            "spec_decode_num_accepted_tokens_total": self.accepted,
        }


@dataclass
class Performance:
    """A script being played. Times in virtual ms."""

    script: Script
    sent_ms: float
    slot: int = 0
    breaks: bool = False
    """Half-way through, its engine does something else."""
    shared: bool = False
    """Others took part in a round of it."""
    began_ms: float = 0.0
    """When the engine began with its prompt."""
    ended_ms: float = 0.0
    _at: int = -1
    """The next round; -1: the prompt."""
    _arrivals: list[float] = field(default_factory=list[float])
    _steps: list[Step] = field(default_factory=list[Step])

    @property
    def now(self) -> Round | None:
        """The round that comes next; None for the prompt."""
        return None if self._at < 0 else self.script.rounds[self._at]

    @property
    def over(self) -> bool:
        rounds = len(self.script.rounds)
        return self._at >= (rounds // 2 if self.breaks else rounds)

    @property
    def queued_ms(self) -> float:
        """From its sending until the engine began with it."""
        return self.began_ms - self.sent_ms

    def advance(self, began_ms: float, ends_ms: float) -> None:
        """A round of it, from `began_ms` to `ends_ms`."""
        step = self.now
        if step is None:
            self.began_ms = began_ms
            self._arrivals.append(ends_ms - self.sent_ms)
        else:
            self._arrivals += [ends_ms - self.sent_ms] * step.emitted
            drafted, accepted, _ = step.draft
            at_ms = ends_ms - self.began_ms
            self._steps.append(Step(drafted=drafted, accepted=accepted, at_ms=at_ms, restored=step.restore_ms > 0))
        self.ended_ms = ends_ms
        self._at += 1

    def reply(self, overhead_ms: float) -> Reply:
        """What came of it. What the engine counts as a whole is left out where others took part."""
        script = self.script
        timings = Timings(
            prompt_n=script.prompt_n,
            prompt_ms=self._arrivals[0] - self.queued_ms,
            predicted_n=len(script.tokens),
            predicted_ms=self._arrivals[-1] - self._arrivals[0],
            draft_n=script.drafted,
            draft_n_accepted=script.accepted,
        )
        return Reply(
            text=detokenize(script.tokens),
            token_ids=script.tokens,
            stop_reason=script.stop_reason,
            timings=timings,
            # Servers print draft counts only when there are any.
            raw_timings=timings.model_dump(exclude=set() if script.drafted else {"draft_n", "draft_n_accepted"}),
            counters={} if self.shared else script.counters(),
            wall_ms=self.ended_ms - self.sent_ms + overhead_ms,
            ttft_ms=self._arrivals[0],
            arrival_ms=tuple(self._arrivals),
            steps=tuple(self._steps),
        )
