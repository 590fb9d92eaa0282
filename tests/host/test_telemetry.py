import queue
import subprocess
import sys
import threading
import time

import pytest

from specmeter.host import read_host
from specmeter.host.cpu_time import CpuTime, share
from specmeter.host.load import read_busy_processes
from specmeter.host.telemetry import TelemetrySampler
from specmeter.record import Telemetry

SPIN = "while True: sum(range(10000))"


def reading(busy: float, total: float, *, own: float = 0, reaped: float = 0, **engine: float) -> CpuTime:
    return CpuTime(busy, total, own, reaped, {int(pid[1:]): seconds for pid, seconds in engine.items()})


def test_own_and_engine_time_is_not_other_time() -> None:
    used = share(reading(10, 100, own=1, p7=4), reading(13, 104, own=1.5, p7=5.5))
    assert used.all_percent == pytest.approx(75)
    assert used.other_percent == pytest.approx(25)


def test_an_engine_that_ended_is_counted_to_its_last_tick() -> None:
    used = share(reading(10, 100, reaped=2, p7=4), reading(12, 104, reaped=7.5))
    assert used.other_percent == pytest.approx(100 * 0.5 / 4)


def test_what_an_engine_did_before_it_was_watched_is_not_taken_off() -> None:
    assert share(reading(10, 100), reading(12, 104, p7=50)).other_percent == pytest.approx(50)


def test_clocks_that_stand_still_or_disagree() -> None:
    assert share(reading(10, 100), reading(10, 100)).all_percent == 0
    assert share(reading(10, 100), reading(11, 104, own=3)).other_percent == 0


def test_samples_an_engine_until_it_ends() -> None:
    samples: queue.SimpleQueue[Telemetry] = queue.SimpleQueue()
    spinning = subprocess.Popen([sys.executable, "-c", SPIN])
    try:
        with TelemetrySampler(samples.put, interval_s=0.1, clock=lambda: 42.0) as sampler:
            sampler.watch([spinning.pid])
            time.sleep(0.65)
            spinning.kill()
            spinning.wait()
            time.sleep(0.25)
    finally:
        spinning.kill()
        spinning.wait()
    records = [samples.get() for _ in range(samples.qsize())]
    assert sampler.failures == 0
    assert len(records) >= 5
    assert all(record.at == 42.0 and 0 <= record.other_cpu_percent <= record.cpu_percent <= 100 for record in records)
    assert records[0].engine_rss_bytes
    assert records[-1].engine_rss_bytes is None
    assert records[0].memory_available_bytes > 0


def test_a_short_run_gets_its_one_sample_at_the_end() -> None:
    records: list[Telemetry] = []
    with TelemetrySampler(records.append, interval_s=0.5):
        time.sleep(0.2)
    assert len(records) == 1
    assert not any(thread.name == "telemetry" for thread in threading.enumerate())


def test_nothing_reaches_the_measurement() -> None:
    def refuse(_: Telemetry) -> None:
        raise RuntimeError("disk full")

    with TelemetrySampler(refuse, pids=[2**22 + 1], interval_s=0.05) as sampler:
        time.sleep(0.2)
    assert sampler.failures >= 2


def test_broken_sensors_only_count_as_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise OSError("no sensors")

    monkeypatch.setattr("specmeter.host.telemetry.GpuSensors", broken)
    records: list[Telemetry] = []
    with TelemetrySampler(records.append, interval_s=0.05) as sampler:
        sampler.watch([1])
        time.sleep(0.1)
    assert records == []
    assert sampler.failures == 1


def test_a_busy_process_is_named() -> None:
    spinning = subprocess.Popen([sys.executable, "-c", SPIN])
    try:
        found = read_busy_processes(0.4)
    finally:
        spinning.kill()
        spinning.wait()
    assert any("python" in name for name in found)


def test_the_host_of_these_tests() -> None:
    host = read_host(load_sample_s=0.01)
    assert host.cpu
    assert host.cpu != "unknown"
    assert 0 < (host.usable_cores or 0) <= host.logical_cores
    assert 0 < host.memory_available_bytes <= host.memory_bytes
    assert len(host.hostname_sha256) == 64
