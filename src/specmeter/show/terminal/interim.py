"""What a run says so far, by the same summary as at its end; nothing here is checked, and all of it may change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from specmeter.numbers.rates import target_forwards
from specmeter.record import Arm, Estimate, Request

if TYPE_CHECKING:
    from specmeter.analysis.summary import ArmSummary, RequestCounts

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


class Interim:
    """Collects requests; summarises them when asked, which is done between sessions."""

    def __init__(
        self, arms: Mapping[str, Arm], timing_only: Sequence[str], before: Iterable[RequestCounts], total: int
    ) -> None:
        self._arms = list(arms.values())
        self._timing_only = timing_only
        self._rows: list[RequestCounts] = list(before) if total <= MOST_REQUESTS else []
        self._kept = total <= MOST_REQUESTS
        self.arms: dict[str, ArmSummary] = {}
        """As of the last `update`, by arm; controls included."""

    def add(self, request: Request) -> None:
        """A request has ended."""
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
        """Summarise what there is."""
        if not self._rows:
            return
        from specmeter.analysis.summary import summarize

        summary = summarize(self._rows, self._arms, timing_only=self._timing_only)
        self.arms = {arm.arm_id: arm for arm in (*summary.arms, *summary.controls)}

    def speedups(self) -> list[tuple[str, Estimate]]:
        """(arm id, speedup so far) of arms that are results, in the order of the experiment."""
        found = ((arm_id, arm) for arm_id, arm in self.arms.items() if arm.role == "speculative")
        return [(arm_id, arm.speedup) for arm_id, arm in found if arm.speedup is not None]
