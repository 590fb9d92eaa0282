"""The charts of a run. Each function says when there is something to see: it returns None otherwise."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from specmeter.analysis.explain.account import PartName
from specmeter.numbers.margin import MARGIN
from specmeter.show import charts
from specmeter.show.charts import Chart, Datum, Spec, arm_name, quantity, ratio, ratio_axis, rows, shown, tooltip
from specmeter.show.page.position_charts import accepted, positions
from specmeter.show.page.profile_charts import lookahead
from specmeter.show.page.sentence import label
from specmeter.text import printable

if TYPE_CHECKING:
    from specmeter.analysis.summary import ArmSummary
    from specmeter.record import Arm, Estimate
    from specmeter.show.page.document import Document
    from specmeter.show.page.style import Palette
    from specmeter.show.words import Words

_LENGTH = re.compile(r"length-(\d+)")
_GB = 1e9
PARTS: tuple[PartName, ...] = ("verify", "draft", "restore", "sample", "rest", "remainder")
MOST_ROWS = 12
"""Charts that show each configuration several times show more of them only by their best."""


def run_charts(document: Document) -> dict[str, Chart]:
    """All charts that this run has something for, by name, in the order of the page."""
    makers: tuple[Callable[[Document], Chart | None], ...] = (
        comparison,
        rates,
        parts,
        gamma,
        acceptance,
        yielded,
        positions,
        accepted,
        lookahead,
        footprint,
        kinds,
        lengths,
        requests,
    )
    made = (maker(document) for maker in makers)
    return {chart.name: chart for chart in made if chart is not None}


def comparison(document: Document) -> Chart | None:
    """Speedup of every arm with its interval; where a number is false, that it is."""
    compared = [arm for arm in document.run.summary.arms if arm.baseline_id is not None]
    predicted = predictions(document)
    data: list[Datum] = [
        {**_who(document, arm), **_number(arm.speedup, 2), **_predicted(predicted.get(arm.arm_id))} for arm in compared
    ]
    if not data:
        return None
    limits, ticks = ratio_axis(
        [*(arm.speedup for arm in compared if arm.speedup), *(e.point for e in predicted.values())]
    )
    targets = _distinct(data, "target")

    def draw(words: Words, palette: Palette) -> Spec:
        x, y = ratio("point", words("axis.speedup"), limits, ticks), rows(data)
        look = charts.series("target", words("column.target"), targets, palette)
        tips = tooltip(words, ("arm", "column.arm"), ("shown", "column.speedup"), ("verdict", "column.verdict"))
        expected: list[Spec] = []
        if predicted:
            tips += tooltip(words, ("predicted_shown", "column.predicted"))
            upright: Spec = {"type": "tick", "thickness": 2, "size": 16, "color": palette.ink, "clip": True}
            place = {"x": {**x, "field": "predicted"}, "y": y, "tooltip": tips}
            kept = [{"filter": "isValid(datum.predicted)"}]
            expected = [{"transform": kept, "mark": upright, "encoding": place}]
        return {
            "height": {"step": 26},
            "layer": [
                charts.band(palette, MARGIN),
                charts.one_line(palette),
                *expected,
                charts.interval_rule(x, y, look["color"]),
                *charts.points({"x": x, "y": y, **look, "tooltip": tips}),
                charts.withheld(words, palette, y),
            ],
        }

    return Chart("comparison", data, draw)


def rates(document: Document) -> Chart | None:
    """Decode rate of every arm, baselines included."""
    data: list[Datum] = [
        {**_who(document, arm), **_number(arm.decode_rate, 1)}
        for group in document.targets()
        for arm in group
        if arm.decode_rate
    ]
    if not data:
        return None
    targets = _distinct(data, "target")

    def draw(words: Words, palette: Palette) -> Spec:
        x, y = quantity("point", words("axis.rate")), rows(data)
        look = charts.series("target", words("column.target"), targets, palette)
        tips = tooltip(words, ("arm", "column.arm"), ("shown", "column.decode_rate"), ("verdict", "column.verdict"))
        believable = "datum.verdict != 'invalid'"
        bars: Spec = {
            "transform": [{"filter": believable}],
            "mark": {"type": "bar", "height": 10, "opacity": 0.55},
            "encoding": {"x": x, "y": y, "color": look["color"], "tooltip": tips},
        }
        ends = charts.interval_rule(x, y, {"value": palette.ink})
        ends["transform"].append({"filter": believable})
        return {"height": {"step": 24}, "layer": [bars, ends, charts.withheld(words, palette, y)]}

    return Chart("rates", data, draw)


def parts(document: Document) -> Chart | None:
    """Decode time per token of every arm, by what it was spent on."""
    if document.account is None:
        return None
    summaries = {arm.arm_id: arm for group in document.targets() for arm in group}
    data: list[Datum] = []
    for arm in document.account.arms:
        if arm.arm_id not in summaries:
            continue
        who = _who(document, summaries[arm.arm_id])
        if arm.arm_id in document.run.invalid:
            data.append(who)
            continue
        for part in arm.parts:
            told = {"part": part.name, "order": PARTS.index(part.name), "share": f"{part.share:.0%}"}
            data.append({**who, **told, "point": part.ms_per_token.point, "shown": shown(part.ms_per_token, 2)})
    names = [name for name in PARTS if any(datum.get("part") == name for datum in data)]
    if not names:
        return None

    def draw(words: Words, palette: Palette) -> Spec:
        x, y = quantity("point", words("axis.ms_per_token"), stack="zero"), rows(data)
        colours = [palette.muted if name == "remainder" else palette.series[PARTS.index(name)] for name in names]
        told = " : ".join([*(f"datum.label == '{name}' ? '{words(f'part.{name}')}'" for name in names), "datum.label"])
        colour: Spec = {
            "field": "part",
            "type": "nominal",
            "scale": {"domain": names, "range": colours},
            "legend": {"title": None, "labelExpr": told, "symbolType": "square"},
        }
        tips = tooltip(
            words,
            ("arm", "column.arm"),
            ("part", "column.part"),
            ("shown", "axis.ms_per_token"),
            ("share", "column.share"),
        )
        bars: Spec = {
            "transform": [{"filter": "isValid(datum.point)"}],
            "mark": {"type": "bar", "height": 13},
            "encoding": {
                "x": x,
                "y": y,
                "color": colour,
                "order": {"field": "order", "type": "quantitative"},
                "tooltip": tips,
            },
        }
        return {"height": {"step": 24}, "layer": [bars, charts.withheld(words, palette, y)]}

    return Chart("parts", data, draw)


def gamma(document: Document) -> Chart | None:
    """Speedup against draft length, where an arm comes with several."""
    return _by_gamma(document, "gamma", lambda arm: arm.speedup, is_ratio=True)


def acceptance(document: Document) -> Chart | None:
    """Acceptance rate against draft length."""
    return _by_gamma(document, "acceptance", lambda arm: arm.acceptance, is_ratio=False)


def _by_gamma(
    document: Document, name: str, value: Callable[[ArmSummary], Estimate | None], *, is_ratio: bool
) -> Chart | None:
    arms = {arm.id: arm for arm in document.run.arms}
    data: list[Datum] = []
    found: list[Estimate] = []
    for arm in document.run.summary.arms:
        estimate, asked = value(arm), arms[arm.arm_id]
        if estimate is None or asked.gamma is None or arm.arm_id in document.run.invalid:
            continue
        found.append(estimate)
        numbers = _number(estimate, 2) if is_ratio else _number(estimate, 1, 100)
        data.append({**_who(document, arm), "method": _method(asked), "gamma": asked.gamma, **numbers})
    lines = {(datum["target"], datum["method"]) for datum in data}
    if len(lines) == len({(datum["target"], datum["method"], datum["gamma"]) for datum in data}):
        return None
    targets, methods = _distinct(data, "target"), _distinct(data, "method")
    limits, ticks = ratio_axis(found) if is_ratio else ([], [])

    def draw(words: Words, palette: Palette) -> Spec:
        x = {"field": "gamma", "type": "ordinal", "title": words("axis.gamma"), "axis": {"labelAngle": 0}}
        title = words(f"axis.{'speedup' if is_ratio else 'acceptance'}")
        y = ratio("point", title, limits, ticks) if is_ratio else quantity("point", title)
        look = {
            "color": charts.coloured("target", words("column.target"), targets, palette),
            "shape": charts.shaped("method", words("column.arm"), methods),
        }
        column = "column.speedup" if is_ratio else "column.acceptance"
        tips = tooltip(words, ("arm", "column.arm"), ("shown", column), ("verdict", "column.verdict"))
        along = {"x": x, "y": y, "color": look["color"], "detail": {"field": "method", "type": "nominal"}}
        line: Spec = {"mark": {"type": "line", "clip": True, "strokeWidth": 1.5}, "encoding": along}
        marks = [
            line,
            charts.interval_rule(y, x, look["color"], across=False),
            *charts.points({"x": x, "y": y, **look, "tooltip": tips}),
        ]
        return {"height": 260, "layer": [charts.one_line(palette, across=True), *marks] if is_ratio else marks}

    return Chart(name, data, draw)


def yielded(document: Document) -> Chart | None:
    """Speedup against tau, its ceiling where a step costs at least as much as a plain forward."""
    data: list[Datum] = []
    values: list[Estimate | float] = []
    for arm in document.run.summary.arms:
        if arm.speedup is None or arm.tau is None:
            continue
        values += [arm.speedup, arm.tau.point]
        data.append(
            {
                **_who(document, arm),
                **_number(arm.speedup, 2),
                "tau": arm.tau.point,
                "tau_shown": shown(arm.tau, 2),
            }
        )
    if len(data) < 2:
        return None
    limits, ticks = ratio_axis(values)
    targets = _distinct(data, "target")
    most = max(1.1, limits[1])

    def draw(words: Words, palette: Palette) -> Spec:
        x = {**quantity("tau", words("axis.tau")), "scale": {"domain": [1, most], "nice": False}}
        y = ratio("point", words("axis.speedup"), limits, ticks)
        look = charts.series("target", words("column.target"), targets, palette)
        tips = tooltip(
            words,
            ("arm", "column.arm"),
            ("shown", "column.speedup"),
            ("tau_shown", "column.tau"),
            ("verdict", "column.verdict"),
        )
        ceiling: Spec = {
            "data": {"values": [{"tau": 1 + (most - 1) * step / 40} for step in range(41)]},
            "mark": {"type": "line", "color": palette.bad, "strokeDash": [6, 4], "clip": True, "aria": False},
            "encoding": {"x": x, "y": {**y, "field": "tau"}},
        }
        return {
            "height": 300,
            "layer": [
                ceiling,
                charts.one_line(palette, across=True),
                charts.interval_rule(y, x, look["color"], across=False),
                *charts.points({"x": x, "y": y, **look, "tooltip": tips}),
            ],
        }

    return Chart("yield", data, draw)


def footprint(document: Document) -> Chart | None:
    """Speedup against the weights that a token reads, where there are at least three targets to compare."""
    read = {model.name: model.header.bytes_per_token for model in document.run.models if model.header}
    arms = {arm.id: arm for arm in document.run.arms}
    data: list[Datum] = []
    found: list[Estimate] = []
    for arm in document.run.summary.arms:
        asked = arms[arm.arm_id]
        if arm.speedup is None or asked.target not in read:
            continue
        found.append(arm.speedup)
        who = {**_who(document, arm), "series": printable(label(arm.arm_id))}
        data.append({**who, **_number(arm.speedup, 2), "gigabytes": read[asked.target] / _GB})
    if len({datum["gigabytes"] for datum in data}) < 3:
        return None
    limits, ticks = ratio_axis(found)
    names = _distinct(data, "series")

    def draw(words: Words, palette: Palette) -> Spec:
        x, y = quantity("gigabytes", words("axis.gigabytes")), ratio("point", words("axis.speedup"), limits, ticks)
        look = charts.series("series", words("column.arm"), names, palette)
        tips = tooltip(words, ("arm", "column.arm"), ("shown", "column.speedup"), ("verdict", "column.verdict"))
        return {
            "height": 280,
            "layer": [
                charts.one_line(palette, across=True),
                charts.interval_rule(y, x, look["color"], across=False),
                *charts.points({"x": x, "y": y, **look, "tooltip": tips}),
            ],
        }

    return Chart("footprint", data, draw)


def kinds(document: Document) -> Chart | None:
    """Speedup by kind of text."""
    data: list[Datum] = []
    found: list[Estimate] = []
    for arm in _answered(document, MOST_ROWS):
        for kind, part in arm.kinds.items():
            if part.speedup is not None:
                found.append(part.speedup)
                data.append({**_who(document, arm), "kind": printable(kind), **_number(part.speedup, 2)})
    names = _distinct(data, "kind")
    if len(names) < 2:
        return None
    limits, ticks = ratio_axis(found)

    def draw(words: Words, palette: Palette) -> Spec:
        x = ratio("point", words("axis.speedup"), limits, ticks)
        y: Spec = {**rows(data), "scale": {"paddingInner": 0.15}}
        offset: Spec = {"field": "kind", "type": "nominal", "sort": None}
        look = charts.series("kind", words("column.kind"), names, palette)
        tips = tooltip(
            words,
            ("arm", "column.arm"),
            ("kind", "column.kind"),
            ("shown", "column.speedup"),
            ("verdict", "column.verdict"),
        )
        rule = charts.interval_rule(x, y, look["color"])
        rule["encoding"]["yOffset"] = offset
        marks = charts.points({"x": x, "y": y, "yOffset": offset, **look, "tooltip": tips})
        return {"height": {"step": 12, "for": "offset"}, "layer": [charts.one_line(palette), rule, *marks]}

    return Chart("kinds", data, draw)


def lengths(document: Document) -> Chart | None:
    """Speedup against the length of the prompt, for prompts of controlled length."""
    data: list[Datum] = []
    found: list[Estimate] = []
    for arm in _answered(document, MOST_ROWS):
        for kind, part in arm.kinds.items():
            length = _LENGTH.fullmatch(kind)
            if length and part.speedup is not None:
                found.append(part.speedup)
                data.append({**_who(document, arm), "tokens": int(length[1]), **_number(part.speedup, 2)})
    if len({datum["tokens"] for datum in data}) < 2:
        return None
    limits, ticks = ratio_axis(found)
    names = _distinct(data, "arm")

    def draw(words: Words, palette: Palette) -> Spec:
        x: Spec = {"field": "tokens", "type": "ordinal", "title": words("axis.length"), "axis": {"labelAngle": 0}}
        y = ratio("point", words("axis.speedup"), limits, ticks)
        look = charts.series("arm", words("column.arm"), names, palette)
        tips = tooltip(words, ("arm", "column.arm"), ("shown", "column.speedup"), ("verdict", "column.verdict"))
        return {
            "height": 260,
            "layer": [
                charts.one_line(palette, across=True),
                {"mark": {"type": "line", "clip": True}, "encoding": {"x": x, "y": y, "color": look["color"]}},
                charts.interval_rule(y, x, look["color"], across=False),
                *charts.points({"x": x, "y": y, **look, "tooltip": tips}),
            ],
        }

    return Chart("lengths", data, draw)


def requests(document: Document) -> Chart | None:
    """Decode rates of single requests: whether a mean hides two speeds."""
    arms = {arm.arm_id: arm for group in document.targets() for arm in group}
    data: list[Datum] = []
    for arm_id, found in _points_and_bins(document, arms).items():
        who = _who(document, arms[arm_id])
        data += [{**who, **datum} for datum in found] or [who]
    if not any("shown" in datum for datum in data):
        return None
    targets = _distinct(data, "target")
    binned = bool(document.bins)

    def draw(words: Words, palette: Palette) -> Spec:
        x, y = quantity("point", words("axis.rate")), rows(data)
        colour = charts.coloured("target", words("column.target"), targets, palette)
        if binned:
            tips = tooltip(words, ("arm", "column.arm"), ("shown", "column.decode_rate"), ("count", "column.requests"))
            share: Spec = {
                "field": "share",
                "type": "quantitative",
                "scale": {"type": "sqrt", "domain": [0, 1], "range": [0.15, 1]},
                "legend": None,
            }
            ends: Spec = {"x": {**x, "field": "low"}, "x2": {"field": "high"}, "opacity": share}
            mark: Spec = {"type": "rect", "height": 14}
        else:
            tips = tooltip(
                words,
                ("arm", "column.arm"),
                ("prompt", "column.prompt"),
                ("kind", "column.kind"),
                ("block", "column.block"),
                ("shown", "column.decode_rate"),
            )
            ends = {"x": x}
            mark = {"type": "tick", "thickness": 2, "size": 14, "opacity": 0.6}
        single: Spec = {
            "transform": [{"filter": "isValid(datum.shown)"}],
            "mark": mark,
            "encoding": {**ends, "y": y, "color": colour, "tooltip": tips},
        }
        return {"height": {"step": 24}, "layer": [single, charts.withheld(words, palette, y)]}

    return Chart("requests", data, draw)


def _points_and_bins(document: Document, arms: Iterable[str]) -> dict[str, list[Datum]]:
    """Single requests of each arm, or how many have a rate within which bounds; none of invalid arms."""
    invalid = document.run.invalid
    of_arm: dict[str, list[Datum]] = {arm_id: [] for arm_id in arms}
    for point in document.points:
        if point.arm_id in of_arm and point.arm_id not in invalid:
            of_arm[point.arm_id].append(
                {
                    "prompt": printable(point.prompt_id),
                    "kind": printable(point.kind),
                    "block": point.block + 1,
                    "point": point.rate,
                    "shown": f"{point.rate:.1f}",
                }
            )
    most = max((rate_bin.requests for rate_bin in document.bins), default=0)
    for counted in document.bins:
        if counted.arm_id in of_arm and counted.arm_id not in invalid:
            of_arm[counted.arm_id].append(
                {
                    "low": counted.low,
                    "high": counted.high,
                    "count": counted.requests,
                    "share": counted.requests / most,
                    "shown": f"{counted.low:.1f} - {counted.high:.1f}",
                }
            )
    return of_arm


def _who(document: Document, arm: ArmSummary) -> Datum:
    certificate = document.run.certificate
    target = next(one.target for one in document.run.arms if one.id == arm.arm_id)
    return {
        "arm": arm_name(target, arm.arm_id),
        "target": printable(target),
        "verdict": certificate.arms.get(arm.arm_id, "invalid") if certificate else "unchecked",
    }


def predictions(document: Document) -> dict[str, Estimate]:
    """Arm -> the speedup that was predicted before it was measured."""
    found = {outcome.prediction.arm_id: outcome.prediction.speedup for outcome in document.run.predictions}
    return {arm_id: speedup for arm_id, speedup in found.items() if speedup is not None}


def _predicted(estimate: Estimate | None) -> Datum:
    return {} if estimate is None else {"predicted": estimate.point, "predicted_shown": shown(estimate, 2)}


def _number(estimate: Estimate | None, digits: int, scale: float = 1.0) -> Datum:
    if estimate is None:
        return {"point": None, "low": None, "high": None, "shown": "-"}
    return {
        "point": estimate.point * scale,
        "low": None if estimate.low is None else estimate.low * scale,
        "high": None if estimate.high is None else estimate.high * scale,
        "shown": shown(estimate, digits, scale),
    }


def _method(arm: Arm) -> str:
    """An arm without its target and its draft length."""
    return printable("/".join(part for part in label(arm.id).split("/") if part != f"g{arm.gamma}"))


def _answered(document: Document, most: int) -> list[ArmSummary]:
    """Arms with a speedup; only those of the answers where there are more than `most`."""
    compared = [arm for arm in document.run.summary.arms if arm.baseline_id is not None]
    chosen = {answer.arm_id for answer in document.run.answers}
    return compared if len(compared) <= most else [arm for arm in compared if arm.arm_id in chosen]


def _distinct(data: list[Datum], field: str) -> list[str]:
    return list(dict.fromkeys(str(datum[field]) for datum in data))
