"""Ask the engines what they are and what they can compute on, without loading a model."""

from __future__ import annotations

import re
from dataclasses import dataclass

from specmeter.engines.llama_cpp.devices import Device, parse_devices
from specmeter.errors import SpecmeterError
from specmeter.host.command import run_command


@dataclass(frozen=True)
class EngineStatus:
    """What one engine says about itself; `problem` is empty when it works."""

    kind: str
    version: str = ""
    path: str = ""
    features: frozenset[str] = frozenset()
    """Instruction sets it was built for, by llama.cpp's names; empty where it does not say."""
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


def probe_embedded() -> EngineStatus:
    """The wheel that specmeter depends on."""
    from specmeter.engines.llama_cpp.embedded import EmbeddedEngine

    try:
        engine = EmbeddedEngine()
        identity = engine.identify()
        devices = tuple(Device(name, description) for name, description in engine.devices)
    except SpecmeterError as error:
        return EngineStatus("embedded", problem=error.message)
    return EngineStatus("embedded", identity.version, identity.binary, parse_features(identity.system_info), devices)


def probe_native() -> EngineStatus:
    """The `llama-server` that `SPECMETER_LLAMA_SERVER` names, that was built last, or the first one on `PATH`."""
    from specmeter.engines.llama_cpp.native import NativeEngine

    try:
        engine = NativeEngine()
        identity = engine.identify()
    except SpecmeterError as error:
        return EngineStatus("native", problem=error.message)
    listed = run_command([identity.binary, "--list-devices"], timeout_s=60) or ""
    return EngineStatus("native", f"llama-server {identity.version}", identity.binary, devices=parse_devices(listed))


def probe_libllama() -> EngineStatus:
    """llama.cpp as a library: the wheel's, or that of `SPECMETER_LIBLLAMA`."""
    from specmeter.engines.libllama.engine import LibllamaEngine

    try:
        identity = LibllamaEngine().identify()
    except SpecmeterError as error:
        return EngineStatus("libllama", problem=error.message)
    return EngineStatus("libllama", identity.version, identity.binary, parse_features(identity.system_info))


def parse_features(system_info: str) -> frozenset[str]:
    """Names that are on in llama.cpp's system line: `CPU : AVX = 1 | AVX2 = 1 | LLAMAFILE = 1 |`."""
    return frozenset(re.findall(r"(\w+) = 1\b", system_info))
