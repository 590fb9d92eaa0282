"""rtx3090-19: its configurations by name, what each is compared with, and how sure a ratio of two of them is.

Every configuration was run once, on ten prompts. What repeats is two of them: the baseline and `ngram-cache` were run
again. The differences between a configuration and its own repetition are what any two runs may differ by without a
reason, so they give a ratio of two configurations its interval: with d_i the logarithms of those ratios,

    interval = ratio x exp(+- t(m) * s),    s^2 = mean of d_i^2 over m repetitions.

Two repetitions make it wide (t = 4.30), and it takes the noise of these two for that of all. Runs of ours with several
blocks have intervals of their own (`specmeter.numbers.stats`), which are used instead.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from specmeter.messages import Message
from specmeter.numbers.estimates import bare, from_log
from specmeter.numbers.stats import STUDENT, simultaneous, t_critical
from specmeter.record import Estimate
from specmeter_studies.study import ArmResult, PromptResult, Requests, StudyData

RERUNS = {"baseline-rerun": "baseline", "ngcache-rerun": "ngram-cache"}
"""Repetition -> what it repeats."""
LONGER = {
    "ngcache-1000tok": "ngram-cache",
    "ngmod-n24-1000tok": "ngram-mod-n24",
    "draft-q35-08b-1000tok": "draft-q35-08b-max16",
}
"""With up to 1,000 tokens -> the same with up to 300."""
F16, OTHER_VOCABULARY = "ngcache-kv-fp16", "draft-qwen3-0.6b"


@dataclass(frozen=True)
class Line:
    """A configuration over all its requests."""

    name: str
    arm: ArmResult
    results: tuple[PromptResult, ...]
    """Its single requests; empty where the document does not print them."""
    sums: Requests | None
    """None where no request was answered."""
    reference: str
    """Name of the configuration that it is compared with; its own for a baseline."""

    @property
    def drafts(self) -> bool:
        """Whether drafting was asked for."""
        return self.arm.speculates

    @property
    def believable(self) -> bool:
        """Whether nothing found it invalid."""
        return self.arm.stands

    @property
    def pooled(self) -> float | None:
        """All tokens over all time, in tok/s."""
        return self.arm.decode_rate.point if self.arm.decode_rate else None

    @property
    def max_tokens(self) -> int | None:
        """Most tokens of a request."""
        limits = {result.max_tokens for result in self.results}
        return limits.pop() if len(limits) == 1 else self.arm.max_tokens

    @property
    def rates(self) -> list[float]:
        """Decode rates of its requests, where they are known one by one."""
        return [result.decode_rate for result in self.results if result.decode_rate is not None]

    @property
    def acceptance(self) -> float:
        """Share of the drafted tokens that was accepted; 0 where none was drafted."""
        return self.sums.accepted / self.sums.drafted if self.sums and self.sums.drafted else 0.0


Lines = Mapping[str, Line]


def lines(data: StudyData) -> Lines:
    """Every configuration of the data by its name, in the order of the data."""
    of_config: dict[str, list[PromptResult]] = {}
    for result in data.results:
        of_config.setdefault(result.config, []).append(result)
    found: dict[str, Line] = {}
    for arm in data.whole:
        name, results = _name(arm.config, arm.target), tuple(of_config.get(arm.config, ()))
        reference = _name(arm.baseline, arm.target) if arm.baseline else name
        found[name] = Line(name, arm, results, arm.one_by_one or summed(results), reference)
    return found


def _name(config: str, target: str) -> str:
    return config.removeprefix(f"{target}/")


def summed(results: Iterable[PromptResult]) -> Requests | None:
    """Requests summed up one by one; None where none has a rate."""
    done = [result for result in results if result.decode_rate is not None]
    if not done:
        return None
    rates = np.array([result.decode_rate for result in done], dtype=np.float64)
    return Requests(
        mean_rate=float(rates.mean()),
        median_rate=float(np.median(rates)),
        lowest_rate=float(rates.min()),
        highest_rate=float(rates.max()),
        rate_sd=float(rates.std(ddof=1)) if len(rates) > 1 else 0.0,
        generated=sum(result.generated or 0 for result in done),
        decode_ms=sum(result.decode_ms or 0.0 for result in done),
        drafted=sum(result.drafted or 0 for result in done),
        accepted=sum(result.accepted or 0 for result in done),
        drafting=sum(bool(result.drafted) for result in done),
    )


def drafting(known: Lines) -> list[Line]:
    """Configurations that ask for drafts and can be believed."""
    return [line for line in known.values() if line.drafts and line.believable and line.sums is not None]


def blind(known: Lines) -> bool:
    """Whether the counter of drafts can be held to say only what was accepted: several configurations, all at 100 %."""
    counted = [line.sums for line in drafting(known) if line.sums and line.sums.drafted]
    return len(counted) > 1 and all(sums.accepted == sums.drafted for sums in counted)


# --- ratios ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Noise:
    """What a configuration and its own repetition differ by."""

    sd: float
    """Of the logarithm of a ratio, about 0."""
    n: int
    """Repetitions."""


def noise(known: Lines) -> Noise | None:
    """From the repetitions in the data; None without any."""
    logs = [
        math.log(again.pooled / once.pooled)
        for name, of in RERUNS.items()
        if (again := known.get(name)) and (once := known.get(of)) and again.pooled and once.pooled
    ]
    if not logs:
        return None
    return Noise(math.sqrt(sum(log * log for log in logs) / len(logs)), len(logs))


def ratio(known: Lines, line: Line, *, among: int = 1, level: float = 0.95) -> Estimate | None:
    """Pooled rate over that of its reference; `among`: the interval is to hold for this many of them together.

    None for what is compared with nothing, or was found invalid; without an interval where nothing was repeated.
    """
    base = known.get(line.reference)
    own = line.arm.speedup
    if base is None or base is line or not line.believable:
        return None
    if own is not None and own.low is not None and STUDENT in own.method:
        return simultaneous(own, among)
    if line.pooled is None or base.pooled is None:
        return None
    return _with_noise(line.pooled / base.pooled, noise(known), 1 - (1 - level) / among, level)


def change(known: Lines, longer: Line, shorter: Line, level: float = 0.95) -> Estimate | None:
    """The ratio of one configuration over that of another: how much more, or less, it gains."""
    one, other = ratio(known, longer), ratio(known, shorter)
    if one is None or other is None:
        return None
    halves = [_log_half(it) for it in (one, other)]
    point, n = one.point / other.point, min(one.n, other.n)
    if None in halves:
        return bare(point, "x", "ratio; no interval", n=n, level=level)
    half = math.hypot(*(half or 0.0 for half in halves))
    method = "ratio of two ratios, their half widths added in squares"
    return from_log(math.log(point), half, "x", method, n=n, level=level)


def _log_half(estimate: Estimate) -> float | None:
    if estimate.low is None or estimate.high is None or estimate.low <= 0:
        return None
    return (math.log(estimate.high) - math.log(estimate.low)) / 2


def _with_noise(point: float, repeated: Noise | None, used: float, level: float) -> Estimate:
    if repeated is None or repeated.sd == 0:
        return bare(point, "x", "pooled ratio; nothing was repeated", level=level)
    half = t_critical(repeated.n, used) * repeated.sd
    method = f"pooled ratio; Student's t, spread from {repeated.n} repeated configurations"
    return from_log(math.log(point), half, "x", method, n=repeated.n, level=level)


# --- words -----------------------------------------------------------------------------------------------------------


def percent(estimate: Estimate | None) -> Message:
    """A ratio as a change in percent, with its interval."""
    if estimate is None:
        return Message("rtx3090-19.not_known")
    point = 100 * (estimate.point - 1)
    if estimate.low is None or estimate.high is None:
        return Message("rtx3090-19.change.single", point=point)
    return Message("rtx3090-19.change", point=point, low=100 * (estimate.low - 1), high=100 * (estimate.high - 1))


def named(found: Sequence[Line], most: int = 4) -> Message:
    """Names of configurations, the first few of them."""
    more = Message("rtx3090-19.more", more=len(found) - most) if len(found) > most else ""
    return Message("rtx3090-19.names", names=[line.name for line in found[:most]], more=more)
