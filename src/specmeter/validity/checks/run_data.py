"""What checks look at: a whole run, read once, without texts and other bulk.

A request as checks see it: its numbers, and what its bulk says in short, read once.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from sys import intern
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from specmeter import __version__
from specmeter.analysis.load.summary import LoadTable, MeasuredCell, measured_cells
from specmeter.analysis.positions import find_divergences
from specmeter.analysis.requests import Energies, energies_of
from specmeter.analysis.summary import RunSummary, summarize
from specmeter.engines.llama_cpp.log_requests import Printed, PrintedRequests
from specmeter.engines.llama_cpp.log_signs import LogSigns, scan
from specmeter.engines.log_lines import stream_lines
from specmeter.engines.registry import traits_on_record
from specmeter.engines.traffic import RECEIVED, SENT
from specmeter.experiments.experiment import Experiment
from specmeter.files import open_inside
from specmeter.messages import Message
from specmeter.probe.replay import REPLAYED, ProfileKey, Round, key_of
from specmeter.record import (
    UNKNOWN_TOKEN,
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
    Timings,
)
from specmeter.store import RequestKey, RequestRow
from specmeter.store.integrity import output_digest
from specmeter.store.rows import REQUEST_COLUMNS

if TYPE_CHECKING:
    from specmeter.store import RunReader

T = TypeVar("T")

NGRAM = 8
"""Length of the runs of tokens whose repetition is counted."""
BUCKETS = 256
"""Into so many are tokens hashed where their counts are kept."""


class Arrivals(NamedTuple):
    """When tokens arrived at the client, in short; times from the start of the request."""

    tokens: int
    first_ms: float
    last_ms: float
    in_order: bool


class Steps(NamedTuple):
    """What the steps of a request add up to."""

    number: int
    drafted: int
    accepted: int
    first_ms: float
    """When the first one ended, by the engine's clock, from the start of the request."""
    last_ms: float
    """When the last one ended."""

    @property
    def span_ms(self) -> float | None:
        """From the end of the first to the end of the last; None for fewer than two."""
        return self.last_ms - self.first_ms if self.number > 1 else None


@dataclass(slots=True)
class RequestData:
    """One request that counts (no attempt that a retry replaced): its numbers, and what its bulk says in short.

    It is never changed, and not frozen only because creating it would take three times as long, a hundred thousand
    times.
    """

    row: RequestRow
    output: bytes = b""
    """Digest of the generated token ids: equal for equal texts; empty where nothing was generated."""
    tokens: int = 0
    """Token ids stored."""
    decodes: float | None = None
    """Target forwards that the engine counted during the request, the prompt's among them; None: it does not count."""
    remote_bytes: float | None = None
    """Bytes exchanged with remote machines during the request; None: not counted."""
    printed_rate: float | None = None
    """Decode rate as the engine itself printed it, tok/s."""
    answered: bool = True
    """There is text beside the reasoning."""
    reasoned: bool = False
    """There is reasoning."""
    repeated: float = 0.0
    """Share of the runs of 8 generated tokens that occurred before in the same text."""
    restores: int = 0
    """Checkpoints restored."""
    restores_at_one_place: int = 0
    """The most restores in a row without a token in between."""
    partial: int = 0
    """Steps that rejected drafted tokens, without a restore."""
    steps: Steps | None = None
    """What its steps add up to; None where none is on record."""
    arrivals: Arrivals | None = None
    """What its arrival times say; None where none is on record."""
    retold: bool = False
    """An earlier request has the same tokens and another text; only greedy requests are compared."""
    otherwise: str = ""
    """The first count or time that the engine's own answer has otherwise than the record; empty where none has."""
    packed_steps: bytes = b""
    """Drafted and accepted tokens of each recorded step in turn, as unsigned 16-bit numbers; see `rounds`."""
    known: bool = True
    """The id of every generated token was sent."""
    histogram: bytes = b""
    """How many tokens fall into each of the `BUCKETS`, 255 at most; only of sampled texts."""

    @property
    def key(self) -> RequestKey:
        return self.row.key

    @property
    def rounds(self) -> tuple[Round, ...]:
        """The recorded steps."""
        counts = array("H", self.packed_steps)
        return tuple(map(Round, counts[::2], counts[1::2]))


def read_requests(
    run: RunReader, arms: Mapping[str, Arm], looked_up_texts: dict[bytes, tuple[int, ...]], *, count_tokens: bool
) -> Iterator[RequestData]:
    """The requests; the texts of those that look n-grams up are put into `looked_up_texts`."""
    repeated: dict[bytes, tuple[bytes, float]] = {}
    """Texts repeat from block to block: a digest is kept once, and the repetition within the text is counted once."""
    targets = {} if count_tokens else {arm.id: arm.target for arm in arms.values()}
    texts: dict[tuple[str, bytes], str] = {}
    """By target, since two may not have the same vocabulary."""
    looked_up = {arm.id for arm in arms.values() if "ngram-simple" in arm.methods}
    drafting = {arm.id for arm in arms.values() if arm.speculates and REPLAYED.issuperset(arm.methods)}
    steps: dict[bytes, bytes] = {}
    """Steps repeat, too; equal ones are kept once."""
    query = f"SELECT {REQUEST_COLUMNS}, zlib_json FROM request LEFT JOIN reply ON request_id = id"
    for *values, bulk in run.raw(f"{query} WHERE superseded = 0 ORDER BY id"):
        row = run.row(values)
        if bulk is None:
            yield RequestData(row)
            continue
        reply = run.reply(bulk, row.key)
        request = _read(row, reply, repeated)
        if request.output and request.known and row.arm_id in targets:
            text: str = reply.get("text", "")
            request.retold = _is_other(texts.setdefault((targets[row.arm_id], request.output), text), text)
        if row.arm_id in drafting:
            packed = _pack(reply.get("steps", ()))
            request.packed_steps = steps.setdefault(packed, packed)
        if row.arm_id in looked_up and request.output not in looked_up_texts:
            looked_up_texts[request.output] = tuple(reply["token_ids"])
        if count_tokens:
            request.histogram = token_histogram(reply.get("token_ids", []))
        yield request


def _read(row: RequestRow, bulk: dict[str, Any], known: dict[bytes, tuple[bytes, float]]) -> RequestData:
    ids: list[int] = bulk.get("token_ids", [])
    digest = output_digest(ids)
    if digest not in known:
        known[digest] = (digest, repetition(ids))
    output, repeated = known[digest]
    steps: list[dict[str, Any]] = bulk.get("steps", [])
    arrivals: list[float] = bulk.get("arrival_ms", [])
    added_up, restores, at_one_place, partial = _added_up(steps)
    said: dict[str, Any] = bulk.get("raw_timings", {})
    rate = said.get("predicted_per_second")
    counters: dict[str, float] = bulk.get("counters", {})
    return RequestData(
        row=row,
        output=output,
        tokens=len(ids),
        known=UNKNOWN_TOKEN not in ids,
        decodes=counters.get("n_decode_total"),
        remote_bytes=counters[SENT] + counters[RECEIVED] if SENT in counters and RECEIVED in counters else None,
        printed_rate=rate if isinstance(rate, int | float) else None,
        answered=bool(bulk.get("text", "").strip()),
        reasoned=bool(bulk.get("reasoning")),
        repeated=repeated,
        restores=restores,
        restores_at_one_place=at_one_place,
        partial=partial,
        steps=added_up,
        arrivals=_arrivals(arrivals) if arrivals else None,
        otherwise="" if _TIMES.isdisjoint(said) else _first_otherwise(row, said),
    )


_CUT_OFF = 8
"""Characters at the end of a text that may be missing: a last character whose tokens are not complete."""


def _is_other(first: str, text: str) -> bool:
    if first == text:
        return False
    length = min(len(first), len(text))
    return first[:length] != text[:length] or abs(len(first) - len(text)) > _CUT_OFF


_TIMES = frozenset(Timings.model_fields)
_SAID = tuple((name, RequestRow._fields.index(name)) for name in Timings.model_fields)
"""Counts and times that engines print as they are stored, and their places in a row."""
_LEFT_OUT = {"cache_n": 0, "draft_n": 0, "draft_n_accepted": 0}
"""What it means when an engine leaves one of these out."""


def _first_otherwise(row: RequestRow, said: Mapping[str, Any]) -> str:
    for name, at in _SAID:
        value = said.get(name)
        if value != row[at] and (value is not None or row[at] != _LEFT_OUT.get(name, row[at])):
            return name
    return ""


def _arrivals(times: list[float]) -> Arrivals:
    return Arrivals(len(times), times[0], times[-1], times == sorted(times))


def repetition(token_ids: Sequence[int]) -> float:
    """Share of the runs of 8 tokens that are no first occurrence; 0 for texts shorter than 16 tokens."""
    if len(token_ids) < 2 * NGRAM:
        return 0.0
    runs = Counter(tuple(token_ids[at : at + NGRAM]) for at in range(len(token_ids) - NGRAM + 1))
    return 1 - len(runs) / runs.total()


def token_histogram(token_ids: Sequence[int]) -> bytes:
    """Counts of tokens by bucket, one byte each; empty for no tokens."""
    if not token_ids:
        return b""
    # Fibonacci hashing: neighbouring ids, which are often alike, fall far apart.
    hashed = np.asarray(token_ids, dtype=np.int64).astype(np.uint32) * np.uint32(2654435761)
    counts = np.bincount(hashed >> np.uint32(24), minlength=BUCKETS)
    return np.minimum(counts, 255).astype(np.uint8).tobytes()


def _added_up(steps: Sequence[Mapping[str, Any]]) -> tuple[Steps | None, int, int, int]:
    """Sums over steps, restored checkpoints, the most of them in a row, and steps that rejected without one."""
    drafted = accepted = restores = most = row = partial = 0
    for step in steps:
        drafted += step["drafted"]
        accepted += step["accepted"]
        if step.get("restored"):
            restores, row = restores + 1, row + 1
            most = max(most, row)
        else:
            row = 0
            partial += step["accepted"] < step["drafted"]
    both = Steps(len(steps), drafted, accepted, steps[0]["at_ms"], steps[-1]["at_ms"]) if steps else None
    return both, restores, most, partial


_MOST = 65_535
"""The most that 16 bits hold."""


def _pack(steps: Sequence[Mapping[str, Any]]) -> bytes:
    """Drafted and accepted tokens of each step; what no draft can be long stands as the most that fits."""
    counts: list[int] = [count for step in steps for count in (step["drafted"], step["accepted"])]
    try:
        return array("H", counts).tobytes()
    except OverflowError:
        return array("H", (min(count, _MOST) for count in counts)).tobytes()


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
    requests: Sequence[RequestData] = ()
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
    """Blocks that were set aside."""
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
        return Message("unchecked.set_aside" if aside else "unchecked.no_answer")

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
        requests = _divided(self.requests, lambda it: of.get(it.row.invocation))
        plan = _divided(self.plan.items(), lambda it: of.get(it[0][0]))
        samples = _divided(self.telemetry, lambda it: None if it.invocation is None else of.get(it.invocation))
        aside = _divided(self.disturbances, lambda it: of.get(it.invocation))
        replaced = _divided(self.replaced.items(), lambda it: of.get(it[0].invocation))
        for device, hosts in devices.items():
            changes: dict[str, Any] = {name: dict(them.pop(device, ())) for name, them in by_session.items()}
            if device != first:
                changes |= {"predictions": (), "step_probes": ()}
            yield (
                device,
                replace(
                    self,
                    hosts=tuple(hosts),
                    requests=tuple(requests.pop(device, ())),
                    telemetry=samples.get(device, []),
                    plan=dict(plan.pop(device, ())),
                    disturbances=aside.get(device, []),
                    replaced=dict(replaced.get(device, ())),
                    **changes,
                ),
            )

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


def _divided(them: Iterable[T], device_of: Callable[[T], str | None]) -> dict[str | None, list[T]]:
    """What belongs to each device, in one pass: there may be many of them."""
    found: dict[str | None, list[T]] = {}
    for it in them:
        found.setdefault(device_of(it), []).append(it)
    return found


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
        cells=tuple(measured_cells(run)),
        telemetry=tuple(_telemetry(run)),
        disturbances=run.disturbances(),
        replaced=run.replaced(),
        attempts=run.asked(),
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


def _left_at(run: RunReader, arms: Mapping[str, Arm], requests: Sequence[RequestData]) -> dict[RequestKey, int]:
    texts = {it.key: it.output for it in requests if it.row.status == "ok"}
    return {it.key: it.position for it in find_divergences(run, arms, texts)}
