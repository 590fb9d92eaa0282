"""How studies look on a terminal: the list, what was left out, claims and tables; or JSON."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import specmeter_studies as studies
from specmeter.messages import Message
from specmeter.show.report import Report, Section, Tabled, Text
from specmeter.show.table import Cell, Row, Table, Tone, row, text
from specmeter.show.terminal.console import Screen, output, say_json
from specmeter.show.terminal.report import print_report
from specmeter_studies.amount import measured, together
from specmeter_studies.folder import StudyFolder
from specmeter_studies.show.tables import document_table
from specmeter_studies.show.tables import parts as study_parts
from specmeter_studies.show.tables import rulings as study_rulings

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from specmeter_studies.folder import StudyRecord
    from specmeter_studies.study import StudyFindings


def print_list(folders: Sequence[str], *, as_json: bool) -> None:
    """All studies, those of a user in `folders`, and what was measured under specmeter-runs/."""
    listed, measured = _listed(folders), _measured()
    if as_json:
        say_json({"studies": listed, "measured": measured})
        return
    screen = output()
    by_source: dict[str, list[Row]] = {}
    for entry in listed:
        below: list[tuple[str, Tone]] = [(f"variants: {', '.join(entry['variants'])}", "")] * bool(entry["variants"])
        by_source.setdefault(entry["source"], []).append(row(entry["name"], Cell(entry["title"], below=tuple(below))))
    for number, (source, studied) in enumerate(by_source.items()):
        if number:
            screen.line()
        screen.say(source)
        screen.table(Table("studies", text("study", "title"), studied))
    screen.line()
    if not measured:
        screen.say("no study measured yet; start with `specmeter study run moe-306 --variant bench`")
        return
    rows: list[Row] = []
    for entry in measured:
        chosen = ", ".join([*entry.get("variants", ()), *entry.get("changes", ())])
        kept: list[tuple[str, Tone]] = [(f"{part}: {told['text']}", "") for part, told in entry.get("kept", {}).items()]
        rows.append(row(entry["folder"], Cell(entry["state"], below=tuple(kept)), entry.get("problem") or chosen))
    screen.table(Table("measured", text("measured", "state", "with"), rows))


def _listed(folders: Sequence[str]) -> list[dict[str, Any]]:
    from specmeter_studies.order import variants_of

    return [
        {
            "name": study.name,
            "title": study.title,
            "source": study.source,
            "parts": list(study.parts),
            "variants": list(dict.fromkeys(variant for of_part in variants_of(study).values() for variant in of_part)),
        }
        for name in (*studies.names(), *folders)
        for study in (studies.find(name),)
    ]


def _measured() -> list[dict[str, Any]]:
    from specmeter.errors import UsageError
    from specmeter.store.locate import find_folders

    found: list[dict[str, Any]] = []
    for folder in map(StudyFolder, find_folders("study")):
        try:
            record = folder.record()
            found.append(
                {
                    "folder": str(folder.path),
                    "study": record.study,
                    "variants": list(record.variants),
                    "changes": list(record.overrides),
                    "state": "complete" if folder.is_finished() else "unfinished",
                    "kept": {part.name: folder.kept(part).to_json() for part in record.parts if not part.skipped},
                }
            )
        except UsageError as error:
            found.append({"folder": str(folder.path), "state": "unreadable", "problem": error.message})
    return found


def print_left_out(screen: Screen, record: StudyRecord) -> None:
    """What will not be measured, and why."""
    for part in record.parts:
        screen.say_all((f"left out: {part.name}: {item.name}: {item.reason}" for item in part.left_out), wrap=False)


def print_stopped(screen: Screen, folder: StudyFolder, command: str) -> None:
    """What is kept of a study that was stopped, and the command that continues with it."""
    parts = [part for part in folder.record().parts if not part.skipped]
    kept = "; ".join(f"{part.name}: {folder.kept(part)}" for part in parts)
    screen.show_cursor()  # a display that was torn down half way leaves it hidden
    screen.say_all((f"stopped; kept in {folder.path}: {kept}", f"to continue: {command}"), wrap=False)


def report(folder: StudyFolder, found: StudyFindings, page: Path | None, *, tables: bool = False) -> Report:
    """What a study found: claims, with `tables` those too, and what is missing; `page`: where its page was written."""
    data, verdicts = found.data, folder.verdicts()
    models = [together(map(measured, data.quality)).message or ""] if data.quality else []
    counts = [Message("study.requests", count=len(data.results))] if data.results else []
    shown = [Tabled(document_table(table, data.origin, str(place))) for place, table in enumerate(found.tables)]
    doubted = [
        Text(Message("study.part_verdict", part=part, verdict=verdict, folder=str(folder.run_folder(part))))
        for part, verdict in verdicts.items()
        if verdict != "valid"
    ]
    missing = [Tabled(study_parts(data), caption=False)] if any(it.status != "measured" for it in data.parts) else []
    rulings = Counter(claim.ruling for claim in found.claims)
    told = {"supported": rulings["supported"], "contradicted": rulings["contradicted"], "open": rulings["cannot tell"]}
    summary = Message("study.counts", **told, elsewhere=rulings["does not apply here"])
    claims = [Tabled(study_rulings(found.claims, data), caption=False), Text(summary)] if found.claims else []
    places = [Text(Message("study.folder", folder=str(folder.path)), at="screen", whole=True)]
    places += [] if page is None else [Text(Message("study.page", page=str(page)), at="screen", whole=True)]
    return Report(
        target=data.study,
        document=lambda: _found_as_data(folder, found, page),
        answer=[
            Text(Message("arm.of", target=data.study, name=found.title), "strong"),
            Text(Message("study.list_of", parts=[*counts, *models, data.title])),
        ],
        sections=[
            *([Section("tables", shown)] if tables else []),
            Section("claims", claims),
            Section("parts", missing),
            Section("notes", [Text(note, "faint") for note in data.notes]),
            Section("verdicts", doubted),
        ],
        closing=places,
    )


def print_study(folder: Path, *, trusted: bool, as_json: bool) -> int:
    """Print a study folder; the exit code: 1 where some numbers are invalid."""
    found = StudyFolder(folder)
    page = found.report_path if found.report_path.is_file() else None
    print_report(report(found, found.findings(trusted=trusted), page, tables=True), as_json=as_json)
    return 1 if "invalid" in found.verdicts().values() else 0


def _found_as_data(folder: StudyFolder, found: StudyFindings, report: Path | None) -> dict[str, Any]:
    data = found.data
    return {
        "study": data.study,
        "folder": str(folder.path),
        "report": None if report is None else str(report),
        "title": _data(data.title),
        "requests": len(data.results),
        "quality": together(map(measured, data.quality)).model_dump(mode="json"),
        "verdicts": folder.verdicts(),
        "parts": [part.model_dump(mode="json") for part in data.parts],
        "notes": [*map(_data, data.notes)],
        "claims": [claim.model_dump(mode="json") for claim in found.claims],
        "tables": [table.model_dump(mode="json") for table in found.tables],
        "arms": [line.model_dump(mode="json") for line in data.arms],
        "models": [model.model_dump(mode="json") for model in data.models],
    }


def _data(said: Message | str) -> Any:
    return said.to_json() if isinstance(said, Message) else said
