"""Servers that die, hang, lie or talk nonsense end in the right error, quickly, and leave nothing behind."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest
from llama_fixtures import arm, core, faulty_binary, gone_within, greedy, launch, prompt

from specmeter.engines import process
from specmeter.engines.llama_cpp import engine as llama_engine
from specmeter.engines.llama_cpp.engine import EmbeddedEngine, NativeEngine
from specmeter.errors import (
    EngineDiedError,
    EngineError,
    EngineHungError,
    EngineProtocolError,
    EngineStartError,
    SpecmeterError,
)

posix = pytest.mark.skipif(sys.platform == "win32", reason="the faulty server is wrapped in a shell script")


@posix
@pytest.mark.parametrize(
    ("fault", "kind", "says"),
    [
        ("dies", EngineDiedError, "GGML_ASSERT"),
        ("hangs", EngineHungError, "no token for 1.5 s"),
        ("endless", EngineProtocolError, "generated more than the 8 tokens"),
        ("fills", EngineProtocolError, "generated more than the 8 tokens"),
        ("garbage", EngineProtocolError, "cannot be parsed"),
        ("backwards", EngineProtocolError, "cannot be parsed"),
        ("error", EngineProtocolError, "Compute error."),
        ("no-final", EngineProtocolError, "last event is missing"),
        ("breaks-off", EngineProtocolError, "closed the connection"),
        ("no-timings", EngineProtocolError, "timings are missing"),
        ("absurd-time", EngineProtocolError, "more time than"),
        ("negative", EngineProtocolError, "predicted_ms"),
        ("not-a-number", EngineProtocolError, "predicted_ms"),
        ("too-many", EngineProtocolError, "impossible counts"),
        ("text-for-number", EngineProtocolError, "prompt_n"),
        ("garbage-metrics", EngineProtocolError, "/metrics"),
        ("refuses", EngineProtocolError, "context size"),
    ],
)
def test_a_server_that_fails_while_generating(tmp_path: Path, fault: str, kind: type[EngineError], says: str) -> None:
    engine = NativeEngine(faulty_binary(tmp_path, fault))
    with engine.start(launch(tmp_path, arm(), idle_s=1.5)) as session:
        started = time.monotonic()
        with pytest.raises(kind) as caught:
            session.generate(prompt(), greedy(8))
        assert time.monotonic() - started < 60, "it gives up by itself, long before the time limit of a whole request"
    assert says in caught.value.message
    assert caught.value.fix
    assert gone_within(session.facts.pids, 60)


@posix
@pytest.mark.parametrize(
    ("fault", "kind", "says"),
    [
        ("dies", EngineDiedError, "died while it was generating"),
        ("hangs", EngineHungError, "1.5 s"),
        ("breaks-off", EngineProtocolError, "closed the connection"),
        ("garbage", EngineProtocolError, "cannot be parsed"),
        ("refuses", EngineProtocolError, "context size"),
        ("too-few-ids", EngineProtocolError, "token ids"),
    ],
)
def test_a_server_that_fails_to_answer_in_one_piece(
    tmp_path: Path, fault: str, kind: type[EngineError], says: str
) -> None:
    engine = NativeEngine(faulty_binary(tmp_path, fault))
    order = launch(tmp_path, arm(engine={"stream_tokens": False}), idle_s=1.5)
    with engine.start(order) as session, pytest.raises(kind, match=says):
        session.generate(prompt(), greedy(8))


@posix
@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("dies-at-load", "failed to load model"),
        ("never-ready", "not ready within 2 s"),
        ("wrong-model", "has loaded '/somewhere/else.gguf'"),
        ("garbage-props", "/props cannot be parsed"),
        ("ignores-key", "does not require our key"),
        ("no-server", "is not a usable llama-server"),
    ],
)
def test_a_server_that_does_not_become_ready(tmp_path: Path, fault: str, says: str) -> None:
    with pytest.raises(EngineStartError, match=says):
        NativeEngine(faulty_binary(tmp_path, fault)).start(launch(tmp_path, arm(), start_s=2))


@posix
def test_a_server_that_answers_before_its_log_is_written_is_waited_for(tmp_path: Path) -> None:
    with NativeEngine(faulty_binary(tmp_path, "logs-late")).start(launch(tmp_path, arm())) as session:
        assert session.facts.resolved["method_parameters"] == {
            "ngram-simple": {"size_n": 3, "size_m": 6, "min_hits": 1}
        }


@posix
def test_garbage_instead_of_tokens(tmp_path: Path) -> None:
    engine = NativeEngine(faulty_binary(tmp_path, "garbage-tokens"))
    with engine.start(launch(tmp_path, arm())) as session, pytest.raises(EngineProtocolError, match="/tokenize"):
        session.tokenize("x")


def test_a_binary_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(EngineStartError, match="not an executable file"):
        NativeEngine(tmp_path / "nothing")


def test_no_binary_at_all(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("SPECMETER_CACHE", str(tmp_path))
    monkeypatch.delenv("SPECMETER_LLAMA_SERVER", raising=False)
    with pytest.raises(EngineStartError, match="no llama-server has been built, and none is on PATH"):
        NativeEngine()


@posix
def test_a_program_that_is_no_llama_server(tmp_path: Path) -> None:
    engine = NativeEngine(Path("/bin/cat"))
    with pytest.raises(EngineStartError, match="is not a usable llama-server"):
        engine.identify()
    with pytest.raises(EngineStartError, match="is not a usable llama-server"):
        engine.start(launch(tmp_path, arm()))


@posix
def test_a_port_taken_by_a_foreign_server_is_never_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The foreign server even has the right model and answers everybody."""
    foreign = NativeEngine(faulty_binary(tmp_path, "ignores-key"))
    monkeypatch.setattr(llama_engine, "_proven_props", lambda *_: {})
    with foreign.start(launch(tmp_path / "foreign", arm())) as other:
        taken = int(other.facts.argv[other.facts.argv.index("--port") + 1])
        monkeypatch.undo()
        ports = iter([taken, process.free_port()])
        monkeypatch.setattr(process, "free_port", lambda: next(ports))
        with EmbeddedEngine().start(launch(tmp_path, arm())) as session:
            assert f'"port": {taken}' not in session.facts.argv[-1]
            assert session.generate(prompt(), greedy(4)).timings.predicted_n == 4


@pytest.mark.parametrize(("cut", "says"), [(0, "exit code"), (1000, "exit code")])
def test_a_file_that_is_no_whole_model(tmp_path: Path, cut: int, says: str) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(Path(core("dense").path).read_bytes()[:cut])
    order = launch(tmp_path, arm())
    target = order.target.model_copy(update={"path": str(broken)})
    with pytest.raises(EngineStartError, match=says) as caught:
        EmbeddedEngine().start(type(order)(order.arm, target, None, order.log_path))
    assert "\n  | " in caught.value.message


def test_a_log_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("a file where a folder should be")
    with pytest.raises(SpecmeterError, match="cannot start an engine"):
        EmbeddedEngine().start(launch(tmp_path, arm()))
