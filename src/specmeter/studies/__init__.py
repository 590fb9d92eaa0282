"""Studies: published documents whose systems run with specmeter, and whose claims are put to the test.

    study       what a study is and what it finds: data, claims, tables, figures
    measured    data of a study from our own runs and quality measurements
    rows        requests and arms of a run in the words of studies
    from_claims data of a study from published rows, with what the audit rules about each
    setting     models, machines, bandwidth, and what has to be known of them
    experts     experts that a forward reads, as measured, beside the uniform formula
    NAME        one module per document: its parts, claims, tables and figures

A module of a study has `TITLE`, `SOURCE` (the document), `PARTS` (what is measured), `published()` (the document's own
numbers, or None), `claims(data)`, `tables(data)` and `figures(data)`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

from specmeter.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from specmeter.studies.study import ClaimRuling, StudyData, StudyFigure, StudyFindings, StudyTable

_MODULES = {
    "moe-306": "moe306",
    "apple-quant-ladder": "quantization.ladder",
    "qat-vs-ptq": "quantization.qat_ptq",
    "apple-sd": "speed_ratio.apple_sd",
    "self-speculation": "speed_ratio.self_speculation",
    "quant-acceptance": "quantization.acceptance",
    "moe-sd": "speed_ratio.moe_sd",
    "cross-device": "cross_device",
    "hardware-comparison": "hardware",
    "rtx3090-19": "rtx3090",
    "open-questions": "open_questions",
}


class Study(Protocol):
    """A module of a study."""

    TITLE: str
    SOURCE: str
    """The document: title, author, date, address."""
    PARTS: tuple[str, ...]
    """What is measured: names of bundled experiments or of bundled quality plans."""

    def published(self) -> StudyData | None:
        """The document's own numbers with our verdicts; None where it published none."""
        ...

    def claims(self, data: StudyData) -> tuple[ClaimRuling, ...]:
        """What the data says about each claim."""
        ...

    def tables(self, data: StudyData) -> tuple[StudyTable, ...]:
        """The document's tables from this data; those it has nothing for are left out."""
        ...

    def figures(self, data: StudyData) -> tuple[StudyFigure, ...]:
        """The document's figures from this data; those it has nothing for are left out."""
        ...


def names() -> tuple[str, ...]:
    """All studies."""
    return tuple(_MODULES)


def find(name: str) -> Study:
    """A study by name. Raises `UsageError` for an unknown one."""
    if name not in _MODULES:
        raise UsageError(f"no study is called {name!r}", fix=f"choose one of: {', '.join(_MODULES)}")
    return cast("Study", import_module(f"specmeter.studies.{_MODULES[name]}"))


def findings(name: str, data: StudyData) -> StudyFindings:
    """Everything a study says about data, and which experts its targets read where that was measured.

    Raises `UsageError` for an unknown study.
    """
    from specmeter.studies import experts
    from specmeter.studies.study import StudyFindings

    found = find(name)
    return StudyFindings(data, found.claims(data), (*found.tables(data), *experts.tables(data)), found.figures(data))


def published(name: str) -> StudyFindings:
    """What a document's own numbers say about its claims, with our verdicts on each number.

    Raises `UsageError` for an unknown study, and for one whose document printed no numbers.
    """
    data = find(name).published()
    if data is None:
        raise UsageError(f"{name}: its document printed no numbers", fix=f"measure it: specmeter study run {name}")
    return findings(name, data)


def load(study: str | Path = "latest") -> StudyFindings:
    """What a study that was measured here says, finished or not: its folder, the name of one under specmeter-runs/, or
    `latest`. Raises `StoreError`, and `UsageError` for a damaged one."""
    from specmeter.store.places import find_study
    from specmeter.studies.folder import StudyFolder

    data = StudyFolder(find_study(str(study))).data()
    return findings(data.study, data)
