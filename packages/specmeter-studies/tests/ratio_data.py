"""Data of drafts made by hand: what each arm is said to have done, and what models do by themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from specmeter.numbers.stats import STUDENT
from specmeter.record import Estimate
from specmeter_studies.study import ArmResult, ModelUsed, Standing, StudyData


class Made(NamedTuple):
    """A speculative arm."""

    target: str
    draft: str
    gamma: int
    speedup: float | None
    acceptance: float
    spread: float = 1.01
    """Ends of the speedup's interval: point / spread and point * spread."""
    prompt: str | None = None
    verdict: Standing | None = "valid"
    claimed: float | None = None


def estimate(point: float, spread: float = 1.005, unit: str = "x", n: int = 5) -> Estimate:
    return Estimate(point=point, low=point / spread, high=point * spread, n=n, unit=unit, method=f"{STUDENT}; made up")


def alone(name: str, rate: float, spread: float = 1.001) -> ArmResult:
    made = estimate(rate, spread, "tok/s")
    return ArmResult(config=f"{name}/none", target=name, requests=15, decode_rate=made, verdict="valid")


def arm(made: Made) -> ArmResult:
    acceptance = Estimate(
        point=made.acceptance,
        low=max(0.0, made.acceptance - 0.02),
        high=min(1.0, made.acceptance + 0.02),
        n=3,
        unit="1",
        method="made up",
    )
    tau = 1 + made.acceptance * made.gamma
    return ArmResult(
        config=f"{made.target}/{made.draft}/g{made.gamma}",
        target=made.target,
        draft=made.draft,
        method="draft-simple",
        gamma=made.gamma,
        prompt=made.prompt,
        requests=15,
        speedup=None if made.speedup is None else estimate(made.speedup, made.spread),
        claimed_speedup=made.claimed,
        acceptance=acceptance,
        tau=estimate(tau, 1.005, "tokens/forward"),
        verdict=made.verdict,
    )


def data(
    study: str,
    rates: dict[str, float],
    arms: Sequence[Made],
    *,
    models: Sequence[ModelUsed] = (),
    bandwidth: float | None = None,
    spread: float = 1.001,
) -> StudyData:
    """A study of these arms; `spread` is that of the models' own rates."""
    return StudyData(
        study=study,
        origin="measured",
        title="made up",
        arms=(*(alone(name, rate, spread) for name, rate in rates.items()), *map(arm, arms)),
        models=tuple(models),
        bandwidth_bytes_per_s=bandwidth,
    )
