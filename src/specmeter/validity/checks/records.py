"""Checks whether all records of a request in a run agree.

Every request is on record several times over: columns of its own, the engine's answer as it was printed, its token
ids, arrival times and steps, the prompt's text and its hash, how it was sent under a load, and the lines of a log. All
were written by one program from one answer, so they agree to the digit, or something was changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from specmeter.messages import Message
from specmeter.record import Session
from specmeter.record.verdict import Findings
from specmeter.store import RequestKey
from specmeter.validity.checks.check import Check, answered, not_applicable, of_arm, of_request, of_run
from specmeter.validity.checks.request_data import RequestData
from specmeter.validity.checks.requests import Requests
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
        for place, message in _problems(data, requests):
            yield of_request("invalid", requests[place], message)


def _cells_differ(data: RunData) -> Findings:
    """Cells under load that are not what their requests say, and requests of which nothing says how they were sent."""
    sent = {it.figures.session_id: it.figures.requests + it.figures.failed for it in data.cells}
    loaded = data.requests.at(data.requests.where("session_id", *data.load_cells))
    unsent = Counter({arm_id: len(them) for (arm_id,), them in loaded.groups("arm_id")})
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


def _problems(data: RunData, requests: Requests) -> Iterator[tuple[int, Message]]:
    """(place of a request, the first thing that two of its records say otherwise)."""
    places, which = requests.distinct("prompt_id", "prompt_sha256", "session_id")
    elsewhere = [_of_place(data, *place) for place in places]
    numbers: list[int] = which.tolist()
    tried = requests.values(*RequestKey._fields, "attempt", "otherwise")
    counted = requests.values("tokens", "predicted_n", "steps.number", "step_n", *_ARRIVALS, "ttft_ms")
    for at, (number, (*key, attempt, otherwise), counts) in enumerate(zip(numbers, tried, counted, strict=True)):
        problem = elsewhere[number] or _of_attempt(data, RequestKey(*key), attempt)
        if problem is None and otherwise:
            problem = Message("records-differ.printed", name=otherwise, value=getattr(requests[at].row, otherwise))
        if problem := problem or _of_counts(*counts):
            yield at, problem


_ARRIVALS = ("arrivals.tokens", "arrivals.first_ms", "arrivals.in_order")


def _of_place(data: RunData, prompt_id: str, sha256: str, session_id: str) -> Message | None:
    prompt = data.prompts.get(prompt_id)
    if prompt is None:
        return Message("records-differ.no_prompt")
    if prompt.sha256 != sha256:
        return Message("records-differ.other_text")
    return Message("records-differ.no_session") if session_id not in data.sessions else None


def _of_attempt(data: RunData, key: RequestKey, attempt: int) -> Message | None:
    # Where a block was measured again, its requests are asked again: each time counts its attempts from 1.
    asked, again = data.attempts.get(key, 1), key in data.replaced
    if attempt > asked or (attempt < asked and not again):
        return Message("records-differ.attempt", attempt=attempt, asked=asked)
    return None


def _of_counts(
    tokens: int,
    predicted_n: int | None,
    steps: int | None,
    step_n: int | None,
    arrivals: int | None,
    first_ms: float,
    in_order: bool,
    ttft_ms: float | None,
) -> Message | None:
    if tokens and tokens != predicted_n:
        return Message("records-differ.tokens", tokens=tokens, predicted_n=predicted_n)
    if steps is not None and steps != step_n:
        return Message("records-differ.steps", steps=steps, step_n=step_n)
    if arrivals is None:
        return None
    if steps is None and step_n:
        return Message("records-differ.no_steps", step_n=step_n)
    if arrivals != predicted_n:
        return Message("records-differ.arrivals", arrivals=arrivals, predicted_n=predicted_n)
    if not in_order:
        return Message("records-differ.disorder")
    if ttft_ms is not None and abs(first_ms - ttft_ms) > 1e-3:
        return Message("records-differ.first_token", first_ms=first_ms, ttft_ms=ttft_ms)
    return None


# --- steps-differ ----------------------------------------------------------------------------------------------------


_SUMS = ("steps.drafted", "steps.accepted", "draft_n", "draft_n_accepted")


def steps_differ(data: RunData) -> Findings:
    """Steps that do not add up to the drafted and accepted tokens of their requests, or texts to their tokens.

    A server's steps come from its log, where lines may be missing; of an instrumented engine they are what is counted.
    The same tokens are the same text, up to a last character that was cut off.

    Assumes: all steps of a request were read from the engine's log, and the same tokens give the same text.
    Otherwise: lost or unknown log lines make correct counters suspect.
    """
    for arm, requests in answered(data):
        if retold := requests.at(requests.where("retold", True)):
            yield of_arm(
                "suspect",
                arm.id,
                Message("steps-differ.texts", requests=len(retold)),
                Message("records-differ.fix"),
                example_prompt=retold[0].row.prompt_id,
                example_block=retold[0].row.block,
            )
        known = requests.at(~requests.where("steps.number", None))
        if not known:
            yield not_applicable(arm.id, Message("unchecked.no_steps"))
            continue
        sums = known.values(*_SUMS)
        wrong = known.at([at for at, (*mine, drafted, taken) in enumerate(sums) if mine != [drafted or 0, taken or 0]])
        if wrong:
            ((drafted, accepted, counted, taken),) = wrong[:1].values(*_SUMS)
            yield of_arm(
                "suspect",
                arm.id,
                Message(
                    "steps-differ.found",
                    requests=len(wrong),
                    of=len(known),
                    drafted_in_steps=drafted,
                    accepted_in_steps=accepted,
                    drafted=counted or 0,
                    accepted=taken or 0,
                ),
                example_prompt=wrong[0].row.prompt_id,
            )


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
        looked = requests.at(requests.where("session_id", *(name for name, lines in data.printed.items() if lines)))
        if not looked:
            yield not_applicable(arm.id, Message("unchecked.no_times_in_log"))
            continue
        unknown = [it for (name,), mine in looked.groups("session_id") for it in _unknown(mine, data.printed[name])]
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


def _unknown(requests: Requests, printed: Sequence[Printed]) -> list[RequestData]:
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
