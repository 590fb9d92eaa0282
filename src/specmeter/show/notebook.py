"""How a run shows itself at a Python prompt and in a notebook: the answer, its interval and the verdict first."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from specmeter.show.page.sentence import label, sentence
from specmeter.show.text import brackets
from specmeter.show.words import words
from specmeter.text import printable
from specmeter.verdicts import grouped

if TYPE_CHECKING:
    from collections.abc import Iterable

    from specmeter.analysis.reading import RunReport
    from specmeter.analysis.summary import ArmSummary
    from specmeter.record import Estimate

_COLOURS = {"valid": "#1a7f37", "suspect": "#9a6700", "invalid": "#cf222e"}


def run_text(run: RunReport) -> str:
    """The answers, a line each, and one line on the run."""
    return "\n".join([*_answers(run), f"{_verdict(run)}: {_about(run)}"])


def run_html(run: RunReport) -> str:
    """The same with a table of the arms and what speaks against them; everything from outside is escaped.

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
        f"{_table(run)}{f'<ul>{findings}</ul>' if findings else ''}</div>"
    )


def _answers(run: RunReport) -> list[str]:
    return [printable(sentence(answer, words("en"))) for answer in run.answers] or ["no answer yet"]


def _verdict(run: RunReport) -> str:
    return run.certificate.verdict if run.certificate else "not checked yet"


def _about(run: RunReport) -> str:
    state = run.state
    simulated = "; simulated, nothing was measured" if any(it.origin == "mock" for it in run.models) else ""
    return printable(
        f"{run.name}, {state.state}, {state.ok} of {state.planned} requests{simulated} ({run.folder.resolve().name})"
    )


def _table(run: RunReport) -> str:
    head = _row("th", ["arm", "tok/s", "speedup", "accepted", "tau", "requests"])
    targets = {arm.id: arm.target for arm in run.arms}
    rows = (_row("td", [f"{targets[arm.arm_id]}: {label(arm.arm_id)}", *_cells(run, arm)]) for arm in run.summary.arms)
    return f"<table><thead>{head}</thead><tbody>{''.join(rows)}</tbody></table>"


def _cells(run: RunReport, arm: ArmSummary) -> list[str]:
    verdict = run.certificate.arms.get(arm.arm_id, "valid") if run.certificate else "valid"
    mark = " ?" if verdict == "suspect" else ""
    speedup = f"baseline{mark}" if arm.baseline_id is None else f"{_number(arm.speedup, 2)}{mark}"
    failed = f" ({arm.requests_failed} failed)" if arm.requests_failed else ""
    return [
        _number(arm.decode_rate, 1),
        "invalid" if verdict == "invalid" else speedup,
        "-" if arm.acceptance is None else f"{arm.acceptance.point:.0%}",
        "-" if arm.tau is None else f"{arm.tau.point:.2f}",
        f"{arm.requests_ok}{failed}",
    ]


def _number(estimate: Estimate | None, digits: int) -> str:
    return "-" if estimate is None else f"{estimate.point:.{digits}f} {brackets(estimate, digits)}"


def _row(tag: str, cells: Iterable[str]) -> str:
    return "<tr>" + "".join(f"<{tag}>{_safe(cell)}</{tag}>" for cell in cells) + "</tr>"


def _safe(text: str) -> str:
    return escape(printable(text))
