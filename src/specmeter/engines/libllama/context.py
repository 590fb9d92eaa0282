"""One sequence of tokens in a model's memory: forwards over the next tokens, cuts, checkpoints."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from specmeter.engines.libllama import capi
from specmeter.errors import EngineError, EngineProtocolError, EngineStartError, ModelError
from specmeter.record import EngineSettings

if TYPE_CHECKING:
    from specmeter.engines.libllama.model import Model
    from specmeter.engines.libllama.routing import RoutingTap

Rows = np.ndarray[Any, np.dtype[np.float32]]
"""Logits, one row per token that asked for them. Shape (rows, vocabulary)."""
Outputs = Literal["all", "last", "none"]
"""Of which tokens of a forward logits are wanted."""

_PARTIAL = 1
"""`LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY`: only what cannot be cut, a recurrent state."""
_SWITCH = {"auto": -1, "off": 0, "on": 1}


class ContextFullError(EngineProtocolError):
    """The next tokens do not fit into the context."""


@dataclass(frozen=True)
class Checkpoint:
    """What `Context.save` keeps: where the sequence was, and the recurrent state there."""

    length: int
    state: bytes


class Context:
    """Memory for one sequence. A context manager; close it before its model.

    The sequence grows by `decode` and shrinks by `cut`; positions follow from its length. Not for several threads.
    """

    def __init__(
        self,
        model: Model,
        settings: EngineSettings,
        *,
        threads: int,
        draft: bool = False,
        rows: int = 64,
        tap: RoutingTap | None = None,
    ) -> None:
        """`settings` gives context, batches, types of the cache (with `draft`, those of the draft) and flash attention.

        `rows` is the most rows of logits that one forward may give back: with a vocabulary of 248k each costs a
        megabyte. `tap` is shown the experts that every forward chooses, which makes forwards slower. Raises
        `EngineStartError` when llama.cpp cannot make such a context.
        """
        self._lib = capi.library()
        self.model = model
        self.settings = settings
        self.threads = threads
        self.rows = rows
        """Most rows of logits of one forward."""
        params = self._lib.llama_context_default_params()
        params.n_ctx = settings.context
        params.n_batch = settings.batch or params.n_batch
        params.n_ubatch = settings.ubatch or params.n_ubatch
        params.n_threads = params.n_threads_batch = threads
        params.n_outputs_max, params.n_outputs_max_per_seq = rows, 0
        params.flash_attn_type = _SWITCH[settings.flash_attention or "auto"]
        kv_types = (
            (settings.draft_kv_type_k, settings.draft_kv_type_v) if draft else (settings.kv_type_k, settings.kv_type_v)
        )
        params.type_k, params.type_v = (_ggml_type(it) if it else 1 for it in kv_types)
        if tap is not None:
            params.cb_eval = tap.callback
        self._tap = tap  # kept alive: llama.cpp holds only the address of the callback
        self._handle: int | None = self._lib.llama_init_from_model(model.handle, params)
        if not self._handle:
            raise EngineStartError(
                f"{model.path}: llama.cpp cannot make a context of {settings.context} tokens{self._lib.last_words()}",
                fix="lower engine.context, or change the types of the KV cache",
            )
        model.retain()
        self._memory: int = self._lib.llama_get_memory(self._handle)
        self.capacity: int = self._lib.llama_n_ctx(self._handle)
        """Tokens that fit; llama.cpp rounds up what it was asked for."""
        self.batch_size: int = self._lib.llama_n_batch(self._handle)
        """Most tokens of one forward."""
        self.ubatch_size: int = self._lib.llama_n_ubatch(self._handle)
        """Most tokens that are computed at once; longer forwards are done in parts."""
        self._batch: Any = self._lib.llama_batch_init(self.batch_size, 0, 1)
        size = self.batch_size
        self._tokens = np.ctypeslib.as_array(self._batch.token, (size,))
        self._positions = np.ctypeslib.as_array(self._batch.pos, (size,))
        self._wanted = np.ctypeslib.as_array(self._batch.logits, (size,))
        np.ctypeslib.as_array(self._batch.n_seq_id, (size,))[:] = 1
        for place in range(size):
            self._batch.seq_id[place][0] = 0
        self.length = 0
        """Tokens in the sequence."""
        self.forwards = 0
        """Successful calls of `llama_decode` so far."""
        self._views: dict[tuple[int, int], Rows] = {}

    @property
    def handle(self) -> int:
        """llama.cpp's pointer. Raises `EngineError` after `close`."""
        if self._handle is None:
            raise EngineError(f"{self.model.path}: this context was closed", fix="make a new one")
        return self._handle

    def close(self) -> None:
        """Free the memory; safe to call twice. Logits that were handed out are gone."""
        if self._handle is None:
            return
        self._views.clear()
        self._lib.llama_batch_free(self._batch)
        self._lib.llama_free(self._handle)
        self._handle = None
        self.model.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def decode(self, tokens: Sequence[int], outputs: Outputs = "last") -> Rows:
        """One forward over `tokens`, which become the end of the sequence; returns when the logits can be read.

        The rows are a view of llama.cpp's own memory: they may be written to, and the next forward overwrites them.
        Raises `EngineProtocolError` for no tokens, more than a batch or ids that the vocabulary does not have,
        `ContextFullError` when they do not fit; the sequence is then what it was.
        """
        handle = self.handle
        count = len(tokens)
        if not 0 < count <= self.batch_size:
            raise EngineProtocolError(
                f"a forward over {count} tokens: it takes 1 to {self.batch_size}",
                fix="set engine.batch to gamma + 1 or more, and prefill longer texts with `extend`",
            )
        if outputs == "all" and count > self.rows:
            raise EngineProtocolError(
                f"logits of {count} tokens at once: this context was made for {self.rows}",
                fix="make the context with more `rows`",
            )
        if self.length + count > self.capacity:
            raise ContextFullError(
                f"{self.length} tokens and {count} more do not fit into a context of {self.capacity}",
                fix="raise engine.context, or generate less",
            )
        self.model.check_tokens(tokens)
        rows = self._forward(handle, tokens, outputs)
        self.length += count
        return rows

    def extend(self, tokens: Sequence[int]) -> Rows:
        """Forwards over any number of tokens, batch by batch; the logits of the last one, shape (1, vocabulary)."""
        if not tokens:
            raise EngineProtocolError("no tokens to process", fix="give at least one")
        *firsts, last = range(0, len(tokens), self.batch_size)
        for start in firsts:
            self.decode(tokens[start : start + self.batch_size], "none")
        return self.decode(tokens[last:], "last")

    def cut(self, length: int) -> bool:
        """Forget all but the first `length` tokens. False, with nothing forgotten, where the model's memory cannot do
        that because its state is recurrent. Raises `EngineProtocolError` for a length that the sequence does not have.
        """
        handle = self.handle
        if not 0 <= length <= self.length:
            raise EngineProtocolError(
                f"cannot cut a sequence of {self.length} tokens to {length}", fix="cut to a length that it has"
            )
        del handle
        if length == self.length:
            return True
        if length == 0:
            self._lib.llama_memory_clear(self._memory, False)
        elif not self._lib.llama_memory_seq_rm(self._memory, 0, length, -1):
            return False
        self.length = length
        return True

    @property
    def can_cut(self) -> bool:
        """Whether rejected tokens can simply be forgotten."""
        return not (self.model.is_recurrent or self.model.is_hybrid)

    def save(self) -> Checkpoint:
        """The recurrent state as it is now; attention layers need no copy, they can be cut."""
        size = self._lib.llama_state_seq_get_size_ext(self.handle, 0, _PARTIAL)
        buffer = (ctypes.c_uint8 * size)()
        written = self._lib.llama_state_seq_get_data_ext(self.handle, buffer, size, 0, _PARTIAL)
        if size and not written:
            raise EngineError(f"{self.model.path}: llama.cpp cannot save its state", fix="decode without a draft")
        return Checkpoint(self.length, bytes(memoryview(buffer)[:written]))

    def restore(self, checkpoint: Checkpoint) -> None:
        """Go back to `checkpoint`, which must lie in this sequence's past.

        Raises `EngineError` when it does not, or when llama.cpp refuses.
        """
        handle = self.handle
        if checkpoint.length > self.length:
            raise EngineError(
                f"a checkpoint of {checkpoint.length} tokens does not lie in the past of {self.length}",
                fix="restore checkpoints of the same sequence",
            )
        state = (ctypes.c_uint8 * len(checkpoint.state)).from_buffer_copy(checkpoint.state)
        if not self._lib.llama_state_seq_set_data_ext(handle, state, len(checkpoint.state), 0, _PARTIAL):
            raise EngineError(f"{self.model.path}: llama.cpp cannot restore its state", fix="decode without a draft")
        # What attention layers hold beyond it can be cut now that the recurrent state does not.
        self._lib.llama_memory_seq_rm(self._memory, 0, checkpoint.length, -1)
        self.length = checkpoint.length

    def _forward(self, handle: int, tokens: Sequence[int], outputs: Outputs) -> Rows:
        count, batch = len(tokens), self._batch
        if count == 1:
            self._tokens[0], self._positions[0], self._wanted[0] = tokens[0], self.length, outputs != "none"
        else:
            self._tokens[:count] = tokens
            self._positions[:count] = np.arange(self.length, self.length + count)
            self._wanted[:count] = outputs == "all"
            self._wanted[count - 1] = outputs != "none"
        batch.n_tokens = count
        status = self._lib.llama_decode(handle, batch)
        if status != 0:
            self._refuse(status, count)
        self.forwards += 1
        if outputs == "none":
            self._lib.llama_synchronize(handle)
            return np.empty((0, self.model.vocabulary_size), dtype=np.float32)
        # Waits until the forward is done, and puts its rows into the order of the tokens.
        return self._view(self._lib.llama_get_logits(handle), count if outputs == "all" else 1)

    def _refuse(self, status: int, count: int) -> None:
        if status == 1:
            raise ContextFullError(
                f"llama.cpp found no place for {count} tokens after {self.length} in a context of {self.capacity}",
                fix="raise engine.context",
            )
        raise EngineError(
            f"{self.model.path}: a forward over {count} tokens after {self.length} failed (llama_decode: {status})"
            f"{self._lib.last_words()}",
            fix="too little memory is the usual reason",
        )

    def _view(self, address: int, rows: int) -> Rows:
        key = (address, rows)
        if key not in self._views:
            if len(self._views) > 256:
                self._views.clear()
            shape = (rows, self.model.vocabulary_size)
            pointer = ctypes.cast(address, ctypes.POINTER(ctypes.c_float))
            self._views[key] = np.ctypeslib.as_array(pointer, shape)
        return self._views[key]


def _ggml_type(name: str) -> int:
    from gguf import GGMLQuantizationType

    try:
        return int(GGMLQuantizationType[name.upper()])
    except KeyError:
        raise ModelError(f"{name!r} is not a KV cache type", fix="use f16, q8_0, ...") from None
