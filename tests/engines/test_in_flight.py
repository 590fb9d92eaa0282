"""Several requests in flight: they run at once, end apart, and are given up, each by itself."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from llama_fixtures import NATIVE, NO_NATIVE, TEXT, arm, greedy, launch, prompt

from specmeter.engines import EngineSession, Launch, load_engine
from specmeter.engines.mock.engine import MockEngine, MockSession
from specmeter.engines.mock.spec import Fault, MockSpec, mock_model
from specmeter.engines.session import Ticket, differences
from specmeter.errors import EngineProtocolError
from specmeter.record import Arm, Reply

OTHER = "Anna has 12 apples. Then "
TWO = {"slots": 2, "context": 2048}
DRAFTS = arm(methods=("draft-simple",), draft="d", gamma=4, engine=TWO)


def collected(session: EngineSession) -> dict[Ticket, Reply]:
    found: dict[Ticket, Reply] = {}
    while ended := session.collect():
        assert isinstance(ended.result, Reply), ended.result
        assert ended.ticket not in found
        found[ended.ticket] = ended.result
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", ["embedded", pytest.param("native", marks=pytest.mark.skipif(NATIVE is None, reason=NO_NATIVE))]
)
def test_two_replies_with_drafts_overlap_and_say_what_each_says_alone(kind: str, tmp_path: Path) -> None:
    with load_engine(kind).start(launch(tmp_path, DRAFTS, draft="draft-small")) as session:
        assert session.facts.in_flight == 2
        alone = [session.generate(prompt(text), greedy(200)) for text in (TEXT, OTHER)]
        started = time.perf_counter()
        tickets = [session.submit(prompt(text), greedy(200)) for text in (TEXT, OTHER)]
        ended: dict[Ticket, tuple[float, Reply]] = {}
        while it := session.collect():
            assert isinstance(it.result, Reply)
            ended[it.ticket] = ((time.perf_counter() - started) * 1e3, it.result)
        again = session.generate(prompt(), greedy(200))
    (first_at, first), (second_at, second) = (ended[ticket] for ticket in tickets)
    assert [first.token_ids, second.token_ids] == [it.token_ids for it in alone]
    # Each had its first token before the other one had its last.
    assert first_at - first.wall_ms + first.arrival_ms[0] < second_at
    assert second_at - second.wall_ms + second.arrival_ms[0] < first_at
    for reply in (first, second):
        # Counters and statistics are the server's as a whole; steps are each request's own.
        assert (reply.counters, reply.drafting) == ({}, ())
        assert sum(step.drafted for step in reply.steps) == (reply.timings.draft_n or 0) > 0
        assert sum(step.accepted for step in reply.steps) == reply.timings.draft_n_accepted
    assert again.counters["spec_decode_num_draft_tokens_total"] == again.timings.draft_n


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.parametrize("busy_s", [0.0, 0.5])
@pytest.mark.parametrize("stream", [True, False])
def test_what_is_cancelled_is_not_collected_and_its_slot_is_free(tmp_path: Path, stream: bool, busy_s: float) -> None:
    roomy = arm(engine={"context": 65_536, "stream_tokens": stream})
    with load_engine("embedded").start(launch(tmp_path, roomy)) as session:
        before = session.generate(prompt(), greedy(24))
        endless = session.submit(prompt(), greedy(60_000))
        assert session.collect(busy_s) is None
        queued = session.submit(prompt(), greedy(60_000))
        wanted = session.submit(prompt(), greedy(24))
        session.cancel(endless)
        session.cancel(queued)
        session.cancel(endless)
        replies = collected(session)
        assert list(replies) == [wanted]
        assert replies[wanted].token_ids == before.token_ids
        # What the server still computed for the cancelled one is not counted as the next one's.
        for reply in (replies[wanted], *(session.generate(prompt(), greedy(24)) for _ in range(2))):
            assert reply.counters.get("n_decode_total", 24) == before.counters["n_decode_total"]
        assert reply.counters


def test_the_instrumented_engine_takes_one_at_a_time(tmp_path: Path) -> None:
    with load_engine("libllama").start(launch(tmp_path, arm(engine={"context": 65_536}))) as session:
        assert session.facts.in_flight == 1
        alone = [session.generate(prompt(text), greedy(24)).token_ids for text in (TEXT, OTHER)]
        tickets = [session.submit(prompt(text), greedy(24)) for text in (TEXT, OTHER)]
        assert session.tokenize(TEXT), "other questions find their turn"
        replies = collected(session)
        assert [replies[ticket].token_ids for ticket in tickets] == alone
        assert list(replies) == tickets
        endless = session.submit(prompt(), greedy(60_000))
        assert session.collect(0.2) is None
        session.cancel(endless)
        wanted = session.submit(prompt(), greedy(24))
        assert collected(session)[wanted].token_ids == alone[0]


# --- in virtual time -------------------------------------------------------------------------------------------------

MOCK = Arm(id="dense/none", target="dense", role="baseline").model_copy(update={"engine": arm(engine=TWO).engine})


MOCK_DRAFTS = MOCK.model_copy(update={"methods": ("draft-simple",), "draft": "small", "gamma": 4})


def with_slots(this: Arm, slots: int) -> Arm:
    return this.model_copy(update={"engine": this.engine.model_copy(update={"slots": slots, "context": 2048 * slots})})


def mock(folder: Path, arm: Arm = MOCK, target: str = "dense", **fault: object) -> tuple[MockEngine, MockSession]:
    faults = (Fault.model_validate(fault),) if fault else ()
    engine = MockEngine(MockSpec(noise=0, request_overhead_ms=0, faults=faults))
    model = mock_model(target, f"mock:{target}", engine.spec)
    draft = mock_model("small", "mock:small", engine.spec) if arm.draft else None
    return engine, engine.start(Launch(arm, model, draft, log_path=folder / "logs" / "mock.log"))


def test_requests_of_the_mock_share_its_rounds(tmp_path: Path) -> None:
    engine, session = mock(tmp_path)
    reading = engine.spec.target("mock:dense").prompt_token_ms * len(session.tokenize(prompt().text))
    started = engine.now_ms
    before = session.totals()
    tickets = [session.submit(prompt(), greedy(tokens)) for tokens in (30, 10, 5)]
    assert session.collect(0.001) is None
    assert engine.now_ms == started + 1
    ended = [(it, engine.now_ms - started) for it in iter(session.collect, None)]
    assert [it.ticket for it, _ in ended] == [tickets[1], tickets[2], tickets[0]]
    assert [it.slot for it, _ in ended] == [1, 1, 0]
    # Two prompts; rounds of two; a third prompt beside a step; rounds of two; the first one alone.
    together, alone = 33 + 2 * 4, 33 + 4
    second = (33 + 2 * reading) + 9 * together
    third = second + (alone + reading) + 4 * together
    first = third + (29 - 9 - 1 - 4) * alone
    assert [at for _, at in ended] == pytest.approx([second, third, first])
    assert ended[1][0].queued_ms == pytest.approx(second)
    assert all(isinstance(it.result, Reply) and it.result.counters == {} for it, _ in ended)
    grown = differences(before, session.totals())
    assert grown["n_busy_slots_total"] == 30 + 10 + 5
    assert grown["n_decode_total"] == 30


def test_the_mock_counts_under_load_what_its_requests_say(tmp_path: Path) -> None:
    _, session = mock(tmp_path, arm=MOCK_DRAFTS)
    alone = session.generate(prompt(), greedy(60))
    before = session.totals()
    for _ in range(5):
        session.submit(prompt(), greedy(60))
    replies = [it.result for it in iter(session.collect, None)]
    grown = differences(before, session.totals())
    assert all(isinstance(it, Reply) and it.token_ids == alone.token_ids for it in replies)
    drafted, accepted = (alone.counters[f"spec_decode_num_{it}_tokens_total"] for it in ("draft", "accepted"))
    assert grown["spec_decode_num_draft_tokens_total"] == 5 * drafted
    assert grown["n_busy_slots_total"] == 5 * 60 - 5 * accepted


def test_a_batch_of_the_mock_favours_speculation_on_experts_only(tmp_path: Path) -> None:
    """The more sequences, the less a dense target gains; a mixture that loses at one gains at eight."""

    def gain(target: str, clients: int) -> float:
        times: list[float] = []
        for this in (MOCK, MOCK_DRAFTS):
            engine, session = mock(tmp_path, arm=with_slots(this, clients), target=target)
            started = engine.now_ms
            for _ in range(clients):
                session.submit(prompt(), greedy(200))
            assert len(list(iter(session.collect, None))) == clients
            times.append(engine.now_ms - started)
        return times[0] / times[1]

    assert gain("dense", 1) > 1.5 > 1 > gain("dense", 32)
    assert gain("moe", 1) < 1 < gain("moe", 8)


def test_garbage_and_ctrl_c_meet_one_request(tmp_path: Path) -> None:
    _, session = mock(tmp_path, kind="garbage", call=0)
    session.submit(prompt(), greedy(20))
    session.submit(prompt(), greedy(20))
    results = [it.result for it in iter(session.collect, None)]
    assert isinstance(results[0], EngineProtocolError)
    assert isinstance(results[1], Reply)
    _, session = mock(tmp_path, kind="interrupt")
    session.submit(prompt(), greedy(20))
    with pytest.raises(KeyboardInterrupt):
        session.collect()
