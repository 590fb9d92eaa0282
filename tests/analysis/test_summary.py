"""Summaries: like with like, failures in the open, controls apart, and 100,000 requests at once."""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Literal

import numpy as np
import pytest

from specmeter.analysis.answer import Answer, answers
from specmeter.analysis.summary import ArmSummary, RunSummary, summarize
from specmeter.errors import UsageError
from specmeter.experiments.schedule import in_turn
from specmeter.messages import Message
from specmeter.numbers.margin import compare, units_for
from specmeter.numbers.stats import Pool, geometric_speedup, simultaneous, speedup_over_invocations
from specmeter.record import Arm, Estimate
from specmeter.show.run_words import details, would_decide
from specmeter.show.run_words import sentence as say
from specmeter.store import RequestRow


def sentence(answer: Answer) -> str:
    return str(say(answer))


def told(answer: Answer) -> list[str]:
    return [str(it) for it in details(answer)]


BASE = Arm(id="moe/none", target="moe", role="baseline")
DRAFT = Arm(id="moe/draft", target="moe", draft="small", methods=("draft-simple",), gamma=4, baseline_id=BASE.id)
ARMS = (BASE, DRAFT)


def fake(
    arm_id: str,
    block: int,
    prompt_id: str,
    predicted_ms: float | None,
    predicted_n: int | None = 101,
    invocation: int = 0,
    kind: str = "fact",
    status: Literal["ok", "failed"] = "ok",
    started_at: float = 0.0,
    prompt_n: int | None = 20,
    prompt_ms: float | None = 100.0,
    draft_n: int | None = 50,
    draft_n_accepted: int | None = 0,
    target_forwards: int | None = 100,
) -> RequestRow:
    """A row as the store gives it; of what is not asked for nothing is known."""
    told = locals()
    unknown = dict.fromkeys(RequestRow._fields)
    return RequestRow(
        **{**unknown, "position": 0, "item": 0, "prompt_sha256": "", "session_id": "", "attempt": 1, **told}
    )


def failed(arm_id: str, block: int, prompt_id: str) -> RequestRow:
    return fake(arm_id, block, prompt_id, None, None, 0, "fact", "failed", 0.0, None, None, None, None, None)


def drafted(block: int, prompt_id: str, ms: float, accepted: int = 60, invocation: int = 0) -> RequestRow:
    return fake(
        DRAFT.id,
        block,
        prompt_id,
        ms,
        invocation=invocation,
        draft_n=100,
        draft_n_accepted=accepted,
        target_forwards=100 - accepted,
    )


def arm_of(summary: RunSummary, arm_id: str) -> ArmSummary:
    return next(arm for arm in (*summary.arms, *summary.controls) if arm.arm_id == arm_id)


def point(estimate: Estimate | None) -> float:
    assert estimate is not None
    return estimate.point


def test_speedup_is_that_of_stats_over_blocks() -> None:
    times = [(1000.0, 800.0), (1100.0, 820.0), (1050.0, 850.0)]
    rows = [
        row
        for b, (base, fast) in enumerate(times)
        for row in (fake(BASE.id, b, "p", base, draft_n=0), drafted(b, "p", fast))
    ]
    summary = summarize(rows, ARMS, planned={BASE.id: 3, DRAFT.id: 3})
    arm = arm_of(summary, DRAFT.id)
    assert arm.speedup == geometric_speedup([(Pool(100, fast), Pool(100, base)) for base, fast in times])
    assert arm.speedup_range is None
    assert arm_of(summary, BASE.id).speedup is None
    assert point(arm.decode_rate) == pytest.approx(300_000 / 2470)
    assert point(arm.prompt_rate) == pytest.approx(200.0)
    assert point(arm.acceptance) == pytest.approx(0.6)
    assert point(arm.tau) == pytest.approx(2.5)
    assert (arm.drafted, arm.accepted) == (300, 180)
    assert (summary.complete, summary.blocks, summary.prompts, summary.requests_ok) == (True, 3, 1, 6)
    baseline = arm_of(summary, BASE.id)
    assert baseline.acceptance is None
    assert point(baseline.tau) == 1.0


def test_only_prompts_and_blocks_that_both_completed_are_compared() -> None:
    rows = [
        fake(BASE.id, 0, "easy", 1000.0),
        failed(BASE.id, 0, "hard"),
        drafted(0, "easy", 500.0),
        drafted(0, "hard", 9000.0),  # no partner: would turn a gain into a loss
        drafted(1, "easy", 1.0),  # no baseline in its block
    ]
    summary = summarize(rows, ARMS, planned={BASE.id: 4, DRAFT.id: 4})
    arm = arm_of(summary, DRAFT.id)
    assert arm.speedup is not None
    assert (arm.speedup.point, arm.speedup.n, arm.speedup.low) == (2.0, 1, None)
    assert summary.complete is False
    assert (summary.requests_failed, summary.requests_missing) == (1, 3)
    assert arm_of(summary, BASE.id).requests_failed == 1


def test_no_pair_no_speedup() -> None:
    summary = summarize([fake(BASE.id, 0, "p", 10.0), drafted(1, "p", 5.0)], ARMS)
    assert arm_of(summary, DRAFT.id).speedup is None
    assert (summary.complete, summary.requests_missing) == (None, None)


def test_requests_that_decoded_nothing_enter_no_rate() -> None:
    row = fake(BASE.id, 0, "p", 0.0, predicted_n=1, target_forwards=None)
    arm = arm_of(summarize([row], ARMS), BASE.id)
    assert (arm.decode_rate, arm.tau, arm.requests_ok) == (None, None, 1)
    assert point(arm.prompt_rate) == pytest.approx(200.0)


def test_kinds_are_summarised_apart() -> None:
    rows = [
        fake(BASE.id, 0, "a", 1000.0),
        fake(BASE.id, 0, "b", 1000.0, kind="edit"),
        drafted(0, "a", 2000.0, accepted=10),
        fake(DRAFT.id, 0, "b", 250.0, kind="edit", draft_n=100, draft_n_accepted=90, target_forwards=10),
    ]
    kinds = arm_of(summarize(rows, ARMS), DRAFT.id).kinds
    assert {kind: point(summary.speedup) for kind, summary in kinds.items()} == pytest.approx(
        {"fact": 0.5, "edit": 4.0}
    )
    assert point(kinds["edit"].tau) == 10.0


def test_invocations_are_the_units_where_there_are_several() -> None:
    ratios = [[1.1, 1.2, 1.15], [1.3, 1.25, 1.35]]
    rows = [
        row
        for i, blocks in enumerate(ratios)
        for b, ratio in enumerate(blocks)
        for row in (fake(BASE.id, b, "p", 1000.0, invocation=i), drafted(b, "p", 1000 / ratio, invocation=i))
    ]
    arm = arm_of(summarize(rows, ARMS), DRAFT.id)
    expected = speedup_over_invocations(
        [[(Pool(100, 1000 / ratio), Pool(100, 1000.0)) for ratio in blocks] for blocks in ratios]
    )
    assert arm.speedup == expected.estimate
    assert arm.speedup_range == pytest.approx((expected.lowest, expected.highest))
    assert arm.speedup_bootstrap is None
    assert arm.decode_rate is not None
    assert arm.decode_rate.n == 2


def test_controls_and_cost_probes_are_not_results() -> None:
    control = Arm(id="moe/control", target="moe", role="control", synthetic_rates=(1.0,), baseline_id=BASE.id)
    probe = DRAFT.model_copy(update={"id": "moe/probe", "synthetic_rates": (0.8, 0.8)})
    rows = [fake(arm.id, 0, "p", 1000.0) for arm in (BASE, DRAFT, control, probe)]
    summary = summarize(rows, (BASE, DRAFT, control, probe))
    assert [arm.arm_id for arm in summary.arms] == [BASE.id, DRAFT.id, probe.id]
    assert [(arm.arm_id, arm.cost_probe) for arm in summary.controls] == [(control.id, "synthetic acceptance")]
    assert arm_of(summary, probe.id).cost_probe == "synthetic acceptance"
    assert arm_of(summary, DRAFT.id).cost_probe is None
    random = summarize(rows, (BASE, DRAFT, control, probe), timing_only={"small"})
    assert arm_of(random, DRAFT.id).cost_probe == "random weights"
    assert arm_of(random, BASE.id).cost_probe is None


def test_balance_comes_from_start_times() -> None:
    starts = ((BASE, 0, 9.0), (DRAFT, 0, 3.0), (BASE, 1, 11.0), (DRAFT, 1, 13.0))
    rows = [fake(arm.id, block, "p", 1.0, started_at=when) for arm, block, when in starts]
    assert summarize(rows, ARMS).balance.score == 1


def test_an_empty_run_is_summarised_as_empty() -> None:
    summary = summarize([], ARMS, planned={BASE.id: 2, DRAFT.id: 2})
    assert (summary.requests_ok, summary.requests_missing, summary.complete) == (0, 4, False)
    assert arm_of(summary, DRAFT.id).decode_rate is None
    assert summarize([], ()).arms == ()


def test_strangers_are_refused() -> None:
    with pytest.raises(UsageError, match="unknown arm 'x'"):
        summarize([fake("x", 0, "p", 1.0)], ARMS)
    with pytest.raises(UsageError, match="baseline 'moe/none'"):
        summarize([], [DRAFT])


# --- every prompt by itself ------------------------------------------------------------------------------------------


def test_speedups_by_prompt_are_those_of_stats() -> None:
    times = {"p": [(1000.0, 800.0), (1100.0, 820.0), (1050.0, 850.0)], "q": [(900.0, 1000.0), (910.0, 1040.0)]}
    rows = [
        row
        for prompt, blocks in times.items()
        for b, (base, fast) in enumerate(blocks)
        for row in (fake(BASE.id, b, prompt, base), drafted(b, prompt, fast))
    ]
    rows += [drafted(2, "q", 1.0), failed(BASE.id, 2, "q"), fake(BASE.id, 0, "r", 5.0)]
    assert arm_of(summarize(rows, ARMS), DRAFT.id).prompts is None
    summary = summarize(reversed(rows), ARMS, by_prompt=True)
    found = arm_of(summary, DRAFT.id).prompts
    assert found is not None
    assert set(found) == {"p", "q"}  # r has no partner
    for prompt, blocks in times.items():
        expected = geometric_speedup([(Pool(100, fast), Pool(100, base)) for base, fast in blocks])
        assert found[prompt].point == pytest.approx(expected.point)
        assert (found[prompt].low, found[prompt].high) == pytest.approx((expected.low, expected.high))
        assert (found[prompt].n, found[prompt].method) == (expected.n, expected.method)
    assert arm_of(summary, BASE.id).prompts == {}


def test_speedups_by_prompt_over_invocations() -> None:
    ratios = [[1.5, 1.6], [1.7, 1.8, 1.75], [1.4]]
    rows = [
        row
        for i, blocks in enumerate(ratios)
        for b, ratio in enumerate(blocks)
        for row in (fake(BASE.id, b, "p", 1000.0, invocation=i), drafted(b, "p", 1000 / ratio, invocation=i))
    ]
    found = arm_of(summarize(rows, ARMS, by_prompt=True), DRAFT.id).prompts
    assert found is not None
    expected = speedup_over_invocations(
        [[(Pool(100, 1000 / ratio), Pool(100, 1000.0)) for ratio in blocks] for blocks in ratios]
    ).estimate
    assert (found["p"].n, found["p"].method) == (3, expected.method)
    assert (found["p"].low, found["p"].high) == pytest.approx((expected.low, expected.high))


# --- the choice among arms -------------------------------------------------------------------------------------------


OTHER = DRAFT.model_copy(update={"id": "moe/other"})
EDIT = DRAFT.model_copy(update={"id": "moe/edit", "workloads": ("edit",)})


def run_of(*ratios: list[float], arms: tuple[Arm, ...] = (DRAFT, OTHER, EDIT)) -> RunSummary:
    """A run in which arm k is ratios[k][b] times as fast as the baseline in block b."""
    rows = [fake(BASE.id, b, "p", 1000.0) for b in range(len(ratios[0]))]
    rows += [
        fake(arm.id, b, "p", 1000 / ratio)
        for arm, blocks in zip(arms, ratios, strict=False)
        for b, ratio in enumerate(blocks)
    ]
    return summarize(rows, (BASE, *arms[: len(ratios)]))


def answer_of(*ratios: list[float]) -> Answer:
    return answers(run_of(*ratios), (BASE, DRAFT, OTHER, EDIT))[0]


CLEAR = [1.30, 1.33, 1.28, 1.31]
CLOSE = [1.02, 1.05, 1.01, 1.04]  # by itself above 1, among three no more
SLOW = [0.90, 0.92, 0.88, 0.91]


def test_arms_of_one_baseline_are_a_family() -> None:
    control = DRAFT.model_copy(update={"id": "moe/control", "role": "control"})
    probe = DRAFT.model_copy(update={"id": "moe/probe", "synthetic_rates": (0.8,)})
    summary = run_of(CLEAR, CLOSE, SLOW, SLOW, SLOW, arms=(DRAFT, OTHER, EDIT, control, probe))
    for arm in (DRAFT, OTHER, EDIT):
        found = arm_of(summary, arm.id)
        assert found.speedup is not None
        assert found.choice is not None
        assert found.choice.compared == 3
        assert found.choice.simultaneous == simultaneous(found.speedup, 3)
        assert found.comparison == compare(found.speedup)
        assert found.units_advised == units_for(found.speedup)
    for arm in (BASE, control, probe):
        assert arm_of(summary, arm.id).choice is None
    # EDIT is limited to a workload, and ran the very same prompts as the others: it competes with them.
    assert [answer.arm_id for answer in answers(summary, (BASE, DRAFT, OTHER, EDIT, probe))] == [DRAFT.id]


def test_arms_that_measured_nothing_did_not_compete() -> None:
    summary = summarize([fake(BASE.id, 0, "p", 1.0), drafted(0, "p", 1.0)], (BASE, DRAFT, OTHER))
    choice = arm_of(summary, DRAFT.id).choice
    assert choice is not None
    assert choice.compared == 1
    assert arm_of(summary, OTHER.id).choice is None


def test_one_arm_is_believed_where_the_best_of_three_is_not() -> None:
    alone = answer_of(CLOSE)
    assert (alone.decision, alone.arm_id, alone.among) == ("speculate", DRAFT.id, 1)
    assert alone.speedup == alone.speedup_simultaneous
    assert sentence(alone) == "moe: 1.03x as fast [1.00, 1.06] with draft"
    assert told(alone)[0] == "[1.00, 1.06]: 95% interval of the decoding speedup over 4 blocks"
    best = answer_of(CLOSE, SLOW, SLOW)
    assert (best.decision, best.arm_id, best.among) == ("not shown", DRAFT.id, 3)
    assert best.speedup == alone.speedup
    assert "no gain shown" in sentence(best)
    assert answer_of(CLEAR, CLOSE, SLOW).decision == "speculate"
    assert "corrected for picking the best of 3" in told(answer_of(CLEAR, CLOSE, SLOW))[0]


def test_all_slower_needs_each_arm_alone() -> None:
    almost = [0.95, 0.98, 0.94, 0.97]  # by itself below 1, among three no more
    answer = answer_of(almost, SLOW, SLOW)
    assert (answer.decision, answer.arm_id) == ("do not speculate", DRAFT.id)
    assert answer.speedup_simultaneous is not None
    assert answer.speedup_simultaneous.high is not None
    assert answer.speedup_simultaneous.high > 1
    assert sentence(answer) == "moe: do not speculate (best configuration: 0.96x [0.93, 0.99])"


def test_no_difference_is_said_only_when_it_is_shown() -> None:
    same = answer_of([1.001, 0.999, 1.002, 0.998], [0.97, 0.96, 0.98, 0.97])
    assert (same.decision, same.serves) == ("no difference", "moe/none")
    assert sentence(same) == (
        "moe: no difference, leave speculation off (best configuration: 1.00x [1.00, 1.00], 90% interval)"
    )
    faster = answer_of([1.010, 1.011, 1.009, 1.010], [0.97, 0.96, 0.98, 0.97])
    assert (faster.speedup_simultaneous.low or 0) > 1
    assert faster.decision == "no difference", "a gain of 1 % is shown, and does not matter"
    assert told(same)[0] == (
        "[1.00, 1.00]: 90% interval of the decoding speedup over 4 blocks, corrected for picking the best of 2 "
        "(without the correction: [1.00, 1.00] at 95%)"
    )
    unknown = answer_of([1.1, 0.9, 1.05, 0.95])
    assert unknown.comparison is not None
    assert (unknown.decision, unknown.comparison.conclusion) == ("not shown", "undecided")
    assert would_decide(unknown) == Message("advice.blocks", count=unknown.units_advised, margin="2%")
    no_loss = answer_of([1.00, 1.03, 1.02, 0.99])
    assert no_loss.comparison is not None
    assert no_loss.comparison.conclusion == "not worse"
    assert "no gain shown, and no loss beyond 2% (draft: 1.01x [" in sentence(no_loss)


def test_no_interval_above_1_stands_beside_that_no_gain_is_shown() -> None:
    answer = answer_of([1.0, 1.05, 1.03, 1.02])
    assert answer.comparison is not None
    assert answer.comparison.conclusion == "not worse"
    assert answer.comparison.equivalence.low is not None
    assert answer.comparison.equivalence.low > 1
    assert sentence(answer).startswith("moe: no gain shown (draft: 1.02x [0.99, ")


def test_what_would_decide_is_said_only_of_open_answers() -> None:
    wide = answer_of([1.4, 1.9, 1.6, 1.7])
    assert wide.decision == "speculate"
    assert would_decide(wide) is None
    single = answer_of([1.5])
    assert (single.decision, single.units_advised) == ("cannot tell", None)
    assert would_decide(single) == Message("advice.least", units=Message("found.blocks", count=3))
    copies = answer_of([1.5, 1.5, 1.5])
    assert (copies.decision, copies.units_advised) == ("cannot tell", None)
    assert sentence(copies) == "moe: undecided, no interval (draft: 1.50x in each of 3 repetitions)"


def many(count: int, arms: int, blocks: int) -> Iterator[RequestRow]:
    prompts = count // (arms * blocks)
    for arm in range(arms):
        for block in range(blocks):
            for prompt in range(prompts):
                ms = 1000 + 10 * math.sin(arm * 7 + block * 3 + prompt)
                yield fake(f"arm-{arm}", block, f"p-{prompt}", ms, kind=f"kind-{prompt % 5}")


@pytest.mark.slow
def test_a_hundred_thousand_requests() -> None:
    arms = [Arm(id="arm-0", target="t", role="baseline")]
    arms += [Arm(id=f"arm-{index}", target="t", baseline_id="arm-0") for index in range(1, 20)]
    summary = summarize(many(100_000, 20, 10), arms)
    assert summary.requests_ok == 100_000
    detailed = summarize(many(100_000, 20, 10), arms, by_prompt=True)
    assert len(arm_of(detailed, "arm-7").prompts or {}) == 500
    tracemalloc.start()
    summarize(many(20_000, 20, 10), arms)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak / 20_000 < 600  # bytes per row, columns and their sorted copies together


# --- baselines that lack prompts in some blocks ----------------------------------------------------------------------

EFFECTS = {"a": 0.5, "b": 0.9, "c": 1.4, "d": 2.0}
"""How much faster the arm is on each prompt."""


def in_turns(blocks: int, count: int, noise: Callable[[], float] = lambda: 0.0) -> list[RequestRow]:
    """An arm that takes a second for each prompt, and a baseline that runs `count` of them in each block."""
    rows: list[RequestRow] = []
    for block in range(blocks):
        slow = 1.0 + 0.1 * block
        rows += [drafted(block, name, 1000 * slow * math.exp(noise())) for name in EFFECTS]
        rows += [
            fake(BASE.id, block, name, 1000 * slow * EFFECTS[name] * math.exp(noise()))
            for name in in_turn(list(EFFECTS), count, block, 1)
        ]
    return rows


@pytest.mark.parametrize(("blocks", "count"), [(2, 3), (3, 3), (5, 3), (4, 2), (7, 2)])
def test_prompts_in_turn_do_not_change_the_speedup(blocks: int, count: int) -> None:
    """The same point as with all prompts in every block, whichever of them were left out."""
    whole, turns = (arm_of(summarize(in_turns(blocks, n), ARMS), DRAFT.id) for n in (4, count))
    assert point(turns.speedup) == pytest.approx(point(whole.speedup)) == pytest.approx(1.2)


def test_what_a_block_adds_stays_its_own() -> None:
    rows = [
        fake(BASE.id, row.block, row.prompt_id, (row.predicted_ms or 0) * (1.1 if row.block == 1 else 1.0))
        if row.arm_id == BASE.id
        else row
        for row in in_turns(3, 3)
    ]
    speedup = arm_of(summarize(rows, ARMS), DRAFT.id).speedup
    expected = geometric_speedup([(Pool(400, 4000), Pool(400, ms)) for ms in (4800, 5280, 4800)])
    assert speedup is not None
    assert (speedup.low, speedup.high) == (pytest.approx(expected.low), pytest.approx(expected.high))


def test_prompts_that_cannot_be_told_from_blocks_are_not_completed() -> None:
    """One prompt in each block: whatever is seen may be the prompt's or the block's."""
    rows = [row for row in in_turns(3, 1) if row.arm_id == BASE.id]
    met = [(Pool(100, 1000), Pool(100, 1000 * EFFECTS[row.prompt_id])) for row in rows]
    assert arm_of(summarize(in_turns(3, 1), ARMS), DRAFT.id).speedup == geometric_speedup(met)


@pytest.mark.parametrize(("blocks", "count"), [(3, 3), (4, 3), (8, 2)])
def test_intervals_over_turns_hold_as_often_as_they_say(blocks: int, count: int) -> None:
    draw = np.random.default_rng(4)
    hit = widths = 0
    for _ in range(300):
        rows = in_turns(blocks, count, lambda: float(draw.normal(0, 0.02)))
        speedup = arm_of(summarize(rows, ARMS), DRAFT.id).speedup
        assert speedup is not None
        assert speedup.low is not None
        assert speedup.high is not None
        hit += speedup.low <= 1.2 <= speedup.high
        widths += speedup.high - speedup.low < 0.25
    assert hit >= 0.91 * 300  # of 300 intervals of 95 %, fewer than 273 hold once in 1,000 times
    assert widths > 0.9 * 300, "without completing them, blocks of other prompts make it several times as wide"


@pytest.mark.parametrize("blocks", [4, 6])
def test_an_arm_that_fails_on_its_slow_prompt_is_no_faster_for_it(blocks: int) -> None:
    """Its slowest prompt fails in four blocks of ten: the mean stays, and intervals hold as often as they say.

    Leaving the failures out would take the slow prompt's share with them: 1.2 would become 1.3.
    """
    draw, runs = np.random.default_rng(7), 300
    hit, logs = 0, list[float]()
    for _ in range(runs):
        there = [True, *(draw.random(blocks - 1) > 0.4)]
        rows = [
            failed(DRAFT.id, row.block, "a") if row.arm_id == DRAFT.id and row.prompt_id == "a" and not ok else row
            for row in in_turns(blocks, 4, lambda: float(draw.normal(0, 0.02)))
            for ok in (there[row.block],)
        ]
        speedup = arm_of(summarize(rows, ARMS), DRAFT.id).speedup
        assert speedup is not None
        assert speedup.low is not None
        assert speedup.high is not None
        logs.append(math.log(speedup.point / 1.2))
        hit += speedup.low <= 1.2 <= speedup.high
    assert abs(np.mean(logs)) < 0.003
    assert hit >= 0.91 * runs
