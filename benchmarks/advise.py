"""What `specmeter advise` advises, against the exhaustive grid on the same machine.

    uv run python benchmarks/advise.py --out FOLDER --truth [--only CASE ...]     measure the grids that are missing
    uv run python benchmarks/advise.py --out FOLDER --advise [--only CASE ...]    ask for advice on every case
    uv run python benchmarks/advise.py --out FOLDER --duel [--only CASE ...]      advised arms against the grids' best
    uv run python benchmarks/advise.py --out FOLDER --table                       the table, as Markdown

A case is a target, a kind of text, and whether drafts may be used. Its grid is an experiment like any other: plain
decoding, two drafts at eight lengths, five n-gram methods, five blocks. A case without drafts is judged by the n-gram
arms of the same run, and pays for their cells alone.

The best of 21 noisy arms looks better than it is, and what is advised may lie outside the grid (another threshold,
another length). So truth is a *duel*: plain decoding, the grid's best arms (all within `NEAR` of the best) and the
advised one, in `DUEL` blocks of their own on all prompts, after everything else. The table has both.

Everything runs on one thread; on a shared machine pin it: `nice -n -20 taskset -c 0 uv run ...`. All of it can be
interrupted and goes on where it stopped.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

from specmeter import load
from specmeter.store import RunStore

Keys = tuple[tuple[str, Any], ...]

ROOT = Path(__file__).resolve().parent.parent
WORKLOADS = ROOT / "src" / "specmeter" / "workloads" / "bench"
GAMMA = [1, 2, 3, 4, 6, 8, 12, 16]
DRAFTS = {"small": "bench:draft-small", "large": "bench:draft-large"}
LOOKUPS: list[dict[str, Any]] = [
    {"method": ["ngram-simple", "ngram-map-k", "ngram-map-k4v"], "ngram_n": 6, "gamma": 8},
    {"method": "ngram-mod", "ngram_n": 12, "gamma": 16, "gamma_min": 4},
    {"method": "ngram-cache"},
]
BLOCKS = 5
DUEL = 8
NEAR = 0.04
"""Arms of a grid that are this close to its best go into the duel, three at most."""


@dataclass(frozen=True)
class Grid:
    """A target on one kind of text; prompts are cut to a few items where reading them would take most of the time."""

    target: str
    kind: str
    prompts: int
    tokens: int
    short: bool = False

    @property
    def name(self) -> str:
        return f"{self.target}-{self.kind}"


GRIDS = (
    Grid("dense", "code", 6, 96),
    Grid("dense-100m", "code", 4, 64, short=True),
    Grid("moe", "edit", 6, 96),
    Grid("hybrid", "fact", 6, 96),
    Grid("dense", "edit", 6, 96),
    Grid("moe-100m", "edit", 4, 32, short=True),
    Grid("dense", "reason", 6, 96),
    Grid("moe", "code", 6, 96),
    Grid("dense-400m", "code", 4, 16, short=True),
    Grid("hybrid", "edit", 6, 96),
    Grid("dense-100m", "edit", 4, 32, short=True),
    Grid("moe", "fact", 6, 96),
    Grid("moe-400m", "reason", 4, 16, short=True),
    Grid("dense", "fact", 6, 96),
    Grid("moe-100m", "reason", 4, 32, short=True),
)
WITHOUT_DRAFTS = ("dense-100m-edit", "dense-100m-code", "moe-100m-edit", "dense-edit", "moe-code", "hybrid-fact")
"""Grids that are asked about a second time, without a draft model."""


@dataclass(frozen=True)
class Case:
    """A question, and where its answer lies."""

    grid: Grid
    drafts: bool

    @property
    def suffix(self) -> str:
        return "drafts" if self.drafts else "alone"

    @property
    def name(self) -> str:
        return self.grid.name if self.drafts else f"{self.grid.name}-alone"

    @property
    def advice(self) -> str:
        """Folder of the advice."""
        return f"advice-{self.suffix}"


CASES = (
    *(Case(grid, True) for grid in GRIDS),
    *(Case(grid, False) for grid in GRIDS if grid.name in WITHOUT_DRAFTS),
)


def prompts(grid: Grid) -> str:
    """The first held-out prompts of the kind, as JSON lines."""
    lines = (WORKLOADS / f"{grid.kind}.jsonl").read_text(encoding="utf-8").splitlines()[: grid.prompts]
    items = [json.loads(line) for line in lines]
    if grid.short:
        items = [{**item, "text": shortened(item["text"], grid.kind)} for item in items]
    return "".join(json.dumps(item, ensure_ascii=False) + "\n" for item in items)


def shortened(text: str, kind: str) -> str:
    """The beginning of a prompt, up to where an item ends; tables lose rows in the middle."""
    if kind == "edit":
        table, _, task = text.partition("\n\n")
        return "\n".join(table.split("\n")[:4]) + "\n\n" + task
    parts = text.split("\n\n\n" if kind == "code" else "\n\n")
    return ("\n\n\n" if kind == "code" else "\n\n").join(parts[:2]) + ("\n\n\n" if kind == "code" else "\n\n")


def write_experiment(
    grid: Grid, out: Path, arms: list[dict[str, Any]] | None = None, name: str = "grid", blocks: int = BLOCKS
) -> Path:
    """The YAML file of a grid, or of single arms of it, beside its prompts."""
    folder = out / grid.name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "prompts.jsonl").write_text(prompts(grid), encoding="utf-8")
    keys = {
        "name": f"{grid.name}-{name}",
        "targets": {"target": f"bench:{grid.target}"},
        "drafts": DRAFTS,
        "workloads": [{"source": "file", "paths": ["prompts.jsonl"]}],
        "arms": arms or [{"method": "draft-simple", "gamma": GAMMA}, *LOOKUPS],
        "design": {"blocks": blocks, "probe": "off", "warmup": "short"},
        "engine": {"kind": "embedded", "threads": 1, "context": 1024},
        "generation": {"max_tokens": grid.tokens, "temperature": 0},
    }
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(keys, sort_keys=False), encoding="utf-8")
    return path


def specmeter(*arguments: str) -> int:
    """Exit code of the command; its progress goes to this process's own error stream."""
    return subprocess.run([sys.executable, "-m", "specmeter", *arguments], stdout=subprocess.DEVNULL).returncode


def measure_truth(out: Path, grids: list[Grid]) -> None:
    for grid in grids:
        path = write_experiment(grid, out)
        started = time.monotonic()
        code = specmeter("run", str(path), "--out", str(out / grid.name / "grid"))
        print(f"{time.strftime('%H:%M')} {grid.name}: exit code {code}, {time.monotonic() - started:.0f} s", flush=True)
        if code == 130:
            raise KeyboardInterrupt


def measure_advice(out: Path, cases: Sequence[Case]) -> None:
    for case in cases:
        folder = out / case.grid.name
        if read(folder / case.advice) is not None:
            continue
        write_experiment(case.grid, out)
        drafts = [word for it in DRAFTS.values() for word in ("--draft", it)] if case.drafts else ["--no-find"]
        asked = ["--prompts", str(folder / "prompts.jsonl"), "-n", str(case.grid.tokens), "-t", "1", "-c", "1024"]
        started = time.monotonic()
        code = specmeter("advise", f"bench:{case.grid.target}", *drafts, *asked, "--out", str(folder / case.advice))
        print(f"{time.strftime('%H:%M')} {case.name}: exit code {code}, {time.monotonic() - started:.0f} s", flush=True)
        if code == 130:
            raise KeyboardInterrupt


def read(folder: Path) -> dict[str, Any] | None:
    """A finished advice."""
    path = folder / "advice.json"
    found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
    return found if found and found["finished"] else None


def keys(arm: Mapping[str, Any]) -> Keys:
    """How an arm drafts, as a line of an experiment; the same for the same arm of the grid and of an advice."""
    draft = arm["draft"].removeprefix("draft-") if arm["draft"] else None
    named = {name: arm[name] for name in ("gamma", "gamma_min", "p_min", "ngram_n", "ngram_min_hits")}
    line = {"method": "+".join(arm["methods"]), "draft": draft, **named}
    return tuple((name, value) for name, value in line.items() if value is not None)


Rates = dict[Keys, NDArray[np.float64]]
"""How an arm drafts -> log of its tokens per ms in each block; () is plain decoding."""


def rates(folder: Path) -> tuple[Rates, dict[Keys, float]]:
    """(rates, seconds that its sessions took) of all arms of a run."""
    run = load(folder)
    with RunStore.open(folder, readonly=True) as store:
        arms = {arm.id: () if arm.role == "baseline" else keys(arm.model_dump()) for arm in store.arms()}
    tokens: dict[Keys, dict[int, list[float]]] = defaultdict(lambda: defaultdict(lambda: [0.0, 0.0]))
    spans: dict[tuple[str, Keys], list[float]] = {}
    for request in run.requests():
        if request.reply is None or request.reply.timings is None:
            continue
        timings, key = request.reply.timings, arms[request.arm_id]
        pool = tokens[key][request.block]
        pool[0] += timings.predicted_n - 1
        pool[1] += timings.predicted_ms
        spans.setdefault((request.session_id, key), []).append(request.started_at)
        spans[request.session_id, key].append(request.started_at + request.reply.wall_ms / 1000)
    # A session ends where the next one begins: starting an engine is part of what a grid costs.
    ordered = sorted((min(times), max(times), key) for (_, key), times in spans.items())
    seconds: dict[Keys, float] = defaultdict(float)
    for place, (begun, ended, key) in enumerate(ordered):
        seconds[key] += ended - (ordered[place - 1][1] if place else begun)
    return {key: np.log([n / ms for _, (n, ms) in sorted(blocks.items())]) for key, blocks in tokens.items()}, seconds


def in_question(case: Case, measured: Rates) -> Rates:
    """The arms that may be advised."""
    return {key: it for key, it in measured.items() if case.drafts or "draft" not in dict(key)}


def advised(case: Case, out: Path) -> Keys:
    """What is advised; () for plain decoding, also where nothing is decided and no arm leads."""
    found = read(out / case.grid.name / case.advice)
    assert found is not None
    return keys(found["arm"]) if found["arm"] and found["decision"] != "off" else ()


def measure_duels(out: Path, cases: Sequence[Case]) -> None:
    for case in cases:
        folder = out / case.grid.name
        if read(folder / case.advice) is None:
            continue
        grid = in_question(case, rates(folder / "grid")[0])
        best = sorted(grid, key=lambda key: -grid[key].mean())
        near = [key for key in best if grid[best[0]].mean() - grid[key].mean() < NEAR][:3]
        arms = [dict(key) for key in dict.fromkeys([*near, advised(case, out)]) if key]
        if not arms:
            continue
        path = write_experiment(case.grid, out, arms, f"duel-{case.suffix}", DUEL)
        code = specmeter("run", str(path), "--out", str(folder / f"duel-{case.suffix}"))
        print(f"{time.strftime('%H:%M')} {case.name}: duel of {len(arms)}: exit code {code}", flush=True)


def told(key: Keys) -> str:
    """`small 4, p_min 0.5`, `ngram-simple 8`, `off`."""
    line = dict(key)
    if not line:
        return "off"
    extras = [f"{name} {line[name]}" for name in ("p_min", "gamma_min") if name in line]
    n = f" n {line['ngram_n']}" if "ngram_n" in line else ""
    return ", ".join([f"{line.get('draft') or line['method']} {line.get('gamma', '')}{n}".strip(), *extras])


def ratio(ours: NDArray[np.float64], theirs: NDArray[np.float64]) -> str:
    """exp of the mean difference of blocks, with its standard error in percent."""
    both = min(len(ours), len(theirs))
    differences = ours[:both] - theirs[:both]
    return f"{math.exp(differences.mean()):.2f} ±{differences.std(ddof=1) / math.sqrt(both):.1%}"


def print_table(out: Path, cases: Sequence[Case]) -> None:
    print("| case | best of grid | advised | decision | said | true | of the best | seconds | of the grid's | stages |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    shares: list[float] = []
    for case in cases:
        folder = out / case.grid.name
        found = read(folder / case.advice)
        if found is None or not (folder / "grid").exists():
            continue
        grid, seconds = rates(folder / "grid")
        grid = in_question(case, grid)
        key = advised(case, out)
        best = max(grid, key=lambda it: grid[it].mean())
        duel = rates(folder / f"duel-{case.suffix}")[0] if (folder / f"duel-{case.suffix}").exists() else grid
        best_there = max(duel, key=lambda it: duel[it].mean())
        true = ratio(duel[key], duel[()]) if key in duel else "?"
        lost = ratio(duel[key], duel[best_there]) if key in duel and key != best_there else "1"
        said = found["speedup"]
        interval = f"{said['point']:.2f} [{said['low']:.2f}, {said['high']:.2f}]" if said and said["low"] else "-"
        of_grid = found["seconds"] / sum(seconds[it] for it in grid)
        shares.append(of_grid)
        stages = ", ".join(f"{it['stage']} {it['seconds']:.0f}" for it in found["stages"])
        decision = found["decision"] + (f" ({found['why_undecided']})" if found["why_undecided"] else "")
        print(
            f"| {case.name} | {told(best)} {ratio(grid[best], grid[()])} | {told(key)} | {decision} | "
            f"{interval} | {true} | {lost} ({told(best_there)}) | {found['seconds']:.0f} | {of_grid:.0%} | {stages} |"
        )
    if shares:
        print(f"\nmedian share of the grid's time: {np.median(shares):.1%} over {len(shares)} cases")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--truth", action="store_true", help="measure the grids that are missing")
    parser.add_argument("--only", nargs="*", help="these cases alone")
    parser.add_argument("--advise", action="store_true", help="ask for advice on every case that has none")
    parser.add_argument("--duel", action="store_true", help="measure what was advised against the grid's best")
    parser.add_argument("--table", action="store_true", help="print the table")
    args = parser.parse_args()
    if args.truth:
        measure_truth(args.out, [grid for grid in GRIDS if not args.only or grid.name in args.only])
    cases = [case for case in CASES if not args.only or case.name in args.only]
    if args.advise:
        measure_advice(args.out, cases)
    if args.duel:
        measure_duels(args.out, cases)
    if args.table:
        print_table(args.out, cases)


if __name__ == "__main__":
    main()
