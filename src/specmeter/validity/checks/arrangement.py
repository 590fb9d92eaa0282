"""Checks of the design: order, repetition, completeness, and what a mean may hide.

Speeds are compared within prompts and as natural logarithms (`specmeter.validity.checks.baseline`): 0.05 is 5 % up or
down.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from specmeter.analysis.requests import BlockKey
from specmeter.experiments.schedule import Balance, achieved_balance
from specmeter.messages import Message
from specmeter.numbers.margin import MARGIN
from specmeter.record import Arm, Finding
from specmeter.record.verdict import Findings
from specmeter.validity.checks.check import SHARED, Check, compared_arms, not_applicable, not_checkable, of_arm, of_run
from specmeter.validity.checks.requests import Requests
from specmeter.validity.checks.run_data import RunData
from specmeter.validity.checks.speeds import (
    MIN_REPEATS,
    BlockEffect,
    CarryOver,
    Drift,
    Speeds,
    carry_over,
    drift,
    repeats,
    speeds_of,
    two_levels,
)


def _percent(log: float) -> float:
    return round(100 * math.expm1(log), 2)


# --- order-confounded ------------------------------------------------------------------------------------------------

_BALANCED = 0.4
"""Complete Latin and Williams orders reach 0.5 or more in any number of blocks, the same order every time reaches 0."""
_LEANS = 0.5
"""Share of places by which an arm lies on one side of its baseline: 1 is always before it, or always after."""
_DRIFT_T = 5.0
_BIAS = 0.02
_PAUSE_S = 1800.0
_BY_CHANCE = 1e-4
"""Of arms that leave nothing behind, so few look as if they did."""


def order_confounded(data: RunData) -> Findings:
    """Orders that put an arm earlier or later than its baseline again and again, by the clock and not by the plan.

    Either the balance of all answered requests is below 0.4 (a complete Latin order has 0.5 or more, `as-written` has
    0, and a random one what it happens to have), and the arm leans to one side of its baseline by half of its places or
    more. Or rates drift within blocks, at five standard errors, and what that does to an arm that was measured later
    than its baseline on average is 2 % or more of its speedup. A single block cannot be balanced; then, and where a
    block was interrupted for half an hour, it is a note.

    Likewise what an arm leaves behind for the next one (heat, memory): estimated from which arm ran before which, it
    shifts the speedup of an arm that others preceded than its baseline.

    Assumes: changes over time affect all configurations alike.
    Otherwise: a configuration with its own drift cannot be recognized: suspect at most.
    """
    arms = compared_arms(data)
    if not arms:
        yield not_applicable(None, Message("unchecked.no_baseline"))
        return
    starts = {cell: arms_ for cell, arms_ in _starts(data).items() if len(arms_) > 1}
    if not starts:
        yield not_checkable(None, Message("unchecked.no_two_arms"))
        return
    yield from _paused(data)
    if len(starts) == 1:
        yield of_run("note", Message("order-confounded.one_block"), Message("order-confounded.fix_one_block"), blocks=1)
        return
    balance = achieved_balance((arm_id, cell, at) for cell, row in starts.items() for arm_id, at in row.items())
    unbalanced = balance.score is not None and balance.score < _BALANCED
    if unbalanced:
        for arm in arms:
            yield from _leaning(arm, starts, balance)
        return
    points, arm_ids = _points(data, starts), list(data.by_arm)
    drifting, left = drift(points), carry_over(points)
    for arm in arms:
        yield from _drifting(arm, starts, drifting)
        yield from _carried(arm, left, arm_ids)


def _starts(data: RunData) -> dict[BlockKey, dict[str, float]]:
    """Block -> arm -> mean start of its answered requests, in seconds since the epoch."""
    found: dict[BlockKey, dict[str, float]] = {}
    for arm_id, requests in data.by_arm.items():
        cells, which = requests.distinct("invocation", "block")
        sums, counts = np.bincount(which, requests.number("started_at")).tolist(), np.bincount(which).tolist()
        for (invocation, block), total, count in zip(cells, sums, counts, strict=True):
            found.setdefault((invocation, block), {})[arm_id] = total / count
    return found


def _leaning(arm: Arm, starts: Mapping[BlockKey, Mapping[str, float]], balance: Balance) -> Findings:
    baseline = arm.baseline_id or ""
    offsets: list[int] = []
    for row in starts.values():
        if arm.id in row and baseline in row:
            order = sorted(row, key=row.__getitem__)
            offsets.append(order.index(arm.id) - order.index(baseline))
    if not offsets or abs(sum(offsets)) < _LEANS * sum(map(abs, offsets)):
        return
    late = sum(offset > 0 for offset in offsets)
    yield of_arm(
        "suspect",
        arm.id,
        Message("order-confounded.after", blocks_after_baseline=late, blocks=len(offsets))
        if sum(offsets) > 0
        else Message("order-confounded.before", blocks_before_baseline=len(offsets) - late, blocks=len(offsets)),
        balance=round(balance.score or 0.0, 3),
        blocks_after_baseline=late,
        mean_places_after_baseline=round(sum(offsets) / len(offsets), 2),
    )


def _points(data: RunData, starts: Mapping[BlockKey, Mapping[str, float]]) -> list[BlockEffect]:
    blocks = {cell: number for number, cell in enumerate(starts)}
    return [
        BlockEffect(number, blocks[cell], starts[cell][arm_id], effect)
        for number, (arm_id, requests) in enumerate(data.by_arm.items())
        for cell, effect in speeds_of(requests).by_block().items()
        if cell in starts
    ]


def _drifting(arm: Arm, starts: Mapping[BlockKey, Mapping[str, float]], drift: Drift | None) -> Findings:
    baseline = arm.baseline_id or ""
    later = [row[arm.id] - row[baseline] for row in starts.values() if arm.id in row and baseline in row]
    if drift is None or not later:
        return
    mean = sum(later) / len(later)
    bias = drift.per_s * mean
    if abs(bias) >= _BIAS and drift.ratio >= _DRIFT_T:
        yield of_arm(
            "suspect",
            arm.id,
            Message(
                "order-confounded.drift",
                drift_percent_per_minute=_percent(60 * drift.per_s),
                seconds_after_baseline=mean,
                bias_percent=100 * math.expm1(bias),
            ),
            Message("order-confounded.fix_drift"),
            standard_errors=round(min(drift.ratio, 1e6), 1),
            seconds_after_baseline=round(mean, 1),
            bias_percent=_percent(bias),
        )


def _carried(arm: Arm, carry: CarryOver | None, arm_ids: Sequence[str]) -> Findings:
    """Speedups that what ran before shifts, because other arms ran before an arm than before its baseline."""
    if carry is None or carry.chance > _BY_CHANCE:
        return
    met = {arm_ids[number]: left for number, left in carry.met.items()}
    baseline = arm.baseline_id or ""
    bias = met[arm.id] - met[baseline] if arm.id in met and baseline in met else 0.0
    worst = max((it for it in carry.left if it >= 0), key=lambda it: abs(carry.left[it]))
    if abs(bias) >= _BIAS:
        yield of_arm(
            "suspect",
            arm.id,
            Message(
                "order-confounded.carried",
                before=arm_ids[worst],
                left_percent=100 * math.expm1(carry.left[worst]),
                bias_percent=100 * math.expm1(bias),
            ),
            Message("order-confounded.fix_carried"),
            chance=carry.chance,
            bias_percent=_percent(bias),
        )


def _paused(data: RunData) -> Findings:
    """Blocks in which half an hour or more passed between one request and the next, loading of models apart.

    A `grouped` design is all pauses; that it is out of order is said of its arms.
    """
    if data.simulated or data.experiment.design.order == "grouped":
        return
    torn: dict[BlockKey, float] = {}
    ends: dict[BlockKey, tuple[float, str]] = {}
    answered = data.requests.at(data.requests.where("status", "ok"))
    for *place, name, started_at, ms in answered.values("invocation", "block", "session_id", "started_at", "wall_ms"):
        cell: BlockKey = (place[0], place[1])
        end, session_id = ends.get(cell, (started_at, name))
        session = data.sessions.get(name) if name != session_id else None
        loading_s = (session.ready_ms + session.warmup_ms) / 1000 if session else 0.0
        pause = started_at - loading_s - end
        if pause >= _PAUSE_S:
            torn[cell] = max(pause, torn.get(cell, 0.0))
        ends[cell] = (started_at + (ms or 0.0) / 1000, name)
    if torn:
        cell, pause = max(torn.items(), key=lambda item: item[1])
        yield of_run(
            "note",
            Message("order-confounded.interrupted", block=cell[1], invocation=cell[0], hours=pause / 3600),
            Message("order-confounded.fix_interrupted"),
            blocks_interrupted=len(torn),
            longest_pause_s=round(pause),
        )


# --- within-run-only -------------------------------------------------------------------------------------------------


def within_run_only(data: RunData) -> Findings:
    """Runs of one invocation: what their intervals say holds for that afternoon.

    Assumes: blocks of one session share what may differ on another day.
    Otherwise: this is always so, so it is a note.
    """
    invocations = {it for requests in data.by_arm.values() for it in requests.different("invocation")}
    if not invocations:
        yield not_checkable(None, data.unanswered())
    elif len(invocations) == 1:
        yield of_run("note", Message("within-run-only.found"), Message("within-run-only.fix"), invocations=1)


# --- incomplete-matrix -----------------------------------------------------------------------------------------------


def incomplete_matrix(data: RunData) -> Findings:
    """Arms whose answered requests are not exactly what was planned: every prompt in every block, each once.

    Baselines that take their prompts in turn (`baseline_per_block`) are planned on fewer in each block.

    Assumes: the stored plan is what should have been measured.
    Otherwise: `experiment-differs` finds a plan that was changed.
    """
    if not data.planned:
        yield not_checkable(None, Message("unchecked.no_plan"))
        return
    for arm_id in data.arms:
        once = data.by_arm[arm_id].firsts(*_PLACE)
        planned, there = data.planned.get(arm_id, 0), len(once)
        if there == planned == len(data.by_arm[arm_id]):
            continue
        failed = data.requests.at(data.requests.where("arm_id", arm_id) & ~data.requests.where("status", "ok"))
        twice = len(data.by_arm[arm_id]) - there
        yield of_arm(
            "suspect",
            arm_id,
            Message(
                "incomplete-matrix.found",
                answered=there,
                planned=planned,
                twice=Message("incomplete-matrix.twice", requests=twice) if twice else "",
                why=Message("incomplete-matrix.why", error=why) if (why := _first_failure(failed)) else "",
            ),
            failed=len(failed),
            missing=max(0, planned - there),
            **_first_missing(data, data.arms[arm_id], set(once.values(*_PLACE))),
        )


_PLACE = ("invocation", "block", "prompt_id")


def _first_failure(failed: Requests) -> str | None:
    """Why the first of an arm's failed requests failed."""
    errors = failed.values("error")
    return next((" ".join(error.partition("\n  fix: ")[0].split())[:300] for (error,) in errors if error), None)


def _first_missing(data: RunData, arm: Arm, answered: Collection[tuple[Any, ...]]) -> dict[str, Message]:
    """The first of an arm's planned places among blocks and prompts that has no answer."""
    design = data.experiment.design
    prompts = [it for it in data.prompts.values() if not arm.workloads or it.workload in arm.workloads]
    for invocation in data.experiment.invocations:
        for block in range(design.blocks):
            for prompt in data.experiment.due(arm, prompts, invocation, block):
                if (invocation, block, prompt.id) not in answered:
                    return {
                        "first_missing": Message(
                            "incomplete-matrix.place", prompt=prompt.id, block=block, invocation=invocation
                        )
                    }
    return {}


# --- stopped-when-decided --------------------------------------------------------------------------------------------


def stopped_when_decided(data: RunData) -> Findings:
    """Runs whose number of blocks depends on what was measured in them: the race of an advice.

    Assumes: the recorded experiment says when it stops.
    Otherwise: this is a note in any case.
    """
    if data.experiment.design.stopping != "decided":
        yield not_applicable(None, Message("unchecked.blocks_fixed"))
        return
    yield of_run(
        "note",
        Message("stopped-when-decided.found"),
        most_blocks=data.experiment.design.blocks,
    )


# --- bimodal ---------------------------------------------------------------------------------------------------------

_MIN_BLOCKS = 12
_PROMPTS_DIFFER = math.log(1.25)


def bimodal(data: RunData) -> Findings:
    """Two speeds that a mean hides: a core of another kind, a clock that switches, memory that lies well or badly.

    Prompts differ in speed for good reasons (that is a note), so repetitions of one prompt are compared: the absolute
    difference of its log rates in two blocks, less the median of that over prompts, which takes what differs between
    the blocks as wholes. If the noise of a request has one hump, these differences have one too, falling from 0
    (Hodges & Lehmann 1954, "Matching in paired experiments": the difference of two draws of one unimodal distribution
    is unimodal). Two speed levels make a second hump, at the distance of the levels. Hartigans' dip tells the two
    apart, at 1 % for the worst shape of noise, far less for round ones. Disjoint pairs of blocks are used, so that
    differences are independent, and at least 20 of them: 40 requests in an even number of blocks, 60 in three. Levels
    that lie less than some 7 times the noise of a request apart are not seen.

    Then the levels must matter: 5 % apart, a tenth of the differences between them, and 3.5 times further apart than
    the groups are wide. From 12 blocks on the same is asked of whole blocks, whose effects are ratios to the baseline's
    where there is one.

    Assumes: the noise of a request has one peak.
    Otherwise: noise with two peaks is what this looks for: suspect at most.
    """
    speeds = {arm_id: speeds_of(requests) for arm_id, requests in data.by_arm.items()}
    for arm_id, own in speeds.items():
        if not own.cells:
            yield not_checkable(arm_id, Message("unchecked.nothing_decoded"))
            continue
        if data.arms[arm_id].load is not None:
            yield not_applicable(arm_id, SHARED)
            continue
        yield from _prompts_differ(arm_id, own)
        repeated = repeats(own)
        if len(repeated) < MIN_REPEATS:
            yield not_checkable(arm_id, Message("unchecked.few_repetitions", needed=MIN_REPEATS))
        elif (levels := two_levels(repeated)) is not None:
            # Of two requests, 2q(1 - q) meet different levels when a share q of all requests is at one of them.
            share = (1 - math.sqrt(max(0.0, 1 - 2 * levels.upper_share))) / 2
            yield _two_speeds(arm_id, "requests", levels.apart, share, len(repeated))
        effects = _relative_effects(own, speeds.get(data.arms[arm_id].baseline_id or ""))
        if len(effects) >= _MIN_BLOCKS and (levels := two_levels(np.array(effects))) is not None:
            share = min(levels.upper_share, 1 - levels.upper_share)
            yield _two_speeds(arm_id, "blocks", levels.apart, share, len(effects))


def _relative_effects(own: Speeds, baseline: Speeds | None) -> list[float]:
    """How much faster than usual an arm was in each block, relative to its baseline there."""
    usual = None if baseline is None else baseline.by_block()
    effects = own.by_block()
    if usual is None:
        return list(effects.values())
    return [effect - usual[cell] for cell, effect in effects.items() if cell in usual]


def _two_speeds(arm_id: str, of: Literal["requests", "blocks"], apart: float, share: float, n: int) -> Finding:
    return of_arm(
        "suspect",
        arm_id,
        Message(f"bimodal.{of}", levels_apart_percent=100 * math.expm1(apart), share_percent=100 * share),
        levels_apart_percent=_percent(apart),
        share_percent=round(100 * share, 1),
        compared=n,
        of=of,
    )


def _prompts_differ(arm_id: str, speeds: Speeds) -> Findings:
    means = np.nanmean(speeds.logs, axis=1)
    low, high = np.quantile(means, [0.1, 0.9])
    if high - low < _PROMPTS_DIFFER:
        return
    slowest, fastest = int(np.argmin(means)), int(np.argmax(means))
    yield of_arm(
        "note",
        arm_id,
        Message(
            "bimodal.prompts", slowest_tok_per_s=math.exp(means[slowest]), fastest_tok_per_s=math.exp(means[fastest])
        ),
        Message("bimodal.fix_prompts"),
        slowest=speeds.prompts[slowest],
        slowest_tok_per_s=round(math.exp(means[slowest]), 2),
        fastest=speeds.prompts[fastest],
        fastest_tok_per_s=round(math.exp(means[fastest]), 2),
        prompts=len(means),
    )


# --- pooled-vs-mean --------------------------------------------------------------------------------------------------

_MEANS_DIFFER = 0.03
_SPEEDUPS_DIFFER = 0.01


def pooled_vs_mean(data: RunData) -> Findings:
    """Means that differ from pooled values: a reader must know which is which.

    The pooled rate is all tokens over all time, and the headline; the mean of rates counts a fast request as much as a
    slow one, and is never the smaller one for requests of equal length. Told from 3 % on. The speedup is the geometric
    mean over blocks, each block pooled; all tokens over all time, relative to the baseline, weighs slow blocks more.
    Told from 1 % on.

    Assumes: a reader may take one mean for the other.
    Otherwise: this is a note in any case.
    """
    for arm in data.summary.arms:
        gain = arm.gain
        if gain is not None and abs(gain.pooled_differs) > _SPEEDUPS_DIFFER:
            yield of_arm(
                "note",
                arm.arm_id,
                Message(
                    "pooled-vs-mean.speedup",
                    geometric_mean=gain.decoding.point,
                    of=Message(f"pooled-vs-mean.{gain.decoding.of}"),
                    all_tokens_over_all_time=gain.pooled.point,
                ),
                Message("pooled-vs-mean.fix_speedup"),
                geometric_mean=round(gain.decoding.point, 4),
                all_tokens_over_all_time=round(gain.pooled.point, 4),
                difference_percent=round(100 * gain.pooled_differs, 2),
            )
    for arm_id, requests in data.by_arm.items():
        tokens, ms = requests.whole("predicted_n"), np.nan_to_num(requests.number("predicted_ms"))
        decoded = (tokens > 1) & (ms > 0)
        if not decoded.any():
            yield not_checkable(arm_id, Message("unchecked.nothing_decoded"))
            continue
        if data.arms[arm_id].load is not None:
            yield not_applicable(arm_id, SHARED)
            continue
        tokens, ms = tokens[decoded].astype(np.float64) - 1, ms[decoded]
        pooled, mean = float(1000 * tokens.sum() / ms.sum()), float((1000 * tokens / ms).mean())
        if abs(mean / pooled - 1) > _MEANS_DIFFER:
            yield of_arm(
                "note",
                arm_id,
                Message("pooled-vs-mean.rate", pooled_tok_per_s=pooled, mean_of_requests_tok_per_s=mean),
                Message("pooled-vs-mean.fix_rate"),
                pooled_tok_per_s=round(pooled, 3),
                mean_of_requests_tok_per_s=round(mean, 3),
                difference_percent=round(100 * (mean / pooled - 1), 2),
                requests=len(ms),
            )


# --- stalls ----------------------------------------------------------------------------------------------------------


def stalls(data: RunData) -> Findings:
    """Requests that took half again as long as the same prompt of the same arm in other blocks (`find_stalls`).

    Suspect where they cost 2 % of the arm's decode time or more, else a note. Nothing is seen where no prompt was
    repeated. Never `invalid`: a stall may be what the machine always does.

    Assumes: a prompt takes a configuration the same time in every block, apart from noise.
    Otherwise: sampled outputs differ in length and cost, and their spread is allowed for: suspect at most.
    """
    arms = {arm.arm_id: arm for arm in (*data.summary.arms, *data.summary.controls)}
    for arm_id, requests in data.by_arm.items():
        if data.arms[arm_id].load is not None:
            yield not_applicable(arm_id, SHARED)
            continue
        blocks, _ = requests.distinct("invocation", "block")
        if len(blocks) < 2:
            yield not_checkable(arm_id, Message("unchecked.no_repeat"))
            continue
        if len(requests.different("prompt_id")) < 2:
            yield not_checkable(arm_id, Message("unchecked.one_prompt"))
            continue
        found = arms[arm_id].stalls
        if found is None or not found.requests:
            continue
        yield of_arm(
            "suspect" if found.share >= MARGIN else "note",
            arm_id,
            Message(
                "stalls.found",
                stalled=found.requests,
                requests=found.of,
                slowest_times_usual=found.slowest,
                lost_percent_of_decode_time=100 * found.share,
                blocks=len(blocks),
            ),
            slowest_times_usual=round(found.slowest, 2),
            lost_percent_of_decode_time=round(100 * found.share, 2),
        )


CHECKS: tuple[Check, ...] = (
    Check("order-confounded", "suspect", order_confounded, saw=("arms", "sessions", "requests")),
    Check("within-run-only", "note", within_run_only, saw=("requests",)),
    Check("incomplete-matrix", "suspect", incomplete_matrix, saw=("experiment", "plan", "prompts", "requests")),
    Check("stopped-when-decided", "note", stopped_when_decided, saw=("experiment",)),
    Check("bimodal", "suspect", bimodal, saw=("arms", "requests")),
    Check("pooled-vs-mean", "note", pooled_vs_mean, saw=("arms", "requests")),
    Check("stalls", "suspect", stalls, saw=("arms", "requests")),
)
