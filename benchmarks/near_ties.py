"""How far does batch size alone move the gap between a target's two best tokens?

    uv run python benchmarks/near_ties.py [--prompts 5] [--tokens 128] [--only bench:dense ...]

Plain decoding writes a text token by token and notes the probabilities at each place. At every place where the gap
between the two best tokens is small (below 0.15; 0.5 for a real model, on the prompts of studies), and at every
sixteenth, the same is asked again with prompt and text read in one piece. Both answers are the target's; what they
differ by is arithmetic. Prints the table of near ties in NOTEBOOK.md, over places where the gap is below 1; the
last column says how often the other token was the best one then, and by how much at most. Speeds are not measured, so
other load does not matter.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from specmeter import workloads
from specmeter.engines import Launch
from specmeter.engines.llama_cpp.candidates import question
from specmeter.engines.llama_cpp.engine import EmbeddedEngine
from specmeter.engines.llama_cpp.server import LlamaSession
from specmeter.models.reference import resolve
from specmeter.record import Arm, EngineSettings, Prompt
from specmeter.workloads.spec import BenchWorkload, StudiesWorkload

Q8_CACHE = {"kv_type_k": "q8_0", "kv_type_v": "q8_0"}
CASES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("bench:dense", {}),
    ("bench:dense", {"flash_attention": "off"}),
    ("bench:dense", Q8_CACHE),
    ("bench:dense?quant=BF16", {}),
    ("bench:dense?quant=Q8_0", {}),
    ("bench:dense?quant=Q4_0", {}),
    ("bench:moe", {}),
    ("bench:moe", {"flash_attention": "off"}),
    ("bench:moe", Q8_CACHE),
    ("bench:hybrid", {}),
    ("bench:draft-small", {}),
    ("bench:draft-small?quant=Q8_0", {}),
    ("bench:draft-large", {}),
    ("bench:draft-large?quant=Q8_0", {}),
    ("hf:Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF/qwen2.5-coder-1.5b-instruct-q4_k_m.gguf", {}),
)
CLOSE, SHOWN, EVERY = 0.15, 1.0, 16


def tops(session: LlamaSession, text: str, generated: tuple[int, ...], tokens: int) -> tuple[list[int], list[Any]]:
    """Token ids, and for each place {token: logarithm of its probability} of the likeliest."""
    body = question(text, generated, 8, ignore_eos=True) | {"n_predict": tokens}
    answer = session._call("POST", "/completion", body)  # pyright: ignore[reportPrivateUsage]
    places = answer.get("completion_probabilities", [])
    return answer["tokens"], [{it["id"]: it["logprob"] for it in place["top_logprobs"]} for place in places]


def moved(session: LlamaSession, prompt: Prompt, tokens: int, close: float) -> list[tuple[float, float]]:
    """(gap in plain decoding, gap when read in one piece) between the two tokens that plain decoding found best."""
    ids, listed = tops(session, prompt.text, (), tokens)
    if len(listed) < len(ids):  # a token ended within a character: places and ids do not go together
        return []
    found: list[tuple[float, float]] = []
    for at, here in enumerate(listed):
        (best, top), (other, second) = sorted(here.items(), key=lambda item: -item[1])[:2]
        if top - second < close or at % EVERY == 0:
            _, again = tops(session, prompt.text, tuple(ids[:at]), 1)
            if again and best in again[0] and other in again[0]:
                found.append((top - second, again[0][best] - again[0][other]))
    return found


def row(reference: str, settings: dict[str, Any], prompts: tuple[Prompt, ...], tokens: int, scratch: Path) -> str:
    model, close = resolve("target", reference, base_dir=Path()), CLOSE if reference.startswith("bench:") else 0.5
    engine = EngineSettings.model_validate({"context": 1024, "threads": 1} | settings)
    launch = Launch(Arm(id="none", target="target", engine=engine), model, None, scratch / "server.log")
    with EmbeddedEngine().start(launch) as session:
        gaps = np.array([pair for prompt in prompts for pair in moved(session, prompt, tokens, close)])
    near = gaps[gaps[:, 0] < SHOWN]
    shift = np.abs(near[:, 0] - near[:, 1])
    turned = -near[near[:, 1] < 0, 1]
    median, most = np.quantile(shift, (0.5, 0.99))
    what = ", ".join(f"{name} {value}" for name, value in settings.items()) or "default"
    return f"| {reference} | {what} | {len(near)} | {median:.4f} | {most:.3f} | {shift.max():.3f} | {_turns(turned)} |"


def _turns(gaps: Any) -> str:
    return f"{len(gaps)}, gap {gaps.max():.3f}" if len(gaps) else "0"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompts", type=int, default=5, help="of each kind")
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--only", nargs="*", help="model references")
    args = parser.parse_args()
    bench = workloads.load([BenchWorkload(source="bench", name="b", per_kind=args.prompts)])
    real = workloads.load([StudiesWorkload(source="studies", name="s", per_kind=args.prompts, format="completion")])
    print("| model | settings | places | median | 99 % | most | turned |\n|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as scratch:
        for reference, settings in CASES:
            if not args.only or reference in args.only:
                prompts = bench if reference.startswith("bench:") else real
                print(row(reference, settings, prompts, args.tokens, Path(scratch)), flush=True)


if __name__ == "__main__":
    main()
