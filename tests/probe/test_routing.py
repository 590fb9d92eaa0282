"""Experts of a text: unions against counting window by window, files, and the real MoE core."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st

from engines.llama_fixtures import core
from specmeter.errors import UsageError
from specmeter.probe.routing import (
    Routing,
    RoutingOrder,
    load_routing,
    read_routing,
    save_routing,
    summarize,
    text_unions,
    unions,
)
from specmeter.record import EngineSettings
from specmeter.theory.roofline import expected_union
from specmeter.workloads.texts import held_out_text


def drawn(layers: int, tokens: int, used: int, experts: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    chosen = [[rng.permutation(experts)[:used] for _ in range(tokens)] for _ in range(layers)]
    return np.array(chosen, dtype=np.uint8)


def by_windows(ids: np.ndarray, n: int) -> float:
    starts = range(ids.shape[1] - n + 1)
    return float(np.mean([len(np.unique(layer[at : at + n])) for layer in ids for at in starts]))


@limits(max_examples=60, deadline=None)
@given(
    layers=st.integers(1, 3),
    tokens=st.integers(2, 24),
    used=st.integers(1, 4),
    more=st.integers(0, 6),
    seed=st.integers(0, 2**32 - 1),
)
def test_unions_are_those_of_all_windows(layers: int, tokens: int, used: int, more: int, seed: int) -> None:
    ids = drawn(layers, tokens, used, used + more, seed)
    windows = list(range(1, tokens + 1))
    assert unions(ids, windows) == pytest.approx([by_windows(ids, n) for n in windows])


def test_uniform_routing_is_seen_as_uniform() -> None:
    ids = drawn(4, 1024, 4, 32, 1)
    summary = summarize(Routing(32, (0, 1, 2, 3), ids, (512, 512)))
    points = {point.tokens: point.union for point in summary.union.points}
    for n in (1, 2, 5, 17):
        assert points[n].point == pytest.approx(expected_union(float(n), 32, 4), rel=0.01)
    draws = next(fit for fit in summary.overlaps if fit.model == "draws")
    assert draws.parameter > 0.97
    assert draws.rms < 0.01
    assert min(load.entropy for load in summary.loads) > 0.99
    assert max(load.largest for load in summary.loads) < 1.5
    assert points[1].low is None  # segments that do not differ give no interval
    assert points[5].low is not None


def test_tokens_that_choose_alike_are_seen_as_one() -> None:
    ids = np.tile(np.array([3, 1], dtype=np.uint8), (2, 64, 1))
    summary = summarize(Routing(8, (5, 9), ids, (64,)))
    assert {point.union.point for point in summary.union.points} == {2.0}
    assert [fit.parameter for fit in summary.overlaps] == pytest.approx([0, 0], abs=1e-6)
    assert summary.neighbours == 1.0
    load = summary.loads[0]
    assert (load.layer, load.unused, load.largest) == (5, 6, 4.0)
    assert load.entropy == pytest.approx(np.log(2) / np.log(8))
    assert [(hot.layer, hot.load) for hot in summary.hottest[:4]] == [(5, 4.0), (5, 4.0), (9, 4.0), (9, 4.0)]


def test_neighbours_that_share_half_have_a_third_of_either() -> None:
    ids = np.array([[[0, 1], [1, 2], [2, 3]]], dtype=np.uint8)
    assert summarize(Routing(8, (0,), ids, (3,))).neighbours == pytest.approx(1 / 3)


def test_texts_of_any_length_weigh_alike_where_they_are_long_enough() -> None:
    long, short = drawn(2, 12, 2, 8, 1), drawn(2, 4, 2, 8, 2)
    union, layers = text_unions(Routing(8, (3, 5), np.concatenate([long, short], axis=1), (12, 4)), (1, 2, 5, 13))
    assert [point.tokens for point in union.points] == [1, 2, 5], "no text has 13 tokens"
    assert union.points[1].union.point == pytest.approx((by_windows(long, 2) + by_windows(short, 2)) / 2)
    assert union.points[2].union.point == pytest.approx(by_windows(long, 5))
    assert (union.points[1].union.n, union.points[2].union.n) == (2, 1)
    assert layers.keys() == {3, 5}
    assert layers[5][2] == pytest.approx(by_windows(long[1:], 5), abs=1e-4)


def test_windows_longer_than_the_text_are_left_out() -> None:
    summary = summarize(Routing(8, (0,), drawn(1, 10, 2, 8, 1), (10,)))
    assert max(point.tokens for point in summary.union.points) == 9
    assert len(summary.uniform) == len(summary.union.points)


@pytest.mark.parametrize(("experts", "bytes_per_id"), [(256, 1), (257, 2)])
def test_files_take_at_most_two_bytes_per_id(tmp_path: Path, experts: int, bytes_per_id: int) -> None:
    kind = np.uint8 if bytes_per_id == 1 else np.uint16
    ids = np.random.default_rng(1).integers(0, experts, (3, 500, 8)).astype(kind)
    routing = Routing(experts, (0, 2, 4), ids, (300, 200))
    save_routing(routing, tmp_path / "deep" / "routing.npz")
    assert (tmp_path / "deep" / "routing.npz").stat().st_size < ids.size * bytes_per_id + 2000
    read = load_routing(tmp_path / "deep" / "routing.npz")
    assert (read.experts, read.layers, read.segments) == (experts, (0, 2, 4), (300, 200))
    assert read.ids.dtype == kind
    assert (read.ids == ids).all()


def test_other_files_are_refused(tmp_path: Path) -> None:
    good = {
        "ids": np.zeros((1, 4, 2), np.uint8),
        "layers": np.array([0]),
        "segments": np.array([4]),
        "experts": np.array(8),
    }
    bad = {
        "pickled": good | {"ids": np.array([object()])},
        "floats": good | {"ids": np.zeros((1, 4, 2))},
        "flat": good | {"ids": np.zeros(8, np.uint8)},
        "missing": {"ids": good["ids"]},
        "other-segments": good | {"segments": np.array([5])},
        "unknown-expert": good | {"experts": np.array(0)},
        "experts-of-text": good | {"experts": np.array("many")},
        "fewer-random": good | {"random": np.zeros((1, 3, 2), np.uint8)},
        "unknown-random": good | {"random": np.full((1, 4, 2), 9, np.uint8)},
        "flat-times": good | {"times_ms": np.ones(3)},
        "no-time": good | {"times_ms": np.zeros((2, 3))},
    }
    for name, parts in bad.items():
        path = tmp_path / f"{name}.npz"
        np.savez(path, **parts)
        with pytest.raises(UsageError, match="not a routing file"):
            load_routing(path)
    (tmp_path / "text.npz").write_text("no archive")
    (tmp_path / "cut.npz").write_bytes((tmp_path / "floats.npz").read_bytes()[:100])
    for path in (tmp_path / "text.npz", tmp_path / "cut.npz", tmp_path / "nothing.npz", tmp_path):
        with pytest.raises(UsageError, match="--routing"):
            load_routing(path)


def test_the_experts_of_the_moe_core() -> None:
    parts: list[int] = []
    order = RoutingOrder(
        target=core("moe").path,
        settings=EngineSettings(threads=1, context=512),
        experts=32,
        text=held_out_text(),
        most_tokens=1300,
    )
    routing = read_routing(order, parts.append)
    assert parts == [1, 2]
    assert routing.segments == (512, 512)
    assert routing.ids.shape == (len(routing.layers), 1024, routing.used)
    assert routing.ids.dtype == np.uint8
    distinct = np.sort(routing.ids.astype(int), axis=2)
    assert (np.diff(distinct, axis=2) > 0).all()  # a token never chooses an expert twice
    summary = summarize(routing)
    points = {point.tokens: point.union.point for point in summary.union.points}
    assert points[1] == routing.used
    assert points[2] < points[5] < points[33] <= 32


def test_random_tokens_are_read_and_timed_beside_the_text(tmp_path: Path) -> None:
    """What the MoE core does with them is a fact of its weights: neighbours share three times as many experts."""
    parts: list[int] = []
    settings = EngineSettings(threads=1, context=512)
    text = held_out_text()
    order = RoutingOrder(
        target=core("moe").path, settings=settings, experts=32, text=text, most_tokens=512, random=True
    )
    save_routing(read_routing(order, parts.append), tmp_path / "routing.npz")
    routing = load_routing(tmp_path / "routing.npz")
    assert parts == [1, 2]
    assert routing.random is not None
    assert routing.random.shape == routing.ids.shape
    summary = summarize(routing)
    random = summary.random
    assert random is not None
    assert random.shared > 2 * summary.shared
    unions_of_text = {point.tokens: point.union.point for point in summary.union.points}
    unions_of_random = {point.tokens: point.union.point for point in random.union.points}
    assert unions_of_random[1] == unions_of_text[1] == routing.used
    assert unions_of_random[33] < 0.7 * unions_of_text[33]
    assert max(random.chosen) < min(random.chosen_by_text)
    assert random.faster is not None
    assert random.faster.n == 10
    assert random.text_ms is not None
    assert random.text_ms.point > 0


def test_a_text_too_short_to_be_timed(tmp_path: Path) -> None:
    settings = EngineSettings(threads=1, context=512)
    order = RoutingOrder(
        target=core("moe").path, settings=settings, experts=32, text="One, two.", most_tokens=512, random=True
    )
    routing = read_routing(order, lambda _: None)
    assert routing.times is None
    save_routing(routing, tmp_path / "routing.npz")
    random = summarize(load_routing(tmp_path / "routing.npz")).random
    assert random is not None
    assert random.faster is None


def test_shared_experts_are_those_of_the_token_before() -> None:
    ids = np.array([[[0, 1], [1, 2], [2, 3]]], dtype=np.uint8)
    same = np.array([[[0, 1], [1, 0], [0, 1]]], dtype=np.uint8)
    summary = summarize(Routing(8, (0,), ids, (3,), same))
    assert summary.shared == pytest.approx(1 / 2)
    assert summary.random is not None
    assert summary.random.shared == 1.0
    assert (summary.random.chosen, summary.random.chosen_by_text) == ((2,), (4,))


def test_a_dense_model_routes_nothing() -> None:
    order = RoutingOrder(
        target=core("dense").path,
        settings=EngineSettings(threads=1),
        experts=8,
        text="One, two, three.",
        most_tokens=99,
    )
    with pytest.raises(UsageError, match="this model has no layers with experts"):
        read_routing(order, lambda _: None)
