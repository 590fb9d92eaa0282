"""Whether the times that a run stores can have been those of one run.

Three clocks tell of a request: the engine's (times of prompt and decoding, steps), the client's (duration, arrivals),
and the time of day (when requests, sessions and samples of the machine began). Clocks are set, processes wait for a
processor, machines sleep; so all that is found here is a doubt, and a single deviation is a note.

Whether single requests were held up: what an interval over a few blocks cannot know.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from statistics import median_low
from typing import NamedTuple

from specmeter.numbers.margin import MARGIN
from specmeter.record import Session
from specmeter.record.verdict import Findings, about_arm, about_run
from specmeter.text import percent
from specmeter.validity.checks.bounds import SLACK_MS, TOLERANCE
from specmeter.validity.checks.check import SHARED, Check, answered, not_applicable, unseen
from specmeter.validity.checks.run_data import RequestData, RunData

_SINGLE = 2
"""So many deviations may come of a clock that was set."""
_SHARE = 0.05
_SAMPLE_S = 1.0
_SLEW = 0.15
"""A clock that is being corrected runs up to a tenth slower or faster."""
_STEP_MS = 3.0
_STEP_SHARE = 0.02
"""Steps are timed by the clock that times decoding; the last was seen to end 0.02 ms late at most."""
_CHANGED = "check whether the machine slept or stalled; if it did not, stored times were changed: measure again"


# --- decode-time-differs ---------------------------------------------------------------------------------------------


def decode_time_differs(data: RunData) -> Findings:
    """Decode times that arrivals and steps do not bear out.

    Between the first token and the last the client waits as long as the engine decodes, and the last step ends when the
    engine stops its clock. Lower medians over an arm's requests are compared: arrivals may be late, for one request or
    in bursts, but neither for most of them. Off by more than 5 % and 20 ms is too much, either way for arrivals. Steps
    may end early, where the last forwards drafted nothing and were not logged, but not late by more than 2 % and 3 ms.
    """
    for arm, requests in answered(data):
        decoded = [it for it in requests if (it.row.predicted_n or 0) > 1]
        looks = [_arrived(decoded), _stepped(decoded)]
        if all(look is None for look in looks):
            yield not_applicable(arm.id, "neither arrival times nor steps are on record")
        for look in looks:
            if look is not None and look.off:
                yield about_arm(
                    "decode-time-differs",
                    "suspect",
                    arm.id,
                    f"the engine reports {look.usual_ms:.0f} ms of decoding, but {look.what}: {look.seen_ms:.0f} "
                    f"ms (medians over {look.requests} requests)",
                    _CHANGED,
                    accounted_ms=look.usual_ms,
                    seen_ms=look.seen_ms,
                    requests=look.requests,
                )
        bare = [it for it in decoded if it.arrivals is None]
        if bare and arm.engine.stream_tokens:
            yield about_arm(
                "decode-time-differs",
                "suspect",
                arm.id,
                f"{len(bare)} of {len(decoded)} requests have no arrival times, though tokens were to be streamed",
                "get the run folder from those who measured it, or measure again",
                requests=len(bare),
            )


class _ClockGap(NamedTuple):
    what: str
    usual_ms: float
    seen_ms: float
    requests: int
    late_only: bool

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
    return _look("the time between its first and last token was", times, late_only=False)


def _stepped(requests: Sequence[RequestData]) -> _ClockGap | None:
    times = [
        ((it.row.prompt_ms or 0.0) + (it.row.predicted_ms or 0.0), it.steps.last_ms)
        for it in requests
        if it.steps is not None
    ]
    return _look("its last step ended after", times, late_only=True)


def _look(what: str, times: Sequence[tuple[float, float]], *, late_only: bool) -> _ClockGap | None:
    if not times:
        return None
    usual, off = median_low([told for told, _ in times]), median_low([seen - told for told, seen in times])
    return _ClockGap(what, usual, usual + off, len(times), late_only)


# --- times-overlap ---------------------------------------------------------------------------------------------------


class _Moment(NamedTuple):
    """Something that cannot come before what it is said to follow."""

    what: str
    at: float
    """When it began, in seconds since the epoch."""
    after: float
    """Not before this."""


def times_overlap(data: RunData) -> Findings:
    """Requests that began before the one before them can have ended, or outside of their sessions; sessions that
    overlap; samples of the machine from when nothing ran.

    One thing is done at a time, so all of it forms a chain of moments, each no earlier than the one before it and what
    that took; requests of a cell under load are only held against their session. A clock that is set back breaks it
    once; the time of day may also run slower by a tenth while it is corrected. More than two breaks that are more than
    5 % of all moments come of no clock.
    """
    if not data.sessions:
        yield unseen(None, "no session was recorded")
        return
    moments = list(_chain(data))
    early = [it for it in moments if it.at < it.after - SLACK_MS / 1000]
    if early:
        worst = max(early, key=lambda it: it.after - it.at)
        often = len(early) > max(_SINGLE, _SHARE * len(moments))
        yield about_run(
            "times-overlap",
            "suspect" if often else "note",
            f"{len(early)} of {len(moments)} events began before the one before them can have ended: "
            f"{worst.what} is {worst.after - worst.at:.3g} s too early",
            _CHANGED if often else "nothing, if the clock was set during the run",
            moments=len(moments),
            early=len(early),
            most_s=round(worst.after - worst.at, 6),
        )
    yield from _stray_samples(data)
    yield from _late_predictions(data)


def _late_predictions(data: RunData) -> Findings:
    """What is expected of an arm is written down before its first session."""
    first: dict[str, float] = {}
    for session in data.sessions.values():
        first.setdefault(session.arm_id, session.started_at)
    late = {arm_id: at for arm_id, at in data.predicted_at.items() if at > first.get(arm_id, at) + SLACK_MS / 1000}
    for arm_id, at in late.items() if not data.simulated else ():
        yield about_arm(
            "times-overlap",
            "suspect",
            arm_id,
            f"its prediction was written {at - first[arm_id]:.3g} s after its first session had begun",
            "a prediction made afterwards predicts nothing: do not quote it",
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
            yield _Moment(f"a session of {session.arm_id} in block {session.block}", session.started_at, before)
        ready = after = session.started_at + (1 - _SLEW) * (session.ready_ms + session.warmup_ms) / 1000
        at_once = session.id in data.load_cells
        for request in requests.get(session.id, ()):
            row = request.row
            what = f"{row.prompt_id} of {row.arm_id} in block {row.block}"
            yield _Moment(what, row.started_at, ready if at_once else after)
            ended = row.started_at + (1 - _SLEW) * (row.wall_ms or 0.0) / 1000
            after = max(after, ended) if at_once else ended
        if session.ended_at is not None:
            yield _Moment(f"the end of a session of {session.arm_id} in block {session.block}", session.ended_at, after)
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
        yield about_run(
            "times-overlap",
            "suspect",
            f"{stray} of {len(data.telemetry)} samples of the machine were taken while no session ran",
            _CHANGED,
            samples=len(data.telemetry),
            stray=stray,
        )


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


CHECKS: tuple[Check, ...] = (
    Check(
        "decode-time-differs",
        "decode times that neither arrivals nor steps confirm",
        "suspect",
        decode_time_differs,
        saw=("requests", "replies"),
        needs=("arrivals",),
        assumes="the client is not kept from reading most of an arm's tokens for longer than 20 ms and 5 % of the time",
        otherwise="a client that never gets a processor sees tokens in bursts, and a right decode time is suspect",
    ),
    Check(
        "times-overlap",
        "starts and ends that cannot have followed one another",
        "suspect",
        times_overlap,
        saw=("sessions", "requests", "telemetry", "predictions"),
        assumes="the time of day is not set back again and again while a run goes on",
        otherwise="a machine whose clock jumps makes a right run suspect; its rates come from other clocks",
    ),
)


def stalls(data: RunData) -> Findings:
    """Requests that took half again as long as the same prompt of the same arm in other blocks (`analysis.stalls`).

    Suspect where they cost 2 % of the arm's decode time or more, else a note. Nothing is seen where no prompt was
    repeated. Never `invalid`: a stall may be what the machine always does.
    """
    arms = {arm.arm_id: arm for arm in (*data.summary.arms, *data.summary.controls)}
    for arm_id, requests in data.by_arm.items():
        if data.arms[arm_id].load is not None:
            yield not_applicable(arm_id, SHARED)
            continue
        blocks = {(it.row.invocation, it.row.block) for it in requests}
        if len(blocks) < 2:
            yield unseen(arm_id, "no prompt was repeated in another block")
            continue
        if len({it.row.prompt_id for it in requests}) < 2:
            yield unseen(arm_id, "with one prompt, a stalled request looks like a slow block")
            continue
        found = arms[arm_id].stalls
        if found is None:
            continue
        yield about_arm(
            "stalls",
            "suspect" if found.share >= MARGIN else "note",
            arm_id,
            f"{found.requests} of {found.of} requests stalled: they took up to {found.slowest:.1f} times as long "
            f"as the same request in other blocks, {percent(found.share, 1)} of the arm's decode time; an "
            f"interval over {len(blocks)} blocks is too narrow for that",
            "end other programs, give the engine the cores it needs, and measure again with more blocks",
            stalled=found.requests,
            requests=found.of,
            slowest_times_usual=round(found.slowest, 2),
            lost_percent_of_decode_time=round(100 * found.share, 2),
            blocks=len(blocks),
        )


STALL_CHECKS: tuple[Check, ...] = (
    Check(
        id="stalls",
        threat="single requests stalled, and the interval does not show it",
        severity="suspect",
        look=stalls,
        saw=("arms", "requests"),
        assumes="a prompt takes an arm the same time in every block, but for noise",
        otherwise="texts that are sampled differ in length and cost, and their spread is allowed for; suspect at most",
    ),
)
