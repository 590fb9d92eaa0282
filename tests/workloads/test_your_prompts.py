"""Every form of prompts that docs/how-to/your-prompts.md shows is read, and what it says of them holds."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from specmeter.cli import invoke
from specmeter.errors import ExperimentError
from specmeter.experiments.file import load
from specmeter.record import Prompt
from specmeter.store import RunStore
from specmeter.workloads import load as load_prompts
from specmeter.workloads.spec import FileWorkload
from specmeter.workloads.user import MAX_FILE_BYTES, MAX_PROMPT_CHARACTERS, MAX_PROMPTS

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "your-prompts.md"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files that the page shows."""
    shown = re.findall(r"`([a-z]+\.[a-z]+)`:\n\n```[a-z]+\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(shown) == 6
    for name, content in shown:
        (tmp_path / name).write_text(content, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def read(*paths: str, **more: object) -> list[Prompt]:
    return list(load_prompts([FileWorkload.model_validate({"source": "file", "paths": paths, **more})]))


def said(prompt: Prompt) -> list[tuple[str, str]]:
    return [(message["role"], message["content"]) for message in prompt.messages]


def test_plain_prompts() -> None:
    first, second = read("mine.txt", per_line=True)
    assert first.text == "What is speculative decoding? Answer in two sentences."
    assert (second.id, second.format) == ("file/mine-3", "chat")
    (whole,) = read("mine.txt")
    assert whole.text.count("\n") == 2
    dream, sky = read("mine.jsonl")
    assert (dream.id, dream.kind, dream.max_tokens) == ("file/dream", "edit", 64)
    assert said(sky) == [("user", "Why is the sky blue?")]


def test_chats_end_with_the_last_turn_of_the_user() -> None:
    brief, joke = read("chats.jsonl")
    assert said(brief) == [("system", "You are brief."), ("user", "What is a draft model?")]
    assert said(joke) == [("user", "Hi"), ("assistant", "Hello!"), ("user", "Tell me a joke.")]
    (batch,) = read("batch.jsonl")
    assert said(batch) == [("user", "What is a token?")]
    (poet,) = read("sharegpt.json")
    assert poet.id == "file/abc_0"
    assert [role for role, _ in said(poet)] == ["system", "user", "assistant", "user"]
    assert poet.text == "Another one."
    assert len({it.sha256 for it in (brief, joke, batch, poet)}) == 4
    assert poet.sha256 != poet.model_copy(update={"before": ()}).digest()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"messages": "hi"}', "line 1: the conversation is not a list of turns"),
        ('{"messages": []}', "line 1: the conversation has no turn of the user"),
        ('{"messages": [1]}', "turn 1: has no role or no content"),
        ('{"messages": [{"role": "user", "content": null}]}', "turn 1: has no role or no content"),
        ('{"messages": [{"role": "tool", "content": "x"}]}', "turn 1: the role 'tool' is unknown"),
        ('{"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}', "turn 1: its content is not text"),
        ('{"messages": [{"role": "user", "content": 5}]}', "turn 1: its content is not text"),
        ('{"messages": [{"role": "user", "content": " "}]}', "line 1: the prompt is empty"),
        (json.dumps({"messages": [{"role": "user", "content": "x"}] * 1001}), "more than 1000 turns"),
        ('{"conversations": [{"from": "gpt", "value": "x"}]}', "no turn of the user"),
        ('{"messages": [{"role": "user", "content": "x"}], "max_tokens": 0}', "max_tokens: has to be at least 1"),
    ],
)
def test_what_is_not_a_conversation_is_told_with_its_place(line: str, message: str) -> None:
    Path("bad.jsonl").write_text(line, encoding="utf-8")
    with pytest.raises(ExperimentError, match=re.escape(message)):
        read("bad.jsonl")


def test_a_conversation_needs_a_template() -> None:
    with pytest.raises(ExperimentError, match="needs the model's chat template"):
        read("chats.jsonl", format="completion")


def test_some_of_many() -> None:
    names = [prompt.id for prompt in read("mine.txt", "chats.jsonl", "sharegpt.json", per_line=True)]
    some = [prompt.id for prompt in read("mine.txt", "chats.jsonl", "sharegpt.json", per_line=True, count=3)]
    assert len(some) == 3
    assert [name for name in names if name in some] == some
    with pytest.raises(ExperimentError, match="count is 9, but the files hold 1 prompt"):
        read("sharegpt.json", count=9)


def test_bounds_are_those_that_the_page_states() -> None:
    assert (MAX_FILE_BYTES, MAX_PROMPTS, MAX_PROMPT_CHARACTERS) == (64 * 2**20, 100_000, 8_000_000)


def test_the_experiment_of_the_page_runs_with_conversations() -> None:
    """On the real engine: whole conversations reach the target through its own template."""
    small = ["--set", "arms.0.gamma=2", "--blocks", "1", "-n", "4", "--set", "workloads.1.max_tokens=4"]
    assert len(load("mine.yaml").experiment.workloads) == 2
    assert invoke(["run", "mine.yaml", *small, "--out", "run"]) in (0, 1)
    with RunStore.open(Path("run"), readonly=True) as store:
        assert store.state().state == "complete"
        kept = {prompt.id: prompt for prompt in store.prompts()}
        assert len(kept) == 4
        assert any(prompt.before for prompt in kept.values())
        requests = {request.prompt_id: request for request in store.requests()}
        longest = max(kept.values(), key=lambda it: len(it.before))
        assert requests[longest.id].reply is not None
