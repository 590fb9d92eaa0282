"""The corpus: no true file is wronged, and of doctored ones only those are missed that are known, with a reason."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from audit.corpus import DATA, listen, misses, ruled, true_tables
from audit.doctoring import RULES
from audit.page import Result, alarm, audit_all, page
from audit.sheets import Sheet

PAGE = Path(__file__).resolve().parents[2] / "benchmarks" / "audit-corpus.md"


@cache
def audited() -> Result:
    return audit_all()


def test_no_true_file_is_called_impossible_or_implausible() -> None:
    wronged = {item.name: heard.rulings for item, heard in audited().true if alarm(item, heard)}
    assert wronged == {}


@pytest.mark.parametrize("item", ruled(), ids=lambda item: item["file"])
def test_published_files_of_which_nothing_is_known_are_ruled_as_agreed(item: dict[str, Any]) -> None:
    text = (DATA / item["file"]).read_text(encoding="utf-8")
    assert dict(listen(item["file"], text).words) == item["rulings"]


def test_what_can_be_held_against_a_bound_is() -> None:
    """Silence would raise no false alarm either: files that hold enough must earn a `possible`."""
    silent = [item.name for item, heard in audited().true if item.expect == "possible" and not heard.words["possible"]]
    assert silent == []


def test_doctored_files_are_found_but_for_those_that_arithmetic_cannot_see() -> None:
    assert {(item.rule.name, item.file) for item in audited().missed()} == set(misses())


def test_the_corpus_is_large_and_every_stored_file_is_in_it() -> None:
    result = audited()
    assert len(result.true) >= 60
    assert len(result.doctored) >= 60
    stored = {f"{folder}/{path.name}" for folder in ("own", "published") for path in (DATA / folder).iterdir()}
    assert {f"ruled/{path.name}" for path in (DATA / "ruled").iterdir()} == {item["file"] for item in ruled()}
    assert stored == {item.name for item in true_tables() if not item.name.startswith("simulated/")}
    assert all(item.source and item.why and item.shape for item in true_tables())


def test_every_rule_is_applied_and_named_once() -> None:
    names = [rule.name for rule in RULES]
    assert len(names) == len(set(names))
    assert all(rule.files for rule in RULES)
    assert all(bool(rule.says) == (rule.must == "note") for rule in RULES)


def test_the_page_says_what_the_corpus_shows() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(audited())


@pytest.mark.parametrize(
    "name", ["own/table-drafts.md", "own/table-german.csv", "own/arms.json", "own/requests-042.jsonl"]
)
def test_a_sheet_is_written_back_as_it_was_read(name: str) -> None:
    """Doctoring must change what it says it changes, and nothing else."""
    text = next(item.text for item in true_tables() if item.name == name)
    again = Sheet.parse(Sheet.parse(text).text())
    assert (again.headings, again.rows) == (Sheet.parse(text).headings, Sheet.parse(text).rows)
