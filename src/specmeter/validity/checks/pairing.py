"""Checks of what belongs together: target and draft, prompts and acceptance, models and the machines they lie on."""

from __future__ import annotations

from collections.abc import Sequence

from specmeter.engines.llama_cpp.spec import any_remote
from specmeter.record import Arm, Condition, DeviceUse, DraftPair, Finding, Session, Unchecked
from specmeter.record.verdict import Findings, about_arm, about_run
from specmeter.text import size
from specmeter.validity.checks.check import (
    Check,
    Logs,
    answered,
    first_line,
    logs_of,
    not_applicable,
    unseen,
    used_sessions,
)
from specmeter.validity.checks.run_data import RequestData, RunData

AS_LARGE, LARGE = 0.8, 0.5
"""Bytes read per token, draft / target: above the first a draft is not smaller, above the second it hardly pays."""
_SPECIAL = frozenset({"bos-token", "eos-token", "eot-token", "first-token-texts", "pre-tokenizer", "fingerprint"})
"""Conditions about special tokens and how text becomes tokens, that no engine insists on."""
_NO_DRAFT = "it has no draft model"


# --- target and draft ------------------------------------------------------------------------------------------------


def vocab_mismatch(data: RunData) -> Findings:
    """Target and draft speak of different tokens: refused by the engine, or translated by way of text."""
    for arm in data.arms.values():
        if arm.draft is None:
            yield not_applicable(arm.id, _NO_DRAFT)
            continue
        pair = _pair(data, arm)
        logs = logs_of(data, data.by_arm[arm.id])
        refused = [] if pair is None else [it for it in pair.conditions if it.status == "refused"]
        drafted = sum(request.row.draft_n or 0 for request in data.by_arm[arm.id])
        translated, mismatch = logs.all("tokens_translated"), logs.all("vocabulary_mismatch")
        if refused or translated or mismatch:
            said = first_line(translated) or first_line(mismatch)
            # An engine that says nothing and drafts all the same has other conditions than those that we know.
            known = translated or mismatch or not drafted
            yield about_arm(
                "vocab-mismatch",
                "invalid" if known else "suspect",
                arm.id,
                f"{arm.draft} cannot draft for {arm.target}: {_differs(refused[0]) if refused else said or ''}",
                "choose a draft with the target's vocabulary; `specmeter models compare TARGET DRAFT` lists "
                "every condition",
                conditions=", ".join(it.name for it in refused) or None,
                translated=bool(translated),
                log=said,
            )
        elif data.simulated:
            yield not_applicable(arm.id, "simulated models have no vocabulary")
        elif pair is None and (logs.missing or not logs.sessions):
            yield unseen(arm.id, "the models were not compared, and not every session has a readable log")


def _differs(condition: Condition) -> str:
    return f"{condition.name} is {condition.draft}, the target's is {condition.target}"


def draft_special_tokens(data: RunData) -> Findings:
    """Differences that no engine refuses and that cost acceptance."""
    chat = any(prompt.format == "chat" for prompt in data.prompts.values())
    names = _SPECIAL | {"chat-template"} if chat else _SPECIAL
    for arm in data.arms.values():
        pair = _pair(data, arm)
        if arm.draft is None:
            yield not_applicable(arm.id, _NO_DRAFT)
        elif data.simulated:
            yield not_applicable(arm.id, "simulated models have no vocabulary")
        elif pair is None:
            yield unseen(arm.id, "the models were not compared")
        elif warned := [it for it in pair.conditions if it.status == "warning" and it.name in names]:
            yield about_arm(
                "draft-special-tokens",
                "note",
                arm.id,
                f"{arm.draft} differs from {arm.target} in ways that no engine refuses: {_all_differ(warned)}",
                "no number is false, but a draft made for this target would be accepted more often",
                conditions=", ".join(it.name for it in warned),
            )


def _pair(data: RunData, arm: Arm) -> DraftPair | None:
    return data.pairs.get((arm.target, arm.draft)) if arm.draft is not None else None


def _all_differ(conditions: Sequence[Condition]) -> str:
    return "; ".join(f"{it.name} ({it.draft} for {it.target})" for it in conditions)


def draft_not_smaller(data: RunData) -> Findings:
    """A draft that reads as much per token as its target cannot pay: perhaps the two were mixed up."""
    for arm in data.arms.values():
        if arm.draft is None:
            yield not_applicable(arm.id, _NO_DRAFT)
            continue
        target, draft = (data.header(name) for name in (arm.target, arm.draft))
        if data.simulated:
            yield not_applicable(arm.id, "simulated models have no weights")
        elif target is None or draft is None or not target.bytes_per_token:
            yield unseen(arm.id, "the headers of target and draft are not on record")
        elif (share := draft.bytes_per_token / target.bytes_per_token) > LARGE:
            yield about_arm(
                "draft-not-smaller",
                "suspect" if share > AS_LARGE else "note",
                arm.id,
                f"{arm.draft} reads {size(draft.bytes_per_token)} per token, the target {arm.target} reads "
                f"{size(target.bytes_per_token)}: drafting costs nearly what it is meant to save",
                "choose a smaller draft; of an MoE only the active experts count, so its draft must be very small"
                if target.experts
                else "choose a smaller draft, or check whether target and draft were swapped",
                draft_bytes_per_token=draft.bytes_per_token,
                target_bytes_per_token=target.bytes_per_token,
                share=share,
            )


# --- prompts ---------------------------------------------------------------------------------------------------------


def random_prompts(data: RunData) -> Findings:
    """A dense model takes as long for random tokens as for any others, but what follows says nothing about acceptance.

    A mixture of experts may choose other experts for random tokens than for text, and neighbours may share more of
    them: what such prompts take need not be what text takes. Tokens that are generated after them are the model's own,
    and were seen to choose as after text.
    """
    random = {name for name, prompt in data.prompts.items() if prompt.random_tokens}
    if not random:
        return
    quoted: dict[str, int] = {}
    for arm, requests in answered(data):
        if arm.speculates and arm.role != "control" and not arm.synthetic_rates:
            drafted = sum(request.row.draft_n or 0 for request in requests if request.row.prompt_id in random)
            if drafted:
                quoted[arm.id] = drafted
    mixtures = [name for name in dict.fromkeys(arm.target for arm in data.arms.values()) if _has_experts(data, name)]
    told = f"{len(random)} of {len(data.prompts)} prompts are random tokens"
    if mixtures:
        yield about_run(
            "random-prompts",
            "note",
            f"{told}, for which {', '.join(mixtures)} may choose other experts than for text: prompt rates on "
            "them may differ from those on text",
            "measure a mixture of experts on prompts of text; `specmeter probe TARGET --routing` shows how its "
            "experts and its speed differ on random tokens",
            random=len(random),
            prompts=len(data.prompts),
            experts=", ".join(mixtures),
        )
    elif not quoted:
        yield about_run(
            "random-prompts",
            "note",
            told,
            "use them for timing only; acceptance needs text",
            random=len(random),
            prompts=len(data.prompts),
        )
    for arm_id, drafted in quoted.items():
        yield about_arm(
            "random-prompts",
            "suspect",
            arm_id,
            f"{drafted} tokens were drafted after prompts of random tokens: this acceptance and speedup do not "
            "hold for any text",
            "measure acceptance on prompts of text, and keep random tokens for baselines and synthetic_rates",
            drafted=drafted,
            random=len(random),
        )


def _has_experts(data: RunData, name: str) -> bool:
    header = data.header(name)
    return header is not None and header.experts > 0


def prompt_differs(data: RunData) -> Findings:
    """An arm and its baseline were not given the same prompt: the engine counts other tokens, or the text is another.

    Tokens found in a cache count as well. They are those of one target, so the numbers are equal or something is wrong.
    """
    for arm, _ in answered(data):
        pairs = data.beside_baseline[arm.id]
        if not pairs:
            yield not_applicable(arm.id, "no request has its baseline's beside it")
            continue
        differ = [(it, base) for it, base in pairs if _prompt(it) != _prompt(base)]
        if differ:
            (it, base), count = differ[0], len(differ)
            yield about_arm(
                "prompt-differs",
                "invalid",
                arm.id,
                f"{count} of {len(pairs)} requests were given another prompt than the baseline's: "
                f"{_prompt(it)[1]} tokens, not {_prompt(base)[1]}",
                "measure again; with chat prompts, check that both arms apply the same template",
                compared=len(pairs),
                differ=count,
                example_prompt=it.row.prompt_id,
                example_tokens=_prompt(it)[1],
                example_baseline_tokens=_prompt(base)[1],
                same_text=it.row.prompt_sha256 == base.row.prompt_sha256,
            )


def _prompt(request: RequestData) -> tuple[str, int]:
    row = request.row
    return row.prompt_sha256, (row.prompt_n or 0) + (row.cache_n or 0)


# --- machines --------------------------------------------------------------------------------------------------------


_LEAST_BYTES = 9
"""The shortest command of the protocol: one byte that names it, eight of length. A drafted token takes at least one."""


def rpc_fallback(data: RunData) -> Findings:
    """A model that was to lie on a remote machine stayed here, or one that was to stay went there.

    Three things say where a draft ran: failures to connect in the log (a doubt only), the device of each buffer of
    weights, and the bytes that went over the connection while it drafted, which Linux counts. Each drafted token takes
    one command of 9 bytes at least, so fewer bytes than that are no remote draft, whatever the log says. Texts and
    acceptance say nothing: greedy drafts are the same wherever they are made.
    """
    for arm, requests in answered(data):
        devices, draft_devices = arm.engine.devices, arm.engine.draft_devices if arm.draft else ()
        if (
            not any_remote(devices)
            and not any_remote(draft_devices)
            and not any("--rpc" in f for f in arm.engine.extra_flags)
        ):
            yield not_applicable(arm.id, "everything runs on this machine")
            continue
        logs = logs_of(data, requests)
        sessions = used_sessions(data, requests)
        failed = logs.all("connect_failed")
        if failed:
            # It may have been reached at the next attempt; where weights lay, and what was sent, decides.
            yield about_arm(
                "rpc-fallback",
                "suspect",
                arm.id,
                f"a remote machine could not be reached: {first_line(failed)}",
                "start ggml-rpc-server there, and check address and firewall",
                failed=failed.count,
                log=first_line(failed),
            )
        if data.simulated:
            yield not_applicable(arm.id, "a simulated engine has no remote machine")
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
        yield about_arm(
            "rpc-fallback",
            "invalid",
            arm.id,
            f"the target was to stay on {', '.join(asked)}, but went to a remote machine in {there} of "
            f"{len(sessions)} sessions",
            "name the target's devices as the engine lists them",
            sessions=there,
        )
    elif there and not asked and any_remote(arm.engine.draft_devices):
        yield about_arm(
            "rpc-fallback",
            "suspect",
            arm.id,
            f"only the draft was to go to a remote machine, but the target went there too in {there} of "
            f"{len(sessions)} sessions",
            "set engine.devices to the local devices: --rpc offers the remote ones to the target as well",
            sessions=there,
        )


def _draft_place(arm: Arm, sessions: Sequence[Session], logs: Logs) -> Findings:
    here = sum(not _went(session, logs, draft=True) for session in sessions)
    if here:
        yield _stayed(arm, sessions, here, "draft", arm.engine.draft_devices)


def _silence(arm: Arm, requests: Sequence[RequestData]) -> Findings:
    counted = [it for it in requests if it.row.draft_n and it.remote_bytes is not None]
    silent = [it for it in counted if (it.remote_bytes or 0) < _LEAST_BYTES * (it.row.draft_n or 0)]
    if silent:
        yield about_arm(
            "rpc-fallback",
            "invalid",
            arm.id,
            f"{len(silent)} of {len(counted)} requests drafted without the remote machine: "
            f"{silent[0].row.draft_n} tokens, but only {silent[0].remote_bytes:.0f} bytes over the connection",
            "see in the engine's log where it placed what, and use another build of it",
            compared=len(counted),
            silent=len(silent),
            example_prompt=silent[0].row.prompt_id,
            example_drafted=silent[0].row.draft_n,
            example_bytes=silent[0].remote_bytes,
        )


def _stayed(arm: Arm, sessions: Sequence[Session], here: int, model: str, asked: Sequence[str]) -> Finding | Unchecked:
    places = [session.draft_devices if model == "draft" else session.devices for session in sessions]
    if not all(places):
        return unseen(arm.id, f"the engine does not say where the {model} lay in {here} of {len(sessions)} sessions")
    held = sorted({use.device for uses in places for use in uses if use.model_buffer_bytes})
    return about_arm(
        "rpc-fallback",
        "invalid",
        arm.id,
        f"the {model} was to lie on {', '.join(asked)}, but did not in {here} of {len(sessions)} sessions",
        "check that ggml-rpc-server offers devices (without any it is skipped silently), and compare names with "
        "the engine's list",
        sessions=here,
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
        "different vocabularies: the draft is refused, or its text translated token by token",
        "invalid",
        vocab_mismatch,
        saw=("arms", "pairs", "sessions", "logs", "requests"),
        before=True,
        assumes=(
            "headers and token texts of both files differ in what llama.cpp insists on, or its log says that tokens "
            "are translated: identity"
        ),
        otherwise="an engine that drafts all the same and says nothing has other conditions: suspect",
    ),
    Check(
        "draft-special-tokens",
        "the draft's special tokens or templates differ, which costs acceptance",
        "note",
        draft_special_tokens,
        saw=("arms", "pairs", "prompts"),
        before=True,
        assumes="special tokens and templates that differ cost acceptance",
        otherwise="they need not: it is a note",
    ),
    Check(
        "draft-not-smaller",
        "the draft reads as much per token as its target",
        "suspect",
        draft_not_smaller,
        saw=("arms", "models"),
        before=True,
        assumes="bytes read per token stand for the time of a forward",
        otherwise=(
            "on a machine that is bound by computing they do not: suspect at most, a note where the draft is merely "
            "large"
        ),
    ),
    Check(
        "random-prompts",
        "random-token prompts: acceptance means nothing, nor do prompt rates of a mixture of experts",
        "suspect",
        random_prompts,
        saw=("arms", "models", "prompts", "requests"),
        before=True,
        assumes="what follows random tokens is not text",
        otherwise="nothing else is assumed: it follows from the workload",
    ),
    Check(
        "prompt-differs",
        "an arm and its baseline were not given the same prompts",
        "invalid",
        prompt_differs,
        saw=("requests", "arms"),
        assumes="arm and baseline are given one text, which one target turns into one number of tokens: identity",
        otherwise="tokens found in a cache count as well, so that caching cannot break it",
    ),
    Check(
        "rpc-fallback",
        "a remote draft ran locally, or the target went remote too",
        "invalid",
        rpc_fallback,
        saw=("arms", "sessions", "logs", "requests"),
        assumes=(
            "the engine's account of its buffers names where the weights lie, and each drafted token takes one "
            "command of 9 bytes at least: identity and counting"
        ),
        otherwise=(
            "an engine that does not say where weights lie leaves the arm at most suspect; so does a connection that "
            "failed, and may have been made later"
        ),
    ),
)
