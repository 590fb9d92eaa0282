"""The command `specmeter report`."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from specmeter.cli.settings import language_option
from specmeter.cli.usage import Number
from specmeter.errors import UsageError
from specmeter.extensions import INSTALL
from specmeter.probe.files import load_probe
from specmeter.show.fit import STYLES
from specmeter.show.page.document import read_document
from specmeter.show.page.files import (
    refuse_others,
    whole_folder,
    write_figures,
    write_page,
    write_report_tables,
    write_tables,
)
from specmeter.show.page.page import document_figures
from specmeter.show.studies import Shown, needed
from specmeter.show.terminal.console import errors, output
from specmeter.store.locate import a_sort, find_all, find_run, sort_of
from specmeter.store.run import REPORT_NAME
from specmeter.text import counted


@click.command(name="report")
@click.argument("runs", nargs=-1, metavar="[RUN]...")
@click.option(
    "--published",
    multiple=True,
    metavar="NAME",
    help="Show this study's published numbers; `apple`: all studies on Apple machines; `list`: their names. "
    "With --site: in addition to the RUNs; repeatable.",
)
@click.option(
    "--site",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="Write a static site into this folder: an index, and a page and data of each RUN.",
)
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File to write. Default: report.html in RUN, or NAME-published.html here.",
)
@language_option
@click.option("--open", "open_", is_flag=True, help="Open it in the browser.")
@click.option(
    "--probe",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Add this probe: the cost of a forward pass over n tokens, and the experts it reads.",
)
@click.option(
    "--figures",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write all charts as figures into this folder, instead of the page.",
)
@click.option(
    "--format",
    "formats",
    default="svg",
    show_default=True,
    metavar="LIST",
    help="Formats of figures, with commas: svg, png, pdf.",
)
@click.option(
    "--style",
    type=click.Choice(list(STYLES)),
    help="Figures for one column of a paper (8.5 cm, 7-point type) or two (17.5 cm, 8 points).",
)
@click.option("--width", type=Number(3, 100, whole=False), help="Width of figures in cm. Default: 16, or --style's.")
@click.option(
    "--tables",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write all tables (Markdown, CSV, LaTeX) and requests into this folder, instead of the page.",
)
@click.option(
    "--columns",
    metavar="LIST",
    help="Columns of the LaTeX tables, by their CSV names, such as arm,speedup. Default: all.",
)
def command(
    runs: tuple[str, ...],
    published: tuple[str, ...],
    site: Path | None,
    out: Path | None,
    languages: Sequence[str],
    open_: bool,
    probe: Path | None,
    figures: Path | None,
    formats: str,
    style: str | None,
    width: float | None,
    tables: Path | None,
    columns: str | None,
) -> None:
    """Write the results of RUN as one HTML page that works offline, or as figures and tables for a paper.

    RUN is a folder, the name of one under specmeter-runs/, or `latest` (the default). Figures need
    `uv pip install -e '.[figures]'` in a clone.

    --published shows the numbers that a document printed: which are impossible or implausible, what they say about each
    claim, and its tables and figures.

    --site writes a site that works on any web server or as files. Its index shows the answer of each run, and how many
    of each study's claims are supported, contradicted or undecided. Without RUN and --published it has everything under
    specmeter-runs/ that can be read. A site already in the folder is overwritten; other files there are an error.

    \b
    Examples:
      specmeter report --open
      specmeter report demo-20261121-101500 --lang zh --out demo.html
      specmeter report latest --figures figures --format pdf,png --style one
      specmeter report latest --tables tables --columns arm,speedup,acceptance
      specmeter report --published moe-306 --open
      specmeter report --published list
      specmeter report --site public
      specmeter report --site public results/monday moe-306-20261121-101500 --published moe-306
    """
    if out is not None and not out.suffix and not out.exists():
        out = out.with_name(f"{out.name}.html")
    if out is not None and site is None and figures is None and tables is None:
        refuse_others(out)  # before seconds go into a page
    if site is not None:
        _refuse_beside_site({"--out": out, "--probe": probe, "--figures": figures, "--tables": tables})
        written = _site(site, runs, published, languages)
    else:
        run, study = _only(runs, published)
        if study == "list":
            output().say_all(needed("--published list").list_published(), wrap=False)
            return
        shown = _published(study, probe, languages) if study else _named(run or "latest", probe, languages)
        written = list[Path]()
        if figures is not None:
            asked = [part.strip() for part in formats.split(",")]
            written += write_figures(
                list(shown.figures()), figures, asked, width or STYLES.get(style or "", 16.0), languages
            )
        if tables is not None:
            written += _tables(shown, tables, [it.strip() for it in columns.split(",")] if columns else [])
        if figures is None and tables is None:
            written += shown.page(out or shown.place, out is None and not study)
    output().say_all(map(str, written), wrap=False)
    if open_ and written:
        click.launch(written[0].resolve().as_uri())


def _tables(shown: Shown, folder: Path, columns: Sequence[str]) -> list[Path]:
    with whole_folder(folder):
        written = shown.tables(folder, columns)
        heads = {name for path in written if path.suffix == ".csv" for name in _head(path)}
        heads -= {f"{name}_{part}" for name in heads for part in ("low", "high", "level", "n", "of")}
        if unknown := [name for name in columns if name not in heads]:
            raise UsageError(f"--columns {unknown[0]}: in no table", fix=f"use one of {', '.join(sorted(heads))}")
    return written


def _head(path: Path) -> list[str]:
    with path.open(encoding="utf-8", newline="") as file:
        return next(csv.reader(file))


def _only(runs: Sequence[str], published: Sequence[str]) -> tuple[str | None, str | None]:
    """(the run, the published study): one of them, or neither."""
    if runs and published:
        raise UsageError(
            f"--published {published[0]}: shows a document's numbers, not those of {runs[0]}",
            fix="leave out RUN or --published; --site FOLDER takes both",
        )
    if len(named := (*runs, *published)) > 1:
        raise UsageError(
            f"report: {counted(len(named), 'run')} given, and a page shows one",
            fix="give one, or write a site of all with --site FOLDER",
        )
    return (runs[0] if runs else None), (published[0] if published else None)


def _refuse_beside_site(others: Mapping[str, object]) -> None:
    if given := [option for option, value in others.items() if value is not None]:
        raise UsageError(
            f"{', '.join(given)}: not with --site",
            fix=f"leave out {' and '.join(given)}, or --site",
        )


def _site(folder: Path, runs: Sequence[str], published: Sequence[str], languages: Sequence[str]) -> list[Path]:
    """The pages of the site, its index first."""
    from specmeter.show.page.site import write_site

    if runs or published:
        return write_site(folder, [find_run(run) for run in runs], languages, published)
    return write_site(folder, find_all(), languages, damaged=_say_left_out)


def _say_left_out(place: Path, error: UsageError) -> None:
    errors().say_all(f"left out: {place}: {error}".splitlines(), wrap=False)


def _named(run: str, probe: Path | None, languages: Sequence[str]) -> Shown:
    folder = find_run(run)
    sort = sort_of(folder)
    if sort is not None and sort != "run":
        _refuse_probe(probe, a_sort(sort))
        return needed(run).shown(folder, languages) if sort == "study" else _advised(folder, languages)
    document = read_document(folder, named=() if probe is None else [(probe.name, load_probe(probe))])
    if document.unread_study is not None:
        errors().say(f"this run is part of the study {document.unread_study}, whose claims are left out: {INSTALL}")
    return Shown(
        lambda: document_figures(document).values(),
        lambda to, only: write_tables(document, to, languages, only),
        lambda path, inside: [write_page(document, path, languages, inside=inside)],
        folder / REPORT_NAME,
    )


def _published(name: str, probe: Path | None, languages: Sequence[str]) -> Shown:
    _refuse_probe(probe, "a study")
    return needed(f"--published {name}").published(name, languages)


def _advised(folder: Path, languages: Sequence[str]) -> Shown:
    from specmeter.advise.schedule import read_advised
    from specmeter.show.page.advice_page import page_name, write_advised_page
    from specmeter.show.schedule_report import report_of

    found = read_advised(folder)
    report = report_of(found, folder)
    return Shown(
        report.figures,
        lambda to, only: write_report_tables(report, to, languages, only),
        lambda path, inside: write_advised_page(found, folder, path, languages, inside=inside),
        folder / page_name(found),
    )


def _refuse_probe(probe: Path | None, other: str) -> None:
    if probe is not None:
        raise UsageError(f"--probe {probe}: only for runs, not for {other}", fix="leave it out, or give a run")
