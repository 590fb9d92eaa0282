"""Asks the machine: reads small files of the kernel and runs short commands, any of which may give no answer.

Tried on Linux. The output of other systems is parsed by functions that are tested on recorded text.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path


def read_text(path: Path) -> str | None:
    """Content without surrounding white space; None where there is nothing to read."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace").strip().strip("\0")
    except OSError:
        return None
    return text or None


def read_int(path: Path) -> int | None:
    """Content as an integer; None where it is none."""
    text = read_text(path)
    try:
        return int(text) if text else None
    except ValueError:
        return None


def scaled(value: int | None, divisor: float) -> float | None:
    """`value` in another unit; None stays None."""
    return None if value is None else value / divisor


def run_command(argv: Sequence[str], *, timeout_s: float = 5.0) -> str | None:
    """What `argv` prints, or None where it is absent, fails, or takes longer than `timeout_s` seconds."""
    try:
        done = subprocess.run(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=timeout_s,
            check=True,
            encoding="utf-8",
            errors="replace",
        )
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    return done.stdout
