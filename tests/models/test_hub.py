from __future__ import annotations

import errno
import hashlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub.constants
import pytest
from gguf_files import write_gguf
from hub_server import COMMIT, NEXT_COMMIT, Hub, serving

from specmeter.errors import ModelError
from specmeter.models import hub as hub_module
from specmeter.models.hub import HubFile, fetch, parse, peek
from specmeter.models.reference import OFFLINE, resolve
from specmeter.models.reference import peek as peek_reference

CONTENT = bytes(range(256)) * 4000
MODEL = parse("hf:owner/repo/folder/model.gguf")
PINNED = parse(f"hf:owner/repo/folder/model.gguf@{COMMIT}")


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECMETER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hf"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with serving(Hub(files={"folder/model.gguf": CONTENT})) as served:
        monkeypatch.setenv("HF_ENDPOINT", served.endpoint)
        yield served


def refusal(file: HubFile = MODEL, **options: Any) -> ModelError:
    with pytest.raises(ModelError) as caught:
        fetch(file, **options)
    return caught.value


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        ("hf:o/r/m.gguf", HubFile("o/r", "m.gguf", "main")),
        ("hf:o-1/r.2/a/b c/m-Q4_K_M.gguf@v1.0", HubFile("o-1/r.2", "a/b c/m-Q4_K_M.gguf", "v1.0")),
        (f"hf:o/r/m.gguf@{COMMIT}", HubFile("o/r", "m.gguf", COMMIT)),
        ("hf:o/r/m.gguf@refs/pr/1", HubFile("o/r", "m.gguf", "refs/pr/1")),
    ],
)
def test_references(reference: str, expected: HubFile) -> None:
    assert parse(reference) == expected


@pytest.mark.parametrize(
    "reference",
    [
        "hf:", "hf:o", "hf:o/r", "hf:m.gguf", "hf:o/m.gguf", "hf:o/r/m.bin", "hf:o/r/../m.gguf", "hf:o/r/./m.gguf",
        "hf:o/r//m.gguf", "hf:../r/m.gguf", "hf:o/r/m.gguf@", "hf:o/r/m.gguf@a b", "hf:o/r/m.gguf@../x",
        "hf:o/r/a\\m.gguf", "hf:o/r/C:m.gguf", "hf:o/r/a\nb.gguf", "hf://o/r/m.gguf", "hf:o/r/m.gguf@a@b",
    ],
)  # fmt: skip
def test_malformed_references(reference: str) -> None:
    with pytest.raises(ModelError, match="is not a GGUF file") as caught:
        parse(reference)
    assert "hf:OWNER/REPO/FILE.gguf" in caught.value.fix


def test_download(hub: Hub) -> None:
    told: list[tuple[int, int]] = []
    assert peek(MODEL) == (len(CONTENT), False)
    path = fetch(MODEL, progress=lambda *done: told.append(done))
    assert path.read_bytes() == CONTENT
    assert told[-1] == (len(CONTENT), len(CONTENT))
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert peek(MODEL) == (len(CONTENT), True)
    assert fetch(MODEL) == path
    assert hub.ranges == [None]
    assert not list(path.parent.glob("*.part"))


def test_pinned_files_need_the_hub_only_once(hub: Hub) -> None:
    path = fetch(PINNED)
    asked = hub.requests
    assert fetch(PINNED) == path
    assert fetch(PINNED, offline=True) == path
    assert hub.requests == asked


def test_branches_move_on(hub: Hub) -> None:
    old = fetch(MODEL)
    hub.commit, hub.files = NEXT_COMMIT, {"folder/model.gguf": b"new" * 100}
    new = fetch(MODEL)
    assert (old.read_bytes(), new.read_bytes()) == (CONTENT, b"new" * 100)
    assert fetch(MODEL, offline=True) == new


def test_small_files_are_checked_by_their_git_hash(hub: Hub) -> None:
    hub.small = {"folder/model.gguf"}
    assert fetch(MODEL).read_bytes() == CONTENT


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "DOWNLOAD_CHUNK_SIZE", 100_000)


@pytest.mark.usefixtures("small_chunks")
def test_a_broken_connection_is_resumed(hub: Hub) -> None:
    hub.break_after = [300_000]
    assert fetch(MODEL).read_bytes() == CONTENT
    assert hub.ranges == [None, "bytes=300000-"]


@pytest.mark.usefixtures("small_chunks")
def test_an_interrupted_download_is_resumed(hub: Hub) -> None:
    def interrupt(done: int, _total: int) -> None:
        if done == 200_000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch(MODEL, progress=interrupt)
    assert peek(MODEL) == (len(CONTENT), False)
    assert fetch(MODEL).read_bytes() == CONTENT
    assert hub.ranges == [None, "bytes=200000-"]


def test_what_a_killed_process_left_is_resumed(hub: Hub, tmp_path: Path) -> None:
    part = tmp_path / "cache/hub/owner--repo" / COMMIT / "folder/model.gguf.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(CONTENT[:500_000])
    assert fetch(MODEL).read_bytes() == CONTENT
    assert hub.ranges == ["bytes=500000-"]


@pytest.mark.parametrize("left", [CONTENT, CONTENT + b"more"], ids=["complete", "too long"])
def test_parts_that_are_complete_or_too_long(hub: Hub, tmp_path: Path, left: bytes) -> None:
    part = tmp_path / "cache/hub/owner--repo" / COMMIT / "folder/model.gguf.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(left)
    assert fetch(MODEL).read_bytes() == CONTENT
    assert hub.ranges == ([] if left == CONTENT else [None])


def test_a_wrong_checksum_is_refused_and_leaves_nothing(hub: Hub, tmp_path: Path) -> None:
    hub.false_checksum = True
    error = refusal()
    assert "hub's checksum 0000" in error.message
    assert not [path for path in (tmp_path / "cache/hub").rglob("model.gguf*") if path.suffix != ".lock"]
    assert peek(MODEL) == (len(CONTENT), False)
    hub.false_checksum = False
    assert fetch(MODEL).read_bytes() == CONTENT


def test_damage_before_a_resume_is_noticed(hub: Hub, tmp_path: Path) -> None:
    part = tmp_path / "cache/hub/owner--repo" / COMMIT / "folder/model.gguf.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(b"x" * 1000)
    assert "checksum" in refusal().message
    assert fetch(MODEL).read_bytes() == CONTENT
    assert hub.ranges == ["bytes=1000-", None]


def test_files_in_the_cache_of_huggingface_hub_are_used(hub: Hub, tmp_path: Path) -> None:
    repository = tmp_path / "hf/models--owner--repo"
    snapshot = repository / "snapshots" / COMMIT / "folder"
    snapshot.mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs/main").write_text(COMMIT)
    (snapshot / "model.gguf").write_bytes(CONTENT)
    assert fetch(MODEL) == snapshot / "model.gguf"
    assert peek(MODEL, offline=True) == (len(CONTENT), True)
    (snapshot / "model.gguf").write_bytes(CONTENT[::-1])
    assert fetch(MODEL).read_bytes() == CONTENT
    assert hub.ranges == [None]


def test_split_models_are_fetched_whole(hub: Hub) -> None:
    names = [f"m-0000{number}-of-00002.gguf" for number in (1, 2)]
    hub.files = {name: name.encode() * 100 for name in names}
    file = parse(f"hf:owner/repo/{names[0]}")
    size = sum(map(len, hub.files.values()))
    assert peek(file) == (size, False)
    path = fetch(file)
    assert [path.with_name(name).read_bytes() for name in names] == list(hub.files.values())
    assert peek(file, offline=True) == (size, True)
    with pytest.raises(ModelError, match="not the first part"):
        fetch(parse(f"hf:owner/repo/{names[1]}"))


def test_tokens(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.token = "secret-token"
    assert "is private" in refusal().message
    hub.gated = True
    error = refusal()
    assert "gated" in error.message
    assert "HF_TOKEN" in error.fix
    with pytest.raises(ModelError, match="gated"):
        peek(MODEL)
    monkeypatch.setenv("HF_TOKEN", "secret-token")
    assert fetch(MODEL).read_bytes() == CONTENT


def test_tokens_are_not_told(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.token = "right"
    monkeypatch.setenv("HF_TOKEN", "hf_wrong_and_secret")
    assert "hf_wrong_and_secret" not in str(refusal())


@pytest.mark.usefixtures("hub")
def test_what_the_hub_does_not_have() -> None:
    error = refusal(parse("hf:owner/repo/folder/modl.gguf"))
    assert "no such file" in error.message
    assert "folder/model.gguf" in error.fix
    assert "no revision 'v9'" in refusal(parse("hf:owner/repo/folder/model.gguf@v9")).message
    assert "the repository does not exist" in refusal(parse("hf:owner/other/model.gguf")).message


def test_a_hub_in_trouble(hub: Hub) -> None:
    hub.status = 503
    assert "status 503" in refusal().message
    hub.status = 200
    assert "does not respond like a model hub" in refusal().message


def test_a_hub_that_cannot_be_reached(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "not in the cache" in refusal(offline=True).message
    assert peek(MODEL, offline=True) == (None, False)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert "could not be reached" in refusal().message
    assert peek(MODEL) == (None, False)
    monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
    path = fetch(MODEL)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert fetch(MODEL) == path


@pytest.mark.usefixtures("hub")
def test_a_full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1000))
    error = refusal()
    assert "no space" in error.message
    assert "SPECMETER_CACHE" in error.fix


@pytest.mark.usefixtures("hub")
def test_a_disk_that_fills_up_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(hub_module._CountingFile, "write", full)
    assert "no space" in refusal().message


def test_references_to_the_hub_resolve(hub: Hub, tmp_path: Path) -> None:
    model = write_gguf(tmp_path / "m.gguf", tensors={"t.weight": (32, 4)}).read_bytes()
    hub.files = {"m.gguf": model}
    reference = "hf:owner/repo/m.gguf"
    assert peek_reference(reference) == (len(model), False)
    identity = resolve("target", reference, base_dir=tmp_path)
    assert (identity.origin, identity.size_bytes) == ("hf", len(model))
    assert identity.sha256 == hashlib.sha256(model).hexdigest()
    assert resolve("target", reference, base_dir=tmp_path, fetching=OFFLINE) == identity
