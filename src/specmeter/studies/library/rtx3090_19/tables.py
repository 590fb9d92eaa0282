"""rtx3090-19: rows of its tables and figures."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from specmeter.record import Estimate
from specmeter.studies.library.rtx3090_19.lines import F16, LONGER, OTHER_VOCABULARY, RERUNS, Line, Lines, lines, ratio
from specmeter.studies.library.rtx3090_19.mechanism import Budget, Saturation, budget, gamma, saturation
from specmeter.studies.study import Requests, Result, StudyCell, StudyData
from specmeter.theory.experts import expected_union


@dataclass(frozen=True)
class Summed:
    """A configuration that was answered, with what it is compared with."""

    own: Line
    sums: Requests
    base: Line | None
    ratio: Estimate | None

    @property
    def name(self) -> str:
        return self.own.name

    @property
    def mean_delta(self) -> StudyCell:
        """Of the mean of requests, in percent."""
        return self._delta(self.sums.mean_rate, self.base.sums.mean_rate if self.base and self.base.sums else None)

    @property
    def pooled_delta(self) -> StudyCell:
        """Of the pooled rate, in percent."""
        return self._delta(self.own.pooled, self.base.pooled if self.base else None)

    def _delta(self, value: float | None, base: float | None) -> StudyCell:
        if value is None or not base:
            return StudyCell(text="-")
        return StudyCell(value=100 * (value / base - 1), struck=not self.own.believable)


def summary(data: StudyData) -> list[Summed]:
    """All configurations, by request mean."""
    return sorted(_summed(data), key=lambda it: it.sums.mean_rate)[::-1]


def _summed(data: StudyData) -> Iterator[Summed]:
    known = lines(data)
    for line in known.values():
        if line.sums is not None:
            yield Summed(line, line.sums, known.get(line.reference), ratio(known, line))


@dataclass(frozen=True)
class Control:
    """A configuration beside the one that it varies."""

    what: str
    line: Line
    other: Line
    known: Lines

    @property
    def own_ratio(self) -> StudyCell:
        return self._ratio(self.line)

    @property
    def other_ratio(self) -> StudyCell:
        return self._ratio(self.other)

    def _ratio(self, line: Line) -> StudyCell:
        if not line.believable and line.arm.claimed_speedup is not None:
            return StudyCell(value=line.arm.claimed_speedup, digits=3, struck=True)
        return StudyCell(text="-", value=ratio(self.known, line), digits=3)


def controls(data: StudyData) -> list[Control]:
    """Those that are here with what they vary."""
    known = lines(data)
    pairs = (
        *(("repetition", name, of) for name, of in RERUNS.items()),
        ("KV type", F16, "ngram-cache"),
        *(("output length", name, of) for name, of in LONGER.items()),
        ("draft's vocabulary", OTHER_VOCABULARY, "baseline"),
        ("draft model", "draft-second-max16", "draft-q35-08b-max16"),
    )
    return [Control(what, known[name], known[of], known) for what, name, of in pairs if name in known and of in known]


@dataclass(frozen=True)
class Saturated:
    """A configuration with drafts beside the threshold of its target."""

    line: Line
    found: Saturation | None
    time: Budget | None

    @property
    def gamma(self) -> int | None:
        return gamma(self.line)

    @property
    def threshold(self) -> int | None:
        return self.found.threshold if self.found else None

    @property
    def of_threshold(self) -> float | None:
        return (self.gamma + 1) / self.found.threshold if self.found and self.gamma else None

    @property
    def union(self) -> float | None:
        """Experts that gamma + 1 tokens touch by uniform routing."""
        if self.found is None or not self.gamma:
            return None
        return expected_union(self.gamma + 1, self.found.experts, self.found.used)

    @property
    def union_over_one(self) -> float | None:
        return self.union / self.found.used if self.found and self.union else None


def saturated(data: StudyData) -> list[Saturated]:
    """Every configuration that drafts."""
    known = lines(data)
    found = saturation(data)
    shown = (line for line in known.values() if line.drafts and line.sums is not None)
    return [Saturated(line, found, budget(known, line)) for line in shown]


def experts(data: StudyData) -> dict[str, str]:
    """The target's, in a sentence."""
    found = saturation(data)
    told = f"{found.used} of {found.experts} experts, sparsity {found.sparsity:.4f}. " if found else ""
    return {"experts": told}


@dataclass(frozen=True)
class Single:
    """One request of a configuration."""

    line: Line
    result: Result

    @property
    def kind(self) -> str:
        return _kind(self.line)

    @property
    def limit(self) -> str:
        return f"up to {self.result.max_tokens} tokens" if self.result.max_tokens else ""

    @property
    def label(self) -> str:
        return f"{self.line.name}, {self.result.drafted or 0} tokens drafted"


def requests(data: StudyData) -> list[Single]:
    """All that have a rate."""
    return [
        Single(line, result)
        for line in lines(data).values()
        for result in line.results
        if result.decode_rate is not None
    ]


@dataclass(frozen=True)
class Mark:
    """A mark of a figure."""

    line: Line
    series: str
    facet: str
    x: float | str
    y: float | None
    label: str
    verdict: str | None


def rates(data: StudyData) -> Iterator[Mark]:
    """Both rates of every configuration."""
    for it in _summed(data):
        line = it.own
        if line.pooled is not None:
            told = f"no ratio ({line.arm.why})" if it.ratio is None else f"{it.ratio.point:.3f} x"
            told = "baseline" if line.reference == line.name else f"over {line.reference}: {told}"
            for series, rate in (("mean of requests", it.sums.mean_rate), ("pooled", line.pooled)):
                yield Mark(line, series, "", line.name, rate, told, line.arm.of_rate)


def acceptance(data: StudyData) -> Iterator[Mark]:
    """Single requests, then configurations, by what was accepted."""
    for line in lines(data).values():
        for it in line.results:
            if it.acceptance is not None and it.decode_rate is not None:
                label = f"{line.name}, {it.prompt}: {it.accepted} of {it.drafted}"
                yield Mark(line, _kind(line), "single requests", 100 * it.acceptance, it.decode_rate, label, it.verdict)
        if line.sums is not None and line.sums.drafted and line.pooled is not None:
            label = f"{line.name}: {line.sums.accepted} of {line.sums.drafted}"
            share = 100 * line.acceptance
            yield Mark(line, _kind(line), "configurations", share, line.pooled, label, line.arm.of_rate)


def _kind(line: Line) -> str:
    return "plain" if not line.drafts else line.arm.method
