"""Verdicts of runs with which nothing is wrong, in worlds of every sort: none may be invalid.

    uv run python benchmarks/clean_runs.py [--runs 120] [--loaded 40] [--first 0]      simulated worlds, any machine
    uv run python benchmarks/clean_runs.py --engine embedded --runs 34 --loaded 30     a quiet machine, real models

Every run is its number's own: the same in each repetition. Simulated, a world is drawn as in `advise_simulated.py`
(dense, MoE and recurrent targets; costs, acceptance; noise, drift and stalls as there, a third or a tenth of them), and
so are draft lengths, methods, prompts, tokens and blocks. The first `--loaded` runs are under load: 1 to 16 clients or
Poisson arrivals, slots as many as clients or fewer. On a real engine the world is the machine, and targets are bench
models.

Goal: 0 invalid of at least 100 runs, 30 of them under load. What is suspect is listed with its check: stalls, drift and
noise are of the world's own making here, and most doubts about them are true ones.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from advise_simulated import drawn
from specmeter.advise.observer import Silent
from specmeter.experiments.file import load
from specmeter.laboratory.run import prepare, run
from specmeter.store import RunStore
from specmeter.validity.inspection import Inspection, inspect

KINDS = ("fact", "code", "reason", "zh", "edit")
TARGETS = ("dense", "moe", "hybrid")


def experiment(number: int, engine: str, folder: Path, *, loaded: bool) -> dict[str, Any]:
    """What the run of a number measures."""
    rng = np.random.default_rng((20261127, number))
    simulated = engine == "mock"
    target = "mock:t" if simulated else f"bench:{rng.choice(TARGETS)}"
    drafts = {name: f"mock:{name}" if simulated else f"bench:draft-{name}" for name in ("small", "large")}
    lengths = sorted({int(it) for it in rng.choice([1, 2, 3, 4, 6, 8, 12], size=2)})
    arms: list[dict[str, Any]] = [{"draft": str(rng.choice(["small", "large"])), "gamma": lengths}]
    if rng.random() < 0.5:
        arms.append({"method": "ngram-simple", "gamma": 8, "ngram_n": 3})
    kinds = [str(it) for it in rng.choice(KINDS, size=2, replace=False)]
    found: dict[str, Any] = {
        "name": "clean",
        "targets": {"t": target},
        "drafts": drafts,
        "workloads": [{"source": "bench", "kinds": kinds, "per_kind": int(rng.integers(1, 4)), "seed": number}],
        "arms": arms,
        "design": {"blocks": int(rng.integers(2, 7)), "seed": number, "warmup": "short"},
        "engine": {"kind": engine},
        "generation": {"max_tokens": int(rng.choice([24, 48, 96]))},
    }
    if simulated:
        spec, calm = drawn(rng, folder).spec, float(rng.choice([0.1, 0.3, 1.0]))
        unrest = {name: calm * getattr(spec, name) for name in ("noise", "block_drift", "stalls")}
        world = spec.model_copy(update=unrest).model_dump(mode="json", exclude_defaults=True)
        found["engine"]["mock"] = world
    else:
        found["engine"] |= {"context": 1024}
        found["design"]["blocks"] = 3
    if loaded:
        found["load"] = (
            load_of(rng, most=16, rates=(-1.5, 1.5)) if simulated else load_of(rng, most=4, rates=(0.7, 3.0))
        )
    return found


def load_of(rng: np.random.Generator, most: int, rates: tuple[float, float]) -> dict[str, Any]:
    """Any load: up to so many clients, or a rate whose logarithm lies between these."""
    if rng.random() < 0.25:
        return {"rate": round(float(np.exp(rng.uniform(*rates))), 3), "requests": int(rng.integers(8, 24))}
    clients = sorted({int(it) for it in 2 ** rng.integers(0, int(np.log2(most)) + 1, size=2)})
    slots = {"slots": max(1, clients[-1] // 2)} if rng.random() < 0.25 else {}
    return {"clients": clients, "rounds": int(rng.integers(2, 5)), **slots}


def measured(number: int, engine: str, folder: Path, *, loaded: bool) -> Inspection:
    """Measure it as a user does; what its checks say."""
    file, place = folder / f"{number:03}.yaml", folder / f"{number:03}"
    file.write_text(yaml.safe_dump(experiment(number, engine, folder, loaded=loaded)), encoding="utf-8")
    if not place.is_dir():
        run(prepare(load(str(file))), place, Silent())
    with RunStore.open(place, readonly=True) as store:
        return inspect(store)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", default="mock", choices=("mock", "embedded", "libllama"))
    parser.add_argument("--runs", type=int, default=120, help="runs in all")
    parser.add_argument("--loaded", type=int, default=40, help="so many of them, the first ones, under load")
    parser.add_argument("--first", type=int, default=0, help="number of the first run")
    parser.add_argument("--keep", type=Path, help="keep the runs in this folder; those that are there are only judged")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder: Path = args.keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        sys.exit(1 if told(folder, args.engine, range(args.first, args.runs), args.loaded) else 0)


def told(folder: Path, engine: str, numbers: range, loaded: int) -> int:
    """Print why runs are not valid, and the sums; how many are invalid."""
    verdicts: dict[bool, Counter[str]] = {True: Counter(), False: Counter()}
    checks = Counter[tuple[str, str]]()
    for number in numbers:
        under_load = number < loaded
        found = measured(number, engine, folder, loaded=under_load)
        verdict = found.certificate.verdict
        verdicts[under_load][verdict] += 1
        grave = {(it.severity, it.check): str(it.message) for it in found.findings if it.severity != "note"}
        checks.update(grave.keys())
        for (severity, check), message in grave.items():
            print(f"run {number:3} {severity:8} {check}: {message}", flush=True)
    print("\n| runs | valid | suspect | invalid |\n| --- | ---: | ---: | ---: |")
    for under_load, count in verdicts.items():
        name = "under load" if under_load else "one request at a time"
        print(f"| {count.total()} {name} | {count['valid']} | {count['suspect']} | {count['invalid']} |")
    for (severity, check), count in checks.most_common():
        print(f"{severity} {check}: {count} runs")
    invalid = sum(count["invalid"] for count in verdicts.values())
    print(f"{invalid} invalid; goal: 0")
    return invalid


if __name__ == "__main__":
    main()
