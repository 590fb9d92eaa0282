"""Text from outside on a terminal: without control characters, so that it can do nothing there."""

from __future__ import annotations

import unicodedata


def clean(text: str, limit: int = 2_000) -> str:
    """`text` on one line: control, format and surrogate characters become spaces or vanish; cut at `limit`."""
    kept = (
        " " if character.isspace() else "" if unicodedata.category(character) in {"Cc", "Cf", "Cs", "Co"} else character
        for character in text[:limit]
    )
    return "".join(kept) + ("..." if len(text) > limit else "")
