"""How often a race errs and what it takes, in simulated races whose truth is known: figures of `numbers.elimination`.

    uv run python benchmarks/elimination.py [--runs 2000] [--blocks 8] [--rule NAME ...]

A cell's log rate is its arm's, plus what its block has of its own (3 %), plus noise of 1 to 8 %: normal, with the
tails of Student's t with 3 degrees of freedom, with stalls (a cell in twelve takes 3 to 30 standard deviations longer),
at two speeds (a quarter of the cells 3 standard deviations slower), or with the best arm two or four times as noisy as
the others. Rules differ in how upper bounds are made; `elimination.eliminate` itself runs every race.

Seen with eight truths of two or six arms, up to 8 blocks, noise of 1, 2 and 4 %, 500 races each.
In the worst case more than 2 % was lost in, and plain decoding rashly called slower in:

                            normal, t3, stalls    two speeds     one arm x2     one arm x4   decided   cells
    as above                   0.4 %  1.8 %     0.2 %  2.8 %   1.0 %  1.6 %   3.0 %  1.8 %      27 %    32.8
    all degrees of freedom     1.6 %  1.8 %     0.6 %  2.8 %   4.8 %  2.6 %  10.0 %  8.0 %      33 %    29.0
    pooled error alone         1.8 %  1.8 %     0.6 %  2.8 %   6.6 %  3.6 %  15.6 %  12.2 %     38 %    27.8
    own error alone            4.2 %  2.0 %     3.6 %  2.8 %   4.0 %  1.6 %   4.2 %  2.0 %      23 %    32.0
    martingale (Lai)           0.4 %  0.8 %     0.0 %  0.8 %   0.8 %  0.4 %   2.0 %  1.0 %      26 %    33.8
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from dataclasses import dataclass
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from specmeter.numbers import elimination
from specmeter.numbers.margin import MARGIN
from specmeter.numbers.stats import t_critical

Floats = NDArray[np.float64]
Fit = elimination._Fit
Upper = Callable[[Fit, float], Floats]

TRUTHS: dict[str, tuple[float, ...]] = {
    "six are equal": (0.0,) * 6,
    "two are equal": (0.0, 0.0),
    "five lose 2.1 %": (0.0, *(-0.021,) * 5),
    "one gains 2.1 %": (0.0, 0.0, 0.0, 0.0, 0.0, 0.021),
    "one gains 10 %": (0.0, 0.1),
    "a field": (-0.5, 0.0, -0.01, -0.03, -0.06, -0.1),
    "small gains": (-0.06, -0.04, -0.03, -0.02, 0.0, -0.01),
    "five lose": (0.0, -0.03, -0.05, -0.1, -0.15, -0.3),
}
"""Log rates; the first is plain decoding, and arms are listed from the simplest on."""
NOISES = ("normal", "t3", "stalls", "two speeds", "one x2", "one x4")


def cells(
    rng: np.random.Generator, truth: tuple[float, ...], noise: str, sigma: float, shape: tuple[int, int]
) -> Floats:
    """Log rates of races, races x blocks x arms; the noisier arm is the best one."""
    size = (*shape, len(truth))
    values = rng.standard_t(3, size) / math.sqrt(3) if noise == "t3" else rng.standard_normal(size)
    if noise == "stalls":
        values -= (rng.random(size) < 1 / 12) * rng.uniform(3, 30, size)
    elif noise == "two speeds":
        values = 0.3 * values - 3 * (rng.random(size) < 0.25)
    elif noise.startswith("one"):
        values[..., int(np.argmax(truth))] *= float(noise[-1])
    return np.array(truth) + sigma * values + 0.03 * rng.standard_normal((*shape, 1))


def own(fit: Fit, share: float) -> Floats:
    """Student's t of the pair's own differences."""
    critical = t_critical(max(1, fit.blocks - 1), 1 - 2 * share)
    return np.where(fit.known, fit._differences + critical * np.sqrt(fit.own), np.inf)


def pooled(fit: Fit, share: float) -> Floats:
    """Residuals of all arms together, with no regard to arms that differ in noise."""
    arms = len(fit.means)
    critical = t_critical(max(1, (fit.blocks - 1) * (arms - 1)), 1 - 2 * share)
    return np.where(fit.known, fit._differences + critical * np.sqrt(fit.pooled), np.inf)


def uncapped(fit: Fit, share: float) -> Floats:
    """The larger error, with the degrees of freedom of arms that are alike."""
    critical = t_critical(max(1, (fit.blocks - 1) * (len(fit.means) - 1)), 1 - 2 * share)
    return np.where(fit.known, fit._differences + critical * fit._errors, np.inf)


def anytime(fit: Fit, share: float) -> Floats:
    """A test martingale for Student's t (Lai 1976): a normal mixture over effects of `SCALE` standard deviations."""
    df, g = max(1, fit.df), 1 + fit.blocks * SCALE**2
    a = (math.sqrt(g) / (2 * share * (fit.blocks - 1) * SPENT)) ** (2 / (df + 1))
    critical = math.sqrt(df * (a - 1) / (1 - a / g)) if a < g else math.inf
    return np.where(fit.known, fit._differences + critical * fit._errors, np.inf)


SCALE = 3.0
SPENT = sum(1 / (b - 1) for b in range(2, 9))
"""With (blocks - 1) this undoes the spending over eight looks: a martingale needs none."""
CHOSEN: Upper = Fit.upper
RULES: dict[str, Upper] = {
    "chosen": CHOSEN,
    "uncapped": uncapped,
    "pooled": pooled,
    "own": own,
    "anytime": anytime,
}


@dataclass
class Score:
    """Counts over races."""

    wrong: int = 0
    """The only arm left, or the best one that was left out, shows that more than the margin was lost."""
    rash: int = 0
    """Plain decoding, the fastest or as fast as any, was left out as slower."""
    decided: int = 0
    blocks: int = 0
    cells: int = 0


def race(rates: Floats, truth: tuple[float, ...], most: int, score: Score) -> None:
    standing = elimination.eliminate(rates, simplicity=range(len(truth)), most_blocks=most)
    best = max(truth)
    left = max(truth[arm] for arm in standing.survivors)
    score.wrong += best - left > math.log1p(MARGIN)
    score.rash += standing.faster_than_plain and truth[0] >= best
    score.decided += standing.state != "open"
    lasts = [standing.eliminated[arm].block if arm in standing.eliminated else most for arm in range(len(truth))]
    ends = max(it.block for it in standing.eliminated.values()) if standing.state != "open" else most
    score.blocks += ends
    score.cells += sum(min(last, ends) for last in lasts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--blocks", type=int, default=8)
    parser.add_argument("--rule", nargs="*", default=list(RULES), choices=RULES)
    parser.add_argument("--sigma", type=float, nargs="*", default=[0.01, 0.02, 0.04, 0.08])
    args = parser.parse_args()
    for rule in args.rule:
        print(f"\n{rule}, up to {args.blocks} blocks: noise, lost over 2 %, rashly faster, decided, blocks, cells")
        worst: dict[str, tuple[float, float]] = {}
        for name, truth in TRUTHS.items():
            for noise in NOISES:
                row: list[str] = []
                for sigma in args.sigma:
                    rng, score = np.random.default_rng(1), Score()
                    with patch.object(Fit, "upper", RULES[rule]):
                        for rates in cells(rng, truth, noise, sigma, (args.runs, args.blocks)):
                            race(rates, truth, args.blocks, score)
                    per = 1 / args.runs
                    wrong, rash = score.wrong * per, score.rash * per
                    was = worst.get(noise, (0.0, 0.0))
                    worst[noise] = (max(was[0], wrong), max(was[1], rash))
                    row.append(
                        f"{sigma:4.0%} {wrong:5.1%} {rash:5.1%} {score.decided * per:4.0%} "
                        f"{score.blocks * per:3.1f} {score.cells * per:4.1f}"
                    )
                print(f"{name:16} {noise:10}  " + "  ".join(row), flush=True)
        print("worst: " + ", ".join(f"{noise} {wrong:.1%} {rash:.1%}" for noise, (wrong, rash) in worst.items()))


if __name__ == "__main__":
    main()
