"""moe-306: rows of the paper's Tables 2 to 6 and Figures 1 to 5, and of its equations and section 5.2 done right.

What is drawn of a false speedup is what was claimed, marked as such.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from specmeter.numbers.estimates import exceeds, scaled
from specmeter.record import Estimate
from specmeter.studies.apple_published import RawLog, raw_logs
from specmeter.studies.library.moe_306.equations import (
    Equations,
    Rounds,
    Traffic,
    equations,
    rounds,
    tokens_generated,
    traffic,
)
from specmeter.studies.library.moe_306.lines import (
    DENSE,
    GAMMAS,
    LARGE,
    MOE,
    SMALL,
    SUITES,
    at,
    baseline_of,
    by_length,
    label,
    model,
    named,
    overall,
    refuted,
    speculative,
)
from specmeter.studies.study import ArmResult, ModelUsed, StudyCell, StudyData

GAMMA_OF_FIGURE_1 = 8


@dataclass(frozen=True)
class Configuration:
    """A configuration as the paper's tables and figures have it."""

    line: ArmResult
    used: ModelUsed | None
    """Its target."""
    drawn: Estimate | float | None
    """Its speedup, or the false one."""

    @property
    def name(self) -> str:
        return named(self.line)

    @property
    def target(self) -> str:
        return label(self.line.target)

    @property
    def draft(self) -> str:
        return label(self.line.draft or self.line.method)

    @property
    def panel(self) -> str:
        return f"draft {self.draft}"

    @property
    def kind(self) -> str:
        """Of its target, by the file."""
        return "mixture of experts" if self.used is not None and self.used.experts else "dense"

    @property
    def kind_by_name(self) -> str:
        return "mixture of experts" if self.line.target in MOE else "dense"

    @property
    def how(self) -> str:
        return "with drafts" if self.line.speculates else "by itself"

    @property
    def told(self) -> str:
        """With what is wrong with a false speedup."""
        return self.name + self._false

    @property
    def told_with_total(self) -> str:
        total = (self.used.parameters if self.used else None) or 0
        return f"{self.name}, {total / 1e9:.3g}e9 parameters in all{self._false}"

    @property
    def _false(self) -> str:
        return "" if self.line.speedup is not None or self.drawn is None else f": false: {self.line.why}"

    @property
    def series_by_length(self) -> str:
        line = self.line
        return f"draft {label(line.draft or '')}, gamma {line.gamma}" if line.speculates else "by itself"

    @property
    def speedup(self) -> StudyCell:
        """Struck out where it is false; one that is only implausible is as it is."""
        if self.line.speedup is not None or self.line.claimed_speedup is not None:
            return self.line.speedup_cell
        return StudyCell(value=self.drawn, text="-", struck=self.drawn is not None)

    @property
    def active(self) -> StudyCell:
        return _billions(self.used.active_parameters if self.used else None)

    @property
    def total(self) -> StudyCell:
        return _billions(self.used.parameters if self.used else None)


def _made(data: StudyData, line: ArmResult) -> Configuration:
    drawn = refuted(data, line) if line.speedup is None else line.speedup
    return Configuration(line, model(data, line.target), drawn)


@dataclass(frozen=True)
class Model:
    """A model and what it is for."""

    used: ModelUsed
    role: str

    @property
    def active(self) -> StudyCell:
        return _billions(self.used.active_parameters)

    @property
    def total(self) -> StudyCell:
        return _billions(self.used.parameters)

    @property
    def size(self) -> StudyCell:
        return _gigabytes(self.used.size_bytes)

    @property
    def per_token(self) -> StudyCell:
        return _gigabytes(self.used.bytes_per_token)


def models(data: StudyData) -> list[Model]:
    """Table 2."""
    drafted = {line.draft for line in speculative(data, "B", "D", "E", "F")}
    targets = {line.target for line in overall(data) if line.speculates}

    def role(used: ModelUsed) -> str:
        kind = "MoE" if used.experts else "dense"
        return "draft" if used.name in drafted else f"{kind} {'target' if used.name in targets else 'baseline'}"

    return [Model(used, role(used)) for used in data.models]


@dataclass(frozen=True)
class Suite:
    """A suite and its requests."""

    name: str
    what: str
    requests: int


def suites(data: StudyData) -> list[Suite]:
    """Table 3."""
    counts: dict[str, int] = {}
    for line in overall(data):
        counts[line.suite] = counts.get(line.suite, 0) + line.requests
    rows = [Suite(name, SUITES.get(name, ""), counts[name]) for name in sorted(counts)]
    return [*rows, Suite("total", "", sum(counts.values()))] if rows else []


def baselines(data: StudyData) -> list[Configuration]:
    """Table 4."""
    return [_made(data, line) for line in overall(data, "A", "C", "E") if not line.speculates]


def drafting(data: StudyData) -> list[Configuration]:
    """Table 5."""
    return [_made(data, line) for line in (*speculative(data), *speculative(data, "E"))]


@dataclass(frozen=True)
class Drafts:
    """The two drafts on one target."""

    name: str
    small: Configuration
    large: Configuration

    @property
    def faster(self) -> str:
        """Where the two intervals do not overlap."""
        small, large = self.small.line.speedup, self.large.line.speedup
        if small is None or large is None:
            return "no valid pair"
        if exceeds(small, large):
            return label(SMALL)
        return label(LARGE) if exceeds(large, small) else "not told apart"


def drafts(data: StudyData) -> Iterator[Drafts]:
    """Table 6."""
    for target in MOE:
        for gamma in GAMMAS:
            small, large = at(data, target, SMALL, gamma), at(data, target, LARGE, gamma)
            if small is not None and large is not None:
                yield Drafts(f"{label(target)} / gamma {gamma}", _made(data, small), _made(data, large))


@dataclass(frozen=True)
class Evaluated:
    """Both equations of a configuration."""

    row: Equations
    own: Configuration

    @property
    def claimed(self) -> StudyCell:
        """Eq. 2; false where its speedup is."""
        return StudyCell(value=self.row.claimed, text="-", struck=not isinstance(self.row.claimed, Estimate))

    @property
    def rejected(self) -> float:
        return max(0.0, self.row.rejected)


def evaluated(data: StudyData) -> list[Evaluated]:
    """Eq. 1 and 2 of all configurations."""
    return [Evaluated(row, _made(data, row.line)) for row in equations(data)]


def formats(data: StudyData) -> dict[str, str]:
    """What to mind of tau, and of drafts that were measured by themselves in another number format."""
    found = equations(data)
    told = dict.fromkeys(f"{label(row.line.draft or '')}: {row.format.told}" for row in found if row.format is not None)
    tau = "" if all(row.tau_measured for row in found) else " tau is the most that the acceptance permits."
    return {"formats": "".join(f" Draft {one}." for one in told) + tau}


@dataclass(frozen=True)
class Read:
    """What a configuration reads from memory."""

    row: Traffic
    peak: float | None

    @property
    def name(self) -> str:
        return named(self.row.line)

    @property
    def whole(self) -> StudyCell:
        """By all bytes: false of a mixture."""
        whole = None if self.row.whole is None else scaled(self.row.whole, 1e-9, unit="GB/s")
        return StudyCell(value=whole, digits=1, text="-", struck=bool(self.row.model.experts))

    @property
    def file(self) -> StudyCell:
        return _gigabytes(self.row.model.size_bytes)

    @property
    def per_token(self) -> StudyCell:
        return _gigabytes(self.row.model.bytes_per_token)

    @property
    def per_forward(self) -> StudyCell:
        return _gigabytes(self.row.bytes_most)

    @property
    def share(self) -> Estimate | None:
        """Of the bandwidth, in percent."""
        least = self.row.least
        return None if least is None or not self.peak else scaled(least, 100 / self.peak, unit="%")


def read(data: StudyData) -> list[Read]:
    """Section 5.2."""
    return [Read(row, data.bandwidth_bytes_per_s) for row in traffic(data)]


def limit(data: StudyData) -> dict[str, str]:
    """The machine's bandwidth."""
    peak = data.bandwidth_bytes_per_s
    told = "The machine's bandwidth is not known" if peak is None else f"The machine has {peak / 1e9:.1f} GB/s"
    return {"limit": told}


@dataclass(frozen=True)
class Round:
    """A verification round by the paper and by tau."""

    row: Rounds

    @property
    def name(self) -> str:
        return named(self.row.line)

    @property
    def paper_ms(self) -> StudyCell:
        return StudyCell(value=self.row.paper_ms, digits=1, struck=True)


def rounds_of(data: StudyData) -> list[Round]:
    """Section 5.2's reckoning of rounds; none where requests were given different limits."""
    tokens = tokens_generated(data)
    return [Round(row) for row in (rounds(data, tokens) if tokens else ())]


def tokens(data: StudyData) -> dict[str, str]:
    """Tokens of a request."""
    return {"tokens": str(tokens_generated(data))}


def logs(data: StudyData) -> Sequence[RawLog]:
    """Root cause of the document's numbers, by counting in logs of the same author."""
    return raw_logs() if data.origin == "published" else ()


# --- figures ---------------------------------------------------------------------------------------------------------


def by_parameters(data: StudyData) -> list[Configuration]:
    """Figure 1."""
    lines = [at(data, target, SMALL, GAMMA_OF_FIGURE_1) for target in (*DENSE, *MOE)]
    made = [_made(data, line) for line in lines if line is not None]
    return [it for it in made if it.used is not None and it.used.active_parameters]


def plain_and_drafted(data: StudyData) -> Iterator[Configuration]:
    """Figure 3."""
    for target in (*MOE, "dense_0.8b", "dense_2b", *DENSE):
        plain = [line for line in overall(data, "A", "C") if line.target == target and not line.speculates]
        drafted = [at(data, target, draft, gamma) for draft in (SMALL, LARGE) for gamma in GAMMAS]
        for line in (*plain, *drafted):
            if line is not None and line.decode_rate is not None:
                yield _made(data, line)


def of_two_suites(data: StudyData) -> list[Configuration]:
    """Figures 2 and 4."""
    return [_made(data, line) for line in speculative(data) if line.gamma is not None]


def lengths(data: StudyData) -> list[Configuration]:
    """Figure 5, left."""
    return [_made(data, line) for line in by_length(data)]


def gains_by_length(data: StudyData) -> list[Configuration]:
    """Figure 5, right: where the same length has a baseline."""
    found = by_length(data)
    return [_made(data, line) for line in found if line.speculates and baseline_of(data, line) is not None]


# --- cells -----------------------------------------------------------------------------------------------------------


def _gigabytes(value: float | None) -> StudyCell:
    """Small models with more digits."""
    digits = 2 if value is None or value >= 1e9 else 4
    return StudyCell(value=None if value is None else value / 1e9, digits=digits, text="-")


def _billions(value: float | None) -> StudyCell:
    """In 1e9; small models with more digits."""
    digits = 1 if value is None or value >= 1e9 / 2 else 4
    return StudyCell(value=None if value is None else value / 1e9, digits=digits, text="-")
