"""A schedule as a page, as files, and in the commands that show runs."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from advices import LOADS, SCHEDULES
from specmeter.advise import verify_advice
from specmeter.advise.advice import write_advice
from specmeter.advise.schedule import folder_of, write_schedule
from specmeter.cli import invoke
from specmeter.show.page.advice_page import own
from specmeter.show.page.page import report_page
from specmeter.show.schedule_report import report

FOLDER = Path("specmeter-runs/schedule-dense")


def test_the_page_has_each_load_with_its_line_and_its_advice(tmp_path: Path) -> None:
    page = report_page(report(SCHEDULES["between"], own(tmp_path / "schedule-dense"), {"c2": "c2/advice.html"}), ["en"])
    assert page.count('<div class="command">') == sum(bool(it.command) for it in SCHEDULES["between"].advices)
    assert '<a href="c2/advice.html">Advice for 2 clients</a>' in page
    assert "specmeter advise --again" not in page  # a load is open
    assert str(tmp_path) not in page
    assert "specmeter advise --again schedule-dense" in report_page(report(SCHEDULES["up-to"], own(FOLDER)), ["en"])


def test_the_page_tells_other_programs_the_whole_table() -> None:
    page = report_page(report(SCHEDULES["elsewhere"], FOLDER), ["zh"])
    for program, written in (("vllm", "num_speculative_tokens_per_batch_size"), ("tensorrt-llm", "draft_len_schedule")):
        assert re.search(rf"用于.*{program}.*（未在其上测量）", page)
        assert written in page
    assert "已在 Eagle、Eagle-3 与 DFlash 上测试" in page


def test_the_figure_has_what_was_predicted_and_measured_and_where_it_is_1() -> None:
    def data(name: str) -> list[dict[str, object]]:
        found = re.search(r'id="charts-data">(.*?)</script>', report_page(report(SCHEDULES[name], FOLDER)), re.DOTALL)
        assert found is not None
        return json.loads(found[1])["scheduled"]["data"]

    points = [it for it in data("up-to") if "count" in it]
    assert [it["count"] for it in points if it["stage_en"] == "confirmed" and it["verdict"] == "valid"] == [*LOADS]
    assert [it["count"] for it in points if it["stage_en"] == "predicted" and it["verdict"] == "unchecked"] == [*LOADS]
    (crossed,) = (it for it in data("up-to") if "crossing" in it)
    assert crossed["crossing_en"] == "2.9 [2.6, 3.2]"
    assert 2 not in [it.get("count") for it in data("invalid")]  # its numbers are false


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A schedule among the runs that is taken for measured, without the runs of its stages."""

    monkeypatch.setattr(verify_advice, "differences", lambda *_: iter(()))
    monkeypatch.chdir(tmp_path)
    place = Path("specmeter-runs/schedule-dense")
    write_schedule(SCHEDULES["up-to"], place)
    for advice in SCHEDULES["up-to"].advices:
        write_advice(advice, place / folder_of(advice.asked.load or 1))
    return place


def test_show_and_list_know_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["show", folder.name]) == 0
    assert capsys.readouterr().out.startswith("dense: speculate with 1, 2 clients, not with 4, 8 clients; ")
    assert invoke(["show", str(folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["pattern"] == "up to"
    assert invoke(["show", str(folder), "--by-kind"]) == 2
    assert invoke(["show"]) == 0
    assert "dense: speculate with 1, 2 clients" in capsys.readouterr().out
    assert invoke(["list", "--json"]) == 0
    out = capsys.readouterr().out
    (listed,) = json.loads(out[out.index("{") :])["schedules"]
    assert (listed["state"], listed["folder"]) == ("complete", str(folder))
    assert invoke(["list"]) == 0
    assert "dense: speculate with 1, 2 clients" in capsys.readouterr().out


def test_report_writes_its_page_and_those_of_its_advices(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["report", folder.name, "--lang", "en"]) == 0
    written = [Path(line) for line in capsys.readouterr().out.split()]
    assert written == [folder / "schedule.html", *(folder / f"c{count}" / "advice.html" for count in LOADS)]
    page = written[0].read_text(encoding="utf-8")
    links = re.findall(r'<a href="(c\d/[^"]+)"', page)
    assert [folder / link for link in links] == written[1:]
    assert invoke(["report", str(folder), "--tables", "tables", "--lang", "en"]) == 0
    assert {path.name for path in Path("tables").iterdir()} == {
        f"{name}.{ending}" for name in ("schedule", *(f"grid-c{at}" for at in LOADS)) for ending in ("md", "csv", "tex")
    }
    assert invoke(["report", str(folder), "--out", str(folder / "schedule.json")]) == 2
    assert invoke(["report", str(folder), "--out", str(folder / "c1.json")]) == 2
    assert invoke(["report", str(folder), "--probe", __file__]) == 2
    capsys.readouterr()


@pytest.mark.skipif(not hasattr(os, "symlink"), reason="needs links")
def test_nothing_is_written_through_a_strangers_link(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    (folder / "c2").rename(other)
    (folder / "c2").symlink_to(other, target_is_directory=True)
    (tmp_path / "mine.txt").write_text("mine", encoding="utf-8")
    (folder / "schedule.html").symlink_to(tmp_path / "mine.txt")
    assert invoke(["report", str(folder)]) == 0
    assert sorted(path.name for path in other.iterdir()) == ["advice.json"]
    assert "c2/advice.html" not in (folder / "schedule.html").read_text(encoding="utf-8")
    assert (tmp_path / "mine.txt").read_text(encoding="utf-8") == "mine"
