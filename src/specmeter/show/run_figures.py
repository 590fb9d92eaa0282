"""The figures of a run. Each function says when there is something to see: it returns None otherwise."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from specmeter.messages import LANGUAGES, Message, words
from specmeter.numbers.margin import MARGIN
from specmeter.show import figure as charts
from specmeter.show.figure import (
    Datum,
    Figure,
    Spec,
    distinct,
    named,
    quantity,
    ratio,
    ratio_axis,
    rows,
    shown,
    single,
    tooltip,
)
from specmeter.show.matrix_figure import matrix
from specmeter.show.page.arms import lines, who
from specmeter.show.step_figures import accepted, lookahead, positions
from specmeter.text import estimated, percent, printable

if TYPE_CHECKING:
    from specmeter.analysis.explain.account import ArmAccount, PartName
    from specmeter.analysis.summary import ArmSummary
    from specmeter.messages import Words
    from specmeter.record import Estimate
    from specmeter.show.page.document import Document
    from specmeter.show.palette import Palette

_LENGTH = re.compile(r"length-(\d+)")
PARTS = ("verify", "draft", "restore", "sample", "rest", "undivided", "remainder")
"""In the order that they are shown in; `undivided`: drafting and verification of an arm that cannot tell them apart."""
MAX_ROWS = 12
"""Figures that show each configuration several times show more of them only by their best."""


def part_name(arm: ArmAccount, name: PartName) -> str:
    """The one of `PARTS` that a part of an arm's time is shown as."""
    return "undivided" if arm.means == "undivided" and name == "verify" else name


def run_figures(document: Document) -> dict[str, Figure]:
    """All figures that this run has something for, by name, in the order of the page."""
    makers: tuple[Callable[[Document], Figure | None], ...] = (
        comparison,
        matrix,
        rates,
        parts,
        gamma,
        acceptance,
        positions,
        accepted,
        lookahead,
        footprint,
        kinds,
        lengths,
        depths,
        requests,
    )
    made = (maker(document) for maker in makers)
    return {figure.name: figure for figure in made if figure is not None}


def comparison(document: Document) -> Figure | None:
    """Speedup of every arm with its interval, and the way that is left to its ceiling; where a number is false, that it
    is."""
    compared = [arm for arm in document.run.summary.arms if arm.baseline_id is not None and arm.load is None]
    predicted = predictions(document)
    data: list[Datum] = []
    for arm in compared:
        datum = {
            **who(document, arm.arm_id),
            **shown(document.run.cited(arm), 2),
            **foretold(predicted.get(arm.arm_id)),
        }
        if (ceiling := document.ceilings.get(arm.arm_id)) and arm.speedup:
            datum |= {"ceiling": ceiling.speedup.point, "ceiling_shown": estimated(ceiling.speedup, 2)}
        data.append(datum)
    if not data:
        return None
    reached = [float(datum["ceiling"] or 1) for datum in data if "ceiling" in datum]
    limits, ticks = ratio_axis(
        [
            *(cited for arm in compared if (cited := document.run.cited(arm))),
            *(e.point for e in predicted.values()),
            *reached,
        ]
    )
    targets = distinct(data, "target")

    def draw(words: Words, palette: Palette) -> Spec:
        x, y = ratio("point", words("axis.speedup"), limits, ticks), rows(data, named(words))
        look = charts.series("target", words("column.target"), targets, palette)
        tips = tooltip(words, (named(words), "column.arm"), ("shown", "column.speedup"))
        tips += tooltip(words, ("ceiling_shown", "column.ceiling")) if reached else []
        tips += tooltip(words, ("predicted_shown", "column.predicted")) if predicted else []
        tips += tooltip(words, ("verdict", "column.verdict"))
        behind = _ceiling(x, y, palette, tips) if reached else []
        if predicted:
            upright: Spec = {"type": "tick", "thickness": 2, "size": 16, "color": palette.ink, "clip": True}
            place = {"x": {**x, "field": "predicted"}, "y": y, "tooltip": tips}
            kept = [{"filter": "isValid(datum.predicted)"}]
            behind.append({"transform": kept, "mark": upright, "encoding": place})
        layer = [charts.band(palette, MARGIN), charts.one_line(palette), *behind]
        layer += [*charts.numbers(x, y, look, tips), charts.withheld(words, palette, y)]
        return {"height": {"step": 26}, "layer": layer}

    key: list[str] = ["interval", "baseline", "band"]
    key += (["tick"] if predicted else []) + (["limit"] if reached else [])
    return single("comparison", data, draw, *key, *charts.standing(data))


def _ceiling(x: Spec, y: Spec, palette: Palette, tips: list[Spec]) -> list[Spec]:
    """A dotted line from each speedup to a bracket at its ceiling."""
    kept = [{"filter": "isValid(datum.ceiling)"}]
    way: Spec = {"type": "rule", "stroke": palette.muted, "strokeDash": [1, 4], "strokeCap": "round", "strokeWidth": 2}
    end: Spec = {"type": "text", "text": "]", "fontSize": 17, "fontWeight": "bold", "color": palette.muted, "dy": -1}
    top = {**x, "field": "ceiling"}
    return [
        {"transform": kept, "mark": way, "encoding": {"x": x, "x2": {"field": "ceiling"}, "y": y}},
        {"transform": kept, "mark": end, "encoding": {"x": top, "y": y, "tooltip": tips}},
    ]


def rates(document: Document) -> Figure | None:
    """Decode rate of every arm, baselines included."""
    data: list[Datum] = [
        {**who(document, arm.arm_id), **shown(arm.decode_rate, 1)}
        for group in document.targets()
        for arm in group
        if arm.decode_rate
    ]
    if not data:
        return None
    targets = distinct(data, "target")

    def draw(words: Words, palette: Palette) -> Spec:
        x, y = quantity("point", words("axis.rate")), rows(data, named(words))
        look = charts.series("target", words("column.target"), targets, palette)
        tips = tooltip(
            words, (named(words), "column.arm"), ("shown", "column.decode_rate"), ("verdict", "column.verdict")
        )
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
    summaries = {arm.arm_id for group in document.targets() for arm in group}
    data: list[Datum] = []
    for arm in document.account.arms:
        if arm.arm_id not in summaries:
            continue
        if arm.arm_id in document.run.invalid:
            data.append(who(document, arm.arm_id))
            continue
        ends = {True: 0.0, False: 0.0}  # what was saved lies left of zero
        for part in sorted(arm.parts, key=lambda part: PARTS.index(part.name)):
            size = part.ms_per_token.point
            start = ends[size >= 0]
            ends[size >= 0] = start + size
            place = {"start": start, "end": start + size, "middle": start + size / 2}
            said = {"part": part_name(arm, part.name), "share": percent(part.share), **shown(part.ms_per_token, 2)}
            data.append({**who(document, arm.arm_id), **said, **place})
    names = [name for name in PARTS if any(datum.get("part") == name for datum in data)]
    if not names:
        return None
    most = max(float(datum["end"] or 0) for datum in data if "end" in datum)

    def draw(words: Words, palette: Palette) -> Spec:
        title = words("axis.ms_per_token")
        x, y = quantity("start", title), rows(data, named(words))
        told = " : ".join([*(f"datum.label == '{name}' ? '{words(f'part.{name}')}'" for name in names), "datum.label"])
        order = PARTS[:-1]
        colours = ["transparent" if name == "remainder" else palette.series[order.index(name)] for name in names]
        look: Spec = {"field": "part", "type": "nominal", "scale": {"domain": names, "range": colours}}
        edges = [palette.muted if name == "remainder" else palette.paper for name in names]
        edge: Spec = {**look, "scale": {"domain": names, "range": edges}, "legend": None}
        colour: Spec = {
            **look,
            "legend": {"title": None, "labelExpr": told, "symbolType": "square", "symbolStrokeColor": palette.muted},
        }
        tips = tooltip(
            words,
            (named(words), "column.arm"),
            ("part", "column.part"),
            ("shown", "axis.ms_per_token"),
            ("share", "column.share"),
        )
        bars: Spec = {
            "transform": [{"filter": "isValid(datum.point)"}],
            "mark": {"type": "bar", "height": 18, "strokeWidth": 1.5},
            "encoding": {"x": x, "x2": {"field": "end"}, "y": y, "fill": colour, "stroke": edge, "tooltip": tips},
        }
        return {
            "height": {"step": 28},
            "params": [{"name": "roomy", "value": 0.09}],
            "layer": [
                bars,
                *(_named_part(name, most, x, y, words, palette) for name in names),
                charts.withheld(words, palette, y),
            ],
        }

    return single("parts", data, draw)


def _named_part(name: str, most: float, x: Spec, y: Spec, words: Words, palette: Palette) -> Spec:
    """The name of a part in its bars, where it has room: colours alone tell parts apart to few."""
    said = words(f"column.part_{name}")
    wide = sum(1 + (char > "\u2e7f") for char in said)  # a Chinese character is as wide as two letters
    room = f"datum.part == '{name}' && abs(datum.end - datum.start) > roomy * {most * max(1.0, wide / 12)!r}"
    mark: Spec = {"type": "text", "fontSize": 11, "text": said}
    mark["color"] = palette.ink if name == "remainder" else palette.paper
    return {"transform": [{"filter": room}], "mark": mark, "encoding": {"x": {**x, "field": "middle"}, "y": y}}


def gamma(document: Document) -> Figure | None:
    """Speedup against draft length, where an arm comes with several."""
    return _by_gamma(document, "gamma", document.run.cited, is_ratio=True)


def acceptance(document: Document) -> Figure | None:
    """Acceptance rate against draft length."""
    return _by_gamma(document, "acceptance", lambda arm: arm.acceptance, is_ratio=False)


def _by_gamma(
    document: Document, name: str, value: Callable[[ArmSummary], Estimate | None], *, is_ratio: bool
) -> Figure | None:
    known = lines(document)
    data: list[Datum] = []
    found: list[Estimate] = []
    for arm in document.run.summary.arms:
        estimate, asked = value(arm), document.arms[arm.arm_id]
        if estimate is None or arm.arm_id not in known or arm.arm_id in document.run.invalid:
            continue
        found.append(estimate)
        numbers = shown(estimate, 2) if is_ratio else shown(estimate, 1, 100)
        line = {f"line_{language}": words(language).render(known[arm.arm_id]) for language in LANGUAGES}
        data.append({**who(document, arm.arm_id), **line, "gamma": asked.gamma, **numbers})
    ways = {(datum["target"], datum["line_en"]) for datum in data}
    if len(ways) == len({(datum["target"], datum["line_en"], datum["gamma"]) for datum in data}):
        return None
    targets = distinct(data, "target")
    limits, ticks = ratio_axis(found) if is_ratio else ([], [])

    def draw(one: Words, palette: Palette) -> Spec:
        way = f"line_{one.language}"
        x = {"field": "gamma", "type": "ordinal", "title": one("axis.gamma"), "axis": {"labelAngle": 0}}
        title = one(f"axis.{'speedup' if is_ratio else 'acceptance'}")
        y = ratio("point", title, limits, ticks) if is_ratio else quantity("point", title)
        look = {
            "color": charts.coloured("target", one("column.target"), targets, palette),
            "shape": charts.shaped(way, one("column.method"), distinct(data, way)),
        }
        column = "column.speedup" if is_ratio else "column.acceptance"
        tips = tooltip(one, (named(one), "column.arm"), ("shown", column), ("verdict", "column.verdict"))
        along = {"x": x, "y": y, "color": look["color"], "detail": {"field": way, "type": "nominal"}}
        line: Spec = {"mark": {"type": "line", "clip": True, "strokeWidth": 1.5}, "encoding": along}
        back = [charts.one_line(palette, across=True)] if is_ratio else []
        return {"height": 260, "layer": [*back, line, *charts.numbers(x, y, look, tips, across=False)]}

    return single(name, data, draw)


def footprint(document: Document) -> Figure | None:
    """Speedup against the weights that a token reads, where there are at least three targets to compare."""
    read = {model.name: model.header.bytes_per_token for model in document.run.models if model.header}
    data: list[Datum] = []
    found: list[Estimate] = []
    for arm in document.run.summary.arms:
        asked = document.arms[arm.arm_id]
        cited = document.run.cited(arm)
        if cited is None or arm.load is not None or asked.target not in read:
            continue
        found.append(cited)
        series = {f"series_{it}": document.names.render(arm.arm_id, words(it)) for it in LANGUAGES}
        data.append({**who(document, arm.arm_id), **series, **shown(cited, 2), "gigabytes": read[asked.target] / 1e9})
    if len({datum["gigabytes"] for datum in data}) < 3:
        return None
    axis = ratio_axis(found)

    def draw(one: Words, palette: Palette) -> Spec:
        x = quantity("gigabytes", one("axis.gigabytes"))
        return {"height": 280, "layer": _upright(one, palette, x, data, axis, f"series_{one.language}")}

    return single("footprint", data, draw, "interval", "baseline", *charts.standing(data))


def lengths(document: Document) -> Figure | None:
    """Speedup against the length of the prompt, for prompts of controlled length."""
    data: list[Datum] = []
    found: list[Estimate] = []
    for arm, kind, speedup in _by_kind(document):
        if length := _LENGTH.fullmatch(kind):
            found.append(speedup)
            data.append({**who(document, arm.arm_id), "tokens": int(length[1]), **shown(speedup, 2)})
    if len({datum["tokens"] for datum in data}) < 2:
        return None
    axis = ratio_axis(found)

    def draw(words: Words, palette: Palette) -> Spec:
        x: Spec = {"field": "tokens", "type": "ordinal", "title": words("axis.length"), "axis": {"labelAngle": 0}}
        return {"height": 260, "layer": _upright(words, palette, x, data, axis, named(words), line=True)}

    return single("lengths", data, draw, "interval", "baseline", *charts.standing(data))


def depths(document: Document) -> Figure | None:
    """Recorded sessions: speedup of the calls, acceptance and use of the cache against the length of their prompts."""
    data: list[Datum] = []
    found: list[Estimate] = []
    for arm in document.run.sessions:
        for at in arm.depths:
            if at.speedup is None or arm.arm_id in document.run.invalid:
                continue
            found.append(at.speedup)
            shares = {
                name: None if value is None else 100 * value
                for name, value in (("acceptance", at.acceptance), ("reuse", at.reuse))
            }
            of = {"depth": f"{at.depth:,}", **shown(at.speedup, 2), **shares}
            data.append({**who(document, arm.arm_id), **of})
    if len({datum["depth"] for datum in data}) < 2:
        return None
    axis = ratio_axis(found)
    x: Spec = {"field": "depth", "type": "ordinal", "sort": None, "axis": {"labelAngle": 0}}

    def speedups(words: Words, palette: Palette) -> Spec:
        titled = {**x, "title": words("axis.depth")}
        return {"height": 200, "layer": _upright(words, palette, titled, data, axis, named(words), line=True)}

    def share(name: str) -> charts.Draw:
        def draw(words: Words, palette: Palette) -> Spec:
            y = quantity(name, words(f"axis.{name}"), scale={"domain": [0, 100]})
            look = charts.series(named(words), words("column.arm"), distinct(data, named(words)), palette)
            at = {"x": {**x, "title": words("axis.depth")}, "y": y, **look}
            return {"height": 200, "layer": [{"mark": {"type": "line", "point": True}, "encoding": at}]}

        return draw

    panels = (
        charts.Panel("depths", data, speedups, Message("axis.speedup")),
        charts.Panel("depths-acceptance", data, share("acceptance"), Message("axis.acceptance")),
        charts.Panel("depths-reuse", data, share("reuse"), Message("axis.reuse")),
    )
    return Figure("depths", panels, key=("interval", "baseline", *charts.standing(data)))


def _upright(
    words: Words,
    palette: Palette,
    x: Spec,
    data: list[Datum],
    axis: tuple[list[float], list[float]],
    series: str,
    *,
    line: bool = False,
) -> list[Spec]:
    """Speedups against something, by `series`: the line at 1, intervals and marks, with `line` joined."""
    y = ratio("point", words("axis.speedup"), *axis)
    look = charts.series(series, words("column.arm"), distinct(data, series), palette)
    joined: Spec = {"mark": {"type": "line", "clip": True}, "encoding": {"x": x, "y": y, "color": look["color"]}}
    marks = charts.numbers(x, y, look, _tips(words), across=False)
    return [charts.one_line(palette, across=True), *([joined] if line else []), *marks]


def _tips(words: Words, *more: tuple[str, str]) -> list[Spec]:
    return tooltip(
        words, (named(words), "column.arm"), *more, ("shown", "column.speedup"), ("verdict", "column.verdict")
    )


def kinds(document: Document) -> Figure | None:
    """Speedup by kind of text."""
    data: list[Datum] = []
    found: list[Estimate] = []
    for arm, kind, speedup in _by_kind(document):
        found.append(speedup)
        data.append({**who(document, arm.arm_id), "kind": printable(kind), **shown(speedup, 2)})
    names = sorted(distinct(data, "kind"))  # as in `lookahead`, so that a kind has one colour
    if len(names) < 2:
        return None
    limits, ticks = ratio_axis(found)

    def draw(words: Words, palette: Palette) -> Spec:
        x = ratio("point", words("axis.speedup"), limits, ticks)
        y = rows(data, named(words))
        y["scale"]["paddingInner"] = 0.15
        look = charts.series("kind", words("column.kind"), names, palette)
        tips = _tips(words, ("kind", "column.kind"))
        marks = charts.numbers(x, y, look, tips)
        for mark in marks:
            mark["encoding"]["yOffset"] = {"field": "kind", "type": "nominal", "sort": names}
        return {"height": {"step": 12, "for": "offset"}, "layer": [charts.one_line(palette), *marks]}

    return single("kinds", data, draw, "interval", "baseline", *charts.standing(data))


def requests(document: Document) -> Figure | None:
    """Decode rates of single requests: whether a mean hides two speeds."""
    arms = {arm.arm_id: arm for group in document.targets() for arm in group}
    data: list[Datum] = []
    for arm_id, found in _points_and_bins(document, arms).items():
        arm = who(document, arm_id)
        data += [{**arm, **datum} for datum in found] or [arm]
    if not any("shown" in datum for datum in data):
        return None
    targets = distinct(data, "target")
    binned = bool(document.bins)

    def draw(words: Words, palette: Palette) -> Spec:
        x, y = quantity("point", words("axis.rate")), rows(data, named(words))
        colour = charts.coloured("target", words("column.target"), targets, palette)
        if binned:
            tips = tooltip(
                words, (named(words), "column.arm"), ("shown", "column.decode_rate"), ("count", "column.requests")
            )
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
                (named(words), "column.arm"),
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


def predictions(document: Document) -> dict[str, Estimate]:
    """Arm -> the speedup that was predicted before it was measured."""
    found = {outcome.prediction.arm_id: outcome.prediction.speedup for outcome in document.run.predictions}
    return {arm_id: speedup for arm_id, speedup in found.items() if speedup is not None}


def foretold(estimate: Estimate | None) -> Datum:
    """What was predicted of an arm before it was measured."""
    return {} if estimate is None else {"predicted": estimate.point, "predicted_shown": estimated(estimate, 2)}


def _by_kind(document: Document) -> list[tuple[ArmSummary, str, Estimate]]:
    """(arm, kind of text, its speedup); only of the arms of the answers where there are more than `MAX_ROWS`."""
    compared = [arm for arm in document.run.summary.arms if arm.baseline_id is not None]
    if len(compared) > MAX_ROWS:
        chosen = {answer.arm_id for answer in document.run.answers}
        compared = [arm for arm in compared if arm.arm_id in chosen]
    return [(arm, kind, part.speedup) for arm in compared for kind, part in arm.kinds.items() if part.speedup]
