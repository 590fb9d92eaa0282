"""Prints a report: the answer in one line, what to paste, why, tables, notes; with details all of it; or as JSON."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from specmeter.messages import Message
from specmeter.show.report import Command, Facts, Tabled, Text, beside_verdict, verdict_said
from specmeter.show.table import TONES
from specmeter.show.terminal.console import WIDTH, output, say_json
from specmeter.text import pasted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from specmeter.show.report import Block, Report
    from specmeter.show.terminal.console import Screen


_WIDE = 160
"""Of details off a terminal."""


def print_report(report: Report, *, as_json: bool = False, details: bool = False) -> None:
    """Write a report to stdout, for programs or for people."""
    if as_json:
        say_json(report.document())
        return
    print_on(output(_WIDE if details else WIDTH), report, details=details)


def print_reports(reports: Mapping[str, Report], *, as_json: bool = False) -> None:
    """Several, each below its name; one alone as `print_report` does."""
    if len(reports) == 1:
        print_report(*reports.values(), as_json=as_json)
    elif as_json:
        say_json({name: report.document() for name, report in reports.items()})
    else:
        for number, (name, report) in enumerate(reports.items()):
            screen = output(WIDTH)
            if number:
                screen.line()
            screen.say((name, "strong"), wrap=False)
            print_on(screen, report)


def print_on(screen: Screen, report: Report, *, details: bool = False) -> None:
    """The same on any screen."""
    if report.headline is not None:
        _say(screen, Text(report.headline, "strong", verdict=report.verdict, simulated=report.simulated))
    print_blocks(screen, report.answer, details=details)
    for section in report.sections:
        print_blocks(screen, section.blocks, details=details, apart=True)
    notes = report.notes if details else report.notes[: report.most_notes]
    if notes:
        screen.line()
    for note in notes:
        screen.say("- ", note.said, tone=note.tone)
    if left := len(report.notes) - len(notes):
        screen.say(Message("report.more_notes", count=left), tone="faint")
    print_blocks(screen, report.closing, details=details, apart=True)


def _say(screen: Screen, text: Text) -> None:
    """A sentence, and whether it can be believed."""
    if text.verdict is None:
        screen.say(text.said, tone=text.tone, indent=text.indent, wrap=not text.whole)
        return
    tone = TONES.get("" if text.simulated and text.verdict == "valid" else text.verdict, "doubtful")
    told, before, after = beside_verdict(text.said)
    verdict = verdict_said(text.verdict, simulated=text.simulated, untold=text.untold)
    screen.say((told, text.tone), before, (verdict, tone), after)


def print_blocks(screen: Screen, blocks: Sequence[Block], *, details: bool = False, apart: bool = False) -> None:
    """What a terminal shows of some blocks; `apart`: after an empty line."""
    seen = ("everywhere", "screen", "details" if details else "brief")
    for block in blocks:
        if block.at not in seen:
            continue
        if apart or (isinstance(block, Tabled) and block.caption):
            screen.line()
        apart = False
        match block:
            case Text():
                _say(screen, block)
            case Command():
                screen.say(f"  {pasted(block.argv)}", wrap=False)
            case Tabled():
                rows = block.table.rows if details else block.table.rows[: block.most]
                screen.table(replace(block.table, rows=rows), caption=block.caption)
                if left := len(block.table.rows) - len(rows):
                    screen.say(Message("report.more_rows", count=left), tone="faint")
            case Facts():
                for name, told in block.pairs:
                    screen.say((name, "strong"))
                    screen.say(told or "?", indent=2)
            case _:
                pass
