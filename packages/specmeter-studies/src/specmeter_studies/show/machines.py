"""Several machines beside each other: `specmeter compare --machines`, on the terminal and as a page.

Tables of `specmeter study latency`: the model, what it foretells, and up to which distance a draft pays.

Prints what `specmeter quality` found: a table of models, or JSON.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import specmeter_studies
from specmeter.advise.schedule import find_single_run
from specmeter.analysis.quality import load_report
from specmeter.errors import UsageError
from specmeter.show.page.files import write_text
from specmeter.show.table import Cell, Row, Table, estimate_cell, numbers, row, text
from specmeter.show.terminal.console import WIDTH, errors, output, say_json
from specmeter.store.locate import find_run, sort_of
from specmeter.text import bandwidth, counted, milliseconds, percent, size
from specmeter.text import estimated as told
from specmeter_studies.folder import StudyFolder
from specmeter_studies.library.cross_device.costs import break_even
from specmeter_studies.library.hardware_comparison.extra import of_machines
from specmeter_studies.machines import MachineLine, MachineSide, MachineTable, from_quality, from_run, merge
from specmeter_studies.show.document import study_document, study_page

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from specmeter.analysis.quality import QualityReport
    from specmeter.analysis.quality_comparison import ComparedModel as Model
    from specmeter.record import EngineIdentity, Estimate
    from specmeter_studies.latency import DraftStep
    from specmeter_studies.library.cross_device.costs import Fitted, Forecast


_GB = 1e9
_MOST_GB_PER_S = 1e6


def compare_machines(
    runs: Sequence[str], bandwidths: Sequence[str], html: Path | None, languages: Sequence[str], *, as_json: bool
) -> int:
    """Print the table of machines, and write its page; returns the exit code of the command."""
    names = _names(runs)
    given = _bandwidths(bandwidths, dict(zip(runs, names, strict=True)))
    table = merge([_side(run, name) for run, name in zip(runs, names, strict=True)], given)
    if as_json:
        say_json(table.model_dump(mode="json"))
    else:
        print_machines(table)
    if html is not None:
        write_text(html, _page(table, languages))
        errors().say(str(html), wrap=False)
    return 1 if any(line.verdict == "invalid" for line in table.lines) else 0


def _page(table: MachineTable, languages: Sequence[str]) -> str:
    """The machines as data of the study that compares machines: its claims, tables and figures."""
    return study_page(
        [study_document(specmeter_studies.findings("hardware-comparison", of_machines(table)))], languages
    )


def _side(given: str, name: str) -> MachineSide:
    path = find_run(given)
    path = _only_part(StudyFolder(path), name) if (inside := sort_of(path) == "study") else find_single_run(given)
    if path.suffix.lower() == ".json" and not path.is_dir():
        return from_quality(load_report(path, inside=inside), name)
    return from_run(path, name)


def _only_part(study: StudyFolder, name: str) -> Path:
    """What a study with one part measured. Raises `UsageError` for one with several, which would be several tables."""
    parts = [part for part in study.record().parts if not part.skipped]
    if len(parts) != 1:
        names = ", ".join(part.name for part in parts) or "none"
        raise UsageError(
            f"{name}: a study with {len(parts)} measured parts ({names})", fix=f"name one part: {study.path.name}/PART"
        )
    part = parts[0]
    return study.quality_file(part.name) if part.kind == "quality" else study.run_folder(part.name)


def _names(runs: Sequence[str]) -> list[str]:
    """A name for each: that of its folder or file, with the folder above where names would be the same."""
    paths = [Path(run).expanduser().resolve() if run != "latest" else Path(run) for run in runs]
    short = [path.name.removesuffix(".json") for path in paths]
    if len(set(short)) < len(short):
        short = [f"{path.parent.name}/{name}" for path, name in zip(paths, short, strict=True)]
    if len(set(short)) < len(short):
        short = [f"{name} ({place})" for place, name in enumerate(short, start=1)]
    return short


def _bandwidths(given: Sequence[str], names: dict[str, str]) -> dict[str, float | str]:
    """Name of the machine -> bytes per second, or the name of a device. Raises `UsageError` for what is neither."""
    found: dict[str, float | str] = {}
    for item in given:
        name, separator, value = item.rpartition("=")
        if not separator or not name or not value.strip():
            raise UsageError(
                f"--bandwidth {item[:80]!r} does not name a run and a bandwidth",
                fix='write RUN=GB/S or RUN=DEVICE, for example pro=200 or pro="M2 Pro"',
            )
        try:
            number = float(value)
        except ValueError:
            found[names.get(name, name)] = value.strip()
            continue
        if not 0 < number <= _MOST_GB_PER_S:
            raise UsageError(f"--bandwidth {item[:80]}: no bandwidth in GB/s", fix="give GB/s, for example 200")
        found[names.get(name, name)] = number * _GB
    return found


def print_machines(found: MachineTable) -> None:
    """The machines, then one row for each thing on each of them, then what else differs."""
    screen = output()
    screen.say((found.what, "strong"), f" on {len(found.machines)} machines")
    for machine in found.machines:
        peak = machine.bandwidth_bytes_per_s
        told = "bandwidth unknown" if peak is None else bandwidth(peak)
        screen.say(f"  {machine.name}: {machine.device}, {told} ({machine.bandwidth_source})", wrap=False)
    columns = numbers("tok/s", f"x {found.machines[0].name}", "GB/s", "of peak", "speedup")
    rows: list[Row] = []
    before = None
    for line in found.lines:
        key = (line.subject, line.test)
        rows.append(row(*(key if key != before else ("", "")), line.machine, *_numbers(line)))
        before = key
    screen.table(Table("machines", (*text("subject", "test", "machine"), *columns), rows))
    if found.differences:
        screen.line()
        screen.say("what differs:")
        screen.say_all((f"  {difference}" for difference in found.differences), wrap=False)


def _numbers(line: MachineLine) -> tuple[Cell | str, ...]:
    if line.verdict == "invalid":
        return ("invalid", "-", "-", "-", "-")
    if line.rate is None:
        return ("not measured", "-", "-", "-", "-")
    moved = line.moved_bytes_per_s
    return (
        Cell(f"{line.rate.point:.1f}", mark="suspect" if line.verdict == "suspect" else None),
        estimate_cell(line.ratio, 2),
        "-" if moved is None else f"{moved.point / 1e9:.1f}",
        "-" if line.utilisation is None else percent(line.utilisation.point),
        estimate_cell(line.speedup, 2),
    )


_PLAIN, _HERE = "plain decoding", "drafting on this machine"


def document(
    model: Fitted, step: DraftStep | None, found: Sequence[Forecast], rates: Sequence[float]
) -> dict[str, Any]:
    """Everything, for `--json`."""
    parameters = {
        "fixed_ms": model.estimate(lambda it: it.fixed_ms, "ms"),
        "round_trips": model.estimate(lambda it: it.trips, "1"),
        "bytes": model.estimate(lambda it: it.bytes_, "bytes"),
    }
    ends = [
        {"mbit_per_s": rate, "than": than, "rtt_ms": None if at is None else at.model_dump(mode="json")}
        for rate, than, _, at in _break_evens(model, step, rates)
    ]
    return {
        "measured": bool(model.points),
        "model": {name: value.model_dump(mode="json") for name, value in parameters.items()},
        "bytes_fitted": model.fitted_bytes,
        "bytes_counted": model.counted_bytes,
        "vocabulary": model.vocabulary,
        "points": [
            {"name": it.name, **it.network._asdict(), "overhead_ms": list(it.overhead_ms)} for it in model.points
        ],
        "step": None if step is None else asdict(step),
        "forecasts": [it.model_dump(mode="json") for it in found],
        "faster_below": ends,
    }


def print_forecasts(
    model: Fitted,
    step: DraftStep | None,
    found: Sequence[Forecast],
    rates: Sequence[float],
    *,
    measured: Fitted | None,
) -> None:
    """The answer first, then the model, the forecasts, and what the `measured` one was fitted to."""
    screen = output()
    screen.say_all((*_answers(model, step, rates), *_model_lines(model)), wrap=False)
    screen.line()
    screen.table(_forecast_table(model, step, found))
    if any(it.extrapolated for it in found):
        screen.say("* outside of the networks that were measured", tone="faint")
    if measured is not None:
        screen.line()
        screen.table(_fit_table(measured))
    if step is not None:
        here = "" if step.here_ms is None else f" ({milliseconds(step.here_ms)} here)"
        screen.line()
        screen.say(
            f"a step emits {step.tau:.2f} tokens and drafts {step.drafted:.2f}, in {milliseconds(step.there_ms)} each "
            f"there{here}; the rest of it takes {step.rest:.2f} plain tokens of {milliseconds(step.plain_ms)}",
            tone="faint",
            wrap=False,
        )


def _answers(model: Fitted, step: DraftStep | None, rates: Sequence[float]) -> Iterator[str]:
    for rate, than, room, at in _break_evens(model, step, rates):
        if at is not None:
            most = "" if model.points else "at most "
            distance = most + told(at, 2, " ms", exact=True)
            yield f"at {rate:g} Mbit/s drafting there is faster than {than} up to a RTT of {distance}"
        else:
            why = "" if room > 0 else ", even without a network"
            yield f"at {rate:g} Mbit/s drafting there is slower than {than} at any distance{why}"


def _break_evens(
    model: Fitted, step: DraftStep | None, rates: Sequence[float]
) -> Iterator[tuple[float, str, float, Estimate | None]]:
    """(bandwidth, than what, the overhead that can be borne in ms, the RTT up to which it is)."""
    if step is None:
        return
    for rate in rates:
        for than, room in ((_PLAIN, step.bearable_ms), (_HERE, step.saved_ms)):
            if room is not None:
                yield rate, than, room, break_even(model, room, rate)


def _model_lines(model: Fitted) -> Iterator[str]:
    fixed = told(model.estimate(lambda it: it.fixed_ms, "ms"), 2, " ms", exact=True)
    trips = told(model.estimate(lambda it: it.trips, "1"), 2, " RTT", exact=True)
    crossing = told(model.estimate(lambda it: it.bytes_ / 1e3, "kB"), 1, " kB", exact=True)
    formula = f"{fixed} + {trips} + {crossing} / bandwidth"
    if not model.points:
        yield f"a drafted token takes longer there than it computes, by at least {formula}"
        return
    yield f"a drafted token takes longer there than it computes, by {formula}"
    blocks = f"{len(model.models)} blocks" if len(model.models) > 1 else "one block: no interval"
    line = f"  fitted to {len(model.points)} networks, {blocks}"
    if model.counted_bytes is not None:
        how = "bytes are fitted" if model.fitted_bytes else "bytes are those counted"
        line += f"; {how}: {size(model.counted_bytes)} cross the network per drafted token"
    yield line


def _forecast_table(model: Fitted, step: DraftStep | None, found: Sequence[Forecast]) -> Table:
    least = not model.points
    headings = ["RTT ms", "Mbit/s", "more ms per drafted token" + (", at least" if least else "")]
    if step is not None:
        headings.append("speedup over plain" + (", at most" if least else ""))
        headings += [] if step.here_ms is None else ["rate over drafting here"]
    rows = [
        row(
            f"{it.rtt_ms:g}{'*' if it.extrapolated else ''}",
            f"{it.mbit_per_s:g}",
            *(told(value, 2, exact=True) for value in (it.overhead_ms, it.speedup, it.over_here)[: len(headings) - 2]),
        )
        for it in found
    ]
    return Table("forecasts", numbers(*headings), rows)


def _fit_table(model: Fitted) -> Table:
    rows: list[Row] = []
    for point in model.points:
        rtt, rate = point.network
        fitted = model.estimate(lambda it, rtt=rtt, rate=rate: it.overhead_ms(rtt, rate), "ms")
        mean = sum(point.overhead_ms) / len(point.overhead_ms)
        bandwidth = "unlimited" if rate is None else f"{rate:g}"
        rows.append(row(point.name, f"{rtt:g}", bandwidth, f"{mean:.2f}", told(fitted, 2, exact=True)))
    return Table("fit", (*text("place"), *numbers("RTT ms", "Mbit/s", "measured ms", "model ms")), rows)


def print_report(report: QualityReport, path: Path, *, as_json: bool) -> None:
    """Table and notes on stdout, or JSON; warnings and where it is kept on stderr."""
    from specmeter.analysis.quality_comparison import compare
    from specmeter_studies.quality.plan import names

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
    warnings.say(f"kept in {path}", wrap=False)


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
    error = "" if found.token_error is None else f" +- {found.token_error:.4f}"
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
        "perplexity +- as llama.cpp prints it, tokens taken for independent; [..] 95% over windows",
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
    from specmeter_studies.quality.plan import names

    return [
        f"{name}: {', '.join(f'{count} {kind}' for kind, count in model.tensor_types.items())}"
        + (f"; made by {model.made}" if model.made else "")
        for name, model in zip(names(report), report.models, strict=True)
        if report.plan
    ]
