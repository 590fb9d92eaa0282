"""Text from outside on a terminal: without control characters, so that it can do nothing there."""

from __future__ import annotations

LIMIT = 20_000
WIDTH = 120
"""Of tables off a terminal: there is no width to respect there, and a wrapped table cannot be read."""


def printable(text: str) -> str:
    """`text` on one line; characters that a terminal would act on, or that reverse the text, become `�`."""
    return "".join(
        char if char.isprintable() else " " if char.isspace() else "\N{REPLACEMENT CHARACTER}" for char in text
    )


def printable_lines(text: str) -> str:
    """The same, with its lines kept; cut where nobody would read on."""
    shown = text if len(text) <= LIMIT else text[:LIMIT] + "..."
    return "\n".join(printable(line) for line in shown.splitlines())
