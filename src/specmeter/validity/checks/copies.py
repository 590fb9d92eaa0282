"""Whether requests were measured, each by itself, or copied from one another."""

from __future__ import annotations

from collections.abc import Iterator

from specmeter.validity.checks.check import Check
from specmeter.validity.checks.evidence import answered, not_applicable
from specmeter.validity.checks.request_data import RequestData
from specmeter.validity.checks.run_data import RunData
from specmeter.verdicts import Findings, about_arm


def copied_requests(data: RunData) -> Findings:
    """Requests for the same prompt with the same times, to the last digit that clocks have.

    Clocks count in nanoseconds (on Windows, in tenths of a microsecond), and a request has several times of its own:
    its duration, the engine's two, the arrivals of its tokens. That three of them agree by chance happens once in many
    millions of pairs; a block that was copied over another agrees in all.
    """
    if data.simulated:
        yield not_applicable(None, "time is virtual and may repeat itself")
        return
    by_prompt: dict[str, list[RequestData]] = {}
    for _, requests in answered(data):
        for request in requests:
            by_prompt.setdefault(request.row.prompt_id, []).append(request)
    copies: dict[str, list[tuple[RequestData, RequestData]]] = {}
    for requests in by_prompt.values():
        first: dict[tuple[object, ...], RequestData] = {}
        for request in requests:
            twins = [first.setdefault(times, request) for times in _times(request)]
            twin = next((it for it in twins if it is not request), None)
            if twin is not None:
                copies.setdefault(request.row.arm_id, []).append((request, twin))
    for arm_id, pairs in copies.items():
        copy, twin = (it.row for it in pairs[0])
        yield about_arm(
            "copied-requests",
            "invalid",
            arm_id,
            f"{len(pairs)} requests have the times of other requests to the last digit: {copy.prompt_id} in "
            f"block {copy.block} of invocation {copy.invocation} equals that of {twin.arm_id} in block "
            f"{twin.block} of invocation {twin.invocation}",
            "measure these blocks: a copy says nothing about repetition",
            requests=len(pairs),
            wall_ms=copy.wall_ms,
            predicted_ms=copy.predicted_ms,
        )


def _times(request: RequestData) -> Iterator[tuple[object, ...]]:
    """Sets of times that belong to one request alone."""
    row, arrivals = request.row, request.arrivals
    if (row.predicted_n or 0) > 1:
        yield "durations", row.wall_ms, row.prompt_ms, row.predicted_ms
    if arrivals is not None and arrivals.tokens > 1:
        yield "arrivals", arrivals.first_ms, arrivals.last_ms, arrivals.sum_ms


CHECKS: tuple[Check, ...] = (
    Check(
        "copied-requests",
        "a block was copied over others, so repetition shows nothing",
        "invalid",
        copied_requests,
        saw=("requests", "replies"),
        assumes="no two requests take the same time in three clock readings to the last digit: identity",
        otherwise="a clock that ticks in whole ms, with an engine that rounds as coarsely, could repeat itself",
    ),
)
