"""Reads the user's own prompts from files.

`*.jsonl` holds one JSON object per line, `*.json` a list of them (or one). An object is a prompt: `prompt` (or `text`),
and if wanted `id`, `kind` and `max_tokens`; or a conversation as others keep them (OpenAI's messages, ShareGPT), of
which `id`, `kind` and `max_tokens` are read too. Generated is the answer to the last turn of the user; the answers
before it stay as they were said. Prompts without an id are named after file and line (or place in the list), `mine-12`.
`*.csv` is a table of prompts: its first row names the same keys.

Any other file is one prompt, named after the file, or one prompt per line if that is asked for. The line break that
editors put at its very end does not belong to the prompt, and line breaks of Windows become plain ones.
Files that are not UTF-8, unknown keys, doubled ids and empty prompts are refused, with their place.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import Annotated, Any, NamedTuple, cast

from pydantic import Field, ValidationError

from specmeter.errors import ExperimentError
from specmeter.record import ChatMessage, Record
from specmeter.record.base import first_fault
from specmeter.text import size
from specmeter.workloads.conversations import messages_of, tools_of, turns_of
from specmeter.workloads.spec import STRUCTURED, Name
from specmeter.workloads.texts import Item

MAX_FILE_BYTES = 64 * 2**20
MAX_PROMPTS = 100_000
"""Of one workload."""
MAX_PROMPT_CHARACTERS = 8_000_000
"""Beyond what any context holds."""

Text = Annotated[str, Field(max_length=MAX_PROMPT_CHARACTERS)]


class PromptLine(Record):
    """One line of a JSONL file."""

    prompt: Text | None = None
    text: Text | None = None
    id: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    kind: Name | None = None
    max_tokens: Annotated[int, Field(ge=1, le=1_000_000)] | None = None


def read_prompts(paths: Sequence[Path], kind: str, *, per_line: bool = False) -> Iterator[Item]:
    """All prompts of the files, in order; `kind` is that of prompts which do not name one, and `per_line` makes every
    line of text files a prompt.

    Raises `ExperimentError` naming file and line of the first fault.
    """
    places: dict[str, str] = {}
    for path in paths:
        before = len(places)
        for place, item in _file_items(path, kind, per_line=per_line):
            if not item.text.strip() and not (item.before and item.before[-1].role == "tool"):
                raise ExperimentError(f"{place}: the prompt is empty", fix="write a prompt there, or remove it")
            if item.id in places:
                raise ExperimentError(
                    f"{place}: the prompt id {item.id!r} is already used at {places[item.id]}",
                    fix='give every prompt a unique "id", and every file a different name',
                )
            if len(places) == MAX_PROMPTS:
                raise ExperimentError(f"{place}: more than {MAX_PROMPTS} prompts", fix="use fewer prompts")
            places[item.id] = place
            yield item
        if len(places) == before:
            how = _HOW if path.suffix.lower() == ".jsonl" else "write prompts into it"
            raise ExperimentError(f"{path}: contains no prompts", fix=how)


def read_text(path: Path) -> str:
    """A text file's content, without byte order mark and with plain line breaks.

    Raises `ExperimentError` when it cannot be read, is too large, or is not UTF-8.
    """
    try:
        if not path.is_file():
            raise ExperimentError(
                f"{path}: {'is not a file' if path.exists() else 'no such file'}",
                fix="use a JSONL or text file; paths are relative to the experiment file",
            )
        size_bytes = path.stat().st_size
        if size_bytes > MAX_FILE_BYTES:
            raise ExperimentError(
                f"{path}: {size(size_bytes)} is above the limit of {size(MAX_FILE_BYTES)}", fix="use a smaller file"
            )
        content = path.read_bytes()
    except OSError as error:
        raise ExperimentError(f"{path}: cannot be read: {error.strerror}", fix="check its permissions") from None
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ExperimentError(
            f"{path}: not UTF-8: byte {content[error.start]:#04x} at position {error.start}",
            fix="save the file as UTF-8",
        ) from None
    return text.removeprefix("\ufeff").replace("\r\n", "\n")


def _file_items(path: Path, kind: str, *, per_line: bool) -> Iterator[tuple[str, Item]]:
    """(place, prompt) for each prompt of a file."""
    text = read_text(path)
    ending = path.suffix.lower()
    if ending not in STRUCTURED and not per_line:
        yield str(path), Item(path.stem, kind, _bounded(text.removesuffix("\n"), str(path)))
        return
    if not text.strip():
        return
    if ending == ".json":
        parsed = _parsed(text, str(path))
        entries = cast("list[object]", parsed) if isinstance(parsed, list) else [parsed]
        for number, entry in enumerate(entries, start=1):
            place = f"{path}, entry {number}"
            yield place, _item(entry, place, f"{path.stem}-{number}", kind)
        return
    if ending == ".csv":
        yield from _rows(text, path, kind)
        return
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            place, own_id = f"{path}, line {number}", f"{path.stem}-{number}"
            if ending == ".jsonl":
                yield place, _item(_parsed(line, place), place, own_id, kind)
            else:
                yield place, Item(own_id, kind, _bounded(line, place))


def _rows(text: str, path: Path, kind: str) -> Iterator[tuple[str, Item]]:
    """Prompts of a table, whose first row names the columns; an empty cell says nothing."""
    delimiter = max(",;\t", key=text.partition("\n")[0].count)
    try:
        head, *rows = csv.reader(StringIO(text, newline=""), delimiter=delimiter, strict=True)
    except csv.Error as error:
        raise ExperimentError(f"{path}: not CSV: {error}", fix="quote cells; keep long prompts in .jsonl") from None
    columns = [name.strip().lower() for name in head]
    if not {"prompt", "text"} & set(columns):
        raise ExperimentError(
            f"{path}: its first row has no column `prompt` or `text`",
            fix="write a first row such as prompt,kind; or use a .txt file with one prompt per line",
        )
    if twice := [it for it in columns if it and columns.count(it) > 1]:
        raise ExperimentError(
            f"{path}: its first row contains {twice[0][:80]!r} twice", fix="rename one of these columns"
        )
    for number, row in enumerate(rows, start=2):
        place = f"{path}, row {number}"
        if len(row) > len(columns):
            raise ExperimentError(f"{place}: has more cells than the first row", fix="quote cells that contain a comma")
        if entry := {name: cell for name, cell in zip(columns, row, strict=False) if cell.strip()}:
            yield place, _item(entry, place, f"{path.stem}-{number - 1}", kind)


_HOW = 'write one JSON object per line: {"prompt": "..."}'


def _bounded(text: str, place: str) -> str:
    if len(text) > MAX_PROMPT_CHARACTERS:
        raise ExperimentError(
            f"{place}: the prompt has {len(text)} characters, more than {MAX_PROMPT_CHARACTERS}",
            fix="use a shorter text",
        )
    return text


def _parsed(text: str, place: str) -> Any:
    try:
        return json.loads(text)  # Python's own parser, since its messages name the column
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column" if "\n" in text else "column"
        raise ExperimentError(f"{place}: not JSON: {error.msg} at {where} {error.colno}", fix=_HOW) from None
    except (RecursionError, ValueError):  # of Python's limits
        raise ExperimentError(f"{place}: nested too deeply, or a number with too many digits", fix=_HOW) from None


def _item(entry: object, place: str, default_id: str, kind: str) -> Item:
    if not isinstance(entry, Mapping):
        raise ExperimentError(f"{place}: is not an object", fix=_HOW)
    given = cast("Mapping[str, Any]", entry)
    turns, before, tools = turns_of(given), (), ()
    if turns is not None:
        tools = tools_of(given, place)
        said = chat(turns, place)
        before = said.before
        _bounded("".join((said.text, *(message.content for message in said.before))), place)
        given = {"prompt": said.text, **{key: given[key] for key in ("id", "kind", "max_tokens") if key in given}}
    try:
        parsed = PromptLine.model_validate(given)
    except ValidationError as error:
        raise ExperimentError(
            f"{place}: {first_fault(error)}",
            fix=f"known keys: {', '.join(PromptLine.model_fields)}, messages, conversations",
        ) from None
    if (parsed.prompt is None) == (parsed.text is None):
        raise ExperimentError(f'{place}: needs either "prompt" or "text"', fix="use one of the two keys")
    text = parsed.prompt if parsed.prompt is not None else parsed.text or ""
    return Item(parsed.id or default_id, parsed.kind or kind, text, parsed.max_tokens, before=before, tools=tools)


class Chat(NamedTuple):
    """What is to be answered: the user's last turn, or after that the result of a tool; and what was said before."""

    text: str
    """Empty if the conversation ends with a tool's result, which is then in `before`."""
    before: tuple[ChatMessage, ...]


def chat(turns: object, place: str) -> Chat:
    """A conversation. Raises `ExperimentError`, which names the place, for turns that are not text, of unknown roles,
    more than can be meant, or without one of the user."""
    said = messages_of(turns, place)
    if not any(it.role == "user" for it in said):
        raise ExperimentError(
            f"{place}: the conversation has no user turn", fix="add a user turn, or remove the conversation"
        )
    last = max(number for number, message in enumerate(said) if message.role in ("user", "tool"))
    if said[last].role == "tool":
        return Chat("", said[: last + 1])
    return Chat(said[last].content, said[:last])
