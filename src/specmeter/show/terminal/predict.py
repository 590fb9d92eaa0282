"""Prints predictions: the speedup for each draft length, and for every acceptance."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specmeter.show.table import Cell, Row, Table, estimated, numbers, row
from specmeter.show.terminal.console import output
from specmeter.text import brackets, counted, ratio

if TYPE_CHECKING:
    from specmeter.analysis.load.crossover import Crossover
    from specmeter.analysis.prediction.speedup import Predicted, Surface
    from specmeter.analysis.prediction.under_load import ExpectedCrossover, LoadForecast


def print_prediction(found: Predicted, whole: Surface, *, by_model: bool) -> None:
    """The best draft length, where that comes from, and both tables."""
    screen = output()
    screen.say((best_line(found), "strong"))
    screen.line()
    screen.say_all((f"costs       {found.cost}", f"acceptance  {found.acceptance}"))
    screen.line()
    screen.table(_by_gamma(found, whole))
    if any(at.extrapolated for at in found.by_gamma):
        screen.say("* longer than was measured: rates and costs go on from shorter drafts", tone="faint")
    if found.recurrent:
        screen.say(
            "The target has a recurrent state: a step that rejects a token restores it, and verifies again what it "
            "accepted. That is in rest, and the token that it emits in tokens/step.",
            tone="faint",
        )
    screen.line()
    screen.table(_surface(whole, by_model=by_model), caption=True)
    screen.line()
    screen.say(
        "Costs in target forwards of one token. [low, high]: 95% of the draws of everything uncertain.", tone="faint"
    )


def _by_gamma(found: Predicted, whole: Surface) -> Table:
    rows = [
        row(
            f"{at.gamma}{'*' if at.extrapolated else ''}",
            estimated(at.speedup, 2),
            f"{at.tau:.2f}",
            f"{at.parts.total:.2f}",
            f"{at.parts.draft:.2f}",
            f"{at.parts.verify:.2f}",
            f"{at.parts.restore + at.parts.rest:.2f}",
            "none suffices" if line is None else estimated(line, 2),
        )
        for at, line in zip(found.by_gamma, whole.break_even, strict=True)
    ]
    titles = ("gamma", "speedup", "tokens/step", "cost/step", "draft", "verify", "rest", "break-even alpha")
    return Table("predicted", numbers(*titles), rows)


def print_loads(found: LoadForecast) -> None:
    """The speedup over clients and draft lengths, the best length for each, and where speculation stops paying."""
    screen = output()
    rows: list[Row] = []
    for at in found.loads:
        best = at.best
        cells = (estimated(it.speedup, 2) for it in at.by_gamma)
        rows.append(row(str(at.clients), *cells, "none" if best is None else str(best.gamma)))
    titles = ("clients", *(f"gamma {it.gamma}" for it in found.loads[0].by_gamma), "best gamma")
    screen.line()
    screen.table(Table("loads", numbers(*titles), rows, "speedup by requests at once, while decoding"), caption=True)
    screen.line()
    screen.say((f"speculation {crossing(found.best_crossover)}", "strong"))
    screen.say(f"costs       {found.cost}", tone="faint")


def crossing(found: ExpectedCrossover | Crossover) -> str:
    """At how many clients speculation stops paying, or starts to; what follows `speculation`."""
    if found.clients is not None:
        does = "stops paying" if found.course == "stops" else "starts to pay"
        return f"{does} at {found.clients.point:.1f} clients {brackets(found.clients, 1)}"
    if found.course == "pays":
        return "pays at all of these numbers of clients"
    if found.course == "never":
        return "pays at none of these numbers of clients"
    return "gains and loses by turns" if found.course == "mixed" else "is not shown to cross 1"


def best_line(found: Predicted) -> str:
    """Whether to speculate, and with how many tokens."""
    best = found.best
    if best is None:
        top = max(found.by_gamma, key=lambda at: at.speedup.point)
        tokens = counted(top.gamma, "draft token")
        return f"do not speculate: no draft length is faster; the best, {tokens}, is {ratio(top.speedup.point)} as fast"
    low = best.speedup.low
    sure = "" if low is not None and low > 1 else ", though a loss is not ruled out"
    tokens = counted(best.gamma, "draft token")
    return f"{ratio(best.speedup.point)} as fast with {tokens} per step {brackets(best.speedup, 2)}{sure}"


def _surface(whole: Surface, *, by_model: bool) -> Table:
    """Speedup over gamma and alpha: gains in bold."""
    rows: list[Row] = []
    for gamma, speedups in zip(whole.gammas, whole.speedups, strict=True):
        cells = (Cell(f"{value:.2f}", tone="strong" if value > 1 else "") for value in speedups)
        rows.append(row(str(gamma), *cells))
    rows.append(row("best", *(str(gamma) if gamma else "none" for gamma in whole.best), tone="faint"))
    title = "speedup by alpha, drafts of full length" + ("" if by_model else " in every step")
    return Table("surface", numbers("gamma", *(f"{alpha:g}" for alpha in whole.alphas)), rows, title)
