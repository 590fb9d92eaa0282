"""What a model in MLX's format says of itself: a folder with `config.json` and `*.safetensors`, read without MLX.

MLX stores quantized weights packed into 32-bit words (`NAME.weight`) beside `NAME.scales` (and `NAME.biases`); how many
bits each weight has is in the configuration, for all layers or for single ones. A safetensors file begins with the
length of its header in 8 bytes, then the header in JSON: name -> type, shape, place.

The folder is untrusted: headers are bounded, and only what was read is counted.
"""

from __future__ import annotations

import hashlib
import json
import re
import struct
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, cast

from specmeter.cache import file_sha256
from specmeter.errors import ModelError

_MAX_HEADER = 64 * 2**20
_MAX_CONFIG = 4 * 2**20
_MAX_FILES = 1000
_MAX_DIMENSIONS = 8
_BYTES = {"F64": 8, "I64": 8, "U64": 8, "F32": 4, "I32": 4, "U32": 4, "F16": 2, "BF16": 2, "I16": 2, "U16": 2}
"""Other types take one byte."""
_REPO_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,94}[A-Za-z0-9])?"
_FOLDER_REFERENCE = re.compile(rf"(?P<repo>{_REPO_NAME}/{_REPO_NAME})(?:@(?P<revision>[A-Za-z0-9._/-]{{1,200}}))?")
_FOLDER_FILES = ["*.json", "*.safetensors", "*.model", "*.txt", "*.jinja"]
"""No code: what a repository's own Python files would do is not run."""
_FIX = "use a folder that mlx_lm can load: config.json and *.safetensors"


def fetch_folder(reference: str, *, offline: bool = False) -> Path:
    """The folder on this machine, downloaded first if need be; with `offline` only what is there already.

    Raises `ModelError` for a malformed reference and where the folder cannot be downloaded.
    """
    from huggingface_hub import snapshot_download  # pyright: ignore[reportUnknownVariableType]
    from huggingface_hub.utils import disable_progress_bars

    match = _FOLDER_REFERENCE.fullmatch(reference.removeprefix("hf:"))
    if match is None or ".." in reference:
        raise ModelError(f"{reference!r} is not a repository on a hub", fix="write hf:OWNER/REPO[@REVISION]")
    disable_progress_bars()
    try:
        found: str = snapshot_download(
            match["repo"], revision=match["revision"], allow_patterns=_FOLDER_FILES, local_files_only=offline
        )
    except Exception as error:  # huggingface_hub lets the exceptions of whichever HTTP library it uses pass
        said = str(error).partition("\n")[0][:300]
        raise ModelError(
            f"{reference}: cannot be downloaded ({type(error).__name__}: {said})",
            fix="check owner, name and network; or download it yourself and pass the folder",
        ) from error
    return Path(found)


@dataclass(frozen=True)
class MlxFolder:
    """A model's files."""

    files: tuple[Path, ...]
    """The safetensors files, by name."""
    sha256: str
    """Of the files' SHA-256, one per line, the configuration's first."""
    size_bytes: int
    """Of the safetensors files."""
    parameters: int
    """Packed weights counted one by one; scales and biases are none."""
    bits_per_weight: float
    """Bytes of all tensors times 8 over the parameters."""
    tensor_types: dict[str, int]
    """Format -> tensors; `4 bit` for packed weights."""
    vocabulary: int
    """Tokens that the configuration names; 0: not said."""


def is_folder(path: Path) -> bool:
    """Whether a path looks like a model in MLX's format."""
    return path.is_dir() and (path / "config.json").is_file()


def read_folder(path: Path) -> MlxFolder:
    """Read a folder's configuration and headers. Raises `ModelError` when it is not such a model, or damaged."""
    config = _config(path / "config.json")
    files = tuple(sorted(path.glob("*.safetensors")))
    if not files or len(files) > _MAX_FILES:
        raise ModelError(f"{path}: contains {len(files)} safetensors files", fix=_FIX)
    parameters = stored = 0
    types: Counter[str] = Counter()
    for file in files:
        tensors = _header(file)
        for name, (kind, shape) in tensors.items():
            amount = prod(shape)
            stored += amount * _BYTES.get(kind, 1)
            stem, _, last = name.rpartition(".")
            packed = kind == "U32" and last == "weight" and f"{stem}.scales" in tensors
            if packed:
                bits = _bits(config, stem)
                parameters += amount * 32 // bits
                types[f"{bits} bit"] += 1
            elif not (last in ("scales", "biases") and f"{stem}.weight" in tensors):
                parameters += amount
                types[kind] += 1
    sums = [file_sha256(file) for file in (path / "config.json", *files)]
    size = sum(file.stat().st_size for file in files)
    return MlxFolder(
        files=files,
        sha256=hashlib.sha256("\n".join(sums).encode()).hexdigest(),
        size_bytes=size,
        parameters=parameters,
        bits_per_weight=8 * stored / max(1, parameters),
        tensor_types=dict(types.most_common()),
        vocabulary=_vocabulary(config),
    )


def _bits(config: Mapping[str, Any], stem: str) -> int:
    """Bits of a layer's packed weights: its own where the configuration has them, else those of all."""
    found: Any = config.get("quantization", config.get("quantization_config"))
    settings = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
    own: Any = settings.get(stem)
    bits: Any = cast("dict[str, Any]", own).get("bits") if isinstance(own, dict) else settings.get("bits")
    return bits if isinstance(bits, int) and 1 <= bits <= 32 else 32


def _vocabulary(config: Mapping[str, Any]) -> int:
    nested: Any = config.get("text_config")
    inner = cast("dict[str, Any]", nested) if isinstance(nested, dict) else {}
    size: Any = config.get("vocab_size", inner.get("vocab_size"))
    return size if isinstance(size, int) and 0 < size < 2**31 else 0


def _config(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            raw = file.read(_MAX_CONFIG + 1)
        data: object = json.loads(raw.decode("utf-8")) if len(raw) <= _MAX_CONFIG else None
    except OSError as error:
        raise ModelError(f"{path}: cannot be read ({error.strerror or error})", fix=_FIX) from None
    except (ValueError, RecursionError):
        data = None
    if not isinstance(data, dict):
        raise ModelError(f"{path}: is not a model configuration", fix=_FIX)
    return cast("dict[str, Any]", data)


def _header(path: Path) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Tensor -> (type, shape)."""
    try:
        with path.open("rb") as file:
            start = file.read(8)
            (length,) = struct.unpack("<Q", start) if len(start) == 8 else (0,)
            raw = file.read(length) if 2 <= length <= _MAX_HEADER else b""
        entries: object = json.loads(raw.decode("utf-8")) if len(raw) == length else None
    except OSError as error:
        raise ModelError(f"{path}: cannot be read ({error.strerror or error})", fix=_FIX) from None
    except (ValueError, RecursionError):
        entries = None
    if not isinstance(entries, dict):
        raise ModelError(f"{path}: not a safetensors file, or damaged", fix=_FIX)
    return dict(_tensors(cast("dict[str, Any]", entries), path))


def _tensors(entries: Mapping[str, Any], path: Path) -> Iterator[tuple[str, tuple[str, tuple[int, ...]]]]:
    for name, entry in entries.items():
        if name == "__metadata__":
            continue
        fields = cast("dict[str, Any]", entry) if isinstance(entry, dict) else {}
        kind, shape = fields.get("dtype"), fields.get("shape")
        sizes: list[Any] = cast("list[Any]", shape) if isinstance(shape, list) else ["no list"]
        counts = [size for size in sizes if isinstance(size, int) and 0 <= size < 2**40]
        if not isinstance(kind, str) or not len(counts) == len(sizes) <= _MAX_DIMENSIONS:
            raise ModelError(f"{path}: the entry of tensor {name[:80]!r} is damaged", fix=_FIX)
        yield name, (kind, tuple(counts))
