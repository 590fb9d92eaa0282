"""Advices whose record or whose runs were changed after they were made."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from advise.test_course import ASKED, grid_of
from specmeter.advise import confirm as confirmation
from specmeter.advise import verify_advice
from specmeter.advise.advice import AdviceOfKind, read_advice, write_advice
from specmeter.advise.advise import advise
from specmeter.advise.again import again
from specmeter.advise.confirm import Confirmed, Shown, decide, preferred, ruled
from specmeter.advise.observer import Silent
from specmeter.advise.verify_advice import amend, certify_advice, differences, examined
from specmeter.cli import invoke
from specmeter.errors import UsageError
from specmeter.record import Estimate
from specmeter.show.advice_words import headline, names_of, notes
from specmeter.store.integrity import certificate_in

if TYPE_CHECKING:
    from collections.abc import Callable

    from specmeter.advise.advice import Advice, ArmOutcome
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


def test_a_finished_advice_is_certified(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["check", str(folder)]) == 0
    out = capsys.readouterr().out
    assert "verdict: valid (complete)" in out
    assert "covered by the certificate: advice.json, grid.yaml, screen/certificate.json" in out
    assert invoke(["check", str(folder), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["verdict"], found["arms"].keys()) == ("valid", {"screen", "race", "confirm"})


def raised(folder: Path, field: str) -> tuple[ArmOutcome, ...]:
    """The outcomes, with one number of each 30 % higher."""
    found: list[ArmOutcome] = []
    for outcome in read_advice(folder).outcomes:
        it: Estimate | None = getattr(outcome, field)
        more = None if it is None else it.model_copy(update={"point": 1.3 * it.point, "high": 2 * it.point})
        found.append(outcome.model_copy(update={field: more}))
    return tuple(found)


EDITS: dict[str, Callable[[Path], dict[str, object]]] = {
    "raced": lambda folder: {"outcomes": raised(folder, "raced")},
    "confirmed": lambda folder: {"outcomes": raised(folder, "confirmed")},
    "predicted": lambda folder: {"outcomes": raised(folder, "predicted")},
    "fewer outcomes": lambda folder: {"outcomes": read_advice(folder).outcomes[:1]},
    "made_at": lambda folder: {"made_at": read_advice(folder).made_at - 86400},
    "stages": lambda folder: {
        "stages": tuple(it.model_copy(update={"prompts": 40, "blocks": 30}) for it in read_advice(folder).stages)
    },
    "target": lambda folder: {"target": (it := read_advice(folder).target) and it.model_copy(update={"name": "big"})},
    "engine": lambda folder: {"engine": (it := read_advice(folder).engine) and it.model_copy(update={"version": "9"})},
    "rival": lambda folder: {"rival": read_advice(folder).outcomes[-1].arm_id},
    "kinds": lambda folder: {
        "by_kind": (AdviceOfKind(kind="code", decision="off", arm=None, speedup=read_advice(folder).speedup),)
    },
}


@pytest.mark.parametrize("name", EDITS)
def test_whatever_is_edited_is_told_by_the_certificate(
    name: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changed(folder, **EDITS[name](folder))
    assert invoke(["check", str(folder)]) == 1
    assert "advice.json changed since" in capsys.readouterr().out
    told = examined(read_advice(folder), folder)
    assert (told.verdict, told.why_undecided, told.speedup, told.outcomes) == ("invalid", "changed", None, ())
    assert "x [" not in str(headline(told, names_of(told)))


def test_what_no_run_shows_is_suspect_once_a_check_has_certified_it(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changed(folder, seconds=1.0)
    (folder / "certificate.json").unlink()
    assert examined(read_advice(folder), folder).uncertified == "none"
    for said in ("certified now", "by a later check"):
        assert invoke(["check", str(folder)]) == 0
        out = capsys.readouterr().out
        assert "verdict: suspect" in out
        assert said in out
    told = examined(read_advice(folder), folder)
    assert (told.verdict, told.uncertified) == ("suspect", "late")
    assert invoke(["show", str(folder)]) == 0
    assert "certified by a later check" in capsys.readouterr().out


def test_another_version_may_have_computed_otherwise(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify_advice, "__version__", "99.0")
    told = examined(read_advice(folder), folder)
    assert (told.verdict, told.uncertified, told.why_undecided) == ("suspect", "version", "")


def test_the_line_to_paste_is_that_of_the_runs_also_where_it_is_unfinished(folder: Path) -> None:
    (folder / "certificate.json").unlink()
    line = read_advice(folder).command
    told = examined(changed(folder, finished=False, basis="raced", command=("rm", "-rf", "/")), folder)
    assert told.command == line
    assert any(
        "do not quote these numbers" in str(it.said)
        for it in notes(
            told.model_copy(update={"decision": "undecided", "why_undecided": "budget"}), folder, names_of(told)
        )
    )


def test_another_program_is_told_of_without_breaking_the_certificate(folder: Path) -> None:
    amend(folder, ("vllm",))
    advice = read_advice(folder)
    assert advice.programs == ("vllm",)
    assert examined(advice, folder) == advice
    issued, _ = certificate_in(folder)
    assert issued is not None
    assert [it.by for it in issued.issues] == ["run", "run"]
    changed(folder, seconds=1.0)
    amend(folder, ("sglang",))
    assert read_advice(folder).programs == ("vllm",)  # it was edited, and stays so


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="there is no ssh-keygen here")
def test_a_signature_of_an_advice(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    key = folder.parent / "anna"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True, timeout=60)
    assert invoke(["check", str(folder), "--sign", str(key)]) == 0
    assert invoke(["check", str(folder), "--signer", f"{key}.pub"]) == 0
    assert "signed by ED25519 key SHA256:" in capsys.readouterr().out
    changed(folder, made_at=1.0)
    assert invoke(["check", str(folder), "--signer", f"{key}.pub"]) == 1
    certify_advice(read_advice(folder), folder)
    assert invoke(["check", str(folder), "--signer", f"{key}.pub"]) == 1
    assert "not signed by any of these signers" in capsys.readouterr().out


def test_a_speedup_that_was_changed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    speedup = read_advice(folder).speedup
    assert speedup is not None
    advice = changed(folder, speedup=speedup.model_copy(update={"point": 9.9, "low": 9.8, "high": 10.0}))
    told = examined(advice, folder)
    assert (told.decision, told.verdict, told.why_undecided) == ("undecided", "invalid", "changed")
    assert invoke(["show", str(folder)]) == 1
    assert "changed since it was measured" in capsys.readouterr().out
    with pytest.raises(UsageError, match="not those that its confirmation measured"):
        again(folder, folder.parent / "again", Silent())


@pytest.mark.parametrize("stage", ["confirm", "race"])
def test_times_of_a_stage_that_were_changed(folder: Path, stage: str) -> None:
    with closing(sqlite3.connect(folder / stage / "run.sqlite")) as db, db:
        assert db.execute("UPDATE request SET predicted_ms = predicted_ms / 2 WHERE rowid % 3 = 0").rowcount
    assert f"{stage}: not what was certified" in map(str, differences(read_advice(folder), folder))


def test_a_stage_that_is_gone(folder: Path) -> None:
    shutil.rmtree(folder / "confirm")
    assert examined(read_advice(folder), folder).why_undecided == "changed"


def rule_in_turn(monkeypatch: pytest.MonkeyPatch, *rulings: Ruling) -> None:
    """What each confirmation shows; the last one repeats."""
    left = list(rulings)
    monkeypatch.setattr(confirmation, "ruled", lambda *_, **__: left.pop(0) if len(left) > 1 else left[0])


@pytest.mark.parametrize(
    ("second", "decision", "why"),
    [("gains", "speculate", ""), ("none", "off", ""), ("open", "undecided", "not-confirmed")],
)
def test_what_a_confirmation_leaves_open_is_measured_once_more(
    second: Ruling, decision: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule_in_turn(monkeypatch, "open", second)
    folder = tmp_path / "a"
    advice = advise(ASKED, grid_of(gamma=(4,)), folder, Silent())
    assert [it.folder for it in advice.stages] == ["screen", "race", "confirm", "confirm-longer"]
    assert (advice.decision, advice.why_undecided, advice.confirmation) == (decision, why, "confirm-longer")
    assert advice.speedup is not None
    blocks = {it.folder: it.blocks for it in advice.stages}
    assert blocks["confirm-longer"] > blocks["confirm"]
    assert advise(ASKED, grid_of(gamma=(4,)), folder, Silent()) == advice


def test_the_runner_up_is_confirmed_too_where_it_is_within_reach(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    advice = advise(ASKED, grid_of(gamma=(5, 6, 7), noise=0.1), folder, Silent())
    found = {outcome.arm_id: outcome.confirmed for outcome in advice.outcomes if outcome.confirmed is not None}
    assert len(found) == 2
    assert advice.arm is not None
    assert advice.speedup is not None
    assert advice.speedup == found[advice.arm.id]
    assert "together with 3 more" in advice.speedup.method  # two looks at two arms
    assert advice.rival in found
    assert advice.rival != advice.arm.id
    assert examined(advice, folder) == advice


def arm(name: str, ruling: Ruling = "gains") -> Confirmed:
    return Confirmed(name, None, None, None, "valid", ruling, "confirm")


@pytest.mark.parametrize(
    ("rulings", "ratio", "chosen"),
    [
        (("gains", "gains"), (1.03, 0.95, 1.12), "a"),
        (("gains", "gains"), (0.97, 0.90, 1.05), "b"),
        (("gains", "open"), (0.90, 0.85, 0.95), "a"),
        (("open", "here"), (1.10, 0.85, 1.95), "b"),
        (("open", "open"), (1.10, 0.85, 1.95), "a"),
        (("gains", "gains"), None, "a"),
    ],
)
def test_of_two_the_better_one_on_all_prompts_is_advised(
    rulings: tuple[Ruling, Ruling], ratio: tuple[float, float, float] | None, chosen: str
) -> None:
    one, other = map(arm, "ab", rulings)
    assert preferred(one, other, None if ratio is None else speedup(*ratio)).arm_id == chosen


@pytest.mark.parametrize(
    ("over_blocks", "over_prompts", "ruling"),
    [
        ((1.08, 1.02, 1.15), (1.09, 1.01, 1.18), "gains"),
        ((1.08, 1.02, 1.15), (1.09, 0.81, 1.48), "here"),
        ((1.08, 1.02, 1.15), None, "here"),
        ((1.00, 0.99, 1.01), (1.00, 0.985, 1.015), "same"),
        ((1.01, 1.005, 1.015), (1.01, 0.99, 1.019), "same"),
        ((1.00, 0.99, 1.01), (1.00, 0.90, 1.10), "none"),
        ((0.95, 0.90, 1.01), (0.95, 0.80, 1.10), "none"),
        ((1.00, 0.95, 1.05), (1.00, 0.99, 1.01), "open"),
    ],
)
def test_a_gain_is_spoken_of_where_prompts_show_it_and_no_difference_where_it_is_within_the_margin(
    over_blocks: tuple[float, float, float], over_prompts: tuple[float, float, float] | None, ruling: Ruling
) -> None:
    over = None if over_prompts is None else speedup(*over_prompts)
    assert ruled(speedup(*over_blocks), over, "valid", loaded=False) == ruling
    assert ruled(speedup(*over_blocks), over, "invalid", loaded=False) == "invalid"
    if ruling in ("gains", "here") and over is None:
        assert ruled(speedup(*over_blocks), None, "valid", loaded=True) == "gains"  # prompts share the machine


def speedup(point: float, low: float, high: float) -> Estimate:
    return Estimate(point=point, low=low, high=high, n=3, unit="x", method="of a test")


@pytest.mark.parametrize(
    ("ruling", "found", "off_raced", "shown", "decision"),
    [
        ("gains", (1.30, 1.20, 1.40), False, "raced", "speculate"),
        ("gains", (1.30, 1.20, 1.40), False, "open", "speculate"),
        ("gains", (1.015, 1.001, 1.03), True, "raced", "off"),
        ("gains", (1.03, 1.001, 1.06), True, "raced", "undecided"),
        ("here", (1.08, 1.02, 1.15), False, "raced", "on-these-prompts"),
        ("same", (1.00, 0.99, 1.01), True, "settled", "no-difference"),
        ("same", (1.00, 0.99, 1.01), True, "open", "undecided"),
        ("none", (0.97, 0.94, 1.00), True, "settled", "off"),
        ("none", (0.97, 0.94, 1.00), True, "open", "undecided"),
        ("open", (1.00, 0.97, 1.03), True, "raced", "off"),
        ("open", (1.00, 0.97, 1.03), True, "settled", "undecided"),
        ("open", (1.00, 0.90, 1.10), True, "no-gain", "off"),
        ("open", (1.00, 0.90, 1.10), False, "no-gain", "off"),
        ("open", (1.10, 0.90, 1.40), False, "no-gain", "undecided"),
        ("none", (0.97, 0.94, 1.00), False, "no-gain", "off"),
        ("gains", (1.015, 1.001, 1.03), True, "no-gain", "off"),
        ("gains", (1.30, 1.20, 1.40), False, "no-gain", "speculate"),
        ("open", (1.30, 0.95, 1.78), True, "raced", "undecided"),
        ("open", (1.10, 0.99, 1.22), False, "raced", "undecided"),
        ("invalid", (1.30, 1.20, 1.40), False, "raced", "undecided"),
    ],
)
def test_weaker_evidence_never_makes_a_firmer_answer(
    ruling: Ruling, found: tuple[float, float, float], off_raced: bool, shown: Shown, decision: str
) -> None:
    confirmed = Confirmed("a", speedup(*found), None, None, "valid", ruling, "confirm")
    assert decide(confirmed, off_raced=off_raced, shown=shown)[0] == decision
