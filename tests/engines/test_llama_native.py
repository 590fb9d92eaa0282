"""A real native llama-server, where there is one."""

from __future__ import annotations

from pathlib import Path

import pytest
from llama_fixtures import NATIVE, NO_NATIVE, arm, gone_within, greedy, launch, prompt

from specmeter.engines.llama_cpp.engine import EmbeddedEngine, NativeEngine

pytestmark = pytest.mark.skipif(NATIVE is None, reason=NO_NATIVE)


def test_speculation_through_a_native_server(tmp_path: Path) -> None:
    speculating = arm(methods=("draft-simple", "ngram-simple"), draft="d", gamma=4, ngram_n=3)
    with NativeEngine().start(launch(tmp_path, speculating, draft="draft-small")) as session:
        reply = session.generate(prompt(), greedy(48))
        alone = session.generate(prompt(), greedy(1))
    forwards = reply.counters["n_decode_total"] - alone.counters["n_decode_total"]
    assert session.facts.speculating is True
    assert session.facts.resolved["methods"] == ["draft-simple", "ngram-simple"]
    assert reply.timings.predicted_n - 1 == (reply.timings.draft_n_accepted or 0) + forwards
    assert sum(step.drafted for step in reply.steps) == reply.timings.draft_n
    assert sum(step.accepted for step in reply.steps) == reply.timings.draft_n_accepted
    assert not any("KEY" in part.upper() and "api" in part for part in session.facts.argv)
    assert gone_within(session.facts.pids, 60)


def test_native_and_embedded_read_an_arm_alike(tmp_path: Path) -> None:
    speculating = arm(methods=("draft-simple",), draft="d", gamma=6, gamma_min=2, p_min=0.4)
    facts: list[dict[str, object]] = []
    for engine in (NativeEngine(), EmbeddedEngine()):
        with engine.start(launch(tmp_path, speculating, draft="draft-small")) as session:
            facts.append(dict(session.facts.resolved))
    for name in ("n_ctx", "n_batch", "threads", "gamma", "gamma_min", "p_min", "methods", "kv_type_k", "slot_context"):
        assert facts[0][name] == facts[1][name], name


def test_identity() -> None:
    identity = NativeEngine().identify()
    assert identity.kind == "native"
    assert identity.version
    assert any("ggml" in name for name in identity.libraries) or len(identity.libraries) == 0
