"""rtx3090-19: 19 configurations of llama.cpp's server on ten prompts, said to lose at 100 % acceptance."""

from __future__ import annotations

from specmeter.studies.rtx3090.claims import claims
from specmeter.studies.rtx3090.figures import figures
from specmeter.studies.rtx3090.published import published
from specmeter.studies.rtx3090.tables import tables

__all__ = ["PARTS", "SOURCE", "TITLE", "claims", "figures", "published", "tables"]

TITLE = "Speculative checkpointing on an RTX 3090: 19 configurations"
SOURCE = (
    "thc1006, 19 configurations of speculative decoding with Qwen3.6-35B-A3B on one RTX 3090, April 2026, "
    "https://github.com/thc1006/qwen3.6-speculative-decoding-rtx3090 (revised by its author in August 2026)"
)
PARTS = ("rtx3090-19",)
