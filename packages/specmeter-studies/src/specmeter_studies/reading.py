"""What studies say: about data, about their documents' own numbers, and about what was measured here."""

from __future__ import annotations

from pathlib import Path

from specmeter.errors import UsageError
from specmeter.store.locate import find_study
from specmeter_studies import loading
from specmeter_studies.folder import StudyFolder
from specmeter_studies.study import StudyData, StudyFindings


def names() -> tuple[str, ...]:
    """All bundled studies."""
    return loading.NAMES


def findings(name: str, data: StudyData) -> StudyFindings:
    """Everything a bundled study says about data. Raises `UsageError` for an unknown one."""
    return loading.find(name).findings(data)


def published(name: str) -> StudyFindings:
    """The published numbers of a document, with a verdict on each, and rulings on its claims.

    Raises `UsageError` for an unknown study, and for one whose document printed no numbers.
    """
    data = loading.find(name).published()
    if data is None:
        raise UsageError(f"{name}: there are no printed numbers", fix=f"measure it: `specmeter study run {name}`")
    return findings(name, data)


def load(study: str | Path = "latest") -> StudyFindings:
    """Findings of a measured study, finished or not: its folder, the name of one under specmeter-runs/, or `latest`.
    Raises `StoreError`, and `UsageError` for a damaged one."""
    return StudyFolder(find_study(str(study))).findings()
