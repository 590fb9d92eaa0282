"""Sequences of tokens in a model's memory: forwards over the next tokens, cuts, checkpoints.

A context has one sequence, or several that share forwards. Several lie in one memory (`unified`), or in a stream each;
with streams llama.cpp computes only those at once that have consecutive numbers and equally many tokens in a forward,
and the others after them.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, TypeVar

import numpy as np

from specmeter.errors import EngineError, EngineProtocolError, EngineStartError, ModelError
from specmeter.llama_binding import capi
from specmeter.record import EngineSettings

if TYPE_CHECKING:
    from specmeter.llama_binding.model import Model

Rows = np.ndarray[Any, np.dtype[np.float32]]
"""Logits, one row per token that asked for them. Shape (rows, vocabulary)."""
Outputs = Literal["all", "last", "none"]
"""Of which tokens of a forward logits are wanted."""
ExpertIds = np.ndarray[Any, np.dtype[np.uint16]]
"""Experts of one layer, likeliest first. Shape (tokens, experts used)."""
T = TypeVar("T")

_PARTIAL = 1
"""`LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY`: only what cannot be cut, a recurrent state."""
_MAX_LAYERS = 10_000
_SWITCH = {"auto": -1, "off": 0, "on": 1}


class ContextFullError(EngineProtocolError):
    """The next tokens do not fit into the context."""


@dataclass(frozen=True)
class Checkpoint:
    """What `Context.save` keeps: where the sequence was, and the recurrent state there."""

    length: int
    state: bytes


class Forward(NamedTuple):
    """A forward that a text needs: over which tokens of which sequence, and which logits."""

    sequence: TokenSequence
    tokens: Sequence[int]
    outputs: Outputs = "last"


class TimedLogits(NamedTuple):
    """The logits of a forward, and when it ran, in seconds of `time.perf_counter`."""

    rows: Rows
    began: float
    ended: float


Work = Generator[Forward, TimedLogits, T]
"""What asks for one forward after the other and comes to a result. Forwards of several texts may be joined into one;
what a forward gives back is to be used before the next one is asked for."""


def alone(work: Work[T]) -> T:
    """Carry out the forwards of one text as they come."""
    try:
        forward = next(work)
        while True:
            began = time.perf_counter()
            rows = forward.sequence.decode(forward.tokens, forward.outputs)
            forward = work.send(TimedLogits(rows, began, time.perf_counter()))
    except StopIteration as done:
        return done.value


def extending(sequence: TokenSequence, tokens: Sequence[int]) -> Work[Rows]:
    """Forwards over any number of tokens, batch by batch; the logits of the last one, shape (1, vocabulary)."""
    if not tokens:
        raise EngineProtocolError("no tokens to process", fix="give at least one token")
    size = sequence.context.batch_size
    *firsts, last = range(0, len(tokens), size)
    for start in firsts:
        yield Forward(sequence, tokens[start : start + size], "none")
    return (yield Forward(sequence, tokens[last:])).rows


class TokenSequence:
    """One text in a context's memory: it grows by `decode` and shrinks by `cut`; positions follow from its length."""

    def __init__(self, context: Context, number: int) -> None:
        self._context = context
        self.number = number
        """llama.cpp's name for it, from 0."""
        self.length = 0
        """Tokens in the sequence."""
        self.forwards = 0
        """Forwards so far that it had a part in."""

    @property
    def context(self) -> Context:
        """Where it lies."""
        return self._context

    @property
    def model(self) -> Model:
        """Whose memory it is."""
        return self._context.model

    @property
    def room(self) -> int:
        """Tokens that fit: its share of the context."""
        return self._context.capacity // len(self._context.sequences)

    @property
    def most_rows(self) -> int:
        """Tokens of one forward of its own that may give logits: its share of the context's."""
        shares = len(self._context.sequences)
        return min(self._context.rows // shares, self._context.batch_size)

    def decode(self, tokens: Sequence[int], outputs: Outputs = "last") -> Rows:
        """One forward over `tokens`, which become the end of the sequence; returns when the logits can be read.

        The rows are a view of llama.cpp's own memory: they may be written to, and the next forward overwrites them.
        Raises `EngineProtocolError` for no tokens, more than a batch or ids that the vocabulary does not have,
        `ContextFullError` when they do not fit; the sequence is then what it was.
        """
        return self._context.decode_together((Forward(self, tokens, outputs),))[0]

    def extend(self, tokens: Sequence[int]) -> Rows:
        """Forwards over any number of tokens, batch by batch; the logits of the last one, shape (1, vocabulary)."""
        return alone(extending(self, tokens))

    def cut(self, length: int) -> bool:
        """Forget all but the first `length` tokens. False, with nothing forgotten, where the model's memory cannot do
        that because its state is recurrent. Raises `EngineProtocolError` for a length that the sequence does not have.
        """
        handle = self._context.handle
        if not 0 <= length <= self.length:
            raise EngineProtocolError(
                f"cannot cut a sequence of {self.length} tokens to {length}", fix="cut to its length or less"
            )
        del handle
        if length == self.length:
            return True
        if length == 0 and len(self._context.sequences) == 1:
            self._context.lib.llama_memory_clear(self._context.memory, False)
        elif not self._context.lib.llama_memory_seq_rm(self._context.memory, self.number, length, -1):
            return False
        self.length = length
        return True

    @property
    def can_cut(self) -> bool:
        """Whether rejected tokens can simply be forgotten."""
        return not (self.model.is_recurrent or self.model.is_hybrid)

    def save(self) -> Checkpoint:
        """The recurrent state as it is now; attention layers need no copy, they can be cut."""
        lib, handle = self._context.lib, self._context.handle
        size = lib.llama_state_seq_get_size_ext(handle, self.number, _PARTIAL)
        buffer = (ctypes.c_uint8 * size)()
        written = lib.llama_state_seq_get_data_ext(handle, buffer, size, self.number, _PARTIAL)
        if size and not written:
            raise EngineError(
                f"{self.model.path}: llama.cpp cannot save its state", fix="use this model without speculation"
            )
        return Checkpoint(self.length, bytes(memoryview(buffer)[:written]))

    def restore(self, checkpoint: Checkpoint) -> None:
        """Go back to `checkpoint`, which must lie in this sequence's past.

        Raises `EngineError` when it does not, or when llama.cpp refuses.
        """
        lib, handle = self._context.lib, self._context.handle
        if checkpoint.length > self.length:
            raise EngineError(
                f"a checkpoint of {checkpoint.length} tokens is not a prefix of the current {self.length} tokens",
                fix="restore checkpoints of the same sequence",
            )
        state = (ctypes.c_uint8 * len(checkpoint.state)).from_buffer_copy(checkpoint.state)
        if not lib.llama_state_seq_set_data_ext(handle, state, len(checkpoint.state), self.number, _PARTIAL):
            raise EngineError(
                f"{self.model.path}: llama.cpp cannot restore its state", fix="use this model without speculation"
            )
        # What attention layers hold beyond it can be cut now that the recurrent state does not.
        lib.llama_memory_seq_rm(self._context.memory, self.number, checkpoint.length, -1)
        self.length = checkpoint.length


class Context(TokenSequence):
    """Memory for one sequence, which it then is itself, or for several, of which it is the first.

    A context manager; close it before its model. Not for several threads.
    """

    def __init__(
        self,
        model: Model,
        settings: EngineSettings,
        *,
        threads: int,
        draft: bool = False,
        rows: int = 64,
        tap: LayerTap | None = None,
        sequences: int = 1,
        unified: bool = True,
    ) -> None:
        """`settings` gives context, batches, types of the cache (with `draft`, those of the draft) and flash attention.

        `rows` is the most rows of logits that one forward may give back: with a vocabulary of 248k each costs a
        megabyte. `tap` is shown a tensor of every layer, which makes forwards slower. `sequences` share
        the context, `unified` in one memory or in a stream each. Raises `EngineStartError` when llama.cpp cannot make
        such a context.
        """
        super().__init__(self, 0)
        self.lib = capi.library()
        self._model = model
        self.settings = settings
        self.threads = threads
        self.rows = rows
        """Most rows of logits of one forward."""
        params = self.lib.llama_context_default_params()
        params.n_ctx = settings.full_context
        params.n_seq_max, params.kv_unified = sequences, unified and sequences > 1
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
        self._handle: int | None = self.lib.llama_init_from_model(model.handle, params)
        if not self._handle:
            raise EngineStartError(
                f"{model.path}: llama.cpp cannot make a context of {settings.full_context} tokens"
                f"{self.lib.last_words()}",
                fix="lower engine.context, or change the types of the KV cache",
            )
        model.retain()
        self.unified: bool = params.kv_unified
        """Whether several sequences lie in one memory."""
        self.memory: int = self.lib.llama_get_memory(self._handle)
        self.capacity: int = self.lib.llama_n_ctx(self._handle)
        """Tokens that fit, of all sequences together; llama.cpp rounds up what it was asked for."""
        self.batch_size: int = self.lib.llama_n_batch(self._handle)
        """Most tokens of one forward."""
        self.ubatch_size: int = self.lib.llama_n_ubatch(self._handle)
        """Most tokens that are computed at once; longer forwards are done in parts."""
        self._batch: Any = self.lib.llama_batch_init(self.batch_size, 0, 1)
        size = self.batch_size
        self._tokens = np.ctypeslib.as_array(self._batch.token, (size,))
        self._positions = np.ctypeslib.as_array(self._batch.pos, (size,))
        self._wanted = np.ctypeslib.as_array(self._batch.logits, (size,))
        np.ctypeslib.as_array(self._batch.n_seq_id, (size,))[:] = 1
        for place in range(size):
            self._batch.seq_id[place][0] = 0
        self.calls = 0
        """Forwards so far: one that several sequences share counts once."""
        self._owners = [0] * size
        """Whose tokens the batch last had, place by place."""
        self.sequences: tuple[TokenSequence, ...] = (self, *(TokenSequence(self, it) for it in range(1, sequences)))
        self._views: dict[tuple[int, int], Rows] = {}

    @property
    def model(self) -> Model:
        """Whose memory it is."""
        return self._model

    @property
    def handle(self) -> int:
        """llama.cpp's pointer. Raises `EngineError` after `close`."""
        if self._handle is None:
            raise EngineError(f"{self.model.path}: this context is closed", fix="make a new context")
        return self._handle

    def close(self) -> None:
        """Free the memory; safe to call twice. Logits that were handed out are gone."""
        if self._handle is None:
            return
        self._views.clear()
        self.lib.llama_batch_free(self._batch)
        self.lib.llama_free(self._handle)
        self._handle = None
        self.model.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def decode_together(self, forwards: Sequence[Forward]) -> list[Rows]:
        """One forward over the next tokens of several sequences, each at most once; the logits of each.

        As `TokenSequence.decode`, which see; where it raises, every sequence is what it was.
        """
        handle = self.handle
        total = 0
        for sequence, tokens, outputs in forwards:
            count = len(tokens)
            total += count
            if count == 0 or total > self.batch_size:
                raise EngineProtocolError(
                    f"a forward pass over {total} tokens: 1 to {self.batch_size} are allowed",
                    fix="set engine.batch to gamma + 1 or more, and use `extend` for longer prompts",
                )
            if outputs == "all" and total > self.rows:
                raise EngineProtocolError(
                    f"logits of {total} tokens requested, but this context was made for {self.rows}",
                    fix="create the context with more `rows`",
                )
            if sequence.length + count > sequence.room:
                raise ContextFullError(
                    f"{sequence.length} tokens plus {count} do not fit in a context of {sequence.room}",
                    fix="raise engine.context, or generate fewer tokens",
                )
            self.model.check_tokens(tokens)
        return self._forward(handle, forwards, total)

    def _forward(self, handle: int, forwards: Sequence[Forward], total: int) -> list[Rows]:
        start = wanted = 0
        for sequence, tokens, outputs in forwards:
            count, length = len(tokens), sequence.length
            if count == 1:
                self._tokens[start], self._positions[start] = tokens[0], length
                self._wanted[start] = outputs != "none"
            else:
                end = start + count
                self._tokens[start:end] = tokens
                self._positions[start:end] = np.arange(length, length + count)
                self._wanted[start:end] = outputs == "all"
                self._wanted[end - 1] = outputs != "none"
            if len(self.sequences) > 1:
                self._own(start, count, sequence.number)
            start += count
            wanted += 0 if outputs == "none" else count if outputs == "all" else 1
        batch = self._batch
        batch.n_tokens = total
        status = self.lib.llama_decode(handle, batch)
        if status != 0:
            self._refuse(status, forwards, total)
        self.calls += 1
        for sequence, tokens, _ in forwards:
            sequence.length += len(tokens)
            sequence.forwards += 1
        if not wanted:
            self.lib.llama_synchronize(handle)
            return [np.empty((0, self.model.vocabulary_size), dtype=np.float32)] * len(forwards)
        # Waits until the forward is done, and puts its rows into the order of the tokens.
        rows = self._view(self.lib.llama_get_logits(handle), wanted)
        if len(forwards) == 1:
            return [rows]
        parts: list[Rows] = []
        start = 0
        for _, tokens, outputs in forwards:
            end = start + (0 if outputs == "none" else len(tokens) if outputs == "all" else 1)
            parts.append(rows[start:end])
            start = end
        return parts

    def _own(self, start: int, count: int, number: int) -> None:
        """The tokens at these places of the batch are of that sequence."""
        owners, seq_id = self._owners, self._batch.seq_id
        for place in range(start, start + count):
            if owners[place] != number:
                owners[place] = seq_id[place][0] = number

    def _refuse(self, status: int, forwards: Sequence[Forward], total: int) -> None:
        lengths = " + ".join(str(forward.sequence.length) for forward in forwards)
        if status == 1:
            raise ContextFullError(
                f"llama.cpp has no space for {total} tokens after {lengths} in a context of {self.capacity}",
                fix="raise engine.context",
            )
        raise EngineError(
            f"{self.model.path}: a forward pass over {total} tokens after {lengths} failed (llama_decode: {status})"
            f"{self.lib.last_words()}",
            fix="free some memory (the usual cause), or use a smaller context",
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


class LayerTap:
    """Collects one tensor of every layer, of all forwards of the context that it is given to.

    llama.cpp shows every tensor to a callback, by the name `NAME-LAYER`. Asking for one makes llama.cpp compute its
    graph in pieces, so times of such forwards are not comparable with others.
    """

    def __init__(self, name: str, read: type[np.generic], kept: type[np.generic]) -> None:
        """`read` is the type of the tensor's numbers, `kept` that of the arrays that `take` gives."""
        self._lib = capi.library()
        self._prefix, self._read, self._kept = f"{name}-", read, kept
        self._found: dict[int, list[np.ndarray[Any, Any]]] = {}
        self.callback = capi.EvalCallback(self._on_tensor)
        """For llama.cpp, which holds only its address: the tap must live as long as the context."""

    def take(self) -> dict[int, np.ndarray[Any, Any]]:
        """Layer -> shape (tokens, length of a row) of all tokens since the last call, in their order.

        llama.cpp computes the last layer only for tokens whose logits are wanted; ask for all of them.
        """
        found = {layer: np.concatenate(parts) for layer, parts in sorted(self._found.items())}
        self._found = {}
        return found

    def _on_tensor(self, tensor: int, asking: bool, _: object) -> bool:
        layer = self._layer((self._lib.ggml_get_name(tensor) or b"").decode("utf-8", "replace"))
        if layer is None:
            return not asking
        if not asking:
            head = capi.TensorHead.from_address(tensor)
            rows = np.empty((head.ne[1], head.ne[0]), dtype=self._read)
            for row in range(rows.shape[0]):  # rows of a view lie apart
                self._lib.ggml_backend_tensor_get(tensor, rows[row].ctypes.data, row * head.nb[1], rows[row].nbytes)
            self._found.setdefault(layer, []).append(rows.astype(self._kept))
        return True

    def _layer(self, name: str) -> int | None:
        number = name.removeprefix(self._prefix)
        return int(number) if number != name and number.isdecimal() and int(number) < _MAX_LAYERS else None


class RoutingTap(LayerTap):
    """The ids of the experts that every forward chooses, likeliest first; nothing for dense models."""

    def __init__(self) -> None:
        # A view of all experts sorted by score.
        super().__init__("ffn_moe_topk", np.int32, np.uint16)


def _ggml_type(name: str) -> int:
    from gguf import GGMLQuantizationType

    try:
        return int(GGMLQuantizationType[name.upper()])
    except KeyError:
        raise ModelError(f"{name!r} is not a KV cache type", fix="use a type such as f16 or q8_0") from None
