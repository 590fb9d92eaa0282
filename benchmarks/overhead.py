"""What measuring costs beside the engine's own work, and where the rest of the time goes.

    uv run python benchmarks/overhead.py [EXPERIMENT] [--runs 3] [--set KEY=VALUE ...] [--variant NAME ...]
    uv run python benchmarks/overhead.py --folder FOLDER ...         runs at hand, or studies with their runs

Each run is a process of its own, as a user starts it; models are built before the clock starts. Of a run at hand, wall
time is that from its first session to its end.

wall / (decode + prompts)   what a run takes for the part of it that is measured
wall / busy                 the same over all that the engine does: starting, warming up, answering
ms per request              between the engine's answer and the next request, median
before     from the start of the command to the first session: plan, prompts, predictions
within     of sessions: before the server starts, between its answers, ending it
between    from the end of a session to the start of the next
after      from the end of the last session to the end of the command: checks, certificate, what is printed
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

from specmeter.experiments.file import load
from specmeter.laboratory.run import prepare
from specmeter.store import RunStore


def tell(name: str, folder: Path, started: float | None = None, wall_s: float | None = None) -> tuple[float, ...]:
    """Print the account of one run, in seconds; `started` and `wall_s` are those of the command, where it was timed."""
    with RunStore.open(folder, readonly=True) as store:
        sessions = sorted(store.sessions(), key=lambda session: session.started_at)
        requests = [request for request in store.requests() if request.reply is not None]
        finished = store.state().finished_at
    replies = [request.reply for request in requests if request.reply is not None]
    ends = [(session.started_at, session.ended_at or session.started_at) for session in sessions]
    first, last = ends[0][0], ends[-1][1]
    ready, warmup = (sum(getattr(it, name) for it in sessions) / 1000 for name in ("ready_ms", "warmup_ms"))
    answering = sum(reply.wall_ms for reply in replies) / 1000
    decode = sum(reply.timings.predicted_ms for reply in replies) / 1000
    prompts = sum(reply.timings.prompt_ms for reply in replies) / 1000
    wall = max(finished or last, last) - first if wall_s is None else wall_s
    busy = ready + warmup + answering
    gaps = [
        (after.started_at - before.started_at) * 1000 - before.reply.wall_ms
        for before, after in pairwise(requests)
        if before.session_id == after.session_id and before.reply
    ]
    rest = {"within sessions": sum(end - start for start, end in ends) - busy}
    rest |= {"between": sum(after[0] - before[1] for before, after in pairwise(ends))}
    if started is not None:
        rest |= {"before": first - started, "after": started + wall - last}
    print(f"{name}: {len(replies)} requests in {len(sessions)} sessions, {wall:.2f} s")
    print(f"  busy: ready {ready:.2f}, warm-up {warmup:.2f}, answering {answering:.2f} (decode {decode:.2f}, ", end="")
    print(f"prompts {prompts:.2f}); rest: {', '.join(f'{what} {took:.2f}' for what, took in rest.items())}", flush=True)
    return wall / (decode + prompts), wall / busy, wall / decode, statistics.median(gaps)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiment", nargs="?", default=str(Path(__file__).with_suffix(".yaml")))
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--variant", dest="variants", action="append", default=[], metavar="NAME")
    parser.add_argument("--folder", type=Path, nargs="+", help="account for these instead of measuring")
    args = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # with it every start compiles all that it imports
    results: list[tuple[float, ...]] = []
    for folder in args.folder or ():
        alone = (folder / "run.sqlite").is_file()
        runs = [folder] if alone else sorted(it.parent for it in folder.glob("*/run.sqlite"))
        results += [tell(run.name, run) for run in runs]
    if not args.folder:
        prepare(load(args.experiment, args.overrides, variants=args.variants))
        command = [sys.executable, "-m", "specmeter", "run", args.experiment]
        command += [word for it in args.overrides for word in ("--set", it)]
        command += [word for it in args.variants for word in ("--variant", it)]
        with tempfile.TemporaryDirectory() as scratch:
            for number in range(args.runs):
                folder, silent = Path(scratch) / str(number), subprocess.DEVNULL
                started, clock = time.time(), time.perf_counter()
                # Verdicts are not judged here: 1 is a run whose checks found something.
                code = subprocess.run([*command, "--out", str(folder)], stdout=silent, stderr=silent, check=False)
                if code.returncode not in (0, 1):
                    raise SystemExit(f"{' '.join(command)} ended with {code.returncode}")
                results.append(tell(f"run {number + 1}", folder, started, time.perf_counter() - clock))
    names = ("wall / (decode + prompts)", "wall / busy", "wall / decode", "ms per request")
    for name, values in zip(names, zip(*results, strict=True), strict=True):
        print(f"{name:26} median {statistics.median(values):.3f}  (from {min(values):.3f} to {max(values):.3f})")


if __name__ == "__main__":
    main()
