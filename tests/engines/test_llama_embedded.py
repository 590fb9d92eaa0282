"""The embedded engine on real (tiny) models: counters add up, steps are seen, nothing is shared between sessions."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from importlib import resources
from pathlib import Path

import pytest
from llama_fixtures import TEXT, arm, core, gone_within, greedy, launch, prompt

from records import header
from specmeter.engines.llama_cpp import child
from specmeter.engines.llama_cpp.engine import EmbeddedEngine
from specmeter.engines.llama_cpp.server import LlamaSession, request_body
from specmeter.engines.llama_cpp.spec import METHODS
from specmeter.errors import EngineStartError, ExperimentError
from specmeter.experiments.file import load
from specmeter.models.facts import read_facts
from specmeter.models.gguf_writer import write_gguf
from specmeter.models.inflate import CoreFile, Recipe, inflated
from specmeter.models.memory import state_slots
from specmeter.numbers import rates
from specmeter.record import Arm, ChatMessage, Generation, Prompt, Reply, Turn


@pytest.fixture(scope="module")
def engine() -> EmbeddedEngine:
    return EmbeddedEngine()


def test_its_process_loads_the_wheel_and_nothing_of_this_package(engine: EmbeddedEngine, tmp_path: Path) -> None:
    """A session would take a third of a second longer to start, and so would each of a run."""
    with engine.start(launch(tmp_path, arm())) as session:
        command = session.facts.argv[:-1]
    assert command[-1] == child.__file__
    loaded = subprocess.run(
        [sys.executable, "-X", "importtime", *command[1:], "--identify"], capture_output=True, text=True, check=True
    ).stderr
    assert "xllamacpp" in loaded
    assert "specmeter" not in loaded
    assert "pydantic" not in loaded


def generated(session: LlamaSession, max_tokens: int = 48, text: str = TEXT) -> Reply:
    reply = session.generate(prompt(text), greedy(max_tokens))
    timings = reply.timings
    assert timings.predicted_n == max_tokens == len(reply.token_ids) == len(reply.arrival_ms)
    assert timings.cache_n == 0
    assert sorted(reply.arrival_ms) == list(reply.arrival_ms)
    assert reply.ttft_ms is not None
    assert 0 < reply.ttft_ms <= reply.wall_ms
    assert timings.prompt_ms + timings.predicted_ms <= reply.wall_ms + 20
    return reply


def forwards(session: LlamaSession, reply: Reply, text: str = TEXT) -> int:
    """Target forwards after the prompt, by calibration with one token."""
    alone = session.generate(prompt(text), greedy(1)).counters["n_decode_total"]
    return int(reply.counters["n_decode_total"] - alone)


SPECULATING = [
    arm(methods=("draft-simple",), draft="d", gamma=4),
    arm(methods=("draft-simple",), draft="d", gamma=4, gamma_min=2, p_min=0.3),
    arm(methods=("ngram-simple",), gamma=6, ngram_n=3),
    arm(methods=("ngram-map-k",), gamma=6, ngram_n=3, ngram_min_hits=1),
    arm(methods=("ngram-map-k4v",), gamma=6, ngram_n=3, ngram_min_hits=1),
    arm(methods=("ngram-mod",), gamma=8, gamma_min=2, ngram_n=3),
    arm(methods=("ngram-cache",)),
    arm(methods=("draft-simple", "ngram-simple"), draft="d", gamma=4, ngram_n=3),
    arm(methods=("draft-simple",), draft="d", gamma=3, synthetic_rates=(1.0, 1.0, 1.0)),
    arm(methods=("draft-simple",), draft="d", gamma=3, synthetic_rates=(0.0, 0.0, 0.0)),
]


def name(value: Arm) -> str:
    return "+".join(value.methods) + ("-synthetic" if value.synthetic_rates else "") + ("-min" if value.p_min else "")


@pytest.mark.parametrize("speculating", SPECULATING, ids=name)
def test_counters_and_steps_add_up(engine: EmbeddedEngine, tmp_path: Path, speculating: Arm) -> None:
    draft = "draft-small" if speculating.draft else None
    with engine.start(launch(tmp_path, speculating, draft=draft)) as session:
        assert session.facts.speculating is True
        assert session.facts.resolved["methods"] == sorted(speculating.methods)
        reply = generated(session)
        again = generated(session)
        target_forwards = forwards(session, reply)
    timings = reply.timings
    assert timings.predicted_n - 1 == (timings.draft_n_accepted or 0) + target_forwards
    assert sum(step.drafted for step in reply.steps) == timings.draft_n
    assert sum(step.accepted for step in reply.steps) == timings.draft_n_accepted
    assert len(reply.steps) == reply.counters.get("spec_decode_num_drafts_total", 0)
    assert reply.counters["spec_decode_num_draft_tokens_total"] == timings.draft_n
    # The server's own statistics are there for each method, of this request alone.
    assert {drafting.method for drafting in reply.drafting} == set(speculating.methods)
    for drafting in again.drafting:
        assert 0 < drafting.calls <= again.timings.predicted_n - (again.timings.draft_n_accepted or 0)
        assert 0 < drafting.generate_ms < again.timings.predicted_ms
    times = [step.at_ms for step in reply.steps]
    assert times == sorted(times)
    assert all(0 < at <= reply.wall_ms for at in times)
    if speculating.methods == ("draft-simple",) and speculating.p_min is None:
        assert (timings.draft_n or 0) > 0
        assert again.steps, "the second request has its own steps"
    if speculating.synthetic_rates:
        expected = timings.draft_n if speculating.synthetic_rates[0] else 0
        assert timings.draft_n_accepted == expected
        assert any("synthetic" in warning for warning in session.facts.resolved["warnings"])


def test_restores_on_a_hybrid_target_add_up(engine: EmbeddedEngine, tmp_path: Path) -> None:
    """A rejected draft is undone by restoring a checkpoint and replaying; every target forward is one step."""
    control = arm(methods=("draft-simple",), draft="d", gamma=4, synthetic_rates=(0.7, 0.5, 0.3, 0.2))
    with engine.start(launch(tmp_path, control, target="hybrid", draft="hybrid")) as session:
        reply = generated(session)
        target_forwards = forwards(session, reply)
    timings = reply.timings
    assert any(step.restored for step in reply.steps)
    assert 0 < (timings.draft_n_accepted or 0) < (timings.draft_n or 0)
    assert timings.predicted_n - 1 == (timings.draft_n_accepted or 0) + target_forwards
    assert sum(step.drafted for step in reply.steps) == timings.draft_n
    assert rates.target_forwards(timings, reply.steps) == target_forwards
    assert sum(step.accepted for step in reply.steps) == timings.draft_n_accepted


HEADS = [
    arm(methods=("draft-mtp",), gamma=3),
    arm(methods=("draft-eagle3",), draft="hybrid-eagle3", gamma=3),
    arm(methods=("draft-dflash",), draft="hybrid-dflash", gamma=3),
]


@pytest.mark.parametrize("head", HEADS, ids=name)
def test_heads_draft_what_a_hybrid_target_says(engine: EmbeddedEngine, tmp_path: Path, head: Arm) -> None:
    """They read its states, need no checkpoint to take back, and are far better than chance (1 in 2,048)."""
    prompts = resources.files("specmeter.workloads") / "bench" / "code.jsonl"
    text = json.loads(prompts.read_text(encoding="utf-8").splitlines()[0])["text"]
    with engine.start(launch(tmp_path, head, target="hybrid", draft=head.draft)) as session:
        assert session.facts.resolved["methods"] == list(head.methods)
        reply = generated(session, text=text)
        target_forwards = forwards(session, reply, text)
    timings = reply.timings
    assert timings.predicted_n - 1 == (timings.draft_n_accepted or 0) + target_forwards
    assert sum(step.drafted for step in reply.steps) == timings.draft_n
    assert sum(step.accepted for step in reply.steps) == timings.draft_n_accepted
    assert (timings.draft_n_accepted or 0) > 0.3 * (timings.draft_n or 0) > 0
    assert not any(step.restored for step in reply.steps)
    assert {drafting.method for drafting in reply.drafting} == set(head.methods)
    # One state in use and one for each draft token, as `predict` and the memory of a plan have it.
    facts = read_facts(Path(core("hybrid").path))
    assert facts.memory is not None
    states = 1 + state_slots(facts.architecture, head.methods, head.gamma)
    log = (tmp_path / "logs" / "engine.log").read_text("utf-8")
    (printed,) = re.findall(r"llama_memory_recurrent: size = +([\d.]+) MiB", log)
    assert float(printed) == pytest.approx(states * (facts.memory.recurrent_state_bytes or 0) / 2**20, abs=0.006)


def test_methods_demo_names_every_method_that_has_a_bench_head() -> None:
    asked = {method for arm in load("methods-demo").experiment.expand() for method in arm.methods}
    assert asked == {"none", *(it.name for it in METHODS)} - {"draft-dspark"}


def test_baseline(engine: EmbeddedEngine, tmp_path: Path) -> None:
    with engine.start(launch(tmp_path, arm())) as session:
        facts = session.facts
        reply = generated(session)
        assert forwards(session, reply) == reply.timings.predicted_n - 1
    assert facts.speculating is False
    assert reply.steps == ()
    assert reply.timings.draft_n == 0
    assert reply.stop_reason == "limit"
    assert facts.resolved["methods"] == []
    assert facts.resolved["n_ctx"] == 512
    assert facts.resolved["threads"] == facts.resolved["batch_threads"] == 1
    assert facts.resolved["total_slots"] == 1
    assert facts.resolved["kv_type_k"] == "f16"
    assert facts.resolved["flash_attention"] == "enabled"
    assert sum(device.model_buffer_bytes for device in facts.devices) > 10_000_000
    assert sum(device.kv_buffer_bytes for device in facts.devices) > 100_000
    assert facts.draft_devices == ()


def test_settings_are_in_force(engine: EmbeddedEngine, tmp_path: Path) -> None:
    changes = {
        "kv_type_k": "q8_0",
        "kv_type_v": "q8_0",
        "draft_kv_type_k": "q8_0",
        "flash_attention": "on",
        "batch": 128,
        "ubatch": 64,
        "mmap": False,
    }
    speculating = arm(methods=("draft-simple",), draft="d", gamma=5, gamma_min=2, p_min=0.25, engine=changes)
    with engine.start(launch(tmp_path, speculating, draft="draft-small")) as session:
        resolved = session.facts.resolved
    assert (resolved["kv_type_k"], resolved["kv_type_v"]) == ("q8_0", "q8_0")
    assert (resolved["draft_kv_type_k"], resolved["draft_kv_type_v"]) == ("q8_0", "f16")
    assert (resolved["n_batch"], resolved["n_ubatch"]) == (128, 64)
    assert resolved["load_mode"] == "none"
    assert (resolved["gamma"], resolved["gamma_min"], resolved["p_min"]) == (5, 2, 0.25)


def test_a_prompt_takes_one_forward_per_batch(engine: EmbeddedEngine, tmp_path: Path) -> None:
    with engine.start(launch(tmp_path, arm(engine={"batch": 64, "ubatch": 32}))) as session:
        for length, expected in ((1, 1), (63, 1), (64, 1), (65, 2), (128, 2), (200, 4)):
            text = session.detokenize(session.tokenize(TEXT * 20)[:length])
            reply = session.generate(prompt(text), greedy(1))
            if reply.timings.prompt_n == length:
                assert reply.counters["n_decode_total"] == expected, length


def test_an_answer_in_one_piece_is_the_same(engine: EmbeddedEngine, tmp_path: Path) -> None:
    speculating = arm(methods=("draft-simple",), draft="d", gamma=4, engine={"stream_tokens": False})
    with engine.start(launch(tmp_path / "a", speculating, draft="draft-small")) as session:
        whole = session.generate(prompt("水闸为什么"), greedy(64))
    with engine.start(launch(tmp_path / "b", arm())) as session:
        streamed = generated(session, 64, text="水闸为什么")
    assert whole.arrival_ms == ()
    assert whole.ttft_ms is None
    assert whole.text == streamed.text
    assert len(whole.token_ids) == 64
    assert sum(step.accepted for step in whole.steps) == whole.timings.draft_n_accepted
    pairs = zip(whole.token_ids, streamed.token_ids, strict=True)
    assert all(one == other or other == -1 for one, other in pairs)


@pytest.mark.slow
def test_a_slow_answer_in_one_piece_is_no_hang(engine: EmbeddedEngine, tmp_path: Path) -> None:
    whole = arm(engine={"stream_tokens": False, "context": 8192})
    with engine.start(launch(tmp_path, whole, idle_s=0.8)) as session:
        assert session.generate(prompt(), greedy(3000)).wall_ms > 1000


def test_chat_prompts(engine: EmbeddedEngine, tmp_path: Path) -> None:
    with engine.start(launch(tmp_path, arm())) as session:
        reply = session.generate(prompt("Who built the bridge?", format="chat"), greedy(8))
        plain = session.generate(prompt("Who built the bridge?"), greedy(8))
    assert len(reply.token_ids) == 8
    assert reply.timings.prompt_n > plain.timings.prompt_n


def test_thinking_is_an_argument_of_the_template(engine: EmbeddedEngine, tmp_path: Path) -> None:
    trained = CoreFile.read(Path(str(core("dense").path)))
    template = "{{ messages[0].content }}{% if enable_thinking is false %}<think></think>{% else %}<think>{% endif %}"
    with (tmp_path / "thinks.gguf").open("wb") as file:
        fields = {**trained.header.metadata, "tokenizer.chat_template": template}
        write_gguf(file, fields, inflated(trained, Recipe(trained.layers, trained.width, trained.kind)))
    model = core("dense").model_copy(update={"path": str(tmp_path / "thinks.gguf")})
    asked = prompt("Who built the bridge?", format="chat")
    with engine.start(replace(launch(tmp_path / "run", arm()), target=model)) as session:
        on, off = (
            session.generate(asked.model_copy(update={"thinking": thinking}), greedy(8)) for thinking in (True, False)
        )
        assert session.prompt_tokens(asked) != session.prompt_tokens(asked.model_copy(update={"thinking": False}))
    assert (bool(on.reasoning), bool(on.text)) == (True, False)
    assert (bool(off.reasoning), bool(off.text)) == (False, True)


def test_a_chat_of_a_model_without_a_template_is_continued_as_plain_text(
    engine: EmbeddedEngine, tmp_path: Path
) -> None:
    """The server would put it into ChatML, and say nothing."""
    bare = core("dense").model_copy(update={"header": header(chat_template=False)})
    said = ChatMessage(role="assistant", content="It was built.")
    with engine.start(replace(launch(tmp_path, arm()), target=bare)) as session:
        plain = session.prompt_tokens(prompt("Who built it?"))
        assert session.prompt_tokens(prompt("Who built it?", format="chat")) == plain
        turns = session.prompt_tokens(prompt("Who built it?", format="chat", before=(said,)))
        assert turns == session.prompt_tokens(prompt("It was built.\n\nWho built it?"))


def test_calls_of_sessions_find_the_cache_as_it_was_served(engine: EmbeddedEngine, tmp_path: Path) -> None:
    before = (ChatMessage(role="user", content=TEXT), ChatMessage(role="assistant", content="It was built."))

    def call(known: int, cached: float | None) -> Prompt:
        turn = Turn(session="s", number=1, known=known, cached=cached)
        return prompt("Who built the bridge?", format="chat", before=before, turn=turn)

    replaying = arm(engine={"prompt_cache": True, "stream_tokens": False})
    with engine.start(replace(launch(tmp_path, replaying), recalls=True)) as session:
        length, found = len(session.prompt_tokens(call(0, None))), {}
        for of in ((2, None), (2, 0.5), (2, 0.0), (0, None)):
            session.recall(call(*of))
            reply = session.generate(call(*of), greedy(8))
            found[of] = reply.timings.cache_n
            assert reply.timings.cache_n + reply.timings.prompt_n == length
            assert reply.known_n == (found[2, None] if of[0] else 0)
        assert found[2, None] > 0.7 * length
    assert found == {(2, None): found[2, None], (2, 0.5): round(0.5 * length), (2, 0.0): 0, (0, None): 0}


def test_what_is_not_asked_for_is_left_to_the_server(engine: EmbeddedEngine, tmp_path: Path) -> None:
    """A greedy request equals the one that a user would send, and the settings in force are on record."""
    body = request_body("x", 9, Generation(temperature=0.7, min_p=0.1, stop=("a",)), prompt_cache=False, stream=True)
    assert body.keys() >= {"temperature", "min_p", "stop", "seed"}
    assert body.keys().isdisjoint({"top_k", "top_p", "samplers", "repeat_penalty"})
    with engine.start(launch(tmp_path, arm())) as session:
        assert session.facts.resolved["sampling"] == {
            **{"top_k": 40, "top_p": 0.95, "min_p": 0.05},
            **{"repeat_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0},
        }
        whole = session.generate(prompt(), greedy(24))
        word = whole.text[len(whole.text) // 2 :][:4]
        cut = session.generate(prompt(), greedy(24, stop=(word,)))
        assert (cut.stop_reason, cut.text) == ("word", whole.text.partition(word)[0])
        assert session.generate(prompt(), greedy(24, presence_penalty=2.0)).text != whole.text


def test_sampling_follows_the_seed(engine: EmbeddedEngine, tmp_path: Path) -> None:
    with engine.start(launch(tmp_path, arm())) as session:
        draws = [
            session.generate(prompt(), greedy(16, temperature=1.5, seed=seed, top_p=0.99)).token_ids
            for seed in (1, 1, 2)
        ]
    assert draws[0] == draws[1] != draws[2]


def test_a_draft_with_another_vocabulary_is_recorded(engine: EmbeddedEngine, tmp_path: Path) -> None:
    """llama.cpp goes on without speculation; the session says so, and why."""
    speculating = arm(methods=("draft-simple",), draft="d", gamma=4)
    with engine.start(launch(tmp_path, speculating, draft="draft-other-vocab")) as session:
        facts = session.facts
        reply = generated(session, 16)
    assert facts.speculating is False
    assert reply.timings.draft_n == 0
    assert facts.resolved["methods"] == []
    assert any("not compatible" in warning for warning in facts.resolved["warnings"])
    assert any("failed to initialize speculative" in warning for warning in facts.resolved["warnings"])


def test_synthetic_rates_without_speculation_do_not_start(engine: EmbeddedEngine, tmp_path: Path) -> None:
    control = arm(methods=("draft-simple",), draft="d", gamma=2, synthetic_rates=(1.0, 0.5))
    with pytest.raises(EngineStartError, match="vocab type must match"):
        engine.start(launch(tmp_path, control, draft="draft-other-vocab"))


def test_two_sessions_share_nothing(engine: EmbeddedEngine, tmp_path: Path) -> None:
    pool = arm(methods=("ngram-mod",), gamma=8, gamma_min=2, ngram_n=3)
    replies: list[Reply] = []
    pids: list[int] = []
    for order in "ab":
        with engine.start(launch(tmp_path / order, pool)) as session:
            pids += session.facts.pids
            replies.append(generated(session))
        assert gone_within(session.facts.pids, 60)
    assert len(set(pids)) == 2
    assert replies[0].timings.draft_n == replies[1].timings.draft_n
    assert [s.accepted for s in replies[0].steps] == [s.accepted for s in replies[1].steps]


def test_the_api_key_is_written_nowhere(engine: EmbeddedEngine, tmp_path: Path) -> None:
    with engine.start(launch(tmp_path, arm())) as session:
        key = session._client.api_key
        shown = json.loads(session.facts.argv[-1])
        log = (tmp_path / "logs" / "engine.log").read_text()
    assert shown["api_keys"] == ["***"]
    assert key not in log
    assert key not in repr(session._client)


@pytest.mark.parametrize("setting", [{"extra_flags": ("--mlock",)}, {"devices": ("CUDA0",)}])
def test_what_the_wheel_cannot_do_is_refused(
    engine: EmbeddedEngine, tmp_path: Path, setting: dict[str, object]
) -> None:
    with pytest.raises(ExperimentError, match=f"engine.{next(iter(setting))}"):
        engine.start(launch(tmp_path, arm(engine=setting)))
