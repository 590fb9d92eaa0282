"""Checks of decoding: did forwards succeed, did anything draft, and what did it cost to undo drafts?"""

from __future__ import annotations

from collections.abc import Sequence

from specmeter.engines.llama_cpp.draft_rules import DraftLimit, Room, silent_limits
from specmeter.messages import Message
from specmeter.record import Arm, Finding, Prompt, Session, Severity, Unchecked
from specmeter.record.verdict import Findings
from specmeter.validity.checks.check import Check, answered, not_applicable, not_checkable, of_arm, of_request
from specmeter.validity.checks.full_acceptance import (
    MIN_DRAFTED,
    acceptance_by_construction,
    by_model,
    forwards_after_prompt,
)
from specmeter.validity.checks.law import LONGEST_DRAFT, Law, longest_draft
from specmeter.validity.checks.requests import Requests
from specmeter.validity.checks.run_data import RunData
from specmeter.validity.checks.sessions import first_line, logs_of, used_sessions

IDLE_SHARE = 0.05
"""Drafted / generated tokens below which a method hardly drafts."""
MIB = 1024 * 1024

_PLAIN = Message("unchecked.plain")
_AS_FOUND = Message("unchecked.as_found")
_ADDED = 8
"""Tokens that a tokenizer may add to a text: its beginning, a space."""


# --- forwards that fail ----------------------------------------------------------------------------------------------


def target_decode_failed(data: RunData) -> Findings:
    """Verification fails, the engine continues and samples stale logits: fast, and false.

    The log says so. Where there is no log, the counters have to say it: more tokens than successful forwards.

    Assumes: llama.cpp's log reports each failed forward pass as such; without a log, tokens that no successful forward
    pass explains are counted.
    Otherwise: `conservation` must find failures that another engine words differently; with neither log nor counters,
    it is suspect if the engine normally has either.
    """
    for arm, requests in answered(data):
        logs = logs_of(data, requests)
        failed, refused = logs.all("failed_decodes"), logs.all("position_refused")
        count = sum(log.failed_decodes_of_target for _, log in logs.read)
        if count or (refused and not failed):
            yield of_arm(
                "invalid",
                arm.id,
                Message("target-decode-failed.found", forwards=count or refused.count),
                failed=count,
                positions_refused=refused.count,
                log=first_line(failed) or first_line(refused),
            )
        elif logs.missing:
            yield from _failures_by_counters(data, arm, requests, logs.missing)


def _failures_by_counters(data: RunData, arm: Arm, requests: Requests, missing: int) -> Findings:
    law = Law(arm, used_sessions(data, requests), requests)
    gaps = list(law.gaps(requests))
    missed = [gap.least for gap in gaps if gap is not None and gap.least > 0]
    if missed:
        yield of_arm(
            "invalid",
            arm.id,
            Message("target-decode-failed.by_counters", tokens=sum(missed), requests=len(missed)),
            Message("target-decode-failed.fix_by_counters"),
        )
    elif None in gaps:
        yield _no_log(data, arm, Message("unchecked.no_log_no_forwards", sessions=missing))


def _no_log(data: RunData, arm: Arm, reason: Message) -> Unchecked:
    return not_applicable(arm.id, Message("unchecked.simulated")) if data.simulated else not_checkable(arm.id, reason)


def draft_decode_failed(data: RunData) -> Findings:
    """Forwards of the draft model fail: drafts are empty or short, and acceptance is that of something else.

    Assumes: llama.cpp's log reports each failed forward pass of the draft model as such.
    Otherwise: another engine's wording goes unnoticed; a missing log is suspect if the engine normally has one.
    """
    for arm, requests in answered(data):
        if not by_model(data, arm):
            yield not_applicable(arm.id, Message("unchecked.no_draft"))
            continue
        logs = logs_of(data, requests)
        reported = logs.all("draft_failures")
        count = max(reported.count, sum(log.failed_decodes_of_draft for _, log in logs.read))
        if count:
            yield of_arm(
                "invalid",
                arm.id,
                Message("draft-decode-failed.found", failed=count),
                log=first_line(reported) or first_line(logs.all("failed_decodes")),
            )
        elif logs.missing:
            yield _no_log(data, arm, Message("unchecked.no_log", missing=logs.missing, sessions=logs.sessions))


# --- nothing drafts --------------------------------------------------------------------------------------------------


def _as_found(data: RunData, arm: Arm) -> bool:
    """Whether a server is measured as it was found, and compared with nothing: that it drafts was not said."""
    return arm.baseline_id is None and data.traits.drafters(arm.methods) == {"unknown"}


def speculation_not_active(data: RunData) -> Findings:
    """Drafting was asked for and never happened: the arm is a baseline under another name.

    Assumes: a slot does not speculate if the engine says so, or if its log reports a failed set-up and nothing was
    drafted.
    Otherwise: if the engine reports neither, a draft model that drafted nothing may just have been unsure: suspect.
    """
    for arm, requests in answered(data):
        if not arm.speculates or _as_found(data, arm):
            yield not_applicable(arm.id, _PLAIN if not arm.speculates else _AS_FOUND)
            continue
        sessions = used_sessions(data, requests)
        off = sum(session.speculating is False for session in sessions)
        refused = logs_of(data, requests).all("speculation_refused")
        drafted = requests.total("draft_n")
        untold = any(session.speculating is None for session in sessions) or not sessions
        if off or (refused and not drafted):
            yield _not_active(arm, off, len(sessions), drafted, first_line(refused))
        elif refused:
            yield of_arm(
                "suspect",
                arm.id,
                Message("speculation-not-active.partly", drafted=drafted),
                Message("speculation-not-active.fix_partly"),
                log=first_line(refused),
            )
        elif untold and not drafted:
            if by_model(data, arm):
                # A model that stops where it is unsure may have been unsure throughout.
                yield _not_active(arm, off, len(sessions), drafted, None, "suspect")
            else:
                yield not_checkable(arm.id, Message("unchecked.speculating_unknown"))


def _not_active(
    arm: Arm, off: int, sessions: int, drafted: int, line: str | None, severity: Severity = "invalid"
) -> Finding:
    methods = " + ".join(arm.methods)
    return of_arm(
        severity,
        arm.id,
        Message("speculation-not-active.some", methods=methods, sessions_off=off, sessions=sessions)
        if off
        else Message("speculation-not-active.found", methods=methods),
        sessions_off=off,
        sessions=sessions,
        drafted=drafted,
        log=line,
    )


def drafter_idle(data: RunData) -> Findings:
    """The method hardly ever drafts: whatever the speed is, it is not the drafts' doing.

    Some settings let a method never draft, or otherwise than asked, and no engine says so; that can be told beforehand.

    Assumes: a method that drafts for fewer than 1 in 20 tokens cannot explain the speed.
    Otherwise: rare drafts may still cost or save time, so it is suspect and its numbers are shown.
    """
    for arm in data.arms.values():
        requests = data.by_arm[arm.id]
        if not arm.speculates or _as_found(data, arm):
            if requests:
                yield not_applicable(arm.id, _PLAIN if not arm.speculates else _AS_FOUND)
            continue
        drafted = requests.total("draft_n")
        limits = _limits(data, arm, drafted)
        for limit in limits:
            yield of_arm("suspect", arm.id, limit.told, limit.fix, method=limit.method, never_drafts=limit.never)
        if requests and sum(limit.never for limit in limits) < len(arm.methods):
            yield from _idle(arm, requests, drafted)


def _idle(arm: Arm, requests: Requests, drafted: int) -> Findings:
    generated = requests.total("predicted_n")
    if not generated:
        yield not_applicable(arm.id, Message("unchecked.nothing_decoded"))
    elif drafted < IDLE_SHARE * generated:
        yield of_arm(
            "suspect",
            arm.id,
            Message("drafter-idle.found", drafted=drafted, generated=generated),
        )
    elif drafted < MIN_DRAFTED:
        yield of_arm(
            "note",
            arm.id,
            Message("drafter-idle.few", drafted=drafted),
            Message("drafter-idle.fix_few", needed=MIN_DRAFTED),
            generated=generated,
        )


def _limits(data: RunData, arm: Arm, drafted: int) -> list[DraftLimit]:
    """What the engine silently makes of the arm's settings; a run in which the method drafted after all refutes it."""
    refuted = bool(drafted) and len(arm.methods) == 1
    found = silent_limits(arm, _room(data, arm), data.traits)
    return [limit for limit in found if not (limit.never and refuted)]


def _room(data: RunData, arm: Arm) -> Room:
    most = data.experiment.generation.max_tokens
    prompts = [it for it in data.prompts.values() if not arm.workloads or it.workload in arm.workloads]
    if not prompts:
        return Room(answer=most, text=arm.engine.full_context)
    answers = [it.max_tokens or most for it in prompts]
    texts = [_most_tokens(it, arm.engine.full_context) + answer for it, answer in zip(prompts, answers, strict=True)]
    return Room(answer=max(answers), text=min(arm.engine.full_context, max(texts)))


def _most_tokens(prompt: Prompt, context: int) -> int:
    """Most tokens that a prompt can have: its exact number, or no more than its bytes and a few that are added."""
    if prompt.token_count is not None:
        return prompt.token_count + _ADDED
    # A chat template adds text of its own, of any length.
    return context if prompt.format == "chat" else len(prompt.text.encode()) + _ADDED


# --- checkpoints -----------------------------------------------------------------------------------------------------


def replay_livelock(data: RunData) -> Findings:
    """The engine restores the same position again and again: time passes and no token comes.

    A replay may reject once more what another batch size has decided the other way, so that two in a row are honest,
    though dear. But each cuts a token off the draft at least: more in a row than a draft has tokens make no headway.

    Assumes: each restored checkpoint shortens the draft by at least one token, so more restores in a row than draft
    tokens make no progress.
    Otherwise: fewer in a row may come from near ties that depend on the batch size: suspect.
    """
    for arm, requests in answered(data):
        if not arm.speculates:
            yield not_applicable(arm.id, _PLAIN)
            continue
        stuck = requests.at(requests.number("restores_at_one_place") > 1)
        longest = _longest_drafts(arm, used_sessions(data, requests))
        for request in stuck:
            yield of_request(
                "invalid" if request.restores_at_one_place > longest else "suspect",
                request,
                Message("replay-livelock.found", restores_in_a_row=request.restores_at_one_place),
                restores=request.restores,
            )
        if not stuck:
            yield from _livelock_in_log(data, arm, requests)


def _longest_drafts(arm: Arm, sessions: Sequence[Session]) -> int:
    return max((longest_draft(arm, session) for session in sessions), default=LONGEST_DRAFT)


def _livelock_in_log(data: RunData, arm: Arm, requests: Requests) -> Findings:
    logs = logs_of(data, requests)
    worst = max((log for _, log in logs.read), key=lambda log: log.longest_replay, default=None)
    header = data.header(arm.target)
    stepped = any(requests.different("step_n")) or not any(requests.different("draft_n"))
    if worst is not None and worst.longest_replay > 1:
        yield of_arm(
            "invalid" if worst.longest_replay > _longest_drafts(arm, used_sessions(data, requests)) else "suspect",
            arm.id,
            Message(
                "replay-livelock.log",
                restores_in_a_row=worst.longest_replay,
                at=worst.longest_replay_at,
            ),
        )
    elif header is not None and not header.recurrent:
        yield not_applicable(arm.id, Message("unchecked.no_checkpoints"))
    elif header is not None and not stepped and not any(log.checkpoints_restored for _, log in logs.read):
        yield not_checkable(arm.id, Message("unchecked.checkpoints_not_traced"))


def checkpoint_cost(data: RunData) -> Findings:
    """What it takes to undo rejected tokens on a recurrent or hybrid target.

    Assumes: each restored checkpoint makes the target repeat a forward pass.
    Otherwise: the share of replays is an upper bound if a build restores without repeating.
    """
    for arm, requests in answered(data):
        if not arm.speculates:
            yield not_applicable(arm.id, _PLAIN)
            continue
        logs = logs_of(data, requests)
        created = [log.checkpoints_created for _, log in logs.read]
        in_log = sum(log.checkpoints_restored.count for _, log in logs.read)
        restores = requests.total("restores")
        header = data.header(arm.target)
        if restores or in_log or any(created):
            yield _cost(arm, requests, restores, in_log, sum(it.count for it in created), _size(created))
        elif header is not None and header.recurrent and logs.missing:
            yield not_checkable(arm.id, Message("unchecked.checkpoints_without_log"))
        elif header is not None and not header.recurrent:
            yield not_applicable(arm.id, Message("unchecked.no_checkpoints"))


def _size(created: Sequence[object]) -> float | None:
    """Mean size of a checkpoint in bytes, where the log prints it."""
    sized = sum(getattr(it, "sized", 0) for it in created)
    return sum(getattr(it, "size_bytes", 0) for it in created) / sized if sized else None


def _cost(arm: Arm, requests: Requests, restores: int, in_log: int, created: int, each: float | None) -> Finding:
    forwards = sum(map(forwards_after_prompt, requests))
    share = restores / forwards
    return of_arm(
        "note",
        arm.id,
        Message(
            "checkpoint-cost.found",
            checkpoints=restores or in_log,
            # Rejecting costs the replay: a forward whose tokens the rejected one had computed already.
            replays=Message("checkpoint-cost.replays", replayed_share=share) if restores else "",
            saved="" if each is None else Message("checkpoint-cost.saved", created=created, each=each),
        ),
        restored=restores,
        restored_in_log=in_log,
        created=created,
        size_mib=None if each is None else each / MIB,
        replayed_share=share if restores else None,
    )


_LOG = ("sessions", "logs", "requests")

CHECKS: tuple[Check, ...] = (
    Check(
        "target-decode-failed",
        "invalid",
        target_decode_failed,
        saw=(*_LOG, "replies"),
        reads=("log", "forwards"),
    ),
    Check("draft-decode-failed", "invalid", draft_decode_failed, saw=(*_LOG, "arms"), reads=("log",)),
    Check(
        "speculation-not-active",
        "invalid",
        speculation_not_active,
        saw=(*_LOG, "arms"),
        needs=("drafts",),
        reads=("activation",),
    ),
    Check(
        "drafter-idle",
        "suspect",
        drafter_idle,
        saw=("arms", "requests", "experiment", "prompts"),
        needs=("drafts",),
        before=True,
    ),
    Check(
        "acceptance-by-construction",
        "invalid",
        acceptance_by_construction,
        saw=(*_LOG, "arms", "models", "replies"),
        needs=("drafts",),
    ),
    Check("checkpoint-cost", "note", checkpoint_cost, saw=(*_LOG, "arms", "models", "replies")),
    Check(
        "replay-livelock",
        "invalid",
        replay_livelock,
        saw=(*_LOG, "arms", "models", "replies"),
        reads=("log", "steps"),
    ),
)
