"""The embedded llama.cpp, asked directly for token ids and logits, without a server in between.

The wheel's shared object exports llama.cpp's C interface. Only the fields that are set here are spelled out; the rest
of each parameter structure is passed on unread, so that a newer llama.cpp with a longer structure still works.
"""

from __future__ import annotations

import ctypes
import importlib.util
from functools import cache
from pathlib import Path

import numpy as np

_EvalCallback = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p, ctypes.c_bool, ctypes.c_void_p)
_LogCallback = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
_silent = _LogCallback(lambda *_: None)
_F16 = 1
"""ggml's number for the type of the KV cache by default."""


class _ModelParams(ctypes.Structure):
    _fields_ = (("rest", ctypes.c_ubyte * 1024),)


class _ContextParams(ctypes.Structure):
    _fields_ = (
        ("n_ctx", ctypes.c_uint32),
        ("n_batch", ctypes.c_uint32),
        ("n_ubatch", ctypes.c_uint32),
        ("numbers", ctypes.c_ubyte * 76),
        ("cb_eval", _EvalCallback),
        ("cb_eval_user_data", ctypes.c_void_p),
        ("type_k", ctypes.c_int32),
        ("type_v", ctypes.c_int32),
        ("rest", ctypes.c_ubyte * 912),
    )


class _TensorHead(ctypes.Structure):
    """The beginning of a `ggml_tensor`."""

    _fields_ = (
        ("type", ctypes.c_int32),
        ("buffer", ctypes.c_void_p),
        ("ne", ctypes.c_int64 * 4),
        ("nb", ctypes.c_size_t * 4),
    )


class _Batch(ctypes.Structure):
    _fields_ = (
        ("n_tokens", ctypes.c_int32),
        ("token", ctypes.POINTER(ctypes.c_int32)),
        ("embd", ctypes.POINTER(ctypes.c_float)),
        ("pos", ctypes.POINTER(ctypes.c_int32)),
        ("n_seq_id", ctypes.POINTER(ctypes.c_int32)),
        ("seq_id", ctypes.POINTER(ctypes.POINTER(ctypes.c_int32))),
        ("logits", ctypes.POINTER(ctypes.c_int8)),
    )


@cache
def _library() -> ctypes.CDLL:
    spec = importlib.util.find_spec("xllamacpp")
    if spec is None or not spec.submodule_search_locations:
        raise RuntimeError("xllamacpp is not installed; it carries the embedded llama.cpp")
    folder = Path(spec.submodule_search_locations[0])
    found = [path for path in folder.iterdir() if path.name.startswith("xllamacpp.") and path.suffix in (".so", ".pyd")]
    library = ctypes.CDLL(str(found[0]))
    pointer, text, number = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int32
    signatures = {
        "llama_log_set": (None, [_LogCallback, pointer]),
        "llama_model_default_params": (_ModelParams, []),
        "llama_context_default_params": (_ContextParams, []),
        "llama_model_load_from_file": (pointer, [text, _ModelParams]),
        "llama_init_from_model": (pointer, [pointer, _ContextParams]),
        "llama_set_n_threads": (None, [pointer, number, number]),
        "llama_model_get_vocab": (pointer, [pointer]),
        "llama_vocab_n_tokens": (number, [pointer]),
        "llama_tokenize": (
            number,
            [pointer, text, number, ctypes.POINTER(number), number, ctypes.c_bool, ctypes.c_bool],
        ),
        "llama_batch_init": (_Batch, [number, number, number]),
        "llama_batch_free": (None, [_Batch]),
        "llama_get_memory": (pointer, [pointer]),
        "llama_memory_clear": (None, [pointer, ctypes.c_bool]),
        "llama_decode": (number, [pointer, _Batch]),
        "llama_get_logits": (ctypes.POINTER(ctypes.c_float), [pointer]),
        "ggml_get_name": (text, [pointer]),
        "ggml_backend_tensor_get": (None, [pointer, pointer, ctypes.c_size_t, ctypes.c_size_t]),
        "llama_free": (None, [pointer]),
        "llama_model_free": (None, [pointer]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    library.llama_log_set(_silent, None)
    library.llama_backend_init()
    return library


class Embedded:
    """One model in this process; a context manager, because its memory lies outside Python's."""

    def __init__(self, path: Path, window: int = 512, threads: int = 1, *, routing: bool = False) -> None:
        """`routing` keeps the expert ids of each `logits` call in `experts`; it makes decoding slower."""
        self._lib = _library()
        self._model = self._lib.llama_model_load_from_file(str(path).encode(), self._lib.llama_model_default_params())
        if not self._model:
            raise RuntimeError(f"llama.cpp cannot load {path}")
        parameters = self._lib.llama_context_default_params()
        known = (parameters.n_ctx, parameters.n_ubatch, bool(parameters.cb_eval), parameters.type_k, parameters.type_v)
        if known != (512, 512, False, _F16, _F16):
            raise RuntimeError("this llama.cpp orders its context parameters differently; adapt _ContextParams")
        self.experts: dict[str, np.ndarray] = {}
        """Tensor name (`ffn_moe_topk-LAYER`) -> expert ids, tokens x experts per token."""
        if routing:
            self._callback = _EvalCallback(self._on_tensor)  # kept: llama.cpp holds only the address
            parameters.cb_eval = self._callback
        parameters.n_ctx = parameters.n_batch = parameters.n_ubatch = self.window = window
        self._context = self._lib.llama_init_from_model(self._model, parameters)
        if not self._context:
            raise RuntimeError(f"llama.cpp cannot make a context of {window} tokens for {path}")
        self._lib.llama_set_n_threads(self._context, threads, threads)
        self._vocabulary = self._lib.llama_model_get_vocab(self._model)
        self.vocabulary_size: int = self._lib.llama_vocab_n_tokens(self._vocabulary)

    def __enter__(self) -> Embedded:
        return self

    def __exit__(self, *problem: object) -> None:
        self._lib.llama_free(self._context)
        self._lib.llama_model_free(self._model)

    def _on_tensor(self, tensor: int, asking: bool, _: object) -> bool:
        name = self._lib.ggml_get_name(tensor).decode()
        if not name.startswith("ffn_moe_topk-"):
            return not asking
        if not asking:
            head = _TensorHead.from_address(tensor)
            ids = np.empty((head.ne[1], head.ne[0]), dtype=np.int32)
            for row in range(ids.shape[0]):  # a view of all experts sorted: its rows lie apart
                self._lib.ggml_backend_tensor_get(tensor, ids[row].ctypes.data, row * head.nb[1], ids[row].nbytes)
            self.experts[name] = ids
        return True

    def tokenize(self, text: str, special: bool = False) -> list[int]:
        """Token ids of a text; `special` lets `<|im_start|>` and the like stand for their tokens."""
        raw = text.encode()
        ids = (ctypes.c_int32 * (len(raw) + 2))()
        count = self._lib.llama_tokenize(self._vocabulary, raw, len(raw), ids, len(ids), False, special)
        return list(ids[:count])

    def logits(self, tokens: list[int]) -> np.ndarray:
        """Logits after every token of one sequence, decoded from an empty memory in one batch."""
        self._lib.llama_memory_clear(self._lib.llama_get_memory(self._context), True)
        batch = self._lib.llama_batch_init(len(tokens), 0, 1)
        try:
            batch.n_tokens = len(tokens)
            for place, token in enumerate(tokens):
                batch.token[place], batch.pos[place] = token, place
                batch.n_seq_id[place], batch.logits[place] = 1, 1
                batch.seq_id[place][0] = 0
            status = self._lib.llama_decode(self._context, batch)
            if status != 0:
                raise RuntimeError(f"llama_decode answered {status}")
            found = self._lib.llama_get_logits(self._context)
            return np.ctypeslib.as_array(found, (len(tokens), self.vocabulary_size)).copy()
        finally:
            self._lib.llama_batch_free(batch)
