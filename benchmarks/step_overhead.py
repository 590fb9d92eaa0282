"""What a step costs beside the two models: verification, sampling, lookups and policies, in microseconds.

    uv run python benchmarks/step_overhead.py [--gamma 4] [--repeats 400]

Logits are random, with one token far ahead in each row as in greedy text; drafts are accepted as a whole, so that every
row is looked at. Medians.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np

from specmeter.engines.libllama.adaptive import CostTable, Utility
from specmeter.engines.libllama.decoder import greedy, rejection, sample_match
from specmeter.engines.libllama.policies import Cascade, Confidence, DraftPolicy, Fixed
from specmeter.engines.llama_cpp.draft_rules import NgramLookup
from specmeter.llama_binding import sampling
from specmeter.record import Generation

VOCABULARIES = (4096, 32_000, 248_320)
HISTORIES = (1000, 8000, 64_000)


def microseconds(call: Callable[[], object], repeats: int) -> float:
    call()
    times: list[float] = []
    for _ in range(repeats):
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    return float(np.median(times)) * 1e6


def of_vocabulary(vocabulary: int, gamma: int) -> dict[str, Callable[[], object]]:
    rng = np.random.default_rng(1)
    logits = rng.normal(0, 2, (gamma + 1, vocabulary)).astype(np.float32)
    drafted = rng.integers(0, vocabulary, gamma).tolist()
    logits[range(gamma), drafted] = 25.0
    logits[gamma, 7] = 25.0
    plain = Generation(temperature=1)
    filtered = Generation(temperature=0.8, top_k=40, top_p=0.95)
    nucleus = Generation(temperature=0.8, top_p=0.95)
    own = sampling.probabilities(logits, plain)
    return {
        f"greedy, {gamma} drafts": lambda: greedy(drafted, logits),
        f"sample match, {gamma} drafts": lambda: sample_match(drafted, own, rng),
        f"rejection, {gamma} drafts": lambda: rejection(drafted, own[:gamma], own, rng),
        f"rejection, {gamma} lookups": lambda: rejection(drafted, None, own, rng),
        "probabilities, one row": lambda: sampling.probabilities(logits[0], plain),
        "... top_k 40, top_p 0.95": lambda: sampling.probabilities(logits[0], filtered),
        "... top_p 0.95": lambda: sampling.probabilities(logits[0], nucleus),
        "draw": lambda: sampling.draw(own[0], rng),
        "confidence": lambda: sampling.confidence(logits[0]),
        "entropy": lambda: sampling.entropy(logits[0]),
    }


def over_vocabularies(gamma: int, repeats: int) -> None:
    rows: dict[str, list[float]] = {}
    for vocabulary in VOCABULARIES:
        for name, call in of_vocabulary(vocabulary, gamma).items():
            rows.setdefault(name, []).append(microseconds(call, repeats if vocabulary < 100_000 else repeats // 10))
    print(f"{'us, by vocabulary':<28}" + "".join(f"{vocabulary:>10}" for vocabulary in VOCABULARIES))
    for name, values in rows.items():
        print(f"{name:<28}" + "".join(f"{value:>10.1f}" for value in values))


def over_histories(repeats: int) -> None:
    print(f"\n{'us, by tokens of text':<28}" + "".join(f"{length:>10}" for length in HISTORIES))
    first: list[float] = []
    later: list[float] = []
    for length in HISTORIES:
        text = np.random.default_rng(1).integers(0, 300, length + repeats).tolist()
        lookup, history = NgramLookup(12, 48), text[:length]
        started = time.perf_counter()
        lookup.draft(history, 16)
        first.append((time.perf_counter() - started) * 1e6)
        times: list[float] = []
        for token in text[length:]:
            history.append(token)
            started = time.perf_counter()
            lookup.draft(history, 16)
            times.append(time.perf_counter() - started)
        later.append(float(np.median(times)) * 1e6)
    print(f"{'lookup, the whole prompt':<28}" + "".join(f"{value:>10.1f}" for value in first))
    print(f"{'lookup, one more token':<28}" + "".join(f"{value:>10.1f}" for value in later))


def steps(policy: DraftPolicy, gamma: int, gain: float) -> Callable[[], object]:
    """A step with drafts of up to `gamma` tokens that are all accepted, whose cost makes it worth `gain`."""
    rng = np.random.default_rng(1)
    noise = iter(np.exp(rng.normal(0, 0.03, 100_000)).tolist())

    def step() -> None:
        asked = min(policy.length(), gamma)
        drafted = 0
        while drafted < asked and policy.goes_on(lambda: 0.95, lambda: 0.1):
            drafted += 1
        policy.observe(drafted, drafted, (10 if not drafted else 10 * (drafted + 1) / gain) * next(noise))

    for _ in range(100):
        step()
    return step


def of_policies(gamma: int, repeats: int) -> None:
    made: dict[str, Callable[[], DraftPolicy]] = {
        "Fixed": lambda: Fixed(gamma),
        "Confidence": lambda: Confidence(gamma, 0.1),
        "Cascade": lambda: Cascade(gamma),
        "CostTable": lambda: CostTable([10.0 + length for length in range(17)]),
        "Utility, lengths only": lambda: Utility(16, use_confidence=False),
        "Utility": lambda: Utility(16),
    }
    print(f"\n{'us per step, where':<28}{'it gains':>10}{'it loses':>10}")
    for name, make in made.items():
        cells = [microseconds(steps(make(), gamma, gain), repeats) for gain in (2.0, 0.5)]
        print(f"{name:<28}" + "".join(f"{cell:>10.1f}" for cell in cells))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gamma", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=400)
    args = parser.parse_args()
    over_vocabularies(args.gamma, args.repeats)
    over_histories(args.repeats)
    of_policies(args.gamma, args.repeats)


if __name__ == "__main__":
    main()
