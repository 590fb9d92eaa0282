"""What measuring a study costs beside the engine's own work, and where the rest of the time goes.

    uv run python benchmarks/study_overhead.py FOLDER...                     a run, or a study with its runs
    uv run python benchmarks/study_overhead.py --measure moe-306 --variant bench [--out FOLDER]

The engine is busy while it loads a model, warms up or answers a request; wall time is that of the whole command where
it is measured here, else from the first session to the end of the run as the folder has it. The target: a ratio of at
most 1.15 for the 306 requests of moe-306 with bench models.

before     from the start of the command to the first session: plan, prompts, predictions     (only with --measure)
within     of sessions: before the server starts, between its answers, ending it
between    from the end of a session to the start of the next
after      from the end of the last session to the end of the command: checks, certificate, what is printed
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from specmeter.store import RunStore

TARGET = 1.15


@dataclass(frozen=True)
class Account:
    """Seconds of a run."""

    requests: int
    sessions: int
    ready: float
    warmup: float
    generating: float
    within: float
    between: float
    first: float
    """When the first session began, by the clock of the run."""
    last: float
    """When the last one ended."""
    finished: float | None

    @property
    def busy(self) -> float:
        return self.ready + self.warmup + self.generating


def account(folder: Path) -> Account:
    """Of a run folder."""
    with RunStore.open(folder, readonly=True) as store:
        sessions = sorted(store.sessions(), key=lambda session: session.started_at)
        walls = [request.reply.wall_ms / 1000 for request in store.requests() if request.reply is not None]
        finished = store.state().finished_at
    ends = [(session.started_at, session.ended_at or session.started_at) for session in sessions]
    ready = sum(session.ready_ms for session in sessions) / 1000
    warmup = sum(session.warmup_ms for session in sessions) / 1000
    return Account(
        requests=len(walls),
        sessions=len(sessions),
        ready=ready,
        warmup=warmup,
        generating=sum(walls),
        within=sum(end - start for start, end in ends) - ready - warmup - sum(walls),
        between=sum(after[0] - before[1] for before, after in pairwise(ends)),
        first=ends[0][0],
        last=ends[-1][1],
        finished=finished,
    )


def tell(name: str, found: Account, wall: float | None = None, started: float | None = None) -> None:
    """Print one run; `wall` and `started` are those of the command, where it was measured."""
    total = wall if wall is not None else max(found.finished or found.last, found.last) - found.first
    print(f"{name}: {found.requests} requests in {found.sessions} sessions")
    print(f"  wall {total:8.2f} s   engine busy {found.busy:8.2f} s   ratio {total / found.busy:.3f} (target {TARGET})")
    print(f"  busy: ready {found.ready:.2f} s, warm-up {found.warmup:.2f} s, requests {found.generating:.2f} s")
    rest = [f"within sessions {found.within:.2f} s", f"between {found.between:.2f} s"]
    if started is not None and wall is not None:
        rest = [f"before {found.first - started:.2f} s", *rest, f"after {started + wall - found.last:.2f} s"]
    print(f"  rest: {', '.join(rest)}")


def run_folders(folder: Path) -> list[Path]:
    """The run itself, or the runs of a study."""
    return [folder] if (folder / "run.sqlite").is_file() else sorted(p.parent for p in folder.glob("*/run.sqlite"))


def measure(experiment: str, variants: list[str], out: Path) -> None:
    """Run it as a user does, in a process of its own."""
    chosen = [word for variant in variants for word in ("--variant", variant)]
    command = [sys.executable, "-m", "specmeter", "run", experiment, *chosen, "--out", str(out)]
    started, clock = time.time(), time.perf_counter()
    with out.with_suffix(".txt").open("w", encoding="utf-8") as printed:
        subprocess.run(command, check=True, stdout=printed, stderr=subprocess.DEVNULL)
    tell(experiment, account(out), time.perf_counter() - clock, started)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path, help="run folders or study folders")
    parser.add_argument("--measure", metavar="EXPERIMENT", help="run this experiment and time the whole command")
    parser.add_argument("--variant", action="append", default=[], help="of the experiment that is measured")
    parser.add_argument("--out", type=Path, help="keep the run here; what it prints goes beside it, as .txt")
    args = parser.parse_args()
    for folder in args.folders:
        for run in run_folders(folder):
            tell(run.name, account(run))
    if args.measure:
        with tempfile.TemporaryDirectory() as scratch:
            measure(args.measure, args.variant, args.out or Path(scratch) / "run")


if __name__ == "__main__":
    main()
