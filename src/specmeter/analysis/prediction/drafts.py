"""What steps yield: how long drafts are, and how many of their tokens are accepted, from whatever is known about it.

Three sources, one form (`Yields`, drawn for every gamma at once):

`Given`     one alpha for all positions, a rate for each, or a range of alpha that is assumed
`Counted`   the steps of requests that were measured, by prompt

Counted steps become rates that hold for another gamma by following one step token by token:

    h_j = P(the drafter goes on to token j | tokens 1 .. j-1 were drafted and accepted)
    a_j = P(token j is accepted | it was drafted and all before it were accepted)
    E[accepted] = sum over j <= gamma of  h_1 a_1 h_2 a_2 ... h_j a_j

h is 1 for a draft model without `p_min`. It is what n-gram methods live on: h_1 is how often there is a draft at all.
Steps whose draft ended because gamma was reached say nothing about the next token; they count in h_j only for
j <= their gamma, as patients who leave a study count until then. Cutting at a
smaller gamma is therefore exact as long as acceptance does not depend on where steps begin. What a step costs depends
on the length of its draft whatever was accepted, so P(drafted >= j) is counted beside it, over all steps.

Beyond the longest gamma that was measured the rates of the last half of the positions go on; `Yields.measured` says
up to where they were counted.

Greedy text repeats itself from block to block and, as far as speculation is lossless, from arm to arm. So acceptance
that was counted on the very prompts that are predicted has no uncertainty of its own. For *other* prompts of the kind
it has: prompts are drawn with replacement from those that were counted (what the kind is like), and from these as many
as will be measured (what they happen to be like); Efron & Tibshirani 1993, ch. 6. One prompt has nothing to be drawn
from, and its interval lacks what differs between texts.

What llama.cpp's n-gram methods with tables of their own draft, request after request of one session.

A table goes on from one request to the next, so what is drafted depends on the requests before: they are followed in
their order, warm-ups first, from an empty table.

`NgramMap`    `ngram-map-k` and, with values, `ngram-map-k4v`: places of n-grams, and how much of what followed there
              was accepted last time
`NgramMod`    `ngram-mod`: a hash of n tokens -> the token that followed last, over all texts of the session
`NgramCache`  `ngram-cache`: how often which token followed 1 to 4 others. It only looks at what is longer than the
              longest text so far, and at whole steps: an n-gram across two of them is none

Read in common/ngram-map.cpp, ngram-mod.cpp, ngram-cache.cpp and speculative.cpp of the llama.cpp that this package
pins; lengths of tables are theirs, so that even what collides there collides here.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from specmeter.errors import UsageError
from specmeter.messages import Message
from specmeter.numbers.rates import target_forwards
from specmeter.probe.replay import PLAIN, Round
from specmeter.theory.arguments import numbers, probabilities

if TYPE_CHECKING:
    from numpy.random import Generator

    from specmeter.probe.replay import Limits
    from specmeter.record import Arm, Reply
    from specmeter.theory.arguments import Floats


@dataclass(frozen=True)
class Yields:
    """Drawn for gamma = 1 .. columns; row 0 is the point."""

    reached: Floats
    """P(accepted >= j) of a step that may draft so many. Shape (draws, gamma)."""
    drafted: Floats
    """P(drafted >= j). Shape (draws, gamma)."""
    rates: Floats
    """P(token j is accepted | drafted, and all before it accepted). Shape (draws, gamma)."""
    measured: int
    """Positions up to here were measured or given; the rest goes on from them."""

    def tau(self, gamma: int) -> Floats:
        """Tokens emitted per step. Shape (draws,)."""
        return 1 + self.reached[:, :gamma].sum(axis=1)

    def lengths(self, gamma: int) -> Floats:
        """P(a step drafts 0, 1, ..., gamma tokens). Shape (draws, gamma + 1)."""
        at_least = np.concatenate([np.ones((len(self.drafted), 1)), self.drafted[:, :gamma]], axis=1)
        return at_least - np.concatenate([at_least[:, 1:], np.zeros((len(self.drafted), 1))], axis=1)

    def rejected(self, gamma: int) -> tuple[Floats, Floats]:
        """(P(a step rejects a token), mean accepted in such a step), if length tells nothing about acceptance.

        Shapes (draws,).
        """
        lengths = self.lengths(gamma)[:, 1:]
        whole = np.cumprod(self.rates[:, :gamma], axis=1)
        complete = (lengths * whole).sum(axis=1)
        chance = np.clip(self.drafted[:, 0] - complete, 0.0, 1.0)
        kept = self.reached[:, :gamma].sum(axis=1) - (lengths * whole * np.arange(1, gamma + 1)).sum(axis=1)
        return chance, np.clip(_ratio(kept, chance), 0.0, gamma)


class Acceptance(Protocol):
    """A source of acceptance."""

    @property
    def basis(self) -> Message:
        """Where it is from."""
        ...

    def draw(self, longest: int, draws: int, rng: Generator) -> Yields:
        """For gamma up to `longest`; row 0 is the point."""
        ...


# --- given -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Given:
    """Acceptance as stated: full drafts, each token accepted with the conditional rate of its position.

    `low` and `high` are the rates between which the truth is taken to lie, all positions together; the last position
    goes on. `hits` is how often a step has a draft at all, with its range. Raises `UsageError` for a value that is not
    a probability.
    """

    rates: tuple[float, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    hits: tuple[float, float, float] = (1.0, 1.0, 1.0)
    """(point, low, high)."""
    basis: Message = field(default_factory=lambda: Message("rates.unnamed"))

    def __post_init__(self) -> None:
        if not self.rates:
            raise UsageError("acceptance: there is no rate", fix="give alpha, or one rate for each position")
        for rates in (self.rates, self.low, self.high, self.hits):
            probabilities("acceptance", rates)
        if any(rates and len(rates) != len(self.rates) for rates in (self.low, self.high)):
            raise UsageError("acceptance: the range has another length than the rates", fix="give a range for each")

    @classmethod
    def alpha(
        cls, alpha: float, low: float | None = None, high: float | None = None, basis: Message | None = None
    ) -> Given:
        """One probability for every position, independent of everything."""
        ends = ((alpha if low is None else low,), (alpha if high is None else high,))
        return cls((alpha,), *ends, basis=basis or Message("rates.alpha", alpha=alpha))

    def draw(self, longest: int, draws: int, rng: Generator) -> Yields:
        place = rng.random((draws, 1))
        place[0] = -1.0
        rates = _between(self.rates, self.low, self.high, place, longest)
        hits = _between((self.hits[0],), (self.hits[1],), (self.hits[2],), rng.random((draws, 1)), 1)
        hits[0] = self.hits[0]
        return Yields(
            np.cumprod(rates, axis=1, dtype=np.float64) * hits,
            np.broadcast_to(hits, rates.shape),
            rates,
            longest if len(self.rates) == 1 else len(self.rates),
        )


def _between(
    point: Sequence[float], low: Sequence[float], high: Sequence[float], place: Floats, longest: int
) -> Floats:
    """Rates at a place between low (0) and high (1), the point where it is negative. Shape (draws, longest)."""

    def extended(rates: Sequence[float]) -> Floats:
        used = np.asarray(rates or point, dtype=np.float64)[:longest]
        return np.concatenate([used, np.full(max(0, longest - len(used)), used[-1])])

    drawn = extended(low) + place * (extended(high) - extended(low))
    return np.where(place < 0, extended(point), drawn)


# --- counted ---------------------------------------------------------------------------------------------------------

Steps = Counter[tuple[int, int, int]]
"""(gamma in force, drafted, accepted) -> how many steps; a forward without a draft is (gamma, 0, 0)."""


def count_steps(reply: Reply, gamma: int) -> Steps:
    """The steps of one request, forwards without a draft included.

    A round that restored a checkpoint counts with what it accepted; its replay does not count as a step.
    """
    steps: Steps = Counter()
    replays = False
    for step in reply.steps:
        if not (replays and step.drafted == 0):
            steps[gamma, min(step.drafted, gamma), min(step.accepted, gamma)] += 1
        replays = step.restored
    forwards = target_forwards(reply.timings, reply.steps) or 0
    if plain := max(0, forwards - len(reply.steps)):
        steps[gamma, 0, 0] += plain
    return steps


@dataclass
class Counted:
    """Steps that were measured, by prompt; more may be added while a run goes on."""

    prompts: dict[str, Steps] = field(default_factory=dict[str, Steps])
    basis: Message = field(default_factory=lambda: Message("rates.measured"))
    other_prompts: int | None = None
    """Of so many other prompts of the kind is predicted; None: of the very same ones, whose texts are known."""
    replayed: bool = False
    """Not counted but followed on the texts: exactly what the arm would do."""

    def add(self, prompt_id: str, steps: Mapping[tuple[int, int, int], int]) -> None:
        """Steps of one more request on a prompt."""
        self.prompts.setdefault(prompt_id, Counter()).update(steps)

    @property
    def longest(self) -> int:
        """The longest draft that was in force."""
        return max((gamma for steps in self.prompts.values() for gamma, _, _ in steps), default=0)

    @property
    def drafted(self) -> int:
        """Tokens drafted in all."""
        return sum(drafted * n for steps in self.prompts.values() for (_, drafted, _), n in steps.items())

    def draw(self, longest: int, draws: int, rng: Generator) -> Yields:
        """Raises `UsageError` where no step was measured."""
        known = min(self.longest, longest)
        if not any(steps.total() for steps in self.prompts.values()):
            raise UsageError("acceptance: no step was measured", fix="take another source, or measure an arm first")
        counts = np.stack([_tally(steps, known) for steps in self.prompts.values()])
        # Of the very prompts that were counted every draw is the point.
        every, draws = draws, 1 if self.other_prompts is None else draws
        weights = self._weights(draws, rng)
        sums = np.tensordot(weights, counts, axes=1)
        steps, drafted, at_risk, tried, accepted = (sums[:, index] for index in range(5))
        going_on = _share(tried, at_risk, known, longest)
        rates = _share(accepted, tried, known, longest)
        lengths = np.minimum.accumulate(_ratio(drafted, steps), axis=1)
        if longest > known:
            last = np.ones(draws) if known < 2 else _ratio(lengths[:, -1], lengths[:, (known - 1) // 2])
            last = np.minimum(1.0, last) ** (1 / max(1, known - 1 - (known - 1) // 2))
            more = np.arange(1, longest - known + 1)
            lengths = np.concatenate([lengths, lengths[:, -1:] * last[:, np.newaxis] ** more], axis=1)
        reached = np.cumprod(going_on * rates, axis=1, dtype=np.float64)
        reached, lengths, rates = (np.broadcast_to(it, (every, longest)) for it in (reached, lengths, rates))
        return Yields(reached, lengths, rates, known)

    def _weights(self, draws: int, rng: Generator) -> Floats:
        """How much of each prompt is in a draw; row 0 is the data itself. Shape (draws, prompts)."""
        prompts = len(self.prompts)
        weights = np.ones((draws, prompts))
        if self.other_prompts is not None:
            likely = rng.multinomial(prompts, np.full(prompts, 1 / prompts), size=draws) / prompts
            weights = rng.multinomial(self.other_prompts, likely).astype(np.float64)
            weights[0] = 1.0
        return weights


def counted(replies: Iterable[tuple[str, int, Reply]], basis: Message, other_prompts: int | None = None) -> Counted:
    """From (prompt id, gamma in force, reply) of measured requests."""
    found = Counted(basis=basis, other_prompts=other_prompts)
    for prompt_id, gamma, reply in replies:
        found.add(prompt_id, count_steps(reply, gamma))
    return found


def _tally(steps: Steps, longest: int) -> Floats:
    """Rows: steps that might draft j tokens; that did; with j-1 accepted; those that went on; with j accepted."""
    numbers("longest", longest, least=1, whole=True)
    rows = np.zeros((5, longest))
    for (gamma, drafted, accepted), n in steps.items():
        limit = min(gamma, longest)
        rows[0, :limit] += n
        rows[1, : min(drafted, limit)] += n
        rows[2, : min(accepted + 1, limit)] += n
        rows[3, : min(accepted + 1, drafted, limit)] += n
        rows[4, : min(accepted, limit)] += n
    return rows


def _share(part: Floats, whole: Floats, known: int, longest: int) -> Floats:
    """part / whole by position; where nothing came so far, and beyond what is known, that of the last half."""
    half = slice((known - 1) // 2, known)
    tail = _ratio(part[:, half].sum(axis=1), whole[:, half].sum(axis=1))[:, np.newaxis]
    found = np.divide(part, whole, out=np.broadcast_to(tail, part.shape).copy(), where=whole > 0)
    return np.concatenate([found, np.repeat(tail, longest - known, axis=1)], axis=1)


def _ratio(above: Floats, below: Floats) -> Floats:
    return np.divide(above, below, out=np.zeros_like(above), where=below > 0)


Tokens = Sequence[int]


class NgramTable(Protocol):
    """One method in one session."""

    def begin(self, prompt: Tokens) -> None:
        """A request begins; its prompt was read."""
        ...

    def draft(self, history: Tokens) -> list[int]:
        """Tokens that may follow `history`, the token just chosen included."""
        ...

    def accept(self, accepted: int) -> None:
        """So many tokens of the last draft, which was not empty, were accepted."""
        ...


class SessionRequest(NamedTuple):
    """One request of a session."""

    prompt: Tokens
    text: Tokens
    limits: Limits


def follow(table: NgramTable, requests: Iterable[SessionRequest]) -> Iterator[list[Round]]:
    """Every step of every request, from the first token of its text to its end; as `replay.replay` has them."""
    for prompt, text, limits in requests:
        table.begin(prompt)
        history, at = [*prompt, *text[:1]], 1
        steps: list[Round] = []
        while at < len(text):
            most = limits.most(at)
            draft = table.draft(history)[:most] if most > 0 else []
            left = text[at : len(text) - 1]
            accepted = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(draft, left, strict=False)))
            steps.append(Round(len(draft), accepted) if draft else PLAIN)
            emitted = accepted + 1
            if draft:
                replayed = limits.replays and accepted < len(draft) and at + emitted < len(text)
                # What a replay verifies are the accepted tokens and the one that took the place of the rejected one.
                table.accept(emitted if replayed else accepted)
                if replayed:
                    steps.append(PLAIN)
                    emitted += 1
            history += text[at : at + emitted]
            at += emitted
        yield steps


_MAP, _MOD = (12, 48), (24, 64, 48)
"""What llama.cpp takes where nothing is asked for: tokens looked up, drafted, and drafted at least."""


def table_of(arm: Arm) -> NgramTable | None:
    """The table of an arm of llama.cpp's server; None where it keeps none, or shares its drafting with others."""
    if len(arm.methods) != 1:
        return None
    n, gamma, least = arm.ngram_n, arm.gamma, arm.gamma_min
    match arm.methods[0]:
        case "ngram-map-k":
            return NgramMap(n or _MAP[0], gamma or _MAP[1])
        case "ngram-map-k4v":
            return NgramMap(n or _MAP[0], gamma or _MAP[1], arm.ngram_min_hits or 1)
        case "ngram-mod":
            return NgramMod(n or _MOD[0], gamma or _MOD[1], _MOD[2] if least is None else least)
        case "ngram-cache":
            return NgramCache()
        case _:
            return None


# --- ngram-map-k, ngram-map-k4v ---------------------------------------------------------------------------------------

_MAP_SIZE = 262_144
_MAP_FACTOR = 2_654_435_761
_VALUES = 4
_MOST_COUNTED = 16_380


@dataclass
class _Value:
    place: int = 0
    count: int = 0
    accepted: int = 0


@dataclass
class _Key:
    place: int
    accepted: int
    counted_to: int = 0
    count: int = 0
    values: list[_Value] = field(default_factory=list[_Value])

    def __post_init__(self) -> None:
        self.values = [_Value(accepted=self.accepted) for _ in range(_VALUES)]


class NgramMap:
    """`n` tokens are looked up, `m` are drafted; `hits` None: without values (`ngram-map-k`)."""

    def __init__(self, n: int, m: int, hits: int | None = None) -> None:
        self._n, self._m, self._hits = n, m, hits
        self._places: dict[int, int] = {}
        """Hash -> place; none at place 0."""
        self._last_hashed = 0
        self._keys: list[_Key] = []
        self._begun_at = 0
        self._checked = 0
        self._last: _Value | None = None

    def begin(self, prompt: Tokens) -> None:
        size, forgotten = len(prompt), self._begun_at
        if forgotten > size:
            forgotten = max(0, size - self._n - self._m)
        if size < self._checked:
            self._places = {key: place for key, place in self._places.items() if place < forgotten}
            self._last_hashed = max(0, forgotten - 1)
            self._keys = [key for key in self._keys if self._is_kept(key, forgotten)]
        self._checked = self._begun_at = size

    def _is_kept(self, key: _Key, forgotten: int) -> bool:
        if key.place >= forgotten:
            return False
        if self._hits is None:
            return True
        for index in reversed(range(_VALUES)):
            if key.values[index].place >= forgotten and key.values[index].place != 0:
                del key.values[index]
                key.values.append(_Value(accepted=key.values[-1].accepted))
        return key.values[0].place != 0

    def draft(self, history: Tokens) -> list[int]:
        n, m, known, self._last = self._n, self._m, history[:-1], None
        if len(known) < 2 * n + m:
            return []
        self._checked = len(known)
        wanted = tuple(history[-n:])
        place = self._find(known, wanted)
        self._hash(known)
        if place == 0:
            return []
        key = next((it for it in self._keys if tuple(known[it.place : it.place + n]) == wanted), None)
        if key is None:
            key = _Key(place, m)
            self._keys.append(key)
        key.count = min(key.count + 1, _MOST_COUNTED)
        value = key.values[0] if self._hits is None else self._chosen(key, known, wanted, place)
        if value is None:
            return []
        self._last = value
        return list(known[place + n : place + n + min(m, value.accepted)])

    def accept(self, accepted: int) -> None:
        if self._last is not None:
            self._last.accepted = accepted

    def _find(self, known: Tokens, wanted: tuple[int, ...]) -> int:
        """Where the n-gram was first hashed, else its newest place among those that are not; 0: nowhere."""
        n, newest = self._n, len(known) - self._n - self._m - 1
        place = self._places.get(_map_hash(wanted), 0)
        if 0 < place < newest and tuple(known[place : place + n]) == wanted:
            return place
        return next((it for it in self._unhashed(newest) if tuple(known[it : it + n]) == wanted), 0)

    def _unhashed(self, newest: int) -> Iterator[int]:
        """Places to look at, in the order of llama.cpp: those of the prompt from its end, then those generated."""
        yield from range(self._begun_at - self._n - self._m - 1, self._last_hashed, -1)
        yield from range(newest, max(self._begun_at, self._last_hashed), -1)

    def _hash(self, known: Tokens) -> None:
        newest = len(known) - self._n - self._m - 1
        for place in self._unhashed(newest):
            self._places.setdefault(_map_hash(known[place : place + self._n]), place)
        self._last_hashed = max(newest, self._last_hashed)

    def _chosen(self, key: _Key, known: Tokens, wanted: tuple[int, ...], place: int) -> _Value | None:
        """Of what followed the n-gram the most frequent, if it is twice as frequent as all others together."""
        n, m = self._n, self._m
        if self._hits is not None and key.count < self._hits:
            return None
        for at in range(key.counted_to, place + 1):
            if tuple(known[at : at + n]) != wanted:
                continue
            begin = at + n
            for value in key.values:
                if value.place == 0:
                    value.place, value.count, value.accepted = begin, 0, m
                if value.place == begin or known[begin : begin + m] == known[value.place : value.place + m]:
                    value.count = min(value.count + 1, _MOST_COUNTED)
                    break
        key.counted_to = place
        best = max(key.values, key=lambda it: it.count)
        others = sum(it.count for it in key.values) - best.count
        return None if others > 0 and best.count < 2 * others else best


def _map_hash(tokens: Tokens) -> int:
    found = 0
    for token in tokens:
        found = (found * _MAP_FACTOR + token) & 0xFFFFFFFF
    return found % _MAP_SIZE


# --- ngram-mod --------------------------------------------------------------------------------------------------------

_MOD_SIZE = 4 * 1024 * 1024
_MOD_FACTOR = 6_364_136_223_846_793_005
_CHUNK = 32
"""Generated tokens are taken in when there are more than so many new ones."""
_LOW, _LOW_IN_A_ROW = 0.25, 5


class NgramMod:
    """`n` tokens are hashed; drafts have `least` to `most` tokens."""

    def __init__(self, n: int, most: int, least: int) -> None:
        self._n, self._most, self._least = n, most, least
        self._next: dict[int, int] = {}
        self._taken = 0
        self._drafted = 0
        self._low = 0

    def begin(self, prompt: Tokens) -> None:
        self._taken = self._drafted = 0
        if len(prompt) >= self._n:
            self._take(prompt)
        if len(self._next) > _MOD_SIZE / 4:
            self._next.clear()

    def draft(self, history: Tokens) -> list[int]:
        known, n, self._drafted = history[:-1], self._n, 0
        if len(known) < n:
            return []
        if self._taken + _CHUNK < len(known):
            self._take(known)
        found = list(history[-n:])
        for length in range(self._most):
            following = self._next.get(_mod_hash(found[-n:]))
            if following is None:
                if length < self._least:
                    return []
                break
            found.append(following)
        self._drafted = len(found) - n
        return found[n:]

    def accept(self, accepted: int) -> None:
        if not self._drafted:
            return
        self._low = self._low + 1 if accepted / self._drafted < _LOW else 0
        if self._low >= _LOW_IN_A_ROW:
            self._next.clear()
            self._low = self._taken = 0

    def _take(self, known: Tokens) -> None:
        n = self._n
        for place in range(self._taken, len(known) - n):
            self._next[_mod_hash(known[place : place + n])] = known[place + n]
        self._taken = len(known) - n


def _mod_hash(tokens: Tokens) -> int:
    found = 0
    for token in tokens:
        found = (found * _MOD_FACTOR + token) & 0xFFFFFFFFFFFFFFFF
    return found % _MOD_SIZE


# --- ngram-cache ------------------------------------------------------------------------------------------------------

_CACHE_DRAFT = 8
_SAMPLES = (2, 2, 1, 1)
_PERCENT = (66, 50, 50, 50)
"""By the length of the n-gram: how often it must have been seen, and in what share of them the token followed."""


class NgramCache:
    """It has no settings."""

    def __init__(self) -> None:
        self._following: defaultdict[tuple[int, ...], dict[int, int]] = defaultdict(dict)
        self._taken = 0

    def begin(self, prompt: Tokens) -> None:
        """No-op."""

    def accept(self, accepted: int) -> None:
        """No-op."""

    def draft(self, history: Tokens) -> list[int]:
        if self._taken < len(history):
            self._take(history[self._taken :])
            self._taken = len(history)
        found = list(history)
        while len(found) < len(history) + _CACHE_DRAFT and (token := self._likely(found)) is not None:
            found.append(token)
        return found[len(history) :]

    def _take(self, new: Tokens) -> None:
        for n in range(1, len(_SAMPLES) + 1):
            for place in range(n, len(new)):
                counts = self._following[tuple(new[place - n : place])]
                counts[new[place]] = counts.get(new[place], 0) + 1

    def _likely(self, found: Tokens) -> int | None:
        """By the longest n-gram that is sure enough; of two that are as frequent the one seen later for the first
        time, as the hash map of the engine's compiler has them."""
        for n in range(len(_SAMPLES), 0, -1):
            counts = self._following.get(tuple(found[-n:]))
            if not counts:
                continue
            seen = sum(counts.values())
            best = max(reversed(counts), key=counts.__getitem__)
            if seen >= _SAMPLES[n - 1] and 100 * counts[best] >= _PERCENT[n - 1] * seen:
                return best
        return None
