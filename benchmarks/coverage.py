"""How often intervals are right, in simulated runs whose truth is known; the figures of docs/explanation/statistics.md.

    uv run python benchmarks/coverage.py [--runs 10000]

A run has a baseline and k arms in Latin order. Each cell's log rate is a block's own speed (3 %), noise of 1 % (normal,
or with the tails of Student's t with 3 degrees of freedom) and, where said, a linear drift from its first cell to its
last. Every arm equals the baseline unless a shift is given. Further worlds have prompts that differ, acceptance that
differs by prompt, requests at two speeds, and requests that stall.
"""

from __future__ import annotations

import argparse
import math

import numpy as np
from numpy.typing import NDArray

from specmeter.analysis.answer import least_units
from specmeter.analysis.pairing import speedup_over_prompts
from specmeter.analysis.requests import excesses, limit
from specmeter.experiments.schedule import achieved_balance, plan
from specmeter.numbers.margin import compare, units_for
from specmeter.numbers.stats import bounded_ratio, speedups_by_group, t_critical, t_interval
from specmeter.validity.checks.baseline import WILD, follows

Floats = NDArray[np.float64]


def simulated(rng: np.random.Generator, runs: int, blocks: int, k: int, *, tails: int | None, drift: float) -> Floats:
    """Log ratios to the baseline, of shape (k, runs, blocks)."""
    arms = [f"arm-{index}" for index in range(k + 1)]
    cells = plan(tuple(arms), blocks, 1, "latin", 1)
    when = np.empty((blocks, k + 1))
    for cell in cells:
        when[cell.block, arms.index(cell.arm_id)] = cell.block * (k + 1) + cell.position
    shape = (runs, blocks, k + 1)
    rates = 0.01 * (rng.standard_normal(shape) if tails is None else rng.standard_t(tails, shape))
    rates += 0.03 * rng.standard_normal((runs, blocks, 1)) + drift * when / when.max()
    return np.moveaxis(rates[..., 1:] - rates[..., :1], 2, 0)


def print_coverage(rng: np.random.Generator, runs: int) -> None:
    """One arm of four: how often its interval holds the truth."""
    worlds = {"normal": (None, 0.0), "t3": (3, 0.0), "t3, drift 5 %": (3, 0.05), "t3, drift 20 %": (3, 0.2)}
    print("coverage of 95 % intervals\nblocks  " + "  ".join(f"{name:>14}" for name in worlds))
    for blocks in (3, 4, 8, 12, 20):
        row: list[str] = []
        for tails, drift in worlds.values():
            _, low, high = t_interval(simulated(rng, runs, blocks, 3, tails=tails, drift=drift)[0])
            row.append(f"{np.mean((low <= 0) & (high >= 0)):14.1%}")
        print(f"{blocks:6}  " + "  ".join(row))


def print_shared(rng: np.random.Generator, runs: int) -> None:
    """An arm 3 % faster than its baseline on a machine that moves: how often its interval holds that, and how often the
    checks find something. What both share is shared by all cells of a block; a drift within blocks is not."""
    print(
        "\nblocks  world                                     coverage  found by baseline-unstable, by order-confounded"
    )
    worlds = {
        "quiet": {},
        "blocks vary by 10 %": {"shared": 0.10},
        "blocks vary by 30 %": {"shared": 0.30},
        "blocks grow slower, 30 % in all": {"trend": 0.30},
        "within blocks 5 %, Latin order": {"within": 0.05},
        "within blocks 5 %, as written": {"within": 0.05, "order": "as-written"},
        "a block's baseline alone 60 % slower": {"alone": 0.6},
    }
    truth = math.log(1.03)
    for blocks in (3, 4, 8):
        for name, world in worlds.items():
            after = np.ones(blocks) if world.get("order") else np.where(np.arange(blocks) % 2, -1.0, 1.0)
            base = 0.01 * rng.standard_normal((runs, blocks)) + world.get("shared", 0.0) * rng.standard_normal(
                (runs, blocks)
            )
            base += -world.get("trend", 0.0) * np.linspace(0, 1, blocks)
            ratio = truth + 0.01 * rng.standard_normal((runs, blocks)) - world.get("within", 0.0) * after
            base[:, 0] -= world.get("alone", 0.0)
            ratio[:, 0] += world.get("alone", 0.0)
            _, low, high = t_interval(ratio)
            covered = np.mean((low <= truth) & (high >= truth))
            alone = np.mean([follows(one, other) >= WILD for one, other in zip(base, ratio, strict=True)])
            starts = [
                (arm, (0, block), 2.0 * block + (1 if late == (arm == "arm") else 0))
                for block, late in enumerate(after > 0)
                for arm in ("arm", "base")
            ]
            leans = (achieved_balance(starts).score or 0.0) < 0.4
            print(f"{blocks:6}  {name:40}  {covered:8.1%}  {alone:6.1%}  {float(leans):6.1%}")


def print_family(rng: np.random.Generator, runs: int) -> None:
    """How often at least one of k arms that equal the baseline seems to differ, or to be faster."""
    print(
        "\nfamily-wise error (t3): any interval misses | any arm looks faster; plain, then simultaneous; cost in width"
    )
    for blocks in (3, 4, 8, 20):
        for k in (2, 5, 10):
            logs = simulated(rng, runs, blocks, k, tails=3, drift=0.0)
            cells: list[str] = []
            for level in (0.95, 1 - 0.05 / k):
                _, low, high = t_interval(logs, level)
                cells.append(
                    f"{np.mean(((low > 0) | (high < 0)).any(axis=0)):6.1%} | {(low > 0).any(axis=0).mean():5.1%}"
                )
            cost = t_critical(blocks - 1, 1 - 0.05 / k) / t_critical(blocks - 1, 0.95)
            print(f"{blocks:6} blocks, {k:2} arms:  {cells[0]}   {cells[1]}   {cost:5.2f}")


def print_equivalence(rng: np.random.Generator, runs: int) -> None:
    """How often 'equivalent' is said of an arm at the margin (at most 5 %), and of one that equals the baseline."""
    print("\n'equivalent within 2 %' (t3): truth at the margin, truth equal; 'not worse' at the margin")
    for blocks in (4, 8, 20, 50):
        logs = simulated(rng, runs, blocks, 1, tails=3, drift=0.0)[0]
        groups = np.repeat(np.arange(runs), blocks)
        found: list[list[str]] = []
        for truth in (math.log(1.02), 0.0, -math.log(1.02)):
            estimates = speedups_by_group((logs + truth).ravel(), groups).values()
            found.append([compare(estimate).conclusion for estimate in estimates])
        above, equal, below = ([word == "equivalent" for word in words] for words in found)
        worse = np.mean([word in ("equivalent", "not worse", "faster") for word in found[2]])
        print(f"{blocks:6} blocks: {np.mean(above):5.1%} {np.mean(below):5.1%}, {np.mean(equal):6.1%}; {worse:5.1%}")


def print_advice(rng: np.random.Generator, runs: int) -> None:
    """Whether the advised number of blocks gives the half width that it promises."""
    print("\nadvice for +-1 %: median and middle half of what is advised; how often that many blocks were enough")
    for blocks in (3, 4, 8):
        groups = np.repeat(np.arange(runs), blocks)
        first = speedups_by_group(simulated(rng, runs, blocks, 1, tails=None, drift=0.0)[0].ravel(), groups)
        advised = np.array([units_for(estimate, 0.01) or 10_000 for estimate in first.values()])
        enough: list[bool] = []
        for m in advised[:1000]:
            _, low, high = t_interval(simulated(rng, 1, int(m), 1, tails=None, drift=0.0)[0])
            enough.append(bool((high - low)[0] / 2 <= math.log(1.01)))
        quarters = np.quantile(advised, [0.25, 0.5, 0.75])
        print(f"{blocks:6} blocks: {quarters[1]:.0f} ({quarters[0]:.0f} to {quarters[2]:.0f}); {np.mean(enough):.0%}")


# --- prompts ---------------------------------------------------------------------------------------------------------


def covered_by_prompts(
    rng: np.random.Generator, runs: int, prompts: int, blocks: int, *, spread: float = 0.2, tails: int | None = None
) -> tuple[float, float]:
    """How often the interval over blocks, and that over prompts, hold the speedup of other prompts of that sort.

    Log speedups of prompts spread by `spread` (normal, or Student's t scaled to that), of blocks by 1 %, of single
    requests by 1 %.
    """
    hits = np.zeros(2)
    for _ in range(runs):
        drawn = rng.standard_normal(prompts) if tails is None else rng.standard_t(tails, prompts) / math.sqrt(3)
        logs = spread * drawn + 0.01 * rng.standard_normal((blocks, 1)) + 0.01 * rng.standard_normal((blocks, prompts))
        _, low, high = t_interval(logs.mean(axis=1))
        over = speedup_over_prompts(logs)
        assert over is not None
        assert over.low is not None
        assert over.high is not None
        hits += (low <= 0 <= high, over.low <= 1 <= over.high)
    return hits[0] / runs, hits[1] / runs


def print_prompts(rng: np.random.Generator, runs: int) -> None:
    print("\nother prompts of that sort (log speedups spread by 0.2): covered by intervals over blocks, over prompts")
    for prompts in (4, 6, 8, 25):
        for blocks in (3, 4, 8):
            cells = [covered_by_prompts(rng, runs, prompts, blocks, tails=tails) for tails in (None, 3)]
            print(
                f"{prompts:4} prompts, {blocks} blocks: normal {cells[0][0]:5.1%} {cells[0][1]:5.1%}, "
                f"t3 {cells[1][0]:5.1%} {cells[1][1]:5.1%}"
            )


# --- shares ----------------------------------------------------------------------------------------------------------


def covered_shares(rng: np.random.Generator, runs: int, prompts: int, mean: float, sd: float) -> tuple[float, float]:
    """How often intervals of acceptance that differs by prompt (Beta) hold its mean: ours, and the ratio estimator's
    cut at 0 and 1. Runs whose prompts do not differ have none and are not counted."""
    k = mean * (1 - mean) / sd**2 - 1
    hits, counted = np.zeros(2), 0
    while counted < runs:
        drafted = rng.integers(40, 161, prompts).astype(float)
        accepted = rng.binomial(drafted.astype(int), rng.beta(mean * k, (1 - mean) * k, prompts)).astype(float)
        found = bounded_ratio(list(zip(accepted, drafted, strict=True)), unit="1", of="prompts", ceiling=1.0)
        if found.low is None or found.high is None:
            continue
        residuals = accepted - found.point * drafted
        error = math.sqrt(prompts / (prompts - 1) * float(residuals @ residuals)) / drafted.sum()
        counted += 1
        hits += (found.low <= mean <= found.high, abs(found.point - mean) <= t_critical(prompts - 1, 0.95) * error)
    return hits[0] / runs, hits[1] / runs


def print_shares(rng: np.random.Generator, runs: int) -> None:
    print("\nacceptance that differs by prompt: coverage of the interval on the logit scale, and of one cut at 0 and 1")
    for mean, sd in ((0.7, 0.15), (0.3, 0.15), (0.9, 0.1), (0.95, 0.07), (0.05, 0.07), (0.5, 0.3)):
        cells = (covered_shares(rng, runs, prompts, mean, sd) for prompts in (2, 3, 4, 8, 32))
        print(f"mean {mean:4}, sd {sd:4}: " + "  ".join(f"{ours:5.1%} {cut:5.1%}" for ours, cut in cells))


# --- two speeds ------------------------------------------------------------------------------------------------------


def false_gains(
    rng: np.random.Generator, runs: int, k: int, blocks: int, prompts: int, *, apart: float, share: float
) -> float:
    """How often one of k arms that equal the baseline seems faster by its simultaneous interval, where requests are at
    one of two speeds."""
    shape = (runs, k + 1, blocks, prompts)
    logs = 0.01 * rng.standard_normal(shape) + apart * (rng.random(shape) < share)
    block = np.log(np.exp(logs).sum(axis=-1))
    _, low, _ = t_interval(block[:, :1] - block[:, 1:], 1 - 0.05 / k)
    return float((low > 0).any(axis=1).mean())


def print_two_speeds(rng: np.random.Generator, runs: int) -> None:
    print("\nrequests at two speeds, nothing helps: the most runs in which an arm seems faster (* not said: too few)")
    for blocks in (2, 3, 4, 5):
        row: list[str] = []
        for k in (1, 2, 3, 5, 10, 20):
            worst = max(
                false_gains(rng, max(200, runs // 5), k, blocks, prompts, apart=apart, share=share)
                for prompts in (1, 2, 4, 6)
                for apart in (0.05, 0.2, 0.7)
                for share in (0.1, 0.2, 0.5)
            )
            row.append(f"{worst:6.1%}{'*' if blocks < least_units(k) else ' '}")
        print(f"{blocks:6} blocks, 1 2 3 5 10 20 arms: " + " ".join(row))


# --- stalls ----------------------------------------------------------------------------------------------------------


def stalled_runs(
    rng: np.random.Generator, runs: int, prompts: int, blocks: int, *, share: float, noise: float = 0.01
) -> tuple[float, float, float]:
    """Of runs in which a share of one arm's requests takes three times as long: how often the interval holds the true
    speedup, how often a stall that happened is seen, and how often one is seen in the other arm, which has none.

    Noise of single requests has the tails of Student's t with 3 degrees of freedom; blocks differ by 2 %.
    """
    covered = happened = seen = false = 0
    truth = -math.log(1 + 2 * share)
    for _ in range(runs):
        usual = math.log(8) + 0.2 * rng.standard_normal((prompts, 1))
        times = [
            usual + noise * rng.standard_t(3, (prompts, blocks)) + 0.02 * rng.standard_normal((1, blocks))
            for _ in range(2)
        ]
        stalls = rng.random((prompts, blocks)) < share
        times[0] = times[0] + math.log(3) * stalls
        found = [bool((np.nan_to_num(excess) > limit(excess)).any()) for excess in map(excesses, times)]
        _, low, high = t_interval(np.log(np.exp(times[1]).sum(axis=0)) - np.log(np.exp(times[0]).sum(axis=0)))
        covered += bool(low <= truth <= high)
        happened += bool(stalls.any())
        seen += bool(stalls.any()) and found[0]
        false += found[1]
    return covered / runs, seen / max(1, happened), false / runs


def print_stalls(rng: np.random.Generator, runs: int) -> None:
    print("\n10 % of one arm's requests take three times as long: coverage of 95 %, stalls seen, seen in the other arm")
    for prompts in (2, 4, 8):
        for blocks in (3, 4, 6, 9):
            covered, seen, false = stalled_runs(rng, max(100, runs // 10), prompts, blocks, share=0.1)
            print(f"{prompts} prompts, {blocks} blocks: {covered:6.1%} {seen:6.1%} {false:6.2%}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10_000)
    runs = parser.parse_args().runs
    rng = np.random.default_rng(1)
    print_coverage(rng, runs)
    print_shared(rng, runs)
    print_family(rng, runs)
    print_equivalence(rng, runs)
    print_advice(rng, runs)
    print_prompts(rng, runs)
    print_shares(rng, max(200, runs // 5))
    print_two_speeds(rng, runs)
    print_stalls(rng, runs)


if __name__ == "__main__":
    main()
