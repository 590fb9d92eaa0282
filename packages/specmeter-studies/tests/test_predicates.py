"""The named predicates: what supports, what contradicts, what decides nothing; and rows that do not count."""

from __future__ import annotations

from typing import Any

import pytest

from specmeter.errors import UsageError
from specmeter.numbers.stats import STUDENT
from specmeter.record import Estimate
from specmeter_studies.definition import Rule
from specmeter_studies.predicates import decide
from specmeter_studies.study import ArmResult, ModelUsed, Result, Standing, StudyData


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
        why="made up" if verdict == "invalid" else "",
    )


def ruled(lines: list[ArmResult], origin: str = "measured", **rule: Any) -> tuple[str, str]:
    data = StudyData(study="x", origin=origin, title="", arms=tuple(lines))  # type: ignore[arg-type]
    return decide(data, Rule.model_validate(rule), refuse)


def refuse(name: str) -> Any:
    raise UsageError(name, fix="")


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ({"is": "above", "than": 1}, "contradicted"),
        ({"is": "above", "than": 1, "where": {"gamma": [4, 8]}}, "supported"),
        ({"is": "above", "than": 1, "against": "every"}, "cannot tell"),
        ({"is": "below", "than": 1, "where": {"gamma": 16}}, "supported"),
        ({"is": "above", "than": 1.2, "where": {"gamma": 4}}, "cannot tell"),
        ({"is": "within", "low": 1.1, "high": 1.5, "where": {"gamma": [4, 8]}}, "supported"),
        ({"is": "within", "low": 1.25, "high": 1.5}, "contradicted"),
        ({"is": "rises", "by": "gamma", "where": {"gamma": [4, 8]}}, "supported"),
        ({"is": "rises", "by": "gamma"}, "contradicted"),
        ({"is": "falls", "by": "gamma", "where": {"gamma": [8, 16]}}, "supported"),
        ({"is": "highest", "beside": {"gamma": 8}}, "supported"),
        ({"is": "highest", "beside": {"gamma": 4}}, "contradicted"),
        ({"is": "exceeds", "where": {"gamma": [8, 16]}, "beside": {"gamma": 16}}, "supported"),
        ({"is": "crosses", "than": 1, "by": "gamma", "at": 4, "where": {"gamma": [4, 8]}}, "supported"),
        ({"is": "crosses", "than": 1, "by": "gamma", "at": 4}, "contradicted"),
        ({"is": "above", "than": 1, "where": {"gamma": 3}}, "cannot tell"),
    ],
)
def test_what_a_predicate_says(rule: dict[str, Any], expected: str) -> None:
    lines = [arm(4, 1.2), arm(8, 1.4), arm(16, 0.8)]
    ruling, told = ruled(lines, of="speedup", **rule)
    assert ruling == expected, told
    assert told


def test_exact_numbers_decide_by_themselves_and_printed_ones_of_a_document_s_own_table() -> None:
    line = arm(4, 1.2, None)
    assert ruled([line], **{"is": "equal", "of": "gamma", "than": 4, "rests_on": "counts"})[0] == "supported"
    assert ruled([line], **{"is": "above", "of": "speedup", "than": 1})[0] == "cannot tell"
    rule = {"is": "above", "of": "speedup", "than": 1, "printed": True}
    assert ruled([line], **rule)[0] == "cannot tell", "no single number of ours decides"
    assert ruled([line], origin="published", **rule)[0] == "supported"


def test_rows_that_do_not_stand_support_nothing_and_are_told() -> None:
    false = [arm(4, 1.2, verdict="invalid"), arm(8, 1.4, verdict="invalid")]
    ruling, told = ruled(false, **{"is": "above", "of": "speedup", "than": 1})
    assert ruling == "cannot tell"
    assert told == "2 of 2 false: they support nothing. t/g4: made up."
    assert ruled([*false, arm(16, 0.8)], **{"is": "above", "of": "speedup", "than": 1})[0] == "contradicted"


def test_one_of_many_contradicts_only_by_an_interval_that_holds_for_all() -> None:
    lines = [arm(4, 0.99, 0.009), *(arm(gamma, 1.5) for gamma in range(5, 25))]
    rule = {"is": "above", "of": "speedup", "than": 1}
    assert ruled(lines[:1], **rule)[0] == "contradicted"
    assert ruled(lines, **rule)[0] == "cannot tell", "one in twenty intervals misses by chance"


def test_parts_are_put_together() -> None:
    lines = [arm(4, 1.2), arm(8, 0.8)]
    good = {"is": "above", "of": "speedup", "than": 1, "where": {"gamma": 4}}
    bad = {**good, "where": {"gamma": 8}}
    open_ = {**good, "than": 1.2}
    assert ruled(lines, **{"is": "all", "rules": [good, good]})[0] == "supported"
    assert ruled(lines, **{"is": "all", "rules": [good, open_]})[0] == "cannot tell"
    assert ruled(lines, **{"is": "all", "rules": [open_, bad]})[0] == "contradicted"
    assert ruled(lines, **{"is": "any", "rules": [bad, good]})[0] == "supported"
    assert ruled(lines, **{"is": "any", "rules": [bad, open_]})[0] == "cannot tell"
    assert ruled(lines, **{"is": "any", "rules": [bad, bad]})[0] == "contradicted"


def test_sentences_are_filled_in_without_being_evaluated() -> None:
    rule = {"is": "above", "of": "speedup", "than": 1, "digits": 1, "unit": "x"}
    _, told = ruled([arm(4, 1.2)], found="{n} of them, {for} for it: {shown} {0.__class__} {", **rule)
    assert told == "1 of them, 1 for it: t/g4 1.2x [1.2, 1.2] {0.__class__} {"
    _, told = ruled([arm(4, 1.2)], found={"supported": "yes", "contradicted": "no"}, **rule)
    assert told == "yes"


def test_other_kinds_of_rows() -> None:
    data = StudyData(
        study="x",
        origin="measured",
        title="",
        models=(ModelUsed(name="m", reference="m", experts=128, experts_used=8),),
        results=(Result(config="c", target="t", prompt="code", decode_rate=50.0),),
    )
    experts = {"is": "equal", "rows": "models", "of": "experts", "than": 128, "rests_on": "counts"}
    assert decide(data, Rule.model_validate(experts), refuse) == ("supported", "m 128.00.")
    rates = {"is": "above", "rows": "results", "where": {"prompt": "code"}, "of": "decode_rate", "than": 40}
    assert decide(data, Rule.model_validate(rates), refuse)[0] == "supported"
    with pytest.raises(UsageError, match="text cannot be compared"):
        decide(data, Rule.model_validate({**rates, "of": "prompt"}), refuse)
