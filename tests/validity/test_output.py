"""Checks of what was generated."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from factory import (
    BASE,
    PROMPT_IDS,
    SD,
    before,
    experiment,
    found,
    run_data,
    simulated,
    unchecked,
    with_requests,
    without_requests,
)
from mock_run import mock_run

from specmeter.messages import Message
from specmeter.record import Finding, Margin
from specmeter.store import RequestKey, RequestRow
from specmeter.store.integrity import PARTS
from specmeter.validity.checks import output
from specmeter.validity.checks.output import (
    REAL_NEAR_TIE,
    WIDEST_NEAR_TIE,
    length_mismatch,
    output_degenerate,
    output_differs,
    thinking_differs,
    thinking_truncated,
)
from specmeter.validity.checks.request_data import BUCKETS, RequestData, token_histogram
from specmeter.validity.checks.run_data import RunData
from specmeter.validity.checks.sampled import sampled_distribution
from specmeter.validity.inspection import judge

CLEAN = run_data()
CONTROLS = run_data(experiment(design={"blocks": 4, "controls": True}))
AGAIN, ALL = f"{BASE}/again", f"{BASE}/accept-all"


@pytest.mark.parametrize("check", output.CHECKS, ids=lambda check: check.id)
def test_a_clean_run_is_left_alone(check: Any) -> None:
    assert set(check.saw) <= set(PARTS)
    for data in (CLEAN, CONTROLS, simulated(CLEAN), before(CLEAN)):
        assert found(check.look, data) == []
        assert unchecked(check.look, data, applies=True) == []


def key(arm_id: str = SD, block: int = 0, prompt_id: str = PROMPT_IDS[0]) -> RequestKey:
    return RequestKey(0, block, arm_id, prompt_id)


def parted(data: RunData, *keys: RequestKey, at: int = 20) -> RunData:
    """Texts that leave their reference."""
    data = with_requests(data, lambda row: row.key in keys, lambda it: {"output": repr(it.key).encode()})
    return replace(data, left_at={**data.left_at, **dict.fromkeys(keys, at)})


def answered(
    data: RunData, where: RequestKey, plain: float | None, arm: float | None, *, best: float | None = None, at: int = 20
) -> RunData:
    """The target was asked about a place where texts part; natural logarithms of probabilities."""
    top = max(value for value in (plain, arm, best) if value is not None)
    margin = Margin(
        arm_id=where.arm_id,
        prompt_id=where.prompt_id,
        invocation=where.invocation,
        block=where.block,
        position=at,
        baseline_token=1,
        arm_token=2,
        baseline_logprob=plain,
        arm_logprob=arm,
        best_logprob=top,
    )
    return replace(data, margins=(*data.margins, margin))


def differs(data: RunData, arm_id: str = SD) -> Finding:
    (finding,) = [it for it in found(output_differs, data) if it.arm_id == arm_id]
    return finding


# --- output-differs --------------------------------------------------------------------------------------------------


def test_a_near_tie_is_a_note() -> None:
    data = answered(parted(CLEAN, key()), key(), -0.7, -0.75)
    finding = differs(data)
    assert finding.severity == "note"
    assert finding.evidence["near_ties"] == 1
    assert finding.evidence["largest_gap"] == pytest.approx(0.05)
    assert finding.evidence["share"] == pytest.approx(1 / 12)
    assert finding.message.values["beside"] == Message("output-differs.steady")
    assert judge(data, output.CHECKS).arms == {BASE: "valid", SD: "valid"}


@pytest.mark.parametrize(
    ("plain", "arm", "best"),
    [
        (-0.1, -3.0, None),
        (-0.1, None, None),
        (-3.0, -0.1, None),
        (None, -0.1, None),
        (-2.0, -2.1, -0.3),
        (-0.7, -0.7 - REAL_NEAR_TIE - 0.01, None),
        (0.0, -9.0, None),
    ],
)
def test_where_the_target_is_sure_it_is_suspect(plain: float | None, arm: float | None, best: float | None) -> None:
    data = answered(parted(CLEAN, key()), key(), plain, arm, best=best)
    finding = differs(data)
    assert (finding.severity, finding.evidence["real"]) == ("suspect", 1)
    assert unchecked(output_differs, data, applies=True) == []
    assert judge(data, output.CHECKS).arms[SD] == "suspect"


def test_the_baseline_may_be_the_one_that_is_off() -> None:
    finding = differs(answered(parted(CLEAN, key()), key(), -5.0, 0.0))
    assert finding.remedy == Message("output-differs.fix_baseline")
    assert finding.evidence["target_prefers_the_arms"] == 1


def test_how_far_arithmetic_reaches_is_read_from_the_target_itself() -> None:
    """Asked again, the target prefers the arm's token by 0.4: then 0.6 the other way is no more than arithmetic."""
    other = key(block=1)
    doubtful = answered(parted(CLEAN, key(), other), other, -0.5, -1.1)
    assert differs(answered(doubtful, key(), -0.7, -0.6)).severity == "suspect"
    swaying = answered(doubtful, key(), -1.1, -0.7)
    assert differs(swaying).severity == "note"
    assert differs(swaying).evidence["near_tie_up_to"] == pytest.approx(0.8)


def test_no_arithmetic_reaches_everywhere() -> None:
    other = key(block=1)
    data = answered(answered(parted(CLEAN, key(), other), other, -0.1, -1.2), key(), -3.0, -0.1)
    assert differs(data).evidence["near_tie_up_to"] == WIDEST_NEAR_TIE
    assert differs(data).evidence["real"] == 2


def test_without_an_answer_it_is_suspect_and_a_blind_spot() -> None:
    data = parted(CLEAN, key(), key(block=1))
    assert differs(data).severity == "suspect"
    assert differs(data).evidence["not_asked"] == 2
    (gap,) = unchecked(output_differs, data, applies=True)
    assert (gap.arm_id, gap.reason) == (SD, Message("unchecked.not_asked", places=2))
    assert differs(answered(data, key(), -0.7, -0.7)).evidence["not_asked"] == 1


def test_a_margin_of_an_attempt_that_was_replaced_does_not_count() -> None:
    data = answered(parted(CLEAN, key()), key(), -0.7, -0.7, at=3)
    assert differs(data).evidence["not_asked"] == 1


def test_plain_decoding_that_differs_from_itself_stands_beside() -> None:
    data = parted(CLEAN, key(), key(BASE, 2), key(BASE, 3))
    for where in (key(), key(BASE, 2), key(BASE, 3)):
        data = answered(data, where, -0.7, -0.8)
    assert differs(data).evidence["plain_repeats_differ"] == 2
    assert differs(data).evidence["plain_repeats"] == 9
    assert differs(data).message.values["beside"] == Message("output-differs.unsteady", differ=2, compared=9)
    assert differs(data, BASE).severity == "note"
    assert differs(answered(parted(data, key(BASE, 1)), key(BASE, 1), -0.1, -4.0), BASE).severity == "suspect"


def test_the_second_baseline_is_compared_too() -> None:
    data = answered(parted(CONTROLS, key(AGAIN)), key(AGAIN), -0.1, -4.0)
    assert differs(data, AGAIN).severity == "suspect"


def test_texts_decided_by_dice_are_not_compared() -> None:
    gaps = {gap.arm_id: gap for gap in unchecked(output_differs, CONTROLS)}
    assert gaps[ALL].reason == Message("unchecked.synthetic")
    assert not gaps[ALL].applies


def test_what_cannot_be_compared_is_said() -> None:
    lonely = without_requests(CLEAN, lambda row: row.arm_id == BASE)
    assert [gap.arm_id for gap in unchecked(output_differs, lonely, applies=True)] == [SD]
    single = run_data(experiment(design={"blocks": 1}))
    assert [gap.arm_id for gap in unchecked(output_differs, single, applies=True)] == [BASE]
    silent = with_requests(CLEAN, output=b"", tokens=0)
    assert {gap.arm_id for gap in unchecked(output_differs, silent, applies=True)} == {BASE, SD}


# --- output-degenerate -----------------------------------------------------------------------------------------------


def looping(data: RunData, which: Callable[[RequestRow], bool] | str = lambda _: True) -> RunData:
    return with_requests(data, which, repeated=0.9)


def test_loops_about_which_nobody_was_asked_are_suspect() -> None:
    """However many: a text is not a counter."""
    data = looping(CLEAN, SD)
    findings = found(output_degenerate, data)
    assert [it.severity for it in findings] == ["suspect"] * 12
    assert {it.scope for it in findings} == {"request"}
    assert str(findings[0].message).endswith(": 90% of it is repetition, without speculation 5%")
    assert judge(data, output.CHECKS).arms[SD] == "suspect"


def test_one_loop_where_the_target_was_sure_is_false() -> None:
    data = looping(answered(parted(CLEAN, key()), key(), -0.1, -7.0), lambda row: row.key == key())
    assert [it.severity for it in found(output_degenerate, data)] == ["invalid"]
    assert judge(data, output.CHECKS).arms[SD] == "invalid"
    close = looping(answered(parted(CLEAN, key()), key(), -0.1, -0.9), lambda row: row.key == key())
    assert [it.severity for it in found(output_degenerate, close)] == ["suspect"], "not beyond all arithmetic"


def test_a_loop_after_a_near_tie_is_the_targets_own() -> None:
    data = looping(answered(parted(CLEAN, key()), key(), -0.7, -0.8), lambda row: row.key == key())
    (finding,) = found(output_degenerate, data)
    assert finding.severity == "suspect"
    assert finding.message.values["tie"] == Message("output-degenerate.tie")


def test_prompts_that_ask_for_repetition() -> None:
    """The baseline repeats as much, in this block or another."""
    table = with_requests(CLEAN, lambda row: row.prompt_id == PROMPT_IDS[2], repeated=0.45)
    assert found(output_degenerate, table) == []
    assert (
        found(output_degenerate, with_requests(table, lambda row: row.key == key(SD, 0, PROMPT_IDS[2]), repeated=0.8))
        == []
    )


def test_blank_texts() -> None:
    data = with_requests(CLEAN, SD, answered=False)
    assert {it.severity for it in found(output_degenerate, data)} == {"suspect"}
    assert found(output_degenerate, data)[0].message.code == "output-degenerate.blank"
    assert found(output_degenerate, with_requests(data, BASE, answered=False)) == [], "so is the baseline's"
    assert found(output_degenerate, with_requests(data, SD, reasoned=True)) == []


def test_plain_decoding_in_circles_is_a_note() -> None:
    data = looping(CLEAN)
    (finding,) = found(output_degenerate, data)
    assert (finding.arm_id, finding.severity) == (BASE, "note")


def test_loops_cannot_be_seen_without_token_ids_or_a_baseline() -> None:
    assert unchecked(output_degenerate, with_requests(CLEAN, SD, tokens=0), applies=True)[0].arm_id == SD
    assert not unchecked(output_degenerate, with_requests(CLEAN, tokens=8), applies=True)
    lonely = without_requests(CLEAN, lambda row: row.arm_id == BASE)
    assert unchecked(output_degenerate, lonely, applies=True)[0].arm_id == SD


# --- length-mismatch, thinking-truncated ------------------------------------------------------------------------------


@pytest.mark.parametrize("changes", [{"predicted_n": 40}, {"stop_reason": "eos"}])
def test_requests_that_end_otherwise(changes: dict[str, Any]) -> None:
    data = with_requests(CLEAN, lambda row: row.key == key(), **changes)
    (finding,) = found(length_mismatch, data)
    assert (finding.severity, finding.arm_id, finding.evidence["differ"]) == ("suspect", SD, 1)
    assert finding.evidence["example_prompt"] == PROMPT_IDS[0]


def test_a_text_that_left_the_baselines_may_end_elsewhere() -> None:
    """A near tie moves the end of an answer; a text that is the same up to there may not end early."""
    free = replace(CLEAN, experiment=experiment(generation={"ignore_eos": False}))
    data = with_requests(free, lambda row: row.key == key(), predicted_n=40, stop_reason="eos")
    assert found(length_mismatch, data)
    assert found(length_mismatch, replace(data, left_at={key(): 12})) == []
    assert found(length_mismatch, with_requests(data, tokens=0)) == [], "tokens are not told"
    forced = replace(data, experiment=experiment(generation={"ignore_eos": True}))
    assert found(length_mismatch, replace(forced, left_at={key(): 12})), "with ignore_eos all have one length"


def test_lengths_of_samples_differ_by_chance() -> None:
    sampled = replace(CLEAN, experiment=experiment(generation={"temperature": 0.7, "ignore_eos": False}))
    wild = {0: 20, 1: 30, 2: 10, 3: 120}
    assert found(length_mismatch, with_requests(sampled, SD, lambda it: {"predicted_n": wild[it.row.block]})) == []


def test_lengths_of_samples_have_one_mean() -> None:
    sampled = replace(CLEAN, experiment=experiment(generation={"temperature": 1.0, "ignore_eos": False}))
    lengths = {0: 60, 1: 68, 2: 64, 3: 66}
    data = with_requests(sampled, SD, lambda it: {"predicted_n": lengths[it.row.block]})
    assert found(length_mismatch, data) == []
    assert found(length_mismatch, with_requests(sampled, SD, predicted_n=50))


def test_controls_by_dice_may_end_anywhere() -> None:
    assert found(length_mismatch, with_requests(CONTROLS, ALL, predicted_n=3)) == []


def test_reasoning_that_was_cut() -> None:
    data = with_requests(CLEAN, SD, answered=False, reasoned=True)
    (finding,) = found(thinking_truncated, data)
    assert (finding.arm_id, finding.severity, finding.evidence["cut"]) == (SD, "suspect", 12)
    assert found(thinking_truncated, with_requests(data, SD, stop_reason="eos")) == []
    assert found(thinking_truncated, with_requests(data, SD, answered=True)) == []


@pytest.mark.parametrize(("thinking", "of"), [(False, SD), (True, BASE)])
def test_reasoning_unlike_asked(thinking: bool, of: str) -> None:
    asked = {name: it.model_copy(update={"thinking": thinking}) for name, it in CLEAN.prompts.items()}
    data = replace(with_requests(CLEAN, SD, reasoned=True), prompts=asked)
    (finding,) = found(thinking_differs, data)
    assert (finding.arm_id, finding.severity) == (of, "suspect")
    assert found(thinking_differs, CLEAN) == []


# --- sampled-distribution --------------------------------------------------------------------------------------------


def words(rng: np.random.Generator, favourite: int = 0) -> list[int]:
    """64 tokens out of 400, in phrases, some of them favourites."""
    phrases = np.random.default_rng(7).integers(0, 400, size=(60, 4))
    chosen = rng.choice(60, size=16) if not favourite else np.minimum(rng.choice(60, size=16), rng.choice(60, size=16))
    return phrases[chosen].ravel().tolist()


def samples(*, of_arm: Callable[[np.random.Generator], list[int]], data: RunData = CLEAN, seed: int = 1) -> RunData:
    rng = np.random.default_rng(seed)

    def drawn(it: RequestData) -> dict[str, Any]:
        ids = words(rng) if it.row.arm_id == BASE else of_arm(rng)
        return {"histogram": token_histogram(ids), "output": repr(ids).encode()}

    changed = with_requests(data, change=drawn)
    return replace(changed, experiment=experiment(generation={"temperature": 1.0}))


def test_samples_of_one_distribution() -> None:
    suspected = sum(bool(found(sampled_distribution, samples(of_arm=words, seed=seed))) for seed in range(30))
    assert suspected <= 2
    assert unchecked(sampled_distribution, samples(of_arm=words), applies=True) == []


def test_samples_of_another_distribution() -> None:
    data = samples(of_arm=lambda rng: words(rng, favourite=1))
    (finding,) = found(sampled_distribution, data)
    assert (finding.arm_id, finding.severity) == (SD, "suspect")
    assert float(str(finding.evidence["adjusted_p_value"])) <= 0.01
    assert (finding.evidence["texts"], finding.evidence["baseline_texts"]) == (12, 12)
    assert found(output_differs, data) == []


def test_samples_with_the_same_seeds_are_alike_and_pass() -> None:
    rng = np.random.default_rng(1)
    texts = {(block, name): words(rng) for block in range(4) for name in PROMPT_IDS}

    def shared(it: RequestData) -> dict[str, Any]:
        ids = texts[it.row.block, it.row.prompt_id]
        return {"histogram": token_histogram(ids), "output": repr(ids).encode()}

    data = replace(with_requests(CLEAN, change=shared), experiment=experiment(generation={"temperature": 1.0}))
    assert found(sampled_distribution, data) == []
    assert unchecked(sampled_distribution, data, applies=True) == []


def test_blocks_with_one_seed_are_no_samples() -> None:
    ids = words(np.random.default_rng(1))
    same = with_requests(CLEAN, histogram=token_histogram(ids), output=b"same")
    data = replace(same, experiment=experiment(generation={"temperature": 1.0}))
    (gap,) = unchecked(sampled_distribution, data, applies=True)
    assert gap.reason == Message("unchecked.same_outputs")


@pytest.mark.parametrize("blocks", [1, 2], ids=["one block", "two blocks of one prompt"])
def test_too_few_samples(blocks: int) -> None:
    data = run_data(experiment(design={"blocks": blocks}), prompt_ids=PROMPT_IDS[:1] if blocks > 1 else PROMPT_IDS)
    (gap,) = unchecked(sampled_distribution, samples(of_arm=words, data=data), applies=True)
    assert gap.reason == Message("unchecked.few_outputs")


def test_samples_without_token_ids() -> None:
    data = replace(CLEAN, experiment=experiment(generation={"temperature": 1.0}))
    assert unchecked(sampled_distribution, data, applies=True)[0].reason == Message("unchecked.no_token_ids")


def test_counts_of_tokens() -> None:
    counts = token_histogram([1, 1, 2, -1])
    assert len(counts) == BUCKETS
    assert sorted(counts)[-3:] == [1, 1, 2]
    assert max(token_histogram([9] * 1000)) == 255
    assert token_histogram([]) == b""


# --- whole runs on the mock ------------------------------------------------------------------------------------------


def test_a_mock_run_whose_texts_differ(tmp_path: Path) -> None:
    data = mock_run(tmp_path, mock={"faults": [{"kind": "text-differs", "arm": "dense/draft-simple/*"}]})
    arm_id = "dense/draft-simple/small/g4"
    assert set(data.left_at.values()) == {24}
    assert {it.arm_id for it in data.left_at} == {arm_id}
    assert {it.arm_id: it.severity for it in found(output_differs, data)} == {arm_id: "suspect"}


def test_a_mock_run_whose_decoding_fails_loops(tmp_path: Path) -> None:
    fault = {"kind": "decode-failed", "arm": "moe/draft-simple/*"}
    data = mock_run(tmp_path, mock={"faults": [fault]}, generation={"max_tokens": 128})
    findings = found(output_degenerate, data)
    assert {it.arm_id for it in findings} == {"moe/draft-simple/small/g4"}
    assert {it.severity for it in findings} == {"invalid"}


def test_a_mock_run_of_shorter_answers(tmp_path: Path) -> None:
    data = mock_run(tmp_path, mock={"faults": [{"kind": "truncated", "arm": "dense/ngram-simple"}]})
    assert [it.arm_id for it in found(length_mismatch, data)] == ["dense/ngram-simple"]
    assert data.left_at == {}


def test_a_sampled_mock_run(tmp_path: Path) -> None:
    data = mock_run(tmp_path, generation={"max_tokens": 48, "temperature": 1.0})
    assert all(len(it.histogram) == BUCKETS for it in data.requests)
    assert found(sampled_distribution, data) == []
    assert unchecked(sampled_distribution, data, applies=True) == []
    assert math.isclose(sum(data.requests[0].histogram), 48)
