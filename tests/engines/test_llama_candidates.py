"""What the target thinks may come next: answers that cannot be are refused, and the real engine agrees with itself."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from llama_fixtures import arm, greedy, launch, prompt

from specmeter.engines import Candidate
from specmeter.engines.llama_cpp.candidates import forced, from_chosen, question, read_chosen, read_listed
from specmeter.engines.llama_cpp.engine import EmbeddedEngine
from specmeter.engines.llama_cpp.replies import Received
from specmeter.engines.llama_cpp.server import LlamaSession
from specmeter.errors import EngineProtocolError


def answer(*listed: tuple[Any, Any], chosen: Any = 7) -> dict[str, Any]:
    top = [{"id": token, "token": "x", "bytes": [120], "logprob": logprob} for token, logprob in listed]
    return {"tokens": [chosen], "completion_probabilities": [{"id": chosen, "logprob": -0.1, "top_logprobs": top}]}


def test_a_sane_answer() -> None:
    sane = answer((7, -0.1), (8, -3.0), (9, -3.4028234663852886e38))
    assert read_chosen(sane) == 7
    assert read_listed(sane) == ((7, -0.1), (8, -3.0)), "what has no chance is not a candidate"
    assert read_listed({"tokens": [7]}) == ()
    assert read_listed(answer((7, 1e-7)))[0].logprob == 0, "rounding may leave a little more than all"


@pytest.mark.parametrize(
    "listed",
    [
        [("7", -0.1)],
        [(True, -0.1)],
        [(-1, -0.1)],
        [(7, "-0.1")],
        [(7, None)],
        [(7, float("nan"))],
        [(7, 0.5)],
        [(7, -0.5), (7, -3.0)],
        [(7, -3.0), (8, -0.5)],
        [(7, -0.1), (8, -0.2)],
    ],
    ids=str,
)
def test_probabilities_that_cannot_be(listed: list[tuple[Any, Any]]) -> None:
    with pytest.raises(EngineProtocolError):
        read_listed(answer(*listed))


@pytest.mark.parametrize("places", ["none", [[]], ["x"], [{"probs": []}], [{"top_logprobs": "x"}], [None]], ids=str)
def test_probabilities_of_another_shape(places: Any) -> None:
    with pytest.raises(EngineProtocolError):
        read_listed({"tokens": [7], "completion_probabilities": places})


@pytest.mark.parametrize("tokens", [None, [], [1, 2], ["a"], [-1], [True], {}], ids=str)
def test_one_token_that_is_none(tokens: Any) -> None:
    with pytest.raises(EngineProtocolError):
        read_chosen({"tokens": tokens})


def test_tokens_that_are_ruled_out_are_no_candidates() -> None:
    listed = (Candidate(1, -0.2), Candidate(2, -2.0), Candidate(3, -2.0), Candidate(4, -5.0))
    assert from_chosen(listed, 3, ignore_eos=True) == (listed[2], listed[1], listed[3])
    assert from_chosen(listed, 1, ignore_eos=False) == listed
    with pytest.raises(EngineProtocolError, match="chose token 3"):
        from_chosen(listed, 3, ignore_eos=False)
    with pytest.raises(EngineProtocolError, match="chose token 9"):
        from_chosen(listed, 9, ignore_eos=True)


def test_the_question() -> None:
    asked = question("text", (5, 6), 8, ignore_eos=True)
    assert asked["prompt"] == ["text", 5, 6]
    assert question("text", (), 8, ignore_eos=True)["prompt"] == "text", "an array of one text would be a batch"
    assert asked["cache_prompt"] is False
    assert forced(asked, 3)["logit_bias"][0][0] == 3


def test_in_the_middle_of_a_character_another_token_is_forced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []

    def stream(_: LlamaSession, given: Any, **__: object) -> Received:
        body: dict[str, Any] = given.body
        asked.append(body)
        final = answer((7, -0.1), (8, -3.0), chosen=64) if "logit_bias" in body else {"tokens": [7]}
        return Received(final=final, timings={}, ended_at=0.0, streamed=False)

    monkeypatch.setattr(LlamaSession, "_stream", stream)
    monkeypatch.setattr(LlamaSession, "tokenize", lambda *_: (64,))
    nothing: Any = None
    (log := tmp_path / "server.log").touch()
    session = LlamaSession(launch(tmp_path, arm()), cast("Any", SimpleNamespace(log_path=log)), nothing, nothing)
    assert session.candidates(prompt(), (1, 2), greedy(), 8) == ((7, -0.1), (8, -3.0))
    assert [body.get("logit_bias", [[None]])[0][0] for body in asked] == [None, 64]


def test_a_chat_prompt_is_rendered_as_it_is_for_generation(tmp_path: Path) -> None:
    chat = prompt("How many houses are in Wesstad?", format="chat")
    with EmbeddedEngine().start(launch(tmp_path, arm())) as session:
        said = session.generate(chat, greedy(4)).token_ids
        assert [session.candidates(chat, said[:at], greedy(), 4)[0].token for at in range(4)] == list(said)


def test_impossible_tokens_are_refused(tmp_path: Path) -> None:
    with EmbeddedEngine().start(launch(tmp_path, arm())) as session:
        with pytest.raises(EngineProtocolError):
            session.candidates(prompt(), (999_999,), greedy(), 4)
        assert session.candidates(prompt(), (), greedy(), 4), "it still answers"
