"""Profiles of a run's texts, made when it has been measured: what the check `replay-differs` reads.

Every different text of every arm that can be replayed has one, by every draft that wrote for it; greedy texts repeat
from block to block and mostly from arm to arm, so these are few. It may take a tenth of the time that the run took.
Nothing that goes wrong here fails the run: profiles are missing then, and the check says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from specmeter.engines.llama_cpp.reply import UNKNOWN_TOKEN
from specmeter.errors import EngineError
from specmeter.profile.arms import key_of, parameters, wanted_key, why_not
from specmeter.profile.make import Passage, digest, drafts_ends_of, profile_texts
from specmeter.record import Profiled

if TYPE_CHECKING:
    from specmeter.measure import Work
    from specmeter.profile.arms import ProfileKey
    from specmeter.record import EngineSettings, MatchProfile, ModelIdentity, Request
    from specmeter.store import RunStore

SHARE = 0.1
"""Of the time that the run took."""
LEAST_S = 10.0
"""So long it may always take."""
_LONGEST_REASON = 300


@dataclass
class _Reading:
    """Texts that one draft has to read with one set of settings."""

    draft: ModelIdentity
    settings: EngineSettings
    gamma: int = 0
    p_min: float = 0.0
    passages: dict[ProfileKey, Passage] = field(default_factory=dict["ProfileKey", Passage])

    def needs(self, gamma: int, p_min: float) -> None:
        """An arm drafts so; with a `p_min`, the draft's own way behind wrong tokens is to be followed."""
        if p_min > 0:
            self.gamma = max(self.gamma, gamma)
            self.p_min = min(self.p_min, p_min) if self.p_min else p_min


def profile_run(work: Work, store: RunStore, *, share: float = SHARE) -> None:
    """Make and keep the profiles that the run's texts lack, and say whether all are there.

    Raises `StoreError`; Ctrl-C passes on.
    """
    readings = list(_readings(work, store))
    left_s = allowed_s(store, share)
    missing, reasons = 0, dict[str, None]()
    traits, generation = work.traits, work.experiment.generation
    for reading in readings:
        if not reading.passages:
            continue
        try:
            profiles = profile_texts(
                reading.draft,
                reading.settings,
                tuple(reading.passages.values()),
                drafts_ends=drafts_ends_of(traits, generation),
                gamma=reading.gamma,
                p_min=reading.p_min,
                limit_s=left_s / len(readings),
            )
        except EngineError as error:
            missing += len(reading.passages)
            reasons[f"{reading.draft.name}: {error.message}"[:_LONGEST_REASON]] = None
            continue
        store.add_profiles(profiles)
        if left := len(reading.passages) - len(profiles):
            missing += left
            reasons[f"reading would have taken more than {share:.0%} of the run's time"] = None
    if readings:
        store.set_profiled(Profiled(missing=missing, reason="; ".join(reasons)))


def allowed_s(store: RunStore, share: float) -> float:
    """How long reading may take afterwards: `share` of the time that sessions took, pauses of the run left out."""
    return max(LEAST_S, share * sum(it.ended_at - it.started_at for it in store.sessions() if it.ended_at is not None))


def _readings(work: Work, store: RunStore) -> Iterator[_Reading]:
    """Every draft by the types of its cache, with what it still has to read: maybe nothing."""
    traits, generation = work.traits, work.experiment.generation
    arms = {
        arm.id: arm
        for arm in work.arms.values()
        if "draft-simple" in arm.methods and arm.draft and why_not(arm, traits=traits, generation=generation) is None
    }
    if not arms:
        return
    prompts = {(it.target, it.prompt_id): it.token_ids for it in store.prompt_tokens()}
    known = {key_of(profile): profile for profile in store.profiles()}
    resolved = {session.arm_id: session.resolved for session in store.sessions()}
    readings: dict[tuple[object, ...], _Reading] = {}
    for request in _texts(store.requests(), arms):
        arm, text = arms[request.arm_id], request.reply.token_ids if request.reply else ()
        prompt = prompts.get((arm.target, request.prompt_id))
        if not prompt or not text or UNKNOWN_TOKEN in text:
            continue
        draft = work.models[arm.draft or ""]
        key = wanted_key(digest(prompt), digest(text), arm, draft, traits=traits, generation=generation)
        values = parameters(arm, resolved.get(arm.id, {}))["draft-simple"]
        reading = readings.setdefault(key[2:], _Reading(draft, arm.engine))
        reading.needs(values["n_max"], 0.0 if arm.policy else values["p_min"])
        reading.passages.setdefault(key, Passage(prompt_id=request.prompt_id, prompt=prompt, text=text))
    for reading in readings.values():
        enough = [key for key in reading.passages if key in known and _is_enough(known[key], reading)]
        for key in enough:
            del reading.passages[key]
        yield reading


def _is_enough(profile: MatchProfile, reading: _Reading) -> bool:
    """Whether a profile that is there serves: with a `p_min`, it has to know what comes behind wrong tokens."""
    return not reading.p_min or bool(profile.branches) or "0" not in profile.matches[1:]


def _texts(requests: Iterable[Request], arms: Iterable[str]) -> Iterator[Request]:
    wanted = set(arms)
    return (it for it in requests if it.arm_id in wanted and it.reply is not None)
