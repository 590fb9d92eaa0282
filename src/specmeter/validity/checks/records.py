"""Checks whether all records of a request in a run agree.

Every request is on record several times over: columns of its own, the engine's answer as it was printed, its token
ids, arrival times and steps, the prompt's text and its hash, how it was sent under a load, and the lines of a log. All
were written by one program from one answer, so they agree to the digit, or something was changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from specmeter.messages import Message
from specmeter.record import Session
from specmeter.record.verdict import Findings
from specmeter.validity.checks.check import Check, answered, not_applicable, of_arm, of_request, of_run
from specmeter.validity.checks.request_data import RequestData
from specmeter.validity.checks.run_data import Printed, RunData
from specmeter.validity.checks.sessions import used_sessions

# --- records-differ --------------------------------------------------------------------------------------------------


def records_differ(data: RunData) -> Findings:
    """Counts, times or texts of which the run holds two, and not the same.

    Exact, except that the time of the first token is compared to a thousandth of a ms.

    Assumes: specmeter stores each answer unchanged in all of these places.
    Otherwise: only a change of the stored data makes them differ.
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
    # Where a block was measured again, its requests are asked again: each time counts its attempts from 1.
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

    Assumes: all steps of a request were read from the engine's log, and the same tokens give the same text.
    Otherwise: lost or unknown log lines make correct counters suspect.
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

    Assumes: the engine logs each request with its times, in complete lines.
    Otherwise: lines garbled by two threads make a correct record suspect.
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
