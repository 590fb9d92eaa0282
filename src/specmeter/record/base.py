"""The base class of all records: validation with errors in the words of files, and storage as JSON.

A file is read with distrust and written whole.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import date
from itertools import pairwise
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from specmeter.errors import EngineProtocolError, UsageError
from specmeter.files import open_inside, read_named, write_inside, write_whole
from specmeter.text import counted, size

if TYPE_CHECKING:
    from pydantic import GetJsonSchemaHandler


class Record(BaseModel):
    """Base of all records: frozen, no unknown keys. The docstring of a field is its description."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        schema = handler(core_schema)
        properties: dict[str, dict[str, Any]] = handler.resolve_ref_schema(schema).get("properties", {})
        for name, description in descriptions(cls).items():
            if name in properties:
                properties[name].setdefault("description", description)
        return schema


def descriptions(record: type[Record]) -> dict[str, str]:
    """Name of a field -> its docstring, read from the source.

    pydantic can do so for every class as it is made (`use_attribute_docstrings`), which is a seventh of the time that
    a command takes to start; few commands ask.
    """
    import ast
    import inspect

    found: dict[str, str] = {}
    for kind in reversed(record.__mro__):
        if issubclass(kind, Record) and kind is not Record:
            (made,) = ast.parse(dedent(inspect.getsource(kind))).body
            for field, text in pairwise(made.body if isinstance(made, ast.ClassDef) else ()):
                match field, text:
                    case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(words))):
                        found[name] = inspect.cleandoc(words)
                    case _:
                        pass
    return found


NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
"""Of names that stand in ids and in names of files."""

_MAPPING = "a mapping of keys"
_KINDS: dict[str, str] = {
    "string": "text",
    "int": "a whole number",
    "float": "a number",
    "finite": "a finite number",
    "bool": "true or false",
    "bytes": "text",
    "dict": _MAPPING,
    "mapping": _MAPPING,
    "model": _MAPPING,
    "dataclass": _MAPPING,
    "tuple": "a list",
    "list": "a list",
    "set": "a list",
    "frozen": "a list",
    "iterable": "a list",
    "none": "null",
    "datetime": "a date with its time",
    "date": "a date",
}
"""First word of pydantic's type of an error -> what it wanted."""
_LIMITS = {
    "greater_than_equal": ("ge", "at least"),
    "greater_than": ("gt", "more than"),
    "less_than_equal": ("le", "at most"),
    "less_than": ("lt", "less than"),
}
_QUOTE = "'"
_SHOWN = 80
"""Characters of a value that a message quotes."""


def fault_text(faults: Sequence[Any]) -> str:
    """One place's faults, as `ValidationError.errors` lists them, as one line without the place."""
    first = faults[0]
    context: Mapping[str, Any] = first.get("ctx") or {}
    match first["type"]:
        case "missing":
            return "missing"
        case "extra_forbidden":
            return "unknown key"
        case "value_error" | "assertion_error":
            return str(first["msg"]).partition(", ")[2]
        case "json_invalid":
            return f"cannot be read as JSON ({context.get('error', 'it ends too early')})"
        case "union_tag_not_found":
            return f"{context['discriminator'].strip(_QUOTE)} is missing"
        case "union_tag_invalid":
            found = f"{context['discriminator'].strip(_QUOTE)} {str(context['tag'])[:_SHOWN]!r} is unknown"
            return f"{found}; {_options(str(context['expected_tags']))}"
        case _:
            wanted = " or ".join(dict.fromkeys(_wanted(it) for it in faults))
            return f"has to be {wanted} (given: {_given(first['input'])})"


def first_fault(error: ValidationError, where: str = "") -> str:
    """The first thing that is wrong, with its place: `arms.0.gamma: has to be a whole number (given: 'x')`."""
    first = error.errors(include_url=False)[0]
    place = ".".join(map(str, first["loc"])) or where
    return f"{place}: {fault_text([first])}" if place else fault_text([first])


def _wanted(fault: Any) -> str:
    kind: str = fault["type"]
    context: Mapping[str, Any] = fault.get("ctx") or {}
    if kind in _LIMITS:
        limit, words = _LIMITS[kind]
        return f"{words} {context[limit]}"
    if kind == "literal_error":
        return _options(str(context["expected"]))
    if kind in ("too_short", "too_long"):
        least = kind == "too_short"
        what = "mapping" if context.get("field_type") == "Dictionary" else "list"
        limit = counted(context["min_length" if least else "max_length"], "entry", "entries")
        return f"a {what} of {'at least' if least else 'at most'} {limit}"
    if kind in ("string_too_short", "string_too_long"):
        least = kind == "string_too_short"
        limit = counted(context["min_length" if least else "max_length"], "character")
        return f"text of {'at least' if least else 'at most'} {limit}"
    if kind == "string_pattern_mismatch":
        if context["pattern"] == NAME_PATTERN:
            return "a name of at most 64 letters, digits, dots, hyphens and underscores, with a letter or digit first"
        return f"text of the form {context['pattern']}"
    if kind == "invalid_key":
        return "text as its key"
    return _KINDS.get(kind.partition("_")[0], "something else")


def _given(value: object) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return value.isoformat() if isinstance(value, date) else repr(value)[:_SHOWN]


def _options(expected: str) -> str:
    """`'a', 'b' or 'c'`, as pydantic lists them -> `one of a, b, c`."""
    return "one of " + ", ".join(re.findall(r"'([^']*)'", expected))


def utf8(text: str) -> bytes:
    """The text as UTF-8 for engines. Raises `EngineProtocolError` if it cannot be encoded."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise EngineProtocolError(
            f"the text is not valid Unicode: a lone surrogate at character {error.start}",
            fix="give the text as valid UTF-8",
        ) from None


Kind = TypeVar("Kind", bound=Record)


def read_record(kind: type[Kind], path: Path, *, what: str, made_by: str, max_bytes: int, inside: bool = False) -> Kind:
    """The record in a file. `what` it should be and the command that it is `made_by` stand in messages.

    A path that a user names may be a link or a pipe; one `inside` a folder that a stranger may have made is a plain
    file. Raises `UsageError` that names the file and what is wrong in it.
    """
    fix = f"pass a file made by `{made_by}`"
    if inside:
        fix += ", or remove this file and repeat the command that made its folder"
    try:
        if inside:
            with open_inside(path.parent, path.name) as file:
                content = file.read(max_bytes + 1)
        else:
            content = read_named(path, max_bytes + 1)
    except OSError as error:
        raise UsageError(f"{path}: the {what} cannot be read ({error.strerror or error})", fix=fix) from None
    if len(content) > max_bytes:
        raise UsageError(f"{path}: is not a {what} (larger than {size(max_bytes)})", fix=fix)
    try:
        return kind.model_validate_json(content.decode("utf-8"))
    except UnicodeDecodeError:
        raise UsageError(f"{path}: is not a {what} (it is not text)", fix=fix) from None
    except ValidationError as error:
        raise UsageError(f"{path}: is not a {what} ({first_fault(error, 'the whole')})", fix=fix) from None
    except UsageError as error:  # a part that says itself what is wrong with it
        raise UsageError(f"{path}: is not a {what} ({error.message})", fix=fix) from None


def write_record(record: Record, path: Path, *, what: str, inside: bool = False) -> None:
    """Write it, whole or not at all; a link is followed, but for one `inside` a folder that a stranger may have made.

    Raises `UsageError` when that cannot be done.
    """
    data = f"{record.model_dump_json(indent=1)}\n".encode()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_inside(path.parent, path.name, data) if inside else write_whole(path, data)
    except OSError as error:
        raise UsageError(
            f"{path}: the {what} cannot be written ({error.strerror or error})", fix="choose another file with --out"
        ) from None
