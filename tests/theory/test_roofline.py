"""Bytes and times of forwards, the price of verification, ceilings of devices."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specmeter.errors import UsageError
from specmeter.theory import roofline
from specmeter.theory.bounds import traffic
from specmeter.theory.catalogue.devices import find
from specmeter.theory.catalogue.models import model
from specmeter.theory.roofline import Footprint, MachineRates, expected_union

moderate = settings(max_examples=60, deadline=None)
DENSE = Footprint(always_bytes=4e9, flops_per_token=8e9)
SPARSE = Footprint(always_bytes=1e9, expert_bytes=1e7, experts=64, used=4, lookup_bytes=4096, flops_per_token=2e9)
PLAIN = MachineRates(bandwidth_bytes_per_s=100e9)

footprints = st.builds(
    lambda always, expert, total, share, kv: Footprint(
        always_bytes=always,
        expert_bytes=expert,
        experts=total,
        used=max(1, round(share * total)),
        kv_bytes_per_position=kv,
        flops_per_token=2 * always,
    ),
    st.floats(1e6, 1e11),
    st.floats(1e3, 1e9),
    st.integers(1, 512),
    st.floats(0, 1),
    st.floats(0, 1e6),
)
machines = st.builds(
    MachineRates,
    bandwidth_bytes_per_s=st.floats(1e9, 1e13),
    flops_per_s=st.none() | st.floats(1e11, 1e16),
    overhead_ms=st.floats(0, 20),
    batch_ms=st.floats(0, 20),
    row_ms=st.floats(0, 5),
)


def test_uniform_verification_of_35b_from_its_shape() -> None:
    footprint = model("Qwen3.6-35B-A3B").footprint("F16")
    # Without recurrent state, which the rule of thumb leaves out.
    weights = Footprint(footprint.always_bytes, footprint.expert_bytes, footprint.experts, footprint.used)
    v = roofline.verification(weights, PLAIN, np.array([3, 7, 15]))
    assert v == pytest.approx([1.96, 3.11, 5.02], abs=0.01)
    measured = roofline.verification(weights, PLAIN, np.array([3, 7, 15]), union=[22, 36, 56])
    assert measured == pytest.approx([1.60, 2.20, 3.05], abs=0.01)


def test_bytes_add_up() -> None:
    one = Footprint(
        always_bytes=100, expert_bytes=10, experts=8, used=2, lookup_bytes=3, kv_bytes_per_position=0.5, state_bytes=7
    )
    assert one.bytes_per_token == 100 + 20 + 3
    assert roofline.forward_bytes(one, 1) == pytest.approx(100 + 20 + 3 + 7)
    assert roofline.forward_bytes(one, 4, union=5, context=200) == pytest.approx(100 + 50 + 12 + 100 + 7)
    uniform = roofline.forward_bytes(one, np.array([1, 4]))
    assert uniform == pytest.approx([130, 100 + 10 * expected_union(4, 8, 2) + 12 + 7])


def test_time_takes_the_longer_of_reading_and_computing() -> None:
    machine = MachineRates(100e9, flops_per_s=1e12, overhead_ms=1, batch_ms=2, row_ms=0.1)
    assert roofline.forward_ms(DENSE, machine, 1) == pytest.approx(1 + 0.1 + 40)
    assert roofline.forward_ms(DENSE, machine, 4) == pytest.approx(1 + 2 + 0.4 + 40)
    assert roofline.forward_ms(DENSE, machine, 10) == pytest.approx(1 + 2 + 1 + 80)


def test_dense_verification_is_free_while_memory_decides() -> None:
    assert roofline.verification(DENSE, PLAIN, 15) == 1


def test_launch_bound_verification_of_two_tokens() -> None:
    # A model of 18 ms per token where only 2 ms are reading: whatever the experts, the other kernels decide.
    small = Footprint(always_bytes=1e8, expert_bytes=2.5e7, experts=64, used=4)
    for batch_ms, expected in [(13.3, 1.74), (28.8, 2.6)]:
        machine = MachineRates(100e9, overhead_ms=16, batch_ms=batch_ms)
        alike = roofline.verification(small, machine, 1, union=4)
        different = roofline.verification(small, machine, 1, union=8)
        assert alike == pytest.approx(expected, abs=0.01)
        assert different - alike < 0.06


@moderate
@given(footprints, machines, st.integers(1, 64), st.integers(0, 4096))
def test_verification_costs_at_least_one_and_more_with_length(
    footprint: Footprint, machine: MachineRates, gamma: int, context: int
) -> None:
    v = roofline.verification(footprint, machine, np.array([0, gamma, gamma + 1]), context=context)
    assert v[0] == pytest.approx(1)
    assert v[0] <= v[1] * (1 + 1e-9)
    assert v[1] <= v[2] * (1 + 1e-9)
    most = gamma + 2 + machine.batch_ms / roofline.forward_ms(footprint, machine, 1, context=context)
    assert v[2] <= most * (1 + 1e-9)


def test_ceilings_of_devices() -> None:
    (ultra,) = find("M2 Ultra")
    bytes_per_token = model("Qwen3.5-35B-A3B").footprint("Q4_K_M").bytes_per_token
    ceiling = ultra.peak_bytes_per_s / bytes_per_token
    assert 400 < ceiling < 500
    assert traffic(bytes_per_token, ceiling) == pytest.approx(ultra.peak_bytes_per_s)
    # A reading of all weights for each token would limit it to less than the 55.3 tok/s that were measured.
    assert 800e9 / 20.6e9 < 55.3 < ceiling


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: Footprint(always_bytes=0), "always_bytes"),
        (lambda: Footprint(always_bytes=1, expert_bytes=-1), "expert_bytes"),
        (lambda: Footprint(always_bytes=1, expert_bytes=1, experts=2, used=3), "used"),
        (lambda: Footprint(always_bytes=1, expert_bytes=1), "experts"),
        (lambda: MachineRates(0), "bandwidth"),
        (lambda: MachineRates(1e9, flops_per_s=math.nan), "flops_per_s"),
        (lambda: MachineRates(1e9, overhead_ms=-1), "overhead_ms"),
        (lambda: roofline.forward_bytes(DENSE, 0), "tokens"),
        (lambda: roofline.forward_bytes(DENSE, 2, union=3), "union"),
        (lambda: roofline.forward_bytes(SPARSE, 2, union=3), "union"),
        (lambda: roofline.forward_bytes(SPARSE, 2, union=65), "union"),
        (lambda: roofline.forward_bytes(SPARSE, 2, context=-1), "context"),
        (lambda: roofline.verification(DENSE, PLAIN, -1), "gamma"),
    ],
)
def test_what_cannot_be_is_refused(call: Callable[[], object], named: str) -> None:
    with pytest.raises(UsageError, match=named) as caught:
        call()
    assert caught.value.fix
