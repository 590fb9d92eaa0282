"""llama.cpp's rules of drafting: defaults, its lookup of n-grams, and settings that make a method draft nothing.

With some settings llama.cpp drafts nothing, or otherwise than asked, and reports nothing. The conditions were read in
llama.cpp at the version that this package pins (each is cited), and seen on it. An arm has passed `check_arm` before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from specmeter.errors import UsageError
from specmeter.messages import Message
from specmeter.record import Arm, EngineTraits, MethodName

DRAFT_GAMMA, NGRAM_GAMMA, NGRAM_N = 3, 48, 12
"""Where nothing is said: tokens drafted by a model, tokens drafted by a lookup, tokens looked up."""
NGRAM_CACHE_GAMMA = 8
"""The `ngram-cache` method drafts up to this many tokens; llama.cpp has no option for it."""
MOD_N, MOD_GAMMA, MOD_GAMMA_MIN = 24, 64, 48
"""`ngram-mod`: tokens looked up, longest and shortest draft where nothing is said (common/common.h:357)."""
_GAMMAS: Mapping[MethodName, int] = {
    "ngram-simple": NGRAM_GAMMA,
    "ngram-map-k": NGRAM_GAMMA,
    "ngram-map-k4v": NGRAM_GAMMA,
    "ngram-mod": MOD_GAMMA,
    "ngram-cache": NGRAM_CACHE_GAMMA,
}
"""Longest draft where nothing is said; of models it is `DRAFT_GAMMA`."""
DEFAULT_BATCH = 2048
"""Tokens of a forward where nothing is said."""
_LEAVES = 2
"""Of an answer of n tokens a draft has n - 2 at most: the first comes from the prompt, and one is the target's own
(`get_n_draft_max`, tools/server/server-context.cpp:517; the instrumented engine's decoder does the same)."""
_DISCARDS = frozenset[MethodName]({"draft-simple", "draft-mtp", "draft-eagle3"})
"""Throw drafts shorter than `gamma_min` away after room has shortened them (common/speculative.cpp:468, 914, 1812)."""


class DraftLimit(NamedTuple):
    """One thing that an engine will do silently."""

    method: MethodName
    never: bool
    """It never drafts; otherwise it drafts otherwise than asked."""
    told: Message
    fix: Message


class Room(NamedTuple):
    """What an arm's requests leave room for, tokens."""

    answer: int
    """Most that any of them generates."""
    text: int
    """Most that prompt and answer can have together; the context where more is not known."""


def silent_limits(arm: Arm, room: Room, traits: EngineTraits) -> list[DraftLimit]:
    """What an engine of these traits will silently make of an arm's settings.

    Only llama.cpp's rules of drafting are known. A control has its arm's settings, and errors that are planted are no
    lookups.
    """
    planted = traits.synthetic == "planted" and bool(arm.synthetic_rates)
    if traits.drafting is None or arm.role == "control" or planted:
        return []
    return list(draft_limits(arm, room, instrumented=traits.drafting == "specmeter"))


def draft_limits(arm: Arm, room: Room, *, instrumented: bool = False) -> Iterator[DraftLimit]:
    """Everything that llama.cpp (or the instrumented engine) will silently make of an arm's settings, by method."""
    for method in arm.methods:
        if method == "none":
            continue
        if room.answer <= _LEAVES:
            told = Message("drafter-idle.short_answers", method=method, answer=room.answer)
            yield DraftLimit(method, True, told, Message("drafter-idle.fix_short_answers"))
            continue
        never = _lookup_never(arm, method, room) or _shortest_never(arm, method, room, instrumented=instrumented)
        if never is not None:
            yield never
            continue
        yield from _of_the_instrumented(arm, method, room) if instrumented else _of_servers(arm, method, room)
        yield from _shortened(arm, method, room)


# --- never -----------------------------------------------------------------------------------------------------------


def _lookup_never(arm: Arm, method: MethodName, room: Room) -> DraftLimit | None:
    """Lookups by n-grams that cannot find anything."""
    n, m = arm.ngram_n or NGRAM_N, arm.gamma or NGRAM_GAMMA
    if method == "ngram-simple" and m < n:
        # common/ngram-map.cpp:100: copy_max = min(m, tokens after the match), `if (copy_max < n_draft_min)` there is no
        # draft, and n_draft_min is n. The instrumented engine's lookup does the same, token for token.
        told = Message(
            "drafter-idle.short_lookups",
            ngram_n=n,
            unless_ngram_n=_unless(arm.ngram_n, "ngram_n"),
            gamma=m,
            unless_gamma=_unless(arm.gamma, "gamma"),
        )
        return DraftLimit(method, True, told, Message("drafter-idle.fix_short_lookups", ngram_n=n, gamma=m))
    # Nothing is looked up while the text without its last token is short: `cur_len <= n + m + 1` (common/ngram-map.cpp:
    # 65), `cur_len < 2 n + m` (there, 232), `cur_len < n` (common/speculative.cpp:2018).
    least: Mapping[MethodName, int] = {
        "ngram-simple": n + m + 2,
        "ngram-map-k": 2 * n + m,
        "ngram-map-k4v": 2 * n + m,
        "ngram-mod": arm.ngram_n or MOD_N,
    }
    if method in least and room.text <= least[method]:
        told = Message("drafter-idle.short_texts", method=method, needed=least[method] + 1, text=room.text)
        return DraftLimit(method, True, told, Message("drafter-idle.fix_short_texts"))
    return None


def _shortest_never(arm: Arm, method: MethodName, room: Room, *, instrumented: bool) -> DraftLimit | None:
    """Drafts that are all shorter than `gamma_min`."""
    shortest, longest = arm.gamma_min or 0, room.answer - _LEAVES
    if not instrumented and method not in _DISCARDS:
        return None  # n-gram methods ignore gamma_min, or ask for it before room shortens a draft
    if shortest > longest:
        told = Message(
            "drafter-idle.gamma_min_answers", method=method, gamma_min=shortest, answer=room.answer, longest=longest
        )
        return DraftLimit(method, True, told, Message("drafter-idle.fix_gamma_min_answers", longest=longest))
    if not instrumented and arm.gamma is None and shortest > DRAFT_GAMMA:
        told = Message("drafter-idle.gamma_min", method=method, gamma_min=shortest, longest=DRAFT_GAMMA)
        return DraftLimit(method, True, told, Message("drafter-idle.fix_gamma_min", gamma_min=shortest))
    return None


# --- otherwise than asked --------------------------------------------------------------------------------------------


def _of_servers(arm: Arm, method: MethodName, room: Room) -> Iterator[DraftLimit]:
    if method == "ngram-mod":
        # common/speculative.cpp:2042: a miss before n_min discards the draft; n_min above n_max is not adjusted.
        shortest = MOD_GAMMA_MIN if arm.gamma_min is None else arm.gamma_min
        longest = arm.gamma or MOD_GAMMA
        if shortest > longest:
            unless = _unless(arm.gamma_min, "gamma_min")
            told = Message("drafter-idle.ngram_mod", longest=longest, gamma_min=shortest, unless_gamma_min=unless)
            yield DraftLimit(method, False, told, Message("drafter-idle.fix_ngram_mod", longest=longest))
    if method == "ngram-map-k" and arm.ngram_min_hits is not None and "ngram-map-k4v" not in arm.methods:
        # common/ngram-map.cpp:382: `if (map.key_only)` returns before min_hits is looked at.
        fix = Message("drafter-idle.fix_min_hits")
        yield DraftLimit(method, False, Message("drafter-idle.min_hits"), fix)
    batch, longest = _batch(arm), _longest(arm, method, room)
    if longest >= batch:
        # tools/server/server-context.cpp:576: GGML_ASSERT "batch must be large enough to hold the sampled and draft
        # tokens", which ends the server.
        told = Message("drafter-idle.server_batch", method=method, longest=longest, batch=batch)
        yield DraftLimit(method, False, told, Message("drafter-idle.fix_batch", batch=longest + 1))


def _of_the_instrumented(arm: Arm, method: MethodName, room: Room) -> Iterator[DraftLimit]:
    n, shortest = arm.ngram_n or NGRAM_N, arm.gamma_min or 0
    if method == "ngram-simple" and "draft-simple" in arm.methods and shortest > n:
        # llama.cpp's server applies gamma_min to the model's drafts only; engines.libllama.decoder to what was drafted.
        told = Message("drafter-idle.gamma_min_lookups", gamma_min=shortest)
        yield DraftLimit(method, False, told, Message("drafter-idle.fix_gamma_min_lookups", ngram_n=n))
    batch, longest = _batch(arm), _longest(arm, method, room)
    if longest >= batch:
        told = Message("drafter-idle.batch", method=method, longest=batch - 1, batch=batch)
        yield DraftLimit(method, False, told, Message("drafter-idle.fix_batch", batch=longest + 1))


def _batch(arm: Arm) -> int:
    """Most tokens of a forward."""
    return min(arm.engine.batch or DEFAULT_BATCH, arm.engine.full_context)


def _longest(arm: Arm, method: MethodName, room: Room) -> int:
    """Longest draft that is asked for and that answers leave room for."""
    return min(arm.gamma or _GAMMAS.get(method, DRAFT_GAMMA), room.answer - _LEAVES)


def _shortened(arm: Arm, method: MethodName, room: Room) -> Iterator[DraftLimit]:
    longest = room.answer - _LEAVES
    if arm.gamma is not None and arm.gamma > longest:
        told = Message("drafter-idle.gamma", method=method, gamma=arm.gamma, answer=room.answer, longest=longest)
        yield DraftLimit(method, False, told, Message("drafter-idle.fix_gamma", max_tokens=arm.gamma + _LEAVES))


def _unless(given: int | None, field: str) -> Message | Literal[""]:
    return Message("drafter-idle.unless", field=field) if given is None else ""


# --- lookup of n-grams -----------------------------------------------------------------------------------------------


class NgramLookup:
    """llama.cpp's `ngram-simple` for one sequence, token for token, without its search: `n` is the length that is
    looked up (`ngram_n`), `longest` of a draft (`gamma`).

    The last n tokens are looked for earlier in the text (prompt and everything generated so far), from the newest match
    to the oldest, and what followed there is the draft. Of a history of L tokens, the last one just chosen:

    - nothing is drafted before L > n + m + 2, where m = `longest`;
    - a match starts at 1 <= j <= L - n - 2: the very first token of a text never starts one, and neither does the
      n-gram one place before the last;
    - the draft is the min(m, L - 1 - (j + n)) tokens after the newest match, without the last token of the history, and
      *nothing* where that is less than n: an older match is not tried. So m < n never drafts anything.

    llama.cpp compares with every place of the text in every step. Here each n-gram's hash leads to its newest place,
    and each place to the one before it with the same hash: a step costs a few microseconds however long the text is.

    Read in llama.cpp's common/ngram-map.cpp (common_ngram_simple_draft), of the version that this package pins.
    Prompt lookup as such: Saxena 2023, https://github.com/apoorvumang/prompt-lookup-decoding.
    """

    def __init__(self, n: int, longest: int) -> None:
        if n < 1 or longest < 1:
            raise UsageError(
                f"ngram_n is {n} and gamma {longest}: both must be at least 1", fix="give numbers of tokens"
            )
        self._n = n
        self._longest = longest
        self._newest: dict[int, int] = {}
        self._before: list[int] = []
        self.reset()

    def reset(self) -> None:
        """Forget the text: another one begins."""
        self._newest.clear()
        self._before = [0]
        """Place -> the place before it whose n-gram has the same hash; 0: none. As long as places are known."""

    def draft(self, history: Sequence[int], most: int) -> list[int]:
        """Tokens that may follow `history`, at most `most`; none where nothing was found.

        `history` is the prompt and everything generated, the token just chosen included; between calls it may only
        grow at its end (`reset` otherwise; a shorter history is noticed and raises `UsageError`).
        """
        n, last_start = self._n, len(history) - self._n - 2
        if len(self._before) > 1 and last_start < len(self._before) - 1:
            raise UsageError(
                "the token history became shorter between two drafts", fix="call reset() before a new sequence"
            )
        for start in range(len(self._before), last_start + 1):
            key = hash(tuple(history[start : start + n]))
            self._before.append(self._newest.get(key, 0))
            self._newest[key] = start
        if len(history) <= n + self._longest + 2:
            return []
        pattern = tuple(history[-n:])
        match = self._newest.get(hash(pattern), 0)
        while match and tuple(history[match : match + n]) != pattern:
            match = self._before[match]
        if not match:
            return []
        length = min(self._longest, len(history) - 1 - (match + n))
        if length < n:
            return []
        return list(history[match + n : match + n + min(length, max(0, most))])
