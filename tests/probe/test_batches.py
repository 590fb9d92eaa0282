"""Forwards over several sequences: every shape in every round, consecutive numbers, nothing left in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from engines.llama_fixtures import core
from probe.probes import probe
from specmeter.errors import UsageError
from specmeter.llama_binding.context import Context, Forward
from specmeter.probe.reading import batch_sentence, surface_of
from specmeter.probe.record import Probe
from specmeter.probe.routing import Routing
from specmeter.probe.sweep import BatchSweep, batch_points, batch_unions, shapes, sweep_batches
from specmeter.record import EngineSettings
from specmeter.theory.roofline import expected_union
from specmeter.workloads.texts import held_out_text


def order(**changes: Any) -> BatchSweep:
    values: dict[str, Any] = {
        "target": core("dense").path,
        "settings": EngineSettings(threads=1),
        "sequences": (1, 2, 3),
        "tokens": (1, 4),
        "depth": 24,
        "rounds": 3,
        "seed": 1,
        "text": held_out_text()[:4000],
    }
    return BatchSweep(**(values | changes))


@pytest.mark.parametrize("name", ["dense", "hybrid"])
def test_every_shape_is_timed_in_every_round_with_consecutive_sequences(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[tuple[int, int, int]]] = []
    together = Context.decode_together

    def watched(self: Context, forwards: Sequence[Forward]) -> Any:
        seen.append([(it.sequence.number, it.sequence.length, len(it.tokens)) for it in forwards])
        return together(self, forwards)

    monkeypatch.setattr(Context, "decode_together", watched)
    done: list[int] = []
    samples = sweep_batches(order(target=core(name).path), done.append)
    assert done == [0, 1, 2, 3]
    assert samples.shapes == ((1, 1), (1, 4), (2, 1), (2, 4), (3, 1), (3, 4))
    assert [len(ms) for ms in samples.ms] == [3] * 6
    assert samples.unified is False
    timed = [parts for parts in seen if all(length >= 24 for _, length, _ in parts)]
    assert len(timed) == 4 * 6 * 2  # a round to warm up; one forward of each shape to warm up
    for parts in timed:
        first = parts[0][0]
        assert [number for number, _, _ in parts] == list(range(first, first + len(parts)))
        assert len({(length, tokens) for _, length, tokens in parts}) == 1
        assert parts[0][1] in (24, 24 + parts[0][2])
    points = batch_points(samples, 24, None)
    assert [(point.sequences, point.tokens) for point in points] == list(samples.shapes)
    assert all(point.ms.point > 0 and point.union is None and point.depth == 24 for point in points)


def test_shapes_beyond_one_micro_batch_are_left_out_and_short_texts_refused() -> None:
    assert shapes((4, 1), (2, 9), 16) == [(1, 2), (1, 9), (4, 2)]
    with pytest.raises(UsageError, match="one forward"):
        sweep_batches(order(settings=EngineSettings(threads=1, ubatch=1), tokens=(4,)), lambda _: None)
    with pytest.raises(UsageError, match="--text"):
        sweep_batches(order(text="too short"), lambda _: None)


def test_experts_of_several_texts_are_those_of_independent_tokens_where_routing_is_uniform() -> None:
    rng = np.random.default_rng(1)
    ids = np.stack([[rng.permutation(16)[:2] for _ in range(1024)] for _ in range(3)]).astype(np.uint8)
    found = batch_unions(Routing(16, (0, 1, 2), ids, (512, 512)), [(1, 1), (4, 3), (8, 1), (2, 600)])
    assert set(found) == {(1, 1), (4, 3), (8, 1)}  # no segment is 600 tokens long
    assert found[1, 1].point == 2
    for (b, n), union in found.items():
        assert union.point == pytest.approx(expected_union(float(b * n), 16, 2), rel=0.1)


def test_a_probe_with_batches_is_kept_and_one_of_old_opens() -> None:
    made = probe(batches=batch_points(sweep_batches(order(), lambda _: None), 24, None), kv_unified=False)
    again = Probe.model_validate_json(made.model_dump_json())
    assert again == made
    surface = surface_of(again)
    assert surface is not None
    assert surface.covers(3, 4)
    assert batch_sentence(surface).values["few"] == 1
    old = probe().model_dump(mode="json")
    del old["batches"], old["kv_unified"]
    assert surface_of(Probe.model_validate(old)) is None
