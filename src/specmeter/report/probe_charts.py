"""The charts of a probe: what a forward over n tokens costs, and how many experts it touches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specmeter.report import charts
from specmeter.report.charts import Chart, Datum, Spec, quantity, shown, tooltip
from specmeter.theory.experts import expected_union

if TYPE_CHECKING:
    from specmeter.probe import Probe
    from specmeter.record import Estimate
    from specmeter.report.style import Palette
    from specmeter.report.words import Words


def probe_charts(probe: Probe) -> dict[str, Chart]:
    """The cost curve, and the union of experts where the target has experts."""
    made = [cost(probe), union(probe)]
    return {chart.name: chart for chart in made if chart is not None}


def cost(probe: Probe) -> Chart:
    """T(n) of the target, of the draft where it was measured, and n single forwards for comparison."""
    data: list[Datum] = [_point("target", point.tokens, point.ms, 2) for point in probe.target_ms.points]
    if probe.draft_ms is not None:
        data += [_point("draft", point.tokens, point.ms, 2) for point in probe.draft_ms.points]
    first, last = probe.target_ms.points[0], probe.target_ms.points[-1]
    highest = max(point.ms.point for point in probe.target_ms.points)
    if first.tokens == 1:
        for tokens in (1, min(last.tokens, highest / first.ms.point)):
            ms = tokens * first.ms.point
            data.append({"series": "separate", "tokens": tokens, "point": ms, "low": None, "high": None, "shown": ""})
    return Chart("cost", data, _curves(["target", "draft", "separate"], "axis.ms", data))


def union(probe: Probe) -> Chart | None:
    """Distinct experts that n consecutive tokens chose, and what uniform routing would choose."""
    if probe.union is None or not probe.union.points:
        return None
    data: list[Datum] = [_point("measured", point.tokens, point.union, 1) for point in probe.union.points]
    for tokens in range(1, max(point.tokens for point in probe.union.points) + 1):
        expected = expected_union(float(tokens), probe.union.experts, probe.union.used)
        data.append(
            {
                "series": "uniform",
                "tokens": tokens,
                "point": expected,
                "low": None,
                "high": None,
                "shown": f"{expected:.1f}",
            }
        )
    return Chart("union", data, _curves(["measured", "uniform"], "axis.experts", data))


def _point(series: str, tokens: int, value: Estimate, digits: int) -> Datum:
    return {
        "series": series,
        "tokens": tokens,
        "point": value.point,
        "low": value.low,
        "high": value.high,
        "shown": shown(value, digits),
    }


def _curves(order: list[str], title: str, data: list[Datum]) -> charts.Draw:
    present = {datum["series"] for datum in data}
    names = [name for name in order if name in present]

    def draw(words: Words, palette: Palette) -> Spec:
        x = quantity("tokens", words("axis.tokens"), axis={"format": "d", "tickMinStep": 1})
        y = quantity("point", words(title))
        look = charts.series("series", "", names, palette)
        told = " : ".join(
            [*(f"datum.label == '{name}' ? '{words(f'series.{name}')}'" for name in names), "datum.label"]
        )
        for channel in look.values():
            if channel["legend"]:
                channel["legend"] = {"title": None, "labelExpr": told}
        tips = tooltip(words, ("tokens", "axis.tokens"), ("shown", title))
        dashed = "datum.series == 'separate' || datum.series == 'uniform'"
        line = {"x": x, "y": y, "color": look["color"]}
        return {
            "height": 260,
            "layer": [
                {"transform": [{"filter": dashed}], "mark": {"type": "line", "strokeDash": [5, 4]}, "encoding": line},
                {"transform": [{"filter": f"!({dashed})"}], "mark": {"type": "line"}, "encoding": line},
                charts.interval_rule(y, x, look["color"], across=False),
                {
                    "transform": [{"filter": f"!({dashed})"}],
                    "mark": {"type": "point", "filled": True, "size": 60, "opacity": 1},
                    "encoding": {"x": x, "y": y, **look, "tooltip": tips},
                },
            ],
        }

    return draw
