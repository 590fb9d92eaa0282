"""Weights in ggml's number formats: converted from one to another, random, or exactly zero.

Everywhere here a tensor is an array of bytes, uint8 [..., bytes of a row]: rows can then be joined side by side or one
below the other in any format, and blocks are never cut or requantized.

Random weights are made in the format itself: random bits for the quants, one fixed scale. That is as fast as the bit
generator (gigabytes per second, where quantizing random floats does tens of megabytes), no two blocks of a model are
alike, and nothing can compress or share them. A zero is a block with a zero scale that keeps its random quants: the
engine multiplies all of it, and the product is exactly zero.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from math import log2
from typing import TYPE_CHECKING, Any

from specmeter.models.ggml_types import TYPE_BY_NAME

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Bytes = NDArray[np.uint8]

CONVERTIBLE = ("F16", "BF16", "Q8_0", "Q5_1", "Q5_0", "Q4_1", "Q4_0")
"""Formats that real weights can be converted to; all of them in blocks of at most 32."""

RANDOM_ONLY = ("Q6_K", "Q4_K", "MXFP4")
"""Formats in which random weights can be made but nothing converted."""

FILE_TYPE = {
    "F16": 1, "Q4_0": 2, "Q4_1": 3, "Q8_0": 7, "Q5_0": 8, "Q5_1": 9, "Q4_K": 14, "Q6_K": 18, "BF16": 32, "MXFP4": 38,
}  # fmt: skip
"""`general.file_type` of a model whose matrices are in a format."""

_CHUNK_BYTES = 8 << 20


def convert(data: Bytes, source: str, target: str) -> Bytes:
    """The same weights in another format, uint8 [..., bytes of a row]; in the same format, the very bytes."""
    if source == target:
        return data
    import numpy as np
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
        from numpy.random import PCG64

        # The raw output of a bit generator is fixed by numpy's compatibility policy, that of distributions is not.
        self._generator = PCG64(int.from_bytes(hashlib.sha256(name.encode()).digest()[:16], "little"))

    def take(self, count: int) -> Bytes:
        """The next `count` bytes, uint8 [count]."""
        import numpy as np

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
    import numpy as np

    for offset, unit in scales:
        blocks[:, offset : offset + 2] = np.array([unit * deviation or 0.0], "<f2").view(np.uint8)


def random_chunks(kind: str, rows: int, elements: int, deviation: float, bits: RandomBits) -> Iterator[memoryview]:
    """`random_rows` in pieces of about 8 MiB, however many rows there are."""
    step = max(1, _CHUNK_BYTES // TYPE_BY_NAME[kind.lower()].row_bytes(elements))
    for start in range(0, rows, step):
        yield random_rows(kind, min(step, rows - start), elements, deviation, bits).data
