"""The commands as a user types them: output, exit codes, and errors without tracebacks."""

from __future__ import annotations

import csv
import errno
import io
import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest

from specmeter.cli import all_commands, invoke, root
from specmeter.show.terminal.progress import RunProgress
from specmeter.store import RunStore, guarded

MOCK = """
name: mocked
targets: {dense: "mock:dense"}
drafts: {small: "mock:small"}
arms: [{draft: small, gamma: 4}]
workloads: [{source: bench, kinds: [fact], per_kind: 2}]
engine: {kind: mock}
generation: {max_tokens: 16}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mocked.yaml").write_text(MOCK, encoding="utf-8")
    return tmp_path


def test_every_command_exists_and_teaches_by_example(capsys: pytest.CaptureFixture[str]) -> None:
    names = all_commands()
    for name in names:
        assert invoke([name, "--help"]) == 0
        text = capsys.readouterr().out
        assert "Examples:" in text, name
        assert f"specmeter {name}" in text, name
    assert invoke(["--help"]) == 0
    listing = capsys.readouterr().out
    assert all(name in listing for name in names)
    assert len(root.list_commands(None)) == len(names)  # pyright: ignore[reportArgumentType]


def test_run_show_list_and_export(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["run", "mocked.yaml"]) == 0
    shown = capsys.readouterr()
    assert "] with draft model small, 4 draft tokens (simulated)" in shown.out
    assert "12 requests to measure, into" in shown.err
    assert invoke(["show", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["state"] == "complete"
    assert report["answers"][0]["decision"] == "speculate"
    assert invoke(["list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert "demo" in listed["experiments"]
    assert listed["runs"][0]["folder"] == report["folder"]
    assert invoke(["export", report["folder"], "--out", "requests.csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(Path("requests.csv").read_text(encoding="utf-8"))))
    assert len(rows) == 12
    speedups = [arm["speedup"]["point"] for arm in report["summary"]["arms"] if arm["speedup"]]
    assert len(speedups) == 1
    capsys.readouterr()
    assert invoke(["export", report["folder"], "--table", "predictions", "--out", "predictions.csv"]) == 0
    assert capsys.readouterr().err == "1 row written to predictions.csv\n"


def test_run_prints_json_alone_on_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["run", "mocked.yaml", "--out", "here", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["requests"] == {"planned": 12, "ok": 12, "failed": 0}


def test_a_complete_run_is_not_measured_again(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["run", "mocked.yaml", "--out", "here"]) == 0
    capsys.readouterr()
    assert invoke(["run", "mocked.yaml", "--out", "here"]) == 0
    assert "nothing left to measure: all 12 requests are in here" in capsys.readouterr().err


def test_a_folder_that_is_refused_is_not_said_to_be_measured_into(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "here").mkdir()
    (folder / "here" / "letter.txt").write_text("dear", encoding="utf-8")
    assert invoke(["run", "mocked.yaml", "--out", "here"]) == 2
    shown = capsys.readouterr().err
    assert "error" in shown
    assert "measuring" not in shown


@pytest.mark.parametrize("path", ["certificate.json", "logs"])
def test_resuming_does_not_certify_what_was_changed(
    path: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(["run", "mocked.yaml", "--out", "out"]) == 0
    changed = folder / "out" / path
    if changed.is_dir():
        changed = next(changed.iterdir())
    changed.write_text(changed.read_text("utf-8") + "\n{}", encoding="utf-8")
    capsys.readouterr()
    assert invoke(["run", "mocked.yaml", "--out", "out"]) == 2
    error = capsys.readouterr().err
    assert "cannot be resumed" in error
    assert "certif" in error
    assert invoke(["check", "out"]) == 1


def test_names_of_runs_are_listed_whole(capsys: pytest.CaptureFixture[str]) -> None:
    name = "a-rather-long-name-of-an-experiment-as-people-give-them-to-theirs"[:64]
    assert invoke(["run", "mocked.yaml", "--set", f"name={name}"]) == 0
    (folder,) = Path("specmeter-runs").iterdir()
    capsys.readouterr()
    assert invoke(["list"]) == 0
    assert str(folder) in capsys.readouterr().out


def test_a_dry_run_writes_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(folder.iterdir())
    assert invoke(["run", "mocked.yaml", "--dry-run", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert (plan["requests"], plan["sessions"], plan["prompts"]) == (12, 6, 2)
    assert invoke(["run", "demo", "--dry-run"]) == 0
    assert "dense/draft-simple/small/g4" in capsys.readouterr().out
    assert invoke(["run", "mocked.yaml", "--set", "workloads.0.per_kind=1", "--dry-run"]) == 0
    assert "1 prompt, 6 requests in 6 server starts, at most 96 tokens" in capsys.readouterr().out
    assert sorted(folder.iterdir()) == before


def test_failed_requests_end_with_exit_code_3(capsys: pytest.CaptureFixture[str]) -> None:
    fault = "engine.mock={faults: [{kind: dies, arm: '*/draft*', block: 0}]}"
    assert invoke(["run", "mocked.yaml", "--set", fault]) == 3
    shown = capsys.readouterr()
    assert "- 2 of 12 requests failed" in shown.out


def test_ctrl_c_ends_with_130_and_says_how_to_go_on(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["run", "mocked.yaml", "--out", "here", "--set", "engine.mock={faults: [{kind: interrupt, call: 9}]}"]
    assert invoke(command) == 130
    with RunStore.open(Path("here"), readonly=True) as store:
        assert store.state().state == "partial"
    invoke(["check", "here"])
    assert "certified" not in capsys.readouterr().out, "it is unfinished"


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["rnu"], "write `specmeter run`"),
        (["run", "nothing"], "neither a file nor a bundled experiment"),
        (["run", "mocked.yaml", "--set", "design.bloks=1"], "did you mean 'blocks'"),
        (["run", "mocked.yaml", "--set", "targets.dense=mock:nope"], "mock:nope"),
        (["run", "mocked.yaml", "--set", "engine.kind=embedded"], "unknown prefix 'mock:'"),
        (["show", "nowhere"], "nowhere"),
        (["show"], "contains no runs"),
        (["export", "."], "not a run folder"),
        (["run", "mocked.yaml", "--dry-run", "--out", "."], "--dry-run writes nothing"),
        (["--completion", "tcsh"], "tcsh"),
    ],
)
def test_what_cannot_be_done_ends_with_2_and_a_fix(
    argv: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(argv) == 2
    shown = capsys.readouterr()
    assert message in shown.err
    assert "Traceback" not in shown.err
    assert not shown.out


def test_a_defect_leaves_a_file_instead_of_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("oops")

    monkeypatch.setattr("specmeter.cli.run.load", broken)
    assert invoke(["run", "demo"]) == 3
    error = capsys.readouterr().err
    assert "RuntimeError: oops" in error
    assert "Traceback" not in error
    crash = Path(error.split("with the file ")[1].split(";")[0])
    assert "RuntimeError: oops" in crash.read_text(encoding="utf-8")
    crash.unlink()


def _specmeter(*arguments: str, **keywords: Any) -> subprocess.Popen[Any]:
    return subprocess.Popen([sys.executable, "-m", "specmeter", *arguments], stderr=subprocess.PIPE, **keywords)


@pytest.mark.parametrize(
    "arguments", [["list"], ["run", "--schema"], ["--help"], ["export", "out", "--table", "prompts"]]
)
def test_a_reader_that_goes_away_is_no_fault(arguments: list[str]) -> None:
    assert invoke(["run", "mocked.yaml", "--out", "out"]) == 0
    reading, writing = os.pipe()
    os.close(reading)
    with _specmeter(*arguments, stdout=writing) as process:
        os.close(writing)
        _, complaint = process.communicate(timeout=60)
    assert (process.returncode, complaint) == (0, b"")


@pytest.mark.parametrize(
    ("argv", "wrong", "fix"),
    [
        (["show", "--detail"], "--detail: no such option of `specmeter show`", "use --details"),
        (["rescue"], "rescue: RUN is missing", "write `specmeter rescue RUN`"),
        (["models", "export", "bench:dense", "--out"], "--out: no value given", "write one after it"),
        (["study", "export"], "study export: --out DIRECTORY is missing", "add --out DIRECTORY"),
        (["show", "a", "b"], "b: more than `specmeter show` takes", "see `specmeter show --help`"),
        (["models", "lst"], "models lst: no such command", "use build, compare"),
        (["show", "--details=yes"], "--details: takes no value", "write --details alone"),
        (["advise", "bench:dense", "--goal", "fun"], "--goal fun: no such value", "use throughput or latency"),
        (["run", "mock:dense", "-c", "0"], "-c 0: too small", "use a whole number, 16 or more"),
        (["run", "mock:dense", "--ctx-size=x"], "--ctx-size x: not a whole number", "use a whole number"),
        (["run", "mock:dense", "--top-p", "2"], "--top-p 2: too large", "use a number above 0, up to 1"),
        (["run", "mock:dense", "-ngl", "-1"], "-ngl -1: too small", "use all or a whole number, 0 or more"),
        (["run", "mock:dense", "-np", "1,x"], "-np 1,x: x is not a whole number", "give numbers such as 1,2,4,8"),
        (["run", "mock:dense", "-np", "2,2"], "-np 2,2: 2 is listed twice", "give numbers such as 1,2,4,8"),
        (["run", "mock:dense", "--engine", "mock", "-ctk", "f9"], "-ctk: 'f9' is not available", "correct it"),
        (["run", "mock:dense", "--engine", "mokk"], "--engine: engine 'mokk' is not installed", "did you mean mock"),
        (["rescue", "nowhere"], "nowhere: no such folder", "check the path"),
        (["run", "mock:dense", "--save", "."], "--save .: a folder, not a file", "check the path"),
    ],
)
def test_usage_errors_are_two_lines_and_name_what_was_typed(
    argv: list[str], wrong: str, fix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(argv) == 2
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith(f"error: {wrong}")
    assert second.startswith(f"  fix: {fix}")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["show", ""], "specmeter show: the first argument is empty"),
        (["compare", "a", "b", "--threshold", "nan"], "--threshold nan: not a number"),
        (["run", "demo", "--set", "design.blocks=2020-01-01"], "(given: 2020-01-01)"),
    ],
)
def test_odd_values_are_named(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(arguments) == 2
    assert said in capsys.readouterr().err


@pytest.mark.skipif(not hasattr(select, "poll"), reason="needs to ask the pipe")
def test_another_broken_pipe_is_not_taken_for_the_reader(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def broken(_run: str) -> Path:
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    monkeypatch.setattr("specmeter.cli.runs.find_run", broken)
    assert invoke(["show"]) == 3
    error = capfd.readouterr().err
    assert "specmeter itself failed (ConnectionError" in error
    Path(error.split("with the file ")[1].split(";")[0]).unlink()


def test_ctrl_c_while_the_program_is_imported_is_silent(tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text("raise KeyboardInterrupt\n")
    (program,) = entry_points(group="console_scripts", name="specmeter")
    start = f"from {program.module} import {program.attr}; {program.attr}()"
    for words in (["-m", "specmeter"], ["-c", start]):
        done = subprocess.run(
            [sys.executable, *words],
            env={**os.environ, "PYTHONPATH": str(tmp_path)},
            capture_output=True,
            check=False,
            timeout=60,
        )
        assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


def test_a_run_goes_on_when_nobody_reads_its_progress() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "specmeter", "run", "mocked.yaml", "--out", "out"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=writing) as process:
        os.close(writing)
        printed, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    assert b"(simulated)" in printed
    with RunStore.open(Path("out"), readonly=True) as store:
        assert store.state().state == "complete"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize(
    "words", [["show", "out"], ["export", "out"], ["run", "--schema"], ["list"], ["--help"]], ids=" ".join
)
def test_a_full_disk_under_the_output_is_told(words: list[str]) -> None:
    assert invoke(["run", "mocked.yaml", "--out", "out"]) == 0
    with Path("/dev/full").open("wb") as full, _specmeter(*words, stdout=full) as process:
        _, complaint = process.communicate(timeout=60)
    assert process.returncode == 3
    assert complaint.decode().splitlines() == [
        "error: the output could not be written (No space left on device)",
        "  fix: make room for it",
    ]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_run_goes_on_when_its_log_is_full() -> None:
    command = [sys.executable, "-m", "specmeter"]
    with Path("/dev/full").open("wb") as full:
        for words, code in ((["run", "mocked.yaml", "--out", "out"], 0), (["show", "nothing"], 2)):
            done = subprocess.run([*command, *words], stdout=subprocess.PIPE, stderr=full, check=False, timeout=120)
            assert (words, done.returncode) == (words, code)
    with RunStore.open(Path("out"), readonly=True) as store:
        assert store.state().state == "complete"


@pytest.mark.skipif(os.name != "posix", reason="closes a descriptor as a shell does")
def test_closed_output_is_no_fault() -> None:
    assert invoke(["run", "mocked.yaml", "--out", "out"]) == 0
    for arguments in (["show", "out"], ["export", "out"], ["run", "--schema"], ["list"]):
        command = [sys.executable, "-m", "specmeter", *arguments]
        shell = ["sh", "-c", 'exec "$0" "$@" >&-', *command]
        done = subprocess.run(shell, stderr=subprocess.PIPE, check=False, timeout=60)
        assert (arguments, done.returncode, done.stderr) == (arguments, 0, b"")


def test_names_that_the_output_cannot_spell_are_printed_all_the_same() -> None:
    assert invoke(["run", "mocked.yaml", "--out", "日本"]) == 0
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    with _specmeter("show", "日本", stdout=subprocess.PIPE, env=environment) as process:
        printed, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert b"run folder: \\u65e5\\u672c" in printed


def test_schema_accepts_the_example(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["run", "--schema"]) == 0
    schema = json.loads(capsys.readouterr().out)
    assert schema["additionalProperties"] is False
    assert {"targets", "arms", "workloads", "design", "engine", "generation"} <= set(schema["properties"])
    assert invoke(["run", "--example"]) == 0
    Path("example.yaml").write_text(capsys.readouterr().out, encoding="utf-8")
    assert invoke(["run", "example.yaml", "--dry-run", "--json"]) == 0


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGTERM as on POSIX")
def test_sigterm_ends_like_ctrl_c(folder: Path) -> None:
    """Real time and a real process: a mock run of many requests is stopped in the middle.

    `python -m` itself ends by the signal where it interrupted an `exec` of text, such as the making of a dataclass.
    """
    command = [sys.executable, "-m", "specmeter", "run", "mocked.yaml", "--out", "here", "--set", "design.blocks=900"]
    process = subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, env={**os.environ, "NO_COLOR": "1"})
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not _some_requests(folder / "here"):
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    _, error = process.communicate(timeout=60)
    assert process.returncode in (130, -signal.SIGINT), error.decode()
    with RunStore.open(folder / "here", readonly=True) as store:
        assert store.state().reason == "interrupted"


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGTERM as on POSIX")
@pytest.mark.parametrize("changes", [[], ["--set", "load.clients=[2]"]], ids=["alone", "load"])
def test_a_stop_that_python_drops_is_heard_before_the_next_request(
    changes: list[str], monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    """As in a finalizer, or a function that SQLite or ctypes calls."""

    def dropped(*_: object) -> None:
        with suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(RunProgress, "request_done", dropped)
    assert invoke(["run", "mocked.yaml", "--out", "here", *changes]) == 130
    with RunStore.open(folder / "here", readonly=True) as store:
        assert store.state().reason == "interrupted"
        assert store.state().ok <= 1


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGTERM as on POSIX")
@pytest.mark.parametrize("at", [1, 9, 30])
def test_a_stop_while_sqlite_asks_what_may_be_read_ends_the_run(at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It came out as an error of SQLite's, which a display of progress survives."""
    calls = 0

    def counted(made: Callable[[], Callable[..., int]] = guarded._authorizer) -> Callable[..., int]:  # pyright: ignore[reportPrivateUsage]
        allowed = made()

        def asked(*args: object) -> int:
            nonlocal calls
            calls += 1
            if calls == at:
                signal.raise_signal(signal.SIGTERM)
            return allowed(*args)

        return asked

    monkeypatch.setattr(guarded, "_authorizer", counted)
    assert invoke(["run", "mocked.yaml", "--out", "here"]) == 130


def test_a_request_without_an_answer_is_not_called_valid(capsys: pytest.CaptureFixture[str]) -> None:
    dies = ["--set", "engine.mock={faults: [{kind: dies, call: 9}]}"]
    assert invoke(["run", "mocked.yaml", "--out", "here", *dies]) == 3
    capsys.readouterr()
    invoke(["check", "here"])
    counts = re.search(r"requests: (\d+) valid, (\d+) suspect, (\d+) invalid, 2 unanswered", capsys.readouterr().out)
    assert counts
    assert sum(map(int, counts.groups())) == 10


def _some_requests(run: Path) -> bool:
    if not RunStore.exists(run):
        return False
    with RunStore.open(run, readonly=True) as store:
        return store.state().ok > 3


@pytest.mark.parametrize(
    "words",
    [["show"], ["explain"], ["check"], ["export"], ["study", "latency"], ["report"], ["audit"], ["study", "show"]],
    ids=" ".join,
)
def test_a_name_that_is_too_long_for_any_file_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke([*words, "x" * 5000]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: xxx")
    assert "fix: " in error
    assert len(error) < 300
