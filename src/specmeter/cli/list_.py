"""`specmeter list`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from pathlib import Path

    from specmeter.show.table import Phrase, Tone

_ENDLESS = 10_000
"""Width of a table that is not read on a terminal: programs want one row per line."""


@click.command(name="list")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def command(as_json: bool) -> None:
    """List the bundled experiments with their variants, and the runs, advices and schedules under specmeter-runs/.

    \b
    Examples:
      specmeter list
      specmeter list --json | jq '.runs[].folder'
    """
    from specmeter.errors import StoreError
    from specmeter.experiments.file import bundled
    from specmeter.show.table import Cell, Row, Table, row, text
    from specmeter.show.terminal.console import output, say_json
    from specmeter.store import RunStore
    from specmeter.store.locate import find_advices, find_runs, find_schedules

    experiments = bundled()
    runs: list[dict[str, str | int]] = []
    for folder in find_runs():
        try:
            with RunStore.open(folder, readonly=True) as store:
                state = store.state()
        except StoreError as error:
            runs.append({"folder": str(folder), "state": "unreadable", "problem": error.message})
            continue
        started = datetime.fromtimestamp(state.started_at, UTC).astimezone() if state.started_at else None
        runs.append(
            {
                "folder": str(folder),
                "state": state.state,
                "ok": state.ok,
                "planned": state.planned,
                "started": started.isoformat(timespec="seconds") if started else "",
            }
        )
    advices = [_advice(folder) for folder in find_advices()]
    schedules = [_schedule(folder) for folder in find_schedules()]
    if as_json:
        told = {
            "experiments": {name: experiment.description for name, experiment in experiments.items()},
            "variants": {name: experiment.variants for name, experiment in experiments.items()},
            "runs": runs,
            "advices": advices,
            "schedules": schedules,
        }
        say_json(told)
        return
    rows: list[Row] = []
    for name, experiment in experiments.items():
        variants: tuple[tuple[str, Tone], ...] = ()
        if experiment.variants:
            variants = ((f"variants: {', '.join(experiment.variants)}", ""),)
        rows.append(row(name, Cell(experiment.description, below=variants)))
    screen = output()
    screen.table(Table("bundled", text("name", "what it is"), rows, "bundled experiments"), caption=True, heads=False)
    screen.line()
    for what, found in (("advices", advices), ("schedules", schedules)):
        told_of = [row(it["folder"], it["state"], it["started"], it.get("headline") or it["problem"]) for it in found]
        if told_of:
            columns = text("folder", "state", "started", "answer")
            output(_ENDLESS).table(Table(what, columns, told_of, what), caption=True)
            screen.line()
    if not runs:
        screen.say("no runs yet; start with `specmeter run demo`")
        return
    listed = [
        row(
            str(run["folder"]),
            str(run["state"]),
            f"{run['ok']}/{run['planned']}" if "ok" in run else "",
            str(run.get("started", "")),
        )
        for run in runs
    ]
    columns = text("folder", "state", "requests", "started")
    output(_ENDLESS).table(Table("runs", columns, listed, "runs"), caption=True)


def _advice(folder: Path) -> dict[str, str]:
    """An advice in a line, or what is wrong with its folder."""
    from specmeter.advise.advice import read_advice
    from specmeter.errors import UsageError
    from specmeter.show.advice_report import headline, names_of

    try:
        advice = read_advice(folder)
    except UsageError as error:
        return _unreadable(folder, error.message)
    return _told(folder, headline(advice, names_of(advice)), advice.made_at, finished=advice.finished)


def _schedule(folder: Path) -> dict[str, str]:
    """A schedule in a line, or what is wrong with its folder."""
    from specmeter.advise.schedule import read_schedule
    from specmeter.errors import UsageError
    from specmeter.show.schedule_report import headline

    try:
        schedule = read_schedule(folder, examine=False)
    except UsageError as error:
        return _unreadable(folder, error.message)
    return _told(folder, headline(schedule), schedule.made_at, finished=schedule.finished)


def _unreadable(folder: Path, problem: str) -> dict[str, str]:
    return {"folder": str(folder), "state": "unreadable", "started": "", "problem": problem}


def _told(folder: Path, answer: Phrase, made_at: float, *, finished: bool) -> dict[str, str]:
    from specmeter.show.advice_report import day
    from specmeter.show.words import words

    return {
        "folder": str(folder),
        "state": "complete" if finished else "unfinished",
        "started": day(made_at),
        "headline": answer.told(words("en")),
    }
