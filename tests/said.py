"""What a message says: the messages within it; and what sources say at all."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import cast

from specmeter.messages import LANGUAGES, Message, Value, words


def all_said(said: Value) -> Iterator[Message]:
    """A message and those among its values, at any depth."""
    if isinstance(said, Message):
        yield said
        for value in said.values.values():
            yield from all_said(value)
    elif isinstance(said, Sequence) and not isinstance(said, str):
        for value in cast("Sequence[Value]", said):
            yield from all_said(value)


def codes(said: Value) -> set[str]:
    """Codes of all of them."""
    return {it.code for it in all_said(said)}


def said_of(said: Value, code: str) -> Message:
    """The one of this code."""
    (found,) = (it for it in all_said(said) if it.code == code)
    return found


def check_both_languages(phrases: Iterable[Message | None]) -> None:
    """Each is told in Chinese characters too, and nothing is left to be filled in."""
    for phrase in filter(None, phrases):
        english, chinese = (words(language).render(phrase) for language in LANGUAGES)
        assert english != chinese
        assert re.search("[\u4e00-\u9fff]", chinese)
        assert not re.search(r"\{\w+\}", english + chinese)


def literals(folder: Path) -> Iterator[str]:
    """Strings of sources and templates, as patterns: `.+` for values within them."""
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.JoinedStr):
                yield "".join(re.escape(str(it.value)) if isinstance(it, ast.Constant) else ".+" for it in node.values)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield re.escape(node.value)
    for path in folder.rglob("*.html"):
        for text, more in re.findall(r'"([^"{}<>]+)"(?: (~))?', path.read_text("utf-8")):
            yield re.escape(text) + (".+" if more else "")


def never_said(codes: Iterable[str], *folders: Path) -> set[str]:
    """Codes that no string of the sources can be."""
    said = re.compile("|".join({it for folder in folders for it in literals(folder) if re.search(r"\w\\\.|\.\w", it)}))
    return {code for code in codes if not said.fullmatch(code)}
