"""What models are called where others took a document's place: a figure that is passed on must stay true.

Claims are ruled by the study's own names. What is then shown says `bench 9B_Q8` for a model of some millions of
parameters, and `stand-in 9B_Q8` for a small real one, in every sentence, table and legend.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache

from specmeter.messages import Message, Value
from specmeter_studies.study import Axis, Point, StudyCell, StudyFigure, StudyFindings

LABEL = ".label."
"""Within the code of a message: what a document calls a model."""


def of_stand_ins(found: StudyFindings) -> StudyFindings:
    """The findings, in which each model that stands in for a document's own is called so."""
    bench = {model.name for model in found.data.models if model.reference.startswith("bench:")}
    real = {it.name for it in found.data.models if it.stand_in and not it.reference.startswith("mock:")}
    if not (bench or real) or found.data.origin == "published":
        return found
    naming = _Naming(frozenset(bench or real), "bench" if bench else "stand-in")
    data = replace(
        found.data,
        arms=tuple(
            it.model_copy(update={key: naming.whole(getattr(it, key)) for key in ("target", "draft")})
            for it in found.data.arms
        ),
        models=tuple(it.model_copy(update={"name": naming.whole(it.name)}) for it in found.data.models),
    )
    claims = tuple(it.model_copy(update={"found": naming.renamed(it.found)}) for it in found.claims)
    tables = tuple(
        it.model_copy(update={"rows": tuple(tuple(map(naming.cell, row)) for row in it.rows)}) for it in found.tables
    )
    # Legends are texts already: by now it is known what labels read like.
    return replace(found, data=data, claims=claims, tables=tables, figures=tuple(map(naming.figure, found.figures)))


@lru_cache(maxsize=8)
def _pattern(names: frozenset[str]) -> re.Pattern[str]:
    longest = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    # "7 Q6_K" counts tensors of a type, and names no model.
    return re.compile(rf"(?<![\w.-])(?<!\d )(?:{longest})(?![\w-])")


@dataclass
class _Naming:
    names: frozenset[str]
    """What models are called, in ids and in texts."""
    kind: str
    """What takes their place: `bench` or `stand-in`."""

    def whole(self, name: str | None) -> str | None:
        return f"{self.kind} {name}" if name in self.names else name

    def renamed(self, said: Value) -> Value:
        if isinstance(said, Message):
            if LABEL in said.code:
                self.names |= {str(said)}
                return Message(f"study.{self.kind}", name=said)
            return Message(said.code, **{name: self.renamed(value) for name, value in said.values.items()})
        if isinstance(said, str):
            return self._text(said)
        return [self.renamed(it) for it in said] if isinstance(said, list | tuple) else said

    def _text(self, text: str) -> str:
        known = _pattern(self.names)
        if "/" in text:  # an arm's id names its models more than once
            return f"{self.kind} {text}" if known.match(text) else text
        return known.sub(lambda it: f"{self.kind} {it[0]}", text)

    def cell(self, cell: StudyCell) -> StudyCell:
        return cell.model_copy(update={"text": self.renamed(cell.text)})

    def figure(self, figure: StudyFigure) -> StudyFigure:
        def axis(it: Axis) -> Axis:
            return it.model_copy(update={"order": tuple(map(self._text, it.order))})

        def point(it: Point) -> Point:
            texts = {key: getattr(it, key) for key in ("series", "facet", "x", "label", "name")}
            return it.model_copy(update={key: self.renamed(text) for key, text in texts.items()})

        points = tuple(map(point, figure.points))
        return figure.model_copy(update={"points": points, "x": axis(figure.x), "y": axis(figure.y)})
