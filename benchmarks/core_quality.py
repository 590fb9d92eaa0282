"""Measure how good the shipped cores are, with the embedded llama.cpp, and print the tables of docs/bench-models.md.

    python benchmarks/core_quality.py [--prompts 48] [--only acceptance repetition perplexity]

Acceptance is llama.cpp's own count, accepted over drafted tokens, for greedy generation after held-out prompts.
Speeds are not measured here, so other load on the machine does not matter.
"""

from __future__ import annotations

import argparse
import importlib
import json
import multiprocessing
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import gguf
import httpx
import numpy as np

from specmeter.llama_binding.context import Context
from specmeter.llama_binding.model import Model
from specmeter.record import EngineSettings

ROOT = Path(__file__).parents[1]
CORES = ROOT / "src" / "specmeter" / "models" / "cores"
WORKLOADS = ROOT / "src" / "specmeter" / "workloads" / "bench"
KINDS = ("fact", "code", "reason", "zh", "edit")
TARGETS, DRAFTS = ("dense", "moe"), ("draft-small", "draft-large")
HEADS = {"hybrid-mtp": "MTP", "hybrid-eagle3": "EAGLE3", "hybrid-dflash": "DFLASH"}
"""Heads of the hybrid target -> method; MTP lies within its file."""
PAIRS = [
    *((target, draft) for target in TARGETS for draft in DRAFTS),
    *(("hybrid", it) for it in ("draft-small", *HEADS)),
]
LADDER = ("F16", "BF16", "Q8_0", "Q5_1", "Q5_0", "Q4_1", "Q4_0")
GAMMA, ACCEPTANCE_TOKENS, REPETITION_TOKENS = 4, 128, 256


def prompts(kind: str, count: int) -> list[str]:
    """The first held-out prompts of a kind."""
    lines = (WORKLOADS / f"{kind}.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["text"] for line in lines[:count]]


def _serve(channel: Connection, target: str, draft: str | None) -> None:
    """The body of the child process: one server, until the parent hangs up."""
    xllamacpp: Any = importlib.import_module("xllamacpp")
    params = xllamacpp.CommonParams()
    params.model.path = str(CORES / f"{target}.gguf")
    params.n_ctx, params.n_parallel, params.cpuparams.n_threads = 4096, 1, 1
    params.fit_params, params.warmup, params.verbosity = False, False, 0
    if draft:
        method = f"COMMON_SPECULATIVE_TYPE_DRAFT_{HEADS.get(draft, 'SIMPLE')}"
        params.speculative.types = [getattr(xllamacpp.common_speculative_type, method)]
        if HEADS.get(draft) == "MTP":
            params.load_mtp = True
        else:
            params.speculative.draft.mparams.path = str(CORES / f"{draft}.gguf")
        params.speculative.draft.n_max, params.speculative.draft.n_min = GAMMA, 0
    server = xllamacpp.Server(params)
    channel.send(server.listening_address)
    channel.recv()


@contextmanager
def serving(target: str, draft: str | None) -> Iterator[httpx.Client]:
    """An HTTP client to a server in a process of its own."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    child = context.Process(target=_serve, args=(theirs, target, draft), daemon=True)
    child.start()
    try:
        with httpx.Client(base_url=ours.recv(), timeout=300) as client:
            yield client
    finally:
        ours.send(None)
        child.join(20)
        child.kill()


def complete(client: httpx.Client, prompt: str, tokens: int) -> dict[str, Any]:
    """Greedy text after a prompt: the answer of `/completion`."""
    wish = {"prompt": prompt, "n_predict": tokens, "temperature": 0, "cache_prompt": False, "return_tokens": True}
    answer = client.post("/completion", json=wish)
    answer.raise_for_status()
    return answer.json()


def acceptance(target: str, draft: str, count: int) -> dict[str, float]:
    """Accepted over drafted tokens, pooled over the prompts of each kind."""
    rates: dict[str, float] = {}
    with serving(target, draft) as client:
        for kind in KINDS:
            times = [complete(client, p, ACCEPTANCE_TOKENS)["timings"] for p in prompts(kind, count)]
            drafted = sum(t.get("draft_n", 0) for t in times)
            rates[kind] = sum(t.get("draft_n_accepted", 0) for t in times) / max(1, drafted)
    return rates


def most_repeated(tokens: list[int], length: int = 8) -> int:
    """How often the commonest run of `length` tokens occurs."""
    runs = Counter(tuple(tokens[i : i + length]) for i in range(len(tokens) - length + 1))
    return max(runs.values(), default=0)


def repetition(target: str, count: int) -> dict[str, tuple[float, float]]:
    """Per kind: share of prompts where no 8-gram occurs more than 3 times, and share that reach all 256 tokens."""
    shares: dict[str, tuple[float, float]] = {}
    with serving(target, None) as client:
        for kind in KINDS:
            texts = [complete(client, p, REPETITION_TOKENS)["tokens"] for p in prompts(kind, count)]
            calm = sum(most_repeated(text) <= 3 for text in texts)
            full = sum(len(text) >= REPETITION_TOKENS for text in texts)
            shares[kind] = (calm / len(texts), full / len(texts))
    return shares


def requantized(source: Path, quantization: str, folder: Path) -> Path:
    """A copy of a GGUF file whose matrices are stored in another quantization."""
    reader = gguf.GGUFReader(source)
    kind = gguf.GGMLQuantizationType[quantization]
    path = folder / f"{source.stem}-{quantization}.gguf"
    architecture = reader.fields["general.architecture"].contents()
    writer = gguf.GGUFWriter(path, architecture)
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name in ("general.architecture", "general.file_type"):
            continue
        inner = field.types[1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(name, field.contents(), field.types[0], inner)
    writer.add_file_type(gguf.LlamaFileType[f"MOSTLY_{quantization}"])
    for tensor in reader.tensors:
        if tensor.tensor_type == gguf.GGMLQuantizationType.F32:
            writer.add_tensor(tensor.name, np.array(tensor.data))
        else:
            weight = gguf.dequantize(tensor.data, tensor.tensor_type)
            writer.add_tensor(tensor.name, gguf.quantize(weight, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def perplexity(path: Path, window: int = 512) -> float:
    """Perplexity of the held-out text; the first quarter of each window only gives context."""
    text = (WORKLOADS / "heldout.txt").read_text(encoding="utf-8")
    surprise: list[np.ndarray] = []
    settings = EngineSettings(context=window, batch=window, ubatch=window)
    with Model(path) as model, Context(model, settings, threads=1, rows=window) as context:
        tokens = model.tokenize(text, add_special=False, parse_special=False)
        for start in range(0, len(tokens) - window, window):
            piece = tokens[start : start + window]
            context.cut(0)
            logits = context.decode(piece, "all")[:-1].astype(np.float64)
            logits -= logits.max(-1, keepdims=True)
            chosen = logits[np.arange(window - 1), piece[1:]]
            surprise.append((np.log(np.exp(logits).sum(-1)) - chosen)[window // 4 :])
    return float(np.exp(np.concatenate(surprise).mean()))


def _row(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"


def print_acceptance(count: int) -> None:
    """Acceptance of every draft with every target, and of the hybrid's heads."""
    print(_row("target", "draft", *KINDS, "mean"), _row(*["---"] * 8), sep="\n")
    for target, draft in PAIRS:
        rates = acceptance(target, draft, count)
        mean = sum(rates.values()) / len(rates)
        print(_row(target, draft, *(f"{rates[k]:.3f}" for k in KINDS), f"{mean:.3f}"), flush=True)


def print_repetition(count: int) -> None:
    """Loops and early ends of greedy text."""
    print(_row("target", "", *KINDS), _row(*["---"] * 7), sep="\n")
    for target in TARGETS:
        shares = repetition(target, count)
        print(_row(target, "no 8-gram more than 3 times", *(f"{shares[k][0]:.0%}" for k in KINDS)))
        print(_row(target, "reaches 256 tokens", *(f"{shares[k][1]:.0%}" for k in KINDS)), flush=True)


def print_perplexity() -> None:
    """The quantization ladder of the dense core, and the other cores as they are shipped."""
    print(_row("core", "quantization", "perplexity", "against F16"), _row(*["---"] * 4), sep="\n")
    with tempfile.TemporaryDirectory() as folder:
        base = 0.0
        for quantization in LADDER:
            value = perplexity(requantized(CORES / "dense.gguf", quantization, Path(folder)))
            base = base or value
            print(_row("dense", quantization, f"{value:.4f}", f"{value / base - 1:+.2%}"), flush=True)
    for name in ("moe", "draft-large", "draft-small"):
        print(_row(name, "as shipped", f"{perplexity(CORES / f'{name}.gguf'):.4f}", ""), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompts", type=int, default=48, help="prompts of each kind (default: all 48)")
    parts = ("acceptance", "repetition", "perplexity")
    parser.add_argument("--only", nargs="+", choices=parts, default=parts)
    chosen = parser.parse_args()
    if "acceptance" in chosen.only:
        print_acceptance(chosen.prompts)
    if "repetition" in chosen.only:
        print_repetition(chosen.prompts)
    if "perplexity" in chosen.only:
        print_perplexity()


if __name__ == "__main__":
    main()
