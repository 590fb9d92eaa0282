"""How fast are the fits of the theory room? What a report or a search over settings may ask for many times.

    uv run python benchmarks/theory_speed.py [--repeats 5]

Best and worst of the repeats; imports are not counted.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from time import perf_counter

import numpy as np

from specmeter.theory.acceptance import alpha_from_acceptance_rate, position_rates
from specmeter.theory.catalogue.models import models
from specmeter.theory.curves import CostCurve, compare_fits
from specmeter.theory.roofline import expected_union, fit_union


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

    random = np.random.default_rng(2)
    steps = [(int(d), int(random.integers(0, d + 1))) for d in random.integers(1, 17, size=100_000)]
    curve = CostCurve.of([1, 2, 3, 5, 9, 17, 33], [10, 13, 15, 20, 28, 40, 55])
    rates = random.random(10_000)
    print(f"{'':<58} {'best ms':>9} {'worst ms':>9}")
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
