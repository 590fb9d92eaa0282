"""Steps of several requests at once, read from waves."""

from __future__ import annotations

from pathlib import Path

import pytest

from specmeter.engines.mock.engine import MockEngine
from specmeter.engines.mock.spec import MockSpec, mock_model
from specmeter.errors import EngineProtocolError
from specmeter.probe.steps import RoundSpec, WaveReply, measure_round, pricing, read_rounds, wave_plain_ms, wave_step_ms
from specmeter.record import Arm, EngineSettings, Generation, Prompt, Reply, Step, Timings


def answer(started_ms: float, arrivals: list[float], drafts: list[int], log_ms: float = 0.0) -> WaveReply:
    """Arrivals by the clock of all; each token after the first ends a step, which the log has `log_ms` later, and none
    for the last one, which drafts nothing."""
    steps = [
        Step(drafted=drafted, accepted=0, at_ms=at - started_ms + log_ms)
        for drafted, at in zip(drafts, arrivals[1:], strict=False)
    ]
    reply = Reply(
        text="",
        stop_reason="limit",
        timings=Timings(prompt_n=1, prompt_ms=1.0, predicted_n=len(arrivals), predicted_ms=arrivals[-1] - arrivals[0]),
        wall_ms=1.0,
        arrival_ms=tuple(at - started_ms for at in arrivals),
        steps=tuple(steps),
    )
    return WaveReply(started_ms, reply)


# The second request begins a step later than the first: 20 ms for four drafts each, 16 ms for (3 + 4) / 2, 12 for less.
FORWARDS = [100.0, 150.0, 170.0, 190.0, 210.0, 226.0, 240.0, 250.0, 258.0]
FIRST = answer(90.0, FORWARDS[:-1], [4, 4, 4, 4, 3, 2, 1])
SECOND = answer(95.0, FORWARDS[1:], [4, 4, 4, 4, 3, 2], log_ms=-7.0)


def test_only_steps_in_which_all_requests_decode_count_each_with_the_mean_of_their_drafts() -> None:
    found = wave_step_ms([[FIRST, SECOND]])
    # Seen: 4 in 20 ms, 3.5 in 16, 2.5 in 14 and 1.5 in 10; whole lengths lie between.
    assert found == pytest.approx({2: 12.0, 3: 15.0, 4: 20.0})


def test_a_plain_step_emits_a_token_for_each_request() -> None:
    plain = [answer(0.0, [10.0, 60.0, 80.0, 100.0], []), answer(5.0, [60.0, 80.0, 100.0, 110.0], [])]
    assert wave_plain_ms(plain) == pytest.approx(20.0)
    assert wave_plain_ms([plain[0], answer(0.0, [200.0, 220.0], [])]) is None
    (found,) = read_rounds([plain], [[[FIRST, SECOND]]])
    assert (found.plain_ms, found.step_ms[4]) == pytest.approx((20.0, 20.0))
    assert found.first_ms is None


def test_a_request_by_itself_tells_what_the_first_step_takes_among_others() -> None:
    plain = [answer(0.0, [10.0, 60.0, 80.0, 100.0], []), answer(5.0, [60.0, 80.0, 100.0, 110.0], [])]
    steps = tuple(Step(drafted=2, accepted=0, at_ms=at) for at in (50.0, 70.0, 90.0))
    timings = Timings(prompt_n=1, prompt_ms=1.0, predicted_n=4, predicted_ms=90.0)
    alone = WaveReply(0.0, Reply(text="", stop_reason="limit", timings=timings, wall_ms=1.0, steps=steps))
    (found,) = read_rounds([plain], [[[alone], [FIRST, SECOND]]])
    assert found.first_ms == 30.0
    assert found.step_ms == pytest.approx({2: 12.0, 3: 15.0, 4: 20.0})


def test_requests_that_never_draft_in_one_step_are_refused_by_that_name() -> None:
    plain = [answer(0.0, [10.0, 60.0, 80.0, 100.0], []), answer(5.0, [60.0, 80.0, 100.0, 110.0], [])]
    later = answer(995.0, [900 + it for it in FORWARDS[1:]], [4, 4, 4, 4, 3, 2])
    with pytest.raises(EngineProtocolError, match="no step drafted for all requests together"):
        read_rounds([plain], [[[FIRST, later]]])


def test_an_engine_that_answers_several_at_once_shows_what_it_charges(tmp_path: Path) -> None:
    spec = MockSpec(noise=0.0)
    settings = EngineSettings(context=4096, slots=4)
    plain = Arm(id="plain", target="target", engine=settings, role="baseline")
    arm = Arm(id="a", target="target", methods=("draft-simple",), draft="draft", gamma=3, engine=settings)
    order = RoundSpec(
        plain=plain,
        drafting=[pricing(arm, 3)],
        models={"target": mock_model("dense", "mock:dense"), "draft": mock_model("small", "mock:small")},
        prompts=[Prompt(id=f"p{at}", workload="w", kind="code", text="word " * 9, sha256="0" * 64) for at in range(8)],
        generation=Generation(),
        folder=tmp_path,
        watched=False,
        clients=4,
    )
    (found,) = measure_round(MockEngine(spec), order, 0)
    forward_ms, drafting = spec.target("mock:dense").forward_ms, spec.draft("mock:small").token_ms
    assert found.plain_ms == pytest.approx(forward_ms(4))
    assert found.step_ms[3] == pytest.approx(forward_ms(16) + 3 * drafting)
