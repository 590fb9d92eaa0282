"""Speedups as a matrix: how drafts are made against how long they are, for each target and kind of text.

A number stands in every cell, so that the colours only repeat it: blue gains, orange loses, and an arrow where the
interval lies wholly on one side. What cannot be trusted is struck through, what is false has no number.
"""

from __future__ import annotations

from collections.abc import Callable
from math import log
from typing import TYPE_CHECKING

from specmeter.messages import LANGUAGES, words
from specmeter.numbers.estimates import above, below
from specmeter.show.figure import Datum, Draw, Figure, Panel, Spec, distinct, heat_key, rows, shown, tooltip
from specmeter.show.page.arms import lines, who
from specmeter.show.palette import HEAT
from specmeter.text import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specmeter.messages import Words
    from specmeter.record import Estimate
    from specmeter.show.page.document import Document
    from specmeter.show.palette import Palette

_STEPS = (1.02, 1.25, 1.75, 2.5)
"""Gains at which a deeper blue begins; losses are the reciprocals."""
MAX_ROWS = 30
"""A panel that would have more rows is told over all kinds of text only."""


def matrix(document: Document) -> Figure | None:
    """A panel for each target with several rows that was measured with several lengths of some draft."""
    panels: list[Panel] = []
    for target in dict.fromkeys(arm.target for arm in document.arms.values()):
        cells = _cells(document, target)
        whole = [cell for cell in cells if "kind" not in cell]
        if not any(cell["cell"] for cell in cells):
            continue
        if len(whole) > len(distinct(whole, "row_en")) and len(distinct(cells, "row_en")) > 1:
            panels.append(
                Panel(f"matrix-{len(panels) + 1}", cells, _by_length(cells, printable(target)), printable(target))
            )
    cells = [cell for panel in panels for cell in panel.data]
    return Figure("matrix", tuple(panels), key=tuple(heat_key(cells))) if panels else None


def _cells(document: Document, target: str) -> list[Datum]:
    """All cells of a target: over all kinds of text, then for each of several kinds."""
    named, invalid = lines(document), document.run.invalid
    arms = [
        arm for arm in document.run.summary.arms if arm.arm_id in named and document.arms[arm.arm_id].target == target
    ]
    ways = {arm.arm_id: [words(language).render(named[arm.arm_id]) for language in LANGUAGES] for arm in arms}
    rows = len({tuple(way) for way in ways.values()})
    kinds = list(dict.fromkeys(kind for arm in arms for kind in arm.kinds))
    if len(kinds) < 2 or rows * (1 + len(kinds)) > MAX_ROWS:
        kinds = []
    found: list[Datum] = []
    for kind in ("", *kinds):
        for arm in arms:
            part = arm.kinds.get(kind) if kind else arm
            if part is None or (part.speedup is None and arm.arm_id not in invalid):
                continue
            of = {"kind": printable(kind)} if kind else {}
            heads = {
                f"row_{language}": _row(ways[arm.arm_id][place], kind, words(language), alone=rows == 1 and bool(kinds))
                for place, language in enumerate(LANGUAGES)
            }
            cell = {**who(document, arm.arm_id), **of, **heads, "gamma": document.arms[arm.arm_id].gamma}
            speedup = part.speedup if kind else document.run.cited(arm)
            found.append({**cell, **shown(speedup, 2), **cell_colour(speedup)})
    return found


def _row(way: str, kind: str, one: Words, *, alone: bool) -> str:
    """What a row is called: its kind of text, and how drafts are made unless that is `alone`."""
    text = printable(kind) if kind else one("cell.all_kinds")
    if alone:
        return text
    return f"{text} · {way}" if kind else way


def cell_colour(speedup: Estimate | None) -> Datum:
    """The class of a speedup, and the text of its cell: with an arrow where its interval lies on one side of 1."""
    if speedup is None:
        return {"heat": None, "cell": None}
    arrow = "▲ " if above(speedup, 1) else "▼ " if below(speedup, 1) else ""
    return {"heat": heat(speedup.point), "cell": f"{arrow}{speedup.point:.2f}×"}


def heat(speedup: float) -> str:
    """The class of a speedup: its place among the colours from loss to gain."""
    steps = sum(abs(log(speedup)) >= log(step) for step in _STEPS)
    return str(len(HEAT) // 2 + (steps if speedup > 1 else -steps))


def by_length(lengths: Sequence[int], one: Words) -> Spec:
    """Encoding of draft lengths, a column each."""
    return {
        "field": "gamma",
        "type": "ordinal",
        "scale": {"domain": list(lengths)},
        "title": one("axis.gamma"),
        "axis": {"labelAngle": 0, "domain": False, "ticks": False},
    }


def heated(palette: Palette, at: Spec) -> Spec:
    """A layer of cells, coloured by their class."""
    scale = {"domain": [str(place) for place in range(len(HEAT))], "range": list(palette.heat)}
    return {
        "transform": [{"filter": "isValid(datum.heat)"}],
        "mark": {"type": "rect", "stroke": palette.paper, "strokeWidth": 2},
        "encoding": {**at, "color": {"field": "heat", "type": "nominal", "scale": scale, "legend": None}},
    }


def _by_length(cells: list[Datum], target: str) -> Draw:
    lengths = sorted({int(cell["gamma"] or 0) for cell in cells})
    return drawing(cells, target, lambda one: by_length(lengths, one))


def drawing(cells: list[Datum], target: str, across: Callable[[Words], Spec]) -> Draw:
    """The panel of a target from its cells (`row_en`, `cell_colour`, `shown`, ...); `across` encodes the columns."""

    def draw(one: Words, palette: Palette) -> Spec:
        row = f"row_{one.language}"
        x = across(one)
        y = rows(cells, row)
        tips = [
            *tooltip(one, (f"named_{one.language}", "column.arm")),
            *tooltip(one, *((("kind", "column.kind"),) if any("kind" in cell for cell in cells) else ())),
            *tooltip(one, ("shown", "column.speedup"), ("verdict", "column.verdict")),
        ]
        at = {"x": x, "y": y, "tooltip": tips}
        return {
            "title": {"text": target, "anchor": "start", "fontSize": 13, "color": palette.ink, "font": palette.font},
            "height": {"step": 34},
            "layer": [
                heated(palette, at),
                *(_stroke(x, y, palette, up=up) for up in (True, False)),
                _doubted(x, y, palette),
                {
                    "transform": [{"filter": "isValid(datum.cell)"}],
                    "mark": {"type": "text", "fontSize": 13},
                    "encoding": {**at, "text": {"field": "cell", "type": "nominal"}},
                },
            ],
        }

    return draw


def _doubted(x: Spec, y: Spec, palette: Palette) -> Spec:
    """The mark of suspect numbers, in the corner of their cells."""
    place = {"x": {**x, "bandPosition": 0.9}, "y": {**y, "bandPosition": 0.28}}
    mark: Spec = {"type": "text", "text": "?", "fontSize": 12, "fontWeight": "bold", "color": palette.ink}
    return {"transform": [{"filter": "datum.verdict == 'suspect'"}], "mark": mark, "encoding": place}


def _stroke(x: Spec, y: Spec, palette: Palette, *, up: bool) -> Spec:
    """A line through cells that are false, upwards or downwards."""
    first, last = (0.9, 0.1) if up else (0.1, 0.9)
    ends = {
        "x": {**x, "bandPosition": 0.06},
        "x2": {"field": x["field"], "bandPosition": 0.94},
        "y": {**y, "bandPosition": first},
        "y2": {"field": y["field"], "bandPosition": last},
    }
    mark: Spec = {"type": "rule", "stroke": palette.bad, "strokeWidth": 1.5, "opacity": 0.8}
    return {"transform": [{"filter": "datum.verdict == 'invalid'"}], "mark": mark, "encoding": ends}
