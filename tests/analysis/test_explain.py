"""Explanations: parts that add up, the reason that decides, and a real run whose time is accounted for."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from advices import est
from measure.test_measure import faults, measured, write
from mock_probe import mock_probe, written
from records import header
from said import all_said, codes, said_of
from specmeter.analysis.explain.account import Account, ArmAccount, explain, probes_by_arm
from specmeter.analysis.explain.experts import experts_of
from specmeter.analysis.explain.parts import means_of, split
from specmeter.analysis.explain.reason import MeanRound, sentence, without
from specmeter.analysis.prediction.costs import stepped, verification
from specmeter.analysis.prediction.drafts import Given
from specmeter.analysis.prediction.speedup import predict
from specmeter.analysis.reading import read_run
from specmeter.analysis.tally import TIMES, Tally, read_tallies, tally_of, total
from specmeter.cli import invoke
from specmeter.errors import UsageError
from specmeter.messages import Message
from specmeter.record import (
    EngineSettings,
    Estimate,
    ExpertUnion,
    ModelIdentity,
    StepProbe,
    StepRound,
    TextRouting,
    UnionPoint,
)
from specmeter.show.run_tables import ms_per_token
from specmeter.store import RequestRow, RunStore


def row(**changes: Any) -> RequestRow:
    fields: dict[str, Any] = dict.fromkeys(RequestRow._fields)
    fields |= {"arm_id": "a", "prompt_id": "p", "status": "ok", "prompt_ms": 100.0, "predicted_n": 21}
    return RequestRow(**(fields | {"predicted_ms": 200.0, "draft_n": 0, "target_forwards": 20} | changes))


def step(drafted: int, accepted: int, at_ms: float, *, restored: bool = False, **times: Any) -> dict[str, Any]:
    return {"drafted": drafted, "accepted": accepted, "at_ms": at_ms, "restored": restored, **times}


# --- tallies ---------------------------------------------------------------------------------------------------------


def test_a_request_in_numbers() -> None:
    steps = [step(4, 4, 130.0), step(4, 1, 160.0), step(2, 0, 180.0)]
    drafting = [
        {"begin_ms": 0.5, "generate_ms": 6.0, "accept_ms": 0.5},
        {"begin_ms": 0, "generate_ms": 1, "accept_ms": 0},
    ]
    tally = tally_of(row(target_forwards=15), steps, drafting)
    assert tally.lengths == {4: 2, 2: 1, 0: 12}
    assert (tally.drafted, tally.accepted, tally.rounds, tally.with_draft) == (10, 5, 15, 3)
    assert tally.drafting_ms == 8
    assert tally.steps_ms is None, "plain forwards have no line in the log"
    assert tally.times == {}


def test_the_log_has_the_time_of_every_step_where_every_forward_drafted() -> None:
    tally = tally_of(row(target_forwards=3), [step(4, 4, 130.0), step(4, 1, 170.0), step(4, 4, 300.0)], [])
    assert tally.steps_ms == 200
    assert tally.drafting_ms is None


def test_replays_are_no_rounds() -> None:
    steps = [step(4, 2, 130.0, restored=True), step(0, 0, 145.0), step(4, 4, 170.0)]
    tally = tally_of(row(target_forwards=3), steps, [])
    assert (tally.rounds, tally.replays, tally.replayed) == (2, 1, {4: 1})
    assert tally.replays_ms == 15
    assert tally.accepted == 6


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), max_size=20), st.integers(1, 5))
def test_sums_of_tallies_are_sums(pairs: list[tuple[int, int]], parts: int) -> None:
    steps = [step(max(pair), min(pair), 100.0 + number) for number, pair in enumerate(pairs, 1)]
    one = tally_of(row(target_forwards=len(steps) + 1), steps, [])
    many = total([one] * parts)
    assert many.rounds == parts * one.rounds
    assert many.drafted == parts * one.drafted
    assert many.by_counts == Counter({key: parts * n for key, n in one.by_counts.items()})


def test_what_one_request_lacks_the_sum_lacks() -> None:
    timed = tally_of(
        row(),
        [step(1, 1, 110.0) | dict.fromkeys(TIMES, 1.0)],
        [dict.fromkeys(("begin_ms", "generate_ms", "accept_ms"), 1.0)],
    )
    plain = tally_of(row(), [step(1, 1, 110.0)], [])
    assert timed.times == dict.fromkeys(TIMES, 1.0)
    assert total([timed, timed]).times == dict.fromkeys(TIMES, 2.0)
    assert total([timed, timed]).drafting_ms == 6
    both = total([timed, plain])
    assert (both.times, both.drafting_ms) == ({}, None)


# --- parts -----------------------------------------------------------------------------------------------------------


def test_steps_that_were_measured_are_taken_as_they_are() -> None:
    times: dict[str, Any] = {
        "draft_ms": 20.0,
        "verify_ms": 150.0,
        "sample_ms": 5.0,
        "restore_ms": 10.0,
        "other_ms": 5.0,
    }
    unit = tally_of(row(target_forwards=1), [step(20, 19, 290.0, **times)], [])
    assert means_of([unit], mock_probe(), True, True) == "steps"
    found = split(unit, "steps", None, None, True)
    assert (found.draft, found.verify, found.restore, found.sample, found.rest) == (20, 150, 10, 5, 5)
    assert found.remainder == pytest.approx(10)


def test_a_cost_curve_prices_every_forward_in_units_of_the_baseline() -> None:
    """The mock's dense target: T(n) = 33 + 4 n; the run decodes a plain token in 74 ms, twice what the probe saw."""
    steps = [step(4, 3, 200.0), step(2, 2, 300.0)]
    unit = tally_of(row(predicted_n=11, predicted_ms=500.0, target_forwards=5), steps, [])
    probe = mock_probe()
    assert means_of([unit], probe, True, True) == "cost curve"
    found = split(unit, "cost curve", 74.0, probe, True)
    assert found.verify == pytest.approx(2 * ((33 + 20) + (33 + 12) + 3 * 37))
    assert found.draft == pytest.approx(2 * 0.8 * 6, abs=0.001), "no statistics: by the curve of the draft"
    assert found.remainder == pytest.approx(500 - found.verify - found.draft)


def test_statistics_of_the_server_come_before_the_curve_of_the_draft() -> None:
    drafting = [{"begin_ms": 0.0, "generate_ms": 30.0, "accept_ms": 0.0}]
    unit = tally_of(row(target_forwards=9), [step(4, 3, 200.0)], drafting)
    assert means_of([unit], mock_probe(), True, True) == "cost curve"
    assert split(unit, "cost curve", 37.0, mock_probe(), True).draft == pytest.approx(30, abs=0.001)


def test_without_a_probe_steps_of_the_log_less_drafting_are_verification() -> None:
    drafting = [{"begin_ms": 0.0, "generate_ms": 30.0, "accept_ms": 0.0}]
    unit = tally_of(row(target_forwards=2), [step(4, 3, 200.0), step(4, 4, 290.0)], drafting)
    assert means_of([unit], None, True, True) == means_of([unit], mock_probe(), True, True) == "step times"
    found = split(unit, "step times", None, None, True)
    assert (found.draft, found.verify, found.remainder) == (30, 160, 10)


def test_the_plain_forward_before_the_last_token_has_the_price_of_a_plain_token() -> None:
    drafting = [{"begin_ms": 0.0, "generate_ms": 30.0, "accept_ms": 0.0}]
    unit = tally_of(row(target_forwards=3), [step(4, 3, 200.0), step(4, 4, 260.0)], drafting)
    assert (unit.unlogged, unit.steps_ms) == (1, 160)
    found = split(unit, "step times", 37.0, None, True)
    assert (found.verify, found.remainder) == (160 - 30 + 37, 3)


def test_what_verification_cannot_cost_is_left_unexplained() -> None:
    """Two tokens took 290 ms beside drafting, where one takes 37: two cost 74 at most; the rest is unknown."""
    drafting = [{"begin_ms": 0.0, "generate_ms": 10.0, "accept_ms": 0.0}]
    unit = tally_of(row(predicted_n=3, predicted_ms=300.0, target_forwards=1), [step(1, 1, 400.0)], drafting)
    found = split(unit, "step times", 37.0, None, True)
    assert (found.draft, found.verify, found.remainder) == (10, 74, 216)
    assert found.sure == 10 + 37, "what is left over accounts for nothing"
    by_probe = split(unit, "step times", 37.0, None, True, lambda tokens: 1 + 0.5 * (tokens - 1))
    assert (by_probe.verify, by_probe.remainder) == (1.5 * 37, 300 - 10 - 1.5 * 37)


def test_by_difference_a_verification_takes_no_longer_than_the_runs_own_steps() -> None:
    """Plain forwards have no line in the log, and 20 ms more each than the baseline's: verification is not to blame."""
    steps = [step(4, 3, 100.0 + 60.0 * number) for number in range(1, 8)]
    drafting = [{"begin_ms": 0.0, "generate_ms": 0.0, "accept_ms": 0.0}]
    unit = tally_of(row(predicted_n=39, predicted_ms=7 * 60.0 + 10 * 57.0, target_forwards=17), steps, drafting)
    assert unit.unlogged == 10
    assert means_of([unit], None, True, True) == "difference"
    found = split(unit, "difference", 37.0, None, True)
    assert found.verify == 7 * 60 + 10 * 37
    assert found.remainder == pytest.approx(10 * 20)


def test_without_statistics_nothing_is_divided() -> None:
    unit = tally_of(row(target_forwards=2), [step(4, 3, 200.0), step(4, 4, 290.0)], [])
    assert means_of([unit], None, True, True) == "undivided"
    assert split(unit, "undivided", None, None, True).verify == 200


def test_a_curve_that_is_too_short_is_not_stretched() -> None:
    drafting = [{"begin_ms": 0.0, "generate_ms": 30.0, "accept_ms": 0.0}]
    unit = tally_of(row(target_forwards=5), [step(8, 8, 200.0)], drafting)
    assert means_of([unit], mock_probe(longest=8), True, True) == "difference"
    assert means_of([unit], mock_probe(longest=9), True, True) == "cost curve"


# --- reasons ---------------------------------------------------------------------------------------------------------

MOE = header(experts=64, experts_used=4)


def cycle(**changes: float) -> MeanRound:
    """A round of gamma 4 that gains: 3.4 tokens for 1.4."""
    fields = {
        "tau": 3.4,
        "drafted": 4.0,
        "accepted": 2.4,
        "with_draft": 1.0,
        "draft": 0.1,
        "verify": 1.3,
        "restore": 0.0,
        "rest": 0.0,
    }
    return MeanRound(**(fields | changes))


@pytest.mark.parametrize(
    ("it", "reason", "told"),
    [
        (cycle(verify=3.9), "verification", {"account.verification", "account.could", "account.experts_at_most"}),
        (cycle(tau=1.05, accepted=0.05), "acceptance", {"account.acceptance"}),
        (
            cycle(tau=1.05, drafted=1, accepted=0.05, draft=0.4, verify=1.5, restore=0.2, rest=0.3),
            "acceptance",
            {"account.acceptance", "account.still"},
        ),
        (cycle(draft=4.0), "drafting", {"account.drafting"}),
        (cycle(restore=2.5), "restoring", {"account.restoring"}),
        (cycle(rest=3.0), "rest", {"account.rest"}),
        (
            cycle(tau=1.12, drafted=0.2, accepted=0.12, with_draft=0.05, draft=0.0, verify=1.02),
            "no drafts",
            {"account.no_drafts"},
        ),
        (cycle(tau=1.0, drafted=0, accepted=0, with_draft=0, draft=0, verify=1.0), "no drafts", {"account.idle"}),
    ],
)
def test_the_greatest_loss_is_named(it: MeanRound, reason: str, told: set[str]) -> None:
    name, said = sentence(it, experts_of(MOE))
    assert name == reason
    assert told <= codes(said)
    assert [one.values["speedup"] for one in all_said(said) if "speedup" in one.values] == [it.speedup]


def test_what_is_printed_multiplies_out() -> None:
    """1.1602 / 1.6446 is 0.71, and 1.16 / 1.64 is, too; 1.16 / 1.65 is 0.70."""
    rough = cycle(tau=1.1602, drafted=1.5, accepted=0.16, draft=0.0, verify=1.6451)
    assert f"{1.16 / 1.65:.2f}" != f"{rough.speedup:.2f}"
    step = said_of(sentence(rough, None)[1], "account.step")
    assert (step.values["tau"], step.values["cost"]) == ("1.160", "1.645")


@given(st.floats(1, 9), st.floats(0.3, 9))
@example(tau=4.474609375, verify=1 / 3)
def test_tokens_by_cost_is_the_speedup_as_printed(tau: float, verify: float) -> None:
    it = cycle(tau=tau, draft=0.0, verify=verify)
    assume(abs(it.speedup * 100 % 1 - 0.5) > 0.1)
    step = said_of(sentence(it, None)[1], "account.step").values
    assert f"{float(str(step['tau'])) / float(str(step['cost'])):.2f}" == f"{step['speedup']:.2f}"


def test_another_speedup_beside_it_is_told_apart() -> None:
    """All tokens over all time, and the geometric mean over blocks."""
    it = cycle(tau=1.42, verify=2.0, draft=0.0)
    mean = Estimate(point=0.70, n=3, unit="x", method="geometric mean")
    said = str(sentence(it, None, measured=mean)[1])
    assert said.startswith("0.71x over all tokens (0.70x as the geometric mean over blocks): an average step yields")
    same = mean.model_copy(update={"point": 0.712})
    assert sentence(it, None, measured=same) == sentence(it, None)


def test_a_step_with_its_replay_yields_more_than_tau() -> None:
    it = cycle(tau=4.5, accepted=3.5, verify=5.0, restore=1.0, replays=0.25)
    step = said_of(sentence(it, None)[1], "account.step")
    assert step.values["tau"] == "4.50"
    assert said_of(step, "account.by_forward").values["tau"] == pytest.approx(3.6)
    assert "account.by_forward" not in codes(sentence(cycle(), None)[1])


def test_why_verification_is_dear() -> None:
    dear = cycle(verify=3.9)
    blamed = said_of(sentence(dear, experts_of(MOE))[1], "account.experts_at_most")
    assert blamed.values["more"] == pytest.approx(3.41, abs=0.005)
    touched = 64 * (1 - (60 / 64) ** 5) / 4 - 1
    measured = said_of(sentence(dear, experts_of(MOE, None, mock_probe("moe")))[1], "account.because")
    assert said_of(measured, "account.experts").values["more"] == pytest.approx(touched, abs=0.005)
    assert said_of(sentence(dear, None)[1], "account.because") == Message(
        "account.because", cause=Message("account.compute")
    )
    assert sentence(dear, experts_of(MOE), undivided=True)[1].code == "account.undivided"


BENCH_MOE = MOE.model_copy(update={"experts": 32})


def test_experts_are_not_blamed_for_what_they_cannot_cost() -> None:
    """425 % more experts cost 5.25 forwards, and 8 tokens computed one by one 8: neither is 8.7."""

    def said(verify: float, experts: Any = None) -> Message:
        it = cycle(tau=4.0, drafted=7.0, accepted=3.0, verify=verify)
        return said_of(sentence(it, experts or experts_of(BENCH_MOE))[1], "account.verification")

    beyond = said_of(said(8.7), "account.beyond")
    assert beyond == Message("account.beyond", cause=Message("account.compute"), most=8.0)
    partly = said_of(said(7.5), "account.partly")
    assert partly.values["most"] == pytest.approx(5.25, abs=0.05)
    cause = said_of(partly, "account.experts_at_most")
    assert cause.values["more"] == pytest.approx(4.25, abs=0.005)
    assert cause.values["known"] == Message("experts.unknown")
    assert said_of(said(5.2), "account.could"), "routing was not measured: experts can be the reason, or not"
    assert said_of(said(2.2, experts_of(MOE, None, mock_probe("moe"))), "account.because")


def test_what_a_probe_says_comes_first() -> None:
    """A probe of steps: 8 tokens verified take 7 plain tokens, drafting taken out; beyond them it says nothing."""
    steps = StepProbe(
        baseline_id="moe/none",
        target="moe",
        draft="small",
        engine=EngineSettings(),
        gamma=7,
        started_at=1.0,
        ended_at=2.0,
        rounds=(StepRound(plain_ms=10.0, step_ms={1: 17.0, 7: 77.0}, drafting_ms=1.0),),
    )
    price = verification(steps)
    assert [price(n) for n in (1, 2, 5, 8, 9)] == pytest.approx([1.0, 1.6, 4.3, 7.0, None])
    assert verification(steps.model_copy(update={"rounds": ()}))(2) is None
    untold = steps.rounds[0].model_copy(update={"drafting_ms": None})
    assert verification(steps.model_copy(update={"rounds": (untold,)}))(2) is None, "drafting is part of its steps"
    dear = cycle(tau=4.0, drafted=7.0, accepted=3.0, verify=7.2)
    asked = (price(8) or 0.0, Message("costs.own_steps"))
    said = said_of(sentence(dear, experts_of(BENCH_MOE), priced=asked)[1], "account.verification")
    assert said_of(said, "account.probed").values["forwards"] == pytest.approx(7.0)


def test_what_all_tokens_share_costs_no_more_for_several() -> None:
    """A quarter of what a token reads is experts: 425 % more of them are 106 % more of everything."""
    header = BENCH_MOE.model_copy(update={"bytes_per_token": 1600, "parameters": 4400})
    model = ModelIdentity(name="m", reference="m", path="m", sha256="", size_bytes=1600 + 28 * 100, origin="path")
    experts = experts_of(header, model)
    assert experts is not None
    assert experts.share == pytest.approx(400 / 1600)
    assert experts.most(8) == pytest.approx(1 + 4.25 / 4, rel=0.01)
    said = sentence(cycle(tau=4.0, drafted=7.0, accepted=3.0, verify=5.2), experts)[1]
    assert said_of(said, "account.partly").values["most"] == pytest.approx(2.06, abs=0.05)


def test_routing_that_the_run_measured_comes_first() -> None:
    experts = [[[1, 2, 3, 4, 3, 4, 5, 6], [1, 2, 3, 4, 1, 2, 3, 4]]]
    steps = [step(1, 1, 130.0, experts=experts[0]), step(1, 0, 160.0, experts=experts[0])]
    unions = tally_of(row(target_forwards=2), steps, []).unions
    assert unions == {2: 5.0}
    known = experts_of(BENCH_MOE, None, mock_probe("moe"), unions)
    assert known is not None
    assert known.more(2) == (0.25, True)
    assert known.more(5)[1] is False
    pair = cycle(tau=1.5, drafted=1.0, accepted=0.5, verify=2.0)
    partly = said_of(sentence(pair, known)[1], "account.partly")
    assert partly.values["most"] == pytest.approx(1.25)
    assert said_of(partly, "account.experts").values["more"] == pytest.approx(0.25)
    assert str(known.message_for(2)) == "5.0 of 32 per layer in the run's steps; random routing would use 7.5"


def test_the_experts_of_the_run_s_own_texts_come_before_a_probe_s() -> None:
    points = [
        UnionPoint(tokens=n, union=Estimate(point=union, n=2, unit="experts", method="made up"))
        for n, union in ((1, 4.0), (5, 8.0))
    ]
    texts = TextRouting(
        target="moe", baseline_id="moe/none", union=ExpertUnion(experts=32, used=4, points=tuple(points))
    )
    known = experts_of(BENCH_MOE, None, mock_probe("moe"), {}, texts)
    assert known is not None
    assert known.source == "texts"
    assert known.more(3) == (0.5, True)
    assert str(known.message_for(3)) == "6.0 of 32 per layer on this run's outputs; random routing would use 10.6"
    assert known.message_for(9) == Message("experts.unknown"), "no text tells of 9 tokens"
    failed = texts.model_copy(update={"union": None, "failure": Message("text.outside", text="no")})
    assert experts_of(BENCH_MOE, None, None, {}, failed) == experts_of(BENCH_MOE)


def test_computing_each_token_by_itself_is_the_most_that_a_dense_target_explains() -> None:
    beyond = said_of(sentence(cycle(verify=6.0), None)[1], "account.beyond")
    assert beyond == Message("account.beyond", cause=Message("account.compute"), most=5.0)
    beside = said_of(sentence(cycle(verify=3.9, rest=2.0, unexplained=2.0), None)[1], "account.beside")
    assert beside == Message("account.beside", more=2.0)
    name, said = sentence(cycle(verify=1.2, rest=3.0, unexplained=2.5), None)
    assert (name, said.values["why"]) == ("rest", said_of(said, "account.unexplained"))


def test_nothing_is_blamed_where_nothing_would_help() -> None:
    perfect = cycle(tau=5.0, accepted=4.0, draft=0.0, verify=1.0)
    assert sentence(perfect, None)[0] is None


@given(
    st.floats(0, 8),
    st.floats(0, 1),
    st.floats(0.01, 1),
    st.floats(0, 9),
    st.floats(0.5, 9),
    st.floats(0, 9),
    st.floats(-0.4, 9),
)
def test_taking_a_trouble_away_never_slows(
    drafted: float, share: float, with_draft: float, draft: float, verify: float, restore: float, rest: float
) -> None:
    accepted = share * drafted
    it = MeanRound(
        tau=1 + accepted,
        drafted=drafted,
        accepted=accepted,
        with_draft=with_draft,
        draft=draft,
        verify=verify,
        restore=restore,
        rest=rest,
    )
    for name, left in without(it).items():
        if name != "no drafts":
            assert left >= it.speedup * (1 - 1e-9), name


# --- runs ------------------------------------------------------------------------------------------------------------

ARMS = [{"draft": "small", "gamma": 4}, {"method": "ngram-simple", "gamma": 8}]


def account(folder: Path, *, with_probes: bool = True) -> dict[str, ArmAccount]:
    report = read_run(folder)
    models = {model.name: model for model in report.models}
    probes = {}
    if with_probes:
        for probe in (mock_probe(), mock_probe("moe")):
            probes |= probes_by_arm(probe, "probe", report.arms, models)
    with RunStore.open(folder, readonly=True) as store:
        found: Account = explain(store, report, probes)
    return {arm.arm_id: arm for arm in found.arms}


def adds_up(arms: Iterator[ArmAccount] | Any) -> None:
    for arm in arms:
        assert sum(part.ms_per_token.point for part in arm.parts) == pytest.approx(arm.ms_per_token.point)
        assert sum(part.share for part in arm.parts) == pytest.approx(1)


def test_the_parts_of_a_run_add_up_and_are_accounted_for(tmp_path: Path) -> None:
    measured(write(tmp_path, arms=ARMS, design={"blocks": 4}), tmp_path / "run")
    arms = account(tmp_path / "run")
    adds_up(arms.values())
    for arm in arms.values():
        if arm.baseline_id is None:
            continue
        assert arm.means == "cost curve"
        assert arm.accounted is not None
        assert arm.accounted > 0.97, "the mock takes what its cost model says, give or take its noise"
        assert arm.by_curve_error is not None
        assert abs(arm.by_curve_error) < 0.03
        assert all(part.ms_per_token.low is not None for part in arm.parts if part.name == "verify")
    gain, loss = arms["dense/draft-simple/small/g4"], arms["moe/draft-simple/small/g4"]
    assert gain.round is not None
    assert loss.round is not None
    cost = loss.round.draft + loss.round.verify + loss.round.restore + loss.round.rest
    assert loss.speedup is not None
    assert loss.round.tau / cost == pytest.approx(loss.speedup.point, rel=0.01)
    assert loss.reason == "verification"
    assert codes(loss.sentence) & {"account.experts", "account.experts_at_most"}
    assert arms["dense/ngram-simple/g8"].reason == "no drafts"
    assert arms["dense/none"].sentence is None


def test_dear_drafts_and_poor_ones_are_told_apart(tmp_path: Path) -> None:
    slow = {"token_ms": 30.0, "other_acceptance": [0.8]}
    poor = {"token_ms": 0.8, "other_acceptance": [0.05]}
    file = write(
        tmp_path,
        targets={"dense": "mock:dense"},
        drafts={"slow": "mock:slow", "poor": "mock:poor"},
        arms=[{"draft": ["slow", "poor"], "gamma": 4}],
        engine={"kind": "mock", "mock": {"drafts": {"slow": slow, "poor": poor}}},
    )
    measured(file, tmp_path / "run")
    report = read_run(tmp_path / "run")
    models = {model.name: model for model in report.models}
    probes = {}
    for name, token_ms in (("slow", 30.0), ("poor", 0.8)):
        probe = mock_probe()
        assert probe.draft_ms is not None
        points = (
            probe.draft_ms.points[0].model_copy(
                update={"ms": probe.draft_ms.points[0].ms.model_copy(update={"point": token_ms})}
            ),
            *probe.draft_ms.points[1:],
        )
        probe = probe.model_copy(
            update={
                "target": models["dense"],
                "draft": models[name],
                "draft_ms": probe.draft_ms.model_copy(update={"points": points}),
            }
        )
        probes |= {
            arm_id: it for arm_id, it in probes_by_arm(probe, "p", report.arms, models).items() if name in arm_id
        }
    with RunStore.open(tmp_path / "run", readonly=True) as store:
        reasons = {arm.arm_id: arm.reason for arm in explain(store, report, probes).arms}
    assert reasons["dense/draft-simple/slow/g4"] == "drafting"
    assert reasons["dense/draft-simple/poor/g4"] == "acceptance"


def test_restores_of_a_recurrent_target(tmp_path: Path) -> None:
    recurrent = {"base_ms": 33.0, "token_ms": 4.0, "restore_ms": 60.0}
    file = write(
        tmp_path, targets={"dense": "mock:dense"}, engine={"kind": "mock", "mock": {"targets": {"dense": recurrent}}}
    )
    measured(file, tmp_path / "run")
    arm = account(tmp_path / "run", with_probes=False)["dense/draft-simple/small/g4"]
    adds_up([arm])
    with RunStore.open(tmp_path / "run", readonly=True) as store:
        tally = total(read_tallies(store)[arm.arm_id].values())
    assert tally.replays > 0
    assert tally.rounds + tally.replays == tally.forwards
    assert arm.means == "undivided"
    tau = next(it.tau for it in read_run(tmp_path / "run").summary.arms if it.arm_id == arm.arm_id)
    assert tau is not None
    assert arm.round is not None
    assert arm.round.tau / (1 + arm.round.replays) == pytest.approx(tau.point)
    assert said_of(arm.sentence, "account.step").values["tau"] == f"{arm.round.tau:.2f}"
    assert said_of(arm.sentence, "account.by_forward").values["tau"] == pytest.approx(tau.point)


def test_an_invalid_arm_is_explained_but_has_no_speedup(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    engine = faults({"kind": "inactive", "arm": "dense/draft*"})
    measured(write(tmp_path, engine=engine), tmp_path / "run")
    arm = account(tmp_path / "run")["dense/draft-simple/small/g4"]
    assert (arm.verdict, arm.speedup) == ("invalid", None)
    assert arm.sentence == Message("account.invalid_idle")
    assert invoke(["explain", str(tmp_path / "run")]) == 1
    assert "invalid" in capsys.readouterr().out


def test_an_unfinished_run_is_explained_as_far_as_it_came(tmp_path: Path) -> None:
    engine = faults({"kind": "interrupt", "call": 20})
    with pytest.raises(KeyboardInterrupt):
        measured(write(tmp_path, engine=engine), tmp_path / "run")
    adds_up(account(tmp_path / "run").values())


def test_a_run_in_which_nothing_was_measured(tmp_path: Path) -> None:
    engine = faults({"kind": "interrupt", "call": 0})
    with pytest.raises(KeyboardInterrupt):
        measured(write(tmp_path, engine=engine), tmp_path / "run")
    with pytest.raises(UsageError, match="nothing has been measured") as refused:
        account(tmp_path / "run")
    assert refused.value.fix == "run the same command again to resume it"


def test_the_command_explains(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    measured(write(tmp_path, arms=ARMS), tmp_path / "run")
    probes = ["--probe", written(tmp_path, mock_probe()), "--probe", written(tmp_path, mock_probe("moe"), "m.json")]
    assert invoke(["explain", str(tmp_path / "run"), *probes]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "verifying 5 tokens costs" in text
    assert invoke(["explain", str(tmp_path / "run"), *probes, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["probe"] == "probe.json, m.json"
    assert len(document["arms"]) == 6
    assert all({"parts", "sentence", "speedup", "prediction", "by_curve_error"} <= set(arm) for arm in document["arms"])
    assert invoke(["explain", str(tmp_path / "run")]) == 0


def test_a_probe_of_other_models_explains_nothing(tmp_path: Path) -> None:
    measured(write(tmp_path, targets={"dense": "mock:dense"}), tmp_path / "run")
    assert invoke(["explain", str(tmp_path / "run"), "--probe", written(tmp_path, mock_probe("moe"))]) == 2


# --- the real engine -------------------------------------------------------------------------------------------------


def test_a_real_run_is_accounted_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    experiment = {
        "name": "real",
        "targets": {"dense": "bench:dense"},
        "drafts": {"small": "bench:draft-small"},
        "workloads": [{"source": "bench", "kinds": ["code", "edit"], "per_kind": 1}],
        "arms": [{"draft": "small", "gamma": [2, 4]}, {"method": "ngram-simple", "ngram_n": 4, "gamma": 6}],
        "design": {"blocks": 2, "warmup": "short"},
        "engine": {"context": 512, "threads": 1},
        "generation": {"max_tokens": 48},
    }
    file = tmp_path / "real.yaml"
    file.write_text(json.dumps(experiment), encoding="utf-8")
    assert invoke(["run", str(file), "--out", str(tmp_path / "run")]) in (0, 1)
    capsys.readouterr()
    report = read_run(tmp_path / "run")
    with RunStore.open(tmp_path / "run", readonly=True) as store:
        found = {arm.arm_id: arm for arm in explain(store, report).arms}
        predicted = {it.arm_id: it for it in store.predictions()}
        first = {session.arm_id: session.started_at for session in reversed(list(store.sessions()))}
        tallies: dict[str, Tally] = {arm_id: total(cells.values()) for arm_id, cells in read_tallies(store).items()}
    adds_up(found.values())
    for gamma in (2, 4):
        arm = found[f"dense/draft-simple/small/g{gamma}"]
        tally = tallies[arm.arm_id]
        shares = {part.name: part.share for part in arm.parts}
        assert arm.means in ("step times", "difference")
        assert 0 < shares["draft"] < 0.9
        # On a may have been busy plain tokens may cost more than all of the steps that verify, and account for nothing.
        assert arm.accounted is None or shares["draft"] < arm.accounted <= 1, (
            "the steps that verify are counted at the price of plain tokens"
        )
        assert tally.drafting_ms is not None
        assert 0 < tally.drafting_ms < tally.ms
        assert tally.tokens == tally.rounds + tally.accepted
        assert arm.sentence is not None
    assert set(predicted) == {arm_id for arm_id in found if not arm_id.endswith("/none")}
    for arm_id, it in predicted.items():
        assert it.made_at < first[arm_id]
        assert it.speedup is not None
        assert it.speedup.low is not None
        assert it.speedup.low < it.speedup.point
        assert codes(it.cost) & {"costs.headers", "costs.probe", "costs.steps"}


@pytest.mark.parametrize(("half", "noisy"), [(4.0, True), (0.1, False)])
def test_a_time_whose_interval_is_wider_than_tenfold_is_no_number(half: float, noisy: bool) -> None:
    cell = ms_per_token(est(10.0, half), struck=False)
    assert (cell.text == Message("cell.too_noisy")) == noisy


def test_disturbed_steps_that_predictions_used_price_forwards_here_too() -> None:
    """One source of costs: nothing says that none is known beside numbers that rest on it."""
    seen = StepRound(plain_ms=10.0, step_ms={1: 17.0, 7: 77.0}, other_cpu_percent=(60.0,))
    steps = StepProbe(
        baseline_id="moe/none",
        target="moe",
        draft=None,
        engine=EngineSettings(),
        gamma=7,
        started_at=1.0,
        ended_at=2.0,
        left_out=(seen,),
    )
    assert [verification(steps)(n) for n in (1, 8)] == pytest.approx([1.0, 7.7])
    calm = steps.model_copy(update={"rounds": (seen,), "left_out": ()})
    one, other = (
        predict(Given.alpha(0.6), stepped(it), [7], by_model=False).by_gamma[0].speedup for it in (calm, steps)
    )
    assert other.point == pytest.approx(one.point)
    assert (other.high or 0) - (other.low or 0) > 1.5 * ((one.high or 0) - (one.low or 0))
