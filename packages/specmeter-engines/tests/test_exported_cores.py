"""Exported cores are the cores: the same ids for a text, and the same next tokens as llama.cpp's, by transformers."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from specmeter.llama_binding.context import Context
from specmeter.llama_binding.model import Model, log_softmax
from specmeter.models.export import export_hf
from specmeter.models.reference import locate
from specmeter.record import EngineSettings
from specmeter.testing.answers import SCRIPTS
from specmeter.workloads.spec import held_out_text

INSTALL = "needs transformers: pip install 'specmeter-engines[transformers]'"
torch: Any = pytest.importorskip("torch", reason=INSTALL)
transformers: Any = pytest.importorskip("transformers", reason=INSTALL)

WINDOW = 512
TEXT = held_out_text()


@pytest.mark.parametrize("name", ["dense", "moe?quant=F16", "draft-large", "draft-small"])
def test_a_core_is_the_same_by_both_libraries(name: str, tmp_path: Path) -> None:
    """In 16 bits: with weights in Q8_0 llama.cpp rounds what they are multiplied with to 8 bits as well."""
    core = locate(f"bench:{name}", base_dir=Path())
    export_hf(core, tmp_path)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32).eval()
    settings = EngineSettings(context=WINDOW, batch=WINDOW, ubatch=WINDOW)
    with Model(core) as theirs, Context(theirs, settings, threads=1, rows=WINDOW) as context:
        for text in (TEXT[:5000], *SCRIPTS, "<|im_start|>user\nwhy?<|im_end|>\n", " \n\n  1234 it's IT'S\t"):
            ids = theirs.tokenize(text, add_special=True, parse_special=True)
            assert tokenizer(text)["input_ids"] == ids
            assert tokenizer.decode(ids, skip_special_tokens=False) == text
        ids = theirs.tokenize(TEXT, add_special=True, parse_special=True)[:WINDOW]
        their_logits = np.array(context.decode(ids, "all"))
    with torch.no_grad():
        our_logits = model(torch.tensor([ids])).logits[0].numpy()
    assert perplexity(our_logits, ids) == pytest.approx(perplexity(their_logits, ids), rel=1e-3)
    alike = our_logits.argmax(-1) == their_logits.argmax(-1)
    top = np.sort(their_logits, axis=-1)[:, -2:]
    assert np.all(alike | (top[:, 1] - top[:, 0] < 0.3))
    assert alike.mean() > 0.99


def perplexity(logits: Any, ids: list[int]) -> float:
    said = [log_softmax(row)[token] for row, token in zip(logits[:-1], ids[1:], strict=True)]
    return math.exp(-float(np.mean(said)))
