"""Does specmeter's baseline decode rate agree with bare forwards over the same tokens, and with llama-bench?

    specmeter engines build                                  once: llama-server and llama-bench of one build
    uv run python benchmarks/fidelity.py [BIN_FOLDER] [--model bench:dense-200m] [--pairs 9]

llama-bench decodes random tokens and cannot be given others; a server generates text. On a mixture of experts these are
two different things to measure, so each is held against bare forwards over its own tokens, one after the other through
llama.cpp's C interface (the portable embedded wheel's). In turn:

    llama-bench     `-p 0 -n N`: N random tokens into an empty context
    random          bare forwards over N random tokens, drawn as llama-bench draws them, into an empty context
    native          a specmeter session: fresh server, excluded warm-up, one request of N tokens after a short prompt,
                    the answer in one piece (`stream_tokens: false`)
    text            bare forwards over the very tokens that this request gave, after the same prompt
    streamed, embedded   the native server with every token streamed; the embedded one with the answer in one piece

Bare forwards choose no tokens and serve no client. The targets: native / text and random / llama-bench are 1 +- 0.02
once the two builds are told apart (embedded / native). The ratio native / llama-bench compares text with random tokens;
it is shown since it was once taken for fidelity.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import statistics
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from specmeter.engines import Engine, Launch
from specmeter.engines.llama_cpp.engine import EmbeddedEngine, NativeEngine
from specmeter.llama_binding.context import Context
from specmeter.llama_binding.model import Model
from specmeter.models.reference import resolve
from specmeter.numbers.rates import decode_rate
from specmeter.probe.routing import draw
from specmeter.record import Arm, EngineSettings, Generation, ModelIdentity, Prompt, Reply
from specmeter_studies.quality.native import find_tool

TEXT = "def total_of_values(values):\n"


def llama_bench(binary: Path, model: ModelIdentity, tokens: int, threads: int) -> float:
    """Decode rate in tok/s that llama-bench reports for one repetition after its own warm-up."""
    command = [str(binary), "-m", model.path, "-p", "0", "-n", str(tokens), "-r", "1", "-t", str(threads), "-o", "json"]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return float(json.loads(output)[0]["avg_ts"])


def specmeter(
    engine: Engine, model: ModelIdentity, tokens: int, threads: int, scratch: Path, *, stream: bool = False
) -> Reply:
    """One measured request, as a run measures it."""
    settings = EngineSettings(threads=threads, context=1024, stream_tokens=stream)
    arm = Arm(id="none", target="target", role="baseline", engine=settings)
    prompt = Prompt(id="p", workload="w", kind="code", text=TEXT, sha256=hashlib.sha256(TEXT.encode()).hexdigest())
    with engine.start(Launch(arm, model, None, scratch / "server.log")) as session:
        session.generate(prompt, Generation(max_tokens=16))
        return session.generate(prompt, Generation(max_tokens=tokens))


def rate(reply: Reply) -> float:
    """Decode rate in tok/s."""
    found = decode_rate(reply.timings)
    if found is None:
        raise SystemExit("the engine generated nothing")
    return found


def bare(context: Context, before: Sequence[int], tokens: Sequence[int]) -> float:
    """tok/s of forwards over `tokens` one by one, after `before` were read; once before that for warming up."""
    for count in (16, len(tokens)):
        context.cut(0)
        if before:
            context.extend(before)
        started = time.perf_counter()
        for token in tokens[:count]:
            context.decode([token])
        elapsed = time.perf_counter() - started
    return len(tokens) / elapsed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin_folder", type=Path, nargs="?", help="of llama-server and llama-bench; default: last built")
    parser.add_argument("--model", default="bench:dense-200m")
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    model = resolve("target", args.model, base_dir=Path())
    programs: Path = args.bin_folder or find_tool("llama-bench", "auto").parent
    native, embedded = NativeEngine(programs / "llama-server"), EmbeddedEngine()
    rates: dict[str, list[float]] = {}
    settings = EngineSettings(threads=args.threads, context=1024)
    with (
        tempfile.TemporaryDirectory() as name,
        Model(Path(model.path)) as opened,
        Context(opened, settings, threads=args.threads, rows=1) as context,
    ):
        scratch = Path(name)
        before = opened.tokenize(TEXT, add_special=True, parse_special=False)
        random = draw(opened.vocabulary_size, args.tokens)
        for _ in range(args.pairs):
            answer = specmeter(native, model, args.tokens, args.threads, scratch)
            # The first token comes from the prompt's forward, and the last one is in none.
            generated = answer.token_ids[:-1]
            turn = {
                "llama-bench": llama_bench(programs / "llama-bench", model, args.tokens, args.threads),
                "random": bare(context, (), random),
                "native": rate(answer),
                "text": bare(context, before, generated),
                "streamed": rate(specmeter(native, model, args.tokens, args.threads, scratch, stream=True)),
                "embedded": rate(specmeter(embedded, model, args.tokens, args.threads, scratch)),
            }
            print("   ".join(f"{what} {value:7.2f}" for what, value in turn.items()), flush=True)
            for what, value in turn.items():
                rates.setdefault(what, []).append(value)
    for what, over in (
        ("native", "text"),
        ("embedded", "text"),
        ("random", "llama-bench"),
        ("random", "text"),
        ("streamed", "native"),
        ("embedded", "native"),
        ("native", "llama-bench"),
    ):
        values = [one / other for one, other in zip(rates[what], rates[over], strict=True)]
        low, middle, high = min(values), statistics.median(values), max(values)
        print(f"{what + ' / ' + over:24} median {middle:.3f}  (from {low:.3f} to {high:.3f})")


if __name__ == "__main__":
    main()
