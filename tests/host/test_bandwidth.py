"""Memory bandwidth: what is measured, from arrays of which size, and what is remembered of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from specmeter.errors import UsageError
from specmeter.host import bandwidth
from specmeter.host.bandwidth import (
    READERS,
    array_bytes,
    cache_bytes,
    measure_bandwidth,
    remember,
    remembered,
)
from specmeter.host.machine import read_host

MB = 10**6


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPECMETER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def small_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bandwidth, "array_bytes", lambda *_: 8 * MB)


@pytest.mark.parametrize("name", READERS)
def test_reductions_read_every_byte(name: str) -> None:
    """A byte that is changed anywhere changes the result, so none is passed over."""
    part = np.full(4096, 2**62 - 1, dtype=np.int64)
    part.view(np.uint8)[:] = 0x3F
    before = READERS[name](part)
    for place in (0, 1, 2047, 4095):
        changed = part.copy()
        changed[place] = 0x0000_0000_0000_0000 if name == "and of uint8" else 0x7F7F_7F7F_7F7F_7F7F
        assert READERS[name](changed) != before, place


@pytest.mark.usefixtures("small_arrays")
def test_a_measurement_carries_its_interval_and_its_best_pass() -> None:
    host = read_host(load_sample_s=0.01)
    measured = measure_bandwidth(host, 2, passes=8)
    assert (measured.threads, measured.array_bytes) == (2, 8 * MB)
    assert measured.reader in READERS
    for rate, best in ((measured.read, measured.read_best), (measured.copied, measured.copied_best)):
        assert rate.n == 8
        assert rate.unit == "GB/s"
        assert rate.low is not None
        assert rate.high is not None
        assert 0 < rate.low <= rate.point <= rate.high <= best
    assert measured.cached_read > 0


@pytest.mark.usefixtures("small_arrays")
def test_what_was_measured_is_remembered_for_this_machine_only(cache: Path) -> None:
    host = read_host(load_sample_s=0.01)
    assert remembered(host) is None
    measured = measure_bandwidth(host, 1, passes=2)
    path = remember(measured)
    assert path is not None
    assert cache in path.parents
    assert remembered(host) == measured
    assert remembered(host.model_copy(update={"cpu": "another"})) is None
    assert remembered(host.model_copy(update={"hostname_sha256": "0" * 64})) is None
    path.write_text('{"format": 1, "read": NaN}', encoding="utf-8")
    assert remembered(host) is None


def test_a_cache_that_cannot_be_written_to_is_no_error(cache: Path, small_arrays: None) -> None:  # noqa: ARG001
    cache.write_text("a file where the folder should be", encoding="utf-8")
    assert remember(measure_bandwidth(read_host(load_sample_s=0.01), 1, passes=1)) is None


@pytest.mark.usefixtures("small_arrays")
def test_memory_decides_only_where_caches_are_clearly_faster() -> None:
    host = read_host(load_sample_s=0.01)
    one = measure_bandwidth(host, 1, passes=1)
    rate = one.read.point
    assert one.model_copy(update={"cached_read": 4 * rate}).memory_bound
    assert not one.model_copy(update={"cached_read": 1.1 * rate}).memory_bound


@pytest.mark.parametrize(
    ("cache", "available", "expected"),
    [
        (32 * 2**20, 64 * 2**30, 2**29),
        (256 * 2**20, 64 * 2**30, 2**31),
        (2**30, 64 * 2**30, 2**32),
        (32 * 2**20, 2**30, 2**28),
        (None, 64 * 2**30, 2**30),
    ],
)
def test_arrays_are_larger_than_caches_and_leave_memory_free(cache: int | None, available: int, expected: int) -> None:
    assert array_bytes(cache, available) == expected


def test_too_little_memory_is_refused_with_the_numbers() -> None:
    with pytest.raises(UsageError, match=r"134.2 MB.* do not fit in half of the free 100.0 MB"):
        array_bytes(32 * 2**20, 100 * MB)


def test_caches_that_cores_share_count_once(tmp_path: Path) -> None:
    for cpu, shared in enumerate(("0-1", "0-1", "2-3", "2-3")):
        for index, (level, size) in enumerate((("1", "48K"), ("2", "1024K"), ("3", "32M"))):
            folder = tmp_path / f"sys/devices/system/cpu/cpu{cpu}/cache/index{index}"
            folder.mkdir(parents=True)
            (folder / "level").write_text(level)
            (folder / "size").write_text(size + "\n")
            (folder / "shared_cpu_list").write_text(shared if level == "3" else str(cpu))
    assert cache_bytes(tmp_path) == 2 * 32 * 2**20


def test_unreadable_caches_are_unknown(tmp_path: Path) -> None:
    folder = tmp_path / "sys/devices/system/cpu/cpu0/cache/index0"
    folder.mkdir(parents=True)
    (folder / "level").write_text("many")
    (folder / "size").write_text("99999999999999999999K")
    assert cache_bytes(tmp_path) is None
    assert cache_bytes(tmp_path / "nowhere") is None
