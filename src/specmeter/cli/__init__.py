"""The command line: one thin file per command, loaded when it is needed.

stdout is data, stderr is progress and errors. Exit codes: 0 ran and valid, 1 findings, 2 usage or experiment,
3 engine failed or output not written, 130 interrupted.

Standard output and standard error as they may be: closed, full, or in an encoding that lacks most letters.
"""

from __future__ import annotations

import codecs
import errno
import io
import os
import select
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, cast

import click

from specmeter import __version__, extensions
from specmeter.errors import SpecmeterError, UsageError, forget_stop
from specmeter.text import as_started, printable, printable_lines, program, quoted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from click.shell_completion import CompletionItem


COMMANDS = {
    "advise": "Find the fastest way to serve a model here, with proof.",
    "run": "Run an experiment, or resume it.",
    "list": "List bundled experiments and runs.",
    "show": "Show what a run found.",
    "check": "Check a run again: can its numbers be believed?",
    "explain": "Explain where the time of each arm went, and what limits it.",
    "predict": "Predict speedups from a probe, or from a catalogue alone.",
    "report": "Write what a run found as a web page, figures and tables; several as a site.",
    "serve": "Show runs in the browser while they are measured.",
    "compare": "Compare runs: two builds, two machines, two days.",
    "export": "Export a run as CSV, JSON Lines or Parquet.",
    "rescue": "Save what can be read of a damaged run into a new folder.",
    "audit": "Audit published results: which rows can be true?",
    "models": "List, build, inspect and compare models.",
    "probe": "Measure what a forward over n tokens costs, and which experts a text chooses.",
    "engines": "List installed engines and what they report; build llama.cpp's programs.",
    "doctor": "Show what this machine can measure and what is missing; measure its memory bandwidth.",
}
"""Name -> one line of help."""
_PLACES = {"list": "runs:list_runs", "show": "runs:show", "rescue": "runs:rescue"}
"""`MODULE:NAME` of those that are not `command` in `cli/NAME.py`."""

GROUPS = {
    "Measure and judge": ("run", "advise", "audit", "study", "report", "serve", "fleet"),
    "Read what was measured": ("list", "show", "check", "explain", "compare", "export", "rescue"),
    "Costs, models, quality": ("predict", "probe", "models", "quality"),
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
        for heading, names in (*GROUPS.items(), ("Of other packages", others)):
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
                f"specmeter {args[0]}: its first argument is empty",
                fix="see whether a variable of the shell is not set",
            )
        known = all_commands()
        if args and args[0] not in known and not args[0].startswith("-"):
            if args[0] in extensions.OF_STUDIES:
                raise extensions.not_installed(f"specmeter {args[0]}")
            if args[0] == "fleet":
                raise UsageError(
                    "specmeter fleet: a package of its own, which is not installed",
                    fix=f"install specmeter-fleet: {extensions.FLEET}",
                )
            near = difflib.get_close_matches(args[0], known, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            ctx.fail(f"There is no command {args[0]!r}.{hint}")
        return super().resolve_command(ctx, args)


def _refuse_little_memory() -> None:
    """numpy's library ends the process with 1, the code of findings, where it gets no memory; all of it is address
    space, which no other system limits."""
    if sys.platform == "linux":
        import resource

        soft, _ = resource.getrlimit(resource.RLIMIT_AS)
        if 0 <= soft < _LEAST_MEMORY:
            raise MemoryError


def flag(name: str) -> str:
    """How the command line writes the name of an argument: `--draft-rate` for `draft_rate`."""
    return f"--{name.replace('_', '-')}"


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
    help="Print the script that completes commands and options in bash, zsh or fish, for `>> ~/.bashrc`, `>> ~/.zshrc` "
    "or `> ~/.config/fish/completions/specmeter.fish`.",
)
@click.pass_context
def root(ctx: click.Context) -> None:
    """Find out whether speculative decoding really makes this model faster on this machine, and why.

    \b
    Start here:
      specmeter                     what is on this machine, and what to type next
      specmeter run demo            a real experiment on models that come with specmeter
      specmeter advise TARGET.gguf  how to serve your model fastest: which draft, which length, or none
      specmeter show RUN            what it found
      specmeter doctor              what this machine can measure
    """
    if ctx.invoked_subcommand is None:
        if not sys.stdout.isatty():
            click.echo(ctx.get_help())
            return
        from specmeter.cli.doctor import welcome

        welcome()


def main() -> None:
    """Entry point: runs a command and turns errors into messages and exit codes."""
    try:
        code = invoke(sys.argv[1:])
    except KeyboardInterrupt:  # a second one, while the first was being told
        code = 130
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # all is kept; a third could only end in a traceback
    sys.exit(code)


def invoke(argv: list[str]) -> int:
    """Run the command line `argv`; returns the exit code and never lets a traceback reach the user."""
    prepare_streams()
    try:
        result = root.main(args=argv, prog_name="specmeter", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except SpecmeterError as error:
        click.echo(f"error: {as_started(printable_lines(str(error)))}", err=True)
        return error.exit_code
    except click.exceptions.Exit as error:
        return error.exit_code
    except click.ClickException as error:
        if isinstance(error, click.UsageError) and error.ctx is not None:
            error.ctx.find_root().info_name = program()
        error.show()
        return error.exit_code
    except MemoryError:
        click.echo("error: there is not enough memory\n  fix: close other programs, or raise the limit", err=True)
        return 3
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        return 130
    except OSError as error:
        if error.errno in FULL:
            swallow()
            why = printable_lines(": ".join(map(str, filter(None, (error.strerror, error.filename)))))
            click.echo(f"error: the output could not be written ({why})\n  fix: make room for it", err=True)
            return 3
        if (fix := _FIXES.get(error.errno or 0)) is None:
            return _unexpected(error, argv)
        name = printable_lines(str(error.filename or "specmeter"))[:80]
        click.echo(f"error: {name}: {(error.strerror or '').lower()}\n  fix: {fix}", err=True)
        return 2
    except SystemExit:  # click's word (of `--help`) and rich's for a reader of standard output that went away
        return swallow()
    except Exception as error:
        return _unexpected(error, argv)
    finally:
        forget_stop()


def _unexpected(error: Exception, argv: Sequence[str]) -> int:
    """A defect in specmeter, in a package or study that it called, or in a run that was damaged where nothing looks:
    keep the traceback in a file, say where it is."""
    import tempfile
    import traceback

    from specmeter.store.database import DATABASE_NAME

    if os.environ.get("SPECMETER_DEBUG"):
        raise error
    with tempfile.NamedTemporaryFile(
        "w", prefix="specmeter-crash-", suffix=".txt", delete=False, encoding="utf-8"
    ) as file:
        traceback.print_exception(error, file=file)
    guest = _guest(error)
    run = next((it for it in argv if os.path.isfile(f"{it}/{DATABASE_NAME}")), None)  # noqa: PTH113  # never raises
    if guest is None and run is not None:
        who = f"{printable(run)} is damaged, or specmeter itself"
        fix = f"`specmeter rescue {quoted(run)}` saves what can be read; if nothing is damaged, please report it with"
    elif guest is None:
        who, fix = "specmeter itself", "please report it with the file"
    elif guest.endswith(".py"):
        who, fix = printable(guest), "correct that code; the traceback is in"
    else:
        who, fix = f"the engine of {printable(guest)}", "please report it to its authors with the file"
    click.echo(
        f"error: {who} failed ({type(error).__name__}: {printable(str(error))})\n"
        f"  fix: {fix} {file.name}; SPECMETER_DEBUG=1 shows the traceback",
        err=True,
    )
    return 3


def _guest(error: Exception) -> str | None:
    """The engine package, or the file of a user's study, in whose code this happened; None: in specmeter's own."""
    import traceback

    from specmeter.engines.registry import packages

    others = packages()
    for frame, _ in traceback.walk_tb(error.__traceback__):
        module = str(frame.f_globals.get("__name__", ""))
        if (package := others.get(module.partition(".")[0])) is not None:
            return package
        if module.startswith(extensions.OWN_CODE):
            return frame.f_code.co_filename
    return None


def prepare_streams() -> None:
    """Make both fit to print on.

    A closed one (`specmeter show RUN >&-`) swallows what is written to it. One that cannot say a letter (a folder's
    name in Chinese, where the locale knows ASCII alone) says its number instead: `\\u65e5`. A standard error that is
    full, as a log on a full disk, loses what is said to it: nothing ends for want of a message.
    """
    if os.name == "posix" and sys.stderr is not None and sys.stderr is sys.__stderr__ and not sys.stderr.isatty():
        sys.stderr = _forgiving(sys.stderr)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115  # open till the end
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


_LEAST_MEMORY = 256 * 2**20
_FIXES = {
    errno.ENAMETOOLONG: "give it a shorter name",
    errno.ELOOP: "name what the link should lead to",
    errno.EMFILE: "raise the limit of open files (`ulimit -n`)",
}
"""What to do about an error of the system that no command told better."""
FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG} if os.name == "posix" else {errno.ENOSPC, errno.EFBIG})
"""What the system says where nothing more fits."""


class _Forgiving(io.FileIO):
    """A file that loses what does not fit on its disk; that a reader has gone is still said."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data) or 0
        except OSError as error:
            if error.errno not in FULL:
                raise
            return len(data)


def _forgiving(stream: TextIO) -> TextIO:
    """The same file, through `_Forgiving`."""
    raw = io.BufferedWriter(_Forgiving(stream.fileno(), "wb", closefd=False))
    return io.TextIOWrapper(raw, stream.encoding, stream.errors, line_buffering=True, write_through=True)


class Printable(io.RawIOBase):
    """A binary stream whose text goes to a terminal, made harmless; data that goes elsewhere keeps every character."""

    def __init__(self, terminal: TextIO) -> None:
        self._terminal = terminal
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        for line in self._decoder.decode(bytes(data)).splitlines(keepends=True):
            text = line.rstrip("\r\n")
            self._terminal.write(printable(text) + ("\n" if line.endswith("\n") else ""))
        return len(data)


def reader_is_gone() -> bool:
    """Whether standard output is a pipe whose reader has gone (`specmeter show RUN | head -1`)."""
    if not hasattr(select, "poll"):
        return True  # Windows cannot be asked, and another pipe than that one hardly breaks
    poll = select.poll()
    try:
        poll.register(sys.stdout.fileno(), 0)
    except (OSError, ValueError):  # no descriptor of its own
        return False
    return any(event & select.POLLERR for _, event in poll.poll(0))


def swallow() -> int:
    """Let nothing complain of what is still to be written to a reader that is gone; the exit code: nothing is wrong."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0
