"""The columns that tables of results may have: one list, from which the reader, `--help` and the documentation derive.

Names are compared in lower case, without markup and units; however a rate is written (`tok/s`, `toks/s`, `t/s`, `tokens
per second`, `TPS`), it is `tps` here. Chinese headings are put into the same words first (`in_english`). A unit may
stand in the name (`size_gb`), in parentheses (`Size (GB)`), or behind each number.

A heading may also say of *what* its column speaks: of a data set (`HumanEval Speedup`, or `HumanEval` above `Speedup`),
or of a method beside others (`DFlash t/s`). That is its group (`in_group`); each group of a row is a claim of its own.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

Kind = Literal[
    "text", "rate", "spread", "ratio", "change", "share", "count", "time", "interval", "bytes", "bandwidth", "tau",
    "length", "per_step", "value", "flag",
]  # fmt: skip


@dataclass(frozen=True)
class KnownColumn:
    """One thing that a column may hold."""

    name: str
    kind: Kind
    aliases: tuple[str, ...]
    meaning: str
    """Empty: what its name says."""
    of_row: bool = False
    """True of the whole row, whatever its groups are."""


def _column(name: str, kind: Kind, meaning: str, aliases: str, *, of_row: bool = False) -> KnownColumn:
    return KnownColumn(name, kind, tuple(aliases.split()), meaning, of_row or kind in {"text", "flag"})


COLUMNS = (
    _column("label", "text", "",
            "name config configuration arm arm_id id job_id variant setup stage"),
    _column("target", "text", "",
            "target_model model models model_label main_model base_model llm"),
    _column("quant", "text", "", "quantization quantisation precision dtype"),
    _column("architecture", "text", "", "model_type arch"),
    _column("draft", "text", "", "draft_model drafter speculator assistant assistant_model"),
    _column("method", "text", "",
            "methods spec spec_type spec_method speculative speculation algorithm decoding spec_mode spec_decode"),
    _column("device", "text", "", "machine gpu card chip hardware accelerator gpu_info gpu_name"),
    _column("engine", "text", "", "framework backend runtime inference_engine"),
    _column("reference", "text", "label of the baseline's row",
            "baseline_of baseline_label compared_with"),
    _column("source_document", "text", "source of the row", ""),
    _column("source_place", "text", "place there: `Table 5, row 3`", ""),
    _column("claim_notes", "text", "notes, separated by a bar", ""),
    _column("rate_window", "text", "tokens the rate counts: `all tokens`, `all but the first`, `with prompt`", ""),
    _column("speedup", "ratio", "over the baseline: `1.26x` or `+26%`",
            "speed_up speedup_vs_baseline speedup_over_baseline speedup_vs_ar speedup_over_ar speedup_vs_vanilla "
            "speedup_vs_no_draft speedup_over_no_draft speedup_vs_no_spec speedup_vs_plain "
            "sd_speedup decode_speedup speedup_ratio speedup_factor walltime_speedup wall_time_speedup "
            "wall_clock_speedup x_baseline acceleration"),
    _column("change", "change", "as a change: `+26%`, `-2.8%`",
            "vs_baseline vs_base vs_ar vs_vanilla vs_plain vs_no_draft vs_no_spec delta gain improvement uplift impact "
            "performance_impact pooled_delta decode_delta tps_delta relative_change"),
    _column("decode_rate", "rate", "tokens generated per second",
            "tps decode_tps eval_tps eff_tps effective_tps generation_tps gen_tps predicted_tps pred_tps output_tps "
            "tg tg_tps tg128 throughput throughput_tps output_throughput predicted_per_second pooled_tps "
            "tps_mean_std speed decode_speed decoding_speed generation_speed gen_speed output_speed"),
    _column("decode_rate_sd", "spread", "",
            "std_tps stddev_tps stddev_ts tps_std tps_stddev tps_sd tg_std"),
    _column("ms_per_token", "interval", "",
            "eval_ms_per_token ms_token ms_tok tpot time_per_token time_per_output_token "
            "latency_per_token token_latency"),
    _column("baseline_ms_per_token", "interval", "without speculation", "", of_row=True),
    _column("inter_token_latency", "interval",
            "between chunks of a stream; read only without speculation",
            "itl"),
    _column("baseline_rate", "rate", "tokens per second without speculation",
            "baseline", of_row=True),
    _column("draft_rate", "rate", "tokens per second of the draft model alone",
            "draft_tps draft_speed draft_only_tps draft_alone_tps", of_row=True),
    _column("speed_ratio", "ratio", "draft rate / target rate",
            "ratio draft_target_ratio draft_target_speed_ratio draft_speed_ratio", of_row=True),
    _column("gamma", "count", "draft length; 0 for a baseline",
            "γ k n_max nmax draft_len draft_length draft_k draft_max draft_n_max max_draft spec_draft_n_max n_draft "
            "draft_depth spec_depth num_speculative_tokens num_spec_tokens spec_tokens speculative_tokens "
            "num_speculative_steps speculative_num_steps speculation_length lookahead", of_row=True),
    _column("tree_width", "count", "candidates per position; above 1: trees",
            "spec_topk eagle_topk speculative_eagle_topk", of_row=True),
    _column("p_min", "share", "drafting stops below this probability",
            "draft_p_min spec_draft_p_min", of_row=True),
    _column("acceptance", "share", "accepted / drafted tokens",
            "acceptance_rate accept_rate accept accepted_rate acc_rate acceptance_ratio accept_ratio alpha α "
            "draft_acceptance draft_acceptance_rate draft_accept_rate token_acceptance_rate spec_accept_rate "
            "accepted_drafted rate_mean_std"),
    _column("tau", "tau", "tokens per forward pass of the target",
            "τ tokens_per_step tokens_forward tokens_per_forward tokens_per_round tokens_per_verify tokens_per_cycle "
            "tok_per_step tokens_step block_efficiency accepted_length_tau"),
    _column("acceptance_length", "length",
            "tokens per step, with or without the target's own",
            "accept_length accepted_length accept_len acc_length acc_len acceptance_len a_len a.len "
            "a.len_mean_std al mat "
            "mean_accepted_tokens mean_accepted avg_accepted average_accepted "
            "accepted_per_step accepted_per_round accepted_tokens_per_step accepted_tokens_step "
            "accepted_tokens_per_round accepted_per_draft"),
    _column("accepted_drafts_per_step", "per_step", "accepted draft tokens per step",
            "accepted_draft_tokens_per_step accepted_drafts_per_round accepted_draft_tokens_per_round"),
    _column("drafted", "count", "draft tokens in all",
            "n_drafted draft_n drafted_tokens tokens_drafted total_draft_tokens num_drafted proposed_tokens "
            "counted_draft_tokens"),
    _column("draft_tokens", "count", "`drafted` next to steps or accepted tokens, or above 128; else `gamma`",
            "num_draft_tokens"),
    _column("accepted", "count", "accepted in all, or `538/660`: accepted / drafted",
            "n_accept n_accepted draft_n_accepted accepted_tokens tokens_accepted num_accepted num_accepted_tokens "
            "num_accepted_draft_tokens counted_draft_accepted"),
    _column("steps", "count", "rounds of drafting and verifying",
            "rounds n_steps verify_steps num_drafts n_drafts drafts num_spec_steps spec_verify_ct spec_num_drafts"),
    _column("target_forwards", "count", "successful forward passes after the prompt",
            "n_decode forwards target_calls"),
    _column("failed_forwards", "count", "", "failed_decodes decode_failures"),
    _column("failed_draft_forwards", "count", "", ""),
    _column("predicted_n", "count", "generated tokens, the first included",
            "n_gen pred generated generated_tokens n_generated tokens_generated output_tokens "
            "completion_tokens total_completion_tokens tokens"),
    _column("predicted_ms", "time", "time for these",
            "predicted eval decode generation decode_time eval_time generation_time ns"),
    _column("prompt_n", "count", "", "n_prompt prompt_tokens input_tokens", of_row=True),
    _column("prompt_ms", "time", "", "prompt_eval prompt_time prefill prefill_time", of_row=True),
    _column("prompt_rate", "rate", "", "prompt_tps pp_tps prefill_tps prompt_eval_tps",
            of_row=True),
    _column("prompt_rate_sd", "spread", "", "", of_row=True),
    _column("perplexity", "value", "", "ppl", of_row=True),
    _column("perplexity_sd", "spread", "", "ppl_std ppl_error", of_row=True),
    _column("wall_ms", "time", "", "wall wall_time duration elapsed elapsed_time total_time time"),
    _column("baseline_wall_ms", "time", "without speculation", ""),
    _column("bytes_per_token", "bytes", "weights one token reads", "active_bytes active_size",
            of_row=True),
    _column("size_bytes", "bytes", "", "size model_size file_size", of_row=True),
    _column("bandwidth", "bandwidth", "",
            "bw mem_bw memory_bw memory_bandwidth peak_bandwidth", of_row=True),
    _column("claimed_bandwidth", "bandwidth", "memory traffic by the source's count",
            "effective_bandwidth achieved_bandwidth effective_throughput"),
    _column("experts", "count", "experts per layer; 0 for a dense model", "n_experts num_experts", of_row=True),
    _column("runs", "count", "generations behind the row",
            "n_runs requests n_requests num_requests n_samples samples prompts n_prompts num_prompts", of_row=True),
    _column("repeat", "count", "", "repetition", of_row=True),
    _column("concurrency", "count", "requests served at once",
            "np max_concurrency batch_size batch bs clients parallel n_parallel users n_users num_users "
            "concurrent_users num_sequences num_seqs n_seqs max_num_seqs concurrent_requests streams", of_row=True),
    _column("devices", "count", "",
            "gpu_count num_gpus n_gpus n_gpu tp tp_size tensor_parallel tensor_parallel_size num_devices",
            of_row=True),
    _column("synthetic_acceptance", "flag", "acceptance was simulated: yes or no",
            "acceptance_synthetic simulated_acceptance synth_acceptance"),
    _column("draft_elsewhere", "flag", "the draft model ran on another device: yes or no", "remote_draft"),
)  # fmt: skip

BENCHMARKS = ("workload", "task", "dataset", "data_set", "benchmark")
"""Columns that name a benchmark: baselines of others are never put together for it."""
CONDITIONS = (
    "prompt", "prompt_key", "prompt_id", "prompt_type", *BENCHMARKS, "category", "kind", "domain", "scenario",
    "language", "max_tokens", "n_predict", "temperature", "temp", "kv_type", "kv_quant", "kv_cache",
    "kv_cache_dtype", "weight_quant",
    "context", "ctx", "n_ctx", "n_depth", "suite", "rpc_backend", "section", "mode",
)  # fmt: skip
"""Columns that say under what conditions a row was measured; they choose its baseline among several, nothing else."""

OTHER = "also: "
"""What the name of a condition begins with that is none of these, its heading behind it."""

_BY_NAME = {alias: column for column in COLUMNS for alias in (column.name, *column.aliases)}
_UNITS = {
    "pct": "%", "percent": "%", "fraction": "fraction",
    "ms": "ms", "s": "s", "sec": "s", "seconds": "s", "us": "us", "ns": "ns",
    "bytes": "b", "kb": "kb", "mb": "mb", "gb": "gb", "kib": "kib", "mib": "mib", "gib": "gib", "gb_s": "gb/s",
    "gbs": "gb/s", "gbps": "gb/s", "x": "x",
}  # fmt: skip
_SUFFIXES = sorted(_UNITS, key=len, reverse=True)
_MEANS = ("mean_", "avg_", "average_", "median_")
_MEANS_BEHIND = tuple(f"_{word.rstrip('_')}" for word in _MEANS)
_POOLED = ("pooled_", "aggregate_", "aggregated_")
_OVER_PROMPTS = re.compile(r"_(?:over|across|per)_(?:all_)?(?:prompts?|samples?|requests?|tasks?)$")
_LIMIT = 200
_RATE = re.compile(r"(?:^|(?<=_))(?:toks?|tokens?|t)_(?:per_)?(?:s|sec|secs|second|seconds)(?=_|$)")
_OF_ONE_POSITION = re.compile(
    r"\b(?:at|per|by|first|last)[ _](?:draft[ _])?pos|\b(?:first|last)[ _]tok|\bpos(?:ition)?\.?[ _]?\d|\bfully\b", re.I
)
"""Of shares of steps in which a position, or a whole draft, was accepted."""
_TOKENS = frozenset({"tokens", "token", "tok", "tokens/step", "tok/step", "tokens/round"})
"""Units of an acceptance that is a length."""
_NO_RATE_OF_TOKENS = re.compile(r"req|prompt|/min|gb|^(?:s|ms|sec|seconds|min|us|ns)$")


@dataclass(frozen=True)
class Heading:
    """A heading of a table, understood."""

    name: str
    """Of a `KnownColumn`, or a condition."""
    column: KnownColumn | None
    """None for a condition."""
    unit: str
    """Lower case; empty where the heading says none."""
    averaged: bool = False
    """The heading says that its values are means."""
    pooled: bool = False
    """The heading says that its values are sums over sums."""

    @property
    def kind(self) -> Kind:
        """Of the column; `text` for a condition."""
        return "text" if self.column is None else self.column.kind

    @property
    def of_row(self) -> bool:
        """Whether it holds for the whole row, whatever its groups."""
        return self.column is None or self.column.of_row


def understand(text: str) -> Heading | None:
    """What a heading means, None where it is not known. Tables of a page say the same ones again and again."""
    return _understood(text) if len(text) > _LIMIT else _remembered(text)


def _understood(text: str) -> Heading | None:
    for words, unit in _plain(text):
        for name, implied, how in _readings(words, unit):
            if (known := _BY_NAME.get(name) or _of_side(name, implied)) is not None:
                known = _of_unit(known, implied)
                if known.kind == "rate" and _NO_RATE_OF_TOKENS.search(implied):
                    return None
                if known.name == "acceptance" and is_of_one_position(text):
                    return None
                if known.name == "acceptance" and implied in _TOKENS:
                    known, implied = _BY_NAME["acceptance_length"], ""
                if known.kind == "interval" and implied in {"draft", "drafts"}:
                    implied = ""  # the side that is not `no draft`
                if how == "pooled" and known.kind == "rate" and "aggregat" in text.lower():
                    continue  # that of all requests together
                if how and known.kind in {"count", "text"}:
                    continue  # a mean of counts is not a count: `mean accepted tokens` are those of a step
                shown = "" if known.kind == "rate" else implied
                return Heading(known.name, known, shown, how == "mean", how == "pooled" or name.startswith("pooled_"))
            if name in CONDITIONS and not how:
                return Heading(name, None, "")
    return None


WHOLE_RUN = re.compile(r"\be2e\b|end[- _]?to[- _]?end|\bwall|\btotal\b", re.I)
"""A speedup of more than decoding."""
_METHOD = (
    r"(?:sd|spec(?:ulation|ulative)?(?:_dec(?:od(?:e|ing))?)?|mtp|eagle_?[0-9]?|drafts?|drafting|draft_model|n_?gram"
    r"|flag)"
)
_SIDES = (
    re.compile(
        rf"(?:^|_)((?:no|without|non|off|disabled)_{_METHOD}|{_METHOD}_(?:off|disabled)|baseline|vanilla|base|ar|autoregressive|plain"
        r"|original|reference|none|nospec|nosd|before|off|disabled|without|target)(?=_|$)"
    ),
    re.compile(
        rf"(?:^|_)((?:with|on|enabled)_{_METHOD}|{_METHOD}_(?:on|enabled)|spec(?:ulation|ulative)?(?:_decoding)?|sd|on|enabled|with"
        r"|after)(?=_|$)"
    ),
)
"""How decoding without speculation and decoding with drafts are distinguished in a heading."""
_OF_PLAIN = {"decode_rate": "baseline_rate", "ms_per_token": "baseline_ms_per_token", "wall_ms": "baseline_wall_ms"}
"""Quantity -> column of the same without speculation."""
_UNSAID: dict[str, str] = dict.fromkeys(("decode", "decoding", "generation", "gen", "eval"), "tps")
"""Units of what is called like this beside its like without speculation, where none is said."""
_AS_RATE = {"predicted_ms": "decode_rate", "prompt_ms": "prompt_rate", "wall_ms": "decode_rate"}
"""Column of a time -> column of what it is called in tokens per second: `Decode (tok/s)`."""


def _of_side(name: str, unit: str) -> KnownColumn | None:
    """The column of a heading that is a side, a quantity and a unit in any order: `tps_off`, `with_draft` in t/s."""
    for plain, side in zip((True, False), _SIDES, strict=True):
        if (found := side.search(name)) is None:
            continue
        quantity = (name[: found.start()] + name[found.end() :]).strip("_")
        for mean in _MEANS:
            quantity = quantity.removeprefix(mean)
        if quantity in {"", "ms", "s"} and unit in {"ms", "s"}:
            quantity = "wall_ms"  # `baseline ms` beside `spec ms`
        named = "_" in found.group(1) or found.group(1) in {"baseline", "vanilla"}
        if not quantity and (is_rate(unit) or (named and not unit)):
            quantity = "decode_rate"
        known = None if quantity not in _BY_NAME else _of_unit(_BY_NAME[quantity], unit or _UNSAID.get(quantity, ""))
        if known is not None and known.name in _OF_PLAIN:
            return _BY_NAME[_OF_PLAIN[known.name]] if plain else known
    return None


def is_side(text: str) -> bool:
    """Whether a text says no more than which of the two was measured: `off`, `with draft`."""
    name = "_".join(_words(text))
    return any(side.fullmatch(name) for side in _SIDES)


def _of_unit(known: KnownColumn, unit: str) -> KnownColumn:
    """The column that a name in this unit is of: a time in tokens per second is a rate."""
    return _BY_NAME[_AS_RATE[known.name]] if is_rate(unit) and known.name in _AS_RATE else known


_AT_ONCE = re.compile(
    r"(?:-{0,2}np|(?:n[ _-]?)?parallel|conc(?:urrency)?|clients?|users?|batch(?:[ _-]?size)?|bs|[bc](?==)) ?[=:]? ?"
    r"([1-9]\d{0,3})|([1-9]\d{0,3}) ?(?:clients?|users?|streams?|slots?|(?:concurrent|parallel)(?: requests)?)",
    re.I,
)


def requests_at_once(text: str) -> int | None:
    """How many requests are served at once, where a text says that and nothing else: `np=2`, `4 users`."""
    found = _AT_ONCE.fullmatch(text.strip("*_` "))
    return None if found is None else int(found.group(1) or found.group(2))


def is_rate(unit: str) -> bool:
    """Whether a unit is tokens per second, however it is written."""
    return _RATE.sub("tps", "_".join(_words(unit))) == "tps"


def is_of_one_position(text: str) -> bool:
    """Whether an acceptance is a share of steps, in which a position or a whole draft was accepted."""
    return _OF_ONE_POSITION.search(text) is not None


_remembered = lru_cache(maxsize=4096)(_understood)


def in_unit(heading: Heading, unit: str) -> Heading:
    """What a heading means whose cells have that unit."""
    known = heading.column and _of_unit(heading.column, unit)
    return heading if known is None or known is heading.column else replace(heading, name=known.name, column=known)


def heading_of(name: str, unit: str = "") -> Heading:
    """A heading that says just that."""
    return Heading(name, _BY_NAME.get(name), unit)


def column(name: str) -> KnownColumn | None:
    """The column of that name or alias."""
    return _BY_NAME.get(name)


# --- words of a heading ----------------------------------------------------------------------------------------------


_FOOTNOTE = re.compile(
    r"(?<![\s⁻])\s*(?:<sup>[\s*\w†‡,]{1,12}</sup>|\[\^[^\[\]]{1,20}\]|(?<!⁻)[⁰¹²³⁴-⁹ᵃ-ᶻ])+(?=[\s*_)]*$)", re.I
)
"""The mark of a footnote at the end of a heading; `s⁻¹` is a unit."""


def _noteless(text: str) -> str:
    """The heading, shortened, without the marks of footnotes at its end."""
    return _FOOTNOTE.sub("", text[:_LIMIT])


def _plain(text: str) -> list[tuple[list[str], str]]:
    """(lower-case words, unit in parentheses or as a percent sign): of all of it, and of its Latin letters alone."""
    text = unicodedata.normalize("NFKC", _noteless(text)).replace("\u2011", "-")
    text = re.sub(r"\b(?:tk|toks?|t)[\\/]s\b", "tps", text, flags=re.I)
    text = re.sub(r"[∆Δ]", " delta ", re.sub(r"<[^<>]{0,40}>|\\[a-zA-Z]+", " ", text))
    text = re.sub(r"\bw/(?=\s|[a-zA-Z)]|$)", "with ", re.sub(r"\bw/o\b", "without", text, flags=re.I), flags=re.I)
    said = [part.strip() for inner in re.findall(r"[(\[]([^)\]]*)[)\]]", text) for part in re.split(r"[,;]", inner)]
    sides = [part for part in said if is_side(part)]
    text = " ".join([re.sub(r"[(\[][^)\]]*[)\]]", " ", text), *sides])
    units = [part.replace(" ", "").lower() for part in said if part and part not in sides and len(part) <= 24]
    unit = next((unit for unit in units if unit in _UNITS.values() or is_rate(unit)), units[0] if units else "")
    if "%" in text or "%" in unit:
        unit = "%"
    whole, latin = in_english(text), re.sub(r"[^\x20-\x7eαγτ]", " ", text)
    found = [(_words(whole), unit)]
    if whole == text or _RATE.sub("tps", "_".join(_words(latin))) not in _BARE_UNITS:
        found.append((_words(latin), unit))
    return found


_BARE_UNITS = frozenset({"", "tps", "t", "tok", "tokens", "ms", "s", "x", "gb", "gb_s", "k"})
"""What stands beside a Chinese heading as its unit and says nothing on its own."""


def _words(text: str) -> list[str]:
    words = re.findall(r"[a-z0-9αγτ.]+", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text).lower())
    return [word for word in (word.rstrip(".") for word in words) if word]


def _readings(words: list[str], unit: str) -> list[tuple[str, str, str]]:
    """(name, unit, `mean`, `pooled` or nothing), in the order in which they are tried: as it is, without a unit at its
    end, without `mean_` and the like.

    Headings in two languages often repeat themselves (`Avg TPS平均 TPS`): a name whose words come again is tried too.
    """
    found: list[tuple[str, str, str]] = []
    for end in range(len(words), 0, -1):
        if not set(words[end:]) <= set(words[:end]):
            break
        plain = _RATE.sub("tps", "_".join(words[:end]))
        forms = [(plain, "")]
        over, prompts = _OVER_PROMPTS.subn("", plain)
        if prompts:
            forms.append((over, "mean"))
        forms += [(over.removeprefix(prefix), "mean") for prefix in _MEANS if over.startswith(prefix)]
        forms += [(over.removesuffix(suffix), "mean") for suffix in _MEANS_BEHIND if over.endswith(suffix)]
        forms += [(over.removeprefix(prefix), "pooled") for prefix in _POOLED if over.startswith(prefix)]
        for form, how in forms:
            suffix = next((suffix for suffix in _SUFFIXES if form == suffix or form.endswith("_" + suffix)), None)
            implied = unit or (_UNITS[suffix] if suffix else "")
            found.append((form, implied, how))
            if suffix and form != suffix:
                found.append((form.removesuffix("_" + suffix), implied, how))
    return found


# --- of what a column speaks -----------------------------------------------------------------------------------------

_TASKS = re.compile(
    r"mt[ -]?bench|multi[ -]?turn|translation|wmt|summa[ -]?ri[sz]ation|cnn|question|\bqa\b|\bnq\b|math|gsm|rag\b"
    r"|retrieval|human[ -]?eval|mbpp|alpaca|cod(?:e|ing)\b|humanities|multilingual|reasoning|role[ -]?play|stem\b"
    r"|writing|extract|aime|bench\b|arena|sharegpt|dolly|chat\b|prose|story|json|prompt \d"
    r"|\bsynthetic\b|翻译|摘要|问答|数学|代码|推理|写作",
    re.I,
)
"""Data sets and tasks, by words of their names."""
_OVERALL = re.compile(
    r"\s*(?:overall(?: mean| median| avg)?|average|avg\.?|mean|all|total|geo(?:metric )?mean|平均|总体|總體|整体)\s*",
    re.I,
)
METHODS_IN_HEADINGS = re.compile(
    r"\b(?:mtp|eagle|medusa|d-?flash|d-?spark|n-?gram|lookahead|pld|hydra|nextn|sps|suffix|draft|spec\w*|sd)\b|推测|投机",
    re.I,
)
_NO_GROUP = re.compile(
    r"\b(?:pp\d*|tg\d*|prompt|prefill|input|ttft|total|peak|min|max|p\d\d|median|std|req\w*|agg\w*|encode|load|disk"
    r"|cpu|compile|vs|over|train\w*|latency|time|e2e|pos|position|delta|diff\w*|v?ram|mem\w*|power|energy|accuracy"
    r"|perplexity|ppl|score|util\w*|cost|fully|whole)\b|[∆Δ%]|\((?:[kmg]?i?[bwj]|m?s)\)|\bj/",
    re.I,
)
"""Words with which a rate or a ratio is that of something else than decoding."""
_GROUPED: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"(?:toks?|tokens?|t)\s*(?:/|per|p)\s*s(?:ec(?:ond)?s?)?|tps", re.I), "decode_rate"),
    (re.compile(r"tpot|ms ?(?:/|per) ?tok(?:en)?", re.I), "ms_per_token"),
    (re.compile(r"speed-?\s?ups?|[x×]|加速比?|倍数", re.I), "speedup"),
    (re.compile(r"accept(?:ance|ed)?(?:[ _-]rate)?|acc\.? rate|α|接受率|接受", re.I), "acceptance"),
    (re.compile(r"τ|tau|mat", re.I), "tau"),
    (re.compile(r"gain|uplift|提升", re.I), "change"),
    (re.compile(r"accept(?:ance|ed)?[ _-]len(?:gth)?|a\.len|接受长度", re.I), "acceptance_length"),
)
"""How a heading that begins with the name of a method or data set may continue."""


def is_overall(group: str) -> bool:
    """Whether a group sums up the others: `Overall`, `Mean`."""
    return _OVERALL.fullmatch(group) is not None


def may_be_group(text: str) -> bool:
    """Whether a text may name a method or data set, rather than something else that is measured."""
    return _NO_GROUP.search(text[:_LIMIT].replace("_", " ")) is None


def is_task(text: str) -> bool:
    """Whether a text names a data set, a task, or all of them together."""
    return len(text) <= _LIMIT and (_TASKS.search(text) is not None or is_overall(text))


def in_group(text: str, *, beside_baseline: bool) -> tuple[str, Heading] | None:
    """(method or data set, what is said of it) for a heading such as `DFlash t/s` or `HumanEval Speedup`.

    None where the heading does not end like that, or begins with what names neither; a name that is not known will do
    where the table has a column of its baseline (`beside_baseline`).
    """
    text = " ".join(re.sub(r"<[^<>]{0,40}>|[*_`]+", " ", _noteless(text)).split())
    for pattern, name in _GROUPED:
        for found in pattern.finditer(text):
            group = text[: found.start()].strip(" :-–|,([")
            rest = re.sub(r"^[ (\[]*ms[)\]]*$", "", text[found.end() :]).strip(" )]:.%")
            starts_anew = found.start() == 0 or not text[found.start() - 1].isalnum()
            if not group or rest or not starts_anew or not may_be_group(group):
                continue
            if beside_baseline or is_task(group) or METHODS_IN_HEADINGS.search(group):
                known = _BY_NAME[name]
                return group[:80], Heading(name, known, "%" if "%" in text else "")
    return None


# --- Chinese words of a heading in English, so that one list of columns serves both languages -------------------------

_SIMPLIFIED = str.maketrans(
    "線裝顯備機長設測準總數據務並發類帶寬詞標輪採納語較無輸對內別碼樣歸稱溫選試",
    "线装显备机长设测准总数据务并发类带宽词标轮采纳语较无输对内别码样归称温选试",
)
_WORDS = {
    "平均接受长度": "mean acceptance length", "平均接受率": "mean acceptance rate", "平均": "mean",
    "接受长度": "acceptance length", "接收长度": "acceptance length", "接受率": "acceptance rate",
    "接收率": "acceptance rate", "采纳率": "acceptance rate", "命中率": "acceptance rate", "接受": "accepted",
    "加速比": "speedup", "加速倍数": "speedup", "加速倍率": "speedup", "加速": "speedup", "提速": "gain",
    "相对基线": "vs baseline", "较基线": "vs baseline", "提升": "gain", "增益": "gain",
    "基线": "baseline", "基准": "baseline", "不投机": "no spec", "有草稿": "with draft", "原始": "original",
    "原生": "vanilla", "自回归": "ar", "关闭": "off", "未开启": "off", "开启": "on", "禁用": "off", "不开启": "off",
    "不开": "off", "不使用": "without", "使用": "with", "启用": "on", "无": "no",
    "推测解码": "spec", "投机解码": "spec", "投机采样": "spec", "推测": "spec", "投机": "spec",
    "草稿模型": "draft model", "草稿长度": "draft length", "草稿数": "draft tokens",
    "草稿token数": "draft tokens", "投机步数": "num speculative steps", "推测步数": "num speculative steps",
    "草稿": "draft",
    "候选长度": "draft length", "推测长度": "draft length", "步长": "draft length",
    "目标模型": "target model", "主模型": "target model", "目标": "target", "模型": "model",
    "生成速度": "generation speed", "解码速度": "decode speed", "输出速度": "output speed", "推理速度": "speed",
    "速度": "speed", "速率": "speed", "吞吐量": "throughput", "吞吐": "throughput",
    "每步token": "tokens per step", "方法": "method", "算法": "method", "配置": "config", "名称": "name",
    "设备": "device", "装置": "device", "显卡": "gpu", "硬件": "hardware", "引擎": "engine",
    "框架": "framework", "量化": "quant",
    "温度": "temperature", "任务": "task", "测试": "task", "数据集": "dataset", "提示词": "prompt", "类别": "category",
    "语言": "language", "上下文": "context", "并发数": "concurrency", "并发": "concurrency", "批大小": "batch size",
    "草稿总数": "drafted tokens", "接受数": "accepted tokens", "步数": "steps", "轮数": "rounds",
    "显存带宽": "memory bandwidth", "内存带宽": "memory bandwidth", "带宽": "bandwidth",
}  # fmt: skip
_LONGEST = max(map(len, _WORDS))
_CHINESE = re.compile(r"[\u3400-\u9fff]")


def in_english(text: str) -> str:
    """The text with its Chinese words in English; unchanged where it has none. `unknown` stands for the others.

    Traditional characters are made simplified first. It is read from left to right, the longest known word first;
    characters that stand in no known word leave a mark, so that nothing is understood by half.
    """
    if not _CHINESE.search(text):
        return text
    text = text.translate(_SIMPLIFIED)
    out: list[str] = []
    at = 0
    while at < len(text):
        for size in range(min(_LONGEST, len(text) - at), 0, -1):
            if (word := _WORDS.get(text[at : at + size].lower())) is not None:
                out.append(f" {word} ")
                at += size
                break
        else:
            out.append(" unknown " if _CHINESE.match(text[at]) else text[at])
            at += 1
    return "".join(out)


# --- what decoding without speculation is called ----------------------------------------------------------------------

_PLAIN = re.compile(
    r"none|no|off|disabled|base|baselines?(?: (?:ar|decoding|\d+|rerun|run \d+))?|reference|plain(?: decoding)?"
    r"|vanilla(?: ar| decoding| autoregressive)?|target only|only target|original"
    r"|ar|auto ?regressive(?: decoding)?|nosd|nospec"
    r"|(?:n a )?(?:no|without|wihtout|non|off|disabled)"
    r" (?:sd|spec\w*|drafts?|mtp|eagle ?\d?|speculative decoding|drafting)"
    r"|(?:spec|speculation|speculative decoding|sd|mtp|eagle ?\d?|drafts?|drafting) (?:off|disabled)"
)
"""What a method, draft or label is called where nothing is drafted."""


def is_plain(text: str) -> bool:
    """Whether a method, draft or label says that nothing is drafted."""
    text = re.sub(r"\([^()]*\)", " ", in_english(text[:160].lower()))
    text = re.sub(r"\bw/o\b", "without", text)
    last = text.rpartition("/")[2]  # `target/none`: an arm of a run
    return any(_PLAIN.fullmatch(" ".join(re.findall(r"[a-z0-9]+", part))) for part in (text, last))
