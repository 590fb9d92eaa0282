"""How studies look on a terminal: the list, a dry run, what was left out, claims and tables; or JSON."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.text import Text

from specmeter.record import Record
from specmeter.show.terminal.text import output_console, printable, printable_lines
from specmeter.studies.amounts import Amount, measured, planned, together

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from specmeter.laboratory.plan import Plan
    from specmeter.studies.folder import StudyFolder, StudyRecord
    from specmeter.studies.parts import AnyPart
    from specmeter.studies.runner import Ready
    from specmeter.studies.study import ClaimRuling, Ran, StudyCell, StudyFindings, StudyTable

_RULINGS = {"supported": "green", "contradicted": "red", "cannot tell": "yellow", "does not apply here": "dim"}
_STATUS = {"measured": "green", "incomplete": "yellow", "skipped": "red"}


def print_list(folders: Sequence[str], *, as_json: bool) -> None:
    """All studies, those of a user in `folders`, and what was measured under specmeter-runs/."""
    listed, measured = _listed(folders), _measured()
    if as_json:
        click.echo(json.dumps({"studies": listed, "measured": measured}, indent=2, ensure_ascii=False))
        return
    console = output_console()
    table = _plain_table(("study", "what it is"))
    for entry in listed:
        variants = ", ".join(entry["variants"])
        table.add_row(
            entry["name"],
            Text(f"{entry['title']}\n{entry['source']}" + (f"\nvariants: {variants}" if variants else "")),
        )
    console.print(table)
    console.print()
    if not measured:
        console.print("none measured yet: `specmeter study run NAME --variant bench` measures one", highlight=False)
        return
    table = _plain_table(("measured", "state", "with"))
    for entry in measured:
        with_ = [*entry.get("variants", ()), *entry.get("changes", ())]
        state = "\n".join([entry["state"], *(f"{part}: {kept}" for part, kept in entry.get("kept", {}).items())])
        table.add_row(*_lines(entry["folder"], state, entry.get("problem") or ", ".join(with_)))
    console.print(table)


def _listed(folders: Sequence[str]) -> list[dict[str, Any]]:
    from specmeter import studies
    from specmeter.studies.parts import variants_of

    return [
        {
            "name": name,
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
    from specmeter.studies.folder import find_folders

    found: list[dict[str, Any]] = []
    for folder in find_folders():
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


# --- before ----------------------------------------------------------------------------------------------------------


def print_dry_run(ready: Ready, *, as_json: bool) -> bool:
    """What would be measured of each part: requests, or what is done to models; models and a rough time; what would be
    left out, and why. Returns whether anything would be measured."""
    plans = {part.name: _plan(part, ready) for part in ready.parts}
    qualities = {part.name: _quality(part, ready) for part in ready.parts}
    requests = sum(plan.requests for plan in plans.values() if plan is not None)
    quality = together(found.amount for found in qualities.values() if found is not None)
    if as_json:
        told = [
            {
                **part.model_dump(mode="json"),
                "requests": None if (plan := plans[part.name]) is None else plan.requests,
                "plan": None if plan is None else plan.model_dump(mode="json"),
                "quality": None if (found := qualities[part.name]) is None else found.model_dump(mode="json"),
            }
            for part in ready.record.parts
        ]
        answer = {
            "study": ready.record.study,
            "requests": requests,
            "quality": quality.model_dump(mode="json"),
            "parts": told,
        }
        click.echo(json.dumps(answer, indent=2, ensure_ascii=False))
        return bool(requests or quality.models)
    from specmeter.show.terminal.progress import duration

    console = output_console()
    for part in ready.record.parts:
        plan, found = plans[part.name], qualities[part.name]
        console.print(Text(f"{part.name} ({part.kind})", style="bold"))
        if plan is not None:
            rough = "cannot be told yet" if plan.seconds is None else f"about {duration(plan.seconds)}"
            console.print(
                f"  {len(plan.arms)} arms, {plan.requests} requests, at most {plan.tokens:,} tokens\n"
                f"  memory: {_size(plan.memory_bytes)} of {_size(plan.memory_available_bytes)} free\n"
                f"  disk:   {_size(plan.disk_bytes)} to be written, {_size(plan.disk_free_bytes)} free\n"
                f"  time:   {rough} (rough: everything measured, without making or downloading models)",
                highlight=False,
            )
            for problem in (*plan.problems, *plan.warnings):
                console.print(Text(f"  warning: {printable(problem)}", style="yellow"))
        elif found is not None:
            for line in (found.amount.told or "no model of it can be had", *found.steps, "time:   not estimated"):
                console.print(Text(f"  {line}"))
            for name, reason in found.without.items():
                console.print(Text(f"  left out: {printable(name)}: {printable(reason)}", style="yellow"))
        else:
            console.print(Text(f"  skipped: {printable(part.skipped)}", style="yellow"))
        for item in part.left_out:
            console.print(Text(f"  left out: {printable(item.name)}: {printable(item.reason)}", style="yellow"))
    told = ([f"{requests:,} requests"] if requests else []) + ([quality.told] if quality.told else [])
    console.print(f"\nin all: {' and '.join(told) or 'nothing'}", highlight=False)
    return bool(requests or quality.models)


def _plan(part: AnyPart, ready: Ready) -> Plan | None:
    """Of an experiment of which something can be measured."""
    from specmeter.laboratory.plan import make_plan
    from specmeter.studies.parts import QualityPart

    state = next(item for item in ready.record.parts if item.name == part.name)
    if state.skipped or isinstance(part, QualityPart):
        return None
    return make_plan(part.loaded, offline=ready.order.offline, leave_out={item.name for item in state.left_out})


class _Quality(Record):
    """What a quality measurement would do here."""

    amount: Amount
    steps: tuple[str, ...]
    """What is done to each model."""
    without: dict[str, str]
    """Model that is left out -> why."""


def _quality(part: AnyPart, ready: Ready) -> _Quality | None:
    """Of a quality measurement of which something can be measured."""
    from specmeter.studies.parts import QualityPart
    from specmeter.studies.requirements import models_of_plan

    state = next(item for item in ready.record.parts if item.name == part.name)
    if state.skipped or not isinstance(part, QualityPart):
        return None
    plan = part.loaded.value
    models, without = models_of_plan(part.loaded, offline=ready.order.offline)
    which = f"{plan.windows} windows" if plan.windows else "all windows"
    blocks = "1 block" if plan.repeats == 1 else f"{plan.repeats} blocks"
    steps = (f"scores: {which} of {plan.context} tokens of each model",) if plan.score else ()
    steps += (
        (f"times:  {', '.join(test.name for test in plan.tests)} of each model, in {blocks}",) if plan.tests else ()
    )
    return _Quality(amount=planned(plan, models), steps=steps, without=without)


def print_left_out(console: Console, record: StudyRecord) -> None:
    """What will not be measured, and why."""
    for part in record.parts:
        for item in part.left_out:
            text = f"left out: {part.name}: {printable(item.name)}: {printable(item.reason)}"
            console.print(text, markup=False, highlight=False, soft_wrap=True)


# --- meanwhile -------------------------------------------------------------------------------------------------------


def print_stopped(console: Console, folder: StudyFolder, command: str) -> None:
    """What is kept of a study that was stopped, and the command that goes on with it."""
    parts = [part for part in folder.record().parts if not part.skipped]
    kept = "; ".join(f"{part.name}: {folder.kept(part)}" for part in parts)
    console.show_cursor()  # a display that was torn down half way leaves it hidden
    console.print(
        f"stopped; {folder.path} keeps {kept}\ngo on with: {command}", markup=False, highlight=False, soft_wrap=True
    )


# --- after -----------------------------------------------------------------------------------------------------------


def print_findings(
    folder: StudyFolder, report: Path | None, *, as_json: bool, tables: bool = False, trusted: bool = False
) -> bool:
    """What a study found, to stdout: claims, with `tables` those too, and what is missing. Returns whether some of its
    numbers are invalid."""
    found = folder.findings(trusted=trusted)
    data = found.data
    verdicts = folder.verdicts()
    if as_json:
        click.echo(json.dumps(_found_as_data(folder, found, report), indent=2, ensure_ascii=False))
    else:
        console = output_console()
        _print_title(console, found)
        if tables:
            for table in found.tables:
                console.print(_drawn(table))
                if table.about:
                    console.print(Text(printable(table.about), style="dim"))
                console.print()
        _print_claims(console, found.claims)
        _print_parts(console, data.parts)
        for note in data.notes:
            console.print(Text(f"\n{printable(note)}", style="dim"))
        for part, verdict in verdicts.items():
            if verdict != "valid":
                console.print(
                    f"\n{part}: {verdict}; `specmeter check {folder.run_folder(part)}` says why", markup=False
                )
        console.print(f"\nstudy folder: {folder.path}", markup=False, highlight=False, soft_wrap=True)
        if report is not None:
            console.print(f"report:       {report}", markup=False, highlight=False, soft_wrap=True)
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


def _print_title(console: Console, found: StudyFindings) -> None:
    data = found.data
    console.print(Text(printable(f"{data.study}: {found.title}"), style="bold"))
    requests = [f"{len(data.results):,} requests"] if data.results else []
    models = [together(map(measured, data.quality)).told] if data.quality else []
    console.print(Text(f"{', '.join([*requests, *models, printable(data.title)])}\n"))


def _print_claims(console: Console, claims: Sequence[ClaimRuling]) -> None:
    if not claims:
        return
    table = _plain_table(("claim", "ruling", "found"))
    for claim in claims:
        table.add_row(
            Text(f"{printable(claim.claim)} [{printable(claim.where)}]"),
            Text(claim.ruling, style=_RULINGS[claim.ruling]).append(
                f"\nby {claim.rests_on}" if claim.rests_on else "", style="dim"
            ),
            Text(printable(claim.found)),
        )
    console.print(table)
    counts = Counter(claim.ruling for claim in claims)
    told = ", ".join(f"{counts[ruling]} {ruling}" for ruling in _RULINGS if counts[ruling])
    console.print(f"\n{len(claims)} claims: {told}", highlight=False)


def _print_parts(console: Console, parts: Sequence[Ran]) -> None:
    """What is missing; nothing where everything was measured."""
    if all(part.status == "measured" for part in parts):
        return
    console.print()
    table = _plain_table(("part", "state", "why"))
    for part in parts:
        table.add_row(
            Text(printable(part.part)), Text(part.status, style=_STATUS[part.status]), Text(printable(part.reason))
        )
    console.print(table)


def _drawn(table: StudyTable) -> Table:
    from rich.table import Table

    drawn = Table(box=None, pad_edge=False, title=printable(table.title), title_justify="left")
    numeric = [any(row[place].value is not None for row in table.rows) for place in range(len(table.columns))]
    judged = any(table.verdicts)
    for heading, number in zip(table.columns, numeric, strict=True):
        drawn.add_column(Text(printable(heading)), justify="right" if number else "left", overflow="fold")
    if judged:
        drawn.add_column("verdict")
    for place, row in enumerate(table.rows):
        verdict = table.verdicts[place] if judged else None
        drawn.add_row(*(_cell(cell) for cell in row), *([Text(verdict or "")] if judged else []))
    return drawn


def _cell(cell: StudyCell) -> Text:
    from specmeter.record import Estimate
    from specmeter.show.text import brackets

    if cell.value is None:
        return Text(printable(cell.text))
    if isinstance(cell.value, Estimate):
        text = f"{cell.value.point:,.{cell.digits}f}"
        if cell.value.low is not None:
            text += f" {brackets(cell.value, cell.digits)}"
    else:
        text = f"{cell.value:,.{cell.digits}f}"
    return Text(f"({text} is false)" if cell.struck else text, style="dim" if cell.struck else "")


def _size(size_bytes: int | None) -> str:
    from specmeter.show.text import size

    return "unknown" if size_bytes is None else size(size_bytes)


def _plain_table(columns: Sequence[str]) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for place, column in enumerate(columns):
        table.add_column(column, overflow="fold", no_wrap=place == 0 and len(columns) == 2, header_style="bold")
    return table


def _lines(*given: str) -> list[Text]:
    return [Text(printable_lines(text)) for text in given]
