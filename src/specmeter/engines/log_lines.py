"""The lines of an engine's log, as the engine wrote them.

Logs are untrusted. They may be gigabytes, broken UTF-8, UTF-16 (a shell on Windows), full of colour codes and nul
bytes, one endless line, or carry the prefixes of docker, Kubernetes or journald. Nothing in here raises for what a log
contains, and nothing that is kept grows with the log.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from specmeter.errors import UsageError

MAX_LOG_LINE = 65_536
"""Characters kept of a line; the rest of a longer one is passed over."""
_READ_BLOCK = 262_144


def log_lines(path: Path) -> Iterator[str]:
    """Lines of a log without their ends, colour codes and nul bytes, each at most `MAX_LOG_LINE` characters.

    Raises `UsageError` when the file cannot be read.
    """
    try:
        with path.open("rb", buffering=0) as stream:
            yield from stream_lines(stream)
    except OSError as problem:
        raise UsageError(
            f"{path}: cannot read the log: {problem.strerror or problem}",
            fix="pass a log file that exists and is readable",
        ) from None


def stream_lines(stream: BinaryIO) -> Iterator[str]:
    """Lines of a stream of bytes, as `log_lines` gives them; a lone carriage return ends a line too."""
    block = stream.read(_READ_BLOCK)
    is_utf_16 = block.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    decoder = codecs.getincrementaldecoder("utf-16" if is_utf_16 else "utf-8-sig")("replace")
    rest = ""
    skipping = False
    while block:
        text = decoder.decode(block)
        if skipping:
            end = text.find("\n")
            if end < 0:
                block = stream.read(_READ_BLOCK)
                continue
            text, skipping = text[end:], False
        text = rest + text
        end = text.rfind("\n") + 1
        rest = text[end:]
        if end:
            yield from _clean_lines(text[: end - 1])
        if len(rest) > MAX_LOG_LINE:
            rest, skipping = rest[:MAX_LOG_LINE], True
        block = stream.read(_READ_BLOCK)
    rest += decoder.decode(b"", final=True) if not skipping else ""
    if rest:
        yield from _clean_lines(rest)


_COLOUR = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")


def _clean_lines(text: str) -> Iterator[str]:
    if "\x1b" in text:
        text = _COLOUR.sub("", text)
    if "\x00" in text:
        text = text.replace("\x00", "")
    if "\r" in text:
        text = text.replace("\r\n", "\n").rstrip("\r").replace("\r", "\n")
    for line in text.split("\n"):
        yield line if len(line) <= MAX_LOG_LINE else line[:MAX_LOG_LINE]


_WRAPPING = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)? +(?:std(?:out|err) [FP] )?"  # docker, CRI
    r"|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \S+ [^\s:\[]+(?:\[\d+\])?: "  # syslog, journald
    r"|\[\d{4}-\d\d-\d\d[^\]]{0,40}\] *|\[\d{1,7}\] "  # a time; llama-server's router: the port of a child
    r"|[A-Za-z0-9][\w.-]{0,63} +\| "  # docker compose
)
_STAMP = re.compile(r"\d{1,9}\.\d\d\.\d{3}\.\d{3} (?:([A-Z]) )? *|([IWED]) (?=\S)")


def plain(line: str) -> str:
    """The line as the engine wrote it: without docker's, journald's, JSON's or the engine's own prefixes."""
    return unwrapped(line)[1]


def unwrapped(line: str) -> tuple[str, str]:
    """The level that the engine printed (a letter, or nothing) and the line as the engine wrote it."""
    if line.startswith('{"') and ('"msg"' in line or '"log"' in line):
        line = _from_json(line)
    for _ in range(3):
        found = _WRAPPING.match(line)
        if found is None or line.startswith(("slot ", "srv ")):
            break
        line = line[found.end() :]
    found = _STAMP.match(line)
    if found is None:
        return "", line.strip()
    return found.group(1) or found.group(2) or "", line[found.end() :].strip()


def _from_json(line: str) -> str:
    try:
        entry: object = json.loads(line)
    except (ValueError, RecursionError):
        return line
    if not isinstance(entry, dict):
        return line
    for key in ("msg", "log"):
        text: object = entry.get(key)  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
        if isinstance(text, str):
            return text.rstrip("\r\n")
    return line


MAX_SAMPLE = 300
"""Characters kept of a sample line."""


def sample(line: str) -> str:
    """A line fit to be shown: printable, and no longer than `MAX_SAMPLE`."""
    text = plain(line)[: MAX_SAMPLE + 1]
    text = "".join(letter if letter.isprintable() else " " for letter in text)
    return text if len(text) <= MAX_SAMPLE else text[: MAX_SAMPLE - 3] + "..."
