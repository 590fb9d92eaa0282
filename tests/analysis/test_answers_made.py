"""How the answers of a run were made: counted from its requests, and said in one line."""

from __future__ import annotations

from typing import Any

import pytest

from records import header, identity
from specmeter.analysis.answers_made import AnswersMade, answers_made
from specmeter.record import Arm, ChatMessage, EngineSettings, Generation, Load, Prompt
from specmeter.store import RequestRow

GREEDY = Generation()
SERVED = {"top_k": 40, "top_p": 0.95, "min_p": 0.05, "repeat_penalty": 1, "n_ctx": 9}
_ENGINE = EngineSettings(context=4096)
ARMS = (
    Arm(id="m/none", target="m", role="baseline", engine=_ENGINE),
    Arm(id="m/sd", target="m", methods=("draft-simple",), engine=_ENGINE),
)


def prompt(name: str, **changes: Any) -> Prompt:
    return Prompt(id=name, workload="w", kind="chat", text="Why?", sha256="0" * 64, format="chat", **changes)


def row(prompt_id: str, tokens: int | None, end: str = "eos", arm: str = "m/none", status: str = "ok") -> RequestRow:
    values: dict[str, Any] = dict.fromkeys(RequestRow._fields)
    values |= {"invocation": 0, "block": 0, "kind": "chat", "started_at": 0.0}
    given = {"prompt_id": prompt_id, "predicted_n": tokens, "stop_reason": end, "arm_id": arm, "status": status}
    return RequestRow(**(values | given))


def made(rows: list[RequestRow], generation: Generation = GREEDY, **changes: Any) -> AnswersMade:
    given = {"prompts": [prompt("a"), prompt("b"), prompt("c")], "arms": ARMS} | changes
    found = answers_made(rows, given.pop("prompts"), given.pop("arms"), generation, **given)
    assert found is not None
    return found


def test_answers_that_ended_by_themselves() -> None:
    found = made(
        [row("a", 10), row("a", 12, arm="m/sd"), row("b", 101), row("c", 300), row("c", None, status="failed")]
    )
    assert str(found.line) == (
        "3 prompts, median output 101 tokens (all ended normally), greedy, context 4096, single turn, no prompt cache"
    )
    assert found.remarks == []


def test_answers_that_were_cut() -> None:
    rows = [row("a", 1024, "limit"), row("a", 1024, "limit", arm="m/sd"), row("b", 7), row("c", 64, "limit")]
    found = made(rows, prompts=[prompt("a"), prompt("b"), prompt("c", max_tokens=64)])
    assert "(2 of 3 cut at 64, or 1024 tokens)" in str(found.line)


def test_how_tokens_were_chosen() -> None:
    rows = [row("a", 5)]
    sampled = made(rows, Generation(temperature=0.7, top_k=20, stop=("\n\n",)), served=SERVED)
    assert "temperature 0.7, top-k 20, top-p 0.95, min-p 0.05, stopped at '\\n\\n'" in str(sampled.line)
    assert "temperature 0.7, context" in str(made(rows, Generation(temperature=0.7)).line), "not told"
    assert "greedy with repeat-penalty 1.1," in str(made(rows, Generation(repeat_penalty=1.1)).line)
    served = made(rows, served=SERVED | {"presence_penalty": 0.5})
    assert "greedy with presence-penalty 0.5," in str(served.line), "the server's own hold"


def test_chats_loads_and_targets_without_a_template() -> None:
    turns = (ChatMessage(role="user", content="Hi"), ChatMessage(role="assistant", content="Hello"))
    rows, chats = [row("a", 5), row("a~2", 9)], [prompt("a", before=turns), prompt("a~2", before=turns, of="a")]
    load = Load(clients=4, requests=8)
    arm = ARMS[0].model_copy(update={"load": load, "engine": EngineSettings(context=8192, slots=4, prompt_cache=True)})
    bare = identity("m").model_copy(update={"header": header().model_copy(update={"chat_template": False})})
    found = made(rows, prompts=chats, arms=[arm], models=[bare])
    assert str(found.line).startswith("1 prompt, median output 7 tokens")
    assert str(found.line).endswith("context 2048, multi-turn chats, prompt cache, under load")
    assert [str(it) for it in found.remarks] == ["m has no chat template: it continues the prompts as raw text"]
    plain = prompt("a").model_copy(update={"format": "completion"})
    assert made(rows[:1], prompts=[plain], models=[bare]).remarks == []


@pytest.mark.parametrize("rows", [[], [row("a", None, status="failed")], [row("a", 9, arm="m/other")]])
def test_nothing_is_said_of_no_answers(rows: list[RequestRow]) -> None:
    assert answers_made(rows, [prompt("a")], ARMS, Generation()) is None
