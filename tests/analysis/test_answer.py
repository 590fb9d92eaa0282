"""The answer says what was measured: who competes, on which prompts, and what is too little to say anything."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from analysis.test_summary import failed, fake
from said import all_said, codes, said_of
from specmeter.analysis.answer import Answer, answers, least_units
from specmeter.analysis.summary import summarize
from specmeter.messages import Message
from specmeter.numbers.margin import units_for
from specmeter.record import Arm
from specmeter.show.run_words import details, sentence, would_decide
from specmeter.store import RequestRow

BASE = Arm(id="moe/none", target="moe", role="baseline")
DRAFT = Arm(id="moe/draft", target="moe", draft="small", methods=("draft-simple",), gamma=4, baseline_id=BASE.id)
OTHER = DRAFT.model_copy(update={"id": "moe/other"})
NGRAM = DRAFT.model_copy(
    update={"id": "moe/ngram", "draft": None, "methods": ("ngram-simple",), "workloads": ("again",)}
)

JITTER = (0.0, 0.006, -0.005, 0.002, -0.004, 0.003)
"""What repetitions differ by, in logarithms."""
KINDS = {"code-1": "code", "reason-1": "reason", "edit-1": "edit", "edit-2": "edit"}


def run_of(
    speedups: Mapping[str, Mapping[str, float]], *, blocks: int = 4, noise: Sequence[float] = JITTER
) -> list[RequestRow]:
    """Id of an arm -> prompt -> how much faster it is there; a prompt that an arm lacks was not given to it."""
    rows: list[RequestRow] = []
    for block in range(blocks):
        for prompt, kind in KINDS.items():
            rows.append(fake(BASE.id, block, prompt, 1000.0 * math.exp(noise[block % len(noise)]), kind=kind))
            rows += [
                fake(arm_id, block, prompt, 1000.0 / of[prompt], kind=kind)
                for arm_id, of in speedups.items()
                if prompt in of
            ]
    return rows


def answered(rows: Sequence[RequestRow], *arms: Arm) -> tuple[Answer, ...]:
    return answers(summarize(rows, (BASE, *arms)), (BASE, *arms))


EVERY = dict.fromkeys(KINDS, 1.8)
EDITS = {"edit-1": 1.24, "edit-2": 1.24}


# --- who competes ----------------------------------------------------------------------------------------------------


def lines(answer: Answer) -> list[str]:
    return [str(it) for it in details(answer)]


def test_on_a_kind_of_text_all_arms_measured_on_it_compete() -> None:
    """An arm that ran on repetitive text alone was advised there, though another was faster on the same prompts."""
    whole, edit = answered(run_of({DRAFT.id: EVERY, NGRAM.id: EDITS}), DRAFT, NGRAM)
    assert (whole.kind, whole.decision, whole.arm_id, whole.among) == ("", "speculate", DRAFT.id, 1)
    assert (edit.kind, edit.decision, edit.arm_id, edit.among) == ("edit", "speculate", DRAFT.id, 2)
    assert edit.gain.prompts == 2
    assert said_of(details(edit)[0], "found.adjusted").values["among"] == 2
    assert "found.adjusted" not in codes(details(whole)[0])


def test_the_arm_for_a_kind_of_text_wins_where_it_is_faster() -> None:
    slow = {prompt: 0.9 if prompt.startswith("edit") else 1.5 for prompt in KINDS}
    edit = answered(run_of({DRAFT.id: slow, NGRAM.id: EDITS}), DRAFT, NGRAM)[1]
    assert (edit.decision, edit.arm_id, edit.among) == ("speculate", NGRAM.id, 2)


def test_arms_on_different_prompts_of_a_kind_are_compared_on_those_in_common() -> None:
    partly = {"edit-1": 3.0}
    both = {**EVERY, "edit-1": 1.5, "edit-2": 9.0}
    edit = answered(run_of({DRAFT.id: both, NGRAM.id: partly}), DRAFT, NGRAM)[1]
    assert (edit.arm_id, edit.gain.prompts) == (NGRAM.id, 1)
    assert edit.speedup.point == pytest.approx(3.0, rel=0.01)


def test_arms_without_a_prompt_in_common_have_no_answer_for_the_whole() -> None:
    one = DRAFT.model_copy(update={"workloads": ("text",)})
    found = answered(run_of({one.id: {"code-1": 2.0, "reason-1": 2.0}, NGRAM.id: EDITS}), one, NGRAM)
    assert [(it.kind, it.arm_id, it.among) for it in found] == [
        ("code", one.id, 1),
        ("reason", one.id, 1),
        ("edit", NGRAM.id, 1),
    ]


# --- what was measured -----------------------------------------------------------------------------------------------


def test_the_answer_names_its_prompts_and_gives_the_interval_over_prompts() -> None:
    spread = {"code-1": 1.4, "reason-1": 2.4, "edit-1": 1.7, "edit-2": 2.0}
    (answer,) = answered(run_of({DRAFT.id: spread}), DRAFT)
    assert answer.gain.over_prompts is not None
    assert answer.gain.over_prompts.of == "prompts"
    assert answer.gain.over_prompts.low is not None
    assert answer.speedup.low is not None
    assert answer.gain.over_prompts.low < answer.speedup.low
    told = "\n".join(lines(answer))
    assert "mean over prompts like these, equally weighted: 1.84x [1.2" in told
    assert "(95% interval over 4 prompts); these prompts ran at 1.40x to 2.40x" in told
    assert "outside" not in told
    other = answer.gain.over_prompts.model_copy(update={"high": answer.speedup.point - 0.01})
    apart = answer.model_copy(update={"gain": answer.gain.model_copy(update={"over_prompts": other})})
    assert "the answer above is outside" in "\n".join(lines(apart))


def test_kinds_that_disagree_are_said_first() -> None:
    """Pooled it loses; alone, "do not speculate" would be wrong for code."""
    mixed = {"code-1": 1.08, "reason-1": 0.9, "edit-1": 0.67, "edit-2": 0.66}
    (answer,) = answered(run_of({DRAFT.id: mixed}), DRAFT)
    assert answer.decision == "depends on the text"
    assert [(it.kind, it.sign) for it in answer.by_kind] == [("code", "gain"), ("reason", "loss"), ("edit", "loss")]
    assert sentence(answer).code == "answer.depends"
    kinds = [it.values for it in all_said(details(answer)[1]) if it.code == "answer.of_kind"]
    assert [(it["kind"], it["speedup"]) for it in kinds] == [("code", "1.08"), ("reason", "0.90"), ("edit", "0.67")]


def test_a_gain_that_is_a_loss_on_one_kind_depends_on_the_text() -> None:
    mixed = {"code-1": 2.0, "reason-1": 2.0, "edit-1": 0.9, "edit-2": 0.9}
    (answer,) = answered(run_of({DRAFT.id: mixed}), DRAFT)
    assert answer.decision == "depends on the text"


def test_a_gain_on_one_kind_is_told_where_the_whole_is_open() -> None:
    """Edits vary from block to block so much that nothing is shown over all; code gains all the same."""
    rows = [
        row
        if row.kind == "code" or row.arm_id == BASE.id
        else fake(row.arm_id, row.block, row.prompt_id, 1000.0 * (1.9, 0.7, 0.6, 1.8)[row.block], kind=row.kind)
        for row in run_of({DRAFT.id: dict.fromkeys(KINDS, 1.5)})
    ]
    (answer,) = answered(rows, DRAFT)
    assert answer.decision in ("not shown", "too noisy")
    assert [it.sign for it in answer.by_kind] == ["gain", "open", "open"]
    assert sentence(answer).code != "answer.depends"
    kinds = said_of(details(answer)[0], "answer.kinds").values
    assert (kinds["level"], kinds["count"]) == ("95%", 3)


def test_kinds_that_agree_need_no_list() -> None:
    (answer,) = answered(run_of({DRAFT.id: EVERY}), DRAFT)
    assert answer.decision == "speculate"
    assert [it.sign for it in answer.by_kind] == ["gain"] * 3


# --- what is faster --------------------------------------------------------------------------------------------------


def test_decoding_and_prompt_with_decoding_are_told_apart() -> None:
    """The prompt takes 100 ms on both sides: decoding 1000 ms in 500 is 2.0x, with the prompt 1100 in 600."""
    (answer,) = answered(run_of({DRAFT.id: dict.fromkeys(KINDS, 2.0)}), DRAFT)
    assert answer.gain.decoding.point == pytest.approx(2.0, rel=0.01)
    assert answer.gain.with_prompt.point == pytest.approx(1100 / 600, rel=0.01)


def test_total_time_stands_beside_the_mean_over_blocks_and_a_gap_is_told() -> None:
    """One block of four in which both sides take four times as long and the arm gains nothing weighs more in total."""
    rows = [
        row if row.block < 3 else fake(row.arm_id, 3, row.prompt_id, 4000.0 * math.exp(0.01), kind=row.kind)
        for row in run_of({DRAFT.id: dict.fromkeys(KINDS, 2.0)})
    ]
    (answer,) = answered(rows, DRAFT)
    assert answer.gain.pooled.point < 1.4 < answer.gain.decoding.point
    assert any("from the mean over blocks" in line for line in lines(answer))


# --- noise -----------------------------------------------------------------------------------------------------------


def test_an_interval_that_says_nothing_is_too_noisy_to_tell() -> None:
    (answer,) = answered(run_of({DRAFT.id: EVERY}, noise=(0.0, 3.0, -2.0, 4.0)), DRAFT)
    assert (answer.decision, answer.units_advised) == ("too noisy", units_for(answer.speedup, 0.1))
    (answer,) = answered(run_of({DRAFT.id: dict.fromkeys(KINDS, 1.1)}, noise=(0.0, 0.5, -0.5, 0.45)), DRAFT)
    assert answer.decision == "too noisy"


@pytest.mark.parametrize(("blocks", "decision"), [(2, "too few"), (3, "speculate")])
def test_two_blocks_do_not_say_speculate(blocks: int, decision: str) -> None:
    (answer,) = answered(run_of({DRAFT.id: EVERY}, blocks=blocks), DRAFT)
    assert answer.decision == decision


def test_more_arms_need_more_blocks() -> None:
    arms = [DRAFT.model_copy(update={"id": f"moe/{number}"}) for number in range(5)]
    three, four = (answered(run_of(dict.fromkeys((arm.id for arm in arms), EVERY), blocks=n), *arms)[0] for n in (3, 4))
    assert (three.decision, four.decision) == ("too few", "speculate")
    assert would_decide(three) == Message("advice.least", units=Message("found.blocks", count=4))


@pytest.mark.parametrize(
    ("arms", "apart"),
    [(1, 0.2), *(pytest.param(*it, marks=pytest.mark.slow) for it in ((2, 0.2), (5, 0.2), (5, 0.7), (10, 0.2)))],
)
def test_speculate_is_seldom_said_of_requests_at_two_speeds(arms: int, apart: float) -> None:
    """Nothing helps; each request is at one of two speeds. With 3 blocks, 5 and 10 arms said it in 6 and 9 of 100."""
    draw, false, runs = np.random.default_rng(8), 0, 250
    family = [DRAFT.model_copy(update={"id": f"moe/{number}"}) for number in range(arms)]
    for _ in range(runs):
        rows = [
            fake(arm.id, block, prompt, 1000 * math.exp(apart * draw.integers(0, 2) + 0.01 * draw.standard_normal()))
            for arm in (BASE, *family)
            for block in range(3)
            for prompt in ("p", "q")
        ]
        false += any(it.decision == "speculate" for it in answered(rows, *family))
    assert false <= 0.05 * runs + 2 * math.sqrt(runs * 0.05 * 0.95)
    assert least_units(arms) == (3 if arms <= 2 else 4)


def test_a_stall_is_told_beside_the_answer() -> None:
    rows = [
        fake(row.arm_id, row.block, row.prompt_id, 3 * (row.predicted_ms or 0.0), kind=row.kind)
        if (row.arm_id, row.block, row.prompt_id) == (DRAFT.id, 2, "code-1")
        else row
        for row in run_of({DRAFT.id: EVERY})
    ]
    (answer,) = answered(rows, DRAFT)
    assert answer.stalls is not None
    assert answer.baseline_stalls is not None
    assert (answer.stalls.requests, answer.stalls.of, answer.baseline_stalls.requests) == (1, 16, 0)
    assert any("stalled" in line for line in lines(answer))


def test_one_block_bounds_no_stalls() -> None:
    (answer,) = answered(run_of({DRAFT.id: EVERY}, blocks=1), DRAFT)
    assert (answer.stalls, answer.baseline_stalls) == (None, None)


# --- missing requests ------------------------------------------------------------------------------------------------

SLOW = {"code-1": 0.95, "reason-1": 0.95, "edit-1": 0.6, "edit-2": 0.95}


def test_an_arm_does_not_look_faster_where_it_fails_on_its_slow_prompt() -> None:
    """The truth stays, whether its slow prompt failed in no block, or in two of four."""
    whole = run_of({DRAFT.id: SLOW})
    lacking = [
        failed(DRAFT.id, row.block, row.prompt_id)
        if row.arm_id == DRAFT.id and row.prompt_id == "edit-1" and row.block in (1, 2)
        else row
        for row in whole
    ]
    (complete,), (partly,) = answered(whole, DRAFT), answered(lacking, DRAFT)
    assert partly.speedup.point == pytest.approx(complete.speedup.point, rel=0.003)
    assert (partly.gain.completed, complete.gain.completed) == (2, 0)


def test_a_prompt_that_one_side_never_completed_counts_on_neither_and_that_is_said() -> None:
    rows = [
        failed(DRAFT.id, row.block, row.prompt_id) if (row.arm_id, row.prompt_id) == (DRAFT.id, "edit-1") else row
        for row in run_of({DRAFT.id: SLOW})
    ]
    (answer,) = answered(rows, DRAFT)
    assert (answer.left_out, answer.gain.prompts) == (1, 3)
    assert answer.speedup.point == pytest.approx(0.95, rel=0.01)
    assert Message("detail.left_out", count=1) in details(answer)


def test_an_arm_that_lacks_what_others_completed_does_not_compete() -> None:
    rows = [
        failed(DRAFT.id, row.block, row.prompt_id) if (row.arm_id, row.prompt_id) == (DRAFT.id, "edit-1") else row
        for row in run_of({DRAFT.id: {**SLOW, "code-1": 1.5}, OTHER.id: dict.fromkeys(KINDS, 0.9)})
    ]
    answer, code, reason = answered(rows, DRAFT, OTHER)
    assert (code.kind, code.arm_id, code.among, reason.kind) == ("code", DRAFT.id, 2, "reason")
    assert (answer.arm_id, answer.among, [it.arm_id for it in answer.behind]) == (OTHER.id, 1, [DRAFT.id])
    told = "not compared (some of these prompts never completed): draft (1.08x on the 3 of 4 it completed)"
    assert told in lines(answer)


@pytest.mark.parametrize(("fails", "decision"), [(("edit-1", "edit-2"), "not advised"), ((), "speculate")])
def test_an_arm_that_fails_its_slow_half_is_not_advised(fails: Sequence[str], decision: str) -> None:
    rows = [
        failed(DRAFT.id, row.block, row.prompt_id) if row.arm_id == DRAFT.id and row.prompt_id in fails else row
        for row in run_of({DRAFT.id: dict.fromkeys(KINDS, 1.66)})
    ]
    (answer,) = answered(rows, DRAFT)
    assert answer.decision == decision
    said = sentence(answer)
    assert (said.values["failed"], said.values["tried"]) == (8, 16) if fails else "failed" not in said.values


def test_an_arm_that_fails_seldom_is_advised_before_a_faster_one_that_fails() -> None:
    rows = [
        failed(DRAFT.id, row.block, row.prompt_id) if (row.arm_id, row.block) == (DRAFT.id, 1) else row
        for row in run_of({DRAFT.id: dict.fromkeys(KINDS, 2.0), OTHER.id: EVERY})
    ]
    answer = answered(rows, DRAFT, OTHER)[0]
    assert (answer.decision, answer.arm_id) == ("speculate", OTHER.id)


def test_an_arm_that_completed_one_block_failed_the_others() -> None:
    rows = [
        failed(DRAFT.id, row.block, row.prompt_id) if row.arm_id == DRAFT.id and row.block else row
        for row in run_of({DRAFT.id: EVERY})
    ]
    (answer,) = answered(rows, DRAFT)
    said = sentence(answer)
    assert (said.code, said.values["failed"], said.values["tried"]) == ("answer.failed_most", 12, 16)


def test_an_arm_that_drafted_nothing_does_not_compete() -> None:
    """A baseline under another name was "the best", and made the interval of the real arm wider."""
    idle = {DRAFT.id: dict.fromkeys(KINDS, 0.9), OTHER.id: dict.fromkeys(KINDS, 1.0)}
    rows = [row._replace(draft_n=0) if row.arm_id == OTHER.id else row for row in run_of(idle)]
    (answer,) = answered(rows, DRAFT, OTHER)
    assert (answer.decision, answer.arm_id, answer.among, answer.idle) == ("do not speculate", DRAFT.id, 1, (OTHER.id,))
    assert "detail.idle" in codes(details(answer))
    # The row of the other is above it.
    alone = [row for row in rows if row.arm_id != DRAFT.id]
    (answer,) = answered(alone, OTHER)
    assert (answer.decision, answer.among) == ("cannot tell", 1)
    assert sentence(answer).code == "answer.idle"


def test_prompt_and_decoding_together_is_adjusted_like_the_headline() -> None:
    answer = answered(run_of({DRAFT.id: EVERY, OTHER.id: EVERY}), DRAFT, OTHER)[0]
    (together,) = (it for it in details(answer) if it.code == "detail.with_prompt")
    assert said_of(together, "found.adjusted").values["among"] == 2


@pytest.mark.parametrize("gains", [0, 1])
def test_ten_kinds_that_do_not_differ_seldom_disagree(gains: int) -> None:
    """A null arm was said to depend on the text in 6.6 % of such runs, and one gaining kind and nine at 1 in 20 %."""
    draw, runs, said = np.random.default_rng(5), 150, 0
    for _ in range(runs):
        ms = 1000 * np.exp(0.02 * draw.standard_normal((2, 5, 10)))
        ms[1, :, :gains] /= 1.5
        rows = [
            fake(arm_id, block, f"p{kind}", float(ms[side, block, kind]), kind=f"k{kind}")
            for side, arm_id in enumerate((BASE.id, DRAFT.id))
            for block in range(5)
            for kind in range(10)
        ]
        said += answered(rows, DRAFT)[0].decision == "depends on the text"
    assert said <= 0.05 * runs


# --- in every language -----------------------------------------------------------------------------------------------
