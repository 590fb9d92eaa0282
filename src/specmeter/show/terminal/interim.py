"""What a run says so far, by the same summary as at its end; nothing here is checked, and all of it may change."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from specmeter.numbers.rates import target_forwards
from specmeter.record import Arm, Estimate, Request

if TYPE_CHECKING:
    from specmeter.analysis.summary import ArmSummary, RequestCounts
    from specmeter.numbers.stats import Pool

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
        from specmeter.numbers.stats import Pool

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

    def update(self) -> None:
        """Summarise what there is; between sessions, so that every cell under load is finished."""
        self._under_load = {
            arm.id: found for arm in self._arms if arm.id in self._cells and (found := self._of_cells(arm))
        }
        if not self._rows:
            return
        from specmeter.analysis.summary import summarize

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
        from specmeter.numbers.stats import geometric_speedup

        mine, theirs = self._cells[arm.id], self._cells.get(arm.baseline_id or "", {})
        by_rate = arm.load is not None and arm.load.clients is None
        both = [(mine[at].pool(by_rate=by_rate), theirs[at].pool(by_rate=by_rate)) for at in mine if at in theirs]
        pairs = [pair for pair in both if all(it.tokens > 0 and it.ms > 0 for it in pair)]
        return geometric_speedup(pairs) if pairs else None
