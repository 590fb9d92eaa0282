"""What this machine can measure, and what is missing: engines, devices, models, and conditions of the host."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from specmeter.engines.llama_cpp.tools import BINARY_VARIABLE, BUILD_COMMAND, Program, find_program
from specmeter.errors import SpecmeterError
from specmeter.laboratory.engine_status import EngineStatus, probe_embedded, probe_libllama, probe_native
from specmeter.record import Gpu, Host, PowerMeter
from specmeter.text import size

State = Literal["ok", "limited", "missing"]
Area = Literal["engines", "devices", "models", "host"]

_GIB = 2**30
# The bench models of the demo take about half of this.
_DISK_BYTES = 3 * _GIB
_MEMORY_BYTES = 4 * _GIB
_SWAP_BYTES = _GIB // 4
_NO_FIX = "cannot be changed from here; several blocks show whether it matters"
_SLOW_POLICIES = ("powersave", "conservative", "low power", "power saver")
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


@dataclass(frozen=True)
class Diagnosis:
    """One thing that was looked at. `fix` is empty where nothing is to be done."""

    area: Area
    name: str
    state: State
    detail: str
    fix: str = ""


def examine(host: Host) -> tuple[Diagnosis, ...]:
    """Everything, in the order in which it is read; starts the engines for a moment to ask what they are."""
    embedded, native = probe_embedded(), probe_native()
    return (
        diagnose_embedded(embedded, host),
        diagnose_native(native, native_programs(native)),
        diagnose_libllama(probe_libllama()),
        *diagnose_others(),
        *diagnose_devices([probe for probe in (embedded, native) if probe.works], host.gpus),
        *diagnose_models(),
        *diagnose_host(host),
    )


def can_measure(diagnoses: Iterable[Diagnosis]) -> bool:
    """Whether at least one engine is usable."""
    return any(diagnosis.area == "engines" and diagnosis.state != "missing" for diagnosis in diagnoses)


def diagnose_embedded(probe: EngineStatus, host: Host) -> Diagnosis:
    """The wheel that comes with specmeter: does it work, and does it use all that this processor has?"""
    if not probe.works:
        return Diagnosis(
            "engines",
            "embedded",
            "missing",
            probe.problem,
            "reinstall specmeter's dependencies; the wheel needs a processor with AVX2 (x86) or ARMv8: on an older one "
            f"build llama-server (`{BUILD_COMMAND} --tuned`) and use engine.kind: native",
        )
    unused = [flag for flag in host.cpu_flags if flag not in probe.features]
    if unused and not probe.gpu_devices:
        cost = (
            "it decodes about 8 % slower than a native build (measured on an AVX-512 machine)"
            if "AVX512" in unused
            else "a native build may be faster"
        )
        return Diagnosis(
            "engines",
            "embedded",
            "limited",
            f"{probe.version}, built without {' '.join(unused)} of this processor: {cost}",
            f"fine for comparisons within a run; for the machine's full speed `{BUILD_COMMAND} --tuned`, "
            "then engine.kind: native",
        )
    return Diagnosis("engines", "embedded", "ok", probe.version)


def native_programs(probe: EngineStatus) -> dict[Program, Path | None]:
    """llama.cpp's other programs, and where each is found, beside the server or elsewhere."""
    beside = Path(probe.path) if probe.works else None
    return {name: find_program(name, beside=beside) for name in _USES}


def diagnose_native(probe: EngineStatus, programs: Mapping[Program, Path | None]) -> Diagnosis:
    """A `llama-server` binary, built by specmeter or the user's, and the programs that go with it."""
    if not probe.works:
        return Diagnosis(
            "engines",
            "native",
            "missing",
            probe.problem,
            f"only needed for {', '.join(_USES.values())}, and for GPUs that the wheel does not drive: "
            f"`{BUILD_COMMAND}` makes all of them; or put llama-server on PATH, or set {BINARY_VARIABLE}",
        )
    there = ", ".join(name for name, path in programs.items() if path is not None)
    told = f"{probe.version} ({probe.path})" + (f", with {there}" if there else "")
    lacking = [f"{name} ({_USES[name]})" for name, path in programs.items() if path is None]
    fix = f"`{BUILD_COMMAND}` builds what is missing: {', '.join(lacking)}" if lacking else ""
    return Diagnosis("engines", "native", "ok", told, fix)


def diagnose_others() -> Iterator[Diagnosis]:
    """Engines that other packages bring."""
    from specmeter.engines.survey import survey

    for it in survey(ours=False):
        told = f"{it.version} ({it.package})" if it.problem is None else it.problem
        yield Diagnosis("engines", it.name, "ok" if it.problem is None else "missing", told, it.fix or "")


def diagnose_libllama(probe: EngineStatus) -> Diagnosis:
    """The library that the instrumented engine and probes drive."""
    if probe.works:
        return Diagnosis("engines", "libllama", "ok", f"{probe.version} ({probe.path})")
    return Diagnosis(
        "engines",
        "libllama",
        "limited",
        probe.problem,
        "only needed to time every step: the engines `embedded` and `native` do without. Install the pinned wheel "
        "again, or set SPECMETER_LIBLLAMA to a libllama of the same version",
    )


def diagnose_devices(engines: Sequence[EngineStatus], gpus: Sequence[Gpu]) -> list[Diagnosis]:
    """What the engines can compute on, then the GPUs that no engine can use."""
    found = [
        Diagnosis("devices", device.name, "ok", f"{device.description} ({engine.kind})")
        for engine in engines
        for device in engine.devices
    ]
    driven = {vendor for engine in engines for device in engine.gpu_devices for vendor in _vendors(device.name)}
    return found + [_idle_gpu(gpu) for gpu in gpus if gpu.vendor not in driven]


def diagnose_models() -> list[Diagnosis]:
    """Models that need no download, and room to build or fetch others."""
    return [_bench_models(), _cache_folder()]


def diagnose_host(host: Host) -> list[Diagnosis]:
    """Conditions that make measurements noisy or slow."""
    return [_power(host), _energy(host), _clock(host), _load(host), _cores(host), _memory(host), _swap(host)]


def _vendors(device: str) -> tuple[str, ...]:
    return next((vendors for backend, vendors in _BACKEND_VENDORS.items() if device.startswith(backend)), ())


def _idle_gpu(gpu: Gpu) -> Diagnosis:
    detail = f"{gpu.name}: no installed engine can use it"
    if gpu.vendor == "NVIDIA" and gpu.driver is None:
        return Diagnosis("devices", f"GPU {gpu.index}", "missing", detail, "install NVIDIA's driver")
    if gpu.vendor == "Apple":
        fix = "install with a Python built for arm64, not one that runs under Rosetta: that wheel has Metal"
    else:
        wheel = {"NVIDIA": "CUDA", "AMD": "ROCm (Linux) or Vulkan"}.get(gpu.vendor, "Vulkan")
        fix = (
            f"install the {wheel} wheel of xllamacpp in the version that is installed now (section Installation of its "
            f"README), or build a llama-server for it (`{BUILD_COMMAND} {_BUILD_FLAGS.get(gpu.vendor, '--vulkan')}`)"
        )
    return Diagnosis("devices", f"GPU {gpu.index}", "missing", detail, fix)


def _bench_models() -> Diagnosis:
    fix = "reinstall specmeter, or use a GGUF file of your own"
    try:
        from specmeter.models.cores import shipped

        cores = shipped()
        damaged = [core.name for core in cores.values() if not core.is_intact()]
    except (ImportError, OSError, ValueError, KeyError) as error:
        return Diagnosis("models", "bench models", "missing", f"their cores cannot be read ({error})", fix)
    if damaged or not cores:
        return Diagnosis("models", "bench models", "missing", f"damaged: {', '.join(damaged) or 'all'}", fix)
    return Diagnosis("models", "bench models", "ok", f"{len(cores)} cores: {', '.join(cores)}")


def _cache_folder() -> Diagnosis:
    from specmeter.cache import cache_dir

    try:
        folder = cache_dir()
        existing = next(path for path in (folder, *folder.parents) if path.exists())
        free = shutil.disk_usage(existing).free
    except SpecmeterError as error:
        return Diagnosis("models", "cache folder", "missing", error.message, error.fix)
    except OSError as error:
        return Diagnosis("models", "cache folder", "missing", str(error), "set SPECMETER_CACHE to another folder")
    shown = f"{_short(folder)}, {size(free)} free"
    if not os.access(existing, os.W_OK):
        return Diagnosis(
            "models", "cache folder", "missing", f"{shown}, not writable", "set SPECMETER_CACHE to another folder"
        )
    if free < _DISK_BYTES:
        fix = "free some space, or set SPECMETER_CACHE to a folder on another disk"
        return Diagnosis("models", "cache folder", "limited", shown, fix)
    return Diagnosis("models", "cache folder", "ok", shown)


def _power(host: Host) -> Diagnosis:
    if host.power_source == "battery":
        return Diagnosis("host", "power", "limited", "on battery: clocks are throttled", "plug the machine in")
    if host.power_source == "unknown":
        return Diagnosis("host", "power", "limited", _unseen(host), _NO_FIX)
    return Diagnosis("host", "power", "ok", "mains")


def _energy(host: Host) -> Diagnosis:
    meter = host.power_meter or PowerMeter(unread=("not queried",))
    if not meter.unread:
        return Diagnosis("host", "energy", "ok", f"joules of {', '.join(meter.sources)}")
    # What cannot be read costs a column of the results, not the results.
    detail = f"joules of {', '.join(meter.sources)} only" if meter.sources else "joules per token cannot be measured"
    return Diagnosis("host", "energy", "limited", detail, "; ".join(meter.unread))


def _clock(host: Host) -> Diagnosis:
    if host.governor is None:
        return Diagnosis("host", "clock policy", "limited", _unseen(host), _NO_FIX)
    if any(slow in host.governor.lower() for slow in _SLOW_POLICIES):
        fix = {
            "macOS": "switch off Low Power Mode in the battery settings",
            "Windows": "powercfg /setactive SCHEME_MIN",
        }.get(host.os, "sudo cpupower frequency-set -g performance")
        return Diagnosis("host", "clock policy", "limited", f"{host.governor}: clocks lag behind the load", fix)
    return Diagnosis("host", "clock policy", "ok", host.governor)


def _load(host: Host) -> Diagnosis:
    load = f"load {host.load_average[0]:.1f} on {host.logical_cores} cores" if host.load_average else ""
    busy = ", ".join(host.busy_processes)
    # The average lags by a minute, but unlike the list it also counts what a container hides.
    if busy or (host.load_average and host.load_average[0] > host.logical_cores / 2):
        detail = "; ".join(part for part in (f"busy: {busy}" if busy else "", load) if part)
        return Diagnosis("host", "other load", "limited", detail, "end or pause these processes before you measure")
    return Diagnosis("host", "other load", "ok", load or "no busy process")


def _cores(host: Host) -> Diagnosis:
    usable = host.logical_cores if host.usable_cores is None else host.usable_cores
    detail = f"{usable:g} of {host.logical_cores} usable, {host.physical_cores or '?'} physical"
    if usable < host.logical_cores:
        fix = f"give the container more cores, or set engine.threads to at most {max(1, int(usable))}"
        return Diagnosis("host", "cores", "limited", detail, fix)
    if usable < 2:
        fix = "with a single core everything else disturbs the engine; use more blocks"
        return Diagnosis("host", "cores", "limited", detail, fix)
    return Diagnosis("host", "cores", "ok", detail)


def _memory(host: Host) -> Diagnosis:
    detail = f"{size(host.memory_available_bytes)} of {size(host.memory_bytes)} available"
    if host.memory_available_bytes < _MEMORY_BYTES:
        return Diagnosis("host", "memory", "limited", detail, "close other programs, or measure smaller models")
    return Diagnosis("host", "memory", "ok", detail)


def _swap(host: Host) -> Diagnosis:
    if host.swap_used_bytes is None:
        return Diagnosis("host", "swap", "limited", _unseen(host), _NO_FIX)
    # macOS and Windows move idle pages out even with memory to spare.
    if host.swap_used_bytes > _SWAP_BYTES and sys.platform == "linux":
        return Diagnosis(
            "host",
            "swap",
            "limited",
            f"{size(host.swap_used_bytes)} in use: a swapped-out model is read from disk for every token",
            "close other programs, then `sudo swapoff -a && sudo swapon -a`",
        )
    return Diagnosis("host", "swap", "ok", f"{size(host.swap_used_bytes)} in use" if host.swap_used_bytes else "unused")


def _unseen(host: Host) -> str:
    return f"not readable ({host.container or 'no sensor'})"


def _short(path: Path) -> str:
    try:
        return str(Path("~") / path.relative_to(Path.home()))
    except (ValueError, RuntimeError):
        return str(path)
