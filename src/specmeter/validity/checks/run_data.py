"""A run as checks see it: read once, without texts and other bulk."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from sys import intern
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from specmeter import __version__
from specmeter.analysis.consumption import Energies, energies_of
from specmeter.analysis.divergences import find_divergences
from specmeter.analysis.load.summary import LoadTable, cells_of
from specmeter.analysis.summary import RunSummary, summarize
from specmeter.engines.llama_cpp.log_requests import Printed, PrintedRequests
from specmeter.engines.llama_cpp.log_signs import LogSigns, scan
from specmeter.engines.log_lines import stream_lines
from specmeter.engines.registry import traits_on_record
from specmeter.experiments.experiment import Experiment
from specmeter.files import open_inside
from specmeter.messages import Message
from specmeter.probe.replay import ProfileKey, key_of
from specmeter.record import (
    Arm,
    Disturbance,
    DraftPair,
    EngineTraits,
    Estimate,
    Host,
    LoadCell,
    Margin,
    MatchProfile,
    ModelHeader,
    ModelIdentity,
    Prediction,
    Profiled,
    Prompt,
    Session,
    StepProbe,
)
from specmeter.store import RequestKey
from specmeter.store.database import unreadable
from specmeter.validity.checks.request_data import read_requests
from specmeter.validity.checks.requests import Pairs, Requests, in_columns

if TYPE_CHECKING:
    from specmeter.analysis.load.figures import MeasuredCell
    from specmeter.store import RunReader

T = TypeVar("T")


class Sample(NamedTuple):
    """One sample of telemetry, as far as checks need it."""

    at: float
    other_cpu_percent: float
    memory_available_bytes: int
    cpu_mhz: float | None
    on_battery: bool | None
    gpu_throttle: tuple[str, ...]
    """Reasons why a GPU was slowed down, all GPUs together."""
    invocation: int | None = None
    """In a run that several devices measured."""


@dataclass(frozen=True)
class RunData:
    """A run, or (before anything was measured) what will be run: then there are no sessions and no requests."""

    experiment: Experiment
    arms: Mapping[str, Arm]
    """By id, in the order of the experiment; controls included."""
    models: Mapping[str, ModelIdentity]
    """By name in the experiment."""
    hosts: tuple[Host, ...]
    """The machine at each start of the run."""
    pairs: Mapping[tuple[str, str], DraftPair] = field(default_factory=dict[tuple[str, str], DraftPair])
    """(target, draft) -> how they go together."""
    prompts: Mapping[str, Prompt] = field(default_factory=dict[str, Prompt])
    planned: Mapping[str, int] = field(default_factory=dict[str, int])
    """Arm id -> requests that make it complete."""
    plan: Mapping[tuple[int, int, str], frozenset[str]] = field(
        default_factory=dict[tuple[int, int, str], frozenset[str]]
    )
    """(invocation, block, arm id) -> the prompts that make it complete."""
    experiment_yaml: str = ""
    """The experiment as it was given; empty where it is not at hand."""
    written_by: str = __version__
    """Version of specmeter that began the run."""
    sessions: Mapping[str, Session] = field(default_factory=dict[str, Session])
    """By id, in the order of starting."""
    logs: Mapping[str, LogSigns] = field(default_factory=dict[str, LogSigns])
    """Session id -> what its log says; sessions without a readable log are missing."""
    printed: Mapping[str, Sequence[Printed]] = field(default_factory=dict[str, Sequence[Printed]])
    """Session id -> times and counts that the engine printed for each request, warm-ups included."""
    requests: Requests = field(default_factory=lambda: in_columns(()))
    """In the order of measurement; failed ones included."""
    load_cells: Mapping[str, LoadCell] = field(default_factory=dict[str, LoadCell])
    """Session id -> its cell under load, those that were broken off included."""
    late_before: Mapping[str, float] = field(default_factory=dict[str, float])
    """Session id -> by how many ms its requests were late, of cells that were answered and measured again."""
    cells: Sequence[MeasuredCell] = ()
    """What the cells under load that count say, in the order of measurement."""
    predictions: tuple[Prediction, ...] = ()
    """What was foretold of each arm."""
    telemetry: Sequence[Sample] = ()
    disturbances: Sequence[Disturbance] = ()
    """Excluded blocks."""
    replaced: Mapping[RequestKey, int] = field(default_factory=dict[RequestKey, int])
    """How often a request had an answer that does not count."""
    attempts: Mapping[RequestKey, int] = field(default_factory=dict[RequestKey, int])
    """How often a request was asked in all, where it was more than once."""
    energies: Energies | None = None
    """Energy of the requests; None where none was read."""
    margins: tuple[Margin, ...] = ()
    left_at: Mapping[RequestKey, int] = field(default_factory=dict[RequestKey, int])
    """Greedy requests whose text differs from that of their reference (`specmeter.analysis.positions`) -> the first
    generated token that does, from 0."""

    prompt_tokens: Mapping[tuple[str, str], tuple[int, ...]] = field(
        default_factory=dict[tuple[str, str], tuple[int, ...]]
    )
    """(target, prompt id) -> the prompt as the engine tokenized it."""
    profiles: Mapping[ProfileKey, MatchProfile] = field(default_factory=dict["ProfileKey", MatchProfile])
    """Where drafts agree with texts."""
    step_probes: tuple[StepProbe, ...] = ()
    """What steps cost, as measured in the run before the arms that take them."""
    profiled: Profiled | None = None
    """Whether drafts read every text; None where none was asked to."""
    texts: Mapping[bytes, tuple[int, ...]] = field(default_factory=dict[bytes, tuple[int, ...]])
    """Digest of a text -> its token ids, where they are looked at themselves: of arms that look n-grams up."""
    stated: EngineTraits | None = None
    """What the engine states about itself; None before its first session."""

    @cached_property
    def traits(self) -> EngineTraits:
        """What the engine states about itself."""
        return traits_on_record(self.experiment.engine.kind, self.stated)

    @property
    def simulated(self) -> bool:
        """The engine simulates: nothing here was measured."""
        return self.traits.simulated

    def unanswered(self, arm_id: str | None = None) -> Message:
        """Why no request of an arm, or of any, has an answer that counts."""
        aside = any(arm_id in (None, key.arm_id) for key in self.replaced) and self.disturbances
        return Message("unchecked.excluded" if aside else "unchecked.no_answer")

    def devices(self) -> Iterator[tuple[str, RunData]]:
        """(device, what it measured), where several did; else all of it, of no name. What was foretold and probed is
        that of the first."""
        devices: dict[str, list[Host]] = {}
        for host in self.hosts:
            devices.setdefault(host.device or "", []).append(host)
        if len(devices) < 2:
            yield "", self
            return
        of = {it: device for device, hosts in devices.items() for host in hosts for it in host.invocations}
        first = next(iter(devices))
        of_session = {it.id: of.get(it.invocation) for it in self.sessions.values()}
        by_session = {
            name: _divided(getattr(self, name).items(), lambda it: of_session.get(it[0]))
            for name in ("sessions", "logs", "printed", "load_cells", "late_before")
        }
        plan = _divided(self.plan.items(), lambda it: of.get(it[0][0]))
        samples = _divided(self.telemetry, lambda it: None if it.invocation is None else of.get(it.invocation))
        aside = _divided(self.disturbances, lambda it: of.get(it.invocation))
        replaced = _divided(self.replaced.items(), lambda it: of.get(it[0].invocation))
        for device, hosts in devices.items():
            changes: dict[str, Any] = {name: dict(them.pop(device, ())) for name, them in by_session.items()}
            own = [it for it in of if of[it] == device]
            if device != first:
                changes |= {"predictions": (), "step_probes": ()}
            yield (
                device,
                replace(
                    self,
                    hosts=tuple(hosts),
                    requests=self.requests.at(self.requests.where("invocation", *own)),
                    telemetry=samples.get(device, []),
                    plan=dict(plan.pop(device, ())),
                    disturbances=aside.get(device, []),
                    replaced=dict(replaced.get(device, ())),
                    **changes,
                ),
            )

    @cached_property
    def by_arm(self) -> dict[str, Requests]:
        """Arm id -> its requests that were answered, in the order of measurement; every arm has an entry."""
        answered = self.requests.at(self.requests.where("status", "ok"))
        return {arm_id: answered.at(answered.where("arm_id", arm_id)) for arm_id in self.arms}

    @cached_property
    def beside_baseline(self) -> dict[str, Pairs]:
        """Arm id -> its answered requests beside those of its baseline for the same prompt in the same block; those
        that have none are left out, and every arm has an entry."""
        place, nothing = ("invocation", "block", "prompt_id"), self.requests[:0]
        baselines = {it.id: self.by_arm.get(it.baseline_id or "", nothing) for it in self.arms.values()}
        return {arm_id: self.by_arm[arm_id].beside(base, *place) for arm_id, base in baselines.items()}

    @cached_property
    def repeats(self) -> dict[str, str]:
        """Prompt that is repeated under load -> the prompt that it repeats."""
        return {prompt.id: prompt.of for prompt in self.prompts.values() if prompt.of is not None}

    def header(self, name: str) -> ModelHeader | None:
        """What the file of a model says about itself, by its name in the experiment; None where it is not on record."""
        return self.models[name].header if name in self.models else None

    @cached_property
    def summary(self) -> RunSummary:
        """The estimates that the verdict is about."""
        timing_only = {name for name, model in self.models.items() if model.timing_only}
        return summarize(
            self.requests.columns,
            tuple(self.arms.values()),
            timing_only=timing_only,
            planned=self.planned,
            energies=self.energies,
            cells=LoadTable(self.cells),
            repeats=self.repeats,
        )

    @cached_property
    def speedups(self) -> dict[str, Estimate]:
        """Speedups by arm id, controls included; arms without one are missing."""
        found = ((arm.arm_id, arm.speedup) for arm in (*self.summary.arms, *self.summary.controls))
        return {arm_id: speedup for arm_id, speedup in found if speedup is not None}


def _divided(them: Iterable[T], device_of: Callable[[T], str | None]) -> dict[str | None, list[T]]:
    """What belongs to each device, in one pass: there may be many of them."""
    found: dict[str | None, list[T]] = {}
    for it in them:
        found.setdefault(device_of(it), []).append(it)
    return found


def read_run_data(run: RunReader, compared: Mapping[str, Arm] | None = None) -> RunData:
    """Everything that checks need of a run; `compared` are its arms with other baselines than they were measured with.
    Raises `StoreError` when it is damaged."""
    sessions = {session.id: session for session in run.sessions()}
    traits = run.traits()
    experiment = run.experiment()
    arms = compared or {arm.id: arm for arm in run.arms()}
    greedy = experiment.generation.temperature == 0
    texts: dict[bytes, tuple[int, ...]] = {}
    try:
        requests = in_columns(read_requests(run, arms, texts, count_tokens=not greedy))
    except ValueError as error:
        raise unreadable(run.path, "a row of the table request", error) from None
    answered = np.flatnonzero(requests.where("status", "ok"))
    printed: dict[str, Sequence[Printed]] = {}
    plan = (RequestKey(*key) for key in run.raw("SELECT invocation, block, arm_id, prompt_id FROM plan"))
    return RunData(
        experiment=experiment,
        arms=arms,
        models={model.name: model for model in run.models()},
        hosts=tuple(run.hosts()),
        pairs={(pair.target, pair.draft): pair for pair in run.pairs()},
        prompts={prompt.id: prompt for prompt in run.prompts()},
        planned=run.planned(),
        plan=by_cell(plan),
        experiment_yaml=run.experiment_yaml,
        written_by=run.written_by,
        sessions=sessions,
        logs=dict(_logs(run.folder, sessions.values(), printed)) if "log" in traits.tells else {},
        printed=printed,
        predictions=tuple(run.predictions()),
        requests=requests,
        load_cells={cell.session_id: cell for cell in run.load_cells()},
        late_before=run.late_before(),
        cells=tuple(cells_of(run)),
        telemetry=tuple(_telemetry(run)),
        disturbances=run.disturbances(),
        replaced=run.replaced(),
        attempts=run.asked(),
        energies=energies_of(run),
        margins=tuple(run.margins()),
        left_at={it.key: it.position for it in find_divergences(run, arms, requests.columns, answered)}
        if greedy
        else {},
        prompt_tokens={(it.target, it.prompt_id): it.token_ids for it in run.prompt_tokens()},
        profiles={key_of(profile): profile for profile in run.profiles()},
        step_probes=tuple(run.probes()),
        profiled=run.profiled(),
        texts=texts,
        stated=traits,
    )


def by_cell(keys: Iterable[RequestKey]) -> dict[tuple[int, int, str], frozenset[str]]:
    """(invocation, block, arm id) -> its prompts; equal sets of them, as of one arm in all blocks, are kept once."""
    found: dict[tuple[int, int, str], list[str]] = {}
    for invocation, block, arm, prompt in keys:
        found.setdefault((invocation, block, intern(str(arm))), []).append(intern(str(prompt)))
    same: dict[frozenset[str], frozenset[str]] = {}
    return {cell: same.setdefault(them, them) for cell, prompts in found.items() for them in (frozenset(prompts),)}


def _logs(folder: Path, sessions: Any, printed: dict[str, Sequence[Printed]]) -> Iterator[tuple[str, LogSigns]]:
    """Signs of each log; what it printed of each request goes into `printed` on the way."""
    for session in sessions:
        if session.log_file is None:
            continue
        try:
            log = open_inside(folder, session.log_file)  # a record from outside: it may name anything
        except OSError:
            continue
        with log:
            printed[session.id] = requests = PrintedRequests()
            yield session.id, scan(requests.watched(stream_lines(log)))


def _telemetry(run: RunReader) -> Iterator[Sample]:
    for it in run.telemetry():
        yield Sample(
            at=it.at,
            other_cpu_percent=it.other_cpu_percent,
            memory_available_bytes=it.memory_available_bytes,
            cpu_mhz=it.cpu_mhz,
            on_battery=it.on_battery,
            gpu_throttle=tuple(reason for gpu in it.gpus for reason in gpu.throttle_reasons),
            invocation=it.invocation,
        )
