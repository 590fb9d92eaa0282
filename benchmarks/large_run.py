"""Time and memory of a run of 100,000 requests on the mock engine, and of showing it.

    uv run python benchmarks/large_run.py [--prompts 5000] [--clients 1000]

With clients, requests are sent by so many at once to 64 slots, and each cell is stored as a whole; 50,000 prompts make
a million requests. Two arms, ten blocks. The targets without clients: at most 150 MB while it runs, at most 3 s to load
and summarise it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

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


def write_experiment(folder: Path, prompts: int, clients: int | None) -> None:
    """`large.yaml` and its prompts."""
    load = "" if clients is None else f"load: {{clients: {clients}, slots: {min(64, clients)}, rounds: 1}}\n"
    (folder / "large.yaml").write_text(EXPERIMENT + load, encoding="utf-8")
    with (folder / "prompts.jsonl").open("w", encoding="utf-8") as file:
        for number in range(prompts):
            file.write(json.dumps({"text": f"prompt number {number}, say something short about it"}) + "\n")


def watched(folder: Path, *arguments: str, codes: tuple[int, ...] = (0,)) -> tuple[float, int]:
    """(wall seconds, peak resident bytes) of a specmeter command; sampled fifty times a second."""
    started = time.perf_counter()
    command = [sys.executable, "-m", "specmeter", *arguments]
    process = psutil.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    peak = 0
    while process.poll() is None:
        try:
            peak = max(peak, process.memory_info().rss)
        except psutil.NoSuchProcess:
            break
        time.sleep(0.02)
    if process.wait() not in codes:
        raise SystemExit(f"specmeter {' '.join(arguments)} failed")
    return time.perf_counter() - started, peak


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompts", type=int, default=5000)
    parser.add_argument("--clients", type=int)
    args = parser.parse_args()
    prompts = args.prompts
    requests = 20 * prompts * -(-(args.clients or prompts) // prompts)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        write_experiment(folder, prompts, args.clients)
        for arguments in (("run", "large.yaml", "--out", "run"), ("show", "run")):
            seconds, peak = watched(folder, *arguments, codes=(0, 1))
            print(f"specmeter {arguments[0]:5} {requests:,} requests: {seconds:6.1f} s, peak {peak / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
