"""How far predictions are from measurements: every arm of an experiment, from probes and measured acceptance.

    uv run python benchmarks/prediction.py [--blocks 3] [--per-kind 2] [--tokens 64] [--folder DIR] [--small]

Probes both targets with both drafts, then measures an experiment of 24 arms (a dense and an MoE target, two drafts at
gamma 2, 4, 8 and 16, n-gram methods) on the embedded engine. Nothing is fitted to the arms that are predicted. Three
predictions of each arm stand beside its speedup, all with costs from the probe:

same      acceptance by position of the arm itself, on the same prompts
other     the same, counted on the one half of the prompts of each kind and held against the other half (both ways)
before    what was written down before the arm was measured

and the share of its decode time that `specmeter explain` accounts for. With --folder the folder is kept, and one that
holds the run already is only read. About eleven minutes on two cores; errors below a few per cent need that machine to
itself, since the speedup of one block is itself no better.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import yaml

from specmeter.explain.account import Account, explain, probes_by_arm
from specmeter.prediction.costs import probed
from specmeter.prediction.drafts import counted
from specmeter.prediction.speedup import AtGamma, predict
from specmeter.probe import Probe
from specmeter.probe.files import load_probe
from specmeter.reading import read_run
from specmeter.record import Arm, Request
from specmeter.store import RunStore
from specmeter.summary import summarize

_SIZE = {False: "400m", True: "100m"}


def experiment(small: bool, blocks: int, per_kind: int, tokens: int) -> dict[str, object]:
    """The matrix: 24 arms, or 6 for trying it out."""
    size = _SIZE[small]
    return {
        "name": "prediction",
        "targets": {"dense": f"bench:dense-{size}", "moe": f"bench:moe-{size}"},
        "drafts": {"small": "bench:draft-small", "large": "bench:draft-large"},
        "workloads": [{"source": "bench", "kinds": ["code", "reason", "edit"], "per_kind": per_kind}],
        "arms": [
            {"draft": "small" if small else ["small", "large"], "gamma": [2, 8] if small else [2, 4, 8, 16]},
            {"method": "ngram-simple", "ngram_n": 4, "gamma": 8 if small else [4, 8, 16]},
            *([] if small else [{"method": "ngram-map-k", "ngram_n": 4, "ngram_min_hits": 1, "gamma": 8}]),
        ],
        "design": {"blocks": blocks, "warmup": "short"},
        "engine": {"context": 1024},
        "generation": {"max_tokens": tokens},
    }


def measure(folder: Path, small: bool, blocks: int, per_kind: int, tokens: int) -> None:
    """Probe every pair, then run; each is a process of its own, as a user starts it."""
    size = _SIZE[small]
    files: list[str] = []
    for target in (f"bench:dense-{size}", f"bench:moe-{size}"):
        for draft in ("small",) if small else ("small", "large"):
            file = folder / f"{target.removeprefix('bench:')}-{draft}.json"
            _specmeter("probe", target, "--draft", f"bench:draft-{draft}", "--tokens", "1..9,13,17", "--out", str(file))
            files += ["--probe", str(file)]
    path = folder / "prediction.yaml"
    path.write_text(yaml.safe_dump(experiment(small, blocks, per_kind, tokens)), encoding="utf-8")
    _specmeter("run", str(path), *files, "--out", str(folder / "run"))


def _specmeter(*argv: str) -> None:
    done = subprocess.run([sys.executable, "-m", "specmeter", *argv], stdout=subprocess.DEVNULL, check=False)
    if done.returncode not in (0, 1):
        sys.exit(f"specmeter {argv[0]} ended with {done.returncode}")


def speedups(requests: Iterable[Request], arms: Sequence[Arm], prompts: frozenset[str]) -> dict[str, float]:
    """Measured speedups over some of the prompts."""
    rows = [_Row(request) for request in requests if request.prompt_id in prompts]
    return {arm.arm_id: arm.speedup.point for arm in summarize(rows, arms).arms if arm.speedup is not None}


class _Row:
    """A request as `summarize` wants it."""

    def __init__(self, request: Request) -> None:
        assert request.reply is not None
        self.target_forwards = None
        self.__dict__.update(request.model_dump(exclude={"reply"}), **request.reply.timings.model_dump())


def by_position(arm: Arm, requests: Sequence[Request], prompts: frozenset[str], probe: Probe) -> AtGamma:
    """From the probe, and the arm's own acceptance on `prompts`."""
    assert arm.gamma is not None
    steps = [
        (request.prompt_id, arm.gamma, request.reply)
        for request in requests
        if request.arm_id == arm.id and request.prompt_id in prompts and request.reply is not None
    ]
    return predict(
        counted(steps, "measured"), probed(probe, "probe"), [arm.gamma], by_model=arm.draft is not None
    ).by_gamma[0]


def report(folder: Path) -> None:
    """The tables, in Markdown."""
    found = read_run(folder / "run")
    models = {model.name: model for model in found.models}
    probes: dict[str, Probe] = {}
    for file in sorted(folder.glob("*.json")):
        probes |= probes_by_arm(load_probe(file), file.name, found.arms, models)
    with RunStore.open(folder / "run", readonly=True) as store:
        requests = [request for request in store.requests() if request.reply is not None]
        started = time.perf_counter()
        account = explain(store, found, probes)
        explaining_s = time.perf_counter() - started
    everything = frozenset(request.prompt_id for request in requests)
    halves = [frozenset(sorted(everything)[first::2]) for first in (0, 1)]
    whole = speedups(requests, found.arms, everything)
    in_half = [speedups(requests, found.arms, half) for half in halves]
    before = {outcome.prediction.arm_id: outcome for outcome in found.predictions}

    print("| arm | measured | same | error | other | error | before | error | accounted |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|")
    errors: dict[str, list[float]] = {"same": [], "other": [], "before": []}
    inside = 0
    started, predictions = time.perf_counter(), 0
    for arm in found.arms:
        if arm.id not in whole or not arm.speculates:
            continue
        measured = whole[arm.id]
        same = by_position(arm, requests, everything, probes[arm.id]).speedup
        others = [by_position(arm, requests, halves[1 - half], probes[arm.id]).speedup.point for half in (0, 1)]
        predictions += 3
        errors["same"].append(same.point / measured - 1)
        inside += same.low is not None and same.high is not None and same.low <= measured <= same.high
        crossed = [other / in_half[half][arm.id] - 1 for half, other in enumerate(others)]
        errors["other"] += crossed
        outcome = before.get(arm.id)
        stored = outcome.prediction.speedup if outcome is not None else None
        if stored is not None:
            errors["before"].append(stored.point / measured - 1)
        shown = [
            f"{measured:.2f}",
            f"{same.point:.2f}",
            f"{errors['same'][-1]:+.1%}",
            f"{statistics.fmean(others):.2f}",
        ]
        shown += [" ".join(f"{error:+.1%}" for error in crossed)]
        shown += [f"{stored.point:.2f}", f"{errors['before'][-1]:+.1%}"] if stored is not None else ["-", "-"]
        print(f"| {arm.id} | {' | '.join(shown)} | {_accounted(account, arm.id)} |")
    predicting_s = (time.perf_counter() - started) / max(1, predictions)
    print("\n| prediction | arms | median error | worst |\n|---|---:|---:|---:|")
    for name, values in errors.items():
        if values:
            sizes = [abs(value) for value in values]
            print(f"| {name} | {len(values)} | {statistics.median(sizes):.1%} | {max(sizes):.1%} |")
    print(f"\nwithin the interval (same): {inside} of {len(errors['same'])}; verdict {_verdict(found)}")
    print(f"explaining the run took {explaining_s:.2f} s, a prediction {predicting_s * 1000:.0f} ms with its counting")


def _verdict(found: object) -> str:
    certificate = getattr(found, "certificate", None)
    return certificate.verdict if certificate is not None else "none"


def _accounted(account: Account, arm_id: str) -> str:
    share = next(arm.accounted for arm in account.arms if arm.arm_id == arm_id)
    return "by difference" if share is None else f"{share:.1%}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=3)
    parser.add_argument("--per-kind", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--small", action="store_true", help="6 arms on small models, to try it out")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = args.folder or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        if not RunStore.exists(folder / "run"):
            measure(folder, args.small, args.blocks, args.per_kind, args.tokens)
        report(folder)


if __name__ == "__main__":
    main()
