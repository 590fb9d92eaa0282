"""Does specmeter's baseline decode rate agree with llama-bench, on the same build and model?

    uv run python scripts/build_native.py                    once: llama-server and llama-bench of one build
    uv run python benchmarks/fidelity.py BIN_FOLDER [--model bench:dense-200m] [--pairs 9]

Alternates `llama-bench -p 0 -n N` with a specmeter session (fresh server, excluded warm-up, one request of N tokens
after a short prompt) and prints ratios turn by turn: specmeter / llama-bench with the answer in one piece
(`stream_tokens: false`; the target is 1 +- 0.02), what streaming every token costs, and what the portable embedded
wheel costs.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import statistics
import subprocess
import tempfile
from pathlib import Path

from specmeter.engines import Engine, Launch
from specmeter.engines.llama_embedded import EmbeddedEngine
from specmeter.engines.llama_native import NativeEngine
from specmeter.models.reference import resolve
from specmeter.rates import decode_rate
from specmeter.record import Arm, EngineSettings, Generation, ModelIdentity, Prompt

TEXT = "def total_of_values(values):\n"


def llama_bench(binary: Path, model: ModelIdentity, tokens: int, threads: int) -> float:
    """Decode rate in tok/s that llama-bench reports for one repetition after its own warm-up."""
    command = [str(binary), "-m", model.path, "-p", "0", "-n", str(tokens), "-r", "1", "-t", str(threads), "-o", "json"]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return float(json.loads(output)[0]["avg_ts"])


def specmeter(
    engine: Engine, model: ModelIdentity, tokens: int, threads: int, scratch: Path, *, stream: bool = False
) -> float:
    """Decode rate in tok/s of one measured request, as a run measures it."""
    settings = EngineSettings(threads=threads, context=1024, stream_tokens=stream)
    arm = Arm(id="none", target="target", role="baseline", engine=settings)
    prompt = Prompt(id="p", workload="w", kind="code", text=TEXT, sha256=hashlib.sha256(TEXT.encode()).hexdigest())
    with engine.start(Launch(arm, model, None, scratch / "server.log")) as session:
        session.generate(prompt, Generation(max_tokens=16))
        rate = decode_rate(session.generate(prompt, Generation(max_tokens=tokens)).timings)
    if rate is None:
        raise SystemExit("the engine generated nothing")
    return rate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin_folder", type=Path, help="folder with llama-server and llama-bench of one build")
    parser.add_argument("--model", default="bench:dense-200m")
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    model = resolve("target", args.model, base_dir=Path())
    native, embedded = NativeEngine(args.bin_folder / "llama-server"), EmbeddedEngine()
    ratios: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for _ in range(args.pairs):
            reference = llama_bench(args.bin_folder / "llama-bench", model, args.tokens, args.threads)
            ours = specmeter(native, model, args.tokens, args.threads, Path(scratch))
            streamed = specmeter(native, model, args.tokens, args.threads, Path(scratch), stream=True)
            wheel = specmeter(embedded, model, args.tokens, args.threads, Path(scratch))
            print(
                f"llama-bench {reference:7.2f}   native {ours:7.2f}   streamed {streamed:7.2f}   embedded {wheel:7.2f}",
                flush=True,
            )
            ratios.setdefault("specmeter native / llama-bench", []).append(ours / reference)
            ratios.setdefault("streamed / in one piece", []).append(streamed / ours)
            ratios.setdefault("embedded / native", []).append(wheel / ours)
    for name, values in ratios.items():
        print(f"{name:32} median {statistics.median(values):.3f}  (from {min(values):.3f} to {max(values):.3f})")


if __name__ == "__main__":
    main()
