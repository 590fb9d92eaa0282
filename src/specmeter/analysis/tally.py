"""A run's requests as sums of counts and times, without texts: one `Tally` per arm, block and prompt."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from specmeter.store import RequestRow
from specmeter.store.rows import REQUEST_COLUMNS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from specmeter.store import RunReader

    Bools = NDArray[np.bool_]


TIMES = ("draft_ms", "verify_ms", "sample_ms", "restore_ms", "other_ms")
"""Times of a step, where an instrumented engine measured them."""


class PairKey(NamedTuple):
    """Where an arm and its baseline can meet."""

    invocation: int
    block: int
    prompt_id: str


@dataclass
class Tally:
    """Sums over requests. Times in ms."""

    tokens: int = 0
    """Generated after the first."""
    ms: float = 0.0
    """Decode time."""
    forwards: int = 0
    """Target forwards after the prompt, replays included."""
    by_counts: Counter[tuple[int, int]] = field(default_factory=Counter[tuple[int, int]])
    """(drafted, accepted) -> rounds; (0, 0): plain forwards, replays not among them."""
    replays: int = 0
    """Forwards that replay what was accepted before a restored checkpoint; each emits one token."""
    replayed: Counter[int] = field(default_factory=Counter[int])
    """Tokens that replays went over -> how many."""
    drafting_ms: float | None = None
    """By the engine's statistics; None where some request has none."""
    times: dict[str, float] = field(default_factory=dict[str, float])
    """Sums of `TIMES`; empty where some step has none."""
    steps_ms: float | None = None
    """From the end of the prompt to the end of the last step, by the engine's log; None where several forwards of a
    request have no line there."""
    unlogged: int = 0
    """Forwards without a line in the log: plain ones."""
    replays_ms: float = 0.0
    """From the end of a rejected step to the end of its replay, by the engine's log."""
    gaps_ms: list[float] = field(default_factory=list[float])
    """From the end of a step of the log to the end of the next that had a draft: the most that the latter took, since
    plain forwards between the two have no line."""
    experts_read: Counter[int] = field(default_factory=Counter[int])
    """Tokens of a forward -> different experts that it read, summed over layers and forwards; only where the run has
    them on record."""
    layers_read: Counter[int] = field(default_factory=Counter[int])
    """Tokens of a forward -> layers in which they were counted, summed over forwards."""

    def add(self, other: Tally) -> None:
        """Take in another one."""
        first = self.forwards == 0
        self.tokens += other.tokens
        self.ms += other.ms
        self.forwards += other.forwards
        self.by_counts.update(other.by_counts)
        self.replays += other.replays
        self.replayed.update(other.replayed)
        self.drafting_ms = _sum(self.drafting_ms, other.drafting_ms, first)
        self.steps_ms = _sum(self.steps_ms, other.steps_ms, first)
        self.replays_ms += other.replays_ms
        self.unlogged += other.unlogged
        self.gaps_ms += other.gaps_ms
        self.experts_read.update(other.experts_read)
        self.layers_read.update(other.layers_read)
        if first:
            self.times = dict(other.times)
        elif self.times and other.times:
            self.times = {name: self.times[name] + other.times[name] for name in TIMES}
        else:
            self.times = {}

    @property
    def lengths(self) -> Counter[int]:
        """Drafted tokens -> rounds."""
        found: Counter[int] = Counter()
        for (drafted, _), count in self.by_counts.items():
            found[drafted] += count
        return found

    @property
    def drafted(self) -> int:
        """Tokens drafted."""
        return sum(drafted * count for (drafted, _), count in self.by_counts.items())

    @property
    def accepted(self) -> int:
        """Draft tokens that the target agreed with."""
        return sum(accepted * count for (_, accepted), count in self.by_counts.items())

    @property
    def unions(self) -> dict[int, float]:
        """Tokens of a forward -> mean number of different experts in a layer."""
        return {n: self.experts_read[n] / layers for n, layers in self.layers_read.items()}

    @property
    def rounds(self) -> int:
        """Forwards that emit tokens of their own or verify: all but replays."""
        return self.by_counts.total()

    @property
    def with_draft(self) -> int:
        """Rounds that had a draft."""
        return self.rounds - self.by_counts[0, 0]


def total(tallies: Iterable[Tally]) -> Tally:
    """The sum."""
    found = Tally()
    for tally in tallies:
        found.add(tally)
    return found


Tallies = Mapping[str, Mapping[PairKey, Tally]]
"""Arm id -> place -> what was done there."""


def read_tallies(run: RunReader) -> Tallies:
    """Arm id -> cell -> its request, but for those that failed, decoded nothing, or say nothing of drafts.

    Raises `StoreError`.
    """
    found: dict[str, dict[PairKey, Tally]] = {}
    query = f"SELECT {REQUEST_COLUMNS}, zlib_json FROM request LEFT JOIN reply ON request_id = id"
    for *values, bulk in run.raw(f"{query} WHERE superseded = 0 ORDER BY id"):
        row = run.row(values)
        if row.status != "ok" or bulk is None or not row.predicted_ms or (row.predicted_n or 0) < 2:
            continue
        reply = run.reply(bulk, row.key)
        if row.draft_n is None and not reply.get("steps"):
            continue  # the engine does not say what it drafted
        cell = PairKey(row.invocation, row.block, row.prompt_id)
        found.setdefault(row.arm_id, {})[cell] = tally_of(row, reply.get("steps", ()), reply.get("drafting", ()))
    return found


def tally_of(row: RequestRow, steps: Sequence[Mapping[str, Any]], drafting: Sequence[Mapping[str, Any]]) -> Tally:
    """One request, from its numbers and the JSON of its steps and of its drafting statistics."""
    tally = Tally(tokens=(row.predicted_n or 0) - 1, ms=row.predicted_ms or 0.0, forwards=row.target_forwards or 0)
    confirmed: int | None = None
    """Tokens that the round before accepted and the next one replays."""
    ended_ms = row.prompt_ms or 0.0
    for step in steps:
        drafted, accepted = int(step["drafted"]), int(step["accepted"])
        if confirmed is not None and drafted == 0:
            tally.replays += 1
            tally.replayed[confirmed + 2] += 1
            tally.replays_ms += max(0.0, step["at_ms"] - ended_ms)
        else:
            tally.by_counts[drafted, accepted] += 1
            if drafted and step is not steps[0]:
                tally.gaps_ms.append(step["at_ms"] - ended_ms)
            for layer in step.get("experts") or ():
                tally.experts_read[drafted + 1] += len(set(layer))
                tally.layers_read[drafted + 1] += 1
        confirmed = accepted if step.get("restored") else None
        ended_ms = step["at_ms"]
    tally.unlogged = max(0, tally.forwards - len(steps))
    if tally.unlogged:
        tally.by_counts[0, 0] += tally.unlogged
    if steps and all(step.get(name) is not None for step in steps for name in ("draft_ms", "verify_ms")):
        tally.times = {name: sum(step.get(name) or 0.0 for step in steps) for name in TIMES}
    if steps and tally.unlogged <= 1:  # before the last token there is no room for a draft
        tally.steps_ms = max(0.0, ended_ms - (row.prompt_ms or 0.0))
    if drafting:
        tally.drafting_ms = sum(it["begin_ms"] + it["generate_ms"] + it["accept_ms"] for it in drafting)
    return tally


def _sum(one: float | None, other: float | None, first: bool) -> float | None:
    if first:
        return other
    return None if one is None or other is None else one + other
