"""The default engine: llama.cpp's server out of the xllamacpp wheel, in a process of its own."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import time
from functools import cached_property
from pathlib import Path
from typing import Any

from specmeter.engines import Launch
from specmeter.engines.http_client import LOOPBACK
from specmeter.engines.identity import checksums, sha256_of, wheel_libraries
from specmeter.engines.llama_cpp import child
from specmeter.engines.llama_cpp.methods import server_options
from specmeter.engines.llama_cpp.options import to_fields
from specmeter.engines.llama_cpp.server import LlamaSession
from specmeter.engines.llama_cpp.start import Command, clean_environment, default_threads, start_session
from specmeter.engines.llama_cpp.traits import EMBEDDED
from specmeter.engines.registry import Device
from specmeter.errors import EngineStartError, ExperimentError
from specmeter.record import EngineIdentity

_CHILD = (sys.executable, "-P", child.__file__)
"""By its path: as a module of this package it would first load all that the package does, six times what it needs."""
_FIX = "install it again: pip install --force-reinstall xllamacpp"


class EmbeddedEngine:
    """Starts sessions on the embedded server. Raises `EngineStartError` when the wheel is not installed."""

    def __init__(self) -> None:
        spec = importlib.util.find_spec("xllamacpp")
        if spec is None or spec.origin is None:
            raise EngineStartError("the embedded engine (package xllamacpp) is not installed", fix=_FIX)
        self._package = Path(spec.origin).parent

    def identify(self) -> EngineIdentity:
        """Which engine this is, to the byte. Raises `EngineStartError` when the wheel cannot be loaded."""
        libraries = wheel_libraries(self._package)
        extension = next((file for file in libraries if file.stem.startswith("xllamacpp")), None)
        if extension is None:
            raise EngineStartError(f"{self._package}: the extension module of xllamacpp is missing", fix=_FIX)
        about = self._about
        return EngineIdentity(
            kind="embedded",
            version=f"xllamacpp {about['version']}",
            build=about["build"],
            binary=str(extension),
            binary_sha256=sha256_of(extension),
            libraries=checksums(libraries),
            system_info=about["system_info"],
            traits=EMBEDDED.traits,
        )

    @property
    def devices(self) -> tuple[Device, ...]:
        """Every device the wheel can compute on."""
        return tuple(Device(device["name"], device["description"]) for device in self._about["devices"])

    def start(self, launch: Launch) -> LlamaSession:
        """Start a session and wait until it is ready. Raises `EngineStartError`, or `ExperimentError` for an arm that
        the embedded server cannot honour."""
        if launch.arm.engine.extra_flags:
            raise ExperimentError(
                f"arm {launch.arm.id}: engine.extra_flags: the embedded engine has no command line",
                fix="leave extra_flags out, or use a native llama-server (engine kind `native`)",
            )
        fields = to_fields(server_options(launch, default_threads()))

        def command(port: int, api_key: str) -> Command:
            private = {"hostnames": [LOOPBACK], "port": port}
            shown = json.dumps(fields | private | {"api_keys": ["***"]})
            return Command(
                argv=_CHILD,
                shown=(*_CHILD, shown),
                env=clean_environment(trace=launch.arm.engine.trace_steps),
                stdin=json.dumps(fields | private | {"api_keys": [api_key]}),
            )

        return start_session(launch, command)

    def clock(self) -> float:
        """Seconds since the epoch."""
        return time.time()

    @cached_property
    def _about(self) -> dict[str, Any]:
        try:
            done = subprocess.run(
                [*_CHILD, "--identify"],
                capture_output=True,
                timeout=120,
                check=True,
                env=clean_environment(trace=False),
            )
            return json.loads(done.stdout)
        except (OSError, subprocess.SubprocessError, ValueError) as error:
            stderr = getattr(error, "stderr", None) or b""
            last = stderr.decode("utf-8", "replace").strip().splitlines()[-1:] or [str(error)]
            raise EngineStartError(f"the embedded engine cannot be loaded: {last[0][:300]}", fix=_FIX) from None
