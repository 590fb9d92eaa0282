"""How runs, comparisons, advices, schedules, audits and predictions show themselves in a notebook: the answer first."""

from __future__ import annotations

from html import escape
from itertools import islice
from typing import TYPE_CHECKING

from specmeter.advise.advice import Advice
from specmeter.advise.schedule import Schedule
from specmeter.analysis.comparison import RunComparison
from specmeter.analysis.prediction.speedup import Predicted
from specmeter.audit.judge import in_words
from specmeter.audit.reading import Audit, tally
from specmeter.record.verdict import grouped
from specmeter.show import advice_report as said
from specmeter.show import schedule_report
from specmeter.show.advice_report import compared
from specmeter.show.names import Names
from specmeter.show.run_tables import brief
from specmeter.show.schedule_report import by_clients
from specmeter.show.sentence import comparison_sentence, crossover_sentence, main_crossovers, sentence, untold
from specmeter.show.table import Cell, Table, estimate_cell, html, numbers, row, text
from specmeter.show.terminal.explain import best_line
from specmeter.show.words import words
from specmeter.text import pasted, printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from specmeter.analysis.reading import RunReport
    from specmeter.record.verdict import Verdict

_MOST_ROWS = 20
"""Of a table in a notebook; the object has them all."""
_COLOURS = {"valid": "#1a7f37", "suspect": "#9a6700", "invalid": "#cf222e"}


def run_text(run: RunReport) -> str:
    """The answers, a line each, and one line on the run."""
    return "\n".join([*_answers(run), f"{_verdict(run)}: {_about(run)}"])


def run_html(run: RunReport) -> str:
    """The same with a table of the arms and the findings about them; everything from outside is escaped.

    Speedups of invalid arms are not shown.
    """
    verdict = _verdict(run)
    colour = _COLOURS.get(verdict, "#57606a")
    answers = "".join(f"<p><strong>{_safe(line)}</strong></p>" for line in _answers(run))
    findings = "".join(
        f"<li>{_safe(it.first.severity)} <code>{_safe(it.first.check)}</code> {_safe(str(it.where))}: "
        f"{_safe(str(it.first.message))}</li>"
        for it in grouped(run.findings)
        if it.first.severity != "note"
    )
    return (
        f'<div>{answers}<p><strong style="color:{colour}">{verdict}</strong>: {_safe(_about(run))}</p>'
        f"{''.join(html(table, words('en')) for table in brief(run))}{f'<ul>{findings}</ul>' if findings else ''}</div>"
    )


class ShownComparison(RunComparison):
    """A comparison that shows itself."""

    def _repr_html_(self) -> str:
        names = Names(self.asked)
        rows = [
            row(
                names.in_full(arm.arm_id),
                *(estimate_cell(rate, 1) for rate in (arm.reference_rate, arm.other_rate)),
                *(estimate_cell(ratio, 3) for ratio in (arm.rate, arm.speedup)),
                Cell(arm.conclusion or "-"),
            )
            for arm in self.arms
        ]
        ratios = numbers("reference, tok/s", "other, tok/s", "rate, x", "speedup, x")
        columns = (*text(" "), *ratios, *text("conclusion"))
        return _page(str(comparison_sentence(self)), Table("arms", columns, rows))


class ShownAdvice(Advice):
    """An advice that shows itself."""

    def __str__(self) -> str:
        return said.headline(self, said.names_of(self)).render(words())

    def _repr_html_(self) -> str:
        english, names = words(), said.names_of(self)
        phrases = (said.by_kind(self, names), said.reason(self), said.counts(self))
        commands = "".join(f"<pre>{_safe(pasted(command))}</pre>" for command in said.commands(self).values())
        verdict = _verdict_html(self.verdict)
        told = "".join(f"<p>{_safe(phrase.render(english))}</p>" for phrase in phrases if phrase is not None)
        table = html(compared(self, names), english) if self.fates else ""
        return f"<div><p><strong>{_safe(str(self))}</strong>{verdict}</p>{commands}{told}{table}</div>"


class ShownSchedule(Schedule):
    """A schedule that shows itself."""

    def __str__(self) -> str:
        return schedule_report.headline(self).render(words())

    def _repr_html_(self) -> str:
        english = words()
        commands = "".join(
            f"<p>{_safe(load.render(english))}</p><pre>{_safe(pasted(line))}</pre>"
            for load, _, line in schedule_report.commands(self)
        )
        table = html(by_clients(self), english)
        return f"<div><p><strong>{_safe(str(self))}</strong>{_verdict_html(self.verdict)}</p>{table}{commands}</div>"


class ShownAudit(Audit):
    """An audit that shows itself."""

    def _repr_html_(self) -> str:
        rows = [row(it.claim.row, in_words(it.verdict), it.reason) for it in self.rulings[:_MOST_ROWS]]
        return _page(
            f"{self.source}: {words().render(tally(self.rulings))}",
            Table("rulings", text("row", "verdict", "why"), rows),
            more=len(self.rulings) - len(rows),
        )


class ShownPrediction(Predicted):
    """A prediction that shows itself."""

    def _repr_html_(self) -> str:
        rows = [
            row(str(at.gamma), estimate_cell(at.speedup, 2), f"{at.tau:.2f}", f"{at.parts.total:.2f}")
            for at in self.by_gamma
        ]
        columns = numbers("draft tokens", "speedup", "tokens per step", "cost of a step, plain steps")
        return _page(best_line(self), Table("predicted", columns, rows))


def rows_html(name: str, columns: Sequence[str], rows: Iterable[Mapping[str, object]]) -> str:
    """The first rows of an exported table."""
    taken = islice(rows, _MOST_ROWS)
    first = [row(*("" if it[column] is None else str(it[column]) for column in columns)) for it in taken]
    return _page(f"{name}: the first {len(first)} rows", Table(name, text(*columns), first))


def _page(answer: str, table: Table, more: int = 0) -> str:
    left = f"<p>and {more} more</p>" if more else ""
    return f"<div><p><strong>{_safe(answer)}</strong></p>{html(table, words('en'))}{left}</div>"


def _verdict_html(verdict: Verdict | None) -> str:
    return f'; <strong style="color:{_COLOURS[verdict]}">{verdict}</strong>' if verdict else ""


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
    simulated = "; simulated, nothing was measured" if any(it.simulated for it in run.models) else ""
    return printable(
        f"{run.name}, {state.state}, {state.ok} of {state.planned} requests{simulated} ({run.folder.resolve().name})"
    )


def _safe(text: str) -> str:
    return escape(printable(text))
