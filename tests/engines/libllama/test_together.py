"""Several requests in one forward: each text is what it is alone, every forward and millisecond accounted for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engines.libllama.contexts import core_path
from engines.llama_fixtures import TEXT, arm, greedy, launch, prompt
from specmeter.engines import load_engine
from specmeter.engines.libllama.session import InProcessSession
from specmeter.engines.libllama.together import Together
from specmeter.record import Reply

TEXTS = (TEXT, "Anna has 12 apples. Then ", "def mean(values):\n    return ")
SLOTS = {"slots": 3, "context": 3 * 256}
NEAR_TIE = 0.3
"""Nats between two tokens below which another order of adding up may turn them; see the notebook."""
DRAFTS = {"methods": ("draft-simple",), "draft": "d", "gamma": 4}


def opened(target: str = "dense", **changes: Any) -> InProcessSession:
    return InProcessSession(
        arm(**({"engine": SLOTS} | changes)), core_path(target), core_path("draft-small"), threads=1
    )


def ended(session: InProcessSession, wanted: list[tuple[str, int]]) -> dict[int, Reply]:
    together, found = Together(session.target, session.work), dict[int, Reply]()
    for ticket, (text, tokens) in enumerate(wanted):
        together.submit(ticket, prompt(text), greedy(tokens))
    while not together.idle:
        for ticket, result in together.advance():
            assert isinstance(result, Reply), result
            found[ticket] = result
    return found


def same_up_to_near_ties(session: InProcessSession, text: str, one: Reply, other: Reply) -> None:
    pairs = enumerate(zip(one.token_ids, other.token_ids, strict=True))
    place = next((at for at, (a, b) in pairs if a != b), None)
    if place is None:
        return
    likely = session.candidates(prompt(text), one.token_ids[:place], greedy(1), 50)
    odds = {it.token: it.logprob for it in likely}
    assert abs(odds[one.token_ids[place]] - odds[other.token_ids[place]]) < NEAR_TIE


@pytest.mark.parametrize(
    ("target", "changes"),
    [
        ("dense", {}),
        ("dense", DRAFTS | {"p_min": 0.4}),
        ("moe", {"methods": ("ngram-simple", "draft-simple"), "draft": "d", "gamma": 4, "ngram_n": 2}),
        ("dense", {"methods": ("ngram-simple",), "gamma": 4, "synthetic_rates": (0.9, 0.8, 0.5, 0.2)}),
        ("hybrid", DRAFTS),
    ],
)
def test_texts_are_what_they_are_alone_and_forwards_are_shared(target: str, changes: dict[str, Any]) -> None:
    wanted = [(text, tokens) for tokens in (30, 12, 45) for text in TEXTS]  # nine requests in three slots
    with opened(target, **changes) as session:
        alone = {text: session.generate(prompt(text), greedy(45)) for text in TEXTS}
        before = session.totals()
        replies = ended(session, wanted)
        after = session.totals()
        assert sorted(replies) == list(range(len(wanted)))
        for ticket, (text, tokens) in enumerate(wanted):
            reply = replies[ticket]
            cut = alone[text].model_copy(update={"token_ids": alone[text].token_ids[:tokens]})
            same_up_to_near_ties(session, text, cut, reply)
            assert reply.timings.predicted_n == tokens == 1 + sum(step.accepted + 1 for step in reply.steps)
            assert reply.counters["n_decode_total"] == 1 + len(reply.steps)
            parts = ("draft_ms", "verify_ms", "sample_ms", "restore_ms", "other_ms")
            spent = sum(getattr(step, part) for step in reply.steps for part in parts)
            assert spent == pytest.approx(reply.timings.predicted_ms, rel=0.02)
            assert all(getattr(step, part) >= 0 for step in reply.steps for part in parts)
            assert len(reply.arrival_ms) == tokens
            assert reply.arrival_ms[-1] <= reply.wall_ms
    busy, forwards = (after[name] - before[name] for name in ("n_busy_slots_total", "n_decode_total"))
    tokens = sum(tokens for _, tokens in wanted)
    accepted = sum(reply.timings.draft_n_accepted or 0 for reply in replies.values())
    assert tokens == accepted + busy  # conservation: a prompt of one batch is one forward and gives a token
    assert forwards < busy if target == "hybrid" else forwards <= 0.7 * busy


def test_a_cancelled_request_leaves_its_slot_to_the_next(tmp_path: Path) -> None:
    roomy = arm(engine={"slots": 2, "context": 2 * 4096})
    with load_engine("libllama").start(launch(tmp_path, roomy)) as session:
        assert session.facts.in_flight == session.facts.resolved["total_slots"] == 2
        assert session.facts.resolved["kv_unified"] is True
        alone = session.generate(prompt(), greedy(24))
        endless = [session.submit(prompt(), greedy(4000)) for _ in range(3)]
        assert session.collect(0.2) is None
        wanted = session.submit(prompt(), greedy(24))
        assert session.tokenize(TEXT), "questions that need no memory are answered at once"
        for ticket in endless:
            session.cancel(ticket)
        found = session.collect()
        assert found is not None
        assert found.ticket == wanted
        assert isinstance(found.result, Reply)
        assert found.result.token_ids == alone.token_ids
        assert found.started_at is not None
        assert session.collect() is None
        assert session.candidates(prompt(), alone.token_ids[:1], greedy(1), 1)[0].token == alone.token_ids[1]
