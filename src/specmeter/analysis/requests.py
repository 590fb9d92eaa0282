"""A run's requests as columns of numbers: 112 bytes each (144 with their energy), read once, sorted by arm; strings are
numbered.

A run's requests as sums of counts and times, without texts: one `Tally` per arm, block and prompt.

Requests that took far longer than the same request in other blocks.

Greedy text is the same in every block, and so should its time be. A request that takes half again as long as the same
prompt of the same arm elsewhere was held up by something that is neither the arm nor the text: another program, a
clock, a page fault. An interval over a few blocks cannot know how often that happens: with one request in ten three
times as slow, on one side only, intervals that claim 95 % hold in 70 to 94 % of simulated runs of 4 or 8 prompts and 3
to 9 blocks, since many runs of that size meet too few of them.

With x_pb the logarithm of ms per token of prompt p in block b, a request's excess is x_pb less the lower quartile of
x_p in the other blocks, less the lower quartile of that over the prompts of its block, which is what slowed the block
as a whole, less the median of all of these. So a quarter of the requests may stall before stalls pass for usual. A
block of a single prompt cannot tell one from the other, and nothing is seen in it. It stalled where the excess is above
ln 1.5 and above 6 robust standard deviations of the faster half (1.4826 times its median distance from 0), so that an
arm whose times vary anyway is not said to stall. What stalled stays in: a rule by what came out biases. How often an
arm may stall is bounded, also where no request did: sixteen that did not say 17 % at most. How often that sees such
stalls, and how seldom it says so of clean runs:
`benchmarks/coverage.py`.

What tokens cost in electric energy: joules per token of an arm, and over its baseline's.

Of every answered request whose energy was read, J is the energy of the whole request, its prompt included, and n the
tokens generated. An arm's energy per token is (sum of J) / (sum of n), with the interval of a ratio over blocks. Its
ratio to the baseline is taken as a speedup is: per block over the prompts that both have there, geometric mean over
blocks, Student's t. With S the speedup prompts included, ratio x S is how much more *power* the arm draws.

Above idle: the power that the machine drew at rest, before anything was started, times the duration of each request is
taken off. What is left is what the work adds, and what is to be compared where the machine would be on anyway.

Without the prompt: from what a request took, what had been taken when its first token came is left out, and that token
too; on a straight line between the two readings about that moment, which are a tenth of a second apart at most.

Nothing is said where readings cover less than 90 % of the time (short requests, slow sensors), or where the sources
changed within the arm or against its baseline.
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
from specmeter.messages import Message
from specmeter.numbers.estimates import share_at_most
from specmeter.numbers.stats import Pair, Pool, geometric_speedup, pooled_ratio, speedup_over_invocations
from specmeter.record import Estimate, PowerMeter, Record, RequestEnergy
from specmeter.store import RequestRow
from specmeter.store.rows import REQUEST_COLUMNS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from specmeter.numbers.stats import Floats, Ints
    from specmeter.store import RunReader

    Bools = NDArray[np.bool_]


Part = tuple[float, float]
Key = tuple[int, int, str, str]
"""(invocation, block, arm id, prompt id) of a request."""
BlockKey = tuple[int, int]
"""(invocation, block)."""

_UNREAD = (float("nan"), 0.0, 0.0, float("nan"))


def _read(used: RequestEnergy) -> tuple[float, float, float, float]:
    prompt_j = float("nan") if used.prompt_j is None else used.prompt_j
    return sum(used.joules.values()), used.seconds, used.unseen_s, prompt_j


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
                    f"a request names the unknown arm {row.arm_id!r}",
                    fix="it was changed or is damaged: take another copy of the run",
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
                read.extend(_UNREAD if used is None else _read(used))
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
        readings: Floats = np.array(read or _UNREAD, dtype=np.float64).reshape(-1, 4)
        sorted_readings: Floats = readings[order] if read else np.broadcast_to(readings, (len(order), 4))
        energies: list[Floats] = list(sorted_readings.T)
        self.joules, self.seconds, self.unseen_s, self.prompt_j = energies
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


LEAST_EXCESS = math.log(1.5)
_DEVIATIONS = 6.0
_LEAST_PROMPTS = 2
"""Prompts of a block that can tell a request that was held up from a block that was slow as a whole."""


class Stalls(Record):
    """Requests of an arm that were held up, if any were."""

    requests: int
    """How many there were; 0: none."""
    of: int
    """Requests that were looked at: those of prompts that ran in several blocks, two or more to a block."""
    rate: Estimate
    """Share of the arm's requests that stall: up to an exact bound."""
    slowest: float
    """How many times its usual time the slowest took; 1 where none stalled."""
    share: float
    """Share of the arm's decode time that was lost by them."""


def find_stalls(table: RequestTable, rows: Ints) -> Stalls | None:
    """The stalls among an arm's rows; None where none could be seen, because nothing was repeated."""
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
    if not known.any():
        return None
    lost = float((ms[stalled] * -np.expm1(-excess[stalled])).sum())
    count, seen = int(known.sum()), int(stalled.sum())
    return Stalls(
        requests=seen,
        of=count,
        rate=share_at_most(seen, count, "requests"),
        slowest=math.exp(float(excess[stalled].max(initial=0.0))),
        share=lost / float(ms.sum()),
    )


def excesses(times: Floats) -> Floats:
    """How much longer each request took than the same elsewhere, in logarithms: prompts x blocks, NaN for unknown.

    Elsewhere: in the faster quarter of the other blocks, and the block's faster quarter of prompts, so that stalls do
    not become the usual time as long as not more than about a quarter of the requests stall.
    """
    excess = np.full(times.shape, np.nan)
    counted = np.isfinite(times)
    others = counted.sum(axis=1, keepdims=True) - 1
    place = (np.maximum(others - 1, 0) * 0.25).astype(int)
    # Of sorted times without one of them, those from its rank on move up by one.
    rank = times.argsort(axis=1).argsort(axis=1)
    at = np.minimum(place + (rank <= place), times.shape[1] - 1)
    ratios = np.where(counted & (others > 0), times - np.take_along_axis(np.sort(times, axis=1), at, axis=1), np.nan)
    enough = np.isfinite(ratios).sum(axis=0) >= _LEAST_PROMPTS
    excess[:, enough] = ratios[:, enough] - _lower(ratios[:, enough].T, 0.25)
    known = np.isfinite(excess)
    return excess - _lower(excess[known][None, :], 0.5) if known.any() else excess


def _lower(values: Floats, share: float) -> Floats:
    """The value of each row that such a share lies below, the lower of two neighbours; NaN is not counted."""
    place = ((np.isfinite(values).sum(axis=1) - 1) * share).astype(int)
    return np.sort(values, axis=1)[np.arange(len(values)), place]


def limit(excess: Floats) -> float:
    """The excess above which a request stalled: by the spread of the faster half, which holds no stalls."""
    known = excess[np.isfinite(excess)]
    if not len(known):
        return math.inf
    return max(LEAST_EXCESS, _DEVIATIONS * 1.4826 * float(np.median(np.abs(known[known <= 0]))))


MOST_UNSEEN = 0.1
"""Share of an arm's time that may be without readings."""


class Consumption(Record):
    """What an arm's tokens cost in energy; estimates are None where that cannot be told, and `why` says so."""

    sources: tuple[str, ...]
    """What was read, see `PowerMeter`."""
    requests: int
    """Requests whose energy was read."""
    requests_ok: int
    """Answered requests in all."""
    unseen: float
    """Share of their time without readings."""
    why: Message | None = None
    """Why nothing is said, or no ratio; None where all is."""
    per_token: Estimate | None = None
    """Joules per generated token, prompts included."""
    ratio: Estimate | None = None
    """The same over the baseline's; below 1 saves energy. None for baselines."""
    power_w: float | None = None
    """Mean power while its requests ran."""
    idle_w: float | None = None
    """At rest; None where that is not known."""
    above_idle: Estimate | None = None
    """Joules per token beyond those that the machine takes at rest."""
    ratio_above_idle: Estimate | None = None
    decoding: Estimate | None = None
    """Joules per token without what was taken until the first one had come."""
    ratio_decoding: Estimate | None = None


class Energies:
    """Energy of a run's requests, as summaries need it."""

    def __init__(self, requests: Sequence[RequestEnergy], meters: Sequence[PowerMeter]) -> None:
        self.by_key: Mapping[Key, RequestEnergy] = {
            (it.invocation, it.block, it.arm_id, it.prompt_id): it for it in requests
        }
        self.idle_w: dict[tuple[str, ...], float] = {}
        """Sources -> power at rest by them, the lowest of all starts: whatever disturbed a rest only adds to it."""
        for meter in meters:
            if meter.idle_w is not None:
                self.idle_w[meter.sources] = min(meter.idle_w, self.idle_w.get(meter.sources, meter.idle_w))
        self._sources: dict[str, set[tuple[str, ...]]] = {}
        for it in requests:
            self._sources.setdefault(it.arm_id, set()).add(tuple(it.joules))

    def sources(self, *arm_ids: str) -> set[tuple[str, ...]]:
        """The different sets of sources that these arms were read with."""
        return {sources for arm_id in arm_ids for sources in self._sources.get(arm_id, ())}


def energies_of(run: RunReader) -> Energies | None:
    """Energy of a run's requests; None where none was read. Raises `StoreError`."""
    requests = tuple(run.energies())
    meters = [host.power_meter for host in run.hosts() if host.power_meter is not None]
    return Energies(requests, meters) if requests else None


def consumption(
    table: RequestTable, energies: Energies, arm: tuple[str, Ints], baseline: tuple[str, Ints] | None, level: float
) -> Consumption | None:
    """What the rows of an arm (id, rows) took; None where no energy was read."""
    (arm_id, rows), several = arm, len(table.invocations) > 1
    metered = rows[table.metered[rows]]
    if not len(metered):
        return None
    sources = next(iter(energies.sources(arm_id)))
    idle_w = energies.idle_w.get(sources)
    found = Consumption(
        sources=sources,
        requests=len(metered),
        requests_ok=int(table.ok[rows].sum()),
        unseen=_unseen(table, metered),
        idle_w=idle_w,
    )
    if (why := _doubt(table, energies, arm_id, metered)) is not None:
        return found.model_copy(update={"why": why})
    unit, of = (table.invocation, "invocations") if several else (table.cell, "blocks")
    tokens = table.tokens + 1  # the first one takes energy too
    above = None if idle_w is None else table.joules - idle_w * table.seconds
    timed = metered[np.isfinite(table.prompt_j[metered])]
    after = table.joules - table.prompt_j

    def per_token(joules: Floats, rows: Ints = metered, tokens: Ints = tokens) -> Estimate | None:
        parts = table.parts(rows, unit, joules, tokens)
        if any(part < 0 for part, _ in parts) or not any(part > 0 for part, _ in parts):
            return None
        return pooled_ratio(parts, unit="J/token", of=of, level=level)

    changes: dict[str, object] = {
        "per_token": per_token(table.joules),
        "power_w": float(table.joules[metered].sum() / table.seconds[metered].sum()),
        "above_idle": None if above is None else per_token(above),
        "decoding": per_token(after, timed, table.tokens),
    }
    if baseline is not None:
        base_id, base = baseline[0], baseline[1][table.metered[baseline[1]]]
        why = _doubt(table, energies, base_id, base) if len(base) else Message("consumption.baseline_unread")
        if why is None and len(energies.sources(arm_id, base_id)) > 1:
            why = Message("consumption.other_sources")
        if why is not None:
            changes["why"] = Message("consumption.no_ratio", why=why)
        else:
            changes["ratio"] = _ratio(table, metered, base, table.joules, tokens, several, level)
            changes["ratio_above_idle"] = (
                None if above is None else _ratio(table, metered, base, above, tokens, several, level)
            )
            same = base[np.isfinite(table.prompt_j[base])]
            changes["ratio_decoding"] = _ratio(table, timed, same, after, table.tokens, several, level)
    return found.model_copy(update=changes)


def _doubt(table: RequestTable, energies: Energies, arm_id: str, rows: Ints) -> Message | None:
    """Why the joules of an arm are not known; None where they are."""
    if len(energies.sources(arm_id)) > 1:
        return Message("consumption.sources_changed")
    if (unseen := _unseen(table, rows)) > MOST_UNSEEN:
        return Message("consumption.between_readings", unseen=unseen)
    return None if table.joules[rows].sum() > 0 else Message("consumption.stood_still")


def _unseen(table: RequestTable, rows: Ints) -> float:
    return float(table.unseen_s[rows].sum() / table.seconds[rows].sum())


def _ratio(
    table: RequestTable, rows: Ints, base: Ints, joules: Floats, tokens: Ints, several: bool, level: float
) -> Estimate | None:
    """Energy per token over the baseline's, on the prompts that both have in a block."""
    shared = np.intersect1d(table.key[rows], table.key[base])
    pairs: dict[int, list[Pair]] = {}
    cells: list[int] = np.unique(table.cell[rows]).tolist()
    for cell in cells:
        sides: list[Pool] = []
        for side in (rows, base):
            here = side[(table.cell[side] == cell) & np.isin(table.key[side], shared)]
            # A pool's rate is tokens / ms; with joules and tokens in their places it is joules per token.
            sides.append(Pool(float(joules[here].sum()), float(tokens[here].sum())))
        if not all(side.ms > 0 for side in sides):
            continue  # one of them has nothing in this block
        if not all(side.tokens > 0 for side in sides):
            return None  # below idle power: what it was at rest is not known well enough
        pairs.setdefault(table.cells[cell][0], []).append((sides[0], sides[1]))
    if not pairs:
        return None
    if several:
        return speedup_over_invocations(list(pairs.values()), level=level).estimate
    return geometric_speedup(next(iter(pairs.values())), level=level)
