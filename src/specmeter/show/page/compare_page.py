"""Comparisons of runs as one page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from specmeter.show import figure as charts
from specmeter.show.figure import Datum, Figure, Spec, distinct, ratio, ratio_axis, rows, shown, single, tooltip
from specmeter.show.page.page import render
from specmeter.show.sentence import comparison_sentence, ratio_of
from specmeter.show.table import Cell, Column, Phrase, Row, Table, counted, estimated
from specmeter.show.words import LANGUAGES, Language
from specmeter.text import printable

if TYPE_CHECKING:
    from specmeter.analysis.comparison import RunComparison
    from specmeter.show.style import Palette
    from specmeter.show.words import Words


def compare_page(found: Sequence[RunComparison], languages: Sequence[Language] = LANGUAGES) -> str:
    """The page: each run against the first, the worst news first in words, then in a chart and tables."""
    figure = ratios(found)
    names = " · ".join(printable(name) for name in (found[0].reference, *(one.other for one in found)))
    return render(
        "compare.html",
        languages,
        [] if figure is None else [figure],
        figures={} if figure is None else {figure.name: figure},
        title=f"{names} · specmeter",
        found=found,
        tables=[arms(one) for one in found],
        differences=[differences(one) for one in found],
        told=comparison_sentence,
    )


def ratios(found: Sequence[RunComparison]) -> Figure | None:
    """Ratio of every arm in every pair, with its interval, the threshold and 1."""
    data: list[Datum] = []
    for one in found:
        for arm in one.arms:
            value = ratio_of(arm, one)
            name = printable(f"{one.other} · {arm.arm_id}")
            who: Datum = {"arm": name, "run": printable(one.other), "conclusion": arm.conclusion}
            who["verdict"] = "invalid" if arm.conclusion == "invalid" else arm.verdict or "unchecked"
            if value is None:
                data += [who] if arm.conclusion == "invalid" else []
                continue
            data.append({**who, **shown(value, 3)})
    if not data:
        return None
    floor = 1 - found[0].threshold
    estimates = [value for one in found for arm in one.arms if (value := ratio_of(arm, one)) is not None]
    limits, ticks = ratio_axis([*estimates, floor])
    runs = distinct(data, "run")

    def draw(words: Words, palette: Palette) -> Spec:
        x, y = ratio("point", words(f"axis.ratio_{found[0].measure}"), limits, ticks), rows(data)
        look = charts.series("run", words("column.run"), runs, palette)
        tips = tooltip(words, ("arm", "column.arm"), ("shown", "column.ratio"), ("verdict", "column.verdict"))
        line: Spec = {
            "data": {"values": [{}]},
            "mark": {"type": "rule", "stroke": palette.bad, "strokeDash": [6, 3], "aria": False},
            "encoding": {"x": {"datum": floor, "type": "quantitative"}},
        }
        return {
            "height": {"step": 26},
            "layer": [
                line,
                charts.one_line(palette),
                *charts.numbers(x, y, look, tips),
                charts.withheld(words, palette, y),
            ],
        }

    return single("ratios", data, draw)


def arms(found: RunComparison) -> Table:
    """The arms of one pair."""
    columns = (
        Column("arm"),
        Column("reference_rate", "number"),
        Column("other_rate", "number"),
        Column("ratio_rate", "number"),
        Column("ratio_speedup", "number"),
        Column("prompts", "number"),
        Column("conclusion"),
        Column("verdict"),
    )
    made = [
        Row(
            (
                Cell(arm.arm_id, code=True),
                estimated(arm.reference_rate, 1),
                estimated(arm.other_rate, 1),
                estimated(arm.rate, 3),
                estimated(arm.speedup, 3),
                counted(arm.prompts),
                Cell(Phrase(f"conclusion.{arm.conclusion}")) if arm.conclusion else Cell("-"),
                Cell(Phrase(f"verdict.{arm.verdict or 'unchecked'}")),
            ),
            arm.verdict,
        )
        for arm in found.arms
    ]
    return Table("arms", columns, made)


def differences(found: RunComparison) -> Table:
    """What else is not the same."""
    made = [Row((Cell(it.what), Cell(it.reference), Cell(it.other))) for it in found.differences]
    return Table("differences", (Column("what"), Column("reference_run"), Column("other_run")), made)
