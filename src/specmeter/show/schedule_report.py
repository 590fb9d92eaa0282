"""What a schedule says: at which loads to speculate, what to use with each number of clients, and what is still open.

The advice of each load says what it is advised, and why. Everything may come from a stranger's folder.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from specmeter.advise import export_commands
from specmeter.advise.advice import DRAFTS, LEAVES_OFF
from specmeter.advise.export_commands import PROGRAMS, TABLES, Elsewhere, tables
from specmeter.advise.schedule import Schedule, clients_of, folder_of, is_decided
from specmeter.messages import LANGUAGES, Message, Value, words
from specmeter.show import advice_report
from specmeter.show import advice_words as said
from specmeter.show import figure as charts
from specmeter.show.advice_report import closing, facts, grid
from specmeter.show.advice_words import HEADINGS, is_elsewhere, names_of, simulated
from specmeter.show.crossover_words import clients, spread
from specmeter.show.figure import Datum, Figure, Spec, distinct, ratio, ratio_axis, shown, single, tooltip
from specmeter.show.load_figures import clients_axis, crossing_marks
from specmeter.show.report import Chart, Command, Links, Report, Section, Tabled, Text, judged
from specmeter.show.table import Cell, Column, Row, Table, counted, estimate_cell, row
from specmeter.text import duration

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from pathlib import Path

    from specmeter.advise.advice import Advice, ArmOutcome, Decision
    from specmeter.analysis.load.crossover import ExpectedCrossover
    from specmeter.messages import Words
    from specmeter.record import Estimate
    from specmeter.show.names import Name
    from specmeter.show.palette import Palette
    from specmeter.show.report import Block, Look


_BESIDE = {"predicted": 0.96, "raced": 1.0, "confirmed": 1.04}
"""Where the numbers of a stage stand, beside the number of clients that they are of."""
_COURSES = {"up to": ("stops",), "from": ("starts",), "open": ("stops", "starts")}
"""Pattern -> courses of a crossover that say the same."""
_HOLDS = ("holds", "does-not-hold", "cannot-tell")
_LOOKS: dict[str, Look] = {"always": "speculate", "never": "stop"}
_MAX_NOTES = 6
_TONES = ("strong", "bad", "doubtful")
"""Notes of a single load that are told of the schedule, too."""


def report_of(found: Advice | Schedule, folder: Path, links: Mapping[str, str] | None = None) -> Report:
    """An advice or a schedule that lies in `folder`; `links`: folder of a stage, or of a load's advice -> its page,
    relative to its own."""
    if isinstance(found, Schedule):
        return report(found, folder, links)
    return advice_report.report(found, folder, links)


def report(schedule: Schedule, folder: Path, pages: Mapping[str, str] | None = None) -> Report:
    first = schedule.advices[0] if schedule.advices else None
    took = sum(it.seconds for it in schedule.advices)
    return Report(
        target=target_of(schedule),
        headline=headline(schedule),
        document=lambda: document(schedule, folder),
        decision=schedule.pattern,
        look=_LOOKS.get(schedule.pattern, ""),
        verdict=schedule.verdict,
        simulated=first is not None and simulated(first),
        answer=[Text(told)] if (told := again(schedule)) is not None else [],
        sections=list(_sections(schedule, pages or {})),
        notes=list(notes(schedule, folder)),
        most_notes=_MAX_NOTES,
        facts=facts(took, first, schedule.made_at),
        closing=closing(
            what_next(schedule), folder, Message("scheduled.folder", folder=str(folder), took=duration(took))
        ),
        folder=folder,
    )


def _sections(schedule: Schedule, pages: Mapping[str, str]) -> Iterator[Section]:
    about = [Text(it, "faint") for it in ABOUT_NUMBERS]
    chart = Chart(lambda: scheduled(schedule))
    yield Section("comparison", [Tabled(by_clients(schedule), caption=False), *about, chart])
    lines: list[Block] = []
    for load, program, line in commands(schedule):
        other = [_other(program)] if is_elsewhere(program) else []
        lines += [Text(load, "faint"), *other, Command(line)]
    linked = {at: pages[name] for at in map(clients_of, schedule.advices) if (name := folder_of(at)) in pages}
    links = [(Message("scheduled.advice", loads=clients([at])), href) for at, href in linked.items()]
    yield Section("advices", [*lines, Links(links)])
    for program, found in elsewhere(schedule).items():
        lengths = [_other(program), Tabled(by_batch_size(program, found), caption=False)] if found.lengths else []
        line = [Command(found.line)] if found.line else []
        told = [Text(Message("scheduled.note_of", program=program, told=it), "faint") for it in found.notes]
        yield Section("other_programs", [*lengths, *line, *told])
    for advice in schedule.advices:
        if advice.outcomes:
            at = clients_of(advice)
            table = replace(grid(advice, names_of(advice)), name=f"grid-{folder_of(at)}", title=clients([at]))
            yield Section("grid", [Tabled(table, "details")])


def _other(program: str) -> Text:
    return Text(Message("advised.elsewhere", program=program), "faint")


def document(schedule: Schedule, folder: Path) -> dict[str, Any]:
    """The record as it is, with the answers in words, of all loads and of each."""
    crossover = schedule.crossover
    whole = schedule.model_dump(mode="json")
    advices = [
        {"headline": str(said.headline(it, names_of(it))), "commands": said.commands(it), **dumped}
        for it, dumped in zip(schedule.advices, whole["advices"], strict=True)
    ]
    return {
        "folder": str(folder),
        "headline": str(headline(schedule)),
        "pattern": schedule.pattern,
        "crossover": None if crossover is None else crossover.model_dump(mode="json"),
        **whole,
        "advices": advices,
    }


# --- the answer ------------------------------------------------------------------------------------------------------


def headline(schedule: Schedule) -> Message:
    """Like `dense: speculate with up to 2 clients, not with 4 or more; speculation stops paying at 2.7 clients [2.2,
    3.4]; measured with 1, 2, 4, 8 clients`."""
    yes, no = _loads(schedule, DRAFTS), _loads(schedule, LEAVES_OFF)
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


def _loads(schedule: Schedule, decisions: Collection[Decision]) -> list[int]:
    return [clients_of(it) for it in schedule.advices if is_decided(it) and it.decision in decisions]


def _begun(schedule: Schedule) -> list[int]:
    return [clients_of(it) for it in schedule.advices]


def _undecided(schedule: Schedule) -> str | Message:
    """Loads that were asked about and are not decided, started or not."""
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
    """What to use at a load: `draft model small, 4 draft tokens`, `no speculation`, or the best so far."""
    best = advice.best
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


def notes(schedule: Schedule, folder: Path) -> Iterator[Text]:
    """What a reader should know of single loads: what would decide them, and their graver notes; those that several
    loads have in common once."""
    found: dict[str, tuple[Text, list[int]]] = {}
    for advice in schedule.advices:
        for note in _of_load(advice, schedule, folder / folder_of(clients_of(advice))):
            found.setdefault(repr(note), (note, []))[1].append(clients_of(advice))
    for note, loads in sorted(found.values(), key=lambda it: it[0].tone not in ("strong", "bad")):
        everywhere = len(loads) == len(schedule.asked.clients) and note.tone == "strong"
        told = note.said if everywhere else Message("scheduled.of", loads=clients(loads), told=note.said)
        yield Text(told, note.tone)
    begun = _begun(schedule)
    if missing := [count for count in schedule.asked.clients if count not in begun]:
        yield Text(Message("scheduled.not_begun", loads=clients(missing)), "doubtful")
    if begun:
        yield Text(Message("scheduled.beyond", last=clients([begun[-1]])))


def _of_load(advice: Advice, schedule: Schedule, folder: Path) -> Iterator[Text]:
    whole = advice.model_copy(update={"asked": advice.asked.model_copy(update={"budget_s": schedule.asked.budget_s})})
    decide = said.would_decide(whole, folder)
    if decide is not None:
        yield Text(decide, "doubtful")
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
        Cell(use(advice), id=(advice.best or "") if advice.decision not in LEAVES_OFF else ""),
        counted(drafted(advice)),
        *(estimate_cell(speedup_of(advice, it), 2, struck=advice.verdict == "invalid") for it in stages),
        judged(advice.verdict, simulated=simulated(advice)),
        *((Cell("") if decided else Cell(said.why_undecided(advice)),) if has_open else ()),
        verdict=advice.verdict,
        tone="strong" if decided and advice.decision == "speculate" else "",
    )


def speedup_of(advice: Advice, stage: str) -> Estimate | None:
    """As a stage found it, of what the answer is about: where nothing helps, the best that was tried."""
    best = advice.best
    outcome: ArmOutcome | None = next((it for it in advice.outcomes if it.arm_id == best), None)
    if advice.basis == stage:
        return advice.speedup
    return getattr(outcome, stage) if outcome is not None and stage == "predicted" else None


def by_batch_size(program: str, found: Elsewhere) -> Table:
    """The draft length for each batch size, as another program takes it."""
    rows = [
        row(Cell(f"{first}" if first == last else f"{first}-{last}", float(first)), counted(length))
        for first, last, length in found.lengths
    ]
    columns = (Column("batch_size", "number"), Column("drafted_tokens", "number"))
    return Table(f"lengths-{program}", columns, rows, Message("table.lengths"))


def scheduled(schedule: Schedule) -> Figure | None:
    """Speedups over the clients: as predicted, hollow, and as measured, with intervals. False ones are left out."""
    data: list[Datum] = []
    estimates: list[Estimate] = []
    for advice in schedule.advices:
        for stage, heading in HEADINGS.items():
            found = speedup_of(advice, stage)
            if found is None or advice.verdict == "invalid":
                continue
            estimates.append(found)
            of = {f"stage_{one}": words(one)(f"column.{heading}") for one in LANGUAGES}
            using = {f"use_{one}": words(one).render(use(advice)) for one in LANGUAGES}
            verdict = "unchecked" if stage == "predicted" or advice.verdict is None else advice.verdict
            count = clients_of(advice)
            place: Datum = {"count": count, "clients": count * _BESIDE[stage], "verdict": verdict}
            data.append({**place, **of, **using, **shown(found, 2)})
    if not data:
        return None
    counts = sorted({int(datum["count"] or 0) for datum in data})
    crossed = _crossed(schedule)
    limits, ticks = ratio_axis(estimates)

    def draw(one: Words, palette: Palette) -> Spec:
        stage = f"stage_{one.language}"
        x, y = clients_axis(counts, one), ratio("point", one("axis.speedup_plain"), limits, ticks)
        order = [name for it in HEADINGS.values() if (name := one(f"column.{it}")) in distinct(data, stage)]
        look = charts.series(stage, one("column.stage"), order, palette)
        tips = tooltip(
            one,
            ("count", "column.clients"),
            (f"use_{one.language}", "column.use"),
            (stage, "column.stage"),
            ("shown", "column.speedup"),
            ("verdict", "column.verdict"),
        )
        return {
            "height": 260,
            "layer": [
                charts.one_line(palette, across=True),
                *(crossing_marks(x, one, palette) if crossed else ()),
                *charts.numbers(x, y, look, tips, across=False),
            ],
        }

    key: list[str] = ["interval"]
    key += [] if all(datum.get("verdict") == "valid" for datum in data) else ["not-measured"]
    key += ["baseline", "crossing"] if crossed else ["baseline"]
    return single("scheduled", [*data, *crossed], draw, *key)


def _crossed(schedule: Schedule) -> list[Datum]:
    found = schedule.crossover
    if found is None or found.clients is None:
        return []
    at = found.clients
    said: Datum = {f"crossing_{one}": f"{at.point:.1f}{words(one).render(interval(found))}" for one in LANGUAGES}
    return [{"crossing": at.point, "from": at.low, "to": at.high, **said}]
