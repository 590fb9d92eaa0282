"""What tables, figures and shared rules of a study look at: rows by the name of their kind, quantities by name.

    arms, arms_by_text, arms_by_length   `ArmResult`: over all prompts, per kind of text, per length of prompts
    results                              `Result`: single requests
    models                               `ModelUsed`
    pairs, pairs_by_text                 `pairings.Pairing`: an arm with the rates of its draft and its target alone
    rungs                                `rungs.Rung`: a model of a quality measurement

Any other kind is made by a function of the study's own folder, `FILE.FUNCTION`. A quantity is the name of a field or
property of such a row, or of one of its parts (`line.speedup`). Nothing is computed here and nothing evaluated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, cast

from specmeter.errors import UsageError
from specmeter.messages import Message
from specmeter.record import Estimate, Record
from specmeter_studies.definition import Selection
from specmeter_studies.pairings import pairings
from specmeter_studies.rungs import rungs
from specmeter_studies.study import ArmResult, StudyCell, StudyData

Value = str | Message | float | bool | Estimate | StudyCell | None
Make = Callable[[str], Callable[[StudyData], Any]]
"""Finds a function of the study's own."""
Row = Any
"""A record or a dataclass, whose fields and properties are quantities; or a mapping of names to them."""


KINDS: Mapping[str, Callable[[StudyData], Iterable[Row]]] = {
    "arms": lambda data: data.whole,
    "arms_by_text": lambda data: (line for line in data.arms if line.prompt is not None),
    "arms_by_length": lambda data: sorted(
        (line for line in data.arms if line.prompt_tokens is not None), key=lambda line: line.prompt_tokens or 0
    ),
    "results": lambda data: data.results,
    "models": lambda data: data.models,
    "pairs": pairings,
    "pairs_by_text": lambda data: pairings(data, by_prompt=True),
    "rungs": rungs,
}


def selected(data: StudyData, wanted: Selection, make: Make) -> list[Row]:
    """The rows of a kind that are as wanted; `make` finds the study's own functions. Raises `UsageError`."""
    source = KINDS.get(wanted.rows) or make(wanted.rows)
    return [row for row in source(data) if meets(row, wanted.where)]


def meets(row: Row, where: Mapping[str, object]) -> bool:
    """Whether the named quantities have one of the values that are listed for them."""
    return all(
        value(row, name) in (asked if isinstance(asked, Sequence) and not isinstance(asked, str) else (asked,))
        for name, asked in where.items()
    )


def value(row: Row, path: str) -> Any:
    """A quantity of a row; None where it, or the part that it is of, is missing. Raises `UsageError` for no such."""
    found: Any = row
    for name in path.split("."):
        if found is None:
            return None
        known = _quantities(found)
        if name not in known:
            kind = cast("type[object]", type(found)).__name__
            raise UsageError(
                f"{path}: {kind} has no quantity {name!r}",
                fix=f"use one of: {', '.join(sorted(known)) or 'none'}",
            )
        found = cast("dict[str, Any]", found)[name] if isinstance(found, dict) else getattr(found, name)
    return found


def shown(row: Row, path: str) -> Value:
    """A quantity that can stand in a table: text, a number, an estimate, or a ready cell. Raises `UsageError`."""
    found = value(row, path)
    if found is None or isinstance(found, (str, Message, int, float, bool, Estimate, StudyCell)):
        return found
    raise UsageError(f"{path}: {type(found).__name__} is not one value", fix=f"select a part of it: {path}.NAME")


def estimate(row: Row, path: str) -> Estimate | float | None:
    """A quantity that can be compared. Raises `UsageError` for text."""
    found = shown(row, path)
    if found is None or isinstance(found, (int, float, Estimate)):
        return found
    raise UsageError(f"{path}: text cannot be compared with a number", fix="select a quantity that is a number")


def line_of(row: Row) -> ArmResult | None:
    """The arm that a row is about, whose verdict decides whether it counts; None for rows without one."""
    found = row if isinstance(row, ArmResult) else value(row, "line") if "line" in _quantities(row) else None
    return found if isinstance(found, ArmResult) else None


def name_of(row: Row) -> str | Message:
    """How sentences call a row: its `name`, else its configuration, else its prompt."""
    for name in ("name", "config", "title", "subject", "prompt"):
        if name in _quantities(row):
            found = value(row, name)
            return found if isinstance(found, Message) else str(found)
    return type(row).__name__


def _quantities(row: Row) -> frozenset[str]:
    """Public fields and properties of a row."""
    if isinstance(row, dict):
        return frozenset(cast("dict[str, Any]", row))
    kind = cast("type[Any]", type(row))
    names = {name for name in dir(kind) if isinstance(getattr(kind, name, None), property)}
    if issubclass(kind, Record):
        names |= kind.model_fields.keys()
        names -= {"model_extra", "model_fields_set"}
    elif is_dataclass(kind):
        names |= {field.name for field in fields(kind)}
    else:  # a named tuple, or nothing that has quantities
        names = set(getattr(kind, "_fields", ()))
    return frozenset(name for name in names if not name.startswith("_"))
