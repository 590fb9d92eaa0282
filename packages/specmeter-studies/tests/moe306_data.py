"""Made-up data of moe-306, every interval as wide as a test wants it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from specmeter.messages import Message
from specmeter.record import Estimate, Verdict
from specmeter_studies.library.moe_306.lines import DENSE, GAMMAS, LARGE, MOE, SMALL, suite
from specmeter_studies.study import ArmResult, ModelUsed, PromptResult, StudyData

RATES = {"moe_q4": 55.0, "moe_q8": 50.0, "dense_0.8b": 550.0, "dense_2b": 250.0, "dense_4b": 67.0, "dense_9b": 33.0}
"""tok/s of plain decoding."""


class Config(NamedTuple):
    """What a number is chosen for."""

    target: str
    draft: str
    gamma: int


Choice = float | Callable[[Config], float]
"""One number for all configurations, or one for each."""


def estimate(point: float, spread: float = 0.01, unit: str = "x") -> Estimate:
    """With an interval of +- `spread`, relative; none for 0."""
    low, high = (point * (1 - spread), point * (1 + spread)) if spread else (None, None)
    return Estimate(point=point, low=low, high=high, n=3, unit=unit, method="made up")


def plain(target: str, rate: float | None = None, *, config: str = "none", length: int | None = None) -> ArmResult:
    """A baseline."""
    line = ArmResult(
        config=f"{target}/{config}",
        target=target,
        requests=9,
        prompt_tokens=length,
        decode_rate=estimate(rate or RATES[target], unit="tok/s"),
        verdict="valid",
    )
    return line.model_copy(update={"suite": suite(line)})


def drafted(
    target: str,
    draft: str,
    gamma: int,
    speedup: float,
    *,
    acceptance: float = 0.5,
    spread: float = 0.01,
    config: str | None = None,
    prompt: str | None = None,
    length: int | None = None,
    verdict: Verdict = "valid",
    why: Message | None = None,
) -> ArmResult:
    """An arm that speculates; tau is what its acceptance makes."""
    line = ArmResult(
        config=config or f"{target}/draft-simple/{draft}/g{gamma}",
        target=target,
        draft=draft,
        method="draft-simple",
        gamma=gamma,
        prompt=prompt,
        prompt_tokens=length,
        requests=12,
        decode_rate=estimate(RATES[target] * speedup, spread, "tok/s"),
        speedup=None if verdict == "invalid" else estimate(speedup, spread),
        claimed_speedup=speedup if verdict == "invalid" else None,
        acceptance=estimate(acceptance, spread, "1"),
        tau=estimate(1 + acceptance * gamma, spread, "tokens/forward"),
        verdict=verdict,
        why=why,
    )
    return line.model_copy(update={"suite": suite(line)})


def models(total_moe: float = 35e9, *, moe_bytes: float = 20e9) -> tuple[ModelUsed, ...]:
    """Sizes as in the paper, unless told otherwise."""
    sizes = {"dense_0.8b": 0.8e9, "dense_2b": 2e9, "dense_4b": 4e9, "dense_9b": 9e9}
    dense = tuple(
        ModelUsed(
            name=name, reference=name, parameters=n, active_parameters=n, size_bytes=n, bytes_per_token=n, experts=0
        )
        for name, n in sizes.items()
    )
    mixtures = tuple(
        ModelUsed(
            name=name,
            reference=name,
            parameters=total_moe,
            active_parameters=3e9,
            size_bytes=moe_bytes,
            bytes_per_token=moe_bytes / 10,
            experts=256,
            experts_used=8,
        )
        for name in MOE
    )
    return (*mixtures, *dense)


def study(
    speedup: Choice,
    *,
    acceptance: Choice = 0.5,
    spread: float = 0.01,
    lengths: Sequence[tuple[int, float]] = ((32, 1.2), (1024, 1.2)),
    kinds: Sequence[tuple[str, float]] = (("fact", 1.2), ("code", 1.2)),
    results: tuple[PromptResult, ...] = (),
    used: tuple[ModelUsed, ...] | None = None,
    bandwidth: float | None = None,
    rates: dict[str, float] | None = None,
) -> StudyData:
    """All configurations of the paper, with the speedups and acceptances chosen."""
    lines = [plain(target, (rates or {}).get(target)) for target in RATES]
    pairs = [(target, draft) for target in MOE for draft in (SMALL, LARGE)] + [(target, SMALL) for target in DENSE]
    for target, draft in pairs:
        for gamma in GAMMAS:
            config = Config(target, draft, gamma)
            share, gain = _chosen(acceptance, config), _chosen(speedup, config)
            lines.append(drafted(*config, gain, acceptance=share, spread=spread))
    for length, gain in lengths:
        lines.append(plain("moe_q4", config="lengths", length=length))
        lines.append(drafted("moe_q4", SMALL, 8, gain, config="moe_q4/lengths-g8", length=length, spread=spread))
    for kind, gain in kinds:
        lines += [drafted(target, SMALL, 8, gain, prompt=kind, spread=spread) for target in MOE]
    return StudyData(
        study="moe-306",
        origin="measured",
        title="made up",
        arms=tuple(lines),
        results=results,
        models=models() if used is None else used,
        bandwidth_bytes_per_s=bandwidth,
    )


def _chosen(choice: Choice, config: Config) -> float:
    return choice(config) if callable(choice) else choice
