"""A fleet on a real Ray of this machine: what is merged, what is lost, what is refused."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest

import specmeter
from specmeter.cli import invoke
from specmeter.store import RunStore

MOCK = """
name: fleet-mock
targets: {dense: "mock:dense"}
drafts: {small: "mock:small"}
arms: [{method: draft-simple, draft: small, gamma: [2, 4]}]
workloads: [{source: bench, kinds: [code, edit], per_kind: 2}]
design: {blocks: 3}
engine: {kind: mock, mock: {noise: 0.02}}
generation: {max_tokens: 32}
"""
EMBEDDED = """
name: fleet-real
targets: {dense: "bench:dense"}
drafts: {small: "bench:draft-small"}
arms: [{method: draft-simple, draft: small, gamma: 4}]
workloads: [{source: bench, kinds: [code], per_kind: 2}]
design: {blocks: 2, invocations: 2, warmup: short, probe: "off", disturbed: keep}
engine: {kind: embedded, context: 1024, threads: 1}
generation: {max_tokens: 24}
"""
pytestmark = [
    pytest.mark.slow,
    pytest.mark.alone,
    pytest.mark.skipif(find_spec("ray") is None, reason="pip install 'specmeter[fleet]'"),
]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "mock.yaml").write_text(MOCK, encoding="utf-8")
    (tmp_path / "real.yaml").write_text(EMBEDDED, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    yield
    assert [it for it in psutil.process_iter(["cmdline"]) if _is_ours(it, tmp_path)] == []


def _is_ours(process: psutil.Process, folder: Path) -> bool:
    return any(str(folder) in word for word in process.info["cmdline"] or ())


def _run(*words: str) -> int:
    return invoke(["fleet", "run", *words, "--quiet"])


def test_two_devices_make_one_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert _run("mock.yaml", "--on", "local:2", "--out", "out") == 0
    assert "2 devices: no difference beyond noise" in capsys.readouterr().out
    run = specmeter.load("out")
    assert {it.invocation for it in run.requests()} == {0, 1}
    with RunStore.open(Path("out"), readonly=True) as store:
        state = store.state()
        assert (state.state, state.ok) == ("complete", 2 * 3 * 3 * 4)
        assert [(it.device, it.invocations) for it in store.hosts()] == [("local-0", (0,)), ("local-1", (1,))]
        certificate = store.certificate()
    assert certificate is not None
    assert certificate.verdict != "invalid"
    for command in (["show", "out"], ["check", "out"], ["report", "out"], ["export", "out", "--out", "rows.csv"]):
        assert invoke(command) == 0, command
    assert invoke(["fleet", "show", "out", "--json"]) == 0
    said = json.loads(capsys.readouterr().out.rpartition("\n{")[2].join(["{", ""]))
    assert len(said["spread"]) == 3
    assert invoke(["compare", "out", "out.fleet/parts/0000-local-0"]) in (0, 1)


def test_a_part_is_an_ordinary_run() -> None:
    assert _run("mock.yaml", "--on", "local:1", "--out", "out", "--set", "design.invocations=2") == 0
    for number in range(2):
        with RunStore.open(Path(f"out.fleet/parts/000{number}-local-0"), readonly=True) as part:
            assert {key.invocation for key in part.done_keys()} == {number}
            assert part.state().state == "complete"
            certificate = part.certificate()
            assert certificate is not None
            assert certificate.verdict != "invalid"


def test_done_is_not_measured_again() -> None:
    assert _run("mock.yaml", "--on", "local:1", "--out", "out") == 0
    before = Path("out.fleet/fleet.json").read_bytes()
    assert _run("mock.yaml", "--on", "local:1", "--out", "out") == 0
    assert Path("out.fleet/fleet.json").read_bytes() == before
    assert _run("mock.yaml", "--on", "local:1", "--out", "out", "--set", "design.blocks=4") == 2


def test_a_survey_has_a_run_for_each_machine(capsys: pytest.CaptureFixture[str]) -> None:
    Path("fleet.yaml").write_text("address: local\ndevices: [{name: a, labels: {room: north}}, {name: b}]\n")
    assert _run("mock.yaml", "--on", "fleet.yaml", "--out", "out", "--design", "survey", "--html", "page.html") == 0
    said, page = capsys.readouterr().out, Path("page.html").read_text(encoding="utf-8")
    for text in (said, page):
        assert "room north" in text
        assert text.count("as fast with") >= 2, "the answer of each"
    assert "out.fleet/parts/b --details`" in said
    assert not Path("out").exists()


def test_a_model_that_is_missing_is_said_once_and_leaves_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert _run("real.yaml", "--on", "local:2", "--out", "out", "--set", "targets.dense=./none.gguf") == 2
    assert capsys.readouterr().err.count("is not on this machine") == 1
    assert list(Path().glob("out*")) == []


def test_the_embedded_engine_on_two_devices() -> None:
    assert _run("real.yaml", "--on", "local:2", "--out", "out") == 0
    with RunStore.open(Path("out"), readonly=True) as store:
        assert store.state().ok == 2 * 2 * 2 * 2
        assert {it.invocation for it in store.telemetry()} <= {0, 1}
        found, findings = store.certificate(), list(store.findings())
    assert found is not None
    assert found.verdict != "invalid", findings


@pytest.mark.parametrize("seed", range(2))
def test_a_killed_worker_loses_and_doubles_nothing(seed: int) -> None:
    head = subprocess.Popen(
        [sys.executable, "-m", "specmeter", "fleet", "run", "real.yaml", "--on", "local:2", "--out", "out", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        victim = _worker_at_work(head.pid)
        assert {ip.removeprefix("::ffff:") for ip in _listened_on(head.pid)} == {"127.0.0.1"}
        time.sleep(0.3 * seed)
        os.kill(victim, signal.SIGKILL)
        answer, said = head.communicate(timeout=240)
    finally:
        head.kill()
    assert head.returncode in (0, 1), said
    assert b"was lost while measuring part" in said
    assert b"continues on" in said
    assert b"needs at least 3 invocations" in b" ".join(said.split())
    assert json.loads(answer)["fleet"]["parts"], "Ray said something, too"
    with RunStore.open(Path("out"), readonly=True) as store:
        assert store.missing() == []
        assert len(list(store.rows())) == len(store.done_keys()) == 16


def test_a_killed_head_is_gone_on_with() -> None:
    words = [sys.executable, "-m", "specmeter", "fleet", "run", "real.yaml", "--on", "local:2", "--out", "out"]
    head = subprocess.Popen(words, stderr=subprocess.DEVNULL)
    try:
        _worker_at_work(head.pid)
    finally:
        head.kill()
    head.wait()
    deadline = time.monotonic() + 60
    while any(_is_ours(it, Path.cwd()) for it in psutil.process_iter(["cmdline"])) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert _run("real.yaml", "--on", "local:2", "--out", "out") == 0
    with RunStore.open(Path("out"), readonly=True) as store:
        assert len(list(store.rows())) == len(store.done_keys()) == 16


def _listened_on(head: int) -> set[str]:
    """Addresses that the cluster of a head listens on."""
    family = [psutil.Process(head), *psutil.Process(head).children(recursive=True)]
    return {it.laddr.ip for one in family for it in one.net_connections() if it.status == psutil.CONN_LISTEN}


def _worker_at_work(head: int) -> int:
    """The Ray worker whose guard's run has begun to measure."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        for process in psutil.Process(head).children(recursive=True) if psutil.pid_exists(head) else ():
            try:
                words = process.cmdline()
                if "specmeter" in words and "--out" in words and "fleet" not in words:
                    folder = Path(words[words.index("--out") + 1])
                    guard = process.parent()
                    if (folder / "run.sqlite").is_file() and guard is not None and guard.ppid() > 1:
                        return guard.ppid()
            except psutil.Error:
                continue
        time.sleep(0.1)
    raise AssertionError("nothing was measured")
