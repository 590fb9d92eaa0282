"""llama.cpp's server as two kinds of engine, and what its drafts, settings and numbers are."""

from __future__ import annotations

from collections.abc import Iterable

from specmeter.engines.registry import EngineSpec, late
from specmeter.record import EngineSettings, EngineTraits, MethodTraits, Record, Truth

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

KV_TYPES = ("f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl")

SERVER_TELLS: tuple[Truth, ...] = (
    "drafts", "forwards", "steps", "tokens", "arrivals", "candidates", "settings", "activation", "memory", "log",
    "identity", "processes",
)  # fmt: skip


class NativeOptions(Record):
    """What can be said of a native server beside its settings."""

    binary: str | None = None
    """Path of the llama-server binary."""


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


EMBEDDED = EngineSpec(
    traits=EngineTraits(
        model_formats=("gguf",),
        methods=METHODS,
        combines_methods=True,
        settings=settings_without("rpc", "extra_flags", "record_experts"),
        kv_types=KV_TYPES,
        synthetic="dice",
        compares_drafts=True,
        drafting="llama-server",
        pinned=True,
        tells=SERVER_TELLS,
    ),
    make=lambda _: late("specmeter.engines.llama_cpp.embedded:EmbeddedEngine")(),
    check_arm=late("specmeter.engines.llama_cpp.methods:check_embedded"),
    serve=late("specmeter.engines.llama_cpp.serving:command"),
    examine=late("specmeter.engines.llama_cpp.status:examine_embedded"),
)

NATIVE = EngineSpec(
    traits=EMBEDDED.traits.model_copy(update={"settings": settings_without("record_experts"), "pinned": False}),
    make=lambda options: late("specmeter.engines.llama_cpp.native:NativeEngine")(options.binary),
    options=NativeOptions,
    check_arm=late("specmeter.engines.llama_cpp.methods:check_arm"),
    serve=late("specmeter.engines.llama_cpp.serving:command"),
    examine=late("specmeter.engines.llama_cpp.status:examine_native"),
)
