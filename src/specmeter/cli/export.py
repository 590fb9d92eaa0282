"""The command `specmeter export`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import IO, cast, get_args

import click

from specmeter.cli.streams import Printable
from specmeter.show.export.formats import FormatName
from specmeter.show.export.run_table import RunTable
from specmeter.show.export.tables import TableName
from specmeter.show.terminal.console import errors
from specmeter.store.locate import find_run
from specmeter.text import counted


@click.command()
@click.argument("run", default="latest")
@click.option(
    "--format", "chosen", type=click.Choice(get_args(FormatName)), help="Default: by the ending of --out, or csv."
)
@click.option(
    "--table", type=click.Choice(get_args(TableName)), default="requests", show_default=True, help="Table to export."
)
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="File to write. Default: stdout.")
def command(run: str, chosen: str | None, table: str, out: Path | None) -> None:
    """Export the measurements of RUN, one per row, with every recorded field.

    RUN is a folder, the name of one under specmeter-runs/, or `latest` (the default). Of an advice, a schedule or a
    study, all runs behind its answer are exported; the column `run` names them.

    \b
    Examples:
      specmeter export > requests.csv
      specmeter export demo-20261121-101500 --table steps --format jsonl
      specmeter export latest --out requests.parquet
    """
    printed = cast("IO[bytes]", Printable(sys.stdout)) if sys.stdout.isatty() else sys.stdout.buffer
    count = RunTable(find_run(run), table).write(out or printed, chosen)
    if out is not None:
        errors().say(f"{counted(count, 'row')} written to {out}", wrap=False)
