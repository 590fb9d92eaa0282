"""What a person sees on stderr while a run goes on: a live display on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TransferSpeedColumn

from specmeter.cli.text import printable_lines
from specmeter.errors import EngineError
from specmeter.rates import decode_rate
from specmeter.record import Request

if TYPE_CHECKING:
    from specmeter.measure import Work
    from specmeter.schedule import Cell
    from specmeter.store import RequestKey


class TimeLeft:
    """Time left, from how long requests of each arm have taken so far, session start and warm-up included."""

    def __init__(self, missing: Sequence[RequestKey]) -> None:
        self._left: dict[str, int] = defaultdict(int)
        for key in missing:
            self._left[key.arm_id] += 1
        self._seconds: dict[str, float] = defaultdict(float)
        self._done: dict[str, int] = defaultdict(int)
        self._last = time.monotonic()

    def request_done(self, arm_id: str) -> None:
        """A request of the arm has just ended; all time since the last one is its own."""
        now = time.monotonic()
        self._seconds[arm_id] += now - self._last
        self._done[arm_id] += 1
        self._left[arm_id] -= 1
        self._last = now

    def seconds(self) -> float | None:
        """None before anything has been measured. Arms not measured yet count with the mean of the others."""
        done = sum(self._done.values())
        if not done:
            return None
        mean = sum(self._seconds.values()) / done
        return sum(
            left * (self._seconds[arm] / self._done[arm] if self._done[arm] else mean)
            for arm, left in list(self._left.items())
        )


class RunProgress:
    """Observer of a run that reports to stderr."""

    def __init__(self, work: Work, missing: Sequence[RequestKey], total: int, console: Console) -> None:
        self._console = console
        self._blocks = work.experiment.design.blocks * work.experiment.design.invocations
        self._per_invocation = work.experiment.design.blocks
        self._total = total
        self._done = total - len(missing)
        self._time_left = TimeLeft(missing)
        self._progress: Progress | None = None
        self._task = TaskID(0)
        if console.is_terminal:
            self._progress = Progress(
                TextColumn("[progress.description]{task.description}"),
                BarColumn(bar_width=24),
                TextColumn("{task.completed}/{task.total}"),
                TextColumn("{task.fields[left]}"),
                console=console,
                transient=True,
            )
            self._task = self._progress.add_task("starting", total=total, completed=self._done, left="")

    @contextmanager
    def shown(self) -> Generator[None]:
        """Keep the display on the screen meanwhile."""
        if self._progress is None:
            yield
        else:
            with self._progress:
                yield

    def session_starting(self, cell: Cell, requests: int) -> None:
        """See `measure.Observer`."""
        block = cell.invocation * self._per_invocation + cell.block + 1
        text = f"block {block}/{self._blocks}  {cell.arm_id}"
        if self._progress is not None:
            self._progress.update(self._task, description=escape(text))
        else:
            plural = "request" if requests == 1 else "requests"
            self._line(f"[{self._done}/{self._total}] {text}: {requests} {plural}{self._left_text(', about ')}")

    def request_done(self, request: Request) -> None:
        """See `measure.Observer`."""
        self._done += 1
        self._time_left.request_done(request.arm_id)
        if self._progress is not None:
            rate = decode_rate(request.reply.timings) if request.reply else None
            shown = f"{rate:.1f} tok/s  " if rate else ""
            self._progress.update(self._task, completed=self._done, left=shown + self._left_text(""))

    def session_failed(self, arm_id: str, error: EngineError) -> None:
        """See `measure.Observer`."""
        self._line(f"warning: {arm_id}: {error.message}")

    def _line(self, text: str) -> None:
        self._console.print(escape(printable_lines(text)), highlight=False, soft_wrap=True)

    def _left_text(self, before: str) -> str:
        seconds = self._time_left.seconds()
        return "" if seconds is None else f"{before}{duration(seconds)} left"


@contextmanager
def model_progress(console: Console) -> Generator[ModelProgressBar]:
    """A display of models being made or downloaded; appears with the first one."""
    bar = ModelProgressBar(console)
    try:
        yield bar
    finally:
        bar.close()


class ModelProgressBar:
    """Callable with (name, bytes done, bytes in all)."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress: Progress | None = None
        self._tasks: dict[str, TaskID] = {}

    def __call__(self, name: str, done: int, total: int) -> None:
        """Show that `done` of `total` bytes of the model are there."""
        if not self._console.is_terminal:
            if name not in self._tasks:
                self._tasks[name] = TaskID(0)
                self._console.print(escape(f"preparing model {name} ({total / 1e6:,.0f} MB)"), highlight=False)
            return
        if self._progress is None:
            self._progress = Progress(
                TextColumn("preparing model {task.description}"),
                BarColumn(bar_width=24),
                DownloadColumn(),
                TransferSpeedColumn(),
                console=self._console,
                transient=True,
            )
            self._progress.start()
        if name not in self._tasks:
            self._tasks[name] = self._progress.add_task(escape(name), total=total)
        self._progress.update(self._tasks[name], completed=done, total=total)

    def close(self) -> None:
        """Take the display away."""
        if self._progress is not None:
            self._progress.stop()


def duration(seconds: float) -> str:
    """`45 s`, `3 min 20 s`, `2 h 05 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def error_console() -> Console:
    """Console for everything that is not data."""
    return Console(file=sys.stderr)
