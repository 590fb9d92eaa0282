"""`specmeter site`."""

from __future__ import annotations

from pathlib import Path

import click


@click.command(name="site")
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.argument("runs", nargs=-1, metavar="[RUN]...")
@click.option(
    "--lang", type=click.Choice(["en", "zh", "both"]), default="both", show_default=True, help="Language of the pages."
)
@click.option("--open", "open_", is_flag=True, help="Open the index in the browser.")
def command(folder: Path, runs: tuple[str, ...], lang: str, open_: bool) -> None:
    """Build a static site of RUNs in FOLDER: an index, a page for each study, and its data to download.

    Without RUN all runs under specmeter-runs/ are shown. A site that FOLDER holds already is written over; a folder
    with anything else in it is refused. The pages load nothing and can be put on any web server, or opened as files.

    \b
    Examples:
      specmeter site public
      specmeter site public results/monday results/tuesday --open

    \b
    Exit codes: 0 written, 2 no such run, or a folder that cannot be used.
    """
    from specmeter.laboratory import find_run, find_runs
    from specmeter.report.site import write_site
    from specmeter.report.words import LANGUAGES, Language

    languages: tuple[Language, ...] = ("en",) if lang == "en" else ("zh",) if lang == "zh" else LANGUAGES
    folders = [find_run(run) for run in runs] if runs else find_runs()
    pages = write_site(folder, folders, languages)
    for page in pages:
        click.echo(str(page))
    if open_:
        click.launch(pages[0].resolve().as_uri())
