"""The site of several studies, and the page of a comparison, as files and in a browser."""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from analysis.quality.reports import quality, report
from report_pages import ATTACK, Looked
from specmeter.analysis.quality import QualityReport, save_report
from specmeter.cli import invoke
from specmeter.errors import StoreError
from specmeter.messages import Message
from specmeter.show.page import files
from specmeter.show.page import site as site_module
from specmeter.show.page.document import Document, read_document
from specmeter.show.page.site import write_site
from specmeter_studies.folder import Part, StudyFolder, StudyRecord
from specmeter_studies.show.document import published_documents, read_study

Look = Callable[..., Looked]
COUNTED = {
    "supported": "supported",
    "contradicted": "contradicted",
    "cannot tell": "undecided",
    "does not apply here": "not applicable here",
}
"""Rulings as the index words them."""


@pytest.fixture(scope="module")
def site(sweep: Path, hostile: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site") / "public"
    assert invoke(["report", "--site", str(folder), str(sweep), str(hostile)]) == 0
    return folder


@pytest.mark.parametrize("what", ["--site", "--tables"])
def test_a_disk_that_fills_up_leaves_no_half_of_a_folder(
    what: str, sweep: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write, left = files.write_inside, [3]

    def filling(folder: Path, name: str, data: bytes) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(folder, name, data)

    monkeypatch.setattr(files, "write_inside", filling)
    assert invoke(["report", str(sweep), what, str(tmp_path / "out")]) == 2
    assert f"error: {tmp_path / 'out'}" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "mine.txt").write_text("mine")
    assert invoke(["report", str(sweep), what, str(tmp_path / "own")]) == 2
    assert (tmp_path / "own" / "mine.txt").read_text() == "mine"


def test_an_index_a_page_for_each_study_and_downloads(look: Look, site: Path) -> None:
    looked = look(site / "index.html")
    links = looked.run("[...document.querySelectorAll('.card h2 a')].map((a) => a.href)")
    assert len(links) == len(set(links)) == 2
    with looked.page.expect_navigation():
        looked.page.click(".card h2 a >> nth=0")
    looked.until("document.documentElement?.dataset.drawn !== undefined")
    assert looked.page.inner_text("#downloads h2") == "Downloads"
    downloads = looked.run("[...document.querySelectorAll('#downloads a')].map((a) => a.getAttribute('href'))")
    page = Path(looked.page.url.removeprefix("file://"))
    assert {"data/summary.csv", "data/requests.jsonl", "data/certificate.json", "data/experiment.yaml"} <= set(
        downloads
    )
    assert all((page.parent / name).is_file() for name in downloads)
    with looked.page.expect_navigation():
        looked.page.click("a.brand")
    assert looked.page.url.endswith("/index.html")
    assert looked.network == []
    assert looked.said == []


def test_verdicts_on_the_index_lead_to_the_findings_on_the_page_of_the_run(
    sweep: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = read_document(sweep)
    (invalid,) = document.run.invalid
    answer = document.run.answers[0].model_copy(update={"arm_id": invalid})
    told = replace(document, run=replace(document.run, answers=(answer,)))
    monkeypatch.setattr(site_module, "read_document", lambda _: told)
    write_site(tmp_path / "public", [sweep], ("en",))
    links = re.findall(r'href="([^"]*)#(check-[^"]*)"', (tmp_path / "public/index.html").read_text("utf-8"))
    assert links
    for page, anchor in links:
        assert f'id="{anchor}"' in (tmp_path / "public" / page).read_text("utf-8")


def test_a_hostile_study_does_nothing_to_the_index(look: Look, site: Path) -> None:
    looked = look(site / "index.html", locale="zh-CN")
    assert looked.page.inner_text("h1") == "投机解码研究"
    assert looked.run("window.attacked") is None
    assert looked.run("document.querySelectorAll('script').length") == 2  # without charts, without Vega
    assert looked.said == []
    assert not set(looked.page.content()) & set("\u202e\u0007\u001b")
    folders = [path.name for path in site.iterdir()]
    assert all(name.isascii() for name in folders)


def test_a_site_is_written_over_a_site_and_over_nothing_else(
    site: Path, sweep: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(["report", "--site", str(site), str(sweep), "--lang", "en"]) == 0
    (tmp_path / "letter.txt").write_text("dear", encoding="utf-8")
    capsys.readouterr()
    assert invoke(["report", "--site", str(tmp_path), str(sweep)]) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]


def test_without_runs_there_is_nothing_to_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert invoke(["report", "--site", "public"]) == 2


# --- studies of documents --------------------------------------------------------------------------------------------


def study_folder(place: Path, run: Path, note: str = "") -> Path:
    """A folder of the study moe-306 whose one experiment is this run, and whose other could not be measured."""
    shutil.copytree(run, place / "moe-306")
    skipped = Part(name="suite-e", kind="experiment", skipped=Message(f"there is no second architecture here{note}"))
    parts = (Part(name="moe-306", kind="experiment"), skipped)
    StudyFolder(place).write(StudyRecord(study="moe-306", made_at=0.0, parts=parts, overrides=(f"x={note}",)))
    return place


@pytest.fixture(scope="module")
def studies_site(sweep: Path, hostile: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run, a study of which the run is a part, one whose every string attacks, and a published one."""
    folder = tmp_path_factory.mktemp("studies-site")
    ours, theirs = study_folder(folder / "ours", sweep), study_folder(folder / "theirs <b>", hostile, ATTACK)
    order = ["report", "--site", str(folder / "public"), str(sweep), str(ours), str(theirs), "--published", "moe-306"]
    assert invoke(order) == 0
    return folder / "public"


def test_studies_are_listed_with_their_verdict_and_how_their_claims_were_ruled(look: Look, studies_site: Path) -> None:
    looked = look(studies_site / "index.html")
    cards = looked.page.locator(".card")
    assert cards.count() == 4
    ours = cards.nth(0)
    counts = read_study(StudyFolder(studies_site.parent / "ours")).counts
    told = [f"{counts[ruling]} {word}" for ruling, word in COUNTED.items() if counts[ruling]]
    assert ours.locator(".rulings .chip").all_inner_texts() == told
    assert ours.locator(".facts .chip").inner_text() == "invalid"
    assert "complete" in ours.inner_text()
    published = cards.nth(2)
    (document,) = published_documents("moe-306")
    told = [f"{document.counts[ruling]} {word}" for ruling, word in COUNTED.items() if document.counts[ruling]]
    assert published.locator(".rulings .chip").all_inner_texts() == told
    assert "published numbers" in published.inner_text()
    assert published.locator(".facts .chip").count() == 0, "nothing of it was checked by us"
    assert looked.page.locator("#table-site_claims tbody tr").count() == 3
    assert looked.page.locator("#table-answers tbody tr").count() > 0
    assert looked.said == []


def test_a_study_has_the_page_that_reports_have_and_its_data(look: Look, studies_site: Path) -> None:
    looked = look(studies_site / "ours" / "index.html")
    assert looked.page.locator(".claim").count() == len(
        read_study(StudyFolder(studies_site.parent / "ours")).claims.rows
    )
    downloads = looked.run("[...document.querySelectorAll('#downloads a')].map((a) => a.getAttribute('href'))")
    wanted = ("claims.md", "configurations.csv", "requests.jsonl", "BENCHMARK_ENV.md", "certificate.json", "study.json")
    assert {f"data/{name}" for name in wanted} <= set(downloads)
    assert all((studies_site / "ours" / name).stat().st_size for name in downloads)
    assert len((studies_site / "ours/data/requests.jsonl").read_text("utf-8").splitlines()) > 10
    assert looked.said == []
    with looked.page.expect_navigation():
        looked.page.click("a.brand")
    assert looked.page.url.endswith("/public/index.html")
    published = look(studies_site / "moe-306-published" / "index.html")
    assert published.page.locator("#downloads a[href='data/results.jsonl']").count() == 1
    assert published.network == published.said == []


@pytest.mark.parametrize(("width", "scheme"), [(360, "light"), (1280, "dark")])
def test_a_hostile_study_is_inert_and_nothing_sticks_out(
    look: Look, studies_site: Path, width: int, scheme: str
) -> None:
    for page in ("index.html", "theirs-b/index.html"):
        looked = look(studies_site / page, viewport={"width": width, "height": 900}, color_scheme=scheme)
        assert looked.run("window.attacked") is None
        assert looked.run("document.querySelectorAll('img, iframe, object, main b').length") == 0
        assert looked.run("document.querySelectorAll('script').length") == (2 if page == "index.html" else 3)
        assert looked.run("document.documentElement.scrollWidth") <= width
        assert looked.said == looked.network == []
        assert not set(looked.page.content()) & set("\u202e\u2066\u0000\u0007\u001b\u2028\u0085")


def test_reports_of_quality_come_without_the_home_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "home"
    monkeypatch.setenv("HOME", str(home))
    made = report(quality("a", 200, (0.7, 0.8, 0.9)), quality("b", 100, (0.8, 0.9, 0.95)))
    models = tuple(
        it.model_copy(update={"model": it.model.model_copy(update={"path": str(home / "secret-place" / "m.gguf")})})
        for it in made.models
    )
    folder = StudyFolder(tmp_path / "ladder")
    folder.path.mkdir()
    save_report(made.model_copy(update={"models": models}), folder.quality_file("apple-quant-ladder"))
    part = Part(name="apple-quant-ladder", kind="quality")
    folder.write(StudyRecord(study="apple-quant-ladder", made_at=0.0, parts=(part,)))
    monkeypatch.chdir(tmp_path)
    assert invoke(["report", "--site", "public", "ladder", "--lang", "en"]) == 0
    pages = capsys.readouterr().out.split()
    assert pages == ["public/index.html", "public/ladder/index.html"]
    kept = (tmp_path / "public/ladder/data/apple-quant-ladder.json").read_text("utf-8")
    assert QualityReport.model_validate_json(kept).models[0].model.path == "~/secret-place/m.gguf"
    for file in (tmp_path / "public").rglob("*"):
        assert not file.is_file() or str(home).encode() not in file.read_bytes()
    index = (tmp_path / "public/index.html").read_text("utf-8")
    assert '<p class="rulings"><span class="chip' in index
    assert ">verdict <" not in index, "no run was checked"


def test_all_that_was_measured_is_shown_by_default(
    sweep: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    study_folder(tmp_path / "specmeter-runs" / "moe-306-20261121-101500", sweep)
    shutil.copytree(sweep, tmp_path / "specmeter-runs" / "sweep-20261121-101500")
    monkeypatch.chdir(tmp_path)
    assert invoke(["report", "--site", "public", "--lang", "en"]) == 0
    assert capsys.readouterr().out.split() == [
        "public/index.html",
        "public/moe-306-20261121-101500/index.html",
        "public/sweep-20261121-101500/index.html",
    ]
    assert invoke(["report", "--site", "public", "--published", "moe-307"]) == 2
    assert "no such study" in capsys.readouterr().err


@pytest.fixture
def damaged(sweep: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A damaged run, a damaged study and a run that is whole, under specmeter-runs/ of the current folder."""
    runs = tmp_path / "specmeter-runs"
    shutil.copytree(sweep, runs / "sweep-20261121-101500")
    shutil.copytree(sweep, runs / "broken-20261121-101500")
    database = runs / "broken-20261121-101500" / "run.sqlite"
    database.write_bytes(database.read_bytes()[:20_000])
    study = study_folder(runs / "moe-306-20261121-101500", sweep)
    StudyFolder(study).record_path.write_text("{", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return database


def test_what_is_damaged_is_left_out_with_its_reason(damaged: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["report", "--site", "public", "--lang", "en"]) == 0
    shown = capsys.readouterr()
    assert shown.out.split() == ["public/index.html", "public/sweep-20261121-101500/index.html"]
    assert sorted(path.name for path in Path("public").iterdir()) == ["index.html", "sweep-20261121-101500"]
    index = Path("public/index.html").read_text("utf-8")
    (told,) = re.findall(r'<section id="left-out">.*?</section>', index, re.DOTALL)
    for name in ("broken-20261121-101500", "moe-306-20261121-101500"):
        assert f"left out: specmeter-runs/{name}: " in shown.err
        assert f"<li><bdi>{name}</bdi>: <bdi" in told
    assert invoke(["report", "--site", "named", str(damaged.parent)]) == 2
    assert "left out" not in capsys.readouterr().err
    assert not Path("named").exists()
    shutil.rmtree("specmeter-runs/sweep-20261121-101500")
    assert invoke(["report", "--site", "nothing"]) == 2
    assert not Path("nothing").exists()


@pytest.mark.usefixtures("damaged")
def test_what_turns_out_to_be_damaged_while_it_is_written_is_left_out_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree("specmeter-runs/sweep-20261121-101500", "specmeter-runs/late-20261121-101500")
    written = site_module.write_tables

    def fail_late(document: Document, *rest: Any) -> object:
        if document.run.folder.name.startswith("late"):
            raise StoreError("reply of p1: is damaged", fix="rescue it")
        return written(document, *rest)

    monkeypatch.setattr(site_module, "write_tables", fail_late)
    assert invoke(["report", "--site", "public", "--lang", "en"]) == 0
    assert "reply of p1: is damaged" in capsys.readouterr().err
    assert not Path("public/late-20261121-101500").exists()
    assert "late-20261121-101500/index.html" not in Path("public/index.html").read_text("utf-8")


def test_a_comparison_as_a_page(look: Look, sweep: Path, hostile: Path, tmp_path: Path) -> None:
    page = tmp_path / "compared.html"
    assert invoke(["compare", str(sweep), str(sweep), "--html", str(page)]) == 1  # one arm is invalid
    looked = look(page, viewport={"width": 360, "height": 800})
    assert looked.run("document.querySelectorAll('[data-chart=ratios] svg').length") == 1
    assert looked.run("document.documentElement.scrollWidth") <= 360
    assert looked.said == []
    assert looked.network == []
    assert invoke(["compare", str(hostile), str(hostile), "--html", str(page)]) == 1
    attacked = look(page)
    assert attacked.run("window.attacked") is None
    assert attacked.said == []
