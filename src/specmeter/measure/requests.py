"""Makes the record of a request, from what was asked and how it ended, and the seed of its sampling."""

from __future__ import annotations

from hashlib import sha256

from specmeter.errors import EngineError
from specmeter.experiments.schedule import Cell
from specmeter.record import Prompt, Reply, Request


def request_of(
    turn: Cell, session_id: str, item: int, prompt: Prompt, started_at: float, result: Reply | EngineError
) -> Request:
    """A request of a cell, answered or failed."""
    answered = isinstance(result, Reply)
    return Request(
        invocation=turn.invocation,
        block=turn.block,
        position=turn.position,
        item=item,
        arm_id=turn.arm_id,
        prompt_id=prompt.id,
        prompt_sha256=prompt.sha256,
        kind=prompt.kind,
        session_id=session_id,
        started_at=started_at,
        status="ok" if answered else "failed",
        error=None if answered else str(result),
        reply=result if answered else None,
    )


def block_seed(seed: int, invocation: int, block: int) -> int:
    """The seed of sampled generations in a block: another one in each, the same for all of its arms, on any machine.

    So blocks are independent samples, which a comparison of distributions needs, and a resumed run continues as it
    began.
    """
    digest = sha256(f"{seed}:{invocation}:{block}".encode()).digest()
    return int.from_bytes(digest[:8], "big") % (2**32 - 1)  # 2**32 - 1 asks llama.cpp for a seed of its own
