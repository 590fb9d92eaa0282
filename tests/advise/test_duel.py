"""Advice on whole answers, on the mock engine: answers end by themselves, and differ in length."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from advise.test_course import ASKED, Heard
from specmeter.advise.advice import AdviceQuestion, read_advice
from specmeter.advise.advise import advise
from specmeter.advise.again import again
from specmeter.advise.duel import in_turn, ruled
from specmeter.advise.observer import Silent
from specmeter.advise.verify_advice import examined
from specmeter.experiments.file import LoadedExperiment, load
from specmeter.numbers.estimates import between
from specmeter.record import Estimate, Prompt
from specmeter.store import RunStore


def grid(
    *, kinds: tuple[str, ...] = ("fact", "code"), gamma: tuple[int, ...] = (1, 4, 8), **mock: Any
) -> LoadedExperiment:
    return load(
        {
            "targets": {"t": "mock:dense"},
            "drafts": {"small": "mock:small"},
            "arms": [{"draft": "small", "gamma": list(gamma)}],
            "workloads": [{"source": "bench", "kinds": list(kinds), "per_kind": 8}],
            "design": {"blocks": 1, "probe": "off"},
            "generation": {"max_tokens": 400, "ignore_eos": False},
            "engine": {"kind": "mock", "mock": {"noise": 0.004, **mock}},
        }
    )


def asked(budget_s: float = 900) -> AdviceQuestion:
    return ASKED.model_copy(update={"budget_s": budget_s})


def test_a_gain_is_found_on_answers_of_different_length(tmp_path: Path) -> None:
    found = advise(asked(), grid(), tmp_path / "a", Silent())
    assert (found.decision, found.basis, found.verdict, found.held_out) == ("speculate", "confirmed", "valid", True)
    assert found.finished
    with RunStore.open(tmp_path / "a" / "confirm", readonly=True) as store:
        rows = list(store.rows())
        lengths = {row.predicted_n for row in rows}
        searched = {row.prompt_id for row in RunStore.open(tmp_path / "a" / "screen", readonly=True).rows()}
        assert len(lengths) > 3
        assert {row.stop_reason for row in rows} != {"limit"}
        assert not searched & {row.prompt_id for row in rows}
        assert all(len({row.prompt_id for row in rows if row.block == block}) == 1 for block in range(4))
    assert examined(read_advice(tmp_path / "a"), tmp_path / "a") == read_advice(tmp_path / "a")


def test_the_number_is_that_of_whole_answers(tmp_path: Path) -> None:
    found = advise(asked(), grid(noise=0.0), tmp_path / "a", Silent())
    assert found.arm is not None
    assert found.speedup is not None
    with RunStore.open(tmp_path / "a" / "confirm", readonly=True) as store:
        sums = {found.arm.id: [0.0, 0.0], "t/none": [0.0, 0.0]}
        for row in store.rows():
            if row.arm_id in sums:
                sums[row.arm_id][0] += (row.predicted_n or 0) - 1
                sums[row.arm_id][1] += row.predicted_ms or 0.0
    mine, plain = sums[found.arm.id], sums["t/none"]
    assert found.speedup.point == pytest.approx((mine[0] / mine[1]) / (plain[0] / plain[1]))


def test_a_draft_that_loses_clearly_gets_one_short_check(tmp_path: Path) -> None:
    found = advise(
        asked(), grid(drafts={"small": {"token_ms": 6.0, "other_acceptance": [0.05]}}), tmp_path / "a", Silent()
    )
    assert (found.decision, found.verdict, found.arm) == ("off", "valid", None)
    assert found.speedup is not None
    assert found.speedup.point < 1
    confirm = next(it for it in found.stages if it.stage == "confirm")
    assert (confirm.blocks, confirm.sessions) == (4, 8)


def test_a_short_budget_is_answered_by_what_is_predicted(tmp_path: Path) -> None:
    found = advise(asked(budget_s=25), grid(), tmp_path / "a", Silent())
    assert (found.finished, found.basis, found.decision) == (False, "predicted", "undecided")
    assert found.why_undecided == "budget"
    longer = advise(asked(), grid(), tmp_path / "a", Silent())
    assert (longer.finished, longer.basis, longer.decision) == (True, "confirmed", "speculate")
    assert [it.folder for it in longer.stages] == ["screen", "confirm"], "it goes on where it ended"


@pytest.mark.parametrize("at", [2, 7, 12])
def test_what_was_interrupted_goes_on(at: int, tmp_path: Path) -> None:
    stopped = advise(asked(), grid(), tmp_path / "a", Heard(interrupt_at=at))
    assert (stopped.finished, stopped.why_undecided) == (False, "interrupted")
    found = advise(asked(), grid(), tmp_path / "a", Silent())
    assert (found.finished, found.decision) == (True, "speculate")


def test_it_can_be_confirmed_again(tmp_path: Path) -> None:
    advise(asked(), grid(), tmp_path / "a", Silent())
    found = again(tmp_path / "a", tmp_path / "b", Silent())
    assert found.again is not None
    assert found.again.holds == "holds"
    confirm = next(it for it in found.stages if it.stage == "confirm")
    assert confirm.sessions == 2 * confirm.blocks, "each answer once"


def speedup(point: float, low: float, high: float) -> Estimate:
    return between(point, low, high, "x", "", n=4)


@pytest.mark.parametrize(
    ("here", "over", "predicted", "ruling"),
    [
        ((1.3, 1.2, 1.4), (1.3, 1.1, 1.5), None, "gains"),
        ((1.3, 1.2, 1.4), (1.3, 0.9, 1.8), None, "here"),
        ((1.0, 0.99, 1.01), (1.0, 0.9, 1.1), None, "same"),
        ((0.9, 0.8, 1.01), (0.9, 0.7, 1.1), None, "none"),
        ((1.0, 0.97, 1.03), (1.0, 0.97, 1.03), None, "open"),
        ((1.0, 0.97, 1.03), (1.0, 0.97, 1.03), (0.99, 0.96, 1.02), "none"),
        ((1.05, 0.97, 1.12), (1.05, 0.97, 1.12), (1.05, 0.9, 1.2), "open"),
        ((1.03, 0.97, 1.09), (1.03, 0.97, 1.09), (0.98, 0.96, 1.0), "open"),
    ],
)
def test_what_the_intervals_show(
    here: tuple[float, float, float],
    over: tuple[float, float, float],
    predicted: tuple[float, float, float] | None,
    ruling: str,
) -> None:
    assert ruled(speedup(*here), speedup(*over), speedup(*predicted) if predicted else None) == ruling


def test_prompt_types_take_turns() -> None:
    def prompt(name: str, kind: str) -> Prompt:
        return Prompt(id=name, workload="w", kind=kind, text=name, sha256="0")

    assert in_turn([prompt("a", "x"), prompt("b", "x"), prompt("c", "y"), prompt("d", "x")]) == ["a", "c", "b", "d"]
