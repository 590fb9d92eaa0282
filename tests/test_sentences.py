"""Sentences of lower rooms: every one of the code has a Chinese form with the same values, and is known by it alone."""

from __future__ import annotations

import ast
import re
import time
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import specmeter
from specmeter.show.page.page import Voice
from specmeter.show.words import words
from specmeter.show.words.sentences import LONGEST, catalogue, ours

SOURCE = Path(specmeter.__file__).parent
CATALOGUES = sorted((SOURCE / "show" / "words" / "sentences").glob("*.toml"))
OWN = {"words.toml"}
"""Words and joints, which stand in no single source file."""
MAKERS = [
    *(SOURCE / "audit" / f"{name}.py" for name in ("across", "counters", "judge", "speedup")),
]
"""Files whose sentences a page shows."""
NOT_TOLD = set(tomllib.loads((Path(__file__).parent / "data" / "not_told.toml").read_text("utf-8"))["forms"])
"""Strings of these files that no page shows as a sentence: threats (told by key), methods of estimates, names."""
HOLE = re.compile(r"\{\d\}")


@cache
def forms_of(path: Path) -> frozenset[str]:
    """Every string of a file with words in it, `{0}`, `{1}` for its values; without docstrings, errors and SQL."""

    def visit(node: ast.AST) -> Iterator[str]:
        if isinstance(node, ast.Raise) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
            return
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2].endswith("Error"):
            return
        if isinstance(node, ast.keyword) and node.arg in ("fix", "assumes", "otherwise", "threat", "method"):
            return
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "Check" and len(node.args) > 1:
            node.args[1] = ast.Constant("")  # what the check looks for: told by its key
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("Bound", "Assumed"):
            return  # what the audit holds claims against: a table of its how-to, told by its name
        if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str)):
            parts = node.values if isinstance(node, ast.JoinedStr) else [node]
            text, number = "", 0
            for part in parts:
                if isinstance(part, ast.Constant):
                    named = iter(range(10))  # a template that is filled in later: {part}
                    text += re.sub(r"\{[a-z_]+\}", lambda _, named=named: f"{{{next(named)}}}", str(part.value))
                else:
                    text, number = f"{text}{{{number}}}", number + 1
                    assert isinstance(part, ast.FormattedValue)
                    yield from visit(part.value)
            literal = HOLE.sub("", text)
            words = " " in literal and re.search("[a-z]{2}", literal) and "\\" not in literal
            if words and not text.startswith("SELECT "):
                yield text
            return
        if isinstance(node, ast.AnnAssign):
            node.annotation = ast.Constant(None)
        for child in ast.iter_child_nodes(node):
            yield from visit(child)

    return frozenset(visit(ast.parse(path.read_text(encoding="utf-8"))))


@cache
def tables() -> dict[str, dict[str, str]]:
    """Table -> its sentences."""
    found: dict[str, dict[str, str]] = {}
    for file in CATALOGUES:
        found |= tomllib.loads(file.read_text("utf-8"))
    return found


def test_every_sentence_of_the_code_has_a_chinese_form() -> None:
    known = ours().keys() | NOT_TOLD
    assert {(path, form) for path in MAKERS for form in forms_of(path) if form not in known} == set()


def test_both_forms_have_the_same_values() -> None:
    pairs = [
        (file, *pair)
        for file in CATALOGUES
        for table in tomllib.loads(file.read_text("utf-8")).values()
        for pair in table.items()
    ]
    for file, english, chinese in pairs:
        assert sorted(HOLE.findall(english)) == sorted(set(HOLE.findall(chinese))), english
        assert HOLE.findall(english) == [f"{{{place}}}" for place in range(len(HOLE.findall(english)))], english
        assert english.strip(), file
        assert chinese.strip() or english == "{0}", english


def test_no_form_is_left_of_a_sentence_that_is_gone() -> None:
    left = {file: gone for file in CATALOGUES if file.name not in OWN and (gone := gone_from(file))}
    assert left == {}


def gone_from(file: Path) -> set[str]:
    """Sentences of a catalogue that nothing says any more."""
    sources = {name: [SOURCE / name] for name in tomllib.loads(file.read_text("utf-8"))}
    gone: set[str] = set()
    for name, table in tomllib.loads(file.read_text("utf-8")).items():
        there = {form for path in sources[name] for form in forms_of(path)}
        gone |= (
            {english.removeprefix("{0} ") for english in table if " " in english}
            - there
            - {it.removeprefix("{0} ") for it in there}
        )
    return gone


SAMPLES = ("7", "dense/g4", "3.1", "code-1", "x")


def test_a_sentence_is_known_whatever_its_values() -> None:
    for english in filter(HOLE.search, ours()):
        text = english
        for place in range(len(HOLE.findall(english))):
            text = text.replace(f"{{{place}}}", SAMPLES[place % len(SAMPLES)])
        if sum(char.isalpha() for char in HOLE.sub("", english)) < 4:
            continue  # a joint, which counts only beside a sentence
        chinese = catalogue().told(text)
        assert chinese is not None, english
        assert re.search("[\u4e00-\u9fff]", chinese) or not re.search("[\u4e00-\u9fff]", ours()[english]), english
        for place in range(len(HOLE.findall(english))):
            assert SAMPLES[place % len(SAMPLES)] in chinese, english


def test_sentences_within_sentences_and_one_after_the_other() -> None:
    told = catalogue().told
    assert told("None of this was measured. No speedup is left.") == "这些都没有测量。没有剩下加速比。"


def test_what_is_not_ours_stays_as_it_is() -> None:
    told = catalogue().told
    assert told("") is None
    assert told("the quick brown fox jumps over the lazy dog") is None
    assert told("see {0.__class__} and {x}") is None
    assert told("ask another one about 7 tokens at last") is None
    assert told("x" * (LONGEST + 1)) is None
    # Values are text, and are never read as forms.
    assert told("its {1} {0} drafts.. was {0}, but the model on record is {0.a}") is None or "{0.a}" in str(
        told("its draft was {0}, but the model on record is {0.a}")
    )


def test_a_strangers_text_costs_little_whatever_it_holds() -> None:
    before = time.process_time()
    for text in (", or ".join(["x y"] * 700), "; ".join(["needs a"] * 600), ". A".join(["b"] * 1400), " tokens " * 600):
        catalogue().told(text[:LONGEST])
    assert time.process_time() - before < 30


def test_a_page_shows_both_and_escapes_the_values() -> None:
    voice = Voice([words("en"), words("zh")])
    told = str(voice.say("all <b>3</b> rates end in 0 or 5: rounded, or made up"))
    assert "<b>" not in told
    assert "速率都以 0 或 5 结尾" in told
    assert 'data-lang="en"' in told
    assert str(voice.say("gpt <i>")) == "<bdi>gpt &lt;i&gt;</bdi>"
