"""One term per concept, in English and in Chinese: `data/glossary.toml` holds everything that is read."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from specmeter.messages import words

ROOT = Path(__file__).resolve().parent.parent
WORDS = ROOT / "src" / "specmeter" / "show" / "words"
STUDIES = ROOT / "packages" / "specmeter-studies" / "src"
LIBRARY = STUDIES / "specmeter_studies" / "library"
TERMS: list[dict[str, Any]] = tomllib.loads((ROOT / "tests" / "data" / "glossary.toml").read_text("utf-8"))["term"]
CATALOGUES = sorted((WORDS / "sentences").glob("*.toml"))
DOCS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FOREIGN = ("audit/read", "theory/catalogue")
"""What others call things: headings of their tables, names of their models."""


def texts(language: str) -> Iterator[tuple[str, str]]:
    """(where, text) of all that a reader meets in a language."""
    for key, text in words(language).text.items():
        yield key, text
    for path in CATALOGUES:
        for table in tomllib.loads(path.read_text("utf-8")).values():
            for english, chinese in table.items():
                yield str(path.relative_to(ROOT)), english if language == "en" else chinese
    for path in sorted(LIBRARY.glob("*/study.yaml")):
        for text in told(yaml.safe_load(path.read_text("utf-8"))) if language == "en" else ():
            yield str(path.relative_to(ROOT)), text


def told(given: Any, key: str = "") -> Iterator[str]:
    """Texts of a study."""
    if isinstance(given, dict):
        for name, value in given.items():
            yield from told(value, str(name))
    elif isinstance(given, list):
        for value in given:
            yield from told(value, key)
    elif isinstance(given, str) and key != "source":
        yield given


def strings(path: Path) -> Iterator[str]:
    """Strings of a source file with words in them: messages, help texts, docstrings."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.value


def clean(text: str) -> str:
    """Without code, addresses and line ends."""
    return " ".join(re.sub(r"```.*?```|`[^`]*`|https?://\S+", " ", text, flags=re.DOTALL).split())


def wrong(text: str, term: dict[str, Any], language: str) -> list[str]:
    """Forms of a term in a text that are not to be used."""
    for right in term.get("but", ()):
        text = text.replace(right, "")
    forms = term[f"not_{language}"]
    if language == "zh":
        return [form for form in forms if form in text]
    return [form for form in forms if re.search(rf"(?<![\w-]){re.escape(form)}(?![\w-])", text, re.IGNORECASE)]


def test_every_concept_has_one_term_in_each_language() -> None:
    assert len(TERMS) >= 30
    for term in TERMS:
        assert {"concept", "en", "zh", "not_en", "not_zh"} <= set(term)
        assert wrong(term["en"], term, "en") == wrong(term["zh"], term, "zh") == []
    for language in ("en", "zh"):
        names = [term[language] for term in TERMS]
        assert len(set(names)) == len(names)
    assert {"投机解码", "草稿模型", "接受率"} <= {term["zh"] for term in TERMS}


@pytest.mark.parametrize("language", ["en", "zh"])
def test_pages_and_studies_use_its_terms(language: str) -> None:
    found = [
        (where, form, text[:100])
        for where, text in texts(language)
        for term in TERMS
        for form in wrong(clean(text), term, language)
    ]
    assert found == []


def test_the_documentation_uses_its_terms() -> None:
    texts = {path.name: clean(path.read_text(encoding="utf-8")) for path in DOCS}
    assert [(name, form) for name, text in texts.items() for term in TERMS for form in wrong(text, term, "en")] == []


def test_the_source_uses_its_terms() -> None:
    found = [
        (str(path.relative_to(ROOT)), form, text[:80])
        for path in [*sorted((ROOT / "src").rglob("*.py")), *sorted(STUDIES.rglob("*.py"))]
        if not any(part in path.as_posix() for part in FOREIGN)
        for text in strings(path)
        for term in TERMS
        for form in wrong(clean(text), term, "en")
    ]
    assert found == []


def test_chinese_terms_are_used() -> None:
    chinese = "".join(text for _, text in texts("zh"))
    assert [term["zh"] for term in TERMS if term["zh"] not in chinese] == []
