"""Writes GGUF files of any size with little memory: the header at once, the tensors in chunks as they are made.

llama.cpp's own `gguf.GGUFWriter` needs whole tensors, and does not know a file's size before it is written."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import BinaryIO

from specmeter.models.gguf import (
    GGML_TYPES,
    TYPE_BY_NAME,
    NumberArray,
    StringArray,
    Value,
)

ALIGNMENT = 32
"""Tensor data starts at multiples of this many bytes (GGUF's default)."""

Chunk = bytes | memoryview
Fields = Mapping[str, Value | Sequence[str]]
"""Metadata: what was read from another file's header, or plain values."""

_TYPE_NUMBERS = {kind.name: number for number, kind in GGML_TYPES.items()}
_UINT32, _FLOAT32, _BOOL, _STRING, _ARRAY, _INT64 = 4, 6, 7, 8, 9, 11
_ARRAY_TYPES = {"B": 0, "b": 1, "H": 2, "h": 3, "I": 4, "i": 5, "f": 6, "Q": 10, "q": 11, "d": 12}


@dataclass(frozen=True)
class TensorSource:
    """A tensor that is still to be made."""

    name: str
    shape: tuple[int, ...]
    """Slowest dimension first; the last one is a row in memory."""
    kind: str
    """Number format: `F32`, `Q8_0`, ..."""
    chunks: Callable[[], Iterable[Chunk]]
    """Makes the bytes, in order, together `size_bytes` long; to be asked once."""

    @property
    def elements(self) -> int:
        """Number of weights."""
        return prod(self.shape)

    @property
    def size_bytes(self) -> int:
        """Bytes of the tensor, without padding."""
        return self.elements // self.shape[-1] * TYPE_BY_NAME[self.kind.lower()].row_bytes(self.shape[-1])


def _encode(value: Value | Sequence[str]) -> bytes:
    """A metadata value behind its type; an `int` is uint32 where it fits, a float float32."""
    if isinstance(value, bool):
        return struct.pack("<I?", _BOOL, value)
    if isinstance(value, int):
        return struct.pack("<II", _UINT32, value) if 0 <= value < 2**32 else struct.pack("<Iq", _INT64, value)
    if isinstance(value, float):
        return struct.pack("<If", _FLOAT32, value)
    if isinstance(value, str):
        return struct.pack("<I", _STRING) + _string(value)
    if isinstance(value, StringArray):
        return struct.pack("<IIQ", _ARRAY, _STRING, len(value)) + value.raw
    if isinstance(value, NumberArray):
        return struct.pack("<IIQ", _ARRAY, _ARRAY_TYPES[value.code], len(value)) + value.raw
    return struct.pack("<IIQ", _ARRAY, _STRING, len(value)) + b"".join(map(_string, value))


def _string(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def header(metadata: Fields, tensors: Sequence[TensorSource]) -> bytes:
    """Everything before the first tensor's data, padded."""
    parts = [struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(metadata))]
    parts += [_string(key) + _encode(value) for key, value in metadata.items()]
    offset = 0
    for tensor in tensors:
        # GGUF lists the fastest dimension first.
        dimensions = struct.pack(f"<I{len(tensor.shape)}Q", len(tensor.shape), *reversed(tensor.shape))
        parts += [_string(tensor.name), dimensions, struct.pack("<IQ", _TYPE_NUMBERS[tensor.kind], offset)]
        offset += _padded(tensor.size_bytes)
    whole = b"".join(parts)
    return whole.ljust(_padded(len(whole)), b"\0")


def file_bytes(metadata: Fields, tensors: Sequence[TensorSource]) -> int:
    """Size in bytes of the file that `write_gguf` makes."""
    return len(header(metadata, tensors)) + sum(_padded(tensor.size_bytes) for tensor in tensors)


def write_gguf(
    file: BinaryIO,
    metadata: Fields,
    tensors: Sequence[TensorSource],
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Writes a GGUF file; `progress(done, total)` receives the bytes after each chunk.

    Raises `ValueError` if a tensor's chunks are not as long as its shape says.
    """
    start = header(metadata, tensors)
    total = len(start) + sum(_padded(tensor.size_bytes) for tensor in tensors)
    done = file.write(start)
    for tensor in tensors:
        written = 0
        for chunk in tensor.chunks():
            written += file.write(chunk)
            if progress:
                progress(done + written, total)
        if written != tensor.size_bytes:
            raise ValueError(f"{tensor.name}: {written} bytes were made, its shape needs {tensor.size_bytes}")
        done += written + file.write(bytes(_padded(written) - written))


def _padded(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
