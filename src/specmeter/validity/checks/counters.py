"""Checks of the counts and times that an engine reports: do they add up, and mean what they are called?

A busy machine is of influence only on those that compare two clocks.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median_low
from typing import Any, Literal, NamedTuple

import numpy as np

from specmeter.messages import Message
from specmeter.record import Arm, Finding, Severity
from specmeter.record.verdict import Findings
from specmeter.validity.checks.check import SHARED, Check, answered, not_applicable, not_checkable, of_arm, of_request
from specmeter.validity.checks.law import Gap, Law
from specmeter.validity.checks.load import cells_conserve
from specmeter.validity.checks.request_data import RequestData
from specmeter.validity.checks.requests import Requests
from specmeter.validity.checks.run_data import RunData
from specmeter.validity.checks.sessions import used_sessions

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

    Assumes: each successful forward pass yields one token plus the accepted draft tokens, and a prompt takes one
    forward pass per batch. Tokens cut off at a stop and replays after a restore are allowed for.
    Otherwise: no known method works differently; an engine that counts something else cannot be checked, and its tau is
    unknown.
    """
    for arm, requests in answered(data):
        if arm.load is not None:
            yield from cells_conserve(data, arm, requests)
            continue
        law = Law(arm, used_sessions(data, requests), requests)
        uncounted = 0
        for place, gap in enumerate(law.gaps(requests)):
            if gap is None:
                uncounted += 1
            elif gap.least > 0 or gap.most < -gap.idle:
                yield _does_not_close(requests[place], law, gap)
        if uncounted:
            yield not_checkable(arm.id, Message("unchecked.no_forwards", uncounted=uncounted, requests=len(requests)))


def _does_not_close(request: RequestData, law: Law, gap: Gap) -> Finding:
    row = request.row
    decoded, accepted = (row.predicted_n or 1) - 1, row.draft_n_accepted or 0
    forwards = round(request.decodes or 0)
    fewest, most = law.prompt_forwards(row.session_id, row.prompt_n or 0)
    return of_request(
        "invalid",
        request,
        Message(
            "conservation.extra" if gap.least > 0 else "conservation.idle",
            at_least=gap.least if gap.least > 0 else -gap.most,
            decoded=decoded,
            accepted=accepted,
            forwards=forwards,
            prompt_forwards=fewest if fewest == most else Message("check.range", low=fewest, high=most),
        ),
        Message("conservation.fix_extra" if gap.least > 0 else "conservation.fix_idle"),
        prompt_forwards=fewest,
        prompt_forwards_at_most=most,
        unexplained=gap.least if gap.least > 0 else gap.most,
    )


def counters_absurd(data: RunData) -> Findings:
    """Counts and times that contradict each other by themselves.

    Assumes: accepted tokens cannot exceed drafted or generated ones, nor generated tokens the limit; the engine's time
    cannot exceed the request's by more than 2% and 20 ms.
    Otherwise: if one clock ran on while the machine slept, the engine's time is wrong too.
    """
    limit = data.experiment.generation.max_tokens
    limits = {name: prompt.max_tokens for name, prompt in data.prompts.items() if prompt.max_tokens is not None}
    for arm, requests in answered(data):
        for place, counts in enumerate(requests.values("prompt_id", *_COUNTS, *_TIMES)):
            what = _absurd(arm, counts[1:], limits.get(counts[0], limit))
            if what is not None:
                request = requests[place]
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


_COUNTS, _TIMES = ("draft_n", "draft_n_accepted", "predicted_n"), ("prompt_ms", "predicted_ms", "wall_ms")


def _absurd(arm: Arm, counts: tuple[Any, ...], limit: int) -> Message | None:
    drafted, accepted, predicted, prompt_ms, predicted_ms, wall = (it or 0 for it in counts)
    spent: float = prompt_ms + predicted_ms
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

    Assumes: an engine that prints (n - 1) / ms or n / ms of its own counts and times does so for every request, apart
    from rounding.
    Otherwise: an engine that never prints either uses its own window, and its counts and times may be right: suspect.
    """
    usual = any(it.window is not None for requests in data.by_arm.values() for it in _rates(requests))
    for arm, requests in answered(data):
        older = looked = 0
        for it in _rates(requests):
            looked += 1
            if it.window is None:
                yield _other_window(requests[it.place], it, "invalid" if usual else "suspect")
            older += it.window == "older"
        if not looked:
            yield not_applicable(arm.id, Message("unchecked.no_printed_rate"))
        elif older:
            yield of_arm(
                "note", arm.id, Message("window-mismatch.older", requests=older), Message("window-mismatch.fix_older")
            )


class _Rates(NamedTuple):
    """The decode rate that the engine printed of a request, beside that of its count and time."""

    place: int
    said: float
    computed: float
    """Tokens after the first per second of decoding."""
    window: Literal["usual", "older"] | None
    """Which of the two windows the engine's own rate is over; None for neither."""


def _rates(requests: Requests) -> Iterator[_Rates]:
    """Of those that decoded anything and have a printed rate."""
    for place, (said, predicted_n, ms) in enumerate(requests.values("printed_rate", "predicted_n", "predicted_ms")):
        decoded = (predicted_n or 0) - 1
        if said is None or decoded <= 0 or not ms:
            continue
        rate = 1000 * decoded / ms
        off, off_older = abs(said - rate), abs(said - rate * (decoded + 1) / decoded)
        window = "older" if off_older < off and off > 1e-5 * rate else "usual"
        yield _Rates(place, said, rate, None if min(off, off_older) > SAME_RATE * rate else window)


def _other_window(request: RequestData, rates: _Rates, severity: Severity) -> Finding:
    row = request.row
    return of_request(
        severity,
        request,
        Message(
            "window-mismatch.found",
            printed_tok_s=rates.said,
            predicted_n=row.predicted_n,
            predicted_ms=row.predicted_ms,
            computed_tok_s=rates.computed,
        ),
    )


def clock_differs(data: RunData) -> Findings:
    """The engine's clock leaves out time that its client saw pass: every rate made from it would be too high.

    From the first token to the end of the answer the client waits as long as the engine decodes. On a machine with four
    times as much work as processors a server's waited 4 ms longer at most, in 400 requests. Where tokens were not sent
    one by one, it can only tell of the whole request, and then time spent waiting for others looks the same. The
    (lower) median of an arm is taken, so that single hiccups do not count. A client that gets no processor waits just
    as long, so this is never more than `suspect`.

    Assumes: from the first token on, the client waits as long as the engine decodes, within 5% and 20 ms.
    Otherwise: a client without CPU time, or other clients of the server, look the same: suspect at most.
    """
    for arm, requests in answered(data):
        decoded = requests.at(requests.whole("predicted_n") > 1)
        if not decoded:
            yield not_applicable(arm.id, Message("unchecked.nothing_decoded"))
            continue
        streamed = not np.isnan(decoded.number("ttft_ms")).any()
        if arm.load is not None and not streamed:
            yield not_applicable(arm.id, SHARED)
            continue
        wall, ms = decoded.number("wall_ms"), decoded.number("predicted_ms")
        before = decoded.number("ttft_ms") if streamed else np.nan_to_num(decoded.number("prompt_ms"))
        known = ~np.isnan(wall) & ~np.isnan(ms)
        compared, left = int(known.sum()), (wall - ms - before)[known]
        if not compared:
            yield not_checkable(arm.id, Message("unchecked.no_times"))
            continue
        usual, left_out = float(np.median(ms[known])), median_low(left.tolist())
        if left_out > SLACK_MS + OWN_WORK * usual:
            single, sure = compared == 1, streamed and compared > 1 and left_out > LUMP_MS
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
                requests=compared,
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
