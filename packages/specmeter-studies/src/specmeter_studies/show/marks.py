"""Marks of studies' figures: what each kind looks like, and how marks that cover each other are moved apart.

Every number keeps the symbol and colour of its series. What is drawn over it says what is known against the number:

    solid         nothing: measured, checked and valid, or of a kind that nothing is checked of
    hollow        nothing refutes it, nothing shows it to be true
    suspect       a dot within: in doubt, do not publish it
    implausible   one stroke through: it breaks a bound that rests on assumptions
    impossible    a cross over it: it is false
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal

from specmeter.show.figure import Datum, Spec
from specmeter.show.palette import CROSS

if TYPE_CHECKING:
    from specmeter.record import Standing
    from specmeter.show.palette import Palette


Mark = Literal["solid", "hollow", "suspect", "implausible", "impossible"]

STROKE = "M-1.14,1.06L-1.06,1.14L1.14,-1.06L1.06,-1.14Z"
"""A stroke through a symbol."""
_DOT = "circle"
OVER: dict[Mark, tuple[str, str, int, float]] = {
    "suspect": ("size", _DOT, 14, 0.5),
    "implausible": ("strokeWidth", STROKE, 150, 0.9),
    "impossible": ("opacity", CROSS, 150, 1.6),
}
"""Kind -> (channel of its legend, shape, size, width of the line) of what is drawn over its symbol. Vega-Lite draws
legends for these channels."""
APART_PX = 9.0
"""Between marks that would cover each other."""
MAX_PX = 30.0
"""To either side, however many there are."""


def mark_of(verdict: Standing | None, *, judged: bool) -> Mark:
    """How a number is drawn; in a figure of which nothing is judged all are solid."""
    match verdict:
        case "invalid":
            return "impossible"
        case "implausible" | "suspect":
            return verdict
        case "valid":
            return "solid"
        case None:
            return "hollow" if judged else "solid"


def symbols(encoding: Spec, data: Sequence[Datum], *, move: bool) -> list[Spec]:
    """The symbols of all numbers: filled where they are solid, hollow otherwise; `move`: by their `dodge`."""
    mark: Spec = {"type": "point", "size": 80, "strokeWidth": 2, "clip": True, "opacity": 1}
    if move:
        mark["xOffset"] = {"expr": "datum.dodge"}
    return [
        {
            "transform": [{"filter": f"datum.mark {'==' if filled else '!='} 'solid'"}],
            "mark": {**mark, "filled": filled},
            "encoding": encoding,
        }
        for filled in (True, False)
        if any((datum["mark"] == "solid") is filled for datum in data)
    ]


def bars(encoding: Spec, data: Sequence[Datum], *, thick: int) -> list[Spec]:
    """Bars: filled where they are solid, an outline otherwise, a broken one where they are false."""
    mark: Spec = {"type": "bar", "height": thick}
    looks: dict[str, tuple[str, Spec]] = {
        "solid": ("datum.mark == 'solid'", {"opacity": 0.75}),
        "hollow": ("datum.mark != 'solid' && datum.mark != 'impossible'", {"fillOpacity": 0.18, "strokeWidth": 1.5}),
        "impossible": ("datum.mark == 'impossible'", {"fillOpacity": 0.0, "strokeWidth": 1, "strokeDash": [3, 3]}),
    }
    outline: Spec = {"stroke": {**encoding["color"], "legend": None}}
    kinds = {"solid": {"solid"}, "hollow": {"hollow", "suspect", "implausible"}, "impossible": {"impossible"}}
    return [
        {
            "transform": [{"filter": kept}],
            "mark": {**mark, **look},
            "encoding": encoding | ({} if kind == "solid" else outline),
        }
        for kind, (kept, look) in looks.items()
        if any(datum["mark"] in kinds[kind] for datum in data)
    ]


def strokes(
    around: Spec, data: Sequence[Datum], palette: Palette, told: Callable[[Mark], str], *, move: bool, rows: bool
) -> list[Spec]:
    """What is drawn over symbols, with what it means; and beside false or implausible ones what is claimed."""
    layers: list[Spec] = []
    for kind, (channel, shape, size, width) in OVER.items():
        shown = [datum for datum in data if datum["mark"] == kind]
        if not shown:
            continue
        colour = palette.bad if kind == "impossible" else palette.ink
        dot = kind == "suspect"
        mark: Spec = {"type": "point", "shape": shape, "size": size, "filled": dot, "strokeWidth": width, "clip": False}
        if move:
            mark["xOffset"] = {"expr": "datum.dodge"}
        constant = {"size": size, "strokeWidth": width}.get(channel, 1)
        meaning: Spec = {
            "field": "mark",
            "type": "nominal",
            "scale": {"domain": [kind], "range": [constant, constant]},
            "legend": {
                "title": None,
                "labelExpr": f"'{told(kind)}'",
                "symbolType": shape,
                "symbolStrokeColor": colour,
                "symbolSize": 120,
                "labelColor": colour,
            },
        }
        encoding = around | ({} if kind == "impossible" else {"color": {"value": colour}})
        kept = [{"filter": f"datum.mark == '{kind}'"}]
        layers.append({"transform": kept, "mark": mark, "encoding": {**encoding, channel: meaning}})
        if any(datum["claimed"] for datum in shown):
            # A label above its mark would lie on the mark above.
            beside: Spec = {"dx": -10, "align": "right"} if rows else _BESIDE if move else {"dx": 10, "align": "left"}
            text: Spec = {"type": "text", "color": colour, "fontSize": 11, "baseline": "middle", **beside}
            if move:
                text["xOffset"] = {"expr": "datum.dodge"}
            place = {key: around[key] for key in ("x", "y", "yOffset") if key in around}
            place["text"] = {"field": "claimed", "type": "nominal"}
            filters = [*kept, {"filter": "isValid(datum.claimed)"}]
            layers.append({"transform": filters, "mark": text, "encoding": place})
    return layers


_BESIDE: Spec = {
    "dx": 11,
    "dy": {"expr": "datum.dodge < 0 ? -11 : datum.dodge > 0 ? 11 : 0"},
    "align": "left",
}
"""Where what is claimed stands beside a mark: right of it, above or below where another mark stands there."""


def names(around: Spec, data: Sequence[Datum], palette: Palette, *, move: bool) -> list[Spec]:
    """Names beside marks that have one."""
    if not any(datum["named"] for datum in data):
        return []
    text: Spec = {
        "type": "text",
        "color": palette.muted,
        "fontSize": 11,
        "baseline": "middle",
        "align": "left",
        "dx": 8,
    }
    text["dy"] = {"expr": "datum.lower ? 11 : -11"}
    if move:
        text["xOffset"] = {"expr": "datum.dodge"}
    place = {key: around[key] for key in ("x", "y", "yOffset") if key in around}
    place["text"] = {"field": "named", "type": "nominal"}
    return [{"transform": [{"filter": "isValid(datum.named)"}], "mark": text, "encoding": place}]


# --- marks that cover each other -------------------------------------------------------------------------------------


Extent = tuple[float, float, float]
"""(along, lowest, highest) of a mark with its interval, as shares of the plane."""


def dodges(extents: Sequence[Extent], *, near: float, room: float) -> list[float]:
    """How far each mark is moved sideways, in pixels, so that none covers another.

    Marks meet where they lie within `near` along the axis, and their extents, widened by `room`, touch. Those that
    meet, directly or through others, are spread evenly about their place, in the order of the data.
    """
    groups: list[list[int]] = []
    for place, mark in enumerate(extents):
        met = [group for group in groups if any(_meet(mark, extents[other], near, room) for other in group)]
        groups = [group for group in groups if group not in met]
        groups.append([*(other for group in met for other in group), place])
    moved = [0.0] * len(extents)
    for group in groups:
        step = min(APART_PX, 2 * MAX_PX / max(1, len(group) - 1))
        for number, place in enumerate(sorted(group)):
            moved[place] = round(step * (number - (len(group) - 1) / 2), 2)
    return moved


def lanes(extents: Sequence[Extent], *, room: float) -> list[int]:
    """Which of several lines of one row each mark stands on, so that none covers another: the first that is free."""
    ends: list[float] = []
    found = [0] * len(extents)
    for place in sorted(range(len(extents)), key=lambda place: extents[place][1]):
        low, high = extents[place][1] - room, extents[place][2] + room
        free = next((lane for lane, end in enumerate(ends) if end <= low), None)
        if free is None:
            ends.append(high)
            free = len(ends) - 1
        ends[free] = high
        found[place] = free
    return found


def _meet(one: Extent, other: Extent, near: float, room: float) -> bool:
    along = abs(one[0] - other[0]) <= near
    return along and one[1] - room < other[2] + room and other[1] - room < one[2] + room
