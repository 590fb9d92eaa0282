"""What a person sees on stderr while a run continues: a live display on a terminal, plain lines elsewhere; or what a
program reads there, a line of JSON each time.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from statistics import fmean
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress import (
    BarColumn,
    DownloadColumn,
    ProgressColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.progress import Progress as Bars
from rich.table import Table
from rich.text import Text

from specmeter.analysis.answer import is_uninformative
from specmeter.errors import EngineError, StoreError
from specmeter.host.telemetry import SPIKE_PERCENT
from specmeter.measure.calm import busiest
from specmeter.messages import Message, Value, words
from specmeter.numbers.rates import decode_rate
from specmeter.record import Disturbance, Estimate, Host, Request, Telemetry
from specmeter.record.measured import names_of, threads_beside
from specmeter.show.names import Names
from specmeter.show.run_words import excluded_block
from specmeter.show.terminal.console import JsonScreen
from specmeter.text import brackets, counted, duration, printable, rate, ratio, size

if TYPE_CHECKING:
    from pathlib import Path

    from specmeter.analysis.progress import ArmProgress, Progress, RunSoFar
    from specmeter.experiments.schedule import Cell
    from specmeter.show.terminal.console import Screen
    from specmeter.store import RunReader


_LINE_S = 1.0
"""Between lines for programs within a session."""
_SILENT_S = 20.0
"""Without an answer until a line says what is slow; the next ones come after ever longer."""
_LONG_S = 60.0
"""The same if no other program is busy: a whole answer of a slow model takes this long."""
_RECENT = 20
"""Samples of the machine that say so."""


class Silence:
    """Says what is slow, and what to do, where no answer comes for long."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.broken()

    def broken(self) -> None:
        """There is news."""
        self._since, self._next = self._clock(), _SILENT_S
        self._samples = deque[Telemetry](maxlen=_RECENT)

    def news_line(
        self, arm: str, sample: Telemetry, host: Host, *, ours: bool = True, threads: int | None = None
    ) -> str:
        """The line, once it is time for one; empty before. `ours`: specmeter starts the engine, with its `threads`."""
        if not self._samples:  # samples begin when the server is ready: it is not the request that was slow before
            self._since = self._clock()
        self._samples.append(sample)
        passed = self._clock() - self._since
        if passed < self._next:
            return ""
        recent = list(self._samples)
        percent = fmean(it.other_cpu_percent for it in recent)
        if percent <= SPIKE_PERCENT and passed < _LONG_S:
            return ""
        self._next = 3 * passed
        said: dict[str, Value] = {"arm": arm, "time": duration(passed)}
        if percent <= SPIKE_PERCENT:
            return words().render(Message("silent.alone", **said))
        fewer = threads_beside(percent, host, threads) if ours else 0
        beside = Message("silent.threads", threads=fewer) if fewer else ""
        what = Message("disturbed.took", programs=names_of(busiest(recent)), percent=percent)
        return words().render(Message("silent.busy", **said, what=what, threads=beside))


class LiveProgress(ABC):
    """What those of runs and of advices share: the bar, and lines of what both hear."""

    def __init__(self, screen: Screen, total: float | None, columns: Sequence[str], clock: Callable[[], float]) -> None:
        self._screen = screen
        self._silence = Silence(clock)
        self._ours = True
        """The engine, whose threads specmeter tells it."""
        self._threads: int | None = None
        self._arm_id = ""
        self._progress: Bars | None = None
        self._task = TaskID(0)
        if screen.is_terminal:
            texts = map(plain_column, columns)
            bar = (plain_column("{task.description}"), BarColumn(bar_width=24), *texts)
            self._progress = Bars(*bar, console=screen, transient=True, auto_refresh=False)
            self._task = self._progress.add_task("starting", total=total, done="", left="")

    @contextmanager
    def shown(self) -> Generator[None]:
        """Keep the display on the screen meanwhile. It is drawn once a second: more would take from the engine."""
        if self._progress is None:
            yield
            return
        with Live(console=self._screen, refresh_per_second=1, transient=True, get_renderable=self._display):
            yield

    def session_failed(self, arm_id: str, error: EngineError) -> None:
        """See `measure.Observer`; so for the next two."""
        self._line(f"warning: {self._called(arm_id)}: {error.message}")

    def block_excluded(self, found: Disturbance, wait_s: float) -> None:
        self._line(words().render(excluded_block(found, wait_s)))

    def machine_sampled(self, sample: Telemetry, host: Host) -> None:
        if told := self._silence.news_line(
            self._called(self._arm_id), sample, host, ours=self._ours, threads=self._threads
        ):
            self._line(told)

    def _line(self, text: str) -> None:
        self._screen.say(text, wrap=self._screen.is_terminal)  # a terminal would break words

    @abstractmethod
    def _called(self, arm_id: str) -> str: ...

    @abstractmethod
    def _display(self) -> RenderableType: ...


class RunProgress(LiveProgress):
    """Observer of a run that reports to stderr: what runs now, what is done, interim numbers, time left.

    The folder is read when it is opened, and again if blocks were added or excluded; requests are added in between.
    """

    def __init__(self, folder: Path, screen: Screen, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(screen, None, ("{task.fields[done]}", "{task.fields[left]}"), clock)
        self._folder = folder
        self._store: RunReader | None = None
        self._so_far: RunSoFar | None = None
        self._run: Progress | None = None
        self._names: dict[str, str] = {}
        self._block: int | None = None
        self._said_at = -_LINE_S

    @contextmanager
    def shown(self) -> Generator[None]:
        """As above; then programs hear what became of the run."""
        from specmeter.analysis.progress import read_progress

        with super().shown():
            yield
        if isinstance(self._screen, JsonScreen):
            with suppress(StoreError):  # the run is over, and a folder that is gone does not change that
                self._run = read_progress(self._folder)
                self._tell()

    def opened(self, store: RunReader, *, resumed: bool) -> None:
        """The folder is open: how much is left."""
        self._store = store
        self._read()
        if self._run is None:
            return
        missing, total = self._run.planned - self._run.done, self._run.planned
        text = f"{counted(missing, 'request')} to measure, into {self._folder}"
        if resumed:
            text = f"resuming {missing} of {total} requests into {self._folder}"
        if not missing:
            kept = f"all {counted(total, 'request')} are in {self._folder}; checking them"
            text = f"nothing left to measure: {kept if total else f'every block in {self._folder} was excluded'}"
        self._line(text)

    def looking_ahead(self, doing: Message) -> None:
        """See `measure.Observer`."""
        self._silence.broken()
        text = words().render(doing)
        if self._progress is not None:
            self._progress.update(self._task, description=printable(text))
        elif not isinstance(self._screen, JsonScreen):
            self._line(text)

    def session_starting(self, cell: Cell, requests: int) -> None:  # noqa: ARG002
        """See `measure.Observer`."""
        self._silence.broken()
        self._arm_id = cell.arm_id
        if self._so_far is None or (cell.invocation, cell.block) not in self._so_far.blocks:
            self._read()
        if self._so_far is None:
            return
        self._so_far.start(time.time())
        self._show(self._so_far.progress(cell))
        if (run := self._run) is None:
            return
        block = f"block {run.block}/{run.blocks}"
        if self._progress is not None:
            self._progress.update(self._task, description=printable(f"{block}  {self._called(cell.arm_id)}"))
        elif not isinstance(self._screen, JsonScreen) and run.block != self._block:
            self._line(f"{block}: {run.done}/{run.planned} requests done{self._left_text(', about ')}")
        self._block = run.block

    def request_done(self, request: Request) -> None:
        """See `measure.Observer`."""
        self._silence.broken()
        if self._run is None or self._so_far is None:
            return
        self._so_far.add(request)
        self._run = self._run.after(request)
        if self._progress is not None:
            reached = decode_rate(request.reply.timings) if request.reply else None
            shown = f"{rate(reached)}  " if reached else ""
            self._count(self._run)
            self._progress.update(self._task, left=shown + self._left_text(""))
        elif time.monotonic() - self._said_at >= _LINE_S:
            self._tell()

    def block_excluded(self, found: Disturbance, wait_s: float) -> None:
        """See `measure.Observer`."""
        super().block_excluded(found, wait_s)
        self._read()

    def _read(self) -> None:
        """Look into the folder; a run does not end because that fails."""
        from specmeter.analysis.progress import RunSoFar

        if self._store is None:
            return
        with suppress(StoreError):
            self._so_far = RunSoFar(self._store)
            arms = self._so_far.arms
            self._ours = not any(arm.engine.options.get("url") for arm in arms)
            self._threads = max((it.engine.threads for it in arms if it.engine.threads), default=None)
            names = Names(arms)
            self._names = {arm.id: words().render(names.in_full(arm.id)) for arm in arms}
            self._show(self._so_far.progress())

    def _show(self, run: Progress) -> None:
        self._run = run
        if self._progress is not None:
            self._count(run)
        self._tell()

    def _count(self, run: Progress) -> None:
        """Bring the bar up to date."""
        assert self._progress is not None
        done = f"{run.done}/{run.planned}"
        self._progress.update(self._task, completed=run.done, total=run.planned, done=done)

    def _tell(self) -> None:
        """A line for programs."""
        if isinstance(self._screen, JsonScreen) and self._run is not None:
            self._said_at = time.monotonic()
            self._screen.tell(self._run.document())

    def _display(self) -> RenderableType:
        """The bar, and below it the arms as far as they fit on the screen."""
        assert self._progress is not None
        if (run := self._run) is None:
            return self._progress
        table = Table(box=None, pad_edge=False)
        table.add_column("interim: unfinished, not checked", overflow="ellipsis", no_wrap=True, style="dim")
        for column in ("done", "tok/s", "speedup"):
            table.add_column(column, justify="right", no_wrap=True, style="dim")
        room = max(0, self._screen.height - 5)
        place = next((at for at, arm in enumerate(run.arms) if arm.arm_id == run.arm_id), 0)
        first = max(0, min(place - room // 2, len(run.arms) - room))
        shown = run.arms[first : first + room]
        for arm in shown:
            table.add_row(*self._row(arm, run.arm_id), style="bold" if arm.arm_id == run.arm_id else None)
        hidden = len(run.arms) - len(shown)
        more = [Text(f"{hidden} more configurations", style="dim")] if hidden else []
        return Group(self._progress, table, *more)

    def _row(self, arm: ArmProgress, running: str | None) -> tuple[str, str, str, str]:
        speedup = "baseline" if arm.role == "baseline" else so_far(arm.speedup)
        marker = "> " if arm.arm_id == running else "  "
        reached = f"{arm.tokens_per_second:.1f}" if arm.tokens_per_second else ""
        return marker + self._called(arm.arm_id), f"{arm.done}/{arm.planned}", reached, speedup

    def _called(self, arm_id: str) -> str:
        return self._names.get(arm_id, arm_id)

    def _left_text(self, before: str) -> str:
        seconds = None if self._run is None else self._run.seconds_left
        return "" if seconds is None else f"{before}{duration(seconds)} left"


def so_far(speedup: Estimate | None) -> str:
    """A speedup on the way: with its interval where there is one already that says anything."""
    if speedup is None:
        return ""
    if speedup.low is None or speedup.high is None or is_uninformative(speedup.low, speedup.high):
        return f"~{ratio(speedup.point)}"
    return f"~{ratio(speedup.point)} {brackets(speedup, 2)}"


@contextmanager
def model_progress(screen: Screen) -> Generator[ModelProgressBar]:
    """A display of models being made or downloaded; appears with the first one."""
    bar = ModelProgressBar(screen)
    try:
        yield bar
    finally:
        bar.close()


class ModelProgressBar:
    """Callable with (name, bytes done, bytes in all)."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._progress: Bars | None = None
        self._tasks: dict[str, TaskID] = {}

    def __call__(self, name: str, done: int, total: int) -> None:
        """Show that `done` of `total` bytes of the model are there."""
        if not self._screen.is_terminal:
            if name not in self._tasks:
                self._tasks[name] = TaskID(0)
                self._screen.say(f"preparing model {name} ({size(total)})")
            return
        if self._progress is None:
            self._progress = Bars(
                plain_column("preparing model {task.description}"),
                BarColumn(bar_width=24),
                DownloadColumn(),
                TransferSpeedColumn(),
                console=self._screen,
                transient=True,
            )
            self._progress.start()
        if name not in self._tasks:
            self._tasks[name] = self._progress.add_task(printable(name), total=total)
        self._progress.update(self._tasks[name], completed=done, total=total)

    def close(self) -> None:
        """Take the display away."""
        if self._progress is not None:
            self._progress.stop()


@contextmanager
def part_progress(
    screen: Screen, *, verb: str = "measuring ", tenths: bool = False
) -> Generator[Callable[[str, int, int], None]]:
    """Callable with (part, done, in all): a bar on a terminal, otherwise a line at the beginning of each part, and with
    `tenths` for each tenth of it."""
    told: set[tuple[str, int]] = set()

    def tell(what: str, done: int, total: int) -> None:
        tenth = 10 * done // total if tenths and total else 0
        if (what, tenth) not in told:
            told.add((what, tenth))
            screen.say(f"{verb}{what}" + (f" ({10 * tenth}%)" if tenth else ""), wrap=False)

    if not screen.is_terminal:
        yield tell
        return
    counts: tuple[ProgressColumn, ...] = (plain_column("{task.completed}/{task.total}"), TimeRemainingColumn())
    columns = (plain_column("{task.description}"), BarColumn(24), *((TimeElapsedColumn(),) if tenths else counts))
    with Bars(*columns, console=screen, transient=True) as bars:
        task, now = bars.add_task("starting", total=None), ""

        def show(what: str, done: int, total: int) -> None:
            nonlocal task, now
            if what != now:
                now = what
                bars.remove_task(task)
                task = bars.add_task(printable(what), total=total or None)
            bars.update(task, completed=done)

        yield show


def plain_column(form: str) -> TextColumn:
    """A column of a display in which nothing is markup."""
    return TextColumn(form, markup=False)
