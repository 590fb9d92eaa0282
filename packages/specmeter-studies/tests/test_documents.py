"""One page for all documents: its sentences and tables say what rows of data say, and link to them."""

from __future__ import annotations

import re

import pytest

from specmeter.audit import published
from specmeter.messages import Message, words
from specmeter.show.page.page import report_page
from specmeter.show.report import Tabled, Text
from specmeter_studies.cli.study import command
from specmeter_studies.show import documents
from specmeter_studies.show.documents import report


def test_every_number_leads_to_its_row() -> None:
    page = report_page(report())
    led, there = set(re.findall(r'href="#(row-[^"]+)"', page)), set(re.findall(r'<tr id="(row-[^"]+)"', page))
    assert led
    assert led <= there


def test_sentences_and_tables_of_numbers_have_links() -> None:
    made = report()
    texts = [it for it in made.answer if isinstance(it, Text)]
    assert [it.row == "" for it in texts] == [False] * (len(texts) - 1) + [True]  # the last one tells no number
    numbers = [
        cell
        for section in made.sections
        if section.name in ("measured_here", "found_since")
        for block in section.blocks
        if isinstance(block, Tabled)
        for row in block.table.rows
        for cell in row.cells
        if isinstance(cell.value, float)
    ]
    assert numbers
    assert all(it.row for it in numbers)


def test_what_was_found_since_has_a_link_in_every_row() -> None:
    section = next(it for it in report().sections if it.name == "found_since")
    later = next(it.table for it in section.blocks if isinstance(it, Tabled) and it.table.name == "found_later")
    led = [row.cells[1].row for row in later.rows]
    assert led[0] == "second-C-draft08b-n8"
    assert len(set(led)) == len(led) == 10
    dense = next(it for it in published.cells("rtx3090-38/arms.csv") if it["label"] == "draft08b-n8, C")
    assert later.rows[0].cells[1].value == float(dense["change_percent"])


def test_what_each_ruling_says_leads_to_its_unrounded_numbers() -> None:
    made = report()
    tables = {it.table.name: it.table for section in made.sections for it in section.blocks if isinstance(it, Tabled)}
    led = [row.cells[-1].row for row in tables["claims"].rows]
    behind = {row.id: row.cells[-1].text for row in tables["rows_claims"].rows}
    assert led == list(behind)
    mapped = behind["claim-rtx3090-aug-ngram-map"]
    assert re.search(r"-?\d+\.\d{2,}", str(mapped))


def test_runs_are_by_length_or_by_load() -> None:
    by_run = {(it.device, it.run): set[str]() for it in documents.measured()}
    for it in documents.measured():
        by_run[it.device, it.run].add(it.by)
        assert it.by == "load" or it.clients == 1
    assert all(len(kinds) == 1 for kinds in by_run.values())


def test_the_answer_is_counted_from_the_rows() -> None:
    rows = [it for it in published.cells("rtx3090-aug/matrix.csv") if it["run"] == "O2" and it["method"] != "none"]
    made = report()
    assert made.headline is not None
    assert made.headline.values["gaining"] == sum(float(it["ci_low"]) > 0 for it in rows)
    assert made.headline.values["losing"] == sum(float(it["ci_high"]) < 0 for it in rows)
    assert made.headline.values["of"] == len(rows)


def test_one_log_has_two_rates() -> None:
    """201 tokens in 3.219 s and 221 in 4.097 s, over 55.2 tok/s."""
    said = next(it.said for it in report().answer if isinstance(it, Text) and "disagree" in str(it.said))
    assert isinstance(said, Message)
    text = words().render(said)
    assert "+13.1% or -2.3%" in text
    assert "134 of its 174" in text


def test_both_languages_say_all() -> None:
    page = report_page(report())
    assert "验证失败" in page
    assert "failed verifications" in page
    assert 'data-filter="document"' in page
    assert 'data-filter="ruling"' in page


def test_rows_of_our_own_are_measured_and_complete() -> None:
    for it in documents.measured():
        assert it.target in ("dense", "moe")
        assert it.speedup.low is not None
        assert it.verdict in ("valid", "suspect")
        assert (it.experts is None) == (it.target == "dense")


def test_all_is_a_name_everywhere(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command(["show", "all"])
    assert ended.value.code == 0
    assert "3.219" in capsys.readouterr().out
