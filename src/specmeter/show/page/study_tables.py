"""Tables of studies: the document's own, and what every study has: claims, configurations, models, parts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from specmeter.record import Estimate
from specmeter.show.page.study_charts import slug, verdict_word
from specmeter.show.table import Cell, Column, Phrase, Row, Table, counted, estimated
from specmeter.show.text import size
from specmeter.store.environment import private
from specmeter.text import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specmeter.record import Standing
    from specmeter.show.page.study_charts import Origin
    from specmeter.studies.study import ArmResult, ClaimRuling, StudyCell, StudyData, StudyTable


def document_table(table: StudyTable, origin: Origin, name: str = "") -> Table:
    """A table of the document; with verdicts where they are known, and no number of an invalid row believed."""
    width = len(table.columns)
    numeric = [any(place < len(row) and row[place].value is not None for row in table.rows) for place in range(width)]
    columns = tuple(
        Column(slug(heading), "number" if number else "text", printable(heading))
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
    return Table(name or slug(table.key), columns, rows, printable(table.title), printable(table.about))


def configurations(data: StudyData) -> Table:
    """Every configuration over all its prompts, then by kind and by length of prompt, and why a number is false."""
    lines = data.arms
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
    rows = [Row(tuple(_line(line, data.origin)[place] for place in kept), line.of_rate) for line in lines]
    return Table("configurations", tuple(columns[place] for place in kept), rows)


def rulings(claims: Sequence[ClaimRuling]) -> Table:
    """Every claim, what was found, and what that says about it."""
    columns = (Column("claim"), Column("where"), Column("ruling"), Column("rests_on"), Column("found"))
    rows = [
        Row(
            (
                Cell(claim.claim),
                Cell(claim.where),
                Cell(Phrase(f"ruling.{claim.ruling}")),
                Cell(Phrase(f"rests_on.{claim.rests_on}") if claim.rests_on else "-"),
                Cell(claim.found),
            )
        )
        for claim in claims
    ]
    return Table("claims", columns, rows)


def parts(data: StudyData) -> Table:
    """What was to be measured, what was not, and why."""
    rows = [Row((Cell(part.part), Cell(Phrase(f"ran.{part.status}")), Cell(part.reason or "-"))) for part in data.parts]
    return Table("study_parts", (Column("study_part"), Column("status"), Column("why")), rows)


def models(data: StudyData) -> Table:
    """The models as they were used."""
    rows = [
        Row(
            (
                Cell(model.name),
                Cell(private(model.reference), code=True),
                Cell(model.quantization or "-"),
                _bytes(model.size_bytes),
                _count(model.parameters),
                _count(model.active_parameters),
                _bytes(model.bytes_per_token),
                Cell("-" if model.experts is None else f"{model.experts_used or '?'} / {model.experts}"),
            )
        )
        for model in data.models
    ]
    columns = (
        Column("model"),
        Column("reference"),
        Column("quantization"),
        Column("size", "number"),
        Column("parameters", "number"),
        Column("active_parameters", "number"),
        Column("bytes_per_token", "number"),
        Column("experts"),
    )
    return Table("study_models", columns, rows)


def _cell(cell: StudyCell, *, strike: bool, printed: bool) -> Cell:
    if cell.value is None:
        return Cell(printable(cell.text) or "-", struck=cell.struck)
    if isinstance(cell.value, Estimate):
        return replace(estimated(cell.value, cell.digits, struck=cell.struck or strike), printed=printed)
    # Whole numbers are counts and settings, which an invalid measurement leaves as they are.
    counts = cell.digits == 0
    text = f"{cell.value:.{cell.digits}f}"
    struck = cell.struck or (strike and not counts)
    return Cell(text, float(cell.value), digits=cell.digits, struck=struck, printed=printed)


def _line(line: ArmResult, origin: Origin) -> tuple[Cell, ...]:
    invalid, printed = line.of_rate == "invalid", origin == "published"
    speedup = estimated(line.speedup, 2, struck=invalid)
    if line.claimed_speedup is not None:
        speedup = _cell(line.speedup_cell, strike=False, printed=printed)
    elif not line.speculates and line.speedup is None:
        speedup = Cell(Phrase("cell.baseline"))
    return (
        Cell(line.suite or "-"),
        Cell(line.target),
        Cell(line.config, code=True),
        Cell(line.prompt or "-"),
        counted(line.prompt_tokens),
        replace(estimated(line.decode_rate, 1, struck=invalid), printed=printed),
        speedup,
        replace(estimated(line.acceptance, 1, scale=100, struck=invalid), printed=printed),
        replace(estimated(line.tau, 2, struck=invalid), printed=printed),
        counted(line.requests),
        _verdict(line.of_rate, origin),
        Cell(line.why or "-"),
    )


def _verdict(verdict: Standing | None, origin: Origin) -> Cell:
    return Cell(Phrase(f"verdict.{verdict_word(verdict, origin)}"))


def _bytes(count: float | None) -> Cell:
    return Cell("-") if count is None else Cell(size(round(count)), count)


def _count(count: float | None) -> Cell:
    """`3.3 B`, `400 M`."""
    if count is None:
        return Cell("-")
    for unit, factor in (("T", 1e12), ("B", 1e9), ("M", 1e6), ("k", 1e3)):
        if count >= factor:
            return Cell(f"{count / factor:.3g} {unit}", count)
    return Cell(f"{count:.0f}", count)
