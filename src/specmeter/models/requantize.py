"""Another quantization of a model file, as `llama-quantize` would make it (`models.quantize`), once.

References to such files are `quant:TYPE:REFERENCE`.

Made files lie in the models cache under a name that depends on the bytes they were made from and on the type. Types mix
formats (Q4_K_M has tensors in Q6_K), and rows that are no whole blocks of 256 get another one; so what a file really
holds is to be read from its header (`ModelFacts`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from specmeter.cache import cache_dir, create_once, file_sha256
from specmeter.errors import ModelError
from specmeter.models.gguf import Header, Metadata, Tensor, read_parts
from specmeter.models.gguf_writer import TensorSource, file_bytes, write_gguf
from specmeter.models.quantize import MIXES
from specmeter.models.weights import FILE_TYPE, quantized

if TYPE_CHECKING:
    from specmeter.models.gguf import Value

Progress = Callable[[int, int], None]

RECIPE = 2
"""Version of what decides a byte of made files; part of their names."""
_FLOATS = ("F32", "F16", "BF16")
_CHUNK_ELEMENTS = 1 << 22
_SPLIT = ("split.no", "split.count", "split.tensors.count")


@dataclass(frozen=True)
class QuantSpec:
    """`quant:TYPE:REFERENCE`: a model in another type."""

    kind: str
    parent: str


def parse(reference: str) -> QuantSpec:
    """The model that `reference` names. Raises `ModelError` when it is malformed."""
    kind, _, parent = reference.removeprefix("quant:").partition(":")
    if kind not in MIXES or not parent:
        what = f"no type {kind[:40]!r}" if kind not in MIXES else "no model"
        raise ModelError(f"{reference[:300]!r}: {what}", fix=f"write quant:TYPE:MODEL; types: {', '.join(MIXES)}")
    return QuantSpec(kind, parent)


@dataclass(frozen=True)
class Made:
    """A file that is made, and by what."""

    path: Path
    how: str
    """For people: `specmeter to Q4_K_M from F16`."""
    size_bytes: int
    write: Callable[..., None]


def make(source: Path, kind: str, progress: Progress | None = None, *, again: bool = False) -> Made:
    """The model at `source` (its first file) as type `kind`, in one file, made unless it is in the cache.

    Raises `ModelError` as `plan` does and where the disk is full; `EngineStartError` without llama.cpp's library.
    """
    made = plan(source, kind, again=again)
    create_once(made.path, made.size_bytes, partial(made.write, progress=progress))
    return made


def plan(source: Path, kind: str, *, again: bool = False) -> Made:
    """What `make` makes. With `again` also of weights that are quantized already: both losses add up.

    Raises `ModelError` for a type that cannot be made here, and without `again` for a source that is quantized already.
    """
    parts = read_parts(source)
    stored = _stored(parts)
    if stored not in _FLOATS and not again:
        raise ModelError(
            f"{source}: is already {stored}; quantizing it again would add both losses",
            fix="use the model's F16, BF16 or F32 file",
        )
    given = [
        TensorSource(it.name, it.shape[::-1], it.type.name, partial(_chunks, part.path, it))
        for part in parts
        for it in part.tensors
    ]
    tensors = quantized(given, kind, Metadata(parts[0]))
    metadata: dict[str, Value] = {key: value for key, value in parts[0].metadata.items() if key not in _SPLIT}
    for key, value in (("general.quantization_version", 2), ("general.file_type", FILE_TYPE[kind])):
        metadata.pop(key, None)  # both come last, as the tool writes them
        metadata[key] = value
    write = partial(write_gguf, metadata=metadata, tensors=tensors)
    how = f"specmeter to {kind} from {stored}"
    return Made(_place(source, parts, kind), how, file_bytes(metadata, tensors), write)


def _stored(parts: tuple[Header, ...]) -> str:
    """The format of most of a model's bytes."""
    amounts: dict[str, int] = {}
    for part in parts:
        for tensor in part.tensors:
            amounts[tensor.type.name] = amounts.get(tensor.type.name, 0) + tensor.bytes
    return max(amounts, key=lambda name: amounts[name], default="nothing")


def _place(source: Path, parts: tuple[Header, ...], kind: str) -> Path:
    sums = [file_sha256(part.path) for part in parts]
    digest = hashlib.sha256("\n".join([*sums, kind, f"specmeter {RECIPE}"]).encode()).hexdigest()[:16]
    stem = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "-" for c in source.stem)[:60]
    return cache_dir() / "models" / f"{stem}-to-{kind}-{digest}.gguf"


def _chunks(path: Path, tensor: Tensor) -> Iterator[memoryview]:
    """The bytes of a tensor, whole rows at once."""
    row = tensor.type.row_bytes(tensor.shape[0])
    step = row * max(1, _CHUNK_ELEMENTS // tensor.shape[0])
    for start in range(0, tensor.bytes, step):
        data: Any = np.fromfile(path, np.uint8, count=min(step, tensor.bytes - start), offset=tensor.offset + start)
        yield data.data
