"""One client under load against the plain loop: the same server, the same prompts, by turns.

    uv run python benchmarks/load_single.py [--target bench:dense-400m] [--draft bench:draft-small] [--pairs 40]

Each pair is one request as a run without a load sends it, and one as a cell with `clients: 1` does, in changing order.

decode      time from the first token to the last, by the server's own clock; the target is 1.00 within 1 %
whole       from sending to the end of the answer, by ours
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np

from specmeter.engines import Launch, load_engine
from specmeter.measure.clients import Clients, DueRequest, Told
from specmeter.models.reference import resolve
from specmeter.record import Arm, EngineSettings, Generation, Load, Reply
from specmeter.workloads import load
from specmeter.workloads.spec import BenchWorkload


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="bench:dense-400m")
    parser.add_argument("--draft", default="bench:draft-small")
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--tokens", type=int, default=96)
    args = parser.parse_args()
    arm = Arm(
        id="t/draft-simple/d/g4/c1",
        target="t",
        methods=("draft-simple",),
        draft="d",
        gamma=4,
        engine=EngineSettings(context=2048),
        load=Load(clients=1, requests=1),
    )
    models = [resolve(name, it, base_dir=Path()) for name, it in (("t", args.target), ("d", args.draft))]
    prompts = load((BenchWorkload(source="bench", per_kind=2),))
    engine, generation = load_engine("embedded"), Generation(max_tokens=args.tokens)
    ratios: list[tuple[float, float]] = []
    with tempfile.TemporaryDirectory() as scratch:
        launch = Launch(arm, models[0], models[1], log_path=Path(scratch) / "log")
        with engine.start(launch) as session:
            session.generate(prompts[0], generation)
            for pair in range(args.pairs):
                prompt = prompts[pair % len(prompts)]
                both: dict[bool, Reply] = {}
                for under_load in (pair % 2 == 0, pair % 2 == 1):
                    if not under_load:
                        both[False] = session.generate(prompt, generation)
                        continue
                    found: list[Told] = []
                    Clients(session, engine.clock, found.append).closed_loop([DueRequest(0, prompt, generation)], 1)
                    assert isinstance(found[0].result, Reply)
                    both[True] = found[0].result
                alone, loaded = both[False], both[True]
                assert loaded.token_ids == alone.token_ids
                decode = loaded.timings.predicted_ms / alone.timings.predicted_ms
                ratios.append((decode, loaded.wall_ms / alone.wall_ms))
    logs = np.log(np.array(ratios))
    for name, values in zip(("decode", "whole"), logs.T, strict=True):
        draws = np.random.default_rng(1).choice(values, (2000, len(values)))
        low, high = np.exp(np.quantile(np.median(draws, axis=1), (0.025, 0.975)))
        print(
            f"{name:7} under load / alone: {np.exp(np.median(values)):.4f} [{low:.4f}, {high:.4f}], {len(values)} pairs"
        )


if __name__ == "__main__":
    main()
