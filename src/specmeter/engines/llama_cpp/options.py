"""Every option of llama.cpp's server that specmeter sets, in one table, and its two spellings.

A native `llama-server` takes command line flags, whose names changed over the years; the embedded server takes fields
of `xllamacpp.CommonParams`. Both are rendered from the same values, so the two engines cannot drift apart.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from specmeter.errors import EngineStartError, ExperimentError
from specmeter.record import PROBABILISTIC


def _argument(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        items: tuple[Any, ...] = tuple(value)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        return ",".join(_argument(item) for item in items)
    return repr(value) if isinstance(value, float) else str(value)


def _same(value: Any) -> Any:
    return value


def _enum(prefix: str) -> Callable[[Any], Any]:
    """Names of llama.cpp's C enumerations: `q8_0` -> `GGML_TYPE_Q8_0`; lists by item."""

    def name(value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return [name(item) for item in value]  # pyright: ignore[reportUnknownVariableType]
        return prefix + str(value).upper().replace("-", "_")

    return name


def _flash_attention(value: str) -> str:
    return "LLAMA_FLASH_ATTN_TYPE_" + {"on": "ENABLED", "off": "DISABLED"}.get(value, "AUTO")


@dataclass(frozen=True)
class Option:
    """One option: its flags (newest name first), its field in `CommonParams`, and how a value is written in each."""

    flags: tuple[str, ...]
    field: str | None
    """Dotted path; None: the embedded server cannot set it."""
    to_argument: Callable[[Any], str] | None = _argument
    """None: the flag takes no argument."""
    to_field: Callable[[Any], Any] = _same
    optional: bool = False
    """Left out for a native server that does not know it; an option that is not optional is an error then."""


def _ngram(method: str, parameter: str, flag: str, *older: str) -> Option:
    field = f"speculative.ngram_{method.replace('-', '_')}.{parameter}"
    return Option((f"--spec-ngram-{method}-{flag}", *older), field)


def _experts_of(layers: int | None) -> str:
    """The expert tensors of the first layers, or of all, on the CPU, as `--override-tensor` has it."""
    first = "" if layers is None else rf"blk\.({'|'.join(map(str, range(layers)))})"
    return rf"{first}\.ffn_(up|down|gate|gate_up)_(ch|)exps=CPU"


_KV = _enum("GGML_TYPE_")
_NO_ARGUMENT = None

OPTIONS: dict[str, Option] = {
    "model": Option(("--model",), "model.path"),
    "context": Option(("--ctx-size",), "n_ctx"),
    "batch": Option(("--batch-size",), "n_batch"),
    "ubatch": Option(("--ubatch-size",), "n_ubatch"),
    "slots": Option(("--parallel",), "n_parallel"),
    "threads": Option(("--threads",), "cpuparams.n_threads"),
    "batch_threads": Option(("--threads-batch",), "cpuparams_batch.n_threads"),
    "kv_type_k": Option(("--cache-type-k",), "cache_type_k", to_field=_KV),
    "kv_type_v": Option(("--cache-type-v",), "cache_type_v", to_field=_KV),
    "flash_attention": Option(("--flash-attn",), "flash_attn_type", to_field=_flash_attention),
    "gpu_layers": Option(("--gpu-layers", "--n-gpu-layers"), "n_gpu_layers"),
    "cpu_moe": Option(("--cpu-moe",), "tensor_buft_overrides", _NO_ARGUMENT, to_field=lambda _: _experts_of(None)),
    "cpu_moe_layers": Option(("--n-cpu-moe",), "tensor_buft_overrides", to_field=_experts_of),
    "override_tensors": Option(("--override-tensor",), "tensor_buft_overrides", to_field=_argument),
    "kv_unified": Option(("--kv-unified",), "kv_unified", _NO_ARGUMENT),
    "no_kv_unified": Option(("--no-kv-unified",), "kv_unified", _NO_ARGUMENT, to_field=lambda _: False),
    "rpc": Option(("--rpc",), None),
    "devices": Option(("--device",), None),
    "load_mode": Option(("--load-mode",), "load_mode", to_field=_enum("LLAMA_LOAD_MODE_")),
    # The draft model.
    "draft_model": Option(("--spec-draft-model", "--model-draft"), "speculative.draft.mparams.path"),
    "draft_context": Option(("--ctx-size-draft",), None, optional=True),
    "draft_threads": Option(
        ("--spec-draft-threads", "--threads-draft"), "speculative.draft.cpuparams.n_threads", optional=True
    ),
    "draft_batch_threads": Option(
        ("--spec-draft-threads-batch", "--threads-batch-draft"),
        "speculative.draft.cpuparams_batch.n_threads",
        optional=True,
    ),
    "draft_kv_type_k": Option(
        ("--spec-draft-type-k", "--cache-type-k-draft"), "speculative.draft.cache_type_k", to_field=_KV
    ),
    "draft_kv_type_v": Option(
        ("--spec-draft-type-v", "--cache-type-v-draft"), "speculative.draft.cache_type_v", to_field=_KV
    ),
    "draft_gpu_layers": Option(
        ("--spec-draft-ngl", "--gpu-layers-draft", "--n-gpu-layers-draft"), "speculative.draft.n_gpu_layers"
    ),
    "draft_cpu_moe": Option(
        ("--spec-draft-cpu-moe", "--cpu-moe-draft"),
        "speculative.draft.tensor_buft_overrides",
        _NO_ARGUMENT,
        to_field=lambda _: _experts_of(None),
    ),
    "draft_cpu_moe_layers": Option(
        ("--spec-draft-n-cpu-moe", "--n-cpu-moe-draft"),
        "speculative.draft.tensor_buft_overrides",
        to_field=_experts_of,
    ),
    "draft_devices": Option(("--spec-draft-device", "--device-draft"), "speculative.draft.devices", to_field=_argument),
    # Drafting.
    "methods": Option(("--spec-type",), "speculative.types", to_field=_enum("COMMON_SPECULATIVE_TYPE_")),
    "mtp_heads": Option((), "load_mtp", optional=True),
    "draft_n_max": Option(("--spec-draft-n-max", "--draft-max", "--draft"), "speculative.draft.n_max"),
    "draft_n_min": Option(("--spec-draft-n-min", "--draft-min"), "speculative.draft.n_min"),
    "draft_sampling": Option(
        ("--spec-draft-sampling",), "speculative.draft.probabilistic", to_field=lambda it: it == PROBABILISTIC
    ),
    "draft_p_min": Option(("--spec-draft-p-min", "--draft-p-min"), "speculative.draft.p_min"),
    "ngram_simple_size_n": _ngram("simple", "size_n", "size-n", "--spec-ngram-size-n"),
    "ngram_simple_size_m": _ngram("simple", "size_m", "size-m", "--spec-ngram-size-m"),
    "ngram_map_k_size_n": _ngram("map-k", "size_n", "size-n", "--spec-ngram-size-n"),
    "ngram_map_k_size_m": _ngram("map-k", "size_m", "size-m", "--spec-ngram-size-m"),
    "ngram_map_k_min_hits": _ngram("map-k", "min_hits", "min-hits", "--spec-ngram-min-hits"),
    "ngram_map_k4v_size_n": _ngram("map-k4v", "size_n", "size-n", "--spec-ngram-size-n"),
    "ngram_map_k4v_size_m": _ngram("map-k4v", "size_m", "size-m", "--spec-ngram-size-m"),
    "ngram_map_k4v_min_hits": _ngram("map-k4v", "min_hits", "min-hits", "--spec-ngram-min-hits"),
    "ngram_mod_n_match": _ngram("mod", "n_match", "n-match", "--spec-ngram-size-n"),
    "ngram_mod_n_max": _ngram("mod", "n_max", "n-max", "--draft-max"),
    "ngram_mod_n_min": _ngram("mod", "n_min", "n-min", "--draft-min"),
    "synthetic_rates": Option(("--spec-synth-rates",), "speculative.synth_rates", to_field=list),
    # A server that does what is asked and nothing else.
    "metrics": Option(("--metrics",), "endpoint_metrics", to_argument=_NO_ARGUMENT),
    "slots_endpoint": Option(("--slots",), "endpoint_slots", to_argument=_NO_ARGUMENT, optional=True),
    "cache_prompt": Option(("--cache-prompt",), "cache_prompt", to_argument=_NO_ARGUMENT, optional=True),
    "no_cache_prompt": Option(
        ("--no-cache-prompt",), "cache_prompt", to_argument=_NO_ARGUMENT, to_field=lambda _: False, optional=True
    ),
    "cache_ram": Option(("--cache-ram",), "cache_ram_mib", optional=True),
    "context_checkpoints": Option(("--ctx-checkpoints", "--swa-checkpoints"), "n_ctx_checkpoints", optional=True),
    "no_ui": Option(("--no-ui", "--no-webui"), "ui", to_argument=_NO_ARGUMENT, to_field=lambda _: False, optional=True),
    # Left on, it shrinks context and offload of one arm when memory is short, and says so only in the log.
    "fit": Option(("--fit",), "fit_params", to_argument=lambda on: "on" if on else "off", optional=True),
    "verbosity": Option(("--verbosity", "--log-verbosity"), "verbosity", optional=True),
    "log_prefix": Option(("--log-prefix",), None, to_argument=_NO_ARGUMENT, optional=True),
    "log_timestamps": Option(("--log-timestamps",), None, to_argument=_NO_ARGUMENT, optional=True),
    "log_colors": Option(("--log-colors",), None, optional=True),
}


def to_fields(options: Mapping[str, Any]) -> dict[str, Any]:
    """`CommonParams` path -> JSON value; enumerations by the names of their members.

    Raises `ExperimentError` for an option that the embedded server does not have.
    """
    fields: dict[str, Any] = {}
    for name, value in options.items():
        option = OPTIONS[name]
        if option.field is not None:
            made = option.to_field(value)
            both = option.field in fields and option.field.endswith("tensor_buft_overrides")
            fields[option.field] = f"{fields[option.field]},{made}" if both else made
        elif not option.optional:
            raise ExperimentError(
                f"engine.{name}: the embedded engine does not have this setting",
                fix="leave it out, or use a native llama-server (engine kind `native`)",
            )
    return fields


def to_flags(options: Mapping[str, Any], known: frozenset[str]) -> list[str]:
    """Command line for a native server that knows the flags `known`, each option under its newest known name.

    Raises `EngineStartError` for an option that the server lacks, or a method.
    """
    flags: list[str] = []
    for name, value in options.items():
        option = OPTIONS[name]
        flag = next((flag for flag in option.flags if flag in known), None)
        if flag is not None and name == "methods":
            flags += _method_flags(flag, list(value), known)
        elif flag is not None:
            flags += [flag] if option.to_argument is None else [flag, option.to_argument(value)]
        elif (older := _before_the_flag(name, value)) is not None:
            flags += older
        elif not option.optional:
            raise EngineStartError(
                f"this llama-server has no option {' or '.join(option.flags)} (needed for {name} = {value!r})",
                fix="use a newer llama-server, or remove that setting from the experiment",
            )
    return flags


def _method_flags(flag: str, methods: list[str], known: frozenset[str]) -> list[str]:
    """`--spec-type` as this server understands it.

    For some months of 2026 it chose one method for those who gave no draft model; a draft model was drafted with
    whenever it was given, after that method had found nothing.
    """
    listed = {entry.removeprefix(f"{flag}=") for entry in known if entry.startswith(f"{flag}=")}
    alone = bool(listed) and "draft-simple" not in listed
    asked = [method for method in methods if not (alone and method == "draft-simple")]
    unknown = [method for method in asked if listed and method not in listed]
    if unknown or (alone and len(asked) > 1):
        raise EngineStartError(
            f"this llama-server does not support {' + '.join(methods)}: {flag} takes "
            f"{'one of' if alone else 'any of'} {', '.join(sorted(listed))}",
            fix="use a newer llama-server, or remove that method from the experiment",
        )
    return [flag, _argument(asked)] if asked else []


def _before_the_flag(name: str, value: Any) -> list[str] | None:
    """How servers were configured before they had a flag for it; None: not at all."""
    if name == "load_mode":  # a pair of switches, mapping being the default
        return {"mmap": [], "none": ["--no-mmap"]}.get(value)
    if name == "methods":  # a draft model was drafted with, and there was nothing else
        return [] if list(value) in (["none"], ["draft-simple"]) else None
    return None


_ENTRY = re.compile(r"^(?=-)", re.MULTILINE)
_METHODS = re.compile(r"--spec-type\s+\[?([a-z0-9-]+(?:[|,][a-z0-9-]+)+)")
_NAMES = re.compile(r"--?[A-Za-z][A-Za-z0-9-]*(?:,\s+--?[A-Za-z][A-Za-z0-9-]*)*")


def known_flags(help_text: str) -> frozenset[str]:
    """Flags that `llama-server --help` lists, without those it lists only to say that they were removed; and
    `--spec-type=METHOD` for each method that it lists."""
    known: set[str] = set()
    for entry in _ENTRY.split(help_text):
        names = _NAMES.match(entry)
        if names and "has been removed" not in " ".join(entry.split()):
            known.update(re.split(r",\s+", names.group()))
            if methods := _METHODS.match(entry):
                known.update(f"--spec-type={method}" for method in re.split(r"[|,]", methods.group(1)))
    return frozenset(known)
