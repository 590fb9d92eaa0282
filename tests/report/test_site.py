"""The site of several studies, and the page of a comparison, as files and in a browser."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from report_pages import Looked

from specmeter.cli import invoke

Look = Callable[..., Looked]


@pytest.fixture(scope="module")
def site(sweep: Path, hostile: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site") / "public"
    assert invoke(["site", str(folder), str(sweep), str(hostile)]) == 0
    return folder


def test_an_index_a_page_for_each_study_and_downloads(look: Look, site: Path) -> None:
    looked = look(site / "index.html")
    links = looked.run("[...document.querySelectorAll('.card h2 a')].map((a) => a.href)")
    assert len(links) == len(set(links)) == 2
    with looked.page.expect_navigation():
        looked.page.click(".card h2 a >> nth=0")
    looked.page.wait_for_function("document.documentElement?.dataset.drawn !== undefined")
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


def test_a_hostile_study_does_nothing_to_the_index(look: Look, site: Path) -> None:
    looked = look(site / "index.html", locale="zh-CN")
    assert looked.page.inner_text("h1") == "推测解码研究"
    assert looked.run("window.attacked") is None
    assert looked.run("document.querySelectorAll('script').length") == 3
    assert looked.said == []
    assert not set(looked.page.content()) & set("\u202e\u0007\u001b")
    folders = [path.name for path in site.iterdir()]
    assert all(name.isascii() for name in folders)


def test_a_site_is_written_over_a_site_and_over_nothing_else(
    site: Path, sweep: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(["site", str(site), str(sweep), "--lang", "en"]) == 0
    (tmp_path / "letter.txt").write_text("dear", encoding="utf-8")
    capsys.readouterr()
    assert invoke(["site", str(tmp_path), str(sweep)]) == 2
    assert "no site of specmeter" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]


def test_without_runs_there_is_nothing_to_show(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert invoke(["site", "public"]) == 2
    assert "no run to show" in capsys.readouterr().err


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
