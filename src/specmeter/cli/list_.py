"""`specmeter list`."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime

import click

_ENDLESS = 10_000
"""Width of a table that nobody reads on a terminal: programs want a row to be a line."""


@click.command(name="list")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def command(as_json: bool) -> None:
    """List the bundled experiments with their variants, and the runs under specmeter-runs/.

    \b
    Examples:
      specmeter list
      specmeter list --json | jq '.runs[].folder'
    """
    from specmeter.errors import StoreError
    from specmeter.experiments.file import bundled
    from specmeter.store import RunStore
    from specmeter.store.places import find_runs

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
    if as_json:
        told = {
            "experiments": {name: experiment.description for name, experiment in experiments.items()},
            "variants": {name: experiment.variants for name, experiment in experiments.items()},
            "runs": runs,
        }
        click.echo(json.dumps(told, indent=2, ensure_ascii=False))
        return
    from rich.markup import escape
    from rich.table import Table

    from specmeter.show.terminal.text import output_console

    console = output_console()
    table = Table(box=None, pad_edge=False, title="bundled experiments", title_justify="left", show_header=False)
    for name, experiment in experiments.items():
        variants = f"\nvariants: {', '.join(experiment.variants)}" if experiment.variants else ""
        table.add_row(escape(name), escape(experiment.description + variants))
    console.print(table)
    console.print()
    if not runs:
        console.print("no runs yet: `specmeter run demo` makes the first one", highlight=False)
        return
    table = Table(box=None, pad_edge=False, title="runs", title_justify="left")
    for column in ("folder", "state", "requests", "started"):
        table.add_column(column, overflow="fold")  # a name that ends in dots cannot be used
    for run in runs:
        requests = f"{run['ok']}/{run['planned']}" if "ok" in run else ""
        table.add_row(escape(str(run["folder"])), str(run["state"]), requests, str(run.get("started", "")))
    if not sys.stdout.isatty():
        console.width = _ENDLESS
    console.print(table)
