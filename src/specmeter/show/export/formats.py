"""Rows as CSV, JSON Lines, Parquet and Arrow."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from itertools import islice
from typing import IO, Any, Literal

from specmeter.errors import UsageError
from specmeter.extensions import installing
from specmeter.show.export.columns import ExportColumn
from specmeter.text import csv_cell

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
            fix=f"{installing(extra)}; CSV and JSON Lines work without",
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


FormatName = Literal["csv", "jsonl", "parquet"]
