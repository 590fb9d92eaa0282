"""How far a run has come and what it says so far, for terminals, programs and live pages.

Nothing here is checked and all of it may change. A run reads its own folder once and adds its requests as they end.
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, Field

from specmeter.analysis.summary import interim
from specmeter.experiments.schedule import Cell
from specmeter.numbers.stats import Pool, geometric_speedup
from specmeter.record import Arm, Disturbance, Estimate, Record
from specmeter.store import RunStore
from specmeter.store.database import unreadable
from specmeter.store.guarded import is_written
from specmeter.store.rows import RequestKey, row_of

if TYPE_CHECKING:
    from pathlib import Path

    from specmeter.record import Request
    from specmeter.store import RequestRow, RunReader


MAX_REQUESTS = 20_000
"""Longer runs are not summarised on the way: it would take time from their sessions."""
_DONE = "SELECT arm_id, count(*) FROM request WHERE superseded = 0 AND status = 'ok' GROUP BY arm_id"
_FAILED = "SELECT invocation, block, arm_id, prompt_id FROM request WHERE superseded = 0 AND status = 'failed'"
_BY_SESSION = """SELECT session_id, min(arm_id), count(*), max(started_at + coalesce(wall_ms, 0) / 1000) FROM request
    WHERE superseded = 0 GROUP BY session_id"""


class ArmProgress(Record):
    """How far an arm has come."""

    arm_id: str
    role: str
    done: int
    planned: int
    seconds_each: float | None
    """That a request of it has taken so far, start of its session and warm-up included; None where time is virtual."""
    tokens_per_second: float | None
    """Under load of all its finished cells together, from first to last request."""
    speedup: Estimate | None
    """So far, over finished blocks; under load with ramp and drain, which the summary leaves out. None above gamma + 1,
    what a step emits at most: then a request of the baseline was held up."""


class Progress(Record):
    """Progress of a run. Interim: unfinished, unchecked, and no result."""

    name: str
    """Of the experiment."""
    state: Literal["measuring", "checking", "complete", "partial", "failed"]
    """`measuring` and `checking` while a process writes to the run."""
    done: int
    """Requests that were answered and count."""
    planned: int
    failed: int
    block: int | None
    """The one that is measured, from 1."""
    blocks: int
    arm_id: str | None
    """What is measured now, where that is known."""
    seconds_left: float | None
    """From how long requests have taken so far; None before anything was measured, and where time is virtual."""
    arms: tuple[ArmProgress, ...]
    aside: Annotated[tuple[Disturbance, ...], Field(exclude=True)] = ()
    """Blocks that were excluded so far."""
    waits: Annotated[bool, Field(exclude=True)] = False
    """For a calm machine, to measure the last of them again."""
    asked: Annotated[tuple[Arm, ...], Field(exclude=True)] = ()
    """What the arms are, for those who name them."""

    def after(self, request: Request) -> Progress:
        """The same once a request has been answered, without looking into the folder."""
        if request.status != "ok":
            return self
        arms = tuple(
            it.model_copy(update={"done": it.done + 1}) if it.arm_id == request.arm_id else it for it in self.arms
        )
        return self.model_copy(update={"done": self.done + 1, "arms": arms, "seconds_left": _seconds_left(arms)})

    def document(self) -> dict[str, Any]:
        """The line that programs read."""
        return {"event": "progress", "interim": True, **self.model_dump(mode="json")}


class RunSoFar:
    """What a run says so far: read from its folder once, and added to as requests are answered."""

    def __init__(self, store: RunReader) -> None:
        """Reads everything. Raises `StoreError`."""
        state = store.state()
        self.arms = tuple(store.arms())
        self.blocks = list(dict.fromkeys(store.raw("SELECT DISTINCT invocation, block FROM plan ORDER BY 1, 2")))
        self.sessions = _sessions(store)
        self.aside = tuple(store.disturbances())
        self._state = state
        self._name = str(json.loads(store.experiment_json)["name"])
        self._planned = store.planned()
        self._done = Counter({str(arm_id): int(count) for arm_id, count in store.raw(_DONE)})
        self._failed = {RequestKey(*key) for key in store.raw(_FAILED)} if state.failed else set[RequestKey]()
        self._rows: dict[RequestKey, RequestRow] | None = None
        if state.planned <= MAX_REQUESTS:
            self._rows = {row.key: row for row in store.rows()}
        self._virtual = any(model.simulated for model in store.models())
        self._seconds, self._requests = _spent(store, {it.id: it.started_at for it in self.sessions})
        self._at = 0.0

    def start(self, now: float) -> None:
        """A session starts."""
        self._at = now

    def add(self, request: Request) -> None:
        """A request has ended."""
        row = row_of(request, 1)
        known = self._rows is not None and row.key in self._rows and row.key not in self._failed
        if row.status == "failed":
            self._failed.add(row.key)
        else:
            self._failed.discard(row.key)
            self._done[row.arm_id] += not known
        if self._rows is not None:
            self._rows[row.key] = row
        ended = max(self._at, row.started_at + (row.wall_ms or 0.0) / 1000)
        self._seconds[row.arm_id] += ended - self._at
        self._requests[row.arm_id] += 1
        self._at = ended

    def progress(self, now: Cell | None = None, *, written: bool = True) -> Progress:
        """How far it has come; `now` is the cell that starts, `written` whether a process writes to the run."""
        last = now or (self.sessions[-1] if written and self.sessions else None)
        at = (last.invocation, last.block) if last else None
        arms = self._arms()
        waits = self.sessions and self.aside and self.sessions[-1].started_at <= self.aside[-1].ended_at
        state = replace(self._state, ok=self._done.total(), failed=len(self._failed))
        return Progress(
            name=self._name,
            state=state.state_now(written=written),
            done=state.ok,
            planned=state.planned,
            failed=state.failed,
            block=self.blocks.index(at) + 1 if at in self.blocks else None,
            blocks=len(self.blocks),
            arm_id=last.arm_id if last and (isinstance(last, Cell) or last.ended_at is None) else None,
            seconds_left=_seconds_left(arms),
            arms=arms,
            aside=self.aside,
            waits=bool(written and waits and self.aside[-1].again),
            asked=self.arms,
        )

    def _arms(self) -> tuple[ArmProgress, ...]:
        rows = [] if self._rows is None else list(self._rows.values())
        told, cells = interim(rows, self.arms), _cells(rows, {arm.id for arm in self.arms if arm.load})
        found: list[ArmProgress] = []
        for arm in self.arms:
            rate, speedup = told[arm.id]
            if arm.load is not None:
                rate, speedup = _rate(cells.get(arm.id, {})), _speedup(arm, cells)
            requests = 0 if self._virtual else self._requests[arm.id]
            found.append(
                ArmProgress(
                    arm_id=arm.id,
                    role=arm.role,
                    done=self._done[arm.id],
                    planned=self._planned.get(arm.id, 0),
                    seconds_each=self._seconds[arm.id] / requests if requests else None,
                    tokens_per_second=rate,
                    speedup=None if speedup and arm.gamma and speedup.point > arm.gamma + 1 else speedup,
                )
            )
        return tuple(found)


def read_progress(folder: Path) -> Progress:
    """How far a run has come, by its folder alone. Raises `StoreError`."""
    with RunStore.open(folder, readonly=True) as store:
        so_far = RunSoFar(store)
    return so_far.progress(written=is_written(folder))


class _Started(BaseModel):
    """What is needed of a `Session`, whose bulk would take longer."""

    id: str
    arm_id: str
    invocation: int
    block: int
    started_at: float
    ended_at: float | None = None


def _sessions(store: RunReader) -> list[_Started]:
    try:
        return [_Started.model_validate_json(text) for (text,) in store.raw("SELECT json FROM session ORDER BY seq")]
    except ValueError as error:
        raise unreadable(store.path, "a row of the table session", error) from None


def _spent(store: RunReader, started: Mapping[str, float]) -> tuple[defaultdict[str, float], Counter[str]]:
    """Arm -> seconds from the start of each of its sessions to the end of the last request there, and requests."""
    seconds, requests = defaultdict[str, float](float), Counter[str]()
    for session, arm_id, count, end in store.raw(_BY_SESSION):
        if session in started:
            seconds[arm_id] += max(0.0, end - started[session])
            requests[arm_id] += count
    return seconds, requests


def _seconds_left(arms: Sequence[ArmProgress]) -> float | None:
    """Arms not measured yet count with the mean of the others."""
    if all(it.done >= it.planned for it in arms):
        return 0.0
    known = [it.seconds_each for it in arms if it.seconds_each is not None]
    if not known:
        return None
    mean = sum(known) / len(known)
    return sum((mean if it.seconds_each is None else it.seconds_each) * max(0, it.planned - it.done) for it in arms)


@dataclass
class _Cell:
    """A cell under load, added up request by request."""

    tokens: int = 0
    decoded: int = 0
    decode_ms: float = 0.0
    began_at: float = math.inf
    ended_at: float = -math.inf

    def add(self, row: RequestRow) -> None:
        if row.predicted_n is None:
            return
        self.tokens += row.predicted_n
        self.decoded += max(0, row.predicted_n - 1)
        self.decode_ms += row.predicted_ms or 0.0
        self.began_at = min(self.began_at, row.started_at)
        self.ended_at = max(self.ended_at, row.started_at + (row.wall_ms or 0.0) / 1000)

    @property
    def ms(self) -> float:
        return max(0.0, 1000 * (self.ended_at - self.began_at))

    def pool(self, *, by_rate: bool) -> Pool:
        """Throughput; where requests arrive by a rate that is what was offered, and time per output token counts."""
        return Pool(self.decoded, self.decode_ms) if by_rate else Pool(self.tokens, self.ms)


_Cells = dict[tuple[int, int], _Cell]


def _cells(rows: Iterable[RequestRow], under_load: set[str]) -> dict[str, _Cells]:
    """Cells under load, which are in the folder when they are finished."""
    found: dict[str, _Cells] = {arm_id: {} for arm_id in under_load}
    for row in rows:
        if row.arm_id in under_load:
            found[row.arm_id].setdefault((row.invocation, row.block), _Cell()).add(row)
    return found


def _rate(cells: _Cells) -> float | None:
    ms = sum(it.ms for it in cells.values())
    return 1000 * sum(it.tokens for it in cells.values()) / ms if ms > 0 else None


def _speedup(arm: Arm, cells: Mapping[str, _Cells]) -> Estimate | None:
    """The speedup of the cells that both it and its baseline have finished, ramp and drain included."""
    mine, theirs = cells[arm.id], cells.get(arm.baseline_id or "", {})
    by_rate = arm.load is not None and arm.load.clients is None
    both = [(mine[at].pool(by_rate=by_rate), theirs[at].pool(by_rate=by_rate)) for at in mine if at in theirs]
    pairs = [pair for pair in both if all(it.tokens > 0 and it.ms > 0 for it in pair)]
    return geometric_speedup(pairs) if pairs else None
