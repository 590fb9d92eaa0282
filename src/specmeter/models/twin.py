"""Twins: a dense model as an MoE that computes the same, `twin:16x2:REFERENCE`.

Every feed-forward network becomes E copies of itself behind a router that picks K of them. Their weights sum to 1, so
the sum of K equal outputs is the output of the dense network, up to the rounding of K products and their sum. Text,
drafts and acceptance stay the same; what changes is which weights a forward reads. With K = 1 a token reads as many
weights as before. With K > 1 it reads more of them; `twin:dense2:REFERENCE` is the control without routing: two copies
side by side in one network, with their outputs halved.

Weights are copied byte for byte in their own format. Qwen2 becomes the architecture llama with biases. In
llama.cpp's Qwen2-MoE the weights of the chosen experts do not sum to 1, and a shared expert is required. The rows of Q
and K are put into llama's order for that (pairs of neighbours, where Qwen2 has halves of a head).

What a twin does not model: trained experts differ, and trained routers prefer experts by meaning. Its experts are
equal, so which one is chosen changes only the weights that are read.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from specmeter.cache import cache_dir, create_once, file_sha256, write_new
from specmeter.errors import ModelError
from specmeter.models.facts import MAX_EXPERTS
from specmeter.models.gguf import TYPE_BY_NAME, Metadata, Tensor, read_parts
from specmeter.models.gguf_writer import Fields, TensorSource, file_bytes, write_gguf
from specmeter.models.routers import RANDOM, ROUTERS, calibrated, random_router
from specmeter.models.weights import flat
from specmeter.workloads.texts import halves

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Bytes = NDArray[np.uint8]

PREFIX = "twin:"
VERSION = 1
"""Of everything here and in `routers` that decides a byte of the result; part of the name in the cache."""
MAX_COPIES = 16

_FORM = re.compile(r"(?P<experts>[0-9]{1,4})x(?P<active>[0-9]{1,4})|dense(?P<copies>[0-9]{1,2})")
_REFERENCE = re.compile(rf"twin:(?P<form>{_FORM.pattern})(?:\?router=(?P<router>[^:]*))?:(?P<parent>.+)", re.DOTALL)

_ARCHITECTURES = {"llama": "llama", "qwen2": "llama", "qwen3": "qwen3moe"}
"""Architecture of the dense model -> that of its twin."""
_NETWORK = re.compile(r"blk\.(\d+)\.ffn_(gate|up|down)\.weight")
_QUERY_KEY = re.compile(r"blk\.\d+\.attn_([qk])\.(weight|bias)")
_UNKNOWN = re.compile(r"blk\.\d+\.(ffn_(gate|up|down)\.bias|attn_qkv\..*|ffn_.*exps.*|ffn_.*\.scale)")
_SCALES = {
    "Q4_0": (0,), "Q4_1": (0, 2), "Q5_0": (0,), "Q5_1": (0, 2), "Q8_0": (0,), "IQ4_NL": (0,), "IQ4_XS": (0,),
    "Q2_K": (80, 82), "Q3_K": (108,), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,),
}  # fmt: skip
"""Format -> where in a block its 16-bit scales (and offsets) lie, in bytes (ggml-common.h)."""
_CHUNK_BYTES = 8 << 20


@dataclass(frozen=True)
class TwinSpec:
    """A twin that is asked for; made by `parse` or `of`, which have checked it."""

    parent: str
    """Reference of the dense model."""
    experts: int
    """E: copies of each feed-forward network to choose from; 1 for a dense control."""
    active: int
    """K: copies that a token reads."""
    router: str = RANDOM
    dense: bool = False
    """Without a router: the copies lie side by side in one network."""

    @property
    def form(self) -> str:
        """As in the reference: `16x2` or `dense2`."""
        return f"dense{self.active}" if self.dense else f"{self.experts}x{self.active}"

    @property
    def reference(self) -> str:
        """What `parse` makes this of."""
        router = "" if self.router == RANDOM else f"?router={self.router}"
        return f"{PREFIX}{self.form}{router}:{self.parent}"


def parse(reference: str) -> TwinSpec:
    """The twin that `reference` asks for. Raises `ModelError` for anything else than `twin:ExK[?router=R]:REFERENCE`
    or `twin:denseK:REFERENCE`."""
    match = _REFERENCE.fullmatch(reference)
    if match is None:
        raise ModelError(
            f"{reference[:300]!r} is not a twin",
            fix="write twin:16x2:MODEL (16 experts, 2 active) or twin:dense2:MODEL",
        )
    return of(match["parent"], match["form"], match["router"] or RANDOM)


def of(parent: str, form: str, router: str = RANDOM) -> TwinSpec:
    """The twin of `parent` of the form `16x2` or `dense2`. Raises `ModelError` for numbers that cannot be made."""
    match = _FORM.fullmatch(form)
    if match is None:
        raise ModelError(
            f"{form[:80]!r} is not a form of a twin",
            fix=f"write 16x2 (16 experts, 2 active) or dense2, with at most {MAX_EXPERTS} experts",
        )
    if parent.startswith(PREFIX):
        raise ModelError(f"{parent[:300]}: is a twin already", fix="make the twin of the dense model")
    if router not in ROUTERS:
        raise ModelError(f"router={router[:80]!r}: no such router", fix=f"use {', '.join(ROUTERS)}")
    if copies := match["copies"]:
        if router != RANDOM or int(copies) not in (2, 4, 8, MAX_COPIES):
            raise ModelError(
                f"twin {form}: a dense control has 2, 4, 8 or {MAX_COPIES} copies and no router",
                fix="use 2, 4, 8 or 16 copies, and no router",
            )
        return TwinSpec(parent, 1, int(copies), dense=True)
    experts, active = int(match["experts"]), int(match["active"])
    if not 1 <= active <= experts <= MAX_EXPERTS:
        raise ModelError(
            f"twin {form}: {experts} experts of which {active} are active",
            fix=f"use 1 to {MAX_EXPERTS} experts, and no more active ones than there are",
        )
    return TwinSpec(parent, experts, active, router)


def build(
    spec: TwinSpec, parent: Path, *, out: Path | None = None, progress: Callable[[int, int], None] | None = None
) -> Path:
    """The twin's file: in the cache, made first if it is not there; or a new one at `out`.

    `parent` is the dense model's file. `progress(done, total)` receives the bytes written. Raises `ModelError` for a
    model that has no twin, or when the disk cannot hold it; `EngineError` when a router that is fitted needs the
    model's activations and llama.cpp fails.
    """
    path, fields, tensors = _prepare(spec, parent)
    made = partial(write_gguf, metadata=fields, tensors=tensors, progress=progress)
    return (create_once if out is None else write_new)(out or path, file_bytes(fields, tensors), made)


def peek(spec: TwinSpec, parent: Path) -> tuple[int, bool]:
    """(bytes of the file, whether it is made already), from the headers alone. Raises `ModelError` as `build`."""
    path, fields, tensors = _prepare(spec, parent)
    return file_bytes(fields, tensors), path.is_file()


def _prepare(spec: TwinSpec, parent: Path) -> tuple[Path, Fields, list[TensorSource]]:
    parts = read_parts(parent)
    model = _Parent(spec, parent, Metadata(parts[0]), {it.name: (p.path, it) for p in parts for it in p.tensors})
    model.check()
    sums = [file_sha256(part.path) for part in parts]
    key = json.dumps([VERSION, sums, spec.form, spec.router])
    name = f"{parent.stem}-{spec.form}-{hashlib.sha256(key.encode()).hexdigest()[:16]}.gguf"
    return cache_dir() / "models" / name, model.metadata(sums[0]), list(model.tensors())


@dataclass(frozen=True)
class _Parent:
    spec: TwinSpec
    path: Path
    about: Metadata
    found: Mapping[str, tuple[Path, Tensor]]
    """Name -> file and entry of each tensor."""

    @property
    def architecture(self) -> str:
        return self.about.architecture or ""

    def check(self) -> None:
        """Raise `ModelError` when the model has no twin that computes the same."""
        if self.architecture not in _ARCHITECTURES:
            known = ", ".join(_ARCHITECTURES)
            gemma = " (llama.cpp's MoE of Gemma has another shape)" if self.architecture.startswith("gemma") else ""
            self._refuse(f"architecture {self.architecture[:40]!r} has no twin{gemma}", f"use one of {known}")
        if self.about.integer(".expert_count"):
            self._refuse("is an MoE already", "use a dense model")
        if odd := next((name for name in self.found if _UNKNOWN.fullmatch(name)), None):
            self._refuse(f"has the tensor {odd}, which llama.cpp's MoE lacks", "use another model")
        width = self.about.integer(".feed_forward_length")
        if not width or not all(f"blk.{it}.ffn_down.weight" in self.found for it in range(self._layers)):
            self._refuse("its layers do not all have a feed-forward network of one width", "use another model")
        formats = {it.type.name for name, (_, it) in self.found.items() if _NETWORK.fullmatch(name)}
        if self.spec.dense and (unknown := formats - set(_SCALES) - {"F32", "F16"}):
            self._refuse(f"outputs in {', '.join(sorted(unknown))} cannot be halved here", "use another format")

    def _refuse(self, what: str, fix: str) -> None:
        raise ModelError(f"{self.path}: {what}", fix=fix)

    @property
    def _layers(self) -> int:
        return self.about.integer(".block_count") or 0

    def metadata(self, sha256: str) -> Fields:
        """The dense model's metadata under the twin's architecture, and openly what it is and was made from."""
        spec, old = self.spec, self.architecture
        new = old if spec.dense else _ARCHITECTURES[old]
        fields: dict[str, Any] = {}
        for key, value in self.about.header.metadata.items():
            if not key.startswith(("split.", "general.size_label")):
                fields[f"{new}.{key.removeprefix(f'{old}.')}" if key.startswith(f"{old}.") else key] = value
        width = self.about.integer(".feed_forward_length") or 0
        name = self.about.text("general.name") or self.path.stem
        fields |= {
            "general.architecture": new,
            "general.name": f"{name} twin {spec.form}",
            "general.description": f"Made from {name} for measuring engines: {self._made}",
            "specmeter.twin": spec.form,
            "specmeter.twin_router": "" if spec.dense else spec.router,
            "specmeter.twin_parent": self.path.name,
            "specmeter.twin_parent_sha256": sha256,
        }
        if spec.dense:
            fields[f"{new}.feed_forward_length"] = width * spec.active
        else:
            fields |= {
                f"{new}.expert_count": spec.experts,
                f"{new}.expert_used_count": spec.active,
                f"{new}.expert_feed_forward_length": width,
            }
        return fields

    @property
    def _made(self) -> str:
        spec = self.spec
        if spec.dense:
            return f"{spec.active} copies of each feed-forward network side by side, outputs divided by {spec.active}."
        return (
            f"{spec.experts} copies of each feed-forward network behind a router ({spec.router}) that picks "
            f"{spec.active}. It computes what the dense model computes."
        )

    def tensors(self) -> Iterator[TensorSource]:
        """The twin's tensors in the order of the dense model's; nothing is read or made yet."""
        spec = self.spec
        text, _ = halves(bench=spec.parent.startswith("bench:"))
        fitted = cache(partial(calibrated, self.path, text, spec.experts, spec.active, spec.router))
        for name, (_, tensor) in self.found.items():
            network, rotated = _NETWORK.fullmatch(name), _QUERY_KEY.fullmatch(name)
            if network and self.spec.dense:
                yield self._wide(tensor, down=network[2] == "down")
            elif network:
                if network[2] == "gate":
                    yield self._router(int(network[1]), tensor.shape[0], fitted)
                stacked = name.replace(".weight", "_exps.weight")
                shape = (self.spec.experts, *tensor.shape[::-1])
                yield TensorSource(stacked, shape, tensor.type.name, partial(self._copies, tensor))
            elif rotated and self.architecture == "qwen2" and not self.spec.dense:
                heads = self.about.integer(".attention.head_count" if rotated[1] == "q" else ".attention.head_count_kv")
                yield TensorSource(name, tensor.shape[::-1], tensor.type.name, partial(self._pairs, tensor, heads or 1))
            else:
                yield TensorSource(name, tensor.shape[::-1], tensor.type.name, partial(self._plain, tensor))

    def _router(self, layer: int, width: int, fitted: Callable[[], Mapping[int, NDArray[np.float32]]]) -> TensorSource:
        spec = self.spec

        def chunks() -> Iterator[memoryview]:
            rows = random_router(layer, spec.experts, width) if spec.router == RANDOM else fitted()[layer]
            yield flat(np.ascontiguousarray(rows, np.float32).view(np.uint8))

        return TensorSource(f"blk.{layer}.ffn_gate_inp.weight", (spec.experts, width), "F32", chunks)

    def _data(self, tensor: Tensor) -> Bytes:
        """uint8 [rows, bytes of a row]."""
        path = self.found[tensor.name][0]
        data: Any = np.fromfile(path, np.uint8, count=tensor.bytes, offset=tensor.offset)
        return data.reshape(-1, tensor.type.row_bytes(tensor.shape[0]))

    def _plain(self, tensor: Tensor) -> Iterator[memoryview]:
        yield flat(self._data(tensor))

    def _copies(self, tensor: Tensor) -> Iterator[memoryview]:
        data = flat(self._data(tensor))
        for _ in range(self.spec.experts):
            yield data

    def _pairs(self, tensor: Tensor, heads: int) -> Iterator[memoryview]:
        """Rows i and i + d/2 of each head become rows 2i and 2i + 1; a bias is a row of numbers, each a row here."""
        data = self._data(tensor)
        rows = data.reshape(tensor.elements, -1) if len(tensor.shape) == 1 else data
        if len(rows) % (2 * heads):
            self._refuse(f"{tensor.name} has {len(rows)} rows, which {heads} heads cannot share", "use another model")
        halves = rows.reshape(heads, 2, len(rows) // heads // 2, -1)
        yield flat(np.ascontiguousarray(halves.swapaxes(1, 2)))

    def _wide(self, tensor: Tensor, *, down: bool) -> TensorSource:
        copies, (columns, rows) = self.spec.active, tensor.shape

        def beside() -> Iterator[memoryview]:
            data = self._data(tensor)
            step = max(1, _CHUNK_BYTES // (copies * data.shape[1]))
            for start in range(0, len(data), step):
                yield flat(np.tile(_divided(data[start : start + step], tensor.type.name, copies), (1, copies)))

        def below() -> Iterator[memoryview]:
            data = flat(self._data(tensor))
            for _ in range(copies):
                yield data

        shape = (rows, columns * copies) if down else (rows * copies, columns)
        return TensorSource(tensor.name, shape, tensor.type.name, beside if down else below)


def _divided(rows: Bytes, kind: str, by: int) -> Bytes:
    """The weights divided by a power of two: exact but for numbers that are almost zero. uint8 [rows, bytes]."""
    if kind == "F32":
        return (rows.view("<f4") / np.float32(by)).astype("<f4").view(np.uint8)
    if kind == "F16":
        return (rows.view("<f2") / np.float16(by)).astype("<f2").view(np.uint8)
    blocks = rows.reshape(-1, TYPE_BY_NAME[kind.lower()].block_bytes).copy()
    for at in _SCALES[kind]:
        scale = np.ascontiguousarray(blocks[:, at : at + 2]).view("<f2") / np.float16(by)
        blocks[:, at : at + 2] = scale.astype("<f2").view(np.uint8)
    return blocks.reshape(rows.shape)
