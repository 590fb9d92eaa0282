"""The cells of a run under load, read one after the other: only one has its tokens' times in memory at a time."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import TYPE_CHECKING, Any, cast

from specmeter.analysis.load.figures import ANYTHING, MeasuredCell, cell_figures
from specmeter.analysis.load.times import CellTimes, Sent
from specmeter.store.database import unreadable
from specmeter.store.rows import RequestKey

if TYPE_CHECKING:
    from specmeter.store import RunReader

_SENT = """SELECT session_id, invocation, block, arm_id, prompt_id, client, due_at, started_at, late_ms, queued_ms,
    wall_ms, zlib_json FROM sending JOIN request ON request.id = sending.request_id
    LEFT JOIN reply ON reply.request_id = request.id WHERE superseded = 0 ORDER BY request.id"""
"""Without objects for requests and sendings, of which there may be a million."""


def measured_cells(store: RunReader, arm_id: str | None = None) -> Iterator[MeasuredCell]:
    """Every cell whose requests count, in the order of measurement; of a cell that was measured again only the last.
    Of one arm alone where it is named.

    Raises `StoreError`.
    """
    loads = {arm.id: arm.load for arm in store.arms() if arm.load is not None}
    if not loads:
        return
    load = store.experiment().load
    slo = load.slo if load else ANYTHING
    cells = {cell.session_id: cell for cell in store.load_cells()}
    for session_id, rows in groupby(store.raw(_SENT), key=lambda row: cast("str", row[0])):
        cell = cells.get(session_id)
        if cell is None or cell.arm_id not in loads or arm_id not in (None, cell.arm_id):
            continue
        try:
            times = CellTimes.of(cell.began_at, _sent(store, rows))
        except (TypeError, ValueError, OverflowError) as error:
            raise unreadable(store.path, f"how a request of {cell.arm_id} was sent or answered", error) from None
        yield cell_figures(cell, times, loads[cell.arm_id], slo)


def _sent(store: RunReader, rows: Iterator[tuple[Any, ...]]) -> Iterator[Sent]:
    for _, *key, client, due_at, started_at, late_ms, queued_ms, wall_ms, bulk in rows:
        arrivals: list[float] = [] if bulk is None else store.reply(bulk, RequestKey(*key)).get("arrival_ms", [])
        yield Sent(client, due_at, started_at, late_ms, queued_ms, None if bulk is None else wall_ms, arrivals)
