"""The instrumented engine beside the embedded server: same wheel, same models, same prompts, turn by turn.

    uv run python benchmarks/instrumented.py speed [--rounds 4] [--passes 3] [--tokens 48] [--gamma 4] [--threads 1]
    uv run python benchmarks/instrumented.py identity [--tokens 96] [--models bench:dense-400m ...]

`speed`: in each round every (model, arm) gets a fresh session of each engine, an excluded warm-up, then the two engines
take turns prompt by prompt, the first one changing. Texts are checked to be the same. Printed are ratios of decode
rates, instrumented / server, over all pairs, with an interval of the median. Wanted: plain >= 0.98, draft-simple
>= 1.00. Short texts and several passes make many pairs, each of a second or two, so that slow spells meet both.

`identity`: greedy text of speculative decoding against plain decoding of the same engine, for every kind of prompt and
gamma 1 to 16, with a draft model and n-grams. Where texts part, the target's gap between the two tokens is printed.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from specmeter import workloads
from specmeter.engines import Engine, Launch
from specmeter.engines.libllama.engine import LibllamaEngine
from specmeter.engines.libllama.session import InProcessSession
from specmeter.engines.llama_cpp.engine import EmbeddedEngine
from specmeter.engines.process import default_threads
from specmeter.models.reference import resolve
from specmeter.numbers.stats import median_estimate
from specmeter.record import Arm, EngineSettings, Generation, ModelIdentity, Prompt
from specmeter.workloads.spec import BenchWorkload


def model(reference: str) -> ModelIdentity:
    return resolve(reference.rpartition(":")[2], reference, base_dir=Path())


def prompts(per_kind: int) -> tuple[Prompt, ...]:
    return tuple(workloads.load([BenchWorkload(source="bench", name="all", per_kind=per_kind)], base_dir=Path()))


def turns(
    engines: dict[str, Engine], launch: Launch, texts: tuple[Prompt, ...], generation: Generation, passes: int, odd: int
) -> list[float]:
    """Server's decode time over the instrumented engine's, prompt by prompt, both sessions open and taking turns."""
    with ExitStack() as stack:
        sessions = {name: stack.enter_context(engine.start(launch)) for name, engine in engines.items()}
        for session in sessions.values():
            session.generate(texts[0], generation)
        found: list[float] = []
        for turn in range(passes * len(texts)):
            order = list(sessions) if (turn + odd) % 2 == 0 else list(reversed(sessions))
            text = texts[turn % len(texts)]
            replies = {name: sessions[name].generate(text, generation) for name in order}
            assert len({reply.token_ids for reply in replies.values()}) == 1, "the texts differ"
            found.append(replies["server"].timings.predicted_ms / replies["instrumented"].timings.predicted_ms)
    return found


def speed(args: argparse.Namespace) -> None:
    draft = model("bench:draft-small")
    generation = Generation(max_tokens=args.tokens)
    texts = prompts(1)
    settings = EngineSettings(context=1024, threads=args.threads, stream_tokens=False)
    engines: dict[str, Engine] = {"instrumented": LibllamaEngine(), "server": EmbeddedEngine()}
    # The server answers in one piece here: streaming every token costs it time that is not llama.cpp's.
    arms = {
        "none": Arm(id="none", target="t", role="baseline", engine=settings),
        "draft-simple": Arm(
            id="sd", target="t", methods=("draft-simple",), draft="d", gamma=args.gamma, engine=settings
        ),
    }
    ratios: dict[tuple[str, str], list[float]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        log = Path(scratch)
        for turn in range(args.rounds):
            for reference in args.models:
                target = model(reference)
                for name, arm in arms.items():
                    launch = Launch(arm, target, draft if arm.draft else None, log / f"{turn}.log")
                    found = turns(engines, launch, texts, generation, args.passes, turn)
                    ratios.setdefault((reference, name), []).extend(found)
                    print(f"{turn}  {reference:18} {name:13} median {np.median(found):.3f}", flush=True)
    print("\n| model | arm | instrumented / server, median of pairs | 95 % interval | quartiles | pairs |")
    print("|---|---|---|---|---|---|")
    for (reference, name), values in ratios.items():
        found = median_estimate(values, unit="", of="pairs")
        interval = "" if found.low is None or found.high is None else f"{found.low:.3f}-{found.high:.3f}"
        first, third = np.quantile(values, [0.25, 0.75])
        print(f"| {reference} | {name} | {found.point:.3f} | {interval} | {first:.3f}-{third:.3f} | {found.n} |")


def identity(args: argparse.Namespace) -> None:
    draft = Path(model("bench:draft-small").path)
    generation = Generation(max_tokens=args.tokens)
    texts = prompts(args.per_kind)
    settings, threads = EngineSettings(context=1024, threads=args.threads), args.threads
    print("| model | generations | tokens | other text | largest gap where texts part (nats) | longest rollback |")
    print("|---|---|---|---|---|---|")
    for reference in args.models:
        target = Path(model(reference).path)
        with InProcessSession(Arm(id="p", target="t", engine=settings), target, None, threads) as plain:
            expected = {text.id: plain.generate(text, generation).token_ids for text in texts}
            runs, tokens, gaps, rollback = 0, 0, list[float](), 0
            for gamma in range(1, 17):
                for method in ("draft-simple", "ngram-simple"):
                    n = None if method == "draft-simple" else min(3, gamma)
                    arm = Arm.model_validate(
                        {"id": "s", "target": "t", "methods": (method,), "draft": "d" if n is None else None}
                        | {"gamma": gamma, "ngram_n": n, "engine": settings}
                    )
                    with InProcessSession(arm, target, draft if n is None else None, threads) as session:
                        for text in texts:
                            reply = session.generate(text, generation)
                            runs, tokens = runs + 1, tokens + len(reply.token_ids)
                            rollback = max([rollback, *(step.drafted - step.accepted for step in reply.steps)])
                            pairs = enumerate(zip(expected[text.id], reply.token_ids, strict=True))
                            place = next((at for at, pair in pairs if pair[0] != pair[1]), None)
                            if place is not None:
                                found = plain.candidates(text, expected[text.id][:place], generation, 50)
                                odds = {it.token: it.logprob for it in found}
                                one, other = expected[text.id][place], reply.token_ids[place]
                                gaps.append(abs(odds[one] - odds.get(other, -math.inf)))
        print(
            f"| {reference} | {runs} | {tokens} | {len(gaps)} | {max(gaps, default=0):.4f} | {rollback} |", flush=True
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    for name, run in (("speed", speed), ("identity", identity)):
        command = commands.add_parser(name)
        command.set_defaults(run=run)
        command.add_argument("--tokens", type=int, default=48 if name == "speed" else 96)
        command.add_argument("--threads", type=int, default=default_threads())
        default = ["bench:dense-400m", "bench:moe-400m"]
        command.add_argument("--models", nargs="+", default=default if name == "speed" else [*default, "bench:hybrid"])
        if name == "speed":
            command.add_argument("--rounds", type=int, default=4)
            command.add_argument("--passes", type=int, default=3)
            command.add_argument("--gamma", type=int, default=4)
        else:
            command.add_argument("--per-kind", type=int, default=1)
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    main()
