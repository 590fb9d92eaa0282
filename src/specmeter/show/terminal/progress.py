"""What a person sees on stderr while a run goes on: a live display on a terminal, plain lines elsewhere.

What a run says so far, by the same summary as at its end; nothing here is checked, and all of it may change.
"""

from __future__ import annotations

import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    ProgressColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.table import Table
from rich.text import Text

from specmeter.analysis.answer import says_nothing
from specmeter.analysis.summary import summarize
from specmeter.errors import EngineError
from specmeter.messages import words
from specmeter.numbers.rates import decode_rate, target_forwards
from specmeter.numbers.stats import Pool, geometric_speedup
from specmeter.record import Arm, Disturbance, Estimate, Request
from specmeter.show.names import Names
from specmeter.show.sentence import set_aside
from specmeter.text import brackets, counted, duration, printable, rate, ratio, size

if TYPE_CHECKING:
    from specmeter.analysis.summary import ArmSummary, RequestCounts
    from specmeter.experiments.schedule import Turn
    from specmeter.measure import Work
    from specmeter.show.terminal.console import Screen
    from specmeter.store import RequestKey


MOST_REQUESTS = 20_000
"""Longer runs are not summarised on the way: it would take time from their sessions."""


class Done(NamedTuple):
    """A request as `summary` needs it."""

    arm_id: str
    invocation: int
    block: int
    prompt_id: str
    kind: str
    status: Literal["ok", "failed"]
    started_at: float
    prompt_n: int | None
    prompt_ms: float | None
    predicted_n: int | None
    predicted_ms: float | None
    draft_n: int | None
    draft_n_accepted: int | None
    target_forwards: int | None


@dataclass
class _Cell:
    """A cell under load, added up request by request."""

    session_id: str
    tokens: int = 0
    decoded: int = 0
    decode_ms: float = 0.0
    began_at: float = math.inf
    ended_at: float = -math.inf

    def add(self, request: Request) -> None:
        if (reply := request.reply) is None:
            return
        self.tokens += reply.timings.predicted_n
        self.decoded += max(0, reply.timings.predicted_n - 1)
        self.decode_ms += reply.timings.predicted_ms
        self.began_at = min(self.began_at, request.started_at)
        self.ended_at = max(self.ended_at, request.started_at + reply.wall_ms / 1000)

    @property
    def ms(self) -> float:
        return max(0.0, 1000 * (self.ended_at - self.began_at))

    def pool(self, *, by_rate: bool) -> Pool:
        """Throughput; where requests arrive by a rate that is what was offered, and time per output token counts."""
        return Pool(self.decoded, self.decode_ms) if by_rate else Pool(self.tokens, self.ms)


class Interim:
    """Collects requests; summarises them when asked, which is done between sessions."""

    def __init__(
        self, arms: Mapping[str, Arm], timing_only: Sequence[str], before: Iterable[RequestCounts], total: int
    ) -> None:
        self._arms = list(arms.values())
        self._timing_only = timing_only
        self._rows: list[RequestCounts] = list(before) if total <= MOST_REQUESTS else []
        self._kept = total <= MOST_REQUESTS
        self._cells: dict[str, dict[tuple[int, int], _Cell]] = {arm.id: {} for arm in self._arms if arm.load}
        self.arms: dict[str, ArmSummary] = {}
        """As of the last `update`, by arm; controls included."""
        self._under_load: dict[str, Estimate] = {}

    def add(self, request: Request) -> None:
        """A request has ended."""
        if (cells := self._cells.get(request.arm_id)) is not None:
            at = (request.invocation, request.block)
            if at not in cells or cells[at].session_id != request.session_id:  # or it is measured again
                cells[at] = _Cell(request.session_id)
            cells[at].add(request)
        if not self._kept:
            return
        timings = request.reply.timings if request.reply else None
        self._rows.append(
            Done(
                request.arm_id,
                request.invocation,
                request.block,
                request.prompt_id,
                request.kind,
                request.status,
                request.started_at,
                timings.prompt_n if timings else None,
                timings.prompt_ms if timings else None,
                timings.predicted_n if timings else None,
                timings.predicted_ms if timings else None,
                timings.draft_n if timings else None,
                timings.draft_n_accepted if timings else None,
                target_forwards(timings, request.reply.steps) if timings and request.reply else None,
            )
        )

    def drop(self, invocation: int, block: int) -> Counter[str]:
        """Forget a block; arm -> how many of its requests that were."""
        gone = [it for it in self._rows if (it.invocation, it.block) == (invocation, block)]
        self._rows = [it for it in self._rows if (it.invocation, it.block) != (invocation, block)]
        for cells in self._cells.values():
            cells.pop((invocation, block), None)
        return Counter(it.arm_id for it in gone if it.status == "ok")

    def update(self) -> None:
        """Summarise what there is; between sessions, so that every cell under load is finished."""
        self._under_load = {
            arm.id: found for arm in self._arms if arm.id in self._cells and (found := self._of_cells(arm))
        }
        if not self._rows:
            return

        summary = summarize(self._rows, self._arms, timing_only=self._timing_only)
        self.arms = {arm.arm_id: arm for arm in (*summary.arms, *summary.controls)}

    def speedups(self) -> list[tuple[str, Estimate]]:
        """(arm id, speedup so far) of arms that are results, in the order of the experiment."""
        found = ((arm.id, self.speedup(arm.id)) for arm in self._arms if arm.role == "speculative")
        return [(arm_id, speedup) for arm_id, speedup in found if speedup is not None]

    def speedup(self, arm_id: str) -> Estimate | None:
        """As of the last `update`; None where there is none yet."""
        return self._under_load.get(arm_id) or (self.arms[arm_id].speedup if arm_id in self.arms else None)

    def rate(self, arm_id: str) -> float | None:
        """Tokens per second: under load of all its cells together, from first to last request."""
        if (cells := self._cells.get(arm_id)) is not None:
            ms = sum(it.ms for it in cells.values())
            return 1000 * sum(it.tokens for it in cells.values()) / ms if ms > 0 else None
        rate = self.arms[arm_id].decode_rate if arm_id in self.arms else None
        return rate.point if rate else None

    def _of_cells(self, arm: Arm) -> Estimate | None:
        """The speedup of the cells that both it and its baseline have finished, ramp and drain included."""
        mine, theirs = self._cells[arm.id], self._cells.get(arm.baseline_id or "", {})
        by_rate = arm.load is not None and arm.load.clients is None
        both = [(mine[at].pool(by_rate=by_rate), theirs[at].pool(by_rate=by_rate)) for at in mine if at in theirs]
        pairs = [pair for pair in both if all(it.tokens > 0 and it.ms > 0 for it in pair)]
        return geometric_speedup(pairs) if pairs else None


_ARMS_TOLD = 6
"""In one line off a terminal."""


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

    def to_do_again(self, arm_id: str, count: int) -> None:
        """So many requests of the arm do not count."""
        self._left[arm_id] += count

    def waited(self) -> None:
        """What passed since the last request belongs to none."""
        self._last = time.monotonic()

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
    """Observer of a run that reports to stderr: what runs now, what is done, interim numbers, time left."""

    def __init__(
        self,
        work: Work,
        missing: Sequence[RequestKey],
        total: int,
        screen: Screen,
        before: Iterable[RequestCounts] = (),
    ) -> None:
        self._screen = screen
        self._blocks = work.experiment.design.blocks * work.experiment.design.invocations
        self._per_invocation = work.experiment.design.blocks
        self._total = total
        self._done = total - len(missing)
        self._time_left = TimeLeft(missing)
        self._arms = work.arms
        names = Names(work.arms.values())
        self._called = {arm_id: words().render(names.in_full(arm_id)) for arm_id in work.arms}
        self._of_arm = Counter(arm_id for _, _, arm_id, _ in work.keys())  # noqa: SIM118
        self._done_of_arm = self._of_arm - Counter(key.arm_id for key in missing)
        timing_only = [model.name for model in work.models.values() if model.timing_only]
        self._interim = Interim(work.arms, timing_only, before, total)
        self._block: int | None = None
        self._now: tuple[str, int, int] | None = None
        self._progress: Progress | None = None
        self._task = TaskID(0)
        if screen.is_terminal:
            self._progress = Progress(
                plain_column("{task.description}"),
                BarColumn(bar_width=24),
                plain_column("{task.completed}/{task.total}"),
                plain_column("{task.fields[left]}"),
                console=screen,
                transient=True,
                auto_refresh=False,
            )
            self._task = self._progress.add_task("starting", total=total, completed=self._done, left="")

    @contextmanager
    def shown(self) -> Generator[None]:
        """Keep the display on the screen meanwhile. It is drawn once a second: more would take from the engine."""
        if self._progress is None:
            yield
            return
        self._interim.update()
        with Live(console=self._screen, refresh_per_second=1, transient=True, get_renderable=self._display):
            yield

    def looking_ahead(self, arm_id: str) -> None:
        """See `measure.Observer`. Off a terminal there is no hurry to say what is about to end."""
        if self._progress is not None:
            text = f"probing what steps of {self._called[arm_id]} cost"
            self._progress.update(self._task, description=printable(text))

    def session_starting(self, cell: Turn, requests: int) -> None:
        """See `measure.Observer`."""
        block = cell.invocation * self._per_invocation + cell.block + 1
        text = f"block {block}/{self._blocks}  {self._called[cell.arm_id]}"
        self._now = (cell.arm_id, 0, requests)
        if self._progress is not None:
            self._interim.update()
            self._progress.update(self._task, description=printable(text))
        else:
            if block != self._block:
                self._interim.update()
                self._print_interim()
            left = self._left_text(", about ")
            self._line(f"[{self._done}/{self._total}] {text}: {counted(requests, 'request')}{left}")
        self._block = block

    def request_done(self, request: Request) -> None:
        """See `measure.Observer`."""
        self._done += 1
        self._done_of_arm[request.arm_id] += 1
        self._time_left.request_done(request.arm_id)
        self._interim.add(request)
        if self._now is not None:
            self._now = (self._now[0], self._now[1] + 1, self._now[2])
        if self._progress is not None:
            reached = decode_rate(request.reply.timings) if request.reply else None
            shown = f"{rate(reached)}  " if reached else ""
            self._progress.update(self._task, completed=self._done, left=shown + self._left_text(""))

    def session_failed(self, arm_id: str, error: EngineError) -> None:
        """See `measure.Observer`."""
        self._line(f"warning: {self._called[arm_id]}: {error.message}")

    def block_set_aside(self, found: Disturbance) -> None:
        """See `measure.Observer`."""
        for arm_id, count in self._interim.drop(found.invocation, found.block).items():
            self._done_of_arm[arm_id] -= count
            self._time_left.to_do_again(arm_id, count if found.again else 0)
        self._done -= found.requests
        self._total -= 0 if found.again else found.requests
        self._line(words().render(set_aside(found)))

    def further(self, keys: Iterable[tuple[int, int, str, str]]) -> None:
        """More is planned now: further blocks of a run that ends when it decides."""
        counts = Counter(arm_id for _, _, arm_id, _ in keys)
        for arm_id, count in counts.items():
            self._of_arm[arm_id] += count
            self._time_left.to_do_again(arm_id, count)
        self._total += counts.total()
        if self._progress is not None:
            self._progress.update(self._task, total=self._total)

    def _display(self) -> RenderableType:
        """The bar, and below it the arms as far as they fit on the screen."""
        assert self._progress is not None
        table = Table(box=None, pad_edge=False)
        table.add_column("interim: unfinished, not checked", overflow="ellipsis", no_wrap=True, style="dim")
        for column in ("done", "tok/s", "speedup"):
            table.add_column(column, justify="right", no_wrap=True, style="dim")
        room = max(0, self._screen.height - 5)
        arms = list(self._arms)
        running = self._now[0] if self._now is not None else None
        place = arms.index(running) if running is not None and running in self._arms else 0
        first = max(0, min(place - room // 2, len(arms) - room))
        for arm_id in arms[first : first + room]:
            table.add_row(*self._row(arm_id), style="bold" if arm_id == running else None)
        hidden = len(arms) - len(arms[first : first + room])
        more = [Text(f"{hidden} more arms", style="dim")] if hidden else []
        return Group(self._progress, table, *more)

    def _row(self, arm_id: str) -> tuple[str, str, str, str]:
        reached = self._interim.rate(arm_id)
        speedup = "baseline" if self._arms[arm_id].role == "baseline" else _so_far(self._interim.speedup(arm_id))
        marker = "> " if self._now is not None and arm_id == self._now[0] else "  "
        done = f"{self._done_of_arm[arm_id]}/{self._of_arm[arm_id]}"
        return marker + self._called[arm_id], done, f"{reached:.1f}" if reached else "", speedup

    def _print_interim(self) -> None:
        """One line at the start of a block: how speedups stand."""
        found = self._interim.speedups()
        if not found:
            return
        told = "; ".join(f"{self._called[arm_id]} {_so_far(speedup)}" for arm_id, speedup in found[:_ARMS_TOLD])
        more = f", and {len(found) - _ARMS_TOLD} more" if len(found) > _ARMS_TOLD else ""
        self._line(f"interim speedups (unfinished, not checked): {told}{more}")

    def _line(self, text: str) -> None:
        self._screen.say(text, wrap=False)

    def _left_text(self, before: str) -> str:
        seconds = self._time_left.seconds()
        return "" if seconds is None else f"{before}{duration(seconds)} left"


def _so_far(speedup: Estimate | None) -> str:
    """A speedup on the way: with its interval where there is one already that says anything."""
    if speedup is None:
        return ""
    if speedup.low is None or speedup.high is None or says_nothing(speedup.low, speedup.high):
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
        self._progress: Progress | None = None
        self._tasks: dict[str, TaskID] = {}

    def __call__(self, name: str, done: int, total: int) -> None:
        """Show that `done` of `total` bytes of the model are there."""
        if not self._screen.is_terminal:
            if name not in self._tasks:
                self._tasks[name] = TaskID(0)
                self._screen.say(f"preparing model {name} ({size(total)})")
            return
        if self._progress is None:
            self._progress = Progress(
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
    with Progress(*columns, console=screen, transient=True) as bars:
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
