"""A small run that nothing is wrong with, and the means to put one thing wrong at a time.

`run_data()` is a run of 4 blocks, 2 arms (`BASE`, and `SD` with a draft model and gamma 4) and 3 prompts on an embedded
engine. A plain token takes 40 ms, a step 60 ms, each request about a percent more or less. Nothing is random.

    data = run_data()
    data = with_requests(data, lambda row: row.arm_id == SD and row.block == 1, draft_n=0, decodes=None)
    data = with_sessions(data, SD, speculating=False)
    data = with_logs(data, SD, failed_decodes=Sign(3, ("failed to decode, ret = -1",)))
    assert found(check, data)
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import yaml

from records import header, identity
from specmeter.advise.observer import Silent
from specmeter.engines.llama_cpp.log_signs import LogSigns
from specmeter.experiments.experiment import Experiment
from specmeter.experiments.file import load as load_experiment
from specmeter.experiments.schedule import plan
from specmeter.laboratory.run import prepare, run
from specmeter.record import (
    Arm,
    Condition,
    DeviceUse,
    DraftPair,
    EngineIdentity,
    Estimate,
    Finding,
    Host,
    ModelIdentity,
    Prediction,
    Prompt,
    Session,
    Unchecked,
)
from specmeter.record.verdict import Findings
from specmeter.store import RequestRow, RunStore
from specmeter.validity.checks.request_data import RequestData
from specmeter.validity.checks.requests import in_columns
from specmeter.validity.checks.run_data import RunData, Sample, by_cell, read_run_data

BASE, SD = "dense/none", "dense/draft-simple/small/g4"
"""Ids of the two arms that a run has when nothing else is asked for."""
PROMPT_IDS = ("text/fact-1", "text/code-1", "text/edit-1")
TOKENS = 65
"""Tokens that every request generates."""
PLAIN_MS, STEP_MS, PROMPT_MS = 40.0, 60.0, 100.0
"""Of one token of a baseline, of one step of any other arm, of one prompt."""
GAMMA = 4
EPOCH = 1_767_225_600.0
BUILD = "11549 (0c1e57098)"


def experiment(**changes: Any) -> Experiment:
    """What was asked for: one target, one draft, one workload, the embedded engine."""
    given: dict[str, Any] = {
        "name": "test",
        "targets": {"dense": "/models/dense.gguf"},
        "drafts": {"small": "/models/small.gguf"},
        "arms": [{"draft": "small", "gamma": GAMMA}],
        "workloads": [{"source": "bench", "name": "text"}],
        "generation": {"max_tokens": TOKENS},
        "design": {"blocks": 4},
        "engine": {"kind": "embedded"},
    }
    return Experiment.model_validate(given | changes)


def run_data(
    asked: Experiment | None = None,
    *,
    arms: Sequence[Arm] | None = None,
    prompt_ids: Sequence[str] = PROMPT_IDS,
    pace: Callable[[Arm, int, str], float] | None = None,
    **changes: Any,
) -> RunData:
    """A clean run of `asked` (its own arms unless others are given); `changes` replace fields of `RunData`.

    `pace(arm, block, prompt id)` says how much longer than usual a request takes (1.1: 10 % longer).
    """
    asked = asked or experiment()
    by_id = {arm.id: arm for arm in (arms if arms is not None else asked.expand())}
    design = asked.design
    sessions: dict[str, Session] = {}
    logs: dict[str, LogSigns] = {}
    requests: list[RequestData] = []
    now = EPOCH
    for cell in plan(list(by_id), design.blocks, design.invocations, design.order, design.seed):
        arm = by_id[cell.arm_id]
        name = f"s{len(sessions)}"
        started_at, now = now, now + 2.0
        for item, prompt_id in enumerate(prompt_ids):
            slower = jitter(arm.id, cell.invocation, cell.block, prompt_id)
            slower *= pace(arm, cell.block, prompt_id) if pace is not None else 1.0
            place = {"invocation": cell.invocation, "block": cell.block, "position": cell.position, "item": item}
            made = request(arm, prompt_id, session_id=name, started_at=now, slower=slower, **place)
            requests.append(made)
            now += (made.row.wall_ms or 0) / 1000 + 0.01
        place = {"invocation": cell.invocation, "block": cell.block, "position": cell.position}
        sessions[name] = session(name, arm, started_at=started_at, ended_at=now, **place)
        logs[name] = log()
        now += 0.5
    data = RunData(
        experiment=asked,
        arms=by_id,
        models={
            **{name: model(name, path) for name, path in asked.targets.items()},
            **{name: draft_model(name, path) for name, path in asked.drafts.items()},
        },
        hosts=(host(),),
        pairs={(t, d): pair(t, d) for t, d in itertools.product(asked.targets, asked.drafts)},
        prompts={name: prompt(name) for name in prompt_ids},
        planned=dict.fromkeys(by_id, design.blocks * design.invocations * len(prompt_ids)),
        plan=by_cell(it.key for it in requests),
        sessions=sessions,
        logs=logs,
        requests=in_columns(requests),
        telemetry=tuple(load(EPOCH + second) for second in range(int(now - EPOCH) + 1)),
    )
    return replace(data, **changes)


def foretold(
    made_at: float, *, speedup: float = 1.6, inputs: dict[str, bool | int | float | str | None] | None = None
) -> Prediction:
    """A prediction for SD, unless told otherwise 1.6x: 2 tokens for a step that costs 1.25 plain ones."""
    given = {"gamma": GAMMA, "tau": 2.0, "drafted": 4.0, "draft": 0.2, "verify": 1.0, "restore": 0.0, "rest": 0.05}
    return Prediction(
        arm_id=SD,
        made_at=made_at,
        speedup=Estimate(point=speedup, n=1, unit="x", method="prediction"),
        inputs=given if inputs is None else inputs,
    )


def before(data: RunData) -> RunData:
    """The same before anything was measured."""
    return replace(data, sessions={}, logs={}, requests=in_columns(()), telemetry=())


def simulated(data: RunData) -> RunData:
    """The same on the mock engine: no headers, no machine, little read back, and logs that say next to nothing."""
    engine = data.experiment.engine.model_copy(update={"kind": "mock"})
    models = {name: it.model_copy(update={"origin": "mock", "header": None}) for name, it in data.models.items()}
    kept = ("n_ctx", "total_slots")
    sessions = {
        name: it.model_copy(update={"resolved": {key: it.resolved[key] for key in kept}, "devices": ()})
        for name, it in data.sessions.items()
    }
    return replace(
        data,
        experiment=data.experiment.model_copy(update={"engine": engine}),
        models=models,
        pairs={},
        telemetry=(),
        sessions=sessions,
        logs={name: LogSigns(lines=1) for name in data.logs},
    )


def mocked(folder: Path, arms: Sequence[dict[str, Any]] | None = None, **mock: Any) -> RunData:
    """A run on the mock engine as `mock` describes it, through the store, as checks get it."""
    asked = {
        "name": "mocked",
        "targets": {"dense": "mock:dense"},
        "drafts": {"small": "mock:small"},
        "arms": arms or [{"draft": "small", "gamma": GAMMA}, {"method": "ngram-simple"}],
        "workloads": [{"source": "bench", "kinds": ["edit"], "per_kind": 2}],
        "generation": {"max_tokens": 48},
        "engine": {"kind": "mock", "mock": mock},
    }
    file = folder / "mocked.yaml"
    file.write_text(yaml.safe_dump(asked), encoding="utf-8")
    run(prepare(load_experiment(str(file))), folder / "run", Silent())
    with RunStore.open(folder / "run", readonly=True) as store:
        return read_run_data(store)


# --- one thing wrong -------------------------------------------------------------------------------------------------

_OF_REQUEST = {field.name for field in fields(RequestData)} - {"row"}


def with_requests(
    data: RunData,
    which: Callable[[RequestRow], bool] | str = lambda _: True,
    change: Callable[[RequestData], dict[str, Any]] = lambda _: {},
    **changes: Any,
) -> RunData:
    """Replace fields of requests (of their rows too) that `which` picks: a test of the row, or an arm's id."""
    picked = (lambda row: row.arm_id == which) if isinstance(which, str) else which
    return replace(
        data,
        requests=in_columns(_changed(it, changes | change(it)) if picked(it.row) else it for it in data.requests),
    )


def _changed(it: RequestData, changes: dict[str, Any]) -> RequestData:
    own = {name: value for name, value in changes.items() if name in _OF_REQUEST}
    row = it.row._replace(**{name: value for name, value in changes.items() if name not in _OF_REQUEST})
    return replace(it, row=row, **own)


def without_requests(data: RunData, which: Callable[[RequestRow], bool]) -> RunData:
    return replace(data, requests=in_columns(it for it in data.requests if not which(it.row)))


def with_sessions(data: RunData, arm_id: str | None = None, block: int | None = None, **changes: Any) -> RunData:
    """Replace fields of the sessions of an arm, or of all; `resolved` is merged."""
    sessions = {
        name: _renewed(it, changes) if arm_id in (None, it.arm_id) and block in (None, it.block) else it
        for name, it in data.sessions.items()
    }
    return replace(data, sessions=sessions)


def _renewed(it: Session, changes: dict[str, Any]) -> Session:
    if "resolved" in changes:
        changes = changes | {"resolved": it.resolved | changes["resolved"]}
    return Session.model_validate(it.model_dump() | changes)


def with_logs(data: RunData, arm_id: str | None = None, block: int | None = None, **changes: Any) -> RunData:
    """Replace signs in the logs of an arm's sessions, or of all."""
    logs = dict(data.logs)
    for name, it in data.sessions.items():
        if name in logs and arm_id in (None, it.arm_id) and block in (None, it.block):
            logs[name] = replace(logs[name], **changes)
    return replace(data, logs=logs)


def with_arms(data: RunData, arm_id: str | None = None, **changes: Any) -> RunData:
    """Replace fields of an arm, or of all."""
    arms = {
        name: Arm.model_validate(it.model_dump() | changes) if arm_id in (None, name) else it
        for name, it in data.arms.items()
    }
    return replace(data, arms=arms)


def with_models(data: RunData, name: str | None = None, **changes: Any) -> RunData:
    """Replace fields of a model, or of all; fields of its header too."""
    models = dict(data.models)
    for known, it in data.models.items():
        if name in (None, known):
            own = {key: value for key, value in changes.items() if key in ModelIdentity.model_fields}
            inner = {key: value for key, value in changes.items() if key not in own}
            header = it.header.model_dump() | inner if it.header and inner else it.header
            models[known] = ModelIdentity.model_validate(it.model_dump() | {"header": header} | own)
    return replace(data, models=models)


def with_prompts(data: RunData, **changes: Any) -> RunData:
    """Replace fields of every prompt."""
    prompts = {name: Prompt.model_validate(it.model_dump() | changes) for name, it in data.prompts.items()}
    return replace(data, prompts=prompts)


# --- what a check says -----------------------------------------------------------------------------------------------


def found(look: Callable[[RunData], Findings], data: RunData) -> list[Finding]:
    """Only the findings."""
    return [it for it in look(data) if isinstance(it, Finding)]


def unchecked(look: Callable[[RunData], Findings], data: RunData, *, applies: bool | None = None) -> list[Unchecked]:
    """Only what was not looked at; with `applies`, only gaps that are (or are not) blind spots."""
    gaps = [it for it in look(data) if isinstance(it, Unchecked)]
    return [gap for gap in gaps if applies is None or gap.applies == applies]


# --- single records --------------------------------------------------------------------------------------------------


def jitter(*of: object) -> float:
    """A factor of about 1 +- 0.01, always the same for the same things."""
    return 1 + 0.01 * (2 * int.from_bytes(sha256(repr(of).encode()).digest()[:4]) / 2**32 - 1)


def request(arm: Arm, prompt_id: str, *, slower: float = 1.0, **place: Any) -> RequestData:
    """One answered request; SD accepts some 60 of 100 tokens per forward more, the same in every block."""
    decoded = TOKENS - 1
    luck = sum(prompt_id.encode()) % 7
    accepted = 36 + luck if arm.speculates else 0
    forwards = decoded - accepted
    drafted = GAMMA * forwards - 2 if arm.speculates else 0
    predicted_ms = slower * (forwards * STEP_MS if arm.speculates else decoded * PLAIN_MS)
    prompt_ms = slower * PROMPT_MS
    row = RequestRow(
        **{"invocation": 0, "block": 0, "position": 0, "item": 0, "session_id": "s0", "started_at": EPOCH} | place,
        arm_id=arm.id,
        prompt_id=prompt_id,
        prompt_sha256=prompt(prompt_id).sha256,
        kind=prompt(prompt_id).kind,
        attempt=1,
        status="ok",
        error=None,
        stop_reason="limit",
        wall_ms=prompt_ms + predicted_ms + 2.0,
        ttft_ms=prompt_ms + 1.0,
        prompt_n=100,
        prompt_ms=prompt_ms,
        predicted_n=TOKENS,
        predicted_ms=predicted_ms,
        cache_n=0,
        draft_n=drafted,
        draft_n_accepted=accepted,
        step_n=forwards if arm.speculates else 0,
        target_forwards=forwards,
    )
    return RequestData(
        row=row,
        output=sha256(f"{arm.target} {prompt_id}".encode()).digest()[:12],
        tokens=TOKENS,
        decodes=1.0 + forwards,
        printed_rate=1000 * decoded / predicted_ms,
        partial=10 if arm.speculates else 0,
        repeated=0.05,
    )


def session(name: str, arm: Arm, **changes: Any) -> Session:
    cpu = DeviceUse(device="CPU", model_buffer_bytes=400_000_000, kv_buffer_bytes=50_000_000, compute_buffer_bytes=9)
    draft_cpu = DeviceUse(device="CPU", model_buffer_bytes=20_000_000, kv_buffer_bytes=5_000_000)
    resolved: dict[str, Any] = {
        "n_ctx": 4096,
        "n_batch": 2048,
        "n_ubatch": 512,
        "kv_type_k": "f16",
        "kv_type_v": "f16",
        "flash_attention": "enabled",
        "threads": 2,
        "batch_threads": 2,
        "load_mode": "mmap",
        "total_slots": 1,
        "slot_context": 4096,
        "build": BUILD,
        "system_info": "AVX2 = 1",
        "methods": list(arm.methods) if arm.speculates else [],
        "method_parameters": {"draft-simple": {"n_max": GAMMA, "n_min": 0, "p_min": 0.0}} if arm.draft else {},
        "warnings": [],
    }
    if arm.speculates:
        resolved |= {"gamma": arm.gamma or GAMMA, "gamma_min": 0, "p_min": 0.0}
    given = {
        "id": name,
        "arm_id": arm.id,
        "invocation": 0,
        "block": 0,
        "position": 0,
        "argv": ("llama-server", arm.target),
        "engine": engine(),
        "started_at": EPOCH,
        "ready_ms": 800.0,
        "warmup_ms": 1000.0,
        "log_file": f"logs/{name}.log",
        "resolved": resolved,
        "speculating": arm.speculates,
        "devices": (cpu,),
        "draft_devices": (draft_cpu,) if arm.draft else (),
        "prompt_forwards": 1,
    }
    return Session.model_validate(given | changes)


def log() -> LogSigns:
    return LogSigns(lines=900, build=BUILD)


def engine(**changes: Any) -> EngineIdentity:
    given = {
        "kind": "embedded",
        "version": "2026.10.11549",
        "build": BUILD,
        "binary": "/lib/xllamacpp.so",
        "binary_sha256": "aa",
        "libraries": {"libggml.so": "bb"},
        "system_info": "AVX2 = 1",
    }
    return EngineIdentity.model_validate(given | changes)


def model(name: str, path: str, **changes: Any) -> ModelIdentity:
    size = dict.fromkeys(("parameters", "bytes_per_token", "active_parameters"), 400_000_000)
    given = {
        "reference": path,
        "path": path,
        "sha256": sha256(path.encode()).hexdigest(),
        "header": header(architecture="llama", layers=16, kv_bytes_per_token=16_384, **size),
    }
    return identity(name, 410_000_000, **given | changes)


def draft_model(name: str, path: str) -> ModelIdentity:
    whole = model(name, path)
    assert whole.header is not None
    header = whole.header.model_copy(update={"layers": 4, "parameters": 20_000_000, "bytes_per_token": 20_000_000})
    return whole.model_copy(update={"size_bytes": 21_000_000, "header": header})


def pair(target: str, draft: str) -> DraftPair:
    names = ("vocabulary-readable", "vocabulary-type", "add-bos", "bos-token", "vocabulary-size", "token-texts")
    return DraftPair(target=target, draft=draft, conditions=tuple(condition(name) for name in (*names, "eot-token")))


def condition(name: str, **changes: Any) -> Condition:
    given = {"name": name, "status": "ok", "target": "same", "draft": "same", "why": "must be alike"}
    return Condition.model_validate(given | changes)


def prompt(name: str, **changes: Any) -> Prompt:
    """`workload/kind-number`, as prompts are named."""
    workload, _, rest = name.partition("/")
    text = f"text of {name}"
    given = {
        "id": name,
        "workload": workload,
        "kind": rest.rpartition("-")[0],
        "text": text,
        "sha256": sha256(text.encode()).hexdigest(),
    }
    return Prompt.model_validate(given | changes)


def host(**changes: Any) -> Host:
    given = {
        "hostname_sha256": "cc",
        "os": "Linux",
        "os_version": "6",
        "kernel": "6.12",
        "machine": "x86_64",
        "python": "3.12",
        "specmeter": "1",
        "cpu": "A processor",
        "physical_cores": 8,
        "logical_cores": 16,
        "governor": "performance",
        "power_source": "mains",
        "memory_bytes": 64 * 2**30,
        "memory_available_bytes": 48 * 2**30,
        "swap_used_bytes": 0,
    }
    return Host.model_validate(given | changes)


def load(at: float, **changes: Any) -> Sample:
    """A sample of a quiet machine."""
    return Sample(at, 0.5, 48 * 2**30, 3500.0, False, ())._replace(**changes)


def requests_of(data: RunData, arm_id: str) -> Iterator[RequestData]:
    return (it for it in data.requests if it.row.arm_id == arm_id)
