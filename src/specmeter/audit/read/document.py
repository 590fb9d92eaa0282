"""Files of results as text, JSON and printed numbers: bounded, and with errors that say what is wrong with the file."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from io import StringIO
from itertools import islice
from pathlib import Path
from typing import Any, cast

from specmeter.audit.claim import Claim, UnreadableError, claim_of, problem_of
from specmeter.errors import UsageError
from specmeter.files import open_regular
from specmeter.messages import Message
from specmeter.text import size

MAX_BYTES = 64 * 2**20
MAX_LINE = 4 * 2**20
"""Characters of one line."""
MAX_LIST = 200_000
"""Objects of one file."""
_HEAD_BYTES = 64 * 1024
_BINARY = (
    b"\x1f\x8b", b"PK\x03\x04", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd", b"7z\xbc\xaf",  # compressed
    b"\x7fELF", b"MZ\x90\0", b"\xcf\xfa\xed\xfe", b"SQLite format 3", b"PAR1", b"GGUF", b"%PDF-", b"\x89PNG",
)  # fmt: skip
"""How files begin that are not text."""
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
_CONTROL = bytes(code for code in range(1, 32) if code not in b"\t\n\v\f\r\x1b")
_MAX_CONTROL = 0.05
"""Share of control characters in a text, at most."""
_NO_ROWS = frozenset({"choices", "stages", "turns", "messages"})
"""Keys of lists that are parts of one answer or attempt, not rows."""


def read_text(path: Path) -> str:
    """The text of a file, with plain line breaks and without byte order mark.

    Raises `UsageError` when it cannot be read, is larger than `MAX_BYTES`, is not text, or is empty.
    """
    raw = _read(path, MAX_BYTES)
    if len(raw) > MAX_BYTES:
        raise UsageError(f"{path}: more than {size(MAX_BYTES)}", fix="split the file, or remove unneeded columns")
    text = _decode(raw, path).replace("\r\n", "\n").replace("\r", "\n")
    if "\0" in text:
        raise UsageError(
            f"{path}: contains NUL bytes, so it is not text", fix="export the results as CSV, JSON or Markdown"
        )
    if not text.strip():
        raise UsageError(f"{path}: is empty", fix="pass a file with results")
    return text


def read_head(path: Path) -> str:
    """The first 64 KiB of a file as text, whatever it contains. Raises `UsageError` when it cannot be read."""
    raw = _read(path, _HEAD_BYTES)[:_HEAD_BYTES]
    return raw.decode("utf-16" if raw.startswith(_UTF_16) else "utf-8-sig", "replace")


def refuse_binary(path: Path) -> None:
    """Raises `UsageError` for a file that cannot be read, is empty, or begins as no text and no log does.

    Logs may hold nul bytes and even begin with many of them, where they were cut while the engine went on writing.
    """
    raw = _read(path, _HEAD_BYTES)
    if len(raw) <= _HEAD_BYTES and not raw.strip(b" \t\r\n\0\xef\xbb\xbf"):
        why = "holds only nul bytes" if b"\0" in raw else "is empty"
        raise UsageError(f"{path}: {why}", fix="pass a file with results")
    odd = len(raw) - len(raw.translate(None, _CONTROL))
    if raw.startswith(_BINARY) or (odd > len(raw) * _MAX_CONTROL and not raw.startswith(_UTF_16)):
        raise UsageError(f"{path}: is a compressed or binary file", fix="decompress it, or export the results as CSV")


def _read(path: Path, most: int) -> bytes:
    """The first bytes of a file, and one more, where there is one."""
    try:
        with open_regular(path) as stream:
            return stream.read(most + 1)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror})", fix="check the path") from None


def _decode(raw: bytes, path: Path) -> str:
    if raw.startswith(_BINARY):
        raise UsageError(f"{path}: is a compressed or binary file", fix="decompress it, or export the results as CSV")
    encoding = "utf-16" if raw.startswith(_UTF_16) else "utf-8-sig"
    try:
        return raw.decode(encoding)
    except UnicodeDecodeError as error:
        where = f"byte {raw[error.start]:#04x} at position {error.start}"
        raise UsageError(f"{path}: not UTF-8 text ({where})", fix="save the file as UTF-8") from None


def read_objects(text: str, path: Path) -> Iterator[tuple[str, dict[str, object] | Message]]:
    """(place, object) for each JSON object of a document or of JSON Lines; (place, reason) for a line that is none.

    A document is one object, a list of objects, or an object that holds exactly one list of objects. Raises
    `UsageError` for a document that is none of these.
    """
    whole = parse_json(text)
    if isinstance(whole, Message):
        lines = [(number, line) for number, line in enumerate(text.split("\n"), start=1) if line.strip()]
        if not _begins_with_objects(text):
            raise UsageError(f"{path}: not JSON: {whole}", fix="write a list of objects, or one object per line")
        for count, (number, line) in enumerate(lines):
            _bound(count, path)
            parsed = parse_json(line)
            no_json = Message("unread.json", why=parsed) if isinstance(parsed, Message) else None
            yield f"line {number}", no_json or _as_object(parsed)
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
    return _begins_with_objects(text) or not isinstance(parse_json(text), Message)


def _begins_with_objects(text: str) -> bool:
    """Whether one of the first two lines is an object on its own."""
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
    raise UsageError(f"{path}: JSON, but not an object or a list of objects", fix='write [{"speedup": 1.2, ...}, ...]')


def _as_object(item: object) -> dict[str, object] | Message:
    return item if isinstance(item, dict) else Message("unread.json.no_object")  # pyright: ignore


def without_repeats(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """An object; raises `UnreadableError` where one key has two values: which of them holds is not to be guessed."""
    found = dict(pairs)
    if len(found) < len(pairs):
        for key, value in pairs:
            if found[key] != value:
                raise UnreadableError("unread.json.repeated_key", key=key[:40])
    return found


def parse_json(text: str) -> object:
    """The value, or a message saying why there is none (a bare JSON string does not count as one)."""
    if len(text) > MAX_BYTES:
        return Message("unread.json.long")
    try:
        value: object = json.loads(text, object_pairs_hook=without_repeats)
    except json.JSONDecodeError as error:
        return Message("unread.json.syntax", why=error.msg, line=error.lineno, column=error.colno)
    except UnreadableError as error:
        return error.said
    except (ValueError, RecursionError):
        return Message("unread.json.deep")
    return Message("unread.json.string") if isinstance(value, str) else value


def _bound(count: int, path: Path) -> None:
    if count > MAX_LIST:
        raise UsageError(f"{path}: more than {MAX_LIST:,} objects", fix="split the file")


@dataclass(frozen=True)
class Importer:
    """How a format is known and read."""

    sniff: Callable[[str], bool]
    """Whether a file that begins like this (64 KiB at most) is of the format."""
    read: Callable[[Path], Iterator[Claim]]
    """The claims of a file. Raises `UsageError` for a file that cannot be read at all."""


def read_benchmarks(path: Path, fields_of: Callable[[Mapping[str, object]], dict[str, Any]]) -> Iterator[Claim]:
    """One claim per object of the file, its fields as `fields_of` finds them; what it refuses becomes a problem.

    Raises `UsageError` for a file that cannot be read.
    """
    yield from claims_of(read_objects(read_text(path), path), path, fields_of)


def claims_of(
    objects: Iterable[tuple[str, Mapping[str, object] | Message]],
    path: Path,
    fields_of: Callable[[Mapping[str, object]], dict[str, Any]],
) -> Iterator[Claim]:
    """The same for objects that were found already: (place, object, or why there is none)."""
    for place, item in objects:
        if isinstance(item, Message):
            yield Claim(source=str(path), row=place, problem=Message("unread.line", why=item))
            continue
        names = ("label", "model_id", "tag", "test_name", "Test name", "model")
        label = next((found for name in names if (found := text(item, name))), "")
        try:
            fields: dict[str, Any] = {"label": label}
            fields.update(fields_of(item))
        except ValueError as error:
            yield claim_of(source=str(path), row=place, label=label, problem=problem_of(error))
            continue
        yield claim_of(source=str(path), row=place, **fields)


# --- values of an object that comes from outside: bounded, numbers positive and finite, or refused -------------------


def positive(item: Mapping[str, object], key: str) -> float | None:
    """The number under `key`; None where there is none. Raises `ValueError` for one that is not a measured quantity."""
    value = item.get(key)
    if value is None or isinstance(value, (list, dict)):
        return None
    if isinstance(value, str):
        try:
            value = float(value) if len(value) < 64 else math.nan
        except ValueError:
            raise UnreadableError("unread.no_number", name=key, value=value[:40]) from None
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < LARGEST:
        return float(value)
    raise UnreadableError("unread.not_positive", name=key, value=str(value)[:40])


def count(item: Mapping[str, object], key: str) -> int | None:
    """The whole number >= 0 under `key`; None where there is none. Raises `ValueError` for anything else."""
    if item.get(key) in (0, "0", 0.0) and not isinstance(item.get(key), bool):
        return 0
    value = positive(item, key)
    if value is not None and value != int(value):
        raise UnreadableError("unread.not_whole", name=key, value=f"{value:g}")
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


MAX_CELL = 1_000
"""Characters of a cell; what is longer is cut off, and is not a number."""
LARGEST = 1e15
