"""Which model of T(n) predicts forwards that were not measured? Points of a probe are kept back, and predicted.

    specmeter probe bench:moe-400m --out moe.json
    uv run python benchmarks/forward_models.py moe.json ...

`lines`: straight between points, and on through the last two. `affine`, `roofline` and `experts` are those of
`theory.curves`, the last with uniform routing or with the probe's own unions. Predictions take lines between points,
and beyond them `experts, measured` where a probe has unions.

    server    known are n = 1, 2, 3, 5, 9, 17, which a probe through a server measures; asked are those between
    half      known is every other n; asked are the others
    to 9      known are n up to 9; asked are those beyond
    to 17     known are n up to 17; asked are those beyond
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np

from specmeter.analysis.prediction.costs import probed
from specmeter.messages import Message
from specmeter.probe import Probe, load_probe, union_model
from specmeter.theory.curves import CostCurve, fit_cost
from specmeter.theory.roofline import expected_union

Predict = Callable[[Probe, list[int]], "np.ndarray"]
SERVER = (1, 2, 3, 5, 9, 17)


def lines(probe: Probe, asked: list[int]) -> np.ndarray:
    alone = probed(probe.model_copy(update={"union": None}), Message("costs.of_target", probe="", target=""))
    table = alone.draw(max(asked) - 1, 1, np.random.default_rng(1), False)
    rest = probe.overhead_ms.point if probe.overhead_ms else 0.0
    return table.verify[0, np.array(asked) - 1] * (probe.target_ms.ms_at(1.0) + rest)


def fitted(model: str, measured: bool = False) -> Predict:
    def predict(probe: Probe, asked: list[int]) -> np.ndarray:
        union = None
        if model == "experts":
            assert probe.union is not None
            total, used = probe.union.experts, probe.union.used
            union = union_model(probe.union) if measured else lambda n: expected_union(n, total, used)
        fit = fit_cost(probe.target_ms, model, union)  # type: ignore[arg-type]
        return np.asarray(fit.ms_at(np.array(asked, dtype=float)))

    return predict


MODELS: dict[str, Predict] = {
    "lines": lines,
    "affine": fitted("affine"),
    "roofline": fitted("roofline"),
    "experts, uniform": fitted("experts"),
    "experts, measured": fitted("experts", measured=True),
}


def tasks(n: list[int]) -> dict[str, tuple[list[int], list[int]]]:
    half = n[::2]
    return {
        "server": ([it for it in n if it in SERVER], [it for it in n if it not in SERVER and it < max(SERVER)]),
        "half": (half, [it for it in n if it not in half and it < half[-1]]),
        "to 9": ([it for it in n if it <= 9], [it for it in n if it > 9]),
        "to 17": ([it for it in n if it <= 17], [it for it in n if it > 17]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("probes", nargs="+", type=Path)
    for path in parser.parse_args().probes:
        probe = load_probe(path)
        points = {point.tokens: point for point in probe.target_ms.points}
        v = {n: round(points[n].ms.point / points[1].ms.point, 2) for n in (2, 5, 9, 17, 33) if n in points}
        print(f"\n{path.name}: {probe.target.reference}, {len(points)} points, T(n)/T(1) {v}")
        print(f"{'':<20}" + "".join(f"{name:>20}" for name in tasks(sorted(points))))
        for name, predict in MODELS.items():
            cells: list[str] = []
            for known, asked in tasks(sorted(points)).values():
                less = probe.model_copy(update={"target_ms": CostCurve(points=tuple(points[n] for n in known))})
                off = np.abs(predict(less, asked) / [points[n].ms.point for n in asked] - 1)
                cells.append(f"{median(off):.1%}, at most {off.max():.1%}")
            print(f"{name:<20}" + "".join(f"{cell:>20}" for cell in cells))


if __name__ == "__main__":
    main()
