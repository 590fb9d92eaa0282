"""The catalogue of devices: sane entries, and names that lead to one device, several, or none, never to a wrong one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specmeter.errors import UsageError
from specmeter.theory.catalogue.devices import devices, find, named, peak


def test_every_entry_is_sane_and_has_a_source() -> None:
    assert len(devices()) >= 40
    names = [device.name for device in devices()]
    assert len(set(names)) == len(names)
    for device in devices():
        assert 20 < device.bandwidth_gb_s <= 10_000, device.name
        assert device.source.strip(), device.name
        upper = device.upper_gb_s or device.bandwidth_gb_s
        assert device.bandwidth_gb_s <= upper <= 1.03 * device.bandwidth_gb_s, device.name
        assert device in find(device.name), device.name
        assert all(device in find(alias) for alias in device.aliases), device.name


@pytest.mark.parametrize(
    ("spelled", "name"),
    [
        ("RTX 3090", "RTX 3090"),
        ("rtx3090", "RTX 3090"),
        ("NVIDIA GeForce RTX 3090", "RTX 3090"),
        ("NVIDIA GeForce RTX 3090 24 GB", "RTX 3090"),
        ("Apple M2 Ultra", "M2 Ultra"),
        ("M2Ultra_192GB", "M2 Ultra"),
        ("M2 Ultra (192 GB)", "M2 Ultra"),
        ("m1max_32gb", "M1 Max"),
        ("NVIDIA A100-SXM4-80GB", "A100 80GB SXM"),
        ("NVIDIA A100-PCIE-40GB", "A100 40GB"),
        ("NVIDIA H100 80GB HBM3", "H100 SXM"),
        ("NVIDIA H100 PCIe", "H100 PCIe"),
        ("NVIDIA RTX 6000 Ada Generation", "RTX 6000 Ada"),
        ("AMD Instinct MI300X", "MI300X"),
        ("AMD Ryzen AI Max+ 395", "Strix Halo"),
        ("RTX 3090 Ti", "RTX 3090 Ti"),
    ],
)
def test_spellings_lead_to_their_device(spelled: str, name: str) -> None:
    assert [device.name for device in find(spelled)] == [name]


@pytest.mark.parametrize(
    "spelled",
    [
        "",
        "GPU",
        "RTX 3090 Super",
        "RTX 4090 Laptop GPU",
        "RTX 6000",
        "2x RTX 3090",
        "Tesla M4",
        "Intel Core m3",
        "M6 Ultra",
        "H1000",
        "x" * 1000,
    ],
)
def test_what_is_no_known_device_leads_nowhere(spelled: str) -> None:
    assert find(spelled) == ()
    assert peak(spelled) is None


def test_ambiguous_names_give_all_candidates() -> None:
    assert {device.name for device in find("A100")} == {"A100 40GB", "A100 80GB SXM", "A100 80GB PCIe"}
    both = peak("Apple M3 Max")
    assert both is not None
    assert (both.low, both.high) == (307.2e9, 409.6e9)


def test_several_devices_add_up() -> None:
    one, two = peak("RTX 3090"), peak("NVIDIA GeForce RTX 3090, NVIDIA GeForce RTX 3090")
    assert one is not None
    assert two is not None
    assert two.high == 2 * one.high
    assert peak("RTX 3090, something else") is None


@given(st.text(max_size=60))
def test_no_name_is_too_strange(name: str) -> None:
    peak(name)


def test_unknown_names_are_refused_with_the_nearest() -> None:
    assert named("NVIDIA GeForce RTX 3090") == find("RTX 3090")
    assert len(named("M3 Max")) == 2
    with pytest.raises(UsageError, match=r"(?s)'RTX 3091' is not in the catalogue.*RTX 3090"):
        named("RTX 3091")
    with pytest.raises(UsageError, match="is not in the catalogue"):
        named("")
