"""The command `specmeter compare`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from specmeter.advise.schedule import find_single_run
from specmeter.analysis.comparison import Measure, compare_runs, read_side
from specmeter.cli.settings import Finite, language_option
from specmeter.errors import UsageError
from specmeter.show import comparison_report
from specmeter.show.page.files import write_text
from specmeter.show.page.page import report_page
from specmeter.show.studies import needed
from specmeter.show.terminal.console import errors
from specmeter.show.terminal.report import print_report


@click.command(name="compare")
@click.argument("runs", nargs=-1, required=True, metavar="A B [C]...")
@click.option(
    "--by",
    "measure",
    type=click.Choice(["rate", "speedup"]),
    default="rate",
    show_default=True,
    help="What must not get worse: decode rates, or speedups (between machines).",
)
@click.option(
    "--threshold",
    type=Finite(0, 90),
    default=2.0,
    show_default=True,
    metavar="PERCENT",
    help="Count a larger loss as a regression.",
)
@click.option(
    "--machines",
    is_flag=True,
    help="Put several machines into one table: rates, memory traffic, ratios. The measurements must be the same.",
)
@click.option(
    "--bandwidth",
    "bandwidths",
    multiple=True,
    metavar="RUN=GB/S|DEVICE",
    help="Memory bandwidth of a run's machine, for --machines; repeatable. Default: measured, else from the catalogue.",
)
@click.option("--html", type=click.Path(dir_okay=False, path_type=Path), help="Also write a page to share.")
@language_option
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def command(
    runs: tuple[str, ...],
    measure: str,
    threshold: float,
    machines: bool,
    bandwidths: tuple[str, ...],
    html: Path | None,
    languages: Sequence[str],
    as_json: bool,
) -> int:
    """Compare runs B, C, ... with run A: two builds, two machines, two days.

    Arms with the same id are compared over the prompts that both runs completed in every block. A regression is shown
    when an arm's whole interval lies beyond the threshold; the intervals of a pair of runs hold for all arms together.
    Invalid arms are not compared. Everything else that differs between the runs is listed.

    --machines puts runs of one experiment, reports of `specmeter quality --rates`, or studies into one table of
    machines: rates, the share of memory bandwidth that plain decoding uses, and ratios to the first machine. Runs with
    other models, prompts, settings or tests are refused.

    \b
    Examples:
      specmeter compare monday tuesday
      specmeter compare old-build new-build --threshold 3
      specmeter compare laptop server --by speedup --html machines.html
      specmeter compare --machines ultra.json pro.json --bandwidth pro=200 --html machines.html
      specmeter compare --machines laptop server --bandwidth server="RTX 4090"
      specmeter compare a b --json | jq '.[].arms[] | {arm_id, conclusion}'

    \b
    Exit codes: 0 no regression is shown, 1 a regression is shown, or numbers to compare are invalid, 2 no such run,
    nothing to compare, or unlike runs with --machines.
    """
    if len(runs) < 2:
        raise UsageError("compare: one run is not enough", fix="name two or more: `specmeter compare A B`")
    if machines:
        return needed("compare --machines").compare_machines(runs, bandwidths, html, languages, as_json=as_json)
    if bandwidths:
        raise UsageError("--bandwidth goes with --machines", fix="add --machines, or leave --bandwidth out")
    _refuse_reports(runs)
    sides = [read_side(find_single_run(run)) for run in runs]
    by: Measure = "speedup" if measure == "speedup" else "rate"
    found = [compare_runs(sides[0], side, measure=by, threshold=threshold / 100) for side in sides[1:]]
    report = comparison_report.report(found)
    print_report(report, as_json=as_json)
    if not as_json and len({side.host.hostname_sha256 for side in sides if side.host is not None}) > 1:
        errors().say("these runs come from several machines; --machines puts them into one table")
    if html is not None:
        write_text(html, report_page(report, languages))
        errors().say(str(html), wrap=False)
    return 1 if any(one.failed for one in found) else 0


def _refuse_reports(runs: Sequence[str]) -> None:
    """Quality reports are no runs."""
    reports = [run for run in runs if run.lower().endswith(".json") and not Path(run).expanduser().is_dir()]
    if reports:
        raise UsageError(
            f"{reports[0]} is a file, not a run",
            fix="add --machines to put reports of `specmeter quality --rates` beside each other",
        )
