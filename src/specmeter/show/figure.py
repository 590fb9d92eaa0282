"""Figures as Vega-Lite specifications: one for the page and for the paper.

A figure has panels. A panel is data, which knows no language, and a specification, which is made for a language and a
palette. Numbers come formatted (`shown`), so that a tooltip and a table say the same; a scale's limits are the only
thing decided here. Pages draw figures in the browser, `drawing` draws them as SVG, PNG and PDF.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import log
from typing import TYPE_CHECKING, Any, cast

from specmeter.messages import Message
from specmeter.show.fit import fitted, type_px
from specmeter.show.palette import SHAPES, Palette, config
from specmeter.text import estimated

if TYPE_CHECKING:
    from specmeter.messages import Words
    from specmeter.record import Estimate


Spec = dict[str, Any]
Datum = dict[str, str | float | int | bool | None]
Draw = Callable[["Words", "Palette"], Spec]
"""Makes a specification without `data`, `width` and `config`."""

SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
RATIOS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.8, 0.9, 1, 1.1, 1.2, 1.5, 2, 3, 4, 5, 7, 10, 15, 20, 50, 100)
"""Ticks of a logarithmic axis of ratios."""


@dataclass(frozen=True)
class Panel:
    """One chart of a figure."""

    name: str
    data: Sequence[Datum]
    draw: Draw
    facet: str | Message = ""
    """What is shown in this panel only; empty where the figure has one."""
    explained: frozenset[str] = frozenset()
    """Legends that a panel before it has on a page: `series`, or what a mark means."""


@dataclass(frozen=True)
class Figure:
    """A figure; `chart.NAME` and `chart.NAME.about` among the words are its title and what to see in it, unless it is a
    study's, which has its own."""

    name: str
    panels: tuple[Panel, ...]
    title: str | Message = ""
    about: str | Message = ""
    marked: bool = False
    """Whether there is a number among them that is false or suspect, next to others."""
    key: tuple[str, ...] = ()
    """Its marks that a page explains, in this order: `chart.key.NAME` among the words, their signs in `pieces.html`."""

    @property
    def caption(self) -> str | Message:
        """What stands above it."""
        return self.title or Message(f"chart.{self.name}")

    @property
    def note(self) -> str | Message:
        """What to see in it."""
        return self.about if self.title else Message(f"chart.{self.name}.about")


def single(name: str, data: Sequence[Datum], draw: Draw, *key: str) -> Figure:
    """A figure of one panel."""
    return Figure(name, (Panel(name, data, draw),), key=key)


def standing(data: Iterable[Datum]) -> Iterator[str]:
    """The marks for suspect and invalid numbers that are among the data."""
    verdicts = {datum.get("verdict") for datum in data}
    if verdicts - {"valid", "invalid", None}:
        yield "hollow"
    if "invalid" in verdicts:
        yield "cross"


def heat_key(cells: Sequence[Datum]) -> Iterator[str]:
    """The colours and signs of a matrix of speedups."""
    yield from ("faster", "slower", "above", "below")
    verdicts = {cell.get("verdict") for cell in cells}
    if "suspect" in verdicts:
        yield "suspect"
    if "invalid" in verdicts:
        yield "struck"


def specification(panel: Panel, words: Words, palette: Palette, *, width: int | None = None) -> Spec:
    """A panel's whole specification: with its data and a fixed width in pixels for a file, or for a page without data
    and as wide as what holds it."""
    spec = panel.draw(words, palette)
    data: Spec = {"name": "table"} if width is None else {"values": list(panel.data)}
    look = config(palette)
    if width is None:
        _explain_once(spec, panel.explained)
    else:
        _explain_drawn(spec, panel.data)
        legend = fitted(spec, width)
        look = config(palette, type_px(width))
        look |= {"background": palette.paper, "legend": look["legend"] | legend}
    return {
        "$schema": SCHEMA,
        "width": "container" if width is None else width,
        "autosize": {"type": "fit-x", "contains": "padding"},
        "data": data,
        **spec,
        "config": look,
    }


def _explain_once(spec: Spec, explained: frozenset[str]) -> None:
    """Take away the legends that stand below a panel beside this one."""
    layers: list[dict[str, dict[str, Any]]] = spec["layer"]
    every: list[Any] = [it for layer in layers for it in layer["encoding"].values()]
    for encoding in (cast("Spec", it) for it in every if isinstance(it, dict)):
        told = encoding["scale"]["domain"][0] if encoding.get("field") == "mark" else "series"
        if encoding.get("legend") and told in explained:
            encoding["legend"] = None


def _explain_drawn(spec: Spec, data: Sequence[Datum]) -> None:
    """Leave series out of the legends of a panel on its own that are not drawn in it."""
    layers: list[dict[str, dict[str, Any]]] = spec["layer"]
    every: list[Any] = [it for layer in layers for it in layer["encoding"].values()]
    for look in (cast("Spec", it) for it in every if isinstance(it, dict)):
        field = str(look.get("field"))
        if look.get("legend") and any(field in datum for datum in data):
            drawn = set(distinct((datum for datum in data if field in datum), field))
            look["legend"] = {**look["legend"], "values": [it for it in look["scale"]["domain"] if it in drawn]}


def shown(estimate: Estimate | None, digits: int, scale: float = 1.0) -> Datum:
    """The fields of a number: `point` with its ends `low` and `high`, and all of it as `shown`."""
    if estimate is None:
        return {"point": None, "low": None, "high": None, "shown": "-"}
    return {
        "point": estimate.point * scale,
        "low": None if estimate.low is None else estimate.low * scale,
        "high": None if estimate.high is None else estimate.high * scale,
        "shown": estimated(estimate, digits, scale=scale),
    }


def distinct(data: Iterable[Datum], field: str) -> list[str]:
    """The values of a field, in the order of the data."""
    return list(dict.fromkeys(str(datum[field]) for datum in data))


def named(words: Words) -> str:
    """The field of an arm's name in the data of a run."""
    return f"named_{words.language}"


def ratio_axis(values: Iterable[Estimate | float]) -> tuple[list[float], list[float]]:
    """(limits, ticks) of a logarithmic axis that shows all points, and intervals up to a factor of 2.5 around them."""
    low = high = 1.0
    for value in values:
        if isinstance(value, float | int):
            low, high = min(low, value), max(high, value)
            continue
        low = min(low, max(value.point / 2.5, value.low or value.point))
        high = max(high, min(value.point * 2.5, value.high or value.point))
    low, high = low / 1.06, high * 1.06
    ticks: list[float] = []
    inside = [tick for tick in RATIOS if low <= tick <= high]
    for tick in (1, inside[0], inside[-1], *sorted(inside, key=lambda tick: abs(log(tick)))):
        room = log(high / low) / 9
        if all(abs(log(tick / other)) >= room for other in ticks):
            ticks.append(tick)
    return [low, high], sorted(ticks)


def ratio(field: str, title: str, limits: Sequence[float], ticks: Sequence[float]) -> Spec:
    """Encoding of a ratio on a logarithmic axis."""
    return {
        "field": field,
        "type": "quantitative",
        "title": title,
        "scale": {"type": "log", "domain": list(limits), "nice": False},
        "axis": {"values": list(ticks), "format": "~g", "labelExpr": "datum.label + '×'"},
    }


def quantity(field: str, title: str, **more: Any) -> Spec:
    """Encoding of a number on a linear axis from 0."""
    return {"field": field, "type": "quantitative", "title": title, **more}


def rows(data: Sequence[Datum], field: str = "arm") -> Spec:
    """Encoding of one row per arm, in the order of the data, whatever a layer leaves out."""
    return {
        "field": field,
        "type": "nominal",
        "scale": {"domain": distinct(data, field)},
        "sort": None,
        "axis": {"title": None},
    }


def coloured(field: str, title: str, names: Sequence[str], palette: Palette) -> Spec:
    """A colour for each name."""
    colours = [palette.series[place % len(palette.series)] for place in range(len(names))]
    legend = {"title": title} if len(names) > 1 else None
    return {"field": field, "type": "nominal", "scale": {"domain": list(names), "range": colours}, "legend": legend}


def shaped(field: str, title: str, names: Sequence[str]) -> Spec:
    """A shape for each name; where colours start over, the shapes are shifted by one."""
    shapes = [SHAPES[(place + place // len(SHAPES)) % len(SHAPES)] for place in range(len(names))]
    legend = {"title": title} if len(names) > 1 else None
    return {"field": field, "type": "nominal", "scale": {"domain": list(names), "range": shapes}, "legend": legend}


def series(field: str, title: str, names: Sequence[str], palette: Palette) -> Mapping[str, Spec]:
    """Colour and shape of a series: the same place in both, so that either is enough."""
    return {"color": coloured(field, title, names, palette), "shape": shaped(field, title, names)}


def tooltip(words: Words, *fields: tuple[str, str]) -> list[Spec]:
    """(field, key of its name among the words), as text."""
    return [{"field": field, "type": "nominal", "title": words(key)} for field, key in fields]


def interval_rule(x: Spec, y: Spec, colour: Spec, *, across: bool = True) -> Spec:
    """A line from `low` to `high`; across the page, or upright."""
    along, over = ("x", "y") if across else ("y", "x")
    return {
        "transform": [{"filter": "isValid(datum.low) && isValid(datum.high)"}],
        "mark": {"type": "rule", "strokeWidth": 2, "clip": True},
        "encoding": {along: {**x, "field": "low"}, f"{along}2": {"field": "high"}, over: y, "color": colour},
    }


def one_line(palette: Palette, *, across: bool = False) -> Spec:
    """The line at 1: as fast as the baseline."""
    mark = {"type": "rule", "stroke": palette.muted, "strokeDash": [4, 3], "aria": False}
    ends = {"y" if across else "x": {"datum": 1, "type": "quantitative"}}
    return {"data": {"values": [{}]}, "mark": mark, "encoding": ends}


def band(palette: Palette, margin: float) -> Spec:
    """Where a difference is too small to matter."""
    mark = {"type": "rect", "fill": palette.muted, "opacity": 0.14, "aria": False}
    ends = {"x": {"datum": 1 / (1 + margin), "type": "quantitative"}, "x2": {"datum": 1 + margin}}
    return {"data": {"values": [{}]}, "mark": mark, "encoding": ends}


def numbers(x: Spec, y: Spec, look: Mapping[str, Spec], tips: Sequence[Spec], *, across: bool = True) -> list[Spec]:
    """Numbers with their intervals, across the page or upright; `look`: colour and shape of their series."""
    rule = interval_rule(x, y, look["color"]) if across else interval_rule(y, x, look["color"], across=False)
    marks = points({"x": x, "y": y, **look, "tooltip": tips})
    along, sides = ("x", ("left", "right")) if across else ("y", ("down", "up"))
    beyond = ("datum.low < {}", "datum.high > {}")
    for limit, side, outside in zip(
        (x if across else y).get("scale", {}).get("domain", ()), sides, beyond, strict=False
    ):
        end = {"x": x, "y": y, "color": look["color"]} | {along: {"datum": limit, "type": "quantitative"}}
        arrow: Spec = {"type": "point", "shape": f"triangle-{side}", "size": 50, "filled": True, "opacity": 1}
        shown: Spec = {"filter": f"isValid(datum.point) && {outside.format(limit)}"}
        marks.append({"transform": [shown], "mark": arrow, "encoding": end})
    return [rule, *marks]


def points(encoding: Spec, *, hollow: str = "datum.verdict != 'valid'") -> list[Spec]:
    """Marks for numbers: filled where they are valid, hollow where they may not mean what they say."""
    solid: Spec = {"type": "point", "size": 90, "strokeWidth": 2, "clip": True}
    return [
        {
            "transform": [{"filter": f"isValid(datum.point) && !({hollow})"}],
            "mark": {**solid, "filled": True, "opacity": 1},
            "encoding": encoding,
        },
        {
            "transform": [{"filter": f"isValid(datum.point) && ({hollow})"}],
            "mark": {**solid, "filled": False, "opacity": 1},
            "encoding": encoding,
        },
    ]


def withheld(words: Words, palette: Palette, y: Spec) -> Spec:
    """In place of a number that is false: a cross, and that it is."""
    return {
        "transform": [{"filter": "datum.verdict == 'invalid'"}],
        "mark": {"type": "text", "align": "left", "color": palette.bad, "text": f"✕ {words('verdict.invalid')}"},
        "encoding": {"x": {"value": 6}, "y": y},
    }
