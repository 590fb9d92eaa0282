"""What people see of a run under load: on a terminal, on its page, in files and in Python."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path

import pytest

import specmeter
from report_pages import measured
from specmeter.analysis.reading import read_run
from specmeter.cli import invoke
from specmeter.messages import LANGUAGES, words
from specmeter.record import Arm, Load
from specmeter.show.figure import specification
from specmeter.show.page.document import read_document
from specmeter.show.page.page import document_figures, run_page
from specmeter.show.palette import PAGE, PRINT
from specmeter.show.run_tables import all_tables

LOADED = """
name: loaded
targets: {dense: "mock:dense", moe: "mock:moe"}
drafts: {small: "mock:small"}
workloads: [{source: bench, kinds: [fact, code], per_kind: 1}]
arms: [{draft: small, gamma: [2, 4]}]
load: {clients: [1, 2, 4], slo: {ttft_ms: 2000, tpot_ms: 30}}
engine: {kind: mock, mock: {noise: 0.03}}
design: {blocks: 4}
generation: {max_tokens: 32}
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return measured(tmp_path_factory.mktemp("loaded"), LOADED)


def test_the_screen_has_the_crossover_the_matrix_and_what_clients_saw(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(["show", str(run)]) in (0, 1)
    shown = capsys.readouterr().out
    heading = shown.split("\n\n")[0]
    assert heading.count("1, 2, 4 clients") == 2  # an answer without its scope is a fault
    assert "simulated" in heading
    matrix = shown.split("\n\n")[1].splitlines()
    assert re.split(r"  +", matrix[0].strip()) == ["dense", "1 client", "2 clients", "4 clients"]
    assert [re.split(r"  +", line)[0] for line in matrix[1:4]] == [
        "no speculation, tok/s",
        "draft model small, 2 draft tokens",
        "draft model small, 4 draft tokens",
    ]
    assert matrix[2].count("[") == 3
    assert "per client" in shown


def test_the_page_tells_it_and_leaves_what_assumes_one_request(run: Path) -> None:
    converter = pytest.importorskip("vl_convert", reason="vl-convert is not installed")
    document = read_document(run)
    figures = document_figures(document)
    assert set(figures) >= {"load_matrix", "crossover", "throughput", "latency"}
    assert not set(figures) & {"comparison", "matrix", "rates", "gamma", "parts", "requests", "kinds"}
    for panel in (
        panel for name in ("load_matrix", "crossover", "throughput", "latency") for panel in figures[name].panels
    ):
        for language in LANGUAGES:
            for palette, width in ((PAGE, None), (PRINT, 400)):
                spec = specification(panel, words(language), palette, width=width)
                assert converter.vegalite_to_vega({**spec, "datasets": {"table": list(panel.data)}})["marks"]
    table = all_tables(document)["load"]
    assert len(table.rows) == 2 * 3 * 3
    assert all(len(row.cells) == len(table.columns) for row in table.rows)
    assert not all_tables(document)["results"].rows
    page = run_page(document)
    assert 'id="load"' in page
    assert 'id="comparison"' not in page


def test_suspect_cells_are_marked_beside_their_number_and_only_false_ones_crossed(run: Path) -> None:
    panel = document_figures(read_document(run))["load_matrix"].panels[0]
    layers = specification(panel, words("en"), PAGE)["layer"]
    over = {it["mark"]["type"]: it["transform"][0]["filter"] for it in layers if "verdict" in str(it.get("transform"))}
    assert over == {"rule": "datum.verdict == 'invalid'", "text": "datum.verdict == 'suspect'"}


def test_its_numbers_are_a_table_for_papers(run: Path, tmp_path: Path) -> None:
    command = ["report", str(run), "--tables", str(tmp_path), "--lang", "en", "--columns", "load,speedup,throughput"]
    assert invoke(command) == 0
    report = read_run(run)
    cited = {arm.arm_id: report.cited(arm) for arm in report.summary.arms}
    rows = list(csv.DictReader(io.StringIO((tmp_path / "load.csv").read_text(encoding="utf-8"))))
    told = {row["arm"]: row["speedup_low"] for row in rows if row["speedup"]}
    assert told == {arm_id: repr(it.low) for arm_id, it in cited.items() if it is not None}
    assert "target & load & speedup" in (tmp_path / "load.tex").read_text(encoding="utf-8")


def test_cells_and_sendings_are_tables(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["export", str(run), "--table", "load"]) == 0
    cells = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert len(cells) == 2 * 3 * 3 * 4
    assert {it["complete"] for it in cells} == {"true"}
    one = cells[0]
    assert float(one["throughput_tok_s"]) == pytest.approx(1000 * int(one["tokens"]) / float(one["window_ms"]))
    assert sum(float(it["tokens"]) for it in cells) > 0
    assert invoke(["export", str(run), "--table", "sendings"]) == 0
    sendings = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    loaded = specmeter.load(run)
    assert len(sendings) == loaded.state.ok
    assert {it["client"] for it in sendings} == {"0", "1", "2", "3"}


def test_python_has_figures_and_crossovers(run: Path) -> None:
    found = specmeter.load(run)
    arm = found.arm("dense/draft-simple/small/g2/c4")
    assert arm.load is not None
    assert arm.load.load == Load(clients=4, requests=16)
    assert arm.load.throughput is not None
    assert arm.load.in_flight is not None
    assert arm.load.in_flight.point == pytest.approx(4, rel=0.01)
    assert {it.clients for it in found.crossovers[0].loads} == {1, 2, 4}
    assert found.summary.prompts == 2  # a prompt that is repeated is one
    assert len(list(found.cells.figures)) == 72


@pytest.mark.slow
def test_a_run_is_compared_at_each_load(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = measured(tmp_path, LOADED.replace("noise: 0.03", "noise: 0.02"))
    assert invoke(["compare", str(run), str(other)]) in (0, 1)
    told = capsys.readouterr().out
    assert "dense: draft model small" in told
    assert "4 clients" in told
    (found,) = specmeter.compare(run, other, by="speedup")
    ratios = {arm.arm_id: arm.speedup for arm in found.arms if arm.conclusion not in (None, "invalid")}
    assert ratios
    assert all(it is not None and it.point == pytest.approx(1, abs=0.2) for it in ratios.values())


# --- sentences -------------------------------------------------------------------------------------------------------

ARMS = tuple(
    Arm(
        id=f"dense/draft-simple/small/g4/c{count}",
        target="dense",
        methods=("draft-simple",),
        draft="small",
        gamma=4,
        load=Load(clients=count, requests=8),
    )
    for count in (1, 2, 4)
)


def test_where_time_went_is_not_told_under_load(run: Path) -> None:
    assert invoke(["explain", str(run)]) == 2
