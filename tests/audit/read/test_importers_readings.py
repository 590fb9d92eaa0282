"""What people write into the cells and headings of tables besides bare numbers, and what must not be made of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from said import codes
from specmeter.audit.claim import Claim, claim_of
from specmeter.audit.judge import rule_claim
from specmeter.audit.read import benchmarks, llama_server_log, serving_log
from specmeter.audit.read.options import TableOptions
from specmeter.audit.read.table import read_table


def claims(text: str, options: TableOptions | None = None) -> list[Claim]:
    return list(read_table(text, Path("page"), options or TableOptions()))


def markdown(*lines: str) -> str:
    cells = lines[0].count("|")
    return "\n".join(f"| {line} |" for line in (lines[0], "---" + "|---" * cells, *lines[1:]))


@pytest.mark.parametrize(
    "cell",
    ["180 (60%)", "180 (60.0 %)", "180 (0.60)", "180, 60%", "180/300 (60%)", "60% (180/300)"],
)
def test_a_count_with_its_share_is_both(cell: str) -> None:
    claim = claims(markdown("Prompt | Drafted | Accepted | Speedup", f"a | 300 | {cell} | 2.5x"))[0]
    assert (claim.accepted, claim.drafted, claim.acceptance) == (180, 300, pytest.approx(0.6))
    assert claim.notes == ()


def test_a_count_with_its_share_among_shares() -> None:
    table = markdown("Prompt | Drafted | n_accept | tok/s", "a | 300 | 180 (60%) | 61", "b | 300 | 60.0% | 62")
    assert [(claim.accepted, claim.acceptance) for claim in claims(table)] == [(180, 0.6), (None, 0.6)]


@pytest.mark.parametrize("text", ["dataset,{},n_max,tps\nrandom,yes,4,61\nsharegpt,no,4,88\n"])
def test_prompts_may_be_synthetic_without_dice(text: str) -> None:
    assert [claim.synthetic for claim in claims(text.format("synthetic"))] == [False, False]
    assert [claim.synthetic for claim in claims(text.format("synthetic_acceptance"))] == [True, False]
    table = markdown("Method | MT-bench | Synthetic", "EAGLE | 2.19x | 9.99x")
    assert [claim.speedup for claim in claims(table)] == [2.19, 9.99]


@pytest.mark.parametrize("heading", ["users", "num_sequences", "concurrent requests"])
def test_users_and_sequences_are_served_at_once(heading: str) -> None:
    assert [claim.concurrency for claim in claims(f"{heading},gamma,speedup\n1,4,2.31\n8,4,1.94\n")] == [1, 8]


@pytest.mark.parametrize("heading", ["gpu_count", "num_gpus", "TP", "tensor_parallel_size"])
def test_a_model_may_be_spread_over_devices(heading: str) -> None:
    found = claims(f"gpu,{heading},model,size_gb,tok_s\nRTX 3090,4,llama 70B Q4,42.5,38.9\nRTX 3090,1,8B,8,90\n")
    assert [claim.device for claim in found] == [", ".join(["RTX 3090"] * 4), "RTX 3090"]


def test_a_baseline_over_as_many_devices() -> None:
    table = "gpu,tp,method,tok_s\nH100,4,none,50\nH100,8,none,80\nH100,4,eagle3,100\nH100,8,eagle3,170\n"
    assert [claim.baseline_rate for claim in claims(table)[2:]] == [50, 80]


def test_llama_bench_counts_devices_of_one_name(tmp_path: Path) -> None:
    lines = [f"  Device {number}: NVIDIA GeForce RTX 3090, compute capability 8.6, VMM: yes" for number in (0, 1, 0, 1)]
    table = markdown(
        "model | size | params | backend | ngl | test | t/s",
        "llama 70B | 39.59 GiB | 70.55 B | CUDA | 99 | tg128 | 19.90 ± 0.05",
    )
    path = tmp_path / "bench.md"
    path.write_text("\n".join((*lines, table)), encoding="utf-8")
    assert [claim.device for claim in benchmarks.read_llama_bench(path)] == [
        "NVIDIA GeForce RTX 3090, NVIDIA GeForce RTX 3090"
    ]


def test_an_acceptance_in_tokens_is_not_percent() -> None:
    rows = ("3 | 3.16 | 2.82x", "5 | 4.02 | 3.19x")
    for heading in ("Acceptance (tokens)", "Avg. accepted", "Acceptance"):
        found = claims(markdown(f"γ | {heading} | Speedup", *rows))
        assert [claim.tau in {3.16, 4.16, 4.02, 5.02} for claim in found] == [True, True]
    said = claims(markdown("γ | Acceptance | Speedup", *rows), TableOptions({"Acceptance": "acceptance_percent"}))
    assert [claim.acceptance for claim in said] == [pytest.approx(0.0316), pytest.approx(0.0402)]


def test_with_drafts_a_chunk_of_a_stream_is_a_step() -> None:
    both = claims(
        markdown("Config | k | TPOT (ms) | ITL (ms)", "baseline | 0 | 25.0 | 25.0", "EAGLE-3 | 3 | 10.0 | 27.4")
    )
    assert [claim.decode_rate for claim in both] == [40, 100]


def test_times_of_whole_runs() -> None:
    found = claims(markdown("Prompt | Tokens | Time (s) | tok/s", "a | 256 | 4.00 | 64.0"))[0]
    assert found.wall_ms == 4000
    pair = claims(markdown("Workload | Baseline time | SD time | Speedup", "a | 10.3s | 5.8s | 1.78x"))[0]
    assert (pair.baseline_wall_ms, pair.wall_ms) == (pytest.approx(10300), pytest.approx(5800))
    dates = claims(markdown("Time | tok/s", "2026-01-01 10:00 | 64.0"))[0]
    assert (dates.wall_ms, dates.decode_rate) == (None, 64)


def test_data_sets_have_baselines_of_their_own() -> None:
    head = "<tr><th rowspan=2>Model</th><th colspan=3>Code</th><th colspan=3>Chat</th></tr>"
    names = "<tr>" + "<th>Base</th><th>Spec</th><th>Speedup</th>" * 2 + "</tr>"
    row = "<tr><td>8B</td><td>40.1</td><td>92.6</td><td>2.31x</td><td>40.3</td><td>55.0</td><td>1.36x</td></tr>"
    code, chat = claims(f"<table>{head}{names}{row}</table>")
    assert (code.baseline_rate, code.decode_rate, code.speedup) == (40.1, 92.6, 2.31)
    assert (chat.baseline_rate, chat.decode_rate, chat.speedup) == (40.3, 55.0, 1.36)


def test_a_difference_of_rates_is_not_a_method() -> None:
    found = claims(markdown("Task | Baseline t/s | Spec t/s | Delta t/s", "chat | 41.1 | 45.1 | 4.0"))
    assert [(claim.baseline_rate, claim.decode_rate) for claim in found] == [(41.1, 45.1)]


@pytest.mark.parametrize(
    ("heading", "field", "value"),
    [
        ("原始速度", "baseline_rate", 4),
        ("無草稿 tok/s", "baseline_rate", 4),
        ("原生吞吐(tok/s)", "baseline_rate", 4),
        ("有草稿 tok/s", "decode_rate", 4),
        ("投机吞吐(tok/s)", "decode_rate", 4),
        ("投机步数", "gamma", 4),
        ("草稿token数", "gamma", 4),
        ("Tokens per sec.", "decode_rate", 4),
        ("Tokens drafted", "drafted", 4),
        ("Tokens accepted", "accepted", 4),
        ("median speedup", "speedup", 4),
        ("speculative-num-steps", "gamma", 4),
    ],
)
def test_headings_that_people_use(heading: str, field: str, value: float) -> None:
    claim = claims(markdown(f"{heading} | tau", f"{value} | 2.5"))[0]
    assert getattr(claim, field) == value


@pytest.mark.parametrize(
    ("length", "accepted", "positions", "law"),
    [
        ("2.50", "60.00", "0.700, 0.500, 0.300", None),
        ("3.20", "60.00", "0.700, 0.500, 0.300", "tau-of-positions"),
        ("2.50", "60.00", "0.300, 0.500, 0.700", "positions-fall"),
        ("2.50", "160.00", "0.700, 0.500, 0.300", "acceptance-of-counts"),
    ],
)
def test_a_line_of_vllm_agrees_with_itself(
    tmp_path: Path, length: str, accepted: str, positions: str, law: str | None
) -> None:
    path = tmp_path / "vllm.log"
    path.write_text(
        f"SpecDecoding metrics: Mean acceptance length: {length}, Accepted throughput: {accepted} tokens/s, Drafted "
        "throughput: 120.00 tokens/s, Accepted: 600 tokens, Drafted: 1200 tokens, Per-position acceptance rate: "
        f"{positions}, Avg Draft acceptance rate: 50.0%\n",
        encoding="utf-8",
    )
    claim = next(iter(serving_log.read_vllm_log(path)))
    assert (claim.tau, claim.positions[1]) == (float(length), 0.5)
    ruling = rule_claim(claim)
    assert (ruling.verdict == "impossible") is (law is not None)
    assert law is None or f"equation.{law}" in codes(ruling.contradictions)


def test_a_printed_acceptance_is_held_against_the_counts_of_its_request(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_text(
        "slot print_timing: id  0 | task 7 | \n"
        "prompt eval time =     193.04 ms /   200 tokens (    0.97 ms per token,  1036.05 tokens per second)\n"
        "       eval time =    3922.92 ms /   256 tokens (   15.32 ms per token,    65.26 tokens per second)\n"
        "      total time =    4115.96 ms /   456 tokens\n"
        "draft acceptance rate = 0.50944 (  142 accepted /   678 generated)\n",
        encoding="utf-8",
    )
    claim = next(iter(llama_server_log.read_llama_server(path)))
    assert claim.acceptance == 0.50944
    assert rule_claim(claim).verdict == "impossible"


@pytest.mark.parametrize("field", ["source", "row", "label"])
def test_a_claim_whose_own_name_is_bad_says_so(field: str) -> None:
    names: dict[str, object] = {"source": "page", "row": "line 1", "label": "a", field: ["\x1b[2J"]}
    claim = claim_of(**names, gamma=4)
    assert claim.problem is not None
    assert claim.problem.code == "unread.value"
    assert (claim.gamma, claim.problem.values["name"]) == (None, field)
    assert "\x1b" not in f"{claim.source}{claim.row}{claim.label}"
