"""Files of results as text and as JSON: read whole, bounded, and with errors that say what is wrong with the file."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from io import StringIO
from itertools import islice
from pathlib import Path
from typing import cast

from specmeter.audit.read.numbers import LARGEST
from specmeter.errors import UsageError
from specmeter.files import open_regular
from specmeter.text import size

MAX_BYTES = 64 * 2**20
MAX_LINE = 4 * 2**20
"""Characters of one line."""
MAX_LIST = 200_000
"""Objects of one file."""
_HEAD = 64 * 1024
_BINARY = (
    b"\x1f\x8b", b"PK\x03\x04", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd", b"7z\xbc\xaf",  # compressed
    b"\x7fELF", b"MZ\x90\0", b"\xcf\xfa\xed\xfe", b"SQLite format 3", b"PAR1", b"GGUF", b"%PDF-", b"\x89PNG",
)  # fmt: skip
"""How files begin that are not text."""
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
_CONTROL = bytes(code for code in range(1, 32) if code not in b"\t\n\v\f\r\x1b")
_MOST_CONTROL = 0.05
"""Share of control characters in a text, at most."""
_NO_ROWS = frozenset({"choices", "stages", "turns", "messages"})
"""Keys of lists that are parts of one answer or attempt, not rows."""


def read_text(path: Path) -> str:
    """The text of a file, with plain line breaks and without byte order mark.

    Raises `UsageError` when it cannot be read, is larger than `MAX_BYTES`, is not text, or is empty.
    """
    try:
        with open_regular(path) as stream:
            raw = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror})", fix="name a file that is there") from None
    if len(raw) > MAX_BYTES:
        raise UsageError(f"{path}: more than {size(MAX_BYTES)}", fix="split the file, or keep the columns needed")
    text = _decode(raw, path).replace("\r\n", "\n").replace("\r", "\n")
    if "\0" in text:
        raise UsageError(
            f"{path}: holds nul bytes, so it is not text", fix="export the results as CSV, JSON or Markdown"
        )
    if not text.strip():
        raise UsageError(f"{path}: is empty", fix="name a file with results")
    return text


def read_head(path: Path) -> str:
    """The first 64 KiB of a file as text, whatever it contains. Raises `UsageError` when it cannot be read."""
    raw = _head(path)[:_HEAD]
    if raw.startswith(_UTF_16):
        return raw.decode("utf-16", "replace")
    return raw.decode("utf-8-sig", "replace")


def refuse_binary(path: Path) -> None:
    """Raises `UsageError` for a file that cannot be read, is empty, or begins as no text and no log does.

    Logs may hold nul bytes and even begin with many of them, where they were cut while the engine went on writing.
    """
    raw = _head(path)
    if len(raw) <= _HEAD and not raw.strip(b" \t\r\n\0\xef\xbb\xbf"):
        why = "holds only nul bytes" if b"\0" in raw else "is empty"
        raise UsageError(f"{path}: {why}", fix="name a file with results")
    odd = len(raw) - len(raw.translate(None, _CONTROL))
    if raw.startswith(_BINARY) or (odd > len(raw) * _MOST_CONTROL and not raw.startswith(_UTF_16)):
        raise UsageError(f"{path}: is a compressed or binary file", fix="unpack it, or export it as CSV")


def _head(path: Path) -> bytes:
    """The first 64 KiB and one byte more, where there is one."""
    try:
        with open_regular(path) as stream:
            return stream.read(_HEAD + 1)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror})", fix="name a file that is there") from None


def _decode(raw: bytes, path: Path) -> str:
    if raw.startswith(_BINARY):
        raise UsageError(f"{path}: is a compressed or binary file", fix="unpack it, or export it as CSV")
    encoding = "utf-16" if raw.startswith(_UTF_16) else "utf-8-sig"
    try:
        return raw.decode(encoding)
    except UnicodeDecodeError as error:
        where = f"byte {raw[error.start]:#04x} at position {error.start}"
        raise UsageError(f"{path}: not UTF-8 text ({where})", fix="save the file as UTF-8") from None


def read_objects(text: str, path: Path) -> Iterator[tuple[str, dict[str, object] | str]]:
    """(place, object) for each JSON object of a document or of JSON Lines; (place, reason) for a line that is none.

    A document is one object, a list of objects, or an object that holds exactly one list of objects. Raises
    `UsageError` for a document that is none of these.
    """
    whole = parse_json(text)
    if isinstance(whole, str):
        lines = [(number, line) for number, line in enumerate(text.split("\n"), start=1) if line.strip()]
        if not _begins_with_objects(text):
            raise UsageError(f"{path}: not JSON: {whole}", fix="write a list of objects, or one object per line")
        for count, (number, line) in enumerate(lines):
            _bound(count, path)
            parsed = parse_json(line)
            yield f"line {number}", _as_object(parsed) if not isinstance(parsed, str) else f"not JSON: {parsed}"
        return
    for number, item in enumerate(_list(whole, path), start=1):
        _bound(number, path)
        yield f"row {number}", _as_object(item)


def json_keys(head: str) -> set[str]:
    """The keys in a text that begins with a JSON object, or a list; empty where it does not."""
    if not head.lstrip("\ufeff \t\r\n[").startswith("{"):
        return set()
    return set(re.findall(r'"([a-z_0-9]{3,60})"\s*:', head))


def is_json(text: str) -> bool:
    """Whether a text is a JSON object or list, or JSON Lines; a page that begins with `[a link]` is neither."""
    if not text.lstrip().startswith(("[", "{")):
        return False
    return _begins_with_objects(text) or not isinstance(parse_json(text), str)


def _begins_with_objects(text: str) -> bool:
    """Whether one of the first two lines is an object by itself."""
    first = islice((line for line in StringIO(text) if line.strip()), 2)
    return any(isinstance(parse_json(line), dict) for line in first)


def _list(whole: object, path: Path) -> list[object]:
    if isinstance(whole, list):
        return cast("list[object]", whole)
    if isinstance(whole, dict):
        inner = [
            cast("list[object]", value)
            for key, value in cast("dict[str, object]", whole).items()
            if key not in _NO_ROWS and isinstance(value, list)
        ]
        lists = [rows for rows in inner if rows and isinstance(rows[0], dict)]
        return lists[0] if len(lists) == 1 else [cast("object", whole)]
    raise UsageError(f"{path}: JSON, but no object or list of objects", fix='write [{"speedup": 1.2, ...}, ...]')


def _as_object(item: object) -> dict[str, object] | str:
    return item if isinstance(item, dict) else "not an object"  # pyright: ignore


class RepeatedKeyError(ValueError):
    """An object of JSON says a key twice, with different values: which one holds is not to be guessed."""


def _without_repeats(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        for key, value in pairs:
            if found[key] != value:
                raise RepeatedKeyError(f"an object says {key[:40]!r} twice, with different values")
    return found


def parse_json(text: str) -> object:
    """The value, or a string saying why there is none (a bare JSON string does not count as one)."""
    if len(text) > MAX_BYTES:
        return "too long"
    try:
        value: object = json.loads(text, object_pairs_hook=_without_repeats)
    except json.JSONDecodeError as error:
        return f"{error.msg} at line {error.lineno} column {error.colno}"
    except RepeatedKeyError as error:
        return str(error)
    except (ValueError, RecursionError):
        return "a number with too many digits, or nested too deeply"
    return "only a string" if isinstance(value, str) else value


def _bound(count: int, path: Path) -> None:
    if count > MAX_LIST:
        raise UsageError(f"{path}: more than {MAX_LIST:,} objects", fix="split the file")


# --- numbers of an object that comes from outside: positive, finite, of everyday size, or refused


def positive(item: Mapping[str, object], key: str) -> float | None:
    """The number under `key`; None where there is none. Raises `ValueError` for one that is not a measured quantity."""
    value = item.get(key)
    if value is None or isinstance(value, (list, dict)):
        return None
    if isinstance(value, str):
        try:
            value = float(value) if len(value) < 64 else math.nan
        except ValueError:
            raise ValueError(f"{key} {value[:40]!r} is not a number") from None
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < LARGEST:
        return float(value)
    raise ValueError(f"{key} is {str(value)[:40]}: it must be a number above 0, and finite")


def count(item: Mapping[str, object], key: str) -> int | None:
    """The whole number >= 0 under `key`; None where there is none. Raises `ValueError` for anything else."""
    if item.get(key) in (0, "0", 0.0) and not isinstance(item.get(key), bool):
        return 0
    value = positive(item, key)
    if value is not None and value != int(value):
        raise ValueError(f"{key} is {value:g}: it must be a whole number")
    return None if value is None else int(value)


def text(item: Mapping[str, object], key: str) -> str:
    """The text under `key`, at most 160 characters; empty where there is none."""
    value = item.get(key)
    return value.strip()[:160] if isinstance(value, str) else ""


def inner(item: Mapping[str, object], key: str) -> Mapping[str, object]:
    """The object under `key`; an empty one where there is none."""
    value = item.get(key)
    return cast("Mapping[str, object]", value) if isinstance(value, dict) else {}


def listed(item: Mapping[str, object], key: str, most: int = 1_000) -> list[object]:
    """The first values of the list under `key`; none where there is no list."""
    value = item.get(key)
    return cast("list[object]", value)[:most] if isinstance(value, list) else []


def objects(item: Mapping[str, object], key: str, most: int = 1_000) -> list[Mapping[str, object]]:
    """Those of them that are objects."""
    return [cast("Mapping[str, object]", one) for one in listed(item, key, most) if isinstance(one, dict)]
