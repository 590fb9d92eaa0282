"""What an advice would try and what it needs, and, while it is found, the stage, who is still in, and time left."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from specmeter.messages import Message, words
from specmeter.numbers.rates import decode_rate
from specmeter.show import advice_report as said
from specmeter.show.names import Names, label
from specmeter.show.terminal.console import Screen
from specmeter.show.terminal.progress import LiveProgress
from specmeter.text import counted, duration, printable, rate, size

if TYPE_CHECKING:
    from specmeter.advise.advice import Advice, Stage
    from specmeter.advise.outline import Outline
    from specmeter.experiments.schedule import Cell
    from specmeter.record import Arm, Request


_ENGLISH = words()


def print_outline(screen: Screen, outline: Outline) -> None:
    """What would be tried, on what, and what that takes."""
    for target in outline.targets:
        told = "" if outline.target_bytes is None or len(outline.targets) > 1 else f" ({size(outline.target_bytes)})"
        screen.say(("target  ", "faint"), (target, "strong"), told, wrap=False)
    for draft in outline.drafts:
        told = "" if draft.size_bytes is None else f", {size(draft.size_bytes)}"
        screen.say(("draft   ", "faint"), f"{draft.reference} ({draft.method}{told})", wrap=False)
    if not outline.drafts:
        screen.say(("draft   ", "faint"), "none; only methods without a draft model are tried")
    for it in outline.left_out:
        screen.say(("skipped ", "faint"), f"{it.reference}: ", it.why, wrap=False)
    methods = ", ".join(f"{name} {number}" for name, number in outline.configurations.items())
    count = counted(sum(outline.configurations.values()), "configuration")
    screen.say(("tries   ", "faint"), f"{count} and no speculation: {methods}")
    if outline.clients:
        loads = ", ".join(map(str, outline.clients))
        screen.say(("load    ", "faint"), f"all of it with {loads} {'client' if loads == '1' else 'clients'}")
    kinds = ", ".join(f"{kind} {number}" for kind, number in outline.prompts.items())
    screen.say(
        ("prompts ", "faint"),
        f"{sum(outline.prompts.values())} ({kinds}), at most {counted(outline.max_tokens, 'token')} for each",
    )
    plain = "" if outline.answer_s is None else f"; an answer takes about {duration(outline.answer_s)}"
    screen.say(("time    ", "faint"), f"at most {duration(outline.budget_s)} (--budget){plain}")
    needed = "unknown" if outline.memory_bytes is None else size(outline.memory_bytes)
    screen.say(("memory  ", "faint"), f"{needed} of {size(outline.memory_free_bytes)} free")
    screen.say(("disk    ", "faint"), f"{size(outline.disk_bytes)} to be written")
    for problem in outline.problems:
        screen.say(f"warning: {problem}", tone="doubtful")


_DOES = {
    "settings": "settings: trying threads, flash attention and KV cache types",
    "screen": "screen: running the prompts without speculation, then predicting all configurations",
    "race": "search: measuring {arms} against no speculation",
    "confirm": "confirm: measuring {arms} again, on new prompts if there are any",
}
_QUIET_S = 30.0
"""Off a terminal, without a line, until one says what is measured."""
_CALLED = {"race": "search"}
"""What a stage is called where not as in data."""


class AdviceProgress(LiveProgress):
    """Observer of an advice (`advise.advise`) that reports to stderr: a live display on a terminal, else lines."""

    def __init__(self, screen: Screen, budget_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(screen, budget_s, ("{task.fields[left]}",), clock)
        self._budget_s = budget_s
        self._clock = clock
        self._ends = clock() + budget_s
        self._stage: Stage | None = None
        self._names: dict[str, str] = {}
        self._answer = ""
        self._now = ""
        self._count = 0
        self._requests = 0
        self._said_at = clock()

    def load_starting(self, clients: int, budget_s: float) -> None:
        """A schedule asks about this many clients now."""
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
        text = _DOES[stage].format(arms=counted(rivals, "configuration"))
        if stage != self._stage or rivals != self._count:
            self._line(text if self._progress else f"{text}; {self._left()}")
        self._stage, self._count, self._now = stage, rivals, ""
        if self._progress is not None:
            self._progress.update(self._task, description=_CALLED.get(stage, stage))

    def best_so_far(self, advice: Advice) -> None:
        """The best so far: the first answer stays on the screen, later ones where they differ."""
        if advice.speedup is None:
            return
        answer = _ENGLISH.render(said.headline(advice, said.names_of(advice)))
        if answer == self._answer:
            return
        first = "first answer" if not self._answer else "so far"
        self._answer = answer
        if self._progress is None or first == "first answer":
            self._line(f"{first}: {answer}")

    def note(self, text: str) -> None:
        """Something that a reader should know now."""
        self._line(text)

    def looking_ahead(self, doing: Message) -> None:
        """See `measure.Observer`."""
        self._silence.broken()
        self._now = _ENGLISH.render(doing)
        if self._progress is None:
            self._line(f"{self._doing()}: {self._now}; {self._left()}")

    def session_starting(self, cell: Cell, requests: int) -> None:
        """See `measure.Observer`."""
        self._silence.broken()
        self._requests, self._arm_id = requests, cell.arm_id
        self._now = f"{self._called(cell.arm_id)}: {counted(requests, 'request')}"
        if self._progress is None and self._clock() - self._said_at >= _QUIET_S:
            self._line(f"{self._doing()}: {self._now}; {self._left()}")

    def request_done(self, request: Request) -> None:
        """See `measure.Observer`."""
        self._silence.broken()
        self._requests -= 1
        reached = decode_rate(request.reply.timings) if request.reply else None
        told = f", {rate(reached)}" if reached else ""
        left = f"{counted(self._requests, 'request')} to go" if self._requests > 0 else "done"
        self._now = f"{self._called(request.arm_id)}: {left}{told}"

    def _display(self) -> RenderableType:
        assert self._progress is not None
        left_s = max(0.0, self._ends - self._clock())
        self._progress.update(self._task, completed=self._budget_s - left_s, left=self._left())
        lines = [self._now, f"so far: {self._answer}" if self._answer else ""]
        shown = [Text(printable(line), "dim", no_wrap=True, overflow="ellipsis") for line in lines if line]
        return Group(self._progress, *shown)

    def _line(self, text: str) -> None:
        self._said_at = self._clock()
        super()._line(text)

    def _doing(self) -> str:
        return "starting" if self._stage is None else _CALLED.get(self._stage, self._stage)

    def _called(self, arm_id: str) -> str:
        return self._names.get(arm_id) or printable(label(arm_id))

    def _left(self) -> str:
        return f"{duration(max(0.0, self._ends - self._clock()))} left"
