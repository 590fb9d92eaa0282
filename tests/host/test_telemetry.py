import queue
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from specmeter.host.telemetry import CpuSensors, CpuTime, TelemetrySampler, share
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

    monkeypatch.setattr("specmeter.host.telemetry.Nvml", broken)
    records: list[Telemetry] = []
    with TelemetrySampler(records.append, interval_s=0.05) as sampler:
        sampler.watch([1])
        time.sleep(0.1)
    assert records == []
    assert sampler.failures == 1


def test_clock_and_temperature_come_from_the_right_files(tmp_path: Path) -> None:
    files = {f"sys/devices/system/cpu/cpu{n}/cpufreq/scaling_cur_freq": str(1_000_000 + n) for n in range(32)}
    files |= {
        "sys/class/hwmon/hwmon0/name": "nvme",
        "sys/class/hwmon/hwmon0/temp1_input": "30000",
        "sys/class/hwmon/hwmon1/name": "coretemp",
        "sys/class/hwmon/hwmon1/temp2_input": "61000",
        "sys/class/hwmon/hwmon1/temp2_label": "Core 0",
        "sys/class/hwmon/hwmon1/temp3_input": "64500",
        "sys/class/hwmon/hwmon1/temp3_label": "Package id 0",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    sensors = CpuSensors(tmp_path)
    # Cores 0, 4, 8 ... 28: eight of 32.
    assert sensors.mhz() == 1000.028
    assert sensors.celsius() == 64.5


def test_missing_sensors_are_none(tmp_path: Path) -> None:
    sensors = CpuSensors(tmp_path)
    assert sensors.mhz() is None
    assert sensors.celsius() is None
