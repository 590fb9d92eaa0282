"""llama.cpp's server as an engine: what it states about itself, which arms it can run, with which options.

Here is also the command line to paste, which serves with an arm as it was measured.

llama.cpp runs several methods in its own fixed order (n-gram methods first, then the draft model) and takes the first
draft that is not empty, so the order in which an arm names them does not matter.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import Field

from specmeter.engines.llama_cpp.draft_rules import NGRAM_CACHE_GAMMA
from specmeter.engines.llama_cpp.options import OPTIONS, to_flags
from specmeter.engines.registry import EngineSpec, late
from specmeter.engines.session import Launch
from specmeter.errors import EngineStartError, ExperimentError
from specmeter.record import (
    ALL_LAYERS,
    PROBABILISTIC,
    SAMPLING,
    Arm,
    EngineSettings,
    EngineTraits,
    MethodName,
    MethodTraits,
    ModelIdentity,
    Record,
    Truth,
    network_of,
)

_DRAFT = ("gamma", "gamma_min", "p_min")
_MAP = ("gamma", "ngram_n", "ngram_min_hits")
PRINTED_NAMES = {
    "gamma": ("n_max", "size_m", "size_value", "n_draft"),
    "gamma_min": ("n_min",),
    "p_min": ("p_min",),
    "ngram_n": ("size_n", "size_key", "n_match"),
    "ngram_min_hits": ("min_hits",),
}
"""Field of `Arm` -> the names by which methods print what is in force."""
METHODS = (
    MethodTraits(name="draft-simple", drafter="model", draft_model="needed", parameters=_DRAFT),
    MethodTraits(name="ngram-simple", drafter="lookup", parameters=("gamma", "ngram_n")),
    MethodTraits(name="ngram-map-k", drafter="lookup", parameters=_MAP),
    MethodTraits(name="ngram-map-k4v", drafter="lookup", parameters=_MAP),
    # Tried on the embedded engine: when a prompt comes again, this one drafts the whole answer, and all other n-gram
    # methods what they drafted the first time.
    MethodTraits(name="ngram-mod", drafter="lookup", parameters=("gamma", "gamma_min", "ngram_n"), remembers=True),
    MethodTraits(name="ngram-cache", drafter="lookup", parameters=("gamma",)),
    MethodTraits(name="draft-mtp", drafter="states", draft_model="allowed", parameters=_DRAFT),
    MethodTraits(name="draft-eagle3", drafter="states", draft_model="needed", parameters=_DRAFT),
    MethodTraits(name="draft-dflash", drafter="states", draft_model="needed", parameters=_DRAFT),
    MethodTraits(name="draft-dspark", drafter="states", draft_model="needed", parameters=_DRAFT),
)
"""How llama.cpp drafts, by its own names."""
DRAFT_MODEL_METHODS = frozenset(it.name for it in METHODS if it.draft_model == "needed")

SAMPLED_DRAFTS = ("draft-simple", "draft-mtp")
"""Methods that can draw their tokens as the target does."""

KV_TYPES = ("f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl")

SERVER_TELLS: tuple[Truth, ...] = (
    "drafts", "forwards", "steps", "tokens", "arrivals", "candidates", "settings", "activation", "memory", "log",
    "identity", "processes",
)  # fmt: skip


class NativeOptions(Record):
    """What can be said of a native server beside its settings."""

    binary: str | None = None
    """Path of the llama-server binary."""
    builds: dict[str, str] = Field(default_factory=dict[str, str], max_length=16)
    """Name -> a llama-server, or a folder into which a wheel of xllamacpp was installed: several builds in one run.
    Each arm says in its own options which of them it is measured with."""
    build: str | None = None
    """The build of an arm, by its name."""


def is_gpu(device: str) -> bool:
    """Whether a device of this name is a graphics processor of this machine: others compute on the processor, or
    elsewhere."""
    return not device.startswith(("CPU", "BLAS", "ACCEL", "RPC"))


def any_remote(names: Iterable[str]) -> bool:
    """Whether any of these names of devices or buffers (`RPC0`, `RPC0[10.0.0.2:50052]`) is one on another machine."""
    return any(name.startswith("RPC") for name in names)


def settings_without(*names: str) -> tuple[str, ...]:
    """All settings that records know, but these and an engine's own."""
    return tuple(name for name in EngineSettings.model_fields if name not in (*names, "options"))


_DRAFT_OPTIONS = {"gamma": "draft_n_max", "gamma_min": "draft_n_min", "p_min": "draft_p_min"}


def _map(name: str) -> dict[str, str]:
    return {"gamma": f"{name}_size_m", "ngram_n": f"{name}_size_n", "ngram_min_hits": f"{name}_min_hits"}


METHOD_OPTIONS: Mapping[MethodName, Mapping[str, str]] = {
    "none": {},
    "draft-simple": _DRAFT_OPTIONS,
    "draft-mtp": _DRAFT_OPTIONS,
    "draft-eagle3": _DRAFT_OPTIONS,
    "draft-dflash": _DRAFT_OPTIONS,
    "draft-dspark": _DRAFT_OPTIONS,
    # Its `min_hits` is accepted by the server and never read.
    "ngram-simple": {"gamma": "ngram_simple_size_m", "ngram_n": "ngram_simple_size_n"},
    "ngram-map-k": _map("ngram_map_k"),
    "ngram-map-k4v": _map("ngram_map_k4v"),
    "ngram-mod": {"gamma": "ngram_mod_n_max", "gamma_min": "ngram_mod_n_min", "ngram_n": "ngram_mod_n_match"},
    "ngram-cache": {},
}
"""Method -> field of `Arm` -> option: how its parameters (`METHODS`) are written for llama.cpp."""


def server_options(launch: Launch, default_threads: int) -> dict[str, Any]:
    """All options for one session of an arm that llama.cpp can run (`registry.check_arm`), by the names of
    `options.OPTIONS`."""
    options = _model_options(launch)
    options |= _method_options(launch.arm)
    options |= _setting_options(launch.arm.engine, has_draft=launch.draft is not None)
    options |= _measuring_options(launch, default_threads)
    return options


def serving_options(launch: Launch) -> dict[str, Any]:
    """Those of `server_options` that an arm asks for: without what only measuring needs, and, unless it has a load to
    bear, without specmeter's own default of one slot."""
    settings = launch.arm.engine
    asked = _method_options(launch.arm) | _setting_options(settings, has_draft=launch.draft is not None)
    unasked = {"slots"} if launch.arm.load is None and settings.slots == 1 else set[str]()
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
    """Raise `ExperimentError` when llama.cpp could not honour every field of `arm`."""
    where = f"arm {arm.id}"
    methods = set(arm.methods)
    if len(methods) != len(arm.methods):
        raise ExperimentError(
            f"{where}: methods {list(arm.methods)}: a method is repeated", fix="list each method once"
        )
    if "none" in methods and len(methods) > 1:
        raise ExperimentError(f"{where}: `none` cannot be combined with other methods", fix="leave `none` out")
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
    if arm.draft_sampling == PROBABILISTIC and methods.isdisjoint(SAMPLED_DRAFTS):
        raise ExperimentError(
            f"{where}: draft_sampling: {' + '.join(arm.methods)} always drafts greedily",
            fix=f"leave draft_sampling out, or use {' or '.join(SAMPLED_DRAFTS)}",
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
    if arm.engine.extra_flags:
        raise ExperimentError(
            f"arm {arm.id}: engine.extra_flags: the embedded engine takes no command-line flags",
            fix="leave extra_flags out, or use a native llama-server (engine kind `native`)",
        )
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
            f"{where}: engine.rpc lists remote machines, but no model is placed on them",
            fix="set engine.draft_devices: [RPC0] for the draft model, or engine.devices for the target",
        )
    if any_remote(names) and not settings.rpc and not any("--rpc" in flag for flag in settings.extra_flags):
        model = "target" if any_remote(settings.devices) else "draft"
        raise ExperimentError(
            f"{where}: its {model} is placed on a remote machine, but no machine is given",
            fix="add --set remotes.NAME=HOST:PORT, or engine.rpc: [HOST:PORT]",
        )


def check_synthetic(arm: Arm, where: str) -> None:
    """Raise `ExperimentError` for rates that belong to no draft or could not be those of one."""
    rates = arm.synthetic_rates
    if not rates:
        return
    if not arm.speculates:
        raise ExperimentError(f"{where}: synthetic_rates need a method", fix="add a method that drafts")
    if arm.gamma is None or len(rates) != arm.gamma:
        raise ExperimentError(
            f"{where}: synthetic_rates has {len(rates)} rates and gamma is {arm.gamma}; each position needs a rate",
            fix="set gamma, and give exactly that many rates",
        )
    if any(later > earlier for earlier, later in itertools.pairwise(rates)):
        raise ExperimentError(
            f"{where}: synthetic_rates increase with position, but a token is only accepted after the one before it",
            fix="write rates that never increase",
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
    if arm.draft_sampling is not None:
        options["draft_sampling"] = arm.draft_sampling
    if arm.synthetic_rates:
        options["synthetic_rates"] = list(arm.synthetic_rates)
    return options


_PASSED_ON = ("context", "batch", "ubatch", "slots", "kv_type_k", "kv_type_v", "flash_attention", "gpu_layers")
_PASSED_ON_FOR_DRAFT = ("draft_kv_type_k", "draft_kv_type_v", "draft_gpu_layers")


def _setting_options(settings: EngineSettings, *, has_draft: bool) -> dict[str, Any]:
    names = _PASSED_ON + (_PASSED_ON_FOR_DRAFT if has_draft else ())
    options = {name: value for name in names if (value := getattr(settings, name)) is not None}
    options["context"] = settings.full_context
    if settings.devices:
        options["devices"] = list(settings.devices)
    if settings.draft_devices and has_draft:
        options["draft_devices"] = list(settings.draft_devices)
    for name in ("cpu_moe", "draft_cpu_moe") if has_draft else ("cpu_moe",):
        layers = getattr(settings, f"{name}_layers")
        if layers == ALL_LAYERS:
            options[name] = True
        elif layers:
            options[f"{name}_layers"] = layers
    if settings.override_tensors:
        options["override_tensors"] = list(settings.override_tensors)
    if settings.kv_unified is not None:
        options["kv_unified" if settings.kv_unified else "no_kv_unified"] = True
    if settings.mmap is not None:
        options["load_mode"] = "mmap" if settings.mmap else "none"
    return options


def _measuring_options(launch: Launch, default_threads: int) -> dict[str, Any]:
    """A server that does what is asked and nothing else, and tells everything."""
    settings = launch.arm.engine
    threads = settings.threads or default_threads
    options: dict[str, Any] = {"threads": threads, "batch_threads": threads}
    if launch.draft is not None:
        options |= {"draft_threads": threads, "draft_batch_threads": threads, "draft_context": settings.full_context}
    if settings.prompt_cache:
        options["cache_prompt"] = True
        if launch.recalls:
            options["cache_ram"] = 0
    else:
        # Context checkpoints are snapshots for reusing a prompt; they are not those of speculation on hybrid models.
        options |= {"no_cache_prompt": True, "cache_ram": launch.kept_prompts_mib, "context_checkpoints": 0}
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


# --- the command to paste ---------------------------------------------------------------------------------------------

PROGRAM = "llama-server"
_NEWEST = frozenset(option.flags[0] for option in OPTIONS.values() if option.flags)
SHORT = {"--model": "-m", "--spec-draft-model": "-md", "--model-draft": "-md", "--ctx-size": "-c"}
"""Every version knows these."""
_HUB = "hf:"


def command(launch: Launch, started: Sequence[str]) -> tuple[str, ...] | None:
    """`llama-server -m TARGET -md DRAFT --spec-type draft-simple --spec-draft-n-max 4`, in the flags of the server that
    was `started`, of the newest one where that was the embedded server.

    None for methods that are not llama.cpp's, and where the draft's network was a relay of specmeter's.
    """
    settings = launch.arm.engine
    relayed = any(network_of(address) is not None for address in settings.rpc)
    if relayed or not METHOD_OPTIONS.keys() >= set(launch.arm.methods):
        return None
    draft = launch.draft and launch.draft.model_copy(update={"path": _given(launch.draft)})
    target = launch.target.model_copy(update={"path": _given(launch.target)})
    options = serving_options(replace(launch, target=target, draft=draft))
    native = "--model" in started
    if native and "rpc" in options and "--device" in started:  # the target was kept here
        options.setdefault("devices", started[started.index("--device") + 1])
    try:
        flags = to_flags(options, frozenset(started) if native else _NEWEST)
    except EngineStartError:
        flags = to_flags(options, _NEWEST)
    shown = [SHORT.get(flag, flag) for flag in flags]
    if (hub := _hub_file(launch.target)) is not None:
        place = shown.index("-m")
        shown[place : place + 2] = ["-hf", hub[0], "-hff", hub[1]]
    return (PROGRAM, *shown, *settings.extra_flags)


def _given(model: ModelIdentity) -> str:
    """A model's path as it was written where that leads there from here, otherwise all of it."""
    written = model.reference
    if model.origin == "path" and str(Path(written).absolute()) == model.path:
        return f"./{written}" if written.startswith("-") else written
    return model.path


def _hub_file(model: ModelIdentity) -> tuple[str, str] | None:
    """(repository, file) of a target from the hub; None for any other, and for a revision, which the server cannot be
    asked for. Of a draft it takes no file, only a repository."""
    if model.origin != "hf" or "@" in model.reference:
        return None
    owner, _, rest = model.reference.removeprefix(_HUB).partition("/")
    name, _, file = rest.partition("/")
    return (f"{owner}/{name}", file) if file else None


# --- the two engines --------------------------------------------------------------------------------------------------

EMBEDDED = EngineSpec(
    traits=EngineTraits(
        sampling=SAMPLING,
        draft_samplings=("greedy", PROBABILISTIC),
        model_formats=("gguf",),
        methods=METHODS,
        combines_methods=True,
        settings=settings_without("rpc", "extra_flags", "record_experts"),
        kv_types=KV_TYPES,
        synthetic="random",
        compares_drafts=True,
        drafting="llama-server",
        replays_sessions=True,
        pinned=True,
        tells=SERVER_TELLS,
    ),
    make=lambda _: late("specmeter.engines.llama_cpp.engine:EmbeddedEngine")(),
    check_arm=check_embedded,
    serve=command,
    examine=late("specmeter.engines.llama_cpp.build:examine_embedded"),
)

NATIVE = EngineSpec(
    traits=EMBEDDED.traits.model_copy(update={"settings": settings_without("record_experts"), "pinned": False}),
    make=lambda options: (
        late("specmeter.engines.llama_cpp.builds:SeveralBuilds")(options.builds)
        if options.builds
        else late("specmeter.engines.llama_cpp.engine:NativeEngine")(options.binary)
    ),
    options=NativeOptions,
    check_arm=check_arm,
    serve=command,
    examine=late("specmeter.engines.llama_cpp.build:examine_native"),
)
