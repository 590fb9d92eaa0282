"""What batching alone does to texts.

Requests that share a forward are rounded otherwise than a single one. So a text under load is held against its
baseline's at the same load, and plain decoding at that load against plain decoding alone: what differs there is the
work of the batch, not of drafts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from specmeter.record import Arm, Load
from specmeter.validity.checks.run_data import RunData


class Apart(NamedTuple):
    """How often outputs of plain decoding under load are not those of plain decoding alone."""

    compared: int
    differ: int


def apart_from_alone(data: RunData, plain: Arm) -> Apart | None:
    """A baseline at a load beside itself with one client, or without a load, in the same blocks; None where it has no
    such other, or nothing to compare."""
    alone = next((name for name in _alone(plain) if data.by_arm.get(name)), None)
    if alone is None:
        return None
    texts = {
        (it.row.invocation, it.row.block, data.text_of(it.row.prompt_id)): it.output
        for it in data.by_arm[alone]
        if it.output
    }
    pairs = [
        (it.output, other)
        for it in data.by_arm[plain.id]
        if it.output and (other := texts.get((it.row.invocation, it.row.block, data.text_of(it.row.prompt_id))))
    ]
    return Apart(len(pairs), sum(mine != other for mine, other in pairs)) if pairs else None


def _alone(arm: Arm) -> Iterator[str]:
    """Ids that the same arm can have where nothing is batched."""
    if arm.load is None or arm.load.clients == 1:
        return
    stem = arm.id.removesuffix(f"/{arm.load.label}")
    yield f"{stem}/{Load(clients=1, depth=arm.load.depth, requests=1).label}"
    if not arm.load.depth:
        yield stem
