"""What can be tried on a target: which drafts, why not the others, and what is refused at once."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from models.gguf_files import write_gguf
from specmeter.advise import candidates as module
from specmeter.advise.advice import AdviceQuestion
from specmeter.advise.candidates import Candidates, find_candidates
from specmeter.errors import ModelError, UsageError
from specmeter.messages import Message
from specmeter.models import bench
from specmeter.models.facts import describe
from specmeter.models.gguf import read_parts
from specmeter.models.reference import FoundModel
from specmeter.record import EngineSettings


def put(name: str, path: Path, pad: int = 0) -> Path:
    """A bench model there; `pad` more bytes at its end, which change its size and nothing else."""
    path.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(bench.build(bench.parse(f"bench:{name}")), path)
    if pad:
        with path.open("ab") as file:
            file.write(bytes(pad))
    return path


def asked(target: Path | str, *drafts: Path | str, find: bool = True, settings: tuple[str, ...] = ()) -> AdviceQuestion:
    return AdviceQuestion(target=str(target), drafts=tuple(map(str, drafts)), find_drafts=find, settings=settings)


def found(*paths: Path) -> list[FoundModel]:
    return [FoundModel(it.stem, it, it.stat().st_size, "LM Studio") for it in paths]


def reasons(candidates: Candidates) -> dict[str, Message]:
    return {Path(it.reference).name: it.why for it in candidates.left_out}


def test_drafts_beside_the_target_and_elsewhere_are_found_and_the_others_are_told(tmp_path: Path) -> None:
    target = put("dense", tmp_path / "models/target.gguf")
    small = put("draft-small", tmp_path / "models/target-small.gguf")
    large = put("draft-large", tmp_path / "elsewhere/other.gguf")
    put("draft-other-vocab", tmp_path / "models/vocabulary.gguf")
    put("dense", tmp_path / "models/twin.gguf")
    write_gguf(tmp_path / "models/embeddings.gguf", "bert", keys={"block_count": 1})
    write_gguf(tmp_path / "models/projector.gguf", "clip", general={"type": "mmproj"})
    head = write_gguf(tmp_path / "elsewhere/head.gguf", "eagle3", keys={"block_count": 1})
    (tmp_path / "models/broken.gguf").write_bytes(b"GGUF and then nothing of the kind")
    (tmp_path / "models/loop.gguf").symlink_to("loop.gguf")
    again = tmp_path / "elsewhere/again.gguf"
    again.symlink_to(small)
    candidates = find_candidates(asked(target), found=found(large, again, head))
    assert [(Path(it.reference).name, it.method, it.named) for it in candidates.drafts] == [
        (again.name, "draft-simple", False),
        (large.name, "draft-simple", False),
    ]
    why = reasons(candidates)
    assert why.keys() == {"vocabulary.gguf", "embeddings.gguf", "projector.gguf", "head.gguf", "broken.gguf"}
    assert "vocabulary-size is 1536, the target's is 2048" in str(why["vocabulary.gguf"])
    assert "an encoder" in str(why["embeddings.gguf"])
    assert "mmproj" in str(why["projector.gguf"])
    assert why["head.gguf"] == Message("left-out.elsewhere")
    assert why["broken.gguf"].code == "left-out.unreadable"
    assert set(candidates.lookups) == {"ngram-simple", "ngram-map-k", "ngram-map-k4v", "ngram-mod", "ngram-cache"}
    assert candidates.heads == ()


def test_a_head_of_the_targets_own_is_named_where_its_header_has_one(tmp_path: Path) -> None:
    keys = {"block_count": 3, "context_length": 4096, "embedding_length": 64, "attention.head_count": 4}
    plain = write_gguf(tmp_path / "plain.gguf", "qwen3", keys=keys)
    own = write_gguf(tmp_path / "own.gguf", "qwen3", keys={**keys, "nextn_predict_layers": 1})
    assert find_candidates(asked(plain, find=False)).heads == ()
    assert find_candidates(asked(own, find=False)).heads == ("draft-mtp",)


def test_of_many_drafts_a_few_of_different_size_are_tried(tmp_path: Path) -> None:
    target = put("dense", tmp_path / "target.gguf")
    sizes = {
        name: put("draft-small", tmp_path / f"{name}.gguf", pad)
        for name, pad in zip("abcde", range(0, 50, 10), strict=True)
    }
    copy = put("draft-small", tmp_path / "f.gguf")
    candidates = find_candidates(asked(target), found=[])
    assert [Path(it.reference) for it in candidates.drafts] == [sizes["a"], sizes["c"], sizes["e"]]
    why = reasons(candidates)
    assert why.keys() == {"b.gguf", "d.gguf", "f.gguf"}
    assert why["b.gguf"] == Message("left-out.enough", fitting=5, tried=3)
    assert why[copy.name].code == "left-out.copy"


def test_named_drafts_are_all_tried_and_nothing_else(tmp_path: Path) -> None:
    target = put("dense", tmp_path / "target.gguf")
    large = put("draft-large", tmp_path / "x/large.gguf")
    other = put("draft-other-special", tmp_path / "x/other.gguf")
    put("draft-small", tmp_path / "small.gguf")
    candidates = find_candidates(asked(target, large, other, target, find=False), found=[])
    assert [(it.reference, it.named) for it in candidates.drafts] == [(str(large), True)]
    assert reasons(candidates)["target.gguf"] == Message("left-out.target")
    assert reasons(candidates)["other.gguf"].code == "left-out.vocabulary"
    with pytest.raises(ModelError, match=r"none of these draft models can be used:\n  .*other\.gguf: its vocabulary"):
        find_candidates(asked(target, other, find=False), found=[])
    with pytest.raises(ModelError, match="not smaller than the target"):
        find_candidates(asked(large, target, find=False), found=[])
    with pytest.raises(ModelError, match="no such file"):
        find_candidates(asked(target, tmp_path / "none.gguf", find=False), found=[])


def test_bench_targets_have_bench_drafts_and_nothing_is_built_for_a_dry_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drafts = ("bench:draft-small", "bench:draft-large")
    assert find_candidates(asked("bench:dense"), found=[]).references == drafts
    monkeypatch.setenv("SPECMETER_CACHE", str(tmp_path / "cache"))
    planned = find_candidates(asked("bench:dense-100m"), fetching=None, found=[])
    assert (planned.references, planned.looked) == (drafts, True)
    far = find_candidates(asked("hf:o/r/f.gguf"), fetching=None, found=[])
    assert (far.references, far.looked) == ((), False)
    assert not list((tmp_path / "cache").rglob("*.gguf"))


@pytest.mark.parametrize(
    ("architecture", "keys", "general", "message"),
    [
        ("bert", {}, {}, "an encoder, which makes embeddings of texts, not a causal language model"),
        ("t5", {}, {}, "an encoder with a decoder, not a causal language model"),
        ("clip", {}, {"type": "mmproj"}, r"part of a model \(mmproj\), not a causal language model"),
        ("llama", {}, {"type": "adapter"}, "an adapter"),
        ("llama", {"attention.causal": False}, {}, "without causal attention"),
        ("qwen3", {"pooling_type": 3}, {}, "a model of embeddings or of rankings"),
        ("eagle3", {}, {}, r"a draft model \(eagle3\), not a target"),
    ],
)
def test_what_is_not_a_causal_language_model_is_refused(
    architecture: str, keys: dict[str, object], general: dict[str, object], message: str, tmp_path: Path
) -> None:
    path = write_gguf(tmp_path / "model.gguf", architecture, keys={"block_count": 1, **keys}, general=general)
    with pytest.raises(ModelError, match=message):
        find_candidates(asked(path), found=[])


def test_heads_of_the_target_are_a_method_of_their_own(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "mtp.gguf", "qwen3", keys={"block_count": 4, "nextn_predict_layers": 1})
    assert find_candidates(asked(path), found=[]).heads == ("draft-mtp",)
    other = find_candidates(asked(path, settings=('engine.kind="libllama"',)), found=[])
    assert "draft-mtp" not in other.heads


def test_what_does_not_fit_into_memory_is_told_with_what_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, small = put("dense", tmp_path / "target.gguf"), put("draft-small", tmp_path / "small.gguf")
    facts = [describe(read_parts(it)) for it in (target, small)]
    needed = sum(it.file_bytes + it.memory.kv_bytes(EngineSettings().full_context) for it in facts if it.memory)
    monkeypatch.setattr(module, "memory_free_bytes", lambda: needed - 1)
    candidates = find_candidates(asked(target), found=[])
    assert candidates.drafts == ()
    assert reasons(candidates)[small.name] == Message("left-out.memory", needed=needed, free=needed - 1)
    longer = asked(target, settings=("engine.context=1000000",))
    with pytest.raises(UsageError, match=r"weights and KV cache need .* is free"):
        find_candidates(longer, found=[])


def test_simulated_models_are_taken_as_they_are_named() -> None:
    mock = asked("mock:dense", "mock:small", settings=("engine.kind=mock",))
    assert find_candidates(mock).references == ("mock:small",)
    with pytest.raises(ModelError, match="mock:tiny"):
        find_candidates(asked("mock:dense", "mock:tiny", settings=("engine.kind=mock",)))


def test_an_experiment_says_itself_what_is_tried(tmp_path: Path) -> None:
    mine = AdviceQuestion(target="", from_file=str(tmp_path / "mine.yaml"))
    assert find_candidates(mine).references == ()
    assert json.loads(mine.model_dump_json())["find_drafts"] is True
