"""Speedups that are predicted at several requests at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from measure.test_measure import Silent
from mock_probe import mock_probe
from specmeter.analysis.load.crossover import crossover_outcomes, expected_crossover
from specmeter.analysis.prediction.at_clients import mixed, over_clients, probed_at, with_prompts
from specmeter.analysis.prediction.drafts import Given
from specmeter.analysis.reading import read_run
from specmeter.engines.mock.spec import MockSpec
from specmeter.errors import UsageError
from specmeter.experiments.file import load
from specmeter.laboratory.run import prepare, run
from specmeter.messages import Message
from specmeter.numbers.estimates import between
from specmeter.probe.record import Probe
from specmeter.record import BatchPoint, Estimate
from specmeter.show.names import Names
from specmeter.show.why_report import foretold
from specmeter.store import RunStore

LOADED: dict[str, Any] = {
    "name": "loaded",
    "targets": {"dense": "mock:dense"},
    "drafts": {"small": "mock:small"},
    "workloads": [{"source": "bench", "kinds": ["code"], "per_kind": 4}],
    "arms": [{"draft": "small", "gamma": 4}],
    "load": {"clients": [1, 4], "rate": 1, "rounds": 2, "requests": 8},
    "design": {"blocks": 2},
    "engine": {"kind": "mock", "context": 1024},
    "generation": {"max_tokens": 32},
}

MADE_UP = Message("text.outside", text="made up")


def times(point: float, width: float = 0.05) -> Estimate:
    return between(point, point * (1 - width), point * (1 + width), "x", "made up", n=3)


def test_what_prompts_take_is_not_sped_up() -> None:
    assert with_prompts(times(2.0), 0.0) == times(2.0)
    assert with_prompts(times(2.0), 0.5).point == pytest.approx(4 / 3)
    slower = with_prompts(times(0.5), 0.5)
    assert slower.point == pytest.approx(2 / 3)
    assert slower.low is not None
    assert slower.low < slower.point < (slower.high or 0)


def test_a_crossover_lies_where_the_logarithm_of_the_speedup_does() -> None:
    found = expected_crossover([(4, times(0.5)), (1, times(4.0)), (2, times(2.0))])
    assert (found.course, found.loads) == ("stops", (1, 2, 4))
    assert found.clients is not None
    assert found.clients.point == pytest.approx(2**1.5)
    assert (found.clients.low or 9) < found.clients.point < (found.clients.high or 0)
    rising = expected_crossover([(1, times(0.5)), (2, times(2.0))])
    assert rising.course == "starts"
    assert rising.clients is not None
    assert rising.clients.point == pytest.approx(2**0.5)
    assert [expected_crossover([(1, times(at)), (2, times(at))]).course for at in (2.0, 0.5)] == ["pays", "never"]
    assert expected_crossover([(1, times(2.0)), (2, times(0.5)), (4, times(2.0))]).course == "mixed"


def batched() -> Probe:
    """Of a dense target whose arithmetic runs out: a forward takes 10 ms, and 1 ms for each row beyond four."""
    points = tuple(
        BatchPoint(sequences=b, tokens=n, depth=64, ms=times(10.0 + max(0, b * n - 4), 0.01))
        for b in (1, 2, 4, 8)
        for n in (1, 2, 3, 5)
    )
    return mock_probe().model_copy(update={"batches": points, "union": None, "overhead_ms": None})


def test_speculation_stops_paying_where_arithmetic_runs_out() -> None:
    priced = batched()
    found = over_clients(Given.alpha(0.7), lambda b: probed_at(priced, MADE_UP, b), [4], [8, 1, 2], by_model=False)
    assert [at.clients for at in found.loads] == [1, 2, 8]
    speedups = [at.by_gamma[0].speedup.point for at in found.loads]
    assert speedups == sorted(speedups, reverse=True)
    tau = sum(0.7**place for place in range(5))
    assert speedups[1] == pytest.approx(tau * 10 / 16)  # 2 x 5 rows, of which 6 are beyond
    assert found.best_crossover.course == "stops"
    assert found.best_crossover.clients is not None
    assert found.loads[-1].best is None


def test_loads_that_were_not_measured_are_refused() -> None:
    with pytest.raises(UsageError, match="no costs for several sequences"):
        probed_at(mock_probe(), MADE_UP, 2)
    with pytest.raises(UsageError, match="was not measured"):
        probed_at(batched(), MADE_UP, 16)


def of_the_mock() -> Probe:
    """The very costs that the mock charges for several requests at once."""
    forward_ms = MockSpec().target("mock:dense").forward_ms
    points = tuple(
        BatchPoint(sequences=b, tokens=n, depth=64, ms=times(forward_ms(b * n), 0.01))
        for b in (1, 4)
        for n in (1, 2, 5)
    )
    return mock_probe().model_copy(update={"batches": points})


def test_a_run_foresees_arms_under_load_and_tells_how_far_off_it_was(tmp_path: Path) -> None:
    file = tmp_path / "loaded.yaml"
    file.write_text(yaml.safe_dump(LOADED), encoding="utf-8")
    folder = tmp_path / "run"
    run(prepare(load(str(file))), folder, Silent(), probes=[("mock", of_the_mock())])
    with RunStore.open(folder, readonly=True) as store:
        predictions = {it.arm_id: it for it in store.predictions()}
        first = {it.arm_id: it.started_at for it in reversed(list(store.sessions()))}
    for count in (1, 4):
        prediction = predictions[f"dense/draft-simple/small/g4/c{count}"]
        assert prediction.speedup is not None
        assert prediction.inputs["clients"] == count
        assert 0 < float(prediction.inputs["prompts"] or 0) < 1
        assert prediction.made_at <= first[prediction.arm_id]
    by_rate = predictions["dense/draft-simple/small/g4/r1"]
    assert (by_rate.speedup, by_rate.reason) == (None, Message("prediction.by_rate"))
    report = read_run(folder)
    (found,) = crossover_outcomes(report.crossovers, report.predictions)
    assert found.predicted.loads == found.measured.measured == (1, 4)
    told = foretold(report.predictions, report.crossovers, Names(report.arms))
    assert "crossover.foreseen" in {it.code for it in told}


def test_costs_between_two_loads_lie_between_those() -> None:
    ends = [probed_at(batched(), MADE_UP, b) for b in (1, 8)]
    every = [*ends, mixed(ends[0], ends[1], 0.5, MADE_UP)]
    draws = [it.draw(4, 50, np.random.default_rng(1), False).verify[0] for it in every]
    assert draws[2] == pytest.approx((draws[0] + draws[1]) / 2)
