"""The user's own prompts: read as documented (docs/how-to/your-prompts.md), or refused with file and line."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specmeter.cli import invoke
from specmeter.errors import ExperimentError
from specmeter.experiments.file import load as load_experiment
from specmeter.record import Prompt
from specmeter.store import RunStore
from specmeter.workloads import load, user_files
from specmeter.workloads.spec import FileWorkload
from specmeter.workloads.user_files import read_prompts


def files(*paths: str) -> FileWorkload:
    return FileWorkload(source="file", paths=paths)


def test_jsonl(tmp_path: Path) -> None:
    (tmp_path / "mine.jsonl").write_text(
        '{"prompt": "First?"}\n\n{"text": " Zweite ✓\\n", "id": "b", "kind": "poem", "max_tokens": 9}\r\n',
        encoding="utf-8",
    )
    first, second = load([files("mine.jsonl")], base_dir=tmp_path)
    assert (first.id, first.kind, first.text, first.format) == ("file/mine-1", "user", "First?", "chat")
    assert (second.id, second.kind, second.text, second.max_tokens) == ("file/b", "poem", " Zweite ✓\n", 9)


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_the_first_row_of_a_csv_names_its_columns(tmp_path: Path, delimiter: str) -> None:
    assert [it.kind for it in load([files("mine.csv")], base_dir=tmp_path)] == ["edit", "fact"], "that of the page"
    rows = ("Prompt,kind,max_tokens", '"Two\nlines, and ""quotes""",poem,9', "", "Plain?,,")
    table = "\ufeff" + "\r\n".join(rows).replace(",", delimiter)
    (tmp_path / "mine.csv").write_text(table, encoding="utf-8", newline="")
    first, second = load([files("mine.csv")], base_dir=tmp_path)
    assert (first.id, first.kind, first.max_tokens) == ("file/mine-1", "poem", 9)
    assert first.text == f'Two\nlines{delimiter} and "quotes"'
    assert (second.kind, second.text, second.max_tokens) == ("user", "Plain?", None)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "contains no prompts"),
        ("prompt,kind\n", "contains no prompts"),
        ("Why is the sky blue?\nWhy?\n", "its first row has no column `prompt` or `text`"),
        ("prompt,Prompt\nWhy?,fact\n", "its first row contains 'prompt' twice"),
        ("prompt,kind\nWhy, then?,fact,x\n", "row 2: has more cells than the first row"),
        ("prompt,answer\nWhy?,So.\n", "row 2: answer: unknown key"),
        ("prompt,kind\n,fact\n", 'row 2: needs either "prompt" or "text"'),
        ("prompt,max_tokens\nWhy?,many\n", "row 2: max_tokens: "),
        ('prompt\n"Why?\n', "not CSV: "),
        ("prompt\n" + "x" * 200_000, "not CSV: field larger"),
    ],
)
def test_faults_in_csv_name_their_row(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "bad.csv").write_text(content, encoding="utf-8")
    with pytest.raises(ExperimentError, match=re.escape(message)) as caught:
        load([files("bad.csv")], base_dir=tmp_path)
    assert "bad.csv" in caught.value.message
    assert caught.value.fix


def test_a_text_file_is_one_prompt(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfOne.\r\n\r\nTwo.\r\n")
    (tmp_path / "b.md").write_text("Three.\n\n", encoding="utf-8")
    prompts = load([files("a.txt", "b.md")], base_dir=tmp_path)
    assert [(p.id, p.text) for p in prompts] == [("file/a", "One.\n\nTwo."), ("file/b", "Three.\n")]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "contains no prompts"),
        (b"\n \n", "contains no prompts"),
        (b'{"prompt": "a"}\n{"prompt": }', "line 2: not JSON: Expecting value at column 12"),
        (b'{"prompt": "a"}\n[1]', "line 2: is not an object"),
        (b'{"prompt": "a", "answer": 1}', "line 1: answer: unknown key"),
        (b'{"prompt": 3}', "line 1: prompt: "),
        (b'{"prompt": "\\ud800"}', "line 1: prompt: "),
        (b'{"prompt": "a", "max_tokens": 0}', "line 1: max_tokens: "),
        (b'{"prompt": "a", "kind": "a b"}', "line 1: kind: "),
        (b'{"prompt": "a", "text": "b"}', 'line 1: needs either "prompt" or "text"'),
        (b'{"id": "a"}', 'line 1: needs either "prompt" or "text"'),
        (b'{"prompt": "  "}', "line 1: the prompt is empty"),
        (
            b'{"prompt": "a", "id": "x"}\n{"prompt": "b", "id": "x"}',
            "line 2: the prompt id 'x' is already used at .* 1",
        ),
        (b'{"prompt": "caf\xe9"}', "not UTF-8: byte 0xe9 at position 15"),
        (b"[" * 200_000, "line 1: (nested too deeply|not JSON)"),
        (b'{"prompt": "a"}\n{"prompt": ' + b"9" * 5000 + b"}", "line 2: .*too many digits"),
    ],
)
def test_faults_in_jsonl_name_their_line(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "bad.jsonl").write_bytes(content)
    with pytest.raises(ExperimentError, match=message) as caught:
        load([files("bad.jsonl")], base_dir=tmp_path)
    assert "bad.jsonl" in caught.value.message
    assert caught.value.fix


def test_faults_in_text_files(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_bytes(b"")
    (tmp_path / "binary.txt").write_bytes(b"ab\xff")
    (tmp_path / "folder").mkdir()
    (tmp_path / "sub").mkdir()
    (tmp_path / "a.txt").write_bytes(b"x")
    (tmp_path / "sub" / "a.txt").write_bytes(b"y")
    for paths, message in (
        (["empty.txt"], "the prompt is empty"),
        (["binary.txt"], "byte 0xff at position 2"),
        (["folder"], "is not a file"),
        (["none.txt"], "no such file"),
        (["a.txt", "sub/a.txt"], r"sub.a\.txt: the prompt id 'a' is already used at .*a\.txt"),
    ):
        with pytest.raises(ExperimentError, match=message):
            load([files(*paths)], base_dir=tmp_path)


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() == 0, reason="permissions do not bind this user")
def test_unreadable_file(tmp_path: Path) -> None:
    path = tmp_path / "secret.txt"
    path.write_text("x", encoding="utf-8")
    path.chmod(0)
    with pytest.raises(ExperimentError, match="cannot be read"):
        load([files("secret.txt")], base_dir=tmp_path)


def test_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.jsonl").write_text('{"prompt": "a"}\n' * 3, encoding="utf-8")
    (tmp_path / "b.txt").write_text("x" * 60, encoding="utf-8")
    monkeypatch.setattr(user_files, "MAX_PROMPTS", 2)
    with pytest.raises(ExperimentError, match="line 3: more than 2 prompts"):
        load([files("a.jsonl")], base_dir=tmp_path)
    monkeypatch.setattr(user_files, "MAX_PROMPT_CHARACTERS", 50)
    with pytest.raises(ExperimentError, match="60 characters"):
        load([files("b.txt")], base_dir=tmp_path)
    monkeypatch.setattr(user_files, "MAX_FILE_BYTES", 20)
    with pytest.raises(ExperimentError, match="60 B is above"):
        load([files("b.txt")], base_dir=tmp_path)


@given(st.binary(max_size=200), st.sampled_from(["fuzz.jsonl", "fuzz.txt"]))
def test_any_bytes_give_prompts_or_one_message(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, name: str
) -> None:
    path = tmp_path_factory.getbasetemp() / name
    path.write_bytes(content)
    try:
        assert all(item.text.strip() for item in read_prompts([path], "user"))
    except ExperimentError as error:
        if name not in error.message:
            raise


PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "your-prompts.md"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files that the page shows."""
    shown = re.findall(r"`([a-z]+\.[a-z]+)`:\n\n```[a-z]+\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(shown) == 7
    for name, content in shown:
        (tmp_path / name).write_text(content, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def read(*paths: str, **more: object) -> list[Prompt]:
    return list(load([FileWorkload.model_validate({"source": "file", "paths": paths, **more})]))


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
    changes: tuple[dict[str, object], ...] = ({"before": ()}, {"tools": ({"type": "x"},)}, {"held": {"grammar": "x"}})
    assert len({poet.sha256, *(poet.model_copy(update=it).digest() for it in changes)}) == 4


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"messages": "hi"}', "line 1: the conversation is not a list of turns"),
        ('{"messages": []}', "line 1: the conversation has no user turn"),
        ('{"messages": [1]}', "turn 1: has no role or no content"),
        ('{"messages": [{"role": "user", "content": null}]}', "turn 1: has no role or no content"),
        ('{"messages": [{"role": "robot", "content": "x"}]}', "turn 1: the role 'robot' is unknown"),
        ('{"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}', "turn 1: its content is not text"),
        ('{"messages": [{"role": "user", "content": 5}]}', "turn 1: its content is not text"),
        ('{"messages": [{"role": "user", "content": " "}]}', "line 1: the prompt is empty"),
        (json.dumps({"messages": [{"role": "user", "content": "x"}] * 10_001}), "more than 10000 turns"),
        ('{"conversations": [{"from": "gpt", "value": "x"}]}', "no user turn"),
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
    with pytest.raises(ExperimentError, match="count is 9, but the files contain 1 prompt"):
        read("sharegpt.json", count=9)


def test_the_experiment_of_the_page_runs_with_conversations() -> None:
    """On the real engine: whole conversations reach the target through its own template."""
    small = ["--set", "arms.0.gamma=2", "--blocks", "1", "-n", "4", "--set", "workloads.1.max_tokens=4"]
    assert len(load_experiment("mine.yaml").experiment.workloads) == 2
    assert invoke(["run", "mine.yaml", *small, "--out", "run"]) in (0, 1)
    with RunStore.open(Path("run"), readonly=True) as store:
        assert store.state().state == "complete"
        kept = {prompt.id: prompt for prompt in store.prompts()}
        assert len(kept) == 4
        assert any(prompt.before for prompt in kept.values())
        requests = {request.prompt_id: request for request in store.requests()}
        longest = max(kept.values(), key=lambda it: len(it.before))
        assert requests[longest.id].reply is not None


def test_bounds_are_those_that_the_page_states() -> None:
    bounds = (user_files.MAX_FILE_BYTES, user_files.MAX_PROMPTS, user_files.MAX_PROMPT_CHARACTERS)
    assert bounds == (64 * 2**20, 100_000, 8_000_000)
