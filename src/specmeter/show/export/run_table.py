"""A table of one run: to be read row by row, written to a file, or turned into a data frame."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from specmeter.errors import UsageError
from specmeter.files import fix_for, whole_file
from specmeter.show.export.columns import ExportColumn
from specmeter.show.export.formats import FORMATS, arrow, library
from specmeter.show.export.tables import find
from specmeter.store import RunStore

if TYPE_CHECKING:
    import pandas  # pyright: ignore[reportMissingTypeStubs]
    import polars


_SPREADSHEETS = ("xlsx", "xls", "ods")
"""Endings of what is not written here; a program that opens such a file takes anything else for damaged."""


_RUN = ExportColumn("run", "text", "Folder of the run, within the one that was named.", lambda _: None)
"""Before the others where there are several runs."""


@dataclass(frozen=True)
class RunTable:
    """A table of a run, read from the run folder on every access.

    `for row in table` gives dicts, one in memory at a time. Of requests that were tried several times the last attempt
    counts. Where the folder is that of an advice, a schedule or a study, its rows are those of the runs that it rests
    on; of several, the column `run` says which. Reading raises `StoreError` for a damaged folder.
    """

    folder: Path
    """Folder of the run, or of the advice or study."""
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
                f"{chosen} no such export format ({', '.join(FORMATS)})",
                fix="use a file name that ends in .csv (for spreadsheets), .jsonl or .parquet",
            )
        if ending != chosen and ending in (*FORMATS, *_SPREADSHEETS):
            raise UsageError(f"{out}: not the name of a {chosen} file", fix=f"use a file name that ends in .{chosen}")
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
        """A `pandas.DataFrame` with nullable types, so that integers stay integers.

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
