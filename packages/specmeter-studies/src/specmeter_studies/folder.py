"""The folder of a study that was measured: what was asked for, and one run folder or report per part.

specmeter-runs/moe-306-20261121-201500/
    study.json          the study, its variants and overrides, its parts, and what was left out and why
    moe-306/            an experiment: an ordinary run folder
    ladder.json         a quality measurement
    report.html         what was found

The progress of a part is not written down: it is read from the part itself.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from specmeter.analysis.quality import QualityReport, load_report
from specmeter.analysis.reading import certified
from specmeter.errors import StoreError, UsageError
from specmeter.files import is_link
from specmeter.messages import Message
from specmeter.record import Record, Verdict
from specmeter.record.base import read_record, write_record
from specmeter.store import RunState, RunStore
from specmeter.store.locate import RUNS_FOLDER, STUDY_NAME, find_folders, new_folder
from specmeter_studies.amount import measured
from specmeter_studies.loading import Study, find, remembered
from specmeter_studies.measured import from_quality, from_run, merged, ran
from specmeter_studies.study import Ran, Said, StudyData, StudyFindings

REPORT_NAME = "report.html"
_MAX_BYTES = 4 * 2**20

PartName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]


class LeftOut(Record):
    """An arm of an experiment, or a model of a quality measurement, that was not measured."""

    name: str
    """Id of the arm, or the model's name."""
    reason: Said


class Part(Record):
    """A part of a study, as it was started."""

    name: PartName
    kind: Literal["experiment", "quality"]
    skipped: Said | None = None
    """Why nothing of it was measured; None where something was, or is still to be."""
    left_out: tuple[LeftOut, ...] = ()
    """What was decided when it was started; it stays so until the part is complete."""


class OwnStudy(Record):
    """A user's own study, as it was when it was measured."""

    folder: str
    """Where its files are: its code is read from there, and only where it is trusted."""
    text: Annotated[str, Field(max_length=1_000_000)]
    """Of its `study.yaml`."""


class StudyRecord(Record):
    """What `study.json` holds."""

    format: Literal[1] = 1
    study: Annotated[str, Field(max_length=100)]
    own: OwnStudy | None = None
    """None: bundled."""
    variants: tuple[str, ...] = ()
    """As they were asked for; each part takes those that it has."""
    overrides: tuple[str, ...] = ()
    """`--set` and `--model` as they were given."""
    made_at: float
    """Seconds since the epoch."""
    parts: Annotated[tuple[Part, ...], Field(max_length=100)]

    def asked_like(self, other: StudyRecord) -> bool:
        """Whether the same was asked for."""
        own = [None if it.own is None else it.own.folder for it in (self, other)]
        same = (self.study, self.variants, self.overrides) == (other.study, other.variants, other.overrides)
        return same and own[0] == own[1]

    def with_part(self, part: Part) -> StudyRecord:
        """The record with this part in the place of the one of its name."""
        parts = tuple(part if part.name == known.name else known for known in self.parts)
        return self.model_copy(update={"parts": parts})


@dataclass(frozen=True)
class StudyFolder:
    """A study folder; every method may raise `StoreError` or `UsageError` for damaged files."""

    path: Path

    @property
    def record_path(self) -> Path:
        return self.path / STUDY_NAME

    @property
    def report_path(self) -> Path:
        return self.path / REPORT_NAME

    def run_folder(self, part: str) -> Path:
        """Where an experiment of the study is measured into. Raises `StoreError` for a link: it may lead anywhere."""
        folder = self.path / part
        if is_link(folder):
            raise StoreError(
                f"{folder}: is a symbolic link, which is not followed",
                fix=f"pass it directly: `specmeter show {folder}`",
            )
        return folder

    def quality_file(self, part: str) -> Path:
        """Where a quality measurement of the study is kept."""
        return self.path / f"{part}.json"

    def quality(self, part: str) -> QualityReport:
        """A quality measurement of the study, as far as it has come."""
        return load_report(self.quality_file(part), inside=True)

    def record(self) -> StudyRecord:
        """What was asked for. Raises `UsageError` for a folder that is none."""
        return read_record(
            StudyRecord,
            self.record_path,
            what="study",
            made_by="specmeter study run",
            max_bytes=_MAX_BYTES,
            inside=True,
        )

    def study(self, *, trusted: bool = False) -> Study:
        """The study that was measured; `trusted`: code of a user's folder may run. Raises `UsageError`."""
        record = self.record()
        if record.own is None:
            return find(record.study)
        return remembered(Path(record.own.folder), record.own.text, trusted=trusted)

    def findings(self, *, trusted: bool = False) -> StudyFindings:
        """What the study says about everything that was measured so far."""
        study = self.study(trusted=trusted)
        return study.findings(self.data(study))

    def write(self, record: StudyRecord) -> None:
        """Keep it, whole or not at all."""
        write_record(record, self.record_path, what="study", inside=True)

    def state(self, part: Part) -> Ran:
        """How far a part has come."""
        if part.skipped:
            return Ran(part=part.name, status="skipped", reason=part.skipped)
        if not self.has_begun(part):
            return _not_begun(part)
        if part.kind == "quality":
            return self._data_of_report(part).parts[0]
        with RunStore.open(folder := self.run_folder(part.name), readonly=True) as store:
            return ran(part.name, store.state(), folder, checked=store.certificate() is not None)

    def kept(self, part: Part) -> Message:
        """How much of a part is on disk, for people."""
        if not self.has_begun(part):
            return Message("study.nothing_yet")
        if part.kind == "quality":
            return measured(self.quality(part.name)).message or Message("study.nothing_yet")
        state = self.run_state(part)
        assert state is not None
        return Message("study.kept", ok=state.ok, planned=state.planned)

    def run_state(self, part: Part) -> RunState | None:
        """How far an experiment has come; None before it was started."""
        folder = self.run_folder(part.name)
        if not RunStore.exists(folder):
            return None
        with RunStore.open(folder, readonly=True) as store:
            return store.state()

    def has_begun(self, part: Part) -> bool:
        """Whether anything of a part was measured."""
        return self.quality_file(part.name).exists() if part.kind == "quality" else self.run_state(part) is not None

    def is_finished(self) -> bool:
        """Whether every part that can be measured here was measured."""
        return all(self.state(part).status != "incomplete" for part in self.record().parts)

    def data(self, study: Study | None = None, *, vouched: Part | None = None) -> StudyData:
        """Everything that was measured so far, and what was not; a part that is measured now can be `vouched` for."""
        record, study = self.record(), study or self.study()
        several = sum(part.kind == "experiment" for part in record.parts) > 1
        found: list[StudyData] = []
        more: list[Ran] = []
        for part in record.parts:
            if part.skipped:
                more.append(self.state(part))
            elif not self.has_begun(part):
                more.append(_not_begun(part))
            elif part.kind == "quality":
                found.append(self._data_of_report(part, record.study))
            else:
                folder = self.run_folder(part.name)
                self._refuse_other(part, folder, {it.name for it in record.parts})
                found.append(from_run(study, folder, part=part.name, several=several, vouched=part == vouched))
            more += [
                Ran(part=f"{part.name}: {item.name}", status="skipped", reason=item.reason) for item in part.left_out
            ]
        return merged(record.study, found, more)

    def _refuse_other(self, part: Part, folder: Path, parts: Collection[str]) -> None:
        """Raise `UsageError` where a part's folder holds the run of another part."""
        with RunStore.open(folder, readonly=True) as store:
            name = str(json.loads(store.experiment_json)["name"])
        if name != part.name and name in parts:
            raise UsageError(
                f"{folder}: holds the experiment {name[:80]!r}, not {part.name!r}",
                fix="restore the folder, or measure the study again (--new)",
            )

    def verdicts(self) -> dict[str, Verdict]:
        """Experiment -> verdict of its run; those not checked yet are missing."""
        found: dict[str, Verdict] = {}
        for part in self.record().parts:
            if part.kind == "experiment" and self.run_state(part) is not None:
                with RunStore.open(self.run_folder(part.name), readonly=True) as store:
                    certificate, _ = certified(store)
                if certificate is not None:
                    found[part.name] = certificate.verdict
        return found

    def _data_of_report(self, part: Part, study: str = "") -> StudyData:
        return from_quality(study, self.quality(part.name), part=part.name)


def choose_folder(asked: StudyRecord, *, new: bool = False, runs: Path = RUNS_FOLDER) -> tuple[StudyFolder, bool]:
    """(folder, whether it is to be resumed): the latest unfinished one of the same study, variants and overrides, or a
    new one."""
    if not new:
        for folder in map(StudyFolder, reversed(find_folders("study", runs=runs, name=asked.study))):
            try:
                if folder.record().asked_like(asked) and not folder.is_finished():
                    return folder, True
            except UsageError:
                continue
    return StudyFolder(new_folder(asked.study, runs)), False


def _not_begun(part: Part) -> Ran:
    return Ran(part=part.name, status="incomplete", reason=Message("study.ran.not_begun"))
