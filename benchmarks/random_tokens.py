"""Random tokens beside text on mixtures of experts: shared experts, and how much faster they are decoded.

    uv run python benchmarks/random_tokens.py [MODEL ...] [--threads 2] [--tokens 1024]

For each model what `specmeter probe MODEL --routing` reads and times, as a table: the share of a token's experts that
the token before it chose, experts that 33 consecutive tokens read, and single tokens of both sorts, timed in turn at
ten places. Models `bench:moe-*` are one trained router in several sizes; those of `bench:shape/` have the numbers of
experts of real models, but random weights: they show what a router does that was never trained.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path

from specmeter.models.facts import read_header
from specmeter.models.reference import resolve
from specmeter.probe.make import read_experts, text_for
from specmeter.probe.routing import Routing, summarize
from specmeter.record import EngineSettings

MODELS = (
    "bench:moe",
    "bench:moe-100m",
    "bench:moe-200m",
    "bench:moe-400m",
    "bench:moe-900m",
    "bench:shape/mixtral-8x7b?scale=0.03",
    "bench:shape/olmoe-1b-7b?scale=0.13",
    "bench:shape/qwen3-30b-a3b?scale=0.03",
)


def line(reference: str, routing: Routing) -> str:
    summary = summarize(routing)
    random = summary.random
    if random is None or routing.times is None:
        raise SystemExit(f"{reference}: the text is too short")
    unions = {point.tokens: point.union.point for point in summary.union.points}
    of_random = {point.tokens: point.union.point for point in random.union.points}
    n = max(unions)
    text, drawn = routing.times.text, routing.times.random
    ratios = [one / other for one, other in zip(text, drawn, strict=True)]
    cells = (
        f"`{reference}`",
        f"{summary.experts}/{summary.used}",
        f"{summary.shared:.0%} / {random.shared:.0%}",
        f"{unions[n]:.1f} / {of_random[n]:.1f}",
        f"{statistics.median(text):.2f} ({min(text):.2f} to {max(text):.2f})",
        f"{statistics.median(drawn):.2f} ({min(drawn):.2f} to {max(drawn):.2f})",
        f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})",
    )
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=MODELS)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=1024)
    parser.add_argument("--prepare", action="store_true", help="only make the models")
    args = parser.parse_args()
    settings = EngineSettings(threads=args.threads)
    if not args.prepare:
        print(
            "| model | experts | shared, text / random | 33 tokens read, text / random | text, ms per token "
            "| random, ms per token | rate on random / on text |\n|" + " --- |" * 7
        )
    for reference in args.models:
        model = resolve("target", reference, base_dir=Path())
        if args.prepare:
            continue
        model = model.model_copy(update={"header": read_header(Path(model.path))})
        routing = read_experts(model, settings, text_for(model), args.tokens, lambda *_: None, random=True)
        print(line(reference, routing), flush=True)


if __name__ == "__main__":
    main()
