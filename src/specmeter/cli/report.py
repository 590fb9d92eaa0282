"""`specmeter report`."""

from __future__ import annotations

from pathlib import Path

import click


@click.command(name="report")
@click.argument("run", default="latest")
@click.option(
    "--out", type=click.Path(dir_okay=False, path_type=Path), help="File to write; default: report.html in RUN."
)
@click.option(
    "--lang",
    type=click.Choice(["en", "zh", "both"]),
    default="both",
    show_default=True,
    help="Language; both: a switch on the page.",
)
@click.option("--open", "open_", is_flag=True, help="Open it in the browser.")
@click.option(
    "--probe",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Probe of the target: adds the cost of a forward over n tokens and the experts it touches.",
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
    help="Of figures: svg, png, pdf, or several with commas.",
)
@click.option(
    "--width", type=click.FloatRange(3, 100), default=16.0, show_default=True, help="Of figures, in centimetres."
)
@click.option(
    "--tables",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write the tables (Markdown, CSV, LaTeX) and every request into this folder, instead of the page.",
)
def command(
    run: str,
    out: Path | None,
    lang: str,
    open_: bool,
    probe: Path | None,
    figures: Path | None,
    formats: str,
    width: float,
    tables: Path | None,
) -> None:
    """Write what RUN found as one HTML page that anybody can open, offline; or as figures and tables for a paper.

    RUN is a run folder, the name of one under specmeter-runs/, or `latest` (the default). The page holds everything it
    shows and loads nothing. Figures need `pip install 'specmeter[figures]'`.

    \b
    Examples:
      specmeter report --open
      specmeter report demo-20261121-101500 --lang zh --out demo.html
      specmeter report latest --figures figures --format pdf,png --width 8.5
      specmeter report latest --tables tables

    \b
    Exit codes: 0 written, 2 no such run, or a file that cannot be written.
    """
    from specmeter.laboratory import find_run
    from specmeter.report.document import read_document
    from specmeter.report.files import write_figures, write_page, write_tables
    from specmeter.report.words import LANGUAGES, Language

    folder = find_run(run)
    languages: tuple[Language, ...] = ("en",) if lang == "en" else ("zh",) if lang == "zh" else LANGUAGES
    document = read_document(folder, probe=probe)
    written: list[Path] = []
    if figures is not None:
        written += write_figures(document, figures, [part.strip() for part in formats.split(",")], width, languages)
    if tables is not None:
        written += write_tables(document, tables, languages)
    if figures is None and tables is None:
        written.append(write_page(document, out or folder / "report.html", languages))
    for path in written:
        click.echo(str(path))
    if open_ and written:
        click.launch(written[0].resolve().as_uri())
