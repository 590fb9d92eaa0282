"""`specmeter list`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from pathlib import Path

    from specmeter.show.table import Tone

_ENDLESS = 10_000
"""Width of a table that is not read on a terminal: programs want one row per line."""


@click.command(name="list")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def command(as_json: bool) -> None:
    """List the bundled experiments with their variants, and the runs and advices under specmeter-runs/.

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
    from specmeter.store.places import find_advices, find_runs

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
    if as_json:
        told = {
            "experiments": {name: experiment.description for name, experiment in experiments.items()},
            "variants": {name: experiment.variants for name, experiment in experiments.items()},
            "runs": runs,
            "advices": advices,
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
    if advices:
        told_of = [row(it["folder"], it["state"], it["started"], it.get("headline") or it["problem"]) for it in advices]
        columns = text("folder", "state", "started", "answer")
        output(_ENDLESS).table(Table("advices", columns, told_of, "advices"), caption=True)
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
    from specmeter.advise.files import read_advice
    from specmeter.errors import UsageError
    from specmeter.show.advice_sentence import day, headline, names_of
    from specmeter.show.words import words

    try:
        advice = read_advice(folder)
    except UsageError as error:
        return {"folder": str(folder), "state": "unreadable", "started": "", "problem": error.message}
    return {
        "folder": str(folder),
        "state": "complete" if advice.finished else "unfinished",
        "started": day(advice.made_at),
        "headline": headline(advice, names_of(advice)).told(words("en")),
    }
