"""How many experts a batch of n consecutive tokens touches, against uniform and independent routing.

    uv run python benchmarks/expert_union.py [bench:moe bench:moe-400m ...] [--tokens 3000]

Reads the chosen experts of every layer from the embedded llama.cpp while it decodes held-out text, and counts the
distinct ones in windows of n consecutive tokens: U(n), the mean over windows and layers. The uniform expectation is
N(n) = E (1 - (1 - K/E)^n) (MoESD, arXiv 2505.19645, Eq. 8).
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from specmeter.llama_binding.context import Context, RoutingTap
from specmeter.llama_binding.model import Model
from specmeter.models.bench import describe, parse
from specmeter.models.reference import locate
from specmeter.record import EngineSettings
from specmeter.workloads.spec import held_out_text

WINDOWS = (1, 2, 3, 5, 9, 17, 33)
"""gamma + 1 tokens are verified together."""
CONTEXT = 512


def unions(ids: np.ndarray, n: int) -> float:
    """Mean number of distinct experts in all windows of `n` rows of `ids` (tokens x experts per token)."""
    return float(np.mean([len(np.unique(ids[at : at + n])) for at in range(0, len(ids) - n + 1)]))


def measure(reference: str, tokens: int) -> None:
    plan = describe(parse(reference))
    routed: dict[int, list[np.ndarray]] = {}
    settings, tap = EngineSettings(context=CONTEXT, batch=CONTEXT, ubatch=CONTEXT), RoutingTap()
    with (
        Model(locate(reference, base_dir=Path())) as model,
        Context(model, settings, threads=2, rows=CONTEXT, tap=tap) as context,
    ):
        ids = model.tokenize(held_out_text(), add_special=False, parse_special=False)[:tokens]
        for start in range(0, len(ids) - CONTEXT + 1, CONTEXT):
            context.cut(0)
            context.decode(ids[start : start + CONTEXT], "all")
            for layer, experts in tap.take().items():
                routed.setdefault(layer, []).append(experts)
    total, used = plan.experts, plan.experts_used
    layers = {layer: np.concatenate(parts) for layer, parts in routed.items()}
    print(f"\n{reference}: {total} experts, {used} per token, {len(layers)} layers, {len(ids)} tokens of held-out text")
    print(f"{'n':>4} {'uniform':>8} {'measured':>9} {'share':>6}   lowest and highest layer")
    for n in WINDOWS:
        per_layer = [np.mean([unions(part, n) for part in parts]) for parts in routed.values()]
        uniform = total * (1 - (1 - used / total) ** n)
        mean = float(np.mean(per_layer))
        print(f"{n:>4} {uniform:>8.2f} {mean:>9.2f} {mean / uniform:>6.0%}   {min(per_layer):.2f} {max(per_layer):.2f}")
    loads = [np.bincount(experts.ravel(), minlength=total) / experts.size * total for experts in layers.values()]
    print(
        f"hottest expert of a layer: {max(load.max() for load in loads):.2f} x the mean load; "
        f"never chosen: {sum(int((load == 0).sum()) for load in loads)} of {total * len(layers)}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("references", nargs="*", default=["bench:moe", "bench:moe-400m"])
    parser.add_argument("--tokens", type=int, default=3072)
    args = parser.parse_args()
    for reference in args.references:
        measure(reference, args.tokens)


if __name__ == "__main__":
    main()
