"""Bench models as folders of Hugging Face's form, by what the files say; engines read them in their own tests."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import pytest

from specmeter.errors import ModelError
from specmeter.models.bench import shipped
from specmeter.models.export import export_hf
from specmeter.models.gguf import Metadata
from specmeter.models.inflate import CoreFile
from specmeter.models.weights import convert


@pytest.mark.parametrize("name", ["dense", "moe"])
def test_every_weight_is_the_core_s(name: str, tmp_path: Path) -> None:
    core = CoreFile.read(shipped()[name].path)
    export_hf(shipped()[name].path, tmp_path)
    whole = (tmp_path / "model.safetensors").read_bytes()
    (length,) = struct.unpack_from("<Q", whole)
    header = json.loads(whole[8 : 8 + length])
    said = {key: value for key, value in header.items() if key != "__metadata__"}
    ends = [it["data_offsets"][1] for it in said.values()]
    assert sorted(ends)[-1] == len(whole) - 8 - length
    assert [it["data_offsets"][0] for it in said.values()] == [0, *ends[:-1]]
    assert all(np.prod(it["shape"]) * 4 == it["data_offsets"][1] - it["data_offsets"][0] for it in said.values())
    made = b"".join(convert(core.data(it), it.type.name, "F32").tobytes() for it in core.header.tensors)
    assert whole[8 + length :] == made
    config = json.loads((tmp_path / "config.json").read_text())
    assert said["model.embed_tokens.weight"]["shape"] == [config["vocab_size"], config["hidden_size"]]
    down = "mlp.experts.31.down_proj" if name == "moe" else "mlp.down_proj"
    inner = config["moe_intermediate_size" if name == "moe" else "intermediate_size"]
    assert said[f"model.layers.0.{down}.weight"]["shape"] == [config["hidden_size"], inner]


def test_every_token_keeps_its_id(tmp_path: Path) -> None:
    export_hf(shipped()["dense"].path, tmp_path)
    tokens = Metadata(CoreFile.read(shipped()["dense"].path).header).strings("tokenizer.ggml.tokens")
    told = json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))
    assert list(told["model"]["vocab"].items()) == [(it.decode(), at) for at, it in enumerate(tokens or ())]
    assert [it["content"] for it in told["added_tokens"]] == ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def test_what_cannot_be_exported_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="cannot be exported"):
        export_hf(shipped()["hybrid"].path, tmp_path)
    export_hf(shipped()["draft-small"].path, tmp_path)
    with pytest.raises(ModelError, match="already contains a model"):
        export_hf(shipped()["draft-small"].path, tmp_path)
