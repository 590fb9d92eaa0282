"""How fast are the fits of the theory room? What a report or a search over settings may ask for many times.

    uv run python benchmarks/theory_speed.py [--repeats 5]

Target: MoESD's model fitted to a grid of 228 points in less than 0.5 s, imports not counted. Best and worst of the
repeats; the first fit of a process pays for loading scipy.optimize, and is shown by itself.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from time import perf_counter

import numpy as np

from specmeter.theory.acceptance import alpha_from_acceptance_rate, position_rates
from specmeter.theory.catalogue.models import models
from specmeter.theory.curves import CostCurve
from specmeter.theory.experts import expected_union, fit_union
from specmeter.theory.fitting import compare_fits
from specmeter.theory.moesd import MoesdModel, fit_moesd

TRUTH = MoesdModel(bias=4.0, k1=1.5, k2=0.12, k3=0.8, knee_scale=0.5, base=1.01, ridge_point=150.0)
BATCHES = np.array([1, 2, 4, 8, 12, 16, 20, 24, 32, 40, 48, 56, 64, 72, 80, 90, 100, 110, 120])


def grid() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """19 batch sizes x 4 draft lengths x 3 numbers of experts per token: tokens, experts used, noisy times."""
    tokens = np.tile(np.concatenate([BATCHES * length for length in (1, 3, 4, 5)]), 3)
    used = np.repeat([2, 4, 8], len(tokens) // 3)
    noise = 1 + 0.02 * np.random.default_rng(1).standard_normal(len(tokens))
    return tokens, used, TRUTH.forward_ms(tokens, 64, used) * noise


def timed(name: str, repeats: int, work: Callable[[], object]) -> None:
    work()
    times: list[float] = []
    for _ in range(repeats):
        start = perf_counter()
        work()
        times.append(perf_counter() - start)
    print(f"{name:<58} {1000 * min(times):>9.2f} {1000 * max(times):>9.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats

    tokens, used, ms = grid()
    start = perf_counter()
    fit = fit_moesd(tokens, ms, 64, used, 150)
    first = perf_counter() - start
    off = np.abs(fit.model.forward_ms(tokens, 64, used) / TRUTH.forward_ms(tokens, 64, used) - 1).max()
    print(f"{len(tokens)} points with 2 % noise: prediction off by {off:.1%} at most; first fit {first:.2f} s\n")

    random = np.random.default_rng(2)
    steps = [(int(d), int(random.integers(0, d + 1))) for d in random.integers(1, 17, size=100_000)]
    curve = CostCurve.of([1, 2, 3, 5, 9, 17, 33], [10, 13, 15, 20, 28, 40, 55])
    rates = random.random(10_000)
    print(f"{'':<58} {'best ms':>9} {'worst ms':>9}")
    timed(f"MoESD, {len(tokens)} points", repeats, lambda: fit_moesd(tokens, ms, 64, used, 150))
    timed("MoESD, 21 points", repeats, lambda: fit_moesd(tokens[::11], ms[::11], 64, used[::11], 150))
    timed(
        "three models of a curve of 7 points", repeats, lambda: compare_fits(curve, lambda n: expected_union(n, 64, 4))
    )
    timed("overlap of 3 unions", repeats, lambda: fit_union([4, 8, 16], [22, 36, 56], 256, 8))
    timed("acceptance by position from 100,000 steps", repeats, lambda: position_rates(steps))
    timed("alpha from 10,000 acceptance rates", repeats, lambda: alpha_from_acceptance_rate(rates, 8))
    models()
    timed("footprints of all models", repeats, lambda: [entry.footprint("Q4_K_M") for entry in models()])


if __name__ == "__main__":
    main()
