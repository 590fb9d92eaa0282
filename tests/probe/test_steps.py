"""Steps of a run, probed through sessions of its own engine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from engines.llama_fixtures import core
from specmeter.engines import Launch, load_engine
from specmeter.errors import EngineProtocolError
from specmeter.models.facts import read_header
from specmeter.probe.steps import (
    RoundSpec,
    WaveReply,
    change_costs,
    measure_round,
    pricing,
    read_round,
    read_rounds,
    step_times,
    tokens_of,
)
from specmeter.record import Arm, EngineSettings, Generation, Prompt, Reply, Step, StepRound, Timings
from specmeter.workloads.texts import held_out_text

ARM = Arm(id="a", target="target", methods=("draft-simple",), draft="draft", gamma=4, p_min=0.5, gamma_min=2)


def reply(*steps: tuple[int, float], tokens: int = 11, ms: float = 100.0, drafted: int = 0) -> Reply:
    return Reply(
        text="",
        stop_reason="limit",
        timings=Timings(prompt_n=1, prompt_ms=1.0, predicted_n=tokens, predicted_ms=ms, draft_n=drafted),
        wall_ms=1.0,
        steps=tuple(Step(drafted=drafts, accepted=0, at_ms=at_ms) for drafts, at_ms in steps),
    )


def alone(*replies: Reply) -> list[list[WaveReply]]:
    """Waves of one request."""
    return [[WaveReply(0.0, reply)] for reply in replies]


def test_a_step_lasts_from_the_step_before_it() -> None:
    assert list(step_times(reply((4, 10), (4, 30), (3, 45), (2, 55), (1, 61)))) == [(4, 20), (3, 15), (2, 10), (1, 6)]


def test_a_step_without_a_line_of_its_own_is_not_taken_for_part_of_another() -> None:
    assert list(step_times(reply((4, 10), (2, 60), (1, 66)))) == [(1, 6)]


def test_a_round_has_the_median_of_each_length_and_of_plain_requests() -> None:
    stalled = reply(ms=9000.0)
    drafting = alone(reply((2, 10), (2, 30), (1, 40)), reply((2, 10), (2, 34)))
    found = read_round(alone(reply(), reply(), stalled), drafting)
    assert found.plain_ms == 10.0
    assert found.step_ms == {1: 10.0, 2: 22.0}
    assert found.drafting_ms is None


def test_the_first_step_of_a_request_in_which_a_draft_reads_the_prompt_is_kept_apart() -> None:
    drafting = reply((2, 50), (2, 70), (1, 80), ms=80.0)
    found = read_round(alone(reply()), alone(drafting, drafting))
    assert found.step_ms == {1: 10.0, 2: 20.0}
    assert found.first_ms == 30.0
    assert read_round(alone(reply()), alone(reply((2, 20), (2, 40), ms=40.0))).first_ms == 0.0
    assert read_round(alone(reply()), alone(reply((4, 10)))).first_ms is None


@pytest.mark.parametrize("drafting", [[], [reply(drafted=4)]])
def test_an_engine_that_shows_no_steps_is_refused(drafting: list[Reply]) -> None:
    with pytest.raises(EngineProtocolError, match="does not report its steps"):
        read_rounds(alone(reply()), [alone(*drafting), []])


@pytest.mark.parametrize("hardly", [reply(), reply((4, 10), drafted=4)])
def test_text_in_which_hardly_anything_is_found_is_no_fault_of_the_engine(hardly: Reply) -> None:
    assert [it.step_ms for it in read_rounds(alone(reply()), [alone(hardly)])] == [{}]


def test_a_way_of_drafting_that_found_nothing_does_not_cost_the_others_their_round() -> None:
    by_model, by_lookup = read_rounds(alone(reply()), [alone(reply((2, 10), (2, 30))), alone(reply())])
    assert (by_model.step_ms, by_lookup.step_ms) == ({2: 20.0}, {})


def test_an_arm_is_priced_by_one_that_accepts_nothing() -> None:
    priced = pricing(ARM, 8)
    assert (priced.gamma, priced.synthetic_rates) == (8, (0.0,) * 8)
    assert (priced.p_min, priced.gamma_min) == (None, None)
    lookup = pricing(Arm(id="n", target="target", methods=("ngram-mod",), gamma=8, ngram_n=5), 8)
    assert (lookup.methods, lookup.ngram_n) == (("ngram-simple",), 1)


@pytest.mark.parametrize("kind", ["embedded", pytest.param("libllama", marks=pytest.mark.slow)])
def test_real_engines_show_steps_of_every_length(kind: str, tmp_path: Path) -> None:
    settings = EngineSettings(context=512, threads=1)
    plain = Arm(id="plain", target="target", engine=settings, role="baseline")
    ways = [
        pricing(ARM.model_copy(update={"engine": settings}), 6),
        pricing(Arm(id="n", target="target", methods=("ngram-simple",), engine=settings), 6),
    ]
    order = RoundSpec(
        plain=plain,
        drafting=ways,
        models={"target": core("dense"), "draft": core("draft-small")},
        prompts=[Prompt(id="p", workload="w", kind="k", text=held_out_text()[:300] * 2, sha256="0" * 64)],
        generation=Generation(),
        folder=tmp_path,
    )
    by_model, by_lookup = measure_round(load_engine(kind), order, 1)
    assert {1, 2, 3, 4, 5, 6} <= set(by_model.step_ms)
    assert by_lookup.step_ms
    assert by_model.plain_ms == by_lookup.plain_ms > 0
    assert by_model.accepted_ms == {}
    assert tokens_of(6) == 12
    assert [tokens_of(6, clients) for clients in (2, 8)] == [15, 20]


def test_a_mixture_of_experts_is_probed_on_new_text_too(tmp_path: Path) -> None:
    settings, moe = EngineSettings(context=512, threads=1), core("moe")
    target = moe.model_copy(update={"header": read_header(Path(moe.path))})
    order = RoundSpec(
        plain=Arm(id="plain", target="target", engine=settings, role="baseline"),
        drafting=[pricing(ARM.model_copy(update={"engine": settings}), 3)],
        models={"target": target, "draft": core("draft-small")},
        prompts=[Prompt(id="p", workload="w", kind="k", text=held_out_text()[:300], sha256="0" * 64)],
        generation=Generation(),
        folder=tmp_path,
    )
    (found,) = measure_round(load_engine("embedded"), order, 0)
    assert {1, 2, 3} <= set(found.step_ms)
    assert found.accepted_ms[3] > 0


class Shaped:
    """Steps of d drafts take 10 + d ms, and 5 ms more after a step of another length, as on a GPU."""

    @contextmanager
    def start(self, launch: Launch) -> Iterator[Any]:
        gamma = launch.arm.gamma

        def generate(_prompt: Prompt, generation: Generation) -> Reply:
            if gamma is None:
                return reply(tokens=2, ms=10.0)
            lengths = [min(gamma, left) for left in range((generation.max_tokens or 0) - 1, 0, -1)]
            at_ms, steps = 0.0, list[tuple[int, float]]()
            for before, drafted in zip([0, *lengths], lengths, strict=False):
                at_ms += 10.0 + drafted + (5.0 if drafted != before else 0.0)
                steps.append((drafted, at_ms))
            return reply(*steps, drafted=sum(lengths))

        facts = SimpleNamespace(server=None, pids=())
        yield SimpleNamespace(generate=generate, facts=facts)


def test_where_a_new_length_costs_time_each_length_is_timed_among_others_as_long(tmp_path: Path) -> None:
    order = RoundSpec(
        plain=Arm(id="plain", target="target", role="baseline"),
        drafting=[longest := pricing(ARM, 8)],
        models={"target": core("dense"), "draft": core("draft-small")},
        prompts=[Prompt(id="p", workload="w", kind="k", text="a", sha256="0" * 64)],
        generation=Generation(),
        folder=tmp_path,
        watched=False,
    )
    engine: Any = Shaped()
    (found,) = measure_round(engine, order, 0)
    assert (found.step_ms[8], found.step_ms[7], found.step_ms[2]) == (18.0, 22.0, 17.0)
    assert found.steady_ms == {}
    assert change_costs(found)
    shorter = [pricing(ARM, 2).model_copy(update={"id": "shorter"})]
    (found,) = measure_round(engine, replace(order, shorter={longest.id: shorter}), 1)
    assert found.steady_ms == {2: 12.0, 8: 18.0}
    assert not change_costs(StepRound(plain_ms=10.0, step_ms={1: 11.0, 7: 17.0, 8: 18.0}))
    assert not change_costs(StepRound(plain_ms=10.0, step_ms={1: 11.0}))
