"""Studies: published documents whose systems run with specmeter, and whose claims are put to the test.

library/NAME  one folder per document: study.yaml (parts, claims, tables, figures), and the code of its rules
definition    what study.yaml may say
loading       bundled studies and those of users, and what they say about data
selection     rows and quantities by name; builders: tables and figures of them
rules         rules that many claims share
telling       the one rule of what supports a claim
study         the words all studies speak: data, claims, tables, figures
measured      data of a study from our own runs and quality measurements
from_claims   data of a study from published rows, with what the audit rules about each
runner        a study from beginning to end; folder: what is kept of it
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from specmeter.errors import UsageError

if TYPE_CHECKING:
    from specmeter_studies.loading import Study
    from specmeter_studies.study import StudyData, StudyFindings


def names() -> tuple[str, ...]:
    """All bundled studies."""
    from specmeter_studies import loading

    return loading.NAMES


def find(name: str, *, trusted: bool = False) -> Study:
    """A bundled study by name, or a user's by the path of its folder.

    Raises `UsageError` for neither, `ExperimentError` for a bad `study.yaml`.
    """
    from specmeter_studies import loading

    return loading.find(name, trusted=trusted)


def findings(name: str, data: StudyData) -> StudyFindings:
    """Everything a bundled study says about data. Raises `UsageError` for an unknown one."""
    return find(name).findings(data)


def published(name: str) -> StudyFindings:
    """What a document's own numbers say about its claims, with our verdicts on each number.

    Raises `UsageError` for an unknown study, and for one whose document printed no numbers.
    """
    data = find(name).published()
    if data is None:
        raise UsageError(f"{name}: its document printed no numbers", fix=f"measure it: `specmeter study run {name}`")
    return findings(name, data)


def load(study: str | Path = "latest") -> StudyFindings:
    """What a study that was measured here says, finished or not: its folder, the name of one under specmeter-runs/, or
    `latest`. Raises `StoreError`, and `UsageError` for a damaged one."""
    from specmeter.store.locate import find_study
    from specmeter_studies.folder import StudyFolder

    return StudyFolder(find_study(str(study))).findings()
