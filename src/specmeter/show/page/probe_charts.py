"""The charts of forwards over n tokens: what they cost by probes, and how many experts they touch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from specmeter.show import charts
from specmeter.show.charts import Chart, Datum, Spec, quantity, shown, tooltip
from specmeter.text import printable
from specmeter.theory.experts import expected_union

if TYPE_CHECKING:
    from specmeter.probe import Probe
    from specmeter.record import Estimate, ExpertUnion, ModelIdentity, TextRouting
    from specmeter.show.page.style import Palette
    from specmeter.show.words import Words
    from specmeter.theory.curves import CostCurve


def probe_charts(
    probes: Sequence[Probe], names: Mapping[str, str], routing: Sequence[TextRouting] = ()
) -> dict[str, Chart]:
    """The cost curves of all models, and the union of experts of those that have experts.

    `names` says how the run calls the models: SHA-256 of the file -> name. `routing` is that of the run's own texts,
    which comes before a probe's.
    """
    of_probes = {called(probe.target, names): probe.union for probe in probes}
    made = [cost(probes, names), union(of_probes | {it.target: it.union for it in routing if it.union is not None})]
    return {chart.name: chart for chart in made if chart is not None}


def cost(probes: Sequence[Probe], names: Mapping[str, str]) -> Chart | None:
    """T(n) of targets and drafts, and for each target n single forwards for comparison."""
    data: list[Datum] = []
    seen: set[str] = set()
    for probe in probes:
        curves: list[tuple[str, CostCurve | None]] = [(called(probe.target, names), probe.target_ms)]
        curves += [(called(probe.draft, names), probe.draft_ms)] if probe.draft else []
        for name, curve in curves:
            if curve is None or name in seen:
                continue
            seen.add(name)
            data += [_point(name, point.tokens, point.ms, 2) for point in curve.points]
            if curve is probe.target_ms:
                data += _separate(name, curve)
    return Chart("cost", data, _curves("axis.ms", data)) if data else None


def union(unions: Mapping[str, ExpertUnion | None]) -> Chart | None:
    """Distinct experts that n consecutive tokens chose, and what uniform routing would choose; by name of the model."""
    data: list[Datum] = []
    for name, found in unions.items():
        if found is None or not found.points:
            continue
        data += [_point(name, point.tokens, point.union, 1) for point in found.points]
        for tokens in range(1, max(point.tokens for point in found.points) + 1):
            data.append(_reference(name, tokens, expected_union(float(tokens), found.experts, found.used)))
    return Chart("union", data, _curves("axis.experts", data)) if data else None


def called(model: ModelIdentity, names: Mapping[str, str]) -> str:
    """A model by its name in the run, else by its reference."""
    return names.get(model.sha256, model.reference)


def _separate(name: str, curve: CostCurve) -> list[Datum]:
    """A line from one forward to as many of them as take as long as the longest that was measured."""
    first = curve.points[0]
    if first.tokens != 1:
        return []
    most = max(point.ms.point for point in curve.points) / first.ms.point
    ends = (1.0, min(most, float(curve.points[-1].tokens)))
    return [_reference(name, tokens, tokens * first.ms.point) for tokens in ends]


def _point(model: str, tokens: int, value: Estimate, digits: int) -> Datum:
    return {
        "model": printable(model),
        "tokens": tokens,
        "point": value.point,
        "low": value.low,
        "high": value.high,
        "shown": shown(value, digits),
        "reference": False,
    }


def _reference(model: str, tokens: float, value: float) -> Datum:
    """A point of a line that is arithmetic, not measured."""
    return {"model": printable(model), "tokens": tokens, "point": value, "reference": True}


def _curves(title: str, data: Sequence[Datum]) -> charts.Draw:
    names = list(dict.fromkeys(str(datum["model"]) for datum in data))

    def draw(words: Words, palette: Palette) -> Spec:
        x = quantity("tokens", words("axis.tokens"), axis={"format": "d", "tickMinStep": 1})
        y = quantity("point", words(title))
        look = charts.series("model", words("column.model"), names, palette)
        tips = tooltip(words, ("model", "column.model"), ("tokens", "axis.tokens"), ("shown", title))
        line = {"x": x, "y": y, "color": look["color"]}
        measured = [{"filter": "!datum.reference"}]
        return {
            "height": 260,
            "layer": [
                {
                    "transform": [{"filter": "datum.reference"}],
                    "mark": {"type": "line", "strokeDash": [5, 4], "strokeWidth": 1.5},
                    "encoding": line,
                },
                {"transform": measured, "mark": {"type": "line"}, "encoding": line},
                charts.interval_rule(y, x, look["color"], across=False),
                {
                    "transform": measured,
                    "mark": {"type": "point", "filled": True, "size": 60, "opacity": 1},
                    "encoding": {"x": x, "y": y, **look, "tooltip": tips},
                },
            ],
        }

    return draw
