"""The near side: starts sessions in processes of their own."""

from __future__ import annotations

import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from specmeter.engines.libllama.engine import start_child
from specmeter.engines.process import clean_environment
from specmeter.engines.registry import check_arm
from specmeter.engines.session import Engine
from specmeter.files import cache_dir, file_sha256
from specmeter.record import EngineIdentity
from specmeter_engines import needed
from specmeter_engines.transformers import NAMED, TRANSFORMERS, Options

if TYPE_CHECKING:
    from specmeter.engines.session import EngineSession, Launch

_CHILD = (sys.executable, "-P", "-m", "specmeter_engines.transformers.child")
_ALONE = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
"""It asks nothing of a hub, and starts no threads but those of arithmetic."""
_KEEPS = "TORCHINDUCTOR_CACHE_DIR"
"""Names the folder that torch makes for what it compiles, else one among the temporary files, which stays."""


class TransformersEngine(Engine):
    """Starts sessions with the transformers that is installed beside specmeter."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self._version = needed("transformers", *NAMED)

    def identify(self) -> EngineIdentity:
        """Which packages these are, with checksums of the code that generates and of torch's libraries."""
        generation = _folder("transformers") / "generation"
        code = [generation / "utils.py", generation / "candidate_generator.py"]
        libraries = [code[1], *sorted((_folder("torch") / "lib").glob("libtorch*"))]
        return EngineIdentity(
            kind="transformers",
            version=self._version,
            build=self._version,
            binary=str(code[0]),
            binary_sha256=file_sha256(code[0]),
            libraries={str(it): file_sha256(it) for it in libraries},
            traits=TRANSFORMERS.traits,
        )

    def start(self, launch: Launch) -> EngineSession:
        """A session of an arm. Raises `EngineStartError`."""
        check_arm("transformers", launch.arm, has_draft=launch.draft is not None)
        environment = {_KEEPS: str(cache_dir() / "torch")} | clean_environment(trace=False) | _ALONE
        return start_child(_CHILD, launch, environment)

    def clock(self) -> float:
        """Seconds since the epoch."""
        return time.time()


def _folder(package: str) -> Path:
    spec = find_spec(package)
    return Path((spec and spec.origin) or package).parent
