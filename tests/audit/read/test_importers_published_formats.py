"""What engines and benchmarks write about speculation: vLLM, AIPerf, llama.cpp, ik_llama.cpp, Spec-Bench.

The shapes are those of the sources that each reader names.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specmeter.audit.claim import Claim
from specmeter.audit.judge import rule_claim
from specmeter.audit.reading import FORMATS, detect, importer
from specmeter.errors import UsageError
from specmeter.messages import Message


def read(text: str | bytes, tmp_path: Path, expected: str | None = None) -> list[Claim]:
    path = tmp_path / "results.bin"  # the content says what it is
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    name = detect(path)
    if expected is not None:
        assert name == expected
    return list(importer(name).read(path))


METRICS = (
    "(APIServer pid=1) INFO 06-21 07:54:43 [metrics.py:101] SpecDecoding metrics: Mean acceptance length: 2.83, "
    "Accepted throughput: 1.10 tokens/s, Drafted throughput: 1.20 tokens/s, Accepted: 11 tokens, Drafted: 12 tokens, "
    "Per-position acceptance rate: 1.000, 0.833, Avg Draft acceptance rate: 91.7%"
)
ENGINE = (
    "(EngineCore pid=2) INFO 06-21 07:50:01 [core.py:93] Initializing a V1 LLM engine (v0.19) with config: "
    "model='Qwen/Qwen3-8B', speculative_config=SpeculativeConfig(method='eagle3', model='x/Eagle3', "
    "num_spec_tokens=2), tokenizer='Qwen/Qwen3-8B'"
)
RATE = (
    "(APIServer pid=1) INFO 06-21 07:54:43 [loggers.py:271] Engine 000: Avg prompt throughput: 1.1 tokens/s, Avg "
    "generation throughput: 61.6 tokens/s, Running: 1 reqs, Waiting: 0 reqs, GPU KV cache usage: 0.0%"
)
BLOCK = """============ Serving Benchmark Result ============
Successful requests:                     20
Failed requests:                         0
Maximum request concurrency:             1
Benchmark duration (s):                  309.36
Total input tokens:                      81920
Total generated tokens:                  20480
Request throughput (req/s):              0.06
Output token throughput (tok/s):         66.20
Mean TPOT (ms):                          12.65
---------------Speculative Decoding---------------
Acceptance rate (%):                     73.47
Acceptance length:                       3.20
Drafts:                                  6393
Draft tokens:                            19179
Accepted tokens:                         14090
Per-position acceptance (%):
  Position 0:                            83.42
==================================================
"""


def test_vllm_s_lines_of_metrics(tmp_path: Path) -> None:
    idle = METRICS.replace("length: 2.83", "length: 1.00").replace("Accepted: 11", "Accepted: 0").replace("91.7", "0.0")
    log = "\n".join([ENGINE, RATE, METRICS, idle])
    first, second, whole = read(log, tmp_path, "vllm-log")
    assert (first.row, first.drafted, first.accepted, first.tau, first.gamma) == ("line 3", 12, 11, 2.83, 2)
    assert (first.method, first.draft, first.target) == ("eagle3", "x/Eagle3", "Qwen/Qwen3-8B")
    assert (first.decode_rate, first.concurrency) == (61.6, 1)
    assert first.acceptance == pytest.approx(0.917)
    assert (second.decode_rate, second.accepted) == (None, 0)
    assert (whole.row, whole.drafted, whole.accepted) == ("log", 24, 11)
    assert whole.tau == pytest.approx(1 + 11 / 12, abs=0.02)
    assert read(METRICS.replace("2.83", "2.83, Current speculative depth: 7"), tmp_path)[0].tau == 2.83


def test_the_block_of_a_serving_benchmark(tmp_path: Path) -> None:
    claim = read(f"Some text.\n\n```\n{BLOCK}```\n", tmp_path, "vllm-log")[0]
    assert (claim.row, claim.decode_rate, claim.runs, claim.concurrency) == ("line 4", 66.2, 20, 1)
    assert (claim.drafted, claim.accepted, claim.steps, claim.tau) == (19179, 14090, 6393, 3.2)
    assert claim.acceptance == pytest.approx(0.7347)
    assert claim.rounding["tau"] == pytest.approx(0.005)
    both = read(BLOCK + BLOCK, tmp_path)
    assert len(both) == 2
    broken = read(BLOCK.replace("Output token", "Other"), tmp_path)[0]
    assert broken.problem == Message("unread.no_throughput")


ACCEPTANCE: dict[str, Any] = {
    "mean_acceptance_length": 1.2325581395348837,
    "draft_acceptance_rate": 0.07751937984496124,
    "acceptance_histogram": [39, 1, 0, 3],
    "num_spec_steps": 43,
    "num_accepted_draft_tokens": 10,
    "num_draft_tokens": 129,
    "num_spec_tokens": 3,
}
RESPONSE: dict[str, Any] = {
    "id": "chatcmpl-1",
    "model": "Qwen/Qwen3-8B",
    "choices": [{"index": 0, "message": {"content": "x"}}],
    "usage": {"prompt_tokens": 42, "completion_tokens": 54},
    "metrics": {"generation_time_ms": 1240.5, "tokens_per_second": 40.2, "speculative_decoding": ACCEPTANCE},
}


def test_vllm_s_metrics_of_a_request(tmp_path: Path) -> None:
    for text in (json.dumps(RESPONSE), json.dumps([RESPONSE]), json.dumps(RESPONSE) + "\n" + json.dumps(RESPONSE)):
        claim = read(text, tmp_path, "vllm")[0]
        assert (claim.drafted, claim.accepted, claim.steps, claim.gamma) == (129, 10, 43, 3)
        assert (claim.predicted_n, claim.predicted_ms, claim.label) == (54, 1240.5, "Qwen/Qwen3-8B")
        assert claim.decode_rate == pytest.approx(53e3 / 1240.5)
        assert claim.notes == ()
        assert rule_claim(claim).verdict != "impossible"
    bare = read(json.dumps(ACCEPTANCE | {"acceptance_histogram": [40, 0, 0, 3]}), tmp_path, "vllm")[0]
    counts = {"steps": 43, "accepted": 9, "counted_steps": 43, "counted": 10}
    assert bare.notes == (Message("read.histogram", **counts),)
    more = read(json.dumps(ACCEPTANCE | {"num_accepted_draft_tokens": 200}), tmp_path)[0]
    assert (more.accepted, more.problem) == (200, None)
    assert rule_claim(more).verdict == "impossible"
    idle = read(json.dumps(ACCEPTANCE | {"num_spec_steps": 0, "num_draft_tokens": 0}), tmp_path)[0]
    assert idle.notes == (Message("read.nothing_drafted"),)


def test_vllm_s_benchmark_results(tmp_path: Path) -> None:
    raw = {"test_name": {"0": "serving_a"}, "gpu_type": {"0": "H100"}, "output_throughput": {"0": 205.0},
           "completed": {"0": 200}, "mean_tpot_ms": {"0": 9.1}, "max_concurrency": {"0": 4},
           "spec_decode_draft_tokens": {"0": 300}, "spec_decode_accepted_tokens": {"0": 200},
           "spec_decode_num_drafts": {"0": 100}, "spec_decode_acceptance_length": {"0": 3.0}}  # fmt: skip
    named = {"Test name": {"0": "serving_b"}, "GPU": {"0": "H100"}, "Output Tput (tok/s)": {"0": 205.0}}
    for serving in (raw, named):
        latency = {"test_name": {"0": "latency_a"}, "avg_latency": {"0": 1.2}}
        text = json.dumps({"latency": latency, "throughput": {}, "serving": serving})
        first, second = read(text, tmp_path, "vllm")
        assert (first.row, first.label, first.wall_ms) == ("latency, row 1", "latency_a", 1200)
        assert (second.row, second.decode_rate, second.device) == ("serving, row 1", 205, "H100")
    assert (
        read(json.dumps({"latency": {"test_name": {}}, "throughput": {}, "serving": raw}), tmp_path)[0].drafted == 300
    )


RECORD: dict[str, Any] = {
    "metadata": {"session_num": 4, "conversation_id": "abc", "benchmark_phase": "profiling", "source_kind": "coding"},
    "metrics": {
        "input_sequence_length": {"value": 550, "unit": "tokens"},
        "time_to_first_token": {"value": 255.9, "unit": "ms"},
        "request_latency": {"value": 1.2559, "unit": "s"},
        "output_sequence_length": {"value": 101, "unit": "tokens"},
        "output_token_throughput_per_user": {"value": 100.0, "unit": "tokens/sec/user"},
    },
    "error": None,
    "spec_decode_acceptance": ACCEPTANCE | {"engine": "vllm", "acceptance_histogram": {"0": 39, "1": 1, "3": 3}},
}


def test_aiperf_s_records(tmp_path: Path) -> None:
    failed = {"metadata": RECORD["metadata"], "metrics": {}, "error": {"code": 499, "type": "Cancelled"}}
    first, second = read(json.dumps(RECORD) + "\n" + json.dumps(failed) + "\n", tmp_path, "aiperf")
    assert (first.drafted, first.accepted, first.steps, first.gamma) == (129, 10, 43, 3)
    assert (first.decode_rate, first.predicted_n, first.label) == (100, 101, "coding abc")
    assert first.predicted_ms == pytest.approx(1000)
    assert first.conditions == {"category": "coding"}
    assert second.problem == Message("unread.request_failed_by", error="Cancelled")
    plain = {key: value for key, value in RECORD.items() if key != "spec_decode_acceptance"}
    assert read(json.dumps(plain), tmp_path, "aiperf")[0].drafted is None


def test_aiperf_s_run(tmp_path: Path) -> None:
    run = {
        "schema_version": "1.0",
        "request_count": {"unit": "requests", "avg": 64},
        "request_latency": {"unit": "ms", "avg": 900.1, "p99": 1000.0},
        "output_token_throughput_per_user": {"unit": "tokens/sec/user", "avg": 111.0},
        "spec_decode_acceptance_length": {"unit": "ratio", "avg": 3.21},
        "spec_decode_token_weighted_acceptance_length": {"unit": "ratio", "avg": 3.2},
        "spec_decode_overall_draft_acceptance_rate": {"unit": "%", "avg": 46.8},
        "total_spec_decode_steps": {"unit": "count", "avg": 128},
        "total_draft_tokens": {"unit": "tokens", "avg": 600},
        "total_accepted_draft_tokens": {"unit": "tokens", "avg": 281},
        "input_config": {"loadgen": {"concurrency": 16}},
    }
    claim = read(json.dumps(run, indent=1), tmp_path, "aiperf")[0]
    assert (claim.tau, claim.drafted, claim.accepted, claim.steps, claim.concurrency) == (3.2, 600, 281, 128, 16)
    assert (claim.averaged, claim.pooled) == (("decode_rate",), ("tau", "acceptance"))
    means = {key: value for key, value in run.items() if "weighted" not in key and "overall" not in key}
    claim = read(json.dumps(means), tmp_path, "aiperf")[0]
    assert (claim.tau, claim.averaged, claim.pooled) == (3.21, ("decode_rate", "tau"), ())


def test_llama_cpp_s_speed_bench(tmp_path: Path) -> None:
    file = {
        "config": {"model": "Q", "concurrency": 1, "bench": "qualitative"},
        "selected_samples": 2,
        "completed_samples": 2,
        "failed_samples": 0,
        "summary": [
            {"category": "coding", "requests": 2, "turns": 2, "failed": 0, "avg_pred_t_s": 87.1, "avg_latency": 11.9,
             "draft_n": 700, "accepted": 500, "accept_rate": 0.714},
            {"category": "qa", "requests": 0, "draft_n": 0, "accepted": 0, "avg_pred_t_s": None},
        ],
        "results": [
            {"id": "q1", "category": "coding", "ok": True, "turns": 1, "completion_tokens": 100, "prompt_tokens": 3,
             "draft_n": 70, "draft_n_accepted": 50, "prompt_ms": 3.0, "predicted_ms": 1000.0,
             "predicted_per_second": 100.0, "error": None},
            {"id": "q2", "category": "coding", "ok": False, "turns": 1, "draft_n": 0, "error": "timed out"},
        ],
    }  # fmt: skip
    summary, empty, request, failed = read(json.dumps(file, indent=2, sort_keys=True), tmp_path, "speed-bench")
    assert (summary.decode_rate, summary.runs, summary.drafted, summary.accepted) == (87.1, 2, 700, 500)
    assert (summary.averaged, summary.pooled, summary.target) == (("decode_rate",), ("acceptance",), "Q")
    assert empty.problem == Message("unread.no_success", name="requests")
    assert (request.decode_rate, request.predicted_n, request.conditions["prompt"]) == (100, 100, "q1")
    assert failed.problem == Message("unread.request_failed_by", error="timed out")


def test_spec_bench_s_output(tmp_path: Path) -> None:
    text = """============================== Task:  mt_bench ==============================
#Mean accepted tokens:  4.35
Tokens per second:  84.2
Tokens per second for the baseline:  38.1
Speedup ratio:  2.21
============================== Task:  overall ==============================
#Mean accepted tokens: 4.1
Tokens per second: Mean result: 84.2, Std result: 0.4
Tokens per second (baseline): Mean result: 38.1, Std result: 0.1
Speedup ratio: Mean result: 2.21, Std result: 0.01
"""
    task, overall = read(text, tmp_path, "spec-bench")
    assert (task.label, task.tau, task.decode_rate, task.baseline_rate, task.speedup) == (
        "mt_bench",
        4.35,
        84.2,
        38.1,
        2.21,
    )
    assert task.averaged[0] == "speedup"
    assert (overall.row, overall.decode_rate_sd, overall.baseline_rate_sd) == ("line 6", 0.4, 0.1)
    cut = read(text[: text.index("Tokens per second: Mean")] + "\nSpeedup ratio:\n", tmp_path)
    assert cut[-1].problem is not None


@pytest.mark.parametrize("name", ["vllm-log", "spec-bench"])
def test_long_lines_of_equal_signs_cost_nothing(name: str, tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    path.write_text(f"{'=' * 60_000} Task: {'=' * 60_000}Serving Benchmark Result\n" * 3, encoding="utf-8")
    begun = time.process_time()
    list(importer(name).read(path))
    assert time.process_time() - begun < 2


def test_spec_bench_s_answers(tmp_path: Path) -> None:
    choice = {"index": 0, "turns": ["x", "y"], "new_tokens": [10, 8], "wall_time": [0.2, 0.16],
              "accept_lengths": [4, 3, 4, 4, 3]}  # fmt: skip
    answer = {
        "question_id": 81,
        "category": "writing",
        "answer_id": "a",
        "model_id": "vicuna-eagle",
        "choices": [choice],
    }
    vanilla = answer | {"choices": [choice | {"accept_lengths": [1] * 18}]}
    broken = answer | {"choices": [choice | {"wall_time": [-1]}]}
    first, plain, bad = read("\n".join(map(json.dumps, (answer, vanilla, broken))), tmp_path, "spec-bench")
    assert (first.decode_rate, first.predicted_n, first.steps, first.tau) == (pytest.approx(50), 18, 5, 3.6)
    assert (plain.method, plain.tau) == ("none", 1)
    assert bad.problem == Message("unread.holds", name="wall_time", value="-1")
    assert read(json.dumps(answer), tmp_path, "spec-bench")[0].steps == 5
    counted = {"index": 0, "turns": ["", ""], "idxs": [4, 2], "new_tokens": [20, 8], "wall_time": [0.2, 0.16]}
    of_eagle = answer | {"choices": [counted]}  # the place of the last step of each turn
    plain = answer | {"choices": [counted | {"new_tokens": [0, 0], "idxs": [9, 7]}]}
    tree, baseline = read("\n".join(map(json.dumps, (of_eagle, plain))), tmp_path, "spec-bench")
    assert (tree.steps, tree.tau, tree.predicted_n) == (8, 3.5, 28)
    assert (baseline.method, baseline.predicted_n, baseline.decode_rate) == ("none", 18, pytest.approx(50))


def test_ik_s_spec_bench(tmp_path: Path) -> None:
    stage = {"type": "mtp", "drafts": 220, "draft_tokens": 660, "accepted": 538, "accept_length": 3.45}
    compact = {"row_type": "attempt", "task": "code", "run": 1, "ok": True, "stop": "eog", "generated": 759,
               "decode_s": 11.068, "decode_tps": 68.58, "stages": [stage], "error": None}  # fmt: skip
    speculative = {"num_drafts": 220, "draft_tokens": 660, "accepted_tokens": 538, "stages": [{"type": "mtp"}]}
    detailed = {"row_type": "attempt", "task_name": "code", "timing": {"decode_s": 11.068, "decode_tps": 68.58},
                "tokens": {"prompt": 9, "generated": 759}, "speculative": speculative,
                "variant": {"is_baseline": False, "stage_chain": "mtp:n_max=3,p_min=0.0"}, "error": None}  # fmt: skip
    base = compact | {"stages": [], "decode_tps": 36.0}
    failed = compact | {"ok": False, "error": "no memory"}
    found = read("\n".join(map(json.dumps, (compact, detailed, base, failed))), tmp_path, "ik-spec-bench")
    assert [(claim.drafted, claim.accepted, claim.steps) for claim in found[:2]] == [(660, 538, 220)] * 2
    assert (found[0].gamma, found[1].gamma, found[2].method) == (None, 3, "none")
    assert found[0].tau == pytest.approx(1 + 538 / 220)
    assert found[3].problem == Message("unread.attempt_failed", error="no memory")


def test_ik_s_server(tmp_path: Path) -> None:
    log = """llama-server -m /m/Q-27B.gguf --spec-type mtp:n_max=3,p_min=0.5
slot print_timings: id  0 | task 0 |
prompt eval time =     200.00 ms /    20 tokens (   10.00 ms per token,   100.00 tokens per second)
       eval time =    2000.00 ms /   100 tokens (   20.00 ms per token,    50.00 tokens per second)
      total time =    2200.00 ms /   120 tokens
draft acceptance rate = 0.24242 (   72 accepted /   297 generated)
statistics mtp: #calls(b,g,a) = 1 99 99, #gen drafts = 99, #acc drafts = 70, #gen tokens = 297, #acc tokens = 72
"""
    claim = read(log, tmp_path, "llama-server")[0]
    assert (claim.method, claim.gamma, claim.p_min, claim.drafted, claim.accepted) == ("mtp", 3, 0.5, 297, 72)
    tuned = read(log.replace("p_min=0.5", "p_min=0.5 --spec-autotune"), tmp_path)[0]
    assert tuned.gamma is None
    assert Message("read.autotuned") in tuned.notes
    fragment = log[log.index("       eval time") :]
    assert read(fragment, tmp_path, "llama-server")[0].accepted == 72


def test_more_accepted_than_drafted_is_a_claim_and_no_fault_of_reading(tmp_path: Path) -> None:
    log = """encoded   12 tokens in    0.514 seconds, speed:   23.346 t/s
decoded  101 tokens in    2.000 seconds, speed:   50.500 t/s

n_draft   = 4
n_predict = 101
n_drafted = 60
n_accept  = 75
accept    = 125.000%
"""
    claim = read(log, tmp_path, "llama-speculative")[0]
    assert (claim.problem, claim.accepted, claim.drafted, claim.acceptance) == (None, 75, 60, 1.25)
    assert rule_claim(claim).verdict == "impossible"
    server = "draft acceptance = 1.20000 (  120 accepted /   100 generated)"
    text = "slot print_timing: id  0 | task 1 |        eval time =    2000.00 ms /   200 tokens\n"
    claim = read(f"{text}slot print_timing: id  0 | task 1 | {server}\n", tmp_path, "llama-server")[0]
    assert (claim.accepted, claim.drafted) == (120, 100)


# --- wrong input -----------------------------------------------------------------------------------------------------

SAMPLES = {
    "vllm": json.dumps(RESPONSE),
    "aiperf": json.dumps(RECORD) + "\n" + json.dumps(RECORD),
    "vllm-log": "\n".join([ENGINE, RATE, METRICS, BLOCK]),
    "spec-bench": "#Mean accepted tokens: 4.1\nTokens per second: 84.2\nSpeedup ratio: 2.2\n",
    "speed-bench": '{"config": {}, "completed_samples": 1, "summary": [{"avg_pred_t_s": 1.5, "draft_n": 3}]}',
    "ik-spec-bench": '{"row_type": "attempt", "decode_tps": 5.0, "stages": [{"drafts": 2}], "generated": 5}',
}


@pytest.mark.parametrize("name", list(SAMPLES))
def test_cut_off_huge_and_binary_input(name: str, tmp_path: Path) -> None:
    sample = SAMPLES[name].encode()
    assert read(sample, tmp_path, name)
    path = tmp_path / "bad"
    faults: list[UsageError] = []
    spoilt = [sample[:end] for end in range(1, len(sample), max(1, len(sample) // 60))]
    spoilt += [sample + b"\xff\xfe\x00" * 50, sample * 200, b"\x00" * 1000 + sample, sample.replace(b"1", b"9" * 400)]
    spoilt += [sample.replace(b":", b": null,"), sample.replace(b"0", b"NaN"), sample.replace(b"3", b"-3")]
    for content in spoilt:
        path.write_bytes(content)
        try:
            for claim in importer(name).read(path):
                rule_claim(claim)
                assert "validation error" not in str(claim.problem)
        except UsageError as error:
            faults.append(error)
    assert all(str(path) in error.message and error.fix for error in faults)


_KEYS = [
    *(*ACCEPTANCE, *RESPONSE, *RECORD, "stages", "row_type", "decode_tps", "summary", "results", "config", "choices"),
    *("new_tokens", "wall_time", "accept_lengths", "serving", "latency", "throughput", "completed_samples", "draft_n"),
    *("avg_pred_t_s", "request_latency"),
]
_JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8)),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*ACCEPTANCE, "0", "value"]), inner, max_size=3)
    ),
    max_leaves=4,
)


@settings(max_examples=120, deadline=None)
@given(keys=st.lists(st.sampled_from(_KEYS), max_size=8, unique=True), value=_JSON)
def test_no_object_is_too_strange(keys: list[str], value: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("strange") / "result.json"
    path.write_text(json.dumps(dict.fromkeys(keys, value)), encoding="utf-8")
    for name in FORMATS:
        try:
            for claim in importer(name).read(path):
                rule_claim(claim)
        except UsageError as error:
            str(error)


def test_pasted_lines_of_vllm_may_be_wrapped_and_old(tmp_path: Path) -> None:
    page = """<p>vLLM's own acceptance metrics:</p>
<pre><code>SpecDecoding metrics: Mean acceptance length: 2.76, Accepted: 317, Drafted: 540,
  Per-position acceptance rate: 0.817, 0.550, 0.394, Avg Draft acceptance rate: 58.7%
SpecDecoding metrics: Mean acceptance length: 2.73, Accepted: 171, Drafted: 297,
  Per-position acceptance rate: 0.778, 0.556, 0.394, Avg Draft acceptance rate: 57.6%
</code></pre>
"""
    first, second, _ = read(page, tmp_path)
    assert (first.row, first.tau, first.accepted, first.drafted) == ("line 2", 2.76, 317, 540)
    assert (first.acceptance, first.positions) == (pytest.approx(0.587), (0.817, 0.55, 0.394))
    assert second.row == "line 4"
    (old,) = read(
        "Speculative metrics: Draft acceptance rate: 0.642, System efficiency: 0.250, Number of speculative tokens: 3, "
        "Number of accepted tokens: 0, Number of draft tokens: 483, Number of emitted tokens: 161.",
        tmp_path,
    )
    assert (old.acceptance, old.accepted, old.drafted, old.gamma) == (0.642, 0, 483, 3)
    assert rule_claim(old).verdict == "impossible"
