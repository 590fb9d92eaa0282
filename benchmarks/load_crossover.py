"""At how many clients speculation stops paying, or starts to: as predicted before measuring, and as measured.

    uv run python benchmarks/load_crossover.py --folder DIR [--only NAME ...] [--dense 400m] [--blocks 3] [--report]

Twelve cases: a dense and an MoE target, with two drafts, on three kinds of text. Each is a run at 1, 2, 4 and 8
clients, which probes the steps of the server at each load before it predicts (`design.probe: always`); predictions are
stored before each arm's first session. The crossover of the predicted speedups is held
against that of the measured ones: wanted is at most one step of the clients axis (a factor of 2) between them in 10 of
12 cases, and the same course where there is none. Runs that are complete are only read, others go on, so the command
can be given again. The machine must have nothing else to do: otherwise probes do not count, and predictions are made
from bytes.
"""

from __future__ import annotations

import argparse
import itertools
import math
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import yaml

from specmeter.analysis.load.crossover import ExpectedCrossover, expected_crossover
from specmeter.analysis.reading import read_run
from specmeter.record import Estimate
from specmeter.store import RunStore
from specmeter.text import brackets

CLIENTS = (1, 2, 4, 8)
GAMMA = {"dense": 4, "moe": 2}
WANTED = 10


class Case(NamedTuple):
    """One run."""

    target: str
    draft: str
    kind: str

    @property
    def name(self) -> str:
        return "-".join(self)

    def experiment(self, size: str, blocks: int, tokens: int, threads: int | None) -> dict[str, object]:
        return {
            "name": self.name,
            "targets": {self.target: f"bench:{self.target}-{size}"},
            "drafts": {self.draft: f"bench:draft-{self.draft}"},
            "workloads": [{"source": "bench", "kinds": [self.kind], "per_kind": 8}],
            "arms": [{"draft": self.draft, "gamma": GAMMA[self.target]}],
            "load": {"clients": list(CLIENTS), "rounds": 2},
            "design": {"blocks": blocks, "warmup": "short", "probe": "always"},
            "engine": {"context": 512, **({"threads": threads} if threads else {})},
            "generation": {"max_tokens": tokens},
        }


CASES = [Case(*it) for it in itertools.product(("dense", "moe"), ("small", "large"), ("code", "reason", "edit"))]


def measure(folder: Path, case: Case, size: str, blocks: int, tokens: int, threads: int | None) -> float:
    """Begin the run, or go on with it, as a user would; seconds that it took."""
    source = folder / f"{case.name}.yaml"
    source.write_text(yaml.safe_dump(case.experiment(size, blocks, tokens, threads)), encoding="utf-8")
    began = time.perf_counter()
    command = [sys.executable, "-m", "specmeter", "run", str(source), "--out", str(folder / case.name)]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
    if done.returncode not in (0, 1):
        sys.exit(f"specmeter run ended with {done.returncode}")
    return time.perf_counter() - began


class Outcome(NamedTuple):
    """Both crossovers of a case."""

    predicted: ExpectedCrossover
    measured: ExpectedCrossover
    source: str

    @property
    def near(self) -> bool:
        """Whether they are within one step of the clients axis.

        Of a speedup that does not cross, the crossover lies beyond the loads, on the side that its course says; its
        place is then taken to be the first or the last of them. Neither crosses: both pay, or neither does.
        """
        courses = {self.predicted.course, self.measured.course}
        if "mixed" in courses or {"stops", "starts"} <= courses:
            return False
        if not courses & {"stops", "starts"}:
            return len(courses) == 1
        falls = "stops" in courses
        mine, theirs = (_place(it, falls=falls) for it in (self.predicted, self.measured))
        return abs(mine - theirs) <= 1


def _place(found: ExpectedCrossover, *, falls: bool) -> float:
    """log2 of the clients at which it crosses, or of the load beyond which it would."""
    if found.clients is not None:
        return math.log2(found.clients.point)
    return math.log2(found.loads[-1] if (found.course == "pays") == falls else found.loads[0])


def outcome(folder: Path) -> Outcome | None:
    """None where an arm has no prediction or no speedup."""
    with RunStore.open(folder, readonly=True) as store:
        clients = {arm.id: arm.load.clients for arm in store.arms() if arm.load is not None and arm.load.clients}
    predicted: list[tuple[int, Estimate]] = []
    measured: list[tuple[int, Estimate]] = []
    sources: set[str] = set()
    for it in read_run(folder).predictions:
        if it.prediction.speedup is None or it.measured is None:
            return None
        count = clients[it.prediction.arm_id]
        predicted.append((count, it.prediction.speedup))
        measured.append((count, it.measured))
        told = it.prediction.cost.code if it.prediction.cost is not None else ""
        sources.add("probed" if told in ("costs.steps", "costs.between", "costs.probe") else "bytes")
        error = f"{it.error:+.1%}" if it.error is not None else "-"
        print(
            f"  {it.prediction.arm_id}: predicted {it.prediction.speedup.point:.2f}, "
            f"measured {it.measured.point:.2f} ({error})"
        )
    if not predicted:
        return None
    return Outcome(expected_crossover(predicted), expected_crossover(measured), "+".join(sorted(sources)))


def told(found: ExpectedCrossover) -> str:
    if found.clients is None:
        return found.course
    return f"{found.course} at {found.clients.point:.1f} {brackets(found.clients, 1)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--only", nargs="+", choices=[it.name for it in CASES], default=[it.name for it in CASES])
    parser.add_argument("--dense", default="100m", help="size of the dense target")
    parser.add_argument("--moe", default="100m", help="size of the MoE target")
    parser.add_argument("--blocks", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--report", action="store_true", help="only read what is there")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    sizes = {"dense": args.dense, "moe": args.moe}
    rows: list[str] = []
    near = 0
    for case in (it for it in CASES if it.name in args.only):
        took = (
            0.0
            if args.report
            else measure(args.folder, case, sizes[case.target], args.blocks, args.tokens, args.threads)
        )
        print(f"{case.name}: {took:.0f} s")
        found = outcome(args.folder / case.name) if (args.folder / case.name).is_dir() else None
        if found is None:
            rows.append(f"| {case.name} | - | - | - | not predicted or not measured |")
            continue
        near += found.near
        answer = "yes" if found.near else "no"
        rows.append(f"| {case.name} | {told(found.predicted)} | {told(found.measured)} | {found.source} | {answer} |")
    print("\n| case | predicted | measured | costs | within one step |\n|---|---|---|---|---|")
    print("\n".join(rows))
    print(f"\n{near} of {len(rows)} cases within one step of the clients axis; wanted: {WANTED} of {len(CASES)}")


if __name__ == "__main__":
    main()
