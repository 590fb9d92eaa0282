"""The group of all commands: it imports a command only when that runs, so that `--help` answers at once."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TYPE_CHECKING, cast

import click

from specmeter import __version__, extensions
from specmeter.cli.streams import reader_is_gone, swallow
from specmeter.errors import UsageError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

_MIN_MEMORY = 256 * 2**20

COMMANDS = {
    "advise": "Find the fastest flags for a model on this machine.",
    "run": "Run an experiment, or resume it.",
    "record": "Record what a program asks of a model server, to repeat it later.",
    "list": "List bundled experiments and earlier runs.",
    "show": "Show the results of a run.",
    "check": "Check a run again from its raw data.",
    "explain": "Show where each configuration spends its time.",
    "predict": "Predict speedups without measuring.",
    "report": "Write results as a web page, figures, tables or a site.",
    "serve": "Show runs in the browser while they are measured.",
    "compare": "Compare runs: two builds, two machines, two days.",
    "gate": "Check that a new build of an engine is not slower than the old one.",
    "export": "Export a run as CSV, JSON Lines or Parquet.",
    "rescue": "Save the readable part of a damaged run.",
    "audit": "Check published results: which rows cannot be true?",
    "models": "List, build, inspect and compare models.",
    "probe": "Measure the cost of a forward pass over n tokens.",
    "engines": "List engines; build llama.cpp's programs.",
    "doctor": "Show what this machine can measure; measure its memory bandwidth.",
}
"""Name -> one line of help."""
_PLACES = {"list": "runs:list_runs", "show": "runs:show", "rescue": "runs:rescue"}
"""`MODULE:NAME` of those that are not `command` in `cli/NAME.py`."""

GROUPS = {
    "Measure": ("advise", "run", "gate", "record", "study"),
    "Results": ("list", "show", "explain", "check", "compare", "report", "serve", "export", "rescue", "audit"),
    "Models and costs": ("predict", "probe", "models", "quality"),
    "This machine": ("doctor", "engines"),
}
"""Heading of the help -> its commands."""


def all_commands() -> dict[str, str]:
    """Those of other packages as well; see `specmeter.extensions`."""
    return COMMANDS | {name: it.about for name, it in extensions.commands().items() if name not in COMMANDS}


class _LazyGroup(click.Group):
    """A group that imports a command only when it runs, so that `--help` answers at once."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(all_commands())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        _refuse_little_memory()
        if cmd_name in COMMANDS:
            place = f"specmeter.cli.{_PLACES.get(cmd_name, f'{cmd_name}:command')}"
        elif (other := extensions.commands().get(cmd_name)) is not None:
            place = other.place
        else:
            return None
        return cast("click.Command", extensions.load(place))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        known = all_commands()
        grouped = {name for names in GROUPS.values() for name in names}
        others = tuple(name for name in known if name not in grouped)
        for heading, names in (*GROUPS.items(), ("Other packages", others)):
            if rows := [(name, known[name]) for name in names if name in known]:
                with formatter.section(heading):
                    formatter.write_dl(rows)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Names of commands without importing all of them."""
        from click.shell_completion import CompletionItem

        known = all_commands()
        return [
            *(CompletionItem(name, help=known[name]) for name in known if name.startswith(incomplete)),
            *click.Command.shell_complete(self, ctx, incomplete),
        ]

    def invoke(self, ctx: click.Context) -> object:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result
        except BrokenPipeError as error:
            # click takes any for one of standard output, and ends without a word.
            if not reader_is_gone():
                raise ConnectionError(str(error)) from error
            return swallow()

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        import difflib

        if len(args) > 1 and not args[1]:
            raise UsageError(
                f"specmeter {args[0]}: the first argument is empty",
                fix="check whether a shell variable is unset",
            )
        known = all_commands()
        if args and args[0] not in known and not args[0].startswith("-"):
            if args[0] in extensions.OF_STUDIES:
                raise extensions.not_installed(f"specmeter {args[0]}")
            _refuse_missing_extra(args[0])
            near = difflib.get_close_matches(args[0], known, n=1)
            fix = f"write `specmeter {near[0]}`" if near else "see `specmeter --help`"
            raise UsageError(f"specmeter {args[0][:80]}: no such command", fix=fix)
        return super().resolve_command(ctx, args)


def _refuse_little_memory() -> None:
    """numpy's library ends the process with 1, the code of findings, where it gets no memory; all of it is address
    space, which no other system limits."""
    if sys.platform == "linux":
        import resource

        soft, _ = resource.getrlimit(resource.RLIMIT_AS)
        if 0 <= soft < _MIN_MEMORY:
            raise MemoryError


def _refuse_missing_extra(name: str) -> None:
    """Say how to install the package whose command this is, if it is an extra of specmeter."""
    from importlib.metadata import PackageNotFoundError, metadata

    with suppress(PackageNotFoundError):
        if name in (metadata("specmeter").get_all("Provides-Extra") or ()):
            raise UsageError(
                f"specmeter {name}: its package is not installed",
                fix="in a clone of specmeter, run `uv sync --inexact` "
                f"(with pip: `pip install ./packages/specmeter-{name}`)",
            )


def _completion(ctx: click.Context, _: click.Parameter, shell: str | None) -> None:
    if shell is None:
        return
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    if kind is None:  # click knows all three
        raise click.UsageError(f"no completion for {shell}")
    click.echo(kind(root, {}, "specmeter", "_SPECMETER_COMPLETE").source())
    ctx.exit()


@click.group(
    cls=_LazyGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="specmeter")
@click.option(
    "--completion",
    type=click.Choice(["bash", "zsh", "fish"]),
    metavar="SHELL",
    is_eager=True,
    expose_value=False,
    callback=_completion,
    help="Print the completion script for bash (append it to ~/.bashrc), zsh (~/.zshrc) or fish "
    "(~/.config/fish/completions/specmeter.fish).",
)
@click.pass_context
def root(ctx: click.Context) -> None:
    """Measure whether speculative decoding makes your model faster on this machine, and why.

    \b
    Start here:
      specmeter                     models on this machine, and what to type next
      specmeter run demo            a real experiment with bundled models
      specmeter advise TARGET.gguf  the fastest flags for your model: draft model, draft length, or no speculation
      specmeter show                the results
      specmeter doctor              what this machine can measure

    \b
    Exit codes: 0 done, 1 some numbers are invalid, 2 wrong input, or a file that cannot be read or written, 3 an engine
    failed, or memory or disk is full, 130 interrupted (the same command resumes). Commands with other codes list them.
    """
    if ctx.invoked_subcommand is None:
        if not sys.stdout.isatty():
            click.echo(ctx.get_help())
            return
        from specmeter.cli.doctor import welcome

        welcome()
