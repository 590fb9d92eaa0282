"""How a schedule is told: at which loads to speculate, in one line, then load by load, in both languages."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from advices import ALL, HOSTILE, LOADS, SCHEDULES, at_load, confirmed, drafts, off, paired, schedule, undecided
from specmeter.advise.advice import Advice, write_advice
from specmeter.advise.export_commands import also_for
from specmeter.advise.schedule import Schedule, folder_of, read_schedule, write_schedule
from specmeter.cli import invoke
from specmeter.errors import UsageError
from specmeter.messages import LANGUAGES, words
from specmeter.record import Load
from specmeter.show import advice_report
from specmeter.show import schedule_report as said
from specmeter.show.notebook import ShownSchedule
from specmeter.show.schedule_report import by_clients
from specmeter.show.terminal import advice as terminal
from specmeter.show.terminal.console import Screen

FOLDER = Path("specmeter-runs/schedule-dense")
ENGLISH = words("en")


def headline(found: Schedule) -> str:
    return said.headline(found).render(ENGLISH)


def printed(
    found: Schedule, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int = 120, **how: Any
) -> str:
    monkeypatch.setattr(terminal, "output", lambda *_: Screen(width=width))
    terminal.print_schedule(found, FOLDER, as_json=how.pop("as_json", False), **how)
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "line"),
    [
        (
            "up-to",
            "dense: speculate with 1, 2 clients, not with 4, 8 clients; speculation stops paying at 2.9 clients "
            "[2.6, 3.2]; measured with 1, 2, 4, 8 clients",
        ),
        (
            "from",
            "dense: do not speculate with 1 client; speculate with 2, 4, 8 clients; speculation starts to pay at 1.3 "
            "clients [1.1, 1.5]; measured with 1, 2, 4, 8 clients",
        ),
        ("always", "dense: speculate at every load; measured with 1, 2, 4, 8 clients"),
        ("never", "dense: do not speculate at any load; measured with 1, 2, 4, 8 clients"),
        (
            "mixed",
            "dense: mixed: speculate with 1, 4 clients, not with 2 clients: see the table; not decided: 8 clients; "
            "measured with 1, 2, 4, 8 clients",
        ),
        (
            "open",
            "dense: open: speculate with 1 client; not decided: 2, 4, 8 clients; measured with 1, 2, 4 clients",
        ),
        (
            "between",
            "dense: speculate with 1 client, not with 4, 8 clients; not decided: 2 clients; speculation stops paying "
            "at 2.8 clients [2.5, 3.1]; measured with 1, 2, 4, 8 clients",
        ),
        ("first", "dense: open: no load is decided; measured with 1 client"),
        ("not-begun", "/models/dense.gguf: open: no load is decided"),
    ],
)
def test_the_answer_is_one_sentence(name: str, line: str) -> None:
    assert headline(SCHEDULES[name]) == line


def test_an_end_of_the_crossover_at_the_last_load_is_open() -> None:
    sure, unsure = paired(1.3), paired(0.99, 0.08)
    found = schedule(confirmed(speedup=sure), off(speedup=unsure), loads=(1, 2))
    assert re.search(r"stops paying at 1\.9 clients \[1\.\d, 2 or more\]", headline(found))
    found = schedule(off(speedup=unsure), confirmed(speedup=sure), loads=(4, 8))
    assert re.search(r"starts to pay at 4\.1 clients \[4 or fewer, \d\.\d\]", headline(found))


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_schedule_is_told_in_both_languages(name: str) -> None:
    found = SCHEDULES[name]
    phrases = [
        said.headline(found),
        said.again(found),
        said.what_next(found),
        *said.ABOUT_NUMBERS,
        *(note.text for note in said.notes(found, FOLDER)),
        *(load for load, *_ in said.commands(found)),
    ]
    for phrase in filter(None, phrases):
        english, chinese = (phrase.render(words(language)) for language in LANGUAGES)
        assert english != chinese
        assert re.search("[\u4e00-\u9fff]", chinese)
        assert not re.search(r"\{\w+\}", english + chinese)
    for other in said.elsewhere(found).values():
        assert all(re.search("[\u4e00-\u9fff]", words("zh").render(note)) for note in other.notes)


def test_the_table_has_a_row_for_each_load() -> None:
    found = by_clients(SCHEDULES["between"])
    rows = [[ENGLISH.render(cell.text) for cell in row.cells] for row in found.rows]
    assert [column.key for column in found.columns] == [
        *("clients", "use", "drafted_tokens", "expected", "raced", "confirmed", "verdict", "open")
    ]
    assert rows == [
        ["1", "small draft, 4 tokens", "4", "1.95", "-", "1.92", "valid", ""],
        ["2", "small draft, 4 tokens (undecided)", "4", "1.95", "1.03", "-", "valid", "the budget is spent"],
        ["4", "no speculation", "0", "0.95", "-", "0.80", "valid", ""],
        ["8", "no speculation", "0", "0.95", "-", "0.70", "valid", ""],
    ]
    slower = undecided("too-noisy", basis="confirmed", speedup=paired(0.95, 0.5))
    first, *_ = by_clients(schedule(slower)).rows
    assert [ENGLISH.render(cell.text) for cell in first.cells][1:3] == ["no speculation (undecided)", "0"]
    assert ENGLISH.render(by_clients(SCHEDULES["not-begun"]).rows[0].cells[-1].text) == "not begun"
    false = by_clients(SCHEDULES["invalid"]).rows[1]
    assert false.verdict == "invalid"
    assert any(cell.struck for cell in false.cells)


def test_each_load_has_its_line_and_an_open_one_says_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = printed(SCHEDULES["between"], capsys, monkeypatch)
    assert "With 1 client:\n  llama-server -m " in text
    assert "With 2 clients (undecided):\n  llama-server -m " in text
    assert "- 2 clients: To decide it: allow more time than 40 min (`--budget`)." in text
    assert "Measure again" not in text
    assert "Measure again" in printed(SCHEDULES["up-to"], capsys, monkeypatch)
    text = printed(SCHEDULES["invalid"], capsys, monkeypatch)
    assert "With 2 clients" not in text
    assert f"- 2 clients: invalid: `specmeter check {FOLDER}/c2/confirm` says why" in text


def test_other_programs_are_told_the_table_or_a_line_for_each_load(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = printed(also_for(SCHEDULES["up-to"], "vllm"), capsys, monkeypatch)
    assert "for vllm (not measured there):\nbatch size  tokens drafted" in text
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
    told = advice_report.headline(advice, advice_report.names_of(advice)).render(ENGLISH)
    assert told.startswith("dense, 4 clients: speculate with small draft, 4 tokens: 1.92x")


def test_what_came_of_asking_again_is_told_by_load() -> None:
    found = said.again(SCHEDULES["again"])
    assert found is not None
    assert found.render(ENGLISH) == "The schedule of 2026-05-28: holds with 1, 2 clients; does not hold with 4 clients"


def test_details_have_the_grid_of_each_load(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = printed(SCHEDULES["up-to"], capsys, monkeypatch, 160, everything=True)
    assert len(re.findall(r"^ *(?:\d clients|1 client) *$", text, re.MULTILINE)) == len(LOADS)
    assert text.count("cannot be faster than plain decoding") == len(LOADS)


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("name", SCHEDULES)
def test_it_is_legible_on_any_screen(
    name: str, width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = printed(SCHEDULES[name], capsys, monkeypatch, width, everything=True)
    pasted = ("  ", "schedule folder:")
    lines = [line.rstrip() for line in text.splitlines() if not line.startswith(pasted)]
    assert [line for line in lines if len(line) > width] == []
    assert "\x1b" not in text
    assert "\u202e" not in text


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
    lines = [advice_report.commands(advice) for advice in whole.advices]
    assert [{name: tuple(line) for name, line in it.pop("commands").items()} for it in found["advices"]] == lines
    assert Schedule.model_validate(found) == whole


@pytest.mark.parametrize("name", SCHEDULES)
def test_it_shows_itself_in_a_notebook(name: str) -> None:
    shown = ShownSchedule(**vars(SCHEDULES[name]))
    page = shown._repr_html_()
    assert str(shown) == headline(SCHEDULES[name])
    assert "<script" not in page
    assert "\x1b" not in page


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
    assert "schedule.json: is not a record of a schedule" in error
    assert "specmeter advise --clients" in error


@pytest.mark.parametrize("foreign", [at_load(confirmed(), 4), confirmed()], ids=["other load", "no load"])
def test_an_advice_on_another_question_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], foreign: Advice
) -> None:
    write_advice(foreign, folder / "c2")
    assert "c2: holds the advice of another question than its schedule" in refused(folder, capsys)


def test_a_missing_advice_is_not_begun_and_a_broken_one_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "c2" / "advice.json").unlink()
    assert invoke(["show", str(folder)]) == 1  # nothing that was measured stands behind the others
    assert "- not begun: 2 clients" in capsys.readouterr().out
    (folder / "c4" / "advice.json").write_text("{", encoding="utf-8")
    assert "c4/advice.json: is not a record of an advice" in refused(folder, capsys).replace("\\", "/")


def test_numbers_that_no_run_gave_make_no_crossover() -> None:
    for broken in (paired(1.0).model_copy(update={"point": -1.0}), paired(1.0).model_copy(update={"n": 1}), None):
        found = schedule(confirmed(speedup=broken), off(speedup=paired(0.8)), loads=(1, 2))
        assert found.crossover is None
        assert headline(found)


def test_names_of_strangers_are_text(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    text = printed(SCHEDULES["hostile"], capsys, monkeypatch, everything=True)
    assert HOSTILE not in text
    assert set(ALL["hostile"].command).isdisjoint(text.split())
    with pytest.raises(UsageError, match="unknown"):
        also_for(schedule(undecided("budget"), confirmed(arm=drafts(2))), HOSTILE)
