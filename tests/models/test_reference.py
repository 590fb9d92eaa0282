from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from gguf_files import raw_gguf, string, tensor, write_gguf

from specmeter.errors import ModelError
from specmeter.models import bench
from specmeter.models.gguf import read_header
from specmeter.models.reference import Fetching, file_of, locate, made_of, origin_of, peek, resolve, with_dense


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPECMETER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hf"))
    return tmp_path / "cache"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_gguf(tmp_path / "model.gguf", tensors={"t.weight": (32, 4)})


def test_paths_start_at_the_experiment(tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    references = {
        "model.gguf": tmp_path,
        "../model.gguf": tmp_path / "cache",
        "~/model.gguf": Path("/"),
        str(model): Path(),
    }
    for reference, base_dir in references.items():
        base_dir.mkdir(exist_ok=True)
        identity = resolve("target", reference, base_dir=base_dir)
        assert Path(identity.path).is_absolute()
        assert Path(identity.path).samefile(model)
        assert identity.sha256 == hashlib.sha256(model.read_bytes()).hexdigest()
        assert identity.size_bytes == model.stat().st_size
        assert (identity.name, identity.reference, identity.origin) == ("target", reference, "path")
        assert peek(reference, base_dir=base_dir) == (identity.size_bytes, True)


def refusal(reference: str, base_dir: Path) -> ModelError:
    with pytest.raises(ModelError) as caught:
        resolve("target", reference, base_dir=base_dir)
    return caught.value


def test_missing_files_are_answered_with_near_names(tmp_path: Path, model: Path) -> None:
    assert "did you mean model.gguf?" in refusal("modle.gguf", tmp_path).fix
    assert model.name in refusal("something-else.bin", tmp_path).fix
    error = refusal("nowhere/model.gguf", tmp_path)
    assert "no such file" in error.message
    with pytest.raises(ModelError, match="no such file"):
        peek("modle.gguf", base_dir=tmp_path)


def test_models_in_another_type(tmp_path: Path) -> None:
    core = bench.shipped()["draft-small"].path
    reference = f"quant:Q8_0:{core.name}"
    assert (origin_of(reference), made_of(f"quant:F16:{reference}")) == ("quant", core.name)
    assert with_dense(f"quant:F16:{reference}", "other.gguf") == "quant:F16:quant:Q8_0:other.gguf"
    size_bytes, present = peek(reference, base_dir=core.parent)
    assert not present
    made = resolve("target", reference, base_dir=core.parent)
    assert (made.size_bytes, made.origin, made.reference) == (size_bytes, "path", reference)
    assert read_header(Path(made.path)).metadata["general.file_type"] == 7
    assert peek(reference, base_dir=core.parent) == (size_bytes, True)
    again = f"quant:Q4_0:{made.path}"  # of weights that are quantized already
    assert locate(again, base_dir=tmp_path).stat().st_size == peek(again)[0]
    for bad in ("quant:Q5_9:a.gguf", "quant:Q8_0:", "quant:Q8_0"):
        with pytest.raises(ModelError):
            locate(bad, base_dir=tmp_path)


def test_names_of_files() -> None:
    assert file_of("hf:o/r/sub/a.gguf@main") == file_of("quant:Q4_0:hf:o/r/a.gguf") == file_of("x/a.gguf") == "a.gguf"
    assert file_of("x@y/a@2.gguf") == "a@2.gguf"
    assert file_of("bench:dense") is None


def test_folders(tmp_path: Path, model: Path) -> None:
    error = refusal(str(tmp_path), tmp_path)
    assert "is a directory" in error.message
    assert model.name in error.fix


def test_files_that_are_no_models(tmp_path: Path, model: Path) -> None:
    (tmp_path / "text.gguf").write_text("hello")
    assert "does not begin with the letters GGUF" in refusal("text.gguf", tmp_path).message
    content = model.read_bytes()
    (tmp_path / "cut.gguf").write_bytes(content[:-100])
    assert "truncated" in refusal("cut.gguf", tmp_path).message
    (tmp_path / "header.gguf").write_bytes(content[:200])
    assert "truncated" in refusal("header.gguf", tmp_path).message


def test_split_models(tmp_path: Path) -> None:
    def part(number: int) -> bytes:
        numbers = [string(b"split.no"), string(b"split.count")]
        keys = [
            name + b"\x02\0\0\0" + value.to_bytes(2, "little") for name, value in zip(numbers, (number, 2), strict=True)
        ]
        return raw_gguf(keys, [tensor(b"t%d" % number, [32])], data=64)

    first, second = (tmp_path / f"m-0000{number}-of-00002.gguf" for number in (1, 2))
    first.write_bytes(part(0))
    assert "1 of 2 parts are missing" in refusal(first.name, tmp_path).message
    second.write_bytes(part(1))
    identity = resolve("target", first.name, base_dir=tmp_path)
    sums = [hashlib.sha256(path.read_bytes()).hexdigest() for path in (first, second)]
    assert identity.sha256 == hashlib.sha256("\n".join(sums).encode()).hexdigest()
    assert identity.size_bytes == first.stat().st_size + second.stat().st_size
    assert peek(first.name, base_dir=tmp_path) == (identity.size_bytes, True)


@pytest.mark.parametrize("reference", ["", "  ", "a\0b", "https://example.org/x.gguf", "ollama:qwen3", "HF:a/b/c.gguf"])
def test_malformed_references(reference: str, tmp_path: Path) -> None:
    error = refusal(reference, tmp_path)
    assert "bench:NAME" in error.fix


def test_schemes_and_drives() -> None:
    assert origin_of("hf:a/b/c.gguf") == "hf"
    assert origin_of("bench:moe") == "bench"
    assert origin_of(r"C:\models\x.gguf") == origin_of("x.gguf") == "path"


def test_bench_models_are_built_once(cache: Path) -> None:
    told: list[tuple[str, int, int]] = []
    reference = "bench:draft-small?quant=Q8_0"
    size, present = peek(reference)
    assert not present
    assert not cache.joinpath("models").exists()
    identity = resolve("draft", reference, base_dir=Path(), fetching=Fetching(progress=lambda *done: told.append(done)))
    assert (identity.origin, identity.timing_only, identity.size_bytes) == ("bench", False, size)
    assert Path(identity.path).is_relative_to(cache)
    assert told[-1] == ("draft", size, size)
    assert peek(reference) == (size, True)
    assert resolve("draft", reference, base_dir=Path()).sha256 == identity.sha256
    shipped = resolve("draft", "bench:draft-small", base_dir=Path())
    assert shipped.sha256 == bench.shipped()["draft-small"].sha256


def test_shapes_are_for_timing_only(monkeypatch: pytest.MonkeyPatch, model: Path) -> None:
    monkeypatch.setattr(bench, "build", lambda spec, progress: model)  # noqa: ARG005
    shape = next(name for name in bench.names() if name.startswith("shape/"))
    assert resolve("target", f"bench:{shape}?scale=0.05", base_dir=Path()).timing_only


def test_unknown_bench_names_are_answered_with_near_names(tmp_path: Path) -> None:
    assert "draft-small" in refusal("bench:draft-smal", tmp_path).fix
    with pytest.raises(ModelError, match="unknown bench model"):
        locate("bench:nothing-like-it", base_dir=tmp_path)
    with pytest.raises(ModelError, match="unknown bench model"):
        peek("bench:nothing-like-it")
