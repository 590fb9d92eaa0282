"""hardware-comparison: the machines of its data, and which of them are the document's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from specmeter.analysis.machines import Machine, MachineLine, MachineTable, from_quality, merge
from specmeter.studies.study import StudyData

if TYPE_CHECKING:
    from specmeter.record import Estimate

DENSE = "9B_Q8"
"""The model of the page's table."""
PRINTED = {"M2 Ultra": (64.0, 69.1), "M1 Max": (66.0, 70.9), "M2 Pro": (77.0, 82.4)}
"""Utilisation of the 9B model in percent, by the page and by the document's data."""


def machine_table(data: StudyData) -> MachineTable | None:
    """The machines of the data: those that were put together, or the one that a study was measured on."""
    if data.machines is not None:
        return data.machines
    names = [report.host.cpu or "machine" for report in data.quality]
    told = [f"{name} ({number})" if names.count(name) > 1 else name for number, name in enumerate(names, start=1)]
    sides = [from_quality(report, name) for report, name in zip(data.quality, told, strict=True)]
    return merge(sides) if sides else None


def of_machines(table: MachineTable) -> StudyData:
    """Machines that were put together, as data of this study: what claims, tables and figures are made from."""
    return StudyData(
        study="hardware-comparison",
        origin="measured",
        title=f"{table.what} on {len(table.machines)} machines",
        machine=", ".join(f"{machine.name} ({machine.device})" for machine in table.machines),
        machines=table,
        notes=table.differences,
    )


def plain(table: MachineTable | None) -> tuple[MachineLine, ...]:
    """Generation without drafts, measured and not false."""
    if table is None:
        return ()
    return tuple(line for line in table.lines if line.decodes and not line.speculates and line.rate is not None)


def documented(table: MachineTable | None) -> Iterator[tuple[str, Estimate]]:
    """The document's name of a machine -> utilisation by the model of its table."""
    for line in plain(table):
        name = document_name(table.machine(line.machine)) if table is not None else None
        if name is not None and line.subject == DENSE and line.utilisation is not None:
            yield name, line.utilisation


def document_name(machine: Machine) -> str | None:
    """The document's name for a machine; None for others."""
    name = machine.device.removeprefix("Apple ")
    return name if name in PRINTED else None
