"""The screen of a run: the answer first, what to paste, one table, at most three notes; legible anywhere."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from specmeter.analysis.reading import RunReport, read_run
from specmeter.cli import invoke
from specmeter.messages import Message
from specmeter.record import Estimate
from specmeter.record.verdict import about_run
from specmeter.show import run_report
from specmeter.show.names import Names
from specmeter.show.report import Text
from specmeter.show.run_report import main_answers, notes, overview
from specmeter.show.terminal.console import Screen
from specmeter.show.terminal.report import print_on

FAST = "dense/draft-simple/small/g4"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("overview") / "demo"
    assert invoke(["run", "demo", "--set", "engine.kind=mock", "--out", str(run)]) == 0
    return run


@pytest.fixture(scope="module")
def report(folder: Path) -> RunReport:
    return read_run(folder)


def shown(report: RunReport, width: int = 120, encoding: str = "utf-8", *, by_kind: bool = False) -> str:
    raw = io.BytesIO()
    screen = Screen(width=width, file=io.TextIOWrapper(raw, encoding=encoding, write_through=True))
    print_on(screen, run_report.report(report, by_kind=by_kind))
    return raw.getvalue().decode(encoding)


def told(report: RunReport) -> list[Text]:
    return list(notes(report, Names(report.arms)))


def test_the_answer_comes_first_with_its_interval_and_its_verdict(report: RunReport) -> None:
    first = shown(report).splitlines()[0]
    answer = report.answers[0].speedup_simultaneous
    interval = f"[{answer.low:.2f}, {answer.high:.2f}]"
    said = f"dense over all prompts: {answer.point:.2f}x as fast {interval} with draft model small, 4 draft tokens"
    assert first == f"{said} (simulated)"
    assert shown(replace(report, models=())).splitlines()[0] == f"{said} (valid)"


def test_a_doubt_about_the_whole_run_stands_beside_the_answer(report: RunReport) -> None:
    busy = replace(
        report, findings=(about_run("free-cores", "suspect", Message("the machine was busy"), Message("end it")),)
    )
    assert shown(busy).splitlines()[0].endswith("(simulated, suspect)")


def test_what_was_not_checked_is_not_to_be_pasted(report: RunReport) -> None:
    serving = replace(report, commands={FAST: ("llama-server",)}, certificate=None)
    assert "not checked" in shown(serving).splitlines()[0]
    assert "  llama-server" not in shown(serving)


def test_numbers_of_an_invalid_arm_are_not_shown(report: RunReport) -> None:
    names = Names(report.arms)
    assert report.certificate is not None
    false = report.certificate.model_copy(update={"arms": report.certificate.arms | {FAST: "invalid"}})
    rows = overview(replace(report, certificate=false), names).rows
    (row,) = (it for it in rows if it.cells[2].text == Message("verdict.invalid"))
    assert (row.cells[1].text, row.cells[3].text) == ("-", "")


def test_no_interval_is_called_corrected_where_one_configuration_ran_on_all_prompts(report: RunReport) -> None:
    assert all(report.cited(arm) == arm.speedup for arm in report.summary.arms)
    assert "corrected" not in shown(report)


def test_there_is_one_line_per_target_and_one_table(report: RunReport) -> None:
    lines = shown(report).splitlines()
    assert [line.partition(":")[0] for line in lines[:2]] == ["dense over all prompts", "moe over all prompts"]
    assert sum("tok/s" in line for line in lines) == 1
    rows = [line for line in lines if line.startswith("  ") and "tok/s" not in line]
    assert len(rows) == len(report.summary.arms)
    assert not any(word in shown(report) for word in ("tau", "gamma", "g4", " arm"))


def test_the_line_to_paste_stands_below_its_answer(report: RunReport) -> None:
    """The mock serves nothing; here it is said what would serve."""
    serving = replace(report, commands={FAST: ("llama-server", "-m", "my model.gguf"), "moe/none": ("llama-server",)})
    lines = shown(serving, width=40).splitlines()
    assert "  llama-server -m 'my model.gguf'" in lines
    assert "llama-server" not in shown(report)
    decisions = {answer.baseline_id: answer.serves for answer in main_answers(report)}
    assert decisions == {"dense/none": FAST, "moe/none": "moe/none"}


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
@pytest.mark.parametrize("width", [60, 80, 120])
def test_it_is_legible_at_any_width_and_in_ascii(report: RunReport, width: int, encoding: str) -> None:
    text = shown(report, width, encoding)
    assert all(len(line) <= width for line in text.splitlines() if "/" not in line)
    assert "\x1b" not in text
    assert re.search(r"draft model small, 4\b.* \d+\.\d +\d\.\d\d \[\d\.\d\d, \d\.\d\d\] +\d+%", text)


def test_characters_that_a_stream_lacks_are_replaced(report: RunReport) -> None:
    finding = about_run("load", "suspect", Message("2 × 3 ± 1 → 5 … 速"), Message("none"))
    assert "2 x 3 +- 1 -> 5 ... \\u901f" in shown(replace(report, findings=(finding,)), encoding="ascii")


def test_details_have_everything(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert invoke(["show", str(folder)]) == 0
    brief = capsys.readouterr().out
    assert invoke(["show", str(folder), "--details"]) == 0
    everything = capsys.readouterr().out
    for text in ("prompt and decoding together", "tau", "draft-simple/small/g4", "order: 1.00", "80 of 80 requests"):
        assert text in everything
        assert text not in brief
    top = brief.partition("\n\n- ")[0]
    assert " ".join(everything.split()).startswith(" ".join(top.split())), "its lines may be longer"


def test_json_has_the_commands(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import json

    capsys.readouterr()
    assert invoke(["show", str(folder), "--json"]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert document["commands"] == {}


def test_an_absurd_range_is_said_to_be_noise(report: RunReport) -> None:
    wide = Estimate(point=3.0, low=0.1, high=90.0, n=3, unit="x", method="m")
    arms = tuple(it.model_copy(update={"speedup": wide}) if it.speedup else it for it in report.summary.arms)
    changed = replace(report, summary=report.summary.model_copy(update={"arms": arms}))
    cells = [row.cells[2].text for row in overview(changed, Names(report.arms)).rows]
    assert Message("cell.too_noisy") in cells
    assert "90" not in " ".join(map(str, cells))
