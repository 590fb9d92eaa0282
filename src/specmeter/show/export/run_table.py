"""A table of one run: to be read row by row, written to a file, or turned into a data frame.

Rows as CSV, JSON Lines, Parquet and Arrow.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from specmeter.errors import UsageError
from specmeter.files import whole_file
from specmeter.show.export.tables import find
from specmeter.show.notebook import rows_html
from specmeter.store import RunReader, RunStore
from specmeter.text import csv_cell

if TYPE_CHECKING:
    import pandas  # pyright: ignore[reportMissingTypeStubs]
    import polars

    from specmeter.show.export.tables import ExportColumn


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


@dataclass(frozen=True)
class RunTable:
    """One of a run's tables, read from the run folder whenever it is asked for.

    `for row in table` gives dicts, one in memory at a time. Of requests that were tried several times the last attempt
    counts. Reading raises `StoreError` for the run folder.
    """

    folder: Path
    """Of the run."""
    name: str
    """`requests`, `steps`, ...; `Run.tables` lists them. Raises `UsageError` for an unknown one."""

    def __post_init__(self) -> None:
        find(self.name)

    def _repr_html_(self) -> str:
        return rows_html(self.name, [column.name for column in self.columns], self)

    @property
    def columns(self) -> tuple[ExportColumn, ...]:
        """Name, type and description of each column, in order."""
        return find(self.name).columns

    def __iter__(self) -> Iterator[dict[str, Any]]:
        names = [column.name for column in self.columns]
        with RunStore.open(self.folder, readonly=True) as store:
            for values in self._values(store):
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

        def counted(store: RunReader) -> Iterator[list[Any]]:
            nonlocal count
            for values in self._values(store):
                count += 1
                yield values

        with RunStore.open(self.folder, readonly=True) as store, _opened(out) as file:
            FORMATS[chosen](self.columns, counted(store), file)
        return count

    def to_arrow(self) -> Any:
        """A `pyarrow.Table`. Columns of the type `json` hold JSON as text. Raises `UsageError` without pyarrow."""
        pa = library("pyarrow", "parquet", needed_for="to_arrow()")
        with RunStore.open(self.folder, readonly=True) as store:
            schema, batches = arrow(self.columns, self._values(store))
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

    def _values(self, store: RunReader) -> Iterator[list[Any]]:
        columns, rows = find(self.name)
        return ([column.read(source) for column in columns] for source in rows(store))


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
