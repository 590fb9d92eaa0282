"""What llama.cpp's n-gram methods with tables of their own draft, request after request of one session.

A table continues from one request to the next, so what is drafted depends on the requests before: they are followed in
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

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import TYPE_CHECKING, NamedTuple, Protocol

from specmeter.probe.replay import PLAIN, Round

if TYPE_CHECKING:
    from specmeter.probe.replay import Limits
    from specmeter.record import Arm


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
        """This many tokens of the last draft, which was not empty, were accepted."""
        ...


class SessionRequest(NamedTuple):
    """One request of a session."""

    prompt: Tokens
    text: Tokens
    limits: Limits


def follow(table: NgramTable, requests: Iterable[SessionRequest]) -> Iterator[list[Round]]:
    """Every step of every request, from the first token of its text to its end; as `probe.replay.replay` has them."""
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


_MAP_SIZE = 262_144
_MAP_FACTOR = 2_654_435_761
_VALUES = 4
_MAX_COUNTED = 16_380


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
        key.count = min(key.count + 1, _MAX_COUNTED)
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
                    value.count = min(value.count + 1, _MAX_COUNTED)
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


_MOD_SIZE = 4 * 1024 * 1024
_MOD_FACTOR = 6_364_136_223_846_793_005
_CHUNK = 32
"""Generated tokens are taken in when there are more than this many new ones."""


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
