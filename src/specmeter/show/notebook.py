"""How runs, comparisons, advices, schedules, audits and predictions show themselves in a notebook: the answer first."""

from __future__ import annotations

from dataclasses import replace
from html import escape
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from specmeter.advise.advice import Advice
from specmeter.advise.schedule import Schedule
from specmeter.analysis.comparison import RunComparison
from specmeter.analysis.prediction.speedup import Predicted
from specmeter.audit.reading import Audit
from specmeter.messages import words
from specmeter.show import (
    advice_report,
    advice_words,
    audit_report,
    comparison_report,
    prediction_report,
    run_report,
    schedule_report,
)
from specmeter.show.crossover_words import crossover_sentence, main_crossovers, untold
from specmeter.show.names import Names
from specmeter.show.report import Command, Tabled, Text, beside_verdict, verdict_said
from specmeter.show.run_words import sentence
from specmeter.show.table import Table, row, text
from specmeter.show.table_files import html
from specmeter.text import pasted, printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from specmeter.analysis.reading import RunReport
    from specmeter.show.report import Report

_MAX_ROWS = 20
"""Of a table in a notebook; the object has them all."""
_COLOURS = {"valid": "#1a7f37", "suspect": "#9a6700", "invalid": "#cf222e"}


def run_text(run: RunReport) -> str:
    """The answers, a line each, and one line on the run."""
    return "\n".join([*_answers(run), f"{_verdict(run)}: {_about(run)}"])


def run_html(run: RunReport) -> str:
    """The same with a table of the arms and notes; everything from outside is escaped."""
    return report_html(run_report.report(run))


class ShownComparison(RunComparison):
    """A comparison that shows itself."""

    def _repr_html_(self) -> str:
        return report_html(comparison_report.report([self]))


class ShownAdvice(Advice):
    """An advice that shows itself."""

    def __str__(self) -> str:
        return str(advice_words.headline(self, advice_words.names_of(self)))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return report_html(advice_report.report(self, Path()))


class ShownSchedule(Schedule):
    """A schedule that shows itself."""

    def __str__(self) -> str:
        return str(schedule_report.headline(self))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return report_html(schedule_report.report(self, Path()))


class ShownAudit(Audit):
    """An audit that shows itself."""

    def _repr_html_(self) -> str:
        return report_html(audit_report.report([self]))


class ShownPrediction(Predicted):
    """A prediction that shows itself."""

    def _repr_html_(self) -> str:
        return report_html(prediction_report.report(self))


def report_html(report: Report) -> str:
    """What a terminal has of a report without being asked for more."""
    english = words()
    head = (
        []
        if report.headline is None
        else [Text(report.headline, "strong", verdict=report.verdict, simulated=report.simulated)]
    )
    blocks = [*head, *report.answer, *(block for section in report.sections for block in section.blocks)]
    told: list[str] = []
    for block in (it for it in (*blocks, *report.notes) if it.at == "everywhere"):
        match block:
            case Text():
                told.append(f"<p>{_said_html(block)}</p>")
            case Command():
                told.append(f"<pre>{_safe(pasted(block.argv))}</pre>")
            case Tabled():
                rows = block.table.rows[:_MAX_ROWS]
                told.append(html(replace(block.table, rows=rows), english))
                if left := len(block.table.rows) - len(rows):
                    told.append(f"<p>{_safe(english('report.more_rows', count=left))}</p>")
            case _:
                pass
    return f"<div>{''.join(told)}</div>"


def rows_html(name: str, columns: Sequence[str], rows: Iterable[Mapping[str, object]]) -> str:
    """The first rows of an exported table."""
    taken = islice(rows, _MAX_ROWS)
    first = [row(*("" if it[column] is None else str(it[column]) for column in columns)) for it in taken]
    return _page(f"{name}: the first {len(first)} rows", Table(name, text(*columns), first))


def _page(answer: str, table: Table) -> str:
    return f"<div><p><strong>{_safe(answer)}</strong></p>{html(table, words('en'))}</div>"


def _said_html(text: Text) -> str:
    line, before, after = (words().render(text.said), "", "") if text.verdict is None else beside_verdict(text.said)
    said = f"<strong>{_safe(line)}</strong>" if text.tone == "strong" else _safe(line)
    if text.verdict is None:
        return said
    colour = _COLOURS.get("" if text.simulated and text.verdict == "valid" else text.verdict, "#57606a")
    verdict = words().render(verdict_said(text.verdict, simulated=text.simulated, untold=text.untold))
    return f'{said}{before}<strong style="color:{colour}">{verdict}</strong>{after}'


def _answers(run: RunReport) -> list[str]:
    names = Names(run.arms)
    crossed = [crossover_sentence(it, names) for it in main_crossovers(run.crossovers)]
    alone = [answer for answer in run.answers if answer.load is None or answer in untold(run)]
    told = [*crossed, *(sentence(answer, names) for answer in alone)]
    return [str(line) for line in told] or ["no answer yet"]


def _verdict(run: RunReport) -> str:
    return run.certificate.verdict if run.certificate else "not checked yet"


def _about(run: RunReport) -> str:
    state = run.state
    simulated = "; simulated, nothing was measured" if run.simulated else ""
    return printable(
        f"{run.name}, {state.state}, {state.ok} of {state.planned} requests{simulated} ({run.folder.resolve().name})"
    )


def _safe(text: str) -> str:
    return escape(printable(text))
