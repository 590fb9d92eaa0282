"""Sentences that lower rooms make, in Chinese, known by their shape.

A finding, a ruling or an explanation is made and stored in English, with its values in it, whichever version of
specmeter made it. A catalogue holds its English form with `{0}`, `{1}` for the values, in the order of the text, and
the Chinese form with the same values in any order:

    "{0} of {1} requests drafted without the remote machine" = "{1} 个请求中有 {0} 个没有使用远程机器起草"

So a stored text is never formatted: it is compared with our forms, and what stands in place of the values is shown as
it was, or in Chinese where it is itself such a sentence. A text of no known form stays as it is, in English.

Catalogues are TOML: `sentences/*.toml` here, with a table for each source file that makes the sentences. `tests/test_sentences.py` demands a translation of every sentence of the code.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib import resources

LONGEST = 6_000
"""Characters of a text that is looked at; longer ones are not ours."""
_DEPTH = 8
"""Sentences within sentences within sentences."""
_COMPARISONS = 200_000
"""Spent on one text at most, whatever a stranger wrote into it."""
_FIRST = 3
"""First characters that forms are sorted by."""
_KEPT = 20_000
"""Texts whose translation is kept for the next time."""
_HOLE = re.compile(r"\{(\d)\}")
_END = re.compile(r"(?<=[.!?]) (?=[A-Z`\d])|; |, or ")
_JOINED = {" ": "", "; ": "；", ", or ": "，或"}
_NAME = re.compile(r"([a-z][a-z0-9]*(?:-[a-z0-9]+)+): ")
_LETTERS = 4
"""A form with fewer letters only joins its values (`{0}; {1}`): it counts where one of them is a sentence of ours."""
_WEAK = 12
"""A form with fewer letters or of fewer than three words (`{0} at {1}`) fits too much: what stands in its places may not
read like a sentence that is not ours."""
_WORD = re.compile(r"[^\W\d_]{2,}")
_PROSE = re.compile(r"[a-z]{2,},? [a-z]{2,}")
_TAIL = re.compile(r"[,;:.]| \(| because | [a-z]+ [a-z]")
"""How something begins that is added to another sentence: `, unless ...`."""


class Form:
    """A sentence with places for its values."""

    def __init__(self, english: str, chinese: str) -> None:
        self.literals: tuple[str, ...] = tuple(_HOLE.split(english)[::2])
        self.letters = sum(char.isalpha() for literal in self.literals for char in literal)
        self.is_weak = self.letters < _WEAK or sum(len(_WORD.findall(literal)) for literal in self.literals) < 3
        self._chinese = _HOLE.split(chinese)

    def values(self, text: str) -> list[str] | None:
        """What stands in its places, where the text has this form: each value is as short as it can be.

        Whatever the text, this takes one pass over it.
        """
        first, *middle, last = self.literals if len(self.literals) > 1 else (*self.literals, "")
        if not text.startswith(first) or not text.endswith(last):
            return None
        at, end, found = len(first), len(text) - len(last), list[str]()
        for literal in middle:
            place = text.find(literal, at, end)
            if place < 0:
                return None
            found.append(text[at:place])
            at = place + len(literal)
        if at > end or (len(self.literals) == 1 and at < end):
            return None
        return [*found, text[at:end]]

    def filled(self, values: Sequence[str]) -> str:
        """The Chinese sentence with these values."""
        return "".join(values[int(part)] if place % 2 else part for place, part in enumerate(self._chinese))


class Catalogue:
    """English forms with their Chinese ones."""

    def __init__(self, sentences: Mapping[str, str]) -> None:
        # What ends a sentence may stand behind its last value, or be left out by another sentence around it.
        open_ = {it.removesuffix("."): sentences[it].removesuffix("。") for it in sentences if it.endswith(".")}
        apart = {it.removeprefix(" "): sentences[it] for it in sentences if it[0] == " " and it[1:2].isupper()}
        sentences = {**open_, **apart, **sentences}
        self._whole = {english: chinese for english, chinese in sentences.items() if not _HOLE.search(english)}
        forms = sorted((Form(*pair) for pair in sentences.items()), key=lambda form: -form.letters)
        holed = [form for form in forms if len(form.literals) > 1]
        self._joints = [form for form in holed if form.letters < _LETTERS]
        self._forms: dict[str, list[Form]] = {}
        for form in holed:
            if form.letters >= _LETTERS:
                self._forms.setdefault(form.literals[0][:_FIRST], []).append(form)
        self._tails = [form for form in forms if _TAIL.match(form.literals[0]) and form.letters >= _LETTERS]
        self._told: dict[str, str | None] = {}
        self._parts: dict[tuple[str, bool], tuple[int, str | None]] = {}
        """Of the text that is being read: how deep it was looked into, and what came of it."""
        self._left = 0

    def told(self, text: str) -> str | None:
        """The text in Chinese; None where it has no form that is known."""
        if text not in self._told:
            if len(self._told) >= _KEPT:
                self._told.clear()
            self._left, self._parts = _COMPARISONS, {}
            self._told[text] = self._read(text, _DEPTH) if len(text) <= LONGEST else None
        return self._told[text]

    def _read(self, text: str, depth: int, *, whole: bool = False) -> str | None:
        """`whole`: require a full match."""
        chinese = self._whole.get(text)
        if chinese is not None or depth == 0 or " " not in text or self._left <= 0:
            return chinese
        looked, told = self._parts.get((text, whole), (0, None))
        if told is None and looked < depth:
            self._parts[text, whole] = depth, None
            told = self._compared(text, depth, whole=whole)
            self._parts[text, whole] = depth, told
        return told

    def _compared(self, text: str, depth: int, *, whole: bool) -> str | None:
        forms = [form for length in range(_FIRST, -1, -1) for form in self._forms.get(text[:length], ())]
        return (
            self._in_parts(text, depth)
            or self._with_tail(text, depth)
            or self._formed((form for form in forms if not form.is_weak), text, depth)
            or self._after_a_name(text, depth, whole=whole)
            or self._loosely_formed((form for form in forms if form.is_weak), text, depth)
            or (None if whole else self._loosely_formed(self._joints, text, depth))
        )

    def _after_a_name(self, text: str, depth: int, *, whole: bool) -> str | None:
        """The name of a check or of a bound before a sentence."""
        name = _NAME.match(text)
        rest = None if name is None else self._read(text[name.end() :], depth - 1, whole=whole)
        return None if name is None or rest is None else f"{name[1]}：{rest}"

    def _in_parts(self, text: str, depth: int) -> str | None:
        """Several sentences of ours, one after the other, and what needs no words between them."""
        for end in _END.finditer(text):
            parts = text[: end.start()], text[end.end() :]
            told = self._all(parts, depth)
            if told is not None:
                return told[0] + _JOINED[end[0]] + told[1]
        rest = self._read(text[:-1], depth - 1, whole=True) if text.endswith(".") else None
        return None if rest is None else f"{rest}。"

    def _all(self, values: Sequence[str], depth: int) -> list[str] | None:
        """Values in Chinese where they are sentences of ours; None where none is, or another one reads like one."""
        told = [self._read(value, depth - 1, whole=True) for value in values]
        if not any(told) or any(not one and _PROSE.search(value) for one, value in zip(told, values, strict=True)):
            return None
        return [one or value for one, value in zip(told, values, strict=True)]

    def _formed(self, forms: Iterable[Form], text: str, depth: int) -> str | None:
        """By the longest form that it has."""
        for form, values in self._matching(forms, text):
            return form.filled([self._read(value, depth - 1) or value for value in values])
        return None

    def _loosely_formed(self, forms: Iterable[Form], text: str, depth: int) -> str | None:
        """By a form that fits much."""
        for form, values in self._matching(forms, text):
            told = self._all(values, depth)
            if told is None and form.letters >= _LETTERS and not any(map(_PROSE.search, values)):
                told = values
            if told is not None:
                return form.filled(told)
        return None

    def _with_tail(self, text: str, depth: int) -> str | None:
        """What our sentences may add to another, or to a value."""
        for form in self._tails:
            place = text.rfind(form.literals[0])
            if place <= 0 or (values := form.values(text[place:])) is None:
                continue
            head = self._read(text[:place], depth - 1, whole=True)
            if head is not None or not _PROSE.search(text[:place]):
                told = [self._read(value, depth - 1) or value for value in values]
                return (head or text[:place]) + form.filled(told)
        return None

    def _matching(self, forms: Iterable[Form], text: str) -> Iterator[tuple[Form, list[str]]]:
        for form in forms:
            self._left -= 1
            if self._left <= 0:
                return
            values = form.values(text)
            if values is not None:
                yield form, values


@cache
def ours() -> Mapping[str, str]:
    """Every sentence of the package."""
    files = (resources.files("specmeter.show.words") / "sentences").iterdir()
    tables = [table for file in files for table in tomllib.loads(file.read_text("utf-8")).values()]
    return {english: chinese for table in tables for english, chinese in table.items()}


@cache
def catalogue() -> Catalogue:
    """Of all that."""
    return Catalogue(ours())
