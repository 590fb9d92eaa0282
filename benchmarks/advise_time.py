"""How long `specmeter advise` takes, and where the time goes, against its goals.

    uv run python benchmarks/advise_time.py --out FOLDER [--only dense-100m ...] [--against TREE]

For each case: what reading prompts, decoding, starting servers, warming them up and the probe took in each stage; when
the first answer was on the screen; the whole next to its goal, and next to the time of a grid. That grid is plain
decoding, eight lengths of each draft and five n-gram methods, in five blocks, each with a fresh server and a short
warm-up, on as many prompts as the advice searched by. Its time is estimated from the parts that the
advice measured: sessions of plain decoding, and predicted speedups for the others.

`--against` another checkout runs both, one after the other, and gives the ratio: on a busy machine only that means
anything, and `SPECMETER_DISTURBED=keep` has to be set for it. Quiet, leave both out.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any

from specmeter.store import RunStore

ROOT = Path(__file__).resolve().parent.parent
FIRST_S = 20.0
SHARE = 0.10
LENGTHS = (1, 2, 3, 4, 6, 8, 12, 16)
LOOKUPS = 5
BLOCKS = 5
PARTS = ("start", "warm-up", "prompts", "decoding", "probe", "other")


@dataclass(frozen=True)
class Case:
    """A question, and how long its answer may take."""

    target: str
    options: tuple[str, ...] = ("--draft", "bench:draft-small", "--kind", "code")
    goal_s: float | None = None


CASES = (
    Case("dense-100m", goal_s=60.0),
    Case("dense-400m", goal_s=120.0),
    Case("moe-100m"),
    Case("dense"),
    Case("hybrid"),
    Case("moe"),
)


@dataclass(frozen=True)
class Course:
    """What one advice took."""

    whole_s: float
    first_s: float | None
    """Until the first answer was on the screen."""
    advice: dict[str, Any]
    stages: dict[str, dict[str, float]]
    """Stage -> part -> seconds."""
    grid_s: float


def ask(case: Case, folder: Path, tree: Path) -> Course | None:
    """Ask for advice with the code of a checkout; None where it fails."""
    arguments = [sys.executable, "-m", "specmeter", "advise", f"bench:{case.target}", *case.options]
    environment = {**os.environ, "PYTHONPATH": str(tree / "src")}
    began, first = time.monotonic(), None
    command = [*arguments, "--out", str(folder)]
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment
    ) as asked:
        for line in asked.stderr or ():
            if first is None and line.startswith("first answer:"):
                first = time.monotonic() - began
    whole, path = time.monotonic() - began, folder / "advice.json"
    if not path.exists() or not (advice := json.loads(path.read_text(encoding="utf-8")))["finished"]:
        print(f"{case.target}: exit code {asked.returncode}, no advice")
        return None
    stages = {it["folder"]: parts_of(folder / it["folder"], it["seconds"]) for it in advice["stages"]}
    stages["before"] = {"other": whole - sum(sum(it.values()) for it in stages.values())}
    return Course(whole, first, advice, stages, grid_s(folder, advice))


def parts_of(place: Path, seconds: float) -> dict[str, float]:
    """What a stage spent its seconds on."""
    found: dict[str, float] = defaultdict(float)
    with RunStore.open(place, readonly=True) as store:
        for session in store.sessions():
            found["start"] += session.ready_ms / 1000
            found["warm-up"] += session.warmup_ms / 1000
        for row in store.rows():
            found["prompts"] += (row.prompt_ms or 0.0) / 1000
            found["decoding"] += (row.predicted_ms or 0.0) / 1000
        spans = {(it.started_at, it.ended_at) for it in store.probes()}
        found["probe"] = sum(ended - started for started, ended in spans)
    found["other"] = seconds - sum(found.values())
    return dict(found)


def grid_s(folder: Path, advice: dict[str, Any]) -> float:
    """Seconds that the grid would take, by the parts of the advice."""
    plain = advice["baseline"]["id"]
    with RunStore.open(folder / "screen", readonly=True) as store:
        rows = [row for row in store.rows() if row.arm_id == plain and row.status == "ok"]
        start_s = median(it.ready_ms for it in store.sessions() if it.arm_id == plain) / 1000
    reading_s, decoding_s = (sum(column) / 1000 for column in zip(*map(_times, rows), strict=True))
    token_s = decoding_s / max(1, sum((row.predicted_n or 1) - 1 for row in rows))
    session_s = start_s + 2 * reading_s / len(rows) + 8 * token_s + reading_s
    return BLOCKS * sum(session_s + decoding_s / speedup for speedup in _speedups(advice))


def _times(row: Any) -> tuple[float, float]:
    return row.prompt_ms or 0.0, row.predicted_ms or 0.0


def _speedups(advice: dict[str, Any]) -> Iterator[float]:
    """Of each arm of the grid."""
    predicted = {it["arm_id"]: it["predicted"]["point"] for it in advice["outcomes"] if it["predicted"]}
    yield from [1.0] * (1 + LOOKUPS)
    drafts = {it["draft"] for it in advice["arms"] if it["draft"]}
    for draft in drafts:
        own = {
            it["gamma"]: predicted.get(it["id"]) for it in advice["arms"] if it["draft"] == draft and not it["p_min"]
        }
        known = [it for it in own.values() if it] or [1.0]
        yield from (own.get(length) or fmean(known) for length in LENGTHS)


def told(case: Case, course: Course) -> None:
    parts = [it for it in PARTS if any(it in stage for stage in course.stages.values())]
    print(f"\n{case.target} {' '.join(case.options)}\n")
    print(f"| stage | {' | '.join(parts)} | all |\n|---|{'---:|' * (len(parts) + 1)}")
    for name, stage in course.stages.items():
        shown = " | ".join(f"{stage.get(part, 0.0):.1f}" for part in parts)
        print(f"| {name} | {shown} | {sum(stage.values()):.1f} |")
    speedup = course.advice["speedup"]
    answer = f"{course.advice['decision']} {speedup['point']:.2f}" if speedup else course.advice["decision"]
    first = "none" if course.first_s is None else f"{course.first_s:.0f} s (goal {FIRST_S:.0f})"
    goal = "" if case.goal_s is None else f" (goal {case.goal_s:.0f})"
    of_grid = f"{course.whole_s / course.grid_s:.0%} of the grid's {course.grid_s:.0f} s"
    print(f"\n{answer}; first answer {first}; {course.whole_s:.0f} s{goal}; {of_grid}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", nargs="*", help="targets")
    parser.add_argument("--against", type=Path, help="another checkout")
    args = parser.parse_args()
    shares: list[float] = []
    for case in CASES:
        if args.only and case.target not in args.only:
            continue
        folder = args.out / f"{case.target}-{time.strftime('%H%M%S')}"
        other = None if args.against is None else ask(case, folder.with_name(f"{folder.name}-other"), args.against)
        course = ask(case, folder, ROOT)
        for found in (other, course):
            if found is not None:
                told(case, found)
        if course is not None:
            shares.append(course.whole_s / course.grid_s)
        if course is not None and other is not None:
            print(f"\n{course.whole_s / other.whole_s:.2f} of the other's time")
    if shares:
        print(f"\nmedian share of the grid's time: {median(shares):.0%} (goal {SHARE:.0%}) over {len(shares)} cases")


if __name__ == "__main__":
    main()
