"""Advices whose record or whose runs were changed after they were made."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from advise.test_course import ASKED, grid_of
from specmeter.advise import confirm as confirmation
from specmeter.advise.advice import read_advice, write_advice
from specmeter.advise.confirm import Confirmed, Shown, decide, differences, examined
from specmeter.advise.pipeline import Silent, advise, again
from specmeter.cli import invoke
from specmeter.errors import UsageError
from specmeter.record import Estimate
from specmeter.show.advice_words import stage_of

if TYPE_CHECKING:
    from specmeter.advise.advice import Advice
    from specmeter.advise.confirm import Ruling


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("advice") / "a"
    assert advise(ASKED, grid_of(gamma=(1, 4)), folder, Silent()).decision == "speculate"
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "copy"))


def changed(folder: Path, **changes: Any) -> Advice:
    advice = read_advice(folder).model_copy(update=changes)
    write_advice(advice, folder)
    return advice


def test_what_was_measured_stays_as_it_is(folder: Path) -> None:
    advice = read_advice(folder)
    assert examined(advice, folder) == advice


def test_a_speedup_that_was_changed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    speedup = read_advice(folder).speedup
    assert speedup is not None
    advice = changed(folder, speedup=speedup.model_copy(update={"point": 9.9, "low": 9.8, "high": 10.0}))
    told = examined(advice, folder)
    assert (told.decision, told.verdict, told.why_undecided) == ("undecided", "invalid", "changed")
    assert invoke(["show", str(folder)]) == 1
    assert "changed since it was measured" in capsys.readouterr().out
    with pytest.raises(UsageError, match="is not what was measured"):
        again(folder, folder.parent / "again", Silent())


@pytest.mark.parametrize("stage", ["confirm", "race"])
def test_times_of_a_stage_that_were_changed(folder: Path, stage: str) -> None:
    with closing(sqlite3.connect(folder / stage / "run.sqlite")) as db, db:
        assert db.execute("UPDATE request SET predicted_ms = predicted_ms / 2 WHERE rowid % 3 = 0").rowcount
    assert f"{stage}: is not what was certified" in list(differences(read_advice(folder), folder))


def test_a_stage_that_is_gone(folder: Path) -> None:
    shutil.rmtree(folder / "confirm")
    assert examined(read_advice(folder), folder).why_undecided == "changed"


def rule_in_turn(monkeypatch: pytest.MonkeyPatch, *rulings: Ruling) -> None:
    """What each confirmation shows; the last one repeats."""
    left = list(rulings)
    monkeypatch.setattr(confirmation, "_ruling", lambda *_: left.pop(0) if len(left) > 1 else left[0])


@pytest.mark.parametrize(
    ("second", "decision", "why"),
    [("gains", "speculate", ""), ("none", "off", ""), ("open", "undecided", "not-confirmed")],
)
def test_what_a_confirmation_leaves_open_is_measured_once_more(
    second: Ruling, decision: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule_in_turn(monkeypatch, "open", second)
    folder = tmp_path / "a"
    advice = advise(ASKED, grid_of(gamma=(3, 4, 5, 6)), folder, Silent())
    assert [it.folder for it in advice.stages] == ["screen", "race", "confirm", "confirm-longer"]
    assert (advice.decision, advice.why_undecided, advice.confirmation) == (decision, why, "confirm-longer")
    assert advice.speedup is not None
    assert "together with 1 more" in advice.speedup.method
    blocks = {it.folder: it.blocks for it in advice.stages}
    assert blocks["confirm-longer"] > blocks["confirm"]
    assert advise(ASKED, grid_of(gamma=(3, 4, 5, 6)), folder, Silent()) == advice


@pytest.mark.parametrize("second", ["gains", "open"])
def test_a_second_arm_is_tried_where_the_winner_is_not_confirmed(
    second: Ruling, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule_in_turn(monkeypatch, "open", second)
    monkeypatch.setattr(confirmation, "_longer", lambda *_: 0)
    folder = tmp_path / "a"
    advice = advise(ASKED, grid_of(gamma=(3, 4, 5, 6)), folder, Silent())
    assert [it.folder for it in advice.stages] == ["screen", "race", "confirm", "confirm-2"]
    if second == "open":
        assert (advice.decision, advice.why_undecided, advice.confirmation) == ("undecided", "not-confirmed", "confirm")
        return
    assert (advice.decision, advice.confirmation) == ("speculate", "confirm-2")
    assert advice.speedup is not None
    assert "together with 1 more" in advice.speedup.method
    stage = stage_of(advice)
    assert stage is not None
    assert stage.folder == "confirm-2"
    assert examined(advice, folder) == advice


def speedup(point: float, low: float, high: float) -> Estimate:
    return Estimate(point=point, low=low, high=high, n=3, unit="x", method="of a test")


@pytest.mark.parametrize(
    ("ruling", "found", "off_raced", "shown", "decision"),
    [
        ("gains", (1.30, 1.20, 1.40), False, "raced", "speculate"),
        ("gains", (1.30, 1.20, 1.40), False, "open", "speculate"),
        ("gains", (1.015, 1.001, 1.03), True, "raced", "off"),
        ("gains", (1.03, 1.001, 1.06), True, "raced", "undecided"),
        ("none", (0.97, 0.94, 1.00), True, "settled", "off"),
        ("none", (0.97, 0.94, 1.00), True, "open", "undecided"),
        ("open", (1.00, 0.97, 1.03), True, "raced", "off"),
        ("open", (1.00, 0.97, 1.03), True, "settled", "undecided"),
        ("open", (1.30, 0.95, 1.78), True, "raced", "undecided"),
        ("open", (1.10, 0.99, 1.22), False, "raced", "undecided"),
        ("invalid", (1.30, 1.20, 1.40), False, "raced", "undecided"),
    ],
)
def test_weaker_evidence_never_makes_a_firmer_answer(
    ruling: Ruling, found: tuple[float, float, float], off_raced: bool, shown: Shown, decision: str
) -> None:
    confirmed = Confirmed("a", speedup(*found), None, "valid", ruling, "confirm")
    assert decide(confirmed, off_raced=off_raced, shown=shown)[0] == decision
