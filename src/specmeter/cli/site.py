"""`specmeter site`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from specmeter.errors import UsageError


@click.command(name="site")
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.argument("runs", nargs=-1, metavar="[RUN]...")
@click.option(
    "--published",
    multiple=True,
    metavar="NAME",
    help="Also include a published study from its document's numbers (`apple`: several); repeatable.",
)
@click.option(
    "--lang", type=click.Choice(["en", "zh", "both"]), default="both", show_default=True, help="Language of the pages."
)
@click.option("--open", "open_", is_flag=True, help="Open the index in the browser.")
def command(folder: Path, runs: tuple[str, ...], published: tuple[str, ...], lang: str, open_: bool) -> None:
    """Build a static site of RUNs in FOLDER: an index, a page for each run or study, and its data to download.

    RUN is a run folder or a study folder, or the name of one under specmeter-runs/. Without RUN and --published, all of
    them are included; unreadable ones are left out, as stderr and the index say. The index shows the answer of each
    run, and for each study how many of its document's claims are supported, contradicted, or undecided.

    A site already in FOLDER is overwritten; a folder that holds anything else is refused. The pages load nothing from
    elsewhere and work on any web server or as files.

    \b
    Examples:
      specmeter site public
      specmeter site public results/monday results/tuesday --open
      specmeter site public moe-306-20261121-101500 --published moe-306

    \b
    Exit codes: 0 written, 2 no such run or study, a RUN that cannot be read, or a folder that cannot be used.
    """
    from specmeter.show.page.site import write_site
    from specmeter.show.terminal.console import output
    from specmeter.show.words import LANGUAGES, Language
    from specmeter.store.places import find_run, find_runs, find_studies

    languages: tuple[Language, ...] = ("en",) if lang == "en" else ("zh",) if lang == "zh" else LANGUAGES
    if runs or published:
        pages = write_site(folder, [find_run(run) for run in runs], languages, published)
    else:
        measured = [*find_studies(), *find_runs()]
        pages = write_site(folder, measured, languages, damaged=_say_left_out)
    output().say_all(map(str, pages), wrap=False)
    if open_:
        click.launch(pages[0].resolve().as_uri())


def _say_left_out(place: Path, error: UsageError) -> None:
    from specmeter.show.terminal.console import errors

    errors().say_all(f"left out: {place}: {error}".splitlines(), wrap=False)
