"""Acceptance by position and accepted lengths: counted by hand, against the estimator, and of runs."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from measure.test_measure import measured, write
from records import request
from records import session as made
from show.test_export import as_csv, as_jsonl
from specmeter.analysis.positions import ALL, counted, positions
from specmeter.cli import invoke
from specmeter.engines import Launch
from specmeter.engines.mock.engine import MockEngine
from specmeter.engines.mock.spec import mock_model
from specmeter.messages import Message
from specmeter.record import Arm, Generation, Prompt
from specmeter.store import RunStore

DRAFTING = "dense/draft-simple/small/g4"
STEPS = st.lists(st.tuples(st.integers(1, 6), st.integers(0, 6)).map(lambda it: (it[0], min(it))), min_size=1)


def test_by_hand() -> None:
    """Two prompts: 4 drafted, of which 4, 1 and 0 are accepted; and a shorter one."""
    arm = counted("a", ALL, [Counter({(4, 4): 1, (4, 1): 1}), Counter({(4, 0): 1, (2, 2): 2})])
    assert (arm.prompts, arm.drafts) == (2, 5)
    assert [(it.drafted, it.reached, it.accepted) for it in arm.positions] == [
        (5, 5, 4),
        (5, 4, 3),
        (3, 1, 1),
        (3, 1, 1),
    ]
    first, second, *_, last = arm.positions
    assert first.conditional is not None
    assert first.conditional.point == first.unconditional.point == 0.8
    assert (first.conditional.n, first.conditional.of) == (2, "prompts")
    assert second.conditional is not None
    assert (second.conditional.point, second.unconditional.point) == (0.75, 0.6)
    assert (last.drafted, last.unconditional.point) == (3, 0.2), "of all 5 drafts, also of those that were too short"
    assert last.conditional is not None
    assert last.conditional.low is None, "one prompt reached it: no interval"
    assert [it.steps for it in arm.lengths] == [1, 1, 2, 0, 1]
    assert sum(it.share.point for it in arm.lengths) == pytest.approx(1)


@pytest.mark.parametrize(("prompts", "known"), [(3, False), (4, True)])
def test_too_few_prompts_have_no_interval(prompts: int, known: bool) -> None:
    arm = counted("a", ALL, [Counter({(2, 2): 1 + number, (2, 0): 3}) for number in range(prompts)])
    shares = [*(it.unconditional for it in arm.positions), arm.positions[0].conditional, arm.lengths[0].share]
    assert [it is not None and it.low is not None for it in shares] == [known] * len(shares)


@given(st.lists(STEPS, min_size=1, max_size=6))
def test_counts_of_positions_are_those_of_a_plain_loop(prompts: list[list[tuple[int, int]]]) -> None:
    arm = counted("a", ALL, [Counter(steps) for steps in prompts])
    every = [step for steps in prompts for step in steps]
    for it in arm.positions:
        if it.conditional is not None:
            assert it.reached == sum(d >= it.position and a >= it.position - 1 for d, a in every)
            assert it.accepted == sum(a >= it.position for _, a in every)
            assert it.conditional.point == pytest.approx(it.accepted / it.reached)
    of_all = [it.unconditional.point for it in arm.positions]
    assert of_all == sorted(of_all, reverse=True), "no second token is accepted without the first"
    for it in arm.positions:
        assert it.accepted <= it.reached <= it.drafted
        if (own := it.conditional) is not None and own.low is not None and own.high is not None:
            assert 0 < own.low <= own.point <= own.high < 1


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("positions")
    measured(write(folder), folder / "run")
    return folder / "run"


def test_a_run_s_positions_are_its_counters(run: Path) -> None:
    with RunStore.open(run, readonly=True) as store:
        found = positions(store)
        replies = [it.reply for it in store.requests() if it.arm_id == DRAFTING and it.reply is not None]
    arms = {(it.arm_id, it.kind): it for it in found}
    whole = arms[DRAFTING, ALL]
    assert sum(it.accepted for it in whole.positions) == sum((it.timings.draft_n_accepted or 0) for it in replies)
    assert sum(it.drafted for it in whole.positions) == sum((it.timings.draft_n or 0) for it in replies)
    assert sum(it.accepted * it.steps for it in whole.lengths) == sum(
        (it.timings.draft_n_accepted or 0) for it in replies
    )
    assert whole.prompts == 4
    kinds = [it for (arm, kind), it in arms.items() if arm == DRAFTING and kind != ALL]
    assert {it.kind for it in kinds} == {"fact", "edit"}
    assert sum(it.drafts for it in kinds) == whole.drafts
    assert not any(it.arm_id == "dense/none" for it in found), "plain decoding drafts nothing"


def test_show_has_them_on_request(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["show", str(run)]) == 0
    assert "if reached" not in capsys.readouterr().out
    assert invoke(["show", str(run), "--positions"]) == 0
    out = capsys.readouterr().out
    assert "draft model small, 4 draft tokens: " in out
    assert "accepted if reached, %" in out
    assert "█" in out
    assert invoke(["show", str(run), "--positions", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)["positions"]
    assert {it["arm_id"] for it in data} >= {DRAFTING}


def test_exports_have_a_row_for_each_position_and_length(run: Path) -> None:
    rows = [row for row in as_jsonl(run, "positions") if (row["arm_id"], row["kind"]) == (DRAFTING, ALL)]
    assert [row["position"] for row in rows] == [1, 2, 3, 4]
    for row in rows:
        assert row["unconditional"] == row["accepted"] / row["drafts"]  # type: ignore[operator]
        assert row["missing"] is None
    lengths = [row for row in as_jsonl(run, "accepted_lengths") if (row["arm_id"], row["kind"]) == (DRAFTING, ALL)]
    assert [row["accepted"] for row in lengths] == [0, 1, 2, 3, 4]
    assert sum(float(str(row["share"])) for row in lengths) == pytest.approx(1)


def test_an_engine_that_shows_no_steps_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    engine, folder = MockEngine(), tmp_path / "run"
    arm = Arm(id="dense/sd/g4", target="dense", methods=("draft-simple",), draft="small", gamma=4)
    prompt = Prompt(id="p", workload="w", kind="code", text="some words", sha256="1")
    with RunStore.create(
        folder, experiment_yaml="", experiment_json='{"name": "t"}', plan=[(0, 0, arm.id, "p")]
    ) as store:
        launch = Launch(
            arm, mock_model("dense", "mock:dense"), mock_model("small", "mock:small"), store.log_path("s", arm.id)
        )
        store.set_arms([arm])
        store.set_prompts([prompt])
        with engine.start(launch) as session:
            store.add_session(made(arm.id, engine=engine.identify()))
            wanted = Generation(max_tokens=20, ignore_eos=True)
            reply = session.generate(prompt, wanted).model_copy(update={"steps": ()})
            store.add_request(request(arm.id, prompt, reply=reply))
        assert (reply.timings.draft_n or 0) > 0
        (found,) = positions(store)
    no_steps = Message("positions.no_steps")
    assert (found.arm_id, found.missing, found.positions) == (arm.id, no_steps, ())
    (row,) = as_csv(folder, "positions")
    assert (row["arm_id"], row["missing"], row["position"]) == (arm.id, str(no_steps), "")
    assert [row["missing"] for row in as_csv(folder, "accepted_lengths")] == [str(no_steps)]
    invoke(["show", str(folder), "--positions"])
    assert f"No acceptance by position for {arm.id}" in capsys.readouterr().out
