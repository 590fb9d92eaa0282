"""No engine outlives specmeter: kill -9, Ctrl-C, a lost guard; both launchers."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from llama_fixtures import HERE, NATIVE, arm, faulty_binary, gone_within, launch

from specmeter.engines.llama_cpp.engine import EmbeddedEngine
from specmeter.engines.process import EngineProcess

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals")

HARNESS = """
import signal, sys, time, json
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where the tests run in the background of a shell
from pathlib import Path
sys.path.insert(0, {here!r})
from engines.llama_fixtures import arm, launch, prompt, greedy
from specmeter.engines import load_engine
engine = load_engine({kind!r}, binary={binary!r})
print("starting", flush=True)
with engine.start(launch(Path({folder!r}), arm(engine={{"context": 4096}}))) as session:
    print(json.dumps(session.facts.pids), flush=True)
    while True:
        session.generate(prompt(), greedy({tokens}))
"""


def harness(tmp_path: Path, kind: str, binary: Path | None, tokens: int = 2000) -> subprocess.Popen[str]:
    source = HARNESS.format(
        here=str(HERE.parent), kind=kind, binary=str(binary) if binary else None, folder=str(tmp_path), tokens=tokens
    )
    started = subprocess.Popen(
        [sys.executable, "-c", source],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert started.stdout is not None
    assert started.stdout.readline() == "starting\n"
    return started


def launcher(kind: str, tmp_path: Path) -> Path | None:
    if kind == "embedded":
        return None
    return NATIVE or faulty_binary(tmp_path, "hangs")


def family(parent: subprocess.Popen[str]) -> list[int]:
    return [child.pid for child in psutil.Process(parent.pid).children(recursive=True)]


@pytest.mark.parametrize("kind", ["embedded", "native"])
def test_kill_while_generating(tmp_path: Path, kind: str) -> None:
    with harness(tmp_path, kind, launcher(kind, tmp_path)) as parent:
        assert parent.stdout is not None
        assert json.loads(parent.stdout.readline())
        pids = family(parent)
        assert len(pids) >= 2
        parent.kill()
    assert gone_within(pids, 60)


@pytest.mark.parametrize("kind", ["embedded", "native"])
def test_kill_while_starting(tmp_path: Path, kind: str) -> None:
    # Written once: Linux refuses to write to a program that is just being started.
    binary = launcher(kind, tmp_path)
    for moment in (0.0, random.uniform(0.02, 0.3)):
        with harness(tmp_path, kind, binary) as parent:
            time.sleep(moment)
            pids = family(parent)
            parent.kill()
        assert gone_within(pids, 60), moment


@pytest.mark.parametrize("kind", ["embedded", "native"])
def test_interrupt(tmp_path: Path, kind: str) -> None:
    with harness(tmp_path, kind, launcher(kind, tmp_path)) as parent:
        assert parent.stdout is not None
        parent.stdout.readline()
        pids = family(parent)
        time.sleep(0.1)
        parent.send_signal(signal.SIGINT)
        _, stderr = parent.communicate(timeout=120)
        assert "KeyboardInterrupt" in stderr
        assert gone_within(pids, 60)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux ends a process with its parent")
def test_kill_of_the_guard(tmp_path: Path) -> None:
    with EmbeddedEngine().start(launch(tmp_path, arm())) as session:
        guard = psutil.Process(session.facts.pids[0]).ppid()
        os.kill(guard, signal.SIGKILL)
        assert gone_within(session.facts.pids, 60)


def run(tmp_path: Path, program: str, stdin: str = "") -> EngineProcess:
    return EngineProcess([sys.executable, "-c", program], env=dict(os.environ), log_path=tmp_path / "log", stdin=stdin)


def test_output_input_and_exit_code(tmp_path: Path) -> None:
    process = run(tmp_path, "import sys; print(sys.stdin.read()); print('bad', file=sys.stderr); sys.exit(7)", "hello")
    assert process.wait(60) == 7
    process.close()
    assert (tmp_path / "log").read_text().split() == ["hello", "bad"]


def test_a_signal_is_told(tmp_path: Path) -> None:
    process = run(tmp_path, "import os; os.kill(os.getpid(), 11)")
    assert process.wait(60) == 128 + 11
    process.close()


def test_a_command_that_does_not_exist(tmp_path: Path) -> None:
    process = EngineProcess([str(tmp_path / "none")], env=dict(os.environ), log_path=tmp_path / "log")
    assert process.wait(60) == 127
    process.close()
    assert "cannot start" in (tmp_path / "log").read_text()


def test_an_engine_that_will_not_end_politely_and_its_children(tmp_path: Path) -> None:
    stubborn = (
        "import signal, subprocess, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "subprocess.Popen([sys.executable, '-c', 'import signal, time;"
        " signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)'])\n"
        "print('ready', flush=True); time.sleep(60)"
    )
    process = run(tmp_path, stubborn)
    deadline = time.monotonic() + 60
    while len(pids := process.pids()) < 2 or "ready" not in (tmp_path / "log").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.close()
    assert gone_within(pids, 60)
