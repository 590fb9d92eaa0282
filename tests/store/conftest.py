"""Small, complete records for tests of the store."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from specmeter.record import EngineIdentity, Reply, Request, Session, Step, Timings
from specmeter.store import RunStore

PLAN = [(0, block, arm, prompt) for block in range(2) for arm in ("base", "sd/g4") for prompt in ("p1", "p2")]

MakeRequest = Callable[..., Request]


def engine_identity(**changes: object) -> EngineIdentity:
    fields = {
        "kind": "mock",
        "version": "1",
        "build": "b",
        "binary": "/m",
        "binary_sha256": "aa",
        "libraries": {"l": "b"},
    }
    return EngineIdentity.model_validate(fields | changes)


def session_record(session_id: str = "s1", **changes: object) -> Session:
    fields = {
        "id": session_id,
        "arm_id": "base",
        "invocation": 0,
        "block": 0,
        "position": 0,
        "argv": ("mock",),
        "engine": engine_identity(),
        "started_at": 1.0,
        "ready_ms": 5.0,
        "resolved": {"n_max": 4},
        "layers_offloaded": (3, 4),
    }
    return Session.model_validate(fields | changes)


def request_record(key: tuple[int, int, str, str] = PLAN[0], *, failed: bool = False, **changes: object) -> Request:
    reply = Reply(
        text="héllo ✓",
        reasoning="so",
        token_ids=(1, 2, 3),
        stop_reason="limit",
        timings=Timings(prompt_n=5, prompt_ms=10, predicted_n=4, predicted_ms=0.1 + 0.2, draft_n=4, draft_n_accepted=2),
        raw_timings={"predicted_n": 4},
        counters={"n_decode_total": 2.0},
        wall_ms=99.5,
        ttft_ms=None,
        arrival_ms=(1.25, 2.5, 3.0000001),
        steps=(Step(drafted=4, accepted=2, at_ms=3.5),),
    )
    fields = {
        "invocation": key[0],
        "block": key[1],
        "position": 0,
        "item": 0,
        "arm_id": key[2],
        "prompt_id": key[3],
        "prompt_sha256": "ff",
        "kind": "code",
        "session_id": "s1",
        "started_at": 12.5,
        "status": "failed" if failed else "ok",
        "error": "it died" if failed else None,
        "reply": None if failed else reply,
    }
    return Request.model_validate(fields | changes)


@pytest.fixture
def make_request() -> MakeRequest:
    return request_record


@pytest.fixture
def make_session() -> Callable[..., Session]:
    return session_record


@pytest.fixture
def make_engine() -> Callable[..., EngineIdentity]:
    return engine_identity


@pytest.fixture
def plan() -> list[tuple[int, int, str, str]]:
    return list(PLAN)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RunStore]:
    with RunStore.create(
        tmp_path / "run", experiment_yaml="name: t # ✓\n", experiment_json='{"name": "t"}', plan=PLAN
    ) as store:
        yield store


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on the mock engine, measured once for all tests of a module."""
    from measure.test_measure import measured, write

    folder = tmp_path_factory.mktemp("original")
    measured(write(folder, design={"blocks": 2}), folder / "run")
    return folder / "run"


@pytest.fixture
def run(original: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    shutil.copytree(original, tmp_path / "run")
    return tmp_path / "run"
