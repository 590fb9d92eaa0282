"""What is said of a fleet: its devices, how much they differ, and, of unlike machines, what each of them answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from specmeter.analysis.reading import RunReport, read_run
from specmeter.messages import Message, Value
from specmeter.record import Arm, Host
from specmeter.show import run_report
from specmeter.show.names import Names
from specmeter.show.report import Block, Report, Section, Tabled, Text, hints
from specmeter.show.table import Cell, Column, Row, Table, estimate_cell, row
from specmeter.text import size
from specmeter_fleet.head import FleetRecord, Seen
from specmeter_fleet.variance import MIN_DEVICES, Spread


def replicate(record: FleetRecord, folder: Path, run: RunReport, found: Sequence[tuple[Arm, Spread]]) -> Report:
    """Devices that measured the same experiment, merged into the run in `folder`."""
    names = Names(run.arms)
    blocks: list[Block] = [
        Text(Message("fleet.unlike", device=device, ratio=ratio, arm=names.in_full(arm.id)), "doubtful")
        for arm, it in found
        for device, ratio in it.unlike.items()
    ]
    measured = {device for _, it in found for device in it.values}
    if 1 < len(measured) < MIN_DEVICES:
        blocks.append(Text(Message("fleet.too_few", least=MIN_DEVICES), "faint"))
    several = 1 < len(measured) < sum(part.done is not None for part in record.parts)
    if several:
        blocks.append(Text(Message("fleet.cite")))
    blocks += [Tabled(_spread(found, names, mean=several)), Tabled(_devices(record, found))]
    return Report(
        target=folder.name,
        headline=_headline(found, len(measured), names),
        document=lambda: document(record, found),
        sections=[Section("fleet", blocks)],
        notes=_notes(record),
        folder=folder,
    )


def _headline(found: Sequence[tuple[Arm, Spread]], devices: int, names: Names) -> Message:
    if not found:
        return Message("fleet.one", devices=devices)
    sped = [(arm, it) for arm, it in found if arm.baseline_id is not None]
    arm, it = max(sped or found, key=lambda them: (them[1].differ, them[1].spread.point))
    if it.noise is None:
        return Message("fleet.one_block", devices=devices)
    told: dict[str, Value] = {"devices": devices, "arm": names.in_full(arm.id), "spread": it.spread.point}
    if not it.differ or it.spread.low is None or it.spread.high is None:
        return Message("fleet.alike", **told, noise=it.noise)
    return Message("fleet.spread", low=it.spread.low, high=it.spread.high, **told, noise=it.noise)


def _spread(found: Sequence[tuple[Arm, Spread]], names: Names, *, mean: bool) -> Table:
    keys = (*(("fleet_mean",) if mean else ()), "fleet_spread", "fleet_noise", "fleet_lowest", "fleet_highest")
    columns = (Column("arm", most=44), *(Column(it, "number") for it in keys))
    rows = [
        row(
            Cell(names.in_full(arm.id), id=arm.id),
            *((estimate_cell(it.mean, 2),) if mean else ()),
            estimate_cell(it.spread, 1),
            Cell("-") if it.noise is None else Cell(f"{it.noise:.1f}", it.noise),
            *(Cell(f"{value:.2f} ({name})", value) for value, name in (ends[0], ends[-1])),
        )
        for arm, it in found
        if (ends := sorted((value, name) for name, value in it.values.items()))
    ]
    return Table("fleet_spread", columns, rows)


def _devices(record: FleetRecord, found: Sequence[tuple[Arm, Spread]]) -> Table:
    """Who measured what, on which machine."""
    of = {part.name: part.done.device for part in record.parts if part.done is not None}
    rows: list[Row] = []
    for device in record.devices:
        parts = [name for name, by in of.items() if by == device.name]
        odd = any(device.name in it.unlike for _, it in found)
        clock = f"{device.offset_s:+.3f} ±{device.within_s:.3f} s"
        told = (device.name, machine(device.host), _labels(device), str(len(parts)), clock)
        rows.append(row(*told, tone="doubtful" if odd else ""))
    rows += [
        row(name, Message("fleet.refused", why=why), "", "0", "", tone="bad") for name, why in record.refused.items()
    ]
    keys = ("fleet_device", "fleet_machine", "fleet_labels", "fleet_parts", "fleet_clock")
    return Table("fleet_devices", tuple(Column(it, most=48) for it in keys), rows)


def machine(host: Host) -> str:
    """A machine in a few words."""
    gpus = ", ".join(gpu.name for gpu in host.gpus)
    cores = host.usable_cores or host.logical_cores
    return f"{gpus or host.cpu}, {cores:g} {'core' if cores == 1 else 'cores'}, {size(host.memory_bytes)}"


def _labels(device: Seen | None) -> str:
    return ", ".join(f"{key} {it}" for key, it in device.labels.items()) if device else ""


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
    said: list[Block] = []
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
                _labels(seen.get(name)),
                estimate_cell(None if plain is None else plain.decode_rate, 1),
                Cell("-") if best is None else Cell(names.in_full(best[0].arm_id), id=best[0].arm_id),
                estimate_cell(None if best is None else best[1], 2),
                Message(f"verdict.{verdict or 'unchecked'}"),
                verdict=verdict,
            )
        )
        told = run_report.report(run)
        doubts = [it for it in told.notes if it.tone in ("bad", "doubtful")][: told.most_notes]
        texts = [it for it in (*told.answer, *doubts) if isinstance(it, Text)]
        said += [replace(it, said=Message("arm.of", target=name, name=it.said), row="") for it in texts]
    columns = (
        *(Column(it, most=48) for it in ("fleet_device", "fleet_machine", "fleet_labels")),
        Column("fleet_plain", "number"),
        Column("arm", most=44),
        Column("speedup", "number"),
        Column("verdict"),
    )
    line = f"specmeter compare {' '.join(map(str, runs.values()))} --by speedup"
    compared = [Text(line, "faint", whole=True)] if 1 < len(runs) <= MIN_DEVICES else []
    return Report(
        target=folder.name,
        headline=Message("fleet.survey", machines=len(read)),
        document=lambda: document(record, ()) | {"runs": {name: str(run) for name, run in runs.items()}},
        sections=[Section("fleet", [*said, Tabled(Table("fleet_machines", columns, rows))])],
        notes=_notes(record),
        closing=[*(hint for run in runs.values() for hint in hints(run)), *compared],
        folder=folder,
    )


def document(record: FleetRecord, found: Sequence[tuple[Arm, Spread]]) -> dict[str, object]:
    """For programs."""
    return {
        "fleet": record.model_dump(mode="json", exclude={"experiment"}),
        "spread": [
            {
                "arm": arm.id,
                "devices": it.values,
                "mean": it.mean.model_dump(mode="json"),
                "spread_percent": it.spread.model_dump(mode="json"),
                "noise_percent": it.noise,
                "differ": it.differ,
                "unlike": it.unlike,
            }
            for arm, it in found
        ],
    }
