"""Models of a quality measurement as studies of quantization look at them, and ratios between any two.

Two models that took turns in the same blocks, or were scored on the same windows, are compared block by block and
window by window. Where only means and spreads are printed, with m the means, s the standard
deviations of n runs each, and e = (s1 / m1)^2 / n1 + (s2 / m2)^2 / n2,

    rate ratio         m1 / m2 * exp(-+ t sqrt(e)),   t by Satterthwaite's degrees of freedom
    perplexity ratio   p1 / p2 * exp(-+ 1.96 sqrt((e1 / p1)^2 + (e2 / p2)^2)),   e: the printed errors

The second takes two models' errors on one text for independent. They are not (a hard token is hard for both), so it is
wider than the truth by much; but the printed errors themselves take tokens for independent, and are too small.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from specmeter.analysis.perplexity import relative
from specmeter.analysis.quality_comparison import compare, generation
from specmeter.numbers.estimates import bare, deviation, from_log, ratio_of_means, scaled
from specmeter.numbers.stats import Pool, geometric_speedup, ratio_of_groups, simultaneous
from specmeter.record import Estimate

if TYPE_CHECKING:
    from specmeter.analysis.quality import ModelQuality, Perplexity, Rate
    from specmeter_studies.study import StudyData

_NORMAL = 1.959964
LEVEL = 0.95


@dataclass(frozen=True)
class Rung:
    """One model of a ladder."""

    quality: ModelQuality
    on_front: bool | None
    """No other is as small, as good and as fast, and better in one of them, by points; None: not known."""

    @property
    def name(self) -> str:
        """The study's name."""
        return self.quality.model.name

    @property
    def title(self) -> str:
        """For tables: the label, else the name."""
        return (self.quality.role.label if self.quality.role else "") or self.name

    @property
    def family(self) -> str:
        """Models that differ only in quantization share one; empty: not said."""
        return self.quality.role.family if self.quality.role else ""

    @property
    def training(self) -> str:
        """`qat`, `ptq`, or empty."""
        return self.quality.role.training if self.quality.role else ""

    @property
    def bits(self) -> float | None:
        """Bits per weight as the type is called."""
        return self.quality.role.bits if self.quality.role else None

    @property
    def bits_told(self) -> str:
        """Bits per weight of the file, as marks of figures are named."""
        return f"{self.quality.bits_per_weight:.1f}"

    @property
    def size_bytes(self) -> int:
        """Of the file."""
        return self.quality.model.size_bytes

    @property
    def bytes_per_token(self) -> int:
        """Weights that one token reads; of a file whose header is not known all of it."""
        header = self.quality.model.header
        return header.bytes_per_token if header is not None else self.size_bytes

    @property
    def generation(self) -> Rate | None:
        """Generation at the smallest depth."""
        return generation(self.quality.rates)

    @property
    def prompt(self) -> Rate | None:
        """Reading a prompt, at the smallest depth."""
        prompts = [rate for rate in self.quality.rates if rate.test.kind == "prompt"]
        return min(prompts, key=lambda rate: rate.test.depth, default=None)

    @property
    def perplexity(self) -> Perplexity | None:
        """None where it was not scored."""
        return self.quality.perplexity

    @property
    def architecture(self) -> tuple[object, ...] | None:
        """What two models must share to differ in quantization alone; None: not known."""
        header = self.quality.model.header
        return None if header is None else (header.architecture, header.layers, header.parameters)


def rungs(data: StudyData) -> tuple[Rung, ...]:
    """The models of the study's first quality measurement, in its order."""
    for report in data.quality:
        return tuple(Rung(quality, row.on_front) for quality, row in zip(report.models, compare(report), strict=True))
    return ()


def named(ladder: Sequence[Rung], name: str) -> Rung | None:
    """A rung by the study's name."""
    return next((rung for rung in ladder if rung.name == name), None)


def faster(ours: Rung, theirs: Rung, *, among: int = 1) -> Estimate | None:
    """Rate of generation over another's; None where one of them is not known.

    With `among`, one of this many intervals that hold together (Bonferroni).
    """
    return rate_ratio(ours.generation, theirs.generation, among=among)


def rate_ratio(ours: Rate | None, theirs: Rate | None, *, among: int = 1) -> Estimate | None:
    """One rate over another: paired by block, by groups of blocks, or from printed means and spreads."""
    if ours is None or theirs is None:
        return None
    if not ours.ms or not theirs.ms:
        return _from_means(ours, theirs, among)
    tokens = ours.test.tokens, theirs.test.tokens
    if len(ours.ms) == len(theirs.ms):
        pairs = zip(ours.ms, theirs.ms, strict=True)
        found = geometric_speedup([(Pool(tokens[0], mine), Pool(tokens[1], other)) for mine, other in pairs])
        return found if found.low is None else simultaneous(found, among)
    import numpy as np

    mine, other = (np.log(count / np.asarray(rate.ms)) for count, rate in zip(tokens, (ours, theirs), strict=True))
    return ratio_of_groups(mine, other, among=among)


def worse(ours: Rung, theirs: Rung) -> Estimate | None:
    """Perplexity over another's; None where one is not known, or they are of different tokens."""
    mine, other = ours.perplexity, theirs.perplexity
    if mine is None or other is None or (mine.windows, mine.window_tokens) != (other.windows, other.window_tokens):
        return None
    known = mine.tokens_sha256 is not None and other.tokens_sha256 is not None
    if known and mine.tokens_sha256 != other.tokens_sha256:
        return None
    if mine.window_surprise and other.window_surprise:
        return relative(mine.window_surprise, other.window_surprise, mine.scored // mine.windows)
    point = mine.estimate.point / other.estimate.point
    if mine.token_error is None or other.token_error is None:
        return bare(point, "x", "ratio of printed perplexities; no interval", n=mine.windows)
    error = math.hypot(mine.token_error / mine.estimate.point, other.token_error / other.estimate.point)
    method = "ratio of printed perplexities; their printed errors taken for independent"
    return from_log(math.log(point), _NORMAL * error, "x", method, n=mine.windows)


def bandwidth(rung: Rung) -> Estimate | None:
    """Bytes of weights per second while it generates: its rate times what a token reads."""
    rate = rung.generation
    if rate is None:
        return None
    method = f"rate times bytes per token; {rate.rate.method}"
    return scaled(rate.rate, rung.bytes_per_token, "B/s").model_copy(update={"method": method})


def spread(rate: Rate | None) -> Estimate | None:
    """Standard deviation of a rate in tok/s over its runs, with the interval of a normal distribution's (chi squared).

    None where fewer than two runs are known.
    """
    if rate is None or rate.deviation is None or rate.rate.n < 2:
        return None
    return deviation(rate.deviation, rate.rate.n, "tok/s", level=LEVEL)


def percent_change(ratio: Estimate | None) -> Estimate | None:
    """A ratio of 1.05 as +5 %."""
    if ratio is None:
        return None
    point, low, high = (None if value is None else 100 * (value - 1) for value in (ratio.point, ratio.low, ratio.high))
    return ratio.model_copy(update={"point": point, "low": low, "high": high, "unit": "%"})


def _from_means(ours: Rate, theirs: Rate, among: int) -> Estimate:
    if ours.deviation is None or theirs.deviation is None:
        n = ours.rate.n + theirs.rate.n
        point = ours.rate.point / theirs.rate.point
        return bare(point, "x", "ratio of printed rates; no interval", n=n)
    return ratio_of_means(ours.rate, theirs.rate, (ours.deviation, theirs.deviation), among=among)
