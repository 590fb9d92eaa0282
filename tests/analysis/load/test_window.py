"""The steady window: a steady load is counted exactly, whatever ramp and drain do, and requests count by their part."""

from __future__ import annotations

import numpy as np
import pytest
from cells import BEGAN, Sent, cell_of, closed, measured, steady
from hypothesis import given
from hypothesis import strategies as st

from specmeter.analysis.load.summary import cell_figures
from specmeter.analysis.load.window import CellTimes, Window, decoding_spans, inside, steady_window, within
from specmeter.record import Filler, Load, Slo

clients = st.integers(1, 6)
pace = st.floats(0.5, 50)


@given(clients, st.integers(2, 4), st.integers(2, 30), pace, st.floats(0, 1))
def test_a_steady_stream_is_counted_exactly(count: int, rounds: int, tokens: int, ms: float, late: float) -> None:
    """Prompts that take one token's time: every client gets a token every `ms`, whenever it began."""
    sent = steady(count, rounds, tokens=tokens, prompt_ms=ms, token_ms=ms, apart_ms=late * ms * tokens / count)
    found = measured(sent, closed(count, rounds)).figures
    assert found.no_window is None
    # Between two events of one client the tokens of another are at most one off.
    assert found.tokens / found.window_ms * ms == pytest.approx(count, abs=(count - 1) * ms / found.window_ms + 1e-6)
    assert found.request_ms / found.window_ms == pytest.approx(count, abs=1e-6)


@given(clients, st.integers(2, 5), st.integers(2, 20), pace, st.floats(1, 500))
def test_one_rhythm_is_exact(count: int, rounds: int, tokens: int, ms: float, prompt_ms: float) -> None:
    """Clients in step: each round takes the same time, and the window holds all rounds but the first, prompts and
    answers."""
    found = measured(
        steady(count, rounds, tokens=tokens, prompt_ms=prompt_ms, token_ms=ms), closed(count, rounds)
    ).figures
    whole = rounds - 1 if count > 1 else rounds
    assert found.window_ms == pytest.approx(whole * (prompt_ms + (tokens - 1) * ms), rel=1e-6)
    assert found.tokens == count * whole * tokens
    assert found.full_tokens == count * whole * (tokens - 1)
    assert found.full_ms == pytest.approx(whole * (tokens - 1) * ms, rel=1e-6)
    assert found.decode_ms / found.decode_tokens == pytest.approx(ms, rel=1e-6)
    assert found.ttft is not None or rounds == 2  # those of a second round are due when the window begins
    assert found.tpot is not None
    assert found.tpot.p50_ms == pytest.approx(ms, rel=1e-6)


@given(clients, st.integers(2, 6), st.integers(2, 20), pace, st.floats(1, 500))
def test_prompts_count_whatever_the_number_of_rounds(
    count: int, rounds: int, tokens: int, ms: float, prompt_ms: float
) -> None:
    """An engine that reads one prompt after the other while all else waits: rounds change nothing in the rate."""
    sent = waiting(count, rounds, tokens=tokens, prompt_ms=prompt_ms, token_ms=ms)
    found = measured(sent, closed(count, rounds)).figures
    period = count * prompt_ms + (tokens - 1) * ms
    assert found.tokens / found.window_ms == pytest.approx(count * tokens / period, rel=1e-6)


def waiting(count: int, rounds: int, *, tokens: int, prompt_ms: float, token_ms: float) -> list[Sent]:
    """All clients in step, whose prompts are read in turn before any of them decodes on."""
    sent: list[Sent] = []
    wave = count * prompt_ms + (tokens - 1) * token_ms
    for client in range(count):
        for number in range(rounds):
            first = (client + 1) * prompt_ms
            arrivals = [first, *(count * prompt_ms + n * token_ms for n in range(1, tokens))]
            at = BEGAN + number * wave / 1000
            sent.append(Sent(client, at, at, 0.0, 0.0, wave, arrivals))
    return sent


def test_ramp_and_drain_do_not_move_it() -> None:
    """A client that begins late and one that works on alone lie outside."""
    sent = [*steady(1, 4), *(it._replace(client=1) for it in steady(1, 3))]
    alone = measured(sent, closed(2, 3)).figures
    assert alone.window_ms == pytest.approx(2 * 140)
    later = [*sent, *(it._replace(client=0, due_at=it.due_at + 1, started_at=it.started_at + 1) for it in steady(1, 1))]
    assert measured(later, closed(2, 3)).figures.window_ms == pytest.approx(alone.window_ms)
    assert measured(later, closed(2, 3)).figures.tokens == alone.tokens


def test_a_window_that_is_a_small_part_of_its_cell_is_none() -> None:
    """64 clients share 4 slots in two rounds, and the first client is done soon after the first request: 4 of 128."""
    sent = steady(8, 2)
    long = [*sent, *(it._replace(client=0, due_at=it.due_at + 9, started_at=it.started_at + 9) for it in steady(1, 1))]
    assert measured(sent, closed(8)).figures.no_window is None
    assert measured(long, closed(8)).figures.no_window == "too short"


def test_a_request_across_an_edge_counts_by_its_part() -> None:
    times = CellTimes.of(BEGAN, steady(1, 1, tokens=10, prompt_ms=10, token_ms=10))
    assert inside(times, Window(30.0, 70.0)).tolist() == [4]
    sent = [
        *steady(1, 2, tokens=10, prompt_ms=10, token_ms=10),
        *(it._replace(client=1) for it in steady(1, 1, tokens=40, prompt_ms=10, token_ms=10)),
    ]
    found = measured(sent, closed(2), Slo(ttft_ms=1000)).figures
    assert found.tokens == 10 + 10  # from 100 to 200 ms
    assert found.requests_done == pytest.approx(1 + 10 / 40)
    assert found.requests_good == pytest.approx(found.requests_done)


def test_who_is_late_does_not_keep_to_the_slo() -> None:
    sent = steady(1, 3, tokens=5, prompt_ms=50, token_ms=10)
    found = measured(sent, closed(1, 3), Slo(ttft_ms=49.0)).figures
    assert found.requests_good == 0.0
    assert measured(sent, closed(1, 3), Slo(ttft_ms=50.1, tpot_ms=10.1)).figures.requests_good == pytest.approx(
        found.requests_done
    )
    waited = [it._replace(due_at=it.due_at - 1) for it in sent]
    assert measured(waited, closed(1, 3), Slo(ttft_ms=500)).figures.requests_good == 0.0


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (steady(1, 2), "few clients"),
        ([it._replace(arrival_ms=()) for it in steady(2, 2)], "no arrival times"),
        (steady(2, 1, apart_ms=500), "too short"),
    ],
)
def test_without_a_window_it_says_why(sent: list[Sent], why: str) -> None:
    found = measured(sent, closed(2)).figures
    assert (found.no_window, found.tokens, found.counts) == (why, 0, False)


def test_half_a_cell_is_no_measurement() -> None:
    assert measured(steady(2, 2), closed(2), complete=False).figures.no_window == "broken off"


def test_a_request_that_failed_yields_nothing_and_takes_time() -> None:
    sent = steady(2, 3)
    failed = [it._replace(wall_ms=None, arrival_ms=()) if place == 1 else it for place, it in enumerate(sent)]
    found, whole = measured(failed, closed(2, 3)).figures, measured(sent, closed(2, 3)).figures
    assert (found.requests, found.failed) == (5, 1)
    assert found.window_ms == whole.window_ms
    assert found.tokens == whole.tokens - 10
    assert found.request_ms == pytest.approx(whole.request_ms)
    assert found.full_ms is not None
    assert whole.full_ms is not None
    assert found.full_ms < whole.full_ms


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(0.1, 50)), min_size=1, max_size=12), st.integers(1, 4))
def test_everybody_decodes_where_a_count_by_hand_says_so(spans: list[tuple[float, float]], count: int) -> None:
    sent = [
        Sent(place, BEGAN, BEGAN, 0.0, None, start + length, (start, start + length))
        for place, (start, length) in enumerate(spans)
    ]
    times = CellTimes.of(BEGAN, sent)
    found = decoding_spans(times, Window(10.0, 90.0), count)
    for at in np.linspace(10.05, 89.95, 40):
        busy = int(((times.first < at) & (at <= times.last)).sum())
        edge = np.abs(np.concatenate([times.first, times.last]) - at).min() < 1e-3
        assert edge or (busy >= count) == bool(((found[:, 0] < at) & (at <= found[:, 1])).any())
    assert within(np.sort(times.arrivals), found) <= len(times.arrivals)


@given(st.permutations(range(8)))
def test_the_order_of_the_records_does_not_matter(order: list[int]) -> None:
    sent = steady(4, 2, apart_ms=3)
    mixed = [sent[place] for place in order]
    assert measured(mixed, closed(4)).figures == measured(sent, closed(4)).figures


def test_an_open_loop_runs_from_the_first_end_to_the_last_arrival() -> None:
    sent = [
        Sent(None, BEGAN + at / 1000, BEGAN + at / 1000, 0.0, None, 300.0, [100.0, 200.0, 300.0])
        for at in (0, 200, 400, 1000)
    ]
    load = Load(rate=2, requests=4)
    times = CellTimes.of(BEGAN, sent)
    window = steady_window(times, load)
    assert isinstance(window, Window)
    assert tuple(window) == pytest.approx((300.0, 1000.0), abs=1e-3)
    found = cell_figures(cell_of(sent), times, load).figures
    assert (found.tokens, found.full_ms) == (5, None)
    assert found.request_ms == pytest.approx(200 + 300, abs=1e-3)


def test_many_requests_take_little_memory() -> None:
    """100,000 requests as columns, without an object for each."""
    sent = (Sent(n % 8, BEGAN + n / 100, BEGAN + n / 100, 0.0, 0.0, 79.0, (10.0, 40.0, 79.0)) for n in range(100_000))
    cell = cell_of(steady(8, 2), ended_at=BEGAN + 1000.1)
    found = cell_figures(cell, CellTimes.of(BEGAN, sent), Load(clients=8, requests=100_000)).figures
    assert found.requests == 100_000
    assert found.tokens == pytest.approx(300_000, abs=50)


def test_where_fillers_kept_clients_busy_every_request_counts_as_a_whole() -> None:
    """Two clients of 10 tokens in 100 ms, one of them half a request late, with fillers before and behind."""
    sent = [
        *(Sent(0, at / 1000, at / 1000, 0.0, 0.0, 100.0, [10.0 * n for n in range(1, 11)]) for at in (0, 100)),
        *(Sent(1, at / 1000, at / 1000, 0.0, 0.0, 100.0, [10.0 * n for n in range(1, 11)]) for at in (50, 150)),
    ]
    told = {
        "prompt_n": 1,
        "predicted_n": 5,
        "predicted_ms": 40.0,
        "draft_n": 0,
        "draft_n_accepted": 0,
        "restores": 0,
        "stop_reason": "limit",
    }
    lead = Filler(client=1, started_at=0.0, wall_ms=50.0, **told)
    behind = Filler(client=0, started_at=0.2, wall_ms=100.0, **told)
    found = measured(sent, closed(2), fillers=(lead, behind), ended_at=0.3).figures
    assert found.tokens == 40
    assert found.window_ms == pytest.approx(200)
    assert found.request_ms / found.window_ms == pytest.approx(2)
    assert found.ttft is not None
    # A client that rested instead is seen.
    idle = measured(sent, closed(2), fillers=(lead,), ended_at=0.3).figures
    assert idle.request_ms / idle.window_ms == pytest.approx(1.8)


def test_latencies_are_those_of_vllm_and_aiperf() -> None:
    """Two requests by one client, the second sent 5 ms late; the first brings two tokens in one event."""
    sent = [
        Sent(0, 0.0, 0.0, 0.0, 0.0, 61.0, [20.0, 40.0, 40.0, 60.0]),
        Sent(0, 0.061, 0.066, 5.0, 0.0, 31.0, [10.0, 30.0]),
    ]
    found = measured(sent, closed(1), ended_at=0.097)
    assert found.ttft_ms == pytest.approx([20, 15])
    assert found.ttft_sent_ms == pytest.approx([20, 10])
    assert found.tpot_ms == pytest.approx([40 / 3, 20])
    assert found.itl_ms == pytest.approx([20, 20, 20])
    assert found.e2el_ms == pytest.approx([60, 30])
    assert found.figures.e2el is not None
    assert found.figures.e2el.p50_ms == pytest.approx(45)


def test_nothing_lies_between_tokens_where_none_arrived() -> None:
    assert not len(measured([Sent(0, 0.0, 0.0, 0.0, 0.0, None, [])], closed(1)).itl_ms)
