"""moe-306: 306 runs of Qwen3.5-35B-A3B and dense siblings on one machine, said to gain at under 4 % acceptance."""

from __future__ import annotations

from specmeter.studies.moe306.claims import claims
from specmeter.studies.moe306.figures import figures
from specmeter.studies.moe306.lines import suite
from specmeter.studies.moe306.published import published
from specmeter.studies.moe306.tables import tables

__all__ = ["PARTS", "SOURCE", "TITLE", "claims", "figures", "published", "suite", "tables"]

TITLE = "Does speculative decoding help mixture-of-experts?"
SOURCE = (
    "AtomGradient, Does Speculative Decoding Help Mixture-of-Experts? An Empirical Study on Qwen3.5-35B-A3B with Apple "
    "Silicon, March 2026, https://github.com/AtomGradient/speculative-moe-research"
)
PARTS = ("moe-306",)
