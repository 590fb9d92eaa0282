"""`specmeter compare`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specmeter.analysis.machines import MachineSide, MachineTable
    from specmeter.show.words import Language
    from specmeter.studies.folder import StudyFolder

_GB = 1e9
_MOST_GB_PER_S = 1e6


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
    type=click.FloatRange(0, 90),
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
@click.option(
    "--lang", type=click.Choice(["en", "zh", "both"]), default="both", show_default=True, help="Language of the page."
)
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def command(
    runs: tuple[str, ...],
    measure: str,
    threshold: float,
    machines: bool,
    bandwidths: tuple[str, ...],
    html: Path | None,
    lang: str,
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
    from specmeter.analysis.comparison import Measure, compare_runs, read_side
    from specmeter.errors import UsageError
    from specmeter.show.terminal.compare import print_comparison
    from specmeter.show.terminal.console import errors, say_json
    from specmeter.store.places import find_run

    if len(runs) < 2:
        raise UsageError("compare: one run is not enough", fix="name two or more: `specmeter compare A B`")
    languages: tuple[Language, ...] = ("en",) if lang == "en" else ("zh",) if lang == "zh" else ("en", "zh")
    if machines:
        return _machines(runs, bandwidths, html, languages, as_json)
    if bandwidths:
        raise UsageError("--bandwidth goes with --machines", fix="add --machines, or leave --bandwidth out")
    _refuse_reports(runs)
    sides = [read_side(find_run(run)) for run in runs]
    by: Measure = "speedup" if measure == "speedup" else "rate"
    found = [compare_runs(sides[0], side, measure=by, threshold=threshold / 100) for side in sides[1:]]
    if as_json:
        say_json([one.model_dump(mode="json") for one in found])
    else:
        for one in found:
            print_comparison(one)
        _mention_machines({side.host.hostname_sha256 for side in sides if side.host is not None})
    if html is not None:
        from specmeter.show.page.compare_page import compare_page
        from specmeter.show.page.files import write_text

        write_text(html, compare_page(found, languages))
        errors().say(str(html), wrap=False)
    return 1 if any(one.failed for one in found) else 0


# --- several machines ------------------------------------------------------------------------------------------------


def _machines(
    runs: Sequence[str], bandwidths: Sequence[str], html: Path | None, languages: Sequence[Language], as_json: bool
) -> int:
    from specmeter.analysis.machines import merge
    from specmeter.show.terminal.compare import print_machines
    from specmeter.show.terminal.console import errors, say_json

    names = _names(runs)
    given = _bandwidths(bandwidths, dict(zip(runs, names, strict=True)))
    table = merge([_side(run, name) for run, name in zip(runs, names, strict=True)], given)
    if as_json:
        say_json(table.model_dump(mode="json"))
    else:
        print_machines(table)
    if html is not None:
        from specmeter.show.page.files import write_text

        write_text(html, _page(table, languages))
        errors().say(str(html), wrap=False)
    return 1 if any(line.verdict == "invalid" for line in table.lines) else 0


def _page(table: MachineTable, languages: Sequence[Language]) -> str:
    """The machines as data of the study that compares machines: its claims, tables and figures."""
    from specmeter import studies
    from specmeter.show.page.page import study_page
    from specmeter.show.page.study_document import study_document
    from specmeter.studies.library.hardware_comparison.extra import of_machines

    return study_page([study_document(studies.findings("hardware-comparison", of_machines(table)))], languages)


def _side(given: str, name: str) -> MachineSide:
    from specmeter.analysis.machines import from_quality, from_run
    from specmeter.quality.files import load_report
    from specmeter.store.places import find_run, is_study
    from specmeter.studies.folder import StudyFolder

    path = find_run(given)
    if inside := is_study(path):
        path = _only_part(StudyFolder(path), name)
    if path.suffix.lower() == ".json" and not path.is_dir():
        return from_quality(load_report(path, inside=inside), name)
    return from_run(path, name)


def _only_part(study: StudyFolder, name: str) -> Path:
    """What a study with one part measured. Raises `UsageError` for one with several, which would be several tables."""
    from specmeter.errors import UsageError

    parts = [part for part in study.record().parts if not part.skipped]
    if len(parts) != 1:
        names = ", ".join(part.name for part in parts) or "none"
        raise UsageError(
            f"{name}: a study with {len(parts)} measured parts ({names})", fix=f"name one part: {study.path.name}/PART"
        )
    part = parts[0]
    return study.quality_file(part.name) if part.kind == "quality" else study.run_folder(part.name)


def _names(runs: Sequence[str]) -> list[str]:
    """A name for each: that of its folder or file, with the folder above where names would be the same."""
    paths = [Path(run).expanduser().resolve() if run != "latest" else Path(run) for run in runs]
    short = [path.name.removesuffix(".json") for path in paths]
    if len(set(short)) < len(short):
        short = [f"{path.parent.name}/{name}" for path, name in zip(paths, short, strict=True)]
    if len(set(short)) < len(short):
        short = [f"{name} ({place})" for place, name in enumerate(short, start=1)]
    return short


def _bandwidths(given: Sequence[str], names: dict[str, str]) -> dict[str, float | str]:
    """Name of the machine -> bytes per second, or the name of a device. Raises `UsageError` for what is neither."""
    from specmeter.errors import UsageError

    found: dict[str, float | str] = {}
    for item in given:
        name, separator, value = item.rpartition("=")
        if not separator or not name or not value.strip():
            raise UsageError(
                f"--bandwidth {item[:80]!r} does not name a run and a bandwidth",
                fix='write RUN=GB/S or RUN=DEVICE, for example pro=200 or pro="M2 Pro"',
            )
        try:
            number = float(value)
        except ValueError:
            found[names.get(name, name)] = value.strip()
            continue
        if not 0 < number <= _MOST_GB_PER_S:
            raise UsageError(f"--bandwidth {item[:80]}: no bandwidth in GB/s", fix="give GB/s, for example 200")
        found[names.get(name, name)] = number * _GB
    return found


def _refuse_reports(runs: Sequence[str]) -> None:
    """Quality reports are no runs."""
    from specmeter.errors import UsageError

    reports = [run for run in runs if run.lower().endswith(".json") and not Path(run).expanduser().is_dir()]
    if reports:
        raise UsageError(
            f"{reports[0]} is a file, not a run",
            fix="add --machines to put reports of `specmeter quality --rates` beside each other",
        )


def _mention_machines(hosts: set[str]) -> None:
    if len(hosts) > 1:
        from specmeter.show.terminal.console import errors

        errors().say("these runs come from several machines; --machines puts them into one table")
