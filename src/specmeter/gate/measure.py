"""Measures a gate: blocks of both builds, until it is decided or its time is over.

A gate is a run like any other: what was measured is in its folder, and an interrupted one is resumed. Its time is that
of its servers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specmeter.advise.stage import cells_s
from specmeter.analysis.reading import read_run
from specmeter.errors import EngineError
from specmeter.experiments.schedule import Cell
from specmeter.gate.builds import crossed, pairs_of, two_sided
from specmeter.gate.ruling import LOOKS, Gate, read_gate, spent_s
from specmeter.laboratory.run import Prepared, choose_folder, prepare, run
from specmeter.models.reference import ONLINE, Fetching
from specmeter.store import RunStore
from specmeter.validity.losslessness import measure_margins

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from specmeter.measure import Observer
    from specmeter.record import Arm

WAIT_S = 30.0
"""Most time in all to wait for a calm machine, where disturbed blocks are measured again."""
REPEATS = 0.3
"""Share of the time that disturbed blocks may take."""


@dataclass(frozen=True)
class GateSpec:
    """What is asked."""

    builds: Mapping[str, str]
    """Base and head: a `llama-server`, a folder with a wheel of xllamacpp, the URL of a server, or `mock:FACTOR`."""
    experiment: str | None = None
    changes: Sequence[str] = ()
    variants: Sequence[str] = ()
    tolerance: float = 0.03
    """A loss of this share is one."""
    budget_s: float = 360.0
    noisy: bool = False
    """Blocks count that others disturbed."""


Shown = Callable[[Prepared, Path, bool], "AbstractContextManager[tuple[Observer, Callable[[RunStore], None]]]"]
"""Given what is measured, its folder, and whether it is resumed: what shows the progress."""


def measure_gate(
    spec: GateSpec, shown: Shown, *, fetching: Fetching = ONLINE, out: Path | None = None, new: bool = False
) -> Gate:
    """Measure a gate, or resume it. Raises `UsageError`, and `EngineError` if requests fail."""
    design: dict[str, Any] = {"blocks": LOOKS[-1], "invocations": 1, "stopping": "decided", "probe": "off"}
    design |= {"controls": False, "wait_s": WAIT_S, "repeat_s": REPEATS * spec.budget_s}
    design |= {"disturbed": "keep"} if spec.noisy else {}
    loaded = two_sided(spec.experiment, spec.builds, spec.changes, spec.variants, design)
    prepared = prepare(loaded, fetching=fetching)
    first = turns(list(prepared.work.arms.values()), 0)
    prepared = replace(prepared, work=replace(prepared.work, cells=first))
    experiment = prepared.experiment
    folder, resumed = choose_folder(experiment.name, experiment.model_dump_json(), out=out, new=new)
    with shown(prepared, folder, resumed) as (observer, opened):
        gating = _Gating(spec, prepared)
        state = run(prepared, folder, observer, opened=opened, next_cells=gating.after_block)
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
    within seconds. Which build is first alternates, and configurations move up by one place in each block."""
    pairs = pairs_of(arms)
    places = [(block + place) % len(pairs) for place in range(len(pairs))]
    row = [it.id for place in places for it in (pairs[place] if (block + place) % 2 == 0 else pairs[place][::-1])]
    row += [arm.id for arm in arms if arm.id not in row]
    return tuple(Cell(0, block, position, arm_id) for position, arm_id in enumerate(row))


@dataclass(frozen=True)
class _Gating:
    """One start of a gate."""

    spec: GateSpec
    prepared: Prepared

    def after_block(self, store: RunStore) -> Sequence[Cell] | None:
        """The next block; None where all is decided, or there is no more time."""
        arms, most = list(store.arms()), self.prepared.experiment.design.blocks
        measured = max(turn.block for turn in store.cells()) + 1
        needed_s = cells_s(store, [arm.id for arm in arms])
        over = measured >= most or spent_s(list(store.sessions())) + needed_s > self.spec.budget_s
        over = over or bool(store.state().failed) or any(not it.again for it in store.disturbances())
        if over or measured in LOOKS:
            self._ask_about_texts(store)
            if over or not read_gate(store, self.spec.builds, self.spec.tolerance).undecided:
                return None
        return turns(arms, measured)

    def _ask_about_texts(self, store: RunStore) -> None:
        """Where those of head leave those of base; a run asks about others."""
        work = self.prepared.work
        measure_margins(replace(work, arms=crossed(list(work.arms.values()))), self.prepared.engine, store)
