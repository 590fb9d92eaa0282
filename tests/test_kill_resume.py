"""kill -9 of the harness at random moments, on the real embedded engine: nothing lost, nothing doubled, no orphans."""

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

KILLS = int(os.environ.get("SPECMETER_KILLS", "20"))

EXPERIMENT = """
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


def keys_of(folder: Path) -> Counter[tuple[int, int, str, str]]:
    with RunStore.open(folder, readonly=True) as store:
        return Counter(
            (row.invocation, row.block, row.arm_id, row.prompt_id) for row in store.rows() if row.status == "ok"
        )


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads other processes' environments from /proc")
def test_a_run_killed_at_random_moments_is_completed_without_loss_or_repetition(tmp_path: Path) -> None:
    file, folder, marker = tmp_path / "kill.yaml", tmp_path / "run", f"kill-{os.getpid()}-{time.time_ns()}"
    file.write_text(EXPERIMENT, encoding="utf-8")
    command = [sys.executable, "-m", "specmeter", "run", str(file), "--out", str(folder)]
    environment = {**os.environ, "SPECMETER_TEST_MARKER": marker}
    rng = random.Random(20)
    acknowledged: Counter[tuple[int, int, str, str]] = Counter()
    for kill in range(KILLS):
        told = tmp_path / f"stderr-{kill}.txt"
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
        if RunStore.exists(folder):
            now = keys_of(folder)
            assert not acknowledged - now, "a request that was on disk is gone"
            acknowledged = now
    deadline = time.monotonic() + 60
    while (left := engine_processes(marker)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not left, f"servers outlived their harness: {left}"

    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    with RunStore.open(folder, readonly=True) as store:
        assert store.state().state == "complete"
        store.check()
    final = keys_of(folder)
    assert set(final.values()) == {1}
    assert len(final) == 4 * 3 * 4
    assert not engine_processes(marker)
