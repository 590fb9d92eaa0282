"""Ask an engine, from outside, what it is and what it can compute on, without loading a model.

Each engine is asked in a process of its own: a wheel built for another processor ends with an illegal instruction.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

SERVER_VARIABLE = "SPECMETER_LLAMA_SERVER"
"""Environment variable with the path of a `llama-server`."""

_TIMEOUT_S = 30.0
_ASK = """
import json, xllamacpp as x
devices = [
    {"name": d["name"], "description": d["description"], "memory": d["memory_total"], "type": str(d["type"])}
    for d in x.get_device_info()
]
print()
print(json.dumps({"version": x.__version__, "system": str(x.get_system_info()), "devices": devices}))
"""


@dataclass(frozen=True)
class Device:
    """Something an engine can compute on."""

    name: str
    """The engine's name for it: `CPU`, `CUDA0`, `Vulkan1`."""
    description: str
    memory_bytes: int
    is_gpu: bool


@dataclass(frozen=True)
class Probe:
    """What one engine says about itself; `problem` is empty when it works."""

    kind: str
    version: str = ""
    path: str = ""
    features: frozenset[str] = frozenset()
    """Instruction sets it was built for, by llama.cpp's names."""
    devices: tuple[Device, ...] = ()
    problem: str = ""

    @property
    def works(self) -> bool:
        """Whether it can be used."""
        return not self.problem

    @property
    def gpu_devices(self) -> tuple[Device, ...]:
        """Those of its devices that are GPUs."""
        return tuple(device for device in self.devices if device.is_gpu)


def probe_embedded() -> Probe:
    """The wheel that specmeter depends on."""
    out, problem = _run([sys.executable, "-c", _ASK])
    if problem:
        return Probe("embedded", problem=f"xllamacpp: {problem}")
    return parse_embedded(out)


def parse_embedded(out: str) -> Probe:
    """What the wheel said: JSON on the last line, after whatever its backends print while they load."""
    try:
        answer = cast("dict[str, Any]", json.loads(out.strip().splitlines()[-1]))
        devices = tuple(
            Device(d["name"], d["description"], int(d["memory"]), "GPU" in d["type"]) for d in answer["devices"]
        )
        features = parse_features(answer["system"])
        return Probe("embedded", f"xllamacpp {answer['version']}", features=features, devices=devices)
    except (ValueError, IndexError, KeyError, TypeError):
        return Probe("embedded", problem="xllamacpp answers something that cannot be understood")


def probe_native(environment: Mapping[str, str] = os.environ) -> Probe:
    """The `llama-server` that `SPECMETER_LLAMA_SERVER` names, or the first one on `PATH`."""
    named = environment.get(SERVER_VARIABLE)
    path = shutil.which(named or "llama-server")
    if path is None:
        where = f"{SERVER_VARIABLE}={named} is no executable file" if named else "no llama-server on PATH"
        return Probe("native", problem=where)
    out, problem = _run([path, "--version"])
    version = parse_version(out)
    if problem or version is None:
        return Probe("native", path=path, problem=f"{path} is no llama-server ({problem or 'it prints no version'})")
    devices, _ = _run([path, "--list-devices"])
    return Probe("native", f"llama-server {version}", path, devices=parse_devices(devices))


def parse_features(system_info: str) -> frozenset[str]:
    """Names that are on in llama.cpp's system line: `CPU : AVX = 1 | AVX2 = 1 | LLAMAFILE = 1 |`."""
    return frozenset(re.findall(r"(\w+) = 1\b", system_info))


def parse_version(text: str) -> str | None:
    """`7166 (eec1e33a9)` from the output of `llama-server --version`."""
    found = re.search(r"^version: *(\S.*?) *$", text, re.MULTILINE)
    return found[1] if found else None


def parse_devices(text: str) -> tuple[Device, ...]:
    """GPUs and remote devices from `llama-server --list-devices`, which leaves the processor out."""
    _, _, listed = text.partition("Available devices:")
    return tuple(
        Device(name, description, int(mebibytes) * 2**20, is_gpu=not name.startswith(("BLAS", "RPC")))
        for name, description, mebibytes in re.findall(
            r"^\s+(\w+(?:\[[^\]]*\])?): (.*) \((\d+) MiB, \d+ MiB free\)\s*$", listed, re.MULTILINE
        )
    )


def _run(argv: Sequence[str]) -> tuple[str, str]:
    """Output (both streams) and what went wrong, if anything did."""
    try:
        done = subprocess.run(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_TIMEOUT_S,
            encoding="utf-8",
            errors="replace",
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "", f"no answer within {_TIMEOUT_S:g} s"
    except (OSError, ValueError) as error:
        return "", str(error)
    if done.returncode < 0:
        return done.stdout, f"ended by signal {-done.returncode}"
    if done.returncode:
        last = next((line for line in reversed(done.stdout.splitlines()) if line.strip()), "")
        return done.stdout, last.strip() or f"exit code {done.returncode}"
    return done.stdout, ""
