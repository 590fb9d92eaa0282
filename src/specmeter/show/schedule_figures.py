"""The figure of a schedule: the speedup of what is best with each number of clients, and where it is 1."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specmeter.advise.schedule import clients_of
from specmeter.show import figure as charts
from specmeter.show.advice_tables import HEADINGS
from specmeter.show.figure import Datum, Figure, Spec, distinct, ratio, ratio_axis, shown, single, tooltip
from specmeter.show.load_figures import clients_axis, crossing_marks
from specmeter.show.schedule_sentence import interval, use
from specmeter.show.schedule_tables import speedup_of
from specmeter.show.table import told
from specmeter.show.words import LANGUAGES, words

if TYPE_CHECKING:
    from specmeter.advise.schedule import Schedule
    from specmeter.record import Estimate
    from specmeter.show.style import Palette
    from specmeter.show.words import Words

_BESIDE = {"predicted": 0.96, "raced": 1.0, "confirmed": 1.04}
"""Where the numbers of a stage stand, beside the number of clients that they are of."""


def schedule_figures(schedule: Schedule) -> dict[str, Figure]:
    """All figures that a schedule has something for, by name."""
    found = scheduled(schedule)
    return {} if found is None else {found.name: found}


def scheduled(schedule: Schedule) -> Figure | None:
    """Speedups over the clients: as predicted, hollow, and as measured, with intervals. False ones are left out."""
    data: list[Datum] = []
    estimates: list[Estimate] = []
    for advice in schedule.advices:
        for stage, heading in HEADINGS.items():
            found = speedup_of(advice, stage)
            if found is None or advice.verdict == "invalid":
                continue
            estimates.append(found)
            of = {f"stage_{one}": words(one)(f"column.{heading}") for one in LANGUAGES}
            using = {f"use_{one}": told(use(advice), words(one)) for one in LANGUAGES}
            verdict = "unchecked" if stage == "predicted" or advice.verdict is None else advice.verdict
            count = clients_of(advice)
            place: Datum = {"count": count, "clients": count * _BESIDE[stage], "verdict": verdict}
            data.append({**place, **of, **using, **shown(found, 2)})
    if not data:
        return None
    counts = sorted({int(datum["count"] or 0) for datum in data})
    crossed = _crossed(schedule)
    limits, ticks = ratio_axis(estimates)

    def draw(one: Words, palette: Palette) -> Spec:
        stage = f"stage_{one.language}"
        x, y = clients_axis(counts, one), ratio("point", one("axis.speedup_plain"), limits, ticks)
        order = [name for it in HEADINGS.values() if (name := one(f"column.{it}")) in distinct(data, stage)]
        look = charts.series(stage, one("column.stage"), order, palette)
        tips = tooltip(
            one,
            ("count", "column.clients"),
            (f"use_{one.language}", "column.use"),
            (stage, "column.stage"),
            ("shown", "column.speedup"),
            ("verdict", "column.verdict"),
        )
        return {
            "height": 260,
            "layer": [
                charts.one_line(palette, across=True),
                *(crossing_marks(x, one, palette) if crossed else ()),
                *charts.numbers(x, y, look, tips, across=False),
            ],
        }

    return single("scheduled", [*data, *crossed], draw)


def _crossed(schedule: Schedule) -> list[Datum]:
    found = schedule.crossover
    if found is None or found.clients is None:
        return []
    at = found.clients
    said: Datum = {f"crossing_{one}": f"{at.point:.1f}{told(interval(found), words(one))}" for one in LANGUAGES}
    return [{"crossing": at.point, "from": at.low, "to": at.high, **said}]
