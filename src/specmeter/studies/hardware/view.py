"""hardware-comparison: its tables, and figures that the document does not draw."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from specmeter.numbers.estimates import scaled
from specmeter.studies.hardware.table import PRINTED, documented, machine_table, plain
from specmeter.studies.study import Axis, Point, StudyCell, StudyData, StudyFigure, StudyTable

if TYPE_CHECKING:
    from specmeter.analysis.machines import Machine, MachineLine, MachineTable
    from specmeter.record import Estimate

_GIB = 2**30


def tables(data: StudyData) -> tuple[StudyTable, ...]:
    """The table of machines, for every model."""
    table = machine_table(data)
    return () if table is None or not table.lines else (rates_table(table), *_printed_table(table))


def figures(data: StudyData) -> tuple[StudyFigure, ...]:
    """Rates by bandwidth, and utilisation. The document draws neither."""
    table = machine_table(data)
    if table is None:
        return ()
    return tuple(figure for figure in (rate_figure(table), utilisation_figure(table)) if figure.points)


def rates_table(table: MachineTable) -> StudyTable:
    """One row for each thing on each machine."""
    made = [line for line in table.lines if line.rate is not None or line.verdict is not None]
    return StudyTable(
        key="machines",
        title="Rates of several machines, and what they ask of memory",
        about="The document's columns (machine, bandwidth, generation, prompt, utilisation) for every model, one row "
        "for each. Utilisation is of weights that decoding one token reads; of a mixture the chosen experts only.",
        columns=(
            "model",
            "test",
            "machine",
            "bandwidth, GB/s",
            "tok/s",
            "over the first machine",
            "weights per token, GB",
            "moved, GB/s",
            "utilisation, %",
        ),
        rows=tuple(_row(line, table.machine(line.machine)) for line in made),
        verdicts=tuple(line.verdict for line in made),
    )


def rate_figure(table: MachineTable) -> StudyFigure:
    """Rates of generation over bandwidth: parallel to the diagonal where memory sets the pace."""
    points = [
        _point(line, x=bandwidth / 1e9, estimate=line.rate)
        for line in plain(table)
        if line.rate is not None and (bandwidth := table.machine(line.machine).bandwidth_bytes_per_s) is not None
    ]
    return StudyFigure(
        key="rate-by-bandwidth",
        title="Generation by memory bandwidth",
        about="Where memory alone set the pace, lines would rise as steeply as bandwidth does.",
        kind="lines",
        x=Axis(title="bandwidth, GB/s", log=True),
        y=Axis(title="tok/s", log=True),
        series_title="model",
        points=tuple(points),
    )


def utilisation_figure(table: MachineTable) -> StudyFigure:
    """Utilisation by model and machine."""
    order = tuple(dict.fromkeys(line.subject for line in plain(table)))
    points = [
        Point.of(
            scaled(line.utilisation, 100, "%"),
            series=line.machine,
            x=line.subject,
            label=f"{line.subject} on {line.machine}",
            verdict=line.verdict,
        )
        for line in plain(table)
        if line.utilisation is not None
    ]
    return StudyFigure(
        key="utilisation",
        title="Share of the bandwidth that generation uses",
        kind="bars",
        x=Axis(title="model", order=order),
        y=Axis(title="utilisation, %"),
        series_title="machine",
        points=tuple(points),
    )


def _row(line: MachineLine, machine: Machine) -> tuple[StudyCell, ...]:
    peak = machine.bandwidth_bytes_per_s
    return (
        StudyCell(text=line.subject),
        StudyCell(text=line.test),
        StudyCell(text=line.machine),
        StudyCell(value=None if peak is None else peak / 1e9, text="unknown", digits=0),
        StudyCell(value=line.rate, text="invalid" if line.verdict == "invalid" else "-", digits=1),
        StudyCell(value=line.ratio, text="-"),
        StudyCell(value=None if line.bytes_per_token is None else line.bytes_per_token / 1e9, text="-", digits=3),
        StudyCell(value=_times(line.moved_bytes_per_s, 1e-9, "GB/s"), text="-", digits=1),
        StudyCell(value=_times(line.utilisation, 100, "%"), text="-", digits=1),
    )


def _printed_table(table: MachineTable) -> Iterator[StudyTable]:
    """What the page prints beside what follows from its rates, where these are the document's machines."""
    found = list(documented(table))
    if not found:
        return
    yield StudyTable(
        key="utilisation-printed",
        title="Utilisation as printed, and as it follows from rate, size and bandwidth",
        about="GB are 10^9 bytes, as in the bandwidths. Dividing GiB by GB gives what the page prints.",
        columns=("machine", "by the page, %", "by its data, %", "from bytes, %", "with GiB for GB, %"),
        rows=tuple(
            (
                StudyCell(text=name),
                StudyCell(value=PRINTED[name][0], digits=0),
                StudyCell(value=PRINTED[name][1], digits=1),
                StudyCell(value=_times(share, 100, "%"), digits=1),
                StudyCell(value=100 * share.point * 1e9 / _GIB, digits=1),
            )
            for name, share in found
        ),
    )


def _point(line: MachineLine, *, x: float, estimate: Estimate) -> Point:
    return Point.of(
        estimate,
        series=f"{line.subject}{' with drafts' if line.speculates else ''}",
        x=x,
        label=f"{line.subject} on {line.machine}",
        verdict=line.verdict,
    )


def _times(estimate: Estimate | None, factor: float, unit: str) -> Estimate | None:
    return None if estimate is None else scaled(estimate, factor, unit)
