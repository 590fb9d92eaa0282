"""Time and memory of summarising requests under load, from their times to estimates and latencies.

    uv run python benchmarks/load_summary.py --requests 1000000

Cells of a closed loop are made up (8 tokens a request), one after the other, as they are read from a run folder.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Iterator

import numpy as np

from specmeter.analysis.load.summary import LoadTable, MeasuredCell, cell_figures
from specmeter.analysis.load.window import CellTimes, Sent
from specmeter.record import Load, LoadCell

TOKENS = 8
ARRIVALS = [20.0 + 5.0 * token for token in range(TOKENS)]


def cells(requests: int, in_cell: int, clients: int) -> Iterator[MeasuredCell]:
    """Cells of two arms in turn."""
    load = Load(clients=clients, requests=in_cell)
    rng = np.random.default_rng(1)
    for number in range(requests // in_cell):
        arm = ("t/none/c", "t/ngram-mod/c")[number % 2]
        at = np.zeros(clients)
        sent: list[Sent] = []
        for place in range(in_cell):
            client = place % clients
            due, scale = float(at[client]), float(rng.uniform(0.9, 1.1))
            arrivals = [scale * it for it in ARRIVALS]
            sent.append(Sent(client, due, due, 0.0, 0.0, arrivals[-1], arrivals))
            at[client] += arrivals[-1] / 1000
        cell = LoadCell(
            invocation=0,
            block=number // 2,
            arm_id=f"{arm}{clients}",
            session_id=str(number),
            began_at=0.0,
            ended_at=float(at.max()),
            complete=True,
            slots=clients,
            client_cpu_ms=1.0,
        )
        yield cell_figures(cell, CellTimes.of(0.0, sent), load)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--requests", type=int, default=1_000_000)
    parser.add_argument("--in-cell", type=int, default=10_000)
    parser.add_argument("--clients", type=int, default=1000)
    asked = parser.parse_args()
    began = time.perf_counter()
    table = LoadTable(cells(asked.requests, asked.in_cell, asked.clients))
    read = time.perf_counter()
    load = Load(clients=asked.clients, requests=asked.in_cell)
    found = table.summary(f"t/none/c{asked.clients}", load)
    ended = time.perf_counter()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{asked.requests} requests in cells of {asked.in_cell}: made and read {read - began:.1f} s, ", end="")
    print(f"summarised {ended - read:.2f} s, peak {peak:.0f} MiB")
    print(f"throughput {found.throughput}, ttft p99 {found.ttft and found.ttft.p99}")


if __name__ == "__main__":
    main()
