"""llama-bench in its five forms, and the JSON of vLLM's and SGLang's benchmarks."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from said import codes
from specmeter.audit.claim import Claim
from specmeter.audit.equations import equations_of
from specmeter.audit.judge import rule_claim
from specmeter.audit.read import serving
from specmeter.audit.read.benchmarks import read_llama_bench
from specmeter.audit.reading import FORMATS, detect, importer
from specmeter.errors import UsageError
from specmeter.messages import Message

# Field names and their order as printed by llama-bench (tools/llama-bench/llama-bench.cpp); numbers of a real run.
ROW: dict[str, Any] = {
    "build_commit": "d088d5b74",
    "build_number": 8240,
    "cpu_info": "Accelerate, Apple M2 Ultra",
    "gpu_info": "Apple M2 Ultra",
    "backends": "MTL,BLAS",
    "model_filename": "/models/Qwen3.5-4B-Q6_K.gguf",
    "model_type": "qwen35 4B Q6_K",
    "model_size": 3453087744,
    "model_n_params": 4205751296,
    "n_batch": 2048,
    "n_ubatch": 512,
    "n_threads": 16,
    "type_k": "f16",
    "type_v": "f16",
    "n_gpu_layers": 99,
    "n_cpu_moe": 0,
    "n_prompt": 0,
    "n_gen": 128,
    "n_depth": 0,
    "test_time": "2026-03-13T16:19:36Z",
    "avg_ns": 2144407652,
    "stddev_ns": 538085144,
    "avg_ts": 61.977526,
    "stddev_ts": 13.688545,
}
PROMPT = ROW | {"n_prompt": 512, "n_gen": 0, "avg_ns": 376846167, "avg_ts": 1358.884572, "stddev_ts": 22.196375}


def as_csv(*rows: dict[str, Any]) -> str:
    out = io.StringIO()
    out.write(",".join(rows[0]) + "\n")
    writer = csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerows([row.values() for row in rows])
    return out.getvalue()


def as_sql(*rows: dict[str, Any]) -> str:
    fields = ", ".join(rows[0])
    lines = ["CREATE TABLE IF NOT EXISTS llama_bench (", ",\n".join(f"  {name} TEXT" for name in rows[0]), ");", ""]
    lines += [
        f"INSERT INTO llama_bench ({fields}) VALUES ({', '.join(repr(str(value)) for value in row.values())});"
        for row in rows
    ]
    return "\n".join(lines) + "\n"


def as_json(*rows: dict[str, Any]) -> str:
    return json.dumps([row | {"samples_ns": [1, 2], "samples_ts": [3.0, 4.0]} for row in rows], indent=2)


def as_jsonl(*rows: dict[str, Any]) -> str:
    return "\n".join(json.dumps(row) for row in rows) + "\n"


MARKDOWN = """ggml_metal_device_init: GPU name:   Apple M2 Ultra
| model                    |       size |     params | backend    | threads |      test |               t/s |
| ------------------------ | ---------: | ---------: | ---------- | ------: | --------: | ----------------: |
| qwen35 4B Q6_K           |   3.22 GiB |     4.21 B | MTL,BLAS   |      16 |     pp512 |   1358.88 ± 22.20 |
| qwen35 4B Q6_K           |   3.22 GiB |     4.21 B | MTL,BLAS   |      16 |     tg128 |     61.98 ± 13.69 |

build: d088d5b74 (8240)
"""


def claims(text: str, tmp_path: Path, name: str = "bench.txt") -> list[Claim]:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    assert detect(path) == "llama-bench"
    return list(read_llama_bench(path))


@pytest.mark.parametrize("form", [as_csv, as_sql, as_json, as_jsonl, lambda *_: MARKDOWN])
def test_all_forms_of_llama_bench_say_the_same(form: Any, tmp_path: Path) -> None:
    prompt, decode = claims(form(PROMPT, ROW), tmp_path)
    assert (prompt.decode_rate, prompt.prompt_n) == (None, 512)
    assert decode.label == "qwen35 4B Q6_K tg128"
    assert (decode.method, decode.device, decode.mixture) == ("none", "Apple M2 Ultra", False)
    assert decode.decode_rate == pytest.approx(61.98, abs=0.01)
    assert decode.decode_rate_sd == pytest.approx(13.69, abs=0.01)
    assert decode.predicted_n == 128
    assert decode.size_bytes == pytest.approx(3453087744, rel=0.002)
    assert rule_claim(prompt).verdict == "cannot tell"
    ruling = rule_claim(decode)
    assert (ruling.verdict, ruling.bound) == ("possible", "bandwidth-bound")
    assert "audit.unsteady" in codes(ruling.others)


@pytest.mark.parametrize(
    ("model_type", "file", "mixture"),
    [
        ("qwen35moe 35B.A3B Q4_K - Medium", "a.gguf", True),
        ("qwen3moe 30B.A3B Q8_0", "a.gguf", True),
        ("llama 8x7B Q4_K - Medium", "mixtral.gguf", True),
        ("gpt-oss 20B MXFP4 MoE", "a.gguf", True),
        ("deepseek2 671B Q4_K", "a.gguf", True),
        ("llama 7B Q4_0", "a.gguf", False),
        ("gemma3 4B Q4_0", "a.gguf", False),
        ("granitehybrid 7B Q4_0", "granite-4.0-h-tiny.gguf", None),
    ],
)
def test_a_mixture_of_experts_is_told_by_its_name(
    model_type: str, file: str, mixture: bool | None, tmp_path: Path
) -> None:
    fast = ROW | {"model_type": model_type, "model_filename": file, "model_size": 20_600_000_000, "avg_ts": 155.3}
    fast |= {"avg_ns": 824211204, "stddev_ts": 0.1}
    claim = claims(as_csv(fast), tmp_path)[0]
    assert claim.mixture is mixture
    assert rule_claim(claim).verdict == ("implausible" if mixture is False else "cannot tell")
    slow = fast | {"avg_ts": 5.0, "avg_ns": 25600000000}
    assert rule_claim(claims(as_csv(slow), tmp_path)[0]).verdict == ("cannot tell" if mixture else "possible")


def test_rates_of_a_mixture_of_experts_are_those_of_random_tokens(tmp_path: Path) -> None:
    expert = ROW | {"model_type": "qwen3moe 30B.A3B Q8_0", "model_filename": "a.gguf"}
    for row in (expert, expert | {"n_prompt": 512}):
        assert "read.random_tokens" in codes(claims(as_csv(row), tmp_path)[0].notes)
    for row in (ROW, PROMPT | {"model_type": "qwen3moe 30B.A3B Q8_0"}):  # prompts read all experts either way
        assert "read.random_tokens" not in codes(claims(as_csv(row), tmp_path)[0].notes)


def test_the_processor_is_the_device_where_nothing_is_offloaded(tmp_path: Path) -> None:
    on_cpu = claims(as_csv(ROW | {"n_gpu_layers": 0, "cpu_info": "AMD Ryzen 9"}), tmp_path)[0]
    assert on_cpu.device == "AMD Ryzen 9"
    two = claims(as_csv(ROW | {"gpu_info": "NVIDIA GeForce RTX 3090, NVIDIA GeForce RTX 3090"}), tmp_path)[0]
    assert "1,872 GB/s" in str(rule_claim(two).arithmetic)


def test_prompt_and_generation_together_is_no_decode_rate(tmp_path: Path) -> None:
    both = claims(as_csv(ROW | {"n_prompt": 512, "avg_ts": 600.0, "avg_ns": 1066666667}), tmp_path)[0]
    assert both.window == "with prompt"
    ruling = rule_claim(both)
    assert ruling.verdict == "cannot tell"
    rate = next(it for it in equations_of(both) if it.law == "rate-of-time")
    assert (rate.gap, rate.more["tokens"]) == (pytest.approx(1, abs=0.001), 512 + (both.predicted_n or 0))


def test_rates_that_do_not_belong_to_their_times(tmp_path: Path) -> None:
    ruling = rule_claim(claims(as_csv(ROW | {"avg_ts": 120.0, "stddev_ts": 0.5}), tmp_path)[0])
    assert (ruling.verdict, ruling.bound) == ("implausible", "window-mismatch")


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"avg_ts": 0}, Message("unread.not_positive", name="avg_ts", value="0")),
        ({"avg_ts": "nan"}, Message("unread.not_positive", name="avg_ts", value="nan")),
        ({"avg_ts": "fast"}, Message("unread.no_number", name="avg_ts", value="fast")),
        ({"avg_ts": None}, Message("unread.missing", name="avg_ts")),
        ({"n_gen": 0}, Message("unread.nothing_measured")),
        ({"n_gen": -1}, Message("unread.not_positive", name="n_gen", value="-1")),
        ({"n_gen": 1.5}, Message("unread.not_whole", name="n_gen", value="1.5")),
        ({"model_size": -1}, Message("unread.not_positive", name="model_size", value="-1")),
    ],
)
def test_a_bad_test_says_why(change: dict[str, Any], problem: Message, tmp_path: Path) -> None:
    bad, good = claims(as_jsonl(ROW | change, ROW), tmp_path)
    assert bad.problem == problem
    assert good.problem is None


def test_csv_behind_the_chatter_of_a_backend(tmp_path: Path) -> None:
    chatter = "ggml_cuda_init: found 1 CUDA devices:\n  Device 0: NVIDIA GeForce RTX 3090, compute capability 8.6\n"
    assert len(claims(chatter + as_csv(ROW), tmp_path)) == 1
    markdown = re.sub(r"^ggml.*\n", chatter, MARKDOWN)
    assert claims(markdown, tmp_path)[1].device == "NVIDIA GeForce RTX 3090"


def test_no_test_at_all(tmp_path: Path) -> None:
    path = tmp_path / "bench.csv"
    path.write_text("a,b\n1,2\n", encoding="utf-8")
    with pytest.raises(UsageError, match="no llama-bench test"):
        list(read_llama_bench(path))


# --- servers ---------------------------------------------------------------------------------------------------------

SERVE: dict[str, Any] = {
    "date": "20260801-101500",
    "endpoint_type": "openai",
    "backend": "openai",
    "label": None,
    "model_id": "Qwen/Qwen3-8B",
    "tokenizer_id": "Qwen/Qwen3-8B",
    "num_prompts": 80,
    "request_rate": "inf",
    "burstiness": 1.0,
    "max_concurrency": 1,
    "duration": 100.0,
    "completed": 80,
    "failed": 0,
    "total_input_tokens": 4000,
    "total_output_tokens": 20480,
    "request_throughput": 0.8,
    "output_throughput": 204.8,
    "total_token_throughput": 244.8,
    "input_lens": [50] * 80,
    "errors": [""] * 80,
    "mean_ttft_ms": 20.0,
    "mean_tpot_ms": 4.9,
    "spec_decode_acceptance_rate": 60.0,
    "spec_decode_acceptance_length": 2.8,
    "spec_decode_num_drafts": 7286,
    "spec_decode_draft_tokens": 21858,
    "spec_decode_accepted_tokens": 13115,
    "spec_decode_per_position_acceptance_rates": [0.8, 0.6, 0.4],
}
SGLANG: dict[str, Any] = {
    "tag": None,
    "backend": "sglang",
    "dataset_name": "sharegpt",
    "request_rate": float("inf"),
    "max_concurrency": 4,
    "sharegpt_output_len": None,
    "random_input_len": 1024,
    "duration": 50.0,
    "completed": 40,
    "total_input_tokens": 8000,
    "total_output_tokens": 10240,
    "total_output_tokens_retokenized": 10231,
    "request_throughput": 0.8,
    "input_throughput": 160.0,
    "output_throughput": 204.8,
    "mean_e2e_latency_ms": 4800.0,
    "mean_ttft_ms": 50.0,
    "mean_tpot_ms": 18.6,
    "mean_itl_ms": 30.0,
    "concurrency": 3.84,
    "accept_length": 2.41,
}


def served(items: list[dict[str, Any]], tmp_path: Path, expected: str) -> list[Claim]:
    path = tmp_path / "result.json"
    path.write_text("\n".join(json.dumps(item) for item in items), encoding="utf-8")
    assert detect(path) == expected
    return list(importer(expected).read(path))


def test_vllm_serving(tmp_path: Path) -> None:
    claim = served([SERVE], tmp_path, "vllm")[0]
    assert (claim.label, claim.decode_rate, claim.runs, claim.concurrency) == ("Qwen/Qwen3-8B", 204.8, 80, 1)
    assert (claim.acceptance, claim.tau, claim.steps) == (0.6, 2.8, 7286)
    assert (claim.drafted, claim.accepted, claim.predicted_n) == (21858, 13115, 20480)
    assert claim.token_interval_ms == 4.9
    assert rule_claim(claim).verdict == "cannot tell"
    for baseline, verdict in ((204.8, "possible"), (100.0, "possible"), (60.0, "implausible")):
        assert rule_claim(claim.model_copy(update={"baseline_rate": baseline})).verdict == verdict
    slow = claim.model_copy(update={"bytes_per_token": 16.4e9, "device": "RTX 4090"})
    assert rule_claim(slow).bound == "bandwidth-bound"
    # 16.4 GB read 204 times a second by a model that emits at most 2.8 tokens each time: 1.2 TB/s.
    assert rule_claim(slow).verdict == "implausible"


def test_vllm_without_speculation_and_with_failures(tmp_path: Path) -> None:
    plain = {key: value for key, value in SERVE.items() if not key.startswith("spec_")} | {
        "failed": 3,
        "mean_tpot_ms": 0,
    }
    claim = served([plain], tmp_path, "vllm")[0]
    assert (claim.drafted, claim.token_interval_ms) == (None, None)
    assert Message("read.requests_failed", failed=3) in claim.notes
    batch = served([plain | {"max_concurrency": None, "mean_e2el_ms": 12_500.0}], tmp_path, "vllm")[0]
    assert batch.concurrency == pytest.approx(10)


def test_vllm_throughput_and_latency(tmp_path: Path) -> None:
    throughput = {
        "elapsed_time": 10.0,
        "num_requests": 100,
        "total_num_tokens": 50_000,
        "requests_per_second": 10.0,
        "tokens_per_second": 5000.0,
    }
    claim = served([throughput], tmp_path, "vllm")[0]
    assert (claim.decode_rate, claim.concurrency, claim.window) == (5000, 100, "with prompt")
    latency = {"avg_latency": 1.5, "std_latency": 0.1, "latencies": [1.4, 1.6], "percentiles": {"50": 1.5}}
    claim = served([latency], tmp_path, "vllm")[0]
    assert claim.wall_ms == 1500
    assert rule_claim(claim).verdict == "cannot tell"


def test_sglang_serving(tmp_path: Path) -> None:
    server = {"speculative_algorithm": "EAGLE3", "speculative_num_steps": 3, "speculative_num_draft_tokens": 4}
    first, second, third = served(
        [
            SGLANG,
            SGLANG | {"server_info": server},
            SGLANG | {"accept_length": None, "server_info": {"speculative_algorithm": None}},
        ],
        tmp_path,
        "sglang",
    )
    assert (first.tau, first.gamma, first.concurrency) == (2.41, None, 3.84)
    assert (second.method, second.gamma) == ("draft-eagle3", 3)
    assert (third.method, third.tau) == ("none", None)
    assert rule_claim(first.model_copy(update={"baseline_rate": 70.0})).verdict == "implausible"
    assert rule_claim(first.model_copy(update={"baseline_rate": 100.0})).verdict == "possible"


def test_sglang_one_batch(tmp_path: Path) -> None:
    item = {
        "run_name": "default",
        "batch_size": 1,
        "input_len": 1024,
        "output_len": 256,
        "latency": 1.9,
        "input_throughput": 9000.0,
        "output_throughput": 150.0,
        "overall_throughput": 640.0,
        "last_gen_throughput": 148.0,
        "acc_length": 2.9,
    }
    speculative, plain = served([item, item | {"acc_length": -1}], tmp_path, "sglang")
    assert (speculative.tau, speculative.concurrency) == (2.9, 1)
    assert plain.tau is None


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"output_throughput": 0}, Message("unread.not_positive", name="output_throughput", value="0")),
        ({"completed": 0}, Message("unread.no_success", name="completed")),
        ({"total_output_tokens": "many"}, Message("unread.no_number", name="total_output_tokens", value="many")),
        ({"duration": -1}, Message("unread.not_positive", name="duration", value="-1")),
    ],
)
def test_benchmarks_that_measured_nothing(change: dict[str, Any], problem: Message, tmp_path: Path) -> None:
    for item, name in ((SERVE, "vllm"), (SGLANG, "sglang")):
        claim = served([item | change], tmp_path, name)[0]
        assert claim.problem == problem


_JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=10)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=200, deadline=None)
@given(
    item=st.dictionaries(
        st.sampled_from([*SERVE, *SGLANG, *ROW, "acc_length", "server_info", "tokens_per_second"]), _JSON
    )
)
def test_no_json_is_too_strange(item: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("strange") / "result.json"
    path.write_text(json.dumps(item), encoding="utf-8")
    for read in (serving.read_vllm, serving.SGLANG.read, read_llama_bench):
        try:
            for claim in read(path):
                rule_claim(claim)
        except UsageError as error:
            str(error)


def test_every_format_can_be_loaded() -> None:
    for name in FORMATS:
        assert importer(name).sniff("") is False
    with pytest.raises(UsageError, match="no such format"):
        importer("nonsense")
