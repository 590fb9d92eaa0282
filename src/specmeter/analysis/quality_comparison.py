"""Models of a report beside each other: what each gains and loses against the first, and which are on the front."""

from __future__ import annotations

from collections.abc import Sequence

from specmeter.analysis.perplexity import relative
from specmeter.analysis.quality import ModelQuality, Perplexity, QualityReport, Rate
from specmeter.numbers.estimates import bare
from specmeter.numbers.stats import Pool, geometric_speedup
from specmeter.record import Estimate, Record


class ComparedModel(Record):
    """One model beside the first one of its report."""

    reference: str
    """As the model was named."""
    size_bytes: int
    bits_per_weight: float
    perplexity: Perplexity | None
    change: Estimate | None
    """Perplexity over the first model's, windows paired; None for the first one itself and where there is no saying."""
    incomparable: str
    """Why its perplexity cannot be put beside the first one's; empty where it can, or where there is none."""
    rates: tuple[Rate, ...]
    speedup: Estimate | None
    """Rate of generation over the first model's, at the smallest depth, blocks paired; None for the first one."""
    on_front: bool | None
    """No other model is as small, as good and as fast, and better in one of the three. By points: intervals are not
    looked at. None where there is nothing to compare with."""


def compare(report: QualityReport) -> tuple[ComparedModel, ...]:
    """One row for each model, in the order of the report."""
    first = report.models[0]
    reasons = [_incomparable(model.perplexity, first.perplexity) for model in report.models]
    front = _front(report.models, reasons)
    return tuple(
        ComparedModel(
            reference=model.model.reference,
            size_bytes=model.model.size_bytes,
            bits_per_weight=model.bits_per_weight,
            perplexity=model.perplexity,
            change=None if place == 0 or reasons[place] else _change(model.perplexity, first.perplexity),
            incomparable=reasons[place],
            rates=model.rates,
            speedup=None if place == 0 else _speedup(generation(model.rates), generation(first.rates)),
            on_front=front[place],
        )
        for place, model in enumerate(report.models)
    )


def perplexity_change(ours: ModelQuality, theirs: ModelQuality) -> Estimate | None:
    """Perplexity of one model over another's, windows paired; None where they cannot be compared."""
    if _incomparable(ours.perplexity, theirs.perplexity):
        return None
    return _change(ours.perplexity, theirs.perplexity)


def speed_change(ours: ModelQuality, theirs: ModelQuality) -> Estimate | None:
    """Rate of generation of one model over another's, at the smallest depth, blocks paired; None where not measured."""
    return _speedup(generation(ours.rates), generation(theirs.rates))


def generation(rates: Sequence[Rate]) -> Rate | None:
    """The generation at the smallest depth: what a model's speed is taken to be."""
    generations = [rate for rate in rates if rate.test.kind == "generate"]
    return min(generations, key=lambda rate: rate.test.depth, default=None)


def _incomparable(ours: Perplexity | None, theirs: Perplexity | None) -> str:
    if ours is None or theirs is None:
        return ""
    known = ours.tokens_sha256 is not None and theirs.tokens_sha256 is not None
    if (known and ours.tokens_sha256 != theirs.tokens_sha256) or ours.scored != theirs.scored:
        return "its vocabulary splits the text into other tokens"
    if (ours.window_tokens, ours.windows) != (theirs.window_tokens, theirs.windows):
        return "other windows"
    return ""


def _change(ours: Perplexity | None, theirs: Perplexity | None) -> Estimate | None:
    if ours is None or theirs is None:
        return None
    if ours.window_surprise and theirs.window_surprise:
        return relative(ours.window_surprise, theirs.window_surprise, ours.scored // ours.windows)
    point = ours.estimate.point / theirs.estimate.point
    return bare(point, "x", "ratio of printed numbers; no interval", n=ours.windows)


def _speedup(ours: Rate | None, theirs: Rate | None) -> Estimate | None:
    if ours is None or theirs is None or not ours.ms or not theirs.ms:
        return None
    return geometric_speedup(
        [
            (Pool(ours.test.tokens, mine), Pool(theirs.test.tokens, other))
            for mine, other in zip(ours.ms, theirs.ms, strict=True)
        ]
    )


def _front(models: Sequence[ModelQuality], reasons: Sequence[str]) -> list[bool | None]:
    """Whether each model is on the front of size, perplexity and rate of generation, as far as these are known."""
    places = [place for place, reason in enumerate(reasons) if not reason]
    if len(places) < 2:
        return [None] * len(models)
    losses = {place: _losses(models[place]) for place in places}
    if len({len(loss) for loss in losses.values()}) > 1 or len(losses[places[0]]) < 2:
        return [None] * len(models)
    return [
        None
        if place not in losses
        else not any(_beats(losses[other], losses[place]) for other in places if other != place)
        for place in range(len(models))
    ]


def _losses(model: ModelQuality) -> tuple[float, ...]:
    """What should be small: size, perplexity, time per token."""
    rate = generation(model.rates)
    quality = (model.perplexity.estimate.point,) if model.perplexity is not None else ()
    return (float(model.model.size_bytes), *quality, *((1 / rate.rate.point,) if rate is not None else ()))


def _beats(ours: tuple[float, ...], theirs: tuple[float, ...]) -> bool:
    return all(a <= b for a, b in zip(ours, theirs, strict=True)) and ours != theirs
