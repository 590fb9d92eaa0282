"""Time and memory of a run of 100,000 requests on the mock engine, and of showing, checking and reporting it.

    uv run python benchmarks/large_run.py [--prompts 5000] [--clients 1000] [--run FOLDER] [--parts]

With clients, requests are sent by so many at once to 64 slots, and each cell is stored as a whole; 50,000 prompts make
a million requests. Two arms, ten blocks; beside it a run of 306 requests is reported. `--run` takes a run at hand
instead. `--parts` then says where the time of checks and reports goes. The start of Python and all imports are part of
it. The targets without clients: at most 150 MB while it runs, at most 3 s to load and summarise it; of reports at most
2 s for 306 requests, and 10 s, 500 MB and 3 MB of HTML for 100,000.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import psutil

from specmeter.analysis.explain.account import explain
from specmeter.analysis.reading import read_run
from specmeter.show.page.document import read_document
from specmeter.show.page.page import run_page
from specmeter.store import RunStore
from specmeter.store.integrity import hash_data
from specmeter.validity.checks.registry import CHECKS
from specmeter.validity.checks.run_data import read_run_data

T = TypeVar("T")

EXPERIMENT = """
name: large
targets: {dense: "mock:dense"}
drafts: {small: "mock:small"}
workloads: [{source: file, paths: [prompts.jsonl]}]
arms: [{draft: small, gamma: 4}]
design: {blocks: 10, warmup: short}
engine: {kind: mock}
generation: {max_tokens: 4}
"""
STUDY = """
name: study
targets: {dense: "mock:dense", moe: "mock:moe"}
drafts: {small: "mock:small"}
workloads: [{source: bench, kinds: [fact, code, reason], per_kind: 1}]
arms: [{draft: small, gamma: [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16]}, {method: ngram-simple, gamma: [2, 4, 8, 16]}]
design: {blocks: 3}
engine: {kind: mock}
generation: {max_tokens: 256}
"""
"""2 targets of 17 arms, 3 prompts, 3 blocks: 306 requests."""


def write_experiment(folder: Path, prompts: int, clients: int | None) -> None:
    """`large.yaml` and its prompts."""
    load = "" if clients is None else f"load: {{clients: {clients}, slots: {min(64, clients)}, rounds: 1}}\n"
    (folder / "large.yaml").write_text(EXPERIMENT + load, encoding="utf-8")
    with (folder / "prompts.jsonl").open("w", encoding="utf-8") as file:
        for number in range(prompts):
            file.write(json.dumps({"text": f"prompt number {number}, say something short about it"}) + "\n")


def watched(folder: Path, *arguments: str, codes: tuple[int, ...] = (0,)) -> tuple[float, int]:
    """(wall seconds, peak resident bytes) of a specmeter command; its memory is sampled fifty times a second."""
    started = time.perf_counter()
    command = [sys.executable, "-m", "specmeter", *arguments]
    process = psutil.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    peak = 0
    while process.poll() is None:
        try:
            peak = max(peak, process.memory_info().rss)
        except psutil.NoSuchProcess:
            break
        with suppress(psutil.TimeoutExpired):
            process.wait(0.02)
    if process.wait() not in codes:
        raise SystemExit(f"specmeter {' '.join(arguments)} failed")
    return time.perf_counter() - started, peak


def tell(folder: Path, run: Path, *arguments: str) -> None:
    """What a command on a run takes."""
    with RunStore.open(run, readonly=True) as store:
        requests = store.state().ok
    seconds, peak = watched(folder, arguments[0], str(run.absolute()), *arguments[1:], codes=(0, 1))
    print(f"specmeter {arguments[0]:6} {requests:,} requests: {seconds:6.2f} s, peak {peak / 1e6:.0f} MB")


def timed(what: str, work: Callable[[], T]) -> T:
    started = time.perf_counter()
    result = work()
    print(f"    {what:32} {time.perf_counter() - started:7.2f} s")
    return result


def print_parts(folder: Path) -> None:
    """Of checking, then of reporting."""
    with RunStore.open(folder, readonly=True) as run:
        data = timed("reading", lambda: read_run_data(run))
        timed("hashing", lambda: hash_data(run))
    timed("summary", lambda: data.summary)
    for check in CHECKS:
        timed(check.id, lambda look=check.look: sum(1 for _ in look(data)))
    read = timed("reading and summarising", lambda: read_run(folder))
    with RunStore.open(folder, readonly=True) as store:
        timed("explaining", lambda: explain(store, read))
    document = timed("all that a page tells", lambda: read_document(folder))
    timed("the page", lambda: run_page(document))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompts", type=int, default=5000)
    parser.add_argument("--clients", type=int)
    parser.add_argument("--run", type=Path, help="take this run instead of making one")
    parser.add_argument("--parts", action="store_true", help="where the time goes")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        run: Path = args.run or folder / "run"
        if args.run is None:
            write_experiment(folder, args.prompts, args.clients)
            seconds, peak = watched(folder, "run", "large.yaml", "--out", "run", codes=(0, 1))
            print(f"specmeter run: {seconds:6.1f} s, peak {peak / 1e6:.0f} MB")
        page = folder / "report.html"
        for arguments in (["show"], ["check"], ["report", "--out", str(page)]):
            tell(folder, run, *arguments)
        print(f"{page.stat().st_size / 1e6:.2f} MB of HTML")
        (folder / "study.yaml").write_text(STUDY, encoding="utf-8")
        watched(folder, "run", "study.yaml", "--out", "study", codes=(0, 1))
        tell(folder, folder / "study", "report", "--out", str(page))
        if args.parts:
            print_parts(run)


if __name__ == "__main__":
    main()
