"""Quantization, speculation and remote drafts on three Apple machines: drafts said to pay from a speed ratio of 2.5 on.

Three things have to be known to read these numbers.

*The rate.* `eff_tps` is what the perf block of the target prints as its total: tokens it evaluated, the prompt's and
those of rejected drafts among them, over the life of the context, loading of the draft included. The log of 9B and
0.8B on the prompt `math` prints 221 tokens in 4123.50 ms, and its row 53.595 tok/s; generation itself is printed as
61.356. Where a run's log or its total is not there, the time follows from the rate and the tokens of the same prompt.

*The failures.* Four raw logs were published. Their counters say, to the unit, that 40 target verifications took place
in each, of 150 to 177 (see `specmeter.audit.read.llama_speculative`); rows of the same runs carry that here.

*The remote drafts.* The first rows of remote drafts ran locally: one of their logs says that the remote machine was
not reached. The source says so itself and measured again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from specmeter.audit.claim import Claim
from specmeter.audit.published.table import Row, half_digit, rows
from specmeter.audit.read.llama_speculative import Counters

_ULTRA: dict[str, Any] = {"device": "M2 Ultra", "bandwidth_bytes_per_s": 800e9}
_BANDWIDTH = {"M2 Ultra": 800e9, "M1 Max": 400e9, "M2 Pro": 200e9}
_MACHINES = {
    "M2Ultra_192GB": "M2 Ultra",
    "M2_Ultra_192GB": "M2 Ultra",
    "M1_Max_32GB": "M1 Max",
    "M2_Pro_32GB": "M2 Pro",
}

_BASELINES = {"9B": "42.42", "4B": "54.02", "35B": "55.2"}
"""Targets by themselves on the M2 Ultra, as the study's own comparison takes them [tok/s]."""
_DRAFTS = {"0.8B_Q8": 140.19, "2B_Q8": 110.62, "4B_Q2": 72.77, "4B_Q3": 68.75, "4B_Q4": 58.47, "4B_Q6": 61.98}
"""Drafts by themselves there [tok/s]."""
_THERE = {"103_M1Max": 86.62, "104_M2Pro": 62.94}
"""The 0.8B draft by itself on the remote machines [tok/s]."""
_PROMPT_TOKENS = {"code": 27, "text": 10, "math": 20}
"""Evaluated in total for 201 generated: 228, 211 and 221, of which one is the counter's own."""
_GENERATED = 201
"""Tokens beside the prompt's in that total, whatever was drafted."""

_MOE: dict[str, Any] = {"experts": 256, "size_bytes": 36.04e9, "bytes_per_token": 36.04e9 * 3 / 35}
"""Q8_0 of 35B-A3B; about 3 of its 35 billion parameters are active per token."""


def claims() -> Iterator[Claim]:
    """Tables of the project's page, then benchmarks, runs and logs of its data."""
    yield from _page_quant()
    yield from _page_speculation()
    yield from _page_devices()
    yield from _page_cross()
    yield from _bench()
    yield from _mlx()
    yield from _devices()
    yield from _multimodel()
    yield from _sd_runs()
    yield from _cross_first()
    yield from _cross_again()
    yield from _logs()


# --- tables of the page ----------------------------------------------------------------------------------------------


def _page_quant() -> Iterator[Claim]:
    for number, row in enumerate(rows("apple_page_quant.csv"), start=1):
        yield Claim(
            source="apple/page",
            row=f"quantization, row {number}",
            label=f"4B {row['quant']}",
            method="none",
            decode_rate=float(row["tg_tok_s"]),
            size_bytes=float(row["size_gb"]) * 1e9,
            experts=0,
            rounding={"decode_rate": half_digit(row["tg_tok_s"]), "size_bytes": half_digit(row["size_gb"], 1e9)},
            notes=(f"perplexity {row['perplexity']}",),
            **_ULTRA,
        )


def _page_speculation() -> Iterator[Claim]:
    number: dict[str, int] = {}
    for row in rows("apple_page.csv"):
        table = row["table"]
        number[table] = number.get(table, 0) + 1
        target, draft = row["target"].split()[0], row["draft"].replace(" ", "_")
        baseline = row["baseline"] or _BASELINES[target]
        rounding = {
            "decode_rate": half_digit(row["tok_s"]),
            "speedup": half_digit(row["change_percent"], 0.01),
            "speed_ratio": half_digit(row["ratio"]),
            "baseline_rate": half_digit(baseline),
        }
        acceptance = None
        if row["acceptance_percent"]:
            acceptance = float(row["acceptance_percent"]) / 100
            rounding["acceptance"] = half_digit(row["acceptance_percent"], 0.01)
        yield Claim(
            source="apple/page",
            row=f"{table}, row {number[table]}",
            label=f"{row['target']}, {row['draft']} draft, gamma {row['gamma']}",
            method="draft-simple",
            gamma=int(row["gamma"]),
            decode_rate=float(row["tok_s"]),
            baseline_rate=float(baseline),
            draft_rate=_DRAFTS[draft],
            speed_ratio=float(row["ratio"]),
            speedup=1 + float(row["change_percent"]) / 100,
            acceptance=acceptance,
            runs=3,
            window="with prompt",
            rounding=rounding,
            **_ULTRA,
        )


def _page_devices() -> Iterator[Claim]:
    for number, row in enumerate(rows("apple_page_devices.csv"), start=1):
        bandwidth = float(row["memory_gb_s"]) * 1e9
        yield Claim(
            source="apple/page",
            row=f"machines, row {number}",
            label=f"9B Q8 on {row['machine']}",
            method="none",
            device=row["machine"],
            decode_rate=float(row["tg_tok_s"]),
            size_bytes=12.97e9,
            experts=0,
            bandwidth_bytes_per_s=bandwidth,
            claimed_bandwidth_bytes_per_s=float(row["bandwidth_use_percent"]) / 100 * bandwidth,
            rounding={
                "decode_rate": half_digit(row["tg_tok_s"]),
                "size_bytes": 0.005e9,
                "claimed_bandwidth_bytes_per_s": half_digit(row["bandwidth_use_percent"], bandwidth / 100),
            },
        )


def _page_cross() -> Iterator[Claim]:
    for number, row in enumerate(rows("apple_page_cross.csv"), start=1):
        yield Claim(
            source="apple/page",
            row=f"remote drafts, row {number}",
            label=f"9B Q8, 0.8B Q8 draft on {row['draft_on']}, gamma 4",
            method="draft-simple",
            gamma=4,
            decode_rate=float(row["tok_s"]),
            baseline_rate=float(_BASELINES["9B"]),
            draft_rate=float(row["draft_tok_s"]),
            draft_elsewhere=number > 1,
            runs=3,
            window="with prompt",
            rounding={
                "decode_rate": half_digit(row["tok_s"]),
                "baseline_rate": half_digit(_BASELINES["9B"]),
                "draft_rate": half_digit(row["draft_tok_s"]),
            },
            notes=("the page compares with the local draft, not with plain decoding",),
            **_ULTRA,
        )


# --- plain decoding --------------------------------------------------------------------------------------------------


def _bench() -> Iterator[Claim]:
    for number, row in enumerate(rows("apple_bench.csv"), start=2):
        machine = _MACHINES[row["machine"]]
        common: dict[str, Any] = {
            "source": "apple/bench.csv",
            "row": f"bench, line {number}",
            "label": row["model_label"],
            "method": "none",
            "device": machine,
            "bandwidth_bytes_per_s": _BANDWIDTH[machine],
            "size_bytes": float(row["model_size_bytes"]),
            "experts": 0,
            "runs": 4,
            "notes": (f"standard deviation {float(row['stddev_tps']):.2f} tok/s",),
        }
        total_ms = float(row["avg_ns"]) / 1e6
        if row["n_gen"] == "0":
            yield Claim(prompt_n=int(row["n_prompt"]), prompt_ms=total_ms, **common)
        else:
            yield Claim(decode_rate=float(row["avg_tps"]), decode_rate_sd=float(row["stddev_tps"]), **common)


def _mlx() -> Iterator[Claim]:
    for number, row in enumerate(rows("apple_mlx.csv"), start=2):
        yield Claim(
            source="apple/mlx.csv",
            row=f"mlx, line {number}",
            label=f"{row['model']} (MLX)",
            method="none",
            decode_rate=float(row["avg_tps"]),
            size_bytes=float(row["size_mb"]) * 1e6,
            experts=0,
            rounding={"decode_rate": half_digit(row["avg_tps"]), "size_bytes": half_digit(row["size_mb"], 1e6)},
            notes=(f"standard deviation {row['std_tps']} tok/s",),
            **_ULTRA,
        )


def _devices() -> Iterator[Claim]:
    for number, row in enumerate(rows("apple_devices.csv"), start=2):
        bandwidth = float(row["memory_bw_gbs"]) * 1e9
        yield Claim(
            source="apple/devices.csv",
            row=f"devices, line {number}",
            label=f"9B Q8 on {row['chip']}",
            method="none",
            device=row["chip"],
            decode_rate=float(row["tg_tps"]),
            size_bytes=12974040288.0,
            experts=0,
            bandwidth_bytes_per_s=bandwidth,
            claimed_bandwidth_bytes_per_s=float(row["tg_bw_util_pct"]) / 100 * bandwidth,
            rounding={
                "decode_rate": half_digit(row["tg_tps"]),
                "claimed_bandwidth_bytes_per_s": half_digit(row["tg_bw_util_pct"], bandwidth / 100),
            },
            notes=("the page prints other shares of the bandwidth for the same rates",),
        )


def _multimodel() -> Iterator[Claim]:
    sizes = {"0.8B Q8_0": 1186443520.0, "2B Q8_0": 2834940160.0, "9B Q8_0": 12974040288.0}
    for number, row in enumerate(rows("apple_multimodel.csv"), start=2):
        machine = _MACHINES[row["machine"]]
        size: dict[str, Any] = _MOE
        if row["model"] in sizes:
            size = {"experts": 0, "size_bytes": sizes[row["model"]]}
        yield Claim(
            source="apple/multimodel.csv",
            row=f"multimodel, line {number}",
            label=f"{row['model']} on {machine}",
            method="none",
            device=machine,
            bandwidth_bytes_per_s=_BANDWIDTH[machine],
            decode_rate=float(row["tg_tps"]),
            rounding={"decode_rate": half_digit(row["tg_tps"])},
            **size,
        )


# --- speculation -----------------------------------------------------------------------------------------------------


def _sd_runs() -> Iterator[Claim]:
    logs = {(row["log"].rpartition("_k")[0], row["n_drafted"], row["n_accept"]): row for row in rows("apple_logs.csv")}
    for number, row in enumerate(rows("apple_sd_runs.csv"), start=2):
        log = logs.get((f"sd_{row['target']}_{row['draft']}", row["n_drafted"], row["n_accept"]))
        values = _run(row, row["prompt_type"], f"sd_runs, line {number}", log)
        yield Claim(
            draft_rate=_DRAFTS[row["draft"]],
            label=f"{row['target']}, {row['draft']} draft, gamma {row['draft_k']}, {row['prompt_type']}",
            **values,
        )


def _cross_first() -> Iterator[Claim]:
    logs = {row["log"]: row for row in rows("apple_logs.csv")}
    for number, row in enumerate(rows("apple_cross_first.csv"), start=2):
        where, prompt = row["rpc_backend"], row["prompt_type"]
        label = f"{row['target']}, {row['draft']} draft on {where}, gamma {row['draft_k']}, {prompt}"
        if not row["n_drafted"]:
            yield Claim(
                source="apple/cross_first.csv",
                row=f"cross_first, line {number}",
                label=label,
                problem="the source has no values",
            )
            continue
        log = logs.get(f"crossdevice_{where}_{row['draft']}_{prompt}")
        values = _run(row, prompt, f"cross_first, line {number}", log)
        if where in _THERE:
            values["notes"] += ("the source found later that this draft ran locally",)
        draft_rate = _THERE.get(where, _DRAFTS[row["draft"]])
        yield Claim(draft_rate=draft_rate, draft_elsewhere=where in _THERE, label=label, **values)


def _cross_again() -> Iterator[Claim]:
    for number, row in enumerate(rows("apple_cross_again.csv"), start=2):
        where, prompt, total_ms = row["rpc_backend"], row["prompt"], float(row["total_ms"])
        values = _run({**row, "target": "9B_Q8", "draft_k": "4"}, prompt, f"cross_again, line {number}", None)
        values |= {"wall_ms": total_ms, "notes": ()}
        if prompt == "math":
            evaluated = int(row["total_tokens"]) - 1 - _PROMPT_TOKENS[prompt]
            values["target_forwards"] = evaluated // (4 + 1)
            values["notes"] = (
                f"of {row['total_tokens']} tokens in total the counter adds one and 20 are the prompt's, as a log of "
                f"the same prompt says: {evaluated} tokens in verifications of 5",
            )
        values["rounding"] |= {"decode_rate": half_digit(row["eff_tps"]), "wall_ms": half_digit(row["total_ms"])}
        yield Claim(
            draft_rate=float(row["draft_tps_via_rpc"] or _DRAFTS["0.8B_Q8"]),
            draft_elsewhere=where in _THERE,
            label=f"9B_Q8, 0.8B_Q8 draft on {where}, gamma 4, {prompt}",
            **values,
        )


def _run(row: Row, prompt: str, place: str, log: Row | None) -> dict[str, Any]:
    """A run as its row has it, with what its log adds. It generated rounds + accepted + 1 tokens: 201, seldom 202."""
    file = place.partition(", ")[0]
    gamma, drafted, accepted = int(row["draft_k"]), int(row["n_drafted"]), int(row["n_accept"])
    rate, target = float(row["eff_tps"]), row["target"].partition("_")[0]
    total = _PROMPT_TOKENS[prompt] + _GENERATED
    values: dict[str, Any] = {
        "source": f"apple/{file}.csv",
        "row": place,
        "method": "draft-simple",
        "gamma": gamma,
        "runs": 1,
        "decode_rate": rate,
        "baseline_rate": float(_BASELINES[target]),
        "acceptance": float(row["accept_rate"]),
        "drafted": drafted,
        "accepted": accepted,
        "steps": drafted // gamma,
        "predicted_n": drafted // gamma + accepted + 1,
        "prompt_n": _PROMPT_TOKENS[prompt],
        "wall_ms": 1000.0 * total / rate,
        "window": "with prompt",
        "rounding": {
            "baseline_rate": half_digit(_BASELINES[target]),
            "acceptance": 0.5e-4,
            "wall_ms": 1000.0 / rate,
        },
        "notes": (f"time of the run from {total} tokens at the printed rate",),
        **_ULTRA,
    }
    if log is not None:
        fields, notes = _took_place(log)
        values |= fields
        values["notes"] = (f"raw log {log['log']}", *notes)
        values["wall_ms"] = float(log["target_total_ms"])
        values["rounding"]["wall_ms"] = half_digit(log["target_total_ms"])
    return values


def _logs() -> Iterator[Claim]:
    """The raw logs themselves: what the program printed as its own rate."""
    for row in rows("apple_logs.csv"):
        fields, notes = _took_place(row)
        target = next(name for name in _BASELINES if f"-{name}-" in row["target"])
        words, repeated = int(row["words"]), int(row["words_repeated"])
        notes += (f"the text repeats itself: about {repeated / words:.0%} of its words equal the word before",)
        if row["connect_failed"] != "0":
            notes += ("Failed to connect to the remote machine: the draft ran locally",)
        accepted, drafted = int(row["n_accept"]), int(row["n_drafted"])
        yield Claim(
            source="apple/logs.csv",
            row=row["log"],
            label=f"{row['target']} + {row['draft']}",
            method="draft-simple",
            runs=1,
            gamma=int(row["n_draft"]),
            decode_rate=float(row["decoded_tok_s"]),
            baseline_rate=float(_BASELINES[target]),
            acceptance=accepted / drafted,
            drafted=drafted,
            accepted=accepted,
            steps=int(row["n_predict"]) - 1 - accepted,
            predicted_n=int(row["n_predict"]),
            predicted_ms=float(row["decoded_s"]) * 1000,
            prompt_n=int(row["encoded_tokens"]),
            prompt_ms=float(row["encoded_s"]) * 1000,
            window="all tokens",
            rounding={
                "decode_rate": half_digit(row["decoded_tok_s"]),
                "baseline_rate": half_digit(_BASELINES[target]),
                "predicted_ms": 0.5,
                "prompt_ms": 0.5,
            },
            notes=notes,
            **_ULTRA,
            **fields,
        )


def _took_place(row: Row) -> tuple[dict[str, Any], tuple[str, ...]]:
    counters = Counters(
        predicted_n=int(row["n_predict"]),
        accepted=int(row["n_accept"]),
        drafted=int(row["n_drafted"]),
        prompt_n=int(row["encoded_tokens"]),
        failures=int(row["failed_decodes"]),
        target_evaluated=int(row["target_prompt_tokens"]) + int(row["target_single_tokens"]),
        target_graphs_reused=int(row["target_graphs_reused"]),
        draft_evaluated=int(row["draft_prompt_tokens"]) + int(row["draft_single_tokens"]),
    )
    fields, notes = counters.forwards()
    return {**fields}, notes
