"""Checks whether the times that a run stores can be those of one run.

Three clocks tell of a request: the engine's (times of prompt and decoding, steps), the client's (duration, arrivals),
and the time of day (when requests, sessions and samples of the machine began). Clocks are set, processes wait for a
processor, machines sleep; so every finding here is a doubt, and a single deviation is a note.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from statistics import median_low
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from specmeter.messages import Message
from specmeter.record import Session
from specmeter.record.verdict import Findings
from specmeter.validity.checks.bounds import TOLERANCE
from specmeter.validity.checks.check import (
    Check,
    answered,
    not_applicable,
    not_checkable,
    of_arm,
    of_run,
)
from specmeter.validity.checks.counters import SLACK_MS
from specmeter.validity.checks.requests import Requests
from specmeter.validity.checks.run_data import RunData

if TYPE_CHECKING:
    from specmeter.numbers.stats import Floats

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

    Assumes: the client can read most tokens within 20 ms and 5% of the time.
    Otherwise: a client without CPU time sees tokens in bursts, and a correct decode time is suspect.
    """
    for arm, requests in answered(data):
        decoded = requests.at(requests.whole("predicted_n") > 1)
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
        bare = decoded.at(decoded.where("arrivals.tokens", None))
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


def _arrived(requests: Requests) -> _ClockGap | None:
    seen = requests.number("arrivals.last_ms") - requests.number("arrivals.first_ms")
    # All at once is an answer in one piece, or one whose tokens the server did not number.
    spread = seen > 0
    return _look(np.nan_to_num(requests.number("predicted_ms"))[spread], seen[spread], late_only=False)


def _stepped(requests: Requests) -> _ClockGap | None:
    told = np.nan_to_num(requests.number("prompt_ms")) + np.nan_to_num(requests.number("predicted_ms"))
    known = ~requests.where("steps.number", None)
    return _look(told[known], requests.number("steps.last_ms")[known], late_only=True)


def _look(told: Floats, seen: Floats, *, late_only: bool) -> _ClockGap | None:
    if not len(told):
        return None
    usual, off = median_low(told.tolist()), median_low((seen - told).tolist())
    return _ClockGap(usual, usual + off, len(told), late_only)


# --- times-overlap ---------------------------------------------------------------------------------------------------


class _Moment(NamedTuple):
    """Something that cannot come before what it is said to follow."""

    code: str
    """Of the message that says what."""
    arm_id: str
    block: int
    at: float
    """When it began, in seconds since the epoch."""
    after: float
    """Not before this."""
    prompt_id: str | None = None

    @property
    def what(self) -> Message:
        prompt = {} if self.prompt_id is None else {"prompt": self.prompt_id}
        return Message(self.code, arm=self.arm_id, block=self.block, **prompt)


def times_overlap(data: RunData) -> Findings:
    """Requests that began before the one before them can have ended, or outside of their sessions; sessions that
    overlap; samples of the machine from when nothing ran.

    One thing is done at a time, so all of it forms a chain of moments, each no earlier than the one before it and what
    that took; requests of a cell under load are only held against their session. A clock that is set back breaks it
    once; the time of day may also run slower by a tenth while it is corrected. More than two breaks that are more than
    5 % of all moments come of no clock; neither does a request a minute outside of a session that ends after it began.

    Assumes: the system clock is not set back repeatedly during a run.
    Otherwise: a machine whose clock jumps makes a correct run suspect; rates come from other clocks.
    """
    if not data.sessions:
        yield not_checkable(None, Message("unchecked.no_session"))
        return
    moments, early = 0, list[_Moment]()
    for it in _chain(data):
        moments += 1
        if it.at < it.after - SLACK_MS / 1000:
            early.append(it)
    if early:
        worst = max(early, key=lambda it: it.after - it.at)
        often = len(early) > max(_SINGLE, _SHARE * moments) or _outside(data)
        yield of_run(
            "suspect" if often else "note",
            Message(
                "times-overlap.found",
                early=len(early),
                moments=moments,
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
    for (session_id,), requests in data.requests.groups("session_id"):
        if (session := data.sessions.get(session_id)) is None:
            continue
        for (started_at,) in requests.values("started_at"):
            ended = started_at if session.ended_at is None else session.ended_at
            out = max(session.started_at - started_at, started_at - ended)
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
    requests = {session_id: mine for (session_id,), mine in data.requests.groups("session_id")}
    before: float | None = None
    for session in data.sessions.values():
        if before is not None and not data.simulated:
            yield _Moment("times-overlap.session", session.arm_id, session.block, session.started_at, before)
        ready = after = session.started_at + (1 - _SLEW) * (session.ready_ms + session.warmup_ms) / 1000
        at_once = session.id in data.load_cells
        mine = requests.get(session.id, data.requests[:0])
        for arm_id, block, prompt_id, at, ms in mine.values("arm_id", "block", "prompt_id", "started_at", "wall_ms"):
            yield _Moment("times-overlap.request", arm_id, block, at, ready if at_once else after, prompt_id)
            ended = at + (1 - _SLEW) * (ms or 0.0) / 1000
            after = max(after, ended) if at_once else ended
        if session.ended_at is not None:
            yield _Moment("times-overlap.session_end", session.arm_id, session.block, session.ended_at, after)
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


CHECKS: tuple[Check, ...] = (
    Check("decode-time-differs", "suspect", decode_time_differs, saw=("requests", "replies"), needs=("arrivals",)),
    Check(
        "times-overlap",
        "suspect",
        times_overlap,
        saw=("sessions", "requests", "telemetry", "predictions"),
        per_device=True,
    ),
)
