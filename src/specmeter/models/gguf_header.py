"""Read the header of a GGUF file (metadata and tensor directory), never the weights.

The file is untrusted: every count is checked against what is left of the file before anything is allocated, and the
whole header against `MAX_HEADER_BYTES`, so that time and memory are bounded whatever the bytes say. What llama.cpp
refuses is refused here too, with a reason.

llama.cpp's own `gguf.GGUFReader` makes several Python and numpy objects per array element. For a header with 248,320
tokens, types, scores and merges (16 MB) it takes 11 s and 0.9 GB; this reader keeps such arrays as bytes and decodes
single elements on demand: 0.2 s and 12 MB on the same machine.
"""

from __future__ import annotations

import os
import stat
import struct
import sys
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final, overload

from specmeter.errors import ModelError
from specmeter.models.ggml_types import GGML_TYPES, GgmlType
from specmeter.text import size

MAX_HEADER_BYTES: Final = 128 * 1024**2
"""Largest header read; the largest vocabularies in use (600,000 merges) take about 20 MB."""
MAX_KEYS: Final = 65_536
MAX_TENSORS: Final = 131_072
MAX_ITEMS: Final = 4 * 1024**2
"""Most strings in one array."""
MAX_NAME_BYTES: Final = 63
"""llama.cpp's limit for a tensor name."""
MAX_DIMENSIONS: Final = 4
_CHUNK: Final = 256 * 1024
_INT64_MAX: Final = 2**63 - 1

_STRING, _ARRAY, _BOOL = 8, 9, 7
_SCALARS: Final[dict[int, str]] = {
    0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", _BOOL: "b", 10: "Q", 11: "q", 12: "d"
}  # fmt: skip
"""GGUF value type -> `struct` and `array` code; all of them have these sizes on every platform Python runs on."""


@dataclass(frozen=True, slots=True)
class StringArray(Sequence[bytes]):
    """An array of strings, kept as it lies in the file: an 8-byte length before each."""

    raw: bytes
    starts: array[int] = field(repr=False)
    """Offset of each string's first byte in `raw`."""

    def __len__(self) -> int:
        return len(self.starts)

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> list[bytes]: ...
    def __getitem__(self, index: int | slice) -> bytes | list[bytes]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        start = self.starts[index]
        (length,) = _U64.unpack_from(self.raw, start - 8)
        return self.raw[start : start + length]

    def __iter__(self) -> Iterator[bytes]:
        raw = self.raw
        for start in self.starts:
            (length,) = _U64.unpack_from(raw, start - 8)
            yield raw[start : start + length]

    def find(self, text: bytes) -> int | None:
        """Index of the first string that is `text`; searches the raw bytes, not string by string."""
        needle = _U64.pack(len(text)) + text
        at = self.raw.find(needle)
        while at >= 0:
            index = bisect_left(self.starts, at + 8)
            if index == len(self.starts):
                return None
            if self.starts[index] == at + 8:
                return index
            # Within a longer string: a true hit begins with the next one at the earliest.
            at = self.raw.find(needle, self.starts[index] - 8)
        return None

    def tail(self, first: int) -> bytes:
        """Everything from string `first` on, as it lies in the file."""
        return self.raw[self.starts[first] - 8 :] if first < len(self) else b""


@dataclass(frozen=True, slots=True)
class NumberArray:
    """An array of numbers or booleans, kept as it lies in the file (little-endian)."""

    code: str
    """`struct` code of one element."""
    raw: bytes = field(repr=False)

    def __len__(self) -> int:
        return len(self.raw) // struct.calcsize(self.code)

    def values(self) -> array[int] | array[float]:
        """All elements, as a compact array; booleans as 0 and 1."""
        result = array(self.code, self.raw)
        if sys.byteorder == "big":
            result.byteswap()
        return result


Value = int | float | bool | str | StringArray | NumberArray


@dataclass(frozen=True, slots=True)
class Tensor:
    """An entry of the tensor directory."""

    name: str
    shape: tuple[int, ...]
    """Elements per dimension, the contiguous one first (ggml's order)."""
    type: GgmlType
    offset: int
    """First byte of the data in the file."""

    @property
    def elements(self) -> int:
        """Number of weights."""
        product = 1
        for length in self.shape:
            product *= length
        return product

    @property
    def bytes(self) -> int:
        """Bytes of the data."""
        return self.elements // self.type.block * self.type.block_bytes


@dataclass(frozen=True, slots=True)
class Header:
    """All that a GGUF file says before its weights."""

    path: Path
    version: int
    metadata: dict[str, Value] = field(repr=False)
    tensors: tuple[Tensor, ...] = field(repr=False)
    data_offset: int
    """First byte of the weights in the file."""
    file_bytes: int


def read_header(path: Path) -> Header:
    """Read the header of the GGUF file at `path`.

    Raises `ModelError` when the file is missing, is not a GGUF file, is damaged or truncated (tensor data beyond its
    end), or asks for more than the limits of this module.
    """
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            what = "a directory" if stat.S_ISDIR(status.st_mode) else "not a regular file"
            raise ModelError(f"{path} is {what}, not a GGUF file", fix="give the path of a .gguf file")
        with path.open("rb") as file:
            return _read(_Cursor(file, path, os.fstat(file.fileno()).st_size))
    except FileNotFoundError:
        raise ModelError(f"{path}: no such file", fix="check the path of the model file") from None
    except (OSError, ValueError) as error:  # ValueError: a path with a null character
        raise ModelError(f"{path}: cannot be read ({error})", fix="check the path and its permissions") from error


_U32: Final = struct.Struct("<I")
_U64: Final = struct.Struct("<Q")


class _Cursor:
    """Reads forward through a file of known size; every step is bounded by file and header limits."""

    def __init__(self, file: BinaryIO, path: Path, size: int) -> None:
        self.path, self.size = path, size
        self._file = file
        self._window = b""
        self._base = 0  # offset of the window in the file
        self._at = 0  # next byte in the window

    @property
    def offset(self) -> int:
        return self._base + self._at

    def damaged(self, reason: str) -> ModelError:
        return ModelError(
            f"{self.path}: not a usable GGUF file: {reason}", fix="download or convert the model file again"
        )

    def _fill(self, count: int) -> int:
        """Have at least `count` bytes from the current place in the window; returns how many there are."""
        if self.offset + count > self.size:
            raise self.damaged(f"the header ends beyond the end of the file ({size(self.size)}): truncated")
        if self.offset + count > MAX_HEADER_BYTES:
            raise self.damaged(f"the header is larger than {size(MAX_HEADER_BYTES)}")
        rest = self._window[self._at :]
        self._window = rest + self._file.read(max(count - len(rest), _CHUNK, len(rest)))
        self._base, self._at = self.offset, 0
        if len(self._window) < count:
            raise self.damaged("the file became shorter while being read")
        return len(self._window)

    def take(self, count: int) -> bytes:
        if self._at + count > len(self._window):
            self._fill(count)
        start = self._at
        self._at += count
        return self._window[start : self._at]

    def u32(self) -> int:
        return _U32.unpack(self.take(4))[0]

    def u64(self) -> int:
        return _U64.unpack(self.take(8))[0]

    def string(self, what: str, limit: int) -> bytes:
        length = self.u64()
        if length > limit:
            raise self.damaged(f"{what} is {length} bytes long, at most {limit} are allowed")
        return self.take(length)

    def name(self, what: str, limit: int) -> str:
        raw = self.string(what, limit)
        try:
            return raw.decode()
        except UnicodeDecodeError:
            raise self.damaged(f"{what} is not valid UTF-8: {raw[:64]!r}") from None

    def strings(self, what: str, count: int) -> StringArray:
        if count * 8 > self.size - self.offset:
            raise self.damaged(f"{what} claims {count} strings, more than the rest of the file can hold: truncated")
        if count > MAX_ITEMS:
            raise self.damaged(f"{what} has {count} strings (at most {MAX_ITEMS} are allowed)")
        starts = array("I")
        window, base = self._window, self._at
        at, have = 0, len(window) - base
        unpack, append = _U64.unpack_from, starts.append
        for _ in range(count):
            if at + 8 > have:
                have = self._fill(at + 8)
                window, base = self._window, self._at
            at += 8
            append(at)
            at += unpack(window, base + at - 8)[0]
            if at > have:
                have = self._fill(at)
                window, base = self._window, self._at
        return StringArray(self.take(at), starts)

    def numbers(self, what: str, code: str, count: int) -> NumberArray:
        if count * struct.calcsize("<" + code) > self.size - self.offset:
            raise self.damaged(f"{what} claims {count} numbers, more than the rest of the file can hold: truncated")
        return NumberArray(code, self.take(count * struct.calcsize("<" + code)))


def _read(cursor: _Cursor) -> Header:
    magic = cursor.take(min(4, cursor.size))
    if magic != b"GGUF":
        if cursor.path.suffix.lower() in (".yaml", ".yml"):
            raise ModelError(
                f"{cursor.path}: an experiment file, not a model",
                fix="name a GGUF file here; `specmeter run FILE.yaml` runs an experiment",
            )
        raise cursor.damaged(f"it begins with {magic!r} instead of b'GGUF'")
    version = cursor.u32()
    if version and version & 0xFFFF == 0:
        raise cursor.damaged("it is a big-endian file, which llama.cpp loads on big-endian machines only")
    if version not in (2, 3):
        raise cursor.damaged(f"format version {version} (known: 2 and 3)")
    tensor_count, key_count = cursor.u64(), cursor.u64()
    if tensor_count > MAX_TENSORS:
        raise cursor.damaged(f"{tensor_count} tensors (at most {MAX_TENSORS} are allowed)")
    if key_count > MAX_KEYS:
        raise cursor.damaged(f"{key_count} metadata keys (at most {MAX_KEYS} are allowed)")

    metadata: dict[str, Value] = {}
    for _ in range(key_count):
        key = cursor.name("a metadata key", limit=65_535)
        if not key or key in metadata:
            raise cursor.damaged(f"metadata key {key[:80]!r} is {'there twice' if key else 'empty'}")
        metadata[key] = _read_value(cursor, key)
    alignment = metadata.get("general.alignment", 32)
    if isinstance(alignment, bool) or not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
        raise cursor.damaged(f"general.alignment is {alignment!r}, not a power of two")

    entries = [_read_tensor(cursor) for _ in range(tensor_count)]
    start = -(-cursor.offset // alignment) * alignment if entries else cursor.offset
    tensors = _place(cursor, entries, start, alignment)
    return Header(cursor.path, version, metadata, tensors, start, cursor.size)


def _read_value(cursor: _Cursor, key: str) -> Value:
    what = f"metadata key {key[:80]!r}"
    kind = cursor.u32()
    if kind == _STRING:
        return cursor.string(what, MAX_HEADER_BYTES).decode(errors="replace")
    if kind == _ARRAY:
        item, count = cursor.u32(), cursor.u64()
        if item == _STRING:
            return cursor.strings(what, count)
        if item == _ARRAY:
            raise cursor.damaged(f"{what} is an array of arrays")
        if item in _SCALARS:
            return cursor.numbers(what, _SCALARS[item], count)
        raise cursor.damaged(f"{what} is an array of unknown type {item}")
    if kind not in _SCALARS:
        raise cursor.damaged(f"{what} has unknown type {kind}")
    code = "<" + _SCALARS[kind]
    (value,) = struct.unpack(code, cursor.take(struct.calcsize(code)))
    return bool(value) if kind == _BOOL else value


def _read_tensor(cursor: _Cursor) -> Tensor:
    """One entry of the directory; its offset still relative to the start of the weights."""
    name = cursor.name("a tensor name", limit=MAX_NAME_BYTES)
    dimensions = cursor.u32()
    if dimensions > MAX_DIMENSIONS:
        raise cursor.damaged(f"tensor {name!r} has {dimensions} dimensions (at most {MAX_DIMENSIONS} are allowed)")
    shape = struct.unpack(f"<{dimensions}Q", cursor.take(8 * dimensions)) or (1,)
    number, offset = cursor.u32(), cursor.u64()
    if number not in GGML_TYPES:
        raise cursor.damaged(f"tensor {name!r} has unknown type {number}")
    tensor = Tensor(name, shape, GGML_TYPES[number], offset)
    if 0 in shape:
        raise cursor.damaged(f"tensor {name!r} has a dimension of size 0")
    if tensor.elements > _INT64_MAX:
        raise cursor.damaged(f"tensor {name!r} has more elements than can be counted: {shape}")
    if shape[0] % tensor.type.block:
        raise cursor.damaged(
            f"tensor {name!r}: rows of {shape[0]} elements, not a multiple of {tensor.type.name}'s {tensor.type.block}"
        )
    return tensor


def _place(cursor: _Cursor, entries: list[Tensor], start: int, alignment: int) -> tuple[Tensor, ...]:
    """Prove that the tensors lie one after another within the file, as llama.cpp demands; offsets become absolute."""
    names: set[str] = set()
    expected = 0
    placed: list[Tensor] = []
    for tensor in entries:
        if tensor.name in names:
            raise cursor.damaged(f"tensor {tensor.name!r} is there twice")
        names.add(tensor.name)
        if tensor.offset != expected:
            raise cursor.damaged(
                f"tensor {tensor.name!r} begins at {tensor.offset}, not at {expected} where the one before it ends"
            )
        end = start + expected + tensor.bytes
        if end > cursor.size:
            raise ModelError(
                f"{cursor.path}: truncated: the data of tensor {tensor.name!r} ends at byte {end}, "
                f"the file at {cursor.size}",
                fix="download the model file again: this copy is incomplete",
            )
        placed.append(Tensor(tensor.name, tensor.shape, tensor.type, start + expected))
        expected += -(-tensor.bytes // alignment) * alignment
    return tuple(placed)
