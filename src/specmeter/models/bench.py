"""Resolves references to bench models, `bench:NAME[?key=value&...]`, and makes the files they stand for.

- `bench:dense`, `bench:draft-small`, ...: a trained core as it is shipped; with `quant`, converted.
- `bench:dense?size=2GB&quant=Q8_0`: a core inflated to a size (`inflate`); `layers` fixes the depth.
- `bench:dense-400m`, ...: named sizes.
- `bench:shape/qwen3-30b-a3b?scale=0.05&quant=Q8_0`: random weights in the shape of a real model (`SHAPES`): for timing
  only.

Files are made on first use and kept in the cache under a name that depends on everything that decides their bytes.
Cores are GGUF files in `cores/`; `cores.json` says of each what it is for, how it was trained, and its checksum
(`docs/bench-models.md`).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cache, partial
from math import prod
from pathlib import Path
from urllib.parse import parse_qsl

from specmeter.cache import cache_dir, create_once, file_sha256
from specmeter.errors import ModelError
from specmeter.models import inflate
from specmeter.models.gguf_writer import Fields, TensorSource, file_bytes, write_gguf
from specmeter.models.shapes import SHAPES, SHAPES_VERSION, shape_metadata, shape_tensors
from specmeter.models.weights import CONVERTIBLE, MIXED, RANDOM_ONLY

PREFIX = "bench:"

_UNITS = {
    "": 1, "b": 1,
    "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
    "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40,
}  # fmt: skip
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)", re.IGNORECASE)

_PRESETS = {
    f"{core}-{megabytes}m": (core, megabytes * 10**6, "Q8_0")
    for core in ("dense", "moe")
    for megabytes in (100, 200, 400, 900)
}
"""Name -> (core, size in bytes, format). Dense and MoE of one number have the same total size."""

_FOLDER = Path(__file__).parent / "cores"


@dataclass(frozen=True)
class BenchSpec:
    """A bench model that is asked for; made by `parse`, which has checked it."""

    name: str
    """As in the reference: a core, a preset, or `shape/NAME`."""
    core: str
    """Core whose weights, or for a shape whose tokenizer, are used."""
    quant: str
    """Number format of the matrices."""
    size_bytes: int | None = None
    """Wanted size of the file; None: the core's own dimensions, or those of the shape."""
    layers: int | None = None
    """Wanted number of layers; None: chosen by the size."""
    shape: str | None = None
    """Real model whose dimensions are copied."""
    scale: float = 1.0
    """Share of a shape's layers that is kept."""

    @property
    def timing_only(self) -> bool:
        """Random weights: refused as a source of acceptance."""
        return self.shape is not None


@dataclass(frozen=True)
class BenchModel:
    """What a bench model is or will be, known without building it."""

    reference: str
    path: Path
    """Where the file is or will be."""
    size_bytes: int
    parameters: int
    architecture: str
    layers: int
    core_layers: int
    """Layers that are trained (0 for a shape)."""
    feed_forward: int
    """Neurons per layer, or per expert."""
    experts: int
    experts_used: int
    quant: str
    timing_only: bool
    in_place: bool
    """The file is part of the package: nothing is built."""


def names() -> list[str]:
    """All names that can follow `bench:`, cores first."""
    return [*shipped(), *_PRESETS, *(f"shape/{name}" for name in SHAPES)]


def parse(reference: str) -> BenchSpec:
    """The bench model that `reference` asks for.

    Raises `ModelError` for an unknown name, key or value, with near names.
    """
    if not reference.startswith(PREFIX):
        raise ModelError(f"{reference!r} is not a bench model", fix=f"write {PREFIX}NAME, for example bench:dense-200m")
    name, _, query = reference.removeprefix(PREFIX).partition("?")
    values = _query(reference, query)
    if name.startswith("shape/"):
        return _parse_shape(reference, name, values)
    preset = _PRESETS.get(name)
    core = preset[0] if preset else name
    if core not in shipped():
        raise _unknown(f"bench model {name!r} in {reference!r}", name, names())
    _check_keys(reference, values, ("quant",) if preset else ("size", "quant", "layers"))
    own = shipped()[core].quantization
    spec = BenchSpec(name=name, core=core, quant=own)
    if preset:
        spec = replace(spec, size_bytes=preset[1], quant=preset[2])
    if "size" in values:
        spec = replace(spec, size_bytes=_size(reference, values["size"]))
    if "quant" in values:
        spec = replace(spec, quant=_quant(reference, values["quant"], (*CONVERTIBLE, *MIXED)))
    if "layers" in values:
        spec = replace(spec, layers=_integer(reference, "layers", values["layers"], inflate.MAX_LAYERS))
    return spec


def _parse_shape(reference: str, name: str, values: dict[str, str]) -> BenchSpec:
    shape = name.removeprefix("shape/")
    if shape not in SHAPES:
        raise _unknown(f"shape {shape!r} in {reference!r}", shape, list(SHAPES))
    _check_keys(reference, values, ("scale", "quant"))
    allowed = (*CONVERTIBLE, *RANDOM_ONLY)
    return BenchSpec(
        name=name,
        core="dense",
        shape=shape,
        scale=_scale(reference, values.get("scale", "1")),
        quant=_quant(reference, values.get("quant", "Q8_0"), allowed),
    )


def _query(reference: str, query: str) -> dict[str, str]:
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query))
    except ValueError as error:
        raise ModelError(f"{reference!r}: {error}", fix="write for example ?size=2GB&quant=Q8_0") from error
    values = dict(pairs)
    if len(values) < len(pairs):
        raise ModelError(f"{reference!r}: a parameter is repeated", fix="give each parameter once")
    return values


def _unknown(what: str, given: str, known: list[str]) -> ModelError:
    near = get_close_matches(given, known)
    if near:
        return ModelError(f"unknown {what}", fix=f"did you mean {' or '.join(near)}?")
    return ModelError(f"unknown {what}", fix=f"use one of: {', '.join(known)}")


def _check_keys(reference: str, values: dict[str, str], allowed: tuple[str, ...]) -> None:
    for key in values:
        if key not in allowed:
            raise _unknown(f"parameter {key!r} in {reference!r}", key, list(allowed))


def _size(reference: str, text: str) -> int:
    match = _SIZE.fullmatch(text.strip())
    if not match or match[2].lower() not in _UNITS or float(match[1]) == 0:
        raise ModelError(
            f"size={text!r} in {reference!r} is not a size", fix="write for example size=400MB or size=2GB"
        )
    return int(float(match[1]) * _UNITS[match[2].lower()])


def _quant(reference: str, text: str, allowed: tuple[str, ...]) -> str:
    if text.upper() not in allowed:
        raise _unknown(f"number format quant={text!r} in {reference!r}", text.upper(), list(allowed))
    return text.upper()


def _integer(reference: str, key: str, text: str, largest: int) -> int:
    if not (text.isascii() and text.isdigit()) or not 1 <= int(text[:9]) <= largest:
        raise ModelError(
            f"{key}={text!r} in {reference!r} is out of range", fix=f"use a whole number from 1 to {largest}"
        )
    return int(text)


def _scale(reference: str, text: str) -> float:
    try:
        scale = float(text)
    except ValueError:
        scale = 0.0
    if not 0 < scale <= 1:
        raise ModelError(f"scale={text!r} in {reference!r} is out of range", fix="use a number above 0 and up to 1")
    return scale


def describe(spec: BenchSpec) -> BenchModel:
    """What `build` would make, without making it; sizes are exact."""
    return _prepare(spec)[0]


def build(spec: BenchSpec, *, progress: Callable[[int, int], None] | None = None) -> Path:
    """The file of a bench model, made first if it is not in the cache.

    `progress(done, total)` receives the bytes written. Raises `ModelError` when the disk cannot hold it.
    """
    plan, fields, tensors = _prepare(spec)
    if plan.in_place:
        return plan.path
    made = partial(write_gguf, metadata=fields, tensors=tensors, progress=progress)
    return create_once(plan.path, plan.size_bytes, made)


def reference_of(spec: BenchSpec) -> str:
    """The shortest reference that `parse` turns into `spec`."""
    plain = parse(PREFIX + spec.name)
    values = {
        "size": spec.size_bytes if spec.size_bytes != plain.size_bytes else None,
        "layers": spec.layers,
        "scale": spec.scale if spec.scale != 1 else None,
        "quant": spec.quant if spec.quant != plain.quant else None,
    }
    query = "&".join(f"{key}={value}" for key, value in values.items() if value is not None)
    return f"{PREFIX}{spec.name}{'?' if query else ''}{query}"


def _prepare(spec: BenchSpec) -> tuple[BenchModel, Fields, list[TensorSource]]:
    core_path = shipped()[spec.core].path
    core_sha256 = file_sha256(core_path)
    core = inflate.CoreFile.read(core_path)
    if spec.shape:
        shape = SHAPES[spec.shape].scaled(spec.scale)
        tensors = shape_tensors(shape, spec.quant)
        fields: Fields = shape_metadata(shape, spec.shape, spec.quant, core.header)
        own = (shape.layers, 0, shape.width, 0, shape.experts, shape.experts_used or 1)
        architecture, version = shape.architecture, SHAPES_VERSION
    else:
        recipe = inflate.Recipe(spec.layers or core.layers, core.width, spec.quant)
        if spec.size_bytes:
            recipe = inflate.fit(core, spec.quant, spec.size_bytes, spec.layers)
        tensors = inflate.inflated(core, recipe)
        fields = inflate.metadata(core, recipe, core_sha256)
        experts = core.number("expert_count") or 0
        own = (recipe.layers, core.layers, recipe.width, core.width, experts, core.experts_used)
        architecture, version = core.architecture, inflate.RECIPE
    is_core = not spec.shape and own[0] == own[1] and own[2] == own[3] and spec.quant == core.kind
    key = [version, core_sha256, architecture, own, spec.quant, spec.shape, spec.scale]
    digest = hashlib.sha256(json.dumps(key).encode()).hexdigest()[:16]
    file_name = f"{spec.name.replace('/', '-')}-{spec.quant}-{digest}.gguf"
    layers, core_layers, width, _, experts, experts_used = own
    plan = BenchModel(
        reference=reference_of(spec),
        path=core_path if is_core else cache_dir() / "models" / file_name,
        size_bytes=core.header.file_bytes if is_core else file_bytes(fields, tensors),
        parameters=sum(prod(tensor.shape) for tensor in tensors),
        architecture=architecture,
        layers=layers,
        core_layers=core_layers,
        feed_forward=width,
        experts=experts,
        experts_used=experts_used,
        quant=spec.quant,
        timing_only=spec.timing_only,
        in_place=is_core,
    )
    return plan, fields, tensors


@dataclass(frozen=True)
class Core:
    """One shipped core, as its manifest entry describes it."""

    name: str
    file: str
    sha256: str
    architecture: str
    parameters: int
    quantization: str
    role: str
    training_seed: int
    training_tokens: int

    @property
    def path(self) -> Path:
        """Where the GGUF file lies."""
        return _FOLDER / self.file

    def is_intact(self) -> bool:
        """True if the file is, byte for byte, the one that the manifest speaks of."""
        return hashlib.sha256(self.path.read_bytes()).hexdigest() == self.sha256


@cache
def shipped() -> dict[str, Core]:
    """All cores by name, in the order of the manifest."""
    entries = json.loads((_FOLDER / "cores.json").read_text(encoding="utf-8"))["cores"]
    return {entry["name"]: Core(**entry) for entry in entries}
