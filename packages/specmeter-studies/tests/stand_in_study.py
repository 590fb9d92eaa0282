"""A study of the tests' own, whose parts are bundled: claims, tables and figures that only count what is there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pytest

from specmeter.experiments.file import LoadedExperiment
from specmeter.messages import Message
from specmeter.record import Arm
from specmeter_studies.definition import StudyForm
from specmeter_studies.loading import Study
from specmeter_studies.study import ArmResult, ClaimRuling, Standing, StudyCell, StudyData, StudyTable

NAME = "stand-in"
Needs = Callable[[str, LoadedExperiment, Sequence[Arm]], Mapping[str, Message]]


def install(monkeypatch: pytest.MonkeyPatch, *parts: str, needs: Needs | None = None, named: bool = False) -> None:
    """Make it one of the studies, with these parts; `named` gives it suites, `needs` what it cannot do here."""
    form = StudyForm(name=NAME, title="A study of the tests", source="invented", parts=parts, variants={})

    @dataclass(frozen=True)
    class StandIn(Study):
        def claims(self, data: StudyData) -> tuple[ClaimRuling, ...]:
            return claims(data)

        def tables(self, data: StudyData) -> tuple[StudyTable, ...]:
            return tables(data)

        def suite_of(self, line: ArmResult) -> str:
            return suite(line) if named else line.suite

        def unavailable(self, part: str, loaded: LoadedExperiment, arms: Sequence[Arm]) -> Mapping[str, Message]:
            return needs(part, loaded, arms) if needs else {}

    monkeypatch.setattr("specmeter_studies.loading.NAMES", (NAME,))
    monkeypatch.setattr("specmeter_studies.loading.bundled", lambda _: StandIn(form))


def suite(line: ArmResult) -> str:
    """Plain decoding is group A of the document."""
    return "B" if line.speculates else "A"


def claims(data: StudyData) -> tuple[ClaimRuling, ...]:
    """One claim, about the number of requests."""
    ruling = "supported" if data.results else "cannot tell"
    return (
        ClaimRuling(
            id="counted",
            claim=Message("Requests were measured."),
            where=Message("nowhere"),
            ruling=ruling,
            found=Message(f"{len(data.results)} requests."),
        ),
    )


def tables(data: StudyData) -> tuple[StudyTable, ...]:
    """Every line with its speedup, those that are false struck out."""
    rows = tuple(
        (
            StudyCell(text=line.config),
            StudyCell(text="-", value=line.claimed_speedup or line.speedup, struck=line.claimed_speedup is not None),
        )
        for line in data.arms
    )
    verdicts: tuple[Standing | None, ...] = tuple(line.verdict for line in data.arms)
    return (
        StudyTable(
            key="t",
            title=Message("Lines"),
            about=Message("about"),
            columns=tuple(map(Message, ("arm", "speedup"))),
            rows=rows,
            verdicts=verdicts,
        ),
    )
