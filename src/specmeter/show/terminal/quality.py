"""How `specmeter quality` looks: a table of models, or JSON; and its progress."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from specmeter.show.terminal.text import WIDTH, output_console, printable

if TYPE_CHECKING:
    from rich.console import Console

    from specmeter.quality import QualityReport
    from specmeter.quality.comparison import ComparedModel
    from specmeter.record import EngineIdentity, Estimate


def print_report(report: QualityReport, path: Path, *, as_json: bool) -> None:
    """Table and notes on stdout, or JSON; warnings and where it is kept on stderr."""
    from specmeter.quality.comparison import compare
    from specmeter.quality.planned import names

    rows = compare(report)
    if as_json:
        comparison = [
            row.model_dump(mode="json", exclude={"perplexity", "rates", "size_bytes", "bits_per_weight"})
            for row in rows
        ]
        answer = {"report": report.model_dump(mode="json"), "comparison": comparison, "file": str(path)}
        click.echo(json.dumps(answer, indent=1))
        return
    rows = [row.model_copy(update={"reference": name}) for row, name in zip(rows, names(report), strict=True)]
    _print_table(rows)
    click.echo()
    for line in (*_about_text(report), *_about_engines(report), *_about_files(report)):
        click.echo(line)
    for row, model in zip(rows, report.models, strict=True):
        for warning in (*model.warnings, *([f"not compared: {row.incomparable}"] if row.incomparable else [])):
            click.echo(f"warning: {printable(row.reference)}: {printable(warning)}", err=True)
    for skipped in report.skipped:
        click.echo(f"not measured: {skipped.name}: {printable(skipped.reason)}", err=True)
    click.echo(f"kept in {printable(str(path))}", err=True)


def _print_table(rows: Sequence[ComparedModel]) -> None:
    from rich.table import Table
    from rich.text import Text

    several = len(rows) > 1
    columns: list[tuple[str, Callable[[ComparedModel], str]]] = [
        ("model", lambda row: printable(row.reference)),
        ("size", lambda row: f"{row.size_bytes / 1e6:,.1f} MB"),
        ("bits/weight", lambda row: f"{row.bits_per_weight:.2f}"),
    ]
    if any(row.perplexity for row in rows):
        columns.append(("perplexity", _perplexity))
        if several:
            columns.append(("change", lambda row: _percent(row.change)))
    for place, rate in enumerate(rows[0].rates):
        columns.append((f"{rate.test.name} tok/s", lambda row, place=place: _rate(row.rates[place].rate)))
    if several and any(row.speedup for row in rows):
        columns.append(("speedup", lambda row: _times(row.speedup)))
    if any(row.on_front is not None for row in rows):
        columns.append(("front", lambda row: {True: "yes", False: "no", None: ""}[row.on_front]))
    table = Table(box=None, pad_edge=False)
    for place, (title, _) in enumerate(columns):
        table.add_column(title, justify="right" if place else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell(row)) for _, cell in columns))
    output_console(max(WIDTH, 40 + 22 * len(columns))).print(table)


def _perplexity(row: ComparedModel) -> str:
    found = row.perplexity
    if found is None:
        return ""
    error = "" if found.token_error is None else f" +- {found.token_error:.4f}"
    return f"{found.estimate.point:.4f}{error}{_interval(found.estimate, '.3f')}"


def _percent(change: Estimate | None) -> str:
    if change is None:
        return ""
    percents = change.model_copy(
        update={
            "point": 100 * (change.point - 1),
            "low": None if change.low is None else 100 * (change.low - 1),
            "high": None if change.high is None else 100 * (change.high - 1),
        }
    )
    return f"{percents.point:+.2f} %{_interval(percents, '+.2f')}"


def _rate(rate: Estimate) -> str:
    return f"{rate.point:.1f}{_interval(rate, '.1f')}"


def _times(speedup: Estimate | None) -> str:
    return "" if speedup is None else f"{speedup.point:.2f}x{_interval(speedup, '.2f')}"


def _interval(estimate: Estimate, form: str) -> str:
    if estimate.low is None or estimate.high is None:
        return ""
    return f" [{estimate.low:{form}}, {estimate.high:{form}}]"


def _about_text(report: QualityReport) -> list[str]:
    found = next((model.perplexity for model in report.models if model.perplexity), None)
    if found is None:
        return []
    stride = f", stride {report.stride}" if report.stride else ""
    return [
        f"text: {printable(report.text.name)}, {report.text.size_bytes:,} bytes; {found.windows} windows of "
        f"{found.window_tokens} tokens{stride}, {found.scored:,} tokens scored (first model)",
        "perplexity +- as llama.cpp prints it, tokens taken for independent; [..] 95 % over windows",
    ]


def _about_engines(report: QualityReport) -> list[str]:
    def named(engine: EngineIdentity | None) -> str:
        return "" if engine is None else printable(f"{engine.kind} {engine.version}")

    scorers = {named(model.perplexity.engine) for model in report.models if model.perplexity}
    timers = {named(model.rates_engine) for model in report.models if model.rates}
    lines = [f"scored by {', '.join(sorted(scorers))}"] if scorers else []
    if timers:
        blocks = len(report.models[0].rates[0].ms)
        threads = f"{report.settings.threads} thread{'' if report.settings.threads == 1 else 's'}"
        lines.append(f"timed by {', '.join(sorted(timers))}; median of {blocks} blocks; {threads}")
    return lines


def _about_files(report: QualityReport) -> list[str]:
    """What plans' files hold: a type of `llama-quantize` is a mixture."""
    from specmeter.quality.planned import names

    return [
        f"{printable(name)}: {', '.join(f'{count} {kind}' for kind, count in model.tensor_types.items())}"
        + (f"; made by {model.made}" if model.made else "")
        for name, model in zip(names(report), report.models, strict=True)
        if report.plan
    ]


@contextmanager
def part_progress(console: Console) -> Generator[Callable[[str, int, int], None]]:
    """A bar on a terminal, otherwise a line at the beginning of each part."""
    from rich.markup import escape
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    if not console.is_terminal:
        told: set[str] = set()

        def tell(what: str, done: int, total: int) -> None:  # noqa: ARG001
            if what not in told:
                told.add(what)
                console.print(f"measuring {escape(printable(what))}", highlight=False, soft_wrap=True)

        yield tell
        return
    columns = (TextColumn("{task.description}"), BarColumn(24), TextColumn("{task.completed}/{task.total}"))
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as bars:
        task = bars.add_task("loading", total=None)
        now = ""

        def show(what: str, done: int, total: int) -> None:
            nonlocal task, now
            if what != now:
                now = what
                bars.remove_task(task)
                task = bars.add_task(escape(printable(what)), total=total)
            bars.update(task, completed=done)

        yield show
