"""Checks of what belongs together: target and draft, prompts and acceptance, models and the machines they lie on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from specmeter.engines.llama_cpp.spec import any_remote
from specmeter.messages import Message
from specmeter.record import Arm, Condition, DeviceUse, DraftPair, Finding, Session, Unchecked
from specmeter.record.verdict import Findings
from specmeter.validity.checks.check import Check, answered, not_applicable, not_checkable, of_arm, of_run
from specmeter.validity.checks.requests import Requests
from specmeter.validity.checks.run_data import RunData
from specmeter.validity.checks.sessions import Logs, first_line, logs_of, used_sessions

AS_LARGE, LARGE = 0.8, 0.5
"""Bytes read per token, draft / target: above the first a draft is not smaller, above the second it hardly pays."""
_SPECIAL = frozenset({"bos-token", "eos-token", "eot-token", "first-token-texts", "pre-tokenizer", "fingerprint"})
"""Conditions about special tokens and how text becomes tokens, that no engine insists on."""
_NO_DRAFT = Message("unchecked.no_draft")


# --- target and draft ------------------------------------------------------------------------------------------------


def vocab_mismatch(data: RunData) -> Findings:
    """Target and draft speak of different tokens: refused by the engine, or translated by way of text.

    Assumes: both files differ in something that llama.cpp requires, or its log says that tokens are translated.
    Otherwise: an engine that drafts anyway and reports nothing has other requirements: suspect.
    """
    for arm in data.arms.values():
        if arm.draft is None:
            yield not_applicable(arm.id, _NO_DRAFT)
            continue
        pair = _pair(data, arm)
        logs = logs_of(data, data.by_arm[arm.id])
        refused = [] if pair is None else [it for it in pair.conditions if it.status == "refused"]
        drafted = data.by_arm[arm.id].total("draft_n")
        translated, mismatch = logs.all("tokens_translated"), logs.all("vocabulary_mismatch")
        if refused or translated or mismatch:
            said = first_line(translated) or first_line(mismatch)
            # An engine that says nothing and drafts all the same has other conditions than those that we know.
            known = translated or mismatch or not drafted
            yield of_arm(
                "invalid" if known else "suspect",
                arm.id,
                Message(
                    "vocab-mismatch.found",
                    draft=arm.draft,
                    target=arm.target,
                    why=_differs(refused[0]) if refused else said or "",
                ),
                conditions=", ".join(it.name for it in refused) or None,
                translated=bool(translated),
                log=said,
            )
        elif data.simulated:
            yield not_applicable(arm.id, Message("unchecked.simulated"))
        elif pair is None and (logs.missing or not logs.sessions):
            yield not_checkable(arm.id, Message("unchecked.not_compared_no_log"))


def _differs(condition: Condition) -> Message:
    return Message("vocab-mismatch.condition", name=condition.name, draft=condition.draft, target=condition.target)


def draft_special_tokens(data: RunData) -> Findings:
    """Differences that no engine refuses and that cost acceptance.

    Assumes: different special tokens and templates lower the acceptance rate.
    Otherwise: they may not, so it is a note.
    """
    chat = any(prompt.format == "chat" for prompt in data.prompts.values())
    names = _SPECIAL | {"chat-template"} if chat else _SPECIAL
    for arm in data.arms.values():
        pair = _pair(data, arm)
        if arm.draft is None:
            yield not_applicable(arm.id, _NO_DRAFT)
        elif data.simulated:
            yield not_applicable(arm.id, Message("unchecked.simulated"))
        elif pair is None:
            yield not_checkable(arm.id, Message("unchecked.not_compared"))
        elif warned := [it for it in pair.conditions if it.status == "warning" and it.name in names]:
            yield of_arm(
                "note",
                arm.id,
                Message(
                    "draft-special-tokens.found",
                    draft=arm.draft,
                    target=arm.target,
                    differences=_all_differ(warned),
                ),
                conditions=", ".join(it.name for it in warned),
            )


def _pair(data: RunData, arm: Arm) -> DraftPair | None:
    return data.pairs.get((arm.target, arm.draft)) if arm.draft is not None else None


def _all_differ(conditions: Sequence[Condition]) -> list[Message]:
    code = "draft-special-tokens.condition"
    return [Message(code, name=it.name, draft=it.draft, target=it.target) for it in conditions]


def draft_not_smaller(data: RunData) -> Findings:
    """A draft that reads as much per token as its target cannot pay: perhaps the two were mixed up.

    Assumes: bytes read per token represent the time of a forward pass.
    Otherwise: on a compute-bound machine they do not: suspect at most, and a note if the draft model is merely large.
    """
    for arm in data.arms.values():
        if arm.draft is None:
            yield not_applicable(arm.id, _NO_DRAFT)
            continue
        target, draft = (data.header(name) for name in (arm.target, arm.draft))
        if data.simulated:
            yield not_applicable(arm.id, Message("unchecked.simulated"))
        elif target is None or draft is None or not target.bytes_per_token:
            yield not_checkable(arm.id, Message("unchecked.no_headers"))
        elif (share := draft.bytes_per_token / target.bytes_per_token) > LARGE:
            yield of_arm(
                "suspect" if share > AS_LARGE else "note",
                arm.id,
                Message(
                    "draft-not-smaller.found",
                    draft=arm.draft,
                    draft_bytes_per_token=draft.bytes_per_token,
                    target=arm.target,
                    target_bytes_per_token=target.bytes_per_token,
                ),
                Message("draft-not-smaller.fix_moe") if target.experts else Message("draft-not-smaller.fix"),
                share=share,
            )


# --- prompts ---------------------------------------------------------------------------------------------------------


def random_prompts(data: RunData) -> Findings:
    """A dense model takes as long for random tokens as for any others, but what follows says nothing about acceptance.

    A mixture of experts may choose other experts for random tokens than for text, and neighbours may share more of
    them: what such prompts take need not be what text takes. Tokens that are generated after them are the model's own,
    and were seen to choose as after text.

    Assumes: what follows random tokens is not text.
    Otherwise: no assumption is needed, because this follows from the workload.
    """
    random = {name for name, prompt in data.prompts.items() if prompt.random_tokens}
    if not random:
        return
    quoted: dict[str, int] = {}
    for arm, requests in answered(data):
        if arm.speculates and arm.role != "control" and not arm.synthetic_rates:
            drafted = requests.at(requests.where("prompt_id", *random)).total("draft_n")
            if drafted:
                quoted[arm.id] = drafted
    mixtures = [name for name in dict.fromkeys(arm.target for arm in data.arms.values()) if _has_experts(data, name)]
    if mixtures:
        yield of_run(
            "note",
            Message("random-prompts.experts", random=len(random), prompts=len(data.prompts), experts=mixtures),
            Message("random-prompts.fix_experts"),
            experts=", ".join(mixtures),
        )
    elif not quoted:
        yield of_run(
            "note",
            Message("random-prompts.found", random=len(random), prompts=len(data.prompts)),
        )
    for arm_id, drafted in quoted.items():
        yield of_arm(
            "suspect",
            arm_id,
            Message("random-prompts.drafted", drafted=drafted),
            Message("random-prompts.fix_drafted"),
            random=len(random),
        )


def _has_experts(data: RunData, name: str) -> bool:
    header = data.header(name)
    return header is not None and header.experts > 0


def prompt_differs(data: RunData) -> Findings:
    """An arm and its baseline were not given the same prompt: the engine counts other tokens, or the text is another.

    Tokens found in a cache count as well. They are those of one target, so the numbers are equal or something is wrong.

    Assumes: configuration and baseline get one prompt, which one target turns into the same number of tokens.
    Otherwise: cached tokens are counted too, so caching does not matter.
    """
    for arm, _ in answered(data):
        pairs = data.beside_baseline[arm.id]
        if not pairs:
            yield not_applicable(arm.id, Message("unchecked.no_output_of_baseline"))
            continue
        of_each = zip(_prompts(pairs.own), _prompts(pairs.base), strict=True)
        differ = pairs.at([place for place, (own, plain) in enumerate(of_each) if own != plain])
        if differ:
            (it, base), count = differ[0], len(differ)
            yield of_arm(
                "invalid",
                arm.id,
                Message(
                    "prompt-differs.found",
                    differ=count,
                    compared=len(pairs),
                    example_tokens=next(_prompts(differ.own))[1],
                    example_baseline_tokens=next(_prompts(differ.base))[1],
                ),
                example_prompt=it.row.prompt_id,
                same_text=it.row.prompt_sha256 == base.row.prompt_sha256,
            )


def _prompts(requests: Requests) -> Iterator[tuple[str, int]]:
    for sha256, prompt_n, cache_n in requests.values("prompt_sha256", "prompt_n", "cache_n"):
        yield sha256, (prompt_n or 0) + (cache_n or 0)


# --- machines --------------------------------------------------------------------------------------------------------


_MIN_BYTES = 9
"""The shortest command of the protocol: one byte that names it, eight of length. A drafted token takes at least one."""


def rpc_fallback(data: RunData) -> Findings:
    """A model that was to lie on a remote machine stayed here, or one that was to stay went there.

    Three things say where a draft ran: failures to connect in the log (a doubt only), the device of each buffer of
    weights, and the bytes that went over the connection while it drafted, which Linux counts. Each drafted token takes
    one command of 9 bytes at least, so fewer bytes than that are no remote draft, whatever the log says. Texts and
    acceptance say nothing: greedy drafts are the same wherever they are made.

    Assumes: the engine reports where its weights are, and each draft token needs a command of at least 9 bytes.
    Otherwise: a failed connection may have succeeded later: suspect; so is a missing report from an engine that
    normally makes one.
    """
    for arm, requests in answered(data):
        devices, draft_devices = arm.engine.devices, arm.engine.draft_devices if arm.draft else ()
        if (
            not any_remote(devices)
            and not any_remote(draft_devices)
            and not any("--rpc" in f for f in arm.engine.extra_flags)
        ):
            yield not_applicable(arm.id, Message("unchecked.local"))
            continue
        logs = logs_of(data, requests)
        sessions = used_sessions(data, requests)
        failed = logs.all("connect_failed")
        if failed:
            # It may have been reached at the next attempt; where weights lay, and what was sent, decides.
            yield of_arm(
                "suspect",
                arm.id,
                Message("rpc-fallback.unreachable", log=first_line(failed)),
                Message("rpc-fallback.fix_unreachable"),
                failed=failed.count,
            )
        if data.simulated:
            yield not_applicable(arm.id, Message("unchecked.simulated"))
        else:
            yield from _target_place(arm, sessions, logs)
            if any_remote(draft_devices):
                yield from _draft_place(arm, sessions, logs)
                yield from _silence(arm, requests)


def _target_place(arm: Arm, sessions: Sequence[Session], logs: Logs) -> Findings:
    there = sum(_went(session, logs, draft=False) for session in sessions)
    asked = arm.engine.devices
    if any_remote(asked) and there < len(sessions):
        yield _stayed(arm, sessions, len(sessions) - there, "target", asked)
    elif there and asked and not any_remote(asked):
        yield of_arm(
            "invalid",
            arm.id,
            Message("rpc-fallback.target_went", devices=asked, sessions=there, of=len(sessions)),
            Message("rpc-fallback.fix_target_went"),
        )
    elif there and not asked and any_remote(arm.engine.draft_devices):
        yield of_arm(
            "suspect",
            arm.id,
            Message("rpc-fallback.target_too", sessions=there, of=len(sessions)),
            Message("rpc-fallback.fix_target_too"),
        )


def _draft_place(arm: Arm, sessions: Sequence[Session], logs: Logs) -> Findings:
    here = sum(not _went(session, logs, draft=True) for session in sessions)
    if here:
        yield _stayed(arm, sessions, here, "draft", arm.engine.draft_devices)


def _silence(arm: Arm, requests: Requests) -> Findings:
    counted = [it for it in requests if it.row.draft_n and it.remote_bytes is not None]
    silent = [it for it in counted if (it.remote_bytes or 0) < _MIN_BYTES * (it.row.draft_n or 0)]
    if silent:
        yield of_arm(
            "invalid",
            arm.id,
            Message(
                "rpc-fallback.silent",
                silent=len(silent),
                compared=len(counted),
                example_drafted=silent[0].row.draft_n,
                example_bytes=silent[0].remote_bytes,
            ),
            Message("rpc-fallback.fix_silent"),
            example_prompt=silent[0].row.prompt_id,
        )


def _stayed(
    arm: Arm, sessions: Sequence[Session], here: int, model: Literal["target", "draft"], asked: Sequence[str]
) -> Finding | Unchecked:
    places = [session.draft_devices if model == "draft" else session.devices for session in sessions]
    if not all(places):
        return not_checkable(arm.id, Message(f"unchecked.{model}_place", sessions=here, of=len(sessions)))
    held = sorted({use.device for uses in places for use in uses if use.model_buffer_bytes})
    return of_arm(
        "invalid",
        arm.id,
        Message(f"rpc-fallback.{model}_stayed", devices=asked, sessions=here, of=len(sessions)),
        Message("rpc-fallback.fix_stayed"),
        held_by=", ".join(held) or None,
    )


def _went(session: Session, logs: Logs, *, draft: bool) -> bool:
    """Whether weights of the model lay on a remote machine, by the engine's account of its buffers."""
    uses: Sequence[DeviceUse] = session.draft_devices if draft else session.devices
    if any(use.model_buffer_bytes and use.device.startswith("RPC") for use in uses):
        return True
    signs = next((log for it, log in logs.read if it.id == session.id), None)
    return signs is not None and any((buffer.model > 0) == draft and buffer.size_bytes for buffer in signs.rpc_buffers)


CHECKS: tuple[Check, ...] = (
    Check(
        "vocab-mismatch",
        "invalid",
        vocab_mismatch,
        saw=("arms", "pairs", "sessions", "logs", "requests"),
        reads=("log",),
        before=True,
    ),
    Check("draft-special-tokens", "note", draft_special_tokens, saw=("arms", "pairs", "prompts"), before=True),
    Check("draft-not-smaller", "suspect", draft_not_smaller, saw=("arms", "models"), before=True),
    Check("random-prompts", "suspect", random_prompts, saw=("arms", "models", "prompts", "requests"), before=True),
    Check("prompt-differs", "invalid", prompt_differs, saw=("requests", "arms")),
    Check(
        "rpc-fallback",
        "invalid",
        rpc_fallback,
        saw=("arms", "sessions", "logs", "requests"),
        reads=("memory",),
    ),
)
