"""The engine as experiments see it: a process of its own that says what servers say, and dies as they do."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from engines.llama_fixtures import TEXT, alive, arm, gone_within, greedy, launch, prompt
from specmeter.engines import load_engine
from specmeter.engines.libllama.engine import LibllamaEngine
from specmeter.engines.llama_cpp.engine import EmbeddedEngine
from specmeter.errors import EngineDiedError, EngineHungError, EngineStartError
from specmeter.llama_binding import capi
from specmeter.record import Arm


@pytest.fixture(scope="module")
def engine() -> LibllamaEngine:
    return LibllamaEngine()


BOTH = [
    arm(),
    arm(methods=("draft-simple",), draft="d", gamma=4),
    arm(methods=("draft-simple",), draft="d", gamma=6, p_min=0.6),
    arm(methods=("ngram-simple",), gamma=6, ngram_n=3),
    arm(methods=("draft-simple", "ngram-simple"), draft="d", gamma=4, ngram_n=3),
]


@pytest.mark.parametrize("target", ["dense", "hybrid"])
@pytest.mark.parametrize("an_arm", BOTH, ids=lambda it: "+".join(it.methods) + ("-p" if it.p_min else ""))
def test_it_does_what_the_server_does(engine: LibllamaEngine, tmp_path: Path, an_arm: Arm, target: str) -> None:
    """The same text, and the same tokens drafted and accepted on the way to it."""
    replies = []
    for kind, folder in ((engine, "one"), (EmbeddedEngine(), "other")):
        a_launch = launch(tmp_path / folder, an_arm, target=target, draft="draft-small" if an_arm.draft else None)
        with kind.start(a_launch) as session:
            replies.append([session.generate(prompt(text), greedy(48)) for text in (TEXT, "Anna has 12 apples. Then ")])
            facts = session.facts
            assert facts.resolved["n_ctx"] == 512
            assert facts.resolved["methods"] == (sorted(an_arm.methods) if an_arm.speculates else [])
            assert sum(use.model_buffer_bytes for use in facts.devices) > 1_000_000
            assert sum(use.kv_buffer_bytes for use in facts.devices) > 100_000
            assert bool(facts.draft_devices) == (an_arm.draft is not None)
    for mine, theirs in zip(*replies, strict=True):
        assert mine.token_ids == theirs.token_ids
        assert mine.text == theirs.text
        ours, their = mine.timings, theirs.timings
        assert (ours.prompt_n, ours.predicted_n) == (their.prompt_n, their.predicted_n)
        assert (ours.draft_n, ours.draft_n_accepted) == (their.draft_n, their.draft_n_accepted)
        assert ours.prompt_ms + ours.predicted_ms <= mine.wall_ms


def test_a_session_is_identified_to_the_byte(engine: LibllamaEngine) -> None:
    identity = engine.identify()
    assert identity.kind == "libllama"
    assert capi.VERSION in identity.version
    assert Path(identity.binary).is_file()
    assert identity.binary_sha256 in identity.libraries.values()
    assert load_engine("libllama").identify() == identity


def test_texts_tokens_and_candidates_cross_the_border(engine: LibllamaEngine, tmp_path: Path) -> None:
    with engine.start(launch(tmp_path, arm())) as session:
        tokens = session.tokenize("第 twelve 👩")
        assert session.detokenize(tokens) == "第 twelve 👩"
        said = session.generate(prompt(), greedy(4)).token_ids
        found = session.candidates(prompt(), said[:2], greedy(), 3)
        assert found[0].token == said[2]
        with pytest.raises(Exception, match="the prompt is empty"):
            session.generate(prompt(""), greedy(4))
        assert session.generate(prompt(), greedy(4)).token_ids == said


def test_another_library_is_refused_before_anything_starts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(capi.SETTING, str(tmp_path / "missing.so"))
    with pytest.raises(EngineStartError, match=capi.SETTING):
        LibllamaEngine().identify()


def test_a_process_that_is_killed_is_noticed_and_leaves_nothing(engine: LibllamaEngine, tmp_path: Path) -> None:
    session = engine.start(launch(tmp_path, arm()))
    pids = session.facts.pids
    assert alive(pids)
    os.kill(pids[0], getattr(signal, "SIGKILL", signal.SIGTERM))
    with pytest.raises(EngineDiedError, match="died"):
        session.generate(prompt(), greedy(4))
    session.close()
    session.close()
    assert gone_within(pids, 60)


@pytest.mark.skipif(os.name == "nt", reason="no SIGSTOP")
def test_a_process_that_hangs_is_noticed(engine: LibllamaEngine, tmp_path: Path) -> None:
    with engine.start(launch(tmp_path, arm(), idle_s=0.5)) as session:
        pids = session.facts.pids
        os.kill(pids[0], signal.SIGSTOP)
        with pytest.raises(EngineHungError, match="hangs"):
            session.generate(prompt(), greedy(4))
    assert gone_within(pids, 60)


def test_long_generations_are_no_hang(engine: LibllamaEngine, tmp_path: Path) -> None:
    """Signs of life come while tokens do, however long the whole takes."""
    settings = {"engine": {"context": 4096}}
    with engine.start(launch(tmp_path, arm(**settings), target="moe", idle_s=0.7)) as session:
        reply = session.generate(prompt(), greedy(2500))
    assert reply.timings.predicted_n == 2500
    assert reply.wall_ms > 700


def test_what_was_started_is_on_record_without_secrets(engine: LibllamaEngine, tmp_path: Path) -> None:
    with engine.start(launch(tmp_path, arm(methods=("draft-simple",), draft="d", gamma=4), draft="draft-small")) as it:
        order = json.loads(it.facts.argv[-1])
    assert set(order) == {"arm", "target", "draft", "threads"}
