"""What `import specmeter` offers: runs, experiments, audits, comparisons and predictions as Python objects.

Everything goes through the rooms that the command line uses; nothing is computed a second time. What the command line
withholds because it is false is withheld here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, cast, get_args
from warnings import warn

from pydantic import ValidationError

from specmeter.advise.schedule import Schedule, find_single_run, read_advised
from specmeter.analysis.comparison import compare_runs, read_side, refuse_threshold
from specmeter.analysis.prediction.sources import acceptance_of, costs_of, doubling
from specmeter.analysis.prediction.speedup import predict as forecast
from specmeter.analysis.reading import RunReport, read_run
from specmeter.audit.read.infer_units import table_options
from specmeter.audit.reading import read_claims, read_rows, row_defaults, rule
from specmeter.errors import UsageError
from specmeter.experiments.experiment import Experiment as ExperimentRecord
from specmeter.experiments.file import load as load_experiment
from specmeter.experiments.file import refusal
from specmeter.laboratory import run as laboratory
from specmeter.laboratory.plan import too_few
from specmeter.measure.loop import Observer
from specmeter.messages import LANGUAGES, Message
from specmeter.models.reference import Fetching
from specmeter.probe import load_probe
from specmeter.show.export import RunTable, TableName
from specmeter.show.notebook import (
    ShownAdvice,
    ShownAudit,
    ShownComparison,
    ShownPrediction,
    ShownSchedule,
    run_html,
    run_text,
)
from specmeter.show.page.document import read_document
from specmeter.show.page.files import write_page
from specmeter.show.studies import needed
from specmeter.store import RunStore
from specmeter.store.locate import ADVISED, find_run, sort_of
from specmeter.store.run import REPORT_NAME

if TYPE_CHECKING:
    import pandas  # pyright: ignore[reportMissingTypeStubs]
    import polars

    from specmeter.analysis.comparison import Measure, RunComparison
    from specmeter.analysis.prediction.speedup import Predicted
    from specmeter.analysis.summary import ArmSummary
    from specmeter.audit.reading import Audit
    from specmeter.measure import Work
    from specmeter.record import Disturbance, Request, Verdict

Progress: TypeAlias = "Callable[[int, int, Request], None]"
"""Called with (requests that are on disk, requests in all, the one that was added last)."""


class Experiment(ExperimentRecord):
    """An experiment built in Python: the same keys, validation and errors as in a YAML file.

    Every key is explained in docs/reference/experiment.md. Raises `ExperimentError` that names each key that is wrong.

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
    """A run as it was in its folder when read, finished or not; made by `load` and `run`.

    Speedups of arms whose verdict is invalid are not in `summary` and `answers`; `withheld` has them. Tables, requests
    and reports are read from the folder when they are asked for, and raise `StoreError` where it is damaged.
    """

    tables: ClassVar[tuple[TableName, ...]] = get_args(TableName)
    """Names of the tables that `table` and the `to_...` methods know."""

    @property
    def verdict(self) -> Verdict | None:
        """`valid`, `suspect` or `invalid`; None for a run that was not checked yet."""
        return self.certificate.verdict if self.certificate else None

    def arm(self, arm_id: str) -> ArmSummary:
        """What was measured for an arm: rates, speedup, acceptance, tau, each an `Estimate` with its interval.

        Raises `UsageError` for an arm that the run does not have.
        """
        known = {arm.arm_id: arm for arm in (*self.summary.arms, *self.summary.controls)}
        if arm_id not in known:
            raise UsageError(f"{arm_id} is not an arm of {self.folder.name}", fix=f"use one of {', '.join(known)}")
        return known[arm_id]

    def requests(self) -> Iterator[Request]:
        """Every request in full, in the order of measurement, one in memory at a time."""
        with RunStore.open(self.folder, readonly=True) as store:
            yield from store.requests()

    def table(self, name: TableName = "requests") -> RunTable:
        """A table of the run, to be iterated over (dicts), written, or turned into a data frame.

        The columns are described in docs/reference/columns.md. Raises `UsageError` for an unknown name.
        """
        return RunTable(self.folder, name)

    def to_arrow(self, table: TableName = "requests") -> Any:
        """A table as a `pyarrow.Table`; needs `pip install 'specmeter[parquet]'`."""
        return self.table(table).to_arrow()

    def to_pandas(self, table: TableName = "requests") -> pandas.DataFrame:
        """A table as a `pandas.DataFrame`; needs `pip install 'specmeter[pandas]'`."""
        return self.table(table).to_pandas()

    def to_polars(self, table: TableName = "requests") -> polars.DataFrame:
        """A table as a `polars.DataFrame`; needs `pip install 'specmeter[polars]'`."""
        return self.table(table).to_polars()

    def report(self, path: str | Path | None = None, *, languages: Sequence[str] = LANGUAGES) -> Path:
        """Write the run as one HTML page that opens offline; returns its place, `report.html` in the run folder unless
        another is named. Raises `UsageError` for a file that cannot be written."""
        out = self.folder / REPORT_NAME if path is None else Path(path)
        return write_page(read_document(self.folder), out, languages, inside=path is None)

    def __repr__(self) -> str:
        return run_text(self)

    def _repr_html_(self) -> str:
        return run_html(self)


def load(run: str | Path = "latest", *, by_prompt: bool = False) -> Run | Any:
    """Read what was measured: its folder, the name of one under specmeter-runs/, or `latest`, what was made last.

    A run is a `Run`; an advice, a schedule or a study is read as what `advise`, `schedule` and `studies.load` return.
    `by_prompt` also asks for the speedup on every prompt (`ArmSummary.prompts`). Raises `StoreError`, and `UsageError`
    for a damaged advice, schedule or study.
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
    """Measure an experiment, or what is missing of it, check it, and read the result: `specmeter run` in Python.

    `experiment` is an `Experiment`, a dict of its keys, the name of a bundled experiment, or a YAML file. It goes into
    the folder `out`; by default into the unfinished run of the same experiment under specmeter-runs/, or a new one
    (always, where `new`). `overrides` are `a.b=c`, applied after `variants`; `probes` predict arms beforehand.

    Every request is on disk before the next one starts: after Ctrl-C, a crash or a restarted kernel the same call
    measures what is missing. `warnings` lists problems found before the experiment begins. Requests that failed in the
    engine are in the run (`run.state`) and raise nothing. Raises `ExperimentError`, `ModelError`, `StoreError`, and
    `EngineError` for an engine that cannot start.
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
    doubts = [str(finding.message) for finding in laboratory.foresee(prepared) if finding.severity != "note"]
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

    def block_set_aside(self, found: Disturbance, wait_s: float) -> None:  # noqa: ARG002
        self._missing += found.requests if found.again else 0


def compare(
    reference: Run | str | Path, *others: Run | str | Path, by: Measure = "rate", threshold: float = 0.02
) -> tuple[RunComparison, ...]:
    """Each of the `others` against the reference, arm by arm, over the prompts that both completed.

    `by` is `rate` or `speedup` (for different machines); a loss of more than the share `threshold` is a regression.
    Numbers of invalid arms are not compared. Raises `UsageError` for runs without an arm in common, `StoreError`.
    """
    need(by in ("rate", "speedup"), "by", by, '"rate" or "speedup"')
    need_type("threshold", threshold, (int, float), "a share from 0 to 0.9")
    refuse_threshold(threshold)
    if not others:
        raise UsageError("one run is not enough to compare", fix="name two or more: compare(a, b)")
    sides = [read_side(_folder(run)) for run in (reference, *others)]
    found = (compare_runs(sides[0], side, measure=by, threshold=threshold) for side in sides[1:])
    return tuple(ShownComparison.model_construct(**dict(one)) for one in found)


def _folder(run: Run | str | Path) -> Path:
    return run.folder if isinstance(run, Run) else find_single_run(path_of("run", run))


Quantity: TypeAlias = str | float
"""A number in the unit that is said, or with its unit: `1.9e9`, `"1.9GB"`."""


def audit(
    source: str | Path | Iterable[Mapping[str, Any]] | pandas.DataFrame | polars.DataFrame,
    *,
    format: str | None = None,  # noqa: A002
    baseline_rate: Quantity | None = None,
    draft_rate: Quantity | None = None,
    gamma: int | None = None,
    device: str | None = None,
    bandwidth: Quantity | None = None,
    bytes_per_token: Quantity | None = None,
    cheapest_forward: float | None = None,
    noise: float | None = None,
    percent: Sequence[str] = (),
    fraction: Sequence[str] = (),
    columns: Mapping[str, str] | None = None,
) -> Audit:
    """Rule on published results, row by row: impossible, implausible, possible, or cannot tell.

    `source` is a file (a table, a benchmark's output, an engine's log), a data frame of pandas or polars, or rows as
    mappings. The other arguments supply what the source leaves out: rates in tok/s, the peak
    bandwidth in GB/s, `bytes_per_token` in bytes, `noise` as a share of repeated timings, headings that are in percent
    or fractions, and name of a column -> its heading. Raises `UsageError` for a source that cannot be read.

    >>> specmeter.audit([{"gamma": 4, "acceptance": 0.5, "speedup": 9.5}]).rulings[0].verdict
    'implausible'
    """
    need_type("gamma", gamma, (int, type(None)), "a whole number")
    need(gamma is None or gamma >= 1, "gamma", gamma, "a whole number from 1")
    for name, value in (("noise", noise), ("cheapest_forward", cheapest_forward)):
        need(value is None or is_number(value), name, value, "a number")
    for name, value in (("device", device), ("format", format)):
        need_type(name, value, (str, type(None)), "a name")
    need_type("columns", columns, (Mapping, type(None)), "a dict: name of a column -> its heading")
    percent, fraction = several("percent", percent, str), several("fraction", fraction, str)
    given = row_defaults(
        baseline_rate=_text(baseline_rate),
        draft_rate=_text(draft_rate),
        gamma=gamma,
        device=device,
        bandwidth=_text(bandwidth),
        bytes_per_token=_text(bytes_per_token),
        cheapest_forward=cheapest_forward,
    )
    if noise is not None and not 0 <= noise <= 0.5:
        raise UsageError(f"noise is {noise:g}: not a share from 0 to 0.5", fix="give 0.03 for 3 percent")
    options = table_options(tuple(percent), tuple(fraction), dict(columns or {}))
    if isinstance(source, str | Path):
        name, claims = read_claims(Path(source).expanduser(), format, options)
        return ShownAudit(**vars(rule(claims, str(source), name, given, noise)))
    return ShownAudit(**vars(rule(read_rows(rows_of(source), options), "rows", "table", given, noise)))


def _text(value: Quantity | None) -> str | None:
    return None if value is None else str(value)


def predict(
    *,
    probe: str | Path | None = None,
    device: str | None = None,
    model: str | None = None,
    format: str = "Q4_K_M",  # noqa: A002
    draft_model: str | None = None,
    draft_format: str | None = None,
    context: int = 512,
    gamma: Sequence[int] | int | None = None,
    alpha: float | None = None,
    rates: Sequence[float] | float | None = None,
    acceptance_from: Run | str | Path | None = None,
    kind: str | None = None,
    arm: str | None = None,
    no_draft: bool = False,
) -> Predicted:
    """Predict the speedup for each draft length, with its uncertainty, without measuring.

    Costs come from a `probe` file, or from the catalogue by `device`, `model` and `format`; acceptance is `alpha`,
    `rates` by position, measured in a run (`acceptance_from`, optionally only prompts of a `kind` or one `arm`), or
    else an assumed range. Raises `UsageError` for unknown names and impossible numbers, `StoreError` for the run.

    >>> found = specmeter.predict(device="RTX 3090", model="Qwen3-8B", draft_model="Qwen3-0.6B", alpha=0.8)
    >>> found.best.speedup.point > 1
    True
    """
    gamma = None if gamma is None else several("gamma", [gamma] if isinstance(gamma, int) else gamma, int)
    rates = None if rates is None else several("rates", [rates] if is_number(rates) else rates, int, float)
    for name, value in (
        ("device", device),
        ("model", model),
        ("draft_model", draft_model),
        ("kind", kind),
        ("arm", arm),
    ):
        need_type(name, value, (str, type(None)), "a name")
    need_type("format", format, (str,), 'a number format, such as "Q4_K_M"')
    need_type("context", context, (int,), "a whole number of tokens")
    made = None if probe is None else load_probe(Path(path_of("probe", probe)))
    named = Message("costs.probe", name="" if probe is None else Path(probe).name)
    costs = costs_of(made, named, device, model, format, draft_model, draft_format, context, no_draft=no_draft)
    by_model = costs.has_draft and not no_draft
    run = nullcontext() if acceptance_from is None else RunStore.open(_folder(acceptance_from), readonly=True)
    with run as store:
        acceptance = acceptance_of(alpha, rates, store, kind, arm, by_model=by_model, probe=made)
    return ShownPrediction(
        **vars(forecast(acceptance, costs, doubling(16) if gamma is None else gamma, by_model=by_model))
    )


# --- arguments: what is wrong with one is said as on the command line, with its name and the fix ----------------------


def need(holds: bool, name: str, value: object, wanted: str) -> None:
    """Raise `UsageError` that names the argument, unless what is needed of it `holds`."""
    if not holds:
        raise UsageError(f"{name} is {value!r:.200}, which is not {wanted}", fix=f"give {wanted}")


def need_type(name: str, value: object, kinds: tuple[type, ...], wanted: str) -> None:
    need(isinstance(value, kinds) and not isinstance(value, bool), name, value, wanted)


def several(name: str, values: object, *kinds: type) -> tuple[Any, ...]:
    """The values of a list, each of one of the kinds. Raises `UsageError`, for a single text as well."""
    need(is_list(values), name, values, f"a list, such as [{values!r:.80}]")
    found = tuple(cast("Iterable[object]", values))
    for value in found:
        need_type(name, value, kinds, f"a {' or a '.join(kind.__name__ for kind in kinds)}")
    return found


def is_list(value: object) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping)


def is_number(value: object) -> bool:
    """Whether it is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


def rows_of(source: Any) -> list[Mapping[str, Any]]:
    """Rows of a data frame (pandas, polars) or of an iterable of mappings. Raises `UsageError` for anything else."""
    if hasattr(source, "to_dicts"):
        source = source.to_dicts()
    elif hasattr(source, "to_dict") and hasattr(source, "columns"):
        source = source.to_dict("records")
    wanted = "a file, a data frame, or rows as dicts"
    need(is_list(source), "source", source, wanted)
    rows = list(cast("Iterable[object]", source))
    need(bool(rows), "source", source, "a table with rows")
    for row in rows:
        need_type("source", row, (Mapping,), wanted)
    return cast("list[Mapping[str, Any]]", rows)


def path_of(name: str, value: object) -> str:
    need(isinstance(value, str | Path) and str(value) != "", name, value, "a path or a name")
    return str(value)
