"""What became of predictions: each beside the speedup that was measured afterwards."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from statistics import median

from specmeter.record import Estimate, Prediction, Record


class PredictionOutcome(Record):
    """A prediction and its error."""

    prediction: Prediction
    measured: Estimate | None
    """The arm's speedup with the interval to cite; None if there is no trustworthy one."""

    @property
    def error(self) -> float | None:
        """predicted / measured - 1; None if one is missing."""
        if self.prediction.speedup is None or self.measured is None:
            return None
        return self.prediction.speedup.point / self.measured.point - 1

    @property
    def inside(self) -> bool | None:
        """Whether the measured value is in the predicted interval; None if unknown."""
        predicted = self.prediction.speedup
        if predicted is None or self.measured is None or predicted.low is None or predicted.high is None:
            return None
        return predicted.low <= self.measured.point <= predicted.high


class Accuracy(Record):
    """How good the predictions of a run were, over the arms where both numbers are there."""

    arms: int
    median_error: float
    """Median of the absolute relative errors."""
    worst_error: float
    inside: int
    """Arms whose measured speedup lies within the predicted interval."""


def outcomes(
    predictions: Iterable[Prediction], measured: Mapping[str, Estimate | None]
) -> tuple[PredictionOutcome, ...]:
    """Each prediction with the speedup that was `measured` of its arm, by its id."""
    return tuple(PredictionOutcome(prediction=it, measured=measured.get(it.arm_id)) for it in predictions)


def accuracy(found: Iterable[PredictionOutcome]) -> Accuracy | None:
    """Over all of them; None where there is no error to speak of."""
    judged = [(abs(error), outcome.inside) for outcome in found if (error := outcome.error) is not None]
    if not judged:
        return None
    errors = [error for error, _ in judged]
    return Accuracy(
        arms=len(judged),
        median_error=median(errors),
        worst_error=max(errors),
        inside=sum(bool(inside) for _, inside in judged),
    )


def as_data(outcome: PredictionOutcome) -> dict[str, object]:
    """For JSON: the records and what follows from them."""
    return {**outcome.model_dump(mode="json"), "error": outcome.error, "inside": outcome.inside}
