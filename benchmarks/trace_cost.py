"""What observing costs the engine: step lines in the log (LLAMA_TRACE), and streaming tokens as they come.

Two servers of the same model stand side by side, one of them at work at a time, in the order A B B A. Two figures for
each pair of requests: the engine's own decode time, and the CPU time of the server's threads that do not decode (log
writer, HTTP), by the kernel's nanosecond clocks (Linux). On a busy machine only the second one is sharp; it is what
decoding loses where every core decodes, and nothing where a core is free.

    uv run python benchmarks/trace_cost.py [--model bench:moe-400m] [--draft bench:draft-small] [--pairs 20]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from specmeter.engines import Launch, load_engine
from specmeter.engines.llama_cpp.server import LlamaSession
from specmeter.models.reference import resolve
from specmeter.record import Arm, EngineSettings, Generation, ModelIdentity, Prompt

TEXT = "Write down everything that the people of the valley know about the bridge, the mill and the old lighthouse."
PROMPT = Prompt(id="p", workload="w", kind="fact", text=TEXT, sha256="")
Measured = tuple[float, float]
"""Decode time by the engine's clock, and CPU time of the server beside decoding, both in ms per request."""


def session(
    args: argparse.Namespace, folder: Path, name: str, *, draft: ModelIdentity | None, trace: bool, stream: bool
) -> LlamaSession:
    arm = Arm(
        id=name,
        target="target",
        methods=("draft-simple",) if draft else ("none",),
        draft="draft" if draft else None,
        gamma=args.gamma if draft else None,
        engine=EngineSettings(context=1024, threads=args.threads, trace_steps=trace, stream_tokens=stream),
    )
    launch = Launch(arm, args.model, draft, folder / f"{name}.log")
    opened = load_engine("native" if args.binary else "embedded", binary=args.binary).start(launch)
    assert isinstance(opened, LlamaSession)
    return opened


def request(session: LlamaSession, args: argparse.Namespace) -> Measured:
    pid = session.facts.pids[-1]
    before = thread_times_ms(pid)
    reply = session.generate(PROMPT, Generation(max_tokens=args.tokens))
    time.sleep(0.02)  # the log writer and HTTP threads come to rest
    spent = sorted(after - before.get(thread, 0.0) for thread, after in thread_times_ms(pid).items())
    return reply.timings.predicted_ms, sum(spent[: -session.facts.resolved["threads"]])


def thread_times_ms(pid: int) -> dict[str, float]:
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return {task.name: int((task / "schedstat").read_text().split()[0]) / 1e6 for task in tasks}


def compare(label: str, quiet: LlamaSession, observed: LlamaSession, args: argparse.Namespace) -> None:
    """Print how much more the observed session takes."""
    for warmed_up in (quiet, observed):
        request(warmed_up, args)
    pairs: list[tuple[Measured, Measured]] = []
    for pair in range(args.pairs):
        late = request(observed, args) if pair % 2 else None
        first = request(quiet, args)
        pairs.append((first, late or request(observed, args)))
    values = np.array(pairs)
    decode = (values[:, 1, 0] / values[:, 0, 0] - 1) * 100
    beside = (values[:, 1, 1] - values[:, 0, 1]) * 1e3 / args.tokens
    share = np.median(beside) * args.tokens / 1e3 / np.median(values[:, 0, 0]) * 100
    print(f"{label}: decode time {interval(decode)} %; beside decoding {interval(beside)} us/token = {share:.2f} %")
    sys.stdout.flush()


def interval(values: np.ndarray) -> str:
    """Median with its 95 % bootstrap interval."""
    resampled = np.median(values[np.random.default_rng(1).integers(0, len(values), (4000, len(values)))], axis=1)
    low, high = np.percentile(resampled, (2.5, 97.5))
    return f"{np.median(values):+.2f} [{low:+.2f}, {high:+.2f}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="bench:moe-400m")
    parser.add_argument("--draft", default="bench:draft-small")
    parser.add_argument("--gamma", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--binary", help="a native llama-server instead of the embedded one")
    args = parser.parse_args()
    args.model, args.draft = (resolve(it, it, base_dir=Path()) for it in (args.model, args.draft))
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for label, draft in (("baseline", None), (f"draft-simple, gamma {args.gamma}", args.draft)):
            with (
                session(args, folder, "quiet", draft=draft, trace=False, stream=False) as quiet,
                session(args, folder, "traced", draft=draft, trace=True, stream=False) as traced,
                session(args, folder, "streamed", draft=draft, trace=False, stream=True) as streamed,
            ):
                for observing, observed in (("tracing", traced), ("streaming", streamed)):
                    compare(f"{label}: {observing}", quiet, observed, args)
    print(f"{time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
