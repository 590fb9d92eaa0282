"""The cells of a run under load, read one after the other: only one has its tokens' times in memory at a time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import groupby
from typing import TYPE_CHECKING, Any, cast

from specmeter.analysis.load.figures import MeasuredCell, Slo, cell_figures
from specmeter.analysis.load.times import CellTimes, Sent
from specmeter.store.rows import RequestKey

if TYPE_CHECKING:
    from specmeter.record import Sending
    from specmeter.store import RunReader

_REQUESTS = """SELECT session_id, invocation, block, arm_id, prompt_id, started_at, wall_ms, zlib_json
    FROM request LEFT JOIN reply ON request_id = id WHERE superseded = 0 ORDER BY id"""


def measured_cells(store: RunReader) -> Iterator[MeasuredCell]:
    """Every cell whose requests count, in the order of measurement; of a cell that was measured again only the last.

    Raises `StoreError`.
    """
    loads = {arm.id: arm.load for arm in store.arms() if arm.load is not None}
    if not loads:
        return
    slo = slo_of(store.experiment_json)
    cells = {cell.session_id: cell for cell in store.load_cells()}
    sendings = groupby(store.sendings(), key=lambda it: it.session_id)
    for session_id, rows in groupby(store.raw(_REQUESTS), key=lambda row: cast("str", row[0])):
        cell = cells.get(session_id)
        if cell is None or cell.arm_id not in loads:
            continue
        told = next((_by_prompt(of) for name, of in sendings if name == session_id), {})
        times = CellTimes.of(cell.began_at, _sent(store, rows, told))
        yield cell_figures(cell, times, loads[cell.arm_id], slo)


def slo_of(experiment_json: str) -> Slo | None:
    """What a good answer keeps to, as the experiment has it."""
    load: Any = json.loads(experiment_json).get("load") or {}
    asked = load.get("slo") or {}
    found = Slo(asked.get("ttft_ms"), asked.get("tpot_ms"))
    return None if found == Slo() else found


def _by_prompt(sendings: Iterator[Sending]) -> dict[str, tuple[int | None, float, float, float | None]]:
    return {it.prompt_id: (it.client, it.due_at, it.late_ms, it.queued_ms) for it in sendings}


def _sent(
    store: RunReader, rows: Iterator[tuple[Any, ...]], told: dict[str, tuple[int | None, float, float, float | None]]
) -> Iterator[Sent]:
    for _, invocation, block, arm_id, prompt_id, started_at, wall_ms, bulk in rows:
        if prompt_id not in told:
            continue
        client, due_at, late_ms, queued_ms = told[prompt_id]
        key = RequestKey(invocation, block, arm_id, prompt_id)
        arrivals = [] if bulk is None else store.reply(bulk, key).get("arrival_ms", [])
        yield Sent(client, due_at, started_at, late_ms, queued_ms, None if bulk is None else wall_ms, arrivals)
