"""Comparisons of runs as one page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from specmeter.messages import Message
from specmeter.show import figure as charts
from specmeter.show.figure import Datum, Figure, Spec, distinct, ratio, ratio_axis, rows, shown, single, tooltip
from specmeter.show.names import Names
from specmeter.show.page.page import render
from specmeter.show.sentence import comparison_sentence, ratio_of
from specmeter.show.table import Cell, Table, counted, estimate_cell, made
from specmeter.show.words import LANGUAGES, Language
from specmeter.text import printable

if TYPE_CHECKING:
    from specmeter.analysis.comparison import RunComparison
    from specmeter.show.figure import Palette
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
    names = Names(found.asked)
    return made(
        "arms",
        found.arms,
        ("arm", "text", lambda arm: Cell(names[arm.arm_id], id=arm.arm_id)),
        ("reference_rate", "number", lambda arm: estimate_cell(arm.reference_rate, 1)),
        ("other_rate", "number", lambda arm: estimate_cell(arm.other_rate, 1)),
        ("ratio_rate", "number", lambda arm: estimate_cell(arm.rate, 3)),
        ("ratio_speedup", "number", lambda arm: estimate_cell(arm.speedup, 3)),
        ("prompts", "number", lambda arm: counted(arm.prompts)),
        ("conclusion", "text", lambda arm: Message(f"conclusion.{arm.conclusion}") if arm.conclusion else "-"),
        ("verdict", "text", lambda arm: Message(f"verdict.{arm.verdict or 'unchecked'}")),
        verdict=lambda arm: arm.verdict,
    )


def differences(found: RunComparison) -> Table:
    """What else is not the same."""
    return made(
        "differences",
        found.differences,
        ("what", "text", lambda it: it.what),
        ("reference_run", "text", lambda it: it.reference),
        ("other_run", "text", lambda it: it.other),
    )
