"""`specmeter study`: published studies, repeated."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from specmeter.cli.settings import OUT_HELP, Budget, dry_run_option, json_option, new_option, offline_option
from specmeter.text import program
from specmeter_studies.cli.latency import latency

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from specmeter.errors import SpecmeterError
    from specmeter.laboratory.run import NextCells, Prepared
    from specmeter.models.reference import ModelProgress
    from specmeter.show.terminal.console import Screen
    from specmeter.store import RunState
    from specmeter_studies.folder import Part, StudyFolder
    from specmeter_studies.order import StudyOrder
    from specmeter_studies.quality.measure import Progress as QualityProgress


@click.group(name="study")
def command() -> None:
    """Repeat a published study, and test its claims.

    A study has one or more parts: experiments or quality measurements. The same code computes its claims, tables and
    figures from your measurements and from the published numbers (`specmeter report --published NAME`).

    \b
    Examples:
      specmeter study list
      specmeter study run moe-306 --variant bench
      specmeter study show latest
    """


_TRUST = click.option("--trust", is_flag=True, help="Run the Python code that the study names; read it first.")


@command.command(name="list")
@click.argument("folders", nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_studies(folders: tuple[str, ...], as_json: bool) -> None:
    """List the studies with their documents, parts and variants, and your runs of them.

    FOLDERS are studies of your own (with a study.yaml).

    \b
    Examples:
      specmeter study list
      specmeter study list ./mystudy
      specmeter study list --json | jq '.studies[].name'
    """
    from specmeter_studies.show.terminal import print_list

    print_list(folders, as_json=as_json)


class _WithVariants(click.Command):
    """Its help ends with the variants of each bundled study."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        from specmeter_studies import find, names
        from specmeter_studies.order import variants_of

        offered = {
            name: dict.fromkeys(it for part in variants_of(find(name)).values() for it in part) for name in names()
        }
        super().format_epilog(ctx, formatter)
        with formatter.section("Variants"):
            formatter.write_dl([(name, ", ".join(variants) or "none") for name, variants in offered.items()])


@command.command(cls=_WithVariants)
@click.argument("name")
@click.option(
    "--variant",
    "variants",
    multiple=True,
    metavar="NAME",
    help="Apply this variant; repeatable. All studies have `bench` (bundled models) and `quick` (smaller), some `real` "
    "(small real models).",
)
@click.option("--faithful", is_flag=True, help="Measure in the original order; short for --variant faithful.")
@click.option(
    "--model",
    "models",
    multiple=True,
    metavar="NAME=REFERENCE",
    help="Use this model for NAME; repeatable.",
)
@click.option(
    "--models",
    "models_from",
    type=click.Path(file_okay=False, exists=True, path_type=Path),
    metavar="DIR",
    help="Use the GGUF files of this folder that have the names of the study's files.",
)
@click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="[PART.]KEY=VALUE",
    help="Set a key of one part or all, after variants; repeatable.",
)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help=OUT_HELP,
)
@click.option(
    "--budget",
    type=Budget(),
    default="15m",
    show_default=True,
    help="With bench or real: stop when all claims are decided, or after this time (and at least three blocks).",
)
@new_option
@offline_option
@_TRUST
@dry_run_option
@json_option
def run(
    name: str,
    variants: tuple[str, ...],
    faithful: bool,
    models: tuple[str, ...],
    models_from: Path | None,
    overrides: tuple[str, ...],
    out: Path | None,
    budget: float,
    new: bool,
    offline: bool,
    trust: bool,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Measure the study NAME (see `specmeter study list`), or resume it.

    NAME may be a folder with your own study (docs/how-to/studies.md). What cannot be measured here (missing models, too
    little memory) is left out with the reason. After Ctrl-C, a crash or a power cut the same command measures what is
    missing. At the end the claims are printed, and report.html is written into the study folder.

    \b
    Examples:
      specmeter study run moe-306 --variant bench
      specmeter study run moe-306 --variant bench --variant quick --out here
      specmeter study run moe-306 --model moe_q4=q4.gguf --model draft_0.8b=small.gguf --offline
      specmeter study run moe-306 --variant real --models my-models
      specmeter study run moe-306 --faithful --dry-run
      specmeter study run moe-306 --variant bench --set design.blocks=5
      specmeter study run ./mystudy
    """
    from specmeter.cli.run import undisturbed
    from specmeter.cli.streams import stop_like_ctrl_c
    from specmeter.errors import UsageError
    from specmeter.show.terminal.console import errors
    from specmeter.show.terminal.report import print_report
    from specmeter.store.locate import sort_of
    from specmeter_studies.folder import StudyFolder as Folder
    from specmeter_studies.folder import choose_folder
    from specmeter_studies.order import StudyOrder, read_models
    from specmeter_studies.runner import begin, look, measure_study
    from specmeter_studies.show.terminal import print_left_out, print_stopped
    from specmeter_studies.show.terminal import report as report_of

    chosen = (*(("faithful",) if faithful else ()), *variants)
    asked = tuple(dict.fromkeys(chosen))
    folder_of_models = None if models_from is None else models_from.absolute()
    ready = look(StudyOrder(name, asked, overrides, read_models(models), folder_of_models, offline, trust, budget))
    if dry_run:
        from specmeter_studies.show.dry_run import print_dry_run

        return 0 if print_dry_run(ready, as_json=as_json) else 2
    if out is None:
        folder, resumed = choose_folder(ready.record, new=new)
    else:
        folder, resumed = Folder(out), sort_of(out) == "study"
        if resumed and new:
            raise UsageError(f"--new: {out} has a study already", fix="give another folder with --out")
    screen = errors()
    stop_like_ctrl_c()
    record = begin(ready, folder)
    screen.say(f"{'resuming' if resumed else 'measuring'} {record.study} in {folder.path}", wrap=False)
    print_left_out(screen, record)
    try:
        complete = measure_study(ready, record, folder, _Watch(screen))
        page = _write_report(folder, trusted=trust)
        print_report(report_of(folder, folder.findings(trusted=trust), page), as_json=as_json)
    except KeyboardInterrupt:
        with undisturbed():
            print_stopped(screen, folder, _command(ready.order, folder, as_json=as_json))
        return 130
    if not complete:
        screen.say("some requests failed; run the same command to retry them")
        return 3
    return 1 if "invalid" in folder.verdicts().values() else 0


@command.command()
@click.argument("folder", default="latest")
@_TRUST
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def show(folder: str, trust: bool, as_json: bool) -> int:
    """Show the results of a study: its claims and tables, and what was left out.

    FOLDER is a study folder, the name of one under specmeter-runs/, or `latest` (the default). `all`: what all
    documents say together, and why they disagree.

    \b
    Examples:
      specmeter study show
      specmeter study show moe-306-20261121-101500
      specmeter study show latest --json | jq '.claims[] | [.id, .ruling, .found.text]'
    """
    from specmeter.show.terminal.report import print_report
    from specmeter.store.locate import find_study
    from specmeter_studies.show import documents
    from specmeter_studies.show.terminal import print_study

    if folder == documents.ALL:
        print_report(documents.report(), as_json=as_json)
        return 0
    return print_study(find_study(folder), trusted=trust, as_json=as_json)


@command.command()
@click.argument("folder", default="latest")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), required=True, help="Folder to write.")
def export(folder: str, out: Path) -> None:
    """Write a study's data as files, as its document published them.

    The document's tables as CSV with their headings, all requests as JSON Lines, and the environment
    (BENCHMARK_ENV.md). FOLDER is a study folder, the name of one under specmeter-runs/, or `latest` (the default).

    \b
    Examples:
      specmeter study export --out data
      specmeter study export rtx3090-19-20261121-101500 --out rtx3090
    """
    from specmeter.show.terminal.console import output
    from specmeter.store.locate import find_study
    from specmeter_studies.folder import StudyFolder as Folder
    from specmeter_studies.show.data import write_data

    output().say_all(map(str, write_data(Folder(find_study(folder)), out)), wrap=False)


class _Watch:
    """Progress on stderr; see `runner.StudyWatch`."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen

    def part_starting(self, part: Part, number: int, of: int) -> None:
        if of > 1:
            self._line(f"part {number} of {of}: {part.name}")

    def part_skipped(self, part: Part) -> None:
        self._line(f"skipped: {part.name}: {part.skipped}")

    def part_undecided(self, part: Part, claims: Sequence[str], *, out_of_time: bool) -> None:
        why = "the budget is spent; `--budget 1h --new` gives more" if out_of_time else "more blocks do not decide it"
        self._line(f"{part.name}: undecided: {', '.join(claims)}; {why}")

    def part_failed(self, part: Part, error: SpecmeterError) -> None:
        self._line(f"warning: {part.name}: {error}")

    def models(self) -> AbstractContextManager[ModelProgress]:
        from specmeter.show.terminal.progress import model_progress

        return model_progress(self._screen)

    def measure(self, prepared: Prepared, folder: Path, resumed: bool, next_cells: NextCells | None) -> RunState:
        from specmeter.cli.run import shown_on
        from specmeter.laboratory.run import predict_findings, run
        from specmeter.show.run_report import found
        from specmeter.show.terminal.report import print_blocks

        print_blocks(self._screen, found(predict_findings(prepared), with_notes=False))
        with shown_on(self._screen, folder, resumed) as (observer, opened):
            return run(prepared, folder, observer, opened=opened, next_cells=next_cells)

    def scoring(self) -> AbstractContextManager[QualityProgress]:
        from specmeter.show.terminal.progress import part_progress

        return part_progress(self._screen)

    def _line(self, text: str) -> None:
        self._screen.say(text, wrap=False)


def _command(order: StudyOrder, folder: StudyFolder, *, as_json: bool) -> str:
    """The command that goes on in `folder` whatever state it is in, to be pasted into a shell."""
    words = ["study", "run", order.study]
    words += [word for variant in order.variants for word in ("--variant", variant)]
    words += [word for name, reference in order.models.items() for word in ("--model", f"{name}={reference}")]
    words += [] if order.models_from is None else ["--models", str(order.models_from)]
    words += [word for override in order.overrides for word in ("--set", override)]
    words += [
        *(["--offline"] if order.offline else []),
        *(["--trust"] if order.trusted else []),
        *(["--json"] if as_json else []),
    ]
    return f"{program()} {shlex.join([*words, '--out', str(folder.path)])}"


def _write_report(folder: StudyFolder, *, trusted: bool) -> Path:
    """The page of what was found, in the study folder."""
    from specmeter.messages import LANGUAGES
    from specmeter_studies.show.document import read_study
    from specmeter_studies.show.page import write_study_page

    return write_study_page([read_study(folder, trusted=trusted)], folder.report_path, LANGUAGES, inside=True)


command.add_command(latency)
