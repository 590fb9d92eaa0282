"""Logs of SGLang's server: what its lines of `Decode batch` say, over its versions."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specmeter.audit.claim import Claim
from specmeter.audit.judge import rule_claim
from specmeter.audit.read import serving_log
from specmeter.audit.read.options import TableOptions
from specmeter.audit.reading import detect, read_claims, rule
from specmeter.messages import Message

ARGUMENTS = (
    "[2026-03-01 10:00:00] server_args=ServerArgs(model_path='meta/Llama-3.1-8B', tokenizer_path='meta/Llama-3.1-8B', "
    "speculative_algorithm='EAGLE3', speculative_num_steps=3, speculative_eagle_topk=1, "
    "speculative_num_draft_tokens=4)\n"
)
LINES = (
    "[2026-03-01 10:01:00 TP0] Decode batch, #running-req: 1, #token: 912, token usage: 0.01, accept len: 2.36, "
    "accept rate: 0.45, cuda graph: True, gen throughput (token/s): 240.29, #queue-req: 0\n"
    "[2026-03-01 10:01:04 TP0] Decode batch, #running-req: 4, #full token: 1, full token usage: 0.00, mamba num: 1, "
    "mamba usage: 0.1, accept len: 2.10, accept rate: 0.37, pre-allocated usage: 0.00, #retracted-req: 0, "
    "cuda graph: True, gen throughput (token/s): 700.00, #queue-req: 0, \n"
    "[2026-03-01 10:01:08 TP0] Decode batch, #running-req: 0, #token: 0, token usage: 0.00, accept len: 1.00, "
    "accept rate: 0.00, cuda graph: True, gen throughput (token/s): 0.31, #queue-req: 0\n"
)
OLD = (
    "[2025-02-27 04:46:39] Decode batch. #running-req: 8, #token: 62531, token usage: 0.12, "
    "gen throughput (token/s): 186.64, #queue-req: 0\n"
)


def claims(text: str, tmp_path: Path) -> list[Claim]:
    path = tmp_path / "server.log"
    path.write_text(text, encoding="utf-8")
    return list(serving_log.read_sglang_log(path))


def test_each_line_with_running_requests_is_a_claim(tmp_path: Path) -> None:
    one, four = claims(ARGUMENTS + LINES, tmp_path)
    assert (one.row, one.decode_rate, one.concurrency, one.tau) == ("line 2", 240.29, 1, 2.36)
    assert (four.row, four.decode_rate, four.concurrency, four.tau) == ("line 3", 700.0, 4, 2.1)
    assert (one.target, one.method, one.gamma, one.tree) == ("meta/Llama-3.1-8B", "draft-eagle3", 3, False)
    assert one.acceptance is None, "its rate is of one thing in one version and of another in the next"
    assert one.label == "1 running TP0"


def test_lines_of_2025_have_a_point_and_no_drafts(tmp_path: Path) -> None:
    (claim,) = claims(ARGUMENTS.replace("'EAGLE3'", "None") + OLD, tmp_path)
    assert (claim.decode_rate, claim.concurrency, claim.tau, claim.method) == (186.64, 8, None, "none")


def test_without_the_arguments_nothing_is_said_of_the_method(tmp_path: Path) -> None:
    (claim,) = claims(OLD, tmp_path)
    assert (claim.method, claim.gamma, claim.target) == (None, None, None)


def test_a_log_without_such_lines_is_a_problem(tmp_path: Path) -> None:
    (claim,) = claims(ARGUMENTS, tmp_path)
    assert claim.problem == Message("unread.sglang_log")


def test_the_format_is_found_by_its_first_lines(tmp_path: Path) -> None:
    path = tmp_path / "any.name"
    path.write_text(ARGUMENTS + LINES, encoding="utf-8")
    assert detect(path) == "sglang-log"
    assert not serving_log.sniff_vllm_log(ARGUMENTS + LINES)
    path.write_text(OLD, encoding="utf-8")
    assert detect(path) == "sglang-log"


def test_more_than_gamma_permits_is_ruled(tmp_path: Path) -> None:
    """With a baseline of one request, a speedup above tokens per step needs cheaper forwards."""
    path = tmp_path / "server.log"
    path.write_text(ARGUMENTS + LINES.splitlines(keepends=True)[0], encoding="utf-8")
    name, found = read_claims(path, None, TableOptions())
    (claim,) = found
    audit = rule([claim.model_copy(update={"baseline_rate": 60.0})], "server.log", name)
    assert (audit.rulings[0].verdict, audit.rulings[0].bound) == ("implausible", "speedup-above-tau")


def test_tokens_between_lines_of_one_request_are_its_steps(tmp_path: Path) -> None:
    """Forty steps per line: 82 tokens of the last line are 2.05 per step."""
    rows = ((108, 2.17, 0.39), (186, 1.95, 178.86), (258, 1.8, 165.41), (330, 1.8, 165.59), (412, 2.05, 188.68))
    text = "".join(
        f"[2025-10-22 10:27:57 TP0] Decode batch. #running-req: 1, #token: {tokens}, token usage: 0.00, accept len: "
        f"{length:.2f}, accept rate: 0.54, cuda graph: True, gen throughput (token/s): {rate}, #queue-req: 0, \n"
        for tokens, length, rate in rows
    )
    found = claims(text, tmp_path)
    assert [(it.predicted_n, it.steps) for it in found] == [(None, None), (78, 40), (72, 40), (72, 40), (82, 40)]
    assert not any(it.contradictions for it in map(rule_claim, found))
    raised = rule_claim(claims(text.replace("2.05", "3.05"), tmp_path)[-1])
    assert "tau = 3.05, but 82 tokens / 40 steps = 2.05" in map(str, raised.contradictions)
    other = claims(text.replace("#token: 412", "#token: 372"), tmp_path)[-1]
    assert other.steps is None, "a new request began"


PARTS = [ARGUMENTS, LINES, OLD, LINES[:90], "Decode batch, #running-req: 9" * 40]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(PARTS) | st.text(max_size=80), max_size=6))
def test_whatever_comes_is_read(tmp_path_factory: pytest.TempPathFactory, parts: list[str]) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "x.log"
    path.write_bytes("".join(parts).encode("utf-8", "surrogatepass"))
    assert list(serving_log.read_sglang_log(path))
    serving_log.sniff_sglang_log("".join(parts))
