"""The mock engine keeps the laws that real engines keep, and breaks them when told to."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from specmeter.engines import Launch
from specmeter.engines.mock.engine import EPOCH, MockEngine, MockSession
from specmeter.engines.mock.spec import Fault, MockDrafter, MockSpec, TargetModel, mock_model
from specmeter.errors import (
    EngineDiedError,
    EngineStartError,
    ModelError,
)
from specmeter.numbers import rates
from specmeter.record import Arm, Generation, Prompt, Reply

QUIET = MockSpec(noise=0)
BASE = Arm(id="dense/none", target="dense", role="baseline")
SIMPLE = Arm(id="dense/draft-simple/g4", target="dense", methods=("draft-simple",), draft="small", gamma=4)
NGRAM = Arm(id="dense/ngram", target="dense", methods=("ngram-simple",))
CODE = Prompt(id="code-1", workload="w", kind="code", text="def f(x):", sha256="1")
EDIT = Prompt(id="edit-1", workload="w", kind="edit", text="again and again", sha256="2")
LONG = Generation(max_tokens=400, ignore_eos=True)


def start(engine: MockEngine, arm: Arm, folder: Path, target: str = "dense") -> MockSession:
    model = mock_model(target, f"mock:{target}", engine.spec)
    draft = mock_model("small", "mock:small", engine.spec) if arm.draft else None
    return engine.start(Launch(arm, model, draft, log_path=folder / "logs" / "mock.log"))


def generate(spec: MockSpec, arm: Arm, folder: Path, prompt: Prompt = CODE, target: str = "dense") -> Reply:
    with start(MockEngine(spec), arm, folder, target) as session:
        return session.generate(prompt, LONG)


def speedup(arm: Arm, folder: Path, prompt: Prompt = CODE, target: str = "dense", spec: MockSpec = QUIET) -> float:
    base, sd = (generate(spec, this, folder, prompt, target) for this in (BASE, arm))
    return base.timings.predicted_ms / sd.timings.predicted_ms


def test_a_dense_target_gains_and_an_moe_does_not(tmp_path: Path):
    assert speedup(SIMPLE, tmp_path) > 1.5
    assert speedup(SIMPLE, tmp_path, target="moe") < 1.0


def test_ngrams_help_on_edits_and_idle_elsewhere(tmp_path: Path):
    assert speedup(NGRAM, tmp_path, EDIT) > 1.5
    idle = generate(QUIET, NGRAM, tmp_path, CODE)
    assert (idle.timings.draft_n or 0) < 0.2 * idle.timings.predicted_n
    assert speedup(NGRAM, tmp_path, CODE) == pytest.approx(1, abs=0.1)


def test_the_text_does_not_depend_on_the_arm(tmp_path: Path):
    replies = [generate(QUIET, arm, tmp_path) for arm in (BASE, SIMPLE, NGRAM)]
    assert len({reply.text for reply in replies}) == 1
    assert len({reply.token_ids for reply in replies}) == 1
    assert generate(QUIET, BASE, tmp_path, target="moe").text != replies[0].text


def test_time_passes_on_the_virtual_clock_only(tmp_path: Path):
    engine = MockEngine(QUIET)
    with start(engine, BASE, tmp_path) as session:
        assert engine.clock() == EPOCH + session.facts.ready_ms / 1000
        before = engine.clock()
        reply = session.generate(CODE, LONG)
        assert engine.clock() - before == pytest.approx(reply.wall_ms / 1000, abs=1e-5)
    assert reply.timings.predicted_ms == pytest.approx(399 * 37)


def test_tau_is_what_the_theory_says(tmp_path: Path):
    alpha, gamma = 0.7, 3
    spec = MockSpec(noise=0, drafts={"small": MockDrafter(token_ms=0, other_acceptance=(alpha,))})
    arm = SIMPLE.model_copy(update={"gamma": gamma})
    with start(MockEngine(spec), arm, tmp_path) as session:
        reply = session.generate(CODE, Generation(max_tokens=20_000, ignore_eos=True))
    expected = (1 - alpha ** (gamma + 1)) / (1 - alpha)
    assert rates.tau(reply.timings, reply.steps) == pytest.approx(expected, rel=0.02)


def test_synthetic_rates_are_honoured(tmp_path: Path):
    for rate in (0.0, 1.0):
        arm = SIMPLE.model_copy(update={"synthetic_rates": (rate,)})
        timings = generate(QUIET, arm, tmp_path).timings
        assert (timings.draft_n or 0) > 0
        assert (timings.draft_n_accepted or 0) == rate * (timings.draft_n or 0)
    by_place = SIMPLE.model_copy(update={"synthetic_rates": (1.0, 1.0, 0.0)})
    assert {step.accepted for step in generate(QUIET, by_place, tmp_path).steps[:-1]} == {2}
    assert "synthetic" in (tmp_path / "logs" / "mock.log").read_text()


def test_acceptance_repeats_and_noise_does_not(tmp_path: Path):
    engine = MockEngine(MockSpec(noise=0.05))
    replies: list[Reply] = []
    for _ in range(2):
        with start(engine, SIMPLE, tmp_path) as session:
            replies.append(session.generate(CODE, LONG))
    first, second = (reply.timings for reply in replies)
    assert first.draft_n_accepted == second.draft_n_accepted
    assert first.predicted_ms != second.predicted_ms
    assert generate(MockSpec(noise=0.05), SIMPLE, tmp_path) == replies[0]
    warmer = MockEngine(MockSpec(noise=0, block_drift=0.1))
    times = [start(warmer, BASE, tmp_path).generate(CODE, LONG).timings.predicted_ms for _ in range(2)]
    assert times[1] == pytest.approx(1.1 * times[0])


def test_a_stall_delays_the_rest_of_a_text_and_changes_nothing_else(tmp_path: Path):
    quiet = generate(MockSpec(noise=0), SIMPLE, tmp_path)
    stalled = generate(MockSpec(noise=0, stalls=1, stall_ms=700), SIMPLE, tmp_path)
    assert stalled.token_ids == quiet.token_ids
    assert stalled.timings.predicted_ms == pytest.approx(quiet.timings.predicted_ms + 700)
    delays = {round(late - at) for late, at in zip(stalled.arrival_ms, quiet.arrival_ms, strict=True)}
    assert delays == {0, 700}
    engine = MockEngine(MockSpec(noise=0, stalls=0.5))
    times: list[float] = []
    for _ in range(20):
        with start(engine, SIMPLE, tmp_path) as session:
            times.append(session.generate(CODE, LONG).timings.predicted_ms)
    assert len({round(time, 3) for time in times}) == 2


def test_p_min_drafts_less_and_is_right_more_often(tmp_path: Path):
    plain = generate(QUIET, SIMPLE, tmp_path).timings
    picky = generate(QUIET, SIMPLE.model_copy(update={"p_min": 0.7}), tmp_path).timings
    assert (picky.draft_n or 0) < (plain.draft_n or 0)
    assert (rates.acceptance_rate(picky) or 0) > (rates.acceptance_rate(plain) or 0)


def test_answers_end_by_themselves_only_when_allowed(tmp_path: Path):
    with start(MockEngine(QUIET), BASE, tmp_path) as session:
        free = session.generate(CODE, Generation(max_tokens=10_000, ignore_eos=False))
        bound = session.generate(CODE, LONG)
    assert (free.stop_reason, bound.stop_reason) == ("eos", "limit")
    assert 100 <= free.timings.predicted_n <= 300
    assert bound.timings.predicted_n == 400


def test_a_recurrent_target_restores_and_replays(tmp_path: Path):
    spec = MockSpec(noise=0, targets={"dense": TargetModel(restore_ms=5)})
    reply = generate(spec, SIMPLE, tmp_path)
    restores = sum(step.restored for step in reply.steps)
    assert restores > 0
    assert reply.text == generate(QUIET, SIMPLE, tmp_path).text
    assert len(reply.arrival_ms) == reply.timings.predicted_n
    forwards = reply.counters["n_decode_total"] - 1
    assert forwards == rates.target_forwards(reply.timings, reply.steps)
    assert reply.timings.predicted_n - 1 == (reply.timings.draft_n_accepted or 0) + forwards
    heads = generate(spec, SIMPLE.model_copy(update={"methods": ("draft-mtp",), "draft": None}), tmp_path)
    assert not any(step.restored for step in heads.steps), "heads keep states"


arms = st.builds(
    Arm,
    id=st.just("any"),
    target=st.just("dense"),
    methods=st.sampled_from(
        [("none",), ("draft-simple",), ("ngram-mod",), ("ngram-mod", "draft-simple"), ("draft-mtp",)]
    ),
    draft=st.just("small"),
    gamma=st.none() | st.integers(1, 20),
    gamma_min=st.none() | st.integers(0, 5),
    p_min=st.none() | st.floats(0, 1),
    synthetic_rates=st.lists(st.floats(0, 1), max_size=3).map(tuple),
)
prompts = st.builds(
    Prompt,
    id=st.sampled_from("abc"),
    workload=st.just("w"),
    kind=st.sampled_from(["code", "edit"]),
    text=st.text(st.characters(exclude_categories=["Cs"]), max_size=50),
    sha256=st.just("1"),
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(arm=arms, prompt=prompts, tokens=st.integers(1, 60), heat=st.sampled_from([0.0, 1.0]))
def test_every_reply_keeps_the_laws(tmp_path, arm, prompt, tokens, heat):
    with start(MockEngine(), arm, tmp_path) as session:
        reply = session.generate(prompt, Generation(max_tokens=tokens, temperature=heat, ignore_eos=True))
        assert session.tokenize(reply.text) == reply.token_ids
        assert session.detokenize(session.tokenize(prompt.text)) == prompt.text
    timings = reply.timings
    assert timings.predicted_n == tokens == len(reply.token_ids) == len(reply.arrival_ms)
    assert tokens - 1 == (timings.draft_n_accepted or 0) + reply.counters["n_decode_total"] - 1
    assert sum(step.drafted for step in reply.steps) == timings.draft_n
    assert sum(step.accepted for step in reply.steps) == timings.draft_n_accepted
    assert list(reply.arrival_ms) == sorted(reply.arrival_ms)
    assert reply.arrival_ms[-1] == pytest.approx(timings.prompt_ms + timings.predicted_ms)
    assert reply.wall_ms > reply.arrival_ms[-1]
    tau = rates.tau(timings, reply.steps)
    assert tau is None or 1 <= tau <= (arm.gamma or 16) + 1


# --- faults ----------------------------------------------------------------------------------------------------------


def with_fault(**fault: object) -> MockSpec:
    return MockSpec(noise=0, faults=(Fault.model_validate(fault),))


def test_a_fault_strikes_where_its_selectors_match(tmp_path: Path):
    engine = MockEngine(with_fault(kind="start-fails", arm="*/draft-simple/*", block=1))
    start(engine, SIMPLE, tmp_path)
    start(engine, BASE, tmp_path)
    start(engine, BASE, tmp_path)
    with pytest.raises(EngineStartError):
        start(engine, SIMPLE, tmp_path)
    start(engine, SIMPLE, tmp_path)


def test_an_engine_that_died_stays_dead(tmp_path: Path):
    engine = MockEngine(with_fault(kind="dies", prompt="edit-*"))
    session = start(engine, BASE, tmp_path)
    session.generate(CODE, LONG)
    before = engine.clock()
    for prompt in (EDIT, CODE):
        with pytest.raises(EngineDiedError):
            session.generate(prompt, LONG)
    assert engine.clock() > before
    session.close()
    start(engine, BASE, tmp_path).generate(CODE, LONG)


def test_ctrl_c_at_a_given_call(tmp_path: Path):
    session = start(MockEngine(with_fault(kind="interrupt", call=2)), BASE, tmp_path)
    session.generate(CODE, LONG)
    session.generate(CODE, LONG)
    with pytest.raises(KeyboardInterrupt):
        session.generate(CODE, LONG)


def test_speculation_can_be_silently_inactive(tmp_path: Path):
    engine = MockEngine(with_fault(kind="inactive"))
    session = start(engine, SIMPLE, tmp_path)
    assert session.facts.speculating is False
    assert session.facts.resolved["speculative.types"] == "draft-simple"
    assert session.generate(CODE, LONG).timings.draft_n == 0
    assert "failed to initialize speculative decoding context" in (tmp_path / "logs" / "mock.log").read_text()


def test_failed_decodes_look_fast_and_break_the_conservation_law(tmp_path: Path):
    spec = with_fault(kind="decode-failed")
    reply = generate(spec, SIMPLE, tmp_path)
    forwards = reply.counters["n_decode_total"] - 1
    assert reply.timings.predicted_n - 1 > (reply.timings.draft_n_accepted or 0) + forwards
    assert speedup(SIMPLE, tmp_path, spec=spec) > speedup(SIMPLE, tmp_path)
    assert "failed to decode, ret = -1" in (tmp_path / "logs" / "mock.log").read_text()
    assert len(set(reply.token_ids[200:])) == 1
    assert generate(spec, BASE, tmp_path) == generate(QUIET, BASE, tmp_path)


@pytest.mark.parametrize("restore_ms", [0, 5])
def test_a_stuck_counter_only_says_one(tmp_path: Path, restore_ms):
    targets = {"dense": TargetModel(restore_ms=restore_ms)}
    spec = with_fault(kind="acceptance-stuck").model_copy(update={"targets": targets})
    reply = generate(spec, SIMPLE, tmp_path)
    assert rates.acceptance_rate(reply.timings) == 1
    assert (reply.timings.draft_n or 0) < sum(step.drafted for step in reply.steps)


def test_text_that_differs_and_text_that_ends_early(tmp_path: Path):
    honest = generate(QUIET, SIMPLE, tmp_path)
    other = generate(with_fault(kind="text-differs"), SIMPLE, tmp_path)
    assert other.token_ids[:200] == honest.token_ids[:200]
    assert all(a != b for a, b in zip(other.token_ids[200:], honest.token_ids[200:], strict=True))
    short = generate(with_fault(kind="truncated"), BASE, tmp_path)
    assert (short.timings.predicted_n, short.stop_reason) == (200, "eos")


# --- identity --------------------------------------------------------------------------------------------------------


def test_identity_is_the_spec_without_its_faults():
    sha = MockEngine().identify().binary_sha256
    assert (
        sha
        == MockEngine(with_fault(kind="dies").model_copy(update={"noise": MockSpec().noise})).identify().binary_sha256
    )
    assert sha != MockEngine(MockSpec(seed=2)).identify().binary_sha256


def test_models_are_named():
    dense, moe, small = (mock_model(name, f"mock:{name}") for name in ("dense", "moe", "small"))
    assert dense.origin == "mock"
    assert len({dense.sha256, moe.sha256, small.sha256}) == 3
    with pytest.raises(ModelError, match="mock:nothing") as refusal:
        mock_model("x", "mock:nothing")
    assert "mock:dense" in refusal.value.fix


def test_a_draft_method_needs_a_draft(tmp_path: Path):
    with pytest.raises(EngineStartError, match="needs a draft model"):
        start(MockEngine(), Arm(id="a", target="dense", methods=("draft-eagle3",)), tmp_path)
