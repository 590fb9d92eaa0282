"""Figures of an advice: each compared arm as predicted, raced and confirmed; the grid as a matrix of predictions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specmeter.messages import LANGUAGES, words
from specmeter.numbers.margin import MARGIN
from specmeter.show import figure as charts
from specmeter.show.advice_words import HEADINGS, is_compared, outcome_in_short, shown_outcomes
from specmeter.show.figure import Datum, Figure, Spec, distinct, named, ratio, ratio_axis, rows, shown, single, tooltip
from specmeter.show.matrix_figure import by_length, heat, heated
from specmeter.show.names import Names
from specmeter.text import printable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from specmeter.advise.advice import Advice, ArmOutcome
    from specmeter.messages import Words
    from specmeter.record import Arm, Estimate
    from specmeter.show.palette import Palette


_MAX_ARMS = 12
_MAX_ROWS = 30
"""Of the matrix; beyond it kinds are left out, then the ways of drafting that promise least."""
_MANY_ROWS = 12
"""Beyond it rows are closer: a figure of thirty is still to fit on a page of paper."""
_MAX_LENGTHS = 16
_SIGNS = {"winner": "★ ", "no-room": "? ", "failed": "✕"}


def advised(advice: Advice, names: Names) -> Figure | None:
    """Each compared arm as it was predicted, raced and confirmed, with intervals."""
    data: list[Datum] = []
    estimates: list[Estimate] = []
    for outcome in shown_outcomes(advice)[:_MAX_ARMS]:
        for stage, heading in HEADINGS.items():
            found: Estimate | None = getattr(outcome, stage)
            if found is None:
                continue
            estimates.append(found)
            who = {f"named_{one}": names.render(outcome.arm_id, words(one)) for one in LANGUAGES}
            of = {f"stage_{one}": words(one)(f"column.{heading}") for one in LANGUAGES}
            data.append({**who, **of, "verdict": _verdict(advice, stage), **shown(found, 2)})
    if not data:
        return None
    limits, ticks = ratio_axis(estimates)

    def draw(one: Words, palette: Palette) -> Spec:
        stage = f"stage_{one.language}"
        x, y = ratio("point", one("axis.speedup_plain"), limits, ticks), rows(data, named(one))
        order = [told for heading in HEADINGS.values() if (told := one(f"column.{heading}")) in distinct(data, stage)]
        look = charts.series(stage, one("column.stage"), order, palette)
        beside: Spec = {"field": stage, "scale": {"domain": order}, "sort": None}
        tips = tooltip(one, (named(one), "column.arm"), (stage, "column.stage"), ("shown", "column.speedup"))
        line = charts.interval_rule(x, y, look["color"])
        line["encoding"]["yOffset"] = beside
        dots = charts.points({"x": x, "y": y, "yOffset": beside, **look, "tooltip": tips})
        return {"height": {"step": 17}, "layer": [charts.band(palette, MARGIN), charts.one_line(palette), line, *dots]}

    key = () if all(datum["verdict"] == "valid" for datum in data) else ("not-measured",)
    return single("advised", data, draw, "interval", *key, "baseline", "band")


def _verdict(advice: Advice, stage: str) -> str:
    """Of a number of a stage; what was only predicted counts as not checked."""
    ran = advice.stage_of(stage)
    return "unchecked" if stage == "predicted" or ran is None or ran.verdict is None else ran.verdict


# --- the grid --------------------------------------------------------------------------------------------------------


def grid(advice: Advice) -> Figure | None:
    """Predicted speedups of the whole grid: how drafts are made, by kind of text, against how long they are."""
    arms = {arm.id: arm for arm in advice.arms}
    outcomes = [
        outcome for outcome in advice.outcomes if outcome.arm_id in arms and arms[outcome.arm_id].gamma is not None
    ]
    cells = _cells(advice, outcomes, arms)
    if len({cell["gamma"] for cell in cells}) < 2:
        return None
    lengths = sorted({int(cell["gamma"] or 0) for cell in cells})
    step = 32 if len(cells) <= _MANY_ROWS * len(lengths) else 20

    def draw(one: Words, palette: Palette) -> Spec:
        x, y = by_length(lengths, one), rows(cells, f"row_{one.language}")
        tips = tooltip(
            one,
            (f"row_{one.language}", "column.arm"),
            ("gamma", "axis.gamma"),
            ("shown", "column.expected"),
            (f"fate_{one.language}", "column.outcome"),
        )
        at = {"x": x, "y": y, "tooltip": tips}
        column = f"width / {len(lengths)}"  # on a telephone colours and tooltips have to do; the table has the numbers
        size = {"expr": f"{column} < 26 ? 0 : {column} < 46 ? 9 : 12"}
        frame: Spec = {"type": "rect", "fill": None, "stroke": palette.ink, "strokeWidth": 2}
        return {
            "height": {"step": step},
            "layer": [
                heated(palette, at),
                {"transform": [{"filter": "datum.compared"}], "mark": frame, "encoding": {"x": x, "y": y}},
                {"mark": {"type": "text", "fontSize": size}, "encoding": {**at, "text": {"field": "cell"}}},
            ],
        }

    signs = "".join(str(cell["cell"]) for cell in cells)
    key: list[str] = ["faster", "slower"]
    key += ["tried"] if any(cell["compared"] for cell in cells) else []
    key += [name for name, sign in (("best", "★"), ("open", "?"), ("failed", "✕")) if sign in signs]
    return single("grid", cells, draw, *key)


def _cells(advice: Advice, outcomes: Sequence[ArmOutcome], arms: Mapping[str, Arm]) -> list[Datum]:
    """Over all kinds of text, then on each of several, as far as there is room: the most promising ways first."""
    ways = {outcome.arm_id: _way(arms[outcome.arm_id]) for outcome in outcomes}
    names = Names({way.id: way for way in ways.values()}.values())
    best: dict[str, float] = {}
    for outcome in outcomes:
        way = ways[outcome.arm_id].id
        best[way] = max(best.get(way, 0.0), outcome.predicted.point if outcome.predicted else 0.0)
    kept = sorted(best, key=lambda way: -best[way])[:_MAX_ROWS]
    lengths = sorted({arms[outcome.arm_id].gamma or 0 for outcome in outcomes})[:_MAX_LENGTHS]
    kinds = list(dict.fromkeys(kind for outcome in outcomes for kind in outcome.by_kind))
    if len(kinds) < 2 or len(kept) * (1 + len(kinds)) > _MAX_ROWS:
        kinds = []
    found: list[Datum] = []
    for kind in ("", *kinds):
        for way in kept:
            found += [
                _cell(outcome, advice, names, way, kind, arms[outcome.arm_id].gamma)
                for outcome in outcomes
                if ways[outcome.arm_id].id == way and arms[outcome.arm_id].gamma in lengths
            ]
    return found


def _way(arm: Arm) -> Arm:
    """An arm without its length, which stands for all that differ in it alone."""
    rest = "/".join(part for part in arm.id.split("/") if part != f"g{arm.gamma}")
    return arm.model_copy(update={"id": rest, "gamma": None})


def _cell(outcome: ArmOutcome, advice: Advice, names: Names, way: str, kind: str, gamma: int | None) -> Datum:
    predicted = outcome.by_kind.get(kind) if kind else outcome.predicted
    head = f"{printable(kind)} · " if kind else ""
    told = {f"row_{one}": head + names.render(way, words(one)) for one in LANGUAGES}
    short = {f"fate_{one}": words(one).render(outcome_in_short(outcome, advice)) for one in LANGUAGES}
    sign = "" if kind else _SIGNS.get(outcome.code, "")
    text = f"{sign}{predicted.point:.2f}×" if predicted is not None else sign.strip() or "–"
    colour = {"heat": heat(predicted.point) if predicted is not None and predicted.point > 0 else None, "cell": text}
    return {
        **told,
        **short,
        **shown(predicted, 2),
        **colour,
        "gamma": gamma,
        "compared": is_compared(outcome) and not kind,
    }
