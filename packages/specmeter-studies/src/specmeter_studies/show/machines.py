"""Several machines beside each other: `specmeter compare --machines`, on the terminal and as a page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import specmeter_studies
from specmeter.advise.schedule import find_single_run
from specmeter.analysis.quality import load_report
from specmeter.errors import UsageError
from specmeter.show.page.files import write_text
from specmeter.show.table import Cell, Row, Table, estimate_cell, numbers, row, text
from specmeter.show.terminal.console import errors, output, say_json
from specmeter.store.locate import find_run, sort_of
from specmeter.text import bandwidth, percent
from specmeter_studies.folder import StudyFolder
from specmeter_studies.library.hardware_comparison.extra import of_machines
from specmeter_studies.machines import MachineLine, MachineSide, MachineTable, from_quality, from_run, merge
from specmeter_studies.show.document import study_document
from specmeter_studies.show.page import study_page

if TYPE_CHECKING:
    pass


_GB = 1e9
_MAX_GB_PER_S = 1e6


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
            f"{name}: has {len(parts)} measured parts ({names})", fix=f"pass one part: {study.path.name}/PART"
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
                f"--bandwidth {item[:80]!r} not a run and a bandwidth",
                fix='write RUN=GB/S or RUN=DEVICE, for example pro=200 or pro="M2 Pro"',
            )
        try:
            number = float(value)
        except ValueError:
            found[names.get(name, name)] = value.strip()
            continue
        if not 0 < number <= _MAX_GB_PER_S:
            raise UsageError(f"--bandwidth {item[:80]}: not a bandwidth in GB/s", fix="give GB/s, for example 200")
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
        screen.say("differences:")
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
