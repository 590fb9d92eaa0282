"""A chart in a paper: all that is written fits the width of the figure, in the type that journals ask for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, cast

STYLES = {"one": 8.5, "two": 17.5}
"""Centimetres of one column of a paper, and of two with what lies between them."""
_NARROW_PX = 12 / 2.54 * 96
"""A figure that is narrower stands in one column."""
_SCREEN_PX = 12.0
"""The type that charts are made in."""
_LETTER, _GLYPH = 0.53, 1.0
"""Widths in ems: of a Latin letter, on average, and of a Chinese one."""
_LABELS = 0.38
"""Of the width that the names of rows may take, before they are broken into lines."""
_MARGIN = 20
"""Pixels between labels, axis and the figure's edge."""
_SYMBOL = 34
"""Pixels of a legend's symbol and the space around an entry."""
_LEADING = 1.25
_PART = 6.5
"""Ems of the longest name that stands in a bar."""
_UNITS = re.compile(r"(?:\d+ )?[\u2e80-\uff00]{1,5}[，。；：、）]*\s*|[^\s\u2e80-\uff00]+\s*")
"""What a line is not broken within: a word, or a few Chinese letters with what stands after them."""

Spec = dict[str, Any]


def type_px(width: int) -> float:
    """Size of type of a figure: 7 points in one column, 8 across two."""
    return (7 if width < _NARROW_PX else 8) * 96 / 72


def fitted(spec: Spec, width: int) -> Spec:
    """Fit a specification to a width in pixels: smaller type and marks, names of rows and titles of axes in lines.

    Returns what its legends need.
    """
    size = type_px(width)
    _scale(spec, size / _SCREEN_PX)
    height = spec.get("height")
    encodings = [cast("Spec", it["encoding"]) for it in spec.get("layer", [spec]) if "encoding" in it]
    beside = 3 * size
    for encoding in encodings:
        beside = max(beside, _break_rows(spec, encoding.get("y", {}), _LABELS * width, size))
    for encoding in encodings:
        _break_title(encoding, "x", width - beside - _MARGIN, size)
        if isinstance(height, int | float):
            _break_title(encoding, "y", float(spec["height"]), size)
    for param in spec.get("params", ()):
        if param["name"] == "roomy":
            param["value"] = _PART * size / (width - beside)
    entry = max((_ems(it) for encoding in encodings for it in _explained(encoding)), default=0.0) * size + _SYMBOL
    # A legend begins where the rows' names end, or, where it has no room there, ends where the plot does.
    room, anchor = (width - beside, "start") if entry < width - beside else (width, "end")
    layout = {"anchor": anchor, "direction": "vertical"}
    return {"columns": max(1, int(room / entry)), "labelLimit": width - 30, "layout": {"bottom": layout}}


def _scale(spec: Any, by: float) -> None:
    """Make type and marks smaller, and a figure of fixed height lower."""
    if isinstance(spec, list):
        for it in cast("list[Any]", spec):
            _scale(it, by)
        return
    if not isinstance(spec, dict):
        return
    given = cast("Spec", spec)
    for key, value in given.items():
        if isinstance(value, int | float):
            if key == "fontSize" or (key == "height" and value > 100):
                given[key] = value * by
            elif key == "size" and given.get("type") == "point":
                given[key] = value * by * by
        elif key != "values":
            _scale(value, by)


def _break_rows(spec: Spec, y: Spec, room: float, size: float) -> float:
    """Break the names of rows into lines; returns the pixels that they take."""
    names = [it for it in y.get("scale", {}).get("domain", ()) if isinstance(it, str)]
    if not names:
        return 0.0
    broken = {name: _lines(name, room / size) for name in names}
    if any(len(lines) > 1 for lines in broken.values()):
        told = ", ".join(f"{_quoted(name)}: [{', '.join(map(_quoted, lines))}]" for name, lines in broken.items())
        most, leading = max(map(len, broken.values())), size * _LEADING
        raised = [
            {
                "test": " || ".join(
                    f"datum.value == {_quoted(name)}" for name, lines in broken.items() if len(lines) == n
                ),
                "value": -leading * (n - 1) / 2,
            }
            for n in sorted({len(lines) for lines in broken.values()})
        ]
        y["axis"] |= {"labelExpr": f"({{{told}}})[datum.label]", "labelLineHeight": leading}
        y["axis"]["labelOffset"] = {"condition": raised, "value": 0}
        height = spec["height"]
        spec["height"] = {**height, "step": max(height["step"], (most * leading + 7) / _slots(spec))}
    return max(_ems(line) for lines in broken.values() for line in lines) * size


def _slots(spec: Spec) -> int:
    """How many marks a row has below each other: the height of a row is that of this many steps."""
    beside = [cast("Spec", it.get("encoding", {}).get("yOffset", {})) for it in spec.get("layer", [spec])]
    return max(len(it.get("scale", {}).get("domain") or it.get("sort") or "1") for it in beside)


def _break_title(encoding: Spec, axis: str, room: float, size: float) -> None:
    given = cast("Spec", encoding.get(axis, {}))
    if isinstance(given.get("title"), str) and len(lines := _lines(given["title"], room / size)) > 1:
        encoding[axis] = {**given, "title": lines}


def _explained(encoding: Spec) -> Iterator[str]:
    """The names in the legends of a layer."""
    for channel in ("color", "shape", "fill", "strokeDash"):
        look = cast("Spec", encoding.get(channel) or {})
        legend = look.get("legend", {})
        if told := legend and legend.get("labelExpr"):
            yield from re.findall("'([^']*)'", told)
        elif legend is not None:
            domain = look.get("scale", {}).get("domain", ())
            yield from (it for it in cast("Spec", legend).get("values", domain) if isinstance(it, str))


def _lines(text: str, ems: float) -> list[str]:
    """As few lines as are no longer, of about one length."""
    found = _filled(text, ems)
    while len(shorter := _filled(text, ems := ems - 0.5)) == len(found) and ems > 1:
        found = shorter
    return found


def _filled(text: str, ems: float) -> list[str]:
    lines = [""]
    for unit in _UNITS.findall(text):
        if lines[-1] and _ems(lines[-1] + unit.rstrip()) > ems:
            lines.append("")
        lines[-1] += unit
    return [line.rstrip() for line in lines]


def _ems(text: str) -> float:
    return sum(_GLYPH if it >= "\u2e80" else _LETTER for it in text)


def _quoted(text: str) -> str:
    """As a string of Vega's expressions."""
    return "'" + re.sub(r"[^\w .,·-]", lambda it: "".join(f"\\u{unit}" for unit in _utf16(it[0])), text) + "'"


def _utf16(letter: str) -> list[str]:
    return re.findall("....", letter.encode("utf-16-be").hex())
