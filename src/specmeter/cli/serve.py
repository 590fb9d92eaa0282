"""The command `specmeter serve`, and the page next to `specmeter run --watch`."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

import click
import psutil

from specmeter.cli.settings import language_option
from specmeter.cli.usage import Number
from specmeter.errors import UsageError
from specmeter.show.page.live import Pages
from specmeter.show.page.server import PageServer
from specmeter.show.terminal.console import Screen, errors, output
from specmeter.store.locate import RUNS_FOLDER, find_run

_NICE = 10
"""Below what is measured."""
_LOOK_S = 1.0
"""Between looks at whether to end."""


@click.command(name="serve")
@click.argument("what", default=str(RUNS_FOLDER), metavar="[RUN|FOLDER]")
@click.option(
    "--port",
    type=Number(0, 65535),
    default=8765,
    show_default=True,
    help="Port; 0: any free one.",
)
@language_option
@click.option("--tied", is_flag=True, hidden=True, help="End with standard input.")
def command(what: str, port: int, languages: Sequence[str], tied: bool) -> int:
    """Show runs in the browser while they are measured, and afterwards.

    FOLDER has runs, advices, schedules and studies (default: specmeter-runs/); RUN is one of them. The page of an
    unfinished run shows its progress, interim speedups and the time left; that of a finished one is the report. Tick
    two runs to compare them.

    Only this machine can see the pages; from elsewhere use `ssh -L 8765:127.0.0.1:8765 MACHINE`. Nothing in FOLDER is
    changed, and almost no processor time is used while a run is measured.

    \b
    Examples:
      specmeter serve
      specmeter serve results --port 0
      specmeter serve latest
    """
    folder = Path(what).expanduser()
    folder = folder if folder.is_dir() else find_run(what)
    if not folder.is_dir():
        raise UsageError(f"{what}: not a folder", fix="give a folder; `specmeter run demo` makes one")
    with suppress(psutil.Error, OSError):
        psutil.Process().nice(_NICE if os.name == "posix" else psutil.BELOW_NORMAL_PRIORITY_CLASS)
    with (
        PageServer(Pages(folder, languages), port) as server,
        suppress(KeyboardInterrupt),
    ):
        output().say(server.address, wrap=False)
        sys.stdout.flush()
        if tied:
            threading.Thread(target=_end_with_input, args=(server,), daemon=True).start()
        else:
            errors().say("only this machine can see it; stop with Ctrl-C")
        server.serve_forever(poll_interval=_LOOK_S)
    return 0


def _end_with_input(server: PageServer) -> None:
    with suppress(OSError, ValueError):
        sys.stdin.buffer.read()
    server.shutdown()


@contextmanager
def watching(folder: Path, screen: Screen) -> Generator[Callable[[], None]]:
    """Serve the page of a run that is about to be measured into `folder`, from a process of its own that ends with this
    one. Gives what waits at the end, on a terminal, until Ctrl-C."""
    with suppress(OSError):  # the run itself will say so
        folder.parent.mkdir(parents=True, exist_ok=True)
    asked = [sys.executable, "-P", "-m", "specmeter", "serve", str(folder.parent.absolute()), "--port", "0", "--tied"]
    with subprocess.Popen(
        asked,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=os.name == "posix",  # Ctrl-C is for the run
        creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        try:
            address = server.stdout.readline().strip()
            if not address:
                raise UsageError("--watch: the page cannot be served", fix="leave it out, or fix the error above")
            page = f"{address}{quote(os.fsencode(folder.absolute().name), safe='')}/"
            screen.say(f"watch it at {page}", wrap=False)

            def wait() -> None:
                if sys.stderr.isatty():
                    screen.say(f"the report is at {page}; stop with Ctrl-C", wrap=False)
                    with suppress(KeyboardInterrupt):
                        server.wait()

            yield wait
        finally:
            server.stdin.close()
