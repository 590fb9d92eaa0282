"""The columns that tables of results may have: one list, from which the reader, `--help` and the documentation derive.

Names are compared in lower case, without markup, units and characters of other scripts than Latin and Greek. A unit may
stand in the name (`size_gb`), in parentheses (`Size (GB)`), or behind each number.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Kind = Literal[
    "text",
    "rate",
    "spread",
    "ratio",
    "change",
    "share",
    "count",
    "time",
    "interval",
    "bytes",
    "bandwidth",
    "tau",
    "per_step",
    "flag",
]


@dataclass(frozen=True)
class Column:
    """One thing that a column may hold."""

    name: str
    kind: Kind
    aliases: tuple[str, ...]
    meaning: str


def _column(name: str, kind: Kind, meaning: str, aliases: str) -> Column:
    return Column(name, kind, tuple(aliases.split()), meaning)


COLUMNS = (
    _column("label", "text", "what the row is called", "name config configuration arm id job_id variant"),
    _column("target", "text", "the model that is decoded", "target_model model model_label main_model quant"),
    _column("architecture", "text", "what the model is, as llama.cpp calls it", "model_type arch"),
    _column("draft", "text", "the draft model, or none", "draft_model drafter speculator assistant assistant_model"),
    _column("method", "text", "how drafts are made, or none",
            "spec_type spec_method speculative speculation algorithm decoding"),
    _column("device", "text", "machine or GPU", "machine gpu chip hardware accelerator gpu_info"),
    _column("engine", "text", "what ran the model", "framework backend runtime"),
    _column("reference", "text", "label of the row that is the baseline of this one",
            "baseline_of baseline_label compared_with"),
    _column("speedup", "ratio", "over plain decoding of the same target: `1.26x` or `+26%`",
            "speed_up speedup_vs_baseline sd_speedup x_baseline"),
    _column("change", "change", "the same as a change: `+26%`, `-2.8%`",
            "vs_baseline delta gain improvement pooled_delta relative_change"),
    _column("decode_rate", "rate", "tokens generated per second",
            "tok_s t_s tps tokens_s tok_per_s tokens_per_s tokens_per_sec tok_per_sec tokens_per_second "
            "decode_tps decode_tok_s eval_tps eff_tps generation_tps tg tg_tok_s tg_tps tg128 throughput "
            "output_throughput predicted_per_second pooled_tok_s sd_tps sd_tok_s speed"),
    _column("decode_rate_sd", "spread", "standard deviation of the rates that the row averages",
            "std_tps stddev_tps std_tok_s stddev_ts tps_std tok_s_std"),
    _column("ms_per_token", "interval", "time per generated token, where no rate is given",
            "eval_ms_per_token tpot itl time_per_token"),
    _column("baseline_rate", "rate", "tokens per second of the target by itself",
            "baseline baseline_tps baseline_tok_s base_tps base_tok_s target_tps target_tok_s vanilla_tps ar_tps"),
    _column("draft_rate", "rate", "tokens per second of the draft by itself", "draft_tps draft_tok_s draft_speed"),
    _column("speed_ratio", "ratio", "draft rate / target rate", "ratio draft_target_ratio draft_speed_ratio"),
    _column("gamma", "count", "most draft tokens per step; 0 for a baseline",
            "γ k draft_len draft_length draft_k draft_max draft_n_max spec_draft_n_max n_draft num_draft_tokens "
            "num_speculative_tokens speculation_length lookahead"),
    _column("p_min", "share", "drafting stops when the draft is less sure than this; not given: it never stops early",
            "draft_p_min spec_draft_p_min"),
    _column("acceptance", "share", "accepted / drafted tokens",
            "acceptance_rate accept_rate accept acc_rate alpha α draft_acceptance draft_acceptance_rate "
            "token_acceptance_rate"),
    _column("tau", "tau", "tokens emitted per target forward, its own included",
            "τ accept_length acceptance_length accept_len acc_length mat tokens_per_step tokens_per_forward "
            "block_efficiency"),
    _column("accepted_per_step", "per_step", "draft tokens accepted per step, the target's own not included",
            "accepted_per_round accepted_tokens_per_step"),
    _column("drafted", "count", "tokens drafted",
            "n_drafted draft_n drafted_tokens draft_tokens num_drafted proposed_tokens counted_draft_tokens"),
    _column("accepted", "count", "draft tokens accepted",
            "n_accept n_accepted draft_n_accepted accepted_tokens num_accepted num_accepted_tokens "
            "counted_draft_accepted"),
    _column("steps", "count", "draft-then-verify rounds", "rounds n_steps verify_steps num_drafts"),
    _column("target_forwards", "count", "successful target forwards after the prompt",
            "n_decode forwards target_calls"),
    _column("failed_forwards", "count", "target forwards that failed", "failed_decodes decode_failures"),
    _column("predicted_n", "count", "tokens generated, the first included",
            "n_gen generated generated_tokens n_generated tokens_generated output_tokens completion_tokens tokens"),
    _column("predicted_ms", "time", "time for them",
            "predicted eval decode generation decode_time eval_time generation_time ns"),
    _column("prompt_n", "count", "tokens of the prompt", "n_prompt prompt_tokens input_tokens"),
    _column("prompt_ms", "time", "time for the prompt", "prompt_eval prompt_time prefill prefill_time"),
    _column("wall_ms", "time", "time of the whole run", "wall wall_time duration elapsed elapsed_time total_time"),
    _column("bytes_per_token", "bytes", "weights that one token reads: the active ones", "active_bytes active_size"),
    _column("size_bytes", "bytes", "the model file", "size model_size file_size"),
    _column("bandwidth", "bandwidth", "peak memory bandwidth of the device",
            "bw mem_bw memory_bandwidth peak_bandwidth"),
    _column("claimed_bandwidth", "bandwidth", "memory traffic that the source itself computes",
            "effective_bandwidth achieved_bandwidth effective_throughput"),
    _column("experts", "count", "experts per layer; 0 for a dense model", "n_experts num_experts"),
    _column("runs", "count", "generations that the row sums up or averages",
            "n_runs requests n_requests num_requests n_samples"),
    _column("concurrency", "count", "requests served at once", "max_concurrency batch_size clients parallel"),
    _column("synthetic", "flag", "acceptance was decided by dice: yes or no", "synthetic_acceptance"),
)  # fmt: skip

CONDITIONS = (
    "prompt", "prompt_key", "prompt_type", "workload", "task", "dataset", "category", "kind", "language",
    "max_tokens", "n_predict", "temperature", "kv_type", "context", "n_ctx", "n_depth", "suite", "rpc_backend",
)  # fmt: skip
"""Columns that say under what conditions a row was measured; they choose its baseline among several, nothing else."""

_BY_NAME = {alias: column for column in COLUMNS for alias in (column.name, *column.aliases)}
_UNITS = {
    "pct": "%", "percent": "%", "ms": "ms", "s": "s", "sec": "s", "seconds": "s", "us": "us", "ns": "ns",
    "bytes": "b", "kb": "kb", "mb": "mb", "gb": "gb", "kib": "kib", "mib": "mib", "gib": "gib", "gb_s": "gb/s",
    "gbs": "gb/s", "gbps": "gb/s", "x": "x",
}  # fmt: skip
_SUFFIXES = sorted(_UNITS, key=len, reverse=True)
_MEANS = ("mean_", "avg_", "average_")
_LIMIT = 200


@dataclass(frozen=True)
class Heading:
    """A heading of a table, understood."""

    name: str
    """Of a `Column`, or a condition."""
    column: Column | None
    """None for a condition."""
    unit: str
    """Lower case; empty where the heading says none."""


def understand(text: str) -> Heading | None:
    """What a heading means, None where it is not known."""
    for name, unit in _readings(*_plain(text)):
        if name in _BY_NAME:
            known = _BY_NAME[name]
            return Heading(known.name, known, "" if known.kind == "rate" else unit)
        if name in CONDITIONS:
            return Heading(name, None, "")
    return None


def column(name: str) -> Column | None:
    """The column of that name or alias."""
    return _BY_NAME.get(name)


def _plain(text: str) -> tuple[list[str], str]:
    """Lower-case words, and the unit that stood in parentheses or as a percent sign."""
    text = re.sub(r"[^\x20-\x7eαγτ]", " ", text[:_LIMIT].replace("‑", "-"))
    units = re.findall(r"[(\[]\s*([^)\]]{0,24}?)\s*[)\]]", text)
    text = re.sub(r"[(\[][^)\]]*[)\]]", " ", text)
    unit = next((unit.replace(" ", "").lower() for unit in units if unit), "")
    if "%" in text or "%" in unit:
        unit = "%"
    words = re.findall(r"[a-z0-9αγτ.]+", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text).lower())
    return words, unit


def _readings(words: list[str], unit: str) -> list[tuple[str, str]]:
    """(name, unit) in the order in which they are tried: as it is, without a unit at its end, without `mean_`.

    Headings in two languages often repeat themselves (`Avg TPS平均 TPS`): a name whose words come again is tried too.
    """
    found: list[tuple[str, str]] = []
    for end in range(len(words), 0, -1):
        if not set(words[end:]) <= set(words[:end]):
            break
        plain = "_".join(words[:end])
        forms = [plain, *(plain.removeprefix(prefix) for prefix in _MEANS if plain.startswith(prefix))]
        for form in forms:
            suffix = next((suffix for suffix in _SUFFIXES if form == suffix or form.endswith("_" + suffix)), None)
            implied = unit or (_UNITS[suffix] if suffix else "")
            found.append((form, implied))
            if suffix and form != suffix:
                found.append((form.removesuffix("_" + suffix), implied))
    return found


def table_of_columns() -> str:
    """The columns as a Markdown table, for the documentation."""
    lines = ["| column | also | meaning |", "|---|---|---|"]
    lines += [
        f"| `{item.name}` | {', '.join(f'`{alias}`' for alias in item.aliases)} | {item.meaning} |" for item in COLUMNS
    ]
    return "\n".join(lines)
