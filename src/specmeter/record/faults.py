"""What is wrong with data that should be a record, in the words of files; pydantic's own are for programmers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from specmeter.errors import EngineProtocolError
from specmeter.text import counted

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


def told(faults: Sequence[Any]) -> str:
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
            return f"is not JSON ({context.get('error', 'it ends too early')})"
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
    return f"{place}: {told([first])}" if place else told([first])


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
    return repr(value)[:_SHOWN]


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
