"""Made-up cells under load: clients that work at a steady pace, or as a test wants them to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from specmeter.analysis.load.summary import ANYTHING, CellFigures, LoadTable, MeasuredCell, cell_figures
from specmeter.analysis.load.window import CellTimes, Sent
from specmeter.record import Load, LoadCell, Slo

BEGAN = 0.0
"""When cells begin, in seconds."""


def steady(
    clients: int,
    rounds: int,
    *,
    tokens: int = 10,
    prompt_ms: float = 50.0,
    token_ms: float = 10.0,
    apart_ms: float = 0.0,
) -> list[Sent]:
    """A closed loop: client i starts i * `apart_ms` late, and every request takes the same time."""
    sent: list[Sent] = []
    for client in range(clients):
        at = client * apart_ms
        for _ in range(rounds):
            arrivals = [prompt_ms + n * token_ms for n in range(tokens)]
            sent.append(Sent(client, BEGAN + at / 1000, BEGAN + at / 1000, 0.0, 0.0, arrivals[-1], arrivals))
            at += arrivals[-1]
    return sent


def cell_of(sent: Sequence[Sent], **more: Any) -> LoadCell:
    """The cell of these requests."""
    ended = max(it.started_at + (it.wall_ms or 0.0) / 1000 for it in sent)
    told = {"invocation": 0, "block": 0, "arm_id": "t/none/c1", "session_id": "s", "began_at": BEGAN, "ended_at": ended}
    return LoadCell(**{**told, "complete": True, "slots": 8, "client_cpu_ms": 1.0, **more})


def measured(sent: Sequence[Sent], load: Load, slo: Slo = ANYTHING, **more: Any) -> MeasuredCell:
    """The same in numbers."""
    return cell_figures(cell_of(sent, **more), CellTimes.of(BEGAN, sent), load, slo)


def closed(clients: int, rounds: int = 2) -> Load:
    return Load(clients=clients, requests=clients * rounds)


def figures(arm_id: str, block: int, rate: float, *, invocation: int = 0, **more: Any) -> MeasuredCell:
    """A cell of one second with so many tokens per second."""
    cell = measured(steady(2, 3), closed(2, 3), invocation=invocation, block=block, arm_id=arm_id)
    told = cell.figures.model_copy(
        update={"window_ms": 1000.0, "tokens": rate, "request_ms": 2000.0, "decode_ms": 2000.0, "decode_tokens": rate}
        | more
    )
    return replace_figures(cell, told)


def replace_figures(cell: MeasuredCell, told: CellFigures) -> MeasuredCell:
    return cell._replace(figures=told)


def table(rates: Mapping[str, Sequence[float]]) -> LoadTable:
    """Arm -> total tokens per second in each block."""
    return LoadTable(figures(arm, block, rate) for arm, of in rates.items() for block, rate in enumerate(of))


__all__ = ["BEGAN", "CellTimes", "Sent", "cell_of", "closed", "figures", "measured", "steady", "table"]
