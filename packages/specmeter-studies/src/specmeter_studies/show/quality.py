"""What `specmeter quality` found, on the terminal: a table of models, or JSON."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from specmeter.show.table import Cell, Table, estimate_cell, numbers, row, text
from specmeter.show.terminal.console import WIDTH, errors, output, say_json
from specmeter.text import counted, percent, size

if TYPE_CHECKING:
    from collections.abc import Callable

    from specmeter.analysis.quality import QualityReport
    from specmeter.analysis.quality_comparison import ComparedModel as Model
    from specmeter.record import EngineIdentity, Estimate


def print_report(report: QualityReport, path: Path, *, as_json: bool) -> None:
    """Table and notes on stdout, or JSON; warnings and where it is kept on stderr."""
    from specmeter.analysis.quality_comparison import compare
    from specmeter_studies.quality.planned import names

    rows = compare(report)
    if as_json:
        comparison = [
            row.model_dump(mode="json", exclude={"perplexity", "rates", "size_bytes", "bits_per_weight"})
            for row in rows
        ]
        answer = {"report": report.model_dump(mode="json"), "comparison": comparison, "file": str(path)}
        say_json(answer, indent=1)
        return
    rows = [row.model_copy(update={"reference": name}) for row, name in zip(rows, names(report), strict=True)]
    table = _models(rows)
    screen, warnings = output(max(WIDTH, 40 + 22 * len(table.columns))), errors()
    screen.table(table)
    screen.line()
    screen.say_all((*_about_text(report), *_about_engines(report), *_about_files(report)), wrap=False)
    for model, measured in zip(rows, report.models, strict=True):
        more = [f"not compared: {model.incomparable}"] if model.incomparable else []
        for warning in (*measured.warnings, *more):
            warnings.say(f"warning: {model.reference}: {warning}", wrap=False)
    for skipped in report.skipped:
        warnings.say(f"not measured: {skipped.name}: {skipped.reason}", wrap=False)
    warnings.say(f"saved in {path}", wrap=False)


def _models(models: Sequence[Model]) -> Table:
    several = len(models) > 1
    columns: list[tuple[str, Callable[[Model], Cell | str]]] = [
        ("size", lambda model: size(model.size_bytes)),
        ("bits/weight", lambda model: f"{model.bits_per_weight:.2f}"),
    ]
    if any(model.perplexity for model in models):
        columns.append(("perplexity", _perplexity))
        if several:
            columns.append(("change", lambda model: _change(model.change)))
    for place, test in enumerate(rate.test.name for rate in models[0].rates):
        columns.append((f"{test} tok/s", lambda model, place=place: estimate_cell(model.rates[place].rate, 1)))
    if several and any(model.speedup for model in models):
        columns.append(("speedup", lambda model: estimate_cell(model.speedup, 2)))
    if any(model.on_front is not None for model in models):
        columns.append(("front", lambda model: {True: "yes", False: "no", None: ""}[model.on_front]))
    rows = [row(model.reference, *(cell(model) for _, cell in columns)) for model in models]
    return Table("quality", (*text("model"), *numbers(*(title for title, _ in columns))), rows)


def _perplexity(model: Model) -> str | Cell:
    found = model.perplexity
    if found is None:
        return ""
    error = "" if found.token_error is None else f" ±{found.token_error:.4f}"
    return Cell(f"{found.estimate.point:.4f}{error}", estimate=found.estimate, digits=3)


def _change(change: Estimate | None) -> str:
    """Of the perplexity in percent."""
    if change is None:
        return ""
    ends = (
        ""
        if change.low is None or change.high is None
        else f" [{100 * (change.low - 1):+.2f}, {100 * (change.high - 1):+.2f}]"
    )
    return f"{percent(change.point - 1, 2, signed=True)}{ends}"


def _about_text(report: QualityReport) -> list[str]:
    found = next((model.perplexity for model in report.models if model.perplexity), None)
    if found is None:
        return []
    stride = f", stride {report.stride}" if report.stride else ""
    return [
        f"text: {report.text.name}, {report.text.size_bytes:,} bytes; {found.windows} windows of "
        f"{found.window_tokens} tokens{stride}, {found.scored:,} tokens scored (first model)",
        "perplexity: ± as llama.cpp prints it (tokens treated as independent); [low, high]: 95% interval over windows",
    ]


def _about_engines(report: QualityReport) -> list[str]:
    def named(engine: EngineIdentity | None) -> str:
        return "" if engine is None else f"{engine.kind} {engine.version}"

    scorers = {named(model.perplexity.engine) for model in report.models if model.perplexity}
    timers = {named(model.rates_engine) for model in report.models if model.rates}
    lines = [f"scored by {', '.join(sorted(scorers))}"] if scorers else []
    if timers:
        blocks = len(report.models[0].rates[0].ms)
        threads = counted(report.settings.threads, "thread") if report.settings.threads else "all physical cores"
        lines.append(f"timed by {', '.join(sorted(timers))}; median of {blocks} blocks; {threads}")
    return lines


def _about_files(report: QualityReport) -> list[str]:
    """What plans' files hold: a type of `llama-quantize` is a mixture."""
    from specmeter_studies.quality.planned import names

    return [
        f"{name}: {', '.join(f'{count} {kind}' for kind, count in model.tensor_types.items())}"
        + (f"; made by {model.made}" if model.made else "")
        for name, model in zip(names(report), report.models, strict=True)
        if report.plan
    ]
