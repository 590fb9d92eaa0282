"""The report of a prediction: the best draft length, where that comes from, and the speedup for each draft length, for
every acceptance, and by the number of clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specmeter.messages import Message
from specmeter.show.crossover_words import crossing
from specmeter.show.report import Report, Section, Tabled, Text
from specmeter.show.table import Cell, Column, Row, Table, estimate_cell, row
from specmeter.text import brackets

if TYPE_CHECKING:
    from collections.abc import Iterator

    from specmeter.analysis.prediction.at_clients import LoadForecast
    from specmeter.analysis.prediction.speedup import Predicted, Surface
    from specmeter.show.report import Block


def report(
    found: Predicted, whole: Surface | None = None, loads: LoadForecast | None = None, *, by_model: bool = True
) -> Report:
    """A prediction, the surface that it lies on, and its loads; `by_model`: a model drafts."""
    sources = [Text(Message("predict.costs", told=found.cost)), Text(Message("predict.rates", told=found.acceptance))]
    of_loads = [] if loads is None else [Section("prediction", _of_loads(loads))]
    surface = [] if whole is None else [Tabled(_surface(whole, by_model=by_model))]

    def document() -> dict[str, object]:
        told: dict[str, object] = {
            "cost": found.cost,
            "acceptance": found.acceptance,
            "drafting": "model" if by_model else "n-gram",
            "recurrent_target": found.recurrent,
            "state_slot_bytes": found.slot_bytes,
            "by_gamma": [at.model_dump(mode="json") for at in found.by_gamma],
            "best_gamma": found.best.gamma if found.best is not None else 0,
            "surface": None if whole is None else whole.model_dump(mode="json"),
        }
        crossover = {} if loads is None else {"crossover": loads.best_crossover.model_dump(mode="json")}
        return told if loads is None else {**told, "loads": {**loads.model_dump(mode="json"), **crossover}}

    return Report(
        target=str(found.cost),
        headline=headline(found),
        document=document,
        sections=[
            Section("prediction", sources),
            Section("prediction", [*_of_lengths(found, whole), *surface]),
            *of_loads,
        ],
        closing=[Text(Message("predict.units"), "faint")],
    )


def headline(found: Predicted) -> Message:
    """Whether to speculate, and with how many tokens."""
    best = found.best
    if best is None:
        top = max(found.by_gamma, key=lambda at: at.speedup.point)
        return Message("predict.slower", count=top.gamma, speedup=top.speedup.point)
    low = best.speedup.low
    unsure = "" if low is not None and low > 1 else Message("predict.unsure")
    interval = brackets(best.speedup, 2)
    return Message("predict.faster", speedup=best.speedup.point, count=best.gamma, interval=interval, unsure=unsure)


def _of_lengths(found: Predicted, whole: Surface | None) -> Iterator[Block]:
    """A row for each draft length: the speedup, what a step yields and costs, and the acceptance that it needs."""
    rows: list[Row] = []
    for place, at in enumerate(found.by_gamma):
        parts = (at.parts.draft, at.parts.verify, at.parts.restore + at.parts.rest)
        line = None if whole is None else whole.break_even[place]
        needs = Message("predict.none_suffices") if line is None else estimate_cell(line, 2)
        rows.append(
            row(
                Cell(f"{at.gamma}{'*' if at.extrapolated else ''}", at.gamma),
                estimate_cell(at.speedup, 2),
                *(Cell(f"{it:.2f}", it) for it in (at.tau, at.parts.total, *parts)),
                *(() if whole is None else (needs,)),
            )
        )
    columns = (
        *(Column(key, "number") for key in ("gamma", "speedup", "step_tokens", "step_cost")),
        *(Column(f"part_{part}", "number", narrow="drop") for part in ("draft", "verify", "rest")),
        *(() if whole is None else (Column("break_even", "number", narrow="point"),)),
    )
    yield Tabled(Table("predicted", columns, rows), caption=False)
    if any(at.extrapolated for at in found.by_gamma):
        yield Text(Message("predict.extrapolated"), "faint")
    if found.slot_bytes:
        longest = found.by_gamma[-1].gamma
        said = {"each": found.slot_bytes / 1e6, "gamma": longest, "most": longest * found.slot_bytes / 1e6}
        yield Text(Message("predict.slots", **said), "faint")
    if found.recurrent:
        yield Text(Message("predict.recurrent"), "faint")


def _surface(whole: Surface, *, by_model: bool) -> Table:
    """Speedup over gamma and alpha: gains in bold."""
    rows = [
        row(str(gamma), *(Cell(f"{value:.2f}", value, tone="strong" if value > 1 else "") for value in speedups))
        for gamma, speedups in zip(whole.gammas, whole.speedups, strict=True)
    ]
    best = (str(gamma) if gamma else Message("cell.none") for gamma in whole.best)
    columns = (Column("gamma", "number"), *(Column(f"{it:g}", "number", f"{it:g}") for it in whole.alphas))
    title = Message("predict.by_alpha" if by_model else "predict.by_alpha.every_step")
    return Table("surface", columns, [*rows, row(Message("predict.best"), *best, tone="faint")], title)


def _of_loads(found: LoadForecast) -> list[Block]:
    """The speedup over clients and draft lengths, the best length for each, and where speculation stops paying."""
    rows = [
        row(
            str(at.clients),
            *(estimate_cell(it.speedup, 2) for it in at.by_gamma),
            Message("cell.none") if at.best is None else str(at.best.gamma),
        )
        for at in found.loads
    ]
    gammas = [it.gamma for it in found.loads[0].by_gamma]
    lengths = (Column(f"gamma{it}", "number", Message("predict.gamma", gamma=it), "point") for it in gammas)
    columns = (Column("clients", "number"), *lengths, Column("best_gamma", "number"))
    return [
        Tabled(Table("loads", columns, rows, Message("predict.by_clients"))),
        Text(Message("predict.crossing", told=crossing(found.best_crossover))),
        Text(Message("predict.costs", told=found.cost), "faint"),
    ]
