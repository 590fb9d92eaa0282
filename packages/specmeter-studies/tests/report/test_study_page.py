"""Pages of studies, as files, in a browser and from the command line."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from study_findings import found

import specmeter_studies as studies
from report_pages import ATTACK, Looked
from specmeter.cli import invoke
from specmeter.messages import LANGUAGES, Message, words
from specmeter.show.table_files import csv_text, latex, markdown
from specmeter_studies.folder import Part, StudyFolder, StudyRecord
from specmeter_studies.show.document import GROUPS, published_documents
from specmeter_studies.show.page import study_page, write_study_page

Look = Callable[..., Looked]

IS_CROSS = "(e) => e.getAttribute('aria-roledescription') === 'point' && e.getAttribute('stroke-width') === '1.6'"
DENSE = ("dense_0.8b", "dense_2b", "dense_4b", "dense_9b")


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("studies")
    made = {
        "published": [found("published")],
        "measured": [found("measured")],
        "hostile": [found("published", more=ATTACK)],
        "several": [found("published", prefix="one-"), found("measured", prefix="two-", study="apple-sd")],
    }
    return {name: write_study_page(of, folder / f"{name}.html", LANGUAGES) for name, of in made.items()}


def test_claims_come_first_and_nothing_is_loaded(pages: dict[str, Path]) -> None:
    text = pages["published"].read_text(encoding="utf-8")
    places = [text.index(f'id="{section}"') for section in ("claims", "figures", "tables", "measured", "repeat")]
    assert places == sorted(places)
    # Rulings fill the first screen: what to mind is linked above them, and stands right below.
    assert places[0] < text.index('href="#mind"') < text.index('class="claim ') < text.index('id="mind"') < places[1]
    assert places[0] < text.index("Mind this first.") < places[1]
    assert places[0] < text.index("needs a model that is not here") < places[1]
    assert len(text.encode()) < 1_500_000
    assert not re.search(r'(src|href|action)="(?!#|data:)', text)
    assert " style=" not in text


def test_a_page_says_whose_numbers_they_are() -> None:
    ours, theirs = (study_page([found(origin)], ["en"]) for origin in ("measured", "published"))
    printed = str(Message("study.published"))
    assert printed in theirs
    assert printed not in ours
    assert "not refuted" in theirs
    assert "not refuted" not in ours
    assert "not checked" in ours
    chinese = study_page([found()], ["zh"])
    assert "英文原文" not in chinese, "what is found is told in both languages"
    assert "It is faster." in chinese
    assert "论断" in chinese


def test_it_draws_every_panel_and_a_cross_for_every_false_number(look: Look, pages: dict[str, Path]) -> None:
    looked = look(pages["published"])
    assert looked.run("document.querySelectorAll('.chart svg').length") == 8
    false = sum(datum["mark"] == "impossible" for it in found().figures for panel in it.panels for datum in panel.data)
    crosses = f"[...document.querySelectorAll('.chart path')].filter({IS_CROSS}).length"
    assert looked.run(crosses) == false > 8
    assert looked.run("[...document.querySelectorAll('.claim .chip')].map((e) => e.innerText)") == [
        "contradicted",
        "supported",
        "undecided",
    ]
    assert looked.said == []
    assert looked.network == []


def test_false_numbers_are_struck_out_in_tables(look: Look, pages: dict[str, Path]) -> None:
    looked = look(pages["published"])
    struck = looked.run("[...document.querySelectorAll('#table-table-4 s')].map((e) => e.innerText)")
    # Where the study does not say which, all measured numbers of an invalid row are.
    assert [" ".join(text.split()) for text in struck] == ["90.0 [85.5, 94.5]", "1.625", "1.25"]
    chips = looked.run("[...document.querySelectorAll('#table-table-4 .chip')].map((e) => e.innerText)")
    assert chips == ["not refuted", "impossible", "impossible"]
    assert looked.page.locator("#table-table-5 .chip").count() == 0
    looked.page.click("summary:has-text('All configurations')")
    assert "speedup-above-tau" in looked.page.inner_text("#table-configurations tr.invalid")


def test_the_language_switches_and_charts_follow(look: Look, pages: dict[str, Path]) -> None:
    looked = look(pages["published"])
    assert "published, but impossible" in looked.page.inner_text("[data-chart=figure-2]")
    looked.page.click("[data-set-language=zh]")
    looked.until("document.documentElement.dataset.drawn === 'zh'")
    assert "已发表，但不可能" in looked.page.inner_text("[data-chart=figure-2]")
    assert looked.page.inner_text("#claims") == "论断"
    assert looked.said == []


@pytest.mark.parametrize("width", [360, 1280, 3840])
def test_nothing_sticks_out_at_any_width(look: Look, pages: dict[str, Path], width: int) -> None:
    for name in ("measured", "several"):
        looked = look(pages[name], viewport={"width": width, "height": 900}, color_scheme="dark")
        assert looked.run("document.documentElement.scrollWidth") <= width
        assert looked.run("Math.min(...[...document.querySelectorAll('.chart svg')].map((e) => e.clientWidth))") > 200
        assert looked.said == []


def test_figures_and_tables_have_names_for_those_who_do_not_see_them(look: Look, pages: dict[str, Path]) -> None:
    looked = look(pages["published"])
    names = looked.run("[...document.querySelectorAll('[data-chart], [role=region]')].map((e) => e.ariaLabel)")
    assert "Mean rates" in names
    assert all(names)
    levels = looked.run("[...document.querySelectorAll('h1, h2, h3, h4')].map((e) => Number(e.tagName[1]))")
    assert levels[0] == 1
    assert all(after <= before + 1 or before == 1 for before, after in pairwise(levels))
    ids = looked.run("[...document.querySelectorAll('[id]')].map((e) => e.id)")
    assert len(ids) == len(set(ids))


def test_several_studies_share_a_page_without_mixing(look: Look, pages: dict[str, Path]) -> None:
    looked = look(pages["several"])
    assert looked.run("document.querySelectorAll('.chart svg').length") == 16
    ids = looked.run("[...document.querySelectorAll('[id]')].map((e) => e.id)")
    assert len(ids) == len(set(ids))
    looked.page.click("a[href='#study-apple-sd']")
    assert looked.page.locator("#study-apple-sd").is_visible()


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_hostile_study_is_inert(look: Look, pages: dict[str, Path], language: str) -> None:
    looked = look(pages["hostile"], locale="zh-CN" if language == "zh" else "en-US")
    assert looked.run("document.querySelectorAll('.chart svg').length") == 8
    for details in looked.page.locator("details").all():
        details.evaluate("(element) => { element.open = true; }")
    # The cross lies over the symbol of its series, and takes the pointer.
    looked.page.locator("[data-chart=figure-7] svg .mark-symbol.role-mark path").last.hover()
    looked.page.wait_for_timeout(200)
    assert looked.run("window.attacked") is None
    assert looked.run("document.querySelectorAll('img, main svg[onload], iframe, object').length") == 0
    assert looked.run("document.querySelectorAll('script').length") == 3
    assert looked.said == []
    assert looked.network == []
    assert not set(looked.page.content()) & set("\u202e\u2066\u0000\u0007\u001b\u2028\u0085")
    assert "<script>window.attacked = 1</script>" in looked.page.inner_text("h1")
    narrow = look(pages["hostile"], viewport={"width": 360, "height": 800})
    assert narrow.run("window.attacked") is None
    assert narrow.said == []


def test_tables_in_all_forms_keep_their_headings_and_strike_what_is_false() -> None:
    table, _ = found().tables
    assert "**Mean rates**" in markdown(table, words("en"))
    assert markdown(table, words("en")).count("~~") == 6
    assert "rate, tok/s" in latex(table, words("en"))
    rows = list(csv.DictReader(csv_text(table, words("en")).splitlines()))
    # What a document printed stays, beside its verdict; false numbers of ours are left out.
    assert [row["rate, tok/s"] for row in rows] == ["60.0", "90.0", "70.25"]
    assert [row["rate, tok/s_high"] for row in rows] == ["63.0", "94.5", ""]
    assert [row["speedup"] for row in rows] == ["", "1.625", "1.25"]
    ours = list(csv.DictReader(csv_text(found("measured").tables[0], words("en")).splitlines()))
    assert [row["rate, tok/s"] for row in ours] == ["60.0", "", "70.25"]
    assert [row["speedup"] for row in ours] == ["", "", ""]
    assert [row["verdict"] for row in rows] == ["not refuted", "impossible", "impossible"]
    hostile, _ = found(more=ATTACK).tables
    for write in (markdown, csv_text, latex):
        assert not set(write(hostile, words("en"))) & set("\u202e\u2066\u0000\u0007\u001b\u2028\u0085")


def test_counts_and_settings_of_an_invalid_row_stay() -> None:
    from specmeter_studies.show.tables import document_table
    from specmeter_studies.study import StudyCell, StudyTable

    row = (StudyCell(value=8, digits=0), StudyCell(value=1.6, digits=2))
    table = document_table(
        StudyTable(
            key="k",
            title=Message("t"),
            columns=tuple(map(Message, ("gamma", "speedup"))),
            rows=(row,),
            verdicts=("invalid",),
        ),
        "measured",
    )
    assert [cell.struck for cell in table.rows[0].cells[:2]] == [False, True]


# --- from the command line -------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", studies.names())
def test_every_study_is_drawn_from_its_published_numbers(
    folder: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    converter = pytest.importorskip("vl_convert", reason="vl-convert is not installed")
    if studies.find(name).published() is None:
        assert invoke(["report", "--published", name]) == 2
        assert "there are no printed numbers" in capsys.readouterr().err
        return
    assert invoke(["report", "--published", name]) == 0
    assert capsys.readouterr().out.strip() == f"{name}-published.html"
    text = (folder / f"{name}-published.html").read_text(encoding="utf-8")
    assert len(text.encode()) < 3_000_000
    (document,) = published_documents(name)
    assert document.claims.rows
    for panel in (panel for figure in document.figures for panel in figure.panels):
        spec = specification_of(panel.name, text)
        assert converter.vegalite_to_vega({**spec, "datasets": {"table": list(panel.data)}})["marks"]


def specification_of(name: str, page: str) -> dict[str, object]:
    found = re.search(r'id="charts-data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    return json.loads(found[1])[name]["specs"]["en"]


def test_all_studies_on_apple_machines_share_a_page(folder: Path) -> None:
    assert invoke(["report", "--published", "apple", "--lang", "en", "--out", "apple.html"]) == 0
    text = (folder / "apple.html").read_text(encoding="utf-8")
    told = [document.name for document in published_documents("apple")]
    assert set(told) <= set(GROUPS["apple"])
    assert [name for name in GROUPS["apple"] if f'id="study-{name}"' in text] == told


def test_figures_and_tables_of_a_published_study(folder: Path) -> None:
    pytest.importorskip("vl_convert", reason="vl-convert is not installed")
    asked = ["report", "--published", "moe-306", "--lang", "en"]
    assert invoke([*asked, "--figures", "figures", "--tables", "tables"]) == 0
    assert {"figure-1.svg", "figure-2-1.svg", "figure-2-2.svg"} <= {path.name for path in Path("figures").iterdir()}
    names = {path.name for path in Path("tables").iterdir()}
    assert {"claims.md", "claims.csv", "claims.tex", "table-4.csv", "configurations.md", "results.jsonl"} <= names
    assert len(Path("tables/results.jsonl").read_text(encoding="utf-8").splitlines()) == 306
    assert not (folder / "moe-306-published.html").exists()


def test_what_cannot_be_shown_is_said_with_the_choice(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["report", "--published", "moe-307"]) == 2
    assert "use one of: moe-306, apple-quant-ladder" in capsys.readouterr().err
    assert invoke(["report", "latest", "--published", "moe-306"]) == 2
    assert "leave out RUN" in capsys.readouterr().err
    (folder / "probe.json").write_text("{}", encoding="utf-8")
    assert invoke(["report", "--published", "moe-306", "--probe", "probe.json"]) == 2
    assert "only for runs" in capsys.readouterr().err
    assert invoke(["report", "--published", "list"]) == 0
    listed = capsys.readouterr().out
    assert all(f"{name}: " in listed for name in (*studies.names(), "apple"))
    assert {path.name for path in folder.iterdir()} == {"probe.json"}


def test_a_study_folder_and_a_run_of_a_study_show_its_claims(folder: Path, look: Look) -> None:
    mock = [f"targets.{name}=mock:moe" for name in ("moe_q4", "moe_q8")] + [
        f"targets.{name}=mock:dense" for name in DENSE
    ]
    mock += [
        "drafts.draft_0.8b=mock:small",
        "drafts.draft_2b=mock:small",
        "engine.kind=mock",
        "generation.max_tokens=8",
    ]
    sets = [argument for setting in mock for argument in ("--set", setting)]
    assert invoke(["run", "moe-306", *sets, "--out", "study/moe-306"]) in (0, 1)
    claims = len(published_documents("moe-306")[0].findings.claims)

    assert invoke(["report", "study/moe-306"]) == 0
    looked = look(folder / "study" / "moe-306" / "report.html")
    assert looked.page.locator("#study .claim").count() == claims
    assert looked.page.locator("#study figure svg").count() > 3
    assert looked.page.locator("#table-results tbody tr").count() > 10
    assert looked.said == []
    ids = looked.run("[...document.querySelectorAll('[id]')].map((e) => e.id)")
    assert len(ids) == len(set(ids))
    assert invoke(["report", "study/moe-306", "--tables", "tables"]) == 0
    assert Path("tables/study-claims.md").is_file()
    assert Path("tables/summary.md").is_file()

    skipped = Part(name="suite-e", kind="experiment", skipped=Message("there is no second architecture here"))
    parts = (Part(name="moe-306", kind="experiment"), skipped)
    StudyFolder(folder / "study").write(StudyRecord(study="moe-306", made_at=0.0, parts=parts))
    assert invoke(["report", "study", "--lang", "en"]) == 0
    page = (folder / "study" / "report.html").read_text(encoding="utf-8")
    assert page.count('class="claim ') == claims
    assert "Simulated" in page


def test_an_experiment_of_a_studys_name_is_not_taken_for_it(folder: Path) -> None:
    (folder / "own.yaml").write_text(
        "name: moe-306\ntargets: {mine: 'mock:dense'}\ndrafts: {small: 'mock:small'}\n"
        "workloads: [{source: bench, kinds: [fact], per_kind: 1}]\narms: [{draft: small, gamma: 2}]\n"
        "engine: {kind: mock}\ngeneration: {max_tokens: 8}\n",
        encoding="utf-8",
    )
    assert invoke(["run", "own.yaml", "--out", "run"]) in (0, 1)
    assert invoke(["report", "run"]) == 0
    assert 'id="study"' not in (folder / "run" / "report.html").read_text(encoding="utf-8")


def test_an_invalid_row_has_every_number_of_its_own_struck() -> None:
    """Its acceptance and rate come out of the same failed forwards as its speedup; what its models do alone stands."""
    struck: list[str] = []
    for document in published_documents("apple"):
        for table in document.tables:
            names = [words("en").render(column.heading) for column in table.columns]
            for row in (row for row in table.rows if row.verdict == "invalid"):
                cells = dict(zip(names, row.cells, strict=True))
                own = [name for name in ("accepted, %", "tau", "tok/s", "speedup", "draft tok/s") if name in cells]
                assert all(cells[name].struck for name in own if cells[name].value is not None), table.name
                assert not any(cells[name].struck for name in ("target", "draft", "speed ratio") if name in cells)
                struck += own
    assert {"accepted, %", "tau", "tok/s", "speedup"} <= set(struck)


def test_what_is_struck_is_explained_below_its_table_in_every_form() -> None:
    (document,) = published_documents("apple-sd")
    table = next(table for table in document.tables if any(cell.struck for row in table.rows for cell in row.cells))
    for language in LANGUAGES:
        legend = words(language)("legend.struck")
        assert table.legend == [Message("legend.struck"), Message("legend.no_interval")]
        assert legend in markdown(table, words(language))
        assert latex(table, words(language)).rstrip().endswith(f"% {legend}")
        assert legend not in csv_text(table, words(language))
    assert f'<p class="legend note">{words("en")("legend.struck")}' in study_page([document], ["en"])
    assert document.models.legend == []
