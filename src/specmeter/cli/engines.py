"""The command `specmeter engines`: lists engines, and builds those that need building."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from specmeter.cli.usage import Number
from specmeter.engines.llama_cpp.build import BACKENDS, BuildSpec
from specmeter.engines.llama_cpp.build import build as make
from specmeter.engines.llama_cpp.tools import BINARY_VARIABLE, BUILD_COMMAND, PROGRAMS, Build, builds, find_program
from specmeter.engines.registry import survey
from specmeter.errors import UsageError
from specmeter.models.reference import resolve
from specmeter.show.terminal.console import errors, output, say_json
from specmeter.show.terminal.engines import print_engines
from specmeter.show.terminal.progress import part_progress


@click.group(name="engines", invoke_without_command=True)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def command(context: click.Context, as_json: bool) -> None:
    """List the installed engines and what each reports; build llama.cpp's programs.

    An engine generates the tokens. A check that needs data the engine does not report is skipped, which is not a pass.
    Other packages can add engines (docs/how-to/write-an-engine.md).

    The bundled engine is enough for most uses. llama.cpp's own programs add GPUs that the installed wheel does not
    support (llama-server), a second opinion on perplexity and rates (llama-perplexity, llama-bench), and draft models
    on another machine (ggml-rpc-server).

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
            raise UsageError(
                "--json: before the command", fix=f"write `specmeter engines {context.invoked_subcommand} --json`"
            )
        return
    reports = survey()
    if as_json:
        say_json({"engines": [it.model_dump(mode="json") for it in reports]})
        return
    print_engines(reports)


@command.command()
@click.option("--cuda", is_flag=True, help="For NVIDIA GPUs; needs the CUDA Toolkit.")
@click.option("--metal", is_flag=True, help="For Apple GPUs; the default on a Mac.")
@click.option("--vulkan", is_flag=True, help="For any GPU; needs the Vulkan SDK.")
@click.option("--hip", is_flag=True, help="For AMD GPUs; needs ROCm.")
@click.option("--sycl", is_flag=True, help="For Intel GPUs; needs oneAPI.")
@click.option(
    "--tuned",
    is_flag=True,
    help="Use all instruction sets of this processor. Default: those of the installed wheel (AVX2 on x86-64).",
)
@click.option(
    "--source",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="Your llama.cpp source folder. Default: sources of nearly the wheel's version, downloaded by pip.",
)
@click.option("--cmake", "options", multiple=True, metavar="OPTION", help="Extra cmake option; repeatable.")
@click.option("--jobs", type=Number(1, 1024), help="Parallel compile jobs. Default: what cores and memory allow.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
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
    """Build llama-server, llama-quantize, llama-perplexity, llama-bench, llama-batched-bench and ggml-rpc-server.

    Experiments with `engine: {kind: native}`, quality plans and studies then use the latest build;
    SPECMETER_LLAMA_SERVER overrides it. Needs cmake and a C++ compiler. Takes about ten minutes on two cores, longer
    with a GPU; after Ctrl-C or a failure the same command continues. RPC is on, HTTPS and web pages are off.

    \b
    Examples:
      specmeter engines build
      specmeter engines build --cuda --cmake=-DCMAKE_CUDA_ARCHITECTURES=86
      specmeter engines build --tuned --jobs 4
      specmeter engines build --source ~/llama.cpp --vulkan
    """
    asked = {"cuda": cuda, "metal": metal, "vulkan": vulkan, "hip": hip, "sycl": sycl}
    spec = BuildSpec(
        backends=tuple(name for name in BACKENDS if asked[name]),
        tuned=tuned,
        cmake=options,
        source=source,
        jobs=jobs,
    )
    try:
        with part_progress(errors(), verb="", tenths=True) as heard:
            made = make(spec, lambda: resolve("trial", "bench:draft-small", base_dir=Path()).path, heard)
    except KeyboardInterrupt:
        errors().say("interrupted; compiled files are kept, and the same command continues")
        return 130
    if as_json:
        say_json(_shown(made))
        return 0
    output().say_all(map(str, made.programs.values()), wrap=False)
    if find_program("llama-server") != made.programs.get("llama-server"):
        errors().say(f"not in use: {BINARY_VARIABLE} names another llama-server; unset it to use this build")
    return 0


@command.command(name="list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_builds(as_json: bool) -> None:
    """List llama.cpp's programs in use here, and the builds of `specmeter engines build`.

    \b
    Examples:
      specmeter engines list
      specmeter engines list --json | jq -r '.programs["llama-quantize"]'
    """
    programs = {name: find_program(name) for name in PROGRAMS}
    made = builds()
    if as_json:
        answer = {
            "programs": {name: str(path) if path else None for name, path in programs.items()},
            "builds": [_shown(item) for item in made],
        }
        say_json(answer)
        return
    screen, width = output(), max(map(len, PROGRAMS))
    screen.say_all((f"{name:{width}}  {path or 'not found'}" for name, path in programs.items()), wrap=False)
    if not made:
        screen.line()
        screen.say(f"nothing built yet; `{BUILD_COMMAND}` builds all programs")
    for number, item in enumerate(made):
        record = item.record
        lacking = [name for name in PROGRAMS if name not in item.programs]
        screen.line()
        lines = [
            f"{'last build' if number == 0 else 'earlier build'}: {item.path}",
            f"  {record.version}, from {record.source}, {_when(record.built_at)}",
            f"  {' '.join(record.options)}",
            *([f"  without {', '.join(lacking)}"] if lacking else []),
        ]
        screen.say_all(lines, wrap=False)


def _shown(made: Build) -> dict[str, Any]:
    return {
        **made.record.model_dump(mode="json", exclude={"format", "folder"}),
        "path": str(made.path),
        "programs": {name: str(path) for name, path in made.programs.items()},
    }


def _when(seconds: float) -> str:
    try:
        return f"{datetime.fromtimestamp(seconds, UTC).astimezone():%Y-%m-%d %H:%M}"
    except (OverflowError, OSError, ValueError):
        return "at an unknown time"
