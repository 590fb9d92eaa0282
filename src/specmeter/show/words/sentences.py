"""Sentences that lower rooms make, in Chinese, known by their shape.

A finding, a ruling or an explanation is made and stored in English, with its values in it, whichever version of
specmeter made it. A catalogue holds its English form with `{0}`, `{1}` for the values, in the order of the text, and
the Chinese form with the same values in any order:

    "{0} of {1} requests drafted without the remote machine" = "{1} 个请求中有 {0} 个没有使用远程机器起草"

So a stored text is never formatted: it is compared with our forms, and what stands in place of the values is shown as
it was, or in Chinese where it is itself such a sentence. A text of no known form stays as it is, in English.

Catalogues are TOML: `sentences/*.toml` here, with a table for each source file that makes the sentences, and the
`zh.toml` of each study. `tests/test_sentences.py` demands a translation of every sentence of the code.
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
_KEPT = 20_000
"""Texts whose translation is kept for the next time."""
_HOLE = re.compile(r"\{(\d)\}")
_END = re.compile(r"(?<=[.!?]) (?=[A-Z`\d])|; |, or ")
_JOINED = {" ": "", "; ": "；", ", or ": "，或"}
_LETTERS = 3
"""A form with fewer letters only joins its values (`{0}; {1}`): it counts where one of them is a sentence of ours."""
_TAIL = tuple(",;:. (")
"""How something begins that is added to another sentence: `, unless ...`."""


class Form:
    """A sentence with places for its values."""

    def __init__(self, english: str, chinese: str) -> None:
        self.literals: tuple[str, ...] = tuple(_HOLE.split(english)[::2])
        self.letters = sum(char.isalpha() for literal in self.literals for char in literal)
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
        self._whole = {english: chinese for english, chinese in sentences.items() if not _HOLE.search(english)}
        forms = sorted((Form(*pair) for pair in sentences.items()), key=lambda form: -form.letters)
        holed = [form for form in forms if len(form.literals) > 1]
        self._forms = [form for form in holed if form.letters >= _LETTERS]
        self._joints = [form for form in holed if form.letters < _LETTERS]
        self._tails = [form for form in forms if form.literals[0].startswith(_TAIL) and form.letters >= _LETTERS]
        self._told: dict[str, str | None] = {}
        self._left = 0

    def told(self, text: str) -> str | None:
        """The text in Chinese; None where it has no form that is known."""
        if text not in self._told:
            if len(self._told) >= _KEPT:
                self._told.clear()
            self._left = _COMPARISONS
            self._told[text] = self._read(text, _DEPTH) if len(text) <= LONGEST else None
        return self._told[text]

    def _read(self, text: str, depth: int, *, whole: bool = False) -> str | None:
        """`whole`: nothing of it may be left that is neither a sentence of ours nor a value of one."""
        chinese = self._whole.get(text)
        if chinese is not None or depth == 0 or " " not in text or self._left <= 0:
            return chinese
        return (
            self._in_parts(text, depth)
            or self._with_tail(text, depth, whole=True)
            or self._formed(self._forms, text, depth)
            or (None if whole else self._with_tail(text, depth) or self._formed(self._joints, text, depth))
        )

    def _in_parts(self, text: str, depth: int) -> str | None:
        """Several sentences of ours, one after the other."""
        for end in _END.finditer(text):
            head = self._read(text[: end.start()], depth - 1, whole=True)
            rest = None if head is None else self._read(text[end.end() :], depth - 1, whole=True)
            if head is not None and rest is not None:
                return head + _JOINED[end[0]] + rest
        return None

    def _formed(self, forms: Iterable[Form], text: str, depth: int) -> str | None:
        """By the longest form that it has."""
        for form, values in self._matching(forms, text):
            told = [self._read(value, depth - 1) for value in values]
            if form.letters >= _LETTERS or any(one is not None for one in told):
                return form.filled([one or value for one, value in zip(told, values, strict=True)])
        return None

    def _with_tail(self, text: str, depth: int, *, whole: bool = False) -> str | None:
        """What our sentences may add to another, or to a value."""
        for form in self._tails:
            place = text.rfind(form.literals[0])
            if place <= 0 or (values := form.values(text[place:])) is None:
                continue
            head = self._read(text[:place], depth - 1, whole=whole)
            if head is not None or not whole:
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
    """Every sentence of the package, and of the studies that come with it."""
    files = [
        *(resources.files("specmeter.show.words") / "sentences").iterdir(),
        *(
            it / "zh.toml"
            for it in resources.files("specmeter.studies.library").iterdir()
            if (it / "zh.toml").is_file()
        ),
    ]
    tables = [table for file in files for table in tomllib.loads(file.read_text("utf-8")).values()]
    return {english: chinese for table in tables for english, chinese in table.items()}


@cache
def catalogue() -> Catalogue:
    """Of all that."""
    return Catalogue(ours())
