"""Weights in ggml's number formats: converted from one format to another, random, or exactly zero.

A tensor is an array of bytes, uint8 [..., bytes of a row]. Rows of any format can be joined, and no block is cut or
requantized. Random weights are made in the format itself: random bits for the quants, one fixed scale. That runs at the
speed of the bit generator, and nothing can compress or share such blocks. A zero is a block with a zero scale that
keeps its random quants: the engine multiplies all of it, and the product is exactly zero.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import log2
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.random import PCG64

from specmeter.models.gguf import (
    TYPE_BY_NAME,
    Metadata,
)
from specmeter.models.gguf_writer import TensorSource
from specmeter.models.quantize import MIXES, encode, file_order, formats

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Bytes = NDArray[np.uint8]


CONVERTIBLE = ("F16", "BF16", "Q8_0", "Q5_1", "Q5_0", "Q4_1", "Q4_0")
"""Formats that real weights can be converted to; all of them in blocks of at most 32."""

MIXED = tuple(kind for kind in MIXES if kind not in CONVERTIBLE)
"""Types of `llama-quantize` that mix formats, or whose blocks are of 256: made of a model in F16."""

RANDOM_ONLY = ("Q6_K", "Q4_K", "MXFP4")
"""Formats in which random weights can be made but nothing converted."""

FILE_TYPE = {"Q4_K": 14, "MXFP4": 38} | {kind: mix.number for kind, mix in MIXES.items()}
"""`general.file_type` of a model whose matrices are in a format, or of a mixed type."""

_CHUNK_BYTES = 8 << 20


def convert(data: Bytes, source: str, target: str) -> Bytes:
    """The same weights in another format, uint8 [..., bytes of a row]; in the same format, the very bytes."""
    if source == target:
        return data
    from gguf import GGMLQuantizationType, quants

    floats: Any = quants.dequantize(np.ascontiguousarray(data), GGMLQuantizationType[source])
    return quants.quantize(floats, GGMLQuantizationType[target]).view(np.uint8)


def quantized(tensors: Sequence[TensorSource], kind: str, about: Metadata) -> list[TensorSource]:
    """Tensors in 16 or 32 bit as `llama-quantize` has them in a file of type `kind`, in its order; nothing is made yet.

    Raises `ModelError` for a type that is not made here.
    """
    chosen = formats(kind, about, ((it.name, it.shape, it.kind) for it in tensors))
    return [
        it if it.kind == chosen[it.name] else replace(it, kind=chosen[it.name], chunks=partial(_encoded, it, chosen))
        for it in sorted(tensors, key=lambda it: file_order(it.name))
    ]


def _encoded(tensor: TensorSource, chosen: Mapping[str, str]) -> Iterator[memoryview]:
    from gguf import GGMLQuantizationType, quants

    row = TYPE_BY_NAME[tensor.kind.lower()].row_bytes(tensor.shape[-1])
    for chunk in tensor.chunks():  # always whole rows
        rows = np.frombuffer(chunk, np.uint8).reshape(-1, row)
        yield flat(encode(quants.dequantize(rows, GGMLQuantizationType[tensor.kind]), chosen[tensor.name]))


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


def flat(data: NDArray[np.uint8]) -> memoryview:
    return np.ascontiguousarray(data).reshape(-1).data
