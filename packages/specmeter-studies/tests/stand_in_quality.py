"""Scores and times of models without an engine: a smaller file is faster and says less of the text."""

from __future__ import annotations

from pathlib import Path

import pytest

from specmeter.engines.process import Heard
from specmeter_studies.quality.scoring import Scores, Scoring
from specmeter_studies.quality.timing import Times, Timing


def install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the place of the two processes in which models are scored and timed; files are found or made as ever."""
    monkeypatch.setattr("specmeter_studies.quality.measure.score_apart", scores)
    monkeypatch.setattr("specmeter_studies.quality.measure.time_apart", times)


def scores(order: Scoring, heard: Heard) -> Scores:
    """So many windows as are asked for."""
    windows, tokens = order.windows or 2, order.settings.full_context // 2 - 1
    each = 1.0 + 1e6 / Path(order.model).stat().st_size
    heard(windows, windows)
    return Scores(
        text_tokens=windows * order.settings.full_context,
        tokens_sha256="t" * 64,
        train_context=order.settings.full_context,
        begins_with_bos=False,
        wants_bos=False,
        window_tokens=order.settings.full_context,
        scored=tokens,
        surprise=tuple(tokens * each * (1 + 0.01 * window) for window in range(windows)),
        squares=tuple(2 * tokens * each**2 for _ in range(windows)),
    )


def times(order: Timing) -> Times:
    """A millisecond for a megabyte and token, and a little more in each block."""
    megabytes = Path(order.model).stat().st_size / 1e6
    return Times(ms=tuple(megabytes * test.tokens * (1 + 0.01 * order.seed) for test in order.tests))
