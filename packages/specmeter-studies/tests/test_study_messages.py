"""What studies say is in their catalogues, and their catalogues hold nothing else."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml

import specmeter_studies
from said import literals, never_said
from specmeter.messages import words
from specmeter.numbers.estimates import bare, between
from specmeter_studies.show.documents import report
from specmeter_studies.show.tables import document_table
from specmeter_studies.telling import quoted

SOURCE = Path(specmeter_studies.__file__).parent
ENGLISH: dict[str, str] = json.loads((SOURCE / "messages" / "en.json").read_text("utf-8"))
SHOWN = {"title", "about", "series_title", "source", "none", "where", "only_of", "claim", "would_decide"}
"""Keys of `study.yaml` whose text is shown to readers."""
NAME = re.compile(r"[a-z]|[a-z]+(_[a-z]+)+|config|(Qwen|Gemma)\S*|\{\w+\}")
"""Texts that are names: of models, columns of the document's own files, and quantities."""
METHODS = {text for text in ENGLISH if text.startswith("ratio of printed perplexities")}
"""How estimates are made, which some sentences quote."""


def shown(given: Any, key: str = "") -> Iterator[str]:
    """Texts of a study that languages have their own for."""
    if isinstance(given, dict):
        for name, value in given.items():
            if name != "where" or isinstance(value, str):
                yield from shown(value, "title" if key == "words" else str(name))
    elif isinstance(given, list):
        for value in given:
            yield from shown(value, key)
    elif isinstance(given, str) and key in SHOWN and re.search("[A-Za-z]", given) and not NAME.fullmatch(given):
        yield given


@cache
def texts() -> frozenset[str]:
    """All texts of all studies."""
    files = (SOURCE / "library").glob("*/study.yaml")
    return frozenset(text for path in files for text in shown(yaml.safe_load(path.read_text("utf-8"))))


def test_every_text_of_a_study_has_its_words() -> None:
    assert {text for text in texts() if text not in ENGLISH} == set()


def test_every_message_is_said_somewhere() -> None:
    headings = {f"section.{it.name}" for it in report().sections} | {f"column.{it}" for it in report().filters}
    assert never_said(set(ENGLISH) - texts() - METHODS - headings, SOURCE) <= {"first runs, withdrawn"}


def test_no_english_sentence_is_left_in_published_tables_in_chinese() -> None:
    """Four English words in a row are a sentence that went round the catalogue; names and a log's words are fewer."""
    chinese, sentence = words("zh"), re.compile(r"(?:[A-Za-z][a-z']+[ ,;]+){3,}[a-z]+")
    for name in specmeter_studies.names():
        data = specmeter_studies.find(name).published()
        for table in specmeter_studies.findings(name, data).tables if data else ():
            drawn = document_table(table, "published")
            told = [it.heading for it in drawn.columns] + [it.text for row in drawn.rows for it in row.cells]
            said = [chinese.render(it) for it in told]
            assert [text for text in said if sentence.search(text)] == [], name


def test_every_code_of_the_source_is_known() -> None:
    begins = {code.partition(".")[0] for code in ENGLISH if re.fullmatch(r"[a-z0-9-]+\.[a-z0-9_. ]+", code)}
    code = re.compile(rf"({'|'.join(begins)})\\\.(?!json|html|yaml)[a-z0-9_]+(\\\.[a-z0-9_]+)*")
    found = {it.replace("\\", "") for it in literals(SOURCE) if code.fullmatch(it)}
    known = [*words().text]
    assert {it for it in found if not any(code.startswith(it) for code in known)} == set()


def test_a_multiple_is_said_in_the_language() -> None:
    found = bare(0.83, "x", "a ratio"), between(0.83, 0.8, 0.9, "x", "a ratio", n=3)
    assert [words("zh").render(quoted(it, "x")) for it in found] == ["0.83 倍（无区间）", "0.83 倍 [0.8, 0.9]"]
    assert str(quoted(found[1], "x")) == "0.83x [0.8, 0.9]"
