"""The figures of steps: what forwards over n tokens cost and how many experts they touch, by probes; which drafted
tokens are accepted; and what every draft length would yield, by replay."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from specmeter.analysis.positions import ALL, MAX_LENGTHS
from specmeter.probe.draft_lengths import ALL as ALL_KINDS
from specmeter.probe.draft_lengths import LONGEST
from specmeter.probe.reading import surface_of
from specmeter.show import figure as charts
from specmeter.show.figure import Datum, Figure, Spec, distinct, named, quantity, rows, shown, single, tooltip
from specmeter.show.page.arms import who
from specmeter.text import estimated, printable
from specmeter.theory.roofline import expected_union

if TYPE_CHECKING:
    from specmeter.analysis.positions import ArmPositions
    from specmeter.messages import Words
    from specmeter.probe.record import Probe
    from specmeter.record import Estimate, ExpertUnion, ModelIdentity, TextRouting
    from specmeter.show.page.document import Document
    from specmeter.show.palette import Palette
    from specmeter.theory.curves import CostCurve, CostSurface

MAX_ARMS = 12
"""Runs with more arms show those of their answers."""


def positions(document: Document) -> Figure | None:
    """Acceptance of every position of a draft where all before it were accepted, a line for each arm."""
    found = _shown(document)
    data: list[Datum] = []
    for arm in found:
        for place in arm.positions:
            if (rate := place.conditional) is None:
                continue
            data.append(
                {
                    **who(document, arm.arm_id),
                    "position": place.position,
                    **shown(rate, 1, 100),
                    "of_all": estimated(place.unconditional, 1, scale=100),
                    "reached": place.reached,
                }
            )
    if len({datum["position"] for datum in data}) < 2:
        return None

    def draw(words: Words, palette: Palette) -> Spec:
        names = distinct(data, named(words))
        x: Spec = {
            "field": "position",
            "type": "ordinal",
            "title": words("axis.position"),
            "axis": {"labelAngle": 0, "labelOverlap": True},
        }
        beside: Spec = {"xOffset": {"field": named(words), "type": "nominal", "scale": {"domain": names}}}
        y = quantity("point", words("axis.if_reached"), scale={"domain": [0, 100]})
        look = charts.series(named(words), words("column.arm"), names, palette)
        tips = tooltip(
            words,
            (named(words), "column.arm"),
            ("position", "axis.position"),
            ("shown", "axis.if_reached"),
            ("of_all", "column.of_all"),
            ("reached", "column.reached"),
        )
        mark: Spec = {"type": "point", "filled": True, "size": 60, "opacity": 1}
        rule = charts.interval_rule(y, x, look["color"], across=False)
        rule["encoding"] |= beside
        return {
            "height": 280,
            "layer": [
                {
                    "mark": {"type": "line", "strokeWidth": 1.5},
                    "encoding": {"x": x, "y": y, "color": look["color"], **beside},
                },
                rule,
                {"mark": mark, "encoding": {"x": x, "y": y, **look, **beside, "tooltip": tips}},
            ],
        }

    return single("positions", data, draw)


def accepted(document: Document) -> Figure | None:
    """A row for each arm: which share of its drafts had exactly this many tokens accepted."""
    data: list[Datum] = []
    arms = _shown(document)
    alone = MAX_LENGTHS - any(len(arm.lengths) > MAX_LENGTHS for arm in arms)
    for arm in arms:
        data += [
            _share(document, arm, str(length.accepted), length.share.point, estimated(length.share, 1, scale=100))
            for length in arm.lengths[:alone]
        ]
        if beyond := arm.lengths[alone:]:
            share = sum(length.share.point for length in beyond)
            data.append(_share(document, arm, f"{alone}+", share, f"{100 * share:.1f}"))
    order = [*map(str, range(alone)), f"{alone}+"]
    order = [name for name in order if any(datum["length"] == name for datum in data)]
    if not data:
        return None

    def draw(words: Words, palette: Palette) -> Spec:
        x: Spec = {
            "field": "length",
            "type": "ordinal",
            "title": words("axis.accepted_tokens"),
            "scale": {"domain": order},
            "axis": {"labelAngle": 0},
        }
        y = rows(data, named(words))
        depth: Spec = {
            "field": "share",
            "type": "quantitative",
            "scale": {"domain": [0, 1], "range": [0.04, 0.9]},
            "legend": None,
        }
        tips = tooltip(
            words, (named(words), "column.arm"), ("length", "axis.accepted_tokens"), ("shown", "column.share_of_drafts")
        )
        return {
            "height": {"step": 24},
            "layer": [
                {
                    "mark": {"type": "rect", "color": palette.series[0]},
                    "encoding": {"x": x, "y": y, "opacity": depth, "tooltip": tips},
                },
                {
                    "transform": [{"filter": "datum.share >= 0.005"}],
                    "mark": {"type": "text", "fontSize": 11, "color": palette.ink},
                    "encoding": {"x": x, "y": y, "text": {"field": "label", "type": "nominal"}},
                },
            ],
        }

    return single("accepted", data, draw)


def _share(document: Document, arm: ArmPositions, length: str, share: float, told: str) -> Datum:
    return {
        **who(document, arm.arm_id),
        "length": length,
        "share": share,
        "label": f"{100 * share:.0f}",
        "shown": told,
    }


def _shown(document: Document) -> Sequence[ArmPositions]:
    """Arms with steps, over all prompts; only those of the answers where there are many."""
    found = [it for it in document.positions if it.kind == ALL and it.positions]
    chosen = {answer.arm_id for answer in document.run.answers}
    return found if len(found) <= MAX_ARMS else [it for it in found if it.arm_id in chosen]


def lookahead(document: Document) -> Figure | None:
    """Tau against draft length by kind of text, for each draft of each target; replayed, so for every length."""
    data: list[Datum] = [
        {
            "pair": printable(f"{it.target} · {it.draft}"),
            "target": printable(it.target),
            "kind": printable(it.kind),
            "gamma": it.gamma,
            "tau": it.tau,
            "shown": f"{it.tau:.2f}",
            "acceptance": "-" if it.acceptance is None else f"{100 * it.acceptance:.1f}",
        }
        for it in document.lengths
        if it.gamma
    ]
    if not data:
        return None
    kinds = sorted({str(datum["kind"]) for datum in data}, key=lambda kind: (kind == ALL_KINDS, kind))
    pairs = distinct(data, "pair")

    def draw(words: Words, palette: Palette) -> Spec:
        x = quantity("gamma", words("axis.gamma"), scale={"domain": [1, LONGEST], "nice": False})
        y = {**quantity("tau", words("axis.tau")), "scale": {"zero": False, "nice": True}}
        colour = charts.coloured("kind", words("column.kind"), kinds, palette)
        colour["scale"]["range"][-1] = palette.ink  # all kinds together stand out
        dashes = [[1, 0], [6, 3], [2, 2], [8, 2, 2, 2]]
        dash: Spec = {
            "field": "pair",
            "type": "nominal",
            "scale": {"domain": pairs, "range": [dashes[place % len(dashes)] for place in range(len(pairs))]},
            "legend": {"title": None} if len(pairs) > 1 else None,
        }
        tips = tooltip(
            words,
            ("pair", "column.draft"),
            ("kind", "column.kind"),
            ("gamma", "axis.gamma"),
            ("shown", "column.tau"),
            ("acceptance", "column.acceptance"),
        )
        along: Spec = {"x": x, "y": y, "color": colour, "strokeDash": dash}
        return {
            "height": 260,
            "layer": [
                {"mark": {"type": "line", "strokeWidth": 1.5, "clip": True}, "encoding": along},
                {
                    "mark": {"type": "point", "filled": True, "size": 18},
                    "encoding": {"x": x, "y": y, "color": colour, "tooltip": tips},
                },
            ],
        }

    return single("lookahead", data, draw)


# --- by probes --------------------------------------------------------------------------------------------------------


def probe_figures(
    probes: Sequence[Probe], names: Mapping[str, str], routing: Sequence[TextRouting] = ()
) -> dict[str, Figure]:
    """The cost curves of all models, the union of experts of those that have experts, and what forwards over several
    sequences cost.

    `names` says how the run calls the models: SHA-256 of the file -> name. `routing` is that of the run's own texts,
    which comes before a probe's.
    """
    of_probes = {called(probe.target, names): probe.union for probe in probes}
    made = [cost(probes, names), union(of_probes | {it.target: it.union for it in routing if it.union is not None})]
    made += [batch_cost(probes, names), sharing(probes, names)]
    return {figure.name: figure for figure in made if figure is not None}


def cost(probes: Sequence[Probe], names: Mapping[str, str]) -> Figure | None:
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
    return single("cost", data, _curves("axis.ms", data), "interval", "separate") if data else None


def union(unions: Mapping[str, ExpertUnion | None]) -> Figure | None:
    """Distinct experts that n consecutive tokens chose, and what uniform routing would choose; by name of the model."""
    data: list[Datum] = []
    for name, found in unions.items():
        if found is None or not found.points:
            continue
        data += [_point(name, point.tokens, point.union, 1) for point in found.points]
        for tokens in range(1, max(point.tokens for point in found.points) + 1):
            data.append(_reference(name, tokens, expected_union(float(tokens), found.experts, found.used)))
    return single("union", data, _curves("axis.experts", data), "interval", "random") if data else None


def batch_cost(probes: Sequence[Probe], names: Mapping[str, str]) -> Figure | None:
    """T(b, n) over b: a line for every n."""
    data = [
        _point(f"{name}, n = {n}", int(b), found.estimate(b, n), 2)
        for name, found in _surfaces(probes, names)
        for b, curve in found.curves
        for n in (point.tokens for point in curve.points)
    ]
    return single("batch_cost", data, _curves("axis.ms", data, "axis.sequences")) if data else None


def sharing(probes: Sequence[Probe], names: Mapping[str, str]) -> Figure | None:
    """Target efficiency over b: a line for every n, and dashed where verification is no better than one by one."""
    data: list[Datum] = []
    for name, found in _surfaces(probes, names):
        for b, curve in found.curves:
            for n in (point.tokens for point in curve.points if point.tokens > 1):
                line = f"{name}, n = {n}"
                data.append(_point(line, int(b), found.target_efficiency(b, n - 1), 3))
                data.append(_reference(line, b, 1 / n))
    draw = _curves("axis.efficiency", data, "axis.sequences")
    return single("sharing", data, draw, "interval", "one-by-one") if data else None


def _surfaces(probes: Sequence[Probe], names: Mapping[str, str]) -> Iterator[tuple[str, CostSurface]]:
    """Each target's first surface of several sequences, by the name of the model."""
    seen: set[str] = set()
    for probe in probes:
        name, found = called(probe.target, names), surface_of(probe)
        if found is not None and len(found.curves) > 1 and name not in seen:
            seen.add(name)
            yield name, found


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
    return {"model": printable(model), "tokens": tokens, **shown(value, digits), "reference": False}


def _reference(model: str, tokens: float, value: float) -> Datum:
    """A point of a line that is arithmetic, not measured."""
    return {"model": printable(model), "tokens": tokens, "point": value, "reference": True}


def _curves(title: str, data: Sequence[Datum], along: str = "axis.tokens") -> charts.Draw:
    names = distinct(data, "model")

    def draw(words: Words, palette: Palette) -> Spec:
        x = quantity("tokens", words(along), axis={"format": "d", "tickMinStep": 1})
        y = quantity("point", words(title))
        look = charts.series("model", words("column.model"), names, palette)
        tips = tooltip(words, ("model", "column.model"), ("tokens", along), ("shown", title))
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
