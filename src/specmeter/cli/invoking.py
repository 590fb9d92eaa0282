"""A command line from its words to an exit code: whatever fails becomes a message.

stdout is data, stderr is progress and errors. Exit codes: 0 ran and valid, 1 findings, 2 usage or experiment,
3 engine failed or output not written, 130 interrupted.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
from typing import TYPE_CHECKING

import click

from specmeter import extensions
from specmeter.cli.commands import root
from specmeter.cli.streams import FULL, prepare_streams, swallow
from specmeter.cli.usage import explained
from specmeter.errors import SpecmeterError, forget_stop, stop_asked
from specmeter.text import as_started, printable, printable_lines, program, quoted

if TYPE_CHECKING:
    from collections.abc import Sequence

_FIXES = {
    errno.ENAMETOOLONG: "give it a shorter name",
    errno.ELOOP: "name what the link should lead to",
    errno.EMFILE: "raise the limit of open files (`ulimit -n`)",
}
"""What to do about an error of the system that no command told better."""


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
        result = root.main(args=argv, prog_name="specmeter", standalone_mode=False, obj=tuple(argv))
        return result if isinstance(result, int) else 0
    except SpecmeterError as error:
        return _refused(error)
    except click.exceptions.Exit as error:
        return error.exit_code
    except click.ClickException as error:
        if isinstance(error, click.UsageError) and (told := explained(error, argv)) is not None:
            return _refused(told)
        if isinstance(error, click.UsageError) and error.ctx is not None:
            error.ctx.find_root().info_name = program()
        error.show()
        return error.exit_code
    except MemoryError:
        click.echo("error: there is not enough memory\n  fix: close other programs, or raise the limit", err=True)
        return 3
    except (click.Abort, KeyboardInterrupt):
        return _interrupted()
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
        # Pydantic reports a Ctrl-C while it serializes as an error of its own.
        return _interrupted() if stop_asked() else _unexpected(error, argv)
    finally:
        forget_stop()


def _interrupted() -> int:
    click.echo("interrupted", err=True)
    return 130


def _refused(error: SpecmeterError) -> int:
    click.echo(f"error: {as_started(printable_lines(str(error)))}", err=True)
    return error.exit_code


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
