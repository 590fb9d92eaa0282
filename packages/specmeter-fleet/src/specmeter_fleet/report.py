"""What is said of a fleet: its devices, how much they differ, and, of unlike machines, what each of them answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from specmeter.analysis.reading import RunReport, read_run
from specmeter.messages import Message
from specmeter.record import Host
from specmeter.show.names import Names
from specmeter.show.report import Report, Section, Tabled, Text
from specmeter.show.table import Cell, Column, Row, Table, estimate_cell, row
from specmeter.text import size
from specmeter_fleet.head import FleetRecord
from specmeter_fleet.spread import LEAST, Spread


def replicate(record: FleetRecord, folder: Path, run: RunReport, found: Sequence[Spread]) -> Report:
    """Devices that measured the same experiment, merged into the run in `folder`."""
    names = Names(run.arms)
    blocks = [
        Text(Message("fleet.unlike", device=device, ratio=ratio, arm=names.in_full(it.arm.id)), "doubtful")
        for it in found
        for device, ratio in it.unlike.items()
    ]
    measured = {device for spread in found for device in spread.values}
    if 1 < len(measured) < LEAST:
        blocks.append(Text(Message("fleet.too_few", least=LEAST), "faint"))
    return Report(
        target=folder.name,
        headline=_headline(found, len(measured), names),
        document=lambda: document(record, found),
        sections=[Section("fleet", [*blocks, Tabled(_spread(found, names)), Tabled(_devices(record, found))])],
        notes=_notes(record),
        folder=folder,
    )


def _headline(found: Sequence[Spread], devices: int, names: Names) -> Message:
    sped = [it for it in found if it.arm.baseline_id is not None]
    widest = max(sped or found, key=lambda it: it.spread.point, default=None)
    if widest is None:
        return Message("fleet.one", devices=devices)
    it = widest.spread
    low, high = (it.point if end is None else end for end in (it.low, it.high))
    told = {"spread": it.point, "low": low, "high": high, "noise": widest.noise}
    return Message("fleet.spread", devices=devices, arm=names.in_full(widest.arm.id), **told)


def _spread(found: Sequence[Spread], names: Names) -> Table:
    keys = ("fleet_mean", "fleet_spread", "fleet_noise", "fleet_lowest", "fleet_highest")
    columns = (Column("arm", most=44), *(Column(it, "number") for it in keys))
    rows = [
        row(
            Cell(names.in_full(it.arm.id), id=it.arm.id),
            estimate_cell(it.mean, 2),
            estimate_cell(it.spread, 1),
            Cell(f"{it.noise:.1f}", it.noise),
            *(Cell(f"{value:.2f} ({name})", value) for value, name in (ends[0], ends[-1])),
        )
        for it in found
        if (ends := sorted((value, name) for name, value in it.values.items()))
    ]
    return Table("fleet_spread", columns, rows)


def _devices(record: FleetRecord, found: Sequence[Spread]) -> Table:
    """Who measured what, on which machine."""
    of = {part.name: part.done.device for part in record.parts if part.done is not None}
    rows: list[Row] = []
    for device in record.devices:
        parts = [name for name, by in of.items() if by == device.name]
        odd = any(device.name in it.unlike for it in found)
        labels = ", ".join(f"{key} {it}" for key, it in device.labels.items())
        clock = f"{device.offset_s:+.3f} ±{device.within_s:.3f} s"
        told = (device.name, machine(device.host), labels, str(len(parts)), clock)
        rows.append(row(*told, tone="doubtful" if odd else ""))
    rows += [
        row(name, Message("fleet.refused", why=why), "", "0", "", tone="bad") for name, why in record.refused.items()
    ]
    keys = ("fleet_device", "fleet_machine", "fleet_labels", "fleet_parts", "fleet_clock")
    return Table("fleet_devices", tuple(Column(it, most=48) for it in keys), rows)


def machine(host: Host) -> str:
    """A machine in a few words."""
    gpus = ", ".join(gpu.name for gpu in host.gpus)
    return f"{gpus or host.cpu}, {host.usable_cores or host.logical_cores:g} cores, {size(host.memory_bytes)}"


def _notes(record: FleetRecord) -> list[Text]:
    found: list[Text] = []
    late = [it.name for it in record.devices if abs(it.offset_s) > 1 + it.within_s]
    if late:
        found.append(Text(Message("fleet.clocks", devices=late), "doubtful"))
    lost = [part.name for part in record.parts if part.done is None]
    if lost:
        found.append(Text(Message("fleet.incomplete", parts=len(lost), all=len(record.parts)), "bad"))
    machines = dict.fromkeys((it.host.cpu, tuple(gpu.name for gpu in it.host.gpus)) for it in record.devices)
    if record.design == "replicate" and len(machines) > 1:
        found.append(Text(Message("fleet.unlike_machines", kinds=len(machines)), "doubtful"))
    losses = sum(attempt.losses for part in record.parts for attempt in part.attempts)
    if losses:
        found.append(Text(Message("fleet.losses", losses=losses), "faint"))
    return found


def survey(record: FleetRecord, folder: Path, runs: Mapping[str, Path]) -> Report:
    """Unlike machines beside each other, each with its own run and its own answer."""
    read = {name: read_run(run) for name, run in runs.items()}
    rows: list[Row] = []
    seen = {it.name: it for it in record.devices}
    for name, run in read.items():
        names = Names(run.arms)
        plain = next((it for it in run.summary.arms if it.speedup is None and it.decode_rate), None)
        sped = [(it, cited) for it in run.summary.arms if (cited := run.cited(it)) is not None]
        best = max(sped, key=lambda it: it[1].point, default=None)
        verdict = None if run.certificate is None else run.certificate.verdict
        rows.append(
            row(
                name,
                machine(seen[name].host) if name in seen else "",
                estimate_cell(None if plain is None else plain.decode_rate, 1),
                Cell("-") if best is None else Cell(names.in_full(best[0].arm_id), id=best[0].arm_id),
                estimate_cell(None if best is None else best[1], 2),
                Message(f"verdict.{verdict or 'unchecked'}"),
                verdict=verdict,
            )
        )
    columns = (
        *(Column(it, most=48) for it in ("fleet_device", "fleet_machine")),
        Column("fleet_plain", "number"),
        Column("arm", most=44),
        Column("speedup", "number"),
        Column("verdict"),
    )
    return Report(
        target=folder.name,
        headline=Message("fleet.survey", machines=len(read)),
        document=lambda: document(record, ()) | {"runs": {name: str(run) for name, run in runs.items()}},
        sections=[Section("fleet", [Tabled(Table("fleet_machines", columns, rows))])],
        notes=_notes(record),
        closing=[Text(f"specmeter compare {' '.join(map(str, runs.values()))} --by speedup", "faint", whole=True)]
        if 1 < len(runs) <= LEAST
        else [],
        folder=folder,
    )


def document(record: FleetRecord, found: Sequence[Spread]) -> dict[str, object]:
    """For programs."""
    return {
        "fleet": record.model_dump(mode="json", exclude={"experiment"}),
        "spread": [
            {
                "arm": it.arm.id,
                "devices": it.values,
                "mean": it.mean.model_dump(mode="json"),
                "spread_percent": it.spread.model_dump(mode="json"),
                "noise_percent": it.noise,
                "unlike": it.unlike,
            }
            for it in found
        ],
    }
