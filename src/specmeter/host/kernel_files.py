"""Read small files of /proc and /sys, where any of them may be missing, unreadable or empty."""

from __future__ import annotations

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
