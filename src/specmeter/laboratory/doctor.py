"""Examines what this machine can measure and what is missing: engines, devices, models, conditions of the host."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from specmeter.cache import cache_dir
from specmeter.engines.llama_cpp.build import drives, gpu_fix
from specmeter.engines.registry import EngineStatus, statuses
from specmeter.errors import EngineError, SpecmeterError
from specmeter.host.gpus import read_gpus
from specmeter.models.bench import shipped
from specmeter.models.reference import made_of
from specmeter.record import Gpu, Host, PowerMeter
from specmeter.text import size

if TYPE_CHECKING:
    from specmeter.experiments.experiment import Experiment

State = Literal["ok", "limited", "missing"]
Area = Literal["engines", "devices", "models", "host"]
_GIB = 2**30
# The bench models of the demo take about half of this.
_DISK_BYTES = 3 * _GIB
_MEMORY_BYTES = 4 * _GIB
_SWAP_BYTES = _GIB // 4
_NO_FIX = "none; use several blocks to see whether it matters"
_CASE = re.IGNORECASE if os.name == "nt" else re.NOFLAG
_SLOW_POLICIES = ("powersave", "conservative", "low power", "power saver")


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
    engines = statuses(host)
    return (
        *(Diagnosis("engines", name, it.state, it.detail, it.fix) for name, it in engines.items()),
        *diagnose_devices(engines, host.gpus),
        *diagnose_models(),
        *diagnose_host(host),
    )


def can_measure(diagnoses: Iterable[Diagnosis]) -> bool:
    """Whether at least one engine is usable."""
    return any(diagnosis.area == "engines" and diagnosis.state != "missing" for diagnosis in diagnoses)


def diagnose_devices(engines: Mapping[str, EngineStatus], gpus: Sequence[Gpu]) -> list[Diagnosis]:
    """What the engines can compute on, then the GPUs that no engine can use."""
    found = [
        Diagnosis("devices", device.name, "ok", f"{device.description} ({name})")
        for name, engine in engines.items()
        for device in engine.devices
    ]
    idle = [gpu for gpu in gpus if not any(gpu.vendor in engine.drives for engine in engines.values())]
    return found + [
        Diagnosis("devices", f"GPU {it.index}", "missing", f"{it.name}: no installed engine can use it", gpu_fix(it))
        for it in idle
    ]


def refuse_idle_gpu(experiment: Experiment, engine: object) -> None:
    """Raise `EngineError` where the processor would be measured for want of anything better: flags found on it would
    be given to a server on the card. A named engine, or no layers for the GPU, is taken as meant; bench
    models are there to try things out."""
    asked, references = experiment.engine, experiment.targets.values()
    told = asked.model_fields_set & {"kind", "binary"} or asked.gpu_layers == 0
    if told or all(made_of(str(it)).startswith("bench:") for it in references):
        return
    used = drives(getattr(engine, "devices", ()))
    for gpu in () if "NVIDIA" in used else read_gpus():
        if gpu.vendor == "NVIDIA" and gpu.driver is not None:
            raise EngineError(
                f"{gpu.name}: no installed engine can use this GPU, so the CPU would be measured",
                fix=f"{gpu_fix(gpu)}; or choose the CPU with `--engine embedded` or `-ngl 0`",
            )


def diagnose_models() -> list[Diagnosis]:
    """Models that need no download, and room to build or fetch others."""
    return [_bench_models(), _cache_folder()]


def diagnose_host(host: Host) -> list[Diagnosis]:
    """Conditions that make measurements noisy or slow."""
    return [_power(host), _energy(host), _clock(host), _load(host), _cores(host), _memory(host), _swap(host)]


def _bench_models() -> Diagnosis:
    fix = "reinstall specmeter, or use a GGUF file of your own"
    try:
        cores = shipped()
        damaged = [core.name for core in cores.values() if not core.is_intact()]
    except (ImportError, OSError, ValueError, KeyError) as error:
        return Diagnosis(
            "models", "bench models", "missing", f"the files of the bench models cannot be read ({error})", fix
        )
    if damaged or not cores:
        return Diagnosis("models", "bench models", "missing", f"damaged: {', '.join(damaged) or 'all'}", fix)
    return Diagnosis("models", "bench models", "ok", f"{len(cores)} cores: {', '.join(cores)}")


def _cache_folder() -> Diagnosis:

    try:
        folder = cache_dir()
        existing = next(path for path in (folder, *folder.parents) if path.exists())
        free = shutil.disk_usage(existing).free
    except SpecmeterError as error:
        return Diagnosis("models", "cache folder", "missing", error.message, error.fix)
    except OSError as error:
        return Diagnosis("models", "cache folder", "missing", str(error), "set SPECMETER_CACHE to another folder")
    shown = f"{without_home(str(folder))}, {size(free)} free"
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
    reasons = [it for it in meter.unread if "sudo" not in it]
    todo = [it for it in meter.unread if "sudo" in it]
    return Diagnosis("host", "energy", "limited", "; ".join((detail, *reasons)), "; ".join(todo))


def _clock(host: Host) -> Diagnosis:
    if host.governor is None:
        return Diagnosis("host", "clock policy", "limited", _unseen(host), _NO_FIX)
    if any(slow in host.governor.lower() for slow in _SLOW_POLICIES):
        fix = {
            "macOS": "turn off Low Power Mode in the battery settings",
            "Windows": "powercfg /setactive SCHEME_MIN",
        }.get(host.os, "sudo cpupower frequency-set -g performance")
        return Diagnosis("host", "clock policy", "limited", f"{host.governor}: the clock reacts slowly to load", fix)
    return Diagnosis("host", "clock policy", "ok", host.governor)


def _load(host: Host) -> Diagnosis:
    load = f"load {host.load_average[0]:.1f} on {host.logical_cores} cores" if host.load_average else ""
    busy = ", ".join(host.busy_processes)
    # The average lags by a minute, but unlike the list it also counts what a container hides.
    if busy or (host.load_average and host.load_average[0] > host.logical_cores / 2):
        detail = "; ".join(part for part in (f"busy: {busy}" if busy else "", load) if part)
        return Diagnosis("host", "other load", "limited", detail, "close other programs before you measure")
    return Diagnosis("host", "other load", "ok", load or "no busy process")


def _cores(host: Host) -> Diagnosis:
    usable = host.logical_cores if host.usable_cores is None else host.usable_cores
    detail = f"{usable:g} of {host.logical_cores} usable, {host.physical_cores or '?'} physical"
    if usable < host.logical_cores:
        fix = f"give the container more cores, or set engine.threads to at most {max(1, int(usable))}"
        return Diagnosis("host", "cores", "limited", detail, fix)
    if usable < 2:
        fix = "use more blocks: on a single core every other program disturbs the engine"
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


def without_home(text: str) -> str:
    """A text without the user's home folder (`~`) and name (`USER`), to be published."""
    try:
        home = Path.home()
        homes = {str(it) for it in (home, home.resolve()) if it.name}
    except (OSError, RuntimeError):
        return text
    for it in sorted(homes, key=len, reverse=True):
        text = re.sub(rf"{re.escape(it)}(?![\w.-])", "~", text, flags=_CASE)
    # As in /media/NAME/disk.
    return re.sub(rf"(?<=[/\\]){re.escape(home.name)}(?=[/\\])", "USER", text, flags=_CASE) if home.name else text
