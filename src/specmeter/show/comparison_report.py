"""The report of comparisons: each run against the first, the worst news first, in words, a chart and tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specmeter.messages import LANGUAGES, Message, words
from specmeter.show import figure as charts
from specmeter.show.comparison_words import comparison_sentence, ratio_of
from specmeter.show.crossover_words import crossover_sentence, main_crossovers
from specmeter.show.figure import distinct, named, ratio, ratio_axis, rows, shown, single, tooltip
from specmeter.show.names import Names
from specmeter.show.report import Chart, Report, Section, Tabled, Text
from specmeter.show.table import Cell, Column, Table, Tone, counted, estimate_cell, row
from specmeter.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from specmeter.analysis.comparison import ArmComparison, Conclusion, RunComparison
    from specmeter.messages import Words
    from specmeter.show.figure import Datum, Figure, Spec
    from specmeter.show.palette import Palette
    from specmeter.show.report import Block

_MAX_DIFFERENCES = 20
_TONES: dict[Conclusion, Tone] = {
    "regression": "bad",
    "same data": "doubtful",
    "slower": "doubtful",
    "invalid": "bad",
    "faster": "good",
    "same": "good",
    "no regression": "good",
}


def report(found: Sequence[RunComparison]) -> Report:
    """Comparisons of some runs with one reference."""
    first, *others = ranked = sorted(found, key=lambda it: not it.failed)
    of_each = (
        Section("comparison", list(_compared(one, f"-{place}" if others else "")))
        for place, one in enumerate(ranked, start=1)
    )
    return Report(
        target=" · ".join((first.reference, *(one.other for one in found))),
        headline=comparison_sentence(first),
        document=lambda: [one.model_dump(mode="json") for one in found],
        look="stop" if first.failed else "",
        answer=[Text(comparison_sentence(one), "bad" if one.failed else "") for one in others],
        sections=[Section("comparison", [Chart(lambda: ratios(found))]), *of_each],
    )


def _compared(one: RunComparison, place: str) -> Iterator[Block]:
    names = Names(one.asked)
    title = Message("compare.arms" if place else "table.arms", other=one.other, reference=one.reference)
    yield Tabled(arms(one, f"arms{place}", title), caption=bool(place))
    yield Text(Message("compare.over"), "faint")
    loaded = {arm.id for arm in one.asked if arm.load is not None}
    if any(arm.arm_id in loaded for arm in one.arms):
        yield Text(Message("compare.under_load"), "faint")
    for run, crossed in ((one.reference, one.reference_crossovers), (one.other, one.other_crossovers)):
        for it in main_crossovers(crossed):
            yield Text(Message("compare.crossover", run=run, told=crossover_sentence(it, names)))
    for run, only in ((one.reference, one.only_reference), (one.other, one.only_other)):
        if only:
            yield Text(Message("compare.only", run=run, arms=only), "faint")
    if one.differences:
        yield Tabled(differences(one, f"differences{place}"), most=_MAX_DIFFERENCES)
    else:
        yield Text(Message("compare.nothing_differs"), "faint", "page")


def ratios(found: Sequence[RunComparison]) -> Figure | None:
    """Ratio of every arm in every pair, with its interval, the threshold and 1."""
    data: list[Datum] = []
    for one in found:
        names, of = Names(one.asked), f"{printable(one.other)} · " if len(found) > 1 else ""
        for arm in one.arms:
            value, name = ratio_of(arm, one), names.in_full(arm.arm_id)
            who: Datum = {"run": printable(one.other), "conclusion": arm.conclusion}
            who |= {f"named_{it}": f"{of}{printable(words(it).render(name))}" for it in LANGUAGES}
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

    def draw(one: Words, palette: Palette) -> Spec:
        x, y = ratio("point", one(f"axis.ratio_{found[0].measure}"), limits, ticks), rows(data, named(one))
        look = charts.series("run", one("column.run"), runs, palette)
        tips = tooltip(one, (named(one), "column.arm"), ("shown", "column.ratio"), ("verdict", "column.verdict"))
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
                charts.withheld(one, palette, y),
            ],
        }

    return single("ratios", data, draw, "interval", "first-run", "threshold", *charts.standing(data))


def arms(found: RunComparison, name: str, title: Message) -> Table:
    """The arms of one pair."""
    names = Names(found.asked)
    columns = (
        Column("arm", most=44),
        *(Column(key, "number", narrow="drop") for key in ("reference_rate", "other_rate")),
        *(Column(key, "number") for key in ("ratio_rate", "ratio_speedup")),
        Column("prompts", "number", narrow="drop"),
        Column("conclusion", title=Message(f"compare.by_{found.measure}")),
        Column("verdict", narrow="drop"),
    )
    cells = [
        row(
            Cell(names.in_full(arm.arm_id), id=arm.arm_id),
            *(estimate_cell(it, 1) for it in (arm.reference_rate, arm.other_rate)),
            *(estimate_cell(it, 3) for it in (arm.rate, arm.speedup)),
            counted(arm.prompts),
            _concluded(arm),
            Message(f"verdict.{arm.verdict or 'unchecked'}"),
            verdict=arm.verdict,
        )
        for arm in found.arms
    ]
    return Table(name, columns, cells, title)


def _concluded(arm: ArmComparison) -> Cell:
    if arm.conclusion is None:
        return Cell("-")
    mark = "suspect" if arm.verdict == "suspect" else "unchecked" if arm.verdict is None else None
    return Cell(Message(f"conclusion.{arm.conclusion}"), mark=mark, tone=_TONES.get(arm.conclusion, ""))


def differences(found: RunComparison, name: str) -> Table:
    """What else is not the same."""
    columns = tuple(Column(key) for key in ("what", "reference_run", "other_run"))
    cells = [row(it.what, it.reference, it.other) for it in found.differences]
    return Table(name, columns, cells, Message("table.differences"))
