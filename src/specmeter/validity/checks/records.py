"""Whether a run says one thing of a request wherever it says it.

Every request is on record several times over: columns of its own, the engine's answer as it was printed, its token
ids, arrival times and steps, the prompt's text and its hash, how it was sent under a load, and the lines of a log. All
were written by one program from one answer, so they agree to the digit, or something was changed.

Whether the times that a run stores can have been those of one run.

Three clocks tell of a request: the engine's (times of prompt and decoding, steps), the client's (duration, arrivals),
and the time of day (when requests, sessions and samples of the machine began). Clocks are set, processes wait for a
processor, machines sleep; so all that is found here is a doubt, and a single deviation is a note.

Whether single requests were held up: what an interval over a few blocks cannot know.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from statistics import median_low
from typing import NamedTuple

from specmeter.messages import Message
from specmeter.numbers.margin import MARGIN
from specmeter.record import Session
from specmeter.record.verdict import Findings
from specmeter.store import RequestRow
from specmeter.validity.checks.bounds import SLACK_MS, TOLERANCE
from specmeter.validity.checks.check import (
    SHARED,
    Check,
    answered,
    not_applicable,
    of_arm,
    of_request,
    of_run,
    unseen,
    used_sessions,
)
from specmeter.validity.checks.run_data import Printed, RequestData, RunData

# --- records-differ --------------------------------------------------------------------------------------------------


def records_differ(data: RunData) -> Findings:
    """Counts, times or texts of which the run holds two, and not the same.

    Exact, except that the time of the first token is compared to a thousandth of a ms.

    Assumes: specmeter stores one answer in all of these places, unchanged: identity.
    Otherwise: nothing but a change of the stored data makes them differ.
    """
    for prompt in data.prompts.values():
        if prompt.digest() != prompt.sha256:
            yield of_run("invalid", Message("records-differ.prompt", prompt=prompt.id))
    yield from _cells_differ(data)
    for _, requests in answered(data):
        for request in requests:
            if (problem := _problem(data, request)) is not None:
                yield of_request("invalid", request, problem)


def _cells_differ(data: RunData) -> Findings:
    """Cells under load that are not what their requests say, and requests of which nothing says how they were sent."""
    sent = {it.figures.session_id: it.figures.requests + it.figures.failed for it in data.cells}
    unsent = Counter(it.row.arm_id for it in data.requests if it.row.session_id in data.load_cells)
    for it in data.cells:
        unsent[it.figures.arm_id] -= sent[it.figures.session_id]
        if it.contradiction is not None:
            severity, what = it.contradiction
            message = Message("records-differ.cell", what=what, block=it.figures.block)
            yield of_arm(severity, it.figures.arm_id, message)
    for arm_id, count in unsent.items():
        if count > 0:
            what = Message("records-differ.unsent", requests=count)
            yield of_arm("invalid", arm_id, what)


def _problem(data: RunData, request: RequestData) -> Message | None:
    row, arrivals, steps = request.row, request.arrivals, request.steps
    prompt = data.prompts.get(row.prompt_id)
    if prompt is None:
        return Message("records-differ.no_prompt")
    if prompt.sha256 != row.prompt_sha256:
        return Message("records-differ.other_text")
    if row.session_id not in data.sessions:
        return Message("records-differ.no_session")
    # Where a block was measured again, its requests are asked anew: each time counts its attempts from 1.
    asked, anew = data.attempts.get(row.key, 1), row.key in data.replaced
    if row.attempt > asked or (row.attempt < asked and not anew):
        return Message("records-differ.attempt", attempt=row.attempt, asked=asked)
    if request.otherwise:
        name = request.otherwise
        return Message("records-differ.printed", name=name, value=getattr(row, name))
    if request.tokens and request.tokens != row.predicted_n:
        return Message("records-differ.tokens", tokens=request.tokens, predicted_n=row.predicted_n)
    if steps is not None and steps.number != row.step_n:
        return Message("records-differ.steps", steps=steps.number, step_n=row.step_n)
    if arrivals is None:
        return None
    if steps is None and row.step_n:
        return Message("records-differ.no_steps", step_n=row.step_n)
    if arrivals.tokens != row.predicted_n:
        return Message("records-differ.arrivals", arrivals=arrivals.tokens, predicted_n=row.predicted_n)
    if not arrivals.in_order:
        return Message("records-differ.disorder")
    if row.ttft_ms is not None and abs(arrivals.first_ms - row.ttft_ms) > 1e-3:
        return Message("records-differ.first_token", first_ms=arrivals.first_ms, ttft_ms=row.ttft_ms)
    return None


# --- steps-differ ----------------------------------------------------------------------------------------------------


def steps_differ(data: RunData) -> Findings:
    """Steps that do not add up to the drafted and accepted tokens of their requests, or texts to their tokens.

    A server's steps come from its log, where lines may be missing; of an instrumented engine they are what is counted.
    The same tokens are the same text, up to a last character that was cut off.

    Assumes: every step of a request was read from the engine's log, and tokens become text in one way.
    Otherwise: a log whose lines are lost or unknown makes an arm suspect whose counters are right.
    """
    for arm, requests in answered(data):
        if retold := [request for request in requests if request.retold]:
            yield of_arm(
                "suspect",
                arm.id,
                Message("steps-differ.texts", requests=len(retold)),
                Message("records-differ.fix"),
                example_prompt=retold[0].row.prompt_id,
                example_block=retold[0].row.block,
            )
        known = [request for request in requests if request.steps is not None]
        if not known:
            yield not_applicable(arm.id, Message("unchecked.no_steps"))
            continue
        wrong = [request for request in known if _sums(request) != _counted(request)]
        if wrong:
            (drafted, accepted), (counted, taken) = _sums(wrong[0]), _counted(wrong[0])
            yield of_arm(
                "suspect",
                arm.id,
                Message(
                    "steps-differ.found",
                    requests=len(wrong),
                    of=len(known),
                    drafted_in_steps=drafted,
                    accepted_in_steps=accepted,
                    drafted=counted,
                    accepted=taken,
                ),
                example_prompt=wrong[0].row.prompt_id,
            )


def _sums(request: RequestData) -> tuple[int, int]:
    return (request.steps.drafted, request.steps.accepted) if request.steps is not None else (0, 0)


def _counted(request: RequestData) -> tuple[int, int]:
    return request.row.draft_n or 0, request.row.draft_n_accepted or 0


# --- log-differs -----------------------------------------------------------------------------------------------------

_PRINTED_MS = 0.006
"""Logs print times with two decimals."""
_WINDOW = 64
"""Requests of a log among which one is looked for: warm-ups, and requests that failed here, lie between."""


def log_differs(data: RunData) -> Findings:
    """Requests that the log of their session does not know: no line has their decode time, tokens and drafts.

    A log has more requests than the run (warm-ups), so each is looked for among the lines that are near and not about
    another one. Logs without such lines (other engines, other verbosity) say nothing.

    Assumes: the engine logs each request with the times of its answer, in lines that are whole.
    Otherwise: lines that two threads garbled make an arm suspect whose record is right.
    """
    for arm, requests in answered(data):
        if silent := [it for it in used_sessions(data, requests) if it.log_file is not None and not _has_log(data, it)]:
            yield of_arm(
                "suspect",
                arm.id,
                Message("log-differs.gone", sessions=len(silent)),
                Message("log-differs.fix_gone"),
                log=silent[0].log_file,
            )
        by_session: dict[str, list[RequestData]] = {}
        for request in requests:
            if data.printed.get(request.row.session_id):
                by_session.setdefault(request.row.session_id, []).append(request)
        looked = [it for mine in by_session.values() for it in mine]
        if not looked:
            yield not_applicable(arm.id, Message("unchecked.no_times_in_log"))
            continue
        unknown = [it for name, mine in by_session.items() for it in _unknown(mine, data.printed[name])]
        if unknown:
            row = unknown[0].row
            yield of_arm(
                "suspect",
                arm.id,
                Message(
                    "log-differs.found",
                    requests=len(unknown),
                    compared=len(looked),
                    predicted_n=row.predicted_n,
                    predicted_ms=row.predicted_ms,
                    draft_n_accepted=row.draft_n_accepted or 0,
                    draft_n=row.draft_n or 0,
                ),
                example_prompt=row.prompt_id,
            )


def _has_log(data: RunData, session: Session) -> bool:
    return session.id in data.logs and data.logs[session.id].lines > 0


def _unknown(requests: Sequence[RequestData], printed: Sequence[Printed]) -> list[RequestData]:
    """Those that none of the lines is about that are near, and not about another one. Requests at once end in any
    order."""
    at, unknown, taken = 0, list[RequestData](), set[int]()
    for request in requests:
        near = range(at, min(at + _WINDOW + len(taken), len(printed)))
        place = next((it for it in near if it not in taken and _same(request, printed[it])), None)
        if place is None:
            unknown.append(request)
            continue
        taken.add(place)
        while at in taken:
            taken.remove(at)
            at += 1
        if len(taken) > _WINDOW:  # lines that are about no request of the run: warm-ups, and requests that failed
            at = min(taken)
    return unknown


def _same(request: RequestData, line: Printed) -> bool:
    row = request.row
    drafted, accepted = row.draft_n or 0, row.draft_n_accepted or 0
    return (
        abs(line.predicted_ms - (row.predicted_ms or 0.0)) <= _PRINTED_MS
        and (line.prompt_ms < 0 or abs(line.prompt_ms - (row.prompt_ms or 0.0)) <= _PRINTED_MS)
        and line.predicted_n in (row.predicted_n, (row.predicted_n or 0) - 1)
        and (line.draft_n < 0 or (line.draft_n, line.draft_n_accepted) == (drafted, accepted))
    )


CHECKS: tuple[Check, ...] = (
    Check(
        "records-differ",
        "invalid",
        records_differ,
        saw=("prompts", "sessions", "requests", "replies", "load-cells", "sendings"),
    ),
    Check("steps-differ", "suspect", steps_differ, saw=("requests", "replies")),
    Check("log-differs", "suspect", log_differs, saw=("sessions", "logs", "requests"), needs=("log",)),
)


_SINGLE = 2
"""So many deviations may come of a clock that was set."""
_SHARE = 0.05
_SAMPLE_S = 1.0
_SLEW = 0.15
"""A clock that is being corrected runs up to a tenth slower or faster."""
_STEP_MS = 3.0
_STEP_SHARE = 0.02
"""Steps are timed by the clock that times decoding; the last was seen to end 0.02 ms late at most."""


# --- decode-time-differs ---------------------------------------------------------------------------------------------


def decode_time_differs(data: RunData) -> Findings:
    """Decode times that arrivals and steps do not bear out.

    Between the first token and the last the client waits as long as the engine decodes, and the last step ends when the
    engine stops its clock. Lower medians over an arm's requests are compared: arrivals may be late, for one request or
    in bursts, but neither for most of them. Off by more than 5 % and 20 ms is too much, either way for arrivals. Steps
    may end early, where the last forwards drafted nothing and were not logged, but not late by more than 2 % and 3 ms.

    Assumes: the client is not kept from reading most of an arm's tokens for longer than 20 ms and 5 % of the time.
    Otherwise: a client that never gets a processor sees tokens in bursts, and a right decode time is suspect.
    """
    for arm, requests in answered(data):
        decoded = [it for it in requests if (it.row.predicted_n or 0) > 1]
        looks = [_arrived(decoded), _stepped(decoded)]
        if all(look is None for look in looks):
            yield not_applicable(arm.id, Message("unchecked.no_arrivals_no_steps"))
        for look in looks:
            if look is not None and look.off:
                yield of_arm(
                    "suspect",
                    arm.id,
                    Message(
                        "decode-time-differs.steps" if look.late_only else "decode-time-differs.arrivals",
                        accounted_ms=look.usual_ms,
                        seen_ms=look.seen_ms,
                        requests=look.requests,
                    ),
                    Message("times-overlap.fix"),
                )
        bare = [it for it in decoded if it.arrivals is None]
        if bare and arm.engine.stream_tokens:
            yield of_arm(
                "suspect",
                arm.id,
                Message("decode-time-differs.bare", requests=len(bare), of=len(decoded)),
                Message("decode-time-differs.fix_bare"),
            )


class _ClockGap(NamedTuple):
    usual_ms: float
    seen_ms: float
    requests: int
    late_only: bool
    """Seen by steps; otherwise by arrivals."""

    @property
    def off(self) -> bool:
        excess = self.seen_ms - self.usual_ms
        if self.late_only:
            return excess > _STEP_MS + _STEP_SHARE * self.usual_ms
        return abs(excess) > SLACK_MS + TOLERANCE * self.usual_ms


def _arrived(requests: Sequence[RequestData]) -> _ClockGap | None:
    times = [
        (it.row.predicted_ms or 0.0, it.arrivals.last_ms - it.arrivals.first_ms)
        for it in requests
        # All at once is an answer in one piece, or one whose tokens the server did not number.
        if it.arrivals is not None and it.arrivals.last_ms > it.arrivals.first_ms
    ]
    return _look(times, late_only=False)


def _stepped(requests: Sequence[RequestData]) -> _ClockGap | None:
    times = [
        ((it.row.prompt_ms or 0.0) + (it.row.predicted_ms or 0.0), it.steps.last_ms)
        for it in requests
        if it.steps is not None
    ]
    return _look(times, late_only=True)


def _look(times: Sequence[tuple[float, float]], *, late_only: bool) -> _ClockGap | None:
    if not times:
        return None
    usual, off = median_low([told for told, _ in times]), median_low([seen - told for told, seen in times])
    return _ClockGap(usual, usual + off, len(times), late_only)


# --- times-overlap ---------------------------------------------------------------------------------------------------


class _Moment(NamedTuple):
    """Something that cannot come before what it is said to follow."""

    code: str
    """Of the message that says what."""
    of: RequestRow | Session
    at: float
    """When it began, in seconds since the epoch."""
    after: float
    """Not before this."""

    @property
    def what(self) -> Message:
        prompt = {"prompt": self.of.prompt_id} if isinstance(self.of, RequestRow) else {}
        return Message(self.code, arm=self.of.arm_id, block=self.of.block, **prompt)


def times_overlap(data: RunData) -> Findings:
    """Requests that began before the one before them can have ended, or outside of their sessions; sessions that
    overlap; samples of the machine from when nothing ran.

    One thing is done at a time, so all of it forms a chain of moments, each no earlier than the one before it and what
    that took; requests of a cell under load are only held against their session. A clock that is set back breaks it
    once; the time of day may also run slower by a tenth while it is corrected. More than two breaks that are more than
    5 % of all moments come of no clock; neither does a request a minute outside of a session that ends after it began.

    Assumes: the time of day is not set back again and again while a run goes on.
    Otherwise: a machine whose clock jumps makes a right run suspect; its rates come from other clocks.
    """
    if not data.sessions:
        yield unseen(None, Message("unchecked.no_session"))
        return
    moments = list(_chain(data))
    early = [it for it in moments if it.at < it.after - SLACK_MS / 1000]
    if early:
        worst = max(early, key=lambda it: it.after - it.at)
        often = len(early) > max(_SINGLE, _SHARE * len(moments)) or _outside(data)
        yield of_run(
            "suspect" if often else "note",
            Message(
                "times-overlap.found",
                early=len(early),
                moments=len(moments),
                what=worst.what,
                most_s=worst.after - worst.at,
            ),
            None if often else Message("times-overlap.fix_set"),
            most_s=round(worst.after - worst.at, 6),
        )
    yield from _stray_samples(data)
    yield from _late_predictions(data)


_MINUTE_S = 60.0


def _outside(data: RunData) -> bool:
    """Whether a request began a minute before its session, or after its end."""
    for row in (it.row for it in data.requests if it.row.session_id in data.sessions):
        session = data.sessions[row.session_id]
        ended = row.started_at if session.ended_at is None else session.ended_at
        out = max(session.started_at - row.started_at, row.started_at - ended)
        if out > _MINUTE_S and ended >= session.started_at:
            return True
    return False


def _late_predictions(data: RunData) -> Findings:
    """The prediction for an arm is stored before its first session."""
    first: dict[str, float] = {}
    for session in data.sessions.values():
        first.setdefault(session.arm_id, session.started_at)
    foretold = {it.arm_id: it.made_at for it in data.predictions if it.speedup is not None}
    late = {arm_id: at for arm_id, at in foretold.items() if at > first.get(arm_id, at) + SLACK_MS / 1000}
    for arm_id, at in late.items() if not data.simulated else ():
        yield of_arm(
            "suspect",
            arm_id,
            Message("times-overlap.prediction", seconds=at - first[arm_id]),
            Message("times-overlap.fix_prediction"),
            seconds=round(at - first[arm_id], 3),
        )


def _chain(data: RunData) -> Iterator[_Moment]:
    """Every moment that another one came before.

    Sessions of a simulated run are not compared: each start of it begins at the same virtual time.
    """
    requests: dict[str, list[RequestData]] = {}
    for request in data.requests:
        if request.row.session_id in data.sessions:
            requests.setdefault(request.row.session_id, []).append(request)
    before: float | None = None
    for session in data.sessions.values():
        if before is not None and not data.simulated:
            yield _Moment("times-overlap.session", session, session.started_at, before)
        ready = after = session.started_at + (1 - _SLEW) * (session.ready_ms + session.warmup_ms) / 1000
        at_once = session.id in data.load_cells
        for request in requests.get(session.id, ()):
            row = request.row
            yield _Moment("times-overlap.request", row, row.started_at, ready if at_once else after)
            ended = row.started_at + (1 - _SLEW) * (row.wall_ms or 0.0) / 1000
            after = max(after, ended) if at_once else ended
        if session.ended_at is not None:
            yield _Moment("times-overlap.session_end", session, session.ended_at, after)
        before = after if session.ended_at is None else session.ended_at


def _stray_samples(data: RunData) -> Findings:
    """Samples are taken in sessions only."""
    if data.simulated or not data.telemetry:
        return
    spans = _merged(_span(session) for session in data.sessions.values())
    starts = [start for start, _ in spans]
    stray = 0
    for load in data.telemetry:
        place = bisect_right(starts, load.at) - 1
        stray += place < 0 or load.at > spans[place][1] + _SAMPLE_S
    if stray > max(_SINGLE, _SHARE * len(data.telemetry)):
        yield of_run("suspect", Message("times-overlap.samples", stray=stray, samples=len(data.telemetry)))


def _span(session: Session) -> tuple[float, float]:
    """From start to end, as far as they are known: a clock may have been set back in between."""
    end = float("inf") if session.ended_at is None else session.ended_at
    return (session.started_at, end) if end >= session.started_at else (float("-inf"), float("inf"))


def _merged(spans: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """The same time in spans that do not overlap, in order."""
    found: list[tuple[float, float]] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


CLOCK_CHECKS: tuple[Check, ...] = (
    Check("decode-time-differs", "suspect", decode_time_differs, saw=("requests", "replies"), needs=("arrivals",)),
    Check(
        "times-overlap", "suspect", times_overlap, saw=("sessions", "requests", "telemetry", "predictions"), apart=True
    ),
)


def stalls(data: RunData) -> Findings:
    """Requests that took half again as long as the same prompt of the same arm in other blocks (`analysis.stalls`).

    Suspect where they cost 2 % of the arm's decode time or more, else a note. Nothing is seen where no prompt was
    repeated. Never `invalid`: a stall may be what the machine always does.

    Assumes: a prompt takes an arm the same time in every block, but for noise.
    Otherwise: texts that are sampled differ in length and cost, and their spread is allowed for; suspect at most.
    """
    arms = {arm.arm_id: arm for arm in (*data.summary.arms, *data.summary.controls)}
    for arm_id, requests in data.by_arm.items():
        if data.arms[arm_id].load is not None:
            yield not_applicable(arm_id, SHARED)
            continue
        blocks = {(it.row.invocation, it.row.block) for it in requests}
        if len(blocks) < 2:
            yield unseen(arm_id, Message("unchecked.no_repeat"))
            continue
        if len({it.row.prompt_id for it in requests}) < 2:
            yield unseen(arm_id, Message("unchecked.one_prompt"))
            continue
        found = arms[arm_id].stalls
        if found is None or not found.requests:
            continue
        yield of_arm(
            "suspect" if found.share >= MARGIN else "note",
            arm_id,
            Message(
                "stalls.found",
                stalled=found.requests,
                requests=found.of,
                slowest_times_usual=found.slowest,
                lost_percent_of_decode_time=100 * found.share,
                blocks=len(blocks),
            ),
            slowest_times_usual=round(found.slowest, 2),
            lost_percent_of_decode_time=round(100 * found.share, 2),
        )


STALL_CHECKS: tuple[Check, ...] = (Check("stalls", "suspect", stalls, saw=("arms", "requests")),)
