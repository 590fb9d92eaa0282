"""The commands `specmeter list`, `show` and `rescue`.

Each has to answer in half a second: imports that only one of them needs are inside its function.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import click

from specmeter.errors import StoreError, UsageError
from specmeter.messages import Message, words
from specmeter.show.table import Cell, Row, Table, Tone, row, text
from specmeter.show.terminal.console import output, say_json
from specmeter.store import RunStore
from specmeter.store.guarded import is_written
from specmeter.store.locate import ADVISED, a_sort, find_folders, find_run, find_runs, sort_of
from specmeter.text import quoted

_LOST_SHOWN = 5
_ENDLESS = 10_000
"""Width of a table that is not read on a terminal: programs want one row per line."""


@click.command(name="list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_runs(as_json: bool) -> None:
    """List the bundled experiments with their variants, and everything under specmeter-runs/.

    \b
    Examples:
      specmeter list
      specmeter list --json | jq '.runs[].folder'
    """
    from specmeter.experiments.file import bundled

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
                "state": state.state_now(written=is_written(folder)),
                "ok": state.ok,
                "planned": state.planned,
                "started": started.isoformat(timespec="seconds") if started else "",
            }
        )
    advices = [_in_a_line(folder) for folder in find_folders("advice")]
    schedules = [_in_a_line(folder) for folder in find_folders("schedule")]
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
            Message(f"state.{run['state']}"),
            f"{run['ok']}/{run['planned']}" if "ok" in run else "",
            str(run.get("started", ""))[:16].replace("T", " "),
        )
        for run in runs
    ]
    columns = text("folder", "state", "requests", "started")
    output(_ENDLESS).table(Table("runs", columns, listed, "runs"), caption=True)


def _in_a_line(folder: Path) -> dict[str, str]:
    """An advice or a schedule in a line, or what is wrong with its folder."""
    from specmeter.show.advice_words import day
    from specmeter.show.listing import line_of

    try:
        line = line_of(folder)
    except (StoreError, UsageError) as error:
        return {"folder": str(folder), "state": "unreadable", "started": "", "problem": error.message}
    return {
        "folder": str(folder),
        "state": "complete" if line.finished else "unfinished",
        "started": day(line.made_at),
        "headline": words().render(line.headline),
    }


@click.command(name="show")
@click.argument("run", default="latest")
@click.option("--details", is_flag=True, help="Show all numbers, findings and ids.")
@click.option("--by-kind", is_flag=True, help="Also show each prompt type.")
@click.option("--by-prompt", is_flag=True, help="Also show each prompt.")
@click.option("--positions", is_flag=True, help="Also show acceptance by position, and accepted lengths.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def show(run: str, details: bool, by_kind: bool, by_prompt: bool, positions: bool, as_json: bool) -> int:
    """Show the results of RUN: the answer, rates, speedups with their intervals, and acceptance.

    RUN is the folder of a run, an advice, a schedule or a study, the name of one under specmeter-runs/, or `latest`
    (the default). An unfinished one is shown as far as it goes.

    \b
    Examples:
      specmeter show
      specmeter show --details
      specmeter show specmeter-runs/demo-20261121-101500 --by-kind
      specmeter show --positions
      specmeter show latest --json | jq '.answers'
    """
    from specmeter.analysis.reading import read_run
    from specmeter.show.run_report import report
    from specmeter.show.studies import needed
    from specmeter.show.terminal.report import print_report

    folder = find_run(run)
    if by_kind or by_prompt or positions:
        _refuse_parts(folder)
    sort = sort_of(folder)
    if sort in ADVISED:
        return _show_advised(folder, details=details, as_json=as_json)
    if sort == "study":
        return needed(str(folder)).print_study(folder, as_json=as_json)
    found = None
    if positions:
        from specmeter.analysis.positions import positions as arm_positions

        with RunStore.open(folder, readonly=True) as store:
            found = arm_positions(store)
    measured = read_run(folder, by_prompt=by_prompt)
    told = report(measured, by_kind=by_kind, positions=found, details=details)
    print_report(told, as_json=as_json, details=details)
    return 1 if measured.certificate is not None and measured.certificate.verdict == "invalid" else 0


def _refuse_parts(folder: Path) -> None:
    """`--by-kind` and its like are a run's: what rests on runs has none. Raises `UsageError` that names a run."""
    from specmeter.advise.schedule import runs_of

    sort = sort_of(folder)
    if sort is not None and sort != "run":
        raise UsageError(
            f"--by-kind, --by-prompt, --positions: only for runs, and {folder} is {a_sort(sort)}",
            fix=f"show one of its runs: `specmeter show {runs_of(folder)[0]} --by-kind`",
        )


def _show_advised(folder: Path, *, details: bool, as_json: bool) -> int:
    from specmeter.advise.schedule import read_advised
    from specmeter.show.schedule_report import report_of
    from specmeter.show.terminal.report import print_report

    found = read_advised(folder)
    print_report(report_of(found, folder), as_json=as_json, details=details)
    return 1 if found.verdict == "invalid" else 0


@click.command()
@click.argument("run", type=click.Path(path_type=Path, file_okay=False, exists=True))
@click.option("--out", type=click.Path(path_type=Path), help="New folder. Default: RUN-rescued.")
def rescue(run: Path, out: Path | None) -> None:
    """Save what can be read of a damaged run into a new folder, and list what is lost.

    The damaged folder is not changed. `specmeter run` resumes the new one and measures what was lost.

    \b
    Examples:
      specmeter rescue specmeter-runs/demo-20261121-101500
    """
    from specmeter.store.rescue import rescue as save

    screen = output()
    found = save(run, out or run.with_name(f"{run.name}-rescued"))
    screen.say(f"saved {sum(found.saved.values())} rows of {len(+found.saved)} tables in {found.folder}", wrap=False)
    for what, lost in found.lost.items():
        screen.say(f"lost from {what}: {len(lost)}", wrap=False)
        for one in lost[:_LOST_SHOWN]:
            screen.say(f"  {one}", wrap=False)
        if len(lost) > _LOST_SHOWN:
            screen.say(f"  and {len(lost) - _LOST_SHOWN} more", wrap=False)
    place = quoted(str(found.folder))
    again = f"the command that measured it, with --out {place}, measures what was lost"
    if not found.resumable:
        again = "measure again into a new folder with --out; the plan of the run is lost"
    screen.say(f"next: {again if found.lost else f'`specmeter show {place}`'}", wrap=False)
