"""What `specmeter advise` advises, against the exhaustive grid on the same machine.

    uv run python benchmarks/advise.py --out FOLDER --truth [--only CASE ...]     measure the grids that are missing
    uv run python benchmarks/advise.py --out FOLDER --advise [--only CASE ...]    ask for advice on every case
    uv run python benchmarks/advise.py --out FOLDER --table                       the table, as Markdown

A case is a target, a kind of text and the drafts that may be used. Its grid is an experiment like any other: plain
decoding, two drafts at eight lengths, five n-gram methods, five blocks. A case without drafts is judged by the n-gram
arms of the same run. What is advised may lie outside the grid (another length, another threshold): then plain decoding,
the grid's best arm and the advised one are measured side by side, in blocks of their own (`again/`).

The best of 21 noisy arms looks better than it is, so the regret by the grid is at most a little too large. Everything
runs on one thread; on a shared machine pin it: `nice -n -20 taskset -c 0 uv run ...`. All of it can be interrupted and
goes on where it stopped.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

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


def write_experiment(grid: Grid, out: Path, arms: list[dict[str, Any]] | None = None, name: str = "grid") -> Path:
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
        "design": {"blocks": BLOCKS, "probe": "off", "warmup": "short"},
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--truth", action="store_true", help="measure the grids that are missing")
    parser.add_argument("--only", nargs="*", help="these cases alone")
    args = parser.parse_args()
    grids = [grid for grid in GRIDS if not args.only or grid.name in args.only]
    if args.truth:
        measure_truth(args.out, grids)


if __name__ == "__main__":
    main()
