"""True runs, made up step by step and printed as people print them: none of them may be called impossible.

A run is a few prompts, each with its own acceptance; a forward over n tokens costs T(n), which on some machines is less
than T(1); timings are noisy; drafts may stop early; the last step is cut at the limit. Tables print sums, means or
medians over prompts, rounded. Where sums were printed, drafts have full length and no forward is cheaper than T(1), no
row may be called implausible either.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from statistics import fmean, median, pstdev
from typing import Any, Literal

from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from specmeter.audit.claim import Claim, Ruling
from specmeter.audit.judge import rule_claim
from specmeter.audit.reading import rule

TIMING = 0.025
"""Most by which one timing lies beside the truth: two of them differ by at most 5 %, where 6 % is the usual noise."""
FIELD_SPREAD = 0.5
"""Most that log speedup spreads over prompts where a mean is printed without a word; published suites: 0.2 to 0.5."""


@dataclass(frozen=True)
class Setup:
    """What is run: a draft of cost c (in plain forwards), and the time of forwards over 1 .. gamma + 1 tokens."""

    gamma: int
    cost: float
    forwards: tuple[float, ...]
    acceptances: tuple[float, ...]
    early: bool
    limit: int
    plain_ms: float
    seed: int


@dataclass
class Prompt:
    """What came of one prompt."""

    decoded: int
    drafted: int
    accepted: int
    steps: int
    decode_ms: float
    plain_ms: float

    @property
    def speedup(self) -> float:
        return self.plain_ms / self.decode_ms


@st.composite
def setups(draw: st.DrawFn, *, cheapest: float) -> Setup:
    gamma = draw(st.integers(1, 8))
    middle = draw(st.floats(0, 0.98))
    return Setup(
        gamma=gamma,
        cost=draw(st.floats(0.001, 0.6)),
        forwards=(1.0, *(draw(st.floats(cheapest, 2.5)) for _ in range(gamma))),
        acceptances=tuple(
            min(0.99, max(0.0, middle + draw(st.floats(-0.3, 0.3)))) for _ in range(draw(st.integers(1, 8)))
        ),
        early=draw(st.booleans()),
        limit=draw(st.integers(33, 120)),
        plain_ms=draw(st.floats(2, 60)),
        seed=draw(st.integers(0, 2**32)),
    )


def decoded(setup: Setup) -> list[Prompt]:
    """Every prompt, step by step."""
    dice = random.Random(setup.seed)
    return [_decode(setup, acceptance, dice) for acceptance in setup.acceptances]


def _decode(setup: Setup, acceptance: float, dice: random.Random) -> Prompt:
    tokens, drafted, accepted, steps, cost = 0, 0, 0, 0, 0.0
    length = dice.randint(setup.limit // 2 + 16, setup.limit + 16)
    while tokens < length:
        drafts = dice.randint(0, setup.gamma) if setup.early else setup.gamma
        taken = 0
        while taken < drafts and dice.random() < acceptance:
            taken += 1
        drafted, accepted, steps, tokens = drafted + drafts, accepted + taken, steps + 1, tokens + taken + 1
        cost += setup.forwards[drafts] + drafts * setup.cost
    tokens = min(tokens, length)

    def timed(forwards: float) -> float:
        return forwards * setup.plain_ms * dice.uniform(1 - TIMING, 1 + TIMING)

    return Prompt(tokens, drafted, accepted, steps, timed(cost), timed(tokens))


Kind = Literal["sums", "mean speedup", "mean acceptance", "means", "medians"]


def printed(setup: Setup, prompts: list[Prompt], kind: Kind, columns: frozenset[str], digits: int) -> Claim:
    """One row of a table."""
    tokens, steps = sum(p.decoded for p in prompts), sum(p.steps for p in prompts)
    drafted, accepted = sum(p.drafted for p in prompts), sum(p.accepted for p in prompts)
    decode_ms, plain_ms = sum(p.decode_ms for p in prompts), sum(p.plain_ms for p in prompts)
    together = {"mean speedup": fmean, "mean acceptance": None, "means": fmean, "medians": median, "sums": None}[kind]
    numbers = {
        "speedup": together([p.speedup for p in prompts]) if together else plain_ms / decode_ms,
        "decode_rate": 1e3 * tokens / decode_ms,
        "baseline_rate": 1e3 * tokens / plain_ms,
        "acceptance": accepted / drafted if drafted else 0.0,
        "tau": tokens / steps,
        "draft_rate": 1e3 / (setup.cost * setup.plain_ms),
    }
    if kind in {"means", "medians"}:
        assert together is not None
        numbers["decode_rate"] = together([1e3 * p.decoded / p.decode_ms for p in prompts])
        numbers["baseline_rate"] = together([1e3 * p.decoded / p.plain_ms for p in prompts])
        numbers["tau"] = together([p.decoded / p.steps for p in prompts])
    if kind in {"mean acceptance", "means"}:
        numbers["acceptance"] = fmean(p.accepted / p.drafted if p.drafted else 0.0 for p in prompts)
    fields: dict[str, Any] = {}
    rounding: dict[str, float] = {}
    for name in sorted(columns & set(numbers)):
        unit = 10.0 ** (math.floor(math.log10(max(numbers[name], 1e-6))) - digits + 1)
        fields[name] = max(unit, round(numbers[name] / unit) * unit) if name != "acceptance" else numbers[name]
        rounding[name] = 0.5 * unit if name != "acceptance" else 0.0
    fields["tau"] = max(1.0, fields["tau"]) if "tau" in fields else None
    if "counts" in columns:
        fields |= {"drafted": drafted, "accepted": accepted, "predicted_n": tokens + len(prompts)}
        fields |= {"target_forwards": steps} if "forwards" in columns else {"steps": steps}
    if "time" in columns:
        fields |= {"predicted_n": tokens + len(prompts), "predicted_ms": decode_ms}
    if "runs" in columns:
        fields["runs"] = len(prompts)
    if "gamma" in columns:
        fields["gamma"] = setup.gamma
    return Claim(source="made up", row="row 1", rounding=rounding, **fields)


COLUMNS = (
    "speedup", "decode_rate", "baseline_rate", "acceptance", "tau", "draft_rate", "counts", "forwards", "time", "runs",
    "gamma",
)  # fmt: skip
KINDS: tuple[Kind, ...] = ("sums", "mean speedup", "mean acceptance", "means", "medians")
columns = st.sets(st.sampled_from(COLUMNS), min_size=2).map(frozenset)


@settings(max_examples=400, deadline=None)
@given(setups(cheapest=0.5), st.sampled_from(KINDS), columns, st.integers(2, 5), st.booleans())
def test_a_true_row_is_never_impossible(
    setup: Setup, kind: Kind, columns: frozenset[str], digits: int, said: bool
) -> None:
    prompts = decoded(setup)
    claim = printed(setup, prompts, kind, columns, digits)
    if said and kind in {"mean speedup", "means"}:
        means = ("speedup",) if kind == "mean speedup" else ("speedup", "decode_rate", "acceptance")
        claim = claim.model_copy(update={"averaged": means})
    else:
        assume(kind == "sums" or pstdev([math.log(p.speedup) for p in prompts]) <= FIELD_SPREAD)
    ruling = rule_claim(claim)
    assert ruling.verdict != "impossible", ruling.reason


@example(Setup(5, 0.5, (1.0,) * 6, (0.99,), True, 33, 2.0, 5), frozenset({"counts", "runs", "speedup"}), 2)
@example(Setup(3, 0.5, (1.0,) * 4, (0.875,) * 2, False, 33, 2.0, 0), frozenset({"counts", "gamma", "speedup"}), 2)
@example(
    Setup(2, 0.5, (1.0,) * 3, (0.58984375, *(0.55859375,) * 3), True, 120, 2.0, 2509),
    frozenset({"counts", "runs", "speedup", "time"}),
    2,
)
@settings(max_examples=400, deadline=None)
@given(setups(cheapest=1.0), columns, st.integers(2, 5))
def test_sums_where_no_forward_is_cheap_are_never_implausible(
    setup: Setup, columns: frozenset[str], digits: int
) -> None:
    claim = printed(setup, decoded(setup), "sums", columns, digits)
    if setup.early:
        claim = claim.model_copy(update={"p_min": 0.5})
    ruling = rule_claim(claim)
    assert not ruling.broken, ruling.reason


def _worst_table(seed: int) -> list[Claim]:
    """Repeats in which every draft is accepted at no cost: S = tau, and noise alone decides which rows lie above."""
    dice = random.Random(seed)
    gamma, noise = dice.randint(1, 6), dice.uniform(0.003, 0.04)
    rows: list[Claim] = []
    for _ in range(dice.randint(2, 8)):
        plain, drafted = (40.0 * factor * math.exp(dice.gauss(0, noise)) for factor in (1.0, 1.0 + gamma))
        where: dict[str, Any] = {"source": "made up", "target": "t"}
        rows.append(Claim(row=f"line {len(rows)}", method="none", decode_rate=plain, **where))
        rows.append(
            Claim(
                row=f"line {len(rows)}",
                method="draft-simple",
                decode_rate=drafted,
                baseline_rate=plain,
                gamma=gamma,
                acceptance=1.0,
                **where,
            )
        )
    return rows


def test_repeats_say_how_noisy_a_table_is() -> None:
    """Of rows at the bound itself, 1 of 100 may be called implausible; 50 would be without any noise."""
    audits = [rule(_worst_table(seed), "made up", "table") for seed in range(200)]
    rulings = [ruling for audit in audits for ruling in audit.rulings if ruling.claim.method != "none"]
    assert not any(ruling.verdict == "impossible" for ruling in rulings)
    assert sum(ruling.broken for ruling in rulings) <= 0.01 * len(rulings)
    without = [rule_claim(ruling.claim, noise=0.0) for ruling in rulings]
    assert sum(ruling.broken for ruling in without) > 0.4 * len(rulings)


def test_a_stalled_baseline_makes_its_own_rows_noisy_and_no_others() -> None:
    def plain(row: str, prompt: str, rate: float) -> Claim:
        where: dict[str, Any] = {"target": "t", "conditions": {"prompt": prompt}}
        return Claim(source="s", row=row, method="none", decode_rate=rate, **where)

    def drafted(row: str, prompt: str, rate: float, baseline: float) -> Claim:
        return plain(row, prompt, rate).model_copy(
            update={"method": "draft-simple", "baseline_rate": baseline, "gamma": 2, "acceptance": 0.8}
        )

    rows = [plain(f"a{i}", "a", 50 + 0.2 * i) for i in range(8)] + [plain("b0", "b", 50), plain("b1", "b", 5)]
    rows += [drafted("a", "a", 180, 50), drafted("b", "b", 100, 5)]
    audit = rule(rows, "s", "table")
    ruled: dict[str, Ruling] = {ruling.claim.row: ruling for ruling in audit.rulings}
    assert audit.noise.share < 0.06
    assert ruled["a"].verdict == "implausible"
    assert ruled["b"].verdict == "cannot tell"
