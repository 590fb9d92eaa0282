"""Figures of studies as charts: points, lines and bars with intervals, in panels, and what is known against each.

A number that is false stands where the document claims it, with the symbol of its series and a cross over it, and no
line and no interval touches it: so that a reader sees which points of a published figure cannot be.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import floor, log10
from typing import TYPE_CHECKING, Literal

from specmeter.messages import LANGUAGES, words
from specmeter.show import figure as charts
from specmeter.show.figure import Datum, Figure, Panel, Spec, ratio_axis
from specmeter.text import printable
from specmeter_studies.show.marks import APART_PX, Extent, Mark, bars, dodges, lanes, mark_of, names, strokes, symbols

if TYPE_CHECKING:
    from specmeter.messages import Message, Words
    from specmeter.show.palette import Palette
    from specmeter_studies.study import Axis, Point, StudyFigure


Origin = Literal["measured", "published"]

MAX_TICKS = 8
"""An axis of numbers with so few different ones has its ticks there."""
MAX_LABELS = 10
"""With so few false numbers in a panel each is written beside its cross, where there is room."""
_ROOM = (0.08, 0.07)
"""What a label needs beside and above its point, as shares of the plane."""
_NEAR = 0.02
"""Marks whose places along the plane differ by less stand over each other."""
_HALF_MARK = (0.012, 0.025)
"""Half a mark along the plane and up it, as shares of it."""
_CLAIMED = ("invalid", "implausible")
"""Verdicts of numbers that are only claimed: their value is written beside the mark."""


def drawn(figure: StudyFigure, origin: Origin, name: str) -> Figure:
    """A figure with a panel for each facet; `name` begins the panels' names."""
    judged = origin == "published" or any(point.verdict for point in figure.points)
    look = _PanelStyle.of(figure, origin)
    panels: list[Panel] = []
    explained: set[str] = set()
    for facet in dict.fromkeys(point.facet for point in figure.points):
        shown = [point for point in figure.points if point.facet == facet]
        data = [
            {**_datum(point, look, judged, claimed=look.has_room(point, shown)), **place}
            for point, place in zip(shown, look.places(shown), strict=True)
        ]
        named = f"{name}-{len(panels) + 1}" if any(point.facet for point in figure.points) else name
        panels.append(Panel(named, data, look.drawing(data, facet), facet, frozenset(explained)))
        explained |= {"series", *(str(datum["mark"]) for datum in data)}
    marked = any(datum["mark"] != "solid" for panel in panels for datum in panel.data)
    return Figure(name, tuple(panels), figure.title, figure.about or "", marked)


def slug(text: str) -> str:
    """A name for files and links."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:60] or "figure"


def verdict_word(verdict: str | None, origin: Origin) -> str:
    """What a verdict is called among the words: of a published number that nothing refutes nothing is known."""
    if origin == "published":
        return {"invalid": "impossible", None: "open"}.get(verdict, verdict or "open")
    return verdict or "unchecked"


def _datum(point: Point, look: _PanelStyle, judged: bool, *, claimed: bool) -> Datum:
    word = verdict_word(point.verdict, look.origin)
    mark = mark_of(point.verdict, judged=judged)
    verdicts: Datum = {f"told_{it}": words(it)(f"verdict.{word}") for it in LANGUAGES} if judged else {}
    certain = mark != "impossible"
    return {
        look.named: look.place(point.x),
        "point": point.y,
        "low": point.low if certain else None,
        "high": point.high if certain else None,
        "shown": _number(point),
        "claimed": _short(point.y) if claimed else None,
        "series": printable(point.series),
        "label": printable(point.label),
        "named": printable(point.name) or None,
        "mark": mark,
        **verdicts,
    }


def _number(point: Point) -> str:
    if point.low is None or point.high is None:
        return _short(point.y)
    return f"{_digits(point.y)} [{_digits(point.low)}, {_digits(point.high)}]"


def _digits(value: float) -> str:
    """Four digits, of large numbers all before the point."""
    magnitude = floor(log10(abs(value))) if value else 0
    return f"{value:.{min(6, max(0, 3 - magnitude))}f}"


def _short(value: float) -> str:
    """The same without zeros at its end."""
    text = _digits(value)
    return text.rstrip("0").rstrip(".") if "." in text else text


@dataclass(frozen=True)
class _PanelStyle:
    """What all panels of a figure have in common, so that they can be compared."""

    figure: StudyFigure
    origin: Origin
    names: tuple[str, ...]
    """Names along x in order; empty where x is a number."""
    series: tuple[str, ...]

    @classmethod
    def of(cls, figure: StudyFigure, origin: Origin) -> _PanelStyle:
        given = list(dict.fromkeys(point.x for point in figure.points))
        numbers = [x for x in given if isinstance(x, float | int)]
        if len(numbers) == len(given) and figure.kind != "bars":
            names: list[str] = []
        else:
            asked = [name for name in figure.x.order if name in given]
            rest = sorted(numbers) if len(numbers) == len(given) else [x for x in given if x not in asked]
            names = [_name(x) for x in (*asked, *rest)]
        series = dict.fromkeys(printable(point.series) for point in figure.points)
        return cls(figure, origin, tuple(dict.fromkeys(names)), tuple(series))

    @property
    def rows(self) -> bool:
        """Whether names stand in rows, each with its numbers along the page."""
        return bool(self.names) and self.figure.kind != "lines"

    @property
    def named(self) -> str:
        """The field of x; `arm` are names that a narrow page may break."""
        return "arm" if self.rows else "x"

    def place(self, x: float | str) -> str | float:
        """x as it stands in the data."""
        return _name(x) if self.names else float(x)

    def has_room(self, point: Point, panel: Sequence[Point]) -> bool:
        """Whether a false number can be written beside its cross."""
        claimed = [other for other in panel if other.verdict in _CLAIMED]
        if point.verdict not in _CLAIMED or len(claimed) > MAX_LABELS or point.name:
            return False
        if self.rows:
            return True
        xs, ys = (self._at(point.x) for point in self.figure.points), (point.y for point in self.figure.points)
        across = _share(list(xs), logarithmic=self.figure.x.log)
        up = _share(list(ys), logarithmic=self.figure.y.log)
        x, y = across(self._at(point.x)), up(point.y)
        earlier = next(place for place, other in enumerate(panel) if other is point)
        for place, other in enumerate(panel):
            above = up(other.y) - y
            if abs(across(self._at(other.x)) - x) < _ROOM[0] and (
                0 < above < _ROOM[1] or (above == 0 and place < earlier)
            ):
                return False
        return True

    def places(self, panel: Sequence[Point]) -> list[Datum]:
        """For each point what keeps it from covering another: pixels to the side, or a line of its own in its row."""
        if not self.rows:
            moved = dodges(self._extents(panel), near=_NEAR, room=_HALF_MARK[1])
            order = sorted((self._at(point.x), place) for place, point in enumerate(panel))
            # Names of neighbours stand above and below by turns.
            lower = {place: bool(number % 2) for number, (_, place) in enumerate(order)}
            return [{"dodge": pixels, "lower": lower[place]} for place, pixels in enumerate(moved)]
        found: list[Datum] = [{} for _ in panel]
        extents = self._extents(panel, across=True)
        cells: dict[tuple[str, str], list[int]] = {}
        for place, point in enumerate(panel):
            cells.setdefault((_name(point.x), printable(point.series)), []).append(place)
        for (_, series), members in cells.items():
            free = [0] * len(members)
            if self.figure.kind != "bars":
                free = lanes([extents[place] for place in members], room=_HALF_MARK[0])
            for place, lane in zip(members, free, strict=True):
                found[place] = {"lane": f"{self.series.index(series):04d}.{lane:04d}"}
        return found

    @cached_property
    def aside(self) -> float:
        """How far marks of any panel are moved, in pixels: room that the axis needs at its ends."""
        points = self.figure.points
        panels = ([it for it in points if it.facet == facet] for facet in dict.fromkeys(it.facet for it in points))
        return max(abs(float(place.get("dodge") or 0)) for panel in panels for place in self.places(panel))

    def _extents(self, panel: Sequence[Point], *, across: bool = False) -> list[Extent]:
        """Where marks and their intervals lie; `across`: the number alone decides, names stand in rows."""
        shown = [_ends(point) for point in self.figure.points]
        up = _share([end for ends in shown for end in ends], logarithmic=self.figure.y.log)
        along = _share([self._at(point.x) for point in self.figure.points], logarithmic=self.figure.x.log)
        return [
            (0.0 if across else along(self._at(point.x)), up(min(_ends(point))), up(max(_ends(point))))
            for point in panel
        ]

    def _at(self, x: float | str) -> float:
        return float(self.names.index(_name(x))) if self.names else float(x)

    def drawing(self, data: Sequence[Datum], facet: str | Message) -> charts.Draw:
        """How a panel is drawn."""

        def draw(words: Words, palette: Palette) -> Spec:
            spec = self._rows(data, words, palette) if self.rows else self._plane(data, words, palette)
            title: Spec = {"text": words.render(facet), "anchor": "start", "fontSize": 13}
            title |= {"color": palette.ink, "font": palette.font}
            return ({"title": title} if facet else {}) | spec

        return draw

    def _rows(self, data: Sequence[Datum], words: Words, palette: Palette) -> Spec:
        shown = [name for name in self.names if any(datum["arm"] == name for datum in data)]
        x = self._number_axis("point", self.figure.y, [point.y for point in self.figure.points], words, ends=True)
        y: Spec = {"field": "arm", "type": "nominal", "scale": {"domain": shown}, "sort": None, "axis": {"title": None}}
        lines = sorted({str(datum["lane"]) for datum in data})
        grouped = len({(datum["arm"], datum["lane"]) for datum in data}) > len(shown)
        offset: Mapping[str, Spec] = {}
        if grouped:
            offset = {"yOffset": {"field": "lane", "type": "nominal", "scale": {"domain": lines}}}
        look = self._series(words, palette)
        around = {"x": x, "y": y, **offset}
        layer = self._ones(palette, x=x)
        rule = charts.interval_rule(x, y, look["color"])
        rule["encoding"] |= offset
        tips = self._tips(words, data, named=True)
        if self.figure.kind == "bars":
            rule["encoding"]["color"] = {"value": palette.ink}
            layer += bars({**around, "color": look["color"], "tooltip": tips}, data, thick=9 if grouped else 12)
            layer.append(rule)
        else:
            layer += [rule, *symbols({**around, **look, "tooltip": tips}, data, move=False)]
        crossed = {**around, "color": look["color"], "tooltip": tips}
        layer += strokes(crossed, data, palette, self._meaning(words), move=False, rows=True)
        layer += names(around, data, palette, move=False)
        height: Spec = {"step": 12, "for": "offset"} if grouped else {"step": 26}
        return {"height": height, "layer": layer}

    def _plane(self, data: Sequence[Datum], words: Words, palette: Palette) -> Spec:
        y = self._number_axis("point", self.figure.y, [point.y for point in self.figure.points], words, ends=True)
        x: Spec
        if self.names:
            scale = {"domain": list(self.names)}
            x = {"field": "x", "type": "ordinal", "scale": scale, "title": words.render(self.figure.x.title)}
            x["axis"] = {"labelAngle": 0 if max(map(len, self.names)) * len(self.names) <= 48 else -40}
        else:
            numbers = [float(point.x) for point in self.figure.points]
            x = self._number_axis("x", self.figure.x, numbers, words)
            if self.aside:
                x.setdefault("scale", {})["padding"] = self.aside + APART_PX
        y["axis"] = {**y.get("axis", {}), "ticks": True, "domain": True, "grid": True}
        look = self._series(words, palette)
        tips = self._tips(words, data, named=False)
        layer = self._ones(palette, x=x, y=y)
        if self.figure.kind == "lines":
            line: Spec = {
                "transform": [{"filter": "datum.mark != 'impossible'"}],
                "mark": {"type": "line", "clip": True, "strokeWidth": 1.5, "xOffset": {"expr": "datum.dodge"}},
                "encoding": {"x": x, "y": y, "color": look["color"]},
            }
            layer.append(line)
        rule = charts.interval_rule(y, x, look["color"], across=False)
        rule["mark"]["xOffset"] = {"expr": "datum.dodge"}
        layer.append(rule)
        layer += symbols({"x": x, "y": y, **look, "tooltip": tips}, data, move=True)
        crossed = {"x": x, "y": y, "color": look["color"], "tooltip": tips}
        layer += strokes(crossed, data, palette, self._meaning(words), move=True, rows=False)
        layer += names({"x": x, "y": y}, data, palette, move=True)
        return {"height": 300 if len(self.series) > 6 else 260, "layer": layer}

    def _number_axis(
        self, field: str, axis: Axis, values: Sequence[float], words: Words, *, ends: bool = False
    ) -> Spec:
        """Encoding of a number, with limits that all panels share; `ends`: intervals have room as well."""
        spread: list[float] = list(values)
        if ends:
            for point in self.figure.points:
                spread += _ends(point) if point.y > 0 else ()
        low, high = min(spread), max(spread)
        title, logarithmic = words.render(axis.title), axis.log and low > 0
        if axis.ratio and logarithmic:
            limits, ticks = ratio_axis(spread)
            return charts.ratio(field, title, limits, ticks)
        made: Spec = {"field": field, "type": "quantitative", "title": title}
        if logarithmic:
            made["scale"] = {"type": "log", "domain": [low / 1.15, high * 1.15], "nice": False}
            made["axis"] = {"format": "~g" if high < 1e4 else "~s", "tickCount": 6}
        elif axis.ratio:
            room = 0.06 * (max(high, 1.0) - min(low, 1.0)) or 0.1
            # A bar has to begin at zero, or its length lies.
            first = min(0.0, low) if self.figure.kind == "bars" else min(low, 1.0) - room
            made["scale"] = {"domain": [first, max(high, 1.0) + room], "nice": False}
            made["axis"] = {"labelExpr": "datum.label + '×'", "format": "~g"}
        else:
            whole = self.figure.kind == "bars" or field == "x" or low <= 0 or low < 0.5 * high
            made["scale"] = {"domain": [min(low, 0.0) if whole else low, high], "nice": True}
        distinct = sorted(set(values))
        if (
            field == "x"
            and len(distinct) <= MAX_TICKS
            and all(map(_is_short, distinct))
            and _apart(distinct, logarithmic=logarithmic)
        ):
            made["axis"] = {"values": distinct, "format": "~r"}
            if not logarithmic:
                room = 0.06 * (high - low) or 1.0
                made["scale"] = {"domain": [low - room, high + room], "nice": False}
        return made

    def _ones(self, palette: Palette, **along: Spec) -> list[Spec]:
        """Lines at 1 on axes of ratios, by the scales of what stands along them."""
        lines: list[Spec] = []
        for side, encoding in along.items():
            axis = self.figure.x if side == "x" and not self.rows else self.figure.y
            if axis.ratio and encoding["type"] == "quantitative":
                line = charts.one_line(palette, across=side == "y")
                line["encoding"][side]["scale"] = encoding["scale"]
                lines.append(line)
        return lines

    def _series(self, words: Words, palette: Palette) -> Mapping[str, Spec]:
        return charts.series("series", words.render(self.figure.series_title or ""), list(self.series), palette)

    def _tips(self, words: Words, data: Sequence[Datum], *, named: bool) -> list[Spec]:
        def tip(field: str, title: str) -> Spec:
            return {"field": field, "type": "nominal", "title": title}

        tips = (
            [tip("series", words.render(self.figure.series_title or "") or words("column.series"))]
            if any(self.series)
            else []
        )
        tips += [tip("label", words("column.about"))] if any(datum["label"] for datum in data) else []
        tips.append(tip("arm" if named else "x", words.render(self.figure.x.title) or words("column.arm")))
        tips.append(tip("shown", words.render(self.figure.y.title)))
        verdict = f"told_{words.language}"
        return tips + ([tip(verdict, words("column.verdict"))] if verdict in data[0] else [])

    def _meaning(self, words: Words) -> Callable[[Mark], str]:
        """What a mark says of its number."""

        def meaning(kind: Mark) -> str:
            return words(f"mark.{verdict_word('invalid' if kind == 'impossible' else kind, self.origin)}")

        return meaning


def _name(x: float | str) -> str:
    return printable(x) if isinstance(x, str) else f"{x:g}"


def _ends(point: Point) -> tuple[float, float]:
    """What a mark covers: its interval as far as an axis is sure to show it, where it is drawn."""
    if point.low is None or point.high is None or point.verdict == "invalid":
        return point.y, point.y
    if point.y <= 0:
        return point.low, point.high
    return max(point.y / 2.5, point.low), min(point.y * 4, point.high)


def _share(values: Sequence[float], *, logarithmic: bool) -> Callable[[float], float]:
    """Where a value lies between the smallest (0) and the largest (1) of all."""
    scale: Callable[[float], float] = log10 if logarithmic and min(values) > 0 else float
    low, high = scale(min(values)), scale(max(values))
    return lambda value: (scale(value) - low) / ((high - low) or 1.0)


def _is_short(value: float) -> bool:
    """Whether a label says a value with few characters."""
    return abs(value) < 1e6 and len(text := f"{value:g}") <= 5 and float(text) == value


def _apart(values: Sequence[float], *, logarithmic: bool) -> bool:
    """Whether labels at these places do not run into each other."""
    if len(values) < 2:
        return True
    at = [log10(value) for value in values] if logarithmic else list(values)
    return min(b - a for a, b in pairwise(at)) >= 0.05 * (at[-1] - at[0])
