"""What a page about a study tells: its claims, tables and figures, ready to be shown, from published or own numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import specmeter_studies as studies
from specmeter.errors import UsageError
from specmeter.messages import Message
from specmeter_studies.show import tables as study_tables
from specmeter_studies.show.figures import drawn, slug

if TYPE_CHECKING:
    from specmeter.analysis.reading import RunReport
    from specmeter.show.figure import Figure
    from specmeter.show.table import Table
    from specmeter_studies.folder import StudyFolder
    from specmeter_studies.study import StudyFindings


GROUPS = {
    "apple": (
        "apple-quant-ladder",
        "qat-vs-ptq",
        "apple-sd",
        "self-speculation",
        "quant-acceptance",
        "moe-sd",
        "cross-device",
        "hardware-comparison",
    )
}
"""Names for several studies of one document."""


@dataclass(frozen=True)
class StudyDocument:
    """A study with everything that is told about it."""

    title: Message | str
    source: Message | str
    """The document repeated."""
    findings: StudyFindings
    prefix: str = ""
    """Begins the names of its charts, tables and links, where several studies share a page."""

    @property
    def name(self) -> str:
        return self.findings.data.study

    @cached_property
    def figures(self) -> tuple[Figure, ...]:
        """The document's figures that have something to show."""
        origin, shown = self.findings.data.origin, [it for it in self.findings.figures if it.points]
        names = _distinct([slug(figure.key) for figure in shown])
        return tuple(drawn(figure, origin, self.prefix + name) for figure, name in zip(shown, names, strict=True))

    @cached_property
    def tables(self) -> tuple[Table, ...]:
        """The document's tables."""
        origin, shown = self.findings.data.origin, [it for it in self.findings.tables if it.rows]
        names = _distinct([slug(table.key) for table in shown])
        return tuple(
            study_tables.document_table(table, origin, self.prefix + name)
            for table, name in zip(shown, names, strict=True)
        )

    @property
    def claims(self) -> Table:
        """Every claim with its ruling."""
        return study_tables.rulings(self.findings.claims, self.findings.data)

    @cached_property
    def configurations(self) -> Table:
        """Every configuration that was measured or printed."""
        return study_tables.configurations(self.findings.data)

    @cached_property
    def models(self) -> Table:
        """The models as they were used."""
        return study_tables.models(self.findings.data)

    @cached_property
    def parts(self) -> Table:
        """What was to be measured and what became of it."""
        return study_tables.parts(self.findings.data)

    @property
    def is_short(self) -> bool:
        """Whether something that was to be measured is missing."""
        return any(part.status != "measured" for part in self.findings.data.parts)

    @property
    def is_marked(self) -> bool:
        """Whether some mark of a figure says that its number is false or may be."""
        return any(figure.marked for figure in self.figures)

    @property
    def sections(self) -> list[str]:
        """The sections that have something to show, as links name them."""
        has = {
            "claims": True,
            "figures": bool(self.figures),
            "tables": bool(self.tables or self.configurations.rows),
            "measured": bool(self.models.rows or (self.parts.rows and not self.is_short)),
            "repeat": True,
        }
        return [section for section, shown in has.items() if shown]

    @property
    def suffix(self) -> str:
        """Tells the tables that every study has apart, where several share a page."""
        return f"-{self.name}" if self.prefix else ""

    @property
    def counts(self) -> Counter[str]:
        """How many claims there are of each ruling."""
        return Counter(claim.ruling for claim in self.findings.claims)


def study_document(findings: StudyFindings, prefix: str = "") -> StudyDocument:
    """Findings with the title and the source of their study."""
    return StudyDocument(findings.title, findings.source, findings, prefix)


def read_study(folder: StudyFolder, *, trusted: bool = False) -> StudyDocument:
    """A study folder, finished or not; `trusted`: code of a user's study may run.

    Raises `StoreError` or `UsageError` for a damaged one.
    """
    return study_document(folder.findings(trusted=trusted))


def document_of_run(run: RunReport) -> StudyDocument | None:
    """What a run says about its study, where its experiment is one on its own; None for all other runs."""
    from specmeter.experiments.file import load
    from specmeter_studies.measured import from_run

    study = run.study
    if study is None or study not in studies.names() or studies.find(study).parts != (run.name,):
        return None
    asked = load(run.name).experiment
    known = {*asked.targets, *asked.drafts}
    if not all(arm.target in known and (arm.draft is None or arm.draft in known) for arm in run.arms):
        return None  # the user's own experiment of that name
    return study_document(studies.findings(study, from_run(study, run.folder)), "study-")


def published_findings(members: Iterable[str]) -> Iterator[tuple[str, StudyFindings]]:
    """What these studies find in the numbers that their documents printed, of those that printed any."""
    for member in members:
        if (data := studies.find(member).published()) is not None:
            yield member, studies.findings(member, data)


def published_documents(name: str) -> list[StudyDocument]:
    """A study, or a group of them, told from the numbers that its document printed.

    Raises `UsageError` for an unknown name and for a study whose document printed none.
    """
    if name not in GROUPS and name not in studies.names():
        choice = ", ".join((*studies.names(), *GROUPS))
        raise UsageError(f"--published {name}: no such study", fix=f"use one of: {choice}; or `list`")
    members = GROUPS.get(name, (name,))
    documents = [
        study_document(found, f"{member}-" if len(members) > 1 else "") for member, found in published_findings(members)
    ]
    if not documents:
        raise UsageError(
            f"--published {name}: there are no printed numbers",
            fix=f"see `specmeter report --published all`, or measure it: `specmeter study run {name}`",
        )
    return documents


def _distinct(names: Sequence[str]) -> list[str]:
    """Names of which no two are the same."""
    taken: list[str] = []
    for name in names:
        free, number = name, 2
        while free in taken:
            free, number = f"{name}-{number}", number + 1
        taken.append(free)
    return taken
