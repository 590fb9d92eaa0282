"""A model file in this process: its vocabulary, and texts to tokens and back."""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from specmeter.errors import EngineError, EngineProtocolError, EngineStartError
from specmeter.llama_binding import capi
from specmeter.record.base import utf8

if TYPE_CHECKING:
    from specmeter.llama_binding.capi import Library
    from specmeter.llama_binding.sampling import Floats

MAX_TEXT_BYTES = 64 * 1024 * 1024
"""Longer texts are refused before they are tokenized."""
_LOAD_MODES = {"auto": -1, "none": 0, "mmap": 1}


class Model:
    """Weights and vocabulary. A context manager: its memory lies outside Python's.

    Contexts of a model must be closed before it; `close` refuses otherwise, because llama.cpp would crash later.
    """

    def __init__(
        self,
        path: Path,
        *,
        gpu_layers: int | None = None,
        load_mode: Literal["auto", "none", "mmap"] = "auto",
        devices: Sequence[str] = (),
        vocabulary_only: bool = False,
    ) -> None:
        """Load the file. Raises `EngineStartError` when it is missing, damaged, or of an architecture that this
        llama.cpp does not know (its log says which).

        `gpu_layers`: None leaves it to llama.cpp; `devices` by llama.cpp's names, empty for its own choice.
        """
        self._lib = capi.library()
        self.path = path
        self._contexts = 0
        if not path.is_file():
            raise EngineStartError(f"{path}: no such model file", fix="check the path of the model")
        params = self._lib.llama_model_default_params()
        params.load_mode = _LOAD_MODES[load_mode]
        params.vocab_only = vocabulary_only
        if gpu_layers is not None:
            params.n_gpu_layers = gpu_layers
        chosen = _devices(self._lib, devices)
        if chosen is not None:
            params.devices = ctypes.cast(chosen, ctypes.c_void_p)
        self._handle: int | None = self._lib.llama_model_load_from_file(_file_name(path), params)
        if not self._handle:
            raise EngineStartError(
                f"{path}: llama.cpp {self._lib.version} cannot load this model{self._lib.last_words()}",
                fix="check for a damaged file, too little memory, or an unsupported architecture",
            )
        try:
            if self._lib.llama_model_has_encoder(self._handle):
                raise EngineStartError(
                    f"{path}: models with an encoder are not supported", fix="use a decoder-only model"
                )
            self._vocabulary: int = self._lib.llama_model_get_vocab(self._handle)
            self.vocabulary_size: int = self._lib.llama_vocab_n_tokens(self._vocabulary)
            self.is_recurrent: bool = self._lib.llama_model_is_recurrent(self._handle)
            """Carries nothing but a recurrent state."""
            self.is_hybrid: bool = self._lib.llama_model_is_hybrid(self._handle)
            """Carries a recurrent state beside a KV cache."""
            self.training_context: int = self._lib.llama_model_n_ctx_train(self._handle)
            """Tokens of the longest texts that the model was trained on, as its file says."""
            wants_bos = self._lib.llama_vocab_get_add_bos(self._vocabulary)
            self.bos: int | None = self._lib.llama_vocab_bos(self._vocabulary) if wants_bos else None
            """The token that texts begin with; None for models that want none."""
            if self.vocabulary_size < 1:
                raise EngineStartError(f"{path}: the file has no vocabulary", fix="use a complete GGUF file")
        except BaseException:
            self.close()
            raise

    @property
    def handle(self) -> int:
        """llama.cpp's pointer. Raises `EngineError` after `close`."""
        if self._handle is None:
            raise EngineError(f"{self.path}: this model is closed", fix="load it again")
        return self._handle

    def close(self) -> None:
        """Free the weights; safe to call twice. Raises `EngineError` while a context of the model is open."""
        if self._contexts:
            raise EngineError(
                f"{self.path}: {self._contexts} contexts of this model are still open", fix="close them first"
            )
        if self._handle:
            self._lib.llama_model_free(self._handle)
        self._handle = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def retain(self) -> None:
        """A context of this model was opened."""
        self._contexts += 1

    def release(self) -> None:
        """A context of this model is closed."""
        self._contexts -= 1

    # --- vocabulary --------------------------------------------------------------------------------------------------

    @cached_property
    def end_tokens(self) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """Ids of the tokens that end a generation, ascending."""
        _ = self.handle
        is_end = self._lib.llama_vocab_is_eog
        return np.array([it for it in range(self.vocabulary_size) if is_end(self._vocabulary, it)], dtype=np.int64)

    def is_end(self, token: int) -> bool:
        """Whether the token ends a generation."""
        return token in self._end_set

    @cached_property
    def _end_set(self) -> frozenset[int]:
        return frozenset(self.end_tokens.tolist())

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        """Token ids; `add_special` adds what the model wants at the beginning, `parse_special` lets `<|im_start|>` and
        the like stand for their tokens. Raises `EngineProtocolError` for a text that is not valid Unicode or too long.
        """
        _ = self.handle
        raw = utf8(text)
        if len(raw) > MAX_TEXT_BYTES:
            raise EngineProtocolError(f"the text has {len(raw)} bytes, more than {MAX_TEXT_BYTES}", fix="split it")
        room = len(raw) + 16
        for _attempt in range(2):
            ids = (ctypes.c_int32 * room)()
            count = self._lib.llama_tokenize(self._vocabulary, raw, len(raw), ids, room, add_special, parse_special)
            if count >= 0:
                return list(ids[:count])
            room = -count
        raise EngineProtocolError("llama.cpp cannot tokenize this text", fix="use another text")

    def bytes_of(self, token: int, *, special: bool = False) -> bytes:
        """The bytes that a token stands for, which may be part of a character; of control tokens only where `special`.

        Raises `EngineProtocolError` for an id outside of the vocabulary.
        """
        _ = self.handle
        self.check_tokens((token,))
        room = 64
        for _attempt in range(2):
            buffer = ctypes.create_string_buffer(room)
            size = self._lib.llama_token_to_piece(self._vocabulary, token, buffer, room, 0, special)
            if size >= 0:
                return buffer.raw[:size]
            room = -size
        return b""

    def text_of(self, tokens: Iterable[int], *, special: bool = False) -> str:
        """The text of tokens; bytes that are no valid UTF-8 (a character cut in two) become U+FFFD."""
        return b"".join(self.bytes_of(token, special=special) for token in tokens).decode("utf-8", "replace")

    def check_tokens(self, tokens: Sequence[int] | np.ndarray[Any, np.dtype[np.int32]]) -> None:
        """Raise `EngineProtocolError` when an id lies outside of the vocabulary."""
        if len(tokens) and (min(tokens) < 0 or max(tokens) >= self.vocabulary_size):
            wrong = next(it for it in tokens if not 0 <= it < self.vocabulary_size)
            raise EngineProtocolError(
                f"token id {wrong} is not in the vocabulary of {self.vocabulary_size} tokens",
                fix="use token ids of this model",
            )

    @property
    def has_template(self) -> bool:
        """Whether the file has a chat template."""
        return bool(self._lib.llama_model_chat_template(self.handle, None))

    def chat(self, conversation: Sequence[Mapping[str, str]]) -> str:
        """Messages (`role`, `content`) in the model's own chat template, ready for the assistant's answer.

        Raises `EngineProtocolError` when the file has no template, or one that llama.cpp's C interface does not know
        (it recognises common templates and runs none).
        """
        template = self._lib.llama_model_chat_template(self.handle, None)
        if not template:
            raise EngineProtocolError(f"{self.path}: has no chat template", fix="use prompts of format `completion`")
        said = [(it["role"].encode(), it["content"].encode()) for it in conversation]
        messages = (capi.ChatMessage * len(said))(*(capi.ChatMessage(*it) for it in said))
        room = 2 * sum(len(content) for _, content in said) + 1024 * len(said)
        for _attempt in range(2):
            buffer = ctypes.create_string_buffer(room)
            size = self._lib.llama_chat_apply_template(template, messages, len(said), True, buffer, room)
            if size < 0:
                break
            if size <= room:
                return buffer.raw[:size].decode("utf-8", "replace")
            room = size
        raise EngineProtocolError(
            f"{self.path}: llama.cpp's C interface does not recognize this model's chat template",
            fix="use prompts of format `completion`, or the engine `embedded`",
        )


def log_softmax(logits: Floats) -> Floats:
    """Natural logarithms of the probabilities that a row of logits, shape (vocab,), stands for."""
    shifted = logits.astype(np.float64) - float(logits.max())
    return shifted - math.log(float(np.exp(shifted).sum()))


def _file_name(path: Path) -> bytes:
    # llama.cpp takes UTF-8 on Windows and the file system's own bytes elsewhere.
    with contextlib.suppress(UnicodeEncodeError):
        return str(path).encode() if os.name == "nt" else os.fsencode(path)
    raise EngineStartError(f"{path!r}: llama.cpp cannot open a file with this name", fix="rename the file")


def _devices(lib: Library, names: Sequence[str]) -> Any:
    """A list of device handles that ends with NULL; None for llama.cpp's own choice. Raises `EngineStartError`."""
    if not names:
        return None
    handles: list[int | None] = []
    for name in names:
        handle = lib.ggml_backend_dev_by_name(name.encode("utf-8", "replace"))
        if not handle:
            raise EngineStartError(f"no such device: {name!r}", fix="use one that `specmeter doctor` lists")
        handles.append(handle)
    return (ctypes.c_void_p * (len(handles) + 1))(*handles, None)
