"""Tables and figures of a study as its `study.yaml` describes them: rows, and a quantity for each column or axis."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from specmeter.messages import Message, Value
from specmeter.numbers.estimates import scaled
from specmeter.record import Estimate
from specmeter_studies.selection import Make, Row, line_of, name_of, selected, shown, value
from specmeter_studies.study import ArmResult, Axis, Point, StudyCell, StudyFigure, StudyTable

if TYPE_CHECKING:
    from specmeter_studies.definition import AxisForm, ColumnForm, FigureForm, TableForm
    from specmeter_studies.study import StudyData


_UNITS = {("1", 100): "%", ("B/s", 1e-9): "GB/s", ("s", 1000): "ms"}
"""(unit, factor) -> unit of what is shown."""

_OWN = ("acceptance", "tau", "decode_rate", "draft_rate")
"""Quantities that are as false as the speedup of their arm."""


def table(data: StudyData, form: TableForm, make: Make) -> StudyTable | None:
    """One line per row; None where there are none. Raises `UsageError` for rows and quantities that are not there."""
    rows = selected(data, form, make)
    if not rows:
        return None
    tell = _teller(data, form.fill, make)
    return StudyTable(
        key=form.key,
        title=tell(form.title),
        about=tell(form.about) if form.about else None,
        columns=tuple(tell(column.title) for column in form.columns),
        rows=tuple(tuple(_cell(row, column) for column in form.columns) for row in rows),
        verdicts=() if form.verdict is None else tuple(value(row, form.verdict) for row in rows),
    )


def figure(data: StudyData, form: FigureForm, make: Make) -> StudyFigure | None:
    """One mark per row that has both numbers; None where none has. Raises `UsageError` as `table` does."""
    rows = selected(data, form, make)
    points = tuple(point for row in rows if (point := _point(row, form)) is not None)
    if not points:
        return None
    tell = _teller(data, form.fill, make)
    return StudyFigure(
        key=form.key,
        title=tell(form.title),
        about=tell(form.about) if form.about else None,
        kind=form.kind,
        x=_axis(form.x, rows),
        y=_axis(form.y, rows),
        series_title=tell(form.series_title) if form.series_title else None,
        points=points,
    )


def _teller(data: StudyData, fill: str | None, make: Make) -> Callable[[str], Message]:
    """Makes messages of texts, with the values of the {names} in them."""
    values: Mapping[str, Value] = {} if fill is None else make(fill)(data)

    def tell(text: str) -> Message:
        return Message(text, **{name: it for name, it in values.items() if re.search(rf"{{{name}[:}}]", text)})

    return tell


def _cell(row: Row, column: ColumnForm) -> StudyCell:
    found = shown(row, column.of)
    if isinstance(found, StudyCell):
        return found
    if column.words and (told := column.words.get(str(found))) is not None:
        return StudyCell(text=_text_of(told))
    if found is None or found == "":
        return StudyCell(text=_text_of(column.none))
    if isinstance(found, (str, Message, bool)):
        return StudyCell(text=str(found) if isinstance(found, bool) else found)
    struck = _is_of_a_false_line(row, column.of) if column.struck is None else bool(value(row, column.struck))
    return StudyCell(text=_text_of(column.none), value=_times(found, column.times), digits=column.digits, struck=struck)


def _text_of(text: str) -> Message | str:
    """Words of `study.yaml`, which languages have their own for; a dash is a dash."""
    return Message(text) if any(map(str.isalpha, text)) else text


def _is_of_a_false_line(row: Row, path: str) -> bool:
    """Whether the quantity is what an invalid arm measured or claims itself, not what its models do alone."""
    parent, _, name = path.rpartition(".")
    owner = value(row, parent) if parent else row
    line = owner if isinstance(owner, ArmResult) else line_of(row)
    return name in _OWN and line is not None and line.of_rate == "invalid"


def _point(row: Row, form: FigureForm) -> Point | None:
    x, y = (shown(row, axis.of) for axis in (form.x, form.y))
    if isinstance(x, Estimate):
        x = x.point
    if isinstance(x, Message):
        x = str(x)
    if x is None or y is None or isinstance(x, StudyCell) or isinstance(y, (str, Message, StudyCell)):
        return None
    y = _times(y, form.y.times)
    told: dict[str, Any] = {
        "series": _text(row, form.series),
        "facet": _facet(row, form.facet),
        "x": x if isinstance(x, str) else x * form.x.times,
        "label": _text(row, form.label) if form.label else str(name_of(row)),
        "name": _text(row, form.name),
        "verdict": None if form.verdict is None else value(row, form.verdict),
    }
    if isinstance(y, Estimate):
        return Point(y=y.point, low=y.low, high=y.high, **told)
    return Point(y=y, **told)


def _axis(form: AxisForm, rows: list[Row]) -> Axis:
    order = tuple(dict.fromkeys(str(shown(row, form.of)) for row in rows)) if form.ordered else ()
    return Axis(title=Message(form.title), log=form.log, ratio=form.ratio, order=order)


def _text(row: Row, path: str | None) -> str:
    found = None if path is None else shown(row, path)
    return "" if found is None else str(found)


def _facet(row: Row, path: str | None) -> Message | str:
    found = None if path is None else shown(row, path)
    return found if isinstance(found, Message) else "" if found is None else str(found)


def _times(found: Estimate | float, factor: float) -> Estimate | float:
    if factor == 1:
        return found
    if isinstance(found, Estimate):
        unit = _UNITS.get((found.unit, factor))
        return scaled(found, factor, unit)
    return found * factor if factor > 1 else found / round(1 / factor)  # 1e9 is exact, 1e-9 is not
