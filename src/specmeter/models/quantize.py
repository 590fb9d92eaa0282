"""Writes files as `llama-quantize` does, without that tool: its choice of formats, and llama.cpp's arithmetic.

The library of the wheel has the arithmetic (`ggml_quantize_chunk`), but not the tool's choices: `Q4_K_M` has tensors in
Q6_K, and rows that are no whole blocks of 256 get another format. The choices here are those of `src/llama-quant.cpp`
(llama.cpp 0.6.0, October 2026) without an importance matrix; a test compares files with those of the tool.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from specmeter.errors import ModelError
from specmeter.models.gguf import GGML_TYPES, TYPE_BY_NAME, Metadata

if TYPE_CHECKING:
    from numpy.typing import NDArray

Rules = tuple[tuple[str, str], ...]
"""(which layers, format), of which the first that applies holds."""


@dataclass(frozen=True)
class Mix:
    """What a type is made of."""

    number: int
    """`general.file_type`."""
    base: str
    """Format of whatever no rule names."""
    values: Rules = ()
    """For the values of attention (V, QKV, KV_B)."""
    down: Rules = ()
    """For down-projections."""
    output: str = ""
    """For attention's output; where empty, the base."""


_OUTER = (("outer", "Q6_K"),)
MIXES = {
    "F16": Mix(1, "F16"),
    "BF16": Mix(32, "BF16"),
    "Q8_0": Mix(7, "Q8_0"),
    "Q6_K": Mix(18, "Q6_K"),
    "Q5_K_M": Mix(17, "Q5_K", _OUTER, _OUTER),
    "Q5_K_S": Mix(16, "Q5_K"),
    "Q5_1": Mix(9, "Q5_1"),
    "Q5_0": Mix(8, "Q5_0"),
    "Q4_K_M": Mix(15, "Q4_K", _OUTER, _OUTER),
    "Q4_K_S": Mix(14, "Q4_K", (("first 4", "Q5_K"),), (("eighth", "Q5_K"),)),
    "Q4_1": Mix(3, "Q4_1"),
    "Q4_0": Mix(2, "Q4_0"),
    "IQ4_NL": Mix(25, "IQ4_NL", (("grouped", "Q5_K"),), (("eighth", "Q5_K"),)),
    "IQ4_XS": Mix(30, "IQ4_XS", (("grouped", "Q5_K"),), (("eighth", "Q5_K"),)),
    "Q3_K_L": Mix(13, "Q3_K", (("all", "Q5_K"),), (("all", "Q5_K"),), "Q5_K"),
    "Q3_K_M": Mix(12, "Q3_K", (("first 2", "Q5_K"), ("all", "Q4_K")), (("sixteenth", "Q5_K"), ("all", "Q4_K")), "Q4_K"),
    "Q3_K_S": Mix(11, "Q3_K"),
    "Q2_K": Mix(10, "Q2_K", (("grouped", "Q4_K"), ("all", "Q3_K")), (("all", "Q3_K"),), "Q3_K"),
}
"""Type by llama.cpp's name -> mix; those that need an importance matrix are not among them."""

_OUTPUT_OF_EIGHT = ("Q2_K", "Q3_K_S", "Q3_K_M", "Q4_K_S", "Q4_K_M", "IQ4_NL", "IQ4_XS")
"""Types that keep attention's output of a model with eight experts in Q5_K."""
_NARROW = {"Q2_K": "Q4_0", "Q3_K": "Q4_0", "Q4_K": "Q5_0", "Q5_K": "Q5_1", "Q6_K": "Q8_0", "IQ4_XS": "IQ4_NL"}
"""Format of rows that are no whole blocks -> what they get instead; F16 where that does not fit either."""
_OTHER_MIXES = ("falcon", "glm5-next")
"""Architectures with rules of their own."""
_OF_70B = {"llama": 80, "qwen2": 80, "deci": 80, "olmo": 80, "jais2": 68}
"""Architecture -> layers of its models of 70 billion parameters, whose values get more bits."""
_KEPT = re.compile(
    r"_norm\.weight|ffn_gate_inp\.weight|ffn_gate_tid2eid\.weight|altup|laurel|per_layer_model_proj|^position_embd\."
    r"|^token_types\.|ssm_conv1d|shortconv\.conv\.weight|indexer\.[kq]_proj\.weight|attn_rel_b\.weight|\.position_embd"
    r"|time_mix_(first|w[012]|v[012]|a[012]|g[12]|decay_w[12]|lerp_fused)\.weight|sam\.(pos_embd|neck\.|net_)"
    r"|\.rel_pos|\.patch_embd|\.patch_merger|a\.rvq\.codebook|mm\.a\.code_embd"
)
"""Tensors that keep the format they have, as do vectors and what is not called a weight."""
_EMBEDDINGS = ("token_embd.weight", "per_layer_token_embd.weight")
_VALUES = re.compile(r"attn_(qkv|kv_b|v)\.weight")
_LAYER = re.compile(r"blk\.(\d+)")
_NUMBERS = {kind.name: number for number, kind in GGML_TYPES.items()}
_ROWS_AT_ONCE = 256

Shapes = Iterable[tuple[str, tuple[int, ...], str]]
"""(name, shape with the length of a row last, format that it has) of each tensor."""


def file_order(name: str) -> tuple[int, str]:
    """By layer, what belongs to none first, then by name: the tool's order, and that in which it counts."""
    return _layer(name), name


def formats(kind: str, about: Metadata, tensors: Shapes) -> dict[str, str]:
    """Tensor -> its format in a file of type `kind`; `about` tells heads and experts.

    Raises `ModelError` for a type or an architecture whose rules are not known here.
    """
    mix = MIXES.get(kind)
    if mix is None or about.architecture in _OTHER_MIXES:
        what = kind[:40] if mix is None else f"{kind} of a model of architecture {about.architecture}"
        raise ModelError(f"{what} cannot be made here", fix=f"give the file itself, or use one of: {', '.join(MIXES)}")
    ordered = sorted(tensors, key=lambda tensor: file_order(tensor[0]))
    model = _Model.of(kind, mix, about, [name for name, _, _ in ordered])
    return {name: model.format_of(name, shape, own) for name, shape, own in ordered}


def encode(floats: NDArray[np.float32], kind: str) -> NDArray[np.uint8]:
    """Rows of weights, float32 [rows, elements], in another format, uint8 [rows, bytes of a row].

    Raises `ModelError` for weights that are no numbers, `EngineStartError` without the library.
    """
    from specmeter.engines.process import default_threads
    from specmeter.llama_binding.capi import library

    if not np.isfinite(floats).all():
        raise ModelError("a weight is not a finite number", fix="download or convert the model file again")
    floats = np.ascontiguousarray(floats, np.float32)
    rows, elements = floats.shape
    made: NDArray[np.uint8] = np.empty((rows, TYPE_BY_NAME[kind.lower()].row_bytes(elements)), np.uint8)
    quantize, number = library().ggml_quantize_chunk, _NUMBERS[kind]

    def some(start: int) -> None:
        given, to = floats[start : start + _ROWS_AT_ONCE], made[start : start + _ROWS_AT_ONCE]
        quantize(number, given.ctypes.data, to.ctypes.data, 0, len(given), elements, None)

    with ThreadPoolExecutor(default_threads()) as workers:  # the library works without Python's lock
        list(workers.map(some, range(0, rows, _ROWS_AT_ONCE)))
    return made


@dataclass
class _Model:
    """The tool's rules for one model; asked of its tensors in the order of the file."""

    kind: str
    mix: Mix
    layers: int
    experts: int
    grouped: bool
    """At least four heads share their keys and values."""
    seventy: bool
    """Of 70 billion parameters, by its architecture and layers."""
    tied: bool
    """The output matrix is the embedding."""
    values: int
    """Tensors of attention's values."""
    values_seen: int = 0
    down_seen: int = 0

    @classmethod
    def of(cls, kind: str, mix: Mix, about: Metadata, names: Sequence[str]) -> _Model:
        layers = 1 + max((_layer(name) for name in names), default=-1)
        heads = (about.per_layer(".attention.head_count", 1) or [0])[0]
        shared = (about.per_layer(".attention.head_count_kv", 1) or [heads])[0]
        large = _OF_70B.get(about.architecture or "") == layers
        return cls(
            kind,
            mix,
            layers,
            about.integer(".expert_count") or 0,
            shared > 0 and heads // shared >= 4,
            large and not (about.architecture == "llama" and heads == shared),
            "output.weight" not in names,
            sum(_VALUES.search(name) is not None for name in names),
        )

    def format_of(self, name: str, shape: tuple[int, ...], own: str) -> str:
        plain = not name.endswith("weight") or all(extent == 1 for extent in shape[:-1])
        if plain or _KEPT.search(name):
            return own
        if self.mix.base in ("F16", "BF16"):
            return self.mix.base
        return _fitting(self._chosen(name, shape[-1]), shape[-1])

    def _chosen(self, name: str, row: int) -> str:
        base, eight = self.mix.base, self.experts == 8
        if name == "output.weight" or (self.tied and name in _EMBEDDINGS):
            return "Q8_0" if base == "Q8_0" or row % TYPE_BY_NAME[base.lower()].block else "Q6_K"
        if name in _EMBEDDINGS:
            return base
        if _VALUES.search(name):
            found = self._by_rule(self.mix.values, self.values_seen, self.values)
            self.values_seen += 1
            if self.seventy and found in ("Q3_K", "Q4_K"):
                found = "Q5_K"
            return "Q8_0" if eight else found
        if "attn_k.weight" in name:
            return "Q8_0" if eight else base
        if "attn_output.weight" in name:
            return self._output(eight)
        if "ffn_down" in name:
            # Where there are experts the name tells the layer, else the count does.
            layer = _layer(name) if self.experts > 1 else self.down_seen
            self.down_seen += 1
            return self._by_rule(self.mix.down, layer, self.layers)
        return base

    def _output(self, eight: bool) -> str:
        if eight:
            return "Q5_K" if self.kind in _OUTPUT_OF_EIGHT else self.mix.base
        return self.mix.output or self.mix.base

    def _by_rule(self, rules: Rules, place: int, places: int) -> str:
        """By the place of a tensor among all of its sort."""
        eighth = places // 8
        applies = {
            "all": True,
            "grouped": self.grouped,
            "first 2": place < 2,
            "first 4": place < 4,
            "eighth": place < eighth,
            "sixteenth": place < places // 16,
            "outer": place < eighth or place >= 7 * places // 8 or (place - eighth) % 3 == 2,
        }
        return next((kind for where, kind in rules if applies[where]), self.mix.base)


def _layer(name: str) -> int:
    match = _LAYER.match(name)
    return int(match[1]) if match else -1


def _fitting(kind: str, row: int) -> str:
    if row % TYPE_BY_NAME[kind.lower()].block == 0:
        return kind
    narrow = _NARROW.get(kind, kind)
    return "F16" if row % TYPE_BY_NAME[narrow.lower()].block else narrow
