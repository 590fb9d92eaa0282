"""How pages lie on a screen and on paper: nothing cut off, nothing endless, filters, anchors and print."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from report_pages import Looked
from specmeter.cli import invoke

Look = Callable[..., Looked]
CUT = "[...document.querySelectorAll('.scroll')].filter((e) => e.scrollWidth > e.clientWidth + 1)"
ROWS = "[...document.querySelectorAll('#table-results tbody tr')].filter((e) => !e.hidden).map((e) => e.dataset.target)"
TARGETS = "[...document.querySelectorAll('[data-chart=comparison] .role-axis-label text')].map((e) => e.textContent)"


@pytest.fixture(scope="module")
def pages(sweep: Path, hostile: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("layout")
    made = {name: folder / f"{name}.html" for name in ("sweep", "hostile", "moe-306", "apple")}
    assert invoke(["report", str(sweep), "--out", str(made["sweep"])]) == 0
    assert invoke(["report", str(hostile), "--out", str(made["hostile"])]) == 0
    for name in ("moe-306", "apple"):
        assert invoke(["report", "--published", name, "--out", str(made[name])]) == 0
    return made


@pytest.mark.parametrize("name", ["sweep", "moe-306", "apple"])
@pytest.mark.parametrize("language", ["en", "zh"])
def test_no_column_is_cut_off_and_no_page_is_endless(
    look: Look, pages: dict[str, Path], name: str, language: str
) -> None:
    looked = look(pages[name], locale="zh-CN" if language == "zh" else "en-US")
    assert looked.run(f"{CUT}.map((e) => e.ariaLabel)") == []
    assert looked.run("document.documentElement.scrollHeight") < 16_000
    # Unfolded, too.
    looked.run("document.querySelectorAll('details').forEach((e) => { e.open = true; })")
    looked.page.wait_for_timeout(300)
    wide = looked.run(f"{CUT}.filter((e) => e.closest('.table').querySelector('.hint').hidden).length")
    assert wide == 0, "what is still wider says so"


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_phone_shows_every_column_that_matters(look: Look, pages: dict[str, Path], language: str) -> None:
    locale = "zh-CN" if language == "zh" else "en-US"
    looked = look(pages["sweep"], viewport={"width": 400, "height": 800}, locale=locale)
    table = looked.page.locator("#table-results")
    right = looked.run(
        "[...document.querySelectorAll('#table-results thead th')].filter((e) => e.offsetWidth)"
        ".map((e) => e.getBoundingClientRect().right)"
    )
    assert (len(right), max(right) <= 400) == (6, True)
    table.locator(".hint").click()
    assert table.locator("thead th:visible").count() == 12


# --- filters and anchors ---------------------------------------------------------------------------------------------


def test_a_filter_holds_for_tables_and_charts_and_is_kept_in_the_address(look: Look, pages: dict[str, Path]) -> None:
    looked = look(pages["sweep"])
    assert set(looked.run(ROWS)) == {"dense", "moe"}
    looked.page.focus("[data-filter=target]")
    looked.page.keyboard.press("m")
    looked.page.keyboard.press("Enter")
    looked.until("location.hash === '#&target=moe'")
    looked.until(f"{TARGETS}.every((text) => !text.startsWith('dense'))")
    assert set(looked.run(ROWS)) == {"moe"}
    assert looked.page.locator("figure#figure-matrix .chart svg:visible").count() == 1
    looked.page.click("[data-filter-none]")
    assert looked.run("location.hash") == ""
    assert set(looked.run(ROWS)) == {"dense", "moe"}
    assert looked.said == []


def test_filters_add_up_and_spare_what_they_do_not_know(look: Look, pages: dict[str, Path]) -> None:
    looked = look(pages["sweep"])
    looked.page.select_option("[data-filter=method]", label="ngram-simple")
    looked.page.select_option("[data-filter=kind]", "edit")
    shown = looked.run(
        "[...document.querySelectorAll('#table-kinds tbody tr')].filter((e) => !e.hidden)"
        ".map((e) => [e.dataset.method ?? '', e.dataset.kind])"
    )
    assert {tuple(row) for row in shown} == {("", "edit"), ("ngram-simple", "edit")}, "baselines stay"
    assert looked.page.locator("#table-checks tbody tr[hidden]").count() == 0
    copied = "[...document.querySelectorAll('#table-kinds tbody tr[hidden]')].length"
    assert looked.run(copied) > 0


def test_an_address_chooses_and_a_link_within_the_page_keeps_the_choice(look: Look, pages: dict[str, Path]) -> None:
    looked = look(pages["sweep"])
    looked.page.goto(pages["sweep"].resolve().as_uri() + "#validity&target=moe&kind=no-such-kind")
    looked.page.reload()
    looked.until("document.documentElement.dataset.drawn !== undefined")
    assert looked.run("document.querySelector('[data-filter=target]').value") == "moe"
    assert looked.run("document.querySelector('[data-filter=kind]').value") == ""
    assert looked.run("Math.abs(document.querySelector('#validity').getBoundingClientRect().top)") < 200
    looked.page.click("a[href='#check-target-decode-failed'] >> nth=0")
    looked.until("location.hash === '#check-target-decode-failed&target=moe'")
    assert set(looked.run(ROWS)) == {"moe"}


def test_an_address_of_any_length_is_read_at_once(look: Look, pages: dict[str, Path]) -> None:
    looked = look(pages["sweep"])
    looked.run("location.hash = '#' + '&kind=a'.repeat(200000) + '&x'")
    looked.run("location.hash = '#validity&target=dense&target=moe'")
    looked.until("document.querySelector('[data-filter=target]').value === 'moe'")


def test_nothing_in_an_address_or_an_option_can_act(look: Look, pages: dict[str, Path]) -> None:
    looked = look(pages["hostile"])
    attack = "#%3Cimg%20src=x%20onerror=window.attacked=1%3E&target=%E0%A4%A&kind=%3Cscript%3Ewindow.attacked=2"
    looked.page.goto(pages["hostile"].resolve().as_uri() + attack)
    looked.page.reload()
    looked.until("document.documentElement.dataset.drawn !== undefined")
    looked.page.select_option("[data-filter=target]", index=1)
    looked.page.wait_for_timeout(200)
    assert looked.run("window.attacked") is None
    assert looked.run("document.querySelectorAll('option *, img, iframe').length") == 0
    assert looked.said == []
    assert looked.network == []


# --- print -----------------------------------------------------------------------------------------------------------
