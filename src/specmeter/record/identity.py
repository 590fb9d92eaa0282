"""What was measured, to the byte: models, pairs of target and draft, the engine."""

from __future__ import annotations

from typing import Literal

from specmeter.record.base import Record
from specmeter.record.traits import EngineTraits


class ModelHeader(Record):
    """What a model file says about its shape, as far as judging a measurement needs it."""

    architecture: str | None
    layers: int | None
    experts: int
    """Experts per layer to choose from; 0 for dense models."""
    experts_used: int
    """Experts chosen for a token."""
    recurrent: bool
    """Carries a recurrent state, so that rejected tokens cannot simply be forgotten."""
    parameters: int
    bytes_per_token: int
    """Weights read to decode one token by itself: of an MoE the chosen experts only."""
    kv_bytes_per_token: int | None
    """KV cache of one more token in 16-bit; None when the layout is not known."""
    active_parameters: int
    """Used for one token: without the experts that are not chosen and without draft heads."""
    quantization: str
    """Number format of the largest share of the weights, like `Q4_K`."""


class ModelIdentity(Record):
    """A model file as it was used."""

    name: str
    """Name in the experiment."""
    reference: str
    """As written in the experiment: a path, `bench:...` or `hf:...`."""
    path: str
    sha256: str
    size_bytes: int
    origin: Literal["path", "bench", "hf", "mock", "engine"]
    """Where it comes from; `engine`: it is named in the engine's own way, and the engine says what it is."""
    timing_only: bool = False
    """Random weights: fit for timing, refused as a source of acceptance."""
    header: ModelHeader | None = None
    """None for a model of the engine's own."""

    @property
    def simulated(self) -> bool:
        """There is no such model: an engine that simulates made it up."""
        return self.origin == "mock"


class Condition(Record):
    """One thing that target and draft should have in common."""

    name: str
    status: Literal["ok", "refused", "warning"]
    target: str
    """What the target has."""
    draft: str
    """What the draft has."""
    why: str
    """What the condition is about, or what follows from breaking it."""


class DraftPair(Record):
    """A target and a draft of the experiment, compared before anything was measured."""

    target: str
    """Name in the experiment."""
    draft: str
    """Name in the experiment."""
    conditions: tuple[Condition, ...]


class EngineIdentity(Record):
    """Which engine, to the byte."""

    kind: str
    """`embedded`, `native`, `mock`, ...: what experiments write as `engine.kind`."""
    version: str
    """Package or build version as the engine reports it."""
    build: str
    """Build information line of the engine."""
    binary: str
    """Path of the executable, or of the extension module."""
    binary_sha256: str
    """Of that file."""
    libraries: dict[str, str] = {}
    """File name -> SHA-256 of every shared object that belongs to the engine."""
    system_info: str = ""
    """CPU features and backends as the engine prints them."""
    traits: EngineTraits | None = None
    """What it states about itself; None where it measured something else than an experiment."""
