"""The report of an advice: the answer and what to paste, what was compared, the whole grid, and what to mind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specmeter.advise.advice import DRAFTS, LEAVES_OFF
from specmeter.messages import Message
from specmeter.show.advice_words import (
    HEADINGS,
    about_numbers,
    by_kind,
    commands,
    counts,
    drafts,
    headline,
    is_elsewhere,
    is_open,
    names_of,
    notes,
    outcome_in_short,
    outcome_told,
    reason,
    rests,
    shown_outcomes,
    simulated,
    target_of,
    what_next,
    would_decide,
)
from specmeter.show.report import (
    Chart,
    Command,
    Facts,
    Links,
    Report,
    Section,
    Tabled,
    Text,
    engine,
    hints,
    machine,
    moment,
)
from specmeter.show.table import Cell, Column, Row, Table, counted, estimate_cell, made, row
from specmeter.store.environment import private
from specmeter.text import duration

if TYPE_CHECKING:
    from specmeter.advise.advice import Advice, ArmOutcome
    from specmeter.record import Estimate
    from specmeter.show.figure import Figure
    from specmeter.show.names import Names
    from specmeter.show.report import At, Block, Look


_LOOKS: dict[str, Look] = {**dict.fromkeys(DRAFTS, "speculate"), **dict.fromkeys(LEAVES_OFF, "stop")}


def report(advice: Advice, folder: Path, reports: Mapping[str, str] | None = None) -> Report:
    """An advice that lies in `folder`; `reports`: folder of a stage -> its report, relative to the page."""
    names = names_of(advice)
    return Report(
        target=target_of(advice),
        headline=headline(advice, names),
        document=lambda: document(advice, folder, names),
        decision=advice.decision,
        look=_LOOKS.get(advice.decision, "") if advice.basis == "confirmed" else "",
        verdict=advice.verdict,
        simulated=simulated(advice),
        answer=[
            *_said(rests(advice, names)),
            *_said(reason(advice), at="page"),
            *_to_paste(advice),
            *_by_kind(advice, names),
            *_said(*drafts(advice)),
            *_sessions(advice, folder),
            *_made(advice),
            *_said(would_decide(advice, folder)),
        ],
        sections=[*_sections(advice, names), *_page_sections(advice, reports or {})],
        notes=list(notes(advice, folder, names)),
        facts=facts(advice.seconds, advice, advice.made_at),
        closing=closing(what_next(advice), folder, Message("advised.folder", folder=str(folder), took=_took(advice))),
        folder=folder,
    )


def _said(*told: Message | None, at: At = "everywhere") -> list[Text]:
    return [Text(it, at=at) for it in told if it is not None]


def _by_kind(advice: Advice, names: Names) -> Iterator[Block]:
    """An answer for each kind of text where they differ, with its own line to paste."""
    for told, line in by_kind(advice, names):
        yield Text(told)
        if line:
            yield Command(line)


def _sessions(advice: Advice, folder: Path) -> Iterator[Block]:
    """What speculation can touch at all of recorded sessions, by the calls that confirmed the advice."""
    if not advice.asked.sessions or advice.basis != "confirmed":
        return
    from specmeter.analysis.sessions import session_report
    from specmeter.store import RunStore

    yield Text(Message("advised.calls"), "faint")
    confirmed = folder / (advice.confirmation or "confirm")
    if not RunStore.exists(confirmed):
        return
    with RunStore.open(confirmed, readonly=True) as store:
        found = session_report(store, {arm.id: arm.baseline_id for arm in store.arms()})
    for it in found:
        if it.baseline_id is None:
            yield Text(Message("sessions.touched", share=it.parts.generating))


def _made(advice: Advice) -> Iterator[Block]:
    """How the answers were made."""
    if advice.made is not None:
        yield Text(advice.made.line, "faint")
        for remark in advice.made.remarks:
            yield Text(remark, "doubtful")


def _to_paste(advice: Advice) -> Iterator[Block]:
    if advice.basis == "predicted" and not advice.finished:
        return  # a guess is not to be served by
    if is_open(advice) and commands(advice):
        yield Text(Message("advised.safe"), "faint")
    for program, line in commands(advice).items():
        if is_elsewhere(program):
            yield Text(Message("advised.elsewhere", program=program), "faint")
        else:
            yield Text(Message("page.paste", target=target_of(advice)), "faint", "page")
        yield Command(line)


def _sections(advice: Advice, names: Names) -> Iterator[Section]:
    """Why, what was compared, and the whole grid."""

    def dots() -> Figure | None:
        from specmeter.show.advice_figures import advised

        return advised(advice, names)

    def heat_map() -> Figure | None:
        from specmeter.show.advice_figures import grid

        return grid(advice)

    about = [Text(it, "faint") for it in about_numbers(advice)]
    table = Tabled(compared(advice, names), caption=False)
    first = [Chart(dots), table, *about] if advice.outcomes else []
    whole = [Chart(heat_map), Tabled(grid(advice, names), "details")]
    yield Section("comparison", [*_said(reason(advice), at="screen"), *first, *_said(counts(advice))])
    if advice.outcomes:
        yield Section("grid", whole)


def _page_sections(advice: Advice, reports: Mapping[str, str]) -> Iterator[Section]:
    if advice.stages:
        linked = [name for name in dict.fromkeys(it.folder for it in advice.stages) if name in reports]
        links = [(Message("advised.report", stage=name), reports[name]) for name in linked]
        yield Section("stages", [Tabled(stages(advice), "page"), Links(links)])
    on = [machine(advice.host)] if advice.host is not None else []
    by = [engine(advice.engine)] if advice.engine is not None else []
    models = [it for it in (advice.target, advice.draft) if it is not None]
    files = Facts([(it.name, f"{private(it.reference)} {it.sha256}") for it in models], Message("table.models"))
    yield Section("environment", [*on, *by, files])


def facts(seconds: float, of: Advice | None, made_at: float) -> list[str | Message]:
    """How long it took, on what, and when."""
    on = [] if of is None or of.host is None else [of.host.cpu]
    by = [] if of is None or of.engine is None else [f"{of.engine.kind} {of.engine.version}"]
    return [Message("advised.took", took=duration(seconds)), *on, *by, moment(made_at)]


def closing(after: Message | None, folder: Path, place: Message) -> list[Block]:
    """When to ask again, and where it lies."""
    again = [Text(after), Command(("specmeter", "advise", "--again", str(folder)), "page")] if after else []
    return [*again, Text(place, at="screen", whole=True), *hints(folder, "page")]


def _took(advice: Advice) -> Message | str:
    parts = [
        Message("advised.stage_took", stage=Message(f"stage.{it.stage}.name"), took=duration(it.seconds))
        for it in advice.stages
    ]
    took = duration(advice.seconds)
    return Message("advised.took_in", took=took, parts=parts) if parts else took


def document(advice: Advice, folder: Path, names: Names) -> dict[str, Any]:
    """The record as it is, with the answer in words, what people call each arm, and program -> its line."""
    return {
        "folder": str(folder),
        "headline": str(headline(advice, names)),
        "names": {outcome.arm_id: str(names[outcome.arm_id]) for outcome in advice.outcomes},
        "commands": commands(advice),
        **advice.model_dump(mode="json"),
    }


def stages(advice: Advice) -> Table:
    """What was carried out, and how long it took."""
    return made(
        "stages",
        advice.stages,
        ("stage", "text", lambda it: Message(f"stage.{it.stage}")),
        ("seconds", "number", lambda it: Cell(duration(it.seconds), it.seconds)),
        ("blocks", "number", lambda it: counted(it.blocks)),
        ("on_prompts", "number", lambda it: counted(it.prompts)),
        ("verdict", "text", lambda it: Message(f"verdict.{it.verdict or 'unchecked'}")),
        ("report", "text", lambda it: Cell(it.folder, code=True)),
    )


def compared(advice: Advice, names: Names) -> Table:
    """The short table: predicted, raced and confirmed speedups of what was compared, and its outcome in a word."""
    outcomes = shown_outcomes(advice)
    stages = [stage for stage in HEADINGS if any(getattr(outcome, stage) is not None for outcome in outcomes)]
    rows = [
        row(
            Cell(names[outcome.arm_id], id=outcome.arm_id),
            *(_speedup(getattr(outcome, stage)) for stage in stages),
            Cell(outcome_in_short(outcome, advice)),
            tone="strong" if outcome.code == "winner" and advice.decision in DRAFTS else "",
        )
        for outcome in outcomes
    ]
    if advice.decision in LEAVES_OFF and advice.baseline is not None:
        empty = (Cell("1.00", 1.0) for _ in stages)
        plain = Cell(names[advice.baseline.id], id=advice.baseline.id)
        told = Message("advised.short.winner" if advice.basis != "predicted" else "advised.short.winner_so_far")
        rows.insert(0, row(plain, *empty, told, tone="strong"))
    columns = (
        Column("arm"),
        *(Column(HEADINGS[stage], "number", narrow="point") for stage in stages),
        Column("outcome"),
    )
    return Table("advised", columns, rows)


def grid(advice: Advice, names: Names) -> Table:
    """Every arm with its prediction, what it was measured at, and its outcome with the numbers behind it."""
    stages = [stage for stage in HEADINGS if any(getattr(outcome, stage) is not None for outcome in advice.outcomes)]
    columns = (
        Column("arm"),
        *(Column(HEADINGS[stage], "number", narrow="point" if stage == "predicted" else "drop") for stage in stages),
        Column("outcome"),
    )
    return Table("grid", columns, [_of(outcome, advice, names, stages) for outcome in advice.outcomes])


def _of(outcome: ArmOutcome, advice: Advice, names: Names, stages: list[str]) -> Row:
    return row(
        Cell(names[outcome.arm_id], id=outcome.arm_id),
        *(_speedup(getattr(outcome, stage)) for stage in stages),
        Cell(outcome_told(outcome, advice, names)),
        tone="strong" if outcome.code == "winner" else "",
    )


def _speedup(found: Estimate | None) -> Cell:
    return Cell("") if found is None else estimate_cell(found, 2)
