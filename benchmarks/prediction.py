"""How far predictions are from measurements: every arm of an experiment, as written down before it was measured.

    uv run python benchmarks/prediction.py [--engine embedded|libllama] [--target dense moe] [--blocks 3] [--per-kind 2]
        [--tokens 64] [--folder DIR] [--small] [--demo] [--report DIR ...]

Measures 24 arms (a dense and an MoE target, two drafts at gamma 2, 4, 8 and 16, n-gram methods), each target in a run
of its own, and holds the speedup of each against its prediction. Nothing is fitted to the arms that are predicted:
costs come from the probe that the run takes by itself, acceptance from replaying each arm on its baseline's texts.
Wanted are a median error of 2.5 %, 8 % at worst, and 90 % of the measured speedups within intervals of 12 % in the
median width.

With --demo the demo is measured instead. With --folder the folder is kept; runs in it that are complete are only read,
others go on. --report reads run folders, of any number of earlier calls, and judges them together. About ten minutes
per engine on two cores, six with --per-kind 1; the machine must have nothing else to do.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

from specmeter.analysis.prediction.outcomes import PredictionOutcome
from specmeter.analysis.reading import read_run
from specmeter.store import RunStore

SIZE = {False: "400m", True: "100m"}
WANTED = {"median": 0.025, "worst": 0.08, "inside": 0.9, "width": 0.12}


def experiment(engine: str, target: str, small: bool, blocks: int, per_kind: int, tokens: int) -> dict[str, object]:
    """The arms of one target: 12, or 3 for trying it out. The instrumented engine knows one n-gram method only."""
    lookups: list[dict[str, object]] = [{"method": "ngram-simple", "ngram_n": 4, "gamma": [4, 8, 16]}]
    lookups.append(
        {"method": "ngram-map-k", "ngram_n": 4, "ngram_min_hits": 1, "gamma": 8}
        if engine == "embedded"
        else {"method": "ngram-simple", "ngram_n": 3, "gamma": 8}
    )
    if small:
        lookups = [{"method": "ngram-simple", "ngram_n": 4, "gamma": 8}]
    return {
        "name": f"prediction-{target}",
        "targets": {target: f"bench:{target}-{SIZE[small]}"},
        "drafts": {"small": "bench:draft-small", "large": "bench:draft-large"},
        "workloads": [{"source": "bench", "kinds": ["code", "reason", "edit"], "per_kind": per_kind}],
        "arms": [
            {"draft": "small" if small else ["small", "large"], "gamma": [2, 8] if small else [2, 4, 8, 16]},
            *lookups,
        ],
        "design": {"blocks": blocks, "warmup": "short"},
        "engine": {"kind": engine, "context": 1024},
        "generation": {"max_tokens": tokens},
    }


def measure(folder: Path, source: str) -> None:
    """Begin the run, or go on with it, as a user would."""
    done = subprocess.run(
        [sys.executable, "-m", "specmeter", "run", source, "--out", str(folder)],
        stdout=subprocess.DEVNULL,
        check=False,
    )
    if done.returncode not in (0, 1):
        sys.exit(f"specmeter run ended with {done.returncode}")


def report(folders: Sequence[Path]) -> None:
    """The tables, in Markdown."""
    judged: list[PredictionOutcome] = []
    print("| run | arm | measured | predicted | interval | error | inside |\n|---|---|---:|---:|---:|---:|---|")
    for folder in folders:
        for outcome in read_run(folder).predictions:
            predicted, measured = outcome.prediction.speedup, outcome.measured
            if predicted is None or measured is None or outcome.error is None:
                print(f"| {folder.name} | {outcome.prediction.arm_id} | - | - | - | {outcome.prediction.reason} | |")
                continue
            judged.append(outcome)
            print(
                f"| {folder.name} | {outcome.prediction.arm_id} | {measured.point:.2f} | {predicted.point:.2f} | "
                f"{predicted.low:.2f} to {predicted.high:.2f} | {outcome.error:+.1%} | "
                f"{'yes' if outcome.inside else 'no'} |"
            )
    for folder in folders:
        costs(folder)
    if judged:
        goals(judged)


def costs(folder: Path) -> None:
    """What the probes of a run took, and where its predictions came from."""
    with RunStore.open(folder, readonly=True) as store:
        probes, state, predictions = store.probes(), store.state(), store.predictions()
    took = sum({it.started_at: it.ended_at - it.started_at for it in probes}.values())
    whole = (state.finished_at or 0.0) - (state.started_at or 0.0)
    rounds = ", ".join(f"{it.draft or 'lookups'} {len(it.rounds)} (+{len(it.left_out)})" for it in probes)
    share = f", {took / whole:.1%} of the run" if whole > 0 else ""
    print(f"\n{folder.name}: probes took {took:.1f} s{share}; rounds that count (and do not): {rounds or 'none'}")
    for codes in sorted({tuple(told.code if told else "-" for told in (it.cost, it.acceptance)) for it in predictions}):
        print(f"  {'; '.join(codes)}")


def goals(judged: Sequence[PredictionOutcome], wanted: Mapping[str, float] = WANTED) -> None:
    """The figures that are wanted."""
    errors = [abs(outcome.error) for outcome in judged if outcome.error is not None]
    widths: list[float] = []
    for outcome in judged:
        speedup = outcome.prediction.speedup
        if speedup is not None and speedup.low is not None and speedup.high is not None:
            widths.append((speedup.high - speedup.low) / speedup.point)
    inside = sum(bool(outcome.inside) for outcome in judged)
    print(f"\n| | {len(judged)} arms | wanted |\n|---|---:|---:|")
    print(f"| median error | {statistics.median(errors):.1%} | {wanted['median']:.1%} |")
    print(f"| worst error | {max(errors):.1%} | {wanted['worst']:.1%} |")
    print(f"| inside their interval | {inside / len(judged):.0%} | {wanted['inside']:.0%} |")
    print(f"| median width of the interval | {statistics.median(widths):.1%} | {wanted.get('width', 1):.1%} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", choices=["embedded", "libllama"], default="embedded")
    parser.add_argument("--target", choices=["dense", "moe"], nargs="+", default=["dense", "moe"])
    parser.add_argument("--blocks", type=int, default=3)
    parser.add_argument("--per-kind", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--small", action="store_true", help="3 arms on small models, to try it out")
    parser.add_argument("--demo", action="store_true", help="the demo that comes with specmeter")
    parser.add_argument("--report", type=Path, nargs="+", help="only read these run folders")
    args = parser.parse_args()
    if args.report:
        report(args.report)
        return
    with tempfile.TemporaryDirectory() as scratch:
        folder: Path = args.folder or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        runs: list[Path] = []
        for target in ["demo"] if args.demo else args.target:
            source = "demo"
            if not args.demo:
                path = folder / f"{args.engine}-{target}.yaml"
                data = experiment(args.engine, target, args.small, args.blocks, args.per_kind, args.tokens)
                path.write_text(yaml.safe_dump(data), encoding="utf-8")
                source = str(path)
            runs.append(folder / f"{args.engine}-{target}")
            measure(runs[-1], source)
        report(runs)


if __name__ == "__main__":
    main()
