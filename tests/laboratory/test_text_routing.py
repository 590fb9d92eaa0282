"""Experts of a run's texts when something goes wrong: the run goes on, and what failed is tried again."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from specmeter.engines.llama_cpp.spec import EMBEDDED
from specmeter.laboratory.routing import measure_routing
from specmeter.messages import Message
from specmeter.probe.profile import MIN_S, allowed_s
from specmeter.record import EngineSettings, ExpertUnion, TextRouting
from specmeter.store import RunStore

HUNG = Message("text.outside", text="an engine that hung")


class Store:
    """A run of two sessions of 400 s with a pause of a day between them."""

    def __init__(self, *known: TextRouting) -> None:
        self.known = {it.target: it for it in known}

    def routing(self) -> list[TextRouting]:
        return list(self.known.values())

    def add_routing(self, routing: TextRouting) -> None:
        self.known[routing.target] = routing

    def sessions(self) -> list[Any]:
        times = ((0.0, 400.0), (86_400.0, 86_800.0), (90_000.0, None))
        return [SimpleNamespace(started_at=start, ended_at=end) for start, end in times]

    def prompt_tokens(self) -> list[Any]:
        return [SimpleNamespace(target="moe", prompt_id="p", token_ids=(1, 2, 3))]

    def requests(self) -> list[Any]:
        return [SimpleNamespace(arm_id="moe/none", prompt_id="p", reply=SimpleNamespace(token_ids=(4, 5, 6)))]


def work() -> Any:
    arm = SimpleNamespace(id="moe/none", role="baseline", target="moe", engine=EngineSettings(threads=1))
    header = SimpleNamespace(experts=32, experts_used=4)
    return SimpleNamespace(
        simulated=False,
        traits=EMBEDDED.traits,
        models={"moe": SimpleNamespace(header=header, path="moe.gguf")},
        arms={arm.id: arm},
    )


def test_a_full_disk_fails_nothing_and_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("specmeter.probe.make.read_apart", full)
    earlier = TextRouting(target="moe", baseline_id="moe/none", failure=HUNG)
    store = Store(earlier)
    measure_routing(work(), cast("RunStore", store))
    assert store.known["moe"].failure == Message("text.outside", text="[Errno 28] No space left on device")


def test_what_is_known_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specmeter.probe.make.read_apart", lambda *_, **__: pytest.fail("read again"))
    union = ExpertUnion(experts=32, used=4, points=())
    store = Store(TextRouting(target="moe", baseline_id="moe/none", union=union))
    measure_routing(work(), cast("RunStore", store))


def test_an_earlier_failure_gives_way(tmp_path: Path) -> None:
    with RunStore.create(tmp_path / "run", experiment_yaml="a: 1\n", experiment_json="{}", plan=[]) as store:
        store.add_routing(TextRouting(target="moe", baseline_id="moe/none", failure=HUNG))
        store.add_routing(TextRouting(target="moe", baseline_id="moe/none", texts=3, tokens=900))
        (kept,) = store.routing()
    assert (kept.failure, kept.tokens) == (None, 900)


def test_pauses_are_not_the_time_that_a_run_took() -> None:
    store = cast("RunStore", Store())
    assert allowed_s(store, 0.05) == 40
    assert allowed_s(store, 0.001) == MIN_S
