"""The figures of a run under load: speedups by load, where they cross 1, throughput against what one client gets, and
latencies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from specmeter.messages import LANGUAGES, words
from specmeter.show import figure as charts
from specmeter.show.crossover_words import interval
from specmeter.show.figure import (
    Datum,
    Draw,
    Figure,
    Panel,
    Spec,
    distinct,
    named,
    quantity,
    ratio,
    ratio_axis,
    rows,
    shown,
    tooltip,
)
from specmeter.show.load_tables import loaded, loads_of, targets_of
from specmeter.show.matrix_figure import cell_colour, drawing
from specmeter.show.names import load_name
from specmeter.show.page.arms import who
from specmeter.show.run_figures import foretold, predictions
from specmeter.text import printable

if TYPE_CHECKING:
    from specmeter.analysis.load.crossover import Crossover
    from specmeter.analysis.load.summary import LoadSummary
    from specmeter.analysis.summary import ArmSummary
    from specmeter.messages import Words
    from specmeter.show.page.document import Document
    from specmeter.show.palette import Palette


def load_figures(document: Document) -> dict[str, Figure]:
    """All figures that the loads of a run have something for, by name, in the order of the page."""
    makers = (load_matrix, crossover, throughput, latency)
    return {figure.name: figure for make in makers if (figure := make(document)) is not None}


def load_matrix(document: Document) -> Figure | None:
    """Speedups: ways of drafting against loads, a panel for each target."""
    panels: list[Panel] = []
    for target, found in _by_target(document).items():
        cells: list[Datum] = []
        for arm, it in found:
            if arm.role == "baseline" or (arm.speedup is None and arm.arm_id not in document.run.invalid):
                continue
            row = {f"row_{one}": words(one).render(document.names.alone(arm.arm_id)) for one in LANGUAGES}
            at = {f"at_{one}": words(one).render(load_name(it.load)) for one in LANGUAGES}
            cited = document.run.cited(arm)
            cells.append({**who(document, arm.arm_id), **row, **at, **shown(cited, 2), **cell_colour(cited)})
        if any(cell["cell"] for cell in cells):
            loads = loads_of(document.run, target)
            columns = {one: [words(one).render(load_name(load)) for load in loads] for one in LANGUAGES}
            panels.append(_panel("load-matrix", panels, target, cells, _matrix(cells, target, columns)))
    every = [cell for panel in panels for cell in panel.data]
    return Figure("load_matrix", tuple(panels), key=tuple(charts.heat_key(every))) if panels else None


def _matrix(cells: list[Datum], target: str, columns: dict[str, list[str]]) -> Draw:
    def across(one: Words) -> Spec:
        return {
            "field": f"at_{one.language}",
            "type": "ordinal",
            "scale": {"domain": columns[one.language]},
            "title": one("axis.load"),
            "axis": {"labelAngle": 0, "domain": False, "ticks": False},
        }

    return drawing(cells, printable(target), across)


def crossover(document: Document) -> Figure | None:
    """Speedup against the number of clients, and where it is 1, a panel for each target and depth."""
    panels: list[Panel] = []
    for key in dict.fromkeys((it.target, it.depth) for it in document.run.crossovers):
        of = [it for it in document.run.crossovers if (it.target, it.depth) == key]
        ways, predicted = [it for it in of if it.ways == 1], predictions(document)
        points: list[Datum] = [
            {
                **_way(document, at.arm_id),
                "clients": at.clients,
                **shown(at.speedup, 2),
                **foretold(predicted.get(at.arm_id)),
            }
            for it in ways
            for at in it.loads
        ]
        data = [*points, *_crossings(ways)]
        title = _titled_depth(*key)
        panels.append(_panel("crossover", panels, title, data, _crossover(data, title)))
    drawn = [datum for panel in panels for datum in panel.data]
    marks = ["interval", "baseline"]
    marks += ["crossing"] if any("crossing" in datum for datum in drawn) else []
    marks += ["level"] if any("predicted" in datum for datum in drawn) else []
    return Figure("crossover", tuple(panels), key=(*marks, *charts.standing(drawn))) if panels else None


def _crossings(ways: list[Crossover]) -> list[Datum]:
    found: list[Datum] = []
    for it in ways:
        if it.clients is not None:
            said = {f"crossing_{one}": f"{it.clients.point:.1f}{words(one).render(interval(it))}" for one in LANGUAGES}
            ends = {"from": it.clients.low, "to": it.clients.high}
            found.append({"arm": it.loads[0].arm_id, "crossing": it.clients.point, **ends, **said})
    return found


def _crossover(data: list[Datum], title: str) -> Draw:
    points = [datum for datum in data if "clients" in datum]
    counts = sorted({int(datum["clients"] or 0) for datum in points})
    crossed = [datum for datum in data if "crossing" in datum]
    ends = [float(datum.get(it) or 1) for datum in points for it in ("point", "low", "high", "predicted")]
    limits, ticks = ratio_axis(ends)
    foretold = any("predicted" in datum for datum in points)

    def draw(one: Words, palette: Palette) -> Spec:
        series = f"way_{one.language}"
        x = clients_axis(counts, one)
        y = ratio("point", one("axis.load_speedup"), limits, ticks)
        look = charts.series(series, one("column.arm"), distinct(points, series), palette)
        tips = tooltip(one, (named(one), "column.arm"), ("shown", "column.speedup"), ("verdict", "column.verdict"))
        tips += tooltip(one, ("predicted_shown", "column.predicted")) if foretold else []
        kept: list[Spec] = [{"filter": "isValid(datum.clients) && isValid(datum.point)"}]
        flat: Spec = {"type": "tick", "orient": "horizontal", "thickness": 2, "size": 16, "clip": True}
        before: Spec = {
            "transform": [{"filter": "isValid(datum.predicted)"}],
            "mark": flat,
            "encoding": {"x": x, "y": {**y, "field": "predicted"}, "color": look["color"], "tooltip": tips},
        }
        marks = charts.numbers(x, y, look, tips, across=False)
        line: Spec = {
            "transform": kept,
            "mark": {"type": "line", "clip": True, "strokeWidth": 1.5},
            "encoding": {"x": x, "y": y, "color": look["color"]},
        }
        return {
            **_titled(title, palette),
            "height": 260,
            "layer": [
                charts.one_line(palette, across=True),
                *(crossing_marks(x, one, palette) if crossed else ()),
                line,
                *([before] if foretold else []),
                *marks,
            ],
        }

    return draw


def clients_axis(counts: list[int], one: Words) -> Spec:
    """Encoding of the numbers of clients that were measured, the fewest first."""
    scale: Spec = {"type": "log", "base": 2, "domain": [counts[0] / 1.1, counts[-1] * 1.1], "nice": False}
    axis: Spec = {"values": counts, "format": "d"}
    return {"field": "clients", "type": "quantitative", "scale": scale, "title": one("axis.clients"), "axis": axis}


def crossing_marks(x: Spec, one: Words, palette: Palette) -> list[Spec]:
    """On the line at 1: where each way of drafting crosses it, with its interval."""
    tips = tooltip(one, (f"crossing_{one.language}", "column.crossover"))
    at_one: Spec = {"datum": 1, "type": "quantitative"}
    bar: Spec = {"type": "rule", "strokeWidth": 7, "opacity": 0.3, "color": palette.ink, "clip": True}
    mark: Spec = {"type": "point", "shape": "diamond", "size": 130, "filled": True, "color": palette.ink, "opacity": 1}
    label: Spec = {"type": "text", "dy": 16, "fontWeight": "bold", "color": palette.ink}
    valid = [{"filter": "isValid(datum.crossing)"}]
    low, high = x["scale"]["domain"]
    label["align"] = {"expr": f"datum.crossing > {high / (high / low) ** 0.25} ? 'right' : 'center'"}
    place: Spec = {"x": {**x, "field": "crossing"}, "y": at_one, "tooltip": tips}
    return [
        {
            "transform": [{"filter": "isValid(datum.from) && isValid(datum.to)"}],
            "mark": bar,
            "encoding": {"x": {**x, "field": "from"}, "x2": {"field": "to"}, "y": at_one},
        },
        {"transform": valid, "mark": mark, "encoding": place},
        {
            "transform": valid,
            "mark": label,
            "encoding": {**place, "text": {"field": f"crossing_{one.language}", "type": "nominal"}},
        },
    ]


def throughput(document: Document) -> Figure | None:
    """Total tokens per second against what one client gets, along the clients of each way of drafting: a panel for each
    target and depth. In an open loop throughput is what was offered, and says nothing of a configuration."""
    panels: list[Panel] = []
    for target, found in _by_target(document).items():
        for depth in dict.fromkeys(it.load.depth for _, it in found):
            data: list[Datum] = []
            for arm, it in found:
                clients = it.load.clients if it.load.depth == depth else None
                if clients is None or it.throughput is None or it.per_client is None:
                    continue
                if arm.arm_id in document.run.invalid:
                    continue
                own = {"per_client": it.per_client.point, "per_client_shown": shown(it.per_client, 1)["shown"]}
                data.append({**_way(document, arm.arm_id), **own, "clients": clients, **shown(it.throughput, 1)})
            if len(data) > 1:
                title = _titled_depth(target, depth)
                panels.append(_panel("throughput", panels, title, data, _throughput(data, title)))
    drawn = [datum for panel in panels for datum in panel.data]
    return Figure("throughput", tuple(panels), key=tuple(charts.standing(drawn))) if panels else None


def _throughput(data: list[Datum], target: str) -> Draw:
    def draw(one: Words, palette: Palette) -> Spec:
        series = f"way_{one.language}"
        x = quantity("per_client", one("axis.per_client"), scale={"zero": True})
        ends = [float(datum["high"] or datum["point"] or 0) for datum in data]
        y = quantity("point", one("axis.throughput"), scale={"domain": [0, 1.05 * max(ends)]})
        look = charts.series(series, one("column.arm"), distinct(data, series), palette)
        tips = tooltip(
            one,
            (named(one), "column.arm"),
            ("shown", "column.throughput"),
            ("per_client_shown", "column.per_client"),
            ("verdict", "column.verdict"),
        )
        line: Spec = {
            "mark": {"type": "line", "strokeWidth": 1.5},
            "encoding": {"x": x, "y": y, "color": look["color"], "order": {"field": "clients", "type": "quantitative"}},
        }
        label: Spec = {
            "mark": {"type": "text", "dx": 9, "dy": -7, "fontSize": 11, "color": palette.muted},
            "encoding": {"x": x, "y": y, "text": {"field": "clients", "type": "nominal"}},
        }
        marks = charts.numbers(x, y, look, tips, across=False)
        return {**_titled(target, palette), "height": 280, "layer": [line, *marks, label]}

    return draw


def latency(document: Document) -> Figure | None:
    """Time to first token and time per output token of single requests: the middle half, and nine of ten."""
    panels: list[Panel] = []
    measures: tuple[Literal["ttft", "tpot"], ...] = ("ttft", "tpot")
    for measure in measures:
        data: list[Datum] = []
        for target in targets_of(document.run):
            for arm, _ in _by_target(document)[target]:
                spread = document.run.cells.spread(arm.arm_id, measure)
                if spread is None or arm.arm_id in document.run.invalid:
                    continue
                said = f"{spread.p50:.1f} ({spread.p5:.1f} - {spread.p95:.1f})"
                data.append({**who(document, arm.arm_id), **spread._asdict(), "point": spread.p50, "shown": said})
        if data:
            panels.append(Panel(f"latency-{measure}", data, _latency(data, measure)))
    return Figure("latency", tuple(panels), key=("median", "half", "most")) if panels else None


def _latency(data: list[Datum], measure: str) -> Draw:
    targets = distinct(data, "target")

    def draw(one: Words, palette: Palette) -> Spec:
        x, y = quantity("p50", one(f"axis.{measure}")), rows(data, named(one))
        colour = charts.coloured("target", one("column.target"), targets, palette)
        tips = tooltip(one, (named(one), "column.arm"), ("shown", f"axis.{measure}"), ("verdict", "column.verdict"))
        at = {"y": y, "color": colour, "tooltip": tips}

        def span(low: str, high: str, mark: Spec) -> Spec:
            return {"mark": mark, "encoding": {**at, "x": {**x, "field": low}, "x2": {"field": high}}}

        middle: Spec = {"type": "tick", "thickness": 3, "size": 14, "color": palette.ink}
        return {
            "height": {"step": 20},
            "layer": [
                span("p5", "p95", {"type": "rule", "strokeWidth": 1.5}),
                span("p25", "p75", {"type": "bar", "height": 10, "opacity": 0.55}),
                {"mark": middle, "encoding": {"x": x, "y": y, "tooltip": tips}},
            ],
        }

    return draw


def _titled_depth(target: str, depth: int) -> str:
    """A target, and how deep in the context: `dense @512`, as ids of prompts have it."""
    return f"{target} @{depth}" if depth else target


def _by_target(document: Document) -> dict[str, list[tuple[ArmSummary, LoadSummary]]]:
    """The arms of each target under load, by load."""
    found: dict[str, list[tuple[ArmSummary, LoadSummary]]] = {}
    for target in targets_of(document.run):
        of = [(arm, it) for arm, it in loaded(document.run) if document.arms[arm.arm_id].target == target]
        found[target] = [pair for load in loads_of(document.run, target) for pair in of if pair[1].load == load]
    return found


def _way(document: Document, arm_id: str) -> Datum:
    """`who`, and what the arm shares with those that differ from it in their load alone."""
    names = {f"way_{one}": words(one).render(document.names.alone(arm_id)) for one in LANGUAGES}
    return {**who(document, arm_id), **names}


def _panel(name: str, before: list[Panel], target: str, data: list[Datum], draw: Draw) -> Panel:
    return Panel(f"{name}-{len(before) + 1}", data, draw, printable(target))


def _titled(title: str, palette: Palette) -> Spec:
    return {
        "title": {
            "text": printable(title),
            "anchor": "start",
            "fontSize": 13,
            "color": palette.ink,
            "font": palette.font,
        }
    }
