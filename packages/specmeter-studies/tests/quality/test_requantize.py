"""Other quantizations of a file: made here, or by a llama-quantize, once, and never of what is quantized already."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFReader, dequantize

from engines.llama_fixtures import NO_NATIVE, native
from specmeter.errors import EngineError, ModelError
from specmeter.models.bench import shipped
from specmeter.models.facts import read_facts
from specmeter_studies.quality.requantize import make

CORE = shipped()["draft-small"].path
"""2 layers of 96; matrices in F16, norms in F32."""
TOOL = native("llama-quantize")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECMETER_CACHE", str(tmp_path / "cache"))


def weights(path: Path, name: str) -> np.ndarray:
    tensor = next(it for it in GGUFReader(path).tensors if it.name == name)
    return dequantize(tensor.data, tensor.tensor_type)


@pytest.mark.parametrize(("kind", "error"), [("Q8_0", 0.01), ("Q5_1", 0.05), ("Q4_0", 0.12)])
def test_weights_stay_what_they_were_within_the_format(kind: str, error: float) -> None:
    made = make(CORE, kind, None)
    assert made.how == f"specmeter to {kind} from F16"
    facts = read_facts(made.path)
    assert {share.type: share.tensors for share in facts.weights.quantization} == {kind: 15, "F32": 9}
    assert facts.layers == read_facts(CORE).layers
    name = "blk.1.ffn_up.weight"
    before, after = weights(CORE, name), weights(made.path, name)
    assert np.abs(before - after).mean() < error * np.abs(before).mean() < np.abs(before).mean()
    assert (weights(made.path, "output_norm.weight") == weights(CORE, "output_norm.weight")).all()


def test_a_file_is_made_once() -> None:
    first = make(CORE, "Q4_1", None).path
    changed = first.stat().st_mtime_ns
    assert make(CORE, "Q4_1", None).path == first
    assert first.stat().st_mtime_ns == changed
    assert make(CORE, "Q4_0", None).path != first


def test_what_is_quantized_already_is_not_quantized_again() -> None:
    eight = make(CORE, "Q8_0", None).path
    with pytest.raises(ModelError, match="already in Q8_0"):
        make(eight, "Q4_0", None)


def test_a_type_of_the_tool_needs_the_tool() -> None:
    with pytest.raises(ModelError, match="Q4_K_M needs a native llama-quantize"):
        make(CORE, "Q4_K_M", None)


def tool(folder: Path, body: str) -> Path:
    """A program in the place of llama-quantize."""
    path = folder / "llama-quantize"
    path.write_text(f"#!{sys.executable}\nimport shutil, sys\n{body}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


@pytest.mark.skipif(os.name == "nt", reason="the stand-in is a script")
def test_the_tool_is_asked_for_the_type_and_only_once(tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    body = f"open({str(calls)!r}, 'a').write(' '.join(sys.argv[3:4]) + '\\n'); shutil.copy(sys.argv[1], sys.argv[2])"
    made = make(CORE, "Q5_K_M", tool(tmp_path, body))
    again = make(CORE, "Q5_K_M", tool(tmp_path, body))
    assert made == again
    assert calls.read_text(encoding="utf-8").split() == ["Q5_K_M"]
    assert made.path.read_bytes() == CORE.read_bytes()
    assert made.how.startswith("llama-quantize (")
    other = make(CORE, "Q5_K_M", tool(tmp_path, body + "  # another build"))
    assert other.path != made.path
    assert not list(made.path.parent.glob("quantize-*"))


@pytest.mark.skipif(os.name == "nt", reason="the stand-in is a script")
def test_a_tool_that_fails_is_quoted(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="exit code 3") as caught:
        make(CORE, "Q2_K", tool(tmp_path, "print('no such type'); sys.exit(3)"))
    assert "| no such type" in caught.value.message
    with pytest.raises(EngineError, match="exit code 0"):
        make(CORE, "Q2_K", tool(tmp_path, "pass"))


@pytest.mark.skipif(TOOL is None, reason=NO_NATIVE)
def test_the_real_tool() -> None:
    made = make(shipped()["dense"].path, "Q4_K_M", TOOL)
    types = {share.type: share.tensors for share in read_facts(made.path).weights.quantization}
    assert types == {"Q4_K": 43, "Q6_K": 7, "F32": 29}
    # Rows of 96 and 192 are no whole blocks of 256: the tool takes other formats, and the file says so.
    narrow = make(CORE, "Q4_K_M", TOOL)
    found = {share.type for share in read_facts(narrow.path).weights.quantization}
    assert "Q4_K" not in found
    assert found <= {"Q5_0", "Q8_0", "Q5_1", "F16", "F32", "Q4_0"}
