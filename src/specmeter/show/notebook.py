"""How a run shows itself at a Python prompt and in a notebook: the answer, its interval and the verdict first."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from specmeter.show.formats import html
from specmeter.show.names import Names
from specmeter.show.run_tables import brief
from specmeter.show.sentence import sentence
from specmeter.show.words import words
from specmeter.text import printable
from specmeter.verdicts import grouped

if TYPE_CHECKING:
    from specmeter.analysis.reading import RunReport

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
        f"<li>{_safe(it.first.severity)} <code>{_safe(it.first.check)}</code> {_safe(it.where)}: "
        f"{_safe(it.first.message)}</li>"
        for it in grouped(run.findings)
        if it.first.severity != "note"
    )
    return (
        f'<div>{answers}<p><strong style="color:{colour}">{verdict}</strong>: {_safe(_about(run))}</p>'
        f"{''.join(html(table, words('en')) for table in brief(run))}{f'<ul>{findings}</ul>' if findings else ''}</div>"
    )


def _answers(run: RunReport) -> list[str]:
    return [printable(sentence(answer, words("en"), Names(run.arms))) for answer in run.answers] or ["no answer yet"]


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
