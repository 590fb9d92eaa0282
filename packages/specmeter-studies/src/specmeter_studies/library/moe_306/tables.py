"""moe-306: rows of the paper's Tables 2 to 6 and Figures 1 to 5, and of its equations and section 5.2 done right.

A false speedup is drawn as it was claimed, and marked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from specmeter.messages import Message
from specmeter.numbers.estimates import exceeds, scaled
from specmeter.record import Estimate
from specmeter_studies.apple_published import RawLog, raw_logs
from specmeter_studies.library.moe_306.equations import equations, rounds, tokens_generated, traffic
from specmeter_studies.library.moe_306.lines import (
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
from specmeter_studies.study import ArmResult, ModelUsed, StudyCell, StudyData

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
    def name(self) -> Message | str:
        return named(self.line)

    @property
    def target(self) -> Message | str:
        return label(self.line.target)

    @property
    def draft(self) -> Message | str:
        return label(self.line.draft or self.line.method)

    @property
    def panel(self) -> Message:
        return Message("moe-306.panel", draft=self.draft)

    @property
    def kind(self) -> Message:
        """Of its target, by the file."""
        return _kind(mixture=self.used is not None and bool(self.used.experts))

    @property
    def kind_by_name(self) -> Message:
        return _kind(mixture=self.line.target in MOE)

    @property
    def how(self) -> Message:
        return Message("moe-306.how.drafts" if self.line.speculates else "moe-306.how.alone")

    @property
    def message(self) -> Message:
        """With what is wrong with a false speedup."""
        return Message("moe-306.told", name=self.name, false=self._false)

    @property
    def told_with_total(self) -> Message:
        total = (self.used.parameters if self.used else None) or 0
        return Message("moe-306.told.total", name=self.name, total=total / 1e9, false=self._false)

    @property
    def _false(self) -> Message | str:
        if self.line.speedup is not None or self.drawn is None:
            return ""
        return Message("moe-306.told.false", why=self.line.why or "")

    @property
    def series_by_length(self) -> Message:
        line = self.line
        if not line.speculates:
            return self.how
        return Message("moe-306.draft_gamma", draft=label(line.draft or ""), gamma=line.gamma)

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


def _kind(*, mixture: bool) -> Message:
    return Message("moe-306.kind.mixture" if mixture else "moe-306.kind.dense")


def _made(data: StudyData, line: ArmResult) -> Configuration:
    drawn = refuted(data, line) if line.speedup is None else line.speedup
    return Configuration(line, model(data, line.target), drawn)


def models(data: StudyData) -> Iterator[Mapping[str, object]]:
    """Table 2."""
    drafted = {line.draft for line in speculative(data, "B", "D", "E", "F")}
    targets = {line.target for line in overall(data) if line.speculates}
    for used in data.models:
        kind = f"{'moe' if used.experts else 'dense'}_{'target' if used.name in targets else 'baseline'}"
        yield {
            "used": used,
            "active": _billions(used.active_parameters),
            "total": _billions(used.parameters),
            "size": _gigabytes(used.size_bytes),
            "per_token": _gigabytes(used.bytes_per_token),
            "role": Message(f"moe-306.role.{'draft' if used.name in drafted else kind}"),
        }


def suites(data: StudyData) -> Iterator[Mapping[str, object]]:
    """Table 3."""
    counts: dict[str, int] = {}
    for line in overall(data):
        counts[line.suite] = counts.get(line.suite, 0) + line.requests
    for name in sorted(counts):
        yield {"name": name, "what": SUITES.get(name, ""), "requests": counts[name]}
    if counts:
        yield {"name": Message("moe-306.total"), "what": "", "requests": sum(counts.values())}


def baselines(data: StudyData) -> list[Configuration]:
    """Table 4."""
    return [_made(data, line) for line in overall(data, "A", "C", "E") if not line.speculates]


def drafting(data: StudyData) -> list[Configuration]:
    """Table 5."""
    return [_made(data, line) for line in (*speculative(data), *speculative(data, "E"))]


def drafts(data: StudyData) -> Iterator[Mapping[str, object]]:
    """Table 6: the faster draft is named where the two intervals do not overlap."""
    for target in MOE:
        for gamma in GAMMAS:
            small, large = at(data, target, SMALL, gamma), at(data, target, LARGE, gamma)
            if small is None or large is None:
                continue
            faster = Message("moe-306.faster.none")
            if small.speedup is None or large.speedup is None:
                faster = Message("moe-306.faster.invalid")
            elif exceeds(small.speedup, large.speedup):
                faster = label(SMALL)
            elif exceeds(large.speedup, small.speedup):
                faster = label(LARGE)
            name = Message("moe-306.of_gamma", target=label(target), gamma=gamma)
            yield {"name": name, "small": _made(data, small), "large": _made(data, large), "faster": faster}


def evaluated(data: StudyData) -> Iterator[Mapping[str, object]]:
    """Eq. 1 and 2 of all configurations; Eq. 2 is false where its speedup is."""
    for row in equations(data):
        claimed = StudyCell(value=row.claimed, text="-", struck=row.line.verdict == "invalid")
        yield {"row": row, "own": _made(data, row.line), "claimed": claimed, "rejected": max(0.0, row.rejected)}


def formats(data: StudyData) -> dict[str, Message]:
    """What to mind of tau, and of drafts that were measured by themselves in another number format."""
    found = equations(data)
    drafts = {(label(row.line.draft or ""), row.format.message): None for row in found if row.format is not None}
    each = [Message("moe-306.formats.of", draft=draft, format=it) for draft, it in drafts]
    tau = "" if all(row.tau_measured for row in found) else Message("moe-306.formats.tau")
    told = Message("moe-306.formats.drafts", each=each) if each else ""
    return {"formats": Message("moe-306.formats", drafts=told, tau=tau)}


def read(data: StudyData) -> Iterator[Mapping[str, object]]:
    """Section 5.2: traffic by all bytes, which is wrong of a mixture, as the table says, and by those that are read."""
    peak = data.bandwidth_bytes_per_s
    for row in traffic(data):
        whole = None if row.whole is None else scaled(row.whole, 1e-9, unit="GB/s")
        yield {
            "row": row,
            "name": named(row.line),
            "file": _gigabytes(row.model.size_bytes),
            "whole": StudyCell(value=whole, digits=1, text="-", struck=row.line.verdict == "invalid"),
            "per_token": _gigabytes(row.model.bytes_per_token),
            "per_forward": _gigabytes(row.bytes_most),
            "share": None if row.least is None or not peak else scaled(row.least, 100 / peak, unit="%"),
        }


def limit(data: StudyData) -> dict[str, Message]:
    """The machine's bandwidth."""
    peak = data.bandwidth_bytes_per_s
    return {"limit": Message("moe-306.limit.unknown") if peak is None else Message("moe-306.limit", peak=peak / 1e9)}


def rounds_of(data: StudyData) -> Iterator[Mapping[str, object]]:
    """Section 5.2's reckoning of rounds; none where requests were given different limits."""
    count = tokens_generated(data)
    for row in rounds(data, count) if count else ():
        yield {"row": row, "name": named(row.line), "paper_ms": StudyCell(value=row.paper_ms, digits=1)}


def tokens(data: StudyData) -> dict[str, int | None]:
    """Tokens of a request."""
    return {"tokens": tokens_generated(data)}


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
