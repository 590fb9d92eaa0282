"""Configurations against each other within blocks: noise that both share cancels, gaps are completed."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest

import moe306_data as made
from claims_of import rulings
from specmeter.numbers.stats import t_critical
from specmeter.record import Estimate
from specmeter_studies.library.moe_306.lines import LARGE, MOE, SMALL, at, baseline_of, speculative
from specmeter_studies.library.moe_306.ratios import faster, mean_gain, ratio, widened
from specmeter_studies.study import ArmResult, PromptResult, StudyData

WEATHER = (1.0, 0.6, 1.7)
"""What each block does to all rates."""
PROMPTS = ("fact", "code", "reason", "zh")
OF_PROMPT = dict(zip(PROMPTS, (1.3, 0.8, 1.1, 0.9), strict=True))
"""What each prompt does to the gain."""


def generations(data: StudyData, *, small: float = 1.1, turns: bool = False) -> Iterator[PromptResult]:
    """Three blocks of every line; the smaller draft is `small` times as fast; baselines leave a prompt out in turn."""
    for line in data.arms:
        if line.suite not in ("A", "B") or line.prompt is not None:
            continue
        gain = (small if line.draft == SMALL else 1.0) if line.speculates else 1.0
        for block, weather in enumerate(WEATHER):
            for place, prompt in enumerate(PROMPTS):
                if turns and not line.speculates and place == block:
                    continue
                by_prompt = OF_PROMPT[prompt] if line.speculates else 1.0
                wobble = 1 + 0.002 * (block - 1) * (1 if line.draft == SMALL else -1)
                yield PromptResult(
                    config=line.config,
                    target=line.target,
                    prompt=prompt,
                    repeat=block,
                    decode_rate=100 * gain * weather * by_prompt * wobble,
                )


def measured(*, small: float = 1.1, turns: bool = False) -> StudyData:
    """Intervals of speedups too wide to tell anything apart, and generations that tell."""
    data = made.study(1.0, spread=0.5)
    return dataclasses.replace(data, results=tuple(generations(data, small=small, turns=turns)))


def pair(data: StudyData) -> tuple[ArmResult, ArmResult]:
    small, large = at(data, MOE[0], SMALL, 8), at(data, MOE[0], LARGE, 8)
    assert small is not None
    assert large is not None
    return small, large


def test_what_a_block_does_to_both_cancels() -> None:
    data = measured()
    found = ratio(data, *pair(data))
    assert found is not None
    assert found.point == pytest.approx(1.1, rel=1e-3)
    assert found.low is not None
    assert found.low > 1.08
    assert faster(data, *pair(data))
    assert not faster(data, *reversed(pair(data)))


@pytest.mark.parametrize(("small", "expected"), [(1.1, "supported"), (1 / 1.1, "contradicted"), (1.0, "cannot tell")])
def test_the_smallest_draft_is_judged_within_blocks(small: float, expected: str) -> None:
    assert rulings(measured(small=small))["practice-2"] == expected


def test_baselines_that_take_prompts_in_turn_are_completed() -> None:
    """Gains differ by prompt, and each block lacks another one; the mean over prompts is the same as without gaps."""
    whole, gaps = (mean_gain(data, speculative(data, "B")) for data in (measured(turns=False), measured(turns=True)))
    assert whole is not None
    assert gaps is not None
    assert gaps.point == pytest.approx(whole.point, rel=1e-6)
    assert gaps.low == pytest.approx(whole.low, rel=1e-3)


def test_without_generations_speedups_are_compared_as_independent() -> None:
    """1.2 and 1.0, each +- 10 %: apart if and only if ln 1.2 is above the two half widths added as squares."""
    near = made.study(lambda config: 1.2 if config.draft == SMALL else 1.0, spread=0.1)
    assert ratio(near, *pair(near)) is None
    assert faster(near, *pair(near))
    far = made.study(lambda config: 1.2 if config.draft == SMALL else 1.0, spread=0.15)
    assert not faster(far, *pair(far))
    assert not faster(near, *pair(near), among=12)


def test_intervals_that_hold_together_are_wider_by_students_values() -> None:
    one = Estimate(point=2.0, low=1.6, high=2.5, n=3, unit="x", method="made up")
    five = widened(one, 5)
    by = t_critical(2, 0.99) / t_critical(2, 0.95)
    assert five.low == pytest.approx(2.0 * 0.8**by)
    assert five.high == pytest.approx(2.0 * 1.25**by)
    assert widened(one, 1) is one
    bare = Estimate(point=2.0, n=1, unit="x", method="made up")
    assert widened(bare, 5) is bare


def test_other_targets_are_compared_by_their_gains() -> None:
    """Rates of one are three times those of the other; both gain alike."""
    data = measured()
    first, second = (at(data, target, SMALL, 8) for target in MOE)
    assert first is not None
    assert second is not None
    assert baseline_of(data, first) is not baseline_of(data, second)
    found = ratio(data, first, second)
    assert found is not None
    assert found.point == pytest.approx(1.0)
