"""The trained cores of the bench models, shipped as GGUF files beside this module.

`cores.json` says of each one what it is for, how it was trained, and the checksum of its file. How they were made is
told in `docs/bench-models.md`.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Core:
    """One shipped core, as its manifest entry describes it."""

    name: str
    file: str
    sha256: str
    architecture: str
    parameters: int
    quantization: str
    role: str
    training_seed: int
    training_tokens: int

    @property
    def path(self) -> Path:
        """Where the GGUF file lies."""
        return _FOLDER / self.file

    def is_intact(self) -> bool:
        """True if the file is, byte for byte, the one that the manifest speaks of."""
        return hashlib.sha256(self.path.read_bytes()).hexdigest() == self.sha256


@cache
def shipped() -> dict[str, Core]:
    """All cores by name, in the order of the manifest."""
    entries = json.loads((_FOLDER / "cores.json").read_text(encoding="utf-8"))["cores"]
    return {entry["name"]: Core(**entry) for entry in entries}
