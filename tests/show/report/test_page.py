"""The report as a file: its size, its languages, its policy, and what large runs become."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import sqlite3
from base64 import b64encode
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest

from specmeter.cli import invoke
from specmeter.messages import LANGUAGES, words
from specmeter.show.figure import ratio_axis, specification
from specmeter.show.page import document as documents
from specmeter.show.page.document import read_document
from specmeter.show.page.page import document_figures, run_page
from specmeter.show.palette import PAGE, PRINT
from specmeter.store import RunStore

THREE_MEGABYTES = 3_000_000


class Elements(HTMLParser):
    """Every element with its attributes, and the text of scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.blocks: list[tuple[str, str]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self.blocks.append((tag, ""))

    def handle_data(self, data: str) -> None:
        if self.cdata_elem is not None:
            tag, text = self.blocks[-1]
            self.blocks[-1] = (tag, text + data)


def test_one_file_within_its_limit_that_names_nothing_outside(sweep: Path) -> None:
    page = run_page(read_document(sweep))
    assert len(page.encode()) < THREE_MEGABYTES
    elements = Elements(page).elements
    links = [value for _, attrs in elements for name, value in attrs.items() if name in ("src", "href", "action")]
    assert all(link is not None and link.startswith(("#", "data:")) for link in links)
    handlers = [name for _, attrs in elements for name in attrs if name.startswith("on") or name == "style"]
    assert handlers == []


def test_the_policy_names_every_script_and_style_and_forbids_the_rest(sweep: Path) -> None:
    parsed = Elements(run_page(read_document(sweep)))
    policy = next(a["content"] for tag, a in parsed.elements if tag == "meta" and "http-equiv" in a) or ""
    for tag, text in parsed.blocks:
        if not text.startswith("{"):  # data is not executed
            digest = b64encode(hashlib.sha256(text.encode()).digest()).decode()
            assert f"'sha256-{digest}'" in policy, tag
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy
    assert "eval" not in policy


def test_a_page_replaces_nothing_but_pages(sweep: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    shutil.copytree(sweep, run)
    mine = tmp_path / "mine.yaml"
    mine.write_text("name: mine\n", encoding="utf-8")
    (tmp_path / "link.html").symlink_to(mine)
    os.mkfifo(tmp_path / "pipe")
    before = {path: path.read_bytes() for path in (*run.iterdir(), mine) if path.is_file()}
    assert len(before) > 2
    others = dict.fromkeys((*before, tmp_path / "link.html"), "specmeter did not write it")
    odd = dict.fromkeys((tmp_path / "pipe", Path("/dev/null")), "is not a regular file")
    for path, message in (others | odd | {run / "run.sqlite-wal": "may only get .html pages"}).items():
        assert invoke(["report", str(run), "--out", str(path)]) == 2, path
        assert message in capsys.readouterr().err
        assert invoke(["report", "--published", "moe-306", "--out", str(path)]) == 2, path
        capsys.readouterr()
    assert {path: path.read_bytes() for path in before} == before
    assert not (run / "run.sqlite-wal").exists()
    assert invoke(["report", str(run), "--out", str(tmp_path / "bare")]) == 0
    assert (tmp_path / "bare.html").is_file()
    for page in (tmp_path / "page.html", run / "second.html"):
        assert invoke(["report", str(run), "--out", str(page)]) == 0
        assert invoke(["report", str(run), "--lang", "zh", "--out", str(page)]) == 0


def test_what_cannot_be_written_or_read_is_said(
    sweep: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(["report", str(sweep), "--out", str(tmp_path / "no" / "report.html")]) == 2
    assert "cannot be written" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
    probe = tmp_path / "probe.json"
    probe.write_text("{}", encoding="utf-8")
    assert invoke(["report", str(sweep), "--probe", str(probe)]) == 2
    assert "is not a probe" in capsys.readouterr().err
    assert invoke(["report", str(tmp_path / "nothing")]) == 2


def test_every_chart_of_a_run_and_every_language_compiles(sweep: Path) -> None:
    converter = pytest.importorskip("vl_convert", reason="vl-convert is not installed")
    figures = document_figures(read_document(sweep))
    assert set(figures) >= {
        "comparison",
        "rates",
        "parts",
        "gamma",
        "acceptance",
        "matrix",
        "kinds",
        "lengths",
        "requests",
    }
    for chart in (panel for figure in figures.values() for panel in figure.panels):
        for language in LANGUAGES:
            for palette, width in ((PAGE, None), (PRINT, 400)):
                spec = specification(chart, words(language), palette, width=width)
                compiled = converter.vegalite_to_vega({**spec, "datasets": {"table": list(chart.data)}})
                assert compiled["marks"]


def test_no_formula_of_a_statistic_is_in_a_specification(sweep: Path) -> None:
    """Charts may filter, stack and place; they may not aggregate, bin, regress or calculate."""
    for chart in (panel for it in document_figures(read_document(sweep)).values() for panel in it.panels):
        text = json.dumps(specification(chart, words("en"), PAGE))
        assert not re.search(
            r'"(aggregate|calculate|bin|regression|loess|density|quantile|window|joinaggregate)"', text
        )
    script = (Path(documents.__file__).parent / "assets" / "page.js").read_text(encoding="utf-8")
    assert not re.search(r"reduce\(|mean|median|sqrt|Math\.(log|pow|exp)", script)


def test_many_requests_are_counted_not_listed(sweep: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = read_document(sweep)
    monkeypatch.setattr(documents, "MAX_POINTS", 100)
    monkeypatch.setattr(documents, "MAX_PROMPTS", 3)
    monkeypatch.setattr(documents, "MAX_EXPLAINED", 100)
    large = read_document(sweep)
    assert large.points == ()
    assert large.account is None
    assert sum(rate_bin.requests for rate_bin in large.bins) == len(small.points)
    for arm_id in {point.arm_id for point in small.points}:
        rates = [point.rate for point in small.points if point.arm_id == arm_id]
        bins = [rate_bin for rate_bin in large.bins if rate_bin.arm_id == arm_id]
        assert sum(rate_bin.requests for rate_bin in bins) == len(rates)
        assert min(b.low for b in bins) <= min(rates) <= max(rates) <= max(b.high for b in bins) * (1 + 1e-12)
    page = run_page(large)
    assert len(page) < len(run_page(small))
    assert "specmeter show --by-prompt" in page
    assert "specmeter explain" in page


def test_a_run_that_is_not_finished_says_so_first(sweep: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(sweep, folder)
    database = sqlite3.connect(folder / "run.sqlite")
    with database:
        database.execute("DELETE FROM certificate")
        database.execute("DELETE FROM finding")
        last = "SELECT id FROM request ORDER BY id DESC LIMIT 20"
        database.execute(f"DELETE FROM reply WHERE request_id IN ({last})")
        database.execute(f"DELETE FROM request WHERE id IN ({last})")
        database.execute("UPDATE run SET interrupted = 1, reason = 'interrupted'")
    database.close()
    (folder / "certificate.json").unlink()
    page = run_page(read_document(folder), ["en"])
    assert "All numbers are interim" in page
    assert "Not checked yet" in page
    assert "<s>" not in page


def test_a_run_without_any_request_can_be_shown(sweep: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(sweep, folder)
    database = sqlite3.connect(folder / "run.sqlite")
    with database:
        for table in ("certificate", "finding", "reply", "request", "telemetry", "margin"):
            database.execute(f"DELETE FROM {table}")
        database.execute("UPDATE run SET interrupted = 1")
    database.close()
    with RunStore.open(folder, readonly=True) as store:
        assert store.state().ok == 0
    page = run_page(read_document(folder), ["en"])
    assert "No configuration could be compared" in page


def test_steps_and_routing_become_charts(real: Path) -> None:
    document = read_document(real)
    charts = {name: figure.panels[0] for name, figure in document_figures(document).items()}
    shares: dict[str, float] = {}
    for datum in charts["accepted"].data:
        shares[str(datum["arm"])] = shares.get(str(datum["arm"]), 0.0) + float(datum["share"] or 0.0)
    assert set(shares) == {datum["arm"] for datum in charts["positions"].data}
    assert list(shares.values()) == pytest.approx([1.0] * 4)
    measured = [datum for datum in charts["union"].data if not datum["reference"]]
    assert {datum["model"] for datum in measured} == {"moe"}, "the run's own texts, without any probe"
    assert measured[0]["point"] == 4
    page = run_page(document, ("en",))
    for name in ("positions", "accepted", "union"):
        assert f'id="figure-{name}"' in page


def test_ratio_axes_show_all_points_and_never_two_ticks_at_one_place() -> None:
    for values in ([0.97, 1.04], [0.02, 40.0], [1.0], [0.5, 1.001, 1.002, 9.0]):
        (low, high), ticks = ratio_axis(values)
        assert low < min(*values, 1.0)
        assert high > max(*values, 1.0)
        assert 1 in ticks
        assert all(low <= tick <= high for tick in ticks)
        assert all(b / a > (high / low) ** (1 / 10) for a, b in pairwise(ticks))
