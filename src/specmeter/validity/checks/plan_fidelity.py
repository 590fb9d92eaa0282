"""Checks whether the run is the one that the experiment asks for, with the models that it names."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any, cast

from specmeter import __version__
from specmeter.engines.llama_cpp.options import OPTIONS
from specmeter.engines.llama_cpp.spec import METHOD_OPTIONS, any_remote
from specmeter.errors import ExperimentError
from specmeter.experiments.cells import ids_under
from specmeter.experiments.experiment import Experiment
from specmeter.experiments.file import parse
from specmeter.messages import Message
from specmeter.record import Arm, Prompt, Severity
from specmeter.record.verdict import Findings
from specmeter.validity.checks.check import Check, not_applicable, not_checkable, of_arm, of_run, shown
from specmeter.validity.checks.run_data import RunData
from specmeter.validity.checks.sessions import sessions_by_arm
from specmeter.workloads import load, needs_tokenizer
from specmeter.workloads.spec import FileWorkload, WorkloadSpec
from specmeter.workloads.texts import BETWEEN

_SHOWN = 3
_Key = tuple[int, int, str, str]


# --- experiment-differs ----------------------------------------------------------------------------------------------


def experiment_differs(data: RunData) -> Findings:
    """Arms, prompts or planned requests that are not those that the experiment stands for.

    An experiment stands for its arms and for a request of each in every block of every invocation; which, is computed
    again here. Arms that a study left out, because models or machines were missing, are only named. A run that stops
    when it is decided may lack an arm in any block but the first, as a whole. Another version of specmeter may have
    read the same experiment otherwise: then it is a doubt and nothing more.

    Assumes: this version of specmeter started the run, and reads the experiment the same way.
    Otherwise: another version may have read it differently: then it is only suspect.
    """
    if not data.plan:
        yield not_checkable(None, Message("unchecked.no_plan"))
        return
    exact = data.written_by == __version__
    severity: Severity = "invalid" if exact else "suspect"
    yield from _other_text(data) if exact else ()
    try:
        expected = {arm.id: arm for arm in data.experiment.expand(data.traits)}
    except ExperimentError as error:
        message = Message("experiment-differs.cannot_run", error=error.message)
        yield of_run(severity, message)
        return
    for arm in data.arms.values():
        if (difference := _difference(arm, expected.get(arm.id))) is not None:
            yield of_arm(severity, arm.id, difference)
    yield from _missing_arms(data, expected)
    yield from _other_plan(data, severity)
    yield from _other_prompts(data) if exact else ()


def _other_text(data: RunData) -> Findings:
    """The experiment as given, and as resolved: what becomes of disturbed blocks may be said by the environment, and a
    context that is not given fits the prompts."""
    if not data.experiment_yaml:
        return
    try:
        given = parse(data.experiment_yaml)
        if "disturbed" not in given.design.model_fields_set:
            design = given.design.model_copy(update={"disturbed": data.experiment.design.disturbed})
            given = given.model_copy(update={"design": design})
        if given.engine.context is None:
            given = given.with_context(data.experiment.engine.context)
        same = given == data.experiment
    except ExperimentError:
        same = False
    if not same:
        message = Message("experiment-differs.text")
        yield of_run("invalid", message)


def _difference(arm: Arm, expected: Arm | None) -> Message | None:
    if expected is None:
        return Message("experiment-differs.no_arm")
    if arm == expected:
        return None
    name = next(name for name in Arm.model_fields if getattr(arm, name) != getattr(expected, name))
    return Message(
        "experiment-differs.arm", name=name, seen=shown(getattr(arm, name)), expected=shown(getattr(expected, name))
    )


def _missing_arms(data: RunData, expected: Mapping[str, Arm]) -> Findings:
    """Arms left out. If their models are present, the omission is unexplained."""
    missing = [arm for arm_id, arm in expected.items() if arm_id not in data.arms]
    if not missing:
        return
    local = [
        arm
        for arm in missing
        if not any_remote((*arm.engine.devices, *arm.engine.draft_devices))
        and all(name in data.models for name in (arm.target, arm.draft) if name is not None)
    ]
    names = [arm.id for arm in local or missing]
    yield of_run(
        "suspect" if local else "note",
        Message("experiment-differs.missing_arms", arms=len(missing), names=names[:_SHOWN]),
        Message("experiment-differs.fix_missing_arms"),
        first=names[0],
    )


def _other_plan(data: RunData, severity: Severity) -> Findings:
    missing, found = set[_Key](), 0
    planned = sum(map(len, data.plan.values()))
    decided = data.experiment.design.stopping == "decided"
    for key in _due(data):
        if key[3] in data.plan.get(key[:3], ()):
            found += 1
        elif not decided or key[1] == 0 or key[:3] in data.plan:
            missing.add(key)
    extra = set[_Key]()
    if found < planned:
        extra = {(*cell, it) for cell, prompts in data.plan.items() for it in prompts}.difference(_due(data))
    for keys, code in ((missing, "experiment-differs.missing"), (extra, "experiment-differs.extra")):
        if keys:
            invocation, block, arm_id, prompt_id = min(keys)
            blocks = sorted({key[:2] for key in keys})
            yield of_run(
                severity,
                Message(
                    code,
                    requests=len(keys),
                    blocks=len(blocks),
                    prompt=prompt_id,
                    arm=arm_id,
                    block=block,
                    invocation=invocation,
                ),
            )


def _due(data: RunData) -> Iterator[_Key]:
    design = data.experiment.design
    for arm in data.arms.values():
        own = [it for it in data.prompts.values() if not arm.workloads or it.workload in arm.workloads]
        ids = ids_under(list(dict.fromkeys(it.of or it.id for it in own)), arm.load)
        prompts = [data.prompts[name] for name in ids if name in data.prompts]
        for invocation in data.experiment.invocations:
            for block in range(design.blocks):
                for prompt in data.experiment.due(arm, prompts, invocation, block):
                    yield invocation, block, arm.id, prompt.id


def _other_prompts(data: RunData) -> Findings:
    """Prompts of workloads that come with specmeter, or whose number is given."""
    used = {name for arm in data.arms.values() for name in arm.workloads}
    everything = any(not arm.workloads for arm in data.arms.values())
    for spec in data.experiment.workloads:
        if not everything and spec.name not in used:
            continue
        here = {it.of or it.id: it for it in data.prompts.values() if it.workload == spec.name and it.of is not None}
        here |= {it.id: it for it in data.prompts.values() if it.workload == spec.name and it.of is None}
        problem = _prompt_problem(spec, here, data.experiment)
        if problem is not None:
            message = Message("experiment-differs.prompts", workload=spec.name, problem=problem)
            yield of_run("suspect", message, prompts=len(here))


def _prompt_problem(spec: WorkloadSpec, here: Mapping[str, Prompt], experiment: Experiment) -> Message | str | None:
    only = {name for name in experiment.only.prompts if name.startswith(f"{spec.name}/")}
    if experiment.only.prompts and (isinstance(spec, FileWorkload) or needs_tokenizer(spec)):
        absent = only.difference(here)
        return (
            Message("experiment-differs.prompts_missing", first=min(absent), more=len(absent) - 1) if absent else None
        )
    if isinstance(spec, FileWorkload):
        return None
    if needs_tokenizer(spec):
        wanted = len(getattr(spec, "lengths", ())) * int(getattr(spec, "per_length", 1))
        return (
            None if len(here) == wanted else Message("experiment-differs.prompts_count", here=len(here), wanted=wanted)
        )
    try:
        loaded = load((spec.model_copy(update={"baseline_per_block": None}),))
        asked = {prompt.id: prompt for prompt in experiment.chosen(loaded)}
    except ExperimentError as error:
        return error.message
    missing = [name for name in asked if name not in here]
    other = [name for name, it in here.items() if name not in asked or not _same(asked[name], it)]
    if missing:
        return Message("experiment-differs.prompts_missing", first=missing[0], more=len(missing) - 1)
    return Message("experiment-differs.prompts_differ", first=other[0], more=len(other) - 1) if other else None


def _same(asked: Prompt, here: Prompt) -> bool:
    """Whether a prompt is the one that was asked for, or puts other text before it."""
    return here.sha256 == asked.sha256 or (here.of is not None and here.text.endswith(BETWEEN + asked.text))


# --- model-differs ---------------------------------------------------------------------------------------------------


def model_differs(data: RunData) -> Findings:
    """Sessions that were started with another model, or for another arm, than the run says.

    What was started names the paths of target and draft; they are those of the run's models. Where a cache moved while
    the run was interrupted, earlier sessions name the old place of a file of the same name: all of them up to a moment,
    and none after it.

    If several machines measured, each has its files in a place of its own, under the same name. Engines that read
    another form of a bench model have it in a folder that is named by the hash of the file it was made from.

    Assumes: model files were not renamed while the run was interrupted.
    Otherwise: earlier starts name a file that the run no longer knows, and their configurations are suspect.
    """
    by_arm = sessions_by_arm(data)
    moved = _moved(data)
    for arm in data.arms.values():
        known = [(session, named) for session in by_arm[arm.id] if (named := _named(session.argv)) is not None]
        if not known:
            if by_arm[arm.id]:
                yield not_applicable(arm.id, Message("unchecked.models_not_named"))
            continue
        wrong = [(session, it) for session, named in known for it in _wrong(data, arm, named, moved)]
        if wrong:
            session, problem = wrong[0]
            yield of_arm(
                "suspect",
                arm.id,
                Message("model-differs.found", problem=problem),
                sessions=len({it.id for it, _ in wrong}),
                session=session.id,
                problem=problem,
            )


def _wrong(data: RunData, arm: Arm, named: Mapping[str, Any], moved: Mapping[str, set[str]]) -> Iterator[Message]:
    for role, name in (("target", arm.target), ("draft", arm.draft)):
        path = named.get(role)
        expected = data.models[name].path if name is not None and name in data.models else None
        if name is not None and expected is None:
            continue
        if path == expected or (path is not None and path in moved.get(name or "", ())):
            continue
        if path is None or name is None or not _is_form_of(path, data.models[name].sha256):
            yield Message(f"model-differs.{role}", seen=shown(path), expected=shown(expected))
    if (started := named.get("arm")) is not None and started != arm:
        yield Message("model-differs.arm", difference=_difference(started, arm))
    for option, value in named.get("options", {}).items():
        asked = getattr(arm, _DRAFTING[option])
        if asked is not None and value != asked:
            yield Message("model-differs.option", name=_DRAFTING[option], seen=value, expected=asked)


_DRAFTING = {option: field for field, option in METHOD_OPTIONS["draft-simple"].items()}
"""Option of a draft model's method -> field of `Arm`."""


def _named(argv: Sequence[str]) -> dict[str, Any] | None:
    """Paths of target and draft by what was started, with the arm or the drafting options where they are named."""
    order = _order(argv)
    if order is not None and "target" in order:
        try:
            return {"target": order["target"], "draft": order.get("draft"), "arm": Arm.model_validate(order["arm"])}
        except (KeyError, ValueError):
            return None
    values = _fields(order) if order is not None else _flags(argv)
    if "model" not in values:
        return None
    options = {name: values[name] for name in _DRAFTING if name in values}
    return {"target": values["model"], "draft": values.get("draft_model"), "options": options}


def _order(argv: Sequence[str]) -> dict[str, Any] | None:
    """The JSON that an engine of ours is started with: its last argument."""
    if not argv or not argv[-1].startswith("{"):
        return None
    try:
        order: Any = json.loads(argv[-1])
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", order) if isinstance(order, dict) else None


_LOOKED_AT = ("model", "draft_model", *_DRAFTING)


def _fields(order: Mapping[str, Any]) -> dict[str, Any]:
    return {name: order[field] for name in _LOOKED_AT if (field := OPTIONS[name].field) is not None and field in order}


def _flags(argv: Sequence[str]) -> dict[str, Any]:
    """Values of the flags of a native server; numbers as such. vLLM has its draft model within a flag."""
    flags = {flag: name for name in _LOOKED_AT for flag in OPTIONS[name].flags}
    found = {flags[flag]: value for flag, value in pairwise(argv) if flag in flags}
    for flag, value in pairwise(argv):
        if flag == "--speculative-config" and isinstance(draft := (_order((value,)) or {}).get("model"), str):
            found["draft_model"] = draft
    return {name: value if name in ("model", "draft_model") else _number(value) for name, value in found.items()}


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _moved(data: RunData) -> dict[str, set[str]]:
    """Model -> paths under which earlier starts of the run knew it, all before the first session with its own path."""
    names: dict[str, list[str]] = {}
    for session in data.sessions.values():
        arm, named = data.arms.get(session.arm_id), _named(session.argv)
        if arm is None or named is None:
            continue
        for role, name in (("target", arm.target), ("draft", arm.draft)):
            if name is not None and isinstance(named.get(role), str):
                names.setdefault(name, []).append(named[role])
    found: dict[str, set[str]] = {}
    for name, paths in names.items():
        own = data.models[name].path if name in data.models else None
        earlier, several = [path for path in paths if path != own], len({it.device for it in data.hosts}) > 1
        if own is not None and (several or (own not in paths[: len(earlier)] and own in paths)):
            found[name] = {path for path in earlier if _file_name(path) == _file_name(own)}
    return found


def _is_form_of(path: str, sha256: str) -> bool:
    """Whether an engine's own form was made from the file of this hash (`folders.folder_of_bench`)."""
    return bool(sha256) and _file_name(path).endswith(f"-{sha256[:16]}")


def _file_name(path: str) -> str:
    return PureWindowsPath(path).name if "\\" in path else PurePosixPath(path).name


CHECKS: tuple[Check, ...] = (
    Check("experiment-differs", "invalid", experiment_differs, saw=("experiment", "plan", "arms", "prompts", "models")),
    Check("model-differs", "suspect", model_differs, saw=("arms", "models", "sessions", "requests")),
)
