"""The command `specmeter gate`, and the search for the first slower build (`specmeter compare --bisect`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from specmeter.cli.run import shown_on
from specmeter.cli.settings import OUT_HELP, Budget, json_option, new_option, offline_option, quiet_option
from specmeter.cli.usage import Number
from specmeter.errors import UsageError
from specmeter.gate.bisect import bisect, builds_between
from specmeter.gate.builds import BASE, HEAD, GateSpec
from specmeter.gate.measure import measure_gate
from specmeter.models.reference import Fetching
from specmeter.show import gate_report
from specmeter.show.page.files import write_text
from specmeter.show.terminal.console import errors
from specmeter.show.terminal.progress import model_progress
from specmeter.show.terminal.report import print_report
from specmeter.store.locate import RUNS_FOLDER

if TYPE_CHECKING:
    from specmeter.gate.ruling import Gate, Ruling
    from specmeter.show.terminal.console import Screen

CODES: dict[Ruling, int] = {"pass": 0, "fail": 1, "cannot tell": 4}
_PERCENT = Number(0.1, 50, whole=False, name="PERCENT")
_FILE = click.Path(dir_okay=False, path_type=Path)
_FOLDER = click.Path(file_okay=False, path_type=Path)
budget_option = click.option(
    "--budget", type=Budget(), default="6m", show_default=True, help="No block starts after this time; one always does."
)


@click.command(name="gate")
@click.argument("experiment", required=False, metavar="[EXPERIMENT]")
@click.option("--base", required=True, metavar="BINARY|URL", help="The build to compare with.")
@click.option("--head", required=True, metavar="BINARY|URL", help="The build that must not be slower.")
@click.option("--tolerance", type=_PERCENT, default=3.0, show_default=True, help="The smallest loss that matters.")
@budget_option
@click.option("--noisy", is_flag=True, help="Accept other load on the machine, as on shared runners of CI.")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Set a key of the experiment; repeatable.")
@click.option("--markdown", type=_FILE, help="Also write the result as Markdown, for a comment on a pull request.")
@click.option("--junit", type=_FILE, help="Also write the result as JUnit XML.")
@click.option("--out", type=_FOLDER, help=OUT_HELP)
@new_option
@offline_option
@quiet_option
@json_option
def command(
    experiment: str | None,
    base: str,
    head: str,
    tolerance: float,
    budget: float,
    noisy: bool,
    overrides: tuple[str, ...],
    markdown: Path | None,
    junit: Path | None,
    out: Path | None,
    new: bool,
    offline: bool,
    quiet: bool,
    as_json: bool,
) -> int:
    """Check that a build of an engine decodes as fast as another, and writes the same text.

    BINARY is a llama-server, or a folder with one, or a folder with a wheel: pip install --target FOLDER --no-deps
    xllamacpp==VERSION. Two URLs compare running servers. Each configuration of EXPERIMENT is measured with both builds,
    in turns. Default: a bench model, without speculation and with a draft model.

    A configuration passes if its whole interval is above 1 - tolerance. It fails if its whole interval is below 1 and
    the ratio at most 1 - tolerance. Blocks are added until all is decided or the budget is spent. Text that differs
    fails too, unless the target model was undecided. After Ctrl-C the same command resumes.

    \b
    Examples:
      specmeter gate --base old/llama-server --head new/llama-server
      specmeter gate --base wheels/old --head wheels/new --tolerance 5 --budget 10m --noisy
      specmeter gate --base old --head new mine.yaml --markdown gate.md --junit gate.xml
      specmeter gate --base http://127.0.0.1:8080 --head http://127.0.0.1:8081
      specmeter gate --base mock:1 --head mock:1.05

    Exit codes: 0 pass, 1 fail, 2 wrong input, 3 an engine failed, 4 cannot tell, 130 interrupted.
    """
    files = {"--markdown": (markdown, gate_report.markdown), "--junit": (junit, gate_report.junit)}
    for option, (file, _) in files.items():
        if file is not None and not file.absolute().parent.is_dir():
            raise UsageError(f"{option} {file}: no such folder", fix="create it, or give another file")
    named = [Path(it).resolve() for it in (experiment, markdown, junit) if it is not None]
    if len(set(named)) < len(named):
        raise UsageError("EXPERIMENT, --markdown, --junit: two of them are one file", fix="give each its own file")
    screen = errors(quiet=quiet)
    spec = GateSpec({BASE: base, HEAD: head}, experiment, overrides, tolerance / 100, budget, noisy)
    gate = _measured(spec, screen, offline=offline, out=out, new=new)
    for file, text in files.values():
        if file is not None:
            write_text(file, text(gate))
            screen.say(str(file), wrap=False)
    print_report(gate_report.report(gate), as_json=as_json)
    return CODES[gate.ruling]


def bisect_builds(places: Sequence[str], tolerance: float, budget_s: float, *, noisy: bool, as_json: bool) -> int:
    """Print the first build between two that is slower than the first of them; an exit code as that of a gate."""
    if len(places) > 3:
        raise UsageError(f"--bisect: {len(places)} names given", fix="give OLD NEW, or OLD NEW EXPERIMENT")
    builds = builds_between(Path(places[0]), Path(places[1]))
    screen, folder = errors(), RUNS_FOLDER / f"bisect-{builds[0].name[:80]}-{builds[-1].name[:80]}"
    spec = GateSpec({}, next(iter(places[2:]), None), (), tolerance, budget_s, noisy)

    def gate_of(old: Path, other: Path) -> Gate:
        screen.say(f"{other.name} against {old.name}, {len(builds)} builds in all", wrap=False)
        of_both = replace(spec, builds={BASE: str(old), HEAD: str(other)})
        return _measured(of_both, screen, out=folder / other.name)

    found = bisect(builds, gate_of)
    print_report(gate_report.bisection(found), as_json=as_json)
    return 4 if found.stopped else 1 if found.first_slower else 0


def _measured(
    spec: GateSpec, screen: Screen, *, offline: bool = False, out: Path | None = None, new: bool = False
) -> Gate:
    with model_progress(screen) as progress:
        try:
            fetching = Fetching(offline, progress)
            return measure_gate(spec, partial(shown_on, screen), fetching=fetching, out=out, new=new)
        except KeyboardInterrupt:
            screen.say("stopped; the same command resumes")
            raise
