"""The utility policy on the real instrumented engine: every kind of text x target x drafter, beside plain decoding.

    uv run python benchmarks/policies_engine.py --target bench:dense-100m --target bench:moe-100m \\
        --draft bench:draft-small --draft ngram [--fixed 1,2,4,8] [--prompts 3] [--tokens 128]

A case is a session of its own for each arm, all arms in this process, taking turns prompt by prompt; the arm that goes
first changes with every prompt. Speeds are tokens over decode time of the whole session, the first request included.
With `--rounds`, every session is repeated anew and each request counts with the median of its times: what else the
machine does in between hits steps of a millisecond hard. `again` is plain decoding once more: what it differs from
`plain` by is noise.
"""

from __future__ import annotations

import argparse
import time
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from specmeter.engines.libllama.session import Session
from specmeter.models.reference import locate
from specmeter.record import Arm, EngineSettings, Generation, Prompt
from specmeter.workloads.packaged import packaged

LOOKED_UP = 2
"""Tokens that lookups look for, in every arm; shorter drafts are never made."""
KINDS = ("code", "edit", "fact", "reason", "zh")


def arm(name: str, drafter: str, gamma: int | None, policy: str | None, threads: int) -> Arm:
    settings = EngineSettings(context=4096, threads=threads)
    if gamma is None:
        return Arm(id=name, target="target", engine=settings)
    lookup = drafter == "ngram"
    return Arm.model_validate(
        {
            "id": name,
            "target": "target",
            "methods": ("ngram-simple",) if lookup else ("draft-simple",),
            "draft": None if lookup else "draft",
            "gamma": gamma,
            "ngram_n": LOOKED_UP if lookup else None,
            "policy": policy,
            "engine": settings,
        }
    )


def case(target: Path, drafter: str, kind: str, args: argparse.Namespace) -> dict[str, float]:
    """Arm -> decode time in s over the whole session, each request with the median of its rounds."""
    rounds = [one_round(target, drafter, kind, args, number) for number in range(args.rounds)]
    return {name: sum(np.median([times[name] for times in rounds], axis=0).tolist()) for name in rounds[0]}


def one_round(target: Path, drafter: str, kind: str, args: argparse.Namespace, number: int) -> dict[str, list[float]]:
    """Arm -> decode time of each request in s."""
    draft = None if drafter == "ngram" else locate(drafter, base_dir=Path())
    arms = {"plain": arm("plain", drafter, None, None, args.threads)}
    arms["again"] = arm("again", drafter, None, None, args.threads)
    arms["utility"] = arm("utility", drafter, 16, "utility", args.threads)
    arms |= {f"{gamma}": arm(f"{gamma}", drafter, gamma, None, args.threads) for gamma in args.fixed}
    times: dict[str, list[float]] = {name: [] for name in arms}
    with ExitStack() as stack:
        sessions = {
            name: stack.enter_context(Session(arm, target, draft if arm.draft else None, args.threads))
            for name, arm in arms.items()
        }
        for session in sessions.values():  # the weights come into memory
            model = session.target.model
            session.target.extend(model.tokenize("The first words.", add_special=True, parse_special=False))
        for place, item in enumerate(packaged("bench", (kind,), args.prompts, args.seed)):
            prompt = Prompt(id=item.id, workload="w", kind=kind, text=item.text, sha256="")
            names = list(arms)
            turn = (place + number) % len(names)
            names = names[turn:] + names[:turn]
            for name in names:
                reply = sessions[name].generate(prompt, Generation(max_tokens=args.tokens))
                times[name].append(reply.timings.predicted_ms / 1e3)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", action="append", required=True)
    parser.add_argument("--draft", action="append", required=True, help="a reference, or `ngram`")
    parser.add_argument("--kind", action="append")
    parser.add_argument("--fixed", type=lambda text: [int(part) for part in text.split(",")], default=[])
    parser.add_argument("--prompts", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    started = time.perf_counter()
    speeds: list[float] = []
    noise: list[float] = []
    gaps: list[float] = []
    for reference in args.target:
        target = locate(reference, base_dir=Path())
        for drafter in args.draft:
            for kind in args.kind or KINDS:
                times = case(target, drafter, kind, args)
                relative = {name: times["plain"] / spent for name, spent in times.items()}
                speeds.append(relative["utility"])
                noise.append(relative["again"])
                if args.fixed:
                    gaps.append(relative["utility"] / max(relative[f"{gamma}"] for gamma in args.fixed))
                told = "  ".join(f"{name} {speed:.2f}" for name, speed in relative.items() if name != "plain")
                print(f"{reference} {drafter} {kind}: {told}", flush=True)
    low = np.sort(speeds)
    print(f"utility over plain: least {low[0]:.3f}, median {np.median(low):.3f}, below 0.97: {(low < 0.97).sum()}")
    print(f"plain again over plain: least {min(noise):.3f}, median {np.median(noise):.3f}, most {max(noise):.3f}")
    if gaps:
        print(f"utility over the best fixed length: median {np.median(gaps):.3f}, worst {min(gaps):.3f}")
    print(f"{len(speeds)} cases, {time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
