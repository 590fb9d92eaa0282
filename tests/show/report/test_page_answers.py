"""What a page says first: the answer of each target, the line to paste, speedups by draft length and their ceilings."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from mock_probe import mock_probe
from report_pages import Looked
from specmeter.analysis.explain.ceiling import ceilings
from specmeter.analysis.reading import read_run
from specmeter.show import run_tables
from specmeter.show.matrix_figure import matrix
from specmeter.show.page.document import Document, read_document
from specmeter.show.page.page import run_page, shareable
from specmeter.show.run_figures import parts

Look = Callable[..., Looked]
LINE = "llama-server -m 'my model.gguf' -md small.gguf --spec-draft-n-max 4"


@pytest.fixture(scope="module")
def document(sweep: Path) -> Document:
    return read_document(sweep)


@pytest.fixture(scope="module")
def page(document: Document, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sweep, with enough blocks for advice, of an engine that says how one serves with its arms."""
    first, *others = document.run.answers
    answers = (first.model_copy(update={"decision": "speculate"}), *others)
    commands = {arm.id: ("llama-server", "-m", "my model.gguf", *LINE.split()[4:]) for arm in document.run.arms}
    path = tmp_path_factory.mktemp("answers") / "report.html"
    path.write_text(
        run_page(replace(document, run=replace(document.run, answers=answers, commands=commands))), encoding="utf-8"
    )
    return path


def test_the_heading_has_target_number_decision_and_state(look: Look, page: Path, document: Document) -> None:
    looked = look(page)
    lines = looked.run("[...document.querySelectorAll('h1 .headline')].map((e) => e.innerText.replace(/\\s+/g, ' '))")
    whole = [answer for answer in document.run.answers if not answer.kind]
    assert len(lines) == len(whole) == 2
    for line, answer in zip(lines, whole, strict=True):
        assert line.startswith(f"{answer.baseline_id.partition('/')[0]}: ")
        assert f"{answer.speedup.point:.2f}×" in line
        assert line.endswith("simulated")
    box = looked.run("document.querySelector('h1').getBoundingClientRect().bottom")
    assert box < 300
    looked.page.click("[data-set-language=zh]")
    assert "倍" in looked.page.inner_text("h1 .headline")


def test_the_line_to_paste_is_copied_as_it_is(look: Look, page: Path, document: Document) -> None:
    told = [it.decision for it in document.run.answers[1:] if not it.kind]
    advised = ["speculate", *(decision for decision in told if decision == "do not speculate")]
    looked = look(page)
    shown = looked.run("[...document.querySelectorAll('.paste pre')].map((e) => e.textContent)")
    assert shown == [LINE] * len(advised)
    looked.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    looked.page.click(".paste .copy")
    looked.page.wait_for_selector(".paste .copy.done")
    assert looked.run("navigator.clipboard.readText()") == LINE
    assert looked.run("document.querySelector('.paste').getBoundingClientRect().bottom") < 900


def test_speedups_stand_in_a_matrix_of_draft_lengths(document: Document) -> None:
    figure = matrix(document)
    assert figure is not None
    assert [panel.facet for panel in figure.panels] == ["dense", "moe"]
    by_arm = {arm.arm_id: arm for arm in document.run.summary.arms}
    cells = [cell for panel in figure.panels for cell in panel.data]
    whole = {str(cell["arm"]): cell for cell in cells if "kind" not in cell}
    assert set(whole) == {arm for arm in by_arm if document.arms[arm].speculates}
    for arm_id, cell in whole.items():
        speedup = by_arm[arm_id].speedup
        if speedup is None:  # invalid: crossed out, and its number nowhere
            assert (cell["verdict"], cell["cell"], cell["heat"]) == ("invalid", None, None)
            continue
        assert f"{speedup.point:.2f}×" in str(cell["cell"])
        assert speedup.low is not None
        assert ("▲" in str(cell["cell"])) == (speedup.low > 1)
        assert (int(str(cell["heat"])) > 4) == (speedup.point >= 1.02)
    assert {cell["kind"] for cell in cells if "kind" in cell} >= {"fact", "code", "edit"}
    rows = {str(cell["row_en"]) for cell in cells}
    assert {"draft model small", "ngram-simple", "code · draft model small"} <= rows
    assert {cell["gamma"] for cell in cells if cell["row_en"] == "ngram-simple"} == {8}, "others: empty"


def test_a_matrix_strikes_what_cannot_be_trusted(look: Look, page: Path, document: Document, tmp_path: Path) -> None:
    certificate = document.run.certificate
    assert certificate is not None
    doubted = certificate.model_copy(update={"arms": certificate.arms | {"dense/draft-simple/small/g2": "suspect"}})
    path = tmp_path / "report.html"
    path.write_text(run_page(replace(document, run=replace(document.run, certificate=doubted))), encoding="utf-8")
    count = "document.querySelectorAll('[data-chart=matrix-{}] .mark-rule line').length"
    kinds = len({kind for arm in document.run.summary.arms for kind in arm.kinds}) + 1
    assert look(page).run(count.format(1)) == 0
    assert look(page).run(count.format(2)) == 2 * kinds, "two strokes for an invalid arm"
    assert look(path).run(count.format(1)) == 0, "none over what is only suspect"
    texts = "[...document.querySelectorAll('[data-chart=matrix-1] .mark-text text')].map(it => it.textContent)"
    assert look(path).run(f"{texts}.filter(it => it === '?').length") == kinds, "a mark beside it"


def test_a_ceiling_is_tau_over_the_cheapest_forward_that_was_probed(sweep: Path) -> None:
    run = read_run(sweep)
    probe = mock_probe()
    ones = {arm.arm_id: arm for arm in run.summary.arms}
    found = ceilings(run.arms, run.summary.arms, {"dense/draft-simple/small/g4": probe})
    probed = found["dense/draft-simple/small/g4"]
    tau = ones["dense/draft-simple/small/g4"].tau
    assert tau is not None
    times = {point.tokens: point.ms.point for point in probe.target_ms.points}
    cheapest = min(times[n] for n in range(1, 6)) / times[1]
    assert probed.cheapest_forward == pytest.approx(cheapest)
    assert probed.speedup.point == pytest.approx(tau.point / cheapest)
    assumed = found["dense/draft-simple/small/g8"]
    assert assumed.cheapest_forward is None
    assert assumed.speedup.point == ones["dense/draft-simple/small/g8"].tau.point  # pyright: ignore[reportOptionalMemberAccess]
    assert "moe/draft-simple/small/g8" not in found, "invalid arms have no speedup to compare"


def test_a_speedup_above_tau_refutes_that_ceiling(sweep: Path) -> None:
    run = read_run(sweep)
    arm = next(arm for arm in run.summary.arms if arm.speedup and arm.tau and arm.arm_id.startswith("dense"))
    assert arm.speedup is not None
    assert arm.tau is not None
    faster = arm.speedup.model_copy(update={"point": arm.tau.point * 1.1})
    assert ceilings(run.arms, [arm.model_copy(update={"speedup": faster})], {}) == {}


def test_what_refutes_a_ceiling_refutes_it_for_all_drafts_as_long(sweep: Path) -> None:
    run = read_run(sweep)
    before = ceilings(run.arms, run.summary.arms, {})
    small = {gamma: f"dense/draft-simple/small/g{gamma}" for gamma in (2, 4, 8)}
    assert before.keys() >= {small[4], small[8]}
    ones = {arm.arm_id: arm for arm in run.summary.arms}
    tau = ones[small[4]].tau
    assert tau is not None
    above = {"point": tau.point * 1.2, "low": tau.point * 1.1, "high": tau.point * 1.3}
    speedup = ones[small[4]].speedup
    assert speedup is not None
    ones[small[4]] = ones[small[4]].model_copy(update={"speedup": speedup.model_copy(update=above)})
    after = ceilings(run.arms, ones.values(), {})
    assert after.keys() & set(small.values()) == before.keys() & {small[2]}
    assert not any(arm.startswith("dense") and arm.endswith("g8") for arm in after)
    assert {arm for arm in after if arm.startswith("moe")} == {arm for arm in before if arm.startswith("moe")}


def test_time_that_cannot_be_divided_is_not_called_verification(document: Document) -> None:
    figure = parts(document)
    assert figure is not None
    assert document.account is not None
    means = {arm.arm_id: arm.means for arm in document.account.arms}
    for datum in figure.panels[0].data:
        if "part" in datum and means[str(datum["arm"])] == "undivided":
            assert datum["part"] in ("undivided", "restore")


def test_nothing_of_a_simulated_run_is_green(page: Path, look: Look) -> None:
    looked = look(page)
    assert looked.page.locator(".chip.mock").count() > 3
    assert looked.page.locator(".chip.valid").count() == 0
    assert looked.page.inner_text("h1 .chip.mock") == "simulated"
    assert looked.page.locator("h1 .speculate, h1 .stop").count() == 0


def test_parts_of_a_bar_follow_one_another(real: Path) -> None:
    figure = parts(read_document(real))
    assert figure is not None
    ends: dict[object, float] = {}
    for datum in figure.panels[0].data:
        size = float(datum["point"] or 0)
        if size >= 0:
            assert datum["start"] == pytest.approx(ends.get(datum["arm"], 0.0))
            ends[datum["arm"]] = float(datum["end"] or 0)
        assert float(datum["end"] or 0) - float(datum["start"] or 0) == pytest.approx(size)
        assert datum["middle"] == pytest.approx((float(datum["start"] or 0) + float(datum["end"] or 0)) / 2)


@pytest.mark.skipif(os.name == "nt", reason="shells of Windows quote otherwise")
def test_a_command_on_a_page_names_no_home_folder_and_still_works_in_a_shell() -> None:
    home = Path.home()
    line = shareable(("echo", f"{home}/my models/a.gguf", f"{home}/b.gguf", "--api-key", "sk-abcdefghijklmnopqrstuvwx"))
    assert str(home) not in line
    assert "sk-abc" not in line
    told = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=True).stdout
    assert told.startswith(f"{home}/my models/a.gguf {home}/b.gguf ")


def test_time_that_cannot_be_divided_is_none_of_verification_in_the_table(document: Document) -> None:
    assert document.account is not None
    table = run_tables.parts(document)
    keys = [column.key for column in table.columns]
    assert any(arm.means == "undivided" for arm in document.account.arms)
    for arm, one in zip(document.account.arms, table.rows, strict=True):
        told = {key: str(cell.text) for key, cell in zip(keys, one.cells, strict=True)}
        if arm.means == "undivided":
            assert (told["part_verify"], told["part_undivided"] != "-") == ("-", True)
