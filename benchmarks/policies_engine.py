"""The utility policy on the real instrumented engine: every kind of text x target x drafter, beside plain decoding.

    uv run python benchmarks/policies_engine.py --target bench:dense-100m --target bench:moe-100m \\
        --draft bench:draft-small --draft ngram [--fixed 1,2,4,8] [--prompts 3] [--tokens 192] [--rounds 8]

A case is a session of its own for each arm, all arms in this process and on the same prompt at once: each decodes
`SLICE` steps, then the next one does, so that a slow spell of the machine meets all of them. Times are those of the
arm's own steps, each from the end of the one before, over all requests of the session, the first included. With
`--rounds` every session is repeated anew; a case is the median of its rounds, with an interval from six of them on.
`again` is plain decoding once more: what it differs from `plain` by is noise.
"""

from __future__ import annotations

import argparse
import time
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import patch

import greenlet
import numpy as np

from specmeter.analysis.requests import TIMES
from specmeter.engines.libllama import session as sessions_of
from specmeter.engines.libllama.decoder import Decoder, Generated
from specmeter.engines.libllama.session import InProcessSession
from specmeter.llama_binding.context import Work
from specmeter.models.reference import locate
from specmeter.numbers.estimates import above, below
from specmeter.numbers.stats import Estimate, median_estimate
from specmeter.record import Arm, EngineSettings, Generation, Prompt
from specmeter.workloads.texts import packaged

LOOKED_UP = 2
"""Tokens that lookups look for, in every arm; shorter drafts are never made."""
KINDS = ("code", "edit", "fact", "reason", "zh")
FLOOR = 0.97
SLICE = 8
"""Steps that an arm decodes before it is the next one's turn."""


class TakingTurns(Decoder):
    """A decoder that lets the others go on after every `SLICE` steps. The time that they take is none of its steps'."""

    def _step(self, out: Generated, history: list[int], started: float, begun: float) -> Work[float]:
        if len(out.rounds) % SLICE == 0:
            left = time.perf_counter()
            others = greenlet.getcurrent().parent
            assert others is not None
            others.switch()
            away = time.perf_counter() - left
            self._learnt_from += away
            begun += away
        return super()._step(out, history, started, begun)


def arm(name: str, drafter: str, gamma: int | None, policy: str | None, threads: int) -> Arm:
    settings = EngineSettings(context=4096, threads=threads, trace_steps=True)
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


def case(target: Path, drafter: str, kind: str, args: argparse.Namespace) -> dict[str, Estimate]:
    """Arm -> its speed over that of plain decoding, median over the rounds."""
    rounds = [one_round(target, drafter, kind, args, number) for number in range(args.rounds)]
    return {
        name: median_estimate([times["plain"] / times[name] for times in rounds], unit="", of="rounds")
        for name in rounds[0]
        if name != "plain"
    }


def told(estimate: Estimate) -> str:
    if estimate.low is None or estimate.high is None:
        return f"{estimate.point:.3f}"
    return f"{estimate.point:.3f} [{estimate.low:.3f}, {estimate.high:.3f}]"


def one_round(target: Path, drafter: str, kind: str, args: argparse.Namespace, number: int) -> dict[str, float]:
    """Arm -> time of all its steps in ms."""
    draft = None if drafter == "ngram" else locate(drafter, base_dir=Path())
    arms = {"plain": arm("plain", drafter, None, None, args.threads)}
    arms["again"] = arm("again", drafter, None, None, args.threads)
    arms["utility"] = arm("utility", drafter, 16, "utility", args.threads)
    arms |= {f"{gamma}": arm(f"{gamma}", drafter, gamma, None, args.threads) for gamma in args.fixed}
    times = dict.fromkeys(arms, 0.0)

    def generate(name: str, prompt: Prompt) -> None:
        reply = sessions[name].generate(prompt, Generation(max_tokens=args.tokens))
        times[name] += sum(getattr(step, part) or 0.0 for step in reply.steps for part in TIMES)

    with ExitStack() as stack:
        stack.enter_context(patch.object(sessions_of, "Decoder", TakingTurns))
        sessions = {
            name: stack.enter_context(InProcessSession(arm, target, draft if arm.draft else None, args.threads))
            for name, arm in arms.items()
        }
        for session in sessions.values():  # the weights come into memory
            model = session.target.model
            session.target.extend(model.tokenize("The first words.", add_special=True, parse_special=False))
        for place, item in enumerate(packaged("bench", (kind,), args.prompts, args.seed)):
            prompt = Prompt(id=item.id, workload="w", kind=kind, text=item.text, sha256="")
            names = list(arms)
            turn = (place + number) % len(names)
            running = [greenlet.greenlet(generate) for _ in names]
            for one, name in zip(running, names[turn:] + names[:turn], strict=True):
                one.switch(name, prompt)
            while running := [one for one in running if not one.dead]:
                for one in running:
                    one.switch()
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
    speeds: list[Estimate] = []
    noise: list[Estimate] = []
    gaps: list[float] = []
    for reference in args.target:
        target = locate(reference, base_dir=Path())
        for drafter in args.draft:
            for kind in args.kind or KINDS:
                found = case(target, drafter, kind, args)
                speeds.append(found["utility"])
                noise.append(found["again"])
                if args.fixed:
                    gaps.append(found["utility"].point / max(found[f"{gamma}"].point for gamma in args.fixed))
                ratios = "  ".join(f"{name} {told(speed)}" for name, speed in found.items())
                print(f"{reference} {drafter} {kind}: {ratios}", flush=True)
    for name, estimates in (("utility", speeds), ("plain again", noise)):
        medians = np.sort([it.point for it in estimates])
        print(
            f"{name} over plain: least {medians[0]:.3f}, median {np.median(medians):.3f}, most {medians[-1]:.3f}; "
            f"below {FLOOR}: {(medians < FLOOR).sum()}, of which surely {sum(below(it, FLOOR) for it in estimates)}; "
            f"surely above: {sum(above(it, FLOOR) for it in estimates)}"
        )
    if gaps:
        print(f"utility over the best fixed length: median {np.median(gaps):.3f}, worst {min(gaps):.3f}")
    print(f"{len(speeds)} cases, {time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
