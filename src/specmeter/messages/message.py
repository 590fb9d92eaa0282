"""What is said, apart from how it is worded: a code with values, put into words last, from catalogues that are data.

    Message("conservation.idle", steps=3, decoded=120)
    en.json   "conservation.idle": "{steps} steps emitted nothing: {decoded:,} tokens decoded",
    zh.json   "conservation.idle": "{steps} 步没有产生 token：解码了 {decoded:,} 个",

A placeholder may say how its value is shown:

    {speedup:x}                     2.10x
    {share:.0%} {gap:.2f} {n:,}     as Python formats numbers
    {tau:number} {bytes:size} {rate:bandwidth} {parameters:amount} {seconds:duration}
    {argument:quoted}               as a shell takes it
    {n:# prompt|# prompts}          `1 prompt`, `1,200 prompts`; a language without plurals has one form
    {arms} {arms:;} {arms:and} {arms:or}    lists, as the language joins them

A message may be a value of another; a form of its place then goes to those of its numbers that have none. Texts of a
study are their own codes: what no catalogue knows is shown as it stands, with its values filled in.

A catalogue is JSON, one line a message: it is read in a millisecond by every program that translators use, and line n
of each language is the same message. A language is one file here and one in each package that says something; its
`language` is what it calls itself, `language.tag` its name in HTML.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from specmeter import extensions
from specmeter.text import amount, bandwidth, duration, number, printable, quoted, size

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler

Value: TypeAlias = "bool | int | float | str | Message | Sequence[Value] | None"
"""What a message may hold. Text comes from outside, or is an identifier: it is shown as it is, made harmless."""

_OWN = Path(__file__).parent

LANGUAGES = tuple(sorted((it.stem for it in _OWN.glob("*.json")), key=lambda it: (it != "en", it)))
"""Every language that there is a catalogue of, English first."""
_HOLE = re.compile(r"\{(\w+)(?::([^{}]*))?\}|\{\{|\}\}")
_NUMBER = re.compile(r"[+,]{0,2}(\.\d{1,2})?[defgG%]?")
_DEEP = 12
"""Messages within messages."""
_WIDE = 1_000
"""Values of a message, and items of a list."""
_LONG = 20_000
"""Characters of a text."""
_FORMS: dict[str, Callable[[float], str]] = {
    "x": lambda value: f"{value:.2f}x",
    "number": number,
    "size": size,
    "bandwidth": bandwidth,
    "amount": amount,
    "duration": duration,
}


class Message:
    """What is said, in no language. Equal where code and values are."""

    __slots__ = ("_key", "code", "values")

    code: str
    values: Mapping[str, Value]

    def __init__(self, code: str, /, **values: Value) -> None:
        self.code = code
        self.values = values
        self._key: tuple[int, object] | None = None

    def _compared(self) -> tuple[int, object]:
        """Its hash and what it is made of, made once and only where messages are compared: most never are."""
        if self._key is None:
            made_of = (self.code, tuple((name, _hashable(it)) for name, it in sorted(self.values.items())))
            self._key = hash(made_of), made_of
        return self._key

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Message) and self.code == other.code and self._compared() == other._compared()

    def __hash__(self) -> int:
        return self._compared()[0]

    def __repr__(self) -> str:
        return f"Message({', '.join((repr(self.code), *(f'{name}={value!r}' for name, value in self.values.items())))})"

    def __str__(self) -> str:
        """In English: for logs, errors, and programs that ask for text."""
        return words("en").render(self)

    def to_json(self) -> dict[str, Any]:
        """Code, values and the English text; the text is for those who read the file, and never read back."""
        return {**_given(self), "text": str(self)}

    @classmethod
    def from_json(cls, given: object, depth: int = _DEEP) -> Message:
        """What `to_json` made, from a file that a stranger may have written. Raises `ValueError`."""
        match given:
            case Message():
                return given
            case {"code": str(code), "values": dict()}:
                named = cast("dict[str, dict[object, object]]", given)["values"]
                if len(code) > _LONG or len(named) > _WIDE:
                    raise ValueError("is longer than any message")
                return cls(code, **{str(name): _read(value, depth) for name, value in named.items()})
            case _:
                raise ValueError("has to be a message: its code and its values")

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: GetCoreSchemaHandler) -> Any:
        from pydantic_core import core_schema

        return core_schema.no_info_plain_validator_function(
            cls.from_json, serialization=core_schema.plain_serializer_function_ser_schema(cls.to_json)
        )

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        texts = {"code": {"type": "string"}, "values": {"type": "object"}, "text": {"type": "string"}}
        return {"type": "object", "properties": texts, "required": ["code", "values"]}


class Words:
    """What one language calls everything."""

    def __init__(self, language: str, text: Mapping[str, str], others: Mapping[str, str] | None = None) -> None:
        self.language = language
        self.text = text
        self.others = others or {}
        """Texts of a user's own study, which change none of ours and are no more trusted than other values."""

    def __call__(self, code: str, **values: Value) -> str:
        """A message in plain text, on one line."""
        return self.render(Message(code, **values))

    def __contains__(self, code: str) -> bool:
        return code in self.text

    @property
    def tag(self) -> str:
        """The language as HTML names it."""
        return self.text.get("language.tag", self.language)

    def render(
        self,
        said: Message | str,
        *,
        own: Callable[[str], str] = str,
        outside: Callable[[str], str] = printable,
    ) -> str:
        """A message in this language; other text as it is. Total: whatever was stored, there is a text for it.

        `own` is applied to words of the catalogue before their values are filled in, `outside` to every other text.
        """
        return _Rendering(self, own, outside).value(said, "", _DEEP)

    def listed(self, items: Iterable[str], joint: str = "") -> str:
        """`a, b, c` as the language writes it; `;` between sentences, `and` before the last."""
        *first, last = list(items) or [""]
        if joint == "and" and first:
            return self.listed(first) + self.text["list.and"] + last
        return self.text.get(f"list.{joint or ','}", ", ").join([*first, last])


class _Rendering:
    """One text in the making. What comes from outside has so much room in all of it, whatever a stranger nested."""

    def __init__(self, words: Words, own: Callable[[str], str], outside: Callable[[str], str]) -> None:
        self._words = words
        self._own = own
        self._outside = outside
        self._room = _LONG

    def text(self, text: str) -> str:
        """A text from outside, cut before it is escaped."""
        shown = text[: self._room]
        self._room -= len(shown)
        return self._outside(shown if len(shown) == len(text) else f"{shown}...")

    def value(self, value: Value, form: str, depth: int) -> str:
        """A message or another value; `form` is for numbers that have none of their own."""
        match value:
            case Message():
                if depth == 0 or self._room <= 0:
                    return "..."
                known, at = self._known(value), 0
                parts: list[str] = []
                for hole in _HOLE.finditer(known):
                    parts.append(known[at : hole.start()])
                    at, name = hole.end(), hole[1]
                    self._room -= 1
                    if name is None:
                        parts.append(hole[0][0])
                    elif name in value.values:
                        parts.append(self.value(value.values[name], hole[2] or form, depth - 1))
                    else:
                        parts.append(hole[0])
                return "".join((*parts, known[at:]))
            case str():
                return self.text(quoted(value[:_LONG]) if form == "quoted" else value)
            case bool():
                return self._words.text.get(f"cell.{'yes' if value else 'no'}", str(value))
            case int() | float():
                return _number(value, form)
            case None:
                return "?"
            case _:
                if depth == 0 or self._room <= 0:
                    return "..."
                joint, form = (form, "") if f"list.{form}" in self._words.text else ("", form)
                self._room -= len(value[:_WIDE])
                shown = [self.value(it, form, depth - 1) for it in value[:_WIDE]]
                return self._words.listed([*shown, "..."] if len(value) > _WIDE else shown, joint)

    def _known(self, said: Message) -> str:
        """The words of a code, with holes."""
        if said.code in self._words.text:
            return self._own(self._words.text[said.code])
        known = self.text(self._words.others.get(said.code, said.code))
        if said.values and not _HOLE.search(known):
            known += " (" + ", ".join(f"{name}: {{{name}}}" for name in said.values if name.isidentifier()) + ")"
        return known


def _number(value: float, form: str) -> str:
    try:
        if "#" in form:
            one, *several = form.split("|")
            shown = f"{value:,}" if isinstance(value, int) else f"{value:,g}"
            return (one if value == 1 or not several else several[0]).replace("#", shown)
        if form in _FORMS:
            return _FORMS[form](value)
        if form and _NUMBER.fullmatch(form):
            return format(value, form)
        return number(value) if isinstance(value, float) else str(value)  # no place wants fifteen digits
    except (OverflowError, ValueError):  # a whole number beyond all floats, or of thousands of digits
        return "?"


def words(language: str = "en") -> Words:
    """The words of a language, those of installed packages among them; of terminals and files unless told. What it
    lacks is said in English."""
    return _words(language)


@cache
def _words(language: str) -> Words:
    return Words(language, texts(language))


def with_own(known: Words, texts: Mapping[str, str]) -> Words:
    """The same with texts of a user's own study, which change none of ours."""
    return Words(known.language, known.text, texts) if texts else known


def _hashable(value: Value) -> object:
    return tuple(map(_hashable, value)) if isinstance(value, Sequence) and not isinstance(value, str) else value


def _given(value: Value) -> Any:
    match value:
        case Message():
            return {"code": value.code, "values": {name: _given(it) for name, it in value.values.items()}}
        case float() if not isfinite(value):
            return str(value)  # JSON has no such numbers
        case None | bool() | int() | float() | str():
            return value
        case _:
            return [_given(it) for it in value]


def _read(value: object, depth: int) -> Value:
    if depth == 0:
        raise ValueError("its values are nested too deep")
    match value:
        case None | bool() | int() | float() | str() | Message():
            return value
        case dict():
            return Message.from_json(cast("object", value), depth - 1)
        case list() if len(items := cast("list[object]", value)) <= 10 * _WIDE:
            return tuple(_read(it, depth - 1) for it in items)
        case _:
            raise ValueError("has values that no message can have")


def texts(language: str) -> dict[str, str]:
    """Code -> its text, those of installed packages among them; what the language lacks is in English."""
    found: dict[str, str] = {}
    for name in dict.fromkeys(("en", language)):
        for folder in (_OWN, *extensions.catalogues()):
            file = Path(folder, f"{name}.json")
            found |= json.loads(file.read_text("utf-8")) if file.is_file() else {}
    return found
