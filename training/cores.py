"""Which cores there are: shape, seed, and how long each one is trained."""

from __future__ import annotations

from dataclasses import dataclass

VOCABULARY, OTHER_VOCABULARY = 2048, 1536
CONTEXT = 8192
TEXT_SEED = 20_261


@dataclass(frozen=True)
class Shape:
    """What GGUF metadata says about a model; `experts == 0` means dense."""

    vocabulary: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    experts: int = 0
    top_k: int = 0
    rope_theta: float = 1_000.0

    @property
    def architecture(self) -> str:
        return "qwen3moe" if self.experts else "qwen3"


DENSE = Shape(VOCABULARY, hidden=256, layers=7, heads=4, kv_heads=2, head_dim=64, ffn=768)
MOE = Shape(VOCABULARY, hidden=256, layers=4, heads=4, kv_heads=2, head_dim=64, ffn=128, experts=32, top_k=4)
DRAFT_LARGE = Shape(VOCABULARY, hidden=192, layers=3, heads=3, kv_heads=3, head_dim=64, ffn=512)
DRAFT_SMALL = Shape(VOCABULARY, hidden=96, layers=2, heads=2, kv_heads=2, head_dim=64, ffn=192)
DRAFT_OTHER = Shape(OTHER_VOCABULARY, hidden=96, layers=2, heads=2, kv_heads=2, head_dim=64, ffn=192)


@dataclass(frozen=True)
class Core:
    """One trained core. Of its training tokens the last tenth comes in long windows."""

    name: str
    shape: Shape
    seed: int
    tokens: int
    quantization: str
    role: str
    matrix_rate: float = 0.02
    other_rate: float = 0.006
    batch_tokens: int = 2048
    outliers: int = 1
    """How much larger some weights are made than their neighbours, a power of two; see `export.with_outliers`."""


CORES = (
    Core("dense", DENSE, 11, 9_350_000, "F16", "target", outliers=16),
    Core("moe", MOE, 12, 9_350_000, "Q8_0", "target", batch_tokens=4096),
    Core("draft-large", DRAFT_LARGE, 13, 6_500_000, "F16", "draft"),
    Core("draft-small", DRAFT_SMALL, 14, 7_100_000, "F16", "draft"),
    Core("draft-other-vocab", DRAFT_OTHER, 15, 700_000, "Q8_0", "incompatible draft"),
)
BY_NAME = {core.name: core for core in CORES}
