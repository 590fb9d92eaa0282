"""`specmeter report`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specmeter.show.page.document import Document
    from specmeter.show.page.study_document import StudyDocument
    from specmeter.show.words import Language


@click.command(name="report")
@click.argument("run", required=False, metavar="[RUN]")
@click.option(
    "--published",
    metavar="NAME",
    help="Show a published study from its document's numbers instead of a run; `apple`: all studies on "
    "Apple machines; `list`: their names.",
)
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File to write; default: report.html in RUN, or NAME-published.html in this folder.",
)
@click.option(
    "--lang",
    type=click.Choice(["en", "zh", "both"]),
    default="both",
    show_default=True,
    help="Language; both: switch on the page.",
)
@click.option("--open", "open_", is_flag=True, help="Open it in the browser.")
@click.option(
    "--probe",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Probe of the target: adds the cost of a forward over n tokens, and the experts it reads.",
)
@click.option(
    "--figures",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write every chart as a figure into this folder, instead of the page.",
)
@click.option(
    "--format",
    "formats",
    default="svg",
    show_default=True,
    metavar="LIST",
    help="Format of figures: svg, png, pdf, or several with commas.",
)
@click.option(
    "--width", type=click.FloatRange(3, 100), default=16.0, show_default=True, help="Width of figures in centimetres."
)
@click.option(
    "--tables",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write the tables (Markdown, CSV, LaTeX) and every request into this folder, instead of the page.",
)
def command(
    run: str | None,
    published: str | None,
    out: Path | None,
    lang: str,
    open_: bool,
    probe: Path | None,
    figures: Path | None,
    formats: str,
    width: float,
    tables: Path | None,
) -> None:
    """Write the results of RUN as one HTML page that opens offline, or as figures and tables for a paper.

    RUN is a run folder or a study folder, the name of one under specmeter-runs/, or `latest` (the default: the latest
    run). The page loads nothing from elsewhere. Figures need `pip install 'specmeter[figures]'`.

    With --published, the page shows the numbers a document printed: which are impossible or implausible, what they say
    about each claim, and the document's tables and figures drawn from them.

    \b
    Examples:
      specmeter report --open
      specmeter report demo-20261121-101500 --lang zh --out demo.html
      specmeter report latest --figures figures --format pdf,png --width 8.5
      specmeter report latest --tables tables
      specmeter report --published moe-306 --open
      specmeter report --published list

    \b
    Exit codes: 0 written, 2 no such run or study, or a file that cannot be written.
    """
    from specmeter.errors import UsageError
    from specmeter.show.page.files import write_figures, write_page, write_study_page, write_study_tables, write_tables
    from specmeter.show.page.page import document_figures
    from specmeter.show.terminal.console import output
    from specmeter.show.words import LANGUAGES

    if published is not None and run is not None:
        raise UsageError(
            f"--published {published}: this shows a document's numbers, not those of {run}",
            fix="leave out RUN or --published",
        )
    if published == "list":
        _list_published()
        return
    languages: tuple[Language, ...] = ("en",) if lang == "en" else ("zh",) if lang == "zh" else LANGUAGES
    document, studies, page = _read(run or "latest", published, probe)
    written: list[Path] = []
    if figures is not None:
        drawn = document_figures(document).values() if document else [it for study in studies for it in study.figures]
        asked = [part.strip() for part in formats.split(",")]
        written += write_figures(drawn, figures, asked, width, languages)
    if tables is not None:
        written += (
            write_tables(document, tables, languages) if document else write_study_tables(studies, tables, languages)
        )
    if figures is None and tables is None:
        path, inside = out or page, out is None and published is None
        written.append(
            write_page(document, path, languages, inside=inside)
            if document
            else write_study_page(studies, path, languages, inside=inside)
        )
    output().say_all(map(str, written), wrap=False)
    if open_ and written:
        click.launch(written[0].resolve().as_uri())


def _read(run: str, published: str | None, probe: Path | None) -> tuple[Document | None, Sequence[StudyDocument], Path]:
    """(the run, or None; the studies where there is none; where the page goes unless another place is named)."""
    from specmeter.errors import UsageError
    from specmeter.show.page.document import read_document
    from specmeter.show.page.study_document import published_documents, read_study
    from specmeter.store.places import find_run, is_study
    from specmeter.store.run import REPORT_NAME
    from specmeter.studies.folder import StudyFolder

    folder = None if published else find_run(run)
    if folder is not None and not is_study(folder):
        return read_document(folder, probe=probe), (), folder / REPORT_NAME
    if probe is not None:
        raise UsageError(f"--probe {probe}: belongs to a run, not to a study", fix="leave it out, or name a run")
    if folder is not None:
        return None, (read_study(StudyFolder(folder)),), folder / REPORT_NAME
    assert published is not None
    return None, published_documents(published), Path(f"{published}-published.html")


def _list_published() -> None:
    from specmeter import studies
    from specmeter.show.page.study_document import GROUPS
    from specmeter.show.terminal.console import output

    screen = output()
    for name in studies.names():
        study = studies.find(name)
        printed = "" if study.published() is not None else " (printed no numbers)"
        screen.say(f"{name}: {study.title}{printed}", wrap=False)
    for name, members in GROUPS.items():
        screen.say(f"{name}: {', '.join(members)}", wrap=False)
