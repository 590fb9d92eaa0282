"""Acceptance of 100 %: honest however drafts end, and impossible where rejected drafts are left out of the counters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import cycle
from typing import Any, NamedTuple

import pytest
from factory import (
    BASE,
    SD,
    experiment,
    found,
    run_data,
    simulated,
    with_arms,
    with_logs,
    with_models,
    with_requests,
    with_sessions,
)
from hypothesis import assume, given
from hypothesis import strategies as st

from specmeter.engines.llama_cpp.log_signs import Checkpoints, Sign
from specmeter.record import Severity
from specmeter.validity.checks.full_acceptance import acceptance_by_construction
from specmeter.validity.checks.run_data import RunData

CLEAN = run_data()
LONGEST = 16


def severities(data: RunData) -> list[Severity]:
    return [finding.severity for finding in found(acceptance_by_construction, data)]


def all_accepted(data: RunData, **changes: Any) -> RunData:
    """Every counted draft is accepted; nothing else changes."""
    return with_requests(data, SD, lambda it: {"draft_n": it.row.draft_n_accepted}, **{"partial": 0, **changes})


# --- honest engines --------------------------------------------------------------------------------------------------


class Asked(NamedTuple):
    """One request of an engine whose every drafted token is accepted."""

    limit: int
    """Tokens asked for."""
    room: int
    """Tokens that the context has room for after the prompt."""
    end: int | None
    """The model ends its text after so many tokens; None: it goes on."""
    lengths: tuple[int, ...]
    """How long its drafts are where nothing shortens them, one after the other, over and over."""


def answer(asked: Asked, gamma: int, gamma_min: int) -> dict[str, Any]:
    """What llama.cpp's server counts (`get_n_draft_max` and the loop around it, tools/server/server-context.cpp)."""
    generated, held, drafted, forwards = 1, 0, 0, 0
    end = asked.limit if asked.end is None else min(asked.end, asked.limit)
    lengths: Iterator[int] = cycle(asked.lengths)
    while generated < end and held < asked.room:
        most = min(asked.room - held - 2, asked.limit - generated - 1)
        draft = min(gamma, next(lengths), most) if most > 0 else 0
        draft = draft if draft >= gamma_min else 0
        drafted, forwards = drafted + draft, forwards + 1
        generated, held = generated + draft + 1, held + draft + 1
    ended = asked.end is not None and generated >= asked.end
    return {
        "predicted_n": min(generated, end),
        "draft_n": drafted,
        "draft_n_accepted": drafted,
        "decodes": 1.0 + forwards,
        "stop_reason": "eos" if ended else "limit" if generated >= asked.limit else "context",
        "partial": 0,
        "restores": 0,
        "step_n": 0,
    }


def requests(lengths: st.SearchStrategy[tuple[int, ...]]) -> st.SearchStrategy[list[Asked]]:
    one = st.builds(
        Asked,
        limit=st.integers(1, 500),
        room=st.integers(1, 500),
        end=st.none() | st.integers(1, 500),
        lengths=lengths,
    )
    return st.lists(one, min_size=1, max_size=8)


def honest(asked: Sequence[Asked], gamma: int, gamma_min: int, p_min: float) -> RunData:
    """A run in which every drafted token is accepted, each prompt answered as its request says."""
    names = [f"text/fact-{number}" for number in range(len(asked))]
    data = run_data(experiment(design={"blocks": 1}), prompt_ids=names)
    data = with_arms(data, SD, gamma=gamma, gamma_min=gamma_min, p_min=p_min)
    values = {"n_max": gamma, "n_min": gamma_min, "p_min": p_min}
    data = with_sessions(data, SD, resolved={"method_parameters": {"draft-simple": values}})
    return with_requests(data, SD, lambda it: answer(asked[it.row.item], gamma, gamma_min))


@given(st.data(), st.integers(1, LONGEST))
def test_full_drafts_that_are_all_accepted_are_never_doubted(data: st.DataObject, gamma: int) -> None:
    """Whatever the limit, the end of the context or of the text, and `gamma_min` make of the last drafts."""
    gamma_min = data.draw(st.integers(0, gamma))
    run = honest(data.draw(requests(st.just((gamma,)))), gamma, gamma_min, 0.0)
    assert severities(run) == []


@given(st.data(), st.integers(1, LONGEST))
def test_drafts_of_any_length_that_are_all_accepted_are_not_false(data: st.DataObject, gamma: int) -> None:
    """With `p_min` a draft ends wherever the model is unsure; empty ones are plain tokens."""
    lengths = st.lists(st.integers(0, gamma), min_size=1, max_size=9).map(tuple)
    asked = data.draw(requests(lengths))
    gamma_min = data.draw(st.integers(0, gamma))
    for p_min in (0.3, 0.9):
        run = honest(asked, gamma, gamma_min, p_min)
        assert "invalid" not in severities(run)
        for policy in ("entropy", "utility"):  # drafts end early without any p_min
            assert "invalid" not in severities(with_arms(run, SD, p_min=0.0, policy=policy))


@given(requests(st.just((LONGEST,))))
def test_answers_of_any_length_are_no_reason_for_doubt(asked: list[Asked]) -> None:
    """Texts that end early, and short ones, emit fewer tokens per forward though every draft was full and right."""
    assert severities(honest(asked, LONGEST, 0, 0.5)) == []


def test_a_draft_length_that_never_reached_the_engine_is_not_the_counters_fault() -> None:
    """Gamma 8 was asked for and 2 is in force: full drafts of two need more forwards."""
    asked = [Asked(200, 500, None, (2,))] * 3
    run = with_arms(honest(asked, 2, 0, 0.0), SD, gamma=8)
    assert severities(run) == []
    untold = with_sessions(run, SD, resolved={"method_parameters": {}})
    untold = with_arms(untold, SD, p_min=0.0)
    assert severities(untold) == ["suspect"], "the length in force is unknown"


def test_a_batch_that_shortens_drafts_is_not_the_counters_fault() -> None:
    """Gamma 8 is in force, and a batch of 4 takes drafts of 3."""
    run = honest([Asked(200, 500, None, (3,))] * 3, 8, 0, 0.0)
    assert severities(run) == ["invalid"]
    values = {"method_parameters": {"draft-simple": {"n_max": 8, "n_min": 0, "p_min": 0.0}}, "n_batch": 4}
    assert severities(with_sessions(run, SD, resolved=values)) == []


def test_forwards_of_the_draft_that_fail_shorten_drafts() -> None:
    """That is a finding of its own, and nothing against the counter."""
    run = with_logs(all_accepted(CLEAN), SD, draft_failures=Sign(4, ("llama_process returned -1",)))
    assert severities(run) == []
    assert severities(replace(all_accepted(CLEAN), logs={})) == ["suspect"], "whether some failed cannot be seen"


def test_a_session_that_did_not_speculate_is_not_the_counters_fault() -> None:
    asked = [Asked(200, 500, None, (4,))] * 3
    run = with_requests(
        honest(asked, 4, 0, 0.0), lambda row: row.arm_id == SD and row.item == 1, draft_n=0, draft_n_accepted=0
    )
    assert severities(run) == []


def test_a_model_that_drafts_for_itself_may_end_its_drafts() -> None:
    """Whatever `p_min`: it is sure here and unsure there, and right everywhere."""
    asked = [Asked(400, 500, None, (length,)) for length in (1, 2, 4, 8)]
    run = honest(asked, 8, 0, 0.8)
    assert severities(run) == ["suspect"]
    assert severities(with_models(run, "small", sha256=run.models["dense"].sha256)) == []


def test_a_control_that_accepts_everything_is_honest() -> None:
    asked = [Asked(100, 500, None, (4,))] * 3
    data = with_arms(honest(asked, 4, 0, 0.0), SD, synthetic_rates=(1.0,) * 4, role="control")
    assert severities(data) == []


def test_ngrams_that_copy_a_repetition_are_honest() -> None:
    ngram = run_data(experiment(arms=[{"method": "ngram-simple"}]))
    data = with_requests(
        ngram, lambda row: row.arm_id != BASE, lambda it: {"draft_n": it.row.draft_n_accepted}, partial=0
    )
    assert severities(data) == []


# --- counters that leave rejections out ------------------------------------------------------------------------------


def test_all_accepted_beside_restores_or_rejections() -> None:
    for what in ({"restores": 2}, {"partial": 3}):
        findings = found(acceptance_by_construction, all_accepted(CLEAN, **what))
        assert [finding.scope for finding in findings] == ["request"] * 12
        assert {finding.severity for finding in findings} == {"invalid"}


def test_all_accepted_with_more_forwards_than_full_drafts_leave_room_for() -> None:
    (finding,) = found(acceptance_by_construction, all_accepted(CLEAN))
    assert (finding.severity, finding.arm_id) == ("invalid", SD)
    forwards, most = finding.evidence["forwards"], finding.evidence["at_most"]
    assert isinstance(forwards, int)
    assert isinstance(most, int)
    assert forwards > most == 12 * 15


def test_the_same_on_a_simulated_engine() -> None:
    values = {"speculative.n_max": 4, "speculative.n_min": 0, "speculative.p_min": 0.0}
    data = with_sessions(simulated(all_accepted(CLEAN)), SD, resolved=values)
    assert severities(data) == ["invalid"]


@given(st.integers(1, 8), st.data(), st.integers(400, 900))
def test_full_drafts_of_which_something_is_rejected_each_time(gamma: int, data: st.DataObject, tokens: int) -> None:
    """A counter that sees only what was accepted is found out, however little is rejected."""
    taken = data.draw(st.lists(st.integers(0, gamma - 1), min_size=1, max_size=9))
    decoded, accepted, forwards = tokens - 1, 0, 0
    for took in cycle(taken):
        if decoded <= 0:
            break
        took = min(took, decoded - 1)
        accepted, decoded, forwards = accepted + took, decoded - took - 1, forwards + 1
    assume(12 * accepted >= 50)
    run = honest([Asked(tokens, 2000, None, (gamma,))] * 12, gamma, 0, 0.0)
    counts = dict.fromkeys(("draft_n", "draft_n_accepted"), accepted)
    assert severities(with_requests(run, SD, predicted_n=tokens, **counts)) == ["invalid"]


@pytest.mark.parametrize(("prompts", "expected"), [(3, []), (8, ["suspect"]), (40, ["suspect"])])
def test_a_picky_draft_is_hardly_ever_always_right(prompts: int, expected: list[Severity]) -> None:
    """With p_min, short drafts are honest; many in a row that are all right are unlikely, and no more than that."""
    names = [f"text/fact-{i}" for i in range(prompts)]
    data = run_data(experiment(arms=[{"draft": "small", "gamma": 4, "p_min": 0.8}]), prompt_ids=names)
    data = with_sessions(
        data,
        list(data.arms)[-1],
        resolved={"method_parameters": {"draft-simple": {"n_max": 4, "n_min": 0, "p_min": 0.8}}},
    )
    data = with_requests(
        data,
        lambda row: row.arm_id != BASE,
        lambda it: dict.fromkeys(("draft_n", "draft_n_accepted"), 15 + 3 * (it.row.item % 10)),
        partial=0,
    )
    assert severities(data) == expected
    same = with_models(data, "small", sha256=data.models["dense"].sha256)
    assert severities(same) == []


def test_a_log_with_restores_beside_full_acceptance_without_steps() -> None:
    run = honest([Asked(100, 500, None, (4,))] * 3, 4, 0, 0.0)
    data = with_logs(run, SD, checkpoints_restored=Checkpoints(count=9))
    assert severities(data) == ["suspect"]
    assert severities(with_requests(data, SD, step_n=20)) == []
