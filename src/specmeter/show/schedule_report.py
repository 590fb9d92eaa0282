"""What a schedule says, sentence by sentence, in any language: at which loads to speculate, and what is still open.

What one load is advised, and why, its own advice says. Everything may come from a stranger's folder, as there.

Tables of a schedule: what to use with each number of clients, and draft lengths by batch size for other programs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from specmeter.advise import export_commands
from specmeter.advise.export_commands import PROGRAMS, TABLES, Elsewhere, tables
from specmeter.advise.schedule import clients_of, folder_of, is_decided
from specmeter.messages import Message, Value
from specmeter.show import advice_report as said
from specmeter.show.advice_report import HEADINGS, Note
from specmeter.show.sentence import clients, spread
from specmeter.show.table import Cell, Column, Row, Table, counted, estimate_cell, row

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from specmeter.advise.advice import Advice, Fate
    from specmeter.advise.schedule import Schedule
    from specmeter.analysis.prediction.speedup import ExpectedCrossover
    from specmeter.record import Estimate
    from specmeter.show.names import Name


_COURSES = {"up to": ("stops",), "from": ("starts",), "open": ("stops", "starts")}
"""Pattern -> courses of a crossover that say the same."""
_HOLDS = ("holds", "does-not-hold", "cannot-tell")
_TONES = ("strong", "bad", "doubtful")
"""Notes of a single load that are told of the schedule, too."""


# --- the answer ------------------------------------------------------------------------------------------------------


def headline(schedule: Schedule) -> Message:
    """Like `dense: speculate with up to 2 clients, not with 4 or more; speculation stops paying at 2.7 clients [2.2,
    3.4]; measured with 1, 2, 4, 8 clients`."""
    yes, no = _loads(schedule, "speculate"), _loads(schedule, "off")
    said_of: dict[str, Value] = {
        "target": target_of(schedule),
        "open": _undecided(schedule) if yes or no else "",
        "crossing": _crossing(schedule),
        "loads": Message("scheduled.measured", loads=clients(begun)) if (begun := _begun(schedule)) else "",
    }
    pattern: str = schedule.pattern
    if pattern in ("up to", "from", "mixed"):
        key = pattern.replace(" ", "_")
        return Message(f"scheduled.{key}", **said_of, yes=clients(yes), no=clients(no))
    if pattern == "open":
        told = "open.speculate" if yes else "open.off" if no else "open"
        return Message(f"scheduled.{told}", **said_of, decided=clients(yes or no))
    return Message(f"scheduled.{pattern}", **said_of)


def target_of(schedule: Schedule) -> str:
    """What its target is called."""
    return said.target_of(schedule.advices[0]) if schedule.advices else schedule.asked.target


def again(schedule: Schedule) -> Message | None:
    """What came of asking an earlier schedule again, load by load."""
    found = [(clients_of(it), it.again) for it in schedule.advices if it.again is not None]
    if not found:
        return None
    parts = [
        Message(f"scheduled.again.{holds}", loads=clients(at))
        for holds in _HOLDS
        if (at := [clients for clients, it in found if it.holds == holds])
    ]
    return Message("scheduled.again", when=said.day(found[0][1].made_at), told=parts)


def _loads(schedule: Schedule, decision: Literal["speculate", "off"]) -> list[int]:
    return [clients_of(it) for it in schedule.advices if is_decided(it) and it.decision == decision]


def _begun(schedule: Schedule) -> list[int]:
    return [clients_of(it) for it in schedule.advices]


def _undecided(schedule: Schedule) -> str | Message:
    """Loads that were asked about and are not decided, begun or not."""
    decided = {clients_of(it) for it in schedule.advices if is_decided(it)}
    found = [count for count in schedule.asked.clients if count not in decided]
    return Message("scheduled.undecided", loads=clients(found)) if found else ""


def _crossing(schedule: Schedule) -> str | Message:
    found = schedule.crossover
    if found is None or found.clients is None or found.course not in _COURSES.get(schedule.pattern, ()):
        return ""
    return Message(f"scheduled.{found.course}", clients=found.clients.point, interval=interval(found))


def interval(found: ExpectedCrossover) -> str | Message:
    """Of where the speedup is 1: ` [2.6, 3.8]`. An end at the first or last load is open."""
    at, first, last = found.clients, found.loads[0], found.loads[-1]
    open_low = at is not None and at.low is not None and at.low <= first
    open_high = at is not None and at.high is not None and at.high >= last
    return spread(at, found.loads, open_low=open_low, open_high=open_high)


# --- one load --------------------------------------------------------------------------------------------------------


def use(advice: Advice) -> Name:
    """What to use at a load: `small draft, 4 tokens`, `no speculation`, or the best so far, as undecided."""
    best = said.best_of(advice)
    if best is None and not is_decided(advice):
        return Message("scheduled.nothing_yet")
    method: Name = Message("arm.none") if best is None or not _speculates(advice) else said.names_of(advice)[best]
    return method if is_decided(advice) else Message("scheduled.open_use", method=method)


def drafted(advice: Advice) -> int | None:
    """Tokens that it drafts there; 0 without speculation, None where no length is set or nothing is known."""
    if not _speculates(advice):
        return 0
    return advice.arm.gamma if advice.arm is not None else None


def _speculates(advice: Advice) -> bool:
    """Whether it is best to, as far as is known."""
    if is_decided(advice):
        return advice.decision == "speculate"
    return advice.speedup is None or advice.speedup.point > 1


# --- what to paste ---------------------------------------------------------------------------------------------------


def commands(schedule: Schedule) -> list[tuple[Message, str, tuple[str, ...]]]:
    """(`With 4 clients:`, program, its line) of every load; of programs that take all loads at once see `elsewhere`."""
    return [
        (_paste(advice), program, line)
        for advice in schedule.advices
        for program, line in said.commands(advice).items()
        if program not in TABLES
    ]


def _paste(advice: Advice) -> Message:
    name = "scheduled.paste" if is_decided(advice) else "scheduled.paste_open"
    return Message(name, loads=clients([clients_of(advice)]))


def elsewhere(schedule: Schedule) -> dict[str, Elsewhere]:
    """What other programs are told of all loads at once, where they can be, and what has to be known of their lines; of
    those that were asked for."""
    notes: dict[str, dict[Message, None]] = {}
    for advice in schedule.advices:
        for program, found in export_commands.elsewhere(advice).items():
            notes.setdefault(program, {}).update(dict.fromkeys(found.notes))
    return {
        program: tables(schedule, program) if program in TABLES else Elsewhere((), tuple(notes[program]))
        for program in PROGRAMS
        if program in notes
    }


# --- what to mind ----------------------------------------------------------------------------------------------------


def notes(schedule: Schedule, folder: Path) -> Iterator[Note]:
    """What a reader should know of single loads: what would decide them, and their graver notes; those that several
    loads have in common once."""
    found: dict[str, tuple[Note, list[int]]] = {}
    for advice in schedule.advices:
        for note in _of_load(advice, schedule, folder / folder_of(clients_of(advice))):
            found.setdefault(repr(note), (note, []))[1].append(clients_of(advice))
    for note, loads in sorted(found.values(), key=lambda it: it[0].tone not in ("strong", "bad")):
        everywhere = len(loads) == len(schedule.asked.clients) and note.tone == "strong"
        told = note.text if everywhere else Message("scheduled.of", loads=clients(loads), told=note.text)
        yield Note(told, note.tone)
    begun = _begun(schedule)
    if missing := [count for count in schedule.asked.clients if count not in begun]:
        yield Note(Message("scheduled.not_begun", loads=clients(missing)), "doubtful")
    if begun:
        yield Note(Message("scheduled.beyond", last=clients([begun[-1]])))


def _of_load(advice: Advice, schedule: Schedule, folder: Path) -> Iterator[Note]:
    whole = advice.model_copy(update={"asked": advice.asked.model_copy(update={"budget_s": schedule.asked.budget_s})})
    decide = said.would_decide(whole, folder)
    if decide is not None:
        yield Note(decide, "doubtful")
    for note in said.notes(advice, folder, said.names_of(advice)):
        if note.tone in _TONES:
            yield note


ABOUT_NUMBERS = (Message("scheduled.speedups"), Message("scheduled.intervals"))
"""What the speedups and the brackets of the table are."""


def what_next(schedule: Schedule) -> Message | None:
    """When to measure again; nothing while a load is open."""
    return None if _undecided(schedule) else Message("advised.measure_again")


_NARROW: dict[str, Literal["keep", "point", "drop"]] = {"predicted": "point", "raced": "point", "confirmed": "keep"}


def by_clients(schedule: Schedule) -> Table:
    """A row for each number of clients: what to use, how long its drafts are, and its speedups as they were predicted
    and confirmed; raced ones where a load has no better."""
    advices = {clients_of(it): it for it in schedule.advices}
    stages = [it for it in HEADINGS if it != "raced" or any(one.basis == "raced" for one in advices.values())]
    has_open = any(count not in advices or not is_decided(advices[count]) for count in schedule.asked.clients)
    columns = (
        Column("clients", "number"),
        Column("use"),
        Column("drafted_tokens", "number"),
        *(Column(HEADINGS[it], "number", narrow=_NARROW[it]) for it in stages),
        Column("verdict"),
        *((Column("open"),) if has_open else ()),
    )
    rows = [_row_of_load(count, advices.get(count), stages, has_open=has_open) for count in schedule.asked.clients]
    return Table("schedule", columns, rows)


def _row_of_load(count: int, advice: Advice | None, stages: list[str], *, has_open: bool) -> Row:
    if advice is None:
        rest = (Cell("-") for _ in stages)
        unchecked = Message("verdict.unchecked")
        return row(counted(count), "-", "-", *rest, unchecked, Message("scheduled.not_begun_short"), tone="faint")
    decided = is_decided(advice)
    return row(
        counted(count),
        Cell(use(advice), id=(said.best_of(advice) or "") if advice.decision != "off" else ""),
        counted(drafted(advice)),
        *(estimate_cell(speedup_of(advice, it), 2, struck=advice.verdict == "invalid") for it in stages),
        Message(f"verdict.{advice.verdict or 'unchecked'}"),
        *((Cell("") if decided else Cell(said.why_undecided(advice)),) if has_open else ()),
        verdict=advice.verdict,
        tone="strong" if decided and advice.decision == "speculate" else "",
    )


def speedup_of(advice: Advice, stage: str) -> Estimate | None:
    """As a stage found it, of what the answer is about: where nothing helps, the best that was tried."""
    best = said.best_of(advice)
    fate: Fate | None = next((it for it in advice.fates if it.arm_id == best), None)
    if advice.basis == stage:
        return advice.speedup
    return getattr(fate, stage) if fate is not None and stage == "predicted" else None


def by_batch_size(found: Elsewhere) -> Table:
    """The draft length for each batch size, as another program takes it."""
    rows = [
        row(Cell(f"{first}" if first == last else f"{first}-{last}", float(first)), counted(length))
        for first, last, length in found.lengths
    ]
    return Table("lengths", (Column("batch_size", "number"), Column("drafted_tokens", "number")), rows)
