"""The decision of a gate: what an interval says, and how often that is wrong."""

from __future__ import annotations

import math

import numpy as np
import pytest

from specmeter.gate.builds import GateSpec, pairs_of, two_sided
from specmeter.gate.measure import turns
from specmeter.gate.ruling import LOOKS, Ruling, ratio_of, ruled
from specmeter.record import Estimate

MOCKS = {"base": "mock:1", "head": "mock:1"}


def estimate(point: float, low: float | None, high: float | None) -> Estimate:
    return Estimate(point=point, low=low, high=high, level=0.95, n=5, of="blocks", unit="x", method="")


@pytest.mark.parametrize(
    ("ratio", "ruling"),
    [
        (estimate(1.0, 0.98, 1.02), "pass"),
        (estimate(0.98, 0.971, 0.99), "pass"),
        (estimate(0.95, 0.93, 0.97), "fail"),
        (estimate(0.97, 0.945, 0.995), "fail"),
        (estimate(0.975, 0.955, 0.995), "cannot tell"),
        (estimate(0.96, 0.9, 1.02), "cannot tell"),
        (estimate(1.0, 0.9, 1.1), "cannot tell"),
        (estimate(1.0, None, None), "cannot tell"),
        (None, "cannot tell"),
    ],
)
def test_an_interval_passes_above_the_tolerance_and_fails_below_one_by_the_tolerance(
    ratio: Estimate | None, ruling: Ruling
) -> None:
    assert ruled(ratio, 0.03) == ruling


def test_the_interval_holds_for_all_looks_and_configurations() -> None:
    ratios = [1.0, 1.01, 0.99, 1.02, 0.98]
    one, two = ratio_of(ratios, 1), ratio_of(ratios, 2)
    assert two.low is not None
    assert one.low is not None
    assert two.low < one.low < 1
    assert f"together with {2 * len(LOOKS) - 1} more" in two.method
    assert ratio_of([1.0], 1).low is None
    assert ratio_of([1.0, 1.0], 1).low is None
    assert ratio_of([1.0, 1.01], 1).low is None
    assert ratio_of([1.0, 1.01, 0.99], 1).low is not None


def test_both_builds_of_a_configuration_are_neighbours_in_balanced_order() -> None:
    arms = two_sided(GateSpec(MOCKS, "demo", (), 0.03, 60, noisy=False), {}).experiment.expand()
    pairs, rows = pairs_of(arms), [[cell.arm_id for cell in turns(arms, block)] for block in range(2 * 6)]
    assert all(sorted(row) == sorted(arm.id for arm in arms) for row in rows)
    assert sum(row[0] in {base.id for base, _ in pairs} for row in rows) == len(rows) / 2
    for base, head in pairs:
        assert {abs(row.index(base.id) - row.index(head.id)) for row in rows} == {1}
        assert sum(row.index(base.id) < row.index(head.id) for row in rows) == len(rows) / 2
        assert sorted(row.index(base.id) // 2 for row in rows) == sorted([*range(6)] * 2)


def outcome(rng: np.random.Generator, rate: float, sd: float) -> Ruling:
    """A gate of two configurations, with the looks that it has."""
    logs = math.log(rate) + rng.normal(0, sd, (LOOKS[-1], 2))
    ruling: Ruling = "cannot tell"
    for blocks in LOOKS:
        each = [ruled(ratio_of(np.exp(column).tolist(), 2), 0.03) for column in logs[:blocks].T]
        ruling = "fail" if "fail" in each else "pass" if set(each) == {"pass"} else "cannot tell"
        if ruling != "cannot tell":
            break
    return ruling


@pytest.mark.parametrize("sd", [0.01, 0.03])
def test_equal_builds_rarely_fail_and_a_loss_is_found(sd: float) -> None:
    rng = np.random.default_rng(1)
    equal = [outcome(rng, 1.0, sd) for _ in range(300)]
    lost = [outcome(rng, 0.95, sd) for _ in range(100)]
    assert equal.count("fail") <= 0.025 * len(equal)
    assert equal.count("pass") >= 0.9 * len(equal)
    assert lost.count("fail") >= 0.9 * len(lost)
    assert lost.count("pass") == 0
