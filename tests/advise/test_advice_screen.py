"""The grid and the screen: on the mock engine, whose truth is known, and on a real pair of bench models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from measure.test_measure import Silent
from said import said_of
from specmeter.advise.advice import AdviceQuestion, ArmOutcome
from specmeter.advise.grid import grid
from specmeter.advise.race import without_room
from specmeter.advise.screen import TIE_MARGIN, ArmForecast, Shortlist, choose, explore, look, pilots, simplicity
from specmeter.experiments.file import load
from specmeter.laboratory.run import Prepared, prepare, run
from specmeter.messages import Message
from specmeter.numbers.estimates import of_draws
from specmeter.record import Arm, EngineSettings
from specmeter.store import RunStore

MOCK = (
    "engine.kind=mock",
    "generation.max_tokens=200",
    "workloads=[{source: studies, per_kind: 2, kinds: [code, edit]}]",
)

MADE_UP = Message("text.outside", text="made up")


def screened(whole: Prepared, folder: Path) -> tuple[ArmForecast, ...]:
    """What the screen's run and a look at it say."""
    wanted = {arm.id for arm in whole.work.arms.values() if arm.role == "baseline"} | set(pilots(whole))
    measured = prepare(whole.loaded, leave_out=[arm_id for arm_id in whole.work.arms if arm_id not in wanted])
    run(measured, folder, Silent())
    with RunStore.open(folder) as store:
        # Without a host nothing is refused as busy: the machine that runs the tests may be.
        explore(whole, store, host=None, budget_s=600.0)
    with RunStore.open(folder, readonly=True) as store:
        return look(whole, store)


def forecast(arm_id: str, point: float, noise: float = 0.01, draft: str | None = "d", **fields: Any) -> ArmForecast:
    """One whose draws are its own."""
    rng = np.random.default_rng(sum(arm_id.encode()))
    draws = point * np.exp(noise * rng.standard_normal(2000))
    draws[0] = point
    arm = Arm(id=arm_id, target="t", draft=draft, methods=("draft-simple",), engine=EngineSettings(), **fields)
    return ArmForecast(arm, of_draws(draws, "x", level=0.95), {}, MADE_UP, draws)


def codes(choice: Shortlist) -> dict[str, str]:
    return {outcome.arm_id: outcome.code for outcome in choice.outcomes}


def test_a_grid_of_hundreds_and_only_what_the_engine_knows() -> None:
    arms = grid(AdviceQuestion(target="bench:dense"), ["bench:draft-small", "bench:draft-large"]).experiment.expand()
    ids = [arm.id for arm in arms]
    assert len(arms) >= 200
    assert len(set(ids)) == len(ids)
    assert [arm.id for arm in arms if arm.role == "baseline"] == ["dense/none"]
    assert {arm.draft for arm in arms} == {None, "draft-small", "draft-large"}
    assert "dense/draft-simple/draft-small/g8/min2/p0.5" in ids
    lengths = grid(AdviceQuestion(target="mock:dense", settings=MOCK), ["mock:small"]).experiment.expand()
    assert not any(arm.p_min or arm.gamma_min for arm in lengths), "its drafts cannot be replayed"
    alone = grid(AdviceQuestion(target="bench:dense")).experiment.expand()
    assert all(arm.draft is None for arm in alone)


def test_above_temperature_0_drafts_are_drawn_as_well() -> None:
    asked = AdviceQuestion(target="bench:dense", settings=("generation.temperature=0.7",))
    arms = [it for it in grid(asked, ["bench:draft-small"]).experiment.expand() if it.methods == ("draft-simple",)]
    assert {it.draft_sampling for it in arms} == {None, "probabilistic"}


def test_a_grid_takes_prompts_settings_and_files(tmp_path: Path) -> None:
    prompts = tmp_path / "mine.jsonl"
    prompts.write_text('{"text": "one"}\n', encoding="utf-8")
    asked = AdviceQuestion(target="bench:dense", prompts=(str(prompts),), settings=("engine.threads=2",), max_tokens=33)
    loaded = grid(asked)
    assert [spec.source for spec in loaded.experiment.workloads] == ["file"]
    assert (loaded.experiment.engine.threads, loaded.experiment.generation.max_tokens) == (2, 33)
    file = tmp_path / "mine.yaml"
    file.write_text("target: mock:dense\ndraft: mock:small\narms: [{gamma: [2, 4]}]\nengine: {kind: mock}\n", "utf-8")
    mine = grid(AdviceQuestion(target="", from_file=str(file)), ["mock:other"])
    assert [arm.gamma for arm in mine.experiment.expand()] == [None, 2, 4]


def test_the_screen_finds_the_best_arm_of_the_mock(tmp_path: Path) -> None:
    whole = prepare(grid(AdviceQuestion(target="mock:dense", settings=MOCK), ["mock:small"]))
    found = screened(whole, tmp_path / "run")
    assert all(it.predicted is not None for it in found)
    assert set(found[0].by_kind) == {"code", "edit"}
    chosen = choose(found)
    assert 1 <= len(chosen.kept) <= 5
    assert len(chosen.kept) + len(chosen.outcomes) == len(found) == len(whole.work.arms) - 1
    # The truth: every arm measured, on a machine without noise.
    truth = tmp_path / "truth"
    run(prepare(load(whole.loaded.experiment, ["engine.mock.noise=0"])), truth, Silent())
    with RunStore.open(truth, readonly=True) as store:
        times: dict[str, float] = {}
        for request in store.requests():
            assert request.reply is not None
            times[request.arm_id] = times.get(request.arm_id, 0.0) + request.reply.timings.predicted_ms
    plain = times["dense/none"]
    for it in found:
        # Lookups follow from a pilot of 16 tokens; what they drafted there is a sample of what others draft.
        near = 0.1 if it.arm.draft is None else 0.08
        assert it.point == pytest.approx(plain / times[it.arm.id], rel=near), it.arm.id
    best = min(times, key=lambda arm_id: times[arm_id])
    assert min(times[arm_id] for arm_id in chosen.kept) <= (1 + 2 * TIE_MARGIN) * times[best]
    with RunStore.open(tmp_path / "run", readonly=True) as store:
        slower = {it.arm.id: it.point for it in look(whole, store, goal="latency")}
    assert all(1 < slower[it.arm.id] < it.point for it in found[:5]), "the prompt takes as long as before"


def test_the_targets_own_head_is_seen_at_every_length_before_it_is_left_out(tmp_path: Path) -> None:
    whole = prepare(grid(AdviceQuestion(target="mock:dense", settings=MOCK), heads=["draft-mtp"]))
    heads = [f"dense/draft-mtp/g{gamma}" for gamma in (1, 2, 3, 4)]
    assert [arm_id for arm_id in pilots(whole) if "mtp" in arm_id] == heads
    found = {it.arm.id: it for it in screened(whole, tmp_path / "run")}
    for arm_id in heads:
        assert found[arm_id].predicted is not None
        assert found[arm_id].basis == Message("screen.measured_on", prompts=4)
        assert set(found[arm_id].by_kind) == {"code", "edit"}
    best = max(heads, key=lambda arm_id: found[arm_id].point)
    assert 1.2 < found[best].point < 4
    assert found[best].tau == pytest.approx(2.5, abs=0.8)
    assert set(choose(list(found.values())).kept) & set(heads)
    assert not any(
        "mtp" in arm.id for arm in grid(AdviceQuestion(target="mock:dense", settings=MOCK)).experiment.expand()
    )


def test_what_is_left_out_and_why() -> None:
    leader, near, far = forecast("g4", 2.0, gamma=4), forecast("g5", 1.99, gamma=5), forecast("g16", 1.5, gamma=16)
    other, loser = forecast("n", 1.97, draft=None), forecast("bad", 0.8, gamma=1)
    blind = ArmForecast(loser.arm.model_copy(update={"id": "blind"}), None, {}, MADE_UP, None)
    chosen = choose([leader, near, other, far, loser, blind])
    assert chosen.kept == ("g4", "n", "blind")
    assert codes(chosen) == {"g5": "as-good", "g16": "cannot-win", "bad": "cannot-gain"}
    by_id = {outcome.arm_id: outcome for outcome in chosen.outcomes}
    assert by_id["g5"].than == by_id["g16"].than == "g4"
    ratio = by_id["g16"].ratio
    assert ratio is not None
    assert ratio.high is not None
    assert ratio.high < 1
    assert codes(choose([leader, near, other, far, loser, blind], most=2))["blind"] == "no-room"


def test_the_simplest_of_neighbours_leads_and_nothing_that_may_win_is_called_a_loser() -> None:
    doubting = forecast("g6/p0.5", 2.01, gamma=6, p_min=0.5)
    plain = forecast("g4", 2.0, gamma=4)
    assert simplicity(plain.arm) < simplicity(doubting.arm)
    assert choose([doubting, plain]).kept == ("g4",)
    spread = [forecast(f"g{gamma}", 2.0 - 0.03 * gamma, noise=0.2, gamma=gamma) for gamma in range(1, 10)]
    chosen = choose(spread)
    assert len(chosen.kept) == 5
    assert set(codes(chosen).values()) == {"no-room"}


@pytest.mark.parametrize(("point", "code"), [(0.88, "cannot-gain"), (1.0, "no-room")])
def test_what_is_not_raced_for_want_of_room_follows_its_interval(point: float, code: str) -> None:
    outcome = ArmOutcome(arm_id="n", predicted=forecast("n", point).predicted, code="open", stage="screen")
    assert without_room(outcome).code == code


def test_nothing_is_raced_where_nothing_gains() -> None:
    chosen = choose([forecast("g1", 0.9, gamma=1), forecast("g2", 0.8, gamma=2)])
    assert chosen.kept == ()
    assert codes(chosen) == {"g1": "cannot-gain", "g2": "cannot-gain"}
    assert choose([]) == Shortlist((), ())


@pytest.mark.slow
def test_a_real_pair_is_priced_without_measuring_its_arms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specmeter.laboratory.pre_measure.CHEAPEST", 0.0)  # others may hold some steps up
    monkeypatch.setattr("specmeter.laboratory.evidence.WORTH", 0.0)
    settings = (
        "generation.max_tokens=32",
        "engine.threads=1",
        "engine.context=1024",
        "workloads=[{source: bench, per_kind: 1, kinds: [code, edit]}]",
        "arms=[{gamma: 4}, {gamma: 8, p_min: 0.5, gamma_min: 2}, {method: ngram-simple, ngram_n: 2, gamma: 4}, "
        "{method: [ngram-map-k, ngram-map-k4v], ngram_n: 2, gamma: 4}, {method: ngram-cache, gamma: 8}, "
        "{method: ngram-mod, ngram_n: 4, gamma: 8, gamma_min: 2}]",
    )
    whole = prepare(grid(AdviceQuestion(target="bench:dense", settings=settings), ["bench:draft-small"]))
    assert pilots(whole) == ()
    found = screened(whole, tmp_path / "run")
    assert len(found) == 7
    assert [it.basis for it in found if it.predicted is None] == []
    assert {said_of(it.basis, "rates.replayed").values["arm"] for it in found} == {"dense/none"}
    run(whole, tmp_path / "truth", Silent())
    with RunStore.open(tmp_path / "truth", readonly=True) as store:
        emitted: dict[str, list[int]] = {}
        for request in store.requests():
            assert request.reply is not None
            timings = request.reply.timings
            both = emitted.setdefault(request.arm_id, [0, 0])
            both[0] += timings.predicted_n - 1
            both[1] += timings.predicted_n - 1 - (timings.draft_n_accepted or 0)
    for it in found:
        assert it.tau == pytest.approx(emitted[it.arm.id][0] / emitted[it.arm.id][1]), it.arm.id
