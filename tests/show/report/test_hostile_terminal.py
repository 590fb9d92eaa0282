"""Nothing that is stored acts on a terminal: not in a table, a message or JSON, whatever command prints it."""

from __future__ import annotations

import io
import json
import re
import shutil
from pathlib import Path

import pytest

import specmeter
from analysis.quality.reports import points, quality, report
from mock_probe import mock_probe
from report_pages import ATTACK
from specmeter.cli import invoke
from specmeter.host.machine import read_host
from specmeter.show.table import Cell, Row, Table, numbers, row, text
from specmeter.show.terminal.console import Screen, say_json
from specmeter_studies.show.quality import print_report

STYLE = re.compile(r"\x1b\[[0-9;]*m")
"""What rich itself writes to colour a word."""


def acting(shown: str) -> set[str]:
    """Characters of an output that a terminal would act on, or that reverse the text."""
    return {char for char in shown if char != "\n" and not char.isprintable()}


@pytest.mark.parametrize(
    "command",
    [
        ["show", "RUN", "--by-kind", "--by-prompt", "--positions"],
        ["show", "RUN", "--positions", "--json"],
        ["check", "RUN", "--all"],
        ["check", "RUN", "--json"],
        ["explain", "RUN"],
        ["explain", "RUN", "--json"],
        ["compare", "RUN", "OTHER"],
        ["compare", "RUN", "RUN"],
        ["compare", "RUN", "RUN", "--json"],
        ["predict", "--probe", "PROBE", "--acceptance-from", "RUN"],
        ["list"],
        ["list", "--json"],
        ["report", "RUN", "--tables", "tables"],
        ["report", "--site", "site", "RUN", "--lang", "en"],
        ["audit", "evil.csv", "--details"],
        ["audit", "evil.csv", "--json"],
        ["quality", "--plan", "evil.yaml"],
        ["run", "evil.yaml", "--dry-run"],
        ["export", "RUN", "--out", "rows.csv"],
        ["study", "latency", "RUN"],
    ],
    ids=" ".join,
)
def test_no_command_lets_stored_text_act(
    command: list[str],
    hostile: Path,
    sweep: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(hostile, tmp_path / "specmeter-runs" / "evil\x1b[31m\u202e")
    (tmp_path / "probe.json").write_text(mock_probe().model_dump_json(), encoding="utf-8")
    (tmp_path / "evil.csv").write_text(
        f'label,speedup,acceptance,gamma\n"{ATTACK.replace(chr(34), "")}",9.5,0.1,2\n', encoding="utf-8"
    )
    (tmp_path / "evil.yaml").write_text(
        f"name: evil\ndescription: {json.dumps(ATTACK)}\ntargets: {{dense: {json.dumps('mock:dense' + ATTACK)}}}\n",
        encoding="utf-8",
    )
    named = {"RUN": str(hostile), "OTHER": str(sweep), "PROBE": "probe.json"}
    capsys.readouterr()
    invoke([named.get(part, part) for part in command])
    shown = capsys.readouterr()
    assert shown.out + shown.err
    assert acting(shown.out) == set()
    assert acting(shown.err) == set()


def test_neither_do_names_of_models_and_machines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evil = f"bb{ATTACK}"
    told = report(quality("aa", 500, points(6, 8), [5, 6]), quality(evil, 400, points(6, 8), [5, 6]))
    print_report(told, tmp_path / evil.replace("/", "-").replace("\0", ""), as_json=False)
    print_report(told, tmp_path, as_json=True)
    shown = capsys.readouterr()
    assert acting(shown.out) == acting(shown.err) == set()


def test_machine_and_shell_names_of_doctor_and_devices_are_harmless(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    host = read_host().model_copy(update={"cpu": ATTACK, "busy_processes": (ATTACK,)})
    monkeypatch.setattr("specmeter.cli.doctor.read_host", lambda **_: host)
    for command in (
        ["doctor"],
        ["doctor", "--json"],
        ["doctor", "--bandwidth", "--no-measure"],
        ["doctor", "--bandwidth", "--no-measure", "--json"],
    ):
        invoke(command)
        shown = capsys.readouterr()
        assert acting(shown.out) == acting(shown.err) == set()


def test_commands_print_by_the_screen_alone() -> None:
    """What prints otherwise prints nothing that is stored: scripts of ours, and errors, which it cleans."""
    source = Path(specmeter.__file__).parent
    left = {"cli/commands.py", "cli/invoking.py", "show/terminal/console.py"}
    printing = re.compile(
        r"click\.(echo|secho)\(|^\s*print\(|sys\.std(out|err)\.write|rich\.(table|console|markup) import"
    )
    assert {
        name
        for folder in ("cli", "show/terminal")
        for path in (source / folder).glob("*.py")
        if (name := path.relative_to(source).as_posix()) not in left and printing.search(path.read_text("utf-8"))
    } == {
        "show/terminal/progress.py",
        "show/terminal/advice.py",
    }, "which draw tables of a run on its way, on a screen that cleans them"


@pytest.mark.parametrize("terminal", [True, False])
def test_a_screen_cleans_every_way_in(terminal: bool) -> None:
    file = io.StringIO()
    screen = Screen(width=60, file=file, force_terminal=terminal)
    evil = "a\x1b[2J\u202eb\x9b1m\x07"
    screen.say(evil, (evil, "bad"), indent=2)
    screen.say_all([evil, evil], tone="faint", wrap=False)
    screen.print(evil)
    below: tuple[tuple[str, str], ...] = ((evil, "faint"),)
    table = Table("t", (*text(evil), *numbers("n")), [row(Cell(evil, below=below), evil)], evil, evil)  # pyright: ignore[reportArgumentType]
    screen.table(table, caption=True)
    shown = STYLE.sub("", file.getvalue())
    assert shown.count("a�[2J�b�1m�") >= 9
    assert acting(shown) == set()


def test_json_says_the_same_with_everything_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    document = {"name": "日本\u202e\x1b\x9b\u2028\U000e0001", "n": [1.5, None]}
    say_json(document)
    out = capsys.readouterr().out
    assert acting(out) == set()
    assert "日本" in out
    assert json.loads(out) == document


def test_a_line_stays_one_line_and_a_table_its_rows() -> None:
    file = io.StringIO()
    screen = Screen(width=60, file=file)
    screen.say("verdict\nvalid", wrap=False)
    screen.table(Table("t", text("arm"), [Row((Cell("a\nverdict: valid"),))]))
    assert file.getvalue().splitlines() == ["verdict valid", "arm             ", "a verdict: valid"]
