"""Checks counts against a replay of the text that came out, with no tolerance but for near ties of the draft.

The text that a request generated, the draft model and gamma say how many tokens every step drafted and how many of them
were accepted (`specmeter.probe.profile`). If a counter says otherwise, it is wrong, or another draft model wrote, or it
read another prompt. docs/explanation/prediction.md says what a near tie may change. An arm that cannot be replayed is
not suspect for that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from specmeter.messages import Message
from specmeter.probe.replay import (
    Limits,
    Round,
    UnreplayableError,
    digest,
    drafts_of,
    first_impossible,
    limits_of,
    possible_totals,
    replay,
    says_what_is_in_force,
    wanted_key,
    why_not,
)
from specmeter.record import Arm, Finding, Severity
from specmeter.record.verdict import Findings
from specmeter.validity.checks.check import (
    Check,
    answered,
    not_applicable,
    of_arm,
    of_request,
)
from specmeter.validity.checks.output import NEAR_TIE, WIDEST_NEAR_TIE
from specmeter.validity.checks.request_data import RequestData
from specmeter.validity.checks.run_data import RunData

if TYPE_CHECKING:
    from collections.abc import Callable

    from specmeter.probe.replay import Drafts
    from specmeter.record import MatchProfile


SWAY = 2.0
"""How many times the largest movement of a gap that was seen still counts as a near tie."""
MIN_NEAR_TIE = 0.02
"""Smaller gaps are near ties whatever was seen: it was seen along a few texts."""
_UNREAD = Message("unchecked.text_unread")


@dataclass(frozen=True)
class _Case:
    """One request, and what its arm drafts along its text by what near tie."""

    request: RequestData
    drafts: Callable[[float], Drafts]
    limits: Limits
    sway: float
    """The most that a gap of its draft moved."""
    pinned: bool
    """The engine is the llama.cpp that the replay was written for; a native build may draft by another rule, or on a
    device with another arithmetic."""

    @property
    def near_tie(self) -> float:
        """Gap up to which the draft may well have decided otherwise."""
        return min(self.widest, max(MIN_NEAR_TIE if self.pinned else NEAR_TIE, SWAY * self.sway))

    @property
    def widest(self) -> float:
        """Gap beyond which no arithmetic is an excuse."""
        return min(WIDEST_NEAR_TIE, max(NEAR_TIE, 2 * SWAY * self.sway))


class _Contradiction(NamedTuple):
    step: int | None
    """The first that cannot have been; None where only totals are on record."""
    expected: tuple[Round, ...]
    """The replay without near ties, as far as it is known."""


def replay_differs(data: RunData) -> Findings:
    """Counters of a request, and each of its steps, are those that a replay of its text gives.

    Assumes: after the same text the draft model drafts the same tokens, unless two are within 0.3 nats, or within four
    times the observed effect of the batch shape.
    Otherwise: another engine may draft by another rule or arithmetic: suspect at most; what cannot be replayed is
    listed and does not count.
    """
    replays = _Replays(data)
    plain = {
        (arm.target, prompt_id, output)
        for arm, requests in answered(data)
        if not arm.speculates
        for prompt_id, output in requests.distinct("prompt_id", "output")[0]
    }
    for arm, requests in answered(data):
        reason = why_not(arm, traits=replays.traits, generation=replays.generation)
        if reason is not None:
            yield not_applicable(arm.id, Message("unchecked.not_replayable", reason=reason))
            continue
        missing = Counter[Message | str]()
        due = 0
        explained: set[tuple[object, ...]] = set()
        """What was counted, with the text: greedy answers repeat from block to block."""
        for request in requests:
            same = replays.what_counts(request)
            if same in explained:
                continue
            case = replays.case(arm, request)
            if case == _UNREAD and _must_be_read(
                data, arm, (arm.target, request.row.prompt_id, request.output) in plain
            ):
                due += 1
                continue
            if isinstance(case, Message):
                missing[case] += 1
                continue
            try:
                finding = _judge(arm, case)
            except UnreplayableError as error:
                missing[error.message] += 1
                continue
            if finding is None:
                explained.add(same)
            else:
                yield finding
        if due:
            yield _unread(arm, due)
        yield from _gaps(data, arm, missing, len(requests))


def _must_be_read(data: RunData, arm: Arm, is_plain: bool) -> bool:
    """Whether the draft read a text of this arm, if the run says true.

    At a run's end drafts read all texts, or it says what they did not; before, only those of decoding without
    speculation that a prediction was replayed on. Where verifying rounds otherwise than no speculation, as on GPUs, an
    arm has others.
    """
    if data.profiled is not None:
        return not data.profiled.missing
    predicted = [it.acceptance.code for it in data.predictions if it.arm_id == arm.id and it.acceptance is not None]
    return is_plain and "rates.replayed" in predicted


def _gaps(data: RunData, arm: Arm, missing: Counter[Message | str], requests: int) -> Findings:
    """What could not be replayed."""
    for why, count in missing.items():
        known = data.profiled if why == _UNREAD else None
        because = Message("unchecked.because", reason=known.reason) if known is not None else ""
        yield not_applicable(
            arm.id,
            Message("unchecked.some_not_replayable", count=count, requests=requests, why=why, because=because),
        )


class _Replays:
    """What a run's requests are to be held against."""

    def __init__(self, data: RunData) -> None:
        self._data = data
        self.traits, self.generation = data.traits, data.experiment.generation
        self._digests = {key: digest(ids) for key, ids in data.prompt_tokens.items()}
        self._sway: dict[str, float] = {}
        for key, profile in data.profiles.items():
            self._sway[key.draft_sha256] = max(self._sway.get(key.draft_sha256, 0.0), profile.sway)

    def what_counts(self, request: RequestData) -> tuple[object, ...]:
        """Equal for requests of an arm that are judged alike."""
        row, session = request.row, self._data.sessions.get(request.row.session_id)
        said = session.resolved if session is not None else {}
        settings = repr([said.get(name) for name in ("method_parameters", "n_batch", "n_ctx", "n_ctx_seq")])
        counted = (row.draft_n, row.draft_n_accepted, row.step_n, row.prompt_n, row.cache_n, row.predicted_n)
        return (row.prompt_id, request.output, request.packed_steps, request.restores_at_one_place, counted, settings)

    def case(self, arm: Arm, request: RequestData) -> _Case | Message:
        """What is to be replayed, or why it cannot be."""
        data, row = self._data, request.row
        prompt = data.prompt_tokens.get((arm.target, row.prompt_id))
        if prompt is None:
            return Message("unchecked.no_prompt_tokens")
        if not request.output or not request.known:
            return Message("unchecked.token_ids_missing")
        if request.restores_at_one_place > 1:
            return Message("unchecked.rejected_again")
        if row.prompt_n is not None and row.prompt_n + (row.cache_n or 0) != len(prompt):
            return Message("unchecked.other_prompt_length")
        session = data.sessions.get(row.session_id)
        resolved = session.resolved if session is not None else {}
        if not says_what_is_in_force(arm, resolved):
            return Message("unchecked.draft_length_unknown")
        header = data.header(arm.target)
        recurrent = header is not None and header.recurrent
        if recurrent and resolved.get("n_rs_seq"):
            return Message("unchecked.drops_and_replays")
        profile: MatchProfile | None = None
        if "draft-simple" in arm.methods:
            draft = data.models.get(arm.draft or "")
            if draft is None:
                return Message("unchecked.no_draft_model")
            of_prompt, of_text = self._digests[arm.target, row.prompt_id], request.output.hex()
            key = wanted_key(of_prompt, of_text, arm, draft, traits=self.traits, generation=self.generation)
            profile = data.profiles.get(key)
            if profile is None:
                return _UNREAD
        text = data.texts.get(request.output, ())

        def drafts(near_tie: float) -> Drafts:
            return drafts_of(
                arm, resolved, traits=self.traits, profile=profile, prompt=prompt, text=text, near_tie=near_tie
            )

        asked = data.prompts[row.prompt_id].max_tokens if row.prompt_id in data.prompts else None
        limits = limits_of(
            resolved,
            traits=self.traits,
            max_tokens=asked or self.generation.max_tokens,
            prompt_tokens=len(prompt),
            recurrent=recurrent,
        )
        sway = 0.0 if profile is None else self._sway.get(profile.draft_sha256, profile.sway)
        return _Case(request, drafts, limits, sway, self.traits.pinned)


def _judge(arm: Arm, case: _Case) -> Finding | None:
    """A finding where no near tie explains what was counted: `invalid` where none could."""
    contradiction = _contradiction(case, case.near_tie)
    if contradiction is None:
        return None
    certain = case.pinned and _contradiction(case, case.widest) is not None
    severity: Severity = "invalid" if certain else "suspect"
    row, rounds = case.request.row, case.request.rounds
    expected = contradiction.expected
    totals = (sum(it.drafted for it in expected), sum(it.accepted for it in expected))
    step = contradiction.step
    seen = rounds[step] if step is not None and step < len(rounds) else None
    where = (
        "" if seen is None else Message("replay-differs.step", step=step, accepted=seen.accepted, drafted=seen.drafted)
    )
    return of_request(
        severity,
        case.request,
        Message(
            "replay-differs.found",
            accepted=row.draft_n_accepted or 0,
            drafted=row.draft_n or 0,
            draft=arm.draft or Message("replay-differs.lookup"),
            replayed_accepted=totals[1],
            replayed_drafted=totals[0],
            where=where,
        ),
        drafted=row.draft_n,
        accepted=row.draft_n_accepted,
        step=step,
        near_tie=case.near_tie,
    )


def _unread(arm: Arm, count: int) -> Finding:
    return of_arm(
        "suspect",
        arm.id,
        Message("replay-differs.unread", texts=count, draft=arm.draft),
        Message("replay-differs.fix_unread"),
    )


def _contradiction(case: _Case, near_tie: float) -> _Contradiction | None:
    drafts, request = case.drafts(near_tie), case.request
    counted = (request.row.draft_n or 0, request.row.draft_n_accepted or 0)
    steps = request.rounds
    in_steps = (sum(it.drafted for it in steps), sum(it.accepted for it in steps))
    wrong = first_impossible(drafts, case.limits, steps) if steps else None
    # A log may end early: then its steps are right as far as they go, and the counters have to be so by themselves.
    cut_off = not steps or (wrong == len(steps) and in_steps <= counted)
    if counted in possible_totals(drafts, case.limits) if cut_off else wrong is None and counted == in_steps:
        return None
    return _Contradiction(wrong if steps else None, _expected(case))


def _expected(case: _Case) -> tuple[Round, ...]:
    try:
        return replay(case.drafts(0.0), replace(case.limits, counts_beyond=False))
    except UnreplayableError:
        return ()


def exact(data: RunData) -> Iterator[tuple[RequestData, tuple[Round, ...]]]:
    """Each request that has a replay, with the steps that it gives when no near tie is allowed for."""
    replays = _Replays(data)
    for arm, requests in answered(data):
        if why_not(arm, traits=replays.traits, generation=replays.generation) is None:
            for request in requests:
                case = replays.case(arm, request)
                if isinstance(case, _Case):
                    yield request, _expected(case)


CHECKS = (
    Check(
        "replay-differs",
        "invalid",
        replay_differs,
        saw=("requests", "replies", "sessions", "prompts", "prompt-tokens", "profiles", "profiled", "models", "arms"),
    ),
)
