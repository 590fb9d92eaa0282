"""`specmeter export`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

TABLES = (
    *("requests", "sessions", "steps", "telemetry", "prompts", "findings", "energy", "margins", "predictions"),
    *("profiles", "positions", "accepted_lengths", "routing"),
)
FORMATS = ("csv", "jsonl", "parquet")


@click.command(name="export")
@click.argument("run", default="latest")
@click.option("--format", "format_", type=click.Choice(FORMATS), help="Default: by the ending of --out, else csv.")
@click.option("--table", type=click.Choice(TABLES), default="requests", show_default=True, help="What to export.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="File to write; default: stdout.")
def command(run: str, format_: str | None, table: str, out: Path | None) -> None:
    """Export the measurements of RUN, one row each, with every field that is on record.

    RUN is a run folder, the name of one under specmeter-runs/, or `latest` (the default).

    \b
    Examples:
      specmeter export > requests.csv
      specmeter export demo-20261121-101500 --table steps --format jsonl
      specmeter export latest --out requests.parquet
    """
    from specmeter.laboratory.run import find_run
    from specmeter.show.export import export
    from specmeter.show.terminal.console import errors

    ending = out.suffix.removeprefix(".").lower() if out else ""
    chosen = format_ or (ending if ending in FORMATS else "csv")
    count = export(find_run(run), out or sys.stdout.buffer, format=chosen, table=table)
    if out is not None:
        errors().say(f"{count} rows written to {out}", wrap=False)
