"""How much a quality measurement is, in its own units: models, windows of a text that are scored, and timings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from specmeter.messages import Message
from specmeter.record import Record

if TYPE_CHECKING:
    from specmeter.analysis.quality import QualityReport
    from specmeter_studies.quality.plan import QualityPlan


class Amount(Record):
    """What is to be measured of models, or what was."""

    models: int = 0
    perplexities: int = 0
    """Models that are scored."""
    windows: int | None = 0
    """Windows that are scored, of all models together; None: as many as the text has."""
    timings: int = 0
    """Of all models, tests and blocks together."""

    @property
    def message(self) -> Message | None:
        """`7 models (7 perplexities of 70 windows in all, 84 timings)`; None where there is nothing."""
        if not self.models:
            return None
        parts: list[Message] = []
        if self.perplexities:
            windows = "" if self.windows is None else Message("study.amount.windows", windows=self.windows)
            parts.append(Message("study.amount.scored", perplexities=self.perplexities, windows=windows))
        if self.timings:
            parts.append(Message("study.amount.timed", timings=self.timings))
        return Message("study.amount", models=self.models, parts=parts or [Message("study.nothing_yet")])


def planned(plan: QualityPlan, models: Sequence[str]) -> Amount:
    """What a plan asks for of those of its models that are measured."""
    scored = len(models) if plan.score else 0
    windows = 0 if not scored else None if plan.windows is None else scored * plan.windows
    return Amount(
        models=len(models),
        perplexities=scored,
        windows=windows,
        timings=len(models) * len(plan.tests) * plan.repeats,
    )


def measured(report: QualityReport) -> Amount:
    """What a report holds, complete or not."""
    scores = [model.perplexity for model in report.models if model.perplexity is not None]
    return Amount(
        models=len(report.models),
        perplexities=len(scores),
        windows=sum(score.windows for score in scores),
        timings=sum(len(rate.ms) for model in report.models for rate in model.rates),
    )


def together(amounts: Iterable[Amount]) -> Amount:
    """Several measurements as one; windows are unknown where those of one are."""
    every = list(amounts)
    windows = [amount.windows for amount in every]
    return Amount(
        models=sum(amount.models for amount in every),
        perplexities=sum(amount.perplexities for amount in every),
        windows=None if None in windows else sum(count or 0 for count in windows),
        timings=sum(amount.timings for amount in every),
    )
