"""Rules that claims share: what supports, what contradicts, what decides nothing; and rows that do not count."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal

import pytest

from specmeter.errors import UsageError
from specmeter.messages import Message
from specmeter.numbers.stats import STUDENT
from specmeter.record import Estimate
from specmeter_studies.rules import exceeded, lies
from specmeter_studies.study import ArmResult, ModelUsed, PromptResult, Standing, StudyData


def estimate(point: float, half: float | None, n: int = 5) -> Estimate:
    low, high = (None, None) if half is None else (point - half, point + half)
    return Estimate(point=point, low=low, high=high, n=n, unit="x", method=f"{STUDENT}; made up")


def arm(
    gamma: int, speedup: float, half: float | None = 0.01, target: str = "t", verdict: Standing = "valid"
) -> ArmResult:
    return ArmResult(
        config=f"{target}/g{gamma}",
        target=target,
        draft="d",
        method="draft-simple",
        gamma=gamma,
        requests=4,
        speedup=estimate(speedup, half),
        acceptance=estimate(0.5, 0.1),
        verdict=verdict,
        why=Message("made up") if verdict == "invalid" else None,
    )


LINES = [arm(4, 1.2), arm(8, 1.4), arm(16, 0.8)]


def of(*gammas: int) -> list[ArmResult]:
    return [line for line in LINES if line.gamma in gammas]


@pytest.mark.parametrize(
    ("gammas", "bounds", "expected"),
    [
        ((4, 8, 16), {"low": 1}, "contradicted"),
        ((4, 8), {"low": 1}, "supported"),
        ((16,), {"high": 1}, "supported"),
        ((4,), {"low": 1.2}, "cannot tell"),
        ((4, 8), {"low": 1.1, "high": 1.5}, "supported"),
        ((4, 8, 16), {"low": 1.25, "high": 1.5}, "contradicted"),
        ((3,), {"low": 1}, "cannot tell"),
    ],
)
def test_on_which_side_rows_lie(gammas: tuple[int, ...], bounds: dict[str, Any], expected: str) -> None:
    ruling, told = lies(of(*gammas), "speedup", **bounds)
    assert ruling == expected, told
    assert told


def rising(rows: Sequence[ArmResult]) -> list[tuple[ArmResult, ArmResult]]:
    return [(longer, shorter) for shorter, longer in pairwise(rows)]


def falling(rows: Sequence[ArmResult]) -> list[tuple[ArmResult, ArmResult]]:
    return list(pairwise(rows))


def highest(gamma: int) -> Any:
    def pairs(rows: Sequence[ArmResult]) -> list[tuple[ArmResult, ArmResult]]:
        return [(best, other) for best in rows if best.gamma == gamma for other in rows if other is not best]

    return pairs


@pytest.mark.parametrize(
    ("gammas", "pairs", "expected"),
    [
        ((4, 8), rising, "supported"),
        ((4, 8, 16), rising, "contradicted"),
        ((8, 16), falling, "supported"),
        ((4, 8, 16), highest(8), "supported"),
        ((4, 8, 16), highest(4), "contradicted"),
        ((4, 8, 16), highest(32), "cannot tell"),
    ],
)
def test_which_row_exceeds_which(gammas: tuple[int, ...], pairs: Any, expected: str) -> None:
    ruling, told = exceeded(of(*gammas), "speedup", pairs)
    assert ruling == expected, told
    assert told


def test_exact_numbers_decide_by_themselves_and_printed_ones_of_a_document_s_own_table() -> None:
    line = arm(4, 1.2, None)
    assert lies([line], "gamma", low=3)[0] == "supported"
    assert exceeded([line, arm(8, 1.1)], "gamma", rising)[0] == "supported"
    assert lies([line], "speedup", low=1)[0] == "cannot tell"
    cases: tuple[tuple[Literal["measured", "published"], str], ...]
    cases = (("measured", "cannot tell"), ("published", "supported"))
    for origin, expected in cases:
        data = StudyData(study="x", origin=origin, title="", arms=(line,))
        ruling = lies(data.arms, "speedup", low=1, own_table=data)
        assert ruling[0] == expected, "no single number of ours decides"


def test_rows_that_do_not_stand_support_nothing_and_are_told() -> None:
    false = [arm(4, 1.2, verdict="invalid"), arm(8, 1.4, verdict="invalid")]
    some = Message("study.some_of", number=2, of=2, what=Message("study.fallen.false"))
    told = Message("study.fallen.row", fallen=Message("study.fallen", parts=[some]), row="t/g4", why=Message("made up"))
    assert lies(false, "speedup", low=1) == ("cannot tell", told)
    assert exceeded(false, "speedup", rising) == ("cannot tell", told)
    assert lies([*false, arm(16, 0.8)], "speedup", low=1)[0] == "contradicted"


def test_one_of_many_contradicts_only_by_an_interval_that_holds_for_all() -> None:
    lines = [arm(4, 0.99, 0.009), *(arm(gamma, 1.5) for gamma in range(5, 25))]
    assert lies(lines[:1], "speedup", low=1)[0] == "contradicted"
    assert lies(lines, "speedup", low=1)[0] == "cannot tell", "one in twenty intervals misses by chance"


def test_sentences_are_filled_in_without_being_evaluated() -> None:
    _, told = lies(of(4), "speedup", low=1, unit="x", found="{n} of them, {for} for it: {shown} {0.__class__} {")
    assert str(told) == "1 of them, 1 for it: t/g4 1.20x [1.19, 1.21] {0.__class__} {"
    assert lies(of(4), "speedup", low=1, found={"supported": "yes", "contradicted": "no"})[1].code == "yes"


def test_other_kinds_of_rows() -> None:
    models = (ModelUsed(name="m", reference="m", experts=128, experts_used=8),)
    results = (PromptResult(config="c", target="t", prompt="code", decode_rate=50.0),)
    ruling, told = lies(models, "experts", low=127, high=129)
    assert (ruling, str(told)) == ("supported", "m 128.00.")
    assert lies(results, "decode_rate", low=40)[0] == "supported"
    with pytest.raises(UsageError, match="text cannot be compared"):
        lies(results, "prompt", low=40)
