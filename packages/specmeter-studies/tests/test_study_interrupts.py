"""Ctrl-C in `specmeter study run` at any moment, once and twice, in a process of its own as a terminal has it: what is
kept is told with the command that goes on, nothing is lost, and no process and no half-made file stays behind."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil
import pytest

from specmeter.analysis.quality import load_report
from specmeter.cli import invoke
from specmeter.store import RunStore
from specmeter_studies.amount import measured
from stand_in_study import NAME, install

TWO_MODELS = "models={F16: {reference: 'bench:dense', bits: 16}, Q8_0: {made_from: F16, type: Q8_0, bits: 8}}"
LADDER = (
    "apple-quant-ladder",
    "--variant",
    "bench",
    "--variant",
    "quick",
    "--set",
    TWO_MODELS,
    "--set",
    "windows=1",
    "--set",
    "threads=1",
)
"""One file of a small model is made; both are scored on one window and timed in two blocks."""
LARGE = ("--set", "models.F16.reference=bench:dense?size=199328384")
"""Its first model takes long enough to be made that Ctrl-C meets it half made."""
TWO_ARMS = "arms=[{target: 35B_Q4, draft: 0.8B_Q8, gamma: 4}]"
DRAFTS = (
    "moe-sd",
    "--variant",
    "bench",
    "--variant",
    "quick",
    "--set",
    TWO_ARMS,
    "--set",
    "design.blocks=2",
    "--set",
    "engine.threads=1",
)

INTERRUPTED = (130, -signal.SIGINT)
"""`python -m` itself ends by the signal where it interrupted an `exec` of text, such as the making of a dataclass."""

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="signals a process group")


class Terminal:
    """Starts commands in a group of their own, and presses Ctrl-C: every process of the group is signalled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.scratch = folder / "scratch"
        self.scratch.mkdir()
        self._marker = f"interrupts-{os.getpid()}-{time.time_ns()}"

    @property
    def _environment(self) -> Mapping[str, str]:
        return {
            **os.environ,
            "SPECMETER_TEST_MARKER": self._marker,
            "SPECMETER_CACHE": str(self.folder / "cache"),
            "TMPDIR": str(self.scratch),
            "PYTHONUNBUFFERED": "1",
        }

    def stopped(self, words: Sequence[str], at: str, again_after_s: float | None = None) -> tuple[int, str]:
        """Press Ctrl-C when a line with `at` appears, and once more if asked for; (exit code, everything said)."""
        with subprocess.Popen(
            [sys.executable, "-m", "specmeter", *words],
            cwd=self.folder,
            env=self._environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            # Where the tests run in the background of a shell, Ctrl-C is ignored, and that is inherited.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        ) as process:
            assert process.stderr is not None
            said = ""
            for line in process.stderr:
                said += line
                if at in line:
                    break
            else:
                pytest.fail(f"{at!r} was never said, but: {said}")
            os.killpg(process.pid, signal.SIGINT)
            if again_after_s is not None:
                time.sleep(again_after_s)
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGINT)
            said += process.stderr.read()
            return process.wait(), said

    def done(self, words: Sequence[str]) -> str:
        """Run a command to its end; what it said."""
        result = subprocess.run(
            [sys.executable, "-m", "specmeter", *words],
            cwd=self.folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert result.returncode in (0, 1), result.stderr
        return result.stderr

    def left_behind(self) -> list[str]:
        """Living processes of these commands, and files that will never be finished."""
        found: list[str] = []
        for process in psutil.process_iter():
            try:
                if process.environ().get("SPECMETER_TEST_MARKER") == self._marker:
                    found += [str(process)] if process.status() != psutil.STATUS_ZOMBIE else []
            except psutil.Error:
                continue
        return found + [str(path) for path in (self.folder / "cache").rglob("*.part")]


@pytest.fixture
def terminal(tmp_path: Path) -> Terminal:
    return Terminal(tmp_path)


def command_in(said: str) -> list[str]:
    """The words of the command that goes on, without `specmeter`; it is told once."""
    assert said.count("stopped") == 1, said
    assert "interrupted" not in said
    (command,) = re.findall(r"^to continue: .* -m specmeter (.*)$", said, re.MULTILINE)
    return shlex.split(command)


@pytest.mark.slow
def test_a_model_that_was_half_made_leaves_nothing(terminal: Terminal) -> None:
    words = ["study", "run", *LADDER, *LARGE, "--new"]
    for at in ("preparing model F16", "preparing model Q8_0"):
        code, said = terminal.stopped(words, at)
        assert code in INTERRUPTED, said
        assert "Traceback" not in said
        assert not terminal.left_behind()
        words = command_in(said)
        assert "--new" not in words, "it would begin once more"
    assert len(list((terminal.folder / "specmeter-runs").iterdir())) == 1


@pytest.mark.slow
def test_a_ladder_that_is_stopped_again_and_again_is_completed(terminal: Terminal) -> None:
    words = ["study", "run", *LADDER]
    for at in ("measuring perplexity", "measuring rates"):
        code, said = terminal.stopped(words, at)
        assert code in INTERRUPTED, said
        assert "Traceback" not in said
        assert not terminal.left_behind()
        # Python may be stopped between making a temporary folder and minding it; nothing is in it then.
        assert not [it for it in terminal.scratch.rglob("*") if it.is_file()]
        words = command_in(said)
    (folder,) = (terminal.folder / "specmeter-runs").iterdir()
    before = load_report(folder / "apple-quant-ladder.json")
    assert all(model.perplexity for model in before.models)
    assert f": apple-quant-ladder: {measured(before).message}" in said
    said = terminal.done(words)
    assert "resuming" in said
    assert "measuring perplexity" not in said, "it was kept"
    after = load_report(folder / "apple-quant-ladder.json")
    assert after.complete
    assert [model.perplexity for model in after.models] == [model.perplexity for model in before.models]
    assert not terminal.left_behind()


@pytest.mark.slow
@pytest.mark.parametrize("again_after_s", [0.0, 0.1, 1.0])
def test_ctrl_c_twice_ends_everything_and_loses_nothing(terminal: Terminal, again_after_s: float) -> None:
    orders = [
        ([*LADDER, *LARGE], "preparing model F16"),
        (LADDER, "measuring perplexity"),
        (LADDER, "measuring rates"),
        (DRAFTS, "block 1/2"),
        (DRAFTS, "block 2/2"),
    ]
    for order, at in orders:
        code, said = terminal.stopped(["study", "run", *order], at, again_after_s)
        assert code in INTERRUPTED, said
        assert "Traceback" not in said
        assert not terminal.left_behind()
        command_in(said)
    assert len(list((terminal.folder / "specmeter-runs").iterdir())) == 3, "two were gone on with"
    for folder in (terminal.folder / "specmeter-runs").glob("moe-sd-*"):
        with RunStore.open(folder / "moe-sd") as store:
            store.check()
            assert store.state().ok > 0


@pytest.mark.slow
def test_requests_that_were_measured_are_kept_and_not_measured_again(terminal: Terminal) -> None:
    code, said = terminal.stopped(["study", "run", *DRAFTS, "--json"], "block 2/2")
    assert code in INTERRUPTED, said
    assert "Traceback" not in said
    assert not terminal.left_behind()
    words = command_in(said)
    (folder,) = (terminal.folder / "specmeter-runs").iterdir()
    with RunStore.open(folder / "moe-sd", readonly=True) as store:
        before = {row[:6]: row for row in store.rows()}
        state = store.state()
    assert f": moe-sd: {state.ok} of {state.planned} requests" in said
    assert state.planned // 2 <= state.ok < state.planned
    assert f"resuming {state.planned - state.ok} of {state.planned} requests" in terminal.done(words)
    with RunStore.open(folder / "moe-sd", readonly=True) as store:
        assert store.state().state == "complete"
        after = {row[:6]: row for row in store.rows()}
    assert {key: after[key] for key in before} == before


@pytest.mark.slow
def test_a_part_that_was_stopped_before_it_was_checked_is_not_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    install(monkeypatch, "demo")
    order = ["study", "run", NAME, "--set", "engine.kind=mock", "--set", "generation.max_tokens=8"]
    with monkeypatch.context() as patch:
        patch.setattr("specmeter.validity.losslessness.measure_margins", stop)
        assert invoke(order) == 130
    assert ": demo: 80 of 80 requests" in capsys.readouterr().err
    assert invoke(["study", "show"]) == 0
    (folder,) = Path("specmeter-runs").iterdir()
    assert f"not checked yet: `specmeter check {folder / 'demo'}`" in " ".join(capsys.readouterr().out.split())
    assert invoke(order) in (0, 1)
    with RunStore.open(folder / "demo", readonly=True) as store:
        assert store.certificate() is not None
        assert store.state().state == "complete"
