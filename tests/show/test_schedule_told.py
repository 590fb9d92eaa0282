"""How a schedule is told: at which loads to speculate, in one line, then load by load, in both languages."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from advices import ALL, HOSTILE, SCHEDULES, at_load, confirmed, drafts, off, paired, schedule, undecided
from said import all_said, check_both_languages, codes, said_of
from specmeter.advise.advice import Advice, write_advice
from specmeter.advise.export_commands import also_for
from specmeter.advise.schedule import Schedule, folder_of, read_schedule, write_schedule
from specmeter.cli import invoke
from specmeter.errors import UsageError
from specmeter.messages import Message, words
from specmeter.record import Load
from specmeter.show import advice_words
from specmeter.show import schedule_report as said
from specmeter.show.notebook import ShownSchedule
from specmeter.show.schedule_report import by_clients
from specmeter.show.terminal import report as terminal
from specmeter.show.terminal.console import Screen

FOLDER = Path("specmeter-runs/schedule-dense")
ENGLISH = words("en")


def headline(found: Schedule) -> str:
    return ENGLISH.render(said.headline(found))


def printed(
    found: Schedule, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int = 120, **how: Any
) -> str:
    monkeypatch.setattr(terminal, "output", lambda *_: Screen(width=width))
    terminal.print_report(said.report(found, FOLDER), **how)
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "clients", "told"),
    [
        ("up-to", 2.9, {"scheduled.up_to", "scheduled.stops"}),
        ("from", 1.3, {"scheduled.from", "scheduled.starts"}),
        ("always", None, {"scheduled.always"}),
        ("never", None, {"scheduled.never"}),
        ("mixed", None, {"scheduled.mixed", "scheduled.undecided"}),
        ("open", None, {"scheduled.open.speculate", "scheduled.undecided"}),
        ("between", 2.8, {"scheduled.up_to", "scheduled.stops", "scheduled.undecided"}),
        ("first", None, {"scheduled.open"}),
        ("not-begun", None, {"scheduled.open"}),
    ],
)
def test_the_answer_is_one_sentence(name: str, clients: float | None, told: set[str]) -> None:
    found = said.headline(SCHEDULES[name])
    begun = set[str]() if name == "not-begun" else {"scheduled.measured"}
    assert {it for it in codes(found) if it.startswith("scheduled.")} == told | begun
    crossings = [it.values["clients"] for it in all_said(found) if it.code in ("scheduled.stops", "scheduled.starts")]
    assert crossings == ([] if clients is None else [pytest.approx(clients, abs=0.05)])


def test_an_end_of_the_crossover_at_the_last_load_is_open() -> None:
    sure, unsure = paired(1.3), paired(0.99, 0.08)
    found = said.headline(schedule(confirmed(speedup=sure), off(speedup=unsure), loads=(1, 2)))
    stops = said_of(found, "scheduled.stops")
    assert stops.values["clients"] == pytest.approx(1.95, abs=0.01)
    assert said_of(stops, "crossover.interval").values["high"] == Message("crossover.or_more", last=2)
    found = said.headline(schedule(off(speedup=unsure), confirmed(speedup=sure), loads=(4, 8)))
    starts = said_of(found, "scheduled.starts")
    assert starts.values["clients"] == pytest.approx(4.1, abs=0.05)
    assert said_of(starts, "crossover.interval").values["low"] == Message("crossover.or_fewer", first=4)


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_schedule_is_told_in_both_languages(name: str) -> None:
    found = SCHEDULES[name]
    phrases = [
        said.headline(found),
        said.again(found),
        said.what_next(found),
        *said.ABOUT_NUMBERS,
        *(note.said for note in said.notes(found, FOLDER)),
        *(load for load, *_ in said.commands(found)),
    ]
    check_both_languages(phrases)
    for other in said.elsewhere(found).values():
        assert all(re.search("[\u4e00-\u9fff]", words("zh").render(note)) for note in other.notes)


def test_the_table_has_a_row_for_each_load() -> None:
    small = "draft model small, 4 draft tokens"
    found = by_clients(SCHEDULES["between"])
    rows = [[ENGLISH.render(cell.text) for cell in row.cells] for row in found.rows]
    assert [column.key for column in found.columns] == [
        *("clients", "use", "drafted_tokens", "expected", "raced", "confirmed", "verdict", "open")
    ]
    assert rows == [
        ["1", small, "4", "1.95", "-", "1.92", "valid", ""],
        [
            "2",
            f"{small} (undecided)",
            "4",
            "1.95",
            "1.03",
            "-",
            "valid",
            "the time budget is used up",
        ],
        ["4", "no speculation", "0", "0.95", "-", "0.80", "valid", ""],
        ["8", "no speculation", "0", "0.95", "-", "0.70", "valid", ""],
    ]
    slower = undecided("too-noisy", basis="confirmed", speedup=paired(0.95, 0.5))
    first, *_ = by_clients(schedule(slower)).rows
    assert [ENGLISH.render(cell.text) for cell in first.cells][1:3] == ["no speculation (undecided)", "0"]
    assert ENGLISH.render(by_clients(SCHEDULES["not-begun"]).rows[0].cells[-1].text) == "not started"
    false = by_clients(SCHEDULES["invalid"]).rows[1]
    assert false.verdict == "invalid"
    assert any(cell.struck for cell in false.cells)


def test_other_programs_are_told_the_table_or_a_line_for_each_load(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = printed(also_for(SCHEDULES["up-to"], "vllm"), capsys, monkeypatch)
    assert '"num_speculative_tokens_per_batch_size": [[1, 1, 4], [2, 2, 2], [3, 8, 0]]' in text
    assert text.count("  vllm serve") == 1
    assert text == printed(also_for(SCHEDULES["up-to"], "vllm"), capsys, monkeypatch)
    assert "vllm" not in printed(SCHEDULES["up-to"], capsys, monkeypatch)
    for name, program in (("up-to", "llama-cli"), ("per-load", "llama-server")):
        text = printed(also_for(SCHEDULES[name], program), capsys, monkeypatch)
        assert text.count("for llama-cli (not measured there):\n  llama-cli ") == 4


def test_an_advice_of_a_schedule_says_its_load_once() -> None:
    arm = drafts(4).model_copy(update={"load": Load(clients=4, requests=8)})
    advice = at_load(confirmed(arm=arm, arms=(arm,)), 4)
    told = advice_words.headline(advice, advice_words.names_of(advice))
    assert [it.values["count"] for it in all_said(told) if it.code == "arm.clients"] == [4]


@pytest.mark.parametrize("name", SCHEDULES)
def test_the_json_is_the_record_and_the_answers(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = SCHEDULES[name]
    found = json.loads(printed(whole, capsys, monkeypatch, as_json=True))
    assert found.pop("headline") == headline(whole)
    assert found.pop("folder") == str(FOLDER)
    assert found.pop("pattern") == whole.pattern
    assert (found.pop("crossover") is None) == (whole.crossover is None)
    assert all(advice.pop("headline") for advice in found["advices"])
    lines = [advice_words.commands(advice) for advice in whole.advices]
    assert [{name: tuple(line) for name, line in it.pop("commands").items()} for it in found["advices"]] == lines
    assert Schedule.model_validate(found) == whole


def test_it_shows_itself_in_a_notebook() -> None:
    shown = ShownSchedule(**vars(SCHEDULES["up-to"]))
    assert str(shown) == headline(SCHEDULES["up-to"])
    assert str(shown) in shown._repr_html_()


# --- a stranger's folder ---------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A schedule among the runs; nothing is in it that was measured."""
    monkeypatch.chdir(tmp_path)
    place = Path("specmeter-runs/schedule-dense")
    write_schedule(SCHEDULES["between"], place)
    for advice in SCHEDULES["between"].advices:
        write_advice(advice, place / folder_of(advice.asked.load or 1))
    return place


def refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """What every command says of it: the same clear error."""
    errors: set[str] = set()
    for command in ("show", "report"):
        assert invoke([command, str(folder)]) == 2
        errors.add(capsys.readouterr().err)
    assert invoke(["list"]) == 0
    assert "unreadable" in capsys.readouterr().out
    (error,) = errors
    assert "Traceback" not in error
    assert "\x1b" not in error
    return error


def test_it_is_read_as_it_was_written(folder: Path) -> None:
    assert read_schedule(folder, examine=False) == SCHEDULES["between"]
    assert [it.why_undecided for it in read_schedule(folder).advices] == ["changed"] * 4  # no runs stand behind them


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"version": 1', '"version": "../../x"'),
        ('"target": "/models/dense.gguf"', '"target": ["\\u001b[2J"]'),
        ('"target": "/models/dense.gguf"', '"target": "x", "../escape\\u001b[2J": 1'),
        ("   1,\n   2,", "   2,\n   1,"),
        ("   1,\n   2,", "   0,\n   2,"),
        ("   1,\n   2,", '   "../..",\n   2,'),
        ('"version": 1', f'"version": 1, "x": "{"y" * 10_000_000}"'),
    ],
    ids=["version", "type", "key", "order", "zero", "path", "10 MB"],
)
def test_a_doctored_record_is_refused(folder: Path, capsys: pytest.CaptureFixture[str], old: str, new: str) -> None:
    path = folder / "schedule.json"
    whole = path.read_text(encoding="utf-8")
    assert old in whole
    path.write_text(whole.replace(old, new), encoding="utf-8")
    error = refused(folder, capsys)
    assert "specmeter advise --clients" in error


@pytest.mark.parametrize("foreign", [at_load(confirmed(), 4), confirmed()], ids=["other load", "no load"])
def test_an_advice_on_another_question_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], foreign: Advice
) -> None:
    write_advice(foreign, folder / "c2")
    assert "c2: contains the advice for another question than its schedule" in refused(folder, capsys)


def test_a_missing_advice_is_not_begun_and_a_broken_one_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "c2" / "advice.json").unlink()
    assert invoke(["show", str(folder)]) == 1  # nothing that was measured stands behind the others
    assert "- not started: 2 clients" in capsys.readouterr().out
    (folder / "c4" / "advice.json").write_text("{", encoding="utf-8")
    assert "c4/advice.json: is not a record of an advice" in refused(folder, capsys).replace("\\", "/")


def test_numbers_that_no_run_gave_make_no_crossover() -> None:
    for broken in (paired(1.0).model_copy(update={"point": -1.0}), paired(1.0).model_copy(update={"n": 1}), None):
        found = schedule(confirmed(speedup=broken), off(speedup=paired(0.8)), loads=(1, 2))
        assert found.crossover is None
        assert headline(found)


def test_names_of_strangers_are_text(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    text = printed(SCHEDULES["hostile"], capsys, monkeypatch, details=True)
    assert HOSTILE not in text
    assert set(ALL["hostile"].command).isdisjoint(text.split())
    with pytest.raises(UsageError, match="no such program"):
        also_for(schedule(undecided("budget"), confirmed(arm=drafts(2))), HOSTILE)
