"""How often speedups and crossovers under load are right, in simulated worlds whose truth is known.

    uv run python benchmarks/load_queue.py [--runs 100] [--repeats 400]

Closed loops: experiments on the mock engine's virtual clock, measured, stored and summarised by specmeter itself. Each
world has eight texts of its own: 14 to 42 tokens, prompts of 20 to 200, accepted at 30 to 90 %, on a dense target or a
mixture of experts, four blocks, 2 % noise. The truth is a cell of 500 requests or more. "before" is how it was: two
rounds, clients that begin in step, no fillers, a window from the end of the first request to that of the first client.
Bias and rmse are of the logarithm of the speedup.

Crossovers: curves at 1, 2, 4 and 8 clients, the logarithm of a speedup over log2 of the clients, through 0 at a place
drawn anew: straight; two roofs (a step's work grows with the clients); an exponential that flattens; a sigmoid; and a
kink, flat before it and steep behind. Blocks see it with noise of `sd` per load, and half as much common to all loads
of a block. "line" is Fieller's interval of straight segments alone, "bends" what `numbers.crossing` tells; "+1 load"
has one more load measured inside the bracket (3 or 6 clients). In brackets: widths in doublings, cut at 1 and 8.

The goal is a coverage of 93 to 97 % everywhere; intervals that hold more often are wider than they need to be.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import yaml

from specmeter.advise.observer import Silent
from specmeter.analysis.load.figures import measured_cells
from specmeter.analysis.load.summary import LoadTable
from specmeter.experiments.file import load
from specmeter.laboratory.run import prepare
from specmeter.measure.loop import _CellRunner, measure
from specmeter.numbers import crossing
from specmeter.record import Estimate
from specmeter.store import RunStore

KINDS_OF_RUN = ("before", "now")
CLIENTS = (1, 2, 4, 8, 16)
GOAL = (93.0, 97.0)
TEXTS = 8
TRUE = 500
"""Requests of a cell whose throughput is taken for the truth, at least."""


def world(rng: np.random.Generator, folder: Path, *, moe: bool) -> dict[str, Any]:
    """An experiment of texts of its own, without its load."""
    texts = [
        {
            "text": "".join(rng.choice(list("abcdefgh"), rng.integers(20, 200))),
            "kind": f"k{at}",
            "max_tokens": int(rng.integers(14, 43)),
        }
        for at in range(TEXTS)
    ]
    (folder / "texts.jsonl").write_text("\n".join(map(json.dumps, texts)), encoding="utf-8")
    rates = {f"k{at}": [float(rng.uniform(0.3, 0.9))] for at in range(TEXTS)}
    dense = {"base_ms": 5.0, "token_ms": float(rng.uniform(0.2, 0.8)), "prompt_token_ms": 0.05}
    mixture = {"base_ms": 1.0, "token_ms": 0.1, "experts": 32, "top_k": 4, "expert_ms": 0.3, "prompt_token_ms": 0.05}
    draft = {"token_ms": float(rng.uniform(0.5, 1.5)), "acceptance": rates, "other_acceptance": [0.6]}
    mock = {
        "targets": {"t": mixture if moe else dense},
        "drafts": {"d": draft},
        "noise": 0.02,
        "seed": int(rng.integers(2**30)),
    }
    return {
        "name": "world",
        "targets": {"t": "mock:t"},
        "drafts": {"d": "mock:d"},
        "arms": [{"draft": "d", "gamma": 3}],
        "workloads": [{"source": "file", "paths": ["texts.jsonl"], "format": "completion"}],
        "engine": {"kind": "mock", "context": 1024, "mock": mock},
    }


def speedup(
    folder: Path, experiment: dict[str, Any], clients: int, rounds: int, blocks: int, *, before: bool
) -> Estimate:
    """What specmeter says of the arm at so many clients."""
    asked = {"clients": clients, "rounds": rounds}
    data = experiment | {"load": asked, "design": {"blocks": blocks, "warmup": "short"}}
    (folder / "world.yaml").write_text(yaml.safe_dump(data), encoding="utf-8")
    loaded = load(str(folder / "world.yaml"))
    prepared = prepare(loaded)
    work = prepared.work
    in_step = patch.object(_CellRunner, "_lead", lambda *_: []) if before else nullcontext()
    with tempfile.TemporaryDirectory(dir=folder) as run, in_step:
        store = RunStore.create(
            Path(run) / "run",
            experiment_yaml=loaded.text,
            experiment_json=work.experiment.model_dump_json(),
            plan=work.keys(),
        )
        with store:
            store.begin(0.0)
            store.set_models(tuple(work.models.values()))
            store.set_arms(tuple(work.arms.values()))
            store.set_prompts({it.id: it for of in work.prompts.values() for it in of}.values())
            measure(work, prepared.engine, store, Silent())
            cells = LoadTable(measured_cells(store))
        baseline, arm = sorted(work.arms.values(), key=lambda it: it.speculates)
        assert arm.load is not None
        gain = cells.gain(arm.id, baseline.id, arm.load, TEXTS)
    assert gain is not None
    return gain.decoding


def queues(runs: int) -> None:
    """Bias, rmse and coverage of speedups, and what a cell takes."""
    print("| clients | | bias, % | rmse, % | coverage, % | width, % |\n|---|---|---|---|---|---|")
    reached = list[float]()
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as scratch:
        folder = Path(scratch)
        for clients in CLIENTS:
            errors: dict[str, list[tuple[float, bool, float]]] = {kind: [] for kind in KINDS_OF_RUN}
            for seed in range(runs):
                experiment = world(np.random.default_rng([clients, seed]), folder, moe=seed % 2 == 1)
                true = speedup(folder, experiment, clients, -(-TRUE // clients), 1, before=False).point
                for kind in KINDS_OF_RUN:
                    before = kind == "before"
                    found = speedup(folder, experiment, clients, 2 if before else 4, 4, before=before)
                    low, high = found.low or 0.0, found.high or math.inf
                    errors[kind].append((math.log(found.point / true), low <= true <= high, math.log(high / low) / 2))
            for kind, told in errors.items():
                error, held, width = (np.array(it) for it in zip(*told, strict=True))
                rmse, covered = float(np.sqrt((error**2).mean())), float(100 * held.mean())
                row = f"{100 * error.mean():+.2f} | {100 * rmse:.2f} | {covered:.0f} | {100 * np.median(width):.1f}"
                print(f"| {clients} | {kind} | {row} |", flush=True)
                if kind == "now":
                    reached.append(covered)
    print(f"\nnow: {min(reached):.0f} to {max(reached):.0f} %; goal {GOAL[0]:.0f} to {GOAL[1]:.0f} %\n")


# --- crossovers ----

Curve = Callable[[float], float]
KINDS = ("line", "roofs", "flattens", "sigmoid", "kink")


def drawn(kind: str, rng: np.random.Generator) -> tuple[Curve, float]:
    """A curve and where it crosses, both in log2 of the clients."""
    at, scale = rng.uniform(0.4, 2.6), rng.uniform(0.4, 1.0)
    if kind == "roofs":
        work = rng.uniform(0.1, 1.0)
        raw: Curve = lambda x: -math.log(1 + work * 2**x)  # noqa: E731
    elif kind == "flattens":
        falls = rng.uniform(0.4, 1.2)
        raw = lambda x: math.exp(-falls * x)  # noqa: E731
    elif kind == "sigmoid":
        middle, width = rng.uniform(0.5, 2.5), rng.uniform(0.4, 1.0)
        raw = lambda x: -1 / (1 + math.exp((middle - x) / width))  # noqa: E731
    elif kind == "kink":
        bent = rng.uniform(0.2, 2.4)
        at = rng.uniform(max(bent, 0.4) + 0.05, 2.8)
        raw = lambda x: -max(0.0, x - bent) - 0.05 * x  # noqa: E731
    else:
        raw = lambda x: -0.4 * x  # noqa: E731
    return lambda x: scale * (raw(x) - raw(at)), at


def measured(curve: Curve, places: list[float], common: np.ndarray, sd: float, rng: np.random.Generator) -> np.ndarray:
    return np.array([curve(x) for x in places]) + common + rng.normal(0, sd, (len(common), len(places)))


def coverage(kind: str, sd: float, blocks: int, repeats: int, *, inner: bool, bent: float) -> tuple[float, float]:
    """(% of intervals that hold the crossing, their mean width), over those that have a point."""
    rng, held, widths = np.random.default_rng(7), 0, list[float]()
    for _ in range(repeats):
        curve, true = drawn(kind, rng)
        places, common = [0.0, 1.0, 2.0, 3.0], rng.normal(0, sd / 2, (blocks, 1))
        values = measured(curve, places, common, sd, rng)
        means = values.mean(axis=0)
        more = math.log2(3) if means[2] <= 0 else math.log2(6)
        if inner and means[1] > 0 >= means[3]:  # between 1 and 2 clients there is none
            values = np.column_stack([values, measured(curve, [more], common, sd, rng)])
            order = np.argsort([*places, more])
            places, values = [[*places, more][it] for it in order], values[:, order]
        with patch.object(crossing, "BENT", bent):
            found = crossing.reach(places, values)
        if math.isfinite(found.point):
            held += found.low <= true <= found.high
            widths.append(min(found.high, 3.0) - max(found.low, 0.0))
    return 100 * held / len(widths), float(np.mean(widths))


def crossings(repeats: int, blocks: int) -> None:
    """Coverage and width of the intervals of crossovers, by the kind of curve."""
    print("| curve | sd | line | bends | line, +1 load | bends, +1 load |\n|---|---|---|---|---|---|")
    reached = list[float]()
    for kind in KINDS:
        for sd in (0.01, 0.03):
            row = list[str]()
            for inner in (False, True):
                for bent in (0.0, crossing.BENT):
                    share, width = coverage(kind, sd, blocks, repeats, inner=inner, bent=bent)
                    row.append(f"{share:.1f} % ({width:.2f})")
                    if bent and not inner:
                        reached.append(share)
            print(f"| {kind} | {sd} | {' | '.join(row)} |")
    low, high = GOAL
    print(f"\nbends: {min(reached):.1f} to {max(reached):.1f} %; goal {low:.0f} to {high:.0f} %")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=100, help="worlds for each number of clients; 0: curves alone")
    parser.add_argument("--repeats", type=int, default=400, help="of each kind of curve")
    parser.add_argument("--blocks", type=int, default=4, help="that measure a curve")
    args = parser.parse_args()
    if args.runs:
        queues(args.runs)
    crossings(args.repeats, args.blocks)


if __name__ == "__main__":
    main()
