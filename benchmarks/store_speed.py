"""How fast is the run folder? Writes, summaries, exports and data frames of many requests: time and memory of each.

    uv run python benchmarks/store_speed.py [--requests 100000] [--tokens 64] [--folder DIR]

Targets: a durable write within a few milliseconds; 100,000 requests loaded and summarised in 3 s within 150 MB.
Each part runs in a process of its own, so that its peak memory is its own.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from itertools import islice
from pathlib import Path
from time import perf_counter

import psutil

from specmeter.engines import Launch
from specmeter.engines.mock.engine import MockEngine
from specmeter.engines.mock.spec import mock_model
from specmeter.numbers import rates
from specmeter.record import Arm, Generation, Prompt, Reply, Request
from specmeter.show.export import RunTable
from specmeter.store import RunStore

ARMS = [Arm(id="dense/none", target="dense", role="baseline")] + [
    Arm(id=f"dense/draft-simple/g{gamma}", target="dense", methods=("draft-simple",), draft="small", gamma=gamma)
    for gamma in (2, 4, 8, 12)
]
PROMPTS = [Prompt(id=f"code-{i}", workload="w", kind="code", text="def f(x):", sha256=str(i)) for i in range(20)]
PARTS = ("fill", "summarise", "resume", "stream", "csv", "jsonl", "parquet", "pandas", "polars")
DURABLE = 300
"""So many writes are timed as a run makes them; the rest is filled in without waiting for the disk."""


def replies(folder: Path, tokens: int) -> dict[tuple[str, str], Reply]:
    engine, found = MockEngine(), {}
    for arm in ARMS:
        launch = Launch(arm, mock_model("dense", "mock:dense"), mock_model("small", "mock:small"), folder / "mock.log")
        with engine.start(launch) as session:
            for prompt in PROMPTS:
                found[arm.id, prompt.id] = session.generate(prompt, Generation(max_tokens=tokens))
    return found


def fill(folder: Path, count: int, tokens: int) -> None:
    blocks = -(-count // (len(ARMS) * len(PROMPTS)))
    plan = [(0, block, arm.id, prompt.id) for block in range(blocks) for arm in ARMS for prompt in PROMPTS]
    known = replies(folder.parent, tokens)
    durations: list[float] = []
    with RunStore.create(folder, experiment_yaml="", experiment_json="{}", plan=plan[:count]) as store:
        for index, (invocation, block, arm_id, prompt_id) in enumerate(islice(plan, count)):
            if index == DURABLE:
                store._db.execute("PRAGMA synchronous = OFF")
            request = Request(
                invocation=invocation,
                block=block,
                position=0,
                item=index % len(PROMPTS),
                arm_id=arm_id,
                prompt_id=prompt_id,
                prompt_sha256=f"{index % len(PROMPTS):064x}",
                kind="code",
                session_id=f"{index // len(PROMPTS):032x}",
                started_at=float(index),
                status="ok",
                reply=known[arm_id, prompt_id],
            )
            started = perf_counter()
            store.add_request(request)
            durations.append((perf_counter() - started) * 1000)
    durable = sorted(durations[:DURABLE])
    report("durable add_request", f"median {statistics.median(durable):.2f} ms, 99 % {durable[-DURABLE // 100]:.2f} ms")
    report("the same without fsync", f"median {statistics.median(durations[DURABLE:] or durable):.2f} ms")
    size = (folder / "run.sqlite").stat().st_size
    report("size", f"{size / 1e6:.1f} MB, {size / count:.0f} bytes a request")


def summarise(folder: Path) -> None:
    """All rows in memory, as a report needs them, and a pooled rate per arm and block."""
    started = perf_counter()
    with RunStore.open(folder, readonly=True) as store:
        state = store.state()
        rows = list(store.rows())
    tokens, ms = defaultdict[tuple[str, int], int](int), defaultdict[tuple[str, int], float](float)
    rate: list[float | None] = []
    for row in rows:
        timings = row.timings
        if timings is not None:
            tokens[row.arm_id, row.block] += timings.predicted_n - 1
            ms[row.arm_id, row.block] += timings.predicted_ms
            rate.append(rates.decode_rate(timings))
    report(f"load and summarise {len(rows)} rows ({state.state})", f"{perf_counter() - started:.2f} s")


def resume(folder: Path) -> None:
    started = perf_counter()
    with RunStore.open(folder) as store:
        count = len(store.done_keys()) + len(store.missing())
    report(f"open for resuming, {count} keys", f"{perf_counter() - started:.2f} s")


def stream(folder: Path) -> None:
    started = perf_counter()
    with RunStore.open(folder, readonly=True) as store:
        count = sum(1 for _ in store.requests())
    seconds = perf_counter() - started
    report(f"decode {count} requests in full", f"{seconds:.2f} s, {count / seconds:.0f}/s")


def write(folder: Path, format_name: str) -> None:
    started = perf_counter()
    out = folder.parent / f"out.{format_name}"
    count = RunTable(folder, "requests").write(out, format_name)
    seconds = perf_counter() - started
    report(f"export {format_name}", f"{seconds:.2f} s, {count / seconds:.0f} rows/s, {out.stat().st_size / 1e6:.0f} MB")


def frame(folder: Path, library: str) -> None:
    """The requests as a data frame."""
    started = perf_counter()
    table = RunTable(folder, "requests")
    count = len(table.to_pandas() if library == "pandas" else table.to_polars())
    seconds = perf_counter() - started
    report(f"{library} frame", f"{seconds:.2f} s, {count / seconds:.0f} rows/s")


def report(what: str, figure: str) -> None:
    memory = psutil.Process().memory_info()
    peak = getattr(memory, "peak_wset", None) or peak_bytes()
    used = psutil.Process().cpu_times()
    print(f"{what:<42} {figure:<38} process: {used.user + used.system:.1f} s CPU, {peak / 1e6:.0f} MB peak", flush=True)


def peak_bytes() -> int:
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--folder", type=Path, help="parent of the run folder; default: a temporary one")
    parser.add_argument("--part", choices=PARTS)
    given = parser.parse_args()
    if given.part is not None:
        folder = given.folder / "run"
        simple = {"summarise": summarise, "resume": resume, "stream": stream}
        if given.part == "fill":
            fill(folder, given.requests, given.tokens)
        elif given.part in simple:
            simple[given.part](folder)
        elif given.part in ("pandas", "polars"):
            frame(folder, given.part)
        else:
            write(folder, given.part)
        return
    parent = given.folder or Path(tempfile.mkdtemp(prefix="store-speed-"))
    try:
        for part in PARTS:
            sizes = ["--requests", str(given.requests), "--tokens", str(given.tokens)]
            command = [sys.executable, __file__, "--part", part, "--folder", str(parent), *sizes]
            subprocess.run(command, check=True)
    finally:
        if given.folder is None:
            shutil.rmtree(parent, ignore_errors=True)


if __name__ == "__main__":
    main()
