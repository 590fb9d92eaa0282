"""How well the screen of `specmeter advise` foresees: every arm of a small grid, predicted and then measured.

    uv run python benchmarks/screen.py [--target dense moe hybrid dense-400m] [--blocks 2] [--tokens 64] [--folder DIR]
        [--threads 1] [--whole-grid] [--beside-others]

For each target: the screen (one block of plain decoding, a short probe, drafts read the texts), what it expects of each
arm and which it keeps; then all arms are measured on the same prompts. Told are the errors of the speedups, whether the
best arm, or one within 2 % of it, is among those kept, and how long the screen took, part by part. With --whole-grid
the screen alone is timed, over all arms that `advise` would price. In a --folder that is kept, what is there is only
read.

Timings say something only on a machine without other work: about 4 minutes per bench target, 25 for dense-400m.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from specmeter.advise.advice import AdviceQuestion
from specmeter.advise.pipeline import Silent
from specmeter.advise.question import grid
from specmeter.advise.screen import Outlook, choose, explore, look, pilots
from specmeter.analysis.reading import read_run
from specmeter.laboratory import pre_measure
from specmeter.laboratory.run import Prepared, prepare, run
from specmeter.record import Estimate
from specmeter.store import RunStore

DRAFTS = ("bench:draft-small", "bench:draft-large")
ARMS = (
    "[{gamma: [1, 2, 3, 4, 6, 8, 12, 16]}, {gamma: [4, 8], p_min: 0.5}, "
    "{method: ngram-simple, ngram_n: 3, gamma: [4, 8]}, {method: ngram-map-k, ngram_n: 3, gamma: 8}, "
    "{method: ngram-map-k4v, ngram_n: 3, gamma: 8}, {method: ngram-mod, ngram_n: 8, gamma: 8, gamma_min: 2}, "
    "{method: ngram-cache, gamma: 8}]"
)
WITHIN = 0.02


@contextmanager
def lap(what: str) -> Iterator[None]:
    """Tell how long it took."""
    started = time.perf_counter()
    yield
    print(f"  {what}: {time.perf_counter() - started:.1f} s", flush=True)


def screened(whole: Prepared, folder: Path) -> tuple[Outlook, ...]:
    """The screen, as `advise` goes through it."""
    baselines = {arm.id for arm in whole.work.arms.values() if arm.role == "baseline"}
    measured = baselines | set(pilots(whole))
    if not RunStore.exists(folder):
        part = prepare(whole.loaded, leave_out=[it for it in whole.work.arms if it not in measured])
        with lap(f"measuring {len(measured)} of {len(whole.work.arms)} arms"):
            run(part, folder, Silent(), thorough=False)
        with lap("probing steps, reading texts"), RunStore.open(folder) as store:
            explore(whole, store, host=whole.host)
    with lap(f"pricing {len(whole.work.arms)} arms"), RunStore.open(folder, readonly=True) as store:
        for probe in store.probes():
            print(f"  probe {probe.draft or 'lookups'}: {len(probe.rounds)} rounds, {probe.failure or 'calm'}")
        return look(whole, store)


def compare(target: str, folder: Path, settings: Sequence[str]) -> tuple[list[float], bool] | None:
    """Errors of the predictions, and whether the best is kept."""
    whole = prepare(grid(AdviceQuestion(target=f"bench:{target}", settings=tuple(settings)), DRAFTS))
    outlooks = screened(whole, folder / f"{target}-screen")
    kept = choose(outlooks).kept
    with lap("measuring all arms"):
        run(whole, folder / f"{target}-truth", Silent(), thorough=False)
    truth = {arm.arm_id: arm.speedup for arm in read_run(folder / f"{target}-truth").summary.arms}
    errors: list[float] = []
    inside = 0
    print("\n| arm | measured | predicted | interval | error | kept |\n|---|---:|---:|---:|---:|---|")
    for it in outlooks:
        measured = truth.get(it.arm.id)
        if it.predicted is None or measured is None:
            print(f"| {it.arm.id} | | | | {it.basis} | |")
            continue
        errors.append(it.point / measured.point - 1)
        inside += (it.predicted.low or 0.0) <= measured.point <= (it.predicted.high or 0.0)
        print(
            f"| {it.arm.id} | {measured.point:.2f} | {it.point:.2f} | {it.predicted.low:.2f} to "
            f"{it.predicted.high:.2f} | {errors[-1]:+.1%} | {'kept' if it.arm.id in kept else ''} |"
        )
    points = {name: one.point for name, one in truth.items() if isinstance(one, Estimate)}
    best = max(points.values())
    reached = max([points[name] for name in kept if name in points], default=1.0)
    is_kept = max(1.0, reached) >= (1 - WITHIN) * best
    print(
        f"\n{target}: median error {statistics.median(map(abs, errors)):.1%}, worst {max(map(abs, errors)):.1%}, "
        f"{inside} of {len(errors)} inside; best {best:.2f}, best kept {reached:.2f}: {'kept' if is_kept else 'LOST'}"
    )
    return errors, is_kept


def main() -> None:
    """Run the comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", nargs="+", default=["dense", "moe", "hybrid", "dense-400m"])
    parser.add_argument("--blocks", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--whole-grid", action="store_true")
    parser.add_argument("--beside-others", action="store_true", help="count probes whatever else the machine does")
    given = parser.parse_args()
    if given.beside_others:
        pre_measure.is_busy = lambda _shares, _gate: False
    settings = [
        f"generation.max_tokens={given.tokens}",
        "workloads=[{source: bench, per_kind: 1, kinds: [code, reason, edit]}]",
        "engine.context=1024",
        "design.warmup=short",
    ]
    if given.threads:
        settings.append(f"engine.threads={given.threads}")
    with tempfile.TemporaryDirectory(prefix="specmeter-screen-") as scratch:
        folder = given.folder or Path(scratch)
        found: list[tuple[list[float], bool]] = []
        for target in given.target:
            print(f"\n## {target}", flush=True)
            if given.whole_grid:
                asked = AdviceQuestion(target=f"bench:{target}", settings=tuple(settings))
                with lap("the whole screen"):
                    whole = prepare(grid(asked, DRAFTS))
                    chosen = choose(screened(whole, folder / f"{target}-grid"))
                print(f"  kept: {', '.join(chosen.kept) or 'none'}")
                continue
            blocks = [f"arms={ARMS}", f"design.blocks={given.blocks}"]
            if (one := compare(target, folder, [*settings, *blocks])) is not None:
                found.append(one)
        if found:
            errors = [abs(it) for one, _ in found for it in one]
            print(f"\nall: median error {statistics.median(errors):.1%}, worst {max(errors):.1%} of {len(errors)} arms")
            print(f"the best arm, or one within {WITHIN:.0%}, was kept in {sum(it for _, it in found)} of {len(found)}")


if __name__ == "__main__":
    main()
