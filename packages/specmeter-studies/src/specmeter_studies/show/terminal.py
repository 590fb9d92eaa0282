"""How studies look on a terminal: the list, what was left out, claims and tables; or JSON."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import specmeter_studies as studies
from specmeter.show.table import Cell, Row, Table, Tone, row, text
from specmeter.show.terminal.console import Screen, output, say_json
from specmeter_studies.amounts import measured, together
from specmeter_studies.show.tables import document_table

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from specmeter_studies.folder import StudyFolder, StudyRecord
    from specmeter_studies.study import ClaimRuling, Ran, StudyFindings

_RULINGS: dict[str, Tone] = {
    "supported": "good",
    "contradicted": "bad",
    "cannot tell": "doubtful",
    "does not apply here": "faint",
}
_STATUS: dict[str, Tone] = {"measured": "good", "incomplete": "doubtful", "skipped": "bad"}


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
        screen.table(Table("studies", text("study", "what it is"), studied))
    screen.line()
    if not measured:
        screen.say("none measured yet: `specmeter study run moe-306 --variant bench` measures one")
        return
    rows: list[Row] = []
    for entry in measured:
        chosen = ", ".join([*entry.get("variants", ()), *entry.get("changes", ())])
        kept: list[tuple[str, Tone]] = [(f"{part}: {told}", "") for part, told in entry.get("kept", {}).items()]
        rows.append(row(entry["folder"], Cell(entry["state"], below=tuple(kept)), entry.get("problem") or chosen))
    screen.table(Table("measured", text("measured", "state", "with"), rows))


def _listed(folders: Sequence[str]) -> list[dict[str, Any]]:
    from specmeter_studies.parts import variants_of

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
    from specmeter.store.locate import find_studies
    from specmeter_studies.folder import StudyFolder

    found: list[dict[str, Any]] = []
    for folder in map(StudyFolder, find_studies()):
        try:
            record = folder.record()
            found.append(
                {
                    "folder": str(folder.path),
                    "study": record.study,
                    "variants": list(record.variants),
                    "changes": list(record.overrides),
                    "state": "complete" if folder.is_finished() else "unfinished",
                    "kept": {part.name: folder.kept(part) for part in record.parts if not part.skipped},
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
    """What is kept of a study that was stopped, and the command that goes on with it."""
    parts = [part for part in folder.record().parts if not part.skipped]
    kept = "; ".join(f"{part.name}: {folder.kept(part)}" for part in parts)
    screen.show_cursor()  # a display that was torn down half way leaves it hidden
    screen.say_all((f"stopped; {folder.path} keeps {kept}", f"go on with: {command}"), wrap=False)


def print_findings(
    folder: StudyFolder, report: Path | None, *, as_json: bool, tables: bool = False, trusted: bool = False
) -> bool:
    """What a study found, to stdout: claims, with `tables` those too, and what is missing. Returns whether some of its
    numbers are invalid."""
    found = folder.findings(trusted=trusted)
    data = found.data
    verdicts = folder.verdicts()
    if as_json:
        say_json(_found_as_data(folder, found, report))
        return "invalid" in verdicts.values()
    screen = output()
    _print_title(screen, found)
    for table in found.tables if tables else ():
        screen.table(document_table(table, data.origin), caption=True)
        screen.line()
    _print_claims(screen, found.claims)
    _print_parts(screen, data.parts)
    for note in data.notes:
        screen.line()
        screen.say(note, tone="faint")
    for part, verdict in verdicts.items():
        if verdict != "valid":
            screen.line()
            screen.say(f"{part}: {verdict}; `specmeter check {folder.run_folder(part)}` says why")
    screen.line()
    screen.say(f"study folder: {folder.path}", wrap=False)
    if report is not None:
        screen.say(f"report:       {report}", wrap=False)
    return "invalid" in verdicts.values()


def _found_as_data(folder: StudyFolder, found: StudyFindings, report: Path | None) -> dict[str, Any]:
    data = found.data
    return {
        "study": data.study,
        "folder": str(folder.path),
        "report": None if report is None else str(report),
        "title": data.title,
        "requests": len(data.results),
        "quality": together(map(measured, data.quality)).model_dump(mode="json"),
        "verdicts": folder.verdicts(),
        "parts": [part.model_dump(mode="json") for part in data.parts],
        "notes": list(data.notes),
        "claims": [claim.model_dump(mode="json") for claim in found.claims],
        "tables": [table.model_dump(mode="json") for table in found.tables],
        "arms": [line.model_dump(mode="json") for line in data.arms],
        "models": [model.model_dump(mode="json") for model in data.models],
    }


def _print_title(screen: Screen, found: StudyFindings) -> None:
    data = found.data
    screen.say(f"{data.study}: {found.title}", tone="strong")
    requests = [f"{len(data.results):,} requests"] if data.results else []
    models = [together(map(measured, data.quality)).told] if data.quality else []
    screen.say(", ".join([*requests, *models, data.title]))
    screen.line()


def _print_claims(screen: Screen, claims: Sequence[ClaimRuling]) -> None:
    if not claims:
        return
    rows: list[Row] = []
    for claim in claims:
        by: tuple[tuple[str, Tone], ...] = ((f"by {claim.rests_on}", "faint"),) if claim.rests_on else ()
        ruling = Cell(claim.ruling, tone=_RULINGS[claim.ruling], below=by)
        rows.append(row(f"{claim.claim} [{claim.where}]", ruling, claim.found))
    screen.table(Table("claims", text("claim", "ruling", "found"), rows))
    counts = Counter(claim.ruling for claim in claims)
    screen.line()
    told = ", ".join(f"{counts[ruling]} {ruling}" for ruling in _RULINGS if counts[ruling])
    screen.say(f"{len(claims)} claims: {told}")


def _print_parts(screen: Screen, parts: Sequence[Ran]) -> None:
    """What is missing; nothing where everything was measured."""
    if all(part.status == "measured" for part in parts):
        return
    rows = [row(part.part, Cell(part.status, tone=_STATUS[part.status]), part.reason) for part in parts]
    screen.line()
    screen.table(Table("parts", text("part", "state", "why"), rows))
