"""Run one short external command; absence, failure and slowness all read as "no answer"."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence


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
