import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from programs import write_program
from specmeter.host import energy
from specmeter.host.energy import (
    Counter,
    EnergyMeter,
    EnergySources,
    Intervals,
    PowerMetrics,
    Sensor,
    blocks,
    find_sources,
    rapl_counters,
)

sys.path.insert(0, str(Path(__file__).parent))

from test_host_gpu import FakeError, fake_nvml

RANGE_UJ = 262_143_328_850
"""What Intel's packages of today print."""


def zone(
    root: Path, folder: str, name: str, energy_uj: int | None = 1_000_000, range_uj: int | None = RANGE_UJ
) -> Path:
    """A zone of Linux's power capping; without `energy_uj` its counter cannot be read."""
    path = root / "sys/class/powercap" / folder
    path.mkdir(parents=True)
    (path / "name").write_text(f"{name}\n")
    if energy_uj is None:
        (path / "energy_uj").mkdir()  # root reads any file: a folder is what not even root can read
    else:
        (path / "energy_uj").write_text(f"{energy_uj}\n")
    if range_uj is not None:
        (path / "max_energy_range_uj").write_text(f"{range_uj}\n")
    return path / "energy_uj"


def two_packages(root: Path) -> None:
    """As a server with two processors lists them: folders of all levels beside each other."""
    for package in (0, 1):
        zone(root, f"intel-rapl:{package}", f"package-{package}")
        zone(root, f"intel-rapl:{package}:0", "core")
        zone(root, f"intel-rapl:{package}:1", "dram")
    zone(root, "intel-rapl-mmio:0", "package-0")
    zone(root, "intel-rapl:2", "psys")


def test_packages_and_their_memory_count_and_nothing_twice(tmp_path: Path) -> None:
    two_packages(tmp_path)
    counters, closed = rapl_counters(tmp_path)
    assert [it.name for it in counters] == ["package-0", "dram-0", "package-1", "dram-1"]
    assert closed == ()


def test_closed_counters_say_what_opens_them(tmp_path: Path) -> None:
    zone(tmp_path, "intel-rapl:0", "package-0", energy_uj=None)
    counters, closed = rapl_counters(tmp_path)
    assert counters == ()
    assert closed == (
        "the processor's energy counter is readable by root alone: "
        "sudo chmod a+r /sys/class/powercap/intel-rapl:0/energy_uj (until the next boot)",
    )


@pytest.mark.skipif("sys.platform != 'linux'")
def test_a_machine_without_counters_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with EnergyMeter(find_sources(tmp_path)) as meter:
        assert meter.now() is None
        assert meter.between(None, None) is None
        facts = meter.at_rest()
    assert (facts.sources, facts.idle_w) == ((), None)
    assert "/sys/class/powercap" in facts.unread[0]


# --- counters --------------------------------------------------------------------------------------------------------


def counter(values: list[int | None], *, full: int | None = None, prompt: bool = True) -> tuple[Counter, float]:
    """A counter of microjoules that says these values one after the other, a second apart."""
    said: Iterator[int | None] = iter(values)
    made = Counter("package-0", lambda: next(said), 1e-6, full=full, prompt=prompt)
    now = time.monotonic()
    for place in range(len(values)):
        made.poll(now + place)
    return made, now + len(values) - 1


def test_a_counter_that_begins_again_loses_nothing() -> None:
    made, now = counter([RANGE_UJ - 5_000_000, RANGE_UJ - 1_000_000, 7_000_000], full=RANGE_UJ)
    joules, age, blind = made.reading(now)
    assert joules == pytest.approx(12)
    assert (age, blind) == (0, 0)


def test_a_counter_that_was_reset_is_blind_for_that_time() -> None:
    made, now = counter([50_000_000, 60_000_000, 1_000_000, 4_000_000])
    assert made.reading(now)[:1] == (pytest.approx(13),)
    assert made.reading(now).blind_s == pytest.approx(1)


def test_a_counter_unread_for_more_than_a_round_is_blind() -> None:
    said = iter([0, 5_000_000])
    made = Counter("package-0", lambda: next(said), 1e-6, full=1_000_000_000)  # 1000 J: half a second at 2 kW
    now = time.monotonic()
    made.poll(now)
    made.poll(now + 60)
    assert made.reading(now + 60).joules == 0
    assert made.reading(now + 60).blind_s == pytest.approx(60)


def test_a_counter_that_stops_answering_grows_old() -> None:
    made, now = counter([1_000_000, 2_000_000, None, None])
    assert made.reading(now).joules == pytest.approx(1)
    assert made.reading(now).age_s == pytest.approx(2)


def test_a_slow_counter_is_as_old_as_its_last_change() -> None:
    made, now = counter([1_000_000, 2_000_000, 2_000_000], prompt=False)
    assert made.reading(now).age_s == pytest.approx(1)
    quick, now = counter([1_000_000, 2_000_000, 2_000_000], prompt=True)
    assert quick.reading(now).age_s == 0


# --- sensors ---------------------------------------------------------------------------------------------------------


def sensor(samples: list[tuple[float, float | None]]) -> tuple[Sensor, float]:
    said = iter([watts for _, watts in samples])
    made = Sensor("gpu-0", lambda: next(said))
    start = time.monotonic()
    for at, _ in samples:
        made.poll(start + at)
    return made, start


def test_power_is_integrated_and_held_after_the_last_sample() -> None:
    made, start = sensor([(0, 100), (0.5, 200), (1.0, 200)])
    joules, age, blind = made.reading(start + 1.25)
    assert joules == pytest.approx(75 + 100 + 50)
    assert (age, blind) == (pytest.approx(0.25), 0)


def test_a_gap_between_samples_is_blind() -> None:
    made, start = sensor([(0, 100), (0.5, None), (1.0, None), (2.5, 100)])
    assert made.reading(start + 2.5).joules == pytest.approx(250)
    assert made.reading(start + 2.5).blind_s == pytest.approx(2.5)


def test_a_sensor_that_never_answers_is_unseen_all_the_time() -> None:
    made, start = sensor([(0, None), (1, None)])
    assert made.reading(start + 2).age_s == pytest.approx(2, abs=0.1)


# --- meter -----------------------------------------------------------------------------------------------------------


def test_energy_between_two_moments_of_a_counter_that_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that counts like a package at 1000 W, which begins again every 0.6 s, read by the real code."""
    file = zone(tmp_path, "intel-rapl:0", "package-0", range_uj=600_000_000)
    start, stop = time.monotonic(), threading.Event()

    def count() -> None:
        while not stop.wait(0.005):
            value = int(1e9 * (time.monotonic() - start)) % 600_000_000
            part = file.with_suffix(".new")
            part.write_text(str(value))
            part.replace(file)

    thread = threading.Thread(target=count)
    thread.start()
    try:
        counters, _ = rapl_counters(tmp_path)
        with EnergyMeter(EnergySources(counters)) as meter:
            before = meter.now()
            time.sleep(1.5)
            spent = meter.between(before, meter.now())
            monkeypatch.setattr(energy, "IDLE_S", 0.3)
            rest = meter.at_rest()
    finally:
        stop.set()
        thread.join()
    assert spent is not None
    assert spent.joules["package-0"] == pytest.approx(1000 * spent.seconds, rel=0.1)
    assert spent.unseen_s < 0.1 * spent.seconds
    assert rest.idle_w == pytest.approx(1000, rel=0.2)


def test_what_is_unseen_is_that_of_the_worst_source() -> None:
    class Fixed:
        prompt = False

        def __init__(self, name: str, *readings: energy.Reading) -> None:
            self.name, self._readings = name, iter(readings)

        def poll(self, now: float) -> None: ...

        def reading(self, now: float) -> energy.Reading:
            assert now
            return next(self._readings)

    good = Fixed("package-0", energy.Reading(1, 0, 0), energy.Reading(5, 0, 0))
    slow = Fixed("gpu-0", energy.Reading(10, 0.05, 1), energy.Reading(40, 0.06, 1.5))
    meter = EnergyMeter(EnergySources((good, slow)))
    before = meter.now()
    time.sleep(0.7)
    spent = meter.between(before, meter.now())
    assert spent is not None
    assert dict(spent.joules) == {"package-0": 4, "gpu-0": 30}
    assert spent.unseen_s == pytest.approx(0.05 + 0.06 + 0.5)


def test_a_driver_that_fails_does_not_reach_the_measurement() -> None:
    def fails() -> int:
        raise RuntimeError("driver is gone")

    with EnergyMeter(EnergySources((Counter("gpu-0", fails, 1e-3),))) as meter:
        before = meter.now()
        time.sleep(0.05)
        spent = meter.between(before, meter.now())
    assert spent is not None
    assert spent.unseen_s == pytest.approx(spent.seconds)


# --- GPUs ------------------------------------------------------------------------------------------------------------


@pytest.mark.skipif("sys.platform != 'linux'")
def test_gpus_tell_by_counter_or_by_power(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def total_energy(handle: str) -> int:
        if handle != "gpu0":
            raise FakeError("Not Supported")
        return 123_456

    power = {"nvmlDeviceGetPowerUsage": lambda _: 50_000}
    fake = fake_nvml(nvmlDeviceGetTotalEnergyConsumption=total_energy, **power)
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    found = find_sources(tmp_path).found
    assert [(it.name, type(it).__name__) for it in found] == [("gpu-0", "Counter"), ("gpu-1", "Sensor")]
    start = time.monotonic()
    found[1].poll(start)
    found[1].poll(start + 0.5)
    assert found[1].reading(start + 0.5).joules == pytest.approx(25)


NVML = """
typedef void *device;
static unsigned long long spent_mj = 5000;
int nvmlInitWithFlags(unsigned int flags) { return 0; }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int code) { return "Not Supported"; }
int nvmlDeviceGetCount_v2(unsigned int *count) { *count = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned int index, device *found) { *found = (device)(long)(index + 1); return 0; }
int nvmlDeviceGetTotalEnergyConsumption(device of, unsigned long long *mj) {
  if (of != (device)1) return 3;
  *mj = spent_mj += 1500;
  return 0;
}
int nvmlDeviceGetPowerUsage(device of, unsigned int *mw) { *mw = 80000; return 0; }
"""
"""Two GPUs: one that counts millijoules, 1.5 J more at each reading, and one that tells its power only."""
ASK = """
import time
from specmeter.host.energy import find_sources
counter, sensor = find_sources().found
for source in (counter, sensor):
    source.poll(0.0)
    source.poll(0.5)
print(counter.name, round(counter.reading(0.5).joules, 3), sensor.name, round(sensor.reading(0.5).joules, 3))
"""


@pytest.mark.skipif("sys.platform != 'linux'")
def test_the_driver_is_asked_through_its_own_binding(tmp_path: Path) -> None:
    """nvidia-ml-py as it is, on a library that answers as the driver's does."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    (tmp_path / "nvml.c").write_text(NVML)
    library = tmp_path / "libnvidia-ml.so.1"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, tmp_path / "nvml.c"], check=True)
    environment = os.environ | {"LD_LIBRARY_PATH": str(tmp_path)}
    asked = subprocess.run([sys.executable, "-c", ASK], env=environment, capture_output=True, text=True, check=False)
    assert asked.stdout.split() == ["gpu-0", "1.5", "gpu-1", "40.0"], asked.stderr


# --- powermetrics ----------------------------------------------------------------------------------------------------

APPLE = """Machine model: Mac14,14
*** Sampled system activity (Sat Nov 21 10:00:00 2026 +0000) (203.51ms elapsed) ***

**** Processor usage ****

E-Cluster Online: 100%
CPU Power: 12034 mW
GPU Power: 40211 mW
ANE Power: 0 mW
Combined Power (CPU + GPU + ANE): 52245 mW

*** Sampled system activity (Sat Nov 21 10:00:00 2026 +0000) (200.00ms elapsed) ***
Combined Power (CPU + GPU + ANE): 10000 mW
"""
INTEL = """*** Sampled system activity (Sat Nov 21 10:00:00 2026 +0000) (500.00ms elapsed) ***
Intel energy model derived package power (CPUs+GT+SA): 8.40W
"""


def test_intervals_of_powermetrics() -> None:
    assert list(blocks(APPLE.splitlines())) == [(0.20351, pytest.approx(10.632, abs=1e-3)), (0.2, pytest.approx(2.0))]
    assert list(blocks(INTEL.splitlines())) == [(0.5, pytest.approx(4.2))]
    assert list(blocks(["Combined Power (CPU + GPU + ANE): 9 mW"])) == []  # of an interval that was not told


@pytest.mark.skipif("sys.platform == 'win32'")
def test_powermetrics_is_read_while_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand-ins for sudo and powermetrics, the real code between them."""
    (tmp_path / "block").write_text(APPLE)
    write_program(tmp_path / "sudo", '#!/bin/sh\nshift\nexec "$@"\n')
    write_program(
        tmp_path / "powermetrics",
        f'#!/bin/sh\necho "$@" > {tmp_path}/asked\nwhile cat {tmp_path}/block; do sleep 0.05; done\n',
    )
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    chip = Intervals("chip")
    running = PowerMetrics(chip.add)
    assert running.wait(60)
    time.sleep(0.2)
    reading = chip.reading(time.monotonic())
    running.close()
    assert reading.joules > 12
    assert "-i 200 --samplers cpu_power,gpu_power" in (tmp_path / "asked").read_text()
    assert running._process.poll() is not None


@pytest.mark.skipif("sys.platform == 'win32'")
def test_a_mac_that_asks_for_a_password_says_what_allows_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_program(tmp_path / "sudo", "#!/bin/sh\necho 'sudo: a password is required' >&2\nexit 1\n")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(energy, "_FIRST_BLOCK_S", 200)
    monkeypatch.setattr(sys, "platform", "darwin")
    started = time.monotonic()
    sources = find_sources()
    assert time.monotonic() - started < 60  # it is refused at once
    assert sources.found == ()
    assert "NOPASSWD: /usr/bin/powermetrics" in sources.unread[0]


def test_doctor_says_whether_energy_can_be_read() -> None:
    asked = subprocess.run([sys.executable, "-m", "specmeter", "doctor"], capture_output=True, text=True, check=False)
    assert "energy" in asked.stdout
