"""Which arms are replayed, by what parameters, and how profiles lie in a run folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from profiles import profile

from specmeter.engines.libllama.spec import LIBLLAMA
from specmeter.engines.llama_cpp.spec import EMBEDDED, NATIVE
from specmeter.engines.registry import spec_of
from specmeter.messages import Message
from specmeter.probe.replay import (
    Limits,
    Round,
    drafts_of,
    first_impossible,
    key_of,
    limits_of,
    replay,
    says_what_is_in_force,
    why_not,
)
from specmeter.record import Arm, Generation, Profiled, PromptTokens
from specmeter.store import RunStore

GREEDY, SAMPLED = Generation(), Generation(temperature=0.8)


def arm(**changes: Any) -> Arm:
    return Arm(**{"id": "a", "target": "t", "methods": ("draft-simple",), "draft": "d", "gamma": 4, **changes})


@pytest.mark.parametrize(
    ("given", "kind", "generation", "why"),
    [
        ({"methods": ("none",), "draft": None, "gamma": None}, "embedded", GREEDY, Message("replay.idle")),
        ({}, "mock", GREEDY, Message("replay.simulated")),
        ({"synthetic_rates": (1.0,) * 4}, "embedded", GREEDY, Message("replay.synthetic")),
        ({"methods": ("ngram-mod",), "draft": None}, "embedded", GREEDY, Message("replay.table", method="ngram-mod")),
        ({"methods": ("ngram-map-k", "draft-simple")}, "native", GREEDY, Message("replay.table", method="ngram-map-k")),
        ({"methods": ("draft-mtp",), "draft": None}, "native", GREEDY, Message("replay.states", method="draft-mtp")),
        ({}, "libllama", SAMPLED, Message("replay.by_chance")),
    ],
)
def test_what_cannot_be_replayed_says_why(
    given: dict[str, Any], kind: str, generation: Generation, why: Message
) -> None:
    assert why_not(arm(**given), traits=spec_of(kind).traits, generation=generation) == why


def test_rules_that_are_not_known_are_not_replayed() -> None:
    rules = LIBLLAMA.traits.model_copy(update={"drafting": None})
    assert why_not(arm(), traits=rules, generation=GREEDY) == Message("replay.own_rules")


def test_what_follows_from_the_text_is_replayed() -> None:
    assert why_not(arm(), traits=EMBEDDED.traits, generation=GREEDY) is None
    assert why_not(arm(), traits=EMBEDDED.traits, generation=SAMPLED) is None, "a server's draft is greedy all the same"
    assert why_not(arm(rule="sample-match"), traits=LIBLLAMA.traits, generation=SAMPLED) is None
    both = arm(methods=("ngram-simple", "draft-simple"))
    assert why_not(both, traits=NATIVE.traits, generation=GREEDY) is None


def test_what_the_session_says_is_in_force_counts() -> None:
    said = {"method_parameters": {"draft-simple": {"n_max": 2, "n_min": 0, "p_min": 0.0}}}
    matches = profile("1" * 9)
    assert replay(drafts_of(arm(), said, traits=NATIVE.traits, profile=matches), Limits(9))[0] == (2, 2)
    assert replay(drafts_of(arm(), {}, traits=NATIVE.traits, profile=matches), Limits(9))[0] == (4, 4)
    assert says_what_is_in_force(arm(), said)
    assert not says_what_is_in_force(arm(), {"method_parameters": {"draft-simple": {"n_max": 2}}})


def test_a_server_logs_no_plain_steps_and_keeps_one_token_more_free() -> None:
    resolved = {"n_ctx": 64}
    server = limits_of(resolved, traits=EMBEDDED.traits, max_tokens=40, prompt_tokens=30, recurrent=False)
    own = limits_of(resolved, traits=LIBLLAMA.traits, max_tokens=40, prompt_tokens=30, recurrent=False)
    assert (server.room, own.room) == (32, 33)
    drafts = drafts_of(arm(gamma_min=4), {}, traits=EMBEDDED.traits, profile=profile("1" * 8))
    limits = limits_of({}, traits=EMBEDDED.traits, max_tokens=8, prompt_tokens=3, recurrent=False)
    assert first_impossible(drafts, limits, [Round(4, 4)]) is None


def test_profiles_and_prompts_are_kept_and_prompts_only_once(tmp_path: Path) -> None:
    made = profile("101", gaps={1: 0.25}, branches={1: (0.5,)})
    with RunStore.create(tmp_path / "run", experiment_yaml="", experiment_json="{}", plan=()) as store:
        assert (store.profiles(), store.prompt_tokens(), store.profiled()) == ([], [], None)
        store.add_profiles([made])
        for ids in ((1, 2), (3, 4)):
            store.add_prompt_tokens([PromptTokens(target="t", prompt_id="p", token_ids=ids)])
        for missing in (2, 0):
            store.set_profiled(Profiled(missing=missing))
        assert store.profiles() == [made]
        assert [it.token_ids for it in store.prompt_tokens()] == [(1, 2)]
        assert store.profiled() == Profiled(missing=0)
    assert key_of(made).draft_sha256 == made.draft_sha256
