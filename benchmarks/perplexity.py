"""Perplexity and rates against llama.cpp's own tools: the same value? the same time?

    uv run python benchmarks/perplexity.py                      the whole held-out text, all models
    uv run python benchmarks/perplexity.py --short              12,000 characters of it
    uv run python benchmarks/perplexity.py --rates              pp and tg instead, both ways in turns
    uv run python benchmarks/perplexity.py --short --store tests/data/quality/native.json

The tools are `llama-perplexity` and `llama-bench` of `specmeter engines build`, or beside the server that
SPECMETER_LLAMA_SERVER names. Both sides read the same file with the same windows and threads, each in a
process of its own; times are those of the whole process. `--store` writes what the native tool said, with its version
and checksum: tests compare with it where the tool is not at hand.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np

from specmeter.analysis.quality import SpeedTest, perplexity
from specmeter.engines.process import default_threads
from specmeter.models.bench import shipped
from specmeter.models.reference import resolve
from specmeter.record import EngineSettings, ModelIdentity
from specmeter.workloads.texts import held_out_text
from specmeter_studies.quality.child import score_apart, time_apart
from specmeter_studies.quality.native import find_tool, native_perplexity, native_times
from specmeter_studies.quality.scoring import Scoring
from specmeter_studies.quality.timing import Timing

MODELS = (
    "bench:dense",
    "bench:dense?quant=Q8_0",
    "bench:dense?quant=Q4_0",
    "bench:moe",
    "bench:hybrid",
    "bench:draft-small",
    "bench:draft-small?quant=Q8_0",
    str(shipped()["draft-other-special"].path),
)
SHAPES = ((512, 0), (200, 0), (256, 64))
"""(context, stride)."""
PACED = ("bench:dense-400m", "bench:moe-400m")
TESTS = (
    SpeedTest(kind="prompt", tokens=256),
    SpeedTest(kind="generate", tokens=64),
    SpeedTest(kind="prompt", tokens=256, depth=512),
    SpeedTest(kind="generate", tokens=64, depth=512),
)


def short_text() -> str:
    """6,000 characters from the beginning and 6,000 from the end of the held-out text."""
    text = held_out_text()
    return (text[:6000] + text[-6000:]).removesuffix("\n")


def compare_values(models: list[ModelIdentity], text: str, settings: EngineSettings, store: Path | None) -> None:
    tool = find_tool("llama-perplexity", "auto")
    stored: list[dict[str, object]] = []
    print("| model | window | stride | native | specmeter | difference | native s | specmeter s |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for model in models:
        for context, stride in SHAPES:
            shaped = settings.model_copy(update={"context": context})
            theirs = native_perplexity(tool, model, text, shaped, stride, lambda *_: None)
            started = time.perf_counter()
            scores = score_apart(Scoring(model=model.path, settings=shaped, stride=stride, text=text), lambda *_: None)
            took = time.perf_counter() - started
            ours = perplexity([total / scores.scored for total in scores.surprise], scores.scored)
            assert len(scores.surprise) == theirs.windows, "other windows"
            difference = ours.point / theirs.estimate.point - 1
            name = f"core:{Path(model.path).stem}" if model.origin == "path" else model.reference
            print(
                f"| {name} | {context} | {stride or '-'} | {theirs.estimate.point:.4f} | {ours.point:.4f} | "
                f"{100 * difference:+.3f} % | {theirs.wall_s:.1f} | {took:.1f} |",
                flush=True,
            )
            stored.append(
                {
                    "model": name,
                    "model_sha256": model.sha256,
                    "context": context,
                    "stride": stride,
                    "windows": theirs.windows,
                    "perplexity": theirs.estimate.point,
                    "token_error": theirs.token_error,
                }
            )
            engine = theirs.engine
            if store is not None:
                head = {
                    "made_by": "benchmarks/perplexity.py --short --store",
                    "tool": f"llama-perplexity {engine.version}",
                    "tool_sha256": engine.binary_sha256,
                    "libraries": engine.libraries,
                    "threads": settings.threads,
                }
                store.parent.mkdir(parents=True, exist_ok=True)
                store.write_text(json.dumps(head | {"values": stored}, indent=1) + "\n", encoding="utf-8")


def compare_rates(models: list[ModelIdentity], text: str, settings: EngineSettings, blocks: int) -> None:
    tool = find_tool("llama-bench", "auto")
    print("| model | test | llama-bench tok/s | specmeter tok/s | ratio, median of blocks (lowest to highest) |")
    print("| --- | --- | --- | --- | --- |")
    for model in models:
        rows: list[tuple[tuple[float, ...], tuple[float, ...]]] = []
        for block in range(blocks):
            order = Timing(model=model.path, settings=settings, tests=TESTS, text=text, seed=block)
            if block % 2:
                ours = time_apart(order).ms
                theirs, _ = native_times(tool, model, TESTS, settings)
            else:
                theirs, _ = native_times(tool, model, TESTS, settings)
                ours = time_apart(order).ms
            rows.append((theirs, ours))
        for place, test in enumerate(TESTS):
            native, own = (1e3 * test.tokens / np.array([row[side][place] for row in rows]) for side in (0, 1))
            ratio = own / native
            print(
                f"| {model.reference} | {test.name} | {np.median(native):.1f} | {np.median(own):.1f} | "
                f"{np.median(ratio):.3f} ({ratio.min():.2f} to {ratio.max():.2f}) |",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="12,000 characters instead of all")
    parser.add_argument("--store", type=Path, help="write the native tool's values there")
    parser.add_argument("--rates", action="store_true", help="rates instead of perplexities")
    parser.add_argument("--blocks", type=int, default=6, help="of --rates")
    parser.add_argument("--only", nargs="*", help="these models")
    parser.add_argument("--threads", type=int, default=default_threads())
    args = parser.parse_args()
    references = args.only or (PACED if args.rates else MODELS)
    models = [resolve(reference, reference, base_dir=Path()) for reference in references]
    settings = EngineSettings(threads=args.threads)
    if args.rates:
        compare_rates(models, held_out_text(), settings, args.blocks)
    else:
        text = short_text() if args.short else held_out_text().removesuffix("\n")
        compare_values(models, text, settings, args.store)


if __name__ == "__main__":
    main()
