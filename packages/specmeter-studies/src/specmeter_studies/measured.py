"""Data of a study from our own runs and quality measurements: what published numbers are put beside."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from specmeter.analysis.explain.memory_price import arm_prices
from specmeter.analysis.quality import QualityReport
from specmeter.analysis.reading import read_run
from specmeter.messages import Message
from specmeter.store import RunState, RunStore
from specmeter.store.environment import private
from specmeter.text import quoted
from specmeter_studies import setting
from specmeter_studies.loading import find
from specmeter_studies.places import draft_places
from specmeter_studies.rows import RunRows, prompt_names
from specmeter_studies.rules import LOOKS
from specmeter_studies.study import Answered, ModelUsed, Ran, StudyData
from specmeter_studies.telling import several

if TYPE_CHECKING:
    from specmeter_studies.loading import Study


def from_run(
    study: Study | str, folder: Path, *, part: str | None = None, several: bool = False, vouched: bool = False
) -> StudyData:
    """What a run folder says about a study; `part` is what the study calls that run (default: its experiment).

    Lines are named after the document's suites where the study has a function for it; where a study has `several`
    experiments, lines come with the part as their suite. `vouched`: what is not checked
    yet is taken to be valid. Raises `StoreError` for a folder that is not a run,
    `UsageError` for an unknown study.
    """
    study = find(study) if isinstance(study, str) else study
    report = read_run(folder)
    part = part or report.name
    state = ran(part, report.state, folder, checked=report.certificate is not None)
    with RunStore.open(folder, readonly=True) as store:
        experiment = json.loads(store.experiment_json)
        rows = RunRows(
            report=report,
            rows=tuple(store.rows()),
            prompts={prompt.id: prompt for prompt in store.prompts()},
            max_tokens=experiment.get("generation", {}).get("max_tokens"),
            finished=state.status == "measured",
            vouched=vouched,
            looks=len(LOOKS) if experiment.get("design", {}).get("stopping") == "decided" else 1,
        )
        hosts = tuple(store.hosts())
        places = tuple(draft_places(store))
        models = {model.name: model for model in report.models}
        memory = tuple((part, price) for price in arm_prices(report.arms, models, store.sessions()))
        unions = {routing.target: routing.union for routing in store.routing()}
        twins = any(model.header is not None and model.header.twin is not None for model in report.models)
        answers = tuple(_answers(store, prompt_names(rows.prompts), part)) if twins else ()
        on_gpu = any((session.layers_offloaded or (0, 0))[0] > 0 for session in store.sessions())
    applied = tuple(experiment.get("applied", ()))
    simulated = any(model.simulated for model in report.models)
    return StudyData(
        study=study.name,
        origin="measured",
        title=setting.title(report.models, applied),
        results=tuple(rows.results(part if several else "")),
        arms=tuple(
            line.model_copy(update={"suite": study.suite_of(line)}) for line in rows.lines(part if several else "")
        ),
        models=tuple(setting.model_used(model, applied, unions.get(model.name)) for model in report.models),
        places=places,
        answers=answers,
        memory=memory,
        hosts=setting.distinct(hosts),
        bandwidth_bytes_per_s=None if simulated else setting.bandwidth(hosts, on_gpu=on_gpu),
        parts=(state,),
        notes=setting.notes(report.models, applied),
    )


def _answers(store: RunStore, names: Mapping[str, str], part: str) -> Iterator[Answered]:
    """The first answer of each target to each prompt."""
    plain = {arm.id: arm.target for arm in store.arms() if arm.role == "baseline" and arm.load is None}
    seen: set[tuple[str, str]] = set()
    for request in store.requests():
        target = plain.get(request.arm_id)
        if target is None or request.reply is None or (target, request.prompt_id) in seen:
            continue
        seen.add((target, request.prompt_id))
        prompt = names.get(request.prompt_id, request.prompt_id)
        yield Answered(part=part, target=target, prompt=prompt, tokens=request.reply.token_ids)


def from_quality(name: str, report: QualityReport, *, part: str) -> StudyData:
    """What a quality measurement says about the study `name`; `part` is the plan's name."""
    models = tuple(item.model for item in report.models)
    reason = None if report.complete else Message("study.ran.interrupted")
    return StudyData(
        study=name,
        origin="measured",
        title=setting.title(models, report.applied),
        models=tuple(setting.model_used(model, report.applied) for model in models),
        quality=(report,),
        hosts=(report.host,),
        bandwidth_bytes_per_s=setting.bandwidth((report.host,), on_gpu=bool(report.settings.gpu_layers)),
        parts=(
            Ran(part=part, status="measured" if report.complete else "incomplete", reason=reason),
            *(
                Ran(part=f"{part}: {item.name}", status="skipped", reason=Message("study.outside", text=item.reason))
                for item in report.skipped
            ),
        ),
        notes=setting.notes(models, report.applied),
    )


def merged(name: str, parts: Sequence[StudyData], more: Iterable[Ran] = ()) -> StudyData:
    """All parts of a study as one; `more` are parts, or pieces of parts, without data of their own.

    Models, machines and notes are listed once; the bandwidth only where all parts agree on it.
    """
    bandwidths = {data.bandwidth_bytes_per_s for data in parts}
    titles = tuple(dict.fromkeys(data.title for data in parts))
    return StudyData(
        study=name,
        origin="measured",
        title=titles[0] if len(titles) == 1 else several(titles) if titles else Message("study.measured.nothing"),
        results=tuple(result for data in parts for result in data.results),
        arms=tuple(line for data in parts for line in data.arms),
        models=_distinct(model for data in parts for model in data.models),
        quality=tuple(report for data in parts for report in data.quality),
        places=tuple(place for data in parts for place in data.places),
        answers=tuple(it for data in parts for it in data.answers),
        memory=tuple(price for data in parts for price in data.memory),
        hosts=setting.distinct(host for data in parts for host in data.hosts),
        bandwidth_bytes_per_s=bandwidths.pop() if len(bandwidths) == 1 else None,
        parts=(*(ran for data in parts for ran in data.parts), *more),
        notes=tuple(dict.fromkeys(note for data in parts for note in data.notes)),
    )


def _distinct(models: Iterable[ModelUsed]) -> tuple[ModelUsed, ...]:
    """Each model once, with its experts where any part has read them."""
    found: dict[tuple[str, str], ModelUsed] = {}
    for model in models:
        key = (model.name, model.reference)
        if key not in found or found[key].union is None:
            found[key] = model
    return tuple(found.values())


def ran(part: str, state: RunState, folder: Path, *, checked: bool) -> Ran:
    """How far an experiment has come; one whose run was stopped before it was checked is not measured yet."""
    if state.is_finished(checked=checked):
        return Ran(part=part, status="measured")
    if state.state == "complete":
        reason = Message("study.ran.not_checked", planned=state.planned, folder=private(quoted(str(folder))))
        return Ran(part=part, status="incomplete", reason=reason)
    reason = Message(
        "study.ran.partly",
        ok=state.ok,
        planned=state.planned,
        failed=Message("study.ran.failed", failed=state.failed) if state.failed else "",
        why=Message("study.ran.why", why=state.reason) if state.reason else "",
    )
    return Ran(part=part, status="incomplete", reason=reason)
