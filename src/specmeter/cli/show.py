"""`specmeter show`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from pathlib import Path


@click.command(name="show")
@click.argument("run", default="latest")
@click.option("--details", is_flag=True, help="Show everything: all numbers, answers and findings, and the arms' ids.")
@click.option("--by-kind", is_flag=True, help="Also show each kind of prompt separately.")
@click.option("--by-prompt", is_flag=True, help="Also show the speedup on each prompt.")
@click.option("--positions", is_flag=True, help="Also show acceptance by position and accepted lengths.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def command(run: str, details: bool, by_kind: bool, by_prompt: bool, positions: bool, as_json: bool) -> int:
    """Show the results of RUN: the answer, rates, speedups with their intervals, and acceptance.

    RUN is a run folder, or the folder of an advice or a schedule, the name of one under specmeter-runs/, or `latest`
    (the default: the latest run). What is unfinished is shown as far as it has come.

    \b
    Examples:
      specmeter show
      specmeter show --details
      specmeter show specmeter-runs/demo-20261121-101500 --by-kind
      specmeter show --positions
      specmeter show latest --json | jq '.answers'

    \b
    Exit codes: 0 valid, suspect or not checked yet, 1 invalid (`specmeter check` says why), 2 no such run.
    """
    from specmeter.show.terminal.run import print_run
    from specmeter.store.locate import find_run, is_advice, is_schedule

    folder = find_run(run)
    if is_advice(folder):
        return _advice(folder, everything=details, as_json=as_json, others=by_kind or by_prompt or positions)
    if is_schedule(folder):
        return _schedule(folder, everything=details, as_json=as_json, others=by_kind or by_prompt or positions)
    verdict = print_run(
        folder,
        as_json=as_json,
        everything=details,
        by_kind=by_kind,
        by_prompt=by_prompt,
        with_positions=positions,
    )
    return 1 if verdict == "invalid" else 0


def _advice(folder: Path, *, everything: bool, as_json: bool, others: bool) -> int:
    from specmeter.advise.advice import read_advice
    from specmeter.advise.confirm import examined
    from specmeter.errors import UsageError
    from specmeter.show.terminal.advice import print_advice

    if others:
        raise UsageError(
            f"{folder}: is an advice, which has no --by-kind, --by-prompt or --positions",
            fix=f"show one of its runs: `specmeter show {folder / 'confirm'} --by-kind`",
        )
    advice = examined(read_advice(folder), folder)
    print_advice(advice, folder, as_json=as_json, everything=everything)
    return 1 if advice.verdict == "invalid" else 0


def _schedule(folder: Path, *, everything: bool, as_json: bool, others: bool) -> int:
    from specmeter.advise.schedule import folder_of, read_schedule
    from specmeter.errors import UsageError
    from specmeter.show.terminal.advice import print_schedule

    schedule = read_schedule(folder)
    if others:
        run = folder / folder_of(schedule.asked.clients[0]) / "confirm"
        raise UsageError(
            f"{folder}: is a schedule, which has no --by-kind, --by-prompt or --positions",
            fix=f"show one of its runs: `specmeter show {run} --by-kind`",
        )
    print_schedule(schedule, folder, as_json=as_json, everything=everything)
    return 1 if schedule.verdict == "invalid" else 0
