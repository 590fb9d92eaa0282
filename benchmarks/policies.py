"""How well policies choose draft lengths: a simulation with realistic costs, against every fixed length.

    uv run python benchmarks/policies.py [--seed 100] [--sessions 4] [--policy utility ...]

Nothing is decoded. A text is a row of tokens that the draft model would have guessed or not (greedy decoding: whether
it guesses the token at a place depends on nothing but the text before it), in phases that are easier and harder. A step
of d drafts costs T(d + 1) plus d draft forwards, and more where the draft model has to read what it missed during plain
steps; it is accepted up to the first token that was not guessed. Policies see the times with noise (lognormal, some
steps twice as long, spells in which everything is slower); what they are judged by is the time without noise. All
policies and all fixed lengths get the same texts.

Seeds below 100 were used while the policies were tuned; report with others.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from specmeter.engines.libllama.adaptive import CostTable, Utility
from specmeter.engines.libllama.policies import Cascade, Confidence, DraftPolicy, Fixed

GAMMAS = (1, 2, 3, 4, 6, 8, 12, 16)
LONGEST = 16
PLAIN_MS = 10.0
READING = 0.15
"""Time for a draft model to read a token that it missed, over that of a forward of its own."""

COSTS: dict[str, dict[int, float]] = {
    # tokens in one forward -> its time over that of one token
    "dense": {1: 1.0, 2: 1.05, 3: 1.15, 4: 1.25, 5: 1.4, 9: 1.9, 17: 3.2},
    "flat": {1: 1.0, 2: 1.02, 5: 1.06, 9: 1.12, 17: 1.25},
    "moe": {1: 1.0, 2: 1.6, 3: 2.3, 4: 3.1, 5: 3.9, 9: 6.3, 17: 9.5},
    "moe mild": {1: 1.0, 2: 1.25, 3: 1.5, 5: 1.9, 9: 2.6, 17: 3.6},
    "jump": {1: 1.0, 2: 1.9, 5: 2.0, 9: 2.2, 17: 2.6},
}


class Case(NamedTuple):
    costs: str
    drafter: str
    """`model`, or `lookup` for an n-gram method."""
    acceptance: float
    draft_cost: float
    noise: float
    phases: bool

    def __str__(self) -> str:
        kind = f"{self.drafter} {self.acceptance:.2f}{' in phases' if self.phases else ''}"
        return f"{self.costs}, {kind}, c {self.draft_cost:.2f}, noise {self.noise:.0%}"


def cases() -> list[Case]:
    models = [
        Case(costs, "model", acceptance, draft, noise, phases)
        for costs, acceptance, (draft, noise), phases in itertools.product(
            COSTS, (0.2, 0.4, 0.55, 0.7, 0.8, 0.9), ((0.03, 0.08), (0.08, 0.03), (0.4, 0.04)), (False, True)
        )
    ]
    lookups = [
        Case(costs, "lookup", acceptance, 0.0, noise, True)
        for costs, acceptance, noise in itertools.product(COSTS, (0.3, 0.6, 0.9), (0.03, 0.08))
    ]
    return models + lookups


class Text(NamedTuple):
    """One request: for each place, what the drafter has to say about it."""

    guessed: np.ndarray
    confidence: np.ndarray
    lost_confidence: np.ndarray
    """What the drafter thinks of its token once it has left the text."""
    found: np.ndarray
    """Whether a lookup finds a match at this place."""


def make_text(case: Case, tokens: int, rng: np.random.Generator) -> Text:
    size = tokens + LONGEST + 1
    level = np.full(size, case.acceptance)
    if case.phases:
        at = 0
        while at < size:
            length = int(rng.integers(20, 120))
            level[at : at + length] = np.clip(case.acceptance + rng.normal(0, 0.15), 0.03, 0.97)
            at += length
    # Tokens differ in how easy they are: calibrated chances, spread around the level of the phase.
    chance = rng.beta(1.2 * level, 1.2 * (1 - level) + 1e-3)
    guessed = rng.random(size) < chance
    found = np.ones(size, dtype=bool)
    if case.drafter == "lookup":
        found = rng.random(size) < 0.04
        at = int(rng.integers(0, 150))
        while at < size:
            length = int(rng.integers(10, 60))
            found[at : at + length] = True
            guessed[at : at + length] = rng.random(len(guessed[at : at + length])) < 0.5 + case.acceptance / 2
            at += length + int(rng.integers(50, 250))
    return Text(guessed, chance**0.7, rng.beta(2, 2, size) ** 0.7, found)


class Outcome(NamedTuple):
    tokens: int
    time: float
    """Without noise, in plain steps."""


def run(case: Case, texts: list[Text], tokens: int, policy: DraftPolicy, seed: int) -> Outcome:
    """One session: every text is a request of `tokens` tokens."""
    rng = np.random.default_rng(seed)
    known = COSTS[case.costs]
    curve = np.interp(np.arange(1, LONGEST + 2), list(known), list(known.values())).tolist()
    total = steps = 0.0
    slow_until = -1.0
    noise: list[float] = []
    for text in texts:
        policy.begin()
        at, unread = 1, 0  # the first token comes with the prompt
        guessed, found = text.guessed.tolist(), text.found.tolist()
        sure, unsure = text.confidence.tolist(), text.lost_confidence.tolist()
        while at < tokens:
            asked = min(policy.length(), tokens - at - 1, LONGEST)
            drafted = forwards = 0
            on_text = True
            if asked and found[at]:
                while drafted < asked:
                    forwards += 1
                    confidence = sure[at + drafted] if on_text else unsure[at + drafted]
                    if case.drafter == "model" and not policy.goes_on(lambda c=confidence: c, lambda: 0.0):
                        break
                    on_text = on_text and guessed[at + drafted]
                    drafted += 1
            accepted = 0
            while accepted < drafted and guessed[at + accepted]:
                accepted += 1
            if forwards:
                missed, unread = unread, 0
                drafting = case.draft_cost * (forwards + READING * max(0, missed - 1))
            else:
                drafting = 0.0
            unread += accepted + 1
            cost = (curve[drafted] + drafting) * (1 + 0.1 * at / tokens)
            if not noise:
                noise = np.exp(rng.normal(0, case.noise, 512)).tolist()
                noise = [n * (2.0 if u < 0.02 else 1.0) for n, u in zip(noise, rng.random(512).tolist(), strict=True)]
                if rng.random() < 0.2:
                    slow_until = steps + 40
            seen = cost * noise.pop() * (1.6 if steps < slow_until else 1.0)
            policy.observe(drafted, accepted, seen * PLAIN_MS)
            total += cost
            steps += 1
            at += accepted + 1
    return Outcome(sum(tokens - 1 for _ in texts), total)


POLICIES: dict[str, Callable[[Case], DraftPolicy]] = {
    "utility": lambda _: Utility(LONGEST),
    "utility, lengths only": lambda _: Utility(LONGEST, use_confidence=False),
    "cascade": lambda _: Cascade(LONGEST),
    "cost table": lambda case: CostTable(table(case), LONGEST),
    "confidence 0.75": lambda _: Confidence(LONGEST, 0.75),
}


def table(case: Case) -> list[float]:
    known = COSTS[case.costs]
    curve = np.interp(np.arange(1, LONGEST + 2), list(known), list(known.values()))
    return ((curve + case.draft_cost * np.arange(LONGEST + 1)) * PLAIN_MS).tolist()


class Row(NamedTuple):
    case: Case
    best_gamma: int
    best: float
    """Speed of the best fixed length over that of plain decoding."""
    speeds: dict[str, float]


def judge(case: Case, place: int, seed: int, requests: int, tokens: int, names: list[str]) -> Row:
    texts = [make_text(case, tokens, np.random.default_rng([seed, place, text])) for text in range(requests)]
    plain = run(case, texts, tokens, Fixed(0), seed).time
    fixed = {gamma: plain / run(case, texts, tokens, Fixed(gamma), seed).time for gamma in GAMMAS}
    best = max(fixed, key=lambda gamma: fixed[gamma])
    speeds = {name: plain / run(case, texts, tokens, POLICIES[name](case), seed).time for name in names}
    return Row(case, best, fixed[best], speeds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=100)
    parser.add_argument("--sessions", type=int, default=1, help="sessions per case, each with texts of its own")
    parser.add_argument("--requests", type=int, default=4, help="per session")
    parser.add_argument("--tokens", type=int, default=160, help="per request")
    parser.add_argument("--policy", action="append", choices=list(POLICIES))
    parser.add_argument("--worst", type=int, default=0, help="also print so many of the worst cases")
    args = parser.parse_args()
    names = args.policy or list(POLICIES)
    started = time.perf_counter()
    rows = [
        judge(case, place, seed, args.requests, args.tokens, names)
        for seed in range(args.seed, args.seed + args.sessions)
        for place, case in enumerate(cases())
    ]
    print(f"{len(rows)} sessions of {args.requests} requests of {args.tokens} tokens; seeds from {args.seed}")
    print(f"{'policy':<24} {'speed over plain':^24} {'over the best fixed length':^52}")
    print(f"{'':<24} {'least':>6} {'median':>8} {'most':>8} " + "".join(f"{kind:>12}" for kind in ("median", *COSTS)))
    for name in names:
        speed = np.array([row.speeds[name] for row in rows])
        gap = np.array([row.speeds[name] / row.best for row in rows])
        by_kind = [np.median([g for g, row in zip(gap, rows, strict=True) if row.case.costs == kind]) for kind in COSTS]
        print(
            f"{name:<24} {speed.min():>6.3f} {np.median(speed):>8.3f} {speed.max():>8.3f} {np.median(gap):>12.3f}"
            + "".join(f"{value:>12.3f}" for value in by_kind)
        )
        wins = np.array([row.best > 1.05 for row in rows])
        print(
            f"{'':<24} below 0.97 of plain: {int((speed < 0.97).sum())}; where a fixed length gains 5 %:"
            f" median {np.median(gap[wins]):.3f}, worst {gap[wins].min():.3f} of it ({int(wins.sum())} cases)"
        )
        for key, label in ((speed, "over plain"), (gap, "over best")):
            for place in np.argsort(key)[: args.worst]:
                row = rows[place]
                print(
                    f"    {label} {key[place]:.3f}: {row.case}; best fixed {row.best_gamma} at {row.best:.3f},"
                    f" here {row.speeds[name]:.3f}"
                )
    print(f"{time.perf_counter() - started:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
