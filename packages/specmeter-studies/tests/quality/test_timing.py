"""What is timed: which forwards run, from which depth; never how long they take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from quality.cores import model, short_text
from specmeter.analysis.quality import SpeedTest
from specmeter.llama_binding.context import Context
from specmeter.record import EngineSettings
from specmeter_studies.quality.child import time_apart
from specmeter_studies.quality.timing import Timing, context_for, time_tests

TESTS = (
    SpeedTest(kind="prompt", tokens=70, depth=0),
    SpeedTest(kind="generate", tokens=5, depth=0),
    SpeedTest(kind="prompt", tokens=70, depth=100),
    SpeedTest(kind="generate", tokens=5, depth=100),
)


def order(name: str, seed: int = 1, tests: tuple[SpeedTest, ...] = TESTS, text: str | None = None) -> Timing:
    settings = EngineSettings(threads=1, batch=64)
    return Timing(model=model(name).path, settings=settings, tests=tests, text=text or short_text(), seed=seed)


@pytest.mark.parametrize("name", ["bench:draft-small", "bench:hybrid"])
def test_each_test_runs_once_from_its_depth(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, int]] = []
    plain = Context.decode

    def watched(self: Context, tokens: Sequence[int], outputs: Any = "last") -> Any:
        seen.append((self.length, len(tokens)))
        return plain(self, tokens, outputs)

    monkeypatch.setattr(Context, "decode", watched)
    times = time_tests(order(name))
    assert len(times.ms) == len(TESTS)
    assert all(ms > 0 for ms in times.ms)
    behind = seen[seen.index((7, 1)) + 1 :]  # behind the eight tokens that warm up
    generations = {0: [(0, 1), (1, 1), (2, 1), (3, 1), (4, 1)]}
    generations[100] = [(100 + place, 1) for place, _ in generations[0]]
    prompts = {0: [(0, 64), (64, 6)], 100: [(100, 64), (164, 6)]}
    fill = [(0, 64), (64, 36)]
    orders = [
        one + other
        for shallow in ([*prompts[0], *generations[0]], [*generations[0], *prompts[0]])
        for deep in ([*prompts[100], *generations[100]], [*generations[100], *prompts[100]])
        for one, other in ((shallow, fill + deep), (fill + deep, shallow))
    ]
    assert behind in orders


def test_the_order_comes_from_the_seed() -> None:
    from specmeter_studies.quality import timing

    orders: set[tuple[SpeedTest, ...]] = set()
    plain = timing._timed  # pyright: ignore[reportPrivateUsage]
    for seed in range(12):
        met: list[SpeedTest] = []

        def watched(context: Any, text: list[int], test: SpeedTest, met: list[SpeedTest] = met) -> float:
            met.append(test)
            return plain(context, text, test)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(timing, "_timed", watched)
            time_tests(order("bench:draft-small", seed, tuple(it.model_copy(update={"tokens": 3}) for it in TESTS)))
        orders.add(tuple(met))
    assert len(orders) > 3


def test_a_text_is_gone_through_again_when_it_is_short() -> None:
    times = time_tests(order("bench:draft-small", text="A few words."))
    assert all(ms > 0 for ms in times.ms)


def test_a_child_times_them_too() -> None:
    assert len(time_apart(order("bench:draft-small")).ms) == len(TESTS)


def test_the_context_holds_the_deepest_test() -> None:
    assert context_for(TESTS) == 170
    assert context_for(TESTS[:2]) == 70


def test_names_are_those_of_llama_bench() -> None:
    assert [test.name for test in TESTS] == ["pp70", "tg5", "pp70 @ d100", "tg5 @ d100"]
