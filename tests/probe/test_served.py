"""T(n) through a server: which steps count, and the embedded server itself."""

from __future__ import annotations

from typing import Any

import pytest

from engines.llama_fixtures import core
from specmeter.engines import load_engine
from specmeter.errors import EngineProtocolError, UsageError
from specmeter.probe.served import measure_served, sessions_per_round, step_times, wanted_tokens
from specmeter.record import EngineSettings, Reply, Step, Timings
from specmeter.workloads.texts import held_out_text


def reply(*steps: tuple[int, int, float]) -> Reply:
    return Reply(
        text="",
        stop_reason="limit",
        timings=Timings(prompt_n=1, prompt_ms=1.0, predicted_n=2, predicted_ms=1.0),
        wall_ms=1.0,
        steps=tuple(Step(drafted=drafted, accepted=accepted, at_ms=at_ms) for drafted, accepted, at_ms in steps),
    )


def test_only_whole_drafts_after_whole_drafts_count() -> None:
    shown = reply((4, 4, 10), (4, 4, 22), (3, 3, 30), (4, 4, 41), (4, 4, 54), (4, 2, 70), (4, 4, 80), (4, 4, 80))
    assert list(step_times(shown, 4)) == [12, 13]
    assert list(step_times(shown, 3)) == []
    assert list(step_times(reply(), 4)) == []


def test_requests_are_long_enough_for_their_steps() -> None:
    assert wanted_tokens(33) >= 4 * 33
    assert wanted_tokens(1) >= 16


def measured(**changes: Any) -> Any:
    done: list[int] = []
    values: dict[str, Any] = {
        "draft": None,
        "settings": EngineSettings(context=512, threads=1, stream_tokens=False),
        "tokens": (1, 3),
        "depth": 64,
        "rounds": 1,
        "seed": 1,
        "text": held_out_text()[:4000],
        "done": done.append,
    }
    served = measure_served(load_engine("embedded"), core("dense"), **(values | changes))
    return served, done


def test_the_embedded_server_shows_forwards_of_exactly_n_tokens() -> None:
    served, done = measured(draft=core("draft-small"))
    assert done == list(range(1, sessions_per_round((1, 3), draft=True) + 1))
    assert {n: len(times) for n, times in served.target_ms.items()} == {1: 1, 3: 1}
    assert set(served.draft_ms) <= {1, 5}
    assert served.draft_ms[1][0] > 0
    assert all(0 < times[0] < 10_000 for times in served.target_ms.values())
    assert 48 <= served.depth <= 80


def test_a_server_that_shows_no_steps_is_refused() -> None:
    with pytest.raises(EngineProtocolError, match="log shows no draft steps"):
        measured(settings=EngineSettings(context=512, threads=1, trace_steps=False))


def test_what_a_server_cannot_show_is_refused() -> None:
    with pytest.raises(UsageError, match="--tokens: n = 99 is above"):
        measured(tokens=(1, 99))
    with pytest.raises(UsageError, match="--text"):
        measured(text="Short.")
