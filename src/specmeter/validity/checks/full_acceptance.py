"""Checks of acceptance of exactly 100 %: is it true, or does a counter leave rejected drafts out?

Drafts that were all accepted leave few forwards: each emits what it accepts and one token more, so the lengths of the
drafts say how many forwards there can have been. llama.cpp's draft models draft gamma tokens in every step if `p_min`
is 0, except that

- the limit of the answer and the end of the context shorten the last drafts (`get_n_draft_max` in tools/server/
  server-context.cpp: up to one token less than may still come, up to two less than the context has room for),
- what is then shorter than `gamma_min` is thrown away, and the rest decoded token by token,
- a forward takes no more than a batch: the instrumented engine shortens drafts to that (the server ends),
- an end of the text within a draft cuts accepted tokens off, which only makes forwards fewer.

With a `p_min`, or by another method, drafts may have any length, and no number of forwards is impossible: there, being
right every time is unlikely at most.
"""

from __future__ import annotations

from typing import NamedTuple

from specmeter.messages import Message
from specmeter.record import Arm, Finding, Session, Severity
from specmeter.record.verdict import Findings
from specmeter.validity.checks.check import answered, not_applicable, of_arm, of_request
from specmeter.validity.checks.law import LONGEST_DRAFT, longest_draft
from specmeter.validity.checks.request_data import RequestData
from specmeter.validity.checks.requests import Requests
from specmeter.validity.checks.run_data import RunData
from specmeter.validity.checks.sessions import in_force, logs_of, used_sessions

MIN_DRAFTED = 50
"""An acceptance rate from fewer drafted tokens is not quoted."""
EVIDENT = 200
"""Tokens drafted for different prompts after which it is strange that none was rejected."""
_LONG_ENOUGH = 8
"""Forwards from which on the last draft, which may be shorter or cut off, hardly changes their mean."""
_PLAIN_AT_THE_END = 2
"""Tokens that a context has room for after the last draft that fits into it."""


def by_model(data: RunData, arm: Arm) -> bool:
    """Whether a model, or a part of the target, makes drafts of this arm."""
    return bool(data.traits.drafters(arm.methods) - {"lookup"})


def acceptance_by_construction(data: RunData) -> Findings:
    """The counter leaves out rejected drafts, so that it says 100 % whatever happens.

    100 % alone is not a fault: a model drafting for itself has it, and so has a repetition that is copied. What cannot
    be is 100 % beside checkpoints restored after rejections, beside steps that rejected tokens, or with more forwards
    than full drafts leave room for. That a draft model which stops when it is unsure is never wrong is merely suspect.

    Assumes: a rejected token was drafted, so it must be among the drafted ones. Forward passes are compared with full
    drafts only if the engine says that nothing shortens drafts.
    Otherwise: if drafts may end early, full acceptance over prompts of different speed is only suspect.
    """
    for arm, requests in answered(data):
        drafted = requests.total("draft_n")
        if not drafted:
            yield not_applicable(arm.id, Message("unchecked.nothing_drafted"))
            continue
        right, undone = requests.whole("draft_n"), requests.whole("restores") + requests.whole("partial")
        contradicted = requests.at((right != 0) & (right == requests.whole("draft_n_accepted")) & (undone > 0))
        yield from map(_contradicted, contradicted)
        all_accepted = requests.total("draft_n_accepted") == drafted
        if all_accepted and not contradicted:
            yield from _by_arithmetic(data, arm, requests, drafted)


def forwards_after_prompt(request: RequestData) -> int:
    """Target forwards after the prompt, by the conservation law; fewer than there were where a draft was cut off."""
    return max(1, (request.row.predicted_n or 1) - 1 - (request.row.draft_n_accepted or 0))


def _contradicted(request: RequestData) -> Finding:
    row = request.row
    return of_request(
        "invalid",
        request,
        Message("acceptance-by-construction.restored", drafted=row.draft_n, restores=request.restores)
        if request.restores
        else Message("acceptance-by-construction.rejected", drafted=row.draft_n, steps_that_rejected=request.partial),
        restores=request.restores,
        steps_that_rejected=request.partial,
    )


def _by_arithmetic(data: RunData, arm: Arm, requests: Requests, drafted: int) -> Findings:
    logs = logs_of(data, requests)
    restored = sum(log.checkpoints_restored.count for _, log in logs.read)
    full = {session.id: _full_drafts(arm, session) for session in used_sessions(data, requests)}
    if restored and not any(requests.different("step_n")):
        # Where steps are recorded they tell which request it was; the log alone counts the warm-up too, so no more than
        # a suspicion follows from it.
        why = Message("acceptance-by-construction.log", restored=restored)
        yield _all_accepted(arm, "suspect", why, drafted, restored=restored)
    elif any(full.values()):
        failed = any(log.draft_failures or log.failed_decodes_of_draft for _, log in logs.read)
        if not failed:  # drafts are then as short as they happen to be, which is another check's finding
            blind = bool(logs.missing) and not data.simulated
            yield from _too_many_forwards(arm, requests, full, drafted, blind=blind)
    elif by_model(data, arm) and not _sure(data, arm):
        sessions = used_sessions(data, requests)
        longest = max((longest_draft(arm, session) for session in sessions), default=LONGEST_DRAFT)
        yield from _too_good(arm, requests, longest, drafted)


# --- where every draft is full ---------------------------------------------------------------------------------------


class _Full(NamedTuple):
    """Drafts of one session: as long as gamma, or at the end of the text as there is room for, or thrown away."""

    gamma: int
    gamma_min: int
    in_force: bool
    """The engine says so itself; otherwise it is only what was asked for."""

    def most_forwards(self, decoded: int) -> int:
        """Most target forwards that `decoded` tokens after the first can take when every drafted token is accepted."""
        # No draft is shorter than gamma before the room for one is; where gamma_min throws that away, the rest (of at
        # most gamma_min tokens) comes one by one.
        at_the_end = max(1, self.gamma_min) + _PLAIN_AT_THE_END
        return min(decoded, decoded // (self.gamma + 1) + at_the_end)


def _full_drafts(arm: Arm, session: Session) -> _Full | None:
    """How drafts of a session are long, where nothing but room and `gamma_min` shortens them; None where more does."""
    if arm.methods != ("draft-simple",) or arm.policy is not None:
        return None
    values = in_force(session, "draft-simple")
    gamma, least, p_min = (values.get(name) for name in ("n_max", "n_min", "p_min"))
    said = isinstance(gamma, int) and isinstance(p_min, int | float)
    if not said:
        gamma, least, p_min = arm.gamma, arm.gamma_min, arm.p_min
    if not isinstance(gamma, int) or p_min != 0:
        return None
    batch = session.resolved.get("n_batch")
    gamma = min(gamma, batch - 1) if isinstance(batch, int) else gamma
    return _Full(gamma, least if isinstance(least, int) else 0, said) if gamma > 0 else None


def _too_many_forwards(
    arm: Arm, requests: Requests, full: dict[str, _Full | None], drafted: int, *, blind: bool
) -> Findings:
    """Requests that drafted, and needed more forwards than full drafts leave room for.

    `blind`: not every log could be read, so that drafts may have been short because forwards of the draft failed.
    """
    forwards = most = beyond = 0
    certain, gammas = not blind, set[int]()
    for request in requests:
        lengths = full.get(request.row.session_id)
        if lengths is None or not request.row.draft_n:
            continue
        there, limit = forwards_after_prompt(request), lengths.most_forwards((request.row.predicted_n or 1) - 1)
        if there > limit:
            beyond += 1
            forwards, most = forwards + there, most + limit
            certain &= lengths.in_force
            gammas.add(lengths.gamma)
    if beyond and drafted >= MIN_DRAFTED:
        why = Message(
            "acceptance-by-construction.forwards",
            gammas=sorted(gammas),
            requests=beyond,
            at_most=most,
            forwards=forwards,
            unless="" if certain else Message("acceptance-by-construction.unless"),
        )
        yield _all_accepted(
            arm,
            "invalid" if certain else "suspect",
            why,
            drafted,
            forwards=forwards,
            at_most=most,
            requests=beyond,
        )


# --- where drafts end early ------------------------------------------------------------------------------------------


def _too_good(arm: Arm, requests: Requests, longest: int, drafted: int) -> Findings:
    """A draft model that is unsure on one text and sure on another, and wrong on none.

    Greedy text repeats from block to block: only the first answer to each prompt is evidence. Short answers are none:
    where the text ends within a draft, or the limit shortens it, tokens per forward differ though nothing was rejected.
    """
    first = {request.row.prompt_id: request for request in reversed(requests) if request.row.draft_n}
    long = [it for it in first.values() if forwards_after_prompt(it) >= _LONG_ENOUGH]
    distinct = sum(request.row.draft_n or 0 for request in long)
    taus = [_tokens_per_forward(it, longest) for it in long]
    if len(taus) >= 3 and distinct >= EVIDENT:
        least, most = min(high for _, high in taus), max(low for low, _ in taus)
        if most >= 1.5 * least:
            why = Message("acceptance-by-construction.too_good", least=least, most=most, prompts=len(taus))
            yield _all_accepted(arm, "suspect", why, drafted, distinct=distinct, prompts=len(taus))


def _tokens_per_forward(request: RequestData, longest: int) -> tuple[float, float]:
    """Least and most that they can have been: up to a whole draft may be cut off at the end of the text."""
    decoded, forwards = (request.row.predicted_n or 1) - 1, forwards_after_prompt(request)
    cut = 0 if request.row.stop_reason == "limit" else longest
    return (decoded + cut) / (forwards + cut), decoded / forwards


def _sure(data: RunData, arm: Arm) -> bool:
    """Whether acceptance may well be 1: it is decided so, or the target drafts for itself."""
    if arm.synthetic_rates:
        return min(arm.synthetic_rates) == 1
    target, draft = data.models.get(arm.target), data.models.get(arm.draft or "")
    return target is not None and draft is not None and target.sha256 == draft.sha256


def _all_accepted(arm: Arm, severity: Severity, why: Message, drafted: int, **evidence: float) -> Finding:
    return of_arm(
        severity,
        arm.id,
        Message("acceptance-by-construction.all", drafted=drafted, why=why),
        Message("acceptance-by-construction.fix_all"),
        **evidence,
    )
