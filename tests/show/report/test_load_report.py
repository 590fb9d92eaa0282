"""What people see of a run under load: on a terminal, on its page, in files and in Python."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import pytest

import specmeter
from report_pages import measured
from said import codes, said_of
from specmeter.analysis.load.crossover import AtLoad, Course, Crossover
from specmeter.analysis.prediction.forecast import CrossoverOutcome
from specmeter.analysis.prediction.speedup import expected_crossover
from specmeter.analysis.reading import read_run
from specmeter.cli import invoke
from specmeter.messages import LANGUAGES, words
from specmeter.record import Arm, Estimate, Load
from specmeter.show.figure import PAGE, PRINT, specification
from specmeter.show.names import Names
from specmeter.show.page.document import read_document
from specmeter.show.page.page import document_figures, run_page
from specmeter.show.run_tables import all_tables
from specmeter.show.run_words import crossover_sentence, foreseen_sentence

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
        "small draft, 2 tokens",
        "small draft, 4 tokens",
    ]
    assert matrix[2].count("[") == 3
    assert "per client" in shown
    assert "Only steady state counts" in shown


def test_everything_has_the_answer_at_each_load(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["show", str(run), "--details"]) in (0, 1)
    told = capsys.readouterr().out
    assert all(f"dense at {load}" in told for load in ("1 client", "2 clients", "4 clients"))
    assert invoke(["show", str(run), "--json"]) in (0, 1)
    found = json.loads(capsys.readouterr().out)
    assert {it["target"] for it in found["crossovers"]} == {"dense", "moe"}
    assert {it["load"]["clients"] for it in found["answers"]} == {1, 2, 4}
    assert found["summary"]["arms"][0]["load"]["throughput"]["unit"] == "tok/s"


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


def test_a_long_tail_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = [{"text": f"say {n}", "max_tokens": 400 if n == 3 else 4} for n in range(4)]
    (tmp_path / "texts.jsonl").write_text("\n".join(map(json.dumps, texts)), encoding="utf-8")
    mine = "workloads: [{source: file, paths: [texts.jsonl]}]"
    bench = "workloads: [{source: bench, kinds: [fact, code], per_kind: 1}]"
    long = LOADED.replace(bench, mine).replace("slo:", "rounds: 2, slo:")
    assert invoke(["show", str(measured(tmp_path, long))]) in (0, 1)
    shown = " ".join(capsys.readouterr().out.split())
    assert "have a long tail: a few long answers took the time, only" in shown


def test_a_run_is_compared_at_each_load(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = measured(tmp_path, LOADED.replace("noise: 0.03", "noise: 0.02"))
    assert invoke(["compare", str(run), str(other)]) in (0, 1)
    told = capsys.readouterr().out
    assert "dense: small draft, 4 tokens, 4 clients" in told
    assert "total tokens per second of all clients" in told
    (found,) = specmeter.compare(run, other, by="speedup")
    ratios = {arm.arm_id: arm.speedup for arm in found.arms if arm.conclusion not in (None, "invalid")}
    assert ratios
    assert all(it is not None and it.point == pytest.approx(1, abs=0.2) for it in ratios.values())


def test_where_time_went_is_not_told_under_load(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["explain", str(run)]) == 2
    assert "under load a forward serves several requests" in capsys.readouterr().err


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


def crossover(course: Course, **more: object) -> Crossover:
    speedup = Estimate(point=1.1, low=1.0, high=1.2, n=4, unit="x", method="made up")
    loads = [
        AtLoad(clients=arm.load.clients or 0, arm_id=arm.id, speedup=speedup, sign="open") for arm in ARMS if arm.load
    ]
    told = {"target": "dense", "arm": "dense/draft-simple/small/g4", "depth": 0, "clients": None, **more}
    return Crossover.model_validate({**told, "course": course, "loads": tuple(loads)})


def at(low: float | None, high: float | None) -> Estimate:
    return Estimate(point=3.1, low=low, high=high, n=4, unit="clients", method="made up")


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (crossover("stops", clients=at(2.6, 3.8)), {"crossover.stops", "crossover.interval", "crossover.with"}),
        (
            crossover("stops", clients=at(2.6, 4), open_high=True),
            {"crossover.stops", "crossover.interval", "crossover.or_more", "crossover.with"},
        ),
        (
            crossover("starts", clients=at(1, 3.8), open_low=True, ways=2, arm=""),
            {"crossover.starts", "crossover.interval", "crossover.or_fewer", "crossover.ways"},
        ),
        (crossover("pays"), {"crossover.pays", "crossover.with"}),
        (crossover("never", depth=512), {"crossover.never", "crossover.deep", "crossover.with"}),
        (crossover("not shown"), {"crossover.not shown", "crossover.with"}),
    ],
)
def test_what_is_said_of_a_crossover(found: Crossover, told: set[str]) -> None:
    said = crossover_sentence(found, Names(ARMS))
    loads = {"crossover.over", "crossover.clients"}
    assert {it for it in codes(said) if it.startswith("crossover.")} == told | loads
    assert said_of(said, "crossover.clients").values["counts"] == [1, 2, 4]


def test_arms_are_called_by_their_load() -> None:
    names = Names(
        (*ARMS, ARMS[0].model_copy(update={"id": "dense/x/r2", "load": Load(rate=0.5, depth=64, requests=4)}))
    )
    assert names.render(ARMS[0].id, words("en")) == "small draft, 4 tokens, 1 client"
    assert names.render("dense/x/r2", words("en")).startswith("small draft, 4 tokens")
    assert "0.5 requests/s, 64 tokens deep" in names.render("dense/x/r2", words("en"))
    assert words("en").render(names.alone(ARMS[2].id)) == "small draft, 4 tokens"


def test_a_page_says_what_was_foreseen_and_has_no_empty_table(run: Path) -> None:
    document = read_document(run)
    found, names = document.run.crossovers[-1], document.names
    page = run_page(document)
    assert 'id="table-kinds"' not in page
    told = [(at.clients, at.speedup) for at in found.loads]
    outcome = CrossoverOutcome(arm=found.arm, depth=found.depth, predicted=expected_crossover(told), measured=found)
    assert "predicted before measuring" in words("en").render(foreseen_sentence(outcome, names))
    assert "测量前预测" in words("zh").render(foreseen_sentence(outcome, names))
