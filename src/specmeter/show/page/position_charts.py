"""Charts of a run's steps: acceptance by position in the draft, and how many tokens of a draft are accepted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specmeter.analysis.positions import ALL, MOST_LENGTHS
from specmeter.show import charts
from specmeter.show.charts import Chart, Datum, Spec, arm_name, quantity, rows, shown, tooltip

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specmeter.analysis.positions import ArmPositions
    from specmeter.show.page.document import Document
    from specmeter.show.page.style import Palette
    from specmeter.show.words import Words

MOST_ARMS = 12
"""Runs with more arms show those of their answers."""


def positions(document: Document) -> Chart | None:
    """Acceptance of every position of a draft where all before it were accepted, a line for each arm."""
    found = _shown(document)
    data: list[Datum] = []
    for arm in found:
        for place in arm.positions:
            if (rate := place.conditional) is None:
                continue
            data.append(
                {
                    "arm": _name(document, arm),
                    "position": place.position,
                    "point": 100 * rate.point,
                    "low": None if rate.low is None else 100 * rate.low,
                    "high": None if rate.high is None else 100 * rate.high,
                    "shown": shown(rate, 1, 100),
                    "of_all": shown(place.unconditional, 1, 100),
                    "reached": place.reached,
                }
            )
    if len({datum["position"] for datum in data}) < 2:
        return None
    names = list(dict.fromkeys(str(datum["arm"]) for datum in data))

    def draw(words: Words, palette: Palette) -> Spec:
        x: Spec = {
            "field": "position",
            "type": "ordinal",
            "title": words("axis.position"),
            "axis": {"labelAngle": 0, "labelOverlap": True},
        }
        beside: Spec = {"xOffset": {"field": "arm", "type": "nominal", "scale": {"domain": names}}}
        y = quantity("point", words("axis.if_reached"), scale={"domain": [0, 100]})
        look = charts.series("arm", words("column.arm"), names, palette)
        tips = tooltip(
            words,
            ("arm", "column.arm"),
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

    return Chart("positions", data, draw)


def accepted(document: Document) -> Chart | None:
    """A row for each arm: which share of its drafts had just so many tokens accepted."""
    data: list[Datum] = []
    arms = _shown(document)
    single = MOST_LENGTHS - any(len(arm.lengths) > MOST_LENGTHS for arm in arms)
    for arm in arms:
        data += [
            _share(document, arm, str(length.accepted), length.share.point, shown(length.share, 1, 100))
            for length in arm.lengths[:single]
        ]
        if beyond := arm.lengths[single:]:
            share = sum(length.share.point for length in beyond)
            data.append(_share(document, arm, f"{single}+", share, f"{100 * share:.1f}"))
    order = [*map(str, range(single)), f"{single}+"]
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
        y = rows(data)
        depth: Spec = {
            "field": "share",
            "type": "quantitative",
            "scale": {"domain": [0, 1], "range": [0.04, 0.9]},
            "legend": None,
        }
        tips = tooltip(
            words, ("arm", "column.arm"), ("length", "axis.accepted_tokens"), ("shown", "column.share_of_drafts")
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

    return Chart("accepted", data, draw)


def _share(document: Document, arm: ArmPositions, length: str, share: float, told: str) -> Datum:
    return {
        "arm": _name(document, arm),
        "length": length,
        "share": share,
        "label": f"{100 * share:.0f}",
        "shown": told,
    }


def _shown(document: Document) -> Sequence[ArmPositions]:
    """Arms with steps, over all prompts; only those of the answers where there are many."""
    found = [it for it in document.positions if it.kind == ALL and it.positions]
    chosen = {answer.arm_id for answer in document.run.answers}
    return found if len(found) <= MOST_ARMS else [it for it in found if it.arm_id in chosen]


def _name(document: Document, arm: ArmPositions) -> str:
    target = next(it.target for it in document.run.arms if it.id == arm.arm_id)
    return arm_name(target, arm.arm_id)
