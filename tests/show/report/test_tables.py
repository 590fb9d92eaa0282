"""Tables for papers: three forms with the same numbers, and nothing from outside that acts in them."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from specmeter.analysis.reading import read_run
from specmeter.cli import invoke
from specmeter.messages import words
from specmeter.record import Estimate
from specmeter.show.page.document import read_document
from specmeter.show.run_tables import results
from specmeter.show.table import Cell, Column, Row, Table, csv_text, estimate_cell, latex, markdown, text
from specmeter.show.table import numbers as numbers_of


def test_all_forms_are_written_and_requests_with_them(sweep: Path, tmp_path: Path) -> None:
    assert invoke(["report", str(sweep), "--tables", str(tmp_path / "tables"), "--lang", "en"]) == 0
    names = {path.name for path in (tmp_path / "tables").iterdir()}
    assert "load.csv" not in names
    for stem in ("summary", "kinds", "prompts", "parts", "checks", "models"):
        assert {f"{stem}.{ending}" for ending in ("md", "csv", "tex")} <= names
    assert {"requests.jsonl", "requests.parquet"} <= names
    lines = (tmp_path / "tables" / "requests.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(lines) == read_run(sweep).state.ok
    assert json.loads(lines[0])["verdict"] in ("valid", "suspect", "invalid")


def test_csv_holds_every_number_in_full_and_no_false_one(sweep: Path) -> None:
    report = read_run(sweep)
    rows = list(csv.DictReader(io.StringIO(csv_text(results(read_document(sweep)), words("en")))))
    assert len(rows) == len(report.summary.arms)
    by_arm = {arm.arm_id: arm for arm in report.summary.arms}
    invalid = 0
    for row in rows:
        arm = by_arm[f"{row['target']}/{row['arm']}"]
        if row["verdict"] == "invalid":
            invalid += 1
            assert row["speedup"] == row["decode_rate"] == row["speedup_low"] == ""
            continue
        assert arm.decode_rate is not None
        assert float(row["decode_rate"]) == arm.decode_rate.point
        assert int(row["decode_rate_n"]) == arm.decode_rate.n
        if (cited := report.cited(arm)) is not None:
            assert float(row["speedup"]) == cited.point
            assert float(row["speedup_low"]) == cited.low
            assert float(row["speedup_high"]) == cited.high
            assert row["speedup_level"] == "0.95"
    assert invalid == len(report.invalid) == 1


def test_markdown_strikes_out_what_is_false_and_says_why(sweep: Path) -> None:
    text = markdown(results(read_document(sweep)), words("en"))
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len({line.count(" | ") for line in rows}) == 1
    (struck,) = [line for line in rows if "~~" in line]
    assert struck.count("~~") == 8
    assert "`target-decode-failed`" in struck


def test_latex_balances_and_uses_booktabs(sweep: Path) -> None:
    text = latex(results(read_document(sweep)), words("en"))
    assert r"\toprule" in text
    assert "sout" not in text, "no paper prints a false number"
    assert "ctex" not in text
    assert r"\usepackage{ctex}" in latex(results(read_document(sweep)), words("zh"))
    body = text[text.index(r"\begin{tabular}") :]
    plain = body.replace(r"\{", "").replace(r"\}", "")
    assert plain.count("{") == plain.count("}")
    columns = len(re.findall("[lr]", re.findall(r"\\begin\{tabular\}\{(\w+)\}", body)[0]))
    lines = [line for line in body.splitlines() if line.endswith(r"\\")]
    assert all(len(re.findall(r"(?<!\\)&", line)) == columns - 1 for line in lines)


def test_latex_marks_what_is_suspect_and_says_why_whatever_the_columns() -> None:
    number = estimate_cell(Estimate(point=1.5, low=1.25, high=1.75, n=4, unit="x", method="m"), 2)
    columns = (*text("arm"), *numbers_of("speedup"), Column("verdict"))
    rows = [
        Row((Cell("a"), number, Cell("suspect")), "suspect", why=("it & that",)),
        Row((Cell("b"), number, Cell("valid")), "valid"),
        Row((Cell("c"), replace(number, struck=True), Cell("invalid")), "invalid"),
        Row((Cell("d"), replace(number, struck=True, printed=True), Cell("invalid")), "invalid"),
    ]
    shown = latex(Table("results", columns, rows).only(["arm", "speedup"]), words("en"))
    assert r"a & 1.50\textsuperscript{\dag} {\footnotesize [1.25, 1.75]} \\" in shown
    assert r"b & 1.50 {\footnotesize" in shown
    assert r"c & - \\" in shown
    assert r"d & \textcolor{gray}{\sout{1.50}} \\" in shown
    assert r"\par{\footnotesize \textsuperscript{\dag} suspect: it \& that}" in shown


@pytest.mark.parametrize("write", [markdown, csv_text, latex])
def test_a_hostile_run_makes_harmless_tables(hostile: Path, write: object) -> None:
    text: str = write(results(read_document(hostile)), words("en"))  # pyright: ignore[reportCallIssue, reportUnknownVariableType]
    assert not set(text) & set("\u202e\u2066\u0000\u0007\u001b\u2028\u0085")
    if write is markdown:
        parsed = MarkdownIt("commonmark").enable("table").parse(text)
        kinds = {child.type for token in parsed for child in (token, *(token.children or ()))}
        assert "table_open" in kinds
        assert not kinds & {"html_block", "html_inline", "link_open", "image"}
    if write is latex:
        assert re.search(r"(?<!\\)\$\{", text) is None
        assert "{%" not in text.replace(r"\%", "")


def test_figures_are_written_in_three_formats(sweep: Path, tmp_path: Path) -> None:
    pytest.importorskip("vl_convert", reason="vl-convert is not installed")
    out = tmp_path / "figures"
    assert (
        invoke(["report", str(sweep), "--figures", str(out), "--format", "svg,png,pdf", "--width", "8", "--lang", "en"])
        == 0
    )
    assert (out / "comparison.png").read_bytes().startswith(b"\x89PNG")
    assert (out / "comparison.pdf").read_bytes().startswith(b"%PDF")
    svg = (out / "comparison.svg").read_text(encoding="utf-8")
    width = re.search(r'<svg[^>]* width="([\d.]+)', svg)
    assert width is not None
    assert float(width[1]) == pytest.approx(8 / 2.54 * 96, abs=3)
    assert "var(--" not in svg
    assert {path.suffix for path in out.iterdir()} == {".svg", ".png", ".pdf"}


def test_an_unknown_format_is_refused_before_anything_is_drawn(sweep: Path, tmp_path: Path) -> None:
    assert invoke(["report", str(sweep), "--figures", str(tmp_path / "f"), "--format", "gif"]) == 2


@pytest.mark.slow
def test_figures_of_a_hostile_run_hold_no_markup(hostile: Path, tmp_path: Path) -> None:
    pytest.importorskip("vl_convert", reason="vl-convert is not installed")
    assert invoke(["report", str(hostile), "--figures", str(tmp_path / "f"), "--format", "svg", "--lang", "en"]) == 0
    for figure in (tmp_path / "f").iterdir():
        assert "<script" not in figure.read_text(encoding="utf-8")
