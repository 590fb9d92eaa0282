"""The command `specmeter record`."""

from __future__ import annotations

import asyncio
import logging
import signal
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from specmeter.cli.usage import Number
from specmeter.errors import UsageError
from specmeter.extensions import installing
from specmeter.messages import Message
from specmeter.recorder.book import Book
from specmeter.show.terminal.console import errors, output
from specmeter.text import counted

if TYPE_CHECKING:
    from specmeter.recorder.proxy import Recorder


@click.command(name="record")
@click.option("--to", required=True, metavar="URL", help="The server that answers, such as http://127.0.0.1:8080.")
@click.option(
    "--port",
    type=Number(1, 65535),
    default=8081,
    show_default=True,
    help="Port on this machine for your program.",
)
@click.option("--out", required=True, type=click.Path(dir_okay=False, path_type=Path), help="File for the recording.")
@click.option(
    "--redact",
    multiple=True,
    metavar="REGEX",
    help="Replace what matches in all texts by [redacted]; repeatable.",
)
def command(to: str, port: int, out: Path, redact: tuple[str, ...]) -> int:
    """Record what a program asks of a model server, to repeat it later.

    Start your server as usual, then this command, and give your program http://127.0.0.1:8081 as the server's address
    (with /v1 if it had that). Everything is passed on unchanged. Ctrl-C ends the recording.

    The file has all messages, tools and replies of chat calls, and the server's times and counts. It has no headers, so
    no API keys. With an existing recording, new calls are added to it.

    Needs the extra `record` (aiohttp): `uv pip install -e '.[record]'` in a clone.

    \b
    Examples:
      specmeter record --to http://127.0.0.1:8080 --out my-agent.jsonl
      specmeter record --to http://127.0.0.1:8080 --port 9000 --out mine.jsonl --redact 'sk-[A-Za-z0-9]+'
      specmeter run big.gguf --draft small.gguf --sessions my-agent.jsonl
    """
    try:
        from specmeter.recorder.proxy import HOST, Recorder
    except ModuleNotFoundError as error:
        raise UsageError(f"record: the package {error.name} is not installed", fix=installing("record")) from None
    book = Book(out, to, redact)
    recorder = Recorder(to, port, book)
    screen = errors()
    logging.getLogger("aiohttp").setLevel(logging.CRITICAL)  # its messages quote headers
    recorder.on_problem = lambda error: screen.say(Message("record.problem", file=str(out), why=str(error)))
    recorder.on_start = lambda: screen.say(
        Message("record.address", address=f"http://{HOST}:{port}", to=to), wrap=False
    )
    if book.calls:
        screen.say(Message("record.there", calls=book.calls, file=str(out)))
    try:
        asyncio.run(_until_stopped(recorder))
    finally:
        book.close()
    if recorder.problem is not None:
        lost = counted(recorder.lost, "call")
        raise UsageError(f"--out {out}: {recorder.problem}; {lost} lost", fix="make room, or give another file")
    output().say(Message("record.done", calls=book.added, there=book.calls, file=str(out)))
    if recorder.unread or book.unread:
        screen.say(Message("record.unread", calls=recorder.unread, replies=book.unread))
    if recorder.broken_off:
        screen.say(Message("record.broken_off", calls=recorder.broken_off))
    if recorder.passed_on:
        paths = [Message("record.path", path=path, times=times) for path, times in recorder.passed_on.most_common(5)]
        screen.say(Message("record.passed_on", calls=recorder.passed_on.total(), paths=paths))
    if redact:
        screen.say(Message("record.redacted", times=book.redacted))
    return 0


async def _until_stopped(recorder: Recorder) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGINT, signal.SIGTERM):
        with suppress(NotImplementedError):  # Windows: Ctrl-C arrives as KeyboardInterrupt
            loop.add_signal_handler(name, stop.set)
    with suppress(KeyboardInterrupt, asyncio.CancelledError):
        await recorder.serve(stop)
