"""Time and memory of `specmeter check` on a run of 100,000 requests, in a process of its own.

    uv run python benchmarks/check_speed.py [--prompts 5000] [--run FOLDER] [--parts]

Without `--run`, the run of `large_run.py` is made first: two arms, ten blocks, on the mock engine. `--parts` then says
where the time goes: reading, hashing, and each check. Seen on two cores with other work: 7.5 s and 218 MB.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from large_run import watched, write_experiment
from specmeter.store import RunStore
from specmeter.store.integrity import hash_data
from specmeter.validity.checks import CHECKS
from specmeter.validity.checks.run_data import read_run_data

T = TypeVar("T")


def timed(what: str, work: Callable[[], T]) -> T:
    started = time.perf_counter()
    result = work()
    print(f"    {what:32} {time.perf_counter() - started:7.2f} s")
    return result


def print_parts(folder: Path) -> None:
    with RunStore.open(folder, readonly=True) as run:
        data = timed("reading", lambda: read_run_data(run))
        timed("hashing", lambda: hash_data(run))
    timed("summary", lambda: data.summary)
    for check in CHECKS:
        timed(check.id, lambda look=check.look: sum(1 for _ in look(data)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompts", type=int, default=5000)
    parser.add_argument("--run", type=Path, help="check this run instead of making one")
    parser.add_argument("--parts", action="store_true", help="where the time goes")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder: Path = args.run or Path(scratch) / "run"
        if args.run is None:
            write_experiment(Path(scratch), args.prompts)
            seconds, _ = watched(Path(scratch), "run", "large.yaml", "--out", "run", codes=(0, 1))
            print(f"a run of {args.prompts * 20:,} requests, checked and certified: {seconds:.1f} s")
        with RunStore.open(folder, readonly=True) as run:
            requests = run.state().ok
        seconds, peak = watched(Path(scratch), "check", str(folder.absolute()), codes=(0, 1))
        print(f"specmeter check {requests:,} requests: {seconds:6.1f} s, peak {peak / 1e6:.0f} MB")
        if args.parts:
            print_parts(folder)


if __name__ == "__main__":
    main()
