"""Checks of counts and times that an engine reports: that they add up, and mean what they are called.

Counting and arithmetic on numbers of one reply; only where two clocks are held against each other does it matter how
busy the machine was.

What was counted, held against a replay of the very text that came out: no tolerance but for near ties of the draft.

A draft that takes its best tokens is a function of the text before it. So the text that a request generated, the draft
model and gamma say how many tokens every step drafted and how many of them were accepted (`specmeter.probe.profile`).
Where a counter says otherwise, it is wrong, or another draft model wrote, or it read another prompt.

The draft itself may decide otherwise where its two best tokens are nearly tied: its memory was computed in forwards of
other sizes. How far its gaps move by that, each profile has measured (`sway`). Counts that no decision of near ties
explains are false.

What cannot be replayed (no profile in the time that there is, a method that keeps tables) makes no arm
suspect: the laws of counting are other checks, and hold without it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from statistics import median, median_low
from typing import TYPE_CHECKING, Literal, NamedTuple

from specmeter.messages import Message
from specmeter.probe.profile import digest
from specmeter.probe.replay import (
    Limits,
    Round,
    UnreplayableError,
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
    SHARED,
    Check,
    Law,
    answered,
    not_applicable,
    of_arm,
    of_request,
    unseen,
    used_sessions,
)
from specmeter.validity.checks.load import cells_conserve
from specmeter.validity.checks.output import NEAR_TIE, WIDEST_NEAR_TIE
from specmeter.validity.checks.run_data import RequestData, RunData

if TYPE_CHECKING:
    from collections.abc import Callable

    from specmeter.probe.replay import Drafts
    from specmeter.record import MatchProfile


SAME_RATE = 0.002
"""Printed rates are rounded, and so may the times be that they are compared with."""
SLACK_MS = 20.0
"""Engine and client read different clocks."""
OWN_WORK = 0.05
"""Share of the decode time that what is measured with may add: streaming and step lines were seen to take up to 4.2 %
from plain decoding and 1.7 % from speculation, where no core was free for it."""
LUMP_MS = 100.0
"""A wait below this may be one for a processor: the instrumented engine's clients waited 25 to 60 ms on a machine with
twice as much work as processors."""


def conservation(data: RunData) -> Findings:
    """`predicted_n - 1 = accepted + F`: each successful forward emits one token and the drafts it accepts.

    Under load the same of whole cells, and of the forwards of all slots; and of each request whose steps are on record.

    Assumes: each successful forward emits one token and the drafts it accepts, and a prompt takes one forward per
    batch: counting. Tokens cut off at a stop and replays after a restore are allowed for.
    Otherwise: no method that can be run emits otherwise; an engine that counts something else under this name
    cannot be checked, nor its tau be known.
    """
    for arm, requests in answered(data):
        if arm.load is not None:
            yield from cells_conserve(data, arm, requests)
            continue
        law = Law(arm, used_sessions(data, requests), requests)
        uncounted = 0
        for request in requests:
            gap = law.gap(request)
            if gap is None:
                uncounted += 1
            elif gap[0] > 0 or gap[1] < -law.idle_forwards(request):
                yield _does_not_close(request, law, gap)
        if uncounted:
            yield unseen(arm.id, Message("unchecked.no_forwards", uncounted=uncounted, requests=len(requests)))


def _does_not_close(request: RequestData, law: Law, gap: tuple[int, int]) -> Finding:
    row = request.row
    decoded, accepted = (row.predicted_n or 1) - 1, row.draft_n_accepted or 0
    forwards = round(request.decodes or 0)
    fewest, most = law.prompt_forwards(request)
    return of_request(
        "invalid",
        request,
        Message(
            "conservation.extra" if gap[0] > 0 else "conservation.idle",
            at_least=gap[0] if gap[0] > 0 else -gap[1],
            decoded=decoded,
            accepted=accepted,
            forwards=forwards,
            prompt_forwards=fewest if fewest == most else Message("check.range", low=fewest, high=most),
        ),
        Message("conservation.fix_extra" if gap[0] > 0 else "conservation.fix_idle"),
        prompt_forwards=fewest,
        prompt_forwards_at_most=most,
        unexplained=gap[0] if gap[0] > 0 else gap[1],
    )


def counters_absurd(data: RunData) -> Findings:
    """Counts and times that contradict each other by themselves.

    Assumes: no more can be accepted than drafted, generated than asked for, or accepted than generated: counting.
    What an engine did during a request took no longer than the request.
    Otherwise: 2 % and 20 ms are left to the two clocks. Noise only makes a request longer; where one clock went on
    while the machine slept, the engine's time is not that of decoding either.
    """
    limit = data.experiment.generation.max_tokens
    limits = {name: prompt.max_tokens for name, prompt in data.prompts.items() if prompt.max_tokens is not None}
    for arm, requests in answered(data):
        for request in requests:
            what = _absurd(arm, request, limits.get(request.row.prompt_id, limit))
            if what is not None:
                row = request.row
                yield of_request(
                    "invalid",
                    request,
                    what,
                    predicted_n=row.predicted_n,
                    draft_n=row.draft_n,
                    draft_n_accepted=row.draft_n_accepted,
                    prompt_ms=row.prompt_ms,
                    predicted_ms=row.predicted_ms,
                    wall_ms=row.wall_ms,
                )


def _absurd(arm: Arm, request: RequestData, limit: int) -> Message | None:
    row = request.row
    drafted, accepted, predicted = row.draft_n or 0, row.draft_n_accepted or 0, row.predicted_n or 0
    spent, wall = (row.prompt_ms or 0.0) + (row.predicted_ms or 0.0), row.wall_ms or 0.0
    if accepted > drafted:
        return Message("counters-absurd.accepted", draft_n_accepted=accepted, draft_n=drafted)
    if accepted and accepted >= predicted:
        return Message("counters-absurd.generated", draft_n_accepted=accepted, predicted_n=predicted)
    if drafted and not arm.speculates:
        return Message("counters-absurd.plain", draft_n=drafted)
    if predicted > limit:
        return Message("counters-absurd.limit", predicted_n=predicted, limit=limit)
    if spent > wall * 1.02 + SLACK_MS:
        return Message("counters-absurd.time", engine_ms=spent, wall_ms=wall)
    return None


def window_mismatch(data: RunData) -> Findings:
    """A rate is computed over another window: with load or prompt time, or with tokens that the time does not cover.

    specmeter computes every rate from counts and times by one rule, so the engine's own rate is only a witness. It
    should be (n - 1) / ms; older builds print n / ms. Where an engine prints one of these for some requests and
    something else for others, count, time or rate of the latter are not what they are called: that is `invalid`. An
    engine that never prints either may have a window of its own, and be right about counts and times: `suspect`.

    Assumes: an engine that prints (n - 1) / ms or n / ms of its own counts and times does so for every request:
    arithmetic on three numbers of one reply, as far as they are rounded.
    Otherwise: an engine that never prints either has a window of its own, and may be right about counts and times:
    suspect.
    """
    usual = any(_window(request) is not None for requests in data.by_arm.values() for request in requests)
    for arm, requests in answered(data):
        older = looked = 0
        for request in requests:
            said, rate = request.printed_rate, _rate(request)
            if said is None or rate is None:
                continue
            looked += 1
            window = _window(request)
            if window is None:
                yield _other_window(request, said, rate, "invalid" if usual else "suspect")
            older += window == "older"
        if not looked:
            yield not_applicable(arm.id, Message("unchecked.no_printed_rate"))
        elif older:
            yield of_arm(
                "note", arm.id, Message("window-mismatch.older", requests=older), Message("window-mismatch.fix_older")
            )


def _rate(request: RequestData) -> float | None:
    """Tokens after the first per second of decoding; None where nothing was decoded."""
    decoded, ms = (request.row.predicted_n or 0) - 1, request.row.predicted_ms
    return 1000 * decoded / ms if decoded > 0 and ms else None


def _window(request: RequestData) -> Literal["usual", "older"] | None:
    """Which of the two windows the engine's own rate is over; None for neither, and where it prints none."""
    said, rate = request.printed_rate, _rate(request)
    if said is None or rate is None:
        return None
    decoded = (request.row.predicted_n or 0) - 1
    off, off_older = abs(said - rate), abs(said - rate * (decoded + 1) / decoded)
    if min(off, off_older) > SAME_RATE * rate:
        return None
    return "older" if off_older < off and off > 1e-5 * rate else "usual"


def _other_window(request: RequestData, said: float, rate: float, severity: Severity) -> Finding:
    row = request.row
    return of_request(
        severity,
        request,
        Message(
            "window-mismatch.found",
            printed_tok_s=said,
            predicted_n=row.predicted_n,
            predicted_ms=row.predicted_ms,
            computed_tok_s=rate,
        ),
    )


def clock_differs(data: RunData) -> Findings:
    """The engine's clock leaves out time that its client saw pass: every rate made from it would be too high.

    From the first token to the end of the answer the client waits as long as the engine decodes. On a machine with four
    times as much work as processors a server's waited 4 ms longer at most, in 400 requests. Where tokens were not sent
    one by one, it can only tell of the whole request, and then time spent waiting for others looks the same. The
    (lower) median of an arm is taken, so that single hiccups do not count. A client that gets no processor waits just
    as long, so this is never more than `suspect`.

    Assumes: from the first token to the end the client waits as long as the engine decodes, 5 % and 20 ms apart.
    Otherwise: a client that gets no processor, and other clients of the server, look the same: suspect at most.
    """
    for arm, requests in answered(data):
        rows = [request.row for request in requests if (request.row.predicted_n or 0) > 1]
        if not rows:
            yield not_applicable(arm.id, Message("unchecked.nothing_decoded"))
            continue
        times = [(row.wall_ms, row.ttft_ms, row.prompt_ms or 0.0, row.predicted_ms) for row in rows]
        streamed = all(first is not None for _, first, _, _ in times)
        if arm.load is not None and not streamed:
            yield not_applicable(arm.id, SHARED)
            continue
        known = [
            (ms, wall - ms - (first if streamed and first is not None else prompt))
            for wall, first, prompt, ms in times
            if wall is not None and ms is not None
        ]
        if not known:
            yield unseen(arm.id, Message("unchecked.no_times"))
            continue
        usual, left_out = median(ms for ms, _ in known), median_low([left for _, left in known])
        if left_out > SLACK_MS + OWN_WORK * usual:
            single, sure = len(known) == 1, streamed and len(known) > 1 and left_out > LUMP_MS
            if not streamed:
                fix = Message("clock-differs.fix_unstreamed")
            elif not sure:
                fix = Message("clock-differs.fix_busy")
            else:
                fix = Message("clock-differs.fix")
            yield of_arm(
                "suspect",
                arm.id,
                Message(
                    "clock-differs.once" if single else "clock-differs.found", predicted_ms=usual, left_out_ms=left_out
                ),
                fix,
                requests=len(known),
                streamed=streamed,
            )


CHECKS: tuple[Check, ...] = (
    Check(
        "conservation",
        "invalid",
        conservation,
        saw=("requests", "replies", "sessions", "arms", "load-cells"),
        needs=("drafts", "forwards"),
    ),
    Check("counters-absurd", "invalid", counters_absurd, saw=("requests", "arms", "prompts", "experiment")),
    Check("window-mismatch", "invalid", window_mismatch, saw=("requests", "replies")),
    Check("clock-differs", "suspect", clock_differs, saw=("requests", "arms")),
)


SWAY = 2.0
"""How many times the largest movement of a gap that was seen still counts as a near tie."""
LEAST_NEAR_TIE = 0.02
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
        return min(self.widest, max(LEAST_NEAR_TIE if self.pinned else NEAR_TIE, SWAY * self.sway))

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

    Assumes: counting and identity: after the same text the named draft drafts the same tokens, unless two of them
    lie within 0.3 nats, or four times what the shape of a batch was seen to move.
    Otherwise: an engine that is not the llama.cpp of this package may draft by another rule or with another
    arithmetic: suspect at most there; what cannot be replayed is named, and makes nothing suspect.
    """
    replays = _Replays(data)
    plain = {
        (arm.target, request.row.prompt_id, request.output)
        for arm, requests in answered(data)
        if not arm.speculates
        for request in requests
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

    At a run's end drafts read all texts, or it says what they did not; before, only those of plain decoding that a
    prediction was replayed on. Where verifying rounds otherwise than plain decoding, as on GPUs, an arm has others.
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


REPLAY_CHECKS = (
    Check(
        "replay-differs",
        "invalid",
        replay_differs,
        saw=("requests", "replies", "sessions", "prompts", "prompt-tokens", "profiles", "profiled", "models", "arms"),
    ),
)
