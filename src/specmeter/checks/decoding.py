"""Checks of decoding itself: did the forwards succeed, did anything draft, can the acceptance be what it says?"""

from __future__ import annotations

from collections.abc import Sequence

from specmeter.checks.check import Check, Findings, about_arm, about_request
from specmeter.checks.evidence import Law, answered, first_line, logs_of, not_applicable, unseen, used_sessions
from specmeter.checks.run_data import RequestData, RunData
from specmeter.record import DRAFT_MODEL_METHODS, Arm, Finding, Session, Severity, Unchecked

IDLE_SHARE = 0.05
"""Drafted / generated tokens below which a method hardly drafts."""
FEWEST_DRAFTED = 50
"""An acceptance rate from fewer drafted tokens is not quoted."""
EVIDENT, CERTAIN = 200, 1000
"""Tokens drafted for different prompts after which it is strange, and not to be believed, that none was rejected."""
MIB = 1024 * 1024

_MODEL_METHODS = DRAFT_MODEL_METHODS | {"draft-mtp"}
_PLAIN = "it does not speculate"


# --- forwards that fail ----------------------------------------------------------------------------------------------


def target_decode_failed(data: RunData) -> Findings:
    """Verification fails, the engine goes on and samples stale logits: fast, and false.

    The log says so. Where there is no log, the counters have to say it: more tokens than successful forwards.
    """
    for arm, requests in answered(data):
        logs = logs_of(data, requests)
        failed, refused = logs.all("failed_decodes"), logs.all("position_refused")
        count = sum(log.failed_decodes_of_target for _, log in logs.read)
        if count or (refused and not failed):
            yield about_arm(
                "target-decode-failed",
                "invalid",
                arm.id,
                f"{count or refused.count} forwards of the target failed: tokens were sampled from stale logits",
                "use an engine build on which this model decodes; nothing that this arm measured can be used",
                failed=count,
                positions_refused=refused.count,
                log=first_line(failed) or first_line(refused),
            )
        elif logs.missing:
            yield from _failures_by_counters(data, arm, requests, logs.missing)


def _failures_by_counters(data: RunData, arm: Arm, requests: Sequence[RequestData], missing: int) -> Findings:
    law = Law(arm, used_sessions(data, requests), requests)
    gaps = [law.gap(request) for request in requests]
    missed = [gap[0] for gap in gaps if gap is not None and gap[0] > 0]
    if missed:
        yield about_arm(
            "target-decode-failed",
            "invalid",
            arm.id,
            f"{sum(missed)} tokens of {len(missed)} requests came out of no successful forward of the target",
            "look into the engine's own log, and use a build on which this model decodes",
            tokens=sum(missed),
            requests=len(missed),
        )
    elif None in gaps:
        yield _no_log(data, arm, f"{missing} sessions have no readable log, and the engine counted no forwards")


def _no_log(data: RunData, arm: Arm, reason: str) -> Unchecked:
    return not_applicable(arm.id, "a simulated engine writes no log") if data.simulated else unseen(arm.id, reason)


def draft_decode_failed(data: RunData) -> Findings:
    """Forwards of the draft model fail: drafts are empty or short, and acceptance is that of something else."""
    for arm, requests in answered(data):
        if not _MODEL_METHODS & set(arm.methods):
            yield not_applicable(arm.id, "no model drafts for it")
            continue
        logs = logs_of(data, requests)
        reported = logs.all("draft_failures")
        count = max(reported.count, sum(log.failed_decodes_of_draft for _, log in logs.read))
        if count:
            yield about_arm(
                "draft-decode-failed",
                "invalid",
                arm.id,
                f"{count} forwards of the draft failed: what was drafted is not what this draft model drafts",
                "look for the reason in the engine's log (context of the draft, memory), or use another build",
                failed=count,
                log=first_line(reported) or first_line(logs.all("failed_decodes")),
            )
        elif logs.missing:
            yield _no_log(data, arm, f"{logs.missing} of {logs.sessions} sessions have no readable log")


# --- nothing drafts --------------------------------------------------------------------------------------------------


def speculation_not_active(data: RunData) -> Findings:
    """Drafting was asked for and never happened: the arm is a baseline under another name."""
    for arm, requests in answered(data):
        if not arm.speculates:
            yield not_applicable(arm.id, _PLAIN)
            continue
        sessions = used_sessions(data, requests)
        off = sum(session.speculating is False for session in sessions)
        refused = logs_of(data, requests).all("speculation_refused")
        drafted = sum(request.row.draft_n or 0 for request in requests)
        untold = any(session.speculating is None for session in sessions) or not sessions
        if off or (refused and not drafted):
            yield _not_active(arm, off, len(sessions), drafted, first_line(refused))
        elif refused:
            yield about_arm(
                "speculation-not-active",
                "suspect",
                arm.id,
                f"the log says that speculation could not be set up as asked, yet {drafted} tokens were drafted: "
                "perhaps not by every method of the arm",
                "see the log for the method that is missing, and measure without it",
                drafted=drafted,
                log=first_line(refused),
            )
        elif untold and not drafted:
            if _MODEL_METHODS & set(arm.methods):
                yield _not_active(arm, off, len(sessions), drafted, None)
            else:
                yield unseen(arm.id, "the engine does not say whether it speculates, and nothing was drafted")


def _not_active(arm: Arm, off: int, sessions: int, drafted: int, line: str | None) -> Finding:
    where = f"in {off} of {sessions} sessions" if off else "in any session"
    return about_arm(
        "speculation-not-active",
        "invalid",
        arm.id,
        f"{' + '.join(arm.methods)} was asked for, and the engine did not speculate {where}",
        "see the engine's log for why; `specmeter models compare TARGET DRAFT` shows whether the draft fits",
        sessions_off=off,
        sessions=sessions,
        drafted=drafted,
        log=line,
    )


def drafter_idle(data: RunData) -> Findings:
    """The method hardly ever drafts: whatever the speed is, it is not the drafts' doing."""
    for arm, requests in answered(data):
        if not arm.speculates:
            yield not_applicable(arm.id, _PLAIN)
            continue
        drafted = sum(request.row.draft_n or 0 for request in requests)
        generated = sum(request.row.predicted_n or 0 for request in requests)
        if not generated:
            yield not_applicable(arm.id, "nothing was generated")
        elif drafted < IDLE_SHARE * generated:
            yield about_arm(
                "drafter-idle",
                "suspect",
                arm.id,
                f"only {drafted} tokens were drafted while {generated} were generated: the method is idle",
                "measure on prompts that it can draft for, or lower gamma_min, p_min or ngram_n",
                drafted=drafted,
                generated=generated,
            )
        elif drafted < FEWEST_DRAFTED:
            yield about_arm(
                "drafter-idle",
                "note",
                arm.id,
                f"{drafted} drafted tokens are too few to quote an acceptance rate",
                f"measure until at least {FEWEST_DRAFTED} tokens are drafted",
                drafted=drafted,
                generated=generated,
            )


# --- acceptance that can only be 100 % -------------------------------------------------------------------------------


def acceptance_by_construction(data: RunData) -> Findings:
    """The counter leaves out rejected drafts, so that it says 100 % whatever happens.

    100 % alone is no fault: a model drafting for itself has it, and so has a repetition that is copied. What cannot be
    is 100 % beside checkpoints restored after rejections, beside steps that were accepted in part, or with more
    forwards than full drafts need. And a draft model that stops when it is unsure is not right a thousand times in a
    row.
    """
    for arm, requests in answered(data):
        drafted = sum(request.row.draft_n or 0 for request in requests)
        if not drafted:
            yield not_applicable(arm.id, "nothing was drafted")
            continue
        contradicted = False
        for request in requests:
            finding = _contradicted(request)
            if finding is not None:
                contradicted = True
                yield finding
        all_accepted = sum(request.row.draft_n_accepted or 0 for request in requests) == drafted
        if all_accepted and not contradicted:
            sessions = used_sessions(data, requests)
            yield from _by_arithmetic(data, arm, requests, sessions[0] if sessions else None, drafted)


def _contradicted(request: RequestData) -> Finding | None:
    row = request.row
    if not row.draft_n or row.draft_n != row.draft_n_accepted or not (request.restores or request.partial):
        return None
    shown = f"{request.restores} restored checkpoints" if request.restores else f"{request.partial} partial rounds"
    return about_request(
        "acceptance-by-construction",
        "invalid",
        request,
        f"all {row.draft_n} drafted tokens count as accepted, beside {shown}: rejections are not counted",
        "use an engine build that counts every drafted token; this acceptance rate means nothing",
        drafted=row.draft_n,
        restores=request.restores,
        partial_rounds=request.partial,
    )


def _by_arithmetic(
    data: RunData, arm: Arm, requests: Sequence[RequestData], session: Session | None, drafted: int
) -> Findings:
    restored = sum(log.checkpoints_restored.count for _, log in logs_of(data, requests).read)
    if restored and not any(request.row.step_n for request in requests):
        # Where steps are recorded they tell which request it was; the log alone counts the warm-up too, so no more than
        # a suspicion follows from it.
        yield _all_accepted(arm, "suspect", f"{restored} checkpoints were restored", drafted, restored=restored)
    elif arm.methods == ("draft-simple",) and (full := _always_full(arm, session)) is not None:
        forwards = sum(_forwards(request) for request in requests)
        honest = sum(-(-((request.row.predicted_n or 1) - 1) // (full + 1)) for request in requests)
        if drafted >= FEWEST_DRAFTED and forwards > 1.1 * honest + 2 * len(requests):
            why = f"drafts of {full} that are all accepted need {honest} forwards, and there were {forwards}"
            yield _all_accepted(arm, "invalid", why, drafted, forwards=forwards, needed=honest)
    elif _MODEL_METHODS & set(arm.methods) and not _sure(data, arm):
        yield from _too_good(arm, requests, drafted)


def _too_good(arm: Arm, requests: Sequence[RequestData], drafted: int) -> Findings:
    """Greedy text repeats from block to block: only the first answer to each prompt is evidence."""
    first = {request.row.prompt_id: request for request in reversed(requests) if request.row.draft_n}
    distinct = sum(request.row.draft_n or 0 for request in first.values())
    taus = [((it.row.predicted_n or 1) - 1) / _forwards(it) for it in first.values()]
    if len(first) >= 3 and distinct >= EVIDENT and max(taus) >= 1.5 * min(taus):
        why = f"tokens per forward range from {min(taus):.2f} to {max(taus):.2f} over {len(first)} prompts"
        severity: Severity = "invalid" if distinct >= CERTAIN else "suspect"
        yield _all_accepted(arm, severity, why, drafted, distinct=distinct, prompts=len(first))


def _all_accepted(arm: Arm, severity: Severity, why: str, drafted: int, **evidence: float) -> Finding:
    return about_arm(
        "acceptance-by-construction",
        severity,
        arm.id,
        f"all {drafted} drafted tokens count as accepted, but {why}",
        "find out whether the engine counts rejected drafts: a control with synthetic_rates of 0 must say 0 %",
        drafted=drafted,
        **evidence,
    )


def _always_full(arm: Arm, session: Session | None) -> int | None:
    """Gamma where every draft has that length, because drafting never stops early; None where it may."""
    resolved = {} if session is None else session.resolved
    p_min = arm.p_min if arm.p_min is not None else resolved.get("p_min", resolved.get("speculative.p_min"))
    gamma = arm.gamma if arm.gamma is not None else resolved.get("gamma", resolved.get("speculative.n_max"))
    return gamma if p_min == 0 and isinstance(gamma, int) else None


def _sure(data: RunData, arm: Arm) -> bool:
    """Whether acceptance may well be 1: it is decided so, or the target drafts for itself."""
    if arm.synthetic_rates:
        return min(arm.synthetic_rates) == 1
    target, draft = data.models.get(arm.target), data.models.get(arm.draft or "")
    return target is not None and draft is not None and target.sha256 == draft.sha256


def _forwards(request: RequestData) -> int:
    """Target forwards after the prompt, by the conservation law."""
    return max(1, (request.row.predicted_n or 1) - 1 - (request.row.draft_n_accepted or 0))


# --- checkpoints -----------------------------------------------------------------------------------------------------


def replay_livelock(data: RunData) -> Findings:
    """The engine restores the same position again and again: time passes and no token comes."""
    for arm, requests in answered(data):
        if not arm.speculates:
            yield not_applicable(arm.id, _PLAIN)
            continue
        stuck = [request for request in requests if request.restores_at_one_place > 1]
        for request in stuck:
            yield about_request(
                "replay-livelock",
                "invalid",
                request,
                f"a checkpoint was restored {request.restores_at_one_place} times in a row without a token in between",
                "use another engine build, or a method without checkpoints; the time measured is that of a fault",
                restores_in_a_row=request.restores_at_one_place,
                restores=request.restores,
            )
        if not stuck:
            yield from _livelock_in_log(data, arm, requests)


def _livelock_in_log(data: RunData, arm: Arm, requests: Sequence[RequestData]) -> Findings:
    logs = logs_of(data, requests)
    worst = max((log for _, log in logs.read), key=lambda log: log.longest_replay, default=None)
    header = data.header(arm.target)
    stepped = any(request.row.step_n for request in requests) or not any(request.row.draft_n for request in requests)
    if worst is not None and worst.longest_replay > 1:
        yield about_arm(
            "replay-livelock",
            "invalid",
            arm.id,
            f"the log shows {worst.longest_replay} restores at one position ({worst.longest_replay_at})",
            "use another engine build, or a method without checkpoints; the time measured is that of a fault",
            restores_in_a_row=worst.longest_replay,
            at=worst.longest_replay_at,
        )
    elif header is not None and not header.recurrent:
        yield not_applicable(arm.id, "the target forgets rejected tokens without checkpoints")
    elif header is not None and not stepped and not any(log.checkpoints_restored for _, log in logs.read):
        yield unseen(arm.id, "the target needs checkpoints, and neither steps nor the log show any: set trace_steps")


def checkpoint_cost(data: RunData) -> Findings:
    """What it takes to undo rejected tokens on a recurrent or hybrid target."""
    for arm, requests in answered(data):
        if not arm.speculates:
            yield not_applicable(arm.id, _PLAIN)
            continue
        logs = logs_of(data, requests)
        created = [log.checkpoints_created for _, log in logs.read]
        in_log = sum(log.checkpoints_restored.count for _, log in logs.read)
        restores = sum(request.restores for request in requests)
        header = data.header(arm.target)
        if restores or in_log or any(created):
            yield _cost(arm, requests, restores, in_log, sum(it.count for it in created), _size(created))
        elif header is not None and header.recurrent and logs.missing:
            yield unseen(arm.id, "the target needs checkpoints, and not every session has a readable log")
        elif header is not None and not header.recurrent:
            yield not_applicable(arm.id, "the target forgets rejected tokens without checkpoints")


def _size(created: Sequence[object]) -> float | None:
    """Mean size of a checkpoint in bytes, where the log prints it."""
    sized = sum(getattr(it, "sized", 0) for it in created)
    return sum(getattr(it, "size_bytes", 0) for it in created) / sized if sized else None


def _cost(
    arm: Arm, requests: Sequence[RequestData], restores: int, in_log: int, created: int, size: float | None
) -> Finding:
    forwards = sum(_forwards(request) for request in requests)
    share = restores / forwards
    told = f"{restores or in_log} checkpoints were restored"
    if restores:
        # Rejecting costs the replay: a forward whose tokens the rejected one had computed already.
        told += f", so {100 * share:.0f} % of the target's forwards were replays"
    if size is not None:
        told += f"; {created} were saved, of {size / MIB:.1f} MiB each"
    return about_arm(
        "checkpoint-cost",
        "note",
        arm.id,
        told,
        "a shorter gamma or a higher p_min rejects less; methods with bounded rollback (draft-mtp) need no checkpoint",
        restored=restores,
        restored_in_log=in_log,
        created=created,
        size_mib=None if size is None else size / MIB,
        replayed_share=share if restores else None,
    )


# --- acceptance that is none -----------------------------------------------------------------------------------------


def synthetic_on(data: RunData) -> Findings:
    """Acceptance decided by dice tells what steps cost; as a speedup of a model it is false."""
    for arm in data.arms.values():
        if arm.role == "control":
            yield not_applicable(arm.id, "controls may decide acceptance by dice")
            continue
        flags = [flag for flag in arm.engine.extra_flags if "spec-synth" in flag]
        sign = logs_of(data, data.by_arm[arm.id]).all("synthetic")
        if arm.synthetic_rates or flags or sign:
            rates = ", ".join(f"{rate:g}" for rate in arm.synthetic_rates)
            how = f"synthetic_rates {rates}" if rates else flags[0] if flags else "the engine's log says so"
            yield about_arm(
                "synthetic-on",
                "invalid",
                arm.id,
                f"acceptance is decided by dice ({how}): the speedup is that of no model",
                "read it as the cost of steps, and remove synthetic_rates for a result",
                synthetic_rates=rates or None,
                flag=flags[0] if flags else None,
                log=first_line(sign),
            )


def experts_recorded(data: RunData) -> Findings:
    """Looking into the graph makes an engine compute it in pieces: what its steps then take says nothing."""
    for arm in data.arms.values():
        if arm.engine.record_experts:
            yield about_arm(
                "experts-recorded",
                "invalid",
                arm.id,
                "the experts of every step were recorded, which slows decoding down: its times are not comparable",
                "read which experts were chosen, and measure times without engine.record_experts",
            )
        else:
            yield not_applicable(arm.id, "experts were not recorded")


def timing_only(data: RunData) -> Findings:
    """Random weights cost what real ones cost, but agree with nothing: a cost probe, no result."""
    for arm in data.arms.values():
        used = [data.models.get(name) for name in (arm.target, arm.draft) if name is not None]
        random = [model.name for model in used if model is not None and model.timing_only]
        if not arm.speculates or arm.role == "control":
            yield not_applicable(arm.id, _PLAIN if not arm.speculates else "controls measure no speedup")
        elif random:
            yield about_arm(
                "timing-only",
                "invalid",
                arm.id,
                f"{' and '.join(random)} has random weights: its acceptance, and so the speedup, is that of no model",
                "read it as the cost of steps, or use trained weights; the baseline's decode rate is valid",
                models=", ".join(random),
            )


_LOG = ("sessions", "logs", "requests")

CHECKS: tuple[Check, ...] = (
    Check(
        "target-decode-failed",
        "verification fails, the loop goes on and samples stale logits",
        "invalid",
        target_decode_failed,
        saw=(*_LOG, "replies"),
    ),
    Check(
        "draft-decode-failed",
        "forwards of the draft fail, so drafts are empty or short",
        "invalid",
        draft_decode_failed,
        saw=(*_LOG, "arms"),
    ),
    Check(
        "speculation-not-active",
        "a draft is loaded, but nothing drafts",
        "invalid",
        speculation_not_active,
        saw=(*_LOG, "arms"),
    ),
    Check("drafter-idle", "the method almost never drafts", "suspect", drafter_idle, saw=("arms", "requests")),
    Check(
        "acceptance-by-construction",
        "the acceptance counter can only say 100 %",
        "invalid",
        acceptance_by_construction,
        saw=(*_LOG, "arms", "models", "replies"),
    ),
    Check(
        "checkpoint-cost",
        "recurrent targets save, restore and replay on each rejection",
        "note",
        checkpoint_cost,
        saw=(*_LOG, "arms", "models", "replies"),
    ),
    Check(
        "replay-livelock",
        "the same position is restored again and again",
        "invalid",
        replay_livelock,
        saw=(*_LOG, "arms", "models", "replies"),
    ),
    Check(
        "synthetic-on",
        "acceptance decided by dice is reported as real",
        "invalid",
        synthetic_on,
        saw=("arms", *_LOG),
        before=True,
    ),
    Check(
        "experts-recorded",
        "times of an engine that was looked into",
        "invalid",
        experts_recorded,
        saw=("arms",),
        before=True,
    ),
    Check(
        "timing-only",
        "acceptance of random weights is reported as real",
        "invalid",
        timing_only,
        saw=("arms", "models"),
        before=True,
    ),
)
