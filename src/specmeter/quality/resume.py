"""What an interrupted report leaves to be measured."""

from __future__ import annotations

from collections.abc import Sequence

from specmeter.errors import UsageError
from specmeter.quality import ModelQuality, QualityReport, SpeedTest


def carried_over(earlier: QualityReport, now: QualityReport, tests: Sequence[SpeedTest]) -> list[ModelQuality]:
    """The models of `now`, which holds no numbers yet, with the perplexities and complete blocks of `earlier`.

    Raises `UsageError` when that report is of another machine, text, setting or model, or timed other things: numbers
    of two kinds would stand in one table.
    """
    differs = _difference(earlier, now, tests)
    if differs:
        raise UsageError(
            f"the report to go on with has another {differs}", fix="name another file, or remove the old one"
        )
    return [
        ours.model_copy(
            update={
                "perplexity": theirs.perplexity,
                "rates": theirs.rates,
                "rates_engine": theirs.rates_engine,
                "warnings": theirs.warnings,
            }
        )
        for ours, theirs in zip(now.models, earlier.models, strict=True)
    ]


def _difference(earlier: QualityReport, now: QualityReport, tests: Sequence[SpeedTest]) -> str:
    """What the two do not have in common; empty: they go together."""
    if earlier.host.hostname_sha256 != now.host.hostname_sha256:
        return "machine"
    if (earlier.settings, earlier.stride, earlier.most_windows) != (now.settings, now.stride, now.most_windows):
        return "engine setting, context, stride or number of windows"
    if earlier.text.sha256 != now.text.sha256:
        return "text"
    if [model.model.sha256 for model in earlier.models] != [model.model.sha256 for model in now.models]:
        return "set of models"
    if any(model.rates and [rate.test for rate in model.rates] != list(tests) for model in earlier.models):
        return "set of tests"
    if len({len(rate.ms) for model in earlier.models for rate in model.rates}) > 1:
        return "number of blocks for each model"
    return ""
