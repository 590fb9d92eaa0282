"""The tables of a run: one list of them, with typed and described columns, for Python, files and the documentation.

columns     what a column is; columns from the fields of records
tables      TABLES: every table, its columns, and where its rows are found in a run folder
formats     rows as CSV, JSON Lines, Parquet and Arrow
run_table   a table of one run: to be read, written, or turned into a data frame

Every table of a run: its columns, and where its rows are found.

Rates are computed by `specmeter.numbers.rates`, never taken from the engine.

What a column of a table is, and how columns follow from the fields of records.

A new field of a record is a new column, with the field's docstring as its description. Nested records are JSON.

A table of one run: to be read row by row, written to a file, or turned into a data frame.

Rows as CSV, JSON Lines, Parquet and Arrow.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from itertools import islice
from pathlib import Path
from types import NoneType, UnionType
from typing import IO, TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Union, cast, get_args, get_origin

from specmeter.analysis.load.summary import CellFigures, measured_cells
from specmeter.analysis.positions import AcceptedLength, ArmPositions, PositionRate, positions
from specmeter.analysis.prediction.forecast import PredictionOutcome
from specmeter.analysis.reading import RunReport, certified, read_run
from specmeter.analysis.summary import ArmSummary, KindSummary
from specmeter.errors import UsageError
from specmeter.files import fix_for, whole_file
from specmeter.messages import Message
from specmeter.numbers import rates
from specmeter.numbers.estimates import bare
from specmeter.numbers.reconciled import Reconciled, acceptance_record, reconciled
from specmeter.probe.draft_lengths import DraftLength, draft_lengths
from specmeter.record import (
    EngineIdentity,
    Estimate,
    ExpertUnion,
    Finding,
    Margin,
    Prediction,
    Prompt,
    Record,
    Reply,
    Request,
    RequestEnergy,
    Sending,
    Session,
    Step,
    Telemetry,
    TextRouting,
    Timings,
    Verdict,
)
from specmeter.record.base import descriptions
from specmeter.record.verdict import request_verdicts, worst
from specmeter.store import RunReader, RunStore
from specmeter.text import csv_cell
from specmeter.theory.roofline import expected_union

if TYPE_CHECKING:
    import pandas  # pyright: ignore[reportMissingTypeStubs]
    import polars


ColumnType = Literal["integer", "number", "boolean", "text", "integers", "numbers", "json"]


@dataclass(frozen=True)
class ExportColumn:
    """One column: how it is called, what it holds, and where that is found."""

    name: str
    type: ColumnType
    """`integers` and `numbers` are lists; `json` is anything nested. Any value may be missing (None)."""
    description: str
    read: Callable[[Any], Any]
    """From the source of a row to the value."""


def columns_of(
    record: type[Record], get: Callable[[Any], Any] = lambda it: it, *, leave: Collection[str] = (), prefix: str = ""
) -> Iterator[ExportColumn]:
    """A column for each field; `get` finds the record in the source of a row, None where there is none."""
    told = descriptions(record)
    for name, field in record.model_fields.items():
        if name not in leave:
            kind = _column_type(field.annotation)
            description = " ".join(told.get(name, "").split())
            yield ExportColumn(prefix + name, kind, description, _reader(get, name, plain=kind != "json"))


def estimated(name: str, description: str, get: Callable[[Any], Estimate | None]) -> Iterator[ExportColumn]:
    """An estimate and the ends of its interval."""

    def end(which: Literal["point", "low", "high"]) -> Callable[[Any], float | None]:
        return lambda source: None if (found := get(source)) is None else getattr(found, which)

    yield ExportColumn(name, "number", description, end("point"))
    yield ExportColumn(f"{name}_low", "number", "Lower end of its interval.", end("low"))
    yield ExportColumn(f"{name}_high", "number", "Upper end.", end("high"))


def _reader(get: Callable[[Any], Any], name: str, *, plain: bool) -> Callable[[Any], Any]:
    def read(source: Any) -> Any:
        record = get(source)
        if record is None:
            return None
        value = getattr(record, name)
        return str(value) if isinstance(value, Message) else value if plain else _data(value)

    return read


def _data(value: Any) -> Any:
    """JSON data for what is not a plain column: nested records, tuples of them, mappings."""
    if isinstance(value, Record):
        return value.model_dump(mode="json")
    if isinstance(value, Message):
        return value.to_json()
    if isinstance(value, dict):
        return {name: _data(item) for name, item in cast("dict[str, Any]", value).items()}
    if isinstance(value, tuple | list):
        return [_data(item) for item in cast("Sequence[Any]", value)]
    return value


def _column_type(annotation: Any) -> ColumnType:
    """By the annotation of a field; None counts as a missing value of any type."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        kinds: set[ColumnType] = {_column_type(part) for part in arguments if part is not NoneType}
        return kinds.pop() if len(kinds) == 1 else "json"
    if origin is Annotated:
        return _column_type(arguments[0])
    if origin is Literal or annotation in (str, Message):
        return "text"
    if origin is tuple:
        kinds: set[ColumnType] = {_column_type(part) for part in arguments if part is not Ellipsis}
        return "integers" if kinds == {"integer"} else "numbers" if kinds == {"number"} else "json"
    plain: dict[Any, ColumnType] = {bool: "boolean", int: "integer", float: "number"}
    return plain.get(annotation, "json")


class _Attempt(NamedTuple):
    """Source of a row of `requests`."""

    attempt: int
    request: Request
    verdict: Verdict | None


class _StepOf(NamedTuple):
    """Source of a row of `steps`."""

    attempt: int
    request: Request
    number: int
    step: Step


class _EnergyOf(NamedTuple):
    """Source of a row of `energy`."""

    energy: RequestEnergy
    joules: float
    tokens: int | None


class _Summed(NamedTuple):
    """Source of a row of `summary`."""

    run: RunReport
    arm: ArmSummary
    kind: str
    part: KindSummary

    @property
    def cited(self) -> Estimate | None:
        return self.part.speedup if self.kind else self.run.cited(self.arm)


class _Placed(NamedTuple):
    """Source of a row of `positions` or `accepted_lengths`; without an item where the engine shows no steps."""

    arm: ArmPositions
    item: PositionRate | AcceptedLength | None


class _Union(NamedTuple):
    """Source of a row of `routing`; without an estimate where it was not read."""

    routing: TextRouting
    layer: int | None
    tokens: int | None
    union: Estimate | None

    @property
    def of(self) -> ExpertUnion | None:
        return self.routing.union

    @property
    def uniform(self) -> float | None:
        if self.of is None or self.tokens is None:
            return None
        return expected_union(float(self.tokens), self.of.experts, self.of.used)


class ExportTable(NamedTuple):
    """A kind of table."""

    columns: tuple[ExportColumn, ...]
    rows: Callable[[RunReader], Iterable[Any]]
    """Sources of its rows, one at a time."""


def _reply(source: _Attempt) -> Reply | None:
    return source.request.reply


def _timings(source: _Attempt) -> Timings | None:
    return source.request.reply.timings if source.request.reply else None


def _reconciled(source: _Attempt) -> Reconciled | None:
    return reconciled(source.request.reply) if source.request.reply else None


def _derived(
    name: str, kind: ColumnType, description: str, rule: Callable[[Reply], int | float | None]
) -> ExportColumn:
    def read(source: _Attempt) -> int | float | None:
        return rule(source.request.reply) if source.request.reply else None

    return ExportColumn(name, kind, description, read)


_ATTEMPT = ExportColumn(
    "attempt",
    "integer",
    "1 for the first try; failed tries before it are kept in the run folder.",
    lambda source: source.attempt,
)

_REQUESTS = (
    *columns_of(Request, lambda source: source.request, leave={"reply"}),
    _ATTEMPT,
    ExportColumn(
        "verdict",
        "text",
        "`valid`, `suspect` or `invalid`, the worst of the request and its arm; empty for a run not checked yet.",
        lambda source: source.verdict,
    ),
    *columns_of(Timings, _timings),
    _derived(
        "decode_tok_s",
        "number",
        "(predicted_n - 1) / predicted_ms, per second.",
        lambda reply: rates.decode_rate(reply.timings),
    ),
    _derived(
        "prompt_tok_s", "number", "prompt_n / prompt_ms, per second.", lambda reply: rates.prompt_rate(reply.timings)
    ),
    _derived("acceptance", "number", "draft_n_accepted / draft_n.", lambda reply: rates.acceptance_rate(reply.timings)),
    _derived(
        "tau", "number", "Tokens emitted per target forward.", lambda reply: rates.tau(reply.timings, reply.steps)
    ),
    _derived(
        "target_forwards",
        "integer",
        "Forwards of the target after the prompt.",
        lambda reply: rates.target_forwards(reply.timings, reply.steps),
    ),
    *columns_of(Reconciled, _reconciled, prefix="reconciled_"),
    ExportColumn(
        "spec_decode_acceptance",
        "json",
        "The per-request acceptance record of NVIDIA's AIPerf, where the steps are known.",
        lambda source: acceptance_record(source.request.reply) if source.request.reply else None,
    ),
    _derived("step_n", "integer", "Steps recorded; see the table `steps`.", lambda reply: len(reply.steps)),
    *columns_of(Reply, _reply, leave={"timings", "steps"}),
)

_STEP_KEYS = ("invocation", "block", "arm_id", "prompt_id")
_STEPS = (
    *columns_of(Request, lambda source: source.request, leave=Request.model_fields.keys() - set(_STEP_KEYS)),
    _ATTEMPT,
    ExportColumn("step", "integer", "Number of the step in its request, from 0.", lambda source: source.number),
    *columns_of(Step, lambda source: source.step),
)


def _attempts(store: RunReader) -> Iterator[_Attempt]:
    certificate, findings = certified(store)
    own = request_verdicts(findings)
    for attempt, request in store.attempts(superseded=False):
        verdict: Verdict | None = None
        if certificate is not None:
            key = (request.invocation, request.block, request.arm_id, request.prompt_id)
            verdict = worst((own.get(key, "valid"), certificate.arms.get(request.arm_id, "invalid")))
        yield _Attempt(attempt, request, verdict)


def _steps(store: RunReader) -> Iterator[_StepOf]:
    for attempt, request in store.attempts(superseded=False):
        for number, step in enumerate(request.reply.steps if request.reply else ()):
            yield _StepOf(attempt, request, number, step)


def _energies(store: RunReader) -> Iterator[_EnergyOf]:
    tokens: dict[tuple[int, int, str, str], int | None] = {row.key: row.predicted_n for row in store.rows()}
    for it in store.energies():
        key = (it.invocation, it.block, it.arm_id, it.prompt_id)
        yield _EnergyOf(it, sum(it.joules.values()), tokens.get(key))


def _sums(store: RunReader) -> Iterator[_Summed]:
    run = read_run(store.folder)
    for arm in run.summary.arms:
        yield from (_Summed(run, arm, kind, part) for kind, part in {"": arm, **arm.kinds}.items())


def _outcomes(store: RunReader) -> Iterator[PredictionOutcome]:
    return iter(read_run(store.folder).predictions if store.predictions() else ())


def _load_cells(store: RunReader) -> Iterator[CellFigures]:
    return (cell.figures for cell in measured_cells(store))


def _placed(store: RunReader) -> Iterator[_Placed]:
    for arm in positions(store):
        yield from (_Placed(arm, place) for place in arm.positions or (None,))


def _accepted_lengths(store: RunReader) -> Iterator[_Placed]:
    for arm in positions(store):
        yield from (_Placed(arm, length) for length in arm.lengths or (None,))


def _over(figures: CellFigures, above: str, below: str, scale: float) -> float | None:
    """A ratio of two numbers of a cell; None where one is missing."""
    over, under = getattr(figures, above), getattr(figures, below)
    return None if over is None or not under else scale * over / under


def _unions(store: RunReader) -> Iterator[_Union]:
    for routing in store.routing():
        if routing.union is None:
            yield _Union(routing, None, None, None)
            continue
        for place, point in enumerate(routing.union.points):
            yield _Union(routing, None, point.tokens, point.union)
            for layer, unions in routing.layers.items():
                mean = bare(unions[place], "experts", "mean over texts", n=point.union.n)
                yield _Union(routing, layer, point.tokens, mean)


_PREDICTIONS = (
    *columns_of(Prediction, lambda outcome: outcome.prediction, leave={"speedup"}),
    *estimated("predicted", "Predicted speedup.", lambda it: it.prediction.speedup),
    *estimated("measured", "Measured speedup; empty where there is none that can be believed.", lambda it: it.measured),
    ExportColumn("error", "number", "predicted / measured - 1.", lambda it: it.error),
    ExportColumn(
        "inside", "boolean", "Whether what was measured lies in the predicted interval.", lambda it: it.inside
    ),
)

_SUMMARY = (
    ExportColumn("arm_id", "text", "The configuration.", lambda it: it.arm.arm_id),
    ExportColumn("baseline_id", "text", "What it is compared with.", lambda it: it.arm.baseline_id),
    ExportColumn("kind", "text", "Kind of text; empty: all prompts.", lambda it: it.kind),
    ExportColumn(
        "verdict",
        "text",
        "`valid`, `suspect` or `invalid`; empty for a run not checked yet.",
        lambda it: it.run.certificate and it.run.certificate.arms.get(it.arm.arm_id),
    ),
    *estimated("decode_tok_s", "Tokens per second while decoding.", lambda it: it.part.decode_rate),
    *estimated(
        "speedup",
        "With the interval to cite, which allows for picking the best arm; its own where none helps, and by kind.",
        lambda it: it.cited,
    ),
    *estimated("speedup_alone", "The same as if the arm had been the only one.", lambda it: it.part.speedup),
    *estimated("with_prompt", "Speedup, prompts included.", lambda it: it.part.gain and it.part.gain.with_prompt),
    *estimated("acceptance", "Accepted / drafted tokens, interval over prompts.", lambda it: it.part.acceptance),
    *estimated("tau", "Tokens per target forward, interval over prompts.", lambda it: it.part.tau),
    ExportColumn("n", "integer", "Blocks (or invocations) behind it.", lambda it: it.cited and it.cited.n),
)

_POSITIONS = (
    *columns_of(ArmPositions, lambda it: it.arm, leave={"positions", "lengths"}),
    *columns_of(PositionRate, lambda it: it.item, leave={"conditional", "unconditional"}),
    *estimated(
        "conditional",
        "Accepted / reached, interval over prompts; empty where no step got so far.",
        lambda it: it.item and it.item.conditional,
    ),
    *estimated(
        "unconditional",
        "Accepted / drafts, too short ones included; interval over prompts.",
        lambda it: it.item and it.item.unconditional,
    ),
)

_ACCEPTED_LENGTHS = (
    *columns_of(ArmPositions, lambda it: it.arm, leave={"positions", "lengths"}),
    *columns_of(AcceptedLength, lambda it: it.item, leave={"share"}),
    *estimated("share", "Of the steps that had a draft, interval over prompts.", lambda it: it.item and it.item.share),
)

_SERVED = tuple(
    ExportColumn(
        name, "number", description, lambda it, above=above, below=below, scale=scale: _over(it, above, below, scale)
    )
    for name, description, above, below, scale in (
        ("throughput_tok_s", "tokens / window_ms, per second.", "tokens", "window_ms", 1000.0),
        ("decode_throughput_tok_s", "full_tokens / full_ms, per second.", "full_tokens", "full_ms", 1000.0),
        ("per_client_tok_s", "decode_tokens / decode_ms, per second.", "decode_tokens", "decode_ms", 1000.0),
        ("requests_per_s", "requests_done / window_ms, per second.", "requests_done", "window_ms", 1000.0),
        ("goodput_per_s", "requests_good / window_ms, per second.", "requests_good", "window_ms", 1000.0),
        ("in_flight", "request_ms / window_ms.", "request_ms", "window_ms", 1.0),
        ("window_share", "window_ms / duration_ms.", "window_ms", "duration_ms", 1.0),
    )
)
_MEASURES = {
    "ttft": "Time to first token, from when a request was due",
    "ttft_sent": "The same from when it was sent",
    "tpot": "Time per output token",
    "itl": "Inter-token latency",
    "e2el": "End-to-end latency, from sent to the last token",
}
_LATENCIES = tuple(
    ExportColumn(
        f"{measure}_{name}",
        "number",
        f"{told}: {which}.",
        lambda it, m=measure, n=name: getattr(getattr(it, m), n, None),
    )
    for measure, told in _MEASURES.items()
    for name, which in (("mean_ms", "mean"), ("p50_ms", "median"), ("p95_ms", "95 %"), ("p99_ms", "99 %"))
)
_LOAD = (*columns_of(CellFigures, leave=set(_MEASURES)), *_LATENCIES, *_SERVED)

_ROUTING = (
    *columns_of(TextRouting, lambda it: it.routing, leave={"tokens", "union", "layers"}),
    ExportColumn("read_tokens", "integer", "Tokens of these texts.", lambda it: it.routing.tokens),
    ExportColumn("layer", "integer", "Number of the layer; empty for the mean over all.", lambda it: it.layer),
    ExportColumn("tokens", "integer", "n: consecutive tokens.", lambda it: it.tokens),
    *estimated("union", "Distinct experts of a layer that n tokens choose.", lambda it: it.union),
    ExportColumn("uniform", "number", "The same if routing were uniform.", lambda it: it.uniform),
    ExportColumn("experts", "integer", "Experts of a layer to choose from.", lambda it: it.of and it.of.experts),
    ExportColumn("used", "integer", "Experts chosen for a token.", lambda it: it.of and it.of.used),
)


TABLES: dict[TableName, ExportTable] = {
    "requests": ExportTable(_REQUESTS, _attempts),
    "summary": ExportTable(_SUMMARY, _sums),
    "sessions": ExportTable(
        (
            *columns_of(Session, leave={"engine"}),
            *columns_of(EngineIdentity, lambda session: session.engine, prefix="engine_", leave={"traits"}),
        ),
        RunReader.sessions,
    ),
    "steps": ExportTable(_STEPS, _steps),
    "telemetry": ExportTable(tuple(columns_of(Telemetry)), RunReader.telemetry),
    "prompts": ExportTable(tuple(columns_of(Prompt)), RunReader.prompts),
    "findings": ExportTable(
        (
            *columns_of(Finding),
            ExportColumn("code", "text", "Of the message: the same in every language.", lambda it: it.message.code),
        ),
        RunReader.findings,
    ),
    "energy": ExportTable(
        (
            *columns_of(RequestEnergy, lambda source: source.energy),
            ExportColumn("energy_j", "number", "Joules of all sources together.", lambda source: source.joules),
            ExportColumn("tokens", "integer", "Tokens generated, the first included.", lambda source: source.tokens),
            ExportColumn(
                "j_per_token",
                "number",
                "energy_j / tokens; empty where nothing was generated.",
                lambda source: source.joules / source.tokens if source.tokens else None,
            ),
        ),
        _energies,
    ),
    "margins": ExportTable(tuple(columns_of(Margin)), RunReader.margins),
    "predictions": ExportTable(_PREDICTIONS, _outcomes),
    "profiles": ExportTable(tuple(columns_of(DraftLength)), draft_lengths),
    "positions": ExportTable(_POSITIONS, _placed),
    "accepted_lengths": ExportTable(_ACCEPTED_LENGTHS, _accepted_lengths),
    "routing": ExportTable(_ROUTING, _unions),
    "load": ExportTable(_LOAD, _load_cells),
    "sendings": ExportTable(tuple(columns_of(Sending)), RunReader.sendings),
}


def find(name: str) -> ExportTable:
    """A table by its name. Raises `UsageError` for an unknown one."""
    for known, table in TABLES.items():
        if known == name:
            return table
    raise UsageError(f"{name} is not a table of a run", fix=f"choose one of {', '.join(TABLES)}")


BATCH_ROWS = 512
"""Rows in memory at a time; a request with its tokens and arrival times takes some 30 KB there."""

Rows = Iterator[list[Any]]
"""Values in the order of the columns."""


def library(name: str, extra: str, *, needed_for: str) -> Any:
    """An optional library. Raises `UsageError` that names the extra to install where it is not there."""
    try:
        return import_module(name)
    except ImportError:
        raise UsageError(
            f"{needed_for} needs {name.partition('.')[0]}, which is not installed",
            fix=f"pip install 'specmeter[{extra}]', or uv sync --extra {extra}; CSV and JSON Lines need nothing",
        ) from None


def write_csv(columns: Sequence[ExportColumn], rows: Rows, out: IO[bytes]) -> None:
    """With headings, UTF-8; text that a spreadsheet would run is made harmless."""
    text = io.TextIOWrapper(out, encoding="utf-8", newline="")
    try:
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([column.name for column in columns])
        for row in rows:
            writer.writerow([_csv_cell(column, value) for column, value in zip(columns, row, strict=True)])
    finally:
        text.detach()


def write_jsonl(columns: Sequence[ExportColumn], rows: Rows, out: IO[bytes]) -> None:
    """An object per line."""
    names = [column.name for column in columns]
    for row in rows:
        out.write(_json(dict(zip(names, row, strict=True))).encode() + b"\n")


def write_parquet(columns: Sequence[ExportColumn], rows: Rows, out: IO[bytes]) -> None:
    """Typed, with descriptions. Raises `UsageError` where pyarrow is missing."""
    parquet = library("pyarrow.parquet", "parquet", needed_for="Parquet")
    schema, batches = arrow(columns, rows)
    with parquet.ParquetWriter(out, schema, compression="zstd") as writer:
        for batch in batches:
            writer.write_batch(batch)


FORMATS: dict[str, Callable[[Sequence[ExportColumn], Rows, IO[bytes]], None]] = {
    "csv": write_csv,
    "jsonl": write_jsonl,
    "parquet": write_parquet,
}


def arrow(columns: Sequence[ExportColumn], rows: Rows) -> tuple[Any, Iterator[Any]]:
    """The schema, with descriptions as metadata of its fields, and the rows in batches. Columns of the type `json` hold
    JSON as text. Raises `UsageError` where pyarrow is missing."""
    pa = library("pyarrow", "parquet", needed_for="Arrow")
    types = {
        "integer": pa.int64(),
        "number": pa.float64(),
        "boolean": pa.bool_(),
        "text": pa.string(),
        "integers": pa.list_(pa.int64()),
        "numbers": pa.list_(pa.float64()),
        "json": pa.string(),
    }
    schema = pa.schema([pa.field(it.name, types[it.type], metadata={"description": it.description}) for it in columns])

    def batches() -> Iterator[Any]:
        while batch := list(islice(rows, BATCH_ROWS)):
            arrays: list[Any] = []
            for column, values in zip(columns, zip(*batch, strict=True), strict=True):
                told = [None if it is None else _json(it) for it in values] if column.type == "json" else values
                arrays.append(pa.array(told, types[column.type]))
            yield pa.record_batch(arrays, schema=schema)

    return schema, batches()


def _csv_cell(column: ExportColumn, value: Any) -> Any:
    if value is None:
        return ""
    if column.type == "text":
        return csv_cell(str(value))
    if column.type == "boolean":
        return "true" if value else "false"
    return value if column.type in ("integer", "number") else _json(value)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


_SPREADSHEETS = ("xlsx", "xls", "ods")
"""Endings of what is not written here; a program that opens such a file takes anything else for damaged."""


_RUN = ExportColumn("run", "text", "Folder of the run, within the one that was named.", lambda _: None)
"""Before the others where there are several runs."""


@dataclass(frozen=True)
class RunTable:
    """One of a run's tables, read from the run folder whenever it is asked for.

    `for row in table` gives dicts, one in memory at a time. Of requests that were tried several times the last attempt
    counts. Where the folder is that of an advice, a schedule or a study, its rows are those of the runs that it rests
    on; of several, the column `run` says which. Reading raises `StoreError` for a damaged folder.
    """

    folder: Path
    """Of the run, or of what rests on runs."""
    name: str
    """`requests`, `steps`, ...; `Run.tables` lists them. Raises `UsageError` for an unknown one."""

    def __post_init__(self) -> None:
        find(self.name)

    def _repr_html_(self) -> str:
        from specmeter.show.notebook import rows_html

        return rows_html(self.name, [column.name for column in self.columns], self)

    @property
    def columns(self) -> tuple[ExportColumn, ...]:
        """Name, type and description of each column, in order."""
        own = find(self.name).columns
        return own if len(self._runs) == 1 else (_RUN, *own)

    @cached_property
    def _runs(self) -> list[Path]:
        from specmeter.advise.schedule import runs_of  # and with it how advice is found

        return runs_of(self.folder)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        names = [column.name for column in self.columns]
        with self._opened() as rows:
            for values in rows:
                yield dict(zip(names, values, strict=True))

    def write(self, out: str | Path | IO[bytes], format: str | None = None) -> int:  # noqa: A002
        """Write the table; returns the number of rows.

        `out` is a file, which appears when it is complete, or a binary stream, which is left open. The format is
        `csv`, `jsonl` or `parquet`; where it is not given, the file's ending says it, and without one it is `csv`.
        Raises `UsageError` for another format, a file that cannot be written or a missing pyarrow.
        """
        out = Path(out) if isinstance(out, str) else out
        ending = out.suffix[1:].lower() if isinstance(out, Path) else ""
        chosen = format or ending or "csv"
        if chosen not in FORMATS:
            raise UsageError(
                f"{chosen} is not an export format ({', '.join(FORMATS)})",
                fix="name a file that ends in .csv (which spreadsheets open), .jsonl or .parquet",
            )
        if ending != chosen and ending in (*FORMATS, *_SPREADSHEETS):
            raise UsageError(f"{out}: is not the name of a {chosen} file", fix=f"name a file that ends in .{chosen}")
        count = 0

        def counted(rows: Iterator[list[Any]]) -> Iterator[list[Any]]:
            nonlocal count
            for values in rows:
                count += 1
                yield values

        with self._opened() as rows, _opened(out) as file:
            FORMATS[chosen](self.columns, counted(rows), file)
        return count

    def to_arrow(self) -> Any:
        """A `pyarrow.Table`. Columns of the type `json` hold JSON as text. Raises `UsageError` without pyarrow."""
        pa = library("pyarrow", "parquet", needed_for="to_arrow()")
        with self._opened() as rows:
            schema, batches = arrow(self.columns, rows)
            return pa.Table.from_batches(batches, schema=schema)

    def to_pandas(self) -> pandas.DataFrame:
        """A `pandas.DataFrame` in types that know missing values, so that whole numbers stay whole.

        Raises `UsageError` without pandas.
        """
        pd = library("pandas", "pandas", needed_for="to_pandas()")
        pa = library("pyarrow", "pandas", needed_for="to_pandas()")
        types = {pa.int64(): pd.Int64Dtype(), pa.bool_(): pd.BooleanDtype(), pa.string(): pd.StringDtype()}
        return self.to_arrow().to_pandas(types_mapper=types.get)

    def to_polars(self) -> polars.DataFrame:
        """A `polars.DataFrame`. Raises `UsageError` without polars."""
        pl = library("polars", "polars", needed_for="to_polars()")
        library("pyarrow", "polars", needed_for="to_polars()")
        return pl.from_arrow(self.to_arrow())

    @contextmanager
    def _opened(self) -> Generator[Iterator[list[Any]]]:
        """The rows, once every run could be opened."""
        columns, rows = find(self.name)
        several = len(self._runs) > 1
        with ExitStack() as stack:
            stores = [(it, stack.enter_context(RunStore.open(it, readonly=True))) for it in self._runs]
            yield (
                [*([run.relative_to(self.folder).as_posix()] if several else []), *(it.read(source) for it in columns)]
                for run, store in stores
                for source in rows(store)
            )


@contextmanager
def _opened(out: Path | IO[bytes]) -> Generator[IO[bytes]]:
    """A stream to write to; a file replaces its predecessor only when all of it is written."""
    if not isinstance(out, Path):
        yield out
        out.flush()
        return
    try:
        with whole_file(out) as file:
            yield file
    except OSError as error:
        raise UsageError(
            f"{out}: cannot be written ({error.strerror or error})",
            fix=fix_for(error),
        ) from None


TableName = Literal[
    "requests",
    "summary",
    "sessions",
    "steps",
    "telemetry",
    "prompts",
    "findings",
    "energy",
    "margins",
    "predictions",
    "profiles",
    "positions",
    "accepted_lengths",
    "routing",
    "load",
    "sendings",
]
FormatName = Literal["csv", "jsonl", "parquet"]
