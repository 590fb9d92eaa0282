"""An advice as a page, as files, and in the commands that show runs; its folder may be a stranger's."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from advices import ALL, BEST, OUTCOMES, confirmed, drafts, est
from specmeter.advise import verify_advice
from specmeter.advise.advice import ArmOutcome, write_advice
from specmeter.cli import invoke
from specmeter.show import advice_figures
from specmeter.show.advice_report import report
from specmeter.show.page.advice_page import own
from specmeter.show.page.page import report_page

FOLDER = Path("specmeter-runs/advise-dense")


def charts(page: str) -> dict[str, dict[str, list[dict[str, object]]]]:
    found = re.search(r'id="charts-data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def test_the_page_says_what_to_paste_and_leads_to_its_stages() -> None:
    page = report_page(report(confirmed(), own(FOLDER), {"race": "race/report.html"}), ["en"])
    assert "llama-server -m &#39;/models/my dense.gguf&#39; -md /models/small.gguf" in page
    assert '<a href="race/report.html">' in page
    assert 'class="headline speculate"' in page
    assert "specmeter advise --again advise-dense" in page


def test_a_page_names_no_folder_above_its_own(tmp_path: Path) -> None:
    for name in ("suspect", "invalid"):
        page = report_page(report(ALL[name], own(tmp_path / "advise-dense")))
        assert "advise-dense/confirm" in page
        assert str(tmp_path) not in page


def test_figures_hold_every_stage_and_the_whole_grid() -> None:
    found = charts(report_page(report(confirmed(), FOLDER)))
    compared, grid = found["advised"]["data"], found["grid"]["data"]
    assert [it["stage_en"] for it in compared if it["named_en"] == "draft model small, 4 draft tokens"] == [
        "predicted",
        "search",
        "confirmed",
    ]
    assert len([it for it in compared if it["verdict"] == "unchecked"]) == 3  # what was only predicted
    whole = [it for it in grid if "·" not in str(it["row_en"])]
    assert len(whole) == len(OUTCOMES)
    assert {it["cell"] for it in whole if it["compared"]} == {"★ 1.95×", "1.93×", "1.88×"}
    assert {it["cell"] for it in whole} >= {"? 1.40×", "✕", "0.90×"}
    assert {it["row_zh"] for it in grid} >= {"草稿模型 small", "code · 草稿模型 small"}


def test_a_grid_of_any_size_fits_on_the_page() -> None:
    arms = [drafts(gamma, f"d{which}") for which in range(60) for gamma in range(1, 30)]
    outcomes = tuple(
        ArmOutcome(arm_id=arm.id, predicted=est(1 + (arm.gamma or 0) / 100), code="open", stage="screen")
        for arm in arms
    )
    advice = confirmed(arms=tuple(arms), outcomes=outcomes)
    figure = advice_figures.grid(advice)
    assert figure is not None
    panel = figure.panels[0]
    assert len({it["row_en"] for it in panel.data}) <= 30
    assert len({it["gamma"] for it in panel.data}) <= 16


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An advice among the runs, without the runs of its stages."""
    monkeypatch.chdir(tmp_path)
    place = Path("specmeter-runs/advise-dense")
    place.mkdir(parents=True)
    write_advice(confirmed(), place)
    return place


@pytest.fixture
def believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A made-up advice has no confirmation that could give its answer; `test_verify_advice` has what is done then."""

    monkeypatch.setattr(verify_advice, "differences", lambda *_: iter(()))


@pytest.mark.usefixtures("believed")
def test_show_and_list_know_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["show", folder.name]) == 0
    assert capsys.readouterr().out.startswith("dense: 1.92x as fast [")
    assert invoke(["show", str(folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["arm"]["id"] == BEST.id
    assert invoke(["show", str(folder), "--by-kind"]) == 2
    write_advice(ALL["invalid"], folder)
    assert invoke(["show", str(folder)]) == 1
    damaged = folder.parent / "advise-other"
    damaged.mkdir()
    (damaged / "advice.json").write_text("{}", encoding="utf-8")
    assert invoke(["list", "--json"]) == 0
    out = capsys.readouterr().out
    listed = json.loads(out[out.index("{") :])["advices"]
    assert {it["state"] for it in listed} == {"complete", "unreadable"}
    assert invoke(["list"]) == 0


@pytest.mark.usefixtures("believed")
def test_report_writes_its_page_figures_and_tables(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["report", folder.name, "--lang", "zh"]) == 0
    assert capsys.readouterr().out.strip() == str(folder / "advice.html")
    assert "速度为基线的" in (folder / "advice.html").read_text(encoding="utf-8")
    assert invoke(["report", str(folder), "--tables", "tables", "--lang", "en"]) == 0
    assert {path.name for path in Path("tables").iterdir()} == {
        f"{name}.{ending}" for name in ("advised", "grid", "stages") for ending in ("md", "csv", "tex")
    }
    assert invoke(["report", str(folder), "--out", str(folder / "advice.json")]) == 2
    assert invoke(["report", str(folder), "--probe", __file__]) == 2
    capsys.readouterr()


@pytest.mark.skipif(not hasattr(os, "symlink"), reason="needs links")
def test_nothing_is_written_through_a_strangers_link(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "run.sqlite").write_bytes(b"x")
    (folder / "race").symlink_to(other, target_is_directory=True)
    (tmp_path / "mine.txt").write_text("mine", encoding="utf-8")
    (folder / "advice.html").symlink_to(tmp_path / "mine.txt")
    assert invoke(["report", str(folder)]) == 0
    assert sorted(path.name for path in other.iterdir()) == ["run.sqlite"]
    assert (tmp_path / "mine.txt").read_text(encoding="utf-8") == "mine"
