"""What tools print of drawn worlds: files that are true by their own definitions, in the shapes of real tools.

A mean over prompts, a share of a tree's nodes or a length without the target's own token is true, whatever a reader
takes it for.
"""

from __future__ import annotations

import json
import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from audit.worlds import Request, World, requests, together


@dataclass(frozen=True)
class Simulated:
    """A file that was never measured, and what is true about it."""

    name: str
    shape: str
    make: Callable[[], str]
    known_false: str = ""
    """The assumption of a bound that does not hold for it, where there is one."""
    expect: str = "possible"
    """The best word that a row of it should earn."""


def markdown(headings: str, rows: Sequence[Sequence[object]], rule: str = "---") -> str:
    """A pipe table; `headings` are separated by bars."""
    names = [name.strip() for name in headings.split("|")]
    lines = [names, [rule] * len(names), *([str(cell) for cell in row] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def _csv(headings: str, rows: Sequence[Sequence[object]]) -> str:
    return "\n".join([headings, *(",".join(str(cell) for cell in row) for row in rows)]) + "\n"


def _mean_of_speedups() -> str:
    rows = list[Sequence[object]]()
    for number, gamma in enumerate((2, 3, 4, 6, 8)):
        drawn = requests(World(10 + number, gamma, 0.6, spread=1.4, draft_cost=0.0, per_token=0.0, prompts=20))
        mean = statistics.mean(request.speedup for request in drawn)
        rows.append((f"gamma {gamma}", gamma, f"{mean:.3f}", f"{together(drawn).acceptance:.4f}", len(drawn)))
    return _csv("label,gamma,mean speedup over prompts,pooled acceptance,prompts", rows)


def _mean_of_acceptance() -> str:
    rows = list[Sequence[object]]()
    for number, gamma in enumerate((2, 4, 6, 8)):
        drawn = requests(World(20 + number, gamma, 0.55, spread=1.6, draft_cost=0.0, per_token=0.0, prompts=20))
        mean = statistics.mean(request.accepted / request.drafted for request in drawn)
        rows.append((f"gamma {gamma}", gamma, f"{together(drawn).speedup:.2f}x", f"{mean:.1%}"))
    return markdown("Config | n-max | Speedup | mean acceptance (per prompt)", rows)


def _trees() -> str:
    rows = list[Sequence[object]]()
    for number, (name, heads, nodes, chance) in enumerate(
        (("Medusa-1", 4, 64, 0.55), ("Medusa-2", 5, 64, 0.65), ("EAGLE-2", 6, 60, 0.75), ("Hydra", 4, 64, 0.62))
    ):
        sums = together(requests(World(30 + number, heads, chance, draft_cost=0.02, per_token=0.01)))
        share = sums.accepted / (sums.steps * nodes)
        rows.append((name, heads, nodes, f"{share:.1%}", f"{sums.tau:.2f}", f"{sums.speedup:.2f}x"))
    return markdown("Method | heads | tree nodes | accepted share of nodes | tokens/step | Speedup", rows)


def _tree_share_alone() -> str:
    rows = list[Sequence[object]]()
    for number, (name, depth, nodes, chance) in enumerate(
        (("medusa", 5, 63, 0.6), ("eagle", 5, 26, 0.7), ("eagle2", 6, 60, 0.75), ("eagle3", 7, 60, 0.82))
    ):
        sums = together(requests(World(40 + number, depth, chance, draft_cost=0.02, per_token=0.01)))
        share = sums.accepted / (sums.steps * nodes)
        rows.append((name, depth, f"{share:.3f}", f"{sums.baseline:.1f}", f"{sums.rate:.1f}"))
    return _csv("method,draft_depth,acceptance_rate,baseline_tok_s,tok_s", rows)


def _mean_accepted_tokens() -> str:
    items = list[dict[str, object]]()
    for number, chance in enumerate((0.6, 0.75, 0.9)):
        sums = together(requests(World(50 + number, 5, chance)))
        items.append(
            {
                "method": "eagle3",
                "num_speculative_tokens": 5,
                "mean_accepted_tokens": round(sums.accepted / sums.steps, 2),
                "baseline_tok_s": round(sums.baseline, 2),
                "tok_s": round(sums.rate, 2),
                "output_tokens": sums.tokens + 8,
            }
        )
    return json.dumps(items, indent=1) + "\n"


def _length_without_bonus() -> str:
    rows = list[Sequence[object]]()
    for number, gamma in enumerate((3, 5, 7)):
        sums = together(requests(World(60 + number, gamma, 0.7, draft_cost=0.01, per_token=0.0)))
        rows.append((f"k={gamma}", gamma, f"{sums.accepted / sums.steps:.2f}", f"{sums.speedup:.2f}"))
    return _csv("config,k,acceptance_length,speedup", rows)


def _plain_against_plain() -> str:
    draw, rows = random.Random(70), list[Sequence[object]]()
    for prompt in range(6):
        first = 42.0 * (1 + draw.gauss(0, 0.04))
        rows.append((f"p{prompt}", "none", 0, 0, f"{first:.2f}", ""))
        for method in ("ngram-mod", "suffix"):
            rate = 42.0 * (1 + draw.gauss(0, 0.04))
            rows.append((f"p{prompt}", method, 0, 0, f"{rate:.2f}", f"{rate / first:.3f}"))
    return _csv("prompt,method,drafted,accepted,tok_s,speedup", rows)


def _cpu_kernel() -> str:
    rows = list[Sequence[object]]()
    for number, (quant, chance) in enumerate((("Q8_0", 0.8), ("Q8_0", 0.9), ("Q6_K", 0.85))):
        sums = together(requests(World(80 + number, 1, chance, draft_cost=0.002, per_token=0.0, second=0.7)))
        rows.append(
            (
                f"9B {quant}",
                1,
                f"{sums.baseline:.2f}",
                f"{sums.rate:.2f}",
                f"{sums.speedup:.2f}x",
                f"{sums.acceptance:.1%}",
            )
        )
    return markdown("Model | n_max | no spec t/s | Spec t/s | Speedup | Accept", rows)


def _batches() -> str:
    rows = list[Sequence[object]]()
    for number, batch in enumerate((1, 2, 4, 8, 16, 32)):
        world = World(90 + number, 3, 0.7, per_token=0.02 * batch, prompts=max(4, batch))
        sums = together(requests(world))
        served = min(batch, 24) * sums.baseline
        rows.append((batch, f"{served:.1f}", f"{served * sums.speedup:.1f}", f"{sums.speedup:.2f}x", f"{sums.tau:.2f}"))
    return markdown("concurrency | baseline tok/s | EAGLE-3 tok/s | speedup | acceptance length", rows, "---:")


def _adaptive_lengths() -> str:
    """The longest draft is 16, most are shorter: the engine adapts them."""
    rows = list[Sequence[object]]()
    for number, gamma in enumerate((2, 3, 5)):
        drawn = requests(World(100 + number, gamma, 0.75))
        sums = together(drawn)
        counts = f"{sums.drafted},{sums.accepted},{sums.steps},{sums.tokens + len(drawn)}"
        rows.append((f"autotune {number}", 16, f"{sums.baseline:.1f}", f"{sums.rate:.1f}", counts, len(drawn)))
    return _csv("name,draft_max,baseline_tps,tps,drafted,accepted,rounds,generated_tokens,requests", rows)


def _share_of_output() -> str:
    rows = list[Sequence[object]]()
    for number, chance in enumerate((0.4, 0.6, 0.8)):
        sums = together(requests(World(110 + number, 4, chance)))
        share = sums.accepted / sums.tokens
        rows.append((f"prompt {number + 1}", f"{sums.baseline:.2f}", f"{sums.rate:.2f}", f"{share:.1%}"))
    return markdown("Prompt | without draft tok/sec | with draft tok/sec | accepted draft tokens (of output)", rows)


def _merged_cells() -> str:
    rows = list[Sequence[object]]()
    for number, (model, chance) in enumerate((("8B Q4_K_M", 0.6), ("32B Q4_K_M", 0.75))):
        for gamma in (0, 2, 4, 8):
            name = model if gamma == 0 else ""
            if gamma == 0:
                sums = together(requests(World(120 + number, 1, chance)))
                rows.append((name, "off", f"{sums.baseline:.1f}", "", ""))
                plain = sums.baseline
                continue
            sums = together(requests(World(121 + 10 * number + gamma, gamma, chance)))
            rate = plain * sums.speedup
            rows.append((name, gamma, f"{rate:.1f}", f"{sums.speedup:.2f}×", f"{sums.acceptance:.1%}"))
    return markdown("Model | n_max | toks/s | Speedup | Acceptance", rows, ":-:")


def _repeats() -> str:
    draw, rows = random.Random(140), list[Sequence[object]]()
    sums = together(requests(World(140, 4, 0.65)))
    arms = (("baseline", "none", 1.0, ","), ("idle", "suffix", 1.0, "0,0"))
    for name, method, factor, counts in (
        *arms,
        ("draft", "draft-simple", sums.speedup, f"{sums.drafted},{sums.accepted}"),
    ):
        for rep in range(5):
            rate = sums.baseline * factor * (1 + draw.gauss(0, 0.035))
            rows.append((name, method, rep, f"{rate:.3f}", counts))
    return _csv("name,method,rep,tok_s,drafted,accepted", rows)


def _draft_rates() -> str:
    rows = list[Sequence[object]]()
    for number, (name, cost, chance) in enumerate((("0.6B", 0.06, 0.6), ("1.7B", 0.12, 0.7), ("4B", 0.25, 0.78))):
        for gamma in (2, 4):
            sums = together(requests(World(220 + 10 * number + gamma, gamma, chance, draft_cost=cost)))
            rates = (f"{sums.baseline / cost:.0f}", f"{sums.baseline:.1f}", f"{sums.rate:.1f}")
            rows.append((name, gamma, *rates, f"{sums.speedup:.2f}x", f"{sums.acceptance:.1%}"))
    return markdown("Draft | n_max | draft t/s | Baseline t/s | Spec t/s | Speedup | Acceptance", rows)


def _machines() -> str:
    rows = list[Sequence[object]]()
    for number, (device, plain_ms) in enumerate((("RTX 4090", 16.0), ("RTX 3090", 22.0), ("M2 Ultra", 34.0))):
        sums = together(requests(World(250 + number, 3, 0.75, plain_ms=plain_ms)))
        plain, name = f"{device} plain", "14B Q4_K_M"
        rows.append((plain, device, name, "none", "", f"{sums.baseline:.2f}", "", ""))
        rates = (f"{sums.rate:.2f}", f"{sums.acceptance:.1%}")
        rows.append((f"{device} draft", device, name, "draft-simple", 3, *rates, plain))
    return _csv("label,device,target,method,gamma,tok_s,acceptance,compared_with", rows)


def _deviations() -> str:
    draw, rows = random.Random(260), list[Sequence[object]]()
    for number, gamma in enumerate((0, 2, 4, 8)):
        sums = together(requests(World(260 + number, max(1, gamma), 0.7)))
        rate = sums.rate if gamma else sums.baseline
        spread = rate * abs(draw.gauss(0.01, 0.004))
        rows.append((gamma, 5, f"{rate:.2f}", f"{spread:.2f}", f"{sums.acceptance:.1%}" if gamma else ""))
    return _csv("gamma,runs,tok_s,std_tok_s,acceptance", rows)


def _bench() -> str:
    draw, lines = random.Random(270), list[str]()
    for model, size, params, rate in (
        ("qwen3 8B Q4_K - Medium", "4.68 GiB", "8.19 B", 128.4),
        ("qwen3 14B Q4_K - Medium", "8.38 GiB", "14.77 B", 76.1),
        ("qwen3 32B Q4_K - Medium", "18.40 GiB", "32.76 B", 36.2),
    ):
        speed = rate * (1 + draw.gauss(0, 0.003))
        lines.append(f"| {model} | {size} | {params} | CUDA | 99 | tg128 | {speed:.2f} ± {0.004 * speed:.2f} |")
    return "\n".join(
        [
            "ggml_cuda_init: found 1 CUDA devices:",
            "  Device 0: NVIDIA GeForce RTX 3090, compute capability 8.6, VMM: yes",
            "| model | size | params | backend | ngl | test | t/s |",
            "| --- | ---: | ---: | --- | --: | ---: | ---: |",
            *lines,
            "",
        ]
    )


def _speculative_log() -> str:
    worlds = (World(150, 4, 0.6), World(151, 8, 0.8))
    return "\n".join(_speculative_run(requests(world)[0], world) for world in worlds)


def _speculative_run(request: Request, world: World) -> str:
    seconds, evaluated = round(request.ms / 1e3, 3), 24 + request.drafted + request.steps
    return "\n".join(
        [
            "encoded   24 tokens in    0.061 seconds, speed:  393.443 t/s",
            f"decoded {request.predicted:4d} tokens in {seconds:8.3f} seconds, "
            f"speed: {request.predicted / seconds:8.3f} t/s",
            "",
            f"n_draft   = {world.gamma}",
            f"n_predict = {request.predicted}",
            f"n_drafted = {request.drafted}",
            f"n_accept  = {request.accepted}",
            f"accept    = {100 * request.accepted / request.drafted:.3f}%",
            "",
            "draft:",
            "",
            "llama_perf_context_print:        load time =      83.20 ms",
            "",
            "target:",
            "",
            "llama_perf_context_print:        load time =     412.71 ms",
            f"llama_perf_context_print: prompt eval time = {request.ms:10.2f} ms / {evaluated:5d} tokens "
            f"({request.ms / evaluated:8.2f} ms per token, {1e3 * evaluated / request.ms:8.2f} tokens per second)",
            "llama_perf_context_print:        eval time =       0.00 ms /     1 runs   "
            "(    0.00 ms per token,      inf tokens per second)",
            "",
        ]
    )


def _server_log() -> str:
    lines = [
        "common_speculative_impl: adding speculative implementation 'draft-simple'",
        "common_speculative_impl: - n_max=5, n_min=0, p_min=0.000000",
    ]
    for number, request in enumerate(requests(World(160, 5, 0.7, prompts=4))):
        task = f"id  0 | task {100 * number} |"
        slot, decoded = f"slot print_timing: {task} ", request.predicted - 1
        lines += [
            f"slot launch_slot_: {task} processing task",
            f"{slot}prompt eval time =     120.00 ms /    40 tokens "
            "(    3.00 ms per token,   333.33 tokens per second)",
            f"{slot}       eval time = {request.ms:10.2f} ms / {request.predicted:5d} tokens "
            f"({request.ms / decoded:8.2f} ms per token, {1e3 * decoded / request.ms:8.2f} tokens per second)",
            f"{slot}      total time = {request.ms + 120:10.2f} ms / {request.predicted + 40:5d} tokens",
            f"{slot}draft acceptance = {request.accepted / request.drafted:.5f} ({request.accepted:5d} accepted / "
            f"{request.drafted:5d} generated), mean len = {1 + request.accepted / request.steps:5.2f}",
            f"slot      release: {task} stop processing: n_tokens = {request.predicted + 39}, truncated = 0",
        ]
    return "\n".join(lines) + "\n"


def _vllm_serve(speculative: bool) -> str:
    drawn = requests(World(170, 3, 0.72, per_token=0.01))
    sums = together(drawn)
    total = sums.ms if speculative else sums.plain_ms
    output = sum(request.predicted for request in drawn)
    seconds = total / 1e3 + 0.09 * len(drawn)
    item: dict[str, object] = {
        "date": "20260914-101512", "endpoint_type": "openai", "backend": "openai", "label": None,
        "model_id": "meta-llama/Llama-3.1-8B-Instruct", "num_prompts": len(drawn), "request_rate": "inf",
        "max_concurrency": 1, "duration": seconds, "completed": len(drawn), "failed": 0,
        "total_input_tokens": 512 * len(drawn), "total_output_tokens": output,
        "request_throughput": len(drawn) / seconds, "output_throughput": output / seconds,
        "total_token_throughput": (output + 512 * len(drawn)) / seconds,
        "mean_ttft_ms": 90.0, "mean_tpot_ms": total / sums.tokens,
        "mean_itl_ms": total / (sums.steps if speculative else sums.tokens),
    }  # fmt: skip
    if speculative:
        item |= {
            "spec_decode_acceptance_rate": 100 * sums.acceptance, "spec_decode_acceptance_length": sums.tau,
            "spec_decode_num_drafts": sums.steps, "spec_decode_draft_tokens": sums.drafted,
            "spec_decode_accepted_tokens": sums.accepted,
        }  # fmt: skip
    return json.dumps(item, indent=1) + "\n"


def _sglang() -> str:
    lines = list[str]()
    for number, (steps, nodes) in enumerate(((3, 4), (5, 16), (8, 60))):
        drawn = requests(World(180 + number, steps, 0.7, per_token=0.02))
        sums = together(drawn)
        output = sum(request.predicted for request in drawn)
        seconds = sums.ms / 1e3 + 0.05 * len(drawn)
        item = {
            "backend": "sglang", "dataset_name": "sharegpt", "max_concurrency": 1, "duration": seconds,
            "completed": len(drawn), "total_input_tokens": 300 * len(drawn), "total_output_tokens": output,
            "total_output_tokens_retokenized": output, "request_throughput": len(drawn) / seconds,
            "output_throughput": output / seconds, "mean_tpot_ms": sums.ms / sums.tokens, "concurrency": 1.0,
            "accept_length": sums.tau,
            "server_info": {
                "speculative_algorithm": "EAGLE3", "speculative_num_steps": steps,
                "speculative_eagle_topk": 1 if nodes == steps + 1 else 4, "speculative_num_draft_tokens": nodes,
            },
        }  # fmt: skip
        lines.append(json.dumps(item))
    return "\n".join(lines) + "\n"


def _aiperf() -> str:
    lines = list[str]()
    for request in requests(World(190, 5, 0.6)):
        counts = {str(length): request.lengths.count(length) for length in sorted(set(request.lengths))}
        record = {
            "metadata": {"session_num": 0, "x_request_id": request.name, "benchmark_phase": "profiling"},
            "metrics": {
                "output_sequence_length": {"value": request.predicted, "unit": "tokens"},
                "request_latency": {"value": request.ms + 90.0, "unit": "ms"},
                "time_to_first_token": {"value": 90.0, "unit": "ms"},
                "inter_token_latency": {"value": request.ms / (request.predicted - 1), "unit": "ms"},
            },
            "spec_decode_acceptance": {
                "engine": "vllm", "mean_acceptance_length": 1 + request.accepted / request.steps,
                "draft_acceptance_rate": request.accepted / request.drafted, "acceptance_histogram": counts,
                "num_accepted_draft_tokens": request.accepted, "num_draft_tokens": request.drafted,
                "num_spec_steps": request.steps, "num_spec_tokens": 5,
            },
        }  # fmt: skip
        lines.append(json.dumps(record))
    return "\n".join(lines) + "\n"


def _vllm_responses() -> str:
    lines = list[str]()
    for request in requests(World(200, 3, 0.65)):
        histogram = [request.lengths.count(length) for length in range(4)]
        response = {
            "id": f"chatcmpl-{request.name}", "object": "chat.completion", "model": "Qwen/Qwen3-8B", "choices": [],
            "usage": {"prompt_tokens": 42, "completion_tokens": request.predicted},
            "metrics": {
                "time_to_first_token_ms": 85.2, "generation_time_ms": request.ms, "queue_time_ms": 0.3,
                "mean_itl_ms": request.ms / (request.predicted - 1),
                "tokens_per_second": 1e3 * (request.predicted - 1) / request.ms,
                "speculative_decoding": {
                    "mean_acceptance_length": 1 + request.accepted / request.steps,
                    "draft_acceptance_rate": request.accepted / request.drafted, "acceptance_histogram": histogram,
                    "num_spec_steps": request.steps, "num_accepted_draft_tokens": request.accepted,
                    "num_draft_tokens": request.drafted, "num_spec_tokens": 3,
                },
            },
        }  # fmt: skip
        lines.append(json.dumps(response))
    return "\n".join(lines) + "\n"


def _spec_bench() -> str:
    rows = list[Sequence[object]]()
    methods = (("EAGLE", 5, 0.72), ("SpS", 4, 0.5), ("PLD", 10, 0.35), ("Lookahead", 4, 0.3))
    for number, (name, gamma, chance) in enumerate(methods):
        world = World(210 + number, gamma, chance, draft_cost=0.08 if name == "SpS" else 0.01, spread=0.3)
        tasks = [requests(replace(world, seed=world.seed + 17 * task)) for task in range(3)]
        overall = together([request for task in tasks for request in task])
        speedups = [f"{together(task).speedup:.2f}x" for task in tasks]
        rows.append((name, *speedups, f"{overall.tau:.2f}", f"**{overall.speedup:.2f}x**"))
    tasks = "Translation | Question Answering | Mathematical Reasoning"
    return markdown(f"Models | {tasks} | #Mean Accepted Tokens | Overall", rows, ":---:")


def _tree_widths() -> str:
    """k is how many branches each node has, not how deep the tree is."""
    rows = list[Sequence[object]]()
    for number, (name, width, depth, chance) in enumerate(
        (("EAGLE", 1, 5, 0.7), ("EAGLE", 2, 5, 0.78), ("EAGLE-2", 4, 6, 0.8), ("HASS", 2, 6, 0.84))
    ):
        sums = together(requests(World(220 + number, depth, chance, draft_cost=0.02, per_token=0.01)))
        rows.append((name, width, f"{sums.tau:.2f}", f"{sums.speedup:.2f}x"))
    return markdown("Method | K | τ | Speedup", rows)


def _open_lengths() -> str:
    """Methods that draft on while they verify go beyond the length that they start with."""
    rows = list[Sequence[object]]()
    for number, (name, said, longest, chance) in enumerate(
        (("SpS", 5, 5, 0.75), ("PEARL", 5, 24, 0.9), ("SVIP", 4, 10, 0.85), ("SuffixDecoding", 8, 32, 0.92))
    ):
        sums = together(requests(World(230 + number, longest, chance, draft_cost=0.01, per_token=0.01)))
        rows.append((name, said, f"{sums.tau:.2f}", f"{sums.speedup:.2f}x"))
    return markdown("Method | γ | τ | Speedup", rows)


def _own_tokens_counted() -> str:
    """Accepted tokens with the target's own of each step."""
    rows = list[Sequence[object]]()
    for number, gamma in enumerate((1, 2, 4)):
        sums = together(requests(World(240 + number, gamma, 0.85, draft_cost=0.02)))
        rows.append(("Llama-8B", gamma, sums.drafted, sums.accepted + sums.steps, sums.steps, f"{sums.speedup:.2f}"))
    return _csv("model,gamma,drafted,accepted,steps,speedup", rows)


def _unsaid_batches() -> str:
    """Forwards that serve 1, 8 and 32 requests, and no column that says so."""
    rows = list[Sequence[object]]()
    for number, size in enumerate((1, 8, 32)):
        drawn = requests(World(250 + number, 4, 0.6, prompts=size))
        sums = together(drawn)
        forwards = max(request.steps for request in drawn)
        rows.append((4, sums.tokens + size, forwards, sums.drafted, sums.accepted))
    return _csv("gamma,tokens,target_forwards,n_drafted,n_accepted", rows)


def _end_to_end(times: bool) -> str:
    """A speedup of whole runs beside rates of decoding alone; with or without the times that show it."""
    rows = list[Sequence[object]]()
    for number, prompt_ms in enumerate((300.0, 4000.0, 12_000.0)):
        drawn = requests(World(260 + number, 4, 0.85, prompts=1, draft_cost=0.02))
        sums = together(drawn)
        whole = prompt_ms + sums.ms
        speedup = f"{(prompt_ms + sums.plain_ms) / whole:.3f}"
        row = (f"{1 + number}", f"{sums.baseline:.2f}", f"{sums.rate:.2f}", f"{sums.tau:.3f}", speedup)
        rows.append((*row, f"{prompt_ms:.1f}", sums.tokens, f"{whole:.1f}") if times else row)
    more = ",prompt_ms,predicted_n,wall_ms" if times else ""
    return _csv(f"prompt,baseline_tps,decode_tps,tau,walltime_speedup{more}", rows)


MEAN = "speedup and acceptance are computed alike: one of them is a mean over prompts"
FORWARDS = "a forward pass over n tokens costs at least as much as one over a single token"
ONE_REQUEST = "requests are served one at a time"
ONE_WINDOW = "a row's rate and its speedup are of the same part of the run"
SIMULATED = (
    Simulated(
        "mean-of-speedups.csv",
        "mean of per-prompt speedups beside pooled acceptance",
        _mean_of_speedups,
        MEAN,
        expect="cannot tell",
    ),
    Simulated(
        "mean-of-acceptance.md",
        "pooled speedup beside a mean of acceptance",
        _mean_of_acceptance,
        MEAN,
        expect="cannot tell",
    ),
    Simulated("trees.md", "trees: share of nodes and tokens per step", _trees),
    Simulated(
        "tree-share.csv", "trees: share of nodes alone, called acceptance_rate", _tree_share_alone, expect="cannot tell"
    ),
    Simulated("mean-accepted-tokens.json", "mean_accepted_tokens per step", _mean_accepted_tokens),
    Simulated(
        "length-without-bonus.csv",
        "acceptance_length without the target's own token",
        _length_without_bonus,
        expect="cannot tell",
    ),
    Simulated("plain-against-plain.csv", "rows that drafted nothing, noise of 4 %", _plain_against_plain),
    Simulated("cpu-kernel.md", "T(2) = 0.7 T(1)", _cpu_kernel, FORWARDS, expect="cannot tell"),
    Simulated("batches.md", "several requests at once", _batches),
    Simulated("adaptive-lengths.csv", "draft lengths adapted by the engine", _adaptive_lengths),
    Simulated(
        "share-of-output.md", "share of the output that came from the draft", _share_of_output, expect="cannot tell"
    ),
    Simulated("merged-cells.md", "merged cells, centred rules, `off`", _merged_cells),
    Simulated("repeats.csv", "five repeats of each arm, noise of 3.5 %", _repeats),
    Simulated("draft-rates.md", "rates of the draft by itself", _draft_rates),
    Simulated("machines.csv", "three machines, each with its baseline", _machines),
    Simulated("deviations.csv", "means of five runs with their deviation", _deviations),
    Simulated("llama-bench.md", "llama-bench in Markdown with its device", _bench),
    Simulated("llama-speculative.log", "two runs of llama-speculative", _speculative_log),
    Simulated("llama-server.log", "four requests of llama-server", _server_log, expect="cannot tell"),
    Simulated("vllm-serve-plain.json", "vllm bench serve, plain", lambda: _vllm_serve(False), expect="cannot tell"),
    Simulated(
        "vllm-serve-eagle3.json", "vllm bench serve, speculative", lambda: _vllm_serve(True), expect="cannot tell"
    ),
    Simulated("sglang-serving.jsonl", "sglang.bench_serving, chains and trees", _sglang, expect="cannot tell"),
    Simulated("aiperf-records.jsonl", "AIPerf's records", _aiperf, expect="cannot tell"),
    Simulated("vllm-responses.jsonl", "vLLM's per-request metrics", _vllm_responses, expect="cannot tell"),
    Simulated("spec-bench.md", "Spec-Bench's table", _spec_bench),
    Simulated("tree-widths.md", "trees: k is their width", _tree_widths),
    Simulated("open-lengths.md", "drafts longer than the length that is printed", _open_lengths),
    Simulated("own-tokens.csv", "accepted tokens with the target's own", _own_tokens_counted),
    Simulated("unsaid-batches.csv", "several requests at once, unsaid", _unsaid_batches, ONE_REQUEST),
    Simulated("end-to-end.csv", "speedup end to end beside decode rates", lambda: _end_to_end(False), ONE_WINDOW),
    Simulated("end-to-end-times.csv", "the same with its times", lambda: _end_to_end(True)),
)
"""One file per shape; `known_false` names the assumption that does not hold there: such a file may be called
`implausible`, never `impossible`."""
