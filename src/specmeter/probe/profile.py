"""Profiles of texts by a draft model: how many tokens it guesses right from every place, in one pass.

Along a text t_0 ... t_(n-1) a greedy draft that starts after t_(i-1) agrees for L(i) tokens. As long as it agrees its
tokens *are* the text, so one pass of the draft over the text tells every L(i). A step that drafts d tokens there
accepts min(L(i), d): one profile replays any gamma (`replay`), without the target and to the token.

The pass runs in a process of its own. What a draft model has in its memory while it drafts was partly computed in
forwards over more tokens, which moves its logits a little. How much, `sway` says: the same text is read once more in
forwards over many tokens, and the largest change of a gap is kept.

Profiles of a run's texts are made when it has been measured; if that goes wrong, they are missing, and the check says
so.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import numpy as np
from pydantic import Field

from specmeter.errors import EngineError
from specmeter.messages import Message
from specmeter.probe.replay import digest, drafts_ends_of, key_of, parameters, wanted_key, why_not
from specmeter.record import UNKNOWN_TOKEN, EngineSettings, MatchProfile, ModelIdentity, Profiled, Record

if TYPE_CHECKING:
    from specmeter.engines.process import Heard
    from specmeter.llama_binding.context import Context
    from specmeter.llama_binding.sampling import Logits
    from specmeter.measure import Work
    from specmeter.probe.replay import ProfileKey
    from specmeter.store import RunStore


AT_ONCE = 8
"""Tokens of a forward in the second reading: about a draft that is verified."""
QUICK = 32
"""Tokens of a forward where a text is read but once, in haste."""
MAX_TOKENS = 1_000_000
"""Tokens of all texts that one child reads: its answer is bounded."""
_LOADING_S = 120.0
"""Loading a draft may take so long, beside reading."""
_WIDEST = 1e3
"""Gaps are cut here: a token that the draft cannot say has none."""
_RESULT = "profiles.json"


class Passage(Record):
    """A text and what came before it."""

    prompt_id: str
    prompt: Annotated[tuple[int, ...], Field(min_length=1)]
    """Token ids, the template's included."""
    text: tuple[int, ...]
    """Token ids generated after it."""


class _ProfileJob(Record):
    draft: str
    draft_sha256: str
    settings: EngineSettings
    threads: int
    passages: tuple[Passage, ...]
    drafts_ends: bool
    vocabulary: int | None
    gamma: int
    p_min: float
    limit_s: float
    quick: bool


class _Made(Record):
    profiles: tuple[MatchProfile, ...]


def profile_texts(
    draft: ModelIdentity,
    settings: EngineSettings,
    passages: Sequence[Passage],
    *,
    drafts_ends: bool,
    vocabulary: int | None = None,
    gamma: int = 0,
    p_min: float = 0.0,
    limit_s: float = 60.0,
    quick: bool = False,
    heard: Heard | None = None,
) -> list[MatchProfile]:
    """Profiles of `passages` in their order: all of them, or as many as `limit_s` seconds (without loading) allow.

    `settings` are those of the arm that drafts. `vocabulary` is the size of the target's: no token beyond it is
    drafted. With `p_min`, the draft's own way is followed behind each wrong token, for drafts of up to `gamma`.
    `quick`: texts are read but once, many tokens at a time, where that is possible; it takes a fraction of the time,
    nearly tied tokens may fall the other way, and how near is not said (`sway` 0). Such profiles are not to be kept.
    `heard` receives the number of passages done. Raises `EngineError` when llama.cpp cannot run the draft.
    """
    from specmeter.engines.process import default_threads, read_result, run_in_subprocess

    order = _ProfileJob(
        draft=draft.path,
        draft_sha256=draft.sha256,
        settings=settings,
        threads=settings.threads or default_threads(),
        passages=tuple(_bounded(passages)),
        drafts_ends=drafts_ends,
        vocabulary=vocabulary,
        gamma=gamma,
        p_min=p_min,
        limit_s=limit_s,
        quick=quick,
    )
    with tempfile.TemporaryDirectory(prefix="specmeter-") as name:
        run_in_subprocess(__name__, order, Path(name), heard, limit_s=limit_s + _LOADING_S)
        return list(_Made.model_validate_json(read_result(Path(name) / _RESULT)).profiles)


def _bounded(passages: Sequence[Passage]) -> Iterator[Passage]:
    tokens = 0
    for passage in passages:
        tokens += len(passage.text)
        if tokens > MAX_TOKENS:
            return
        yield passage


# --- in the child ----------------------------------------------------------------------------------------------------


class _DraftGuess(NamedTuple):
    """What the draft says at one place."""

    best: int
    confidence: float
    lead: float
    """Logit of the text's token less that of the best other one."""


_Branches = dict[int, tuple[float, ...]]


class _OutOfTimeError(Exception):
    """The limit has come."""


class _Reader:
    """One draft model over one text after the other, for as long as the order allows."""

    def __init__(self, context: Context, order: _ProfileJob) -> None:
        self._context = context
        self._order = order
        self._ends_at = time.monotonic() + order.limit_s
        model = context.model
        self._shared = min(order.vocabulary or model.vocabulary_size, model.vocabulary_size)
        ends = model.end_tokens
        self._ends = ends[ends < self._shared] if not order.drafts_ends else ends[:0]

    def read(self, passage: Passage, made_by: str) -> MatchProfile:
        """The profile of one text. Raises `EngineError`, and `_OutOfTimeError`."""
        context, text, order = self._context, passage.text, self._order
        quick = order.quick and context.can_cut
        looks, branches = self._in_haste(passage) if quick else self._one_by_one(passage)
        again = looks if quick else self._at_once(passage, AT_ONCE)
        moved = (abs(_cut(one.lead) - _cut(two.lead)) for one, two in zip(looks, again, strict=True))
        return MatchProfile(
            prompt_id=passage.prompt_id,
            prompt_digest=digest(passage.prompt),
            text_digest=digest(text),
            draft_sha256=order.draft_sha256,
            kv_type_k=order.settings.draft_kv_type_k,
            kv_type_v=order.settings.draft_kv_type_v,
            drafts_ends=order.drafts_ends,
            made_by=made_by,
            matches="".join("1" if it.best == token else "0" for it, token in zip(looks, text, strict=True)),
            gaps=tuple(round(abs(_cut(it.lead)), 4) for it in looks),
            confidences=tuple(round(it.confidence, 6) for it in looks),
            branches=branches,
            sway=round(max(moved, default=0.0), 4),
        )

    def _one_by_one(self, passage: Passage) -> tuple[list[_DraftGuess], _Branches]:
        """What the draft says at every place, and behind its own wrong tokens, as it does while drafting."""
        context, text = self._context, passage.text
        looks: list[_DraftGuess] = []
        branches: _Branches = {}
        context.cut(0)
        row = context.extend(passage.prompt)[0]
        for place, token in enumerate(text):
            self._hurry()
            if place:
                row = context.decode((text[place - 1],))[0]
            look = self._look(row, token)
            looks.append(look)
            if self._order.p_min > 0 and place and look.best != token:
                branches[place] = self._branch(look)
        return looks, branches

    def _in_haste(self, passage: Passage) -> tuple[list[_DraftGuess], _Branches]:
        """The same from forwards over many tokens; branches from the last place to the first, so that the text before
        each is still in the memory."""
        looks = self._at_once(passage, QUICK)
        branches: _Branches = {}
        for place in range(len(looks) - 1, 0, -1) if self._order.p_min > 0 else ():
            if looks[place].best != passage.text[place]:
                self._hurry()
                self._context.cut(len(passage.prompt) + place)
                branches[place] = self._branch(looks[place])
        return looks, branches

    def _hurry(self) -> None:
        if time.monotonic() > self._ends_at:
            raise _OutOfTimeError

    def _look(self, row: Logits, token: int) -> _DraftGuess:
        row = row[: self._shared]
        from specmeter.llama_binding.sampling import confidence

        row[self._ends] = -np.inf
        best, sure = confidence(row)
        return _DraftGuess(best, min(1.0, sure), self._lead(row, token))

    def _lead(self, row: Logits, token: int) -> float:
        if not 0 <= token < len(row):
            return -np.inf
        own, row[token] = float(row[token]), -np.inf
        other = float(row.max())
        row[token] = own
        return own - other

    def _branch(self, look: _DraftGuess) -> tuple[float, ...]:
        """Confidences of what the draft says after its own token, until it is unsure or a draft is full; then the text
        continues as if it had not been asked."""
        context, order = self._context, self._order
        length, path = context.length, list[float]()
        checkpoint = None if context.can_cut else context.save()
        best, sure = look.best, look.confidence
        while sure >= order.p_min and len(path) < order.gamma - 1 and context.length < context.capacity:
            row = context.decode((best,))[0][: self._shared]
            best, sure, _ = self._look(row, best)
            path.append(round(sure, 6))
        if checkpoint is None:
            context.cut(length)
        elif context.length > length:
            context.restore(checkpoint)
        return tuple(path)

    def _at_once(self, passage: Passage, most: int) -> list[_DraftGuess]:
        """What the draft says at every place where it reads many of the text's tokens at once."""
        context, text = self._context, passage.text
        if not text:
            return []
        context.cut(0)
        looks = [self._look(context.extend(passage.prompt)[0], text[0])]
        for start in range(0, len(text) - 1, size := min(most, context.batch_size)):
            if self._order.quick:
                self._hurry()
            rows = context.decode(text[start : min(start + size, len(text) - 1)], "all")
            looks += [self._look(row, token) for row, token in zip(rows, text[start + 1 :], strict=False)]
        return looks


def _cut(lead: float) -> float:
    return max(-_WIDEST, min(_WIDEST, lead))


def _carry_out(given: str, folder: Path, heard: Heard) -> None:
    from specmeter.llama_binding import capi
    from specmeter.llama_binding.context import Context
    from specmeter.llama_binding.model import Model

    order = _ProfileJob.model_validate_json(given)
    made: list[MatchProfile] = []
    made_by = f"llama.cpp {capi.library().version}"
    with (
        Model(Path(order.draft)) as model,
        Context(
            model, order.settings, threads=order.threads, draft=True, rows=QUICK if order.quick else AT_ONCE
        ) as context,
    ):
        reader = _Reader(context, order)
        with contextlib.suppress(_OutOfTimeError):
            for passage in order.passages:
                made.append(reader.read(passage, made_by))
                heard(len(made), len(order.passages))
    (folder / _RESULT).write_text(_Made(profiles=tuple(made)).model_dump_json(), encoding="utf-8")


# --- profiles of a run's texts ---------------------------------------------------------------------------------------

SHARE = 0.1
"""Of the time that the run took."""
MIN_S = 10.0
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
    missing, reasons = 0, list[Message]()
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
            reasons.append(Message("profile.failed", draft=reading.draft.name, error=error.message[:_LONGEST_REASON]))
            continue
        store.add_profiles(profiles)
        if left := len(reading.passages) - len(profiles):
            missing += left
            reasons.append(Message("profile.too_long", share=share))
    if readings:
        reason = Message("profile.reasons", reasons=tuple(dict.fromkeys(reasons))) if reasons else None
        store.set_profiled(Profiled(missing=missing, reason=reason))


def allowed_s(store: RunStore, share: float) -> float:
    """How long reading may take afterwards: `share` of the time that sessions took, pauses of the run left out."""
    return max(MIN_S, share * sum(it.ended_at - it.started_at for it in store.sessions() if it.ended_at is not None))


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
    for request in store.requests():
        if request.arm_id not in arms or request.reply is None:
            continue
        arm, text = arms[request.arm_id], request.reply.token_ids
        prompt = prompts.get((arm.target, request.prompt_id))
        if not prompt or not text or UNKNOWN_TOKEN in text:
            continue
        draft = work.models[arm.draft or ""]
        key = wanted_key(digest(prompt), digest(text), arm, draft, traits=traits, generation=generation)
        values = parameters(arm, resolved.get(arm.id, {}))["draft-simple"]
        reading = readings.setdefault(key[2:], _Reading(draft, arm.engine))
        reading.needs(values["n_max"], values["p_min"])
        reading.passages.setdefault(key, Passage(prompt_id=request.prompt_id, prompt=prompt, text=text))
    for reading in readings.values():
        enough = [key for key in reading.passages if key in known and _is_enough(known[key], reading)]
        for key in enough:
            del reading.passages[key]
        yield reading


def _is_enough(profile: MatchProfile, reading: _Reading) -> bool:
    """Whether a profile that is there serves: with a `p_min`, it has to know what comes behind wrong tokens."""
    return not reading.p_min or bool(profile.branches) or "0" not in profile.matches[1:]


if __name__ == "__main__":
    from specmeter.engines.process import serve

    sys.exit(serve(_carry_out))
