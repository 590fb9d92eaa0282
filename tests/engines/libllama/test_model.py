"""Texts to tokens and back, as llama.cpp's server does it."""

from __future__ import annotations

import numpy as np
import pytest

from engines.libllama.contexts import Opened, core_path
from models.bench_engine import serve
from specmeter.errors import EngineProtocolError
from specmeter.llama_binding.model import log_softmax

TEXTS = ["", "a", "The people of the valley", "第十二章 山里的人", "👩‍🚀 emoji", "tab\tand\nline", "<|im_start|>user"]


def test_tokens_are_those_of_the_server(opened: Opened) -> None:
    model = opened("dense").model
    with serve(core_path("dense")) as client:
        for text in TEXTS:
            for special in (False, True):
                asked = {"content": text, "add_special": special, "parse_special": special}
                expected = client.post("/tokenize", json=asked).json()["tokens"]
                assert model.tokenize(text, add_special=special, parse_special=special) == expected
            tokens = model.tokenize(text, add_special=False, parse_special=True)
            assert (
                model.text_of(tokens, special=True)
                == client.post("/detokenize", json={"tokens": tokens}).json()["content"]
            )


def test_control_tokens_are_silent_unless_asked_for(opened: Opened) -> None:
    model = opened("dense").model
    tokens = model.tokenize("<|im_end|>", add_special=False, parse_special=True)
    assert len(tokens) == 1
    assert model.is_end(tokens[0])
    assert tokens[0] in model.end_tokens
    assert model.text_of(tokens) == ""
    assert model.text_of(tokens, special=True) == "<|im_end|>"


def test_half_a_character_is_a_replacement(opened: Opened) -> None:
    model = opened("dense").model
    tokens = model.tokenize("👩", add_special=False, parse_special=False)
    assert len(tokens) > 1
    assert model.text_of(tokens) == "👩"
    assert model.text_of(tokens[:1]) == "\ufffd"


def test_what_is_no_text_or_no_token_is_refused(opened: Opened) -> None:
    model = opened("dense").model
    with pytest.raises(EngineProtocolError, match="lone surrogate at character 2"):
        model.tokenize("ab\ud800", add_special=False, parse_special=False)
    for wrong in (-1, model.vocabulary_size):
        with pytest.raises(EngineProtocolError, match="not in the vocabulary"):
            model.bytes_of(wrong)


def test_a_chat_turn_is_put_into_the_models_own_template(opened: Opened) -> None:
    model = opened("dense").model
    with serve(core_path("dense")) as client:
        said = [[{"role": "user", "content": text}] for text in ("What is 2 + 2?", "第" * 2000)]
        roles = ("system", "user", "assistant", "user")
        said.append([{"role": role, "content": f"{role} says this"} for role in roles])
        for messages in said:
            asked = {"messages": messages}
            assert model.chat(messages) == client.post("/apply-template", json=asked).json()["prompt"]


def test_log_softmax_sums_to_one() -> None:
    logits = np.array([1000.0, 999.0, -np.inf, 0.0])
    assert np.exp(log_softmax(logits)).sum() == pytest.approx(1)
    assert log_softmax(logits)[2] == -np.inf
