"""What a screen makes of a table: as wide as it is, with its marks explained, and nothing read as markup."""

from __future__ import annotations

import io

import pytest

from specmeter.record import Estimate
from specmeter.show.table import Cell, Column, Table, estimate_cell, numbers, row, text
from specmeter.show.terminal.console import Screen, output

RATE = Estimate(point=58.4, low=56.1, high=60.7, n=3, unit="tok/s", method="m")
SPEEDUP = Estimate(point=2.157, low=2.08, high=2.24, n=3, unit="1", method="m")
COLUMNS = (
    *text("arm"),
    Column("reference", "number", "reference", narrow="drop"),
    Column("tok/s", "number", "tok/s", narrow="point"),
    *numbers("speedup"),
)


def shown(table: Table, width: int, *, caption: bool = False) -> list[str]:
    screen = Screen(width=width, file=io.StringIO())
    screen.table(table, caption=caption)
    assert isinstance(screen.file, io.StringIO)
    return [line.rstrip() for line in screen.file.getvalue().splitlines()]


def results(*, suspect: bool = False, struck: bool = False) -> Table:
    speedup = estimate_cell(SPEEDUP, 2, mark="suspect" if suspect else None, struck=struck)
    return Table("results", COLUMNS, [row("draft/g4", "27.1", estimate_cell(RATE, 1), speedup)], "results")


def test_a_table_that_fits_is_whole() -> None:
    assert shown(results(), 80) == [
        "arm       reference              tok/s            speedup",
        "draft/g4       27.1  58.4 [56.1, 60.7]  2.16 [2.08, 2.24]",
    ]


def test_a_narrow_screen_leaves_out_what_matters_least_and_says_so() -> None:
    assert shown(results(), 50)[1] == "draft/g4       27.1   58.4  2.16 [2.08, 2.24]"
    assert shown(results(), 40) == [
        "arm       tok/s            speedup",
        "draft/g4   58.4  2.16 [2.08, 2.24]",
        "hidden columns: widen the terminal",
    ]


@pytest.mark.parametrize(("columns", "width"), [("", 120), ("200", 200), ("5", 120), ("wide", 120), ("12", 40)])
def test_off_a_terminal_a_screen_is_as_wide_as_it_is_asked_to_be(
    columns: str, width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    output().say("a " * 200)
    assert max(map(len, capsys.readouterr().out.splitlines())) in (width, width - 1)


def test_text_is_not_markup_and_a_cell_has_its_further_lines() -> None:
    table = Table(
        "t", text("[bold]arm[/bold]"), [row(Cell("[red]a[/red]", below=(("b", "faint"),)))], "[i]t[/i]", "about"
    )
    assert shown(table, 80, caption=True) == ["[i]t[/i]", "[bold]arm[/bold]", "[red]a[/red]", "b", "about"]
