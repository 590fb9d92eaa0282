import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from specmeter.host.gpus import Nvml, cuda_version, find_cards, parse_system_profiler, read_gpus, throttle_names

linux = pytest.mark.skipif("sys.platform != 'linux'")


class FakeError(Exception):
    pass


def fake_nvml(**changes: Any) -> ModuleType:
    """NVML with two GPUs, the second of which can tell little."""

    def only_first(value: Any) -> Any:
        def ask(handle: str, *_: Any) -> Any:
            if handle != "gpu0":
                raise FakeError("Not Supported")
            return value

        return ask

    module = ModuleType("pynvml")
    functions: dict[str, Any] = {
        "NVMLError": FakeError,
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlDeviceGetCount": lambda: 2,
        "nvmlDeviceGetHandleByIndex": lambda index: f"gpu{index}",
        "nvmlSystemGetDriverVersion": lambda: b"570.86.15",
        "nvmlSystemGetCudaDriverVersion_v2": lambda: 12080,
        "nvmlDeviceGetName": lambda handle: {"gpu0": "NVIDIA H200", "gpu1": "NVIDIA GB10"}[handle],
        "nvmlDeviceGetMemoryInfo": only_first(SimpleNamespace(total=150_754_820_096, used=1_000_000)),
        "nvmlDeviceGetEnforcedPowerLimit": only_first(700_000),
        "nvmlDeviceGetUtilizationRates": only_first(SimpleNamespace(gpu=87, memory=40)),
        "nvmlDeviceGetClockInfo": only_first(1980),
        "nvmlDeviceGetPowerUsage": only_first(412_500),
        "nvmlDeviceGetTemperature": only_first(61),
        "nvmlDeviceGetCurrentClocksThrottleReasons": only_first(0x1 | 0x4 | 0x40),
    }
    for name, value in (functions | changes).items():
        setattr(module, name, value)
    return module


def test_nvml_tells_what_it_can_and_none_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml())
    nvml = Nvml()
    first, second = nvml.gpus()
    assert (first.name, first.driver, first.runtime) == ("NVIDIA H200", "570.86.15", "CUDA 12.8")
    assert (first.memory_bytes, first.power_limit_w) == (150_754_820_096, 700.0)
    assert (second.index, second.memory_bytes, second.power_limit_w) == (1, None, None)
    busy, silent = nvml.samples()
    assert (busy.utilization_percent, busy.power_w, busy.sm_mhz, busy.celsius) == (87.0, 412.5, 1980, 61)
    # The old function answers where the new one is missing; idleness is not throttling.
    assert busy.throttle_reasons == ("sw_power_cap", "hw_thermal_slowdown")
    assert silent.model_dump(exclude_defaults=True) == {"index": 1}
    nvml.close()
    nvml.close()
    assert nvml.samples() == ()


def test_no_driver_means_no_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_driver() -> None:
        raise FakeError("NVML Shared Library Not Found")

    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml(nvmlInit=no_driver))
    nvml = Nvml()
    assert nvml.gpus() == nvml.samples() == ()


def test_bits_and_versions() -> None:
    assert throttle_names(0) == throttle_names(1) == ()
    assert throttle_names(0x1FE)[-1] == "display_clocks"
    assert cuda_version(13020) == "CUDA 13.2"
    assert cuda_version(None) is None


def put_card(root: Path, number: int, vendor: str, **files: str) -> None:
    device = root / f"sys/class/drm/card{number}/device"
    device.mkdir(parents=True)
    (device / "vendor").write_text(vendor + "\n")
    for name, text in files.items():
        path = device / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")


@linux
def test_cards_that_linux_lists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    put_card(tmp_path, 0, "0x8086", device="0xa780")
    put_card(tmp_path, 2, "0x1a03")  # the display chip of a server's management controller
    put_card(tmp_path, 10, "0x1002", device="0x744c", mem_info_vram_total="25753026560")
    (tmp_path / "sys/class/drm/card10-DP-1").mkdir()
    intel, amd = read_gpus(tmp_path)
    assert (intel.index, intel.vendor, intel.memory_bytes) == (0, "Intel", None)
    assert (amd.index, amd.name, amd.memory_bytes) == (1, "AMD GPU (PCI device 0x744c)", 25753026560)


@linux
def test_an_nvidia_card_is_not_told_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_card(tmp_path, 0, "0x10de", device="0x2335")
    monkeypatch.setitem(sys.modules, "pynvml", None)
    (without_driver,) = read_gpus(tmp_path)
    assert (without_driver.vendor, without_driver.driver) == ("NVIDIA", None)
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml())
    assert [gpu.name for gpu in read_gpus(tmp_path)] == ["NVIDIA H200", "NVIDIA GB10"]
    assert find_cards(tmp_path / "absent") == {}


def test_gpus_of_macs() -> None:
    apple = {"SPDisplaysDataType": [{"_name": "kHW_AppleM3ProItem", "sppci_model": "Apple M3 Pro"}]}
    (gpu,) = parse_system_profiler(json.dumps(apple))
    assert (gpu.name, gpu.vendor, gpu.runtime, gpu.memory_bytes) == ("Apple M3 Pro", "Apple", "Metal", None)
    two = {"SPDisplaysDataType": [{"_name": "Intel UHD Graphics 630"}, {"_name": "AMD Radeon Pro 5300M"}]}
    intel, amd = parse_system_profiler(json.dumps(two))
    assert (intel.vendor, amd.index, amd.vendor) == ("Intel", 1, "AMD")


@pytest.mark.parametrize("text", ["", "null", "[]", "{}", "[1, null]", '{"SPDisplaysDataType": 3}', "not json"])
def test_unknown_answers_give_no_gpus(text: str) -> None:
    assert parse_system_profiler(text) == ()
