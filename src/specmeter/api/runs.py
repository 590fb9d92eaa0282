"""Runs from Python: `run` measures an experiment, `load` reads what was measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, get_args
from warnings import warn

from pydantic import ValidationError

from specmeter.advise.schedule import Schedule, find_single_run, read_advised
from specmeter.analysis.reading import RunReport, read_run
from specmeter.api.arguments import need, need_type, path_of, several
from specmeter.errors import UsageError
from specmeter.experiments.experiment import Experiment as ExperimentRecord
from specmeter.experiments.file import load as load_experiment
from specmeter.experiments.file import refusal
from specmeter.laboratory import run as laboratory
from specmeter.laboratory.cautions import too_few
from specmeter.measure.loop import Observer
from specmeter.messages import LANGUAGES
from specmeter.models.reference import Fetching
from specmeter.probe.files import load_probe
from specmeter.show.export.run_table import RunTable
from specmeter.show.export.tables import TableName
from specmeter.show.notebook import ShownAdvice, ShownSchedule, run_html, run_text
from specmeter.show.page.document import read_document
from specmeter.show.page.files import write_page
from specmeter.show.studies import needed
from specmeter.store import RunStore
from specmeter.store.locate import ADVISED, find_run, sort_of
from specmeter.store.run import REPORT_NAME

if TYPE_CHECKING:
    import pandas  # pyright: ignore[reportMissingTypeStubs]
    import polars

    from specmeter.analysis.summary import ArmSummary
    from specmeter.measure import Work
    from specmeter.record import Disturbance, Request, Verdict


Progress: TypeAlias = "Callable[[int, int, Request], None]"
"""Called with (requests that are on disk, requests in all, the one that was added last)."""


class Experiment(ExperimentRecord):
    """An experiment in Python, with the keys, validation and errors of a YAML file.

    Keys: docs/reference/experiment.md. Raises an `ExperimentError` that names each wrong key.

    >>> specmeter.Experiment(
    ...     name="mine",
    ...     targets={"dense": "bench:dense-400m"},
    ...     drafts={"small": "bench:draft-small"},
    ...     arms=[{"draft": "small", "gamma": [2, 4]}],
    ...     workloads=[{"source": "bench", "kinds": ["code"], "per_kind": 2}],
    ... ).expand()[0].id
    'dense/none'
    """

    def __init__(self, **keys: Any) -> None:
        try:
            super().__init__(**keys)
        except ValidationError as error:
            raise refusal(error, keys, "Experiment") from None


@dataclass(frozen=True, repr=False)
class Run(RunReport):
    """A run, finished or not, as it was in its folder when read; returned by `load` and `run`.

    Speedups of invalid arms are not in `summary` and `answers` but in `withheld`. Tables, requests and reports are read
    from the folder on access, and raise `StoreError` if it is damaged.
    """

    tables: ClassVar[tuple[TableName, ...]] = get_args(TableName)
    """Table names for `table` and the `to_...` methods."""

    @property
    def verdict(self) -> Verdict | None:
        """`valid`, `suspect` or `invalid`; None before a check."""
        return self.certificate.verdict if self.certificate else None

    def arm(self, arm_id: str) -> ArmSummary:
        """Results of an arm: rates, speedup, acceptance and tau, each an `Estimate` with its interval.

        Raises `UsageError` for an arm that the run does not have.
        """
        known = {arm.arm_id: arm for arm in (*self.summary.arms, *self.summary.controls)}
        if arm_id not in known:
            raise UsageError(f"{self.folder.name} has no arm {arm_id}", fix=f"use one of {', '.join(known)}")
        return known[arm_id]

    def requests(self) -> Iterator[Request]:
        """All requests in the order of measurement, one in memory at a time."""
        with RunStore.open(self.folder, readonly=True) as store:
            yield from store.requests()

    def table(self, name: TableName = "requests") -> RunTable:
        """A table of the run: iterate over it (dicts), write it, or make a data frame.

        The columns are described in docs/reference/columns.md. Raises `UsageError` for an unknown name.
        """
        return RunTable(self.folder, name)

    def to_arrow(self, table: TableName = "requests") -> Any:
        """A table as a `pyarrow.Table`; needs the extra `parquet`."""
        return self.table(table).to_arrow()

    def to_pandas(self, table: TableName = "requests") -> pandas.DataFrame:
        """A table as a `pandas.DataFrame`; needs the extra `pandas`."""
        return self.table(table).to_pandas()

    def to_polars(self, table: TableName = "requests") -> polars.DataFrame:
        """A table as a `polars.DataFrame`; needs the extra `polars`."""
        return self.table(table).to_polars()

    def report(self, path: str | Path | None = None, *, languages: Sequence[str] = LANGUAGES) -> Path:
        """Write the run as one offline HTML page; returns its path. Default: `report.html` in the run folder. Raises
        `UsageError` for a file that cannot be written."""
        out = self.folder / REPORT_NAME if path is None else Path(path)
        return write_page(read_document(self.folder), out, languages, inside=path is None)

    def __repr__(self) -> str:
        return run_text(self)

    def _repr_html_(self) -> str:
        return run_html(self)


def load(run: str | Path = "latest", *, by_prompt: bool = False) -> Run | Any:
    """Read a run: its folder, the name of a folder under specmeter-runs/, or `latest`.

    Returns a `Run`; for an advice, a schedule or a study, what `advise`, `schedule` or `studies.load` returns.
    `by_prompt` adds the speedup on every prompt (`ArmSummary.prompts`). Raises `StoreError`, and `UsageError` for a
    damaged advice, schedule or study.
    """
    folder = find_run(path_of("run", run)).absolute()
    sort = sort_of(folder)
    if sort in ADVISED:
        found = read_advised(folder)
        return ShownSchedule(**vars(found)) if isinstance(found, Schedule) else ShownAdvice(**vars(found))
    return needed(str(run)).load(folder) if sort == "study" else _run(folder, by_prompt=by_prompt)


def _run(folder: Path, *, by_prompt: bool = False) -> Run:
    return Run(**vars(read_run(folder.absolute(), by_prompt=by_prompt)))


def run(
    experiment: ExperimentRecord | Mapping[str, Any] | str | Path,
    *,
    out: str | Path | None = None,
    variants: Sequence[str] = (),
    overrides: Sequence[str] = (),
    new: bool = False,
    offline: bool = False,
    probes: Sequence[str | Path] = (),
    progress: Progress | None = None,
) -> Run:
    """Measure an experiment (or what is missing of it), check it and read the result, like `specmeter run`.

    `experiment` is an `Experiment`, a dict of its keys, the name of a bundled experiment, or a YAML file. Results go
    into the folder `out`; default: the unfinished run of the same experiment under specmeter-runs/, or a new folder
    (always a new one with `new`). `overrides` are `a.b=c`, applied after `variants`; `probes` are used for predictions.

    Every request is on disk before it is reported: after Ctrl-C, a crash or a restarted kernel the same call
    measures what is missing. Problems found before the start are issued as `warnings`. Failed requests do not raise;
    see `run.state`. Raises `ExperimentError`, `ModelError`, `StoreError`, and `EngineError` if an engine cannot start.
    """
    need_type("experiment", experiment, (ExperimentRecord, Mapping, str, Path), "a file, or keys")
    need(progress is None or callable(progress), "progress", progress, "a function of (done, planned, request)")
    variants, overrides = several("variants", variants, str), several("overrides", overrides, str)
    probes = several("probes", probes, str, Path)
    place = None if out is None else Path(path_of("out", out))
    asked = Experiment(**experiment) if isinstance(experiment, Mapping) else experiment
    loaded = load_experiment(asked, overrides, variants=variants)
    found = [(Path(probe).name, load_probe(Path(probe))) for probe in probes]
    prepared = laboratory.prepare(loaded, fetching=Fetching(offline))
    folder, _ = laboratory.choose_folder(
        prepared.experiment.name,
        prepared.experiment.model_dump_json(),
        out=place,
        new=new,
    )
    doubts = [str(finding.message) for finding in laboratory.predict_findings(prepared) if finding.severity != "note"]
    for doubt in (*doubts, *too_few(prepared.experiment, list(prepared.work.arms.values()))):
        warn(doubt, stacklevel=2)
    laboratory.run(prepared, folder, _Observer(prepared.work, folder, progress), probes=found)
    return _run(folder)


class _Observer(Observer):
    """Counts requests for a progress callback; see `measure.Observer`."""

    def __init__(self, work: Work, folder: Path, progress: Progress | None) -> None:
        self._planned = self._missing = sum(1 for _ in work.keys())  # noqa: SIM118
        if RunStore.exists(folder):
            with RunStore.open(folder, readonly=True) as store:
                self._missing = len(store.missing())
        self._progress = progress

    def request_done(self, request: Request) -> None:
        self._missing -= 1
        if self._progress is not None:
            self._progress(self._planned - self._missing, self._planned, request)

    def block_excluded(self, found: Disturbance, wait_s: float) -> None:  # noqa: ARG002
        self._missing += found.requests if found.again else 0


def folder_of(run: Run | str | Path) -> Path:
    return run.folder if isinstance(run, Run) else find_single_run(path_of("run", run))
