"""What surrounds a command: streams that may be closed, full, or in an encoding that lacks most letters; requests to
stop."""

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
from time import monotonic
from typing import Any, TextIO

from specmeter.errors import ask_to_stop
from specmeter.text import printable

ONE_PRESS_S = 0.5
"""Ctrl-C this soon after the last one is the same one: `uv run` hands on what the terminal sent as well."""


FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG} if os.name == "posix" else {errno.ENOSPC, errno.EFBIG})
"""What the system says where nothing more fits."""


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


def stop_like_ctrl_c() -> None:
    """A polite request to end (`kill`, a closed terminal, a shutdown) leaves the run as Ctrl-C does.

    One that follows within `ONE_PRESS_S` is not heard, so that none interrupts the telling of what is kept; a later one
    ends even what hangs while it stops.
    """
    at = -ONE_PRESS_S

    def interrupt(*_: object) -> None:
        nonlocal at
        now = monotonic()
        if now - at >= ONE_PRESS_S:
            at = now
            ask_to_stop()

    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        # In the background of a shell Ctrl-C is ignored, and stays so.
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, interrupt)
