"""How many experts a forward over n tokens reads: as measured on the run's texts, with the uniform formula beside it.

Windows of consecutive tokens were read (`specmeter.laboratory.routing`): exact for drafts that are accepted; a
rejected draft token is another token, whose experts are not on record.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from specmeter.record import Estimate
from specmeter.studies.study import StudyCell, StudyTable
from specmeter.studies.telling import quoted
from specmeter.theory.experts import expected_union

if TYPE_CHECKING:
    from specmeter.record import ExpertUnion
    from specmeter.studies.study import ModelUsed, StudyData


@dataclass(frozen=True)
class Touched:
    """Distinct experts of a layer that a forward reads."""

    tokens: int
    """Of the forward: gamma + 1 for a verification."""
    experts: int
    """Of a layer, to choose from."""
    used: int
    """By one token."""
    uniform: float
    """If routing were uniform and independent."""
    measured: Estimate | None
    """On the run's texts, between measured points by straight lines; None where it was not, or not so far."""

    @property
    def best(self) -> float:
        """As measured, else by the formula."""
        return self.uniform if self.measured is None else self.measured.point

    @property
    def told(self) -> str:
        """Both in words, without a full stop."""
        n = f"{self.tokens} tokens" if self.tokens > 1 else "1 token"
        if self.measured is None:
            uniform = f"{self.uniform:.1f} of {self.experts} experts of a layer"
            return f"{n} would read {uniform} if routing were uniform (it was not measured)"
        read = f"{quoted(self.measured, 1)} of {self.experts} experts of a layer"
        return f"{n} read {read} on the run's texts (uniform routing: {self.uniform:.1f})"


def touched(model: ModelUsed, tokens: int) -> Touched | None:
    """What a forward over so many tokens reads; None for dense models, and where the experts are not known."""
    if not model.experts or not model.experts_used or model.experts_used >= model.experts or tokens < 1:
        return None
    uniform = float(expected_union(float(tokens), model.experts, model.experts_used))
    measured = None if model.union is None else _at(model.union, tokens)
    return Touched(tokens, model.experts, model.experts_used, uniform, measured)


def _at(union: ExpertUnion, tokens: int) -> Estimate | None:
    """U(n) at a measured point or between two; None beyond the last one."""
    for point in union.points:
        if point.tokens == tokens:
            return point.union
    for lower, upper in pairwise(union.points):
        if lower.tokens < tokens < upper.tokens:
            share = (tokens - lower.tokens) / (upper.tokens - lower.tokens)
            ends = [
                None if a is None or b is None else a + share * (b - a)
                for a, b in (
                    (lower.union.point, upper.union.point),
                    (lower.union.low, upper.union.low),
                    (lower.union.high, upper.union.high),
                )
            ]
            method = f"{lower.union.method}; on a line between {lower.tokens} and {upper.tokens} tokens"
            fields = {"point": ends[0], "low": ends[1], "high": ends[2], "method": method}
            return lower.union.model_copy(update=fields)
    return None


def tables(data: StudyData) -> tuple[StudyTable, ...]:
    """Experts that the verifications of this data read, beside uniform routing; empty where none were measured."""
    rows: list[tuple[StudyCell, ...]] = []
    for model in data.models:
        gammas = {line.gamma for line in data.arms if line.target == model.name and line.gamma}
        found = [it for n in sorted({1, 2, *(gamma + 1 for gamma in gammas)}) if (it := touched(model, n)) is not None]
        rows += [_row(model, it) for it in found if it.measured is not None]
    if not rows:
        return ()
    return (
        StudyTable(
            key="experts",
            title="Experts of a layer that a forward reads",
            about=(
                "Measured: distinct experts that so many consecutive tokens of the run's texts choose, mean over "
                "layers, intervals over texts: what a verification reads where its drafts are accepted. A rejected "
                "draft token is another token, whose experts are not on record. Uniform: if tokens chose independently."
            ),
            columns=("target", "tokens of the forward", "measured", "uniform", "measured / of one token", "of a layer"),
            rows=tuple(rows),
        ),
    )


def _row(model: ModelUsed, found: Touched) -> tuple[StudyCell, ...]:
    return (
        StudyCell(text=model.name),
        StudyCell(value=found.tokens, digits=0),
        StudyCell(value=found.measured, digits=1),
        StudyCell(value=found.uniform, digits=1),
        StudyCell(value=found.best / found.used),
        StudyCell(value=found.experts, digits=0),
    )
