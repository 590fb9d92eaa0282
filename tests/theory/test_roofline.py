"""Bytes and times of forwards, the price of verification, ceilings of devices."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from specmeter.errors import UsageError
from specmeter.theory import roofline
from specmeter.theory.bounds import traffic
from specmeter.theory.catalogue.devices import find
from specmeter.theory.catalogue.models import model
from specmeter.theory.roofline import Footprint, expected_union

DENSE = Footprint(always_bytes=4e9, flops_per_token=8e9)
SPARSE = Footprint(always_bytes=1e9, expert_bytes=1e7, experts=64, used=4, lookup_bytes=4096, flops_per_token=2e9)


def test_uniform_verification_of_35b_from_its_shape() -> None:
    footprint = model("Qwen3.6-35B-A3B").footprint("F16")
    # Without recurrent state, which the rule of thumb leaves out.
    weights = Footprint(footprint.always_bytes, footprint.expert_bytes, footprint.experts, footprint.used)
    one, tokens = roofline.forward_bytes(weights, 1), np.array([4, 8, 16])
    assert roofline.forward_bytes(weights, tokens) / one == pytest.approx([1.96, 3.11, 5.02], abs=0.01)
    measured = roofline.forward_bytes(weights, tokens, union=[22, 36, 56]) / one
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
        (lambda: roofline.forward_bytes(DENSE, 0), "tokens"),
        (lambda: roofline.forward_bytes(DENSE, 2, union=3), "union"),
        (lambda: roofline.forward_bytes(SPARSE, 2, union=3), "union"),
        (lambda: roofline.forward_bytes(SPARSE, 2, union=65), "union"),
        (lambda: roofline.forward_bytes(SPARSE, 2, context=-1), "context"),
    ],
)
def test_what_cannot_be_is_refused(call: Callable[[], object], named: str) -> None:
    with pytest.raises(UsageError, match=named) as caught:
        call()
    assert caught.value.fix
