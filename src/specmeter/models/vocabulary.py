"""What a GGUF file says about its tokens, resolved as llama.cpp resolves it (defaults included)."""

from __future__ import annotations

import hashlib
import struct
from typing import Literal

from specmeter.models.gguf_header import StringArray
from specmeter.models.metadata import Metadata
from specmeter.record import Record

VocabularyType = Literal["none", "spm", "bpe", "wpm", "ugm", "rwkv", "plamo2", "test"]

_TYPES: dict[str, VocabularyType] = {
    "none": "none", "no_vocab": "none", "llama": "spm", "bert": "wpm", "gpt2": "bpe", "hybriddna": "bpe",
    "whitespace": "bpe", "gemma4": "bpe", "t5": "ugm", "rwkv": "rwkv", "plamo2": "plamo2", "test": "test",
}  # fmt: skip
"""`tokenizer.ggml.model` -> llama.cpp's vocabulary type, the first thing target and draft must share."""

_DEFAULT_BOS = {"llama": 1, "bert": 101, "gpt2": 11, "hybriddna": 11, "whitespace": 11, "plamo2": 1}
_DEFAULT_EOS = {"llama": 2, "gpt2": 11, "hybriddna": 11, "whitespace": 11, "t5": 1, "plamo2": 2}
_DEFAULT_PAD = {"bert": 0, "t5": 0, "plamo2": 3}
_NO_DEFAULT_BOS_PRE = frozenset({"chatglm-bpe", "glm4", "glm5"})
_ADD_BOS_PRE = frozenset(
    {
        "llama3",
        "llama-v3",
        "llama-bpe",
        "falcon3",
        "falcon-h1",
        "pixtral",
        "midm-2.0",
        "lfm2",
        "jina-v5-nano",
        "tekken",
        "chameleon",
    }
)
_END_OF_TURN = (
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>", "<EOT>", "_<EOT>",
    "[EOT]", "<｜end▁of▁sentence｜>", "<end_of_utterance>",
)  # fmt: skip
"""Texts by which llama.cpp recognises the end-of-turn token of a file that does not name it."""


class Vocabulary(Record):
    """Tokens and special tokens; None is what the file does not say and llama.cpp does not assume."""

    model: str | None
    """`tokenizer.ggml.model`, for example `gpt2` for byte-level BPE."""
    type: VocabularyType | None
    """llama.cpp's vocabulary type; None for a tokenizer that it does not know."""
    pre: str | None
    """Pre-tokenizer."""
    size: int | None
    """Number of tokens."""
    sha256: str | None
    """Fingerprint of all token texts, token types and merges, in order."""
    bos: int | None
    eos: int | None
    eot: int | None
    pad: int | None
    add_bos: bool
    """A beginning-of-sequence token is put before every prompt."""
    add_eos: bool
    chat_template: str | None


def read_vocabulary(metadata: Metadata) -> Vocabulary:
    """The vocabulary of a model."""
    model, pre = metadata.text("tokenizer.ggml.model"), metadata.text("tokenizer.ggml.pre")
    kind = _TYPES.get(model or "")
    tokens = metadata.strings("tokenizer.ggml.tokens")
    size = len(tokens) if tokens is not None else metadata.integer(".vocab_size")

    def special(key: str, default: int | None) -> int | None:
        given = metadata.integer(f"tokenizer.ggml.{key}_token_id")
        ids = [value for value in (given, default) if value is not None and value < (size or 0)]
        return ids[0] if ids else None

    eot = special("eot", None)
    if eot is None and tokens is not None:
        found = [index for text in _END_OF_TURN if (index := tokens.find(text.encode())) is not None]
        eot = min(found, default=None)
    return Vocabulary(
        model=model,
        type=kind,
        pre=pre,
        size=size,
        sha256=_fingerprint(metadata, tokens),
        bos=special("bos", None if pre in _NO_DEFAULT_BOS_PRE else _DEFAULT_BOS.get(model or "")),
        eos=special("eos", _DEFAULT_EOS.get(model or "")),
        eot=eot,
        pad=special("padding", _DEFAULT_PAD.get(model or "")),
        add_bos=_adds_bos(metadata, model, kind, pre),
        add_eos=_or(metadata.flag("tokenizer.ggml.add_eos_token"), kind == "ugm"),
        chat_template=metadata.text("tokenizer.chat_template"),
    )


def _adds_bos(metadata: Metadata, model: str | None, kind: VocabularyType | None, pre: str | None) -> bool:
    if model == "gemma4" or (kind == "bpe" and pre == "gemma4"):
        return True  # whatever the file says: llama.cpp overrides it
    default = kind in ("spm", "wpm") or (kind == "bpe" and pre in _ADD_BOS_PRE)
    return _or(metadata.flag("tokenizer.ggml.add_bos_token"), default)


def _or(value: bool | None, default: bool) -> bool:
    return default if value is None else value


def _fingerprint(metadata: Metadata, tokens: StringArray | None) -> str | None:
    if tokens is None:
        return None
    digest = hashlib.sha256()
    types = metadata.numbers("tokenizer.ggml.token_type")
    merges = metadata.strings("tokenizer.ggml.merges")
    for part in (array.raw if array is not None else b"" for array in (tokens, types, merges)):
        digest.update(struct.pack("<Q", len(part)))
        digest.update(part)
    return digest.hexdigest()
