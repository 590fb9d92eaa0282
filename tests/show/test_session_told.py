"""Recorded sessions in a report: time of the calls, where it goes, by depth, and a figure."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from report_pages import measured
from specmeter.analysis.reading import read_run
from specmeter.messages import words
from specmeter.show.page.document import read_document
from specmeter.show.page.page import run_page
from specmeter.show.report import Text
from specmeter.show.run_figures import run_figures
from specmeter.show.run_report import report

LONG = "text " * 5000
"""More tokens than the first limit of a depth."""


def said(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("sessions")
    turns = [said("user", "Hello there"), said("assistant", "Hi, how are you?"), said("user", LONG)]
    turns += [said("assistant", "That is long."), said("user", "It is"), said("assistant", "Yes.")]
    (base / "s.jsonl").write_text(json.dumps({"messages": turns}) + "\n", encoding="utf-8")
    return measured(
        base,
        f"""
name: sessions
targets: {{dense: "mock:dense"}}
drafts: {{small: "mock:small"}}
workloads: [{{source: sessions, paths: ["{base / "s.jsonl"}"]}}]
arms: [{{draft: small, gamma: 4}}]
design: {{blocks: 3}}
engine: {{kind: mock, context: 32768, prompt_cache: true}}
generation: {{max_tokens: 32}}
""",
    )


def test_calls_are_told_by_part_and_by_depth(folder: Path) -> None:
    run = read_run(folder)
    base, drafting = run.sessions
    assert (base.baseline_id, drafting.baseline_id) == (None, base.arm_id)
    assert (base.calls, base.sessions) == (3, 1)
    assert drafting.speedup is not None
    assert drafting.decoding is not None
    assert drafting.decoding.point > drafting.speedup.point > 1  # reading the prompts is the same on both sides
    assert 0 < base.parts.generating < 1
    assert base.parts.new > 0
    assert [it.depth for it in drafting.depths] == [0, 16384]
    assert (drafting.depths[1].reuse or 0) > 0
    told = json.loads(json.dumps(report(run).document()))
    assert len(told["sessions"]) == 2


def test_the_answer_says_what_speculation_can_touch(folder: Path) -> None:
    lines = [words().render(it.said) for it in report(read_run(folder)).answer if isinstance(it, Text)]
    assert any("speculation can touch" in it for it in lines)
    assert any("3 calls of 1 session" in it for it in lines)


def test_the_figure_has_a_panel_for_each_number(folder: Path) -> None:
    figure = run_figures(read_document(folder))["depths"]
    assert [it.name for it in figure.panels] == ["depths", "depths-acceptance", "depths-reuse"]


def test_the_page_has_the_calls_as_its_answer(folder: Path) -> None:
    html = run_page(read_document(folder))
    assert '<section id="sessions">' in html
    assert "speculation can touch" in html
    assert html.count('data-decision="') == 1  # no second answer, of tokens per second
