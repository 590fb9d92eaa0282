"""moesd: rulings about a mixture and a dense target at 1, 2, 4 and 8 clients."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

import specmeter_studies as studies
from specmeter.record import Estimate
from specmeter_studies.study import ArmResult, ModelUsed, StudyData

Curve = Mapping[int, float]
MODELS = (
    ModelUsed(name="dense", reference="d"),
    ModelUsed(name="moe", reference="m", experts=32, experts_used=4),
    ModelUsed(name="sparse", reference="s", experts=64, experts_used=2),
)


def about(point: float) -> Estimate:
    return Estimate(point=point, low=0.98 * point, high=1.02 * point, level=0.95, n=3, unit="x", method="made up")


def lines(target: str, speedups: Curve, tau: float = 2.0) -> list[ArmResult]:
    return [
        ArmResult(
            config=f"{target}/c{clients}",
            target=target,
            draft="small",
            method="draft-simple",
            gamma=2,
            clients=clients,
            requests=8,
            speedup=about(speedup),
            tau=about(tau),
            verdict="valid",
        )
        for clients, speedup in speedups.items()
    ]


def rulings(**curves: Curve) -> dict[str, str]:
    arms = tuple(line for target, speedups in curves.items() for line in lines(target, speedups))
    data = StudyData(study="moesd", origin="measured", title="made up", arms=arms, models=MODELS)
    return {claim.id: claim.ruling for claim in studies.findings("moesd", data).claims}


def test_nothing_measured_decides_nothing() -> None:
    assert set(rulings().values()) == {"cannot tell"}


@pytest.mark.parametrize(
    ("moe", "more", "efficiency"),
    [
        ({1: 0.9, 2: 1.0, 4: 1.2, 8: 1.1}, "supported", "supported"),
        ({1: 0.9, 2: 1.0, 4: 1.1, 8: 1.2}, "supported", "cannot tell"),
        ({1: 1.5, 2: 1.3, 4: 1.1, 8: 0.9}, "contradicted", "contradicted"),
        ({1: 1.0, 2: 1.0, 4: 1.01, 8: 1.0}, "cannot tell", "cannot tell"),
    ],
)
def test_a_mixture_along_its_clients(moe: Curve, more: str, efficiency: str) -> None:
    found = rulings(moe=moe)
    assert (found["more-when-many-ask"], found["efficiency-rises-then-falls"]) == (more, efficiency)


def test_a_mixture_beside_a_dense_target() -> None:
    moe = {1: 0.9, 4: 1.2}
    assert rulings(moe=moe, dense={1: 2.0, 4: 1.0})["more-than-dense"] == "supported"
    assert rulings(moe=moe, dense={1: 0.5, 4: 1.5})["more-than-dense"] == "contradicted"
    assert rulings(moe=moe, dense={1: 0.5, 4: 1.2})["more-than-dense"] == "cannot tell"


def test_mixtures_of_two_sparsities() -> None:
    moe = {1: 0.9, 4: 1.2, 8: 0.9}
    assert rulings(moe=moe)["wider-range-if-sparser"] == "cannot tell"
    assert rulings(moe=moe, sparse={1: 0.9, 4: 1.2, 8: 1.2})["wider-range-if-sparser"] == "supported"
    assert rulings(moe=moe, sparse={1: 0.9, 4: 0.9, 8: 0.9})["wider-range-if-sparser"] == "contradicted"
