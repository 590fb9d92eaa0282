"""Tensors in ggml's number formats: converted from one to another, random, or exactly zero; and written as a GGUF file.

Everywhere here a tensor is an array of bytes, uint8 [..., bytes of a row]: rows can then be joined side by side or one
below the other in any format, and blocks are never cut or requantized.

Random weights are made in the format itself: random bits for the quants, one fixed scale. That is as fast as the bit
generator (gigabytes per second, where quantizing random floats does tens of megabytes), no two blocks of a model are
alike, and nothing can compress or share them. A zero is a block with a zero scale that keeps its random quants: the
engine multiplies all of it, and the product is exactly zero.

A file of any size is written with little memory: the header at once, the tensors in chunks as they are made.
llama.cpp's own `gguf.GGUFWriter` wants whole tensors and cannot say how large a file will be before it is written.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import log2, prod
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
from numpy.random import PCG64

from specmeter.models.gguf import GGML_TYPES, TYPE_BY_NAME, NumberArray, StringArray, Value

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

ALIGNMENT = 32
"""Tensor data starts at multiples of this many bytes (GGUF's default)."""

Chunk = bytes | memoryview
Fields = Mapping[str, Value | Sequence[str]]
"""Metadata: what was read from another file's header, or plain values."""

_TYPE_NUMBERS = {kind.name: number for number, kind in GGML_TYPES.items()}
_UINT32, _FLOAT32, _BOOL, _STRING, _ARRAY, _INT64 = 4, 6, 7, 8, 9, 11
_ARRAY_TYPES = {"B": 0, "b": 1, "H": 2, "h": 3, "I": 4, "i": 5, "f": 6, "Q": 10, "q": 11, "d": 12}

CONVERTIBLE = ("F16", "BF16", "Q8_0", "Q5_1", "Q5_0", "Q4_1", "Q4_0")
"""Formats that real weights can be converted to; all of them in blocks of at most 32."""

RANDOM_ONLY = ("Q6_K", "Q4_K", "MXFP4")
"""Formats in which random weights can be made but nothing converted."""

FILE_TYPE = {
    "F16": 1, "Q4_0": 2, "Q4_1": 3, "Q8_0": 7, "Q5_0": 8, "Q5_1": 9, "Q4_K": 14, "Q6_K": 18, "BF16": 32, "MXFP4": 38,
}  # fmt: skip
"""`general.file_type` of a model whose matrices are in a format."""

_CHUNK_BYTES = 8 << 20


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


if TYPE_CHECKING:
    Bytes = NDArray[np.uint8]


def convert(data: Bytes, source: str, target: str) -> Bytes:
    """The same weights in another format, uint8 [..., bytes of a row]; in the same format, the very bytes."""
    if source == target:
        return data
    from gguf import GGMLQuantizationType, quants

    floats: Any = quants.dequantize(np.ascontiguousarray(data), GGMLQuantizationType[source])
    return quants.quantize(floats, GGMLQuantizationType[target]).view(np.uint8)


# With uniform quants of L levels a scale d gives a standard deviation of d * sqrt((L^2 - 1) / 12); an offset takes the
# mean away. In Q4_K and Q6_K the random bits are also the sub-scales, hence the larger divisors.
_SCALES: dict[str, tuple[tuple[int, float], ...]] = {
    "Q8_0": ((0, 1 / 73.9),),
    "Q5_0": ((0, 1 / 9.23),),
    "Q5_1": ((0, 1 / 9.23), (2, -15.5 / 9.23)),
    "Q4_0": ((0, 1 / 4.61),),
    "Q4_1": ((0, 1 / 4.61), (2, -7.5 / 4.61)),
    "Q4_K": ((0, 1 / 258), (2, 7.5 / 258)),
    "Q6_K": ((208, 1 / 1365),),
}
"""(offset in the block, value) of the float16 scales that make weights of standard deviation 1."""


@dataclass(frozen=True)
class _Float:
    """Bits of a floating point format: sign, exponent, mantissa."""

    dtype: str
    exponent_bias: int
    mantissa_bits: int

    @property
    def sign(self) -> int:
        return 0x80 << 8 * (int(self.dtype[-1]) - 1)


_FLOATS = {"F32": _Float("<u4", 127, 23), "F16": _Float("<u2", 15, 10), "BF16": _Float("<u2", 127, 7)}


class RandomBits:
    """A reproducible stream of random bytes; one name, one stream, on every platform."""

    def __init__(self, name: str) -> None:
        # The raw output of a bit generator is fixed by numpy's compatibility policy, that of distributions is not.
        self._generator = PCG64(int.from_bytes(hashlib.sha256(name.encode()).digest()[:16], "little"))

    def take(self, count: int) -> Bytes:
        """The next `count` bytes, uint8 [count]."""
        words: NDArray[np.uint64] = self._generator.random_raw(-(-count // 8))
        return words.astype("<u8", copy=False).view(np.uint8)[:count]


def random_rows(kind: str, rows: int, elements: int, deviation: float, bits: RandomBits) -> Bytes:
    """Random weights of about zero mean, uint8 [rows, bytes of a row of `elements`]; exactly zero for `deviation` 0.

    `deviation` is the standard deviation, kept within a factor of sqrt(2) where the scale is a power of two (F32, F16,
    BF16, MXFP4). `elements` must be whole blocks.
    """
    form = TYPE_BY_NAME[kind.lower()]
    raw = bits.take(rows * form.row_bytes(elements))
    if kind in _FLOATS:
        _shape_floats(raw, _FLOATS[kind], deviation)
    elif kind == "MXFP4":
        # A block's first byte is its exponent; its 4-bit floats have a root mean square of 2.93.
        raw.reshape(-1, form.block_bytes)[:, 0] = 127 + round(log2(deviation / 2.93))
    else:
        _set_scales(raw.reshape(-1, form.block_bytes), _SCALES[kind], deviation)
    return raw.reshape(rows, -1)


def _shape_floats(raw: Bytes, form: _Float, deviation: float) -> None:
    """Keeps sign, mantissa and two bits of the exponent random; keeps only the sign of a zero."""
    words = raw.view(form.dtype)
    if deviation == 0:
        words &= words.dtype.type(form.sign)
        return
    # Numbers uniform in [1, 2) times 2^0 ... 2^3 have a root mean square of 7.04.
    lowest = form.exponent_bias + round(log2(deviation / 7.04))
    words &= words.dtype.type(form.sign | (4 << form.mantissa_bits) - 1)
    words += words.dtype.type(lowest << form.mantissa_bits)


def _set_scales(blocks: Bytes, scales: tuple[tuple[int, float], ...], deviation: float) -> None:
    for offset, unit in scales:
        blocks[:, offset : offset + 2] = np.array([unit * deviation or 0.0], "<f2").view(np.uint8)


def random_chunks(kind: str, rows: int, elements: int, deviation: float, bits: RandomBits) -> Iterator[memoryview]:
    """`random_rows` in pieces of about 8 MiB, however many rows there are."""
    step = max(1, _CHUNK_BYTES // TYPE_BY_NAME[kind.lower()].row_bytes(elements))
    for start in range(0, rows, step):
        yield random_rows(kind, min(step, rows - start), elements, deviation, bits).data
