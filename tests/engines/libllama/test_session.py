"""An arm in this process: what it resolves to, what it answers, what it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engines.libllama.contexts import core_path
from engines.llama_fixtures import TEXT, arm, greedy, prompt
from specmeter.engines import check_arm
from specmeter.engines.libllama.session import InProcessSession
from specmeter.errors import EngineProtocolError, EngineStartError, ExperimentError
from specmeter.record import Arm

SMALL = core_path("draft-small")


def session(an_arm: Arm | None = None, target: str = "dense", draft: Path | None = SMALL) -> InProcessSession:
    return InProcessSession(an_arm or arm(), core_path(target), draft, threads=1)


def model_arm(**changes: Any) -> Arm:
    return arm(**({"methods": ("draft-simple",), "draft": "d", "gamma": 4} | changes))


@pytest.mark.parametrize(
    ("changes", "values"),
    [
        ({"methods": ("draft-simple",), "draft": "d"}, {"draft-simple": {"n_max": 3, "n_min": 0, "p_min": 0.0}}),
        (
            {"methods": ("draft-simple",), "draft": "d", "gamma": 7, "gamma_min": 2, "p_min": 0.25},
            {"draft-simple": {"n_max": 7, "n_min": 2, "p_min": 0.25}},
        ),
        ({"methods": ("ngram-simple",)}, {"ngram-simple": {"size_m": 48, "size_n": 12, "n_min": 0}}),
        ({}, {}),
    ],
)
def test_values_in_force_are_said(changes: dict[str, Any], values: dict[str, Any]) -> None:
    with session(arm(**changes)) as opened:
        assert opened.resolved["method_parameters"] == values
        assert opened.resolved["methods"] == sorted(values)
        assert opened.resolved["n_ctx"] == 512
        assert opened.resolved["threads"] == 1


def test_steps_are_left_out_where_nobody_wants_them() -> None:
    with session(model_arm(engine={"trace_steps": False})) as opened:
        reply = opened.generate(prompt(), greedy(20))
    assert reply.steps == ()
    assert (reply.timings.draft_n_accepted or 0) > 0


def test_samples_of_one_seed_are_one_text() -> None:
    with session(model_arm(rule="sample-match")) as opened:
        one, other, another = (
            opened.generate(prompt(), greedy(40, temperature=1.0, seed=seed)).token_ids for seed in (1, 1, 2)
        )
    assert one == other != another
    with session() as plain:  # llama.cpp's rule draws one number per token, as plain decoding does
        assert plain.generate(prompt(), greedy(40, temperature=1.0, seed=1)).token_ids == one


def test_a_chat_is_answered_from_its_template() -> None:
    with session() as opened:
        chat = opened.generate(prompt("Which town lies east of Hargate?", format="chat"), greedy(12))
        plain = opened.generate(prompt("Which town lies east of Hargate?"), greedy(12))
    assert chat.timings.prompt_n > plain.timings.prompt_n


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"methods": ("ngram-mod",)}, "unknown method 'ngram-mod'"),
        ({"gamma": 512}, "does not fit in a batch of 512"),
        ({"engine": {"batch": 32}, "gamma": 32}, "engine.batch"),
        ({"engine": {"slots": 2, "record_experts": True}}, "engine.record_experts"),
        ({"gamma": 16, "engine": {"slots": 4, "batch": 64}}, "engine.batch"),
        ({"engine": {"prompt_cache": True}}, "engine.prompt_cache"),
        ({"engine": {"extra_flags": ("-x",)}}, "engine.extra_flags"),
        ({"gamma": 2, "gamma_min": 3}, "gamma_min 3 is above"),
        ({"ngram_n": 3}, "ngram_n has no effect"),
        ({"ngram_min_hits": 3}, "ngram_min_hits has no effect"),
        ({"methods": ("ngram-simple",), "p_min": 0.5}, "p_min needs a draft model"),
        ({"synthetic_rates": (0.5,)}, "each position needs a rate"),
        ({"gamma": 2, "synthetic_rates": (0.5, 0.6)}, "never increase"),
        ({"draft": None}, "needs a draft model"),
    ],
)
def test_arms_that_cannot_be_run_are_refused_before_anything_is_loaded(changes: dict[str, Any], message: str) -> None:
    an_arm = model_arm(**changes)
    with pytest.raises(ExperimentError) as raised:
        check_arm("libllama", an_arm, has_draft=an_arm.draft is not None)
    assert message in str(raised.value)


def test_planted_errors_need_a_text_that_is_known() -> None:
    with session(model_arm(synthetic_rates=(0.5,) * 4)) as opened:
        assert (opened.generate(prompt(), greedy(20)).timings.draft_n_accepted or 0) > 0
        with pytest.raises(ExperimentError, match="only known at temperature 0"):
            opened.generate(prompt(), greedy(20, temperature=1.0))


def test_a_session_that_fails_to_open_leaves_nothing_open(tmp_path: Path) -> None:
    with pytest.raises(EngineStartError, match="no such model file"):
        session(model_arm(), draft=tmp_path / "missing.gguf")


@pytest.mark.parametrize("text", ["", TEXT * 60, "\udcff"], ids=["empty", "too long", "surrogate"])
def test_a_prompt_that_is_refused_ends_nothing(text: str) -> None:
    with session(model_arm()) as opened:
        with pytest.raises(EngineProtocolError):
            opened.generate(prompt(text), greedy())
        assert opened.generate(prompt(), greedy(5)).timings.predicted_n == 5
