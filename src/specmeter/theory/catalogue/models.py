"""A catalogue of language models by shape, with parameters and bytes computed from it, and the way from a name to one.

Parameters are those of the matrices: embedding, attention, feed-forward networks, router, output. Norms, biases, draft
heads (multi-token prediction) and vision towers are left out; together they are below one per cent of the models here.
Tests hold the totals against the published ones.

    attention (grouped)   hidden (q + 2 kv) + q hidden,   q = heads x head (twice with a gate), kv = kv_heads x head
    latent attention      queries through rank r_q, keys and values through rank r_kv plus a shared rotary key
    Gated DeltaNet        hidden (2 k + 2 v + 2 value_heads) + v hidden + convolution, k and v = heads x head
    feed-forward          3 hidden width, per expert or once
    bytes                 parameters x bits / 8

What a forward of one token reads of the weights: all matrices except the embedding (one row of it) and the experts that
were not chosen. The output matrix is read even where it is the embedding. Bytes are estimates: exact for plain formats,
within ten per cent for mixtures, whose quantizers choose a format for each matrix. Where a model's own file is at hand,
its header is better (`specmeter.models.facts`).
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from functools import cache
from importlib import resources
from typing import Annotated, Any, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, model_validator

from specmeter.errors import UsageError
from specmeter.theory.catalogue.devices import MAX_NAME
from specmeter.theory.roofline import Footprint

Count = Annotated[int, Field(ge=1)]
Billions = Annotated[float, Field(gt=0)]

_QUANTIZATION = re.compile(
    r"(?:[-_.:](?:ud|i?q\d|tq\d|b?f16|f32|fp\d{1,2}|mxfp4|nvfp4|int\d|\d{1,2}bit|awq|gptq)(?:_[a-z0-9]{1,3})*)+$"
)
_FILLERS = frozenset({"gguf", "instruct", "chat", "it", "base", "hf", "thinking", "meta", "mlx"})
_VERSION = re.compile(r"v0\.\d+|\d{4}")


class _Entry(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Format(_Entry):
    """A number format of weights."""

    name: str
    bits: Billions
    """Per weight, on average."""
    expert_bits: Billions | None = None
    """Of routed experts, where they differ."""
    source: str

    @property
    def bits_of_experts(self) -> float:
        """Per weight of a routed expert."""
        return self.bits if self.expert_bits is None else self.expert_bits


class Attention(_Entry):
    """Grouped-query attention."""

    heads: Count
    kv_heads: Count
    head: Count
    """Elements of one head."""
    output_gate: bool = False
    """A gate as wide as the queries."""
    windowed_layers: Annotated[int, Field(ge=0)] = 0
    """Layers that see only a short window."""

    def parameters(self, hidden: int) -> int:
        """Of one layer."""
        queries, keys = self.heads * self.head, self.kv_heads * self.head
        return hidden * (queries * (3 if self.output_gate else 2) + 2 * keys)

    @property
    def cached(self) -> int:
        """Numbers that one layer keeps for one position."""
        return 2 * self.kv_heads * self.head


class LatentAttention(_Entry):
    """Multi-head latent attention (DeepSeek)."""

    heads: Count
    query_rank: Count | None = None
    """None: queries are not compressed."""
    kv_rank: Count
    plain: Count
    """Elements of a head without rotary positions."""
    rotary: Count
    """Elements with them."""
    value: Count
    """Elements of a head's value."""

    def parameters(self, hidden: int) -> int:
        """Of one layer."""
        query = self.heads * (self.plain + self.rotary)
        queries = hidden * query if self.query_rank is None else self.query_rank * (hidden + query)
        keys = hidden * (self.kv_rank + self.rotary) + self.kv_rank * self.heads * (self.plain + self.value)
        return queries + keys + self.heads * self.value * hidden

    @property
    def cached(self) -> int:
        """Numbers that one layer keeps for one position."""
        return self.kv_rank + self.rotary


class LinearAttention(_Entry):
    """Gated DeltaNet in some of the layers."""

    architecture: str
    """llama.cpp's name for the model's kind of network."""
    layers: Count
    key_heads: Count
    value_heads: Count
    head: Count = 128
    convolution: Count = 4

    def parameters(self, hidden: int) -> int:
        """Of one layer."""
        keys, values = self.key_heads * self.head, self.value_heads * self.head
        mixed = 2 * keys + values
        return hidden * (mixed + values + 2 * self.value_heads) + mixed * self.convolution + values * hidden

    @property
    def state(self) -> int:
        """Numbers that one layer carries from token to token."""
        mixed = (2 * self.key_heads + self.value_heads) * self.head
        return self.value_heads * self.head**2 + mixed * (self.convolution - 1)


class Experts(_Entry):
    """A mixture of experts in every layer but the first `dense_layers`."""

    count: Count
    used: Count
    width: Count
    shared_width: Annotated[int, Field(ge=0)] = 0
    dense_layers: Annotated[int, Field(ge=0)] = 0


class ModelEntry(_Entry):
    """One entry of `models.yaml`; parameters are counted, not copied."""

    name: str
    aliases: tuple[str, ...] = ()
    layers: Count
    hidden: Count
    vocabulary: Count
    tied: bool = False
    attention: Attention | None = None
    latent: LatentAttention | None = None
    linear: LinearAttention | None = None
    width: Count | None = None
    experts: Experts | None = None
    total: Billions
    """Published parameters in billions."""
    active: Billions | None = None
    """Published active parameters in billions; None for dense models."""
    source: str
    verified: bool = True
    """False where part of the shape was not read in a source."""

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if (self.attention is None) == (self.latent is None):
            raise ValueError(f"{self.name}: one of `attention` and `latent` is needed")
        dense = self.layers if self.experts is None else self.experts.dense_layers
        if (self.width is None) != (dense == 0):
            raise ValueError(f"{self.name}: `width` belongs to layers without experts")
        if self.experts and self.experts.used > self.experts.count:
            raise ValueError(f"{self.name}: more experts used than there are")
        return self

    @property
    def head(self) -> ModelEntry:
        """A head that drafts on this model's states, as a model: one layer with attention, and the output matrix."""
        experts = self.experts and self.experts.model_copy(update={"dense_layers": 0})
        attention = self.attention and self.attention.model_copy(update={"windowed_layers": 0})
        return self.model_copy(update={"layers": 1, "linear": None, "experts": experts, "attention": attention})

    @property
    def embedding_parameters(self) -> int:
        """The embedding, and again the output matrix where it is another one."""
        return self.vocabulary * self.hidden

    @property
    def attention_parameters(self) -> int:
        """Attention of all layers, of whatever kind."""
        full = self.attention or self.latent
        assert full is not None
        if self.linear is None:
            return self.layers * full.parameters(self.hidden)
        linear = self.linear.layers * self.linear.parameters(self.hidden)
        return linear + (self.layers - self.linear.layers) * full.parameters(self.hidden)

    @property
    def expert_parameters(self) -> int:
        """One expert in every layer that has experts; 0 for dense models."""
        if self.experts is None:
            return 0
        return (self.layers - self.experts.dense_layers) * 3 * self.hidden * self.experts.width

    @property
    def shared_parameters(self) -> int:
        """Read by every forward, whatever is routed: all but the routed experts and the embedding's lookup."""
        dense = (self.layers if self.experts is None else self.experts.dense_layers) * (self.width or 0)
        shared = router = 0
        if self.experts:
            layers = self.layers - self.experts.dense_layers
            shared, router = layers * self.experts.shared_width, layers * self.hidden * self.experts.count
        return self.attention_parameters + 3 * self.hidden * (dense + shared) + router + self.embedding_parameters

    @property
    def total_parameters(self) -> int:
        """All matrices."""
        count = self.experts.count if self.experts else 0
        lookup = 0 if self.tied else self.embedding_parameters
        return self.shared_parameters + count * self.expert_parameters + lookup

    @property
    def active_parameters(self) -> int:
        """Multiplied with one token: without experts that were not chosen, and an embedding that is only looked up."""
        return self.shared_parameters + (self.experts.used if self.experts else 0) * self.expert_parameters

    @property
    def kv_per_position(self) -> int:
        """Numbers in the KV cache for one position of a long context, over all layers."""
        if self.latent:
            return self.layers * self.latent.cached
        assert self.attention is not None
        layers = self.layers - (self.linear.layers if self.linear else 0) - self.attention.windowed_layers
        return layers * self.attention.cached

    def footprint(self, format_name: str, *, kv_bits: float = 16) -> Footprint:
        """What forwards read, for `theory.roofline`; the recurrent state is kept in 32 bits, read and written."""
        form = number_format(format_name)
        state = self.linear.layers * self.linear.state if self.linear else 0
        return Footprint(
            always_bytes=self.shared_parameters * form.bits / 8,
            expert_bytes=self.expert_parameters * form.bits_of_experts / 8,
            experts=self.experts.count if self.experts else 0,
            used=self.experts.used if self.experts else 0,
            lookup_bytes=self.hidden * form.bits / 8,
            kv_bytes_per_position=self.kv_per_position * kv_bits / 8,
            state_bytes=2 * state * 4,
            flops_per_token=2 * self.active_parameters,
        )


@cache
def models() -> tuple[ModelEntry, ...]:
    """All entries, in the order of the file."""
    return tuple(ModelEntry.model_validate(entry) for entry in _document()["models"])


@cache
def formats() -> tuple[Format, ...]:
    """All number formats, in the order of the file."""
    return tuple(Format.model_validate(entry) for entry in _document()["formats"])


def number_format(name: str) -> Format:
    """The format of that name, in any case; raises `UsageError` with the names there are."""
    known = {form.name.lower(): form for form in formats()}
    found = known.get(name.lower())
    if found is None:
        near = get_close_matches(name.lower()[:MAX_NAME], known, n=3, cutoff=0.5) or list(known)
        raise UsageError(
            f"format {name[:MAX_NAME]!r} is not in the catalogue",
            fix=f"use {' or '.join(known[key].name for key in near)}",
        )
    return found


def find(name: str) -> tuple[ModelEntry, ...]:
    """The entries that a name fits: one, or none where it is unknown.

    Compared are letters and digits, without the owner of a repository, letter case, quantization, dates and words like
    `Instruct` or `GGUF`: `unsloth/Qwen3.6-35B-A3B-GGUF:Q4_K_M` is Qwen3.6-35B-A3B.
    """
    return _index().get(_key(name), ()) if len(name) <= MAX_NAME else ()


def model(name: str) -> ModelEntry:
    """The one entry that a name fits; raises `UsageError` that names the nearest ones."""
    found = find(name)
    if not found:
        by_key = {key: entries[0] for key, entries in _index().items()}
        near = get_close_matches(_key(name[:MAX_NAME]), by_key, n=3, cutoff=0.5)
        names = [by_key[key].name for key in near] or [entry.name for entry in models()]
        raise UsageError(
            f"model {name[:MAX_NAME]!r} is not in the catalogue", fix=f"use one of {', '.join(dict.fromkeys(names))}"
        )
    return found[0]


@cache
def _index() -> dict[str, tuple[ModelEntry, ...]]:
    found: dict[str, list[ModelEntry]] = {}
    for entry in models():
        for key in dict.fromkeys(_key(name) for name in (entry.name, *entry.aliases)):
            found.setdefault(key, []).append(entry)
    return {key: tuple(entries) for key, entries in found.items()}


def _key(name: str) -> str:
    """What is left of a name to compare."""
    plain = _QUANTIZATION.sub("", name.lower().strip().rsplit("/", 1)[-1].removesuffix(".gguf"))
    words = [word for word in re.split(r"[^a-z0-9.]+", plain) if word not in _FILLERS]
    return "".join(word for word in words if not _VERSION.fullmatch(word)).replace(".", "")


@cache
def _document() -> dict[str, Any]:
    text = (resources.files("specmeter.theory.catalogue") / "models.yaml").read_text(encoding="utf-8")
    return yaml.safe_load(text)
