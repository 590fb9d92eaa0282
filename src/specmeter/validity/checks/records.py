"""Whether a run says one thing of a request wherever it says it.

Every request is on record several times over: columns of its own, the engine's answer as it was printed, its token
ids, arrival times and steps, the prompt's text and its hash, how it was sent under a load, and the lines of a log. All
were written by one program from one answer, so they agree to the digit, or something was changed.

Whether requests were measured, each by itself, or copied from one another.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from specmeter.record import Session
from specmeter.record.verdict import Findings, about_arm, about_run
from specmeter.validity.checks.check import Check, about_request, answered, not_applicable, used_sessions
from specmeter.validity.checks.run_data import Printed, RequestData, RunData

_REMEDY = "measure again, or get the run folder from those who measured it"


# --- records-differ --------------------------------------------------------------------------------------------------


def records_differ(data: RunData) -> Findings:
    """Counts, times or texts of which the run holds two, and not the same.

    Exact, except that the time of the first token is compared to a thousandth of a ms.
    """
    for prompt in data.prompts.values():
        if prompt.digest() != prompt.sha256:
            yield about_run(
                "records-differ",
                "invalid",
                f"the text of prompt {prompt.id} is not the one that was hashed when it was measured",
                _REMEDY,
                prompt=prompt.id,
            )
    yield from _cells_differ(data)
    for _, requests in answered(data):
        for request in requests:
            if (problem := _problem(data, request)) is not None:
                yield about_request("records-differ", "invalid", request, problem, _REMEDY)


def _cells_differ(data: RunData) -> Findings:
    """Cells under load that are not what their requests say, and requests of which nothing says how they were sent."""
    sent = {it.figures.session_id: it.figures.requests + it.figures.failed for it in data.cells}
    unsent = Counter(it.row.arm_id for it in data.requests if it.row.session_id in data.load_cells)
    for it in data.cells:
        unsent[it.figures.arm_id] -= sent[it.figures.session_id]
        if it.contradiction is not None:
            severity, what = it.contradiction
            block, arm_id = it.figures.block, it.figures.arm_id
            yield about_arm("records-differ", severity, arm_id, f"{what}, in block {block}", _REMEDY, block=block)
    for arm_id, count in unsent.items():
        if count > 0:
            what = f"nothing is on record of how {count} requests were sent under their load"
            yield about_arm("records-differ", "invalid", arm_id, what, _REMEDY, requests=count)


def _problem(data: RunData, request: RequestData) -> str | None:
    row, arrivals, steps = request.row, request.arrivals, request.steps
    prompt = data.prompts.get(row.prompt_id)
    if prompt is None:
        return "its prompt is not on record"
    if prompt.sha256 != row.prompt_sha256:
        return "it was given another text than its prompt on record"
    if row.session_id not in data.sessions:
        return "the session that answered it is not on record"
    if request.otherwise:
        name = request.otherwise
        return f"{name} on record is {getattr(row, name)}, which differs from what the engine printed in its answer"
    if request.tokens and request.tokens != row.predicted_n:
        return f"{request.tokens} token ids are stored, but {row.predicted_n} tokens were counted"
    if steps is not None and steps.number != row.step_n:
        return f"{steps.number} steps are stored, but {row.step_n} were counted"
    if arrivals is None:
        return None
    if steps is None and row.step_n:
        return f"no steps are stored, but {row.step_n} were counted"
    if arrivals.tokens != row.predicted_n:
        return f"{arrivals.tokens} arrival times are stored, but {row.predicted_n} tokens were counted"
    if not arrivals.in_order:
        return "tokens arrived before those that precede them"
    if row.ttft_ms is not None and abs(arrivals.first_ms - row.ttft_ms) > 1e-3:
        return (
            f"the first token arrived after {arrivals.first_ms:.3f} ms by its arrival time, but after "
            f"{row.ttft_ms:.3f} ms by the record"
        )
    return None


# --- steps-differ ----------------------------------------------------------------------------------------------------


def steps_differ(data: RunData) -> Findings:
    """Steps that do not add up to the drafted and accepted tokens of their requests, or texts to their tokens.

    A server's steps come from its log, where lines may be missing; of an instrumented engine they are what is counted.
    The same tokens are the same text, up to a last character that was cut off.
    """
    for arm, requests in answered(data):
        if retold := [request for request in requests if request.retold]:
            yield about_arm(
                "steps-differ",
                "suspect",
                arm.id,
                f"{len(retold)} requests have another text than a request with the very same tokens",
                _REMEDY,
                requests=len(retold),
                example_prompt=retold[0].row.prompt_id,
                example_block=retold[0].row.block,
            )
        known = [request for request in requests if request.steps is not None]
        if not known:
            yield not_applicable(arm.id, "no steps are on record")
            continue
        wrong = [request for request in known if _sums(request) != _counted(request)]
        if wrong:
            (drafted, accepted), (counted, taken) = _sums(wrong[0]), _counted(wrong[0])
            yield about_arm(
                "steps-differ",
                "suspect",
                arm.id,
                f"in {len(wrong)} of {len(known)} requests the steps do not add up to the counters; in the "
                f"first, {drafted} drafted and {accepted} accepted by the steps, {counted} and {taken} by the "
                "counters",
                "see the engine's log: lines may be missing; if none is, counters or steps are false",
                requests=len(wrong),
                drafted_in_steps=drafted,
                accepted_in_steps=accepted,
                drafted=counted,
                accepted=taken,
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
    """
    for arm, requests in answered(data):
        if silent := [it for it in used_sessions(data, requests) if it.log_file is not None and not _has_log(data, it)]:
            yield about_arm(
                "log-differs",
                "suspect",
                arm.id,
                f"the logs of {len(silent)} sessions are gone or empty",
                "get them from those who measured the run: nothing else says what the engine did",
                sessions=len(silent),
                log=silent[0].log_file,
            )
        by_session: dict[str, list[RequestData]] = {}
        for request in requests:
            if data.printed.get(request.row.session_id):
                by_session.setdefault(request.row.session_id, []).append(request)
        looked = [it for mine in by_session.values() for it in mine]
        if not looked:
            yield not_applicable(arm.id, "no log prints times of requests")
            continue
        unknown = [it for name, mine in by_session.items() for it in _unknown(mine, data.printed[name])]
        if unknown:
            row = unknown[0].row
            yield about_arm(
                "log-differs",
                "suspect",
                arm.id,
                f"the engine's log lacks {len(unknown)} of {len(looked)} requests as they are on record: none "
                f"has {row.predicted_n} tokens in {row.predicted_ms:.2f} ms with {row.draft_n_accepted or 0} of "
                f"{row.draft_n or 0} drafted tokens accepted",
                "check whether lines of the log are missing or broken; if none is, the record was changed",
                requests=len(unknown),
                compared=len(looked),
                example_prompt=row.prompt_id,
                predicted_ms=row.predicted_ms,
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
        "a count, a time or a text was changed in one of the places where it is stored",
        "invalid",
        records_differ,
        saw=("prompts", "sessions", "requests", "replies", "load-cells", "sendings"),
        assumes="specmeter stores one answer in all of these places, unchanged: identity",
        otherwise="nothing but a change of the stored data makes them differ",
    ),
    Check(
        "steps-differ",
        "steps and counters, or texts and tokens, disagree",
        "suspect",
        steps_differ,
        saw=("requests", "replies"),
        assumes="every step of a request was read from the engine's log, and tokens become text in one way",
        otherwise="a log whose lines are lost or unknown makes an arm suspect whose counters are right",
    ),
    Check(
        "log-differs",
        "the engine's own log is gone, or tells of other requests than the record",
        "suspect",
        log_differs,
        saw=("sessions", "logs", "requests"),
        needs=("log",),
        assumes="the engine logs each request with the times of its answer, in lines that are whole",
        otherwise="lines that two threads garbled make an arm suspect whose record is right",
    ),
)


def copied_requests(data: RunData) -> Findings:
    """Requests for the same prompt with the same times, to the last digit that clocks have.

    Clocks count in nanoseconds (on Windows, in tenths of a microsecond), and a request has several times of its own:
    its duration, the engine's two, the arrivals of its tokens. That three of them agree by chance happens once in many
    millions of pairs; a block that was copied over another agrees in all.
    """
    if data.simulated:
        yield not_applicable(None, "time is virtual and may repeat itself")
        return
    by_prompt: dict[str, list[RequestData]] = {}
    for _, requests in answered(data):
        for request in requests:
            by_prompt.setdefault(request.row.prompt_id, []).append(request)
    copies: dict[str, list[tuple[RequestData, RequestData]]] = {}
    for requests in by_prompt.values():
        first: dict[tuple[object, ...], RequestData] = {}
        for request in requests:
            twins = [first.setdefault(times, request) for times in _times(request)]
            twin = next((it for it in twins if it is not request), None)
            if twin is not None:
                copies.setdefault(request.row.arm_id, []).append((request, twin))
    for arm_id, pairs in copies.items():
        copy, twin = (it.row for it in pairs[0])
        yield about_arm(
            "copied-requests",
            "invalid",
            arm_id,
            f"{len(pairs)} requests have the times of other requests to the last digit: {copy.prompt_id} in "
            f"block {copy.block} of invocation {copy.invocation} equals that of {twin.arm_id} in block "
            f"{twin.block} of invocation {twin.invocation}",
            "measure these blocks: a copy says nothing about repetition",
            requests=len(pairs),
            wall_ms=copy.wall_ms,
            predicted_ms=copy.predicted_ms,
        )


def _times(request: RequestData) -> Iterator[tuple[object, ...]]:
    """Sets of times that belong to one request alone."""
    row, arrivals = request.row, request.arrivals
    if (row.predicted_n or 0) > 1:
        yield "durations", row.wall_ms, row.prompt_ms, row.predicted_ms
    if arrivals is not None and arrivals.tokens > 1:
        yield "arrivals", arrivals.first_ms, arrivals.last_ms, arrivals.sum_ms


COPY_CHECKS: tuple[Check, ...] = (
    Check(
        "copied-requests",
        "a block was copied over others, so repetition shows nothing",
        "invalid",
        copied_requests,
        saw=("requests", "replies"),
        assumes="no two requests take the same time in three clock readings to the last digit: identity",
        otherwise="a clock that ticks in whole ms, with an engine that rounds as coarsely, could repeat itself",
    ),
)
