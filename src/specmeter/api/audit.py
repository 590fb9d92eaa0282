"""Audits from Python: `audit`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from specmeter.api.arguments import is_list, is_number, need, need_type
from specmeter.audit.read.options import table_options
from specmeter.audit.reading import read_claims, read_rows, row_defaults, rule
from specmeter.errors import UsageError
from specmeter.show.notebook import (
    ShownAudit,
)

if TYPE_CHECKING:
    import pandas  # pyright: ignore[reportMissingTypeStubs]
    import polars

    from specmeter.audit.reading import Audit


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
    columns: Mapping[str, str] | None = None,
) -> Audit:
    """Judge published results, row by row: impossible, implausible, possible, or cannot tell.

    `source` is a file (a table, a benchmark's output, an engine's log), a data frame of pandas or polars, or rows as
    mappings. The other arguments supply missing values: rates in tok/s, peak bandwidth in GB/s, `bytes_per_token` in
    bytes, `noise` as a share, and `columns` (heading -> meaning, such as `{"acc": "acceptance"}`). Raises `UsageError`
    for a source that cannot be read.

    >>> specmeter.audit([{"gamma": 4, "acceptance": 0.5, "speedup": 9.5}]).rulings[0].verdict
    'implausible'
    """
    need_type("gamma", gamma, (int, type(None)), "a whole number")
    need(gamma is None or gamma >= 1, "gamma", gamma, "a whole number from 1")
    for name, value in (("noise", noise), ("cheapest_forward", cheapest_forward)):
        need(value is None or is_number(value), name, value, "a number")
    for name, value in (("device", device), ("format", format)):
        need_type(name, value, (str, type(None)), "a name")
    need_type("columns", columns, (Mapping, type(None)), "a dict: heading of a column -> its meaning")
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
        raise UsageError(f"noise is {noise:g}: not between 0 and 0.5", fix="use 0.03 for 3%")
    options = table_options(columns, "columns")
    if isinstance(source, str | Path):
        name, claims = read_claims(Path(source).expanduser(), format, options)
        return ShownAudit(**vars(rule(claims, str(source), name, given, noise)))
    return ShownAudit(**vars(rule(read_rows(rows_of(source), options), "rows", "table", given, noise)))


def _text(value: Quantity | None) -> str | None:
    return None if value is None else str(value)


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
