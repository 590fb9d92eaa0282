"""The tables of a run in brief, for terminals and notebooks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specmeter.messages import Message, words
from specmeter.show.names import Names, label
from specmeter.show.table import Cell, Column, Row, Table, estimate_cell, numbers, text
from specmeter.text import percent

if TYPE_CHECKING:
    from specmeter.analysis.reading import RunReport
    from specmeter.analysis.summary import ArmSummary, KindSummary
    from specmeter.record import Estimate, Verdict
    from specmeter.show.table import Mark


def brief(report: RunReport, *, by_kind: bool = False) -> list[Table]:
    """For each target and load its baseline and what is compared with it; prompts where the report has them. Under load
    the rate is that of all clients together."""
    arms = report.summary.arms
    return [
        _brief(report, [base, *(arm for arm in arms if arm.baseline_id == base.arm_id)], by_kind=by_kind)
        for base in arms
        if base.baseline_id is None
    ]


def _brief(report: RunReport, group: list[ArmSummary], *, by_kind: bool) -> Table:
    arms, names = {arm.id: arm for arm in report.arms}, Names(report.arms)
    metered = any(arm.energy is not None and arm.energy.per_token is not None for arm in group)
    rows: list[Row] = []
    for arm in group:
        probe = f" [cost probe: {arm.cost_probe}]" if arm.cost_probe else ""
        count = f"{arm.requests_ok}" + (f" ({arm.requests_failed} failed)" if arm.requests_failed else "")
        found = report.certificate.arms.get(arm.arm_id) if report.certificate else None
        joules = _joules(arm) if metered else ()
        empty = (Cell(""),) * (len(joules) + 2)
        is_baseline = arm.role == "baseline"
        cells = _briefly(arm, report.cited(arm), is_baseline, found)
        if arm.load is not None:
            cells = (estimate_cell(arm.load.throughput, 1), *cells[1:])
        rows.append(
            Row(
                (
                    Cell(names.render(arm.arm_id, words()) + probe),
                    *cells,
                    *joules,
                    Cell(count),
                    Cell(label(arm.arm_id)),
                )
            )
        )
        for kind, part in arm.kinds.items() if by_kind else ():
            rows.append(
                Row((Cell(f"  {kind}"), *_briefly(part, part.speedup, is_baseline, found), *empty), tone="faint")
            )
        for prompt, speedup in (arm.prompts or {}).items():
            shown = estimate_cell(speedup, 2, mark=_mark(found))
            rows.append(Row((Cell(f"  {prompt}"), Cell(""), shown, Cell(""), Cell(""), *empty), tone="faint"))
    rate = Column("tok/s", "number", "tok/s", narrow="point")
    energy = ("J/token", "energy") if metered else ()
    columns = (*text(arms[group[0].arm_id].target), rate, *numbers("speedup", "accepted", "tau", *energy, "requests"))
    columns = (*columns, Column("id", title="id"))
    return Table(f"results-{group[0].arm_id}", columns, rows, Message("table.results"))


def _mark(verdict: Verdict | None) -> Mark | None:
    return "suspect" if verdict == "suspect" else None


def _briefly(part: KindSummary, cited: Estimate | None, is_baseline: bool, verdict: Verdict | None) -> tuple[Cell, ...]:
    if is_baseline:
        speedup = Cell("baseline invalid" if verdict == "invalid" else "baseline", mark=_mark(verdict))
    else:
        speedup = Cell("invalid") if verdict == "invalid" else estimate_cell(cited, 2, mark=_mark(verdict))
    return (
        estimate_cell(part.decode_rate, 1),
        speedup,
        Cell("-" if part.acceptance is None else percent(part.acceptance.point)),
        Cell("-" if part.tau is None else f"{part.tau.point:.2f}"),
    )


def _joules(arm: ArmSummary) -> tuple[Cell, Cell]:
    """Joules per token, and with an interval over the baseline's."""
    used = arm.energy
    if used is None or used.per_token is None:
        return Cell("-"), Cell("-")
    return Cell(f"{used.per_token.point:.3g}"), Cell("baseline") if arm.role == "baseline" else estimate_cell(
        used.ratio, 2
    )
