"""Tables in specmeter's own columns, such as its exports and the published data: one reading, nothing is guessed."""

from __future__ import annotations

from specmeter.audit.read.cells import EMPTY, numbers
from specmeter.audit.read.frame import Frame
from specmeter.audit.read.grid import Grid
from specmeter.audit.read.meaning import Meaning, Stream
from specmeter.audit.read.readings import Scored, Understood
from specmeter.audit.read.records import EXTRA
from specmeter.audit.read.words import IGNORE, Column, known_column

_OWN = frozenset({
    "source_document", "source_place", "claim_notes", "rate_window", "decode_rate", "baseline_rate",
    "predicted_n", "predicted_ms", "prompt_n", "prompt_ms", "target_forwards", "failed_forwards",
    "bytes_per_token", "acceptance_fraction", "acceptance_percent", "change_percent", "draft_elsewhere",
    "synthetic_acceptance", "arm_id", "prompt_id", "draft_n_accepted", "spec_draft_n_max",
})  # fmt: skip
"""Headings that nobody else writes; two of them make a table one of ours."""
_SUFFIXES = {
    "_percent": 0.01, "_pct": 0.01, "_fraction": 1.0, "_bytes": 1.0, "_kb": 1e3, "_mb": 1e6, "_gb": 1e9,
    "_kib": 2.0**10, "_mib": 2.0**20, "_gib": 2.0**30, "_gb_s": 1e9, "_ms": 1.0, "_s": 1e3, "_us": 1e-3, "_ns": 1e-6,
}  # fmt: skip
_SHORTER = {"bandwidth": "bandwidth_bytes_per_s", "claimed_bandwidth": "claimed_bandwidth_bytes_per_s"}


def exact_streams(grid: Grid) -> Understood | None:
    """The one reading of a table in our own columns; None for any other."""
    if sum(head in _OWN for head in grid.head) < 2:
        return None
    streams: list[Stream] = []
    for c, head in enumerate(grid.head):
        column, scale = _named(head)
        if column is None or column.kind in {"text", "flag"}:
            continue
        cells = {r: row[c] for r, row in enumerate(grid.rows) if row[c] and not EMPTY.fullmatch(row[c])}
        values = {r: found[0] for r, cell in cells.items() if (found := numbers(cell))}
        if not values:
            continue
        if head == "acceptance" and max(it.value for it in values.values()) > 1:
            scale = 0.01
        stream = Stream(c, "first", head, values, own=True, known=column)
        stream.candidates = [_meaning(column, scale)]
        streams.append(stream)
    reading = tuple(stream.candidates[0] for stream in streams)
    return Understood(Frame(grid, streams), [Scored(reading, 0.0, {})])


def _named(head: str) -> tuple[Column | None, float]:
    """The column of a heading, and the factor to its unit that a suffix says."""
    suffix = next((it for it in sorted(_SUFFIXES, key=len, reverse=True) if head.endswith(it)), "")
    column = known_column(head)
    if column is not None and column.kind in {"rate", "spread"}:  # `tok_s` has no unit of its own behind it
        return column, 1.0
    return column or known_column(head.removesuffix(suffix)), _SUFFIXES.get(suffix, 1.0)


def _meaning(column: Column, scale: float) -> Meaning:
    name = _SHORTER.get(column.name, column.name)
    quantity = name if name in EXTRA else column.quantity or IGNORE
    if quantity == "size":
        scale *= 1e-9  # other tables say GB
    if quantity == "speedup" and scale == 0.01:
        quantity = "gain"
    return Meaning(quantity, column.side, 0.0, scale, "rate" if quantity in {"speedup", "gain"} else "", 6.0)
