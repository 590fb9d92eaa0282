"""The user's files: one prompt per line or per file, and one clear message for everything else."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specmeter.errors import ExperimentError
from specmeter.workloads import load, user
from specmeter.workloads.spec import FileWorkload
from specmeter.workloads.user import read_prompts


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


def test_a_text_file_is_one_prompt(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfOne.\r\n\r\nTwo.\r\n")
    (tmp_path / "b.md").write_text("Three.\n\n", encoding="utf-8")
    prompts = load([files("a.txt", "b.md")], base_dir=tmp_path)
    assert [(p.id, p.text) for p in prompts] == [("file/a", "One.\n\nTwo."), ("file/b", "Three.\n")]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "holds no prompt"),
        (b"\n \n", "holds no prompt"),
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
    monkeypatch.setattr(user, "MAX_PROMPTS", 2)
    with pytest.raises(ExperimentError, match="line 3: more than 2 prompts"):
        load([files("a.jsonl")], base_dir=tmp_path)
    monkeypatch.setattr(user, "MAX_PROMPT_CHARACTERS", 50)
    with pytest.raises(ExperimentError, match="60 characters"):
        load([files("b.txt")], base_dir=tmp_path)
    monkeypatch.setattr(user, "MAX_FILE_BYTES", 20)
    with pytest.raises(ExperimentError, match="60 B is more than"):
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
