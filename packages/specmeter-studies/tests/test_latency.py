"""What a network adds to a drafted token: the formula, its fit, and what follows for a speedup."""

from __future__ import annotations

import pytest

from specmeter.errors import UsageError
from specmeter_studies.latency import (
    DraftStep,
    LatencyModel,
    fit_latency,
    forwards_per_token,
    least_model,
    output_bytes,
    transfer_ms,
)

RTTS = [0.5, 2.0, 8.0, 0.5]
RATES = [1000.0, 1000.0, 1000.0, 50.0]


def test_units() -> None:
    assert transfer_ms(125_000, 1000) == pytest.approx(1.0), "a megabit at a gigabit per second"
    assert transfer_ms(125_000, None) == 0
    assert output_bytes(248_320) == 4 * 248_320 + 8
    assert forwards_per_token(4) == 1.25
    assert LatencyModel(1.0, 1.25, 125_000).overhead_ms(2.0, 1000) == pytest.approx(1 + 2.5 + 1)


def test_the_least_has_round_trips_and_outputs_alone() -> None:
    model = least_model(4, 2048)
    assert (model.fixed_ms, model.trips) == (0, 1.25)
    assert model.bytes_ == 1.25 * 8200


def test_a_fit_finds_what_the_points_were_made_of() -> None:
    true = LatencyModel(1.9, 1.23, 36_000)
    ms = [true.overhead_ms(rtt, rate) for rtt, rate in zip(RTTS, RATES, strict=True)]
    found = fit_latency(RTTS, RATES, ms)
    assert (found.fixed_ms, found.trips, found.bytes_) == pytest.approx((1.9, 1.23, 36_000))
    known = fit_latency(RTTS[:2], RATES[:2], ms[:2], bytes_=36_000)
    assert (known.fixed_ms, known.trips, known.bytes_) == pytest.approx((1.9, 1.23, 36_000))


@pytest.mark.parametrize(
    ("rtts", "rates", "size"),
    [([1.0], [None], 0.0), ([1.0, 1.0], [None, None], 0.0), ([1.0, 2.0, 3.0], [100.0] * 3, None)],
)
def test_networks_that_tell_nothing_apart(rtts: list[float], rates: list[float | None], size: float | None) -> None:
    with pytest.raises(UsageError, match=r"cannot determine [23] parameters"):
        fit_latency(rtts, rates, [2.0] * len(rtts), bytes_=size)


def test_a_step_bears_what_makes_it_as_fast_as_plain_decoding() -> None:
    step = DraftStep(plain_ms=20.0, tau=3.0, drafted=4.0, rest=1.2, there_ms=2.0, here_ms=3.0)
    assert step.bearable_ms == pytest.approx((3.0 - 1.2) * 20 / 4 - 2.0)
    assert step.speedup(step.bearable_ms) == pytest.approx(1.0)
    assert step.saved_ms == 1.0
    assert step.speedup(1.0) == pytest.approx(step.speedup_here)
    assert step.speedup(0.0) > (step.speedup_here or 0) > step.speedup(2.0)


@pytest.mark.parametrize(("rtt", "rate"), [(-1.0, 100.0), (1.0, 0.0), (float("nan"), 100.0)])
def test_what_is_no_network(rtt: float, rate: float) -> None:
    with pytest.raises(UsageError):
        LatencyModel(0.0, 1.0, 100.0).overhead_ms(rtt, rate)
