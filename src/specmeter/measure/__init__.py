"""Measuring: the cells of the schedule, one request after the other, or many at once under a load."""

from __future__ import annotations

from specmeter.measure.loop import Observer, Predictor, Work, measure, needed, warmup_tokens
from specmeter.measure.requests import block_seed

__all__ = ["Observer", "Predictor", "Work", "block_seed", "measure", "needed", "warmup_tokens"]
