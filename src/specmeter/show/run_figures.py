"""The figures of a run. Each function says when there is something to see: it returns None otherwise."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from specmeter.analysis.explain.account import PartName
from specmeter.numbers.margin import MARGIN
from specmeter.show import figure as charts
from specmeter.show.figure import (
    Datum,
    Figure,
    Spec,
    arm_name,
    distinct,
    quantity,
    ratio,
    ratio_axis,
    rows,
    shown,
    single,
    tooltip,
)
from specmeter.show.names import label
from specmeter.show.step_figures import accepted, lookahead, positions
from specmeter.text import estimated, percent, printable

if TYPE_CHECKING:
    from specmeter.analysis.summary import ArmSummary
    from specmeter.record import Arm, Estimate
    from specmeter.show.page.document import Document
    from specmeter.show.style import Palette
    from specmeter.show.words import Words

_LENGTH = re.compile(r"length-(\d+)")
PARTS: tuple[PartName, ...] = ("verify", "draft", "restore", "sample", "rest", "remainder")
MOST_ROWS = 12
"""Figures that show each configuration several times show more of them only by their best."""
_TIPS = (("arm", "column.arm"), ("shown", "column.speedup"), ("verdict", "column.verdict"))


def run_figures(document: Document) -> dict[str, Figure]:
    """All figures that this run has something for, by name, in the order of the page."""
    makers: tuple[Callable[[Document], Figure | None], ...] = (
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
    return {figure.name: figure for figure in made if figure is not None}


def comparison(document: Document) -> Figure | None:
    """Speedup of every arm with its interval; where a number is false, that it is."""
    compared = [arm for arm in document.run.summary.arms if arm.baseline_id is not None]
    predicted = predictions(document)
    data: list[Datum] = [
        {**_who(document, arm), **shown(arm.speedup, 2), **_predicted(predicted.get(arm.arm_id))} for arm in compared
    ]
    if not data:
        return None
    limits, ticks = ratio_axis(
        [*(arm.speedup for arm in compared if arm.speedup), *(e.point for e in predicted.values())]
    )
    targets = distinct(data, "target")

    def draw(words: Words, palette: Palette) -> Spec:
        x, y = ratio("point", words("axis.speedup"), limits, ticks), rows(data)
        look = charts.series("target", words("column.target"), targets, palette)
        tips = tooltip(words, *_TIPS)
        expected: list[Spec] = []
        if predicted:
            tips += tooltip(words, ("predicted_shown", "column.predicted"))
            upright: Spec = {"type": "tick", "thickness": 2, "size": 16, "color": palette.ink, "clip": True}
            place = {"x": {**x, "field": "predicted"}, "y": y, "tooltip": tips}
            kept = [{"filter": "isValid(datum.predicted)"}]
            expected = [{"transform": kept, "mark": upright, "encoding": place}]
        back = [charts.band(palette, MARGIN), charts.one_line(palette), *expected]
        layer = [*back, *charts.numbers(x, y, look, tips), charts.withheld(words, palette, y)]
        return {"height": {"step": 26}, "layer": layer}

    return single("comparison", data, draw)


def rates(document: Document) -> Figure | None:
    """Decode rate of every arm, baselines included."""
    data: list[Datum] = [
        {**_who(document, arm), **shown(arm.decode_rate, 1)}
        for group in document.targets()
        for arm in group
        if arm.decode_rate
    ]
    if not data:
        return None
    targets = distinct(data, "target")

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

    return single("rates", data, draw)


def parts(document: Document) -> Figure | None:
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
            told = {"part": part.name, "order": PARTS.index(part.name), "share": percent(part.share)}
            data.append({**who, **told, **shown(part.ms_per_token, 2)})
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

    return single("parts", data, draw)


def gamma(document: Document) -> Figure | None:
    """Speedup against draft length, where an arm comes with several."""
    return _by_gamma(document, "gamma", lambda arm: arm.speedup, is_ratio=True)


def acceptance(document: Document) -> Figure | None:
    """Acceptance rate against draft length."""
    return _by_gamma(document, "acceptance", lambda arm: arm.acceptance, is_ratio=False)


def _by_gamma(
    document: Document, name: str, value: Callable[[ArmSummary], Estimate | None], *, is_ratio: bool
) -> Figure | None:
    arms = {arm.id: arm for arm in document.run.arms}
    data: list[Datum] = []
    found: list[Estimate] = []
    for arm in document.run.summary.arms:
        estimate, asked = value(arm), arms[arm.arm_id]
        if estimate is None or asked.gamma is None or arm.arm_id in document.run.invalid:
            continue
        found.append(estimate)
        numbers = shown(estimate, 2) if is_ratio else shown(estimate, 1, 100)
        data.append({**_who(document, arm), "method": _method(asked), "gamma": asked.gamma, **numbers})
    lines = {(datum["target"], datum["method"]) for datum in data}
    if len(lines) == len({(datum["target"], datum["method"], datum["gamma"]) for datum in data}):
        return None
    targets, methods = distinct(data, "target"), distinct(data, "method")
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
        back = [charts.one_line(palette, across=True)] if is_ratio else []
        return {"height": 260, "layer": [*back, line, *charts.numbers(x, y, look, tips, across=False)]}

    return single(name, data, draw)


def yielded(document: Document) -> Figure | None:
    """Speedup against tau, its ceiling where a step costs at least as much as a plain forward."""
    arms = [(arm, arm.speedup, arm.tau) for arm in document.run.summary.arms]
    known = [(arm, speedup, tau) for arm, speedup, tau in arms if speedup is not None and tau is not None]
    if len(known) < 2:
        return None
    data: list[Datum] = [
        {**_who(document, arm), **shown(speedup, 2), "tau": tau.point, "tau_shown": estimated(tau, 2)}
        for arm, speedup, tau in known
    ]
    limits, ticks = ratio_axis([value for _, speedup, tau in known for value in (speedup, tau.point)])
    most = max(1.1, limits[1])

    def draw(words: Words, palette: Palette) -> Spec:
        x = {**quantity("tau", words("axis.tau")), "scale": {"domain": [1, most], "nice": False}}
        ceiling: Spec = {
            "data": {"values": [{"tau": 1 + (most - 1) * step / 40} for step in range(41)]},
            "mark": {"type": "line", "color": palette.bad, "strokeDash": [6, 4], "clip": True, "aria": False},
            "encoding": {"x": x, "y": {**ratio("tau", words("axis.speedup"), limits, ticks)}},
        }
        told = tooltip(words, *_TIPS[:2], ("tau_shown", "column.tau"), _TIPS[2])
        upright = _upright(words, palette, x, data, (limits, ticks), "target", tips=told)
        return {"height": 300, "layer": [ceiling, *upright]}

    return single("yield", data, draw)


def footprint(document: Document) -> Figure | None:
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
        data.append({**who, **shown(arm.speedup, 2), "gigabytes": read[asked.target] / 1e9})
    if len({datum["gigabytes"] for datum in data}) < 3:
        return None
    axis = ratio_axis(found)

    def draw(words: Words, palette: Palette) -> Spec:
        x = quantity("gigabytes", words("axis.gigabytes"))
        return {"height": 280, "layer": _upright(words, palette, x, data, axis, "series")}

    return single("footprint", data, draw)


def lengths(document: Document) -> Figure | None:
    """Speedup against the length of the prompt, for prompts of controlled length."""
    data: list[Datum] = []
    found: list[Estimate] = []
    for arm, kind, speedup in _by_kind(document):
        if length := _LENGTH.fullmatch(kind):
            found.append(speedup)
            data.append({**_who(document, arm), "tokens": int(length[1]), **shown(speedup, 2)})
    if len({datum["tokens"] for datum in data}) < 2:
        return None
    axis = ratio_axis(found)

    def draw(words: Words, palette: Palette) -> Spec:
        x: Spec = {"field": "tokens", "type": "ordinal", "title": words("axis.length"), "axis": {"labelAngle": 0}}
        return {"height": 260, "layer": _upright(words, palette, x, data, axis, "arm", line=True)}

    return single("lengths", data, draw)


def _upright(
    words: Words,
    palette: Palette,
    x: Spec,
    data: list[Datum],
    axis: tuple[list[float], list[float]],
    series: str,
    *,
    tips: list[Spec] | None = None,
    line: bool = False,
) -> list[Spec]:
    """Speedups against something, by `series`: the line at 1, intervals and marks, with `line` joined."""
    y = ratio("point", words("axis.speedup"), *axis)
    title = words("column.target" if series == "target" else "column.arm")
    look = charts.series(series, title, distinct(data, series), palette)
    joined: Spec = {"mark": {"type": "line", "clip": True}, "encoding": {"x": x, "y": y, "color": look["color"]}}
    marks = charts.numbers(x, y, look, tips or tooltip(words, *_TIPS), across=False)
    return [charts.one_line(palette, across=True), *([joined] if line else []), *marks]


def kinds(document: Document) -> Figure | None:
    """Speedup by kind of text."""
    data: list[Datum] = []
    found: list[Estimate] = []
    for arm, kind, speedup in _by_kind(document):
        found.append(speedup)
        data.append({**_who(document, arm), "kind": printable(kind), **shown(speedup, 2)})
    names = distinct(data, "kind")
    if len(names) < 2:
        return None
    limits, ticks = ratio_axis(found)

    def draw(words: Words, palette: Palette) -> Spec:
        x = ratio("point", words("axis.speedup"), limits, ticks)
        y: Spec = {**rows(data), "scale": {"paddingInner": 0.15}}
        look = charts.series("kind", words("column.kind"), names, palette)
        tips = tooltip(words, _TIPS[0], ("kind", "column.kind"), *_TIPS[1:])
        marks = charts.numbers(x, y, look, tips)
        for mark in marks:
            mark["encoding"]["yOffset"] = {"field": "kind", "type": "nominal", "sort": None}
        return {"height": {"step": 12, "for": "offset"}, "layer": [charts.one_line(palette), *marks]}

    return single("kinds", data, draw)


def requests(document: Document) -> Figure | None:
    """Decode rates of single requests: whether a mean hides two speeds."""
    arms = {arm.arm_id: arm for group in document.targets() for arm in group}
    data: list[Datum] = []
    for arm_id, found in _points_and_bins(document, arms).items():
        who = _who(document, arms[arm_id])
        data += [{**who, **datum} for datum in found] or [who]
    if not any("shown" in datum for datum in data):
        return None
    targets = distinct(data, "target")
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

    return single("requests", data, draw)


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
    return {} if estimate is None else {"predicted": estimate.point, "predicted_shown": estimated(estimate, 2)}


def _method(arm: Arm) -> str:
    """An arm without its target and its draft length."""
    return printable("/".join(part for part in label(arm.id).split("/") if part != f"g{arm.gamma}"))


def _by_kind(document: Document) -> list[tuple[ArmSummary, str, Estimate]]:
    """(arm, kind of text, its speedup); only of the arms of the answers where there are more than `MOST_ROWS`."""
    compared = [arm for arm in document.run.summary.arms if arm.baseline_id is not None]
    if len(compared) > MOST_ROWS:
        chosen = {answer.arm_id for answer in document.run.answers}
        compared = [arm for arm in compared if arm.arm_id in chosen]
    return [(arm, kind, part.speedup) for arm in compared for kind, part in arm.kinds.items() if part.speedup]
