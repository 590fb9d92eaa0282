"""Text for people: counts with their word, and text from outside made harmless.

That is text without control characters and without those that reverse it.
"""

from __future__ import annotations

LIMIT = 20_000


def printable(text: str) -> str:
    """`text` on one line; characters that a terminal would act on, or that reverse the text, become `�`."""
    return "".join(
        char if char.isprintable() else " " if char.isspace() else "\N{REPLACEMENT CHARACTER}" for char in text
    )


def printable_lines(text: str, limit: int = LIMIT) -> str:
    """The same, with its lines kept; cut where nobody would read on."""
    shown = text if len(text) <= limit else text[:limit] + "..."
    return "\n".join(printable(line) for line in shown.splitlines())


def counted(number: int, one: str, several: str = "") -> str:
    """`1 prompt`, `1,200 prompts`; `several` where the plural is not the word with an s."""
    return f"{number:,} {one if number == 1 else several or one + 's'}"
