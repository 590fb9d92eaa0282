"""How often advice is wrong, on synthetic machines whose truth is known, and what else the same time would have found.

    uv run python benchmarks/advise_simulated.py [--machines 100] [--race 5]

A machine is a mock engine: a dense, MoE or recurrent target, two drafts and n-grams, each with costs and acceptance of
its own; on every third one nothing helps. Texts, drafts and the time of every generation are the mock's own, with its
noise (1 to 8 % for a cell of eight prompts), drift from block to block (-3 to 3 %) and stalls (up to 5 % of requests,
0.2 to 2 s). The truth is the same without these. The grid has 22 arms: plain decoding, two drafts at eight lengths,
n-grams at five.

Advice: plain decoding once on eight prompts; a prediction for each arm, off by 3 % for its drafter and by 2 % for
itself (`--screen-error`); what can still win by that is raced (`numbers.elimination`), until it is decided, or no more
than half a percent is at stake, or after 16 blocks. The leader, and the runner-up where the prompts leave it within
reach, are confirmed on eight other prompts in three blocks or more, and what that leaves open once more, in more
blocks; rulings and choices are the product's own (`advise.confirm`). Everything is paid for in virtual time, loading
included; the probe costs as much as a session.

Two truths: an arm's rate on the sixteen prompts, and on all of those and 48 more like them, of which advice speaks
where it says "speculate" and not "on these prompts". An answer is wrong that names no arm within 2 % of the best.
Goals: wrong winners 4 % of what is decided, on the first truth; false "speculate" 2.5 % where nothing helps.

Next to it, in the same time with cells as noisy: a fixed grid (plain decoding, then arms from the usual lengths to the
odd ones, once each; the fastest wins).
"""

from __future__ import annotations

import argparse
import hashlib
import math
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from specmeter.advise.advice import DRAFTS, LEAVES_OFF
from specmeter.advise.confirm import BOUND, LOOKS, Confirmed, Shown, decide, ends, preferred, ruled
from specmeter.analysis.pairing import speedup_over_prompts
from specmeter.engines import Launch
from specmeter.engines.mock.engine import MockEngine
from specmeter.engines.mock.spec import MockDrafter, MockSpec, TargetModel, mock_model
from specmeter.numbers.elimination import RaceStanding, blocks_to_confirm, blocks_to_decide, eliminate
from specmeter.numbers.margin import MARGIN
from specmeter.numbers.stalls import steadied
from specmeter.numbers.stats import Pair, Pool, geometric_speedup, simultaneous, speedup_over_halves
from specmeter.record import Arm, EngineSettings, Estimate, Generation, Prompt

Floats = NDArray[np.float64]


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


GAMMA = (1, 2, 3, 4, 6, 8, 12, 16)
LOOKUP_GAMMA = (2, 4, 8, 12, 16)
USUAL = (4, 8, 2, 3, 6, 1, 12, 16)
"""Lengths in the order of the fixed grid."""
PROMPTS = tuple(
    Prompt(id=f"p{i}", workload="w", kind="text", text=(text := f"Prompt number {i}. " * 4), sha256=digest(text))
    for i in range(64)
)
SEARCH, OTHER, REST = PROMPTS[:8], PROMPTS[8:16], PROMPTS[16:]
GENERATION = Generation(max_tokens=48, temperature=0)
WRONG, FALSE = 0.04, 0.025
"""Goals: shares of wrong winners, and of false "speculate"."""
ENOUGH = 0.005
"""What may be at stake where a race ends undecided."""


def arm(method: str, draft: str | None = None, gamma: int | None = None) -> Arm:
    name = "/".join(str(part) for part in (method, draft, gamma) if part is not None)
    role = "baseline" if method == "none" else "speculative"
    return Arm(
        id=name, target="t", draft=draft, methods=(method,), gamma=gamma, engine=EngineSettings(context=4096), role=role
    )


ARMS = (
    arm("none"),
    *(arm("ngram-simple", gamma=g) for g in LOOKUP_GAMMA),
    *(arm("draft-simple", draft, g) for draft in ("small", "large") for g in GAMMA),
)
"""The grid, from the simplest on."""
FIXED = (0, *sorted(range(1, len(ARMS)), key=lambda it: USUAL.index(ARMS[it].gamma or 0)))


class Clean(NamedTuple):
    """Requests of an arm without noise, prompt by prompt."""

    tokens: Floats
    """After the first."""
    decode_ms: Floats
    other_ms: Floats
    """The prompt and what surrounds the request."""


@dataclass
class Machine:
    """A target with two drafts and n-grams, and how restless it is."""

    spec: MockSpec
    folder: Path
    seconds: float = 0.0
    """Virtual time spent so far."""
    _clean: dict[tuple[int, tuple[Prompt, ...]], tuple[Clean, float]] = field(default_factory=dict)
    _sessions: Counter[tuple[str, int]] = field(default_factory=Counter)

    def requests(self, which: int, prompts: tuple[Prompt, ...], stage: str) -> list[tuple[float, float]]:
        """(tokens after the first, ms) of every request of one session; its time is added. Each stage counts its blocks
        by itself. What the mock engine says without noise, with its own noise, drift and stalls: see `Player._pace`."""
        clean, load_ms = self._without_noise(which, prompts)
        block = self._sessions[stage, which]
        self._sessions[stage, which] += 1
        rng = np.random.default_rng([self.spec.seed, crc32(stage.encode()), which, block])
        pace = rng.lognormal(0.0, self.spec.noise, len(prompts)) * (1 + self.spec.block_drift) ** block
        stalls = self.spec.stall_ms * (rng.random(len(prompts)) < self.spec.stalls)
        ms = pace * clean.decode_ms + stalls
        self.seconds += float(load_ms + ms.sum() + (pace * clean.other_ms).sum()) / 1000
        return list(zip(clean.tokens.tolist(), ms.tolist(), strict=True))

    def cell(self, which: int, prompts: tuple[Prompt, ...], stage: str) -> float:
        """Log rate of one session."""
        return pooled(self.requests(which, prompts, stage))

    @cached_property
    def truth(self) -> Floats:
        """Log rate of each arm over the prompts of both halves, without noise."""
        return self._rates(SEARCH, OTHER)

    @cached_property
    def everywhere(self) -> Floats:
        """The same over all prompts, of which those are a sample."""
        return self._rates(SEARCH, OTHER, REST)

    @cached_property
    def searched(self) -> Floats:
        """The same on the prompts that are searched by."""
        return self._rates(SEARCH)

    @property
    def grid_seconds(self) -> float:
        """What the exhaustive grid takes: the prompts of both halves, five blocks."""
        cells = [self._without_noise(which, half) for which in range(len(ARMS)) for half in (SEARCH, OTHER)]
        return 5 * sum(float(load + clean.decode_ms.sum() + clean.other_ms.sum()) for clean, load in cells) / 1000

    def _rates(self, *parts: tuple[Prompt, ...]) -> Floats:
        arms = [[self._without_noise(which, part)[0] for part in parts] for which in range(len(ARMS))]
        sums = [[sum(float(it[place].sum()) for it in cells) for place in (0, 1)] for cells in arms]
        return np.array([math.log(tokens / ms) for tokens, ms in sums])

    def _without_noise(self, which: int, prompts: tuple[Prompt, ...]) -> tuple[Clean, float]:
        """(requests of an arm, milliseconds until it is loaded) as the mock engine has them."""
        if (which, prompts) not in self._clean:
            engine = MockEngine(self.spec.model_copy(update={"noise": 0.0, "block_drift": 0.0, "stalls": 0.0}))
            it = ARMS[which]
            launch = Launch(
                arm=it,
                target=mock_model("t", "mock:t", self.spec),
                draft=mock_model(it.draft, f"mock:{it.draft}", self.spec) if it.draft else None,
                log_path=self.folder / "log",
                start_timeout_s=60,
                idle_timeout_s=60,
            )
            with engine.start(launch) as session:
                load_ms = engine.now_ms
                replies = [session.generate(prompt, GENERATION) for prompt in prompts]
            timings = [it.timings for it in replies]
            clean = Clean(
                np.array([it.predicted_n - 1.0 for it in timings]),
                np.array([it.predicted_ms for it in timings]),
                np.array([it.wall_ms - it.timings.predicted_ms for it in replies]),
            )
            self._clean[which, prompts] = (clean, load_ms)
        return self._clean[which, prompts]


def pooled(requests: Sequence[tuple[float, float]]) -> float:
    """Log of tokens per ms."""
    return math.log(sum(tokens for tokens, _ in requests) / sum(ms for _, ms in requests))


Cells = list[dict[int, list[tuple[float, float]]]]
"""Block by block: arm -> its requests."""


def log_rates(blocks: Cells, arms: Sequence[int]) -> Floats:
    """Blocks x arms, nan where an arm was not measured; steadied as the product does it."""
    parts = np.full((2, len(arms), len(blocks), len(SEARCH)), np.nan)
    for number, block in enumerate(blocks):
        for place, arm in enumerate(arms):
            if arm in block:
                parts[:, place, number] = np.array(block[arm]).T
    times = parts[0] * np.exp(steadied(np.log(parts[1] / parts[0])))
    return np.log(parts[0].sum(axis=2) / times.sum(axis=2)).T


def drawn(rng: np.random.Generator, folder: Path) -> Machine:
    """Any machine."""

    def acceptance(best: float) -> tuple[float, ...]:
        return tuple(float(best * fade**place) for fade in [rng.uniform(0.85, 1.0)] for place in range(8))

    base = float(np.exp(rng.uniform(math.log(3), math.log(80))))
    shape = rng.choice(["dense", "moe", "recurrent"], p=[0.5, 0.35, 0.15])
    load = float(rng.uniform(300, 2000))
    if shape == "moe":
        experts, top_k = int(rng.choice([8, 32, 64, 128])), int(rng.choice([2, 4, 8]))
        target = TargetModel(
            base_ms=0.3 * base,
            token_ms=base * rng.uniform(0.01, 0.1),
            experts=max(experts, top_k),
            top_k=top_k,
            expert_ms=0.6 * base / top_k,
            load_ms=load,
        )
    else:
        restore = base * rng.uniform(0.1, 0.6) if shape == "recurrent" else 0.0
        target = TargetModel(base_ms=base, token_ms=base * rng.uniform(0.01, 0.35), restore_ms=restore, load_ms=load)
    small, large = sorted(rng.uniform(0.2, 0.97, 2))
    drafts = {
        "small": MockDrafter(token_ms=base * rng.uniform(0.01, 0.15), other_acceptance=acceptance(small), load_ms=50),
        "large": MockDrafter(token_ms=base * rng.uniform(0.08, 0.5), other_acceptance=acceptance(large), load_ms=200),
    }
    ngram = MockDrafter(
        token_ms=0.001, other_acceptance=acceptance(rng.uniform(0.2, 0.9)), other_hits=float(rng.uniform(0.0, 0.6) ** 2)
    )
    spec = MockSpec(
        targets={"t": target},
        drafts=drafts,
        ngram=ngram,
        noise=math.sqrt(len(SEARCH)) * float(rng.uniform(0.01, 0.08)),
        block_drift=float(rng.uniform(-0.03, 0.03)),
        stalls=float(rng.uniform(0, 0.05)),
        stall_ms=float(rng.uniform(200, 2000)),
        seed=int(rng.integers(1 << 31)),
    )
    return Machine(spec, folder)


def machine(rng: np.random.Generator, folder: Path, *, helps: bool) -> Machine:
    """One on which something helps, or on which nothing does."""
    while True:
        found = drawn(rng, folder)
        if (found.truth[1:].max() > found.truth[0]) == helps:
            return found


@dataclass(frozen=True)
class Advised:
    """What was advised, and what it took."""

    decision: str
    arm: int
    """0 for plain decoding; where nothing is decided the arm that leads."""
    seconds: float
    raced: tuple[int, ...] = ()
    state: str = "open"
    """Of the race: `winner`, `equivalent`, or open, also where too little was at stake to go on."""
    at_stake: float | None = None
    blocks: int = 0
    rival: int = 0
    """Another arm that the answer names; 0 for none."""

    def lost(self, truth: Floats) -> float:
        """Logarithm of the speed lost to the best arm, by the better one of those that are named."""
        return float(truth.max() - max(truth[self.arm], truth[self.rival] if self.rival else -math.inf))

    @property
    def told_apart(self) -> bool:
        """Whether the arm was told from all others that were raced, or next to nothing is lost by taking it."""
        return self.state != "open" or (self.at_stake is not None and self.at_stake < ENOUGH)


def advise(it: Machine, rng: np.random.Generator, most: int, errors: tuple[float, float], blocks_of: int) -> Advised:
    """The course, with a screen that errs as stated."""
    it.cell(0, SEARCH, "screen")
    it.seconds *= 2  # the probe
    of_drafter = {name: rng.normal(0, errors[0]) for name in ("none", "small", "large", None)}
    predicted = it.searched - it.searched[0]
    predicted = predicted + np.array([of_drafter[a.draft] + rng.normal(0, errors[1]) for a in ARMS])
    predicted[0] = 0.0
    doubt = 2 * math.hypot(*errors)
    best = predicted[1:].max()
    order = [int(a) for a in np.argsort(-predicted) if a and predicted[a] + doubt > max(0.0, best - doubt)]
    raced = sorted([0, *order[:most]])
    leader, off_shown, blocks = 0, len(raced) == 1, 0
    ratio, state, at_stake, found = None, "open", None, None
    rows: Cells = []
    if len(raced) > 1:
        racing = raced
        while True:
            rows.append({which: it.requests(which, SEARCH, "race") for which in racing})
            found = eliminate(log_rates(rows, raced), simplicity=range(len(raced)), most_blocks=blocks_of)
            racing = sorted(raced[place] for place in found.survivors)
            if found.state != "open" or len(rows) == blocks_of or settled(found):
                break
        state, at_stake = found.state, found.at_stake
        leader, blocks = raced[found.leader], len(rows)
        off_shown = leader == 0 and found.state != "open"
        other = max(found.ratios, key=lambda place: found.ratios[place].point)
        ratio = found.ratios[found.leader if leader else other]
        challenger = leader or raced[other]
    else:
        challenger = int(np.argmax(predicted[1:])) + 1
    others = len(raced) - 2
    rival = 0 if off_shown or not leader else rival_of([rows], raced, leader)
    arms = [challenger, rival] if rival else [challenger]
    among = LOOKS * len(arms)
    count = 6 if ratio is None else max(3, blocks_to_confirm(ratio, most=6, among=among))
    shown: Shown = "priced" if found is None else "raced" if state != "open" else "open"
    if found is not None and shown == "open" and settled(found):
        shown = "settled"
    off_raced = len(raced) > 1 and not leader
    halves = [rows, list[dict[int, list[tuple[float, float]]]]()]
    left = {raced[place] for place in found.survivors} - {0} if found is not None else set[int]()
    for _ in range(LOOKS):
        cells = [{which: it.requests(which, OTHER, "confirm") for which in (0, *arms)} for _ in range(count)]
        halves[1] += cells
        told = [confirmed(cells, which, among) for which in arms]
        best = told[0] if not rival else preferred(*told, over_halves(halves, challenger, rival))
        bounded = all(ends(over_halves(halves, arm, 0))[1] <= 1 + MARGIN for arm in {int(best.arm_id), *left})
        decision, _ = decide(best, off_raced=off_raced, shown="no-gain" if bounded else shown)
        if decision != "undecided" or best.ruling != "open" or best.speedup is None:
            break
        count = min(24, max(2 * count, blocks_to_decide(best.speedup, most=24, among=among)))
    arm = 0 if decision in LEAVES_OFF else int(best.arm_id)
    named = rival_of(halves, raced, arm) if decision in DRAFTS and others > 0 else 0
    return Advised(decision, arm, it.seconds, tuple(raced), state, at_stake, blocks, named)


def settled(found: RaceStanding) -> bool:
    """Whether too little is at stake to go on."""
    return found.at_stake is not None and found.at_stake < ENOUGH and (found.faster_than_plain or not found.leader)


def rival_of(halves: Sequence[Cells], raced: Sequence[int], arm: int) -> int:
    """As the product chooses it; 0 for none."""
    others = [it for it in raced if it not in (0, arm)]
    lows = {it: ends(over_halves(halves, arm, it, among=len(others)))[0] for it in others}
    return min((it for it in lows if lows[it] <= 1 / (1 + MARGIN)), key=lows.__getitem__, default=0)


def over_halves(halves: Sequence[Cells], arm: int, other: int, *, among: int = 1) -> Estimate | None:
    """Rate of an arm over that of another by both halves of the prompts."""
    rates = [log_rates(cells, (arm, other)) for cells in halves]
    logs = [it[:, 0] - it[:, 1] for it in rates]
    logs = [it[np.isfinite(it)] for it in logs]
    return speedup_over_halves([it for it in logs if len(it) > 1], level=1 - (1 - BOUND) / among)


def confirmed(cells: Cells, which: int, among: int) -> Confirmed:
    """What blocks of the confirmation say of one arm."""
    blocks: list[Pair] = []
    logs: list[Floats] = []
    for block in cells:
        mine, plain = (np.array(block[it], dtype=np.float64) for it in (which, 0))
        blocks.append((Pool(*mine.sum(axis=0)), Pool(*plain.sum(axis=0))))
        logs.append(np.log(mine[:, 0] / mine[:, 1]) - np.log(plain[:, 0] / plain[:, 1]))
    speedup = simultaneous(geometric_speedup(blocks), among)
    over = speedup_over_prompts(np.array(logs), among=among // LOOKS)
    ruling = ruled(speedup, over, "valid", loaded=False)
    return Confirmed(str(which), speedup, over, None, "valid", ruling, "confirm")


def fixed_grid(it: Machine, seconds: float) -> int:
    """The fastest of as many arms as the time allows, each measured once."""
    it.seconds, rates = 0.0, dict[int, float]()
    for which in FIXED:
        rates[which] = it.cell(which, SEARCH, "grid")
        if it.seconds >= seconds:
            break
    return max(rates, key=lambda which: rates[which])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machines", type=int, default=100)
    parser.add_argument("--race", type=int, default=3, help="most arms that are raced beside plain decoding")
    parser.add_argument("--blocks", type=int, default=16, help="most blocks of the race")
    parser.add_argument("--screen-error", type=float, nargs=2, default=(0.03, 0.02), metavar=("DRAFTER", "ARM"))
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    found: dict[bool, list[tuple[Advised, Machine, dict[str, float]]]] = {True: [], False: []}
    with tempfile.TemporaryDirectory() as scratch:
        for number in range(args.machines):
            rng = np.random.default_rng([args.seed, number])
            helps = number % 3 != 0
            it = machine(rng, Path(scratch), helps=helps)
            advised = advise(it, rng, args.race, tuple(args.screen_error), args.blocks)
            best = float(it.truth.max())
            losses = {"advice": advised.lost(it.truth)}
            losses["grid once"] = best - float(it.truth[fixed_grid(it, advised.seconds)])
            found[helps].append((advised, it, losses))
    print_results(found)


def print_results(found: dict[bool, list[tuple[Advised, Machine, dict[str, float]]]]) -> None:
    for helps, rows in found.items():
        print(f"\n{len(rows)} machines on which {'something helps' if helps else 'nothing helps'}")
        decisions = Counter(advised.decision for advised, _, _ in rows)
        print("  " + ", ".join(f"{word} {count}" for word, count in decisions.most_common()))
        decided = [(a, m) for a, m, _ in rows if a.decision != "undecided"]
        print(f"  one arm or another: {sum(bool(a.rival) for a, _ in decided)}")
        for what, some in (
            ("decided", decided),
            ("speculate, told from all others", [(a, m) for a, m in decided if a.arm and a.told_apart]),
            ("speculate, not told from all others", [(a, m) for a, m in decided if a.arm and not a.told_apart]),
            ("off", [(a, m) for a, m in decided if not a.arm]),
        ):
            lost = [(a, m) for a, m in some if a.lost(m.truth) > math.log1p(MARGIN)]
            there = sum(a.lost(m.searched) > math.log1p(MARGIN) for a, m in some)
            afar = sum(a.lost(m.everywhere) > math.log1p(MARGIN) for a, m in some)
            missed = sum(max(m.truth[which] for which in a.raced) < m.truth.max() - math.log1p(MARGIN) for a, m in lost)
            goal = f", goal {WRONG:.0%}" if what == "decided" else ""
            print(
                f"  {what}: {len(some)}, of these more than 2 % below the best {len(lost)} "
                f"({len(lost) / max(1, len(some)):.1%}{goal}), {missed} by the screen; on the prompts searched by "
                f"{there}, on 64 prompts {afar}"
            )
        for decision in DRAFTS:
            mine = [(a, m) for a, m in decided if a.decision == decision]
            goal = f", goal {FALSE:.1%}" if decision == "speculate" and not helps else ""
            rash, afar = (
                sum(t[a.arm] <= t[0] for a, t in some)
                for some in ([(a, m.truth) for a, m in mine], [(a, m.everywhere) for a, m in mine])
            )
            print(
                f"  '{decision}' though plain decoding is as fast or faster: {rash} ({rash / len(rows):.1%} of "
                f"all{goal}), on 64 prompts {afar}"
            )
        shares = np.array([a.seconds / m.grid_seconds for a, m, _ in rows])
        print(f"  share of the grid's time: median {np.median(shares):.1%}, 90 % below {np.quantile(shares, 0.9):.1%}")
        for name in rows[0][2]:
            losses = 1 - np.exp(-np.array([loss[name] for _, _, loss in rows]))
            print(
                f"  regret, {name:9}: mean {losses.mean():.2%}, nine of ten below {np.quantile(losses, 0.9):.1%}, "
                f"worst {losses.max():.0%}, above 2 % in {np.mean(losses > 0.0196):.0%}"
            )


if __name__ == "__main__":
    main()
