"""A run as a table: CSV, JSONL or Parquet, one row at a time.

Columns derive from the record types: a new field of a record is a new column, with its docstring as description.
Nested records are flattened. Rates are computed by `specmeter.numbers.rates`, never taken from the engine.
"""

from __future__ import annotations

import csv
import importlib
import io
import json
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import NoneType, UnionType
from typing import IO, Annotated, Any, Literal, NamedTuple, Union, cast, get_args, get_origin

from specmeter.analysis.positions import AcceptedLength, ArmPositions, PositionRate, positions
from specmeter.analysis.prediction.outcomes import PredictionOutcome
from specmeter.errors import UsageError
from specmeter.files import whole_file
from specmeter.numbers import rates
from specmeter.profile.figures import DraftLength, draft_lengths
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
    Session,
    Step,
    Telemetry,
    TextRouting,
    Timings,
    Verdict,
)
from specmeter.store import RunReader, RunStore
from specmeter.theory.experts import expected_union
from specmeter.verdicts import request_verdicts, worst

ColumnType = Literal["integer", "number", "boolean", "text", "integers", "numbers", "json"]
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")
"""A spreadsheet runs a text cell that starts like this; CSV gets an apostrophe before it."""
PARQUET_BATCH_ROWS = 512
"""Rows in memory at a time; a request with its tokens and arrival times takes some 30 KB there."""


@dataclass(frozen=True)
class Column:
    """One column: how it is called, what it holds, and where that is found."""

    name: str
    type: ColumnType
    description: str
    read: Callable[[Any], Any]


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


class _Table(NamedTuple):
    columns: tuple[Column, ...]
    rows: Callable[[RunReader], Iterator[Any]]


def columns(table: str) -> list[tuple[str, str, str]]:
    """(name, type, description) of every column of a table. Raises `UsageError` for an unknown table."""
    return [(column.name, column.type, column.description) for column in _table(table).columns]


def export(run_folder: Path, out: Path | IO[bytes], *, format: str = "csv", table: str = "requests") -> int:  # noqa: A002
    """Write a table of a run; returns the number of rows.

    `out` is a file, which appears when it is complete, or a binary stream, which is left open. Of requests that were
    tried several times the last attempt is written. Raises `UsageError` for an unknown format or table, a file that
    cannot be written or a missing pyarrow, `StoreError` for the run folder.
    """
    if format not in FORMATS:
        raise UsageError(f"{format}: is no export format", fix=f"choose one of {', '.join(FORMATS)}")
    shape = _table(table)
    count = 0

    def counted(store: RunReader) -> Iterator[list[Any]]:
        nonlocal count
        for source in shape.rows(store):
            count += 1
            yield [column.read(source) for column in shape.columns]

    with RunStore.open(run_folder, readonly=True) as store, _opened(out) as file:
        FORMATS[format](shape.columns, counted(store), file)
    return count


# --- formats ---------------------------------------------------------------------------------------------------------


def _write_csv(shape: Sequence[Column], rows: Iterator[list[Any]], out: IO[bytes]) -> None:
    text = io.TextIOWrapper(out, encoding="utf-8", newline="")
    try:
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([column.name for column in shape])
        for row in rows:
            writer.writerow([_csv_cell(column, value) for column, value in zip(shape, row, strict=True)])
    finally:
        text.detach()


def _write_jsonl(shape: Sequence[Column], rows: Iterator[list[Any]], out: IO[bytes]) -> None:
    names = [column.name for column in shape]
    for row in rows:
        line = json.dumps(dict(zip(names, row, strict=True)), ensure_ascii=False, separators=(",", ":"))
        out.write(line.encode() + b"\n")


def _write_parquet(shape: Sequence[Column], rows: Iterator[list[Any]], out: IO[bytes]) -> None:
    try:
        pa: Any = importlib.import_module("pyarrow")
        parquet: Any = importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise UsageError(
            "Parquet needs pyarrow, which is not installed",
            fix="uv sync --extra parquet, or pip install 'specmeter[parquet]'; csv and jsonl need nothing",
        ) from None
    types: dict[ColumnType, Any] = {
        "integer": pa.int64(),
        "number": pa.float64(),
        "boolean": pa.bool_(),
        "text": pa.string(),
        "integers": pa.list_(pa.int64()),
        "numbers": pa.list_(pa.float64()),
        "json": pa.string(),
    }
    fields = [
        pa.field(column.name, types[column.type], metadata={"description": column.description}) for column in shape
    ]
    schema = pa.schema(fields)
    with parquet.ParquetWriter(out, schema, compression="zstd") as writer:
        while batch := list(islice(rows, PARQUET_BATCH_ROWS)):
            arrays: list[Any] = []
            for index, column in enumerate(shape):
                values = [row[index] for row in batch]
                if column.type == "json":
                    values = [None if value is None else _json(value) for value in values]
                arrays.append(pa.array(values, types[column.type]))
            writer.write_batch(pa.record_batch(arrays, schema=schema))


FORMATS: dict[str, Callable[[Sequence[Column], Iterator[list[Any]], IO[bytes]], None]] = {
    "csv": _write_csv,
    "jsonl": _write_jsonl,
    "parquet": _write_parquet,
}


def _csv_cell(column: Column, value: Any) -> Any:
    if value is None:
        return ""
    if column.type == "text":
        text = str(value)
        return f"'{text}" if text.startswith(FORMULA_STARTS) else text
    if column.type == "boolean":
        return "true" if value else "false"
    return value if column.type in ("integer", "number") else _json(value)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


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
            fix="check the path, its permissions and disk space",
        ) from None


# --- tables ----------------------------------------------------------------------------------------------------------


def _columns_of(
    record: type[Record], get: Callable[[Any], Any], *, leave: Collection[str] = (), prefix: str = ""
) -> Iterator[Column]:
    """A column for each field; `get` finds the record in the source of a row, None where there is none."""
    for name, field in record.model_fields.items():
        if name not in leave:
            kind = _column_type(field.annotation)
            description = " ".join((field.description or "").split())
            yield Column(prefix + name, kind, description, _reader(get, name, plain=kind != "json"))


def _reader(get: Callable[[Any], Any], name: str, *, plain: bool) -> Callable[[Any], Any]:
    def read(source: Any) -> Any:
        record = get(source)
        if record is None:
            return None
        value = getattr(record, name)
        return value if plain else _data(value)

    return read


def _data(value: Any) -> Any:
    """JSON data for what is not a plain column: nested records, tuples of them, mappings."""
    if isinstance(value, Record):
        return value.model_dump(mode="json")
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
    if origin is Literal or annotation is str:
        return "text"
    if origin is tuple:
        kinds: set[ColumnType] = {_column_type(part) for part in arguments if part is not Ellipsis}
        return "integers" if kinds == {"integer"} else "numbers" if kinds == {"number"} else "json"
    plain: dict[Any, ColumnType] = {bool: "boolean", int: "integer", float: "number"}
    return plain.get(annotation, "json")


def _reply(source: _Attempt) -> Reply | None:
    return source.request.reply


def _timings(source: _Attempt) -> Timings | None:
    return source.request.reply.timings if source.request.reply else None


def _derived(name: str, kind: ColumnType, description: str, rule: Callable[[Reply], int | float | None]) -> Column:
    def read(source: _Attempt) -> int | float | None:
        return rule(source.request.reply) if source.request.reply else None

    return Column(name, kind, description, read)


_ATTEMPT = Column(
    "attempt",
    "integer",
    "1 for the first try; failed tries before it are kept in the run folder.",
    lambda source: source.attempt,
)

_REQUESTS = (
    *_columns_of(Request, lambda source: source.request, leave={"reply"}),
    _ATTEMPT,
    Column(
        "verdict",
        "text",
        "`valid`, `suspect` or `invalid`, the worst of the request and its arm; empty for a run not checked yet.",
        lambda source: source.verdict,
    ),
    *_columns_of(Timings, _timings),
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
    _derived("step_n", "integer", "Steps recorded; see the table `steps`.", lambda reply: len(reply.steps)),
    *_columns_of(Reply, _reply, leave={"timings", "steps"}),
)

_STEP_KEYS = ("invocation", "block", "arm_id", "prompt_id")
_STEPS = (
    *_columns_of(Request, lambda source: source.request, leave=Request.model_fields.keys() - set(_STEP_KEYS)),
    _ATTEMPT,
    Column("step", "integer", "Number of the step in its request, from 0.", lambda source: source.number),
    *_columns_of(Step, lambda source: source.step),
)


def _attempts(store: RunReader) -> Iterator[_Attempt]:
    certificate = store.certificate()
    own = request_verdicts(store.findings())
    for attempt, request in store.attempts(superseded=False):
        verdict: Verdict | None = None
        if certificate is not None:
            key = (request.invocation, request.block, request.arm_id, request.prompt_id)
            verdict = worst((own.get(key, "valid"), certificate.arms.get(request.arm_id, "invalid")))
        yield _Attempt(attempt, request, verdict)


def _steps(store: RunReader) -> Iterator[_StepOf]:
    for attempt, request, _ in _attempts(store):
        for number, step in enumerate(request.reply.steps if request.reply else ()):
            yield _StepOf(attempt, request, number, step)


def _energies(store: RunReader) -> Iterator[_EnergyOf]:
    tokens: dict[tuple[int, int, str, str], int | None] = {row.key: row.predicted_n for row in store.rows()}
    for it in store.energies():
        key = (it.invocation, it.block, it.arm_id, it.prompt_id)
        yield _EnergyOf(it, sum(it.joules.values()), tokens.get(key))


def _margins(store: RunReader) -> Iterator[Margin]:
    return iter(store.margins())


def _outcomes(store: RunReader) -> Iterator[PredictionOutcome]:
    from specmeter.analysis.reading import read_run

    return iter(read_run(store.folder).predictions if store.predictions() else ())


def _lengths(store: RunReader) -> Iterator[DraftLength]:
    return iter(draft_lengths(store))


def _placed(store: RunReader) -> Iterator[_Placed]:
    for arm in positions(store):
        yield from (_Placed(arm, place) for place in arm.positions or (None,))


def _accepted_lengths(store: RunReader) -> Iterator[_Placed]:
    for arm in positions(store):
        yield from (_Placed(arm, length) for length in arm.lengths or (None,))


def _unions(store: RunReader) -> Iterator[_Union]:
    for routing in store.routing():
        if routing.union is None:
            yield _Union(routing, None, None, None)
            continue
        for place, point in enumerate(routing.union.points):
            yield _Union(routing, None, point.tokens, point.union)
            for layer, unions in routing.layers.items():
                mean = Estimate(point=unions[place], n=point.union.n, unit="experts", method="mean over texts")
                yield _Union(routing, layer, point.tokens, mean)


def _estimated(name: str, description: str, get: Callable[[Any], Estimate | None]) -> Iterator[Column]:
    """An estimate and the ends of its interval."""
    yield Column(name, "number", description, lambda source: _end(get(source), "point"))
    yield Column(f"{name}_low", "number", "Lower end of its interval.", lambda source: _end(get(source), "low"))
    yield Column(f"{name}_high", "number", "Upper end.", lambda source: _end(get(source), "high"))


def _end(estimate: Estimate | None, end: Literal["point", "low", "high"]) -> float | None:
    return None if estimate is None else getattr(estimate, end)


_PREDICTIONS = (
    *_columns_of(Prediction, lambda outcome: outcome.prediction, leave={"speedup"}),
    *_estimated("predicted", "Predicted speedup.", lambda it: it.prediction.speedup),
    *_estimated(
        "measured", "Measured speedup; empty where there is none that can be believed.", lambda it: it.measured
    ),
    Column("error", "number", "predicted / measured - 1.", lambda it: it.error),
    Column("inside", "boolean", "Whether what was measured lies in the predicted interval.", lambda it: it.inside),
)

_POSITIONS = (
    *_columns_of(ArmPositions, lambda it: it.arm, leave={"positions", "lengths"}),
    *_columns_of(PositionRate, lambda it: it.item, leave={"conditional", "unconditional"}),
    *_estimated(
        "conditional",
        "Accepted / reached, interval over prompts; empty where no step got so far.",
        lambda it: it.item and it.item.conditional,
    ),
    *_estimated(
        "unconditional",
        "Accepted / drafts, too short ones included; interval over prompts.",
        lambda it: it.item and it.item.unconditional,
    ),
)

_ACCEPTED_LENGTHS = (
    *_columns_of(ArmPositions, lambda it: it.arm, leave={"positions", "lengths"}),
    *_columns_of(AcceptedLength, lambda it: it.item, leave={"share"}),
    *_estimated("share", "Of the steps that had a draft, interval over prompts.", lambda it: it.item and it.item.share),
)

_ROUTING = (
    *_columns_of(TextRouting, lambda it: it.routing, leave={"tokens", "union", "layers"}),
    Column("read_tokens", "integer", "Tokens of these texts.", lambda it: it.routing.tokens),
    Column("layer", "integer", "Number of the layer; empty for the mean over all.", lambda it: it.layer),
    Column("tokens", "integer", "n: consecutive tokens.", lambda it: it.tokens),
    *_estimated("union", "Distinct experts of a layer that n tokens choose.", lambda it: it.union),
    Column("uniform", "number", "The same if routing were uniform.", lambda it: it.uniform),
    Column("experts", "integer", "Experts of a layer to choose from.", lambda it: it.of and it.of.experts),
    Column("used", "integer", "Experts chosen for a token.", lambda it: it.of and it.of.used),
)


def _itself(source: Any) -> Any:
    return source


TABLES: dict[str, _Table] = {
    "requests": _Table(_REQUESTS, _attempts),
    "sessions": _Table(
        (
            *_columns_of(Session, _itself, leave={"engine"}),
            *_columns_of(EngineIdentity, lambda session: session.engine, prefix="engine_"),
        ),
        RunReader.sessions,
    ),
    "steps": _Table(_STEPS, _steps),
    "telemetry": _Table(tuple(_columns_of(Telemetry, _itself)), RunReader.telemetry),
    "prompts": _Table(tuple(_columns_of(Prompt, _itself)), RunReader.prompts),
    "findings": _Table(tuple(_columns_of(Finding, _itself)), RunReader.findings),
    "energy": _Table(
        (
            *_columns_of(RequestEnergy, lambda source: source.energy),
            Column("energy_j", "number", "Joules of all sources together.", lambda source: source.joules),
            Column("tokens", "integer", "Tokens generated, the first included.", lambda source: source.tokens),
            Column(
                "j_per_token",
                "number",
                "energy_j / tokens; empty where nothing was generated.",
                lambda source: source.joules / source.tokens if source.tokens else None,
            ),
        ),
        _energies,
    ),
    "margins": _Table(tuple(_columns_of(Margin, _itself)), _margins),
    "predictions": _Table(_PREDICTIONS, _outcomes),
    "profiles": _Table(tuple(_columns_of(DraftLength, _itself)), _lengths),
    "positions": _Table(_POSITIONS, _placed),
    "accepted_lengths": _Table(_ACCEPTED_LENGTHS, _accepted_lengths),
    "routing": _Table(_ROUTING, _unions),
}


def _table(name: str) -> _Table:
    if name not in TABLES:
        raise UsageError(f"{name}: is no table of a run", fix=f"choose one of {', '.join(TABLES)}")
    return TABLES[name]
