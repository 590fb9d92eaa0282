"""Another quantization of a model file: by a native `llama-quantize`, or by this package where it knows the format.

Made files lie in the models cache under a name that depends on the bytes they were made from, on the type and on what
made them. `llama-quantize` mixes formats within a type (Q4_K_M has tensors in Q6_K) and takes another where a row is
not a whole number of 256-element blocks; so what a file really holds is to be read from its header (`ModelFacts`).
The package's own files have one format for all matrices that the source keeps in 16 or 32 bit, and leave vectors,
routers and whatever else the source keeps in F32 as they are.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from specmeter.engines.llama_cpp.tools import binary_libraries, checksums
from specmeter.engines.process import EngineProcess, clean_environment, default_threads
from specmeter.errors import EngineError, ModelError
from specmeter.files import cache_dir, create_once, file_sha256
from specmeter.models.gguf import TYPE_BY_NAME, Header, Tensor, read_parts
from specmeter.models.inflate import CONVERTIBLE, FILE_TYPE, TensorSource, convert, file_bytes, write_gguf

if TYPE_CHECKING:
    from specmeter.models.gguf import Value

Progress = Callable[[int, int], None]

RECIPE = 1
"""Version of what decides a byte of the package's own files; part of their names."""
OWN_TYPES = CONVERTIBLE
"""Types that need no native tool."""
_FLOATS = ("F32", "F16", "BF16")
_CHUNK_ELEMENTS = 1 << 22
_TIMEOUT_S = 7200.0
_POLL_S = 0.2


@dataclass(frozen=True)
class Made:
    """A file that was made, and by what."""

    path: Path
    how: str
    """For people: `llama-quantize build 8240 (abc...) to Q4_K_M from F16`."""


def make(source: Path, kind: str, quantizer: Path | None, progress: Progress | None = None) -> Made:
    """The model at `source` (its first file) as type `kind`, made unless it is in the cache.

    With a `quantizer` (a `llama-quantize`) by that, else here. Raises `ModelError` for a type that cannot be made here
    without one, for a source that is quantized already, and where the disk is full; `EngineError` when the tool fails.
    """
    parts = read_parts(source)
    stored = _stored(parts)
    if stored not in _FLOATS:
        raise ModelError(
            f"{source}: already in {stored}; quantizing it again would add its loss to the new one",
            fix="name the model's F16, BF16 or F32 file",
        )
    if quantizer is not None:
        return _by_tool(source, parts, kind, quantizer, stored)
    if kind not in OWN_TYPES:
        raise ModelError(
            f"{kind} needs a native llama-quantize",
            fix="`specmeter engines build` makes that tool; or give the file itself",
        )
    return _here(parts, kind, stored, progress)


def _stored(parts: tuple[Header, ...]) -> str:
    """The format of most of a model's bytes."""
    amounts: dict[str, int] = {}
    for part in parts:
        for tensor in part.tensors:
            amounts[tensor.type.name] = amounts.get(tensor.type.name, 0) + tensor.bytes
    return max(amounts, key=lambda name: amounts[name], default="nothing")


def _place(source: Path, parts: tuple[Header, ...], kind: str, maker: str) -> Path:
    sums = [file_sha256(part.path) for part in parts]
    digest = hashlib.sha256("\n".join([*sums, kind, maker]).encode()).hexdigest()[:16]
    stem = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "-" for c in source.stem)[:60]
    return cache_dir() / "models" / f"{stem}-to-{kind}-{digest}.gguf"


# --- by llama-quantize -----------------------------------------------------------------------------------------------


def _by_tool(source: Path, parts: tuple[Header, ...], kind: str, quantizer: Path, stored: str) -> Made:
    # The work is done in libraries beside the tool: their bytes decide the file as much as its own.
    maker = "\n".join([file_sha256(quantizer), *sorted(checksums(binary_libraries(quantizer)).values())])
    path = _place(source, parts, kind, maker)
    digest = hashlib.sha256(maker.encode()).hexdigest()[:8]
    how = f"{quantizer.name} ({digest}) to {kind} from {stored}"
    if path.is_file():
        return Made(path, how)
    (cache_dir() / "models").mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="quantize-", dir=cache_dir() / "models") as name:
        made = Path(name) / "made.gguf"
        _run(quantizer, source, made, kind)
        size = made.stat().st_size
        # Renaming would do, but two processes may both have made it: only one file is ever published.
        create_once(path, size, partial(_copy, made))
    return Made(path, how)


def _run(quantizer: Path, source: Path, made: Path, kind: str) -> None:
    argv = (str(quantizer), str(source), str(made), kind, str(default_threads()))
    log = made.with_name("output.txt")
    process = EngineProcess(argv, env=clean_environment(trace=False), log_path=log)
    deadline = time.monotonic() + _TIMEOUT_S
    try:
        while (code := process.wait(_POLL_S)) is None and time.monotonic() < deadline:
            pass
    finally:
        process.close()
    if code != 0 or not made.is_file():
        lines = log.read_bytes()[-20_000:].decode("utf-8", "replace").splitlines()
        tail = "".join(f"\n  | {line.strip()[:300]}" for line in [line for line in lines if line.strip()][-5:])
        said = "ran for two hours" if code is None else f"ended with exit code {code}"
        raise EngineError(f"{quantizer} {said} while it made {kind} of {source}{tail}", fix="run it by hand to see why")


def _copy(made: Path, file: Any) -> None:
    with made.open("rb") as stream:
        shutil.copyfileobj(stream, file, 1 << 22)


# --- here ------------------------------------------------------------------------------------------------------------


def _here(parts: tuple[Header, ...], kind: str, stored: str, progress: Progress | None) -> Made:
    header, *others = parts
    if others:
        raise ModelError(
            f"{header.path}: is split over {len(parts)} files", fix="join them with llama-gguf-split --merge"
        )
    path = _place(header.path, parts, kind, f"specmeter {RECIPE}")
    metadata: dict[str, Value] = dict(header.metadata)
    metadata |= {"general.file_type": FILE_TYPE[kind], "general.quantization_version": 2}
    tensors: list[TensorSource] = []
    for it in header.tensors:
        target = _target(it, kind)
        tensors.append(TensorSource(it.name, it.shape[::-1], target, partial(_chunks, header.path, it, target)))
    write = partial(write_gguf, metadata=metadata, tensors=tensors, progress=progress)
    return Made(create_once(path, file_bytes(metadata, tensors), write), f"specmeter to {kind} from {stored}")


def _target(tensor: Tensor, kind: str) -> str:
    """Its own format for vectors, for what is in F32 beside a 16-bit model, and for rows that are no whole blocks."""
    own, row = tensor.type.name, next(iter(tensor.shape), 1)
    kept = len(tensor.shape) < 2 or own not in _FLOATS or _precise(tensor) or row % TYPE_BY_NAME[kind.lower()].block
    return own if kept else kind


def _precise(tensor: Tensor) -> bool:
    # Routers, convolutions and recurrent parameters: llama.cpp keeps them in F32 too.
    return tensor.type.name == "F32" and any(
        part in tensor.name for part in ("ffn_gate_inp", "ssm_", "_norm", "conv1d", "time_mix")
    )


def _chunks(path: Path, tensor: Tensor, target: str) -> Iterator[memoryview]:
    row = tensor.type.row_bytes(tensor.shape[0])
    rows = tensor.elements // max(1, tensor.shape[0])
    step = max(1, _CHUNK_ELEMENTS // max(1, tensor.shape[0]))
    for start in range(0, rows, step):
        count = min(step, rows - start)
        data: Any = np.fromfile(path, np.uint8, count=count * row, offset=tensor.offset + start * row)
        made = convert(data.reshape(count, row), tensor.type.name, target)
        yield np.ascontiguousarray(made).reshape(-1).data
