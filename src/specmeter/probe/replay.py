"""Replays the steps of speculative decoding on a known text: how much each drafts and how much is accepted.

Greedy drafts are a function of the text before them. The step that starts with i tokens generated (i >= 1: the first
token comes with the prompt's forward) drafts up to

    min(gamma, max_tokens - i - 1, room of the context)

tokens: one more always comes from the target. Of d drafted, min(L(i), d) are accepted, and the step emits one token
more. On a target that cannot forget (recurrent, hybrid) a rejection is followed by a forward that replays what was
accepted and emits one more token: a step without a draft.

If the draft's two best tokens are nearly tied, the shape of a batch decides which one it says. `options` of a drafter
lists what may happen then, and `possible_totals` whether counts are among it.

Replayed are draft models that take their best tokens, and lookups of `ngram-simple`.

Read in tools/server/server-context.cpp (get_n_draft_max, and the loop around common_speculative_draft) and
common/speculative.cpp of llama.cpp, and in `engines.libllama.decoder`, which does the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

from specmeter.engines.libllama.spec import longest
from specmeter.engines.llama_cpp.draft_rules import DRAFT_GAMMA, NGRAM_GAMMA, NGRAM_N, NgramLookup
from specmeter.errors import UsageError
from specmeter.messages import Message
from specmeter.store.integrity import output_digest

if TYPE_CHECKING:
    from specmeter.record import Arm, EngineTraits, Generation, MatchProfile, ModelIdentity


MAX_STATES = 20_000
"""(position, drafted, accepted) that are followed before it is given up to say which totals are possible."""


class Round(NamedTuple):
    """One target forward after the prompt."""

    drafted: int
    accepted: int


PLAIN = Round(0, 0)


class UnreplayableError(UsageError):
    """What is known does not say what the drafter would have done."""


class Drafts(Protocol):
    """What one method drafts along one text."""

    @property
    def length(self) -> int:
        """Tokens of the text."""
        ...

    def options(self, at: int, most: int) -> set[Round]:
        """What a step from position `at` can do that may draft `most` >= 1 tokens: without near ties one thing.

        `PLAIN` where the method has nothing to say.
        """
        ...


@dataclass(frozen=True)
class Limits:
    """What ends drafts beside the drafter itself."""

    max_tokens: int
    """Tokens that were asked for; the text may have ended earlier."""
    room: int | None = None
    """Most tokens that a draft after t_0 has room for in the context; None: enough. It shrinks with the text."""
    replays: bool = False
    """The target cannot forget: a rejection costs a forward that emits one token more."""
    counts_beyond: bool = False
    """Tokens that are accepted behind the end of the text are counted: a server's are."""
    logs_plain: bool = True
    """Steps without a draft are on record, too: a server's log has only those that replay."""

    def most(self, at: int) -> int:
        """Most tokens to draft in a step that starts with `at` tokens generated."""
        left = self.max_tokens - at - 1
        return left if self.room is None else min(left, self.room - (at - 1))


@dataclass(frozen=True)
class ModelDrafts:
    """A draft model's, by its profile."""

    profile: MatchProfile
    gamma: int
    gamma_min: int = 0
    """Shorter drafts are discarded."""
    p_min: float = 0.0
    near_tie: float = 0.0
    """Gap of logits up to which the draft may decide otherwise; 0: it never does."""

    @property
    def length(self) -> int:
        return len(self.profile.matches)

    def options(self, at: int, most: int) -> set[Round]:
        """Raises `UnreplayableError` where `p_min` may end a draft behind its first wrong token, and the profile was
        made without looking there."""
        most = min(self.gamma, most)
        found = {Round(*it) for accepted in self._accepted(at, most) for it in self._lengths(at, most, accepted)}
        return {it if it.drafted >= max(self.gamma_min, 1) else PLAIN for it in found}

    def _accepted(self, at: int, most: int) -> Iterator[int]:
        """How many tokens may agree, up to `most`."""
        profile = self.profile
        for place in range(at, min(at + most, self.length)):
            tied = profile.gaps[place] <= self.near_tie and self.near_tie > 0
            matches = profile.matches[place] == "1"
            if tied or not matches:
                yield place - at
            if not (tied or matches):
                return
        yield min(most, max(0, self.length - at))

    def _lengths(self, at: int, most: int, agreeing: int) -> Iterator[tuple[int, int]]:
        """(drafted, accepted) of a draft whose first `agreeing` tokens are the text's and whose next one is not."""
        if self.p_min <= 0:
            yield most, agreeing
            return
        wrong = at + agreeing
        path = (*self.profile.confidences[at : wrong + 1], *self.profile.branches.get(wrong, ()))[:most]
        doubt = self.near_tie / 4  # the steepest that a probability follows a logit
        for place, confidence in enumerate(path):
            if confidence < self.p_min + doubt:
                yield place, min(agreeing, place)
            if confidence < self.p_min - doubt or (doubt == 0 and confidence < self.p_min):
                return
        if len(path) < most and self.near_tie == 0 and wrong < self.length:
            raise UnreplayableError(
                "with p_min, drafts continue past their first wrong token, which this profile does not contain",
                fix="make the profile for this gamma and p_min",
            )
        # Behind the end of the text, and behind a token that a near tie may bring, any length may follow.
        known = len(path) if self.near_tie > 0 else most
        for drafted in range(max(known, 1), most + 1):
            yield drafted, min(agreeing, drafted)


@dataclass(frozen=True)
class NgramDrafts:
    """Those of `ngram-simple`: a function of the text alone."""

    prompt: Sequence[int]
    text: Sequence[int]
    n: int
    gamma: int
    gamma_min: int = 0

    @property
    def length(self) -> int:
        return len(self.text)

    def options(self, at: int, most: int) -> set[Round]:
        tokens = self._drafts[at][:most]
        if len(tokens) < max(self.gamma_min, 1):
            return {PLAIN}
        pairs = enumerate(zip(tokens, self.text[at:], strict=False))
        right = next((place for place, (a, b) in pairs if a != b), min(len(tokens), len(self.text) - at))
        return {Round(len(tokens), right)}

    @cached_property
    def _drafts(self) -> list[list[int]]:
        """The longest draft after each number of generated tokens."""
        lookup, history = NgramLookup(self.n, self.gamma), [*self.prompt]
        drafts: list[list[int]] = [[]]
        for token in self.text:
            history.append(token)
            drafts.append(lookup.draft(history, self.gamma))
        return drafts


@dataclass(frozen=True)
class CombinedDrafts:
    """Several methods, of which the first that has anything to say is heard."""

    methods: Sequence[Drafts]
    gamma_min: int = 0
    """Whatever is heard is thrown away if it is shorter."""

    @property
    def length(self) -> int:
        return self.methods[0].length

    def options(self, at: int, most: int) -> set[Round]:
        heard: set[Round] = set()
        for method in self.methods:
            here = method.options(at, most)
            heard |= here - {PLAIN}
            if PLAIN not in here:
                break
        else:
            heard.add(PLAIN)
        return {it if it.drafted >= self.gamma_min else PLAIN for it in heard}


def replay(drafts: Drafts, limits: Limits) -> tuple[Round, ...]:
    """Every step from the first token to the end of the text, one `Round` per target forward.

    Tokens emitted are 1 + the sum of (1 + accepted). `drafts` must have been made without near ties. Raises
    `UnreplayableError`.
    """
    steps: list[Round] = []
    limits = replace(limits, counts_beyond=False)
    at = 1
    while at < drafts.length:
        step = max(_options(drafts, limits, at))  # several only behind the end of the text, where `p_min` ends drafts
        steps.append(step)
        at += step.accepted + 1
        if limits.replays and step.accepted < step.drafted and at < drafts.length:
            steps.append(PLAIN)
            at += 1
    return tuple(steps)


def possible_totals(drafts: Drafts, limits: Limits, *, most_states: int = MAX_STATES) -> set[tuple[int, int]]:
    """Every (drafted, accepted) that the whole text can have come to, near ties decided one way or the other.

    Raises `UnreplayableError` where these are too many to be followed.
    """
    reached: dict[int, set[tuple[int, int]]] = {1: {(0, 0)}}
    ends: set[tuple[int, int]] = set()
    states = 0
    while reached:
        at = min(reached)
        totals = reached.pop(at)
        if at >= drafts.length:
            ends |= totals
            continue
        states += len(totals)
        if states > most_states:
            raise UnreplayableError(
                "near ties in the draft model's probabilities leave too many possibilities",
                fix="record steps (engine.trace_steps)",
            )
        for step in _options(drafts, limits, at):
            after = at + step.accepted + 1
            if limits.replays and step.accepted < step.drafted and after < drafts.length:
                after += 1
            reached.setdefault(after, set()).update((d + step.drafted, a + step.accepted) for d, a in totals)
    return ends


def first_impossible(drafts: Drafts, limits: Limits, steps: Sequence[Round]) -> int | None:
    """The first of the recorded `steps` that cannot have been, by its place; None where all of them can.

    Where steps are missing at the end, or continue behind it, that place is the first one there.
    """
    ways = {(1, 0)}
    """(tokens generated, steps explained): every way to get there that near ties leave."""
    seen: set[tuple[int, int]] = set()
    farthest = 0
    while ways:
        at, place = way = ways.pop()
        seen.add(way)
        farthest = max(farthest, place)
        if at >= drafts.length:
            if place == len(steps) or (limits.counts_beyond and tuple(steps[place:]) == (PLAIN,)):
                return None
            continue
        for option in _options(drafts, limits, at):
            ways |= set(_explained(drafts.length, limits, steps, way, option)) - seen
    return farthest


def _explained(
    length: int, limits: Limits, steps: Sequence[Round], way: tuple[int, int], option: Round
) -> Iterator[tuple[int, int]]:
    """Where a step leads, if the record has it."""
    at, place = way
    if option == PLAIN and not limits.logs_plain:
        yield at + 1, place
        return
    if place == len(steps) or steps[place] != option:
        return
    at, place = at + option.accepted + 1, place + 1
    if limits.replays and option.accepted < option.drafted and at < length:
        if place == len(steps) or steps[place] != PLAIN:
            return
        at, place = at + 1, place + 1
    yield at, place


def _options(drafts: Drafts, limits: Limits, at: int) -> set[Round]:
    most = limits.most(at)
    if most < 1:
        return {PLAIN}
    found: set[Round] = set()
    # The last token of what is left is the target's own one: of the draft it may only be beyond the end.
    left = drafts.length - at - 1
    for drafted, accepted in drafts.options(at, most):
        found.add(Round(drafted, min(accepted, left)))
        if limits.counts_beyond and accepted > left:
            found.update(Round(drafted, it) for it in range(accepted, drafted + 1))
    return found


# --- from an arm to the replay of its steps --------------------------------------------------------------------------

REPLAYED = frozenset({"draft-simple", "ngram-simple"})
_WHY = {
    **dict.fromkeys(("ngram-map-k", "ngram-map-k4v", "ngram-mod", "ngram-cache"), "replay.table"),
    **dict.fromkeys(("draft-mtp", "draft-eagle3", "draft-dflash", "draft-dspark"), "replay.states"),
}
"""Method -> why it is not replayed."""


class ProfileKey(NamedTuple):
    """What a profile is known by."""

    prompt_digest: str
    text_digest: str
    draft_sha256: str
    kv_type_k: str | None
    kv_type_v: str | None
    drafts_ends: bool


def key_of(profile: MatchProfile) -> ProfileKey:
    """What it is known by."""
    return ProfileKey(*(getattr(profile, name) for name in ProfileKey._fields))


def wanted_key(
    prompt_digest: str,
    text_digest: str,
    arm: Arm,
    draft: ModelIdentity,
    *,
    traits: EngineTraits,
    generation: Generation,
) -> ProfileKey:
    """What the profile of one of an arm's texts is known by."""
    settings = arm.engine
    kv = (settings.draft_kv_type_k, settings.draft_kv_type_v)
    return ProfileKey(prompt_digest, text_digest, draft.sha256, *kv, drafts_ends_of(traits, generation))


def drafts_ends_of(traits: EngineTraits, generation: Generation) -> bool:
    """Whether drafts of an engine may contain a token that ends the text.

    llama.cpp's server lets its draft say it whatever the target is told; the instrumented engine leaves it out where
    `ignore_eos` is set.
    """
    return traits.drafting != "specmeter" or not generation.ignore_eos


def digest(token_ids: Sequence[int]) -> str:
    """Equal for equal token ids: what profiles know prompts and texts by."""
    return output_digest(token_ids).hex() or blake2b(b"", digest_size=12).hexdigest()


def why_not(arm: Arm, *, traits: EngineTraits, generation: Generation) -> Message | None:
    """Why an arm cannot be replayed; None where it can."""
    if not arm.speculates:
        return Message("replay.idle")
    if traits.simulated:
        return Message("replay.simulated")
    if traits.drafting is None:
        return Message("replay.own_rules")
    if arm.synthetic_rates:
        return Message("replay.synthetic")
    if arm.policy is not None:
        return Message("replay.policy", policy=arm.policy)
    for method in arm.methods:
        if method not in REPLAYED:
            return Message(_WHY.get(method, "replay.method"), method=method)
    if generation.temperature > 0 and traits.by_rejection(arm):
        return Message("replay.by_chance")
    return None


def parameters(arm: Arm, resolved: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Method -> value by llama.cpp's name: what the session says is in force, else what was asked for."""
    said = resolved.get("method_parameters")
    found = cast("dict[str, dict[str, Any]]", said) if isinstance(said, dict) else {}
    asked = {
        "draft-simple": {"n_max": arm.gamma or DRAFT_GAMMA, "n_min": arm.gamma_min or 0, "p_min": arm.p_min or 0.0},
        "ngram-simple": {"size_m": arm.gamma or NGRAM_GAMMA, "size_n": arm.ngram_n or NGRAM_N},
    }
    return {method: asked[method] | found.get(method, {}) for method in arm.methods}


def says_what_is_in_force(arm: Arm, resolved: Mapping[str, Any]) -> bool:
    """Whether the session itself says how its draft model drafts: defaults differ from build to build."""
    if "draft-simple" not in arm.methods:
        return True
    said = resolved.get("method_parameters")
    own = cast("dict[str, Any]", said).get("draft-simple") if isinstance(said, dict) else None
    return isinstance(own, dict) and {"n_max", "p_min"} <= cast("dict[str, Any]", own).keys()


def drafts_of(
    arm: Arm,
    resolved: Mapping[str, Any],
    *,
    traits: EngineTraits,
    profile: MatchProfile | None = None,
    prompt: Sequence[int] = (),
    text: Sequence[int] = (),
    near_tie: float = 0.0,
) -> Drafts:
    """What an arm drafts along a text: `profile` for a draft model, the tokens of `prompt` and `text` for lookups."""
    server = traits.drafting == "llama-server"
    methods: list[Drafts] = []
    batch = resolved.get("n_batch")
    fitting = batch - 1 if isinstance(batch, int) and batch > 1 else None
    for method, values in sorted(parameters(arm, resolved).items(), reverse=True):  # n-grams come first
        gamma = values["n_max" if method == "draft-simple" else "size_m"]
        if not server and method == "draft-simple":
            gamma = longest(arm)  # of several methods without a gamma, its model drafts as much as its lookup may
        # The server throws short drafts of its draft model away and asks on; the instrumented engine any short draft.
        own = method == "draft-simple" if server else len(arm.methods) == 1
        least = values.get("n_min", 0) if own else 0
        if method == "draft-simple":
            assert profile is not None
            length = gamma if fitting is None else min(gamma, fitting)
            methods.append(ModelDrafts(profile, length, least, values["p_min"], near_tie))
        else:
            methods.append(NgramDrafts(prompt, text, values["size_n"], gamma, least))
    together = 0 if server else arm.gamma_min or 0
    return methods[0] if len(methods) == 1 else CombinedDrafts(methods, together)


def limits_of(
    resolved: Mapping[str, Any], *, traits: EngineTraits, max_tokens: int, prompt_tokens: int, recurrent: bool
) -> Limits:
    """What else ends drafts in a session."""
    server = traits.drafting == "llama-server"
    context = resolved.get("n_ctx_seq", resolved.get("n_ctx"))
    # A server keeps one token more free: room to shift its context.
    room = context - prompt_tokens - (2 if server else 1) if isinstance(context, int) else None
    return Limits(max_tokens, room, replays=recurrent, counts_beyond=server, logs_plain=not server)
