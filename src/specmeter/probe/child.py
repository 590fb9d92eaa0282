"""Sweeps and routing in a process of their own; see `engines.subprocess_job`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from specmeter.engines.subprocess_job import Heard, read_result, run_in_subprocess, serve
from specmeter.probe.batches import BatchSamples, BatchSweep, sweep_batches
from specmeter.probe.routing import (
    ContinuationsOrder,
    RoutingOrder,
    read_continuations,
    read_routing,
    save_routing,
)
from specmeter.probe.sweep import Samples, Sweep, sweep
from specmeter.record import Record

SAMPLES, ROUTING = "samples.json", "routing.npz"


class _Order(Record):
    job: Literal["sweep", "batches", "routing"]
    order: Sweep | BatchSweep | RoutingOrder | ContinuationsOrder


def measure_sweep(
    order: Sweep,
    folder: Path,
    done: Callable[[int], None],
    started: Callable[[Sequence[int]], None] | None = None,
) -> Samples:
    """`sweep` in a child; `done` is called with the number of complete rounds, `started` with the child's processes.

    Raises what `sweep` raises.
    """
    run_in_subprocess(__name__, _Order(job="sweep", order=order), folder, lambda parts, _: done(parts), started=started)
    return Samples.model_validate_json(read_result(folder / SAMPLES))


def measure_batches(
    order: BatchSweep,
    folder: Path,
    done: Callable[[int], None],
    started: Callable[[Sequence[int]], None] | None = None,
) -> BatchSamples:
    """`sweep_batches` in a child, as `measure_sweep`. Raises what `sweep_batches` raises."""
    run_in_subprocess(
        __name__, _Order(job="batches", order=order), folder, lambda parts, _: done(parts), started=started
    )
    return BatchSamples.model_validate_json(read_result(folder / SAMPLES))


def read_apart(
    order: RoutingOrder | ContinuationsOrder,
    folder: Path,
    done: Callable[[int], None] = lambda _: None,
    *,
    limit_s: float | None = None,
) -> Path:
    """`read_routing` or `read_continuations` in a child: the file of what it saw. Raises what they raise, and
    `EngineHungError` after `limit_s`."""
    run_in_subprocess(
        __name__, _Order(job="routing", order=order), folder, lambda parts, _: done(parts), limit_s=limit_s
    )
    return folder / ROUTING


def _carry_out(given: str, folder: Path, heard: Heard) -> None:
    order = _Order.model_validate_json(given).order
    parts = 0

    def done(_: int) -> None:
        nonlocal parts
        parts += 1
        heard(parts, 0)

    if isinstance(order, Sweep):
        (folder / SAMPLES).write_text(sweep(order, done).model_dump_json(), encoding="utf-8")
    elif isinstance(order, BatchSweep):
        (folder / SAMPLES).write_text(sweep_batches(order, done).model_dump_json(), encoding="utf-8")
    else:
        read = read_routing(order, done) if isinstance(order, RoutingOrder) else read_continuations(order, done)
        save_routing(read, folder / ROUTING)


if __name__ == "__main__":
    sys.exit(serve(_carry_out))
