"""Prompts: where they come from, and how they are chosen and cut."""

from specmeter.workloads.loading import behind_text, count, load, needs_tokenizer
from specmeter.workloads.spec import WorkloadSpec

__all__ = ["WorkloadSpec", "behind_text", "count", "load", "needs_tokenizer"]
