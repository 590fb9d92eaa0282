"""Text on a terminal."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from specmeter.text import counted, printable, printable_lines

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["WIDTH", "counted", "output_console", "printable", "printable_lines"]

WIDTH = 120
"""Of tables off a terminal: there is no width to respect there, and a wrapped table cannot be read."""


def output_console(width: int = WIDTH) -> Console:
    """Console for what a command prints on standard output; `width` holds off a terminal only."""
    from rich.console import Console

    return Console(emoji=False) if sys.stdout.isatty() else Console(width=width, emoji=False)
