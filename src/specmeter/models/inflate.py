"""Inflation: a tiny trained core becomes a model of any size that computes exactly what the core computes.

Two things are added. *Width*: every feed-forward network (in a mixture of experts: every expert) gets more neurons,
with random gate and up rows, and down-projection columns of zero. *Layers*: after a core layer, copies of its shape
whose attention output and down-projection are zero; their norms and routers are the core layer's own, so that experts
are chosen as in the core. Both add exactly 0 to the residual stream, while the engine reads and multiplies every added
weight. `docs/bench-models.md` says why this is exact to the bit, and what it costs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from specmeter.errors import ModelError
from specmeter.models.gguf import (
    TYPE_BY_NAME,
    Header,
    Metadata,
    Tensor,
    Value,
    read_header,
)
from specmeter.models.gguf_writer import TensorSource, file_bytes
from specmeter.models.quantize import MIXES
from specmeter.models.weights import FILE_TYPE, MIXED, RandomBits, convert, flat, quantized, random_chunks, random_rows
from specmeter.text import size

if TYPE_CHECKING:
    from numpy.typing import NDArray


RECIPE = 1
"""Version of everything here that decides a byte of the result; part of the cache key."""

WIDTH_STEP = 32
"""Neurons are added in whole blocks of the widest block format, so that none mixes old and new columns."""

MAX_ACTIVE_WIDTH = 32_768
"""Neurons of one layer that one token may activate before layers are added instead.

The engine keeps a batch of 512 tokens' activations of one layer: 64 MB per buffer at this width. A layer this wide
takes milliseconds to read, next to which the overhead of a layer is small.
"""

MAX_LAYERS = 500
"""llama.cpp ends the process with a failed assertion above 512."""

SIZE_TOLERANCE = 0.02

_LAYERED = {"qwen3", "qwen3moe"}
"""Architectures in which every layer is of the same kind, so that one can be put between any two."""

_BLOCK = re.compile(r"blk\.(\d+)\.(.+)")
_ROWS = re.compile(r"ffn_(gate|up)(_exps)?\.weight")
_COLUMNS = re.compile(r"ffn_down(_exps)?\.weight")
_ATTENTION_OUTPUT = "attn_output.weight"


@dataclass(frozen=True)
class CoreFile:
    """A GGUF file that can be inflated."""

    header: Header

    @classmethod
    def read(cls, path: Path) -> CoreFile:
        """Reads the header of the file at `path`; raises `ModelError` when it is not a usable GGUF file."""
        return cls(read_header(path))

    @cached_property
    def architecture(self) -> str:
        """llama.cpp's name of the architecture."""
        return Metadata(self.header).architecture or ""

    def number(self, key: str) -> int | None:
        """An integer of the architecture's metadata, such as `block_count`."""
        return Metadata(self.header).integer(f".{key}")

    @cached_property
    def layers(self) -> int:
        """Number of layers."""
        return self._needed("block_count")

    @cached_property
    def width(self) -> int:
        """Neurons per layer, or per expert."""
        return self.number("expert_feed_forward_length") or self._needed("feed_forward_length")

    @cached_property
    def experts_used(self) -> int:
        """Experts per token; 1 for a dense model."""
        return self.number("expert_used_count") or 1

    @cached_property
    def kind(self) -> str:
        """Number format of the embeddings, or of what a head reads instead; it stands for that of all matrices."""
        first = {"token_embd.weight", "fc.weight"}
        return next((t.type.name for t in self.header.tensors if t.name in first), "F16")

    def _needed(self, key: str) -> int:
        value = self.number(key)
        if not value:
            raise ModelError(
                f"{self.header.path}: {self.architecture}.{key} is missing or not a single number",
                fix="use a core with identical layers",
            )
        return value

    def data(self, tensor: Tensor) -> NDArray[np.uint8]:
        """The bytes of a tensor, uint8 [..., bytes of a row], slowest dimension first."""
        flat: Any = np.fromfile(self.header.path, np.uint8, count=tensor.bytes, offset=tensor.offset)
        return flat.reshape(*reversed(tensor.shape[1:]), -1)


@dataclass(frozen=True)
class Recipe:
    """What a core is made into."""

    layers: int
    """Layers in all, at least the core's."""
    width: int
    """Neurons per layer (per expert), at least the core's; a multiple of 32 where it is not the core's own."""
    kind: str
    """Number format of the matrices; what the core keeps in F32 stays so."""


def inflated(core: CoreFile, recipe: Recipe) -> list[TensorSource]:
    """The tensors of the inflated model in the order of the file; nothing is read or made yet.

    Raises `ModelError` when the recipe is smaller than the core or its architecture cannot take it.
    """
    if recipe.kind in MIXED:
        return quantized(inflated(core, replace(recipe, kind="F16")), recipe.kind, Metadata(core.header))
    _check(core, recipe)
    outside = [t for t in core.header.tensors if not _BLOCK.fullmatch(t.name)]
    inside: dict[int, list[tuple[str, Tensor]]] = {}
    for tensor in core.header.tensors:
        if match := _BLOCK.fullmatch(tensor.name):
            inside.setdefault(int(match[1]), []).append((match[2], tensor))

    sources = [_converted(core, recipe, tensor.name, tensor) for tensor in outside]
    previous = -1
    for layer, donor in enumerate(donors(core.layers, recipe.layers)):
        make = _core_tensor if donor != previous else _inert_tensor
        sources += [make(core, recipe, layer, part, tensor) for part, tensor in inside[donor]]
        previous = donor
    return sources


def donors(core_layers: int, layers: int) -> list[int]:
    """For each layer its donor: the core layer it is, or whose copy it is.

    The first layer of a donor is the donor itself; copies follow it, spread evenly over the depth.
    """
    return [layer * core_layers // layers for layer in range(layers)]


def _check(core: CoreFile, recipe: Recipe) -> None:
    name = core.header.path.stem
    if recipe.layers < core.layers or recipe.width < core.width:
        raise ModelError(
            f"bench model {name} has {core.layers} layers of width {core.width}; "
            f"it cannot become {recipe.layers} layers of width {recipe.width}",
            fix="ask for larger numbers",
        )
    if recipe.layers > MAX_LAYERS:
        raise ModelError(f"{recipe.layers} layers exceed the engine's limit of {MAX_LAYERS}", fix="remove `layers`")
    if recipe.layers > core.layers and core.architecture not in _LAYERED:
        raise ModelError(
            f"bench model {name}: architecture {core.architecture} cannot get more layers, only more width",
            fix="remove `layers`",
        )
    if recipe.width > core.width and (core.width % WIDTH_STEP or recipe.width % WIDTH_STEP):
        raise ModelError(
            f"bench model {name}: width {core.width} cannot become {recipe.width}: not a multiple of {WIDTH_STEP}",
            fix=f"use a multiple of {WIDTH_STEP}",
        )


def _target_kind(recipe: Recipe, tensor: Tensor) -> str:
    # The core itself says what must stay precise: norms, routers and the like are F32 in it.
    own = tensor.type.name
    return own if own == "F32" or tensor.shape[0] % TYPE_BY_NAME[recipe.kind.lower()].block else recipe.kind


def _converted(core: CoreFile, recipe: Recipe, name: str, tensor: Tensor) -> TensorSource:
    kind = _target_kind(recipe, tensor)

    def chunks() -> Iterator[memoryview]:
        yield flat(convert(core.data(tensor), tensor.type.name, kind))

    return TensorSource(name, tensor.shape[::-1], kind, chunks)


def _core_tensor(core: CoreFile, recipe: Recipe, layer: int, part: str, tensor: Tensor) -> TensorSource:
    """A tensor of a core layer: as it is, or widened."""
    name = f"blk.{layer}.{part}"
    added = recipe.width - core.width
    if not added or not (_ROWS.fullmatch(part) or _COLUMNS.fullmatch(part)):
        return _converted(core, recipe, name, tensor)
    shape, kind = tensor.shape[::-1], _target_kind(recipe, tensor)
    if _ROWS.fullmatch(part):
        wide, widen = (*shape[:-2], recipe.width, shape[-1]), _with_rows
    else:
        wide, widen = (*shape[:-1], recipe.width), _with_columns

    def chunks() -> Iterator[memoryview]:
        old = convert(core.data(tensor), tensor.type.name, kind)
        return widen(old.reshape(-1, *old.shape[-2:]), kind, shape[-1], added, RandomBits(f"{RECIPE}:{name}"))

    return TensorSource(name, wide, kind, chunks)


def _with_rows(old: NDArray[np.uint8], kind: str, elements: int, added: int, bits: RandomBits) -> Iterator[memoryview]:
    """Behind each expert's rows, `added` random ones; `old` is uint8 [experts, rows, bytes of a row]."""
    for expert in old:
        yield flat(expert)
        yield from random_chunks(kind, added, elements, 1 / sqrt(elements), bits)


def _with_columns(
    old: NDArray[np.uint8], kind: str, _elements: int, added: int, bits: RandomBits
) -> Iterator[memoryview]:
    """At the end of each row, `added` zeros; `old` is uint8 [experts, rows, bytes of a row]."""
    step = max(1, (8 << 20) // TYPE_BY_NAME[kind.lower()].row_bytes(added))
    for expert in old:
        for start in range(0, len(expert), step):
            rows = expert[start : start + step]
            yield flat(np.concatenate([rows, random_rows(kind, len(rows), added, 0, bits)], axis=1))


def _inert_tensor(core: CoreFile, recipe: Recipe, layer: int, part: str, tensor: Tensor) -> TensorSource:
    """A tensor of an added layer: the donor's where it steers (norms, router), else random, or zero where it ends."""
    name = f"blk.{layer}.{part}"
    kind = _target_kind(recipe, tensor)
    if kind == "F32":
        return _converted(core, recipe, name, tensor)
    shape = tensor.shape[::-1]
    if _ROWS.fullmatch(part):
        shape = (*shape[:-2], recipe.width, shape[-1])
    elif _COLUMNS.fullmatch(part):
        shape = (*shape[:-1], recipe.width)
    is_zero = part == _ATTENTION_OUTPUT or _COLUMNS.fullmatch(part)
    rows = 1
    for extent in shape[:-1]:
        rows *= extent
    deviation = 0 if is_zero else 1 / sqrt(shape[-1])
    return TensorSource(
        name, shape, kind, partial(random_chunks, kind, rows, shape[-1], deviation, RandomBits(f"{RECIPE}:{name}"))
    )


def metadata(core: CoreFile, recipe: Recipe, core_sha256: str) -> dict[str, Value]:
    """The inflated model's metadata: the core's, the new dimensions, and openly what it is and was made from."""
    source = core.header.metadata
    name = core.header.path.stem
    result = dict(source)
    for key in ("feed_forward_length", "expert_feed_forward_length"):
        if f"{core.architecture}.{key}" in source:
            result[f"{core.architecture}.{key}"] = recipe.width
    grown = (recipe.layers, recipe.width) != (core.layers, core.width)
    result |= {
        f"{core.architecture}.block_count": recipe.layers,
        "general.name": f"specmeter bench {name} {recipe.layers}x{recipe.width} {recipe.kind}",
        "general.description": (
            f"Bench model: the trained core {name!r} ({core.layers} layers of width {core.width}) "
            + (f"inflated to {recipe.layers} layers of width {recipe.width}" if grown else "")
            + f" in {recipe.kind}. Its text is the core's; every added weight is read and multiplied and contributes "
            "exactly zero. For measuring engines, not for use."
        ),
        "general.file_type": FILE_TYPE[recipe.kind],
        "general.quantization_version": 2,
        "specmeter.core": name,
        "specmeter.core_sha256": core_sha256,
        "specmeter.recipe": RECIPE,
        "specmeter.core_layers": core.layers,
        "specmeter.core_width": core.width,
        "specmeter.core_quantization": core.kind,
    }
    return result


def model_bytes(core: CoreFile, recipe: Recipe) -> int:
    """Exact size of the inflated file in bytes."""
    return file_bytes(metadata(core, recipe, "0" * 64), inflated(core, recipe))


def fit(core: CoreFile, kind: str, size_bytes: int, layers: int | None = None) -> Recipe:
    """The recipe whose file comes nearest to `size_bytes`: width first, layers beyond `MAX_ACTIVE_WIDTH`.

    With `layers` given, only the width is chosen. Raises `ModelError` when the size cannot be met within 2 %.
    """
    smallest = model_bytes(core, Recipe(layers or core.layers, core.width, kind))
    if size_bytes < smallest * (1 - SIZE_TOLERANCE):
        raise ModelError(
            f"bench model {core.header.path.stem} in {kind} is at least {size(smallest)}, more than {size(size_bytes)}",
            fix=f"ask for at least {smallest / 1e6:.1f}MB, or leave `size` out",
        )
    found: list[tuple[Recipe, int]] = []
    for count in _layer_counts(core, kind, size_bytes, layers):
        found.append(_widest(core, kind, size_bytes, count))
        if abs(found[-1][1] - size_bytes) <= SIZE_TOLERANCE / 4 * size_bytes:
            break
    recipe, reached = min(found, key=lambda item: abs(item[1] - size_bytes))
    if abs(reached - size_bytes) > SIZE_TOLERANCE * size_bytes:
        raise ModelError(
            f"bench model {core.header.path.stem} in {kind} cannot be made {size(size_bytes)} large "
            f"within {SIZE_TOLERANCE:.0%}; the nearest is {size(reached)}",
            fix=f"ask for size={reached / 1e6:.1f}MB",
        )
    return recipe


def _widest(core: CoreFile, kind: str, size_bytes: int, layers: int) -> tuple[Recipe, int]:
    """The width that comes nearest to `size_bytes` with this many layers, and the size it comes to."""
    narrow = Recipe(layers, core.width, kind)
    smallest = model_bytes(core, narrow)
    block = TYPE_BY_NAME[MIXES[kind].base.lower()].block if kind in MIXED else 0
    added = max(WIDTH_STEP, block)
    step = model_bytes(core, Recipe(layers, core.width + added, kind)) - smallest
    steps = max(0, round((size_bytes - smallest) / step))
    recipe = Recipe(layers, core.width + steps * added, kind)
    return recipe, model_bytes(core, recipe)


def _layer_counts(core: CoreFile, kind: str, size_bytes: int, layers: int | None) -> range:
    """Layer counts worth trying: the fewest that keep the width in bounds, and a few more to come near the size."""
    if layers:
        return range(layers, layers + 1)
    if core.architecture not in _LAYERED:
        return range(core.layers, core.layers + 1)
    widest = max(MAX_ACTIVE_WIDTH // core.experts_used, core.width) // WIDTH_STEP * WIDTH_STEP
    wide = model_bytes(core, Recipe(core.layers, widest, kind))
    per_layer = model_bytes(core, Recipe(core.layers + 1, widest, kind)) - wide
    fewest = core.layers + max(0, -(-(size_bytes - wide) // per_layer))
    fewest = min(fewest, MAX_LAYERS)
    return range(fewest, min(fewest + 8, MAX_LAYERS + 1))
