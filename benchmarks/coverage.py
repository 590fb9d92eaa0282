"""How often intervals are right, in simulated runs whose truth is known; the figures of docs/explanation/statistics.md.

    uv run python benchmarks/coverage.py [--runs 10000]

A run has a baseline and k arms in Latin order. Each cell's log rate is a block's own speed (3 %), noise of 1 % (normal,
or with the tails of Student's t with 3 degrees of freedom) and, where said, a linear drift from its first cell to its
last. Every arm equals the baseline unless a shift is given.
"""

from __future__ import annotations

import argparse
import math

import numpy as np
from numpy.typing import NDArray

from specmeter.schedule import plan
from specmeter.stats import compare, speedups_by_group, t_critical, t_interval, units_for

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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10_000)
    runs = parser.parse_args().runs
    rng = np.random.default_rng(1)
    print_coverage(rng, runs)
    print_family(rng, runs)
    print_equivalence(rng, runs)
    print_advice(rng, runs)


if __name__ == "__main__":
    main()
