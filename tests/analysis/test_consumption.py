"""Joules per token: ratios by blocks, idle power beside them, and no number where readings do not cover the time."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from analysis.test_summary import ARMS, BASE, DRAFT, drafted, fake
from specmeter.analysis.consumption import Consumption, Energies
from specmeter.analysis.summary import ArmSummary, summarize
from specmeter.messages import Message
from specmeter.record import PowerMeter, RequestEnergy
from specmeter.store import RequestRow

TOKENS = 101
PROMPTS = ("a", "b")


def plain(block: int, prompt_id: str, ms: float = 4000, invocation: int = 0) -> RequestRow:
    return fake(BASE.id, block, prompt_id, ms, invocation=invocation)


def rows(blocks: int = 4, invocations: int = 1) -> list[RequestRow]:
    return [
        make(block, prompt, ms, invocation=invocation)
        for invocation in range(invocations)
        for block in range(blocks)
        for prompt in PROMPTS
        for make, ms in ((plain, 4000.0), (drafted, 2000.0))
    ]


def energies(
    rows: list[RequestRow], watts: Callable[[RequestRow], float], *, unseen_s: float = 0.0, idle_w: float | None = 10.0
) -> Energies:
    """What a counter says that draws so many watts while a row runs."""
    read = [
        RequestEnergy(
            invocation=row.invocation,
            block=row.block,
            arm_id=row.arm_id,
            prompt_id=row.prompt_id,
            joules={"package-0": watts(row) * seconds * 0.75, "dram-0": watts(row) * seconds * 0.25},
            seconds=seconds,
            unseen_s=unseen_s,
        )
        for row in rows
        if row.predicted_ms is not None
        for seconds in ((row.predicted_ms + 100) / 1000,)
    ]
    return Energies(read, [PowerMeter(sources=("package-0", "dram-0"), idle_w=idle_w)])


def summed(rows: list[RequestRow], read: Energies) -> tuple[ArmSummary, Consumption]:
    base, arm = summarize(rows, ARMS, energies=read).arms
    assert base.energy is not None
    assert base.energy.ratio is None
    assert arm.energy is not None
    return base, arm.energy


def noisy(row: RequestRow) -> float:
    """40 W for plain decoding, 60 W with drafts, a little more or less in each block, each in its own way."""
    watts, turn = (40, 3) if row.arm_id == BASE.id else (60, 1)
    return watts * (1 + 0.01 * ((row.block * turn + row.invocation) % 4))


def test_joules_per_token_and_their_ratio() -> None:
    measured = rows()
    base, arm = summed(measured, energies(measured, lambda row: 40 if row.arm_id == BASE.id else 60))
    assert base.energy is not None
    assert base.energy.per_token is not None
    assert base.energy.per_token.point == pytest.approx(40 * 4.1 / TOKENS)
    assert base.energy.per_token.unit == "J/token"
    assert arm.per_token is not None
    assert arm.ratio is not None
    assert arm.per_token.point == pytest.approx(60 * 2.1 / TOKENS)
    # Half the time at one and a half times the power.
    assert arm.ratio.point == pytest.approx(60 * 2.1 / (40 * 4.1))
    assert arm.power_w == pytest.approx(60)
    assert arm.sources == ("package-0", "dram-0")
    # Equal to the last digit: copies, no repetition.
    assert arm.ratio.low is None


def test_what_is_above_idle_is_told_beside_it() -> None:
    measured = rows()
    _, arm = summed(measured, energies(measured, noisy))
    assert arm.idle_w == 10
    assert arm.above_idle is not None
    assert arm.ratio_above_idle is not None
    assert arm.ratio is not None
    assert arm.per_token is not None
    assert arm.above_idle.point == pytest.approx(arm.per_token.point - 10 * 2.1 / TOKENS)
    assert arm.ratio_above_idle.point == pytest.approx(arm.ratio.point * (50 / 60) / (30 / 40), rel=0.02)
    assert arm.ratio.low is not None
    assert arm.ratio.low < arm.ratio.point
    assert (arm.ratio.n, arm.ratio.of) == (4, "blocks")


def test_power_at_rest_is_that_of_the_same_sources() -> None:
    """A start that could read one of two sources says nothing of the power of both."""
    measured = rows()
    read = energies(measured, noisy)
    both, one = PowerMeter(sources=("package-0", "dram-0"), idle_w=10.0), PowerMeter(sources=("package-0",), idle_w=7.0)
    requests = list(read.by_key.values())
    _, arm = summed(measured, Energies(requests, [one, both]))
    assert arm.idle_w == 10
    _, arm = summed(measured, Energies(requests, [one]))
    assert arm.idle_w is None
    assert arm.above_idle is None
    assert arm.per_token is not None


def test_the_ratio_has_the_interval_over_blocks() -> None:
    measured = rows()

    def watts(row: RequestRow) -> float:
        return 40 * (1.0, 1.1, 0.9, 1.05)[row.block] if row.arm_id == DRAFT.id else 40

    _, arm = summed(measured, energies(measured, watts))
    logs = [math.log(2.1 / 4.1 * factor) for factor in (1.0, 1.1, 0.9, 1.05)]
    mean = sum(logs) / 4
    error = math.sqrt(sum((log - mean) ** 2 for log in logs) / 3 / 4)
    assert arm.ratio is not None
    assert arm.ratio.high is not None
    assert arm.ratio.point == pytest.approx(math.exp(mean))
    assert arm.ratio.high == pytest.approx(math.exp(mean + 3.182446 * error))


def test_several_invocations_are_the_units() -> None:
    measured = rows(blocks=2, invocations=3)
    _, arm = summed(measured, energies(measured, noisy))
    assert arm.ratio is not None
    assert (arm.ratio.n, arm.ratio.of) == (3, "invocations")


def test_prompts_that_one_side_lacks_count_on_neither() -> None:
    measured = rows()
    thirsty = [row for row in measured if not (row.arm_id == BASE.id and row.prompt_id == "b")]
    _, arm = summed(thirsty, energies(thirsty, lambda row: 600 if row.prompt_id == "b" else 60))
    assert arm.ratio is not None
    assert arm.ratio.point == pytest.approx(2.1 / 4.1)


@pytest.mark.parametrize("share", [0.09, 0.11])
def test_too_few_readings_tell_nothing(share: float) -> None:
    measured = rows()
    base = energies(measured, noisy)
    sparse = [it.model_copy(update={"unseen_s": share * it.seconds}) for it in base.by_key.values()]
    _, arm = summed(measured, Energies(sparse, []))
    assert (arm.per_token is None) == (share > 0.1)
    assert (arm.ratio is None) == (share > 0.1)
    assert (arm.why is not None and arm.why.code == "consumption.between_readings") == (share > 0.1)


def test_other_sources_are_other_joules() -> None:
    measured = rows()
    read = energies(measured, noisy)
    mixed = [
        it.model_copy(update={"joules": {"package-0": 1.0}}) if it.arm_id == BASE.id else it
        for it in read.by_key.values()
    ]
    _, arm = summed(measured, Energies(mixed, []))
    assert arm.per_token is not None
    assert arm.ratio is None
    assert arm.why == Message("consumption.no_ratio", why=Message("consumption.other_sources"))
    changed = [
        it.model_copy(update={"joules": {"package-0": 1.0}}) if it.block == 0 else it for it in read.by_key.values()
    ]
    _, arm = summed(measured, Energies(changed, []))
    assert (arm.per_token, arm.why) == (None, Message("consumption.sources_changed"))


def test_counters_that_stand_still_tell_nothing() -> None:
    measured = rows()
    _, arm = summed(measured, energies(measured, lambda _: 0))
    assert (arm.per_token, arm.why) == (None, Message("consumption.stood_still"))


def test_rest_above_work_leaves_nothing_above_it() -> None:
    measured = rows()
    _, arm = summed(measured, energies(measured, noisy, idle_w=100))
    assert arm.per_token is not None
    assert (arm.above_idle, arm.ratio_above_idle) == (None, None)


def test_runs_without_readings_say_nothing() -> None:
    assert [arm.energy for arm in summarize(rows(), ARMS).arms] == [None, None]
    measured = rows()
    read = energies([row for row in measured if row.arm_id == DRAFT.id], noisy)
    base, arm = summarize(measured, ARMS, energies=read).arms
    assert base.energy is None
    assert arm.energy is not None
    assert arm.energy.why == Message("consumption.no_ratio", why=Message("consumption.baseline_unread"))
