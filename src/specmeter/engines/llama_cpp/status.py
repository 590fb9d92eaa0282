"""Whether llama.cpp's servers can be used on this machine, what they compute on, and what would drive a GPU."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from specmeter.engines.llama_cpp.engine import EmbeddedEngine, NativeEngine
from specmeter.engines.llama_cpp.spec import is_gpu
from specmeter.engines.llama_cpp.tools import BINARY_VARIABLE, BUILD_COMMAND, Program, find_program
from specmeter.engines.registry import Device, EngineStatus
from specmeter.errors import SpecmeterError
from specmeter.record import EngineIdentity, Gpu, Host

# Name of a device begins with its backend; the vendors whose GPUs that backend drives.
_BACKEND_VENDORS: Mapping[str, tuple[str, ...]] = {
    "CUDA": ("NVIDIA",),
    "ROCm": ("AMD",),
    "HIP": ("AMD",),
    "MTL": ("Apple", "AMD", "Intel"),
    "Metal": ("Apple", "AMD", "Intel"),
    "SYCL": ("Intel",),
    "Vulkan": ("NVIDIA", "AMD", "Intel", "Qualcomm", "Apple", "unknown"),
}
_BUILD_FLAGS: Mapping[str, str] = {"NVIDIA": "--cuda", "AMD": "--hip", "Apple": "--metal"}
_USES: Mapping[Program, str] = {
    "llama-quantize": "K-quants",
    "llama-perplexity": "a second opinion on perplexity",
    "llama-bench": "a second opinion on rates",
    "ggml-rpc-server": "drafts on other machines",
}
"""Of llama.cpp's programs beside the server."""


def examine_embedded(host: Host) -> EngineStatus:
    """The wheel that comes with specmeter: does it work, and does it use all that this processor has?"""
    try:
        engine = EmbeddedEngine()
        return status_of_wheel(engine.identify(), engine.devices, host)
    except SpecmeterError as error:
        return EngineStatus(
            "missing",
            error.message,
            "reinstall specmeter's dependencies; the wheel needs a processor with AVX2 (x86) or ARMv8: on an older one "
            f"build llama-server (`{BUILD_COMMAND} --tuned`) and use engine.kind: native",
        )


def status_of_wheel(identity: EngineIdentity, devices: tuple[Device, ...], host: Host) -> EngineStatus:
    """The same of a wheel that works."""
    unused = [flag for flag in host.cpu_flags if flag not in parse_features(identity.system_info)]
    if not unused or any(is_gpu(device.name) for device in devices):
        return EngineStatus("ok", identity.version, devices=devices, drives=drives(devices))
    cost = (
        "it decodes about 8 % slower than a native build (measured on an AVX-512 machine)"
        if "AVX512" in unused
        else "a native build may be faster"
    )
    return EngineStatus(
        "limited",
        f"{identity.version}, built without {' '.join(unused)} of this processor: {cost}",
        f"fine for comparisons within a run; for the machine's full speed `{BUILD_COMMAND} --tuned`, "
        "then engine.kind: native",
        devices,
        drives(devices),
    )


def examine_native(_: Host) -> EngineStatus:
    """A `llama-server` binary, built by specmeter or the user's, and the programs that go with it."""
    try:
        engine = NativeEngine()
        identity = engine.identify()
        devices = engine.devices
    except SpecmeterError as error:
        return EngineStatus(
            "missing",
            error.message,
            f"only needed for {', '.join(_USES.values())}, and for GPUs that the wheel does not drive: "
            f"`{BUILD_COMMAND}` makes all of them; or put llama-server on PATH, or set {BINARY_VARIABLE}",
        )
    programs: dict[Program, Path | None] = {name: find_program(name, beside=Path(identity.binary)) for name in _USES}
    there = ", ".join(name for name, path in programs.items() if path is not None)
    told = f"llama-server {identity.version} ({identity.binary})" + (f", with {there}" if there else "")
    lacking = [f"{name} ({_USES[name]})" for name, path in programs.items() if path is None]
    fix = f"`{BUILD_COMMAND}` builds what is missing: {', '.join(lacking)}" if lacking else ""
    return EngineStatus("ok", told, fix, devices, drives(devices))


def drives(devices: Iterable[Device]) -> frozenset[str]:
    """Vendors of the GPUs among these."""
    return frozenset(
        vendor
        for device in devices
        for backend, vendors in _BACKEND_VENDORS.items()
        if is_gpu(device.name) and device.name.startswith(backend)
        for vendor in vendors
    )


def gpu_fix(gpu: Gpu) -> str:
    """How llama.cpp would use a GPU that no engine here can use."""
    if gpu.vendor == "NVIDIA" and gpu.driver is None:
        return "install NVIDIA's driver"
    if gpu.vendor == "Apple":
        return "install with a Python built for arm64, not one that runs under Rosetta: that wheel has Metal"
    wheel = {"NVIDIA": "CUDA", "AMD": "ROCm (Linux) or Vulkan"}.get(gpu.vendor, "Vulkan")
    return (
        f"install the {wheel} wheel of xllamacpp in the version that is installed now (section Installation of its "
        f"README), or build a llama-server for it (`{BUILD_COMMAND} {_BUILD_FLAGS.get(gpu.vendor, '--vulkan')}`)"
    )


def parse_features(system_info: str) -> frozenset[str]:
    """Names that are on in llama.cpp's system line: `CPU : AVX = 1 | AVX2 = 1 | LLAMAFILE = 1 |`."""
    return frozenset(re.findall(r"(\w+) = 1\b", system_info))
