"""What a user says about a table that the table does not say itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from specmeter.audit.read.columns import COLUMNS, column
from specmeter.errors import UsageError


@dataclass(frozen=True)
class TableOptions:
    """What a user says about a table that the table does not say itself."""

    percent: tuple[str, ...] = ()
    """Headings whose values are percent."""
    fraction: tuple[str, ...] = ()
    """Headings whose values are fractions."""
    columns: dict[str, str] = field(default_factory=dict[str, str])
    """Name of a column (`decode_rate`) -> heading to read it from."""


def table_options(
    percent: Sequence[str] = (), fraction: Sequence[str] = (), columns: Mapping[str, str] | None = None
) -> TableOptions:
    """What was said, with our names of the columns. Raises `UsageError` for an unknown name, and for a heading that is
    said to be in percent and a fraction."""
    chosen: dict[str, str] = {}
    for name, heading in (columns or {}).items():
        known = column(name.strip())
        if known is None or not heading:
            raise UsageError(
                f"--column {f'{name}={heading}'!r}: not of the form NAME=HEADING with a known NAME",
                fix=f"NAME is one of {', '.join(column.name for column in COLUMNS)}",
            )
        chosen[known.name] = heading
    if both := set(percent) & set(fraction):
        raise UsageError(f"--percent and --fraction both name {min(both)!r}", fix="a column is one of the two")
    return TableOptions(tuple(percent), tuple(fraction), chosen)
