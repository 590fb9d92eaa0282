"""Tables, lists and sentences of results: one claim per row, or per group of columns of a row.

    text -> grids -> streams of numbers with candidate meanings -> competing readings -> claims

Each claim carries the claims of other likely readings of its row: a row is refused only if none of them can be true.
A table in specmeter's own columns (`decode_rate`, `source_place`) has one reading.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from specmeter.audit.claim import Claim, ColumnRead
from specmeter.audit.read.cells import EMPTY, numbers
from specmeter.audit.read.claims import claim_from
from specmeter.audit.read.document import Importer, read_text
from specmeter.audit.read.exact import exact_streams
from specmeter.audit.read.frame import Frame
from specmeter.audit.read.grid import Grid
from specmeter.audit.read.grids import grids
from specmeter.audit.read.laws import broken
from specmeter.audit.read.meaning import name_of
from specmeter.audit.read.options import TableOptions
from specmeter.audit.read.readings import MOST_RIVALS, Scored, Understood, understand
from specmeter.audit.read.records import Records
from specmeter.audit.read.words import IGNORE, column_named, known_column
from specmeter.errors import UsageError
from specmeter.messages import Message

_SPEEDS = {"rate", "token_time", "speedup", "gain", "decode_time"}
_MAX_NAMES = 20


def read_table_file(path: Path, options: TableOptions | None = None) -> Iterator[Claim]:
    """The claims of every table of a file, or of its lists and sentences if it has no table.

    Raises `UsageError` for a file that cannot be read, or in which nothing is understood.
    """
    yield from read_table(read_text(path), path, options or TableOptions())


def sniff_table(head: str) -> bool:
    """Anything may be a table: it is asked last."""
    return bool(head.strip())


TABLE = Importer(sniff_table, read_table_file)


def read_table(text: str, path: Path, options: TableOptions) -> Iterator[Claim]:
    """The same for a text that came from `path`."""
    found = False
    read = [(grid, _understood(grid, options)) for grid in grids(text, path)]
    if options.columns:
        named = (it.name for _, one in read if one is not None for it in _read_as(one))
        options.refuse_unknown((*(name for grid, _ in read for name in grid.head), *named), path)
    for grid, understood in read:
        for claim in read_grid(grid, understood, path, options):
            found = True
            yield claim
    if not found:
        seen = ", ".join(repr(name[:40]) for grid, _ in read for name in grid.head[:12] if name)
        raise UsageError(
            f"{path}: no column is understood as a speed, a share or a count of draft tokens (found: {seen or 'none'})",
            fix="say what a column is with --column HEADING=MEANING, such as --column speed=decode_rate",
        )


def _understood(grid: Grid, options: TableOptions) -> Understood | None:
    exact = None if options.columns.keys() & set(grid.head) else exact_streams(grid)
    return exact or understand(grid, options)


def read_grid(grid: Grid, understood: Understood | None, path: Path, options: TableOptions) -> Iterator[Claim]:
    """The claims of one grid in the order of its rows; none if no column claims anything."""
    problems = [Claim(source=str(path), row=place, problem=why) for place, why in grid.faults]
    if understood is None or not understood.claims_something:
        yield from problems
        return
    frame = understood.frame
    texts = _text_columns(frame, options)
    read_as = tuple(_read_as(understood))
    notes = _notes(understood)
    against = {r: tuple(lines) for r, lines in broken(frame).items()}
    if understood.other is not None:  # what the table shows the other way round
        against[0] = (*against.get(0, ()), *(line for lines in broken(understood.other).values() for line in lines))
    every: dict[int, list[Claim]] = {}
    by_reading: dict[int, Records] = {}

    def claims(scored: Scored, r: int) -> list[Claim]:
        records = by_reading.setdefault(id(scored), Records(frame, scored.reading))
        made: list[Claim] = []
        for record in records.all([r]):
            row = {name: cells[r] for name, cells in texts.items() if r in cells}
            place = row.pop("source_place", frame.grid.places[r])
            where = f"{place}, {record.group}" if record.group else place
            claim = claim_from(record, frame, row, source=str(path), row=where, notes=notes, kept=scored.laws_of(r))
            if _says_something(claim) or len(understood.found) == 1:
                made.append(claim)
        if made and r in against:
            made[0] = made[0].model_copy(update={"against": against[r]})
        return made

    for r in range(len(frame.grid.rows)):
        mine = claims(understood.found[0], r)
        rivals: list[tuple[Claim, ...]] = []
        for scored in understood.rivals(r)[: 3 * MOST_RIVALS] if mine else ():
            other = tuple(claims(scored, r))
            if other and list(other) != mine and other not in rivals and len(rivals) < MOST_RIVALS:
                rivals.append(other)
        every[r] = [claim.model_copy(update={"columns": read_as, "rivals": tuple(rivals)}) for claim in mine]
        if (why := _no_speedup(understood, r)) is None:
            continue
        if any(map(_says_something, mine)):
            every[r][0] = every[r][0].model_copy(update={"notes": (*every[r][0].notes, why)})
        else:
            every[r] = [Claim(source=str(path), row=frame.grid.places[r], label=frame.label[r], problem=why)]
    yield from (claim for r in sorted(every) for claim in every[r])
    yield from problems


_NUMBERS = (
    "decode_rate", "baseline_rate", "speedup", "acceptance", "tau", "drafted", "accepted", "token_ms", "predicted_ms",
    "wall_ms", "positions", "step_ms", "problem", "prompt_rate", "perplexity",
)  # fmt: skip


def _says_something(claim: Claim) -> bool:
    return any(getattr(claim, name) not in (None, ()) for name in _NUMBERS)


def _no_speedup(understood: Understood, r: int) -> Message | None:
    """Why the speedup of a row with drafts is not read: it is `OOM`, `0` or `-1.2x`."""
    frame = understood.frame
    read = {it.column: best.quantity for it, best in zip(frame.streams, understood.best, strict=True) if it.own}
    for c, (head, cell) in enumerate(zip(frame.grid.head, frame.grid.rows[r], strict=True)):
        quantity = read.get(c) or ((column := known_column(head)) and column.quantity)
        if quantity not in {"speedup", "gain"} or frame.role[r] == "base" or EMPTY.fullmatch(cell):
            continue
        if not (found := numbers(cell)):
            return Message("unread.no_number", name=head[:40], value=cell[:40])
        if found[0].value <= 0 and quantity == "speedup":
            return Message("unread.not_positive", name=head[:40], value=cell[:40])
    return None


def _text_columns(frame: Frame, options: TableOptions) -> dict[str, dict[int, str]]:
    """Name of a column of texts -> row -> cell; what the user says comes first."""
    found: dict[str, dict[int, str]] = {}
    chosen = {heading: column_named(name) for heading, name in options.columns.items()}
    for c, head in sorted(enumerate(frame.grid.head), key=lambda it: it[1] not in chosen):
        column = chosen.get(head) or known_column(head)
        if column is not None and column.kind in {"text", "flag"} and column.name != IGNORE and frame.words[c]:
            found.setdefault(column.name, frame.words[c])
    return found


def _read_as(understood: Understood) -> Iterator[ColumnRead]:
    """How each stream of numbers is read."""
    for i, stream in enumerate(understood.frame.streams):
        meaning = understood.best[i]
        slot = "" if stream.own else stream.slot
        yield ColumnRead(
            heading=stream.heading,
            slot=slot,
            meaning=stream.known.name if stream.known is not None else name_of(meaning),
            certainty=understood.certainty(i),
        )


def _notes(understood: Understood) -> tuple[Message | str, ...]:
    """What was not read: columns that may hold speeds, and others."""
    speeds: list[str] = []
    other: list[str] = []
    for stream, meaning in zip(understood.frame.streams, understood.best, strict=True):
        if meaning.quantity == IGNORE and stream.own and stream.heading:
            likely = any(it.quantity in _SPEEDS and it.prior > -4 for it in stream.candidates)
            (speeds if likely else other).append(stream.heading[:40])
    found: list[Message | str] = []
    if other:
        found.append(Message("read.columns_left", columns=list(dict.fromkeys(other))[:_MAX_NAMES]))
    if speeds:
        found.append(Message("read.rates_left", columns=list(dict.fromkeys(speeds))[:8]))
    return tuple(found)
