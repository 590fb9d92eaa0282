"""From an arm to options of llama.cpp's server: which methods draft, with which parameters, on which settings.

llama.cpp runs several methods in its own fixed order (n-gram methods first, then the draft model) and takes the first
draft that is not empty, so the order in which an arm names them does not matter.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from specmeter.engines import Launch
from specmeter.engines.llama_cpp.traits import NATIVE, any_remote
from specmeter.engines.registry import refuse_without_effect
from specmeter.errors import ExperimentError
from specmeter.record import Arm, EngineSettings, MethodName

_DRAFT = {"gamma": "draft_n_max", "gamma_min": "draft_n_min", "p_min": "draft_p_min"}


def _map(name: str) -> dict[str, str]:
    return {"gamma": f"{name}_size_m", "ngram_n": f"{name}_size_n", "ngram_min_hits": f"{name}_min_hits"}


METHOD_OPTIONS: Mapping[MethodName, Mapping[str, str]] = {
    "none": {},
    "draft-simple": _DRAFT,
    "draft-mtp": _DRAFT,
    "draft-eagle3": _DRAFT,
    "draft-dflash": _DRAFT,
    "draft-dspark": _DRAFT,
    # Its `min_hits` is accepted by the server and never read.
    "ngram-simple": {"gamma": "ngram_simple_size_m", "ngram_n": "ngram_simple_size_n"},
    "ngram-map-k": _map("ngram_map_k"),
    "ngram-map-k4v": _map("ngram_map_k4v"),
    "ngram-mod": {"gamma": "ngram_mod_n_max", "gamma_min": "ngram_mod_n_min", "ngram_n": "ngram_mod_n_match"},
    "ngram-cache": {},
}
"""Method -> field of `Arm` -> option: how its parameters (`traits.METHODS`) are written for llama.cpp."""

NGRAM_CACHE_GAMMA = 8
"""The `ngram-cache` method drafts up to this many tokens; llama.cpp has no option for it."""


def server_options(launch: Launch, default_threads: int) -> dict[str, Any]:
    """All options for one session, by the names of `llama_options.OPTIONS`.

    Raises `ExperimentError`, naming the field, for an arm that llama.cpp cannot run as it is written: a parameter that
    no method of the arm would honour is an error, because the arm would not be what its name says.
    """
    has_draft = launch.draft is not None
    check_arm(launch.arm, has_draft)
    refuse_without_effect(NATIVE.traits, launch.arm, has_draft=has_draft)
    options = _model_options(launch)
    options |= _method_options(launch.arm)
    options |= _setting_options(launch.arm.engine, has_draft=has_draft)
    options |= _measuring_options(launch.arm.engine, default_threads, has_draft=has_draft)
    return options


def serving_options(launch: Launch) -> dict[str, Any]:
    """Those of `server_options` that an arm asks for: without what only measuring needs, and, unless it has a load to
    bear, without specmeter's own defaults (one slot, a context of 4096)."""
    settings, usual = launch.arm.engine, EngineSettings()
    asked = _method_options(launch.arm) | _setting_options(settings, has_draft=launch.draft is not None)
    usual_ones = () if launch.arm.load is not None else ("context", "slots")
    unasked = {name for name in usual_ones if getattr(settings, name) == getattr(usual, name)}
    if not launch.arm.speculates:
        unasked.add("methods")
    if settings.threads is not None:
        asked["threads"] = settings.threads
    return _model_options(launch) | {name: value for name, value in asked.items() if name not in unasked}


def remote_machines(launch: Launch) -> tuple[str, ...]:
    """Addresses of remote machines that the models of this session lie on; none where all stays here."""
    settings = launch.arm.engine
    names = settings.devices + (settings.draft_devices if launch.draft is not None else ())
    return settings.rpc if any_remote(names) else ()


def check_arm(arm: Arm, has_draft: bool) -> None:
    """Raise `ExperimentError` for what the traits allow and llama.cpp could not honour (`EngineSpec.check_arm`)."""
    where = f"arm {arm.id}"
    methods = set(arm.methods)
    if len(methods) != len(arm.methods):
        raise ExperimentError(f"{where}: methods {list(arm.methods)}: one is named twice", fix="name each once")
    if "none" in methods and len(methods) > 1:
        raise ExperimentError(f"{where}: `none` switches off all other methods", fix="leave `none` out")
    if "ngram-cache" in methods and arm.gamma not in (None, NGRAM_CACHE_GAMMA):
        raise ExperimentError(
            f"{where}: ngram-cache always drafts up to {NGRAM_CACHE_GAMMA} tokens, not {arm.gamma}",
            fix=f"leave gamma out or set it to {NGRAM_CACHE_GAMMA}",
        )
    if arm.gamma is not None and arm.gamma_min is not None and arm.gamma_min > arm.gamma:
        raise ExperimentError(
            f"{where}: gamma_min {arm.gamma_min} is above gamma {arm.gamma}: every draft would be discarded",
            fix="set gamma_min to gamma or less",
        )
    check_synthetic(arm, where)
    _check_remote(arm, where, has_draft=has_draft)
    for field, value in (
        ("policy", arm.policy),
        ("rule", arm.rule),
        ("engine.record_experts", arm.engine.record_experts),
    ):
        if value:
            raise ExperimentError(
                f"{where}: {field}: llama.cpp's server does not have this setting",
                fix=f"leave {field} out, or use the instrumented engine (engine.kind: libllama)",
            )


def check_embedded(arm: Arm, has_draft: bool) -> None:
    """The same for the embedded engine."""
    check_arm(arm, has_draft)
    if arm.engine.rpc:
        raise ExperimentError(
            f"arm {arm.id}: engine.rpc: the embedded engine was built without RPC",
            fix="use a native llama-server built with -DGGML_RPC=ON (engine.kind: native)",
        )


def _check_remote(arm: Arm, where: str, *, has_draft: bool) -> None:
    settings = arm.engine
    names = (*settings.devices, *(settings.draft_devices if has_draft else ()))
    if settings.rpc and arm.speculates and not any_remote(names):
        raise ExperimentError(
            f"{where}: engine.rpc names remote machines, but nothing is placed on them",
            fix="name their devices: engine.draft_devices: [RPC0] for the draft, engine.devices for the target",
        )
    if any_remote(names) and not settings.rpc and not any("--rpc" in flag for flag in settings.extra_flags):
        model = "target" if any_remote(settings.devices) else "draft"
        raise ExperimentError(
            f"{where}: its {model} is placed on a remote machine, but none is named",
            fix="name one: --set remotes.NAME=HOST:PORT, or engine.rpc: [HOST:PORT]",
        )


def check_synthetic(arm: Arm, where: str) -> None:
    """Raise `ExperimentError` for rates that belong to no draft or could not be those of one."""
    rates = arm.synthetic_rates
    if not rates:
        return
    if not arm.speculates:
        raise ExperimentError(f"{where}: synthetic_rates without a method", fix="name a method that drafts")
    if arm.gamma is None or len(rates) != arm.gamma:
        raise ExperimentError(
            f"{where}: synthetic_rates has {len(rates)} rates and gamma is {arm.gamma}; each position needs its rate",
            fix="set gamma, and give exactly that many rates",
        )
    if any(later > earlier for earlier, later in itertools.pairwise(rates)):
        raise ExperimentError(
            f"{where}: synthetic_rates rise with position, but a token is only accepted after the one before it",
            fix="write rates that never rise",
        )


def _model_options(launch: Launch) -> dict[str, Any]:
    options: dict[str, Any] = {"model": launch.target.path}
    if remote := remote_machines(launch):
        options["rpc"] = list(remote)  # before the devices that it makes known
    if launch.draft is not None:
        options["draft_model"] = launch.draft.path
    return options


def _method_options(arm: Arm) -> dict[str, Any]:
    options: dict[str, Any] = {"methods": list(arm.methods)}
    for method in arm.methods:
        for field, option in METHOD_OPTIONS[method].items():
            if (value := getattr(arm, field)) is not None:
                options[option] = value
    if "draft-mtp" in arm.methods:
        options["mtp_heads"] = True
    if arm.synthetic_rates:
        options["synthetic_rates"] = list(arm.synthetic_rates)
    return options


_PASSED_ON = ("context", "batch", "ubatch", "slots", "kv_type_k", "kv_type_v", "flash_attention", "gpu_layers")
_PASSED_ON_FOR_DRAFT = ("draft_kv_type_k", "draft_kv_type_v", "draft_gpu_layers")


def _setting_options(settings: EngineSettings, *, has_draft: bool) -> dict[str, Any]:
    names = _PASSED_ON + (_PASSED_ON_FOR_DRAFT if has_draft else ())
    options = {name: value for name in names if (value := getattr(settings, name)) is not None}
    if settings.devices:
        options["devices"] = list(settings.devices)
    if settings.draft_devices and has_draft:
        options["draft_devices"] = list(settings.draft_devices)
    if settings.mmap is not None:
        options["load_mode"] = "mmap" if settings.mmap else "none"
    return options


def _measuring_options(settings: EngineSettings, default_threads: int, *, has_draft: bool) -> dict[str, Any]:
    """A server that does what is asked and nothing else, and tells everything."""
    threads = settings.threads or default_threads
    options: dict[str, Any] = {"threads": threads, "batch_threads": threads}
    if has_draft:
        options |= {"draft_threads": threads, "draft_batch_threads": threads, "draft_context": settings.context}
    if settings.prompt_cache:
        options["cache_prompt"] = True
    else:
        # Context checkpoints are snapshots for reusing a prompt; they are not those of speculation on hybrid models.
        options |= {"no_cache_prompt": True, "cache_ram": 0, "context_checkpoints": 0}
    return options | {
        "metrics": True,
        "slots_endpoint": True,
        "no_ui": True,
        "fit": False,
        # 4 prints buffers, offload and the drafting parameters in force; nothing more per token than 3.
        "verbosity": 4,
        "log_prefix": True,
        "log_timestamps": True,
        "log_colors": "off",
    }
