"""Numbers of a JSON object that comes from outside: positive, finite, of everyday size, or refused."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import cast

from specmeter.audit.read.numbers import LARGEST


def positive(item: Mapping[str, object], key: str) -> float | None:
    """The number under `key`; None where there is none. Raises `ValueError` for one that is no measured quantity."""
    value = item.get(key)
    if value is None or isinstance(value, (list, dict)):
        return None
    if isinstance(value, str):
        try:
            value = float(value) if len(value) < 64 else math.nan
        except ValueError:
            raise ValueError(f"{key} {value[:40]!r} is not a number") from None
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < LARGEST:
        return float(value)
    raise ValueError(f"{key} is {str(value)[:40]}: it must be a number above 0, and finite")


def count(item: Mapping[str, object], key: str) -> int | None:
    """The whole number >= 0 under `key`; None where there is none. Raises `ValueError` for anything else."""
    if item.get(key) in (0, "0", 0.0) and not isinstance(item.get(key), bool):
        return 0
    value = positive(item, key)
    if value is not None and value != int(value):
        raise ValueError(f"{key} is {value:g}: it must be a whole number")
    return None if value is None else int(value)


def text(item: Mapping[str, object], key: str) -> str:
    """The text under `key`, at most 160 characters; empty where there is none."""
    value = item.get(key)
    return value.strip()[:160] if isinstance(value, str) else ""


def inner(item: Mapping[str, object], key: str) -> Mapping[str, object]:
    """The object under `key`; an empty one where there is none."""
    value = item.get(key)
    return cast("Mapping[str, object]", value) if isinstance(value, dict) else {}
