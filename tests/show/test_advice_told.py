"""How an advice is told: in one line first, with its proof, in both languages, on any screen, whatever is in it."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any, get_args

import pytest

from advices import ALL, BEST, GRID, HOSTILE, OUTCOMES, confirmed, off, per_kind, repeated, undecided
from said import all_said, check_both_languages, codes, said_of
from specmeter.advise.advice import Advice, ArmOutcome, StageRun, read_advice, write_advice
from specmeter.errors import UsageError
from specmeter.messages import words
from specmeter.record import EngineIdentity
from specmeter.show import advice_report
from specmeter.show import advice_words as said
from specmeter.show.notebook import ShownAdvice
from specmeter.show.terminal import report as terminal
from specmeter.show.terminal.console import Screen

FOLDER = Path("specmeter-runs/advise-dense")
ENGLISH = words("en")
CODES = get_args(ArmOutcome.model_fields["code"].annotation)


def headline(advice: Advice) -> str:
    return ENGLISH.render(said.headline(advice, said.names_of(advice)))


def printed(
    advice: Advice, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int = 120, **how: Any
) -> str:
    monkeypatch.setattr(terminal, "output", lambda *_: Screen(width=width))
    terminal.print_report(advice_report.report(advice, FOLDER), **how)
    return capsys.readouterr().out


TRIED = {"advised.ratio", "arm.draft", "arm.parts", "arm.tokens"}
PROVED = TRIED | {"advised.blocks", "advised.prompts.other"}
OPEN = {"advised.undecided", "advised.best_so_far"}


@pytest.mark.parametrize(
    ("name", "points", "told"),
    [
        ("confirmed", [1.92], PROVED | {"advised.speculate", "advised.rests.confirmed"}),
        ("off", [0.93], PROVED | {"advised.off", "advised.rests.confirmed"}),
        ("over-prompts", [1.92], PROVED | {"advised.speculate", "advised.either", "advised.rests.over_prompts"}),
        ("here", [1.92], PROVED | {"advised.on-these-prompts", "advised.rests.over_prompts"}),
        ("here-few", [1.92], PROVED | {"advised.on-these-prompts", "advised.rests.few"}),
        ("no-difference", [1.0], PROVED | {"advised.no-difference", "advised.rests.confirmed"}),
        ("nothing", [], {"advised.off_none"}),
        ("budget", [1.03], PROVED | OPEN | {"advised.rests.raced", "advised.why.budget"}),
        ("stopped", [1.95], TRIED | OPEN | {"advised.rests.predicted", "advised.why.interrupted"}),
        ("predicted-open", [1.02], TRIED | {"advised.predicted.undecided"}),
        (
            "not-confirmed",
            [1.03],
            PROVED | OPEN | {"advised.rests.measured", "advised.why.not-confirmed"},
        ),
        ("at-once", [], {"advised.undecided", "advised.nothing_yet", "advised.why.interrupted"}),
        ("predicted", [1.95], TRIED | {"advised.predicted.speculate"}),
        (
            "again-off",
            [0.93, 1.90],
            PROVED | {"advised.again.holds", "advised.again.off", "advised.again.rests", "advised.rests.confirmed"},
        ),
    ],
)
def test_the_answer_is_one_sentence_and_what_it_rests_on_another(
    name: str, points: list[float], told: set[str]
) -> None:
    found = [make(ALL[name], said.names_of(ALL[name])) for make in (said.headline, said.rests)]
    assert codes(found) == told
    assert [it.values["point"] for it in all_said(found) if it.code == "advised.ratio"] == points


@pytest.mark.parametrize("name", ALL)
def test_every_advice_is_told_in_both_languages(name: str) -> None:
    advice, names = ALL[name], said.names_of(ALL[name])
    phrases = [
        said.headline(advice, names),
        said.rests(advice, names),
        *(it for it, _ in said.by_kind(advice, names)),
        said.reason(advice),
        said.counts(advice),
        said.would_decide(advice, FOLDER),
        said.what_next(advice),
        *said.about_numbers(advice),
        *(note.said for note in said.notes(advice, FOLDER, names)),
        *(said.outcome_told(outcome, advice, names) for outcome in advice.outcomes),
        *(said.outcome_in_short(outcome, advice) for outcome in advice.outcomes),
    ]
    check_both_languages(phrases)


@pytest.mark.parametrize("code", CODES)
def test_every_outcome_is_told_with_its_numbers_and_without(code: Any) -> None:
    whole = OUTCOMES[1].model_copy(update={"code": code, "why": "a reason"})
    bare = ArmOutcome(arm_id=BEST.id, code=code, stage="screen")
    advice, names = confirmed(), said.names_of(confirmed())
    told = {ENGLISH.render(said.outcome_told(outcome, advice, names)) for outcome in (whole, bare)}
    assert len(told) == (1 if code == "winner" else 2)


def test_a_reason_of_a_later_version_is_told_as_it_is() -> None:
    advice = undecided("out-of-patience")
    assert said_of(said.headline(advice, said.names_of(advice)), "advised.undecided").values["why"] == "out-of-patience"


def test_kinds_that_differ_have_an_answer_each() -> None:
    advice = ALL["by-kind"]
    told = [it for it, _ in said.by_kind(advice, said.names_of(advice))]
    head = said_of(said.headline(advice, said.names_of(advice)), "advised.depends")
    assert "depends on the prompt type: code 1.90x, chat no speculation, zh undecided" in str(head)
    kinds = ("advised.of_kind.speculate", "advised.of_kind.off", "advised.of_kind.undecided_at")
    assert [said_of(told, code).values["kind"] for code in kinds] == ["code", "chat", "zh"]
    assert [it.values["point"] for it in all_said(told) if it.code == "advised.ratio"] == [1.90, 1.01]
    assert [it.values["count"] for it in all_said(told) if it.code == "arm.tokens"] == [8, 2]


def test_all_of_the_grid_is_accounted_for(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    counts = said.counts(confirmed())
    assert counts is not None
    found = [int(number) for number in re.findall(r"\d+", ENGLISH.render(counts))]
    assert found[0] == len(OUTCOMES) == sum(found[1:])
    text = printed(confirmed(), capsys, monkeypatch, details=True)
    table = text[text.index("All configurations") :]
    assert all(said.names_of(confirmed()).render(arm.id, ENGLISH) in table for arm in GRID)


def test_what_other_programs_are_given_was_not_measured(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = printed(ALL["elsewhere"], capsys, monkeypatch)
    assert "  llama-server\nfor vllm (not measured there):\n  vllm serve TARGET --speculative-config " in text


@pytest.mark.parametrize(
    "command", [(HOSTILE,), ("rm", "-r", "/"), ("sh", "-c", "llama-server"), ("vllm", "serve", "x"), ("x",)]
)
def test_a_strangers_commands_are_not_shown(command: tuple[str, ...]) -> None:
    assert said.commands(confirmed(command=command, programs=("vllm",))) == {}


def test_the_json_is_the_record_and_the_answer(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for advice in (off(), ALL["hostile"]):
        text = printed(advice, capsys, monkeypatch, as_json=True)
        found = json.loads(text)
        assert found.pop("headline") == headline(advice)
        assert found.pop("folder") == str(FOLDER)
        assert {name: tuple(it) for name, it in found.pop("commands").items()} == said.commands(advice)
        assert set(found.pop("names")) == {outcome.arm_id for outcome in advice.outcomes}
        assert Advice.model_validate(found) == advice
        assert "\x1b" not in text


def test_an_advice_is_read_with_distrust(tmp_path: Path) -> None:
    advice = repeated("holds")
    write_advice(advice, tmp_path)
    assert read_advice(tmp_path) == advice
    path = tmp_path / "advice.json"
    whole = path.read_text(encoding="utf-8")
    for broken in ("", "[]", whole.replace('"screen"', '"../../elsewhere"'), whole.replace("200.0", "1e300")):
        path.write_text(broken, encoding="utf-8")
        with pytest.raises(UsageError, match="is not a record of an advice"):
            read_advice(tmp_path)
    if hasattr(os, "symlink"):
        path.unlink()
        (tmp_path / "other.json").write_text(whole, encoding="utf-8")
        path.symlink_to(tmp_path / "other.json")
        with pytest.raises(UsageError, match="link"):
            read_advice(tmp_path)


@pytest.mark.parametrize("name", ["..", "a/b", "", "/etc", "a\x1b"])
def test_a_stage_is_a_folder_of_the_advice(name: str) -> None:
    with pytest.raises(ValueError, match="folder"):
        StageRun(stage="race", folder=name, verdict=None, certificate_sha256=None, seconds=1.0)


@pytest.mark.parametrize("name", ALL)
def test_it_shows_itself_in_a_notebook(name: str) -> None:
    shown = ShownAdvice(**vars(ALL[name]))
    assert repr(shown) == str(shown)
    page = shown._repr_html_()
    assert str(shown) == headline(ALL[name])
    assert "<script" not in page
    assert "\x1b" not in page
    guess = ALL[name].basis == "predicted" and not ALL[name].finished
    assert ("llama-server" in page) == (name not in ("invalid", "hostile") and not guess)


def test_each_kind_has_its_own_line_where_kinds_disagree() -> None:
    engine = EngineIdentity(kind="embedded", version="1", build="", binary="", binary_sha256="")
    advice = per_kind(engine=engine)
    lines = {str(told).partition(":")[0]: line for told, line in said.by_kind(advice, said.names_of(advice))}
    assert lines["code"][0] == "llama-server"
    assert lines["code"][lines["code"].index("--spec-draft-n-max") + 1] == "8"
    assert lines["chat"] == lines["zh"] == ()
    alike = confirmed()
    assert said.headline(alike, said.names_of(alike)).code == "advised.speculate"
