"""Predictions: what steps yield, what they cost, the speedup with its interval; those that runs store beforehand."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cost_curves import curve_of
from measure.test_measure import Interrupting, Silent, faults, measured, write
from mock_probe import mock_probe, written
from records import header, identity
from said import codes, said_of
from specmeter.analysis.prediction import DRAWS
from specmeter.analysis.prediction.costs import Costs, DrawnCosts, by_bytes, footprint_of, probed, stepped
from specmeter.analysis.prediction.drafts import Counted, Given, count_steps
from specmeter.analysis.prediction.forecast import Forecaster, inputs, synthetic
from specmeter.analysis.prediction.ngram_tables import NgramMap, SessionRequest, follow
from specmeter.analysis.prediction.outcomes import accuracy
from specmeter.analysis.prediction.sources import catalogued, doubling
from specmeter.analysis.prediction.speedup import predict, surface
from specmeter.analysis.reading import read_run
from specmeter.cli import invoke
from specmeter.engines.mock.engine import MockEngine
from specmeter.engines.mock.spec import MockSpec, mock_model
from specmeter.errors import StoreError, UsageError
from specmeter.experiments.file import load
from specmeter.laboratory.run import prepare, run
from specmeter.messages import Message
from specmeter.models.memory import state_slots
from specmeter.probe.reading import cycle
from specmeter.probe.replay import Limits, Round
from specmeter.probe.steps import RoundSpec, measure_round, pricing
from specmeter.record import (
    Arm,
    EngineSettings,
    Generation,
    Prediction,
    Prompt,
    Reply,
    Step,
    StepProbe,
    StepRound,
    Timings,
)
from specmeter.store import RunStore
from specmeter.theory import cost
from specmeter.theory.acceptance import tokens_per_step
from specmeter.theory.catalogue.models import model
from specmeter.theory.curves import CostCurve
from specmeter.theory.roofline import expected_union

MADE_UP = Message("text.outside", text="made up")


def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def curve_costs(verification: Sequence[float], draft: float = 0.0, rest: float = 0.0) -> Costs:
    """Costs that are known exactly: v(0), v(1), ..., and the price of a drafted token."""

    def draw(longest: int, draws: int, rng: np.random.Generator, by_model: bool) -> DrawnCosts:  # noqa: ARG001
        ones = np.ones((draws, 1))
        making = draft * np.arange(longest + 1) * ones if by_model else np.zeros((draws, longest + 1))
        return DrawnCosts(
            verify=np.asarray(verification[: longest + 1]) * ones,
            draft=making,
            rest=np.full(draws, rest),
            restore=np.zeros(draws),
            recurrent=False,
            measured=len(verification) - 1,
        )

    return Costs(MADE_UP, True, draw)


# --- yields ----------------------------------------------------------------------------------------------------------


@given(st.floats(0, 1), st.integers(1, 32))
def test_one_alpha_yields_what_the_closed_form_says(alpha: float, gamma: int) -> None:
    yields = Given.alpha(alpha).draw(gamma, 3, rng())
    assert yields.tau(gamma) == pytest.approx([tokens_per_step(alpha, gamma)] * 3)
    assert yields.lengths(gamma)[0] == pytest.approx([0.0] * gamma + [1.0])


def test_a_range_of_alpha_is_drawn_and_its_point_comes_first() -> None:
    taus = Given.alpha(0.7, 0.5, 0.85).draw(4, 500, rng()).tau(4)
    assert taus[0] == pytest.approx(tokens_per_step(0.7, 4))
    assert tokens_per_step(0.5, 4) <= taus.min() < 2.1
    assert 3.5 < taus.max() <= tokens_per_step(0.85, 4)


def test_rates_by_position_and_hits() -> None:
    yields = Given((0.8, 0.5), hits=(0.25, 0.25, 0.25)).draw(3, 2, rng())
    assert yields.reached[0] == pytest.approx([0.2, 0.1, 0.05])
    assert yields.tau(3)[0] == pytest.approx(1.35)
    assert yields.lengths(3)[0] == pytest.approx([0.75, 0, 0, 0.25])
    assert yields.measured == 2


@given(
    st.integers(1, 9).flatmap(
        lambda gamma: st.tuples(
            st.just(gamma),
            st.lists(
                st.integers(0, gamma).flatmap(lambda d: st.tuples(st.just(d), st.integers(0, d))),
                min_size=1,
                max_size=60,
            ),
        )
    )
)
def test_counted_steps_yield_exactly_their_own_means(case: tuple[int, list[tuple[int, int]]]) -> None:
    gamma, steps = case
    source = Counted()
    source.add("p", Counter((gamma, drafted, accepted) for drafted, accepted in steps))
    yields = source.draw(gamma, 2, rng())
    assert yields.tau(gamma)[0] == pytest.approx(1 + sum(accepted for _, accepted in steps) / len(steps))
    lengths = Counter(drafted for drafted, _ in steps)
    assert yields.lengths(gamma)[0] == pytest.approx([lengths[d] / len(steps) for d in range(gamma + 1)])


def test_a_shorter_gamma_is_read_off_longer_drafts() -> None:
    """Cutting a draft does not change what happens before the cut."""
    steps = Counter({(8, 8, 8): 3, (8, 8, 5): 2, (8, 8, 1): 4, (8, 3, 3): 1, (8, 0, 0): 2})
    cut = Counter({(4, 4, 4): 5, (4, 4, 1): 4, (4, 3, 3): 1, (4, 0, 0): 2})
    long, short = Counted({"p": steps}).draw(8, 1, rng()), Counted({"p": cut}).draw(4, 1, rng())
    assert long.tau(4) == pytest.approx(short.tau(4))
    assert long.lengths(4) == pytest.approx(short.lengths(4))


def test_drafts_that_gamma_ended_say_nothing_about_longer_ones() -> None:
    """Half of the steps could draft 2 only; pooled with those of gamma 4 they must not look like short drafts."""
    both = Counted({"p": Counter({(2, 2, 2): 50, (4, 4, 4): 50})}).draw(4, 1, rng())
    assert both.tau(4)[0] == pytest.approx(5)
    assert both.lengths(4)[0] == pytest.approx([0, 0, 0, 0, 1])


def test_rates_beyond_what_was_drafted_go_on() -> None:
    source = Counted({"p": Counter({(4, 4, 4): 81, (4, 4, 3): 9, (4, 4, 2): 10})})
    yields = source.draw(8, 1, rng())
    assert yields.measured == 4
    # Positions 2 to 4 were reached 290 times and accepted 271 times.
    assert yields.rates[0, 4:] == pytest.approx([(100 + 90 + 81) / (100 + 100 + 90)] * 4)
    assert yields.lengths(8)[0] == pytest.approx([0.0] * 8 + [1.0])


def test_the_steps_of_a_reply_have_its_plain_forwards_and_no_replays() -> None:
    steps = (
        Step(drafted=4, accepted=2, at_ms=1, restored=True),
        Step(drafted=0, accepted=0, at_ms=2),
        Step(drafted=3, accepted=3, at_ms=3),
    )
    timings = Timings(prompt_n=1, prompt_ms=1, predicted_n=12, predicted_ms=9, draft_n=7, draft_n_accepted=5)
    reply = Reply(text="", stop_reason="limit", timings=timings, wall_ms=10, steps=steps)
    # 11 tokens: 4 by the restored round and its replay, 4 by the third step, 3 by plain forwards.
    assert count_steps(reply, 4) == {(4, 4, 2): 1, (4, 3, 3): 1, (4, 0, 0): 3}


def test_other_prompts_are_uncertain_and_the_same_ones_are_not() -> None:
    texts = {f"p{index}": Counter({(4, 4, index % 5): 10}) for index in range(10)}
    same, other = Counted(dict(texts)), Counted(dict(texts), other_prompts=10)
    assert np.ptp(same.draw(4, 400, rng()).tau(4)) == 0
    spread = other.draw(4, 4000, rng()).tau(4)
    assert spread[0] == pytest.approx(3.0)
    # Two samples of ten prompts, with standard deviation sqrt(2) each: once for the kind, once for the other texts.
    assert spread.std() == pytest.approx(math.sqrt(2 / 10 + 2 / 10), rel=0.1)


def test_intervals_for_other_prompts_hold_what_they_promise() -> None:
    """Prompts of a kind differ in acceptance; sets of 12 are predicted from other sets of 12."""
    dice, costs, inside = np.random.default_rng(3), curve_costs([1.0, 1.1, 1.2, 1.3, 1.4]), 0
    for _ in range(200):
        halves: list[Counted] = [Counted(), Counted()]
        for half in halves:
            for number in range(12):
                alpha = dice.beta(6, 3)
                ends = np.minimum(dice.geometric(1 - alpha, size=40) - 1, 4)
                half.add(f"p{number}", Counter((4, 4, int(end)) for end in ends))
        halves[0].other_prompts = 12
        predicted = predict(halves[0], costs, [4], by_model=False).by_gamma[0].speedup
        measured = predict(halves[1], costs, [4], by_model=False).by_gamma[0].speedup.point
        assert predicted.low is not None
        assert predicted.high is not None
        inside += predicted.low <= measured <= predicted.high
    assert 0.88 * 200 <= inside <= 0.99 * 200


# --- speedups --------------------------------------------------------------------------------------------------------


def test_the_speedup_is_that_of_the_general_form() -> None:
    v = [1.0, 1.3, 1.5, 1.9, 2.2]
    for gamma in (1, 2, 4):
        (at,) = predict(Given.alpha(0.8), curve_costs(v, draft=0.05, rest=0.1), [gamma], by_model=True).by_gamma
        tau = tokens_per_step(0.8, gamma)
        expected = tau / cost.step_cost(gamma, v[gamma], draft_cost=0.05, rest=0.1)
        assert at.speedup.point == pytest.approx(expected)
        assert at.parts.total == pytest.approx(gamma * 0.05 + v[gamma] + 0.1)
        assert (at.tau, at.drafted, at.extrapolated) == (pytest.approx(tau), pytest.approx(gamma), False)


def test_no_speedup_is_above_what_a_step_emits() -> None:
    """A probe whose plain tokens were disturbed makes longer forwards look free."""
    (at,) = predict(Given.alpha(0.9), curve_costs([0.1] * 5), [4], by_model=True).by_gamma
    assert (at.speedup.point, at.speedup.high) == (5, 5)


def test_costs_of_a_probe_are_its_curves() -> None:
    """A draft of d tokens costs d forwards of one token, and one over d + 1 to take in what was verified."""
    probe = mock_probe(spread=0.0)
    curve = curve_of([1, 5], [0.5, 1.0])
    costs = probed(probe.model_copy(update={"draft_ms": curve}), MADE_UP)
    (at,) = predict(Given.alpha(0.8), costs, [4], by_model=True).by_gamma
    plain = probe.target_ms.ms_at(1.0)
    assert at.parts.verify == pytest.approx(probe.target_ms.ms_at(5.0) / plain)
    assert at.parts.draft == pytest.approx((4 * 0.5 + 1.0) / plain)


def test_uncertain_times_make_the_interval_wide_and_their_point_stays() -> None:
    narrow, wide = (
        predict(Given.alpha(0.8), probed(mock_probe(spread=spread), MADE_UP), [4], by_model=True).by_gamma[0].speedup
        for spread in (0.001, 0.3)
    )
    assert narrow.point == pytest.approx(wide.point)
    assert narrow.low is not None
    assert wide.low is not None
    assert wide.low < narrow.low < narrow.point


def test_the_same_inputs_give_the_same_interval() -> None:
    first, second = (
        predict(Given.alpha(0.7, 0.5, 0.9), probed(mock_probe(), MADE_UP), [2, 8], by_model=True) for _ in range(2)
    )
    assert first == second


def test_drafts_beyond_the_probe_are_said_to_be() -> None:
    costs = probed(mock_probe(longest=9), MADE_UP)
    at = {it.gamma: it for it in predict(Given.alpha(0.8), costs, [8, 16], by_model=True).by_gamma}
    assert (at[8].extrapolated, at[16].extrapolated) == (False, True)
    # The mock's dense target grows by a straight line, so going on along one is right.
    assert at[16].parts.verify == pytest.approx(MockSpec().target("mock:dense").forward_ms(17) / 37)


def test_a_mixture_goes_on_by_the_experts_that_are_left_to_read() -> None:
    """Its curve bends: a line through the last two of 9 points lies far above it at 17."""
    (at,) = predict(Given.alpha(0.8), probed(mock_probe("moe", longest=9), MADE_UP), [16], by_model=True).by_gamma
    target = MockSpec().target("mock:moe")
    true = target.forward_ms(17) / target.forward_ms(1)
    assert at.extrapolated
    assert at.parts.verify == pytest.approx(true, rel=0.02)
    without = mock_probe("moe", longest=9).model_copy(update={"union": None})
    (line,) = predict(Given.alpha(0.8), probed(without, MADE_UP), [16], by_model=True).by_gamma
    assert line.parts.verify > 1.05 * true


def test_steps_without_a_draft_change_nothing() -> None:
    never = Counted({"p": Counter({(8, 0, 0): 100})})
    (at,) = predict(never, probed(mock_probe(draft=None), MADE_UP), [8], by_model=False).by_gamma
    assert (at.speedup.point, at.tau, at.drafted) == (pytest.approx(1), 1, 0)


def test_a_recurrent_target_pays_for_what_it_rejects() -> None:
    shape = model("Qwen3-30B-A3B").footprint("Q8_0")
    plain, recurrent = (
        predict(Given.alpha(0.6), by_bytes(shape, None, MADE_UP, recurrent=it), [4], by_model=False).by_gamma[0]
        for it in (False, True)
    )
    assert plain.parts.restore == 0
    assert 1 - 0.6**4 < recurrent.parts.restore < 1 + plain.parts.verify
    assert recurrent.speedup.point < plain.speedup.point
    sure = predict(Given.alpha(1.0), by_bytes(shape, None, MADE_UP, recurrent=True), [4], by_model=False).by_gamma[0]
    assert sure.parts.restore == pytest.approx(0)


@pytest.mark.parametrize(("gamma", "measured"), [(1, 0.252), (8, 0.267)])
def test_checkpoints_of_a_hybrid_target_are_paid_for(gamma: int, measured: float) -> None:
    """Qwen3.6-35B-A3B on an RTX 3090, a draft of 0.8B of which 70 % of single tokens were accepted (August 2026)."""
    costs = catalogued("RTX 3090", "Qwen3.6-35B-A3B", "Q4_K_M", "Qwen3.5-0.8B", "Q4_K_M", 512)
    (at,) = predict(Given.alpha(0.7), costs, [gamma], by_model=True).by_gamma
    assert at.speedup.low is not None
    assert at.speedup.high is not None
    assert at.speedup.low < measured < at.speedup.high
    dense = catalogued("RTX 3090", "Qwen3-8B", "Q4_K_M", "Qwen3-0.6B", "Q4_K_M", 512)
    assert predict(Given.alpha(0.7), dense, [gamma], by_model=True).by_gamma[0].parts.rest == 0


def test_heads_keep_a_state_per_draft_token_and_replay_nothing() -> None:
    """Cycles of Qwen3.8-27B's MTP layer on an RTX 3090: k(w) = 0.8888 + 0.2904 (w - 1) plain steps for widths 2 to 8
    (thc1006, qwen3.8-speculative-decoding-rtx3090, docs/COST_MODEL.md, 147deedf, August 2026)."""
    table = catalogued("RTX 3090", "Qwen3.8-27B", "Q4_K_M", heads="draft-mtp").draw(7, DRAWS, rng(), True)
    assert not table.recurrent
    assert not table.rest.any()
    for drafts in range(1, 8):
        low, high = np.quantile((table.verify + table.draft)[:, drafts], [0.025, 0.975])
        assert low < 0.8888 + 0.2904 * drafts < high
    # 2 tokens gain 29.2 % on Qwen3.6-35B-A3B (docs/PHASES.md, 1134f3a9), where a draft model pays for checkpoints.
    moe = catalogued("RTX 3090", "Qwen3.6-35B-A3B", "Q4_K_M", heads="draft-mtp")
    (by_heads,) = predict(Given.alpha(0.8), moe, [2], by_model=True).by_gamma
    assert by_heads.speedup.low is not None
    assert by_heads.speedup.high is not None
    assert by_heads.speedup.low < 1.292 < by_heads.speedup.high
    no_slots = catalogued("RTX 3090", "Qwen3-Next-80B-A3B", "Q4_K_M", heads="draft-mtp").draw(2, DRAWS, rng(), True)
    assert (no_slots.recurrent, no_slots.slot_bytes) == (True, 0)


def test_a_kept_state_has_the_size_that_llama_cpp_prints() -> None:
    """1047.38 MiB for a draft length of 6, 448.88 for 3 states (GenerelSchwerz/llama.cpp, pull request 37, 2026)."""
    table = catalogued("RTX 3090", "Qwen3.8-27B", "Q4_K_M", heads="draft-mtp").draw(1, 1, rng(), True)
    assert (1 + state_slots("qwen35", ["draft-mtp"], 6)) * table.slot_bytes / 2**20 == pytest.approx(1047.38, abs=0.01)
    assert 3 * table.slot_bytes / 2**20 == pytest.approx(448.88, abs=0.01)


def test_break_even_is_where_the_speedup_is_one() -> None:
    costs = curve_costs([1.0, 1.4, 1.9, 2.3, 2.9], draft=0.1)
    whole = surface(costs, [2, 4], [0.3, 0.9], by_model=True)
    for gamma, line in zip(whole.gammas, whole.break_even, strict=True):
        assert line is not None
        (at,) = predict(Given.alpha(line.point), costs, [gamma], by_model=True).by_gamma
        assert at.speedup.point == pytest.approx(1)
    assert whole.best == (0, 2), "2.71 / 2.1 against 4.10 / 3.3"
    assert all(low < high for low, high in whole.speedups)


@pytest.mark.parametrize("gamma", [1, 2, 8])
def test_break_even_of_a_recurrent_target_counts_replays_as_often_as_there_are_any(gamma: int) -> None:
    costs = by_bytes(model("Qwen3-8B").footprint("Q8_0"), None, MADE_UP, recurrent=True)
    whole = surface(costs, [gamma], [0.3], by_model=False)
    (line,) = whole.break_even
    assert line is not None
    assert line.low is not None
    assert line.high is not None
    assert 0 < line.low < line.point < line.high < 1
    (at,) = predict(Given.alpha(line.point), costs, [gamma], by_model=False).by_gamma
    assert at.speedup.point == pytest.approx(1)


def test_where_no_acceptance_suffices_there_is_no_break_even() -> None:
    whole = surface(curve_costs([1.0, 2.5, 3.6]), [1, 2], [1.0], by_model=False)
    assert whole.break_even == (None, None)
    assert whole.best == (0,)


def test_dense_models_gain_and_experts_cost_by_the_bytes_alone() -> None:
    dense = catalogued("RTX 3090", "Qwen3.5-9B", "Q4_K_M", "Qwen3.5-0.8B", "Q8_0", 0)
    sparse = catalogued("RTX 3090", "Qwen3-30B-A3B", "Q4_K_M", "Qwen3.5-0.8B", "Q8_0", 0)
    shape = model("Qwen3-30B-A3B").footprint("Q4_K_M")
    at = {
        name: predict(Given.alpha(0.8), costs, [4], by_model=True).by_gamma[0].parts
        for name, costs in (("dense", dense), ("sparse", sparse))
    }
    assert at["dense"].verify < 1.8
    routed_share = shape.used * shape.expert_bytes / shape.bytes_per_token
    union = expected_union(5.0, shape.experts, shape.used)
    assert 1.5 < at["sparse"].verify < 1.2 * (1 + routed_share * (union / shape.used - 1))


def test_a_published_loss_is_foreseen() -> None:
    """35B-A3B on an RTX 3090 with a 0.8B draft: 29 to 31 tok/s, 115.7 without (docs/explanation/prediction.md)."""
    costs = catalogued("RTX 3090", "Qwen3.6-35B-A3B", "Q4_K_M", "Qwen3.5-0.8B", "Q8_0")
    found = predict(Given.alpha(0.9), costs, [2, 4, 8], by_model=True)
    assert found.best is None
    assert all(at.speedup.high is not None and at.speedup.high < 1 for at in found.by_gamma)


BAD = [
    lambda: Given.alpha(1.2),
    lambda: Given.alpha(-0.1),
    lambda: Given.alpha(math.nan),
    lambda: Given(()),
    lambda: Given((0.5,), (0.1, 0.2)),
    lambda: predict(Given.alpha(0.5), curve_costs([1.0, 1.1]), [], by_model=False),
    lambda: predict(Given.alpha(0.5), curve_costs([1.0, 1.1]), [0], by_model=False),
    lambda: predict(Given.alpha(0.5), curve_costs([1.0, 1.1]), [-3], by_model=False),
    lambda: predict(Given.alpha(0.5), curve_costs([1.0, 1.1]), [100_000], by_model=False),
    lambda: predict(Given.alpha(0.5), probed(mock_probe(draft=None), MADE_UP), [2], by_model=True),
    lambda: predict(Counted(), curve_costs([1.0, 1.1]), [1], by_model=False),
    lambda: surface(curve_costs([1.0, 1.1]), [1], [0.5, 1.5], by_model=False),
    lambda: CostCurve(points=()),
    lambda: catalogued("RTX 3091", "Qwen3.5-9B", "Q8_0"),
    lambda: catalogued("RTX 3090", "Qwen9.9-9B", "Q8_0"),
    lambda: catalogued("RTX 3090", "Qwen3.5-9B", "Q77"),
    lambda: catalogued("M3 Max", "Qwen3.5-9B", "Q8_0"),
    lambda: catalogued("RTX 3090", "Qwen3.5-9B", "Q8_0", context=-1),
    lambda: expected_union(4.0, 8, 9),
]


@pytest.mark.parametrize("bad", BAD)
def test_impossible_input_is_refused_with_a_way_out(bad: object) -> None:
    with pytest.raises(UsageError) as refusal:
        bad()  # type: ignore[operator]
    assert refusal.value.fix


def test_an_unknown_device_is_answered_with_near_ones() -> None:
    with pytest.raises(UsageError, match="RTX 3091") as refusal:
        catalogued("RTX 3091", "Qwen3.5-9B", "Q8_0")
    assert "RTX 3090" in refusal.value.fix


def test_a_footprint_of_a_header_counts_experts() -> None:
    dear = {"parameters": 400, "active_parameters": 400, "bytes_per_token": 120}
    shape = footprint_of(identity("m", 400), header(layers=4, experts=32, experts_used=4, **dear))
    assert (shape.expert_bytes, shape.always_bytes, shape.bytes_per_token) == (10, 80, 120)


def test_draft_lengths_that_are_shown() -> None:
    assert doubling(16) == [1, 2, 3, 4, 6, 8, 12, 16]


# --- steps that were probed in the run itself -------------------------------------------------------------------------


def step_probe(*plain: float, draft: str | None = "small") -> StepProbe:
    rounds = tuple(
        StepRound(plain_ms=ms, step_ms={1: 1.2 * ms, 2: 1.5 * ms, 4: 2.5 * ms}, drafting_ms=0.1 * ms) for ms in plain
    )
    return StepProbe(
        baseline_id="b",
        target="t",
        draft=draft,
        engine=EngineSettings(),
        gamma=4,
        started_at=1.0,
        ended_at=2.0,
        prompts=("p",),
        rounds=rounds,
        failure=None if rounds else MADE_UP,
    )


def test_steps_that_read_their_text_again_are_scaled_by_those_over_new_text() -> None:
    """A plain token 10 ms, a step of 4 drafts 25 ms; over new text 28 ms. Cheaper ones are noise."""

    def whole(ms: float) -> list[float]:
        (only,) = step_probe(10.0).rounds
        new = step_probe(10.0).model_copy(update={"rounds": (only.model_copy(update={"accepted_ms": {4: ms}}),)})
        table = stepped(new).draw(4, DRAWS, rng(), True)
        return list(table.verify[0] + table.draft[0])

    assert whole(28.0) == pytest.approx([1.0, 1.24, 1.6, 2.2, 2.8])
    assert whole(20.0) == pytest.approx([1.0, 1.2, 1.5, 2.0, 2.5])


def test_steps_that_were_probed_cost_what_they_took() -> None:
    table = stepped(step_probe(10.0, 12.0)).draw(6, DRAWS, rng(), True)
    whole = table.verify[0] + table.draft[0]
    assert whole == pytest.approx([1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 3.5])
    assert table.draft[0] == pytest.approx([0.1 * d for d in range(7)])
    assert table.measured == 4


def test_a_baseline_of_the_same_minutes_is_one_more_plain_session() -> None:
    """One round at 10 ms and a baseline at 12.1: a plain token is taken to be 11 ms, and steps stay as they were."""
    table = stepped(step_probe(10.0), 12.1).draw(4, DRAWS, rng(), True)
    assert table.verify[0, 4] + table.draft[0, 4] == pytest.approx(2.5 * 10 / 11)


def test_more_rounds_are_surer_and_a_failed_probe_is_refused() -> None:
    widths = [stepped(step_probe(*[10.0] * n)).draw(4, DRAWS, rng(), True).verify[:, 4].std() for n in (1, 6)]
    assert widths[0] > 1.2 * widths[1]
    with pytest.raises(UsageError, match="made up"):
        stepped(step_probe())


def test_a_draft_that_doubt_ended_cost_a_token_more() -> None:
    early = stepped(step_probe(10.0), stops_early=True).draw(4, DRAWS, rng(), True)
    assert (early.verify + early.draft)[0, 2] == pytest.approx(1.6)
    assert (early.verify + early.draft)[0, 4] == pytest.approx(2.5)


# --- in every run ----------------------------------------------------------------------------------------------------

ARMS = [{"draft": "small", "gamma": [2, 4, 8]}, {"method": "ngram-simple", "gamma": 8}]


def predictions(folder: Path) -> dict[str, Prediction]:
    with RunStore.open(folder, readonly=True) as store:
        first = {session.arm_id: session.started_at for session in reversed(list(store.sessions()))}
        found = {it.arm_id: it for it in store.predictions()}
    assert all(it.made_at <= first[arm_id] for arm_id, it in found.items()), "predicted before it was measured"
    return found


def probed_run(tmp_path: Path, **changes: object) -> Path:
    file = write(tmp_path, arms=ARMS, **changes)
    named = [("dense", mock_probe()), ("moe", mock_probe("moe"))]
    run(prepare(load(file)), tmp_path / "run", Silent(), probes=named)
    return tmp_path / "run"


def test_every_speculating_arm_is_predicted_before_its_first_session(tmp_path: Path) -> None:
    folder = probed_run(tmp_path, design={"blocks": 3, "controls": True})
    found = predictions(folder)
    report = read_run(folder)
    with RunStore.open(folder, readonly=True) as store:
        speculating = {arm.id for arm in store.arms() if arm.speculates}
    assert set(found) == speculating
    assert all(it.speedup is not None and codes(it.cost) == {"costs.probe"} for it in found.values())
    # Of the draft model's arms of a target, those that came later knew the acceptance of the first.
    by_model = [it for it in found.values() if "draft-simple" in it.arm_id and it.arm_id.startswith("dense")]
    assert sum("rates.assumed" in codes(it.acceptance) for it in by_model) == 1
    assert sum("rates.of_arms" in codes(it.acceptance) for it in by_model) == 2
    errors = {it.prediction.arm_id: it.error for it in report.predictions}
    for it in by_model:
        error = errors[it.arm_id]
        assert error is not None
        assert abs(error) < (0.25 if "rates.assumed" in codes(it.acceptance) else 0.08), it
    controls = [it for it in found.values() if "accept-" in it.arm_id]
    assert len(controls) == 4
    assert all(abs(errors[it.arm_id] or 1) < 0.05 for it in controls), "their acceptance is prescribed"


def test_a_resumed_run_keeps_the_predictions_that_it_began_with(tmp_path: Path) -> None:
    file, folder = write(tmp_path, arms=ARMS), tmp_path / "run"
    named = [("dense", mock_probe()), ("moe", mock_probe("moe"))]
    with pytest.raises(KeyboardInterrupt):
        run(prepare(load(file)), folder, Interrupting(after=10), probes=named)
    with RunStore.open(folder, readonly=True) as store:
        before = store.predictions()
    run(prepare(load(file)), folder, Silent(), probes=named)
    after = list(predictions(folder).values())
    assert 0 < len(before) < len(after)
    assert after[: len(before)] == before
    later = [it for it in after[len(before) :] if "draft-simple" in it.arm_id and it.arm_id.startswith("dense")]
    assert all("rates.of_arms" in codes(it.acceptance) for it in later) or any(
        "draft-simple" in it.arm_id for it in before
    )


def test_without_a_probe_or_a_header_there_is_openly_no_prediction(tmp_path: Path) -> None:
    measured(write(tmp_path), tmp_path / "run")
    found = predictions(tmp_path / "run").values()
    assert found
    assert all(it.speedup is None and it.reason == Message("costs.unknown") for it in found)
    assert accuracy(read_run(tmp_path / "run").predictions) is None


def test_a_gamma_that_is_left_to_the_engine_is_not_predicted(tmp_path: Path) -> None:
    file = write(tmp_path, arms=[{"draft": "small"}])
    run(prepare(load(file)), tmp_path / "run", Silent(), probes=[("dense", mock_probe())])
    (reason,) = {it.reason for it in predictions(tmp_path / "run").values() if it.arm_id.startswith("dense")}
    assert reason == Message("prediction.any_gamma")


def test_the_error_of_an_invalid_arm_is_not_told(tmp_path: Path) -> None:
    engine = faults({"kind": "inactive", "arm": "dense/draft*g4"})
    folder = probed_run(tmp_path, engine=engine)
    found = {it.prediction.arm_id: it for it in read_run(folder).predictions}
    assert found["dense/draft-simple/small/g4"].prediction.speedup is not None
    assert found["dense/draft-simple/small/g4"].error is None
    assert found["dense/draft-simple/small/g2"].error is not None


def test_a_probe_of_other_models_is_refused_before_anything_is_measured(tmp_path: Path) -> None:
    stranger = mock_probe()
    stranger = stranger.model_copy(update={"target": stranger.target.model_copy(update={"sha256": "0" * 64})})
    folder = tmp_path / "run"
    argv = ["run", write(tmp_path), "--probe", written(tmp_path, stranger), "--out", str(folder)]
    assert invoke(argv) == 2
    assert not RunStore.exists(folder)


def test_predictions_are_shown_exported_and_in_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path, arms=ARMS)
    probes = ["--probe", written(tmp_path, mock_probe()), "--probe", written(tmp_path, mock_probe("moe"), "m.json")]
    assert invoke(["run", file, *probes, "--out", str(tmp_path / "run")]) == 0
    capsys.readouterr()
    assert invoke(["show", str(tmp_path / "run"), "--details"]) == 0
    assert "predictions for 8 configurations: " in capsys.readouterr().out
    assert invoke(["show", str(tmp_path / "run"), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)["predictions"]
    assert len(shown) == 8
    for it in shown:
        assert it["error"] == pytest.approx(it["prediction"]["speedup"]["point"] / it["measured"]["point"] - 1)
    assert invoke(["export", str(tmp_path / "run"), "--table", "predictions", "--format", "jsonl"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["arm_id"] for row in rows] == [it["prediction"]["arm_id"] for it in shown]
    assert [row["error"] for row in rows] == [it["error"] for it in shown]


def test_a_changed_prediction_is_noticed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = probed_run(tmp_path)
    assert invoke(["check", str(folder)]) == 0
    with RunStore.open(folder) as store:
        store._db.execute("UPDATE prediction SET json = replace(json, '\"point\":1', '\"point\":2')")
    capsys.readouterr()
    assert invoke(["check", str(folder)]) == 1
    assert "after it was certified: predictions" in " ".join(capsys.readouterr().out.split())


def test_synthetic_rates_are_marginal() -> None:
    assert synthetic((0.9, 0.45, 0.0, 0.0)).rates == pytest.approx((0.9, 0.5, 0.0, 0.0))


def test_forecasts_take_other_arms_with_the_same_drafting_only() -> None:
    probe = mock_probe()
    models = {"dense": probe.target, "small": probe.draft}
    sure = Arm(id="p", target="dense", methods=("draft-simple",), draft="small", gamma=4, p_min=0.8)
    plain = sure.model_copy(update={"id": "q", "p_min": None})
    forecaster = Forecaster({"p": sure, "q": plain}, models, probe.engine, named=[("x", probe)])  # type: ignore[arg-type]
    assert codes(forecaster.predict(sure, 0.0).acceptance) == {"rates.assumed"}
    forecaster.saw([])
    assert codes(forecaster.predict(plain, 0.0).acceptance) == {"rates.assumed"}


def test_a_policy_that_decides_while_it_runs_is_not_foreseen() -> None:
    probe = mock_probe()
    arm = Arm(id="p", target="dense", methods=("draft-simple",), draft="small", gamma=4, policy="utility")
    models = {"dense": probe.target, "small": probe.draft}
    found = Forecaster({"p": arm}, models, probe.engine, named=[("x", probe)]).predict(arm, 0.0)  # type: ignore[arg-type]
    assert found.speedup is None
    assert "policy utility chooses" in str(found.reason)


def test_acceptance_is_taken_from_the_prompts_that_an_arm_runs(tmp_path: Path) -> None:
    """The mock's n-gram drafts are good on `edit` and rare elsewhere; an arm of `edit` alone must not be averaged."""
    file = write(
        tmp_path,
        workloads=[
            {"source": "bench", "name": "all", "kinds": ["fact"], "per_kind": 4},
            {"source": "bench", "name": "copied", "kinds": ["edit"], "per_kind": 2},
        ],
        arms=[
            {"target": "dense", "method": "ngram-simple", "gamma": 8},
            {"target": "dense", "method": "ngram-simple", "gamma": 4, "workloads": "copied"},
        ],
        design={"blocks": 1, "order": "as-written"},
        generation={"max_tokens": 96},
    )
    run(prepare(load(file)), tmp_path / "run", Silent(), probes=[("dense", mock_probe(draft=None))])
    found = {it.prediction.arm_id: it for it in read_run(tmp_path / "run").predictions}
    few = found["dense/ngram-simple/g4"]
    known = said_of(few.prediction.acceptance, "rates.of_arms").values
    assert (known["arms"], known["prompts"]) == (("dense/ngram-simple/g8",), 2)
    assert few.error is not None
    assert abs(few.error) < 0.15


def test_two_predictions_of_one_arm_are_refused(tmp_path: Path) -> None:
    folder = probed_run(tmp_path)
    with RunStore.open(folder) as store, pytest.raises(StoreError, match="already stored"):
        store.add_prediction(store.predictions()[0].model_copy(update={"speedup": None}))


def test_counted_replies(tmp_path: Path) -> None:
    folder = probed_run(tmp_path)
    with RunStore.open(folder, readonly=True) as store:
        replies = [(it.prompt_id, 4, it.reply) for it in store.requests() if it.arm_id == "dense/draft-simple/small/g4"]
    source = Counted(basis=MADE_UP)
    for name, gamma, reply in replies:
        if reply:
            source.add(name, count_steps(reply, gamma))
    tokens = sum(reply.timings.predicted_n - 1 for _, _, reply in replies if reply)
    forwards = sum(len(reply.steps) for _, _, reply in replies if reply)
    assert source.draw(4, 1, rng()).tau(4)[0] == pytest.approx(tokens / forwards)


def test_a_map_of_ngrams_drafts_what_followed_and_less_after_a_rejection() -> None:
    """2 3 come back: all but one token of a draft are right, the next one is as short, and then there is none."""
    prompt = [9, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]
    text = [1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 20, 2, 3, 30, 2, 3, 31, 32]
    limits = Limits(max_tokens=len(text))
    warm_up = SessionRequest(range(100, 100 + len(prompt)), range(200, 200 + len(text)), limits)
    _, rounds = follow(NgramMap(2, 3), [warm_up, SessionRequest(prompt, text, limits)])
    assert sum(1 + it.accepted for it in rounds) == len(text) - 1
    assert [it for it in rounds if it.drafted] == [Round(3, 2), Round(2, 0)]
    assert not any(it.drafted for it in rounds[:9]), "the prompt is not looked up again"


def test_a_draft_never_reaches_beyond_what_may_be_generated() -> None:
    prompt, text = [1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 5]
    (rounds,) = follow(NgramMap(2, 4), [SessionRequest(prompt, text, Limits(max_tokens=5))])
    at = 1
    for it in rounds:
        assert it.drafted <= max(0, 5 - at - 1)
        at += it.accepted + 1
    assert at == 5


def test_costs_that_noise_made_rough_are_smoothed_and_their_intervals_grow() -> None:
    """A line seen through 15 % of noise, one time for each length, as beside other work."""
    plain, lengths = 10.0, np.arange(1, 17)
    true = plain * (1.2 + 0.2 * lengths)
    noise = np.exp(0.15 * np.random.default_rng(3).standard_normal(len(lengths)))

    def table(ms: Sequence[float]) -> DrawnCosts:
        times = dict(zip(lengths.tolist(), ms, strict=True))
        rough = step_probe(plain).model_copy(
            update={"rounds": (StepRound(plain_ms=plain, step_ms=times, drafting_ms=1.0),)}
        )
        return stepped(rough).draw(16, DRAWS, rng(), True)

    calm, rough = table(true.tolist()), table((true * noise).tolist())
    whole = (calm.verify + calm.draft)[0, 1:]
    assert whole == pytest.approx(true / plain)
    seen = (rough.verify + rough.draft)[:, 1:]
    assert np.abs(np.log(seen[0] * plain / true)).mean() < 0.7 * np.abs(np.log(noise)).mean()
    low, high = np.quantile(seen, [0.025, 0.975], axis=0)
    assert ((low <= true / plain) & (true / plain <= high)).mean() > 0.8
    assert np.std(np.log(seen[:, 7])) > 2 * np.std(np.log((calm.verify + calm.draft)[:, 8]))


def pairwise_kernel(plain_ms: float, rounds: Sequence[Sequence[float]]) -> StepProbe:
    """Kernels that take rows in pairs, so that an odd number of rows costs as much as the next even one and half a
    token more; each round's own factor on every length."""
    times = [plain_ms * (0.6 + 0.22 * (drafts + 1) + 0.4 * ((drafts + 1) % 2)) for drafts in range(1, 17)]
    found = (
        StepRound(
            plain_ms=plain_ms,
            step_ms={drafts: ms * by for drafts, (ms, by) in enumerate(zip(times, each, strict=True), start=1)},
        )
        for each in rounds
    )
    return step_probe(plain_ms).model_copy(update={"gamma": 16, "rounds": tuple(found)})


@pytest.mark.parametrize("count", [1, 2, 4])
def test_costs_that_every_round_shows_to_zigzag_are_no_noise(count: int) -> None:
    """Steps of 4 and 16 drafts verify 5 and 17 tokens: smoothed over, they came out 10 and 14 % too cheap."""
    noise = np.exp(0.02 * np.random.default_rng(5).standard_normal((count, 16)))
    table = stepped(pairwise_kernel(10.0, noise.tolist())).draw(16, DRAWS, rng(), True)
    for drafts in (2, 4, 8, 16):
        true = 0.6 + 0.22 * (drafts + 1) + 0.4
        assert (table.verify + table.draft)[0, drafts] == pytest.approx(true, rel=0.05)


def test_costs_that_zigzag_beside_other_work_are_not_made_even_either() -> None:
    noise = np.exp(0.07 * np.random.default_rng(7).standard_normal((4, 16)))
    table = stepped(pairwise_kernel(10.0, noise.tolist())).draw(16, DRAWS, rng(), True)
    true = np.array([0.6 + 0.22 * rows + 0.4 * (rows % 2) for rows in range(2, 18)])
    seen = np.log((table.verify + table.draft)[0, 1:] / true)
    assert abs(np.mean(seen[1::2])) < 0.04, "an odd number of rows"


@pytest.mark.parametrize("factor", [0.7, 1.4])
def test_a_jump_at_a_kernel_s_limit_is_not_smoothed_away(factor: float) -> None:
    """Another kernel from 9 rows on, seen through 3 % of noise: 8 drafts verify 9 tokens."""
    rounds = []
    for by in np.exp(0.03 * np.random.default_rng(11).standard_normal((2, 16))):
        ms = {d: 10 * (1 + 0.2 * d) * by[d - 1] * (factor if d >= 8 else 1) for d in range(1, 17)}
        rounds.append(StepRound(plain_ms=10.0, step_ms=ms))
    found = step_probe(10.0, draft=None).model_copy(update={"gamma": 16, "rounds": tuple(rounds)})
    verify = stepped(found).draw(16, DRAWS, rng(), False).verify[0]
    assert verify[7] == pytest.approx(2.4, rel=0.04)
    assert verify[8] == pytest.approx(2.6 * factor, rel=0.04)


@pytest.mark.parametrize("factor", [0.7, 1.4])
def test_an_engine_whose_kernel_changes_at_nine_tokens_is_probed_and_predicted_so(
    factor: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dense = MockSpec().target("mock:dense").model_copy(update={"kernel": (8, factor)})
    assert dense.forward_ms(9) == pytest.approx(factor * MockSpec().target("mock:dense").forward_ms(9))
    spec = MockSpec(targets={"dense": dense})
    found = mock_probe(draft=None, spec=spec)
    line = cycle(found)
    assert line is not None
    assert (line.last, line.fails_at, line.off) == (8, 9, pytest.approx(factor - 1, abs=0.01))
    at = predict(Given.alpha(1.0), probed(found, MADE_UP), [7, 8], by_model=False).by_gamma
    assert [it.speedup.point for it in at] == pytest.approx([8 * 37 / 65, min(9.0, 9 * 37 / (69 * factor))])
    assert invoke(["predict", "--probe", written(tmp_path, found), "--alpha", "0.9", "--gamma", "7,8", "--json"]) == 0
    by_length = [it["speedup"]["point"] for it in json.loads(capsys.readouterr().out)["by_gamma"]]
    assert (by_length[1] > by_length[0]) == (factor < 1)
    # In a run the steps are timed on the engine itself, of every length, and lie on both sides of the limit.
    order = RoundSpec(
        plain=Arm(id="plain", target="dense", role="baseline"),
        drafting=[pricing(Arm(id="n", target="dense", methods=("ngram-simple",), gamma=12), 12)],
        models={"dense": mock_model("dense", "mock:dense", spec)},
        prompts=[Prompt(id="p", workload="w", kind="edit", text="a b c " * 20, sha256="0" * 64)],
        generation=Generation(),
        folder=tmp_path,
        watched=False,
    )
    (timed,) = measure_round(MockEngine(spec), order, 0)
    assert timed.step_ms[8] / timed.step_ms[7] == pytest.approx(69 * factor / 65, rel=0.05)


def test_what_the_first_step_of_a_request_takes_is_shared_by_its_tokens() -> None:
    """A first step 30 ms longer than others, which is three plain tokens, over 60 tokens: 0.05 for each."""
    (only,) = step_probe(10.0).rounds
    late = step_probe(10.0).model_copy(update={"rounds": (only.model_copy(update={"first_ms": 30.0}),)})
    sure = Given((1.0,) * 4)
    plain, found = (
        predict(sure, stepped(late, tokens=tokens), [4], by_model=True).by_gamma[0] for tokens in (None, 60)
    )
    assert plain.speedup.point == pytest.approx(5 / 2.5)
    assert found.speedup.point == pytest.approx(1 / (1 / plain.speedup.point + 0.05))
    assert found.parts.first == pytest.approx(0.25)
    assert inputs(found)["first"] == found.parts.first
    alone = late.model_copy(update={"draft": None})
    assert predict(sure, stepped(alone, tokens=60), [4], by_model=False).by_gamma[0].parts.first == 0
    loaded = late.model_copy(update={"clients": 4})
    (queued,) = predict(sure, stepped(loaded, tokens=60), [4], by_model=True).by_gamma
    assert queued.parts.first == pytest.approx(4 * 0.25), "each waits for the others'"
