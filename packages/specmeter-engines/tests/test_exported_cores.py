"""Exported cores are the cores: the same ids for a text, and the same next tokens as llama.cpp's, in each form.

By a library that reads it; skipped where that is not installed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from specmeter.llama_binding.context import Context
from specmeter.llama_binding.model import Model, log_softmax
from specmeter.models.export import export_hf
from specmeter.models.reference import locate
from specmeter.record import EngineSettings
from specmeter.testing.answers import SCRIPTS
from specmeter.workloads.texts import held_out_text
from specmeter_engines.onnxruntime.folders import export_onnx
from specmeter_engines.openvino.folders import export_openvino

WINDOW = 512
TEXT = held_out_text()


class Theirs(NamedTuple):
    """What llama.cpp says of the held-out text."""

    core: Path
    ids: list[int]
    logits: Any


def needed(name: str, extra: str) -> Any:
    return pytest.importorskip(name, reason=f"needs {name}: pip install 'specmeter-engines[{extra}]'")


@pytest.fixture
def theirs(request: pytest.FixtureRequest) -> Iterator[Theirs]:
    core = locate(f"bench:{request.param}", base_dir=Path())
    settings = EngineSettings(context=WINDOW, batch=WINDOW, ubatch=WINDOW)
    with Model(core) as model, Context(model, settings, threads=1, rows=WINDOW) as context:
        ids = model.tokenize(TEXT, add_special=True, parse_special=True)[:WINDOW]
        yield Theirs(core, ids, np.array(context.decode(ids, "all")))


def by_transformers(core: Path, folder: Path, ids: list[int]) -> Any:
    torch = needed("torch", "transformers")
    load: Any = needed("transformers", "transformers").AutoModelForCausalLM.from_pretrained
    export_hf(core, folder)
    with torch.no_grad():
        return load(folder, dtype=torch.float32).eval()(torch.tensor([ids])).logits[0].numpy()


def by_onnxruntime(core: Path, folder: Path, ids: list[int]) -> Any:
    needed("onnxruntime_genai", "onnxruntime")
    export_onnx(core, folder)
    session = needed("onnxruntime", "onnxruntime").InferenceSession(str(folder / "model.onnx"))
    size = json.loads((folder / "genai_config.json").read_bytes())["model"]["decoder"]["head_size"]
    given: dict[str, Any] = {"input_ids": np.array([ids]), "attention_mask": np.ones((1, len(ids)), np.int64)}
    past = [it for it in session.get_inputs() if it.name.startswith("past")]
    given |= {it.name: np.zeros((1, it.shape[1], 0, size), np.float32) for it in past}
    return session.run(["logits"], given)[0][0]


def by_openvino(core: Path, folder: Path, ids: list[int]) -> Any:
    needed("openvino_genai", "openvino")
    export_openvino(core, folder)
    exact = {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32"}
    model = needed("openvino", "openvino").Core().compile_model(folder / "openvino_model.xml", "CPU", exact)
    places = np.arange(len(ids))[np.newaxis]
    given = {"input_ids": [ids], "attention_mask": np.ones_like(places), "position_ids": places, "beam_idx": [0]}
    return model.create_infer_request().infer({name: np.array(it) for name, it in given.items()})["logits"][0]


@pytest.mark.parametrize(
    ("by", "theirs"),
    [
        *((by_transformers, name) for name in ("dense", "moe?quant=F16", "draft-large", "draft-small")),
        (by_onnxruntime, "dense"),
        (by_openvino, "dense"),
    ],
    indirect=["theirs"],
)
def test_a_core_says_the_same_in_each_form(
    by: Callable[[Path, Path, list[int]], Any], theirs: Theirs, tmp_path: Path
) -> None:
    """In 16 bits: with weights in Q8_0 llama.cpp rounds what they are multiplied with to 8 bits as well."""
    logits = by(theirs.core, tmp_path / "exported", theirs.ids)
    assert perplexity(logits, theirs.ids) == pytest.approx(perplexity(theirs.logits, theirs.ids), rel=1e-3)
    alike = logits.argmax(-1) == theirs.logits.argmax(-1)
    top = np.sort(theirs.logits, axis=-1)[:, -2:]
    assert np.all(alike | (top[:, 1] - top[:, 0] < 0.3))
    assert alike.mean() > 0.99


@pytest.mark.parametrize("name", ["dense", "moe?quant=F16", "draft-large", "draft-small"])
def test_a_tokenizer_gives_the_same_ids(name: str, tmp_path: Path) -> None:
    core = locate(f"bench:{name}", base_dir=Path())
    load: Any = needed("transformers", "transformers").AutoTokenizer.from_pretrained
    export_hf(core, tmp_path)
    tokenizer = load(tmp_path)
    with Model(core) as theirs:
        for text in (TEXT[:5000], *SCRIPTS, "<|im_start|>user\nwhy?<|im_end|>\n", " \n\n  1234 it's IT'S\t"):
            ids = theirs.tokenize(text, add_special=True, parse_special=True)
            assert tokenizer(text)["input_ids"] == ids
            assert tokenizer.decode(ids, skip_special_tokens=False) == text


def perplexity(logits: Any, ids: list[int]) -> float:
    said = [log_softmax(row)[token] for row, token in zip(logits[:-1], ids[1:], strict=True)]
    return math.exp(-float(np.mean(said)))
