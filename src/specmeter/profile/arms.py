"""From an arm and what its session says about itself to a replay of its steps, or the reason why there is none.

Replayed is what is a function of the text before it: drafts of a draft model that takes its best tokens, and lookups of
`ngram-simple`. Where a policy decides by what it measures, any length of a draft is taken as it was, and only what
became of it is replayed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from specmeter.engines.libllama.methods import DRAFT_GAMMA, NGRAM_GAMMA, NGRAM_N, longest
from specmeter.profile.make import drafts_ends_of
from specmeter.profile.replay import FirstOf, Limits, ModelDrafts, NgramDrafts

if TYPE_CHECKING:
    from specmeter.profile.replay import Drafts
    from specmeter.record import Arm, EngineTraits, Generation, MatchProfile, ModelIdentity

REPLAYED = frozenset({"draft-simple", "ngram-simple"})
_STATEFUL = "it keeps a table of its own, whose state before a request is not on record"
_WHY = {
    "ngram-map-k": _STATEFUL,
    "ngram-map-k4v": _STATEFUL,
    "ngram-mod": _STATEFUL,
    "ngram-cache": _STATEFUL,
    "draft-mtp": "drafts from the target's own states, which are not on record",
    "draft-eagle3": "drafts from the target's own states, which are not on record",
    "draft-dflash": "drafts from the target's own states, which are not on record",
    "draft-dspark": "drafts from the target's own states, which are not on record",
}


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


def why_not(arm: Arm, *, traits: EngineTraits, generation: Generation) -> str | None:
    """Why an arm cannot be replayed, in words for a sentence; None where it can."""
    if not arm.speculates:
        return "nothing is drafted"
    if traits.simulated:
        return "the engine was simulated"
    if traits.drafting is None:
        return "the engine drafts by its own rules"
    if arm.synthetic_rates:
        return "acceptance is synthetic"
    for method in arm.methods:
        if method not in REPLAYED:
            return f"{method} {_WHY.get(method, 'is not replayed')}"
    if generation.temperature > 0 and traits.by_rejection(arm.rule):
        return "rejection sampling draws drafts and accepts them by chance"
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
            free = arm.policy is not None
            methods.append(ModelDrafts(profile, length, least, 0.0 if free else values["p_min"], near_tie, free))
        else:
            methods.append(NgramDrafts(prompt, text, values["size_n"], gamma, least))
    together = 0 if server else arm.gamma_min or 0
    return methods[0] if len(methods) == 1 else FirstOf(methods, together)


def limits_of(
    resolved: Mapping[str, Any], *, traits: EngineTraits, max_tokens: int, prompt_tokens: int, recurrent: bool
) -> Limits:
    """What else ends drafts in a session."""
    server = traits.drafting == "llama-server"
    context = resolved.get("n_ctx_seq", resolved.get("n_ctx"))
    # A server keeps one token more free: room to shift its context.
    room = context - prompt_tokens - (2 if server else 1) if isinstance(context, int) else None
    return Limits(max_tokens, room, replays=recurrent, counts_beyond=server, logs_plain=not server)
