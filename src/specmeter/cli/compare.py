"""`specmeter compare`."""

from __future__ import annotations

import json
from pathlib import Path

import click


@click.command(name="compare")
@click.argument("runs", nargs=-1, required=True, metavar="A B [C]...")
@click.option(
    "--by",
    "measure",
    type=click.Choice(["rate", "speedup"]),
    default="rate",
    show_default=True,
    help="What must not get worse: decode rates, or speedups (for runs on different machines).",
)
@click.option(
    "--threshold",
    type=click.FloatRange(0, 90),
    default=2.0,
    show_default=True,
    metavar="PERCENT",
    help="A regression is a loss of more than this.",
)
@click.option("--html", type=click.Path(dir_okay=False, path_type=Path), help="Also write a page to share.")
@click.option(
    "--lang", type=click.Choice(["en", "zh", "both"]), default="both", show_default=True, help="Language of the page."
)
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def command(runs: tuple[str, ...], measure: str, threshold: float, html: Path | None, lang: str, as_json: bool) -> int:
    """Compare runs B, C, ... with run A: two builds, two machines, two days.

    Arms of the same id are compared over the prompts that both runs completed in every block. A regression is shown
    when the whole interval of an arm lies beyond the threshold; the intervals of a pair of runs hold for all arms
    together. Numbers of invalid arms are not compared. What else differs between the runs is listed.

    \b
    Examples:
      specmeter compare monday tuesday
      specmeter compare old-build new-build --threshold 3
      specmeter compare laptop server --by speedup --html machines.html
      specmeter compare a b --json | jq '.[].arms[] | {arm_id, conclusion}'

    \b
    Exit codes: 0 no regression is shown, 1 a regression is shown, or numbers to compare are invalid, 2 no such run, or
    nothing to compare.
    """
    from specmeter.cli.compare_view import print_comparison
    from specmeter.comparison import Measure, compare_runs, read_side
    from specmeter.errors import UsageError
    from specmeter.laboratory import find_run

    if len(runs) < 2:
        raise UsageError("compare: one run is not enough", fix="name two or more: specmeter compare A B")
    sides = [read_side(find_run(run)) for run in runs]
    by: Measure = "speedup" if measure == "speedup" else "rate"
    found = [compare_runs(sides[0], side, measure=by, threshold=threshold / 100) for side in sides[1:]]
    if as_json:
        click.echo(json.dumps([one.model_dump(mode="json") for one in found], indent=2, ensure_ascii=False))
    else:
        for one in found:
            print_comparison(one)
    if html is not None:
        from specmeter.report.compare_page import compare_page
        from specmeter.report.files import write_text
        from specmeter.report.words import LANGUAGES, Language

        languages: tuple[Language, ...] = ("en",) if lang == "en" else ("zh",) if lang == "zh" else LANGUAGES
        write_text(html, compare_page(found, languages))
        click.echo(str(html), err=True)
    return 1 if any(one.failed for one in found) else 0
