"""Tables of studies: the document's own, and what every study has: claims, configurations, models, parts."""

from __future__ import annotations

import csv
from dataclasses import replace
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

from specmeter.messages import Message
from specmeter.record import Estimate
from specmeter.show.table import Cell, Column, Row, Table, Tone, counted, estimate_cell, made, sized
from specmeter.store.environment import private
from specmeter.text import amount
from specmeter_studies.show.figures import slug, verdict_word
from specmeter_studies.study import citing

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from specmeter.record import Standing
    from specmeter_studies.show.figures import Origin
    from specmeter_studies.study import ArmResult, ClaimRuling, StudyCell, StudyData, StudyTable


_TONES: dict[str, Tone] = {
    "supported": "good",
    "contradicted": "bad",
    "cannot tell": "doubtful",
    "does not apply here": "faint",
}


def document_table(table: StudyTable, origin: Origin, name: str = "") -> Table:
    """A table of the document; with verdicts where they are known, and no number of an invalid row believed."""
    width = len(table.columns)
    numeric = [any(place < len(row) and row[place].value is not None for row in table.rows) for place in range(width)]
    columns = tuple(
        Column(slug(str(heading)), "number" if number else "text", heading, "point" if number else "keep")
        for heading, number in zip(table.columns, numeric, strict=True)
    )
    told = any(table.verdicts) or (bool(table.verdicts) and origin == "published")
    rows: list[Row] = []
    for place, cells in enumerate(table.rows):
        verdict = table.verdicts[place] if place < len(table.verdicts) else None
        strike = verdict == "invalid" and not any(cell.struck for cell in cells)
        made = [_cell(cell, strike=strike, printed=origin == "published") for cell in cells[:width]]
        made += [Cell("-")] * (width - len(made))
        rows.append(Row((*made, _verdict(verdict, origin)) if told else tuple(made), verdict))
    if told:
        columns = (*columns, Column("verdict"))
    return Table(name or slug(table.key), columns, rows, table.title, table.about or "", told_over=True)


@cache
def own_rows(file: str) -> tuple[Mapping[str, str], ...]:
    """Rows of `library/FILE`: what specmeter measured itself, for the page of all documents."""
    text = (resources.files("specmeter_studies.library") / file).read_text(encoding="utf-8")
    return tuple(csv.DictReader(text.splitlines()))


def rows_of_data(name: str, rows: Sequence[Mapping[str, str]], ids: Sequence[str], columns: Sequence[str]) -> Table:
    """Rows of a file as they are, for numbers of the page of all documents to link to."""
    headings = tuple(Column(f"source_{it}", title=it) for it in columns)
    found = [
        Row(tuple(Cell(it[key] or "-") for key in columns), id=key_of) for it, key_of in zip(rows, ids, strict=True)
    ]
    return Table(name, headings, found, Message(f"documents.table.{name}"))


def configurations(data: StudyData) -> Table:
    """Every configuration over all its prompts, then by kind and by length of prompt, and why a number is false."""
    lines = citing(data).arms
    optional = {
        "suite": any(line.suite for line in lines),
        "prompt": any(line.prompt for line in lines),
        "length": any(line.prompt_tokens is not None for line in lines),
        "decode_rate": any(line.decode_rate for line in lines),
        "acceptance": any(line.acceptance for line in lines),
        "tau": any(line.tau for line in lines),
        "why": any(line.why for line in lines),
    }
    columns = (
        Column("suite"),
        Column("target"),
        Column("arm"),
        Column("prompt"),
        Column("length", "number"),
        Column("decode_rate", "number"),
        Column("speedup", "number"),
        Column("acceptance", "number"),
        Column("tau", "number"),
        Column("requests", "number"),
        Column("verdict"),
        Column("why"),
    )
    kept = [place for place, column in enumerate(columns) if optional.get(column.key, True)]
    rows = [
        Row(tuple(_line(it, data.origin)[n] for n in kept), it.of_rate, why=(it.why,) if it.why else ()) for it in lines
    ]
    about = Message("study.cited") if any(line.cited for line in lines) else ""
    return Table("configurations", tuple(columns[place] for place in kept), rows, about=about)


def rulings(claims: Sequence[ClaimRuling], data: StudyData) -> Table:
    """Every claim, what was found, and what that says about it."""
    looks = max((line.looks for line in data.arms), default=1)
    held = Message("study.ruled.looks", looks=looks) if looks > 1 else ""
    about = Message("study.ruled", looks=held) if any(line.cited for line in data.arms) else ""
    table = made(
        "claims",
        claims,
        ("claim", "text", lambda claim: claim.claim),
        ("where", "text", lambda claim: claim.where),
        ("ruling", "text", lambda it: Cell(Message(f"ruling.{it.ruling}"), tone=_TONES[it.ruling])),
        ("rests_on", "text", lambda claim: Message(f"rests_on.{claim.rests_on}") if claim.rests_on else "-"),
        ("found", "text", lambda claim: claim.told),
        ("code", "text", lambda claim: Cell(claim.found.code, code=True)),
    )
    columns = (replace(it, narrow="drop") if it.key in ("where", "rests_on", "code") else it for it in table.columns)
    return replace(table, columns=tuple(columns), about=about)


def parts(data: StudyData) -> Table:
    """What was to be measured, what was not, and why."""
    return made(
        "study_parts",
        data.parts,
        ("study_part", "text", lambda part: part.part),
        ("status", "text", lambda part: Message(f"ran.{part.status}")),
        ("why", "text", lambda part: part.reason or "-"),
    )


def models(data: StudyData) -> Table:
    """The models as they were used."""
    return made(
        "study_models",
        data.models,
        ("model", "text", lambda model: model.name),
        ("reference", "text", lambda model: Cell(private(model.reference), code=True)),
        ("quantization", "text", lambda model: model.quantization or "-"),
        ("size", "number", lambda model: sized(model.size_bytes)),
        ("parameters", "number", lambda model: _count(model.parameters)),
        ("active_parameters", "number", lambda model: _count(model.active_parameters)),
        ("bytes_per_token", "number", lambda model: sized(model.bytes_per_token)),
        ("experts", "text", lambda it: "-" if it.experts is None else f"{it.experts_used or '?'} / {it.experts}"),
    )


def _cell(cell: StudyCell, *, strike: bool, printed: bool) -> Cell:
    if cell.value is None:
        return Cell(cell.text or "-", struck=cell.struck)
    if isinstance(cell.value, Estimate):
        return replace(estimate_cell(cell.value, cell.digits, struck=cell.struck or strike), printed=printed)
    # Whole numbers are counts and settings, which an invalid measurement leaves as they are.
    counts = cell.digits == 0
    text = f"{cell.value:.{cell.digits}f}"
    struck = cell.struck or (strike and not counts)
    return Cell(text, float(cell.value), digits=cell.digits, struck=struck, printed=printed)


def _line(line: ArmResult, origin: Origin) -> tuple[Cell, ...]:
    invalid, printed = line.of_rate == "invalid", origin == "published"
    speedup = estimate_cell(line.speedup, 2, struck=invalid)
    if line.claimed_speedup is not None:
        speedup = _cell(line.speedup_cell, strike=False, printed=printed)
    elif not line.speculates and line.speedup is None:
        speedup = Cell(Message("cell.baseline"))
    return (
        Cell(Message(line.suite) if line.suite else "-"),
        Cell(line.target),
        Cell(line.config, code=True),
        Cell(line.prompt or "-"),
        counted(line.prompt_tokens),
        replace(estimate_cell(line.decode_rate, 1, struck=invalid), printed=printed),
        speedup,
        replace(estimate_cell(line.acceptance, 1, scale=100, struck=invalid), printed=printed),
        replace(estimate_cell(line.tau, 2, struck=invalid), printed=printed),
        counted(line.requests),
        _verdict(line.of_rate, origin),
        Cell(line.why or "-"),
    )


def _verdict(verdict: Standing | None, origin: Origin) -> Cell:
    return Cell(Message(f"verdict.{verdict_word(verdict, origin)}"))


def _count(count: float | None) -> Cell:
    return Cell("-") if count is None else Cell(amount(count), count)
