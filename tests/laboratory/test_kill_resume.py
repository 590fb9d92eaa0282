"""kill -9 of the harness at random moments, on the real embedded engine, under load, and of an advice: nothing lost,
nothing doubled, no orphans."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import psutil
import pytest

from specmeter.store import RunStore

REAL = """
name: kill
targets: {dense: bench:dense}
drafts: {small: bench:draft-small}
workloads: [{source: bench, kinds: [fact, code], per_kind: 2}]
arms:
  - {draft: small, gamma: 4}
  - {method: ngram-simple, gamma: 8}
design: {blocks: 4, warmup: short, seed: 3}
engine: {context: 1024, threads: 1}
generation: {max_tokens: 24}
"""
LOADED = """
name: kill
targets: {dense: "mock:dense"}
drafts: {small: "mock:small"}
workloads: [{source: bench, per_kind: 4}]
arms: [{draft: small, gamma: 4}]
load: {clients: 8, slots: 8}
design: {blocks: 40, seed: 3}
engine: {kind: mock}
generation: {max_tokens: 24}
"""
ADVICE = ("advise", "mock:dense", "--draft", "mock:small", "--kind", "fact", "--kind", "code", "-n", "16")


def engine_processes(marker: str) -> list[psutil.Process]:
    """Living processes that work for the run whose environment carries `marker`."""
    found: list[psutil.Process] = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("SPECMETER_TEST_MARKER") == marker and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


def keys_of(folder: Path) -> Counter[tuple[str | int, ...]]:
    """What was measured in a run, or in all runs of an advice."""
    found: Counter[tuple[str | int, ...]] = Counter()
    for file in folder.rglob("run.sqlite"):
        if RunStore.exists(file.parent):
            with RunStore.open(file.parent, readonly=True) as store:
                found.update([(file.parent.name, *row.key) for row in store.rows() if row.status == "ok"])
    return found


@pytest.mark.timeout(900)
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads other processes' environments from /proc")
@pytest.mark.parametrize(
    ("what", "kills"),
    [
        ("real", 3),
        pytest.param("real", 12, marks=pytest.mark.slow),
        pytest.param("loaded", 3, marks=pytest.mark.slow),
        pytest.param("advice", 2, marks=pytest.mark.slow),
    ],
)
def test_what_is_killed_at_random_moments_is_completed_without_loss_or_repetition(
    tmp_path: Path, what: str, kills: int, times: int
) -> None:
    for turn in range(times):
        killed(tmp_path / str(turn), what, kills, random.Random(20 + turn))


def killed(place: Path, what: str, kills: int, rng: random.Random) -> None:
    """Start it and kill it so many times, then let it end."""
    place.mkdir()
    file, folder, marker = place / "kill.yaml", place / "run", f"kill-{os.getpid()}-{time.time_ns()}"
    file.write_text(LOADED if what == "loaded" else REAL, encoding="utf-8")
    asked = ADVICE if what == "advice" else ("run", str(file))
    command = [sys.executable, "-m", "specmeter", *asked, "--out", str(folder)]
    environment = {**os.environ, "SPECMETER_TEST_MARKER": marker}
    acknowledged: Counter[tuple[str | int, ...]] = Counter()
    for kill in range(kills):
        told = place / f"stderr-{kill}.txt"
        with told.open("wb") as log:
            process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=log)
            # Some while it starts, most while it measures, on a machine of any speed.
            while kill % 4 and process.poll() is None and b"[" not in told.read_bytes():
                time.sleep(0.02)
            try:
                process.wait(timeout=rng.uniform(0.1, 1.0))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        now = keys_of(folder)
        assert not acknowledged - now, "a request that was on disk is gone"
        acknowledged = now
    deadline = time.monotonic() + 60
    while (left := engine_processes(marker)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not left, f"servers outlived their harness: {left}"

    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    for database in folder.rglob("run.sqlite"):
        with RunStore.open(database.parent, readonly=True) as store:
            assert store.state().state == "complete"
            store.check()
    final = keys_of(folder)
    assert set(final.values()) == {1}
    if what == "real":
        assert len(final) == 4 * 3 * 4
    assert not engine_processes(marker)
