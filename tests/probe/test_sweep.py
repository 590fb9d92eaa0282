"""Forwards that are timed: how many, over which text, and that nothing of them stays in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engines.llama_fixtures import core
from specmeter.engines import process
from specmeter.errors import EngineDiedError, EngineError, UsageError
from specmeter.llama_binding.context import Context
from specmeter.probe import sweep as sweeping
from specmeter.probe.make import measure_sweep
from specmeter.probe.sweep import DRAFT_TOKENS, Samples, Sweep, longest_chain, sweep
from specmeter.record import EngineSettings
from specmeter.workloads.texts import held_out_text


def order(**changes: Any) -> Sweep:
    values: dict[str, Any] = {
        "target": core("dense").path,
        "settings": EngineSettings(threads=1, context=256),
        "tokens": (1, 2, 5),
        "depth": 24,
        "rounds": 3,
        "seed": 1,
        "text": held_out_text()[:4000],
    }
    return Sweep(**(values | changes))


def test_every_n_is_timed_in_every_round() -> None:
    done: list[int] = []
    samples = sweep(order(draft=core("draft-small").path), done.append)
    assert done == [0, 1, 2, 3]
    assert {n: len(times) for n, times in samples.target_ms.items()} == {1: 3, 2: 3, 5: 3}
    assert {n: len(times) for n, times in samples.draft_ms.items()} == {1: 3, 2: 3, 3: 3, 5: 3}
    assert len(samples.overhead_ms) == 3
    times = [*samples.target_ms.values(), *samples.draft_ms.values(), samples.overhead_ms]
    assert all(0 < ms < 10_000 for each in times for ms in each)


def test_forwards_run_along_the_text_and_are_cut_back(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, tuple[int, ...]]] = []
    decode = Context.decode

    def watched(self: Context, tokens: Any, outputs: Any = "last") -> Any:
        seen.append((self.length, tuple(tokens)))
        return decode(self, tokens, outputs)

    monkeypatch.setattr(Context, "decode", watched)
    samples = sweep(order(tokens=(1, 7), rounds=2), lambda _: None)
    whole: list[int] = []
    places: set[int] = set()
    for length, tokens in seen:
        if length == 0:
            whole = list(tokens)
            places.add(hash(tokens))
            assert len(tokens) == 24
            continue
        del whole[length:]  # what lay behind was cut
        assert len(whole) == length
        whole += tokens
        assert len(whole) <= 24 + longest_chain((1, 7))
    assert len(places) == 3  # one to warm up, and every round at a place of its own
    assert samples.text_tokens > 24
    counts = [len(tokens) for length, tokens in seen if length > 0]
    # A round: four forwards over one token, three over seven, one for the overhead.
    assert sorted(counts) == sorted(3 * ([1] * 4 + [7] * 3 + [5]))


def test_a_recurrent_state_is_restored_between_forwards(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hybrid target cannot be cut: without its checkpoint the same tokens would give other logits each time."""
    first: dict[bytes, list[float]] = {}
    decode = Context.decode

    def watched(self: Context, tokens: Any, outputs: Any = "last") -> Any:
        starts = self.length == 24 and outputs == "all"
        rows = decode(self, tokens, outputs)
        if starts:
            first.setdefault(bytes(str(tokens[0]), "ascii"), []).append(float(rows[0].max()))
        return rows

    monkeypatch.setattr(Context, "decode", watched)
    samples = sweep(order(target=core("hybrid").path, tokens=(1, 3), rounds=2), lambda _: None)
    assert {n: len(times) for n, times in samples.target_ms.items()} == {1: 2, 3: 2}
    assert sum(len(values) for values in first.values()) == 9
    for values in first.values():
        assert values == pytest.approx([values[0]] * len(values), abs=0.05)


def test_orders_of_rounds_differ_and_are_repeatable(monkeypatch: pytest.MonkeyPatch) -> None:
    orders: list[list[int]] = []

    def forget(_: Any, ahead: Any, n: int) -> float:
        orders[-1].append(n)
        return float(n + len(ahead) * 0)

    monkeypatch.setattr(sweeping, "_chain", forget)
    for _ in range(2):
        orders.append([])
        sweep(order(tokens=(1, 2, 3, 4, 5, 6)), lambda _: None)
    assert orders[0] == orders[1]
    rounds = [tuple(orders[0][start : start + 6]) for start in range(0, 24, 6)]
    assert all(sorted(each) == [1, 2, 3, 4, 5, 6] for each in rounds)
    assert len(set(rounds)) > 1


def test_a_text_that_is_too_short_is_refused() -> None:
    with pytest.raises(UsageError, match=r"the text has \d+ tokens, but \d+ are needed"):
        sweep(order(text="Too short."), lambda _: None)


def test_a_child_measures_and_tells_how_far_it_is(tmp_path: Path) -> None:
    told: list[int] = []
    samples = measure_sweep(order(rounds=2), tmp_path, told.append)
    assert isinstance(samples, Samples)
    assert set(samples.target_ms) == {1, 2, 5}
    assert told == sorted(told)


def test_what_a_child_refuses_is_refused_here(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="the text has"):
        measure_sweep(order(text="Too short."), tmp_path, lambda _: None)


def test_a_model_that_llama_cannot_load_is_an_engine_error(tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.gguf"
    damaged.write_bytes(Path(core("dense").path).read_bytes()[:10_000])
    folder = tmp_path / "work"
    folder.mkdir()
    with pytest.raises(EngineError, match=r"damaged\.gguf"):
        measure_sweep(order(target=str(damaged)), folder, lambda _: None)


def test_a_crash_ends_the_child_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    killer = tmp_path / "killer.py"
    killer.write_text("import os, sys\nprint('GGML_ASSERT(false) failed', file=sys.stderr, flush=True)\nos.abort()\n")

    class Crashing(process.EngineProcess):
        def __init__(self, argv: Any, **options: Any) -> None:
            super().__init__((argv[0], str(killer)), **options)

    monkeypatch.setattr(process, "EngineProcess", Crashing)
    with pytest.raises(EngineDiedError, match="GGML_ASSERT"):
        measure_sweep(order(), tmp_path, lambda _: None)


def test_the_chain_holds_every_forward() -> None:
    assert longest_chain((1, 33)) == 66
    assert longest_chain((1,)) == 3 * max(DRAFT_TOKENS)
