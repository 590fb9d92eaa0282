"""Text on a terminal."""

from __future__ import annotations

from specmeter.printable import counted, printable, printable_lines

__all__ = ["WIDTH", "counted", "printable", "printable_lines"]

WIDTH = 120
"""Of tables off a terminal: there is no width to respect there, and a wrapped table cannot be read."""
