"""What checks look at: a whole run, read once, without texts and other bulk."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from sys import intern
from typing import TYPE_CHECKING, Any, NamedTuple

from specmeter import __version__
from specmeter.analysis.consumption import Energies, energies_of
from specmeter.analysis.divergences import Text, find_divergences, references
from specmeter.analysis.load.figures import MeasuredCell
from specmeter.analysis.load.reading import measured_cells
from specmeter.analysis.load.summary import LoadTable
from specmeter.analysis.summary import RunSummary, summarize
from specmeter.audit.read.engine_log import LogSigns, scan, stream_lines
from specmeter.engines.registry import traits_on_record
from specmeter.experiments.experiment import Experiment
from specmeter.files import open_inside
from specmeter.profile.arms import ProfileKey, key_of
from specmeter.record import (
    Arm,
    DraftPair,
    EngineTraits,
    Estimate,
    Host,
    LoadCell,
    Margin,
    MatchProfile,
    ModelHeader,
    ModelIdentity,
    Profiled,
    Prompt,
    Session,
    StepProbe,
)
from specmeter.store import RequestKey
from specmeter.validity.checks.printed import Printed, PrintedRequests
from specmeter.validity.checks.request_data import RequestData, read_requests

if TYPE_CHECKING:
    from specmeter.store import RunReader


class Sample(NamedTuple):
    """One sample of telemetry, as far as checks need it."""

    at: float
    other_cpu_percent: float
    memory_available_bytes: int
    cpu_mhz: float | None
    on_battery: bool | None
    gpu_throttle: tuple[str, ...]
    """Reasons why a GPU was slowed down, all GPUs together."""


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
    plan: frozenset[tuple[int, int, str, str]] = frozenset()
    """Every (invocation, block, arm id, prompt id) that makes the run complete."""
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
    requests: Sequence[RequestData] = ()
    """In the order of measurement; failed ones included."""
    load_cells: Mapping[str, LoadCell] = field(default_factory=dict[str, LoadCell])
    """Session id -> its cell under load, those that were broken off included."""
    cells: Sequence[MeasuredCell] = ()
    """What the cells under load that count say, in the order of measurement."""
    predicted_at: Mapping[str, float] = field(default_factory=dict[str, float])
    """Arm id -> when its speedup was foretold; arms without a prediction are missing."""
    telemetry: Sequence[Sample] = ()
    energies: Energies | None = None
    """Energy of the requests; None where none was read."""
    margins: tuple[Margin, ...] = ()
    left_at: Mapping[RequestKey, int] = field(default_factory=dict[RequestKey, int])
    """Greedy requests whose text differs from that of their reference (`specmeter.analysis.divergences`) -> the first
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

    @cached_property
    def by_arm(self) -> dict[str, list[RequestData]]:
        """Arm id -> its requests that were answered, in the order of measurement; every arm has an entry."""
        found: dict[str, list[RequestData]] = {arm_id: [] for arm_id in self.arms}
        for request in self.requests:
            if request.row.status == "ok" and request.row.arm_id in found:
                found[request.row.arm_id].append(request)
        return found

    @cached_property
    def by_key(self) -> dict[RequestKey, RequestData]:
        """Answered requests by (invocation, block, arm id, prompt id)."""
        return {request.key: request for requests in self.by_arm.values() for request in requests}

    @cached_property
    def beside_baseline(self) -> dict[str, list[tuple[RequestData, RequestData]]]:
        """Arm id -> (request, that of its baseline for the same prompt in the same block) for its answered requests
        that have one; every arm has an entry."""
        found: dict[str, list[tuple[RequestData, RequestData]]] = {}
        plain: dict[tuple[int, int, str], RequestData] = {}
        of: str | None = None
        for arm in sorted(self.arms.values(), key=lambda arm: arm.baseline_id or ""):
            if arm.baseline_id != of:
                of = arm.baseline_id
                rows = ((it, it.row) for it in self.by_arm.get(of or "", ()))
                plain = {(row.invocation, row.block, row.prompt_id): it for it, row in rows}
            asked = ((it, it.row) for it in self.by_arm[arm.id]) if plain else ()
            both = ((it, plain.get((row.invocation, row.block, row.prompt_id))) for it, row in asked)
            found[arm.id] = [(it, base) for it, base in both if base is not None]
        return found

    @cached_property
    def references(self) -> dict[RequestKey, RequestKey]:
        """Answered request -> the one whose text its own should equal (`specmeter.analysis.divergences`)."""
        return dict(references(self.arms, self.prompts.values(), self.by_key))

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
        rows = (request.row for request in self.requests)
        return summarize(
            rows,
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


def read_run_data(run: RunReader) -> RunData:
    """Everything that checks need of a run. Raises `StoreError` when it is damaged."""
    sessions = {session.id: session for session in run.sessions()}
    traits = run.traits()
    experiment = run.experiment()
    arms = {arm.id: arm for arm in run.arms()}
    greedy = experiment.generation.temperature == 0
    texts: dict[bytes, tuple[int, ...]] = {}
    requests = tuple(read_requests(run, arms, texts, count_tokens=not greedy))
    printed: dict[str, Sequence[Printed]] = {}
    plan = run.raw("SELECT invocation, block, arm_id, prompt_id FROM plan")
    return RunData(
        experiment=experiment,
        arms=arms,
        models={model.name: model for model in run.models()},
        hosts=tuple(run.hosts()),
        pairs={(pair.target, pair.draft): pair for pair in run.pairs()},
        prompts={prompt.id: prompt for prompt in run.prompts()},
        planned=run.planned(),
        plan=frozenset((invocation, block, intern(arm), intern(prompt)) for invocation, block, arm, prompt in plan),
        experiment_yaml=run.experiment_yaml,
        written_by=run.written_by,
        sessions=sessions,
        logs=dict(_logs(run.folder, sessions.values(), printed)) if "log" in traits.tells else {},
        printed=printed,
        predicted_at={it.arm_id: it.made_at for it in run.predictions() if it.speedup is not None},
        requests=requests,
        load_cells={cell.session_id: cell for cell in run.load_cells()},
        cells=tuple(measured_cells(run)),
        telemetry=tuple(_telemetry(run)),
        energies=energies_of(run),
        margins=tuple(run.margins()),
        left_at=_left_at(run, arms, requests) if greedy else {},
        prompt_tokens={(it.target, it.prompt_id): it.token_ids for it in run.prompt_tokens()},
        profiles={key_of(profile): profile for profile in run.profiles()},
        step_probes=tuple(run.probes()),
        profiled=run.profiled(),
        texts=texts,
        stated=traits,
    )


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
    for (text,) in run.raw("SELECT json FROM telemetry ORDER BY at, id"):
        sample = json.loads(text)
        throttle = [reason for gpu in sample.get("gpus", ()) for reason in gpu.get("throttle_reasons", ())]
        yield Sample(
            at=sample["at"],
            other_cpu_percent=sample["other_cpu_percent"],
            memory_available_bytes=sample["memory_available_bytes"],
            cpu_mhz=sample.get("cpu_mhz"),
            on_battery=sample.get("on_battery"),
            gpu_throttle=tuple(throttle),
        )


def _left_at(run: RunReader, arms: Mapping[str, Arm], requests: Sequence[RequestData]) -> dict[RequestKey, int]:
    ids = run.raw("SELECT id, invocation, block, arm_id, prompt_id FROM request WHERE superseded = 0")
    rows = {RequestKey(*key): row_id for row_id, *key in ids}
    texts = {it.key: Text(rows[it.key], it.output) for it in requests if it.row.status == "ok"}
    return {it.key: it.position for it in find_divergences(run, arms, texts)}
