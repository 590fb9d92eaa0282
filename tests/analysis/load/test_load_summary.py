"""An arm under load over its blocks, and at how many clients its speedup is 1."""

from __future__ import annotations

import math
from collections.abc import Sequence
from unittest.mock import patch

import numpy as np
import pytest
from cells import closed, figures, measured, steady, table
from hypothesis import given
from hypothesis import strategies as st

from specmeter.analysis.answer import answers
from specmeter.analysis.load.crossover import Crossover, crossovers, way
from specmeter.analysis.load.summary import LoadTable
from specmeter.analysis.summary import RunSummary, summarize
from specmeter.numbers import crossing as numbers
from specmeter.numbers.crossing import reach
from specmeter.numbers.quantiles import quantile_over
from specmeter.numbers.stats import Pool, geometric_speedup
from specmeter.record import Arm, Load, Slo

CLIENTS = (1, 2, 4, 8)


def arms(*gammas: int, clients: Sequence[int] = CLIENTS, depth: int = 0) -> tuple[Arm, ...]:
    """A baseline and a draft of each length, at each load."""
    found: list[Arm] = []
    for count in clients:
        load = Load(clients=count, requests=2 * count, depth=depth)
        at = f"c{count}" + (f"/d{depth}" if depth else "")
        base = Arm(id=f"t/none/{at}", target="t", role="baseline", load=load)
        drafts = (
            Arm(
                id=f"t/draft-simple/small/g{gamma}/{at}",
                target="t",
                methods=("draft-simple",),
                draft="small",
                gamma=gamma,
                baseline_id=base.id,
                load=load,
            )
            for gamma in gammas
        )
        found += [base, *drafts]
    return tuple(found)


def run(speedups: dict[int, Sequence[float]], *, blocks: int = 6, noise: float = 0.01) -> tuple[RunSummary, LoadTable]:
    """Draft length -> the speedup at each load; the baseline has ten times as many tokens per second as clients."""
    rng, rates = np.random.default_rng(1), dict[str, list[float]]()
    for place, count in enumerate(CLIENTS):
        plain = 10 * count * np.exp(rng.normal(0, 0.1, blocks))
        rates[f"t/none/c{count}"] = plain.tolist()
        for gamma, of in speedups.items():
            arm = plain * of[place] * np.exp(rng.normal(0, noise, blocks))
            rates[f"t/draft-simple/small/g{gamma}/c{count}"] = arm.tolist()
    cells = table(rates)
    return summarize((), arms(*speedups), cells=cells), cells


def crossing(speedups: dict[int, Sequence[float]], **more: float) -> tuple[Crossover, ...]:
    summary, cells = run(speedups, **more)  # pyright: ignore[reportArgumentType]
    return crossovers(summary, arms(*speedups), cells)


def test_the_speedup_is_that_of_paired_windows() -> None:
    summary, cells = run({4: (1.8, 1.2, 0.9, 0.7)})
    found = {arm.arm_id: arm for arm in summary.arms}
    arm = found["t/draft-simple/small/g4/c2"]
    pairs = cells.pairs(arm.arm_id, "t/none/c2", lambda it: Pool(it.tokens, it.window_ms))
    assert arm.speedup == geometric_speedup(pairs[0])
    assert arm.load is not None
    assert arm.load.throughput is not None
    assert arm.load.throughput.n == 6
    assert found["t/none/c2"].speedup is None
    assert found["t/none/c2"].load is not None


def test_arms_compete_at_the_same_load_alone() -> None:
    summary, _ = run({2: (1.4, 1.1, 1.0, 0.9), 4: (1.8, 1.2, 0.9, 0.7)})
    told = answers(summary, arms(2, 4))
    assert [(it.baseline_id, it.among, it.load.clients if it.load else None) for it in told] == [
        (f"t/none/c{count}", 2, count) for count in CLIENTS
    ]
    assert [it.arm_id.split("/")[3] for it in told] == ["g4", "g4", "g2", "g2"]
    assert told[0].decision == "speculate"
    assert told[3].decision == "do not speculate"


def test_a_cell_without_a_window_does_not_count_and_is_told() -> None:
    cells = [measured(steady(2, 3), closed(2, 3), arm_id="t/none/c2", block=block) for block in (0, 1)]
    cells.append(measured(steady(1, 3), closed(2, 3), arm_id="t/none/c2", block=2))
    cells.append(measured(steady(2, 3), closed(2, 3), arm_id="t/none/c2", block=3, complete=False))
    found = LoadTable(cells).summary("t/none/c2", closed(2, 3))
    assert (found.cells, found.without_window, found.broken_off) == (2, 1, 1)
    assert found.window_share == pytest.approx(2 / 3)


def test_a_rate_compares_times_per_token() -> None:
    """In an open loop throughput is what was offered: the same for both."""
    load = Load(rate=2, requests=8)
    base = Arm(id="t/none/r2", target="t", role="baseline", load=load)
    arm = Arm(id="t/ngram-mod/r2", target="t", methods=("ngram-mod",), baseline_id=base.id, load=load)
    cells = LoadTable(
        figures(one.id, block, 100.0, decode_ms=ms)
        for block in range(3)
        for one, ms in ((base, 2000.0), (arm, 1000.0 + block))
    )
    found = summarize((), (base, arm), cells=cells).arms[1]
    assert found.speedup is not None
    assert found.speedup.point == pytest.approx(2.0, rel=1e-3)


def test_latencies_are_over_all_requests() -> None:
    cells = [
        measured(steady(3, 8, token_ms=ms), closed(3, 8), Slo(tpot_ms=11), arm_id="t/none/c3", block=block)
        for block, ms in enumerate((10.0, 10.5, 11.5))
    ]
    found = LoadTable(cells).summary("t/none/c3", closed(3, 8))
    assert found.tpot is not None
    assert found.ttft is not None
    assert found.tpot.mean.point == pytest.approx((10 + 10.5 + 11.5) / 3, rel=1e-3)
    assert found.tpot.p50 is not None
    assert found.tpot.p50.point == pytest.approx(10.5, rel=1e-3)
    assert found.ttft.mean.point == pytest.approx(50.0, rel=1e-3)
    assert (found.tpot.p95 is None, found.tpot.p99 is None) == (False, True)  # of 72 requests
    assert found.goodput is not None
    assert found.requests_rate is not None
    assert found.goodput.point == pytest.approx(found.requests_rate.point * 2 / 3, rel=0.05)


def test_a_quantile_is_between_its_sections() -> None:
    rng = np.random.default_rng(2)
    sections = [rng.lognormal(size=200) for _ in range(5)]
    found = quantile_over(sections, 0.95, unit="ms")
    assert found is not None
    assert found.low is not None
    assert found.high is not None
    assert found.point == pytest.approx(np.quantile(np.concatenate(sections), 0.95))
    assert found.low < found.point < found.high
    assert quantile_over(sections[:1], 0.99, unit="ms").low is None  # pyright: ignore[reportOptionalMemberAccess]
    assert quantile_over([rng.random(99)], 0.99, unit="ms") is None


# --- the crossover ---------------------------------------------------------------------------------------------------


@given(st.floats(0.05, 2.95), st.floats(0.1, 1.0), st.integers(0, 2**16))
def test_the_interval_holds_what_a_test_at_the_crossing_does_not_exclude(place: float, slope: float, seed: int) -> None:
    places, rng = (0.0, 1.0, 2.0, 3.0), np.random.default_rng(seed)
    values = slope * (place - np.array(places)) + rng.normal(0, 0.02, (6, 4))
    with patch.object(numbers, "BENT", 0.0):
        found = reach(places, values)
    if not math.isfinite(found.point):
        return
    assert found.low <= found.point <= found.high
    for end in (found.low, found.high):
        if math.isfinite(end):
            at = np.array([np.interp(end, places, unit) for unit in values])
            t = at.mean() / (at.std(ddof=1) / math.sqrt(len(at)))
            assert abs(t) == pytest.approx(2.5706, abs=1e-2)  # Student's, 5 degrees of freedom


def test_the_interval_of_a_crossing_covers() -> None:
    """As often as it says, of curves whose units share a level that varies more than the slope."""
    rng, held, places = np.random.default_rng(3), 0, (0.0, 1.0, 2.0, 3.0)
    for _ in range(400):
        values = 0.4 * (1.6 - np.array(places)) + rng.normal(0, 0.05, (5, 1)) + rng.normal(0, 0.03, (5, 4))
        found = reach(places, values)
        held += found.low <= 1.6 <= found.high
    assert 0.92 <= held / 400 <= 0.98


@pytest.mark.parametrize("bent", [1.2, 1.7])
def test_the_interval_of_a_crossing_covers_behind_a_kink(bent: float) -> None:
    """Straight lines between the places alone cross elsewhere: they hold in hardly any case."""
    places, true = np.array([0.0, 1.0, 2.0, 3.0]), bent + 0.2

    def held(moved: float) -> float:
        rng, count = np.random.default_rng(5), 0
        for _ in range(200):
            values = 0.05 * (true - places) - 0.6 * np.maximum(0, places - bent) + 0.12 + rng.normal(0, 0.01, (4, 4))
            with patch.object(numbers, "BENT", moved):
                found = reach(places.tolist(), values)
            count += found.low <= true <= found.high
        return count / 200

    assert held(0.0) < 0.7
    assert held(numbers.BENT) > 0.93


def test_where_it_crosses() -> None:
    (found,) = crossing({4: (1.8, 1.2, 1 / 1.2, 0.7)}, noise=0.005)
    assert found.clients is not None
    assert found.clients.low is not None
    assert found.clients.high is not None
    assert found.clients.point == pytest.approx(2**1.5, rel=0.02)
    assert found.clients.low < 2**1.5 < found.clients.high
    assert (found.open_low, found.open_high) == (False, False)


def test_a_loss_that_is_not_shown_leaves_the_interval_open() -> None:
    spread = (0.9, 0.95, 1.0, 1.05, 1.1, 0.9)  # at 8 clients a little below 1, and not surely
    rates: dict[str, list[float]] = {}
    for count, of in zip(CLIENTS, (1.8, 1.4, 1.1, 1.0), strict=True):
        rates[f"t/none/c{count}"] = [10.0 * count] * 6
        rates[f"t/draft-simple/small/g4/c{count}"] = [10.0 * count * of * (1 + (x - 1) / 5 * count / 2) for x in spread]
    cells = table(rates)
    (found,) = crossovers(summarize((), arms(4), cells=cells), arms(4), cells)
    assert (found.course, found.open_low, found.open_high) == ("stops", False, True)
    assert found.clients is not None
    assert found.clients.high == 8


def test_speculation_pays_for_as_long_as_any_way_does() -> None:
    together, *ways = crossing({2: (1.3, 1.2, 1.05, 0.9), 4: (1.8, 1.25, 0.9, 0.7), 8: (0.9, 0.8, 0.7, 0.6)})
    assert (together.arm, together.ways, together.course) == ("", 3, "stops")
    assert [it.course for it in ways] == ["stops", "stops", "never"]
    assert together.clients is not None
    assert ways[0].clients is not None
    assert together.clients.point == ways[0].clients.point
    assert together.clients.low is not None
    assert ways[0].clients.low is not None
    assert together.clients.low <= ways[0].clients.low  # wider: it holds for all ways
    assert [it.arm_id.split("/")[3] for it in together.loads] == ["g4", "g4", "g2", "g2"]


def test_one_block_says_nothing() -> None:
    (found,) = crossing({4: (1.8, 1.2, 0.9, 0.7)}, blocks=1)
    assert (found.course, found.clients) == ("not shown", None)


def test_the_same_arm_at_other_loads() -> None:
    found = {way(arm) for arm in (*arms(4), *arms(4, depth=512))}
    assert found == {"t/none", "t/draft-simple/small/g4"}


@pytest.mark.parametrize(
    ("speedups", "course"),
    [
        ((1.8, 1.2, 0.9, 0.7), "stops"),
        ((0.7, 0.9, 1.1, 1.3), "starts"),
        ((1.8, 1.6, 1.4, 1.2), "pays"),
        ((0.9, 0.8, 0.7, 0.6), "never"),
        ((1.5, 0.8, 1.5, 0.8), "mixed"),
        ((1.0, 1.0, 1.0, 1.0), "not shown"),
    ],
)
def test_the_course_of_a_speedup_over_clients(speedups: Sequence[float], course: str) -> None:
    (found,) = crossing({4: speedups})
    assert (found.course, found.measured, found.arm) == (course, CLIENTS, "t/draft-simple/small/g4")
    assert (found.clients is not None) == (course in ("stops", "starts"))
