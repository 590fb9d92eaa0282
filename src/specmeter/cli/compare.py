"""The command `specmeter compare`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from specmeter.advise.schedule import find_single_run
from specmeter.analysis.comparison import Measure, compare_runs, read_side
from specmeter.cli.gate import bisect_builds, budget_option
from specmeter.cli.settings import language_option
from specmeter.cli.usage import Number
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
    help="What must not get worse: decode rates, or speedups.",
)
@click.option(
    "--threshold",
    type=Number(0, 90, whole=False),
    default=2.0,
    show_default=True,
    metavar="PERCENT",
    help="Larger losses are regressions.",
)
@click.option(
    "--machines",
    is_flag=True,
    help="One table of all machines: rates, memory traffic, ratios.",
)
@click.option(
    "--bandwidth",
    "bandwidths",
    multiple=True,
    metavar="RUN=GB/S|DEVICE",
    help="Memory bandwidth of a run's machine, with --machines; repeatable. Default: measured, or from the catalogue.",
)
@click.option("--bisect", is_flag=True, help="A and B are builds: find the first between them that is slower than A.")
@budget_option
@click.option("--noisy", is_flag=True, help="With --bisect: as of `gate`.")
@click.option("--html", type=click.Path(dir_okay=False, path_type=Path), help="Also write a page.")
@language_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    runs: tuple[str, ...],
    measure: str,
    threshold: float,
    machines: bool,
    bandwidths: tuple[str, ...],
    bisect: bool,
    budget: float,
    noisy: bool,
    html: Path | None,
    languages: Sequence[str],
    as_json: bool,
) -> int:
    """Compare runs B, C, ... with run A: two builds, two machines, two days.

    Configurations with the same id are compared on the prompts that both runs completed in every block. A regression is
    a loss whose whole interval is beyond the threshold; the intervals of a pair of runs apply to all its configurations
    together. Invalid ones are left out. All other differences between the runs are listed.

    --machines makes one table of runs of one experiment, reports of `specmeter quality --rates`, or studies: rates, the
    share of memory bandwidth used without speculation, and ratios to the first machine. They must have the same models,
    prompts, settings and tests.

    --bisect OLD NEW [EXPERIMENT] searches the builds in the folder of OLD and NEW, in the order of their names (b9500
    comes before b10020). Each step is a gate against OLD with --threshold as its tolerance (see `gate`); the search
    stops if one cannot tell.

    \b
    Examples:
      specmeter compare monday tuesday
      specmeter compare old-build new-build --threshold 3
      specmeter compare laptop server --by speedup --html machines.html
      specmeter compare --machines ultra.json pro.json --bandwidth pro=200 --html machines.html
      specmeter compare --machines laptop server --bandwidth server="RTX 4090"
      specmeter compare --bisect builds/b9500 builds/b10020 --threshold 5
      specmeter compare a b --json | jq '.[].arms[] | {arm_id, conclusion}'

    Exit codes: 0 no regression, 1 a regression, or invalid numbers, 2 wrong input, 4 the search cannot tell.
    """
    if len(runs) < 2:
        raise UsageError("compare: only one run given", fix="give two or more: `specmeter compare A B`")
    if bisect:
        if machines or bandwidths or html is not None:
            raise UsageError("--bisect: not with --machines, --bandwidth or --html", fix="leave these out")
        return bisect_builds(runs, threshold / 100, budget, noisy=noisy, as_json=as_json)
    if machines:
        return needed("compare --machines").compare_machines(runs, bandwidths, html, languages, as_json=as_json)
    if bandwidths:
        raise UsageError("--bandwidth: only with --machines", fix="add --machines, or leave --bandwidth out")
    _refuse_reports(runs)
    sides = [read_side(find_single_run(run)) for run in runs]
    by: Measure = "speedup" if measure == "speedup" else "rate"
    found = [compare_runs(sides[0], side, measure=by, threshold=threshold / 100) for side in sides[1:]]
    report = comparison_report.report(found)
    print_report(report, as_json=as_json)
    if not as_json and len({side.host.hostname_sha256 for side in sides if side.host is not None}) > 1:
        errors().say("these runs come from several machines; --machines makes one table of them")
    if html is not None:
        write_text(html, report_page(report, languages))
        errors().say(str(html), wrap=False)
    return 1 if any(one.failed for one in found) else 0


def _refuse_reports(runs: Sequence[str]) -> None:
    """Quality reports are no runs."""
    reports = [run for run in runs if run.lower().endswith(".json") and not Path(run).expanduser().is_dir()]
    if reports:
        raise UsageError(
            f"{reports[0]}: a file, not a run",
            fix="add --machines to compare reports of `specmeter quality --rates`",
        )
