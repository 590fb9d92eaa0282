"""What measuring costs: wall time of a run against loads, warm-ups and requests, and against pure decoding.

    uv run python benchmarks/overhead.py [EXPERIMENT] [--runs 3]

Each run is a process of its own, as a user starts it; models are built before the clock starts.

own work    wall time of `specmeter run` / (session starts + warm-ups + requests); the target is 1.10
per request own milliseconds between the engine's answer and the next request, median
wall/decode wall time of `specmeter run` / decode time of the measured requests
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from specmeter.experiments.file import load
from specmeter.laboratory.run import prepare
from specmeter.store import RunStore


def measure(experiment: str, folder: Path) -> tuple[float, float, float]:
    """(own work, own ms per request, wall / decode) of one run."""
    started = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "specmeter", "run", experiment, "--out", str(folder)],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    wall_s = time.perf_counter() - started
    with RunStore.open(folder, readonly=True) as store:
        sessions = {session.id: session for session in store.sessions()}
        requests = list(store.requests())
    busy_ms = sum(session.ready_ms + session.warmup_ms for session in sessions.values())
    busy_ms += sum(request.reply.wall_ms for request in requests if request.reply)
    decode_ms = sum(request.reply.timings.predicted_ms for request in requests if request.reply)
    gaps = [
        (after.started_at - before.started_at) * 1000 - before.reply.wall_ms
        for before, after in itertools.pairwise(requests)
        if before.session_id == after.session_id and before.reply
    ]
    return wall_s * 1000 / busy_ms, statistics.median(gaps), wall_s * 1000 / decode_ms


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiment", nargs="?", default=str(Path(__file__).with_suffix(".yaml")))
    parser.add_argument("--runs", type=int, default=3)
    args = parser.parse_args()
    prepare(load(args.experiment))
    with tempfile.TemporaryDirectory() as scratch:
        results = [measure(args.experiment, Path(scratch) / str(run)) for run in range(args.runs)]
    for name, values in zip(("own work", "own ms per request", "wall/decode"), zip(*results, strict=True), strict=True):
        print(f"{name:20} median {statistics.median(values):.3f}  (from {min(values):.3f} to {max(values):.3f})")


if __name__ == "__main__":
    main()
