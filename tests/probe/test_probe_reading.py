"""What a probe says: break-even by hand, the models of its curve, and the sentence for people."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cost_curves import curve_of
from probe.probes import curve, model, probe
from records import header
from said import codes
from specmeter.messages import Message
from specmeter.probe.reading import break_even, fits, sentence, told_apart
from specmeter.record import Estimate, ExpertUnion, UnionPoint
from specmeter.theory.acceptance import tokens_per_step
from specmeter.theory.roofline import union_of_draws

N = (1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 17, 25, 33)


def exact(value: float, unit: str = "ms") -> Estimate:
    return Estimate(point=value, n=1, unit=unit, method="made up")


def union(share: float) -> ExpertUnion:
    points = (UnionPoint(tokens=n, union=exact(float(union_of_draws(float(n), 32, 4, share)), "experts")) for n in N)
    return ExpertUnion(experts=32, used=4, points=tuple(points))


def test_break_even_counts_drafting_and_overhead() -> None:
    made = probe(
        target_ms=curve(lambda n: 9.0 + n),  # T(1) 10, T(5) 14
        draft=model("draft"),
        draft_ms=curve(lambda _: 0.5),
        overhead_ms=exact(2.0),
    )
    found = break_even(made)
    assert found is not None
    assert found.gamma == 4
    assert found.verification.point == pytest.approx(1.4)
    assert found.tokens == pytest.approx((4 * 0.5 + 14 + 2) / (10 + 2))  # 1.5
    assert found.alpha is not None
    assert tokens_per_step(found.alpha, 4) == pytest.approx(1.5)
    said = sentence(made)
    assert (said.code, said.values["step"]) == ("break-even.pays", pytest.approx(1.5))
    assert said.values["counted"] == Message("break-even.with_drafting")


def test_a_recurrent_target_s_replays_are_not_passed_over() -> None:
    target_ms = curve(lambda n: 9.0 + n)
    assert "break-even.replays" not in codes(sentence(probe(target_ms=target_ms)))
    told = sentence(probe(target_ms=target_ms, target=model().model_copy(update={"header": header(recurrent=True)})))
    assert codes(told) == {"break-even.pays", "break-even.without_drafting_only", "break-even.replays"}


def test_a_curve_made_by_experts_is_fitted_by_experts() -> None:
    experts = union(0.6)
    ms = {point.tokens: 1.0 + 0.1 * point.tokens + 0.4 * point.union.point for point in experts.points}
    models = fits(probe(target_ms=curve_of(list(ms), list(ms.values())), union=experts))
    assert models[0].model == "experts"
    assert told_apart(models)
    assert models[0].parameters == pytest.approx({"floor": 1.0, "slope": 0.1, "expert": 0.4}, rel=1e-3)
    assert models[0].rms < 1e-4


def test_models_are_told_apart_only_by_more_than_noise() -> None:
    models = fits(probe(target_ms=curve(lambda n: 10.0 + n, N)))
    assert {model.model for model in models} == {"affine", "roofline"}
    assert models[0].model == "affine"
    assert models[0].parameters == pytest.approx({"floor": 10.0, "slope": 1.0})


def test_too_few_points_give_no_models() -> None:
    assert fits(probe(target_ms=curve(lambda n: 10.0 + n, (1, 2, 5)))) == ()


@pytest.mark.parametrize(
    ("ms", "found"),
    [(lambda n: float(n) ** 1.1, {"break-even.never"}), (lambda n: 10.0 - 0.2 * n, {"break-even.always"})],
)
def test_a_verification_may_never_pay_or_always(ms: Callable[[int], float], found: set[str]) -> None:
    assert found <= codes(sentence(probe(target_ms=curve(ms))))


def test_the_gamma_that_was_measured_is_spoken_of() -> None:
    for lengths, n in (((1, 2, 4, 9), 4), ((1, 9), 9), ((1, 2), 2)):
        assert sentence(probe(target_ms=curve(lambda n: 9.0 + n, lengths))).values["n"] == n
    assert sentence(probe(target_ms=curve(lambda n: 9.0 + n, (1,)))) == Message("break-even.only_plain")
    assert break_even(probe(target_ms=curve(lambda n: 9.0 + n, (1, 2))), gamma=4) is None
