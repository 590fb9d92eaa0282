"""The near side of engines that are Python packages: sessions are processes of their own, each its engine's `child`."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from specmeter.cache import cache_dir, file_sha256
from specmeter.engines.libllama.engine import start_child
from specmeter.engines.process import clean_environment
from specmeter.engines.registry import check_arm, spec_of
from specmeter.engines.session import Engine
from specmeter.errors import EngineStartError
from specmeter.extensions import installing
from specmeter.record import EngineIdentity
from specmeter_engines.installed import ALONE, needed

if TYPE_CHECKING:
    from specmeter.engines.session import EngineSession, Launch


class Parts(NamedTuple):
    """What an engine consists of."""

    packages: tuple[str, ...]
    """Their names; its own comes first."""
    known: str
    """Versions of the first whose counts are understood here, as a pattern."""
    code: tuple[tuple[str, str], ...]
    """(package to import, files in it): what generates, and what computes."""


PARTS: Mapping[str, Parts] = {
    "transformers": Parts(
        ("transformers", "torch"),
        r"5\.(19|2[0-3])\.",
        (("transformers", "generation/*.py"), ("torch", "lib/libtorch*")),
    ),
    "mlx": Parts(
        ("mlx-lm", "mlx"), r"0\.32\.", (("mlx_lm", "generate.py"), ("mlx", "core*.so"), ("mlx", "lib/libmlx.*"))
    ),
    "openvino": Parts(
        ("openvino-genai", "openvino"),
        r"2026\.4\.",
        (("openvino_genai", "*.so*"), ("openvino", "libs/libopenvino.so*"), ("openvino", "libs/*cpu_plugin*")),
    ),
    "onnxruntime": Parts(
        ("onnxruntime-genai", "onnxruntime"),
        r"0\.18\.",
        (("onnxruntime_genai", "*.so*"), ("onnxruntime", "capi/*.so*")),
    ),
}
_KEEPS = "TORCHINDUCTOR_CACHE_DIR", "TMPDIR"
"""Name where torch, and mlx, keep what they compile, else among the temporary files, where it stays."""


class HostedEngine(Engine):
    """Starts sessions with what is installed beside specmeter."""

    def __init__(self, name: str) -> None:
        """Raises `EngineStartError` where that is not installed, or is of a version that is not known."""
        self._name, self._parts = name, PARTS[name]
        self._version = needed(name, *self._parts.packages)
        own = self._version.partition(",")[0].rpartition(" ")[2]
        if not re.match(self._parts.known, own):
            raise EngineStartError(
                f"engine {name}: specmeter cannot read the counts of {self._parts.packages[0]} {own}",
                fix=f"install a version that works: {installing(name, 'specmeter-engines')}",
            )

    def identify(self) -> EngineIdentity:
        """Which packages these are, with checksums of the code that generates and of what computes."""
        files = [it for package, pattern in self._parts.code for it in sorted(_folder(package).glob(pattern))]
        sums = {str(it): file_sha256(it) for it in files if it.is_file()}
        binary, *libraries = sums
        return EngineIdentity(
            kind=self._name,
            version=self._version,
            build=self._version,
            binary=binary,
            binary_sha256=sums[binary],
            libraries={it: sums[it] for it in libraries},
            traits=spec_of(self._name).traits,
        )

    def start(self, launch: Launch) -> EngineSession:
        """A session of an arm. Raises `EngineStartError`."""
        check_arm(self._name, launch.arm, has_draft=launch.draft is not None)
        child = (sys.executable, "-P", "-m", f"specmeter_engines.{self._name}.child")
        compiled = cache_dir() / "compiled"
        compiled.mkdir(parents=True, exist_ok=True)
        environment = clean_environment(trace=False) | dict.fromkeys(_KEEPS, str(compiled)) | ALONE
        return start_child(child, launch, environment)

    def clock(self) -> float:
        """Seconds since the epoch."""
        return time.time()


def _folder(package: str) -> Path:
    spec = find_spec(package)
    if spec is not None and spec.submodule_search_locations:
        return Path(next(iter(spec.submodule_search_locations)))
    return Path((spec and spec.origin) or package).parent
