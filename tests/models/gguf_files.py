"""Small GGUF files for tests, written by llama.cpp's own `gguf` package."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import gguf
import numpy as np

TOKENS = ["<unk>", "<s>", "</s>", "a", "b", "c", "d", "e", "f", "Ġa", "Ġb", "<|im_end|>"]


def write_gguf(
    path: Path,
    architecture: str = "llama",
    *,
    keys: Mapping[str, Any] | None = None,
    tensors: Mapping[str, tuple[int, ...]] | None = None,
    tokens: Sequence[str] | None = TOKENS,
    vocabulary: Mapping[str, Any] | None = None,
    general: Mapping[str, Any] | None = None,
) -> Path:
    """A model file: `keys` are completed with the architecture, `tensors` are names with shapes in ggml's order.

    All tensors are F16. `vocabulary` holds `tokenizer.ggml.*` keys, `general` `general.*`.
    """
    writer = gguf.GGUFWriter(path, architecture)
    for key, value in (keys or {}).items():
        add(writer, f"{architecture}.{key}", value)
    for key, value in (general or {}).items():
        add(writer, f"general.{key}", value)
    if tokens is not None:
        writer.add_token_list(list(tokens))
        writer.add_token_types([1] * len(tokens))
        writer.add_token_merges([f"{one} {other}" for one, other in pairwise(tokens)])
    for key, value in {"model": "gpt2", "pre": "qwen2", **(vocabulary or {})}.items():
        add(writer, f"tokenizer.ggml.{key}", value)
    for name, shape in (tensors or {}).items():
        writer.add_tensor(name, np.zeros(shape[::-1], dtype=np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def add(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    """Add a metadata key of the type that the value suggests."""
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    else:
        writer.add_array(key, value)


# --- raw bytes, for what no honest writer would write ----------------------------------------------------------------


def string(text: bytes) -> bytes:
    """A string as it lies in the file."""
    return struct.pack("<Q", len(text)) + text


def key_u32(name: bytes, value: int) -> bytes:
    """A metadata key of type uint32."""
    return string(name) + struct.pack("<II", 4, value)


def tensor(name: bytes, shape: Sequence[int], kind: int = 1, offset: int = 0) -> bytes:
    """An entry of the tensor directory."""
    return string(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)


def raw_gguf(
    keys: Sequence[bytes] = (),
    tensors: Sequence[bytes] = (),
    *,
    version: int = 3,
    data: int = 4096,
    tensor_count: int | None = None,
    key_count: int | None = None,
) -> bytes:
    """A file of the given pieces and `data` zero bytes of weights; the counts may lie."""
    counts = struct.pack(
        "<IQQ",
        version,
        len(tensors) if tensor_count is None else tensor_count,
        len(keys) if key_count is None else key_count,
    )
    header = b"GGUF" + counts + b"".join((*keys, *tensors))
    return header + bytes(-len(header) % 32) + bytes(data)
