"""Prints an advice: the answer in one line, the line to paste, why, what was compared, and three notes; or JSON.

Prints what an advice would try, and what it needs (`specmeter advise --dry-run`).

Prints a schedule: the answer in one line, what to use with how many clients, the lines to paste, notes; or JSON.

What a person sees on stderr while an advice is found: the stage, who is still in, time left, and the best so far.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, Progress, TaskID
from rich.text import Text

from specmeter.advise.export_commands import MEASURED, PROGRAMS, TABLES
from specmeter.advise.schedule import clients_of
from specmeter.messages import Message, words
from specmeter.numbers.rates import decode_rate
from specmeter.show import advice_report, schedule_report
from specmeter.show import advice_report as said
from specmeter.show.advice_report import compared, grid
from specmeter.show.names import Names, label
from specmeter.show.schedule_report import by_batch_size, by_clients
from specmeter.show.table import TONES, Tone
from specmeter.show.terminal.console import WIDTH, Screen, output, say_json
from specmeter.show.terminal.progress import plain_column
from specmeter.text import counted, duration, pasted, printable, quoted, rate, size

if TYPE_CHECKING:
    from pathlib import Path

    from specmeter.advise.advice import Advice, Stage
    from specmeter.advise.question import Outline
    from specmeter.advise.schedule import Schedule
    from specmeter.errors import EngineError
    from specmeter.experiments.schedule import Turn
    from specmeter.record import Arm, Request


MOST_NOTES = 3
_WIDE = 160
"""Of details off a terminal."""
_ENGLISH = words()


def print_advice(advice: Advice, folder: Path, *, as_json: bool, everything: bool = False) -> None:
    """Write an advice to stdout, as JSON or for people; `everything`: with every arm of the grid and every note."""
    names = said.names_of(advice)
    if as_json:
        say_json(advice_document(advice, folder, names))
        return
    screen = output(_WIDE if everything else WIDTH)
    _print_answer(screen, advice, folder, names)
    _print_grounds(screen, advice, names, everything=everything)
    _print_notes(screen, advice, folder, names, everything=everything)
    screen.line()
    after = said.what_next(advice)
    if after is not None:
        _say(screen, after)
    screen.say(f"advice folder: {folder} ({_took(advice)})", wrap=False)
    if not everything:
        here = quoted(str(folder))
        shown = (f"everything: `specmeter show {here} --details`", f"page: `specmeter report {here}`")
        screen.say_all(shown, tone="faint", wrap=False)


def advice_document(advice: Advice, folder: Path, names: Names) -> dict[str, Any]:
    """The record as it is, with the answer in words, what people call each arm, and program -> its line."""
    return {
        "folder": str(folder),
        "headline": said.headline(advice, names).render(_ENGLISH),
        "names": {fate.arm_id: names.render(fate.arm_id, _ENGLISH) for fate in advice.fates},
        "commands": said.commands(advice),
        **advice.model_dump(mode="json"),
    }


def _print_answer(screen: Screen, advice: Advice, folder: Path, names: Names) -> None:
    verdict: tuple[tuple[str, Tone], ...] = ()
    if advice.verdict is not None:
        verdict = (("; ", ""), (advice.verdict, TONES[advice.verdict]))
    screen.say((said.headline(advice, names).render(_ENGLISH), "strong"), *verdict)
    for phrase in (said.by_kind(advice, names), said.would_decide(advice, folder)):
        if phrase is not None:
            _say(screen, phrase)
    for program, command in said.commands(advice).items():
        if program in PROGRAMS and program != MEASURED:
            _say(screen, Message("advised.elsewhere", program=program), tone="faint")
        screen.say(f"  {pasted(command)}", wrap=False)


def _print_grounds(screen: Screen, advice: Advice, names: Names, *, everything: bool) -> None:
    """Why, the short table, and what became of the rest; or of every arm."""
    screen.line()
    reason, table = said.reason(advice), compared(advice, names)
    if reason is not None:
        _say(screen, reason)
    if advice.fates:
        screen.table(table)
        for phrase in said.about_numbers(advice):
            _say(screen, phrase, tone="faint")
    counts = said.counts(advice)
    if counts is not None:
        _say(screen, counts)
    if everything and advice.fates:
        screen.line()
        screen.table(grid(advice, names), caption=True)


def _print_notes(screen: Screen, advice: Advice, folder: Path, names: Names, *, everything: bool) -> None:
    found = list(said.notes(advice, folder, names))
    shown = found if everything else found[:MOST_NOTES]
    if shown:
        screen.line()
    for note in shown:
        screen.say(f"- {note.text.render(_ENGLISH)}", tone=note.tone)
    if len(found) > len(shown):
        more = counted(len(found) - len(shown), "more note")
        screen.say(f"- {more}, with `--details`", tone="faint")


def _took(advice: Advice) -> str:
    stages = ", ".join(f"{it.stage} {duration(it.seconds)}" for it in advice.stages)
    return f"{duration(advice.seconds)}{': ' if stages else ''}{stages}"


def _say(screen: Screen, phrase: Message, tone: Tone = "") -> None:
    screen.say(phrase.render(_ENGLISH), tone=tone)


def print_outline(screen: Screen, outline: Outline) -> None:
    """What would be tried, on what, and what that takes."""
    for target in outline.targets:
        told = "" if outline.target_bytes is None or len(outline.targets) > 1 else f" ({size(outline.target_bytes)})"
        screen.say(("target  ", "faint"), (target, "strong"), told, wrap=False)
    for draft in outline.drafts:
        told = "" if draft.size_bytes is None else f", {size(draft.size_bytes)}"
        screen.say(("draft   ", "faint"), f"{draft.reference} ({draft.method}{told})", wrap=False)
    if not outline.drafts:
        screen.say(("draft   ", "faint"), "none; what needs no draft model is tried")
    for it in outline.left_out:
        screen.say(("without ", "faint"), f"{it.reference}: ", it.why, wrap=False)
    methods = ", ".join(f"{name} {number}" for name, number in outline.configurations.items())
    screen.say(
        ("tries   ", "faint"), f"{counted(sum(outline.configurations.values()), 'configuration')} and none: {methods}"
    )
    if outline.clients:
        loads = ", ".join(map(str, outline.clients))
        screen.say(("load    ", "faint"), f"all of it with {loads} {'client' if loads == '1' else 'clients'}")
    kinds = ", ".join(f"{kind} {number}" for kind, number in outline.prompts.items())
    screen.say(
        ("prompts ", "faint"),
        f"{sum(outline.prompts.values())} ({kinds}), at most {counted(outline.max_tokens, 'token')} for each",
    )
    plain = (
        "" if outline.plain_s is None else f"; plain decoding alone takes about {duration(outline.plain_s)} each time"
    )
    screen.say(("time    ", "faint"), f"at most {duration(outline.budget_s)} (--budget){plain}")
    needed = "unknown" if outline.memory_bytes is None else size(outline.memory_bytes)
    screen.say(("memory  ", "faint"), f"{needed} of {size(outline.memory_free_bytes)} free")
    screen.say(("disk    ", "faint"), f"{size(outline.disk_bytes)} to be written")
    for problem in outline.problems:
        screen.say(f"warning: {problem}", tone="doubtful")


MOST_SCHEDULE_NOTES = 6


def print_schedule(schedule: Schedule, folder: Path, *, as_json: bool, everything: bool = False) -> None:
    """Write a schedule to stdout, as JSON or for people; `everything`: with the grid of each load and every note."""
    if as_json:
        say_json(schedule_document(schedule, folder))
        return
    screen = output(_WIDE if everything else WIDTH)
    _print_schedule_answer(screen, schedule)
    _print_lines(screen, schedule)
    _print_schedule_notes(screen, schedule, folder, everything=everything)
    if everything:
        _print_grids(screen, schedule)
    screen.line()
    after = schedule_report.what_next(schedule)
    if after is not None:
        _say(screen, after)
    took = duration(sum(it.seconds for it in schedule.advices))
    screen.say(f"schedule folder: {folder} ({took})", wrap=False)
    if not everything:
        here = quoted(str(folder))
        shown = (f"everything: `specmeter show {here} --details`", f"page: `specmeter report {here}`")
        screen.say_all(shown, tone="faint", wrap=False)


def schedule_document(schedule: Schedule, folder: Path) -> dict[str, Any]:
    """The record as it is, with the answers in words, of all loads and of each."""
    crossover = schedule.crossover
    whole = schedule.model_dump(mode="json")
    advices = [
        {
            "headline": advice_report.headline(it, advice_report.names_of(it)).render(_ENGLISH),
            "commands": advice_report.commands(it),
            **dumped,
        }
        for it, dumped in zip(schedule.advices, whole["advices"], strict=True)
    ]
    return {
        "folder": str(folder),
        "headline": schedule_report.headline(schedule).render(_ENGLISH),
        "pattern": schedule.pattern,
        "crossover": None if crossover is None else crossover.model_dump(mode="json"),
        **whole,
        "advices": advices,
    }


def _print_schedule_answer(screen: Screen, schedule: Schedule) -> None:
    verdict: tuple[tuple[str, Tone], ...] = ()
    if schedule.verdict is not None:
        verdict = (("; ", ""), (schedule.verdict, TONES[schedule.verdict]))
    screen.say((schedule_report.headline(schedule).render(_ENGLISH), "strong"), *verdict)
    again = schedule_report.again(schedule)
    if again is not None:
        _say(screen, again)
    screen.line()
    screen.table(by_clients(schedule))
    for phrase in schedule_report.ABOUT_NUMBERS:
        _say(screen, phrase, tone="faint")


def _print_lines(screen: Screen, schedule: Schedule) -> None:
    """The line of each load, then what other programs are told."""
    lines = schedule_report.commands(schedule)
    if lines:
        screen.line()
    for load, program, line in lines:
        _say(screen, load, tone="faint")
        if program in PROGRAMS and program != MEASURED:
            _say(screen, Message("advised.elsewhere", program=program), tone="faint")
        screen.say(f"  {pasted(line)}", wrap=False)
    for program, found in schedule_report.elsewhere(schedule).items():
        if program in TABLES:
            screen.line()
        if found.lengths:
            _say(screen, Message("advised.elsewhere", program=program), tone="faint")
            screen.table(by_batch_size(found))
        if found.line:
            screen.say(f"  {pasted(found.line)}", wrap=False)
        for note in found.notes:
            screen.say(f"- {program}: ", note)


def _print_schedule_notes(screen: Screen, schedule: Schedule, folder: Path, *, everything: bool) -> None:
    found = list(schedule_report.notes(schedule, folder))
    shown = found if everything else found[:MOST_SCHEDULE_NOTES]
    if shown:
        screen.line()
    for note in shown:
        screen.say(f"- {note.text.render(_ENGLISH)}", tone=note.tone)
    if len(found) > len(shown):
        screen.say(f"- {counted(len(found) - len(shown), 'more note')}, with `--details`", tone="faint")


def _print_grids(screen: Screen, schedule: Schedule) -> None:
    """What became of every configuration at each load."""
    for advice in schedule.advices:
        if advice.fates:
            screen.line()
            found = grid(advice, advice_report.names_of(advice))
            title = schedule_report.clients([clients_of(advice)]).render(_ENGLISH)
            screen.table(replace(found, title=title), caption=True)


_DOES = {
    "settings": "settings: tries threads, flash attention and types of the KV cache",
    "screen": "screen: generates texts by plain decoding, and predicts every configuration on them",
    "race": "race: compares {arms}",
    "confirm": "confirmation: measures {arms} anew, on other prompts where there are some",
}


class AdviceProgress:
    """Observer of an advice (`advise.course`) that reports to stderr: a live display on a terminal, lines elsewhere."""

    def __init__(self, screen: Screen, budget_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._screen = screen
        self._budget_s = budget_s
        self._clock = clock
        self._ends = clock() + budget_s
        self._stage: Stage | None = None
        self._names: dict[str, str] = {}
        self._answer = ""
        self._now = ""
        self._count = 0
        self._requests = 0
        self._progress: Progress | None = None
        self._task = TaskID(0)
        if screen.is_terminal:
            self._progress = Progress(
                plain_column("{task.description}"),
                BarColumn(bar_width=24),
                plain_column("{task.fields[left]}"),
                console=screen,
                transient=True,
                auto_refresh=False,
            )
            self._task = self._progress.add_task("starting", total=budget_s, left="")

    @contextmanager
    def shown(self) -> Generator[None]:
        """Keep the display on the screen meanwhile. It is drawn once a second: more would take from the engine."""
        if self._progress is None:
            yield
            return
        with Live(console=self._screen, refresh_per_second=1, transient=True, get_renderable=self._display):
            yield

    def load_starting(self, clients: int, budget_s: float) -> None:
        """A schedule asks about so many clients now."""
        self._budget_s, self._ends = budget_s, self._clock() + budget_s
        self._answer, self._stage = "", None
        self._line(
            f"{counted(clients, 'client')}:" if self._progress else f"{counted(clients, 'client')}; {self._left()}"
        )
        if self._progress is not None:
            self._progress.update(self._task, total=budget_s)

    def stage_starting(self, stage: Stage, arms: Mapping[str, Arm], left_s: float) -> None:
        """A stage, or a block of the race, starts with these arms and so much of the budget left."""
        self._ends = self._clock() + left_s
        names = Names(arms.values())
        self._names = {arm_id: names.render(arm_id, _ENGLISH) for arm_id in arms}
        rivals = sum(arm.speculates for arm in arms.values())
        told = counted(rivals, "configuration") + " with plain decoding"
        text = _DOES[stage].format(arms=told)
        if stage != self._stage or rivals != self._count:
            self._line(text if self._progress else f"{text}; {self._left()}")
        self._stage, self._count, self._now = stage, rivals, ""
        if self._progress is not None:
            self._progress.update(self._task, description=stage)

    def told(self, advice: Advice) -> None:
        """The best so far: the first answer stays on the screen, later ones where they differ."""
        if advice.speedup is None:
            return
        answer = said.headline(advice, said.names_of(advice)).render(_ENGLISH)
        if answer == self._answer:
            return
        first = "first answer" if not self._answer else "so far"
        self._answer = answer
        if self._progress is None or first == "first answer":
            self._line(f"{first}: {answer}")

    def note(self, text: str) -> None:
        """Something that a reader should know now."""
        self._line(text)

    def looking_ahead(self, arm_id: str) -> None:
        """See `measure.Observer`."""
        self._now = f"finding out what steps of {self._called(arm_id)} cost"

    def session_starting(self, cell: Turn, requests: int) -> None:
        """See `measure.Observer`."""
        self._requests = requests
        self._now = f"{self._called(cell.arm_id)}: {counted(requests, 'request')}"
        if self._progress is None:
            self._line(f"{self._stage or 'starting'}: {self._now}; {self._left()}")

    def request_done(self, request: Request) -> None:
        """See `measure.Observer`."""
        self._requests -= 1
        reached = decode_rate(request.reply.timings) if request.reply else None
        told = f", {rate(reached)}" if reached else ""
        left = f"{counted(self._requests, 'request')} to go" if self._requests > 0 else "done"
        self._now = f"{self._called(request.arm_id)}: {left}{told}"

    def session_failed(self, arm_id: str, error: EngineError) -> None:
        """See `measure.Observer`."""
        self._line(f"warning: {self._called(arm_id)}: {error.message}")

    def _display(self) -> RenderableType:
        assert self._progress is not None
        left_s = max(0.0, self._ends - self._clock())
        self._progress.update(self._task, completed=self._budget_s - left_s, left=self._left())
        lines = [self._now, f"so far: {self._answer}" if self._answer else ""]
        shown = [Text(printable(line), "dim", no_wrap=True, overflow="ellipsis") for line in lines if line]
        return Group(self._progress, *shown)

    def _called(self, arm_id: str) -> str:
        return self._names.get(arm_id) or printable(label(arm_id))

    def _left(self) -> str:
        return f"{duration(max(0.0, self._ends - self._clock()))} left"

    def _line(self, text: str) -> None:
        self._screen.say(text, wrap=False)
