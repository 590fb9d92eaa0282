"""Reads the headers of GGUF files (metadata and tensor directory), never the weights.

The file is untrusted: every count is checked against what is left of the file before anything is allocated, and the
whole header against `MAX_HEADER_BYTES`. What llama.cpp refuses is refused here too, with a reason. A model may be split
over several files (`name-00001-of-00003.gguf`).

llama.cpp's own `gguf.GGUFReader` makes several objects per array element: for a header with 248,320 tokens it takes 11
s and 0.9 GB. This reader keeps such arrays as bytes and decodes elements on demand: 0.2 s and 12 MB. Importing that
package costs half a second, so the table of number formats (ggml types) is here once more; a test compares the two.
"""

from __future__ import annotations

import os
import re
import stat
import struct
import sys
from array import array
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from specmeter.errors import ModelError
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
_PEEKED: Final = 256
_INT64_MAX: Final = 2**63 - 1

_STRING, _ARRAY, _BOOL = 8, 9, 7
_SCALARS: Final[dict[int, str]] = {
    0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", _BOOL: "b", 10: "Q", 11: "q", 12: "d"
}  # fmt: skip
"""GGUF value type -> `struct` and `array` code; all of them have these sizes on every platform Python runs on."""

_PART = re.compile(r"^(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf$")


@dataclass(frozen=True, slots=True)
class StringArray:
    """An array of strings, kept as it lies in the file: an 8-byte length before each."""

    raw: bytes
    starts: array[int] = field(repr=False)
    """Offset of each string's first byte in `raw`."""

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, index: int) -> bytes:
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
            raise self.damaged(f"{what} is {length} bytes long (at most {limit} are allowed)")
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
                f"{cursor.path}: is an experiment file, not a model",
                fix="pass a GGUF file (an experiment runs with `specmeter run FILE.yaml`)",
            )
        raise _other_than_gguf(cursor, magic)
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
            raise cursor.damaged(f"metadata key {key[:80]!r} is {'repeated' if key else 'empty'}")
        metadata[key] = _read_value(cursor, key)
    alignment = metadata.get("general.alignment", 32)
    if isinstance(alignment, bool) or not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
        raise cursor.damaged(f"general.alignment is {alignment!r}, not a power of two")

    entries = [_read_tensor(cursor) for _ in range(tensor_count)]
    start = -(-cursor.offset // alignment) * alignment if entries else cursor.offset
    tensors = _place(cursor, entries, start, alignment)
    return Header(cursor.path, version, metadata, tensors, cursor.size)


def _other_than_gguf(cursor: _Cursor, magic: bytes) -> ModelError:
    """What lies there instead, where a download went wrong in a way that is known."""
    begins = magic + cursor.take(min(_PEEKED, cursor.size) - len(magic))
    if begins.startswith(b"version https://git-lfs.github.com/spec"):
        return ModelError(
            f"{cursor.path}: is a Git LFS pointer, not the model: the repository was cloned without its large files",
            fix="run `git lfs pull` in the repository, or download the model file itself",
        )
    if begins.lstrip(b"\xef\xbb\xbf \t\r\n")[:9].lower().startswith((b"<!doctype", b"<html", b"<head")):
        return ModelError(
            f"{cursor.path}: is an HTML page, not a model",
            fix="download the file itself (on huggingface.co its link contains /resolve/, not /blob/)",
        )
    return cursor.damaged("it does not begin with the letters GGUF")


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
            raise cursor.damaged(f"tensor {tensor.name!r} appears twice")
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


class GgmlType(NamedTuple):
    """One number format: `block` elements are stored in `block_bytes` bytes."""

    name: str
    block: int
    block_bytes: int

    def row_bytes(self, elements: int) -> int:
        """Bytes of `elements` consecutive elements, rounded up to whole blocks."""
        return -(-elements // self.block) * self.block_bytes


GGML_TYPES: dict[int, GgmlType] = {
    0: GgmlType("F32", 1, 4),
    1: GgmlType("F16", 1, 2),
    2: GgmlType("Q4_0", 32, 18),
    3: GgmlType("Q4_1", 32, 20),
    6: GgmlType("Q5_0", 32, 22),
    7: GgmlType("Q5_1", 32, 24),
    8: GgmlType("Q8_0", 32, 34),
    9: GgmlType("Q8_1", 32, 36),
    10: GgmlType("Q2_K", 256, 84),
    11: GgmlType("Q3_K", 256, 110),
    12: GgmlType("Q4_K", 256, 144),
    13: GgmlType("Q5_K", 256, 176),
    14: GgmlType("Q6_K", 256, 210),
    15: GgmlType("Q8_K", 256, 292),
    16: GgmlType("IQ2_XXS", 256, 66),
    17: GgmlType("IQ2_XS", 256, 74),
    18: GgmlType("IQ3_XXS", 256, 98),
    19: GgmlType("IQ1_S", 256, 50),
    20: GgmlType("IQ4_NL", 32, 18),
    21: GgmlType("IQ3_S", 256, 110),
    22: GgmlType("IQ2_S", 256, 82),
    23: GgmlType("IQ4_XS", 256, 136),
    24: GgmlType("I8", 1, 1),
    25: GgmlType("I16", 1, 2),
    26: GgmlType("I32", 1, 4),
    27: GgmlType("I64", 1, 8),
    28: GgmlType("F64", 1, 8),
    29: GgmlType("IQ1_M", 256, 56),
    30: GgmlType("BF16", 1, 2),
    34: GgmlType("TQ1_0", 256, 54),
    35: GgmlType("TQ2_0", 256, 66),
    39: GgmlType("MXFP4", 32, 17),
    40: GgmlType("NVFP4", 64, 36),
    41: GgmlType("Q1_0", 128, 18),
    42: GgmlType("Q2_0", 64, 18),
}
"""Number in the file -> format; the numbers left out were withdrawn by llama.cpp."""

TYPE_BY_NAME: dict[str, GgmlType] = {kind.name.lower(): kind for kind in GGML_TYPES.values()}
"""Lower-case name, as in `--cache-type-k q8_0`, -> format."""


@dataclass(frozen=True, slots=True)
class Metadata:
    """The metadata of one header; a key that begins with a dot is completed by the architecture's name."""

    header: Header

    @property
    def architecture(self) -> str | None:
        """`general.architecture`: llama.cpp's name for the kind of network."""
        return self.text("general.architecture")

    def _get(self, key: str) -> object:
        return self.header.metadata.get(f"{self.architecture}{key}" if key.startswith(".") else key)

    def text(self, key: str) -> str | None:
        """The value of a string key."""
        value = self._get(key)
        return value if isinstance(value, str) else None

    def flag(self, key: str) -> bool | None:
        """The value of a boolean key."""
        value = self._get(key)
        return value if isinstance(value, bool) else None

    def integer(self, key: str) -> int | None:
        """The value of an integer key; None when it is negative."""
        value = self._get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None

    def strings(self, key: str) -> StringArray | None:
        """An array of strings."""
        value = self._get(key)
        return value if isinstance(value, StringArray) else None

    def numbers(self, key: str) -> NumberArray | None:
        """An array of numbers or booleans."""
        value = self._get(key)
        return value if isinstance(value, NumberArray) else None

    def per_layer(self, key: str, layers: int) -> list[int] | None:
        """One value for each of `layers` layers, from an array or from one number that holds for all of them."""
        single = self.integer(key)
        if single is not None:
            return [single] * layers
        array = self.numbers(key)
        if array is None or array.code in "fd" or len(array) < layers:
            return None
        values = [int(value) for value in array.values()[:layers] if value >= 0]
        return values if len(values) == layers else None


def is_part(path: str) -> bool:
    """Whether a file with this name is a part of a split model."""
    return _PART.match(path) is not None


def first_part(name: str) -> bool:
    """Whether a file of this name begins a model: the first part of a split one, or one that is not split."""
    match = _PART.match(name)
    return match is None or int(match["number"]) == 1


def part_paths(path: Path) -> tuple[Path, ...]:
    """All files of the model whose first file is `path`, by their names; just `path` when it is not split."""
    match = _PART.match(path.name)
    if match is None:
        return (path,)
    stem, count = match["stem"], int(match["count"])
    if int(match["number"]) != 1:
        first = f"{stem}-00001-of-{match['count']}.gguf"
        raise ModelError(f"{path} is not the first part of a split model", fix=f"pass the first part, {first}")
    return tuple(path.with_name(f"{stem}-{number:05d}-of-{match['count']}.gguf") for number in range(1, count + 1))


def read_parts(path: Path) -> tuple[Header, ...]:
    """The headers of all files of a model, the first of which is `path`.

    Raises `ModelError` when a part is missing, damaged, or is not what its name says.
    """
    first = read_header(path)
    count = Metadata(first).integer("split.count") or 1
    if count <= 1:
        return (first,)
    paths = part_paths(path)
    if len(paths) != count:
        raise ModelError(
            f"{path} is one of {count} parts, but its name does not say so",
            fix=f"rename the parts to their original names (...-00001-of-{count:05d}.gguf)",
        )
    missing = [part.name for part in paths if not part.is_file()]
    if missing:
        shown = ", ".join(missing[:5]) + (f" and {len(missing) - 5} more" if len(missing) > 5 else "")
        raise ModelError(
            f"{path}: {len(missing)} of {count} parts are missing: {shown}",
            fix=f"download the missing parts into {path.parent}",
        )
    headers = (first, *(read_header(part) for part in paths[1:]))
    for number, header in enumerate(headers):
        if Metadata(header).integer("split.no") != number:
            raise ModelError(
                f"{header.path} is not part {number + 1} of the model in its name",
                fix="download this part again",
            )
    return headers
