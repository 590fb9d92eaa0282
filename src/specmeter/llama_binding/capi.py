"""llama.cpp's C interface through ctypes: only the calls that are needed, for one version of its structures.

A structure that is passed by value must be laid out exactly as the library was compiled. So the layouts below belong
to one version, `VERSION`; when the library is loaded they are proven by what llama.cpp itself writes into them (its
default values, at the place of every field that has one), and a library of another version or layout is refused.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import sys
from collections import deque
from collections.abc import Callable, Iterator
from ctypes import POINTER, c_bool, c_char_p, c_float, c_int8, c_int32, c_int64, c_size_t, c_uint8, c_uint32, c_void_p
from functools import cache
from pathlib import Path
from typing import Any

from specmeter.errors import EngineStartError
from specmeter.extensions import REINSTALL

VERSION = "0.6.0"
"""The llama.cpp whose structures these are (include/llama.h, build of October 2026)."""
SETTING = "SPECMETER_LIBLLAMA"
"""Environment variable: path of a separately installed libllama of the same version."""

_FIX = f"{REINSTALL}, unset {SETTING}, or use the engine `embedded`"

_WARNING, _ERROR = 3, 4
_KEPT_WARNINGS = 8
_LONGEST_WARNING = 300

EvalCallback = ctypes.CFUNCTYPE(c_bool, c_void_p, c_bool, c_void_p)
"""(tensor, whether llama.cpp asks if it is wanted, user data) -> wanted, or continue."""
LogCallback = ctypes.CFUNCTYPE(None, ctypes.c_int, c_char_p, c_void_p)
"""(level, text, user data)."""


class ModelParams(ctypes.Structure):
    """`llama_model_params`."""

    _fields_ = (
        ("devices", c_void_p),
        ("tensor_buft_overrides", c_void_p),
        ("n_gpu_layers", c_int32),
        ("split_mode", c_int32),
        ("load_mode", c_int32),
        ("lazy_mode", c_int32),
        ("main_gpu", c_int32),
        ("tensor_split", c_void_p),
        ("progress_callback", c_void_p),
        ("progress_callback_user_data", c_void_p),
        ("kv_overrides", c_void_p),
        ("vocab_only", c_bool),
        ("check_tensors", c_bool),
        ("use_extra_bufts", c_bool),
        ("no_host", c_bool),
        ("no_alloc", c_bool),
        ("load_mtp", c_bool),
    )


class ContextParams(ctypes.Structure):
    """`llama_context_params`."""

    _fields_ = (
        ("n_ctx", c_uint32),
        ("n_batch", c_uint32),
        ("n_ubatch", c_uint32),
        ("n_seq_max", c_uint32),
        ("n_rs_seq", c_uint32),
        ("n_outputs_max", c_uint32),
        ("n_outputs_max_per_seq", c_uint32),
        ("n_threads", c_int32),
        ("n_threads_batch", c_int32),
        ("ctx_type", c_int32),
        ("rope_scaling_type", c_int32),
        ("pooling_type", c_int32),
        ("attention_type", c_int32),
        ("flash_attn_type", c_int32),
        ("rope_freq_base", c_float),
        ("rope_freq_scale", c_float),
        ("yarn_ext_factor", c_float),
        ("yarn_attn_factor", c_float),
        ("yarn_beta_fast", c_float),
        ("yarn_beta_slow", c_float),
        ("yarn_orig_ctx", c_uint32),
        ("defrag_thold", c_float),
        ("cb_eval", EvalCallback),
        ("cb_eval_user_data", c_void_p),
        ("type_k", c_int32),
        ("type_v", c_int32),
        ("moe_cache_size", c_size_t),
        ("abort_callback", c_void_p),
        ("abort_callback_data", c_void_p),
        ("embeddings", c_bool),
        ("offload_kqv", c_bool),
        ("no_perf", c_bool),
        ("op_offload", c_bool),
        ("swa_full", c_bool),
        ("kv_unified", c_bool),
        ("samplers", c_void_p),
        ("n_samplers", c_size_t),
        ("ctx_other", c_void_p),
    )


class Batch(ctypes.Structure):
    """`llama_batch`."""

    _fields_ = (
        ("n_tokens", c_int32),
        ("token", POINTER(c_int32)),
        ("embd", POINTER(c_float)),
        ("pos", POINTER(c_int32)),
        ("n_seq_id", POINTER(c_int32)),
        ("seq_id", POINTER(POINTER(c_int32))),
        ("logits", POINTER(c_int8)),
    )


class ChatMessage(ctypes.Structure):
    """`llama_chat_message`."""

    _fields_ = (("role", c_char_p), ("content", c_char_p))


class TensorHead(ctypes.Structure):
    """The beginning of a `ggml_tensor`."""

    _fields_ = (
        ("type", c_int32),
        ("buffer", c_void_p),
        ("ne", c_int64 * 4),
        ("nb", c_size_t * 4),
    )


MODEL_DEFAULTS: dict[str, int | bool | None] = {
    "devices": None,
    "tensor_buft_overrides": None,
    "n_gpu_layers": -1,
    "split_mode": 1,
    "load_mode": -1,
    "lazy_mode": 1,
    "main_gpu": 0,
    "tensor_split": None,
    "progress_callback": None,
    "kv_overrides": None,
    "vocab_only": False,
    "check_tensors": False,
    "use_extra_bufts": True,
    "no_host": False,
    "no_alloc": False,
    "load_mtp": False,
}
"""What `llama_model_default_params` writes."""
CONTEXT_DEFAULTS: dict[str, int | float | bool | None] = {
    "n_ctx": 512,
    "n_batch": 2048,
    "n_ubatch": 512,
    "n_seq_max": 1,
    "n_rs_seq": 0,
    "n_outputs_max": 0,
    "n_outputs_max_per_seq": 1,
    "n_threads": 4,
    "n_threads_batch": 4,
    "ctx_type": 0,
    "rope_scaling_type": -1,
    "pooling_type": -1,
    "attention_type": -1,
    "flash_attn_type": -1,
    "rope_freq_base": 0.0,
    "yarn_ext_factor": -1.0,
    "yarn_beta_slow": -1.0,
    "yarn_orig_ctx": 0,
    "defrag_thold": -1.0,
    "type_k": 1,
    "type_v": 1,
    "moe_cache_size": 0,
    "abort_callback": None,
    "embeddings": False,
    "offload_kqv": True,
    "no_perf": True,
    "op_offload": True,
    "swa_full": True,
    "kv_unified": False,
    "samplers": None,
    "n_samplers": 0,
    "ctx_other": None,
}
"""What `llama_context_default_params` writes."""

_Ids = POINTER(c_int32)
_Bytes = POINTER(c_uint8)
_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "llama_version": (c_char_p, []),
    "llama_backend_init": (None, []),
    "llama_log_set": (None, [c_void_p, c_void_p]),
    "llama_print_system_info": (c_char_p, []),
    "llama_model_default_params": (ModelParams, []),
    "llama_context_default_params": (ContextParams, []),
    "llama_model_load_from_file": (c_void_p, [c_char_p, ModelParams]),
    "llama_model_free": (None, [c_void_p]),
    "llama_model_get_vocab": (c_void_p, [c_void_p]),
    "llama_model_n_ctx_train": (c_int32, [c_void_p]),
    "llama_model_n_layer": (c_int32, [c_void_p]),
    "llama_model_is_recurrent": (c_bool, [c_void_p]),
    "llama_model_is_hybrid": (c_bool, [c_void_p]),
    "llama_model_has_encoder": (c_bool, [c_void_p]),
    "llama_model_chat_template": (c_char_p, [c_void_p, c_char_p]),
    "llama_chat_apply_template": (
        c_int32,
        [c_char_p, POINTER(ChatMessage), c_size_t, c_bool, c_char_p, c_int32],
    ),
    "llama_vocab_n_tokens": (c_int32, [c_void_p]),
    "llama_vocab_type": (c_int32, [c_void_p]),
    "llama_vocab_is_eog": (c_bool, [c_void_p, c_int32]),
    "llama_vocab_bos": (c_int32, [c_void_p]),
    "llama_vocab_get_add_bos": (c_bool, [c_void_p]),
    "llama_tokenize": (c_int32, [c_void_p, c_char_p, c_int32, _Ids, c_int32, c_bool, c_bool]),
    "llama_token_to_piece": (c_int32, [c_void_p, c_int32, c_char_p, c_int32, c_int32, c_bool]),
    "llama_init_from_model": (c_void_p, [c_void_p, ContextParams]),
    "llama_free": (None, [c_void_p]),
    "llama_n_ctx": (c_uint32, [c_void_p]),
    "llama_n_batch": (c_uint32, [c_void_p]),
    "llama_n_ubatch": (c_uint32, [c_void_p]),
    "llama_get_memory": (c_void_p, [c_void_p]),
    "llama_memory_clear": (None, [c_void_p, c_bool]),
    "llama_memory_seq_rm": (c_bool, [c_void_p, c_int32, c_int32, c_int32]),
    "llama_state_seq_get_size_ext": (c_size_t, [c_void_p, c_int32, c_uint32]),
    "llama_state_seq_get_data_ext": (c_size_t, [c_void_p, _Bytes, c_size_t, c_int32, c_uint32]),
    "llama_state_seq_set_data_ext": (c_size_t, [c_void_p, _Bytes, c_size_t, c_int32, c_uint32]),
    "llama_batch_init": (Batch, [c_int32, c_int32, c_int32]),
    "llama_batch_free": (None, [Batch]),
    "llama_decode": (c_int32, [c_void_p, Batch]),
    "llama_synchronize": (None, [c_void_p]),
    "llama_get_logits": (c_void_p, [c_void_p]),
    "ggml_get_name": (c_char_p, [c_void_p]),
    "ggml_quantize_chunk": (c_size_t, [c_int32, c_void_p, c_void_p, c_int64, c_int64, c_int64, c_void_p]),
    "ggml_backend_tensor_get": (None, [c_void_p, c_void_p, c_size_t, c_size_t]),
    "ggml_backend_load_all": (None, []),
    "ggml_backend_dev_count": (c_size_t, []),
    "ggml_backend_dev_by_name": (c_void_p, [c_char_p]),
    "ggml_backend_dev_description": (c_char_p, [c_void_p]),
}


class Library:
    """The C functions by their names, from libllama or, where the linker does not look further, the ggml beside it."""

    def __init__(self, path: Path) -> None:
        """Load and prove. Raises `EngineStartError`, naming the versions, for anything but `VERSION`."""
        self.path = path
        self._libraries = list(_load(path))
        for name, (result, arguments) in _SIGNATURES.items():
            function = self._find(name)
            function.restype, function.argtypes = result, arguments
            setattr(self, name, function)
        self.version = self._text("llama_version")
        prove(self.version, self.llama_model_default_params(), self.llama_context_default_params(), path)
        self._sink: Callable[[int, str], None] | None = None
        self.warnings: deque[str] = deque(maxlen=_KEPT_WARNINGS)
        """The last things that llama.cpp warned of."""
        self._callback = LogCallback(self._hear)  # kept: llama.cpp holds only its address
        self.llama_log_set(ctypes.cast(self._callback, c_void_p), None)
        self.llama_backend_init()
        if self.ggml_backend_dev_count() == 0:
            self.ggml_backend_load_all()

    def __getattr__(self, name: str) -> Callable[..., Any]:
        # Only reached for names that `__init__` did not set.
        raise AttributeError(f"{name} is not among the functions of llama.cpp that are bound here")

    @property
    def system_info(self) -> str:
        """CPU features and backends as llama.cpp prints them."""
        return self._text("llama_print_system_info").strip(" |")

    @property
    def processor(self) -> str:
        """What llama.cpp calls the processor; empty where it has none."""
        device = self.ggml_backend_dev_by_name(b"CPU")
        return self._text("ggml_backend_dev_description", device) if device else ""

    def listen(self, sink: Callable[[int, str], None] | None) -> None:
        """Give everything that llama.cpp logs to `sink(level, text)`; None (from the start) drops it.

        Texts are parts of lines. Levels: 1 debug, 2 information, 3 warning, 4 error, 5 as the part before.
        """
        self._sink = sink

    def last_words(self) -> str:
        """The last warnings, ready to stand at the end of a message; empty when there were none."""
        return "".join(f"\n  | {line}" for line in self.warnings)

    def _hear(self, level: int, text: bytes | None, _: object) -> None:
        decoded = (text or b"").decode("utf-8", "replace")
        if level in (_WARNING, _ERROR) and decoded.strip():
            self.warnings.append(decoded.strip()[:_LONGEST_WARNING])
        if self._sink is not None:
            self._sink(level, decoded)

    def _text(self, function: str, *arguments: int) -> str:
        return (getattr(self, function)(*arguments) or b"").decode("utf-8", "replace")

    def _find(self, name: str) -> Any:
        for library in self._libraries:
            try:
                return getattr(library, name)
            except AttributeError:
                continue
        raise EngineStartError(f"{self.path}: has no function {name}, so it is not llama.cpp {VERSION}", fix=_FIX)


def prove(version: str, model: ModelParams, context: ContextParams, path: Path) -> None:
    """Raise `EngineStartError` unless version and default values are those that this binding was written for."""
    if version.partition("-")[0] != VERSION:
        raise EngineStartError(
            f"{path}: is llama.cpp {version or 'of an unknown version'}, but this binding needs {VERSION}",
            fix=_FIX,
        )
    for kind, params, defaults in (("model", model, MODEL_DEFAULTS), ("context", context, CONTEXT_DEFAULTS)):
        for name, expected in defaults.items():
            found = getattr(params, name)
            if found != expected:
                raise EngineStartError(
                    f"{path}: llama.cpp {version} has a different layout of {kind} parameters than {VERSION}: {name} "
                    f"reads {found!r}, not {expected!r}",
                    fix=_FIX,
                )


def library_path() -> Path:
    """The libllama to use: `SPECMETER_LIBLLAMA`, or the extension module of the wheel. Raises `EngineStartError`."""
    if chosen := os.environ.get(SETTING):
        path = Path(chosen).expanduser()
        if not path.is_file():
            raise EngineStartError(
                f"{SETTING}: {path} is not a file", fix=f"set it to a libllama of llama.cpp {VERSION}"
            )
        return path
    spec = importlib.util.find_spec("xllamacpp")
    if spec is None or spec.origin is None:
        raise EngineStartError("the embedded llama.cpp (package xllamacpp) is not installed", fix=_FIX)
    folder = Path(spec.origin).parent
    found = sorted(it for it in folder.iterdir() if it.name.startswith("xllamacpp.") and it.suffix in (".so", ".pyd"))
    if not found:
        raise EngineStartError(f"{folder}: xllamacpp's extension module is missing", fix=_FIX)
    return found[0]


def library() -> Library:
    """The library, loaded and proven once per process and path. Raises `EngineStartError`."""
    return _library(library_path())


@cache
def _library(path: Path) -> Library:
    return Library(path)


def _load(path: Path) -> Iterator[ctypes.CDLL]:
    try:
        if sys.platform == "win32":
            os.add_dll_directory(str(path.parent))
        yield ctypes.CDLL(str(path))
        # On Windows a handle does not answer for the libraries that its own depends on.
        for beside in sorted(path.parent.glob("*ggml*")) if sys.platform == "win32" else ():
            if beside.suffix == ".dll":
                yield ctypes.CDLL(str(beside))
    except OSError as error:
        raise EngineStartError(f"{path}: cannot be loaded: {str(error)[:300]}", fix=_FIX) from None
