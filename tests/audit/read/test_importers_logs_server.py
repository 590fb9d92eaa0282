# ruff: noqa: E501  (log lines are as long as they are)
"""Logs of llama-server, generation by generation."""

from __future__ import annotations

from pathlib import Path

import pytest

from said import codes
from specmeter.audit.claim import Claim
from specmeter.audit.judge import rule_claim
from specmeter.audit.read import llama_server_log, llama_speculative
from specmeter.audit.read.options import TableOptions
from specmeter.audit.reading import read_claims
from specmeter.messages import Message


def claims_of(text: str, tmp_path: Path) -> list[Claim]:
    path = tmp_path / "server.log"
    path.write_text(text, encoding="utf-8")
    return list(llama_server_log.read_llama_server(path))


def test_late_2026_with_traced_steps(tmp_path: Path) -> None:
    text = """\
0.00.005.121 I llama_model_loader: loaded meta data with 27 key-value pairs and 79 tensors from /m/big.gguf (version GGUF V3)
0.00.005.200 I print_info: n_expert              = 32
0.00.006.000 I llama_model_loader: loaded meta data with 27 key-value pairs and 79 tensors from /m/small.gguf (version GGUF V3)
0.00.028.396 I spec common_specu: adding speculative implementation 'draft-simple'
0.00.028.409 I spec common_specu: - n_max=4, n_min=0, p_min=0.500000
0.00.050.239 I srv          init: listening on http://127.0.0.1:46921
0.00.077.782 I slot launch_slot_: id  0 | task 2 | processing task, is_child = 0
0.00.100.073 I slot   operator(): id  0 | task 2 | accepted  0/ 4 draft tokens (restore checkpoint)
0.00.101.999 I slot   operator(): id  0 | task 2 | accepted  1/ 1 draft tokens
0.00.140.981 I slot   operator(): id  0 | task 2 | accepted  4/ 4 draft tokens
0.00.205.607 I slot print_timing: id  0 | task 2 | prompt eval time =      15.61 ms /    34 tokens (    0.46 ms per token,  2178.09 tokens per second)
0.00.205.611 I slot print_timing: id  0 | task 2 |        eval time =     112.19 ms /    48 tokens (    2.39 ms per token,   418.93 tokens per second)
0.00.205.611 I slot print_timing: id  0 | task 2 |       total time =     127.80 ms /    82 tokens
0.00.205.612 I slot print_timing: id  0 | task 2 |    graphs reused =          4
0.00.205.616 I slot print_timing: id  0 | task 2 | draft acceptance = 0.50000 (    4 accepted /     8 generated), mean len =  3.00
0.00.205.647 I slot      release: id  0 | task 2 | stop processing: n_tokens = 81, truncated = 0
0.00.208.841 I slot launch_slot_: id  0 | task 38 | processing task, is_child = 0
0.00.222.801 I slot print_timing: id  0 | task 38 | prompt eval time =      13.92 ms /    34 tokens (    0.41 ms per token,  2442.18 tokens per second)
0.00.222.815 I slot print_timing: id  0 | task 38 |        eval time =       0.00 ms /     1 tokens (    0.00 ms per token,     0.00 tokens per second)
0.00.222.817 I slot print_timing: id  0 | task 38 |       total time =      13.92 ms /    35 tokens
0.00.222.860 I slot      release: id  0 | task 38 | stop processing: n_tokens = 34, truncated = 0
"""
    assert llama_server_log.sniff_llama_server(text)
    assert not llama_speculative.sniff_llama_speculative(text)
    first, second = claims_of(text, tmp_path)
    assert first.row == "request 1, slot 0, task 2"
    assert (first.predicted_n, first.predicted_ms, first.prompt_n, first.prompt_ms) == (48, 112.19, 34, 15.61)
    assert (first.decode_rate, first.window) == (418.93, "all but the first")
    assert first.decode_rate == pytest.approx(1000 * (48 - 1) / 112.19, abs=0.02)
    assert (first.accepted, first.drafted, first.acceptance, first.gamma) == (4, 8, 0.5, 4)
    assert (first.steps, first.restores, first.tau) == (3, 1, None)
    assert (first.method, first.label, first.experts) == ("draft-simple", "big + small", 32)
    assert "p_min 0.500000, n_min 0" in first.notes
    assert (second.predicted_n, second.predicted_ms, second.decode_rate) == (1, None, None)
    assert Message("read.nothing_drafted") in second.notes


def test_mid_2026_with_a_mean_length_and_statistics(tmp_path: Path) -> None:
    text = """\
0.06.895.980 I slot print_timing: id  1 | task 0 | prompt eval time =     300.00 ms /    20 tokens (   15.00 ms per token,    66.67 tokens per second)
0.06.895.998 I slot print_timing: id  1 | task 0 |        eval time =    2300.00 ms /   256 tokens (    8.98 ms per token,   111.30 tokens per second)
0.06.895.999 I slot print_timing: id  1 | task 0 |       total time =    2600.00 ms /   276 tokens
0.06.896.015 I slot print_timing: id  1 | task 0 | draft acceptance = 0.64479 (  167 accepted /   259 generated), mean acceptance length =  2.92, acceptance rate per position = (0.805, 0.632, 0.483)
0.06.896.057 I statistics     draft-eagle3: #calls(b,g,a) =    1     87     87, #gen drafts =     87, #acc drafts =    70, #gen tokens =    259, #acc tokens =   167, #mean acc len = 2.92
0.06.896.125 I slot      release: id  1 | task 0 | stop processing: n_tokens = 275, truncated = 0
0.09.895.980 I slot print_timing: id  1 | task 90 | prompt eval time =     300.00 ms /    20 tokens (   15.00 ms per token,    66.67 tokens per second)
0.09.895.998 I slot print_timing: id  1 | task 90 |        eval time =    1000.00 ms /   100 tokens (   10.00 ms per token,   100.00 tokens per second)
0.09.896.015 I slot print_timing: id  1 | task 90 | draft acceptance = 0.50000 (   30 accepted /    60 generated), mean acceptance length =  2.50
0.09.896.057 I statistics     draft-eagle3: #calls(b,g,a) =    2    107    107, #gen drafts =    107, #acc drafts =    90
"""
    first, second = claims_of(text, tmp_path)
    assert (first.tau, first.steps, first.accepted, first.drafted) == (2.92, 87, 167, 259)
    assert pytest.approx(2.92, abs=0.005) == 1 + 167 / 87
    assert first.window == "all tokens"
    assert first.decode_rate == pytest.approx(256 / 2.3, abs=0.01)
    assert (second.steps, second.tau) == (107 - 87, 2.5)
    assert second.wall_ms is None


_EXCERPT = """\
0.09.895.980 I slot print_timing: id  1 | task 90 | prompt eval time =     300.00 ms /    20 tokens (   15.00 ms per token,    66.67 tokens per second)
0.09.895.998 I slot print_timing: id  1 | task 90 |        eval time =    1000.00 ms /   100 tokens (   10.00 ms per token,   100.00 tokens per second)
0.09.896.016 I slot print_timing: id  1 | task 90 | draft acceptance = 0.50000 (   30 accepted /    60 generated), mean acceptance length =  2.50
0.09.896.057 I statistics     draft-eagle3: #calls(b,g,a) =    {}    907    907, #gen drafts =    907, #acc drafts =    90
"""


@pytest.mark.parametrize(("first", "second", "steps"), [(8, 9, 0), (8, 8, None), (8, 11, None), (1, 2, 0)])
def test_statistics_of_a_running_server_count_from_where_they_stood(
    tmp_path: Path, first: int, second: int, steps: int | None
) -> None:
    """Read from 0 they would be 907 steps of one request, and its numbers impossible."""
    later = _EXCERPT.format(second).replace("907", "927").replace("task 90", "task 120").replace("0.09.8", "0.11.8")
    found = claims_of(_EXCERPT.format(first) + later, tmp_path)
    assert [claim.steps for claim in found] == [907 if first == 1 else None, None if steps is None else 20]
    assert rule_claim(found[0]).verdict == ("impossible" if first == 1 else "cannot tell")


def test_2025_with_times_on_lines_of_their_own(tmp_path: Path) -> None:
    text = """\
main: server is listening on http://127.0.0.1:8080 - starting the main loop
slot launch_slot_: id  0 | task 0 | processing task
slot      release: id  0 | task 0 | stop processing: n_past = 225, truncated = 0
slot print_timing: id  0 | task 0 |
prompt eval time =     393.25 ms /    13 tokens (   30.25 ms per token,    33.06 tokens per second)
       eval time =    9840.04 ms /   200 tokens (   49.20 ms per token,    20.33 tokens per second)
      total time =   10233.29 ms /   213 tokens
slot print_timing: id  0 | task 0 |
draft acceptance rate = 0.23026 (   70 accepted /   304 generated)
srv  update_slots: all slots are idle
"""
    (claim,) = claims_of(text, tmp_path)
    assert claim.row == "request 1, slot 0, task 0"
    assert (claim.predicted_n, claim.decode_rate, claim.window) == (200, 20.33, "all tokens")
    assert (claim.accepted, claim.drafted, claim.wall_ms) == (70, 304, 10233.29)
    assert claim.acceptance == pytest.approx(70 / 304)


def test_the_release_may_come_before_the_times_of_interleaved_slots(tmp_path: Path) -> None:
    text = """\
slot launch_slot_: id  0 | task 1 | processing task
slot launch_slot_: id  1 | task 2 | processing task
slot   operator(): id  0 | task 1 | accepted  2/ 3 draft tokens
slot   operator(): id  1 | task 2 | accepted  1/ 3 draft tokens
slot   operator(): id  0 | task 1 | accepted  3/ 3 draft tokens
slot print_timing: id  1 | task 2 |
prompt eval time =      10.00 ms /     5 tokens (    2.00 ms per token,   500.00 tokens per second)
       eval time =     100.00 ms /    20 tokens (    5.00 ms per token,   200.00 tokens per second)
      total time =     110.00 ms /    25 tokens
draft acceptance rate = 0.33333 (    1 accepted /     3 generated)
llama_decode: failed to decode, ret = -3
slot print_timing: id  0 | task 1 |
prompt eval time =      11.00 ms /     6 tokens (    2.00 ms per token,   500.00 tokens per second)
       eval time =     200.00 ms /    30 tokens (    6.67 ms per token,   150.00 tokens per second)
      total time =     211.00 ms /    36 tokens
draft acceptance rate = 0.83333 (    5 accepted /     6 generated)
slot launch_slot_: id  1 | task 9 | processing task
"""
    claims = {claim.row.partition(", ")[2]: claim for claim in claims_of(text, tmp_path)}
    one, two = claims["slot 0, task 1"], claims["slot 1, task 2"]
    assert (one.predicted_n, one.accepted, one.drafted, one.steps) == (30, 5, 6, 2)
    assert (two.predicted_n, two.accepted, two.drafted, two.steps) == (20, 1, 3, 1)
    assert one.failed_forwards is None
    assert Message("read.failed_beside_others", failed=1) in one.notes


def test_failures_of_a_single_request_are_its_own(tmp_path: Path) -> None:
    text = """\
llama_decode: failed to decode, ret = -1
slot launch_slot_: id  0 | task 1 | processing task
llama_decode: failed to decode, ret = -1
llama_decode: failed to decode, ret = -1
draft: llama_decode returned -1
slot print_timing: id  0 | task 1 |
       eval time =     100.00 ms /    20 tokens (    5.00 ms per token,   200.00 tokens per second)
slot      release: id  0 | task 1 | stop processing: n_past = 225, truncated = 0
"""
    (claim,) = claims_of(text, tmp_path)
    assert (claim.failed_forwards, claim.failed_draft_forwards) == (1, 1)


def test_2024_as_key_value_pairs(tmp_path: Path) -> None:
    text = """\
INFO [   launch_slot_with_task] slot is processing task | tid="139" timestamp=1723569619 id_slot=0 id_task=0
INFO [           print_timings] prompt eval time     =      15.62 ms /    12 tokens (    1.30 ms per token,   768.49 tokens per second) | tid="139" timestamp=1723569622 id_slot=0 id_task=0 t_prompt_processing=15.615 n_prompt_tokens_processed=12
INFO [           print_timings] generation eval time =    3194.22 ms /   783 runs   (    4.08 ms per token,   245.13 tokens per second) | tid="139" timestamp=1723569622 id_slot=0 id_task=0 t_token_generation=3194.224 n_decoded=783
INFO [           print_timings]           total time =    3209.84 ms | tid="139" timestamp=1723569622 id_slot=0 id_task=0 t_total=3209.839
INFO [            update_slots] slot released | tid="139" timestamp=1723569622 id_slot=0 id_task=0 n_ctx=8192 n_past=794
llama_print_timings:        eval time =    9999.00 ms /   607 runs   (    0.84 ms per token,  1190.00 tokens per second)
"""
    assert llama_server_log.sniff_llama_server(text)
    (claim,) = claims_of(text, tmp_path)
    assert claim.row == "request 1, slot 0, task 0"
    assert (claim.predicted_n, claim.predicted_ms, claim.prompt_n, claim.wall_ms) == (783, 3194.22, 12, 3209.84)
    assert claim.window == "all tokens"


def test_2024_as_json(tmp_path: Path) -> None:
    text = """\
{"tid":"149","timestamp":1717067386,"level":"INFO","function":"print_timings","line":321,"msg":"prompt eval time     =    2684.39 ms /    27 tokens (   99.42 ms per token,    10.06 tokens per second)","id_slot":0,"id_task":19,"t_token":99.4}
{"tid":"149","timestamp":1717067386,"level":"INFO","function":"print_timings","line":337,"msg":"generation eval time =    3559.27 ms /    25 runs   (  142.37 ms per token,     7.02 tokens per second)","id_slot":0,"id_task":19,"n_decoded":25}
{"tid":"149","timestamp":1717067386,"level":"INFO","function":"print_timings","line":347,"msg":"          total time =    6243.66 ms","id_slot":0,"id_task":19,"t_total":6243.6}
"""
    (claim,) = claims_of(text, tmp_path)
    assert claim.row == "request 1, slot 0, task 19"
    assert (claim.predicted_n, claim.decode_rate, claim.wall_ms) == (25, 7.02, 6243.66)


def test_2023_prints_forwards(tmp_path: Path) -> None:
    text = """\
llama server listening at http://127.0.0.1:8080
llama_print_timings:        load time =     348.01 ms
llama_print_timings: prompt eval time =      20.00 ms /    10 tokens (    2.00 ms per token,   500.00 tokens per second)
llama_print_timings:        eval time =    1000.00 ms /    99 runs   (   10.10 ms per token,    99.00 tokens per second)
llama_print_timings:       total time =    1030.00 ms
llama_print_timings: prompt eval time =      20.00 ms /    10 tokens (    2.00 ms per token,   500.00 tokens per second)
llama_print_timings:        eval time =     500.00 ms /    49 runs   (   10.20 ms per token,    98.00 tokens per second)
llama_print_timings:       total time =     530.00 ms
"""
    first, second = claims_of(text, tmp_path)
    assert (first.row, second.row) == ("request 1", "request 2")
    assert (first.predicted_n, first.window) == (100, "all but the first")
    assert (second.predicted_n, second.wall_ms) == (50, 530.0)


def test_a_command_line_that_is_echoed(tmp_path: Path) -> None:
    text = """\
$ ./build/bin/llama-server -m models/big.gguf -md 'models/small draft.gguf' --draft-max 16 --draft-p-min 0.4 --temp 0
slot print_timing: id  0 | task 0 |
       eval time =     100.00 ms /    20 tokens (    5.00 ms per token,   200.00 tokens per second)
draft acceptance rate = 0.50000 (    5 accepted /    10 generated)
"""
    (claim,) = claims_of(text, tmp_path)
    assert (claim.gamma, claim.method, claim.label) == (16, "draft-simple", "big + small draft")
    assert claim.p_min == 0.4
    assert "p_min 0.4, temperature 0" in claim.notes


def test_arguments_that_a_router_lists_one_by_one(tmp_path: Path) -> None:
    arguments = ["/opt/llama-server", "--draft-max", "64", "--spec-type", "ngram-mod", "--model", "/m/t.gguf"]
    text = "".join(f"srv          load:   {argument}\n" for argument in arguments)
    text += "[42027] slot print_timing: id  0 | task 0 |\n[42027]        eval time =     100.00 ms /    20 tokens\n"
    (claim,) = claims_of(text, tmp_path)
    assert (claim.gamma, claim.method, claim.label) == (64, "ngram-mod", "t")


def test_speculation_that_never_began_is_said(tmp_path: Path) -> None:
    text = """\
srv    load_model: failed to initialize speculative decoding context: draft model vocab type must match target model
slot print_timing: id  0 | task 0 |
       eval time =     100.00 ms /    20 tokens (    5.00 ms per token,   200.00 tokens per second)
"""
    (claim,) = claims_of(text, tmp_path)
    assert "read.speculation_refused" in codes(claim.notes)


def test_sums_over_the_life_of_a_process_are_no_requests(tmp_path: Path) -> None:
    text = "llama_perf_context_print:        eval time =     100.00 ms /    20 runs   (    5.00 ms per token)\n"
    (claim,) = claims_of(text, tmp_path)
    assert claim.problem == Message("unread.llama_server_log")


def test_many_slots_and_requests_are_read_in_bounded_state() -> None:
    lines: list[str] = []
    for task in range(2000):
        lines.append(f"slot launch_slot_: id {task} | task {task} | processing task")
        if task % 2:
            lines += [
                f"slot print_timing: id {task} | task {task} |",
                "       eval time =     100.00 ms /    20 tokens (    5.00 ms per token,   200.00 tokens per second)",
            ]
    log = llama_server_log._ServerLog("x")  # pyright: ignore[reportPrivateUsage]
    for line in lines:
        log.feed(line)
        assert len(log._open) <= 257  # pyright: ignore[reportPrivateUsage]


def test_numbers_of_a_request_that_cannot_be_read_are_not_given_to_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_text(
        "slot print_timing: id  0 | task 0 | \n"
        "prompt eval time =     100.00 ms /    10 tokens (    10.00 ms per token,   100.00 tokens per second)\n"
        "       eval time =    1000.00 ms /   100 tokens (   10.00 ms per token,   100.00 tokens per second)\n"
        "      total time =    1100.00 ms /   110 tokens\n"
        "draft acceptance rate = 0.5 (  50 accepted /    100 generated)\n"
        "slot print_timing: id  0 | task 1 | \n"
        "       eval time =    -5.00 ms /   100 tokens (   10.00 ms per token,   100.00 tokens per second)\n"
        "draft acceptance rate = 0.1 (  1 accepted /    10 generated)\n",
        encoding="utf-8",
    )
    one, other = llama_server_log.read_llama_server(path)
    assert (one.row, one.accepted, one.drafted) == ("request 1, slot 0, task 0", 50, 100)
    assert other.row == "request 2, slot 0, task 1"
    assert other.problem is not None
    assert other.problem.code == "unread.times"
    assert str(other.problem.values["line"]).startswith("eval time =    -5.00 ms")


@pytest.mark.parametrize(
    ("without", "with_"), [("Without MTP", "With MTP:"), ("## no draft", "## draft"), ("MTP off", "MTP on (n=2)")]
)
def test_headings_of_a_paste_say_which_request_is_the_baseline(tmp_path: Path, without: str, with_: str) -> None:
    plain = "prompt eval time = 100.00 ms / 20 tokens\n       eval time = 4000.00 ms / 100 tokens ( 40.00 ms per token, 25.00 tokens per second)\n"
    drafts = plain.replace("4000.00", "2500.00").replace("40.00", "25.00").replace("25.00 tokens", "40.00 tokens")
    text = f"{without}\n{plain}\n{with_}\n{drafts}draft acceptance rate = 0.70000 ( 70 accepted / 100 generated)\n"
    one, two = claims_of(text, tmp_path)
    assert (one.baseline_rate, two.decode_rate, two.baseline_rate, two.baseline_from) == (None, 40.0, 25.0, "request 1")
    one, two = claims_of(text.replace("/ 20 tokens", "/ 21 tokens", 1), tmp_path)
    assert two.baseline_rate is None  # another prompt


def test_several_requests_below_a_heading_are_pooled(tmp_path: Path) -> None:
    """200 tokens in 9 s without drafts: 22.2 t/s, whichever of both each is compared with."""

    def request(ms: float, prompt: int) -> str:
        rate, each = 1e5 / ms, ms / 100
        return (
            f"prompt eval time = 100.00 ms / {prompt} tokens\n"
            f"       eval time = {ms:.2f} ms / 100 tokens ( {each:.2f} ms per token, {rate:.2f} tokens per second)\n"
        )

    drafted = "draft acceptance rate = 0.70000 ( 70 accepted / 100 generated)\n"
    with_ = "".join(request(2500, prompt) + drafted for prompt in (20, 20))
    text = f"## Without MTP\n{request(4000, 20)}{request(5000, 20)}\n## With MTP\n{with_}"
    found = claims_of(text, tmp_path)
    assert [it.baseline_rate for it in found] == [
        None,
        None,
        pytest.approx(22.2, abs=0.05),
        pytest.approx(22.2, abs=0.05),
    ]
    assert found[2].baseline_from == "mean of 2 requests"
    assert found[2].rounding["baseline_rate"] == pytest.approx(2.78, abs=0.01)
    own = claims_of(text.replace("/ 20 tokens", "/ 30 tokens", 1), tmp_path)
    assert own[2].baseline_rate == 20  # that of its own prompt
    again = claims_of(f"{text}## Without MTP\n{request(8000, 20)}\n## With MTP\n{request(2500, 20)}{drafted}", tmp_path)
    assert again[-1].baseline_rate == 12.5


@pytest.mark.parametrize(
    ("each", "verdict"), [("31.25", ""), ("31.37", ""), ("21.25", "impossible"), ("31.31", "impossible")]
)
def test_a_printed_time_per_token_is_that_of_its_line(tmp_path: Path, each: str, verdict: str) -> None:
    """8000 ms over 256 tokens or the 255 after the first."""
    text = (
        "slot print_timing: id  0 | task 7 | \n"
        "prompt eval time =     193.04 ms /   200 tokens (    0.97 ms per token,  1036.05 tokens per second)\n"
        f"       eval time =    8000.00 ms /   256 tokens (   {each} ms per token,    32.00 tokens per second)\n"
    )
    ruling = rule_claim(claims_of(text, tmp_path)[0])
    assert (ruling.verdict == "impossible") is bool(verdict)
    assert ("= 31.25 ms per token" in str(ruling.arithmetic)) is bool(verdict)


def test_pasted_positions_add_up_to_the_mean_length(tmp_path: Path) -> None:
    text = (
        "draft acceptance = 0.74485 ( 3474 accepted /  4664 generated), mean len =  4.13\n"
        "acc per pos = (0.924, 0.813, 0.600, 0.441, 0.348)\n"
    )
    (claim,) = pasted(text, tmp_path)
    assert (claim.positions, claim.gamma, claim.tau) == ((0.924, 0.813, 0.6, 0.441, 0.348), 5, 4.13)
    assert rule_claim(claim).verdict == "cannot tell"
    (raised,) = pasted(text.replace("4.13", "5.13"), tmp_path)
    assert "tau = 5.13, but the positions add up to 4.126" in map(str, rule_claim(raised).contradictions)


STATISTICS = (
    "draft acceptance rate = 0.69811 (  111 accepted /   159 generated)\n"
    "7.02.255.331 I statistics draft-mtp: #calls(b,g,a) = 18 1308 1308, #gen drafts = 1308, #acc drafts = 1134, "
    "#gen tokens = 2602, #acc tokens = 2031, dur(b,g,a) = 0.016, 54825.426, 2.174 ms\n"
)


def test_statistics_tell_what_nothing_else_does(tmp_path: Path) -> None:
    assert [claim.drafted for claim in pasted(STATISTICS, tmp_path)] == [159]
    (alone,) = pasted(STATISTICS.partition("\n")[2], tmp_path)
    assert (alone.row, alone.drafted, alone.accepted) == ("statistics draft-mtp", 2602, 2031)
    _, raised = pasted(STATISTICS.replace("2031", "2631"), tmp_path)
    assert rule_claim(raised).verdict == "impossible"


def test_lines_of_progress_are_tokens_over_time(tmp_path: Path) -> None:
    text = (
        "1.52.831.673 I slot print_timing: id  0 | task 1229 | n_decoded =    474, tg =  39.01 t/s, tg_3s =  44.30 t/s\n"
        "1.55.861.948 I slot print_timing: id  0 | task 1229 | n_decoded =    597, tg =  39.33 t/s, tg_3s =  40.59 t/s\n"
    )
    first, last, between = pasted(text, tmp_path)
    assert (first.decode_rate, first.predicted_n) == (39.01, 474)
    assert (between.decode_rate, between.predicted_n) == (40.59, 123)
    assert between.predicted_ms == pytest.approx(3030.275)
    assert (last.row, last.decode_rate) == ("slot 0, task 1229, 597 tokens", 39.33)
    assert {rule_claim(claim).verdict for claim in (first, between, last)} == {"cannot tell"}
    raised = pasted(text.replace("39.33", "59.33").replace("40.59", "60.59"), tmp_path)
    assert [rule_claim(claim).verdict for claim in raised] == ["cannot tell", "impossible", "impossible"]
    other_run = pasted(text.replace("1.55.861.948", "2.55.861.948"), tmp_path)
    assert [claim.predicted_ms for claim in other_run] == [None, None], "too far apart to be of one"


def pasted(text: str, tmp_path: Path) -> list[Claim]:
    path = tmp_path / "server.log"
    path.write_text(text, encoding="utf-8")
    return list(read_claims(path, None, TableOptions())[1])
