"""Measures a gate: blocks of both builds, until it is decided or its time is over. A gate is a run like any other: it
has a folder, and an interrupted one is resumed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specmeter.advise.stage import cells_s
from specmeter.analysis.reading import read_run
from specmeter.errors import EngineError
from specmeter.experiments.schedule import Cell
from specmeter.gate.builds import GateSpec, crossed, pairs_of, two_sided
from specmeter.gate.ruling import LOOKS, Gate, read_gate, spent_s
from specmeter.laboratory.run import choose_folder, prepare, run
from specmeter.models.reference import Fetching
from specmeter.store import RunStore
from specmeter.validity.losslessness import measure_margins

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from specmeter.measure import Observer
    from specmeter.record import Arm

DESIGN: dict[str, Any] = {
    **{"blocks": LOOKS[-1], "invocations": 1, "stopping": "decided", "probe": "off", "controls": False},
    **{"wait_s": 30, "repeat_s": 120},
}
"""Of every gate: the same whatever its budget, so that a longer one continues."""

Shown = Callable[[Path, bool], "AbstractContextManager[tuple[Observer, Callable[[RunStore], None]]]"]
"""Given the folder of a run and whether it is resumed: what shows its progress."""


def measure_gate(
    spec: GateSpec, shown: Shown, *, fetching: Fetching, out: Path | None = None, new: bool = False
) -> Gate:
    """Measure a gate, or resume it. Raises `UsageError`, and `EngineError` if requests fail."""
    loaded = two_sided(spec, DESIGN | ({"disturbed": "keep"} if spec.noisy else {}))
    prepared = prepare(loaded, fetching=fetching)
    work = prepared.work
    prepared = replace(prepared, work=replace(work, cells=turns(list(work.arms.values()), 0)))
    folder, resumed = choose_folder(work.experiment.name, work.experiment.model_dump_json(), out=out, new=new)

    def after_block(store: RunStore) -> Sequence[Cell] | None:
        arms, measured = list(store.arms()), max(turn.block for turn in store.cells()) + 1
        next_s = cells_s(store, [arm.id for arm in arms])
        over = measured >= LOOKS[-1] or spent_s(list(store.sessions())) + next_s > spec.budget_s
        over = over or bool(store.state().failed) or any(not it.again for it in store.disturbances())
        if over or measured in LOOKS:
            measure_margins(replace(work, arms=crossed(arms)), prepared.engine, store)
            if over or read_gate(store, spec.builds, spec.tolerance).because != "time":
                return None
        return turns(arms, measured)

    with shown(folder, resumed) as (observer, opened):
        state = run(prepared, folder, observer, opened=opened, next_cells=after_block)
    findings = read_run(folder).findings
    with RunStore.open(folder, readonly=True) as store:
        if state.state != "complete":
            why = next((row.error.splitlines()[0] for row in store.rows() if row.error), state.reason or "")
            raise EngineError(
                f"{state.failed} of {state.planned} requests failed, so nothing is compared; {why}",
                fix=f"read the logs in {folder}; the same command asks these requests again",
            )
        return read_gate(store, spec.builds, spec.tolerance, findings)


def turns(arms: Sequence[Arm], block: int) -> tuple[Cell, ...]:
    """The cells of a block: both builds of a configuration one right after the other, since load on the machine changes
    within seconds. Configurations move up by one place in each block. Which build is first alternates from block to
    block, and from round to round of the places, so that no build has the first place of a block more often."""
    pairs = pairs_of(arms)
    moved = block + block // len(pairs)
    places = [(block + place) % len(pairs) for place in range(len(pairs))]
    row = [it.id for place in places for it in (pairs[place] if (moved + place) % 2 == 0 else pairs[place][::-1])]
    return tuple(Cell(0, block, position, arm_id) for position, arm_id in enumerate(row))
