"""The table of experts that every study has where they were read: as measured on the run's texts, beside the formula.

Windows of consecutive tokens were read (`specmeter.laboratory.routing`): exact for drafts that are accepted; a
rejected draft token is another token, whose experts are not on record.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from specmeter.analysis.explain.parts import union_at
from specmeter.messages import Message
from specmeter.theory.roofline import expected_union
from specmeter_studies.study import StudyCell, StudyTable

if TYPE_CHECKING:
    from specmeter_studies.study import StudyData


_EXPERTS = ("target", "tokens", "measured", "uniform", "over_one", "of_layer")
"""Columns of the table of experts."""


def tables(data: StudyData) -> tuple[StudyTable, ...]:
    """Experts that the verifications of this data read, beside uniform routing; empty where none were measured."""
    rows = tuple(_rows(data))
    if not rows:
        return ()
    return (
        StudyTable(
            key="experts",
            title=Message("study.experts"),
            about=Message("study.experts.about"),
            columns=tuple(Message(f"study.experts.{it}") for it in _EXPERTS),
            rows=rows,
        ),
    )


def _rows(data: StudyData) -> Iterator[tuple[StudyCell, ...]]:
    for model in data.models:
        gammas = {line.gamma for line in data.arms if line.target == model.name and line.gamma}
        total, used = model.experts or 0, model.experts_used or 0
        for tokens in sorted({1, 2, *(gamma + 1 for gamma in gammas)}) if model.union and total > used > 0 else ():
            measured = union_at(model.union, tokens) if model.union else None
            if measured is not None:
                yield (
                    StudyCell(text=model.name),
                    StudyCell(value=tokens, digits=0),
                    StudyCell(value=measured, digits=1),
                    StudyCell(value=float(expected_union(float(tokens), total, used)), digits=1),
                    StudyCell(value=measured.point / used),
                    StudyCell(value=total, digits=0),
                )
