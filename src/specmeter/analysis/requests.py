"""A run's requests as columns of numbers: 112 bytes each (136 with their energy), read once, sorted by arm; strings are
numbered.

A run's requests as sums of counts and times, without texts: one `Tally` per arm, block and prompt.

Requests that took far longer than the same request in other blocks.

Greedy text is the same in every block, and so should its time be. A request that takes half again as long as the same
prompt of the same arm elsewhere was held up by something that is neither the arm nor the text: another program, a
clock, a page fault. An interval over a few blocks cannot know how often that happens: with one request in ten three
times as slow, on one side only, intervals that claim 95 % hold in 70 to 94 % of simulated runs of 4 or 8 prompts and 3
to 9 blocks, since many runs of that size meet too few of them.

With x_pb the logarithm of ms per token of prompt p in block b, a request's excess is x_pb less the median of x_p in the
other blocks (the lower one of the middle two, so that of two others one may have stalled), less the median of that over
the prompts of its block (the lower one again), which is what slowed the block as a whole. A block of a single prompt
cannot tell one from the other, and nothing is seen in it. It stalled where the excess
is above ln 1.5 and above 6 robust standard deviations (1.4826 times the median absolute excess), so that an arm whose
times vary anyway is not said to stall. How often that sees such stalls, and how seldom it says so of clean runs:
`benchmarks/coverage.py`.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

import numpy as np

from specmeter.errors import UsageError
from specmeter.record import Record
from specmeter.store import RequestRow
from specmeter.store.rows import REQUEST_COLUMNS, shared

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from specmeter.numbers.stats import Floats, Ints
    from specmeter.record import RequestEnergy
    from specmeter.store import RunReader

    Bools = NDArray[np.bool_]


Part = tuple[float, float]
Key = tuple[int, int, str, str]
"""(invocation, block, arm id, prompt id) of a request."""
BlockKey = tuple[int, int]
"""(invocation, block)."""

_UNREAD = (float("nan"), 0.0, 0.0)


class RequestCounts(Protocol):
    """What is needed of a request; counts and times are None where it failed. `store.RequestRow` is one."""

    @property
    def arm_id(self) -> str: ...
    @property
    def invocation(self) -> int: ...
    @property
    def block(self) -> int: ...
    @property
    def prompt_id(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def status(self) -> Literal["ok", "failed"]: ...
    @property
    def started_at(self) -> float: ...
    @property
    def prompt_n(self) -> int | None: ...
    @property
    def prompt_ms(self) -> float | None: ...
    @property
    def predicted_n(self) -> int | None: ...
    @property
    def predicted_ms(self) -> float | None: ...
    @property
    def draft_n(self) -> int | None: ...
    @property
    def draft_n_accepted(self) -> int | None: ...
    @property
    def target_forwards(self) -> int | None:
        """Target forwards after the prompt, by `rates.target_forwards`; None where that cannot be said."""
        ...


class RequestTable:
    """The rows as columns, sorted by arm; strings are numbered."""

    def __init__(
        self,
        rows: Iterable[RequestCounts],
        arms: Mapping[str, int],
        energy: Mapping[Key, RequestEnergy] | None = None,
        repeats: Mapping[str, str] | None = None,
    ) -> None:
        """`repeats`: prompt -> the prompt that it repeats under load; both count as that one."""
        same = repeats or {}
        cells: dict[tuple[int, int], int] = {}
        prompts: dict[str, int] = {}
        self.kinds: dict[str, int] = {}
        self.uncounted: set[int] = set()
        """Arms with answers whose drafted tokens the engine did not count."""
        whole, real, read = array("q"), array("d"), array("d")
        for row in rows:
            arm = arms.get(row.arm_id)
            if arm is None:
                raise UsageError(
                    f"a request names the unknown arm {row.arm_id!r}", fix="summarise it with its own arms"
                )
            cell = cells.setdefault((row.invocation, row.block), len(cells))
            prompt = prompts.setdefault(same.get(row.prompt_id, row.prompt_id), len(prompts))
            kind = self.kinds.setdefault(row.kind, len(self.kinds))
            if row.draft_n is None and row.status == "ok":
                self.uncounted.add(arm)
            tokens = max(0, (row.predicted_n or 0) - 1)
            whole.extend((arm, row.invocation, cell, prompt, kind, row.status == "ok", row.prompt_n or 0, tokens))
            whole.extend((row.draft_n or 0, row.draft_n_accepted or 0, row.target_forwards or 0))
            real.extend((row.started_at, row.prompt_ms or 0.0, row.predicted_ms or 0.0))
            if energy:
                used = energy.get((row.invocation, row.block, row.arm_id, row.prompt_id))
                read.extend(_UNREAD if used is None else (sum(used.joules.values()), used.seconds, used.unseen_s))
        integers: Ints = np.array(whole, dtype=np.int64).reshape(-1, 11)
        floats: Floats = np.array(real, dtype=np.float64).reshape(-1, 3)
        order = np.argsort(integers[:, 0], kind="stable")
        columns: list[Ints] = list(integers[order].T)
        self.arm, self.invocation, self.cell, self.prompt, self.kind, ok = columns[:6]
        self.prompt_n, self.tokens, self.drafted, self.accepted, self.forwards = columns[6:]
        reals: list[Floats] = list(floats[order].T)
        self.started_at, self.prompt_ms, self.ms = reals
        self.ok: Bools = ok == 1
        self.decoded: Bools = self.ok & (self.tokens > 0) & (self.ms > 0)
        # Of runs without energy, one row stands for all.
        readings: Floats = np.array(read or _UNREAD, dtype=np.float64).reshape(-1, 3)
        sorted_readings: Floats = readings[order] if read else np.broadcast_to(readings, (len(order), 3))
        energies: list[Floats] = list(sorted_readings.T)
        self.joules, self.seconds, self.unseen_s = energies
        self.metered: Bools = self.decoded & np.isfinite(self.joules)
        """Whose energy was read; `seconds` and `unseen_s` are of that reading."""
        self.cells = list(cells)
        """Number -> (invocation, block)."""
        self.invocations = {invocation for invocation, _ in cells}
        self.prompts = list(prompts)
        """Number -> prompt id."""
        self.key: Ints = self.cell * max(1, len(prompts)) + self.prompt
        """Which prompt in which block: where an arm and its baseline can meet."""

    def of_arm(self, arm: int) -> Ints:
        """Indices of an arm's rows."""
        low, high = np.searchsorted(self.arm, [arm, arm + 1])
        return np.arange(int(low), int(high))

    def starts(self, arm_ids: Sequence[str]) -> Iterator[tuple[str, int, float]]:
        """(arm id, block, start) of every request, for the balance."""
        for arm, cell, started_at in zip(self.arm, self.cell, self.started_at, strict=True):
            yield arm_ids[int(arm)], int(cell), float(started_at)

    def parts(self, rows: Ints, unit: Ints, counted: Ints | Floats, per: Ints | Floats) -> list[Part]:
        """(sum of `counted`, sum of `per`) of each unit where the latter is positive, in the order of the units."""
        if not len(rows):
            return []
        over = np.bincount(unit[rows], weights=counted[rows])
        under = np.bincount(unit[rows], weights=per[rows])
        return [(above, below) for above, below in zip(over.tolist(), under.tolist(), strict=True) if below > 0]


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
        row = shared(values)
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


LEAST_EXCESS = math.log(1.5)
_DEVIATIONS = 6.0
_LEAST_PROMPTS = 2
"""Prompts of a block that can tell a request that was held up from a block that was slow as a whole."""


class Stalls(Record):
    """Requests of an arm that were held up."""

    requests: int
    """How many there were."""
    of: int
    """Requests that were looked at: those of prompts that ran in several blocks, two or more to a block."""
    slowest: float
    """How many times its usual time the slowest took."""
    share: float
    """Share of the arm's decode time that was lost by them."""


def find_stalls(table: RequestTable, rows: Ints) -> Stalls | None:
    """The stalls among an arm's rows; None where there are none, or where nothing was repeated."""
    rows = rows[table.decoded[rows]]
    if not len(rows):
        return None
    prompts, row = np.unique(table.prompt[rows], return_inverse=True)
    cells, column = np.unique(table.cell[rows], return_inverse=True)
    times = np.full((len(prompts), len(cells)), np.nan)
    times[row, column] = np.log(table.ms[rows] / table.tokens[rows])
    ms = np.zeros(times.shape)
    ms[row, column] = table.ms[rows]
    excess = excesses(times)
    known = np.isfinite(excess)
    stalled = known & (np.where(known, excess, 0.0) > limit(excess))
    if not stalled.any():
        return None
    lost = float((ms[stalled] * -np.expm1(-excess[stalled])).sum())
    return Stalls(
        requests=int(stalled.sum()),
        of=int(known.sum()),
        slowest=math.exp(float(excess[stalled].max())),
        share=lost / float(ms.sum()),
    )


def excesses(times: Floats) -> Floats:
    """How much longer each request took than the same elsewhere, in logarithms: prompts x blocks, NaN for unknown."""
    blocks = times.shape[1]
    excess = np.full(times.shape, np.nan)
    for block in range(blocks):
        others = np.delete(times, block, axis=1)
        some = np.isfinite(others).any(axis=1) & np.isfinite(times[:, block])
        if int(some.sum()) >= _LEAST_PROMPTS:
            ratios = times[some, block] - _lower_median(others[some])
            excess[some, block] = ratios - _lower_median(ratios[None, :])
    return excess


def _lower_median(values: Floats) -> Floats:
    """The median of each row, the lower of the middle two where their number is even; NaN is not counted."""
    middle = (np.isfinite(values).sum(axis=1) - 1) // 2
    return np.sort(values, axis=1)[np.arange(len(values)), middle]


def limit(excess: Floats) -> float:
    """The excess above which a request stalled."""
    known = excess[np.isfinite(excess)]
    if not len(known):
        return math.inf
    return max(LEAST_EXCESS, _DEVIATIONS * 1.4826 * float(np.median(np.abs(known))))
