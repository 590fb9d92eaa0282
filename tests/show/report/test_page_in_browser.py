"""The report in a real browser: it draws, switches, sorts, prints, asks for nothing, and nothing in it can act."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from report_pages import ATTACK, Looked
from specmeter.cli import invoke

Look = Callable[..., Looked]


@pytest.fixture(scope="module")
def pages(sweep: Path, real: Path, hostile: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    made: dict[str, Path] = {}
    for name, run in {"sweep": sweep, "real": real, "hostile": hostile}.items():
        made[name] = folder / f"{name}.html"
        assert invoke(["report", str(run), "--out", str(made[name])]) == 0
    return made


@pytest.mark.smoke
@pytest.mark.parametrize("name", ["real", "sweep"])
def test_a_report_draws_all_charts_and_asks_for_nothing(look: Look, pages: dict[str, Path], name: str) -> None:
    looked = look(pages[name])
    drawn = looked.run("document.querySelectorAll('.chart svg').length")
    assert drawn == looked.run("document.querySelectorAll('.chart').length") >= 4
    # Marks of data, not only axes: every arm that is compared has a point.
    assert looked.run("document.querySelectorAll('[data-chart=comparison] svg path').length") > 6
    assert looked.said == []
    assert looked.network == []


def test_the_language_switches_everywhere_and_charts_follow(look: Look, pages: dict[str, Path]) -> None:
    looked = look(pages["real"])
    assert "Comparison" in looked.page.inner_text("#comparison h2")
    looked.page.click("[data-set-language=zh]")
    looked.until("document.documentElement.dataset.drawn === 'zh'")
    assert looked.page.inner_text("#comparison h2") == "比较"
    assert "相对基线的加速比" in looked.page.inner_text("[data-chart=comparison]")
    assert looked.run("document.documentElement.lang") == "zh-Hans"
    assert "Comparison" not in looked.page.inner_text("main")
    assert looked.said == []


def test_columns_sort_both_ways_by_value(look: Look, pages: dict[str, Path]) -> None:
    looked = look(pages["sweep"])
    rates = "[...document.querySelectorAll('#table-results tbody tr')].map((row) => Number(row.cells[2].dataset.value))"
    before = looked.run(rates)
    looked.page.click("#table-results th:nth-child(3) button")
    assert looked.run(rates) == sorted(before) != before
    assert looked.page.get_attribute("#table-results th:nth-child(3)", "aria-sort") == "ascending"
    looked.page.focus("#table-results th:nth-child(3) button")
    looked.page.keyboard.press("Enter")
    assert looked.run(rates) == sorted(before, reverse=True)


def test_a_table_is_copied_as_text(look: Look, pages: dict[str, Path]) -> None:
    looked = look(pages["sweep"])
    looked.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    looked.page.click("#table-results .copy")
    looked.page.wait_for_selector("#table-results .copy.done")
    lines = looked.run("navigator.clipboard.readText()").replace("\r", "").strip().split("\n")
    assert lines[0].split("\t")[:2] == ["target", "configuration"]
    assert len(lines) == 1 + looked.run("document.querySelectorAll('#table-results tbody tr').length")


def test_dark_and_light_by_the_system_and_by_choice(look: Look, pages: dict[str, Path]) -> None:
    background = "getComputedStyle(document.body).backgroundColor"
    label = "getComputedStyle(document.querySelector('[data-chart=comparison] text')).fill"
    looked = look(pages["real"], color_scheme="dark")
    assert looked.run(background) == "rgb(20, 23, 27)"
    dark = looked.run(label)
    looked.page.click("[data-set-theme=light]")
    assert looked.run(background) == "rgb(255, 255, 255)"
    assert looked.run(label) != dark
    assert looked.said == []


@pytest.mark.parametrize("width", [360, 1280, 3840])
def test_nothing_sticks_out_at_any_width(look: Look, pages: dict[str, Path], width: int) -> None:
    for name in ("real", "sweep"):
        looked = look(pages[name], viewport={"width": width, "height": 900})
        assert looked.run("document.documentElement.scrollWidth") <= width
        widths = looked.run("[...document.querySelectorAll('.chart svg')].map((e) => e.getBoundingClientRect().width)")
        assert min(widths) > 200


def test_every_control_is_reached_by_keyboard(look: Look, pages: dict[str, Path]) -> None:
    looked = look(pages["real"])
    reached: list[str] = []
    for _ in range(12):
        looked.page.keyboard.press("Tab")
        reached.append(looked.run("document.activeElement.outerHTML.slice(0, 60)"))
    assert any('class="skip"' in html for html in reached[:1])
    assert any("data-set-language" in html for html in reached)
    assert any("data-set-theme" in html for html in reached)
    looked.page.focus("[data-set-language=zh]")
    looked.page.keyboard.press("Enter")
    looked.until("document.documentElement.dataset.drawn === 'zh'")


def test_numbers_are_those_of_show(
    look: Look, pages: dict[str, Path], sweep: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every number in the table of results, to its last digit, and nothing else."""
    capsys.readouterr()
    assert invoke(["show", str(sweep), "--json"]) == 1
    said = json.loads(capsys.readouterr().out)
    expected: dict[str, list[tuple[float, str, str]]] = {}
    for arm in said["summary"]["arms"]:
        speedup = said["withheld"].get(arm["arm_id"]) or said["cited"].get(arm["arm_id"])
        gain = arm["gain"] or {"with_prompt": None, "pooled": None}
        numbers = [arm["decode_rate"], speedup, gain["with_prompt"], gain["pooled"], arm["acceptance"], arm["tau"]]
        expected[arm["arm_id"]] = [
            (n["point"], str(n["low"] if n["low"] is not None else ""), str(n["high"] if n["high"] is not None else ""))
            for n in numbers
            if n
        ]
    looked = look(pages["sweep"])
    rows = looked.run(
        """[...document.querySelectorAll('#table-results tbody tr')].map((row) => [
            row.cells[0].innerText + '/' + row.cells[1].dataset.id,
            [...row.cells].filter((c) => 'low' in c.dataset)
                .map((c) => [Number(c.dataset.value), c.dataset.low, c.dataset.high]),
        ])"""
    )
    assert {name: [tuple(number) for number in numbers] for name, numbers in rows} == expected
    sentences = looked.run(
        "[...document.querySelectorAll('.sentence [data-lang=en], .details [data-lang=en]')].map((e) => e.innerText)"
    )
    assert invoke(["show", str(sweep), "--details"]) == 1
    printed = " ".join(capsys.readouterr().out.split())
    assert sentences
    assert all(" ".join(sentence.split()) in printed for sentence in sentences)


def test_false_numbers_are_struck_out_with_their_reason(look: Look, pages: dict[str, Path]) -> None:
    looked = look(pages["sweep"])
    row = looked.page.locator("#table-results tr.invalid")
    assert row.count() == 1
    struck = row.locator("s")
    assert struck.count() == 4
    assert "line-through" in looked.run("getComputedStyle(document.querySelector('tr.invalid s')).textDecorationLine")
    assert "target-decode-failed" in row.inner_text()
    looked.page.click("tr.invalid a[href='#check-target-decode-failed']")
    assert looked.page.locator("#check-target-decode-failed").is_visible()
    assert "invalid" in looked.page.inner_text("[data-chart=comparison]")
    # The withheld speedup is in no chart.
    number = row.locator("td:nth-child(4)").get_attribute("data-value")
    assert number is not None
    assert number[:8] not in (looked.page.text_content("#charts-data") or "")


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_hostile_run_is_inert(look: Look, pages: dict[str, Path], language: str) -> None:
    looked = look(pages["hostile"], locale="zh-CN" if language == "zh" else "en-US")
    assert looked.run("document.querySelectorAll('.chart svg').length") >= 4
    for details in looked.page.locator("details").all():
        details.evaluate("(element) => { element.open = true; }")
    looked.page.locator("[data-chart=comparison] svg .mark-symbol path").first.hover()
    looked.page.wait_for_timeout(200)
    assert looked.run("window.attacked") is None
    assert looked.run("document.querySelectorAll('img, main svg[onload], iframe, object').length") == 0
    assert looked.run("document.querySelectorAll('script').length") == 3
    assert looked.said == []
    assert looked.network == []
    text = looked.page.content()
    assert not set(text) & set("\u202e\u2066\u0000\u0007\u001b\u2028\u0085")
    assert "{{7*7}}" in looked.page.inner_text("h1")
    assert "49" not in looked.page.inner_text("h1")
    assert "<script>window.attacked = 1</script>" in looked.page.inner_text("h1")


def test_the_policy_stops_what_slips_through(look: Look, pages: dict[str, Path], tmp_path: Path) -> None:
    """Even markup put into the file afterwards cannot act: the page forbids it itself."""
    broken = tmp_path / "broken.html"
    text = pages["real"].read_text(encoding="utf-8")
    broken.write_text(
        text.replace(
            "<h1>",
            "<img src=http://attacker.example/x.png onerror='window.attacked=1'><script>window.attacked=2</script><h1>",
        ),
        encoding="utf-8",
    )
    looked = look(broken)
    assert looked.run("window.attacked") is None
    assert looked.network == [] or all("attacker" in url for url in looked.network)
    assert any("Content Security Policy" in line for line in looked.said)
    assert ATTACK not in text
