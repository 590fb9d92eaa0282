"""Several builds of llama.cpp's server in one run: each session is one of the build that its arm names."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from specmeter.engines.llama_cpp.engine import EmbeddedEngine, NativeEngine
from specmeter.engines.llama_cpp.spec import NATIVE, PROGRAM, NativeOptions
from specmeter.engines.llama_cpp.tools import executable
from specmeter.engines.session import Engine
from specmeter.errors import EngineStartError, ExperimentError
from specmeter.record import EngineIdentity

if TYPE_CHECKING:
    from specmeter.engines.llama_cpp.server import LlamaSession
    from specmeter.engines.session import Launch

NEEDED = "give a llama-server, or a folder with one or with a wheel of xllamacpp"
"""The fix of an error about what is no build."""


def is_build(path: Path) -> bool:
    """Whether a build may lie there; nothing is started."""
    path = path.absolute()  # `./name` without its `./` would be looked for on PATH
    if path.is_dir():
        return (path / "xllamacpp").is_dir() or executable(path / PROGRAM) is not None
    return executable(path) is not None


def _engine_of(place: str) -> EmbeddedEngine | NativeEngine:
    path = Path(place).expanduser().absolute()
    if not place or not path.exists():
        raise EngineStartError(f"{place or 'an empty name'}: no such file or folder", fix=NEEDED)
    server = executable(path / PROGRAM) if path.is_dir() else path
    return EmbeddedEngine(path) if server is None else NativeEngine(server)


class SeveralBuilds(Engine):
    """The builds of its options, by their names. Raises `EngineStartError` where one of them is not usable."""

    def __init__(self, builds: Mapping[str, str]) -> None:
        self._engines = {name: _engine_of(place) for name, place in builds.items()}

    def identify(self) -> EngineIdentity:
        """Which builds these are, by all of their checksums."""
        found = {name: it.identify() for name, it in self._engines.items()}
        sums: dict[str, str] = {}
        for name, it in found.items():
            sums |= {f"{name}: {file}": sha for file, sha in {it.binary: it.binary_sha256, **it.libraries}.items()}
        first = next(iter(sums))
        return EngineIdentity(
            kind="native",
            version="; ".join(f"{name}: {it.version}" for name, it in found.items())[:400],
            build="; ".join(f"{name}: {it.build}" for name, it in found.items())[:400],
            binary=first,
            binary_sha256=sums.pop(first),
            libraries=sums,
            traits=NATIVE.traits,
        )

    def start(self, launch: Launch) -> LlamaSession:
        """A session of an arm, of the build that it names. Raises as that does."""
        arm = launch.arm
        name = NativeOptions.model_validate(arm.engine.options).build
        if name not in self._engines:
            raise ExperimentError(
                f"arm {arm.id}: {name or 'no build'} is none of the builds of this run",
                fix=f"set its engine.options.build to one of {', '.join(self._engines)}",
            )
        own = arm.model_copy(update={"engine": arm.engine.model_copy(update={"options": {}})})
        return self._engines[name].start(replace(launch, arm=own))

    def clock(self) -> float:
        """Seconds since the epoch."""
        return time.time()
