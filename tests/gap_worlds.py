"""A null arm that lacks some of what its baseline completed: how often the interval holds 1, and what is advised."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from analysis.test_summary import BASE, DRAFT, failed, fake
from specmeter.analysis.answer import answers
from specmeter.analysis.summary import summarize
from specmeter.store import RequestRow

Bools = NDArray[np.bool_]


def covered_with_gaps(
    seed: int, runs: int, completed: Bools, *, noise: float = 0.02, spread: float = 0.3
) -> tuple[float, float, float]:
    """(share of intervals that hold 1, share of runs with an interval, share of runs that say "speculate").

    The arm completed these of blocks x prompts; noise is that of single requests, and prompts differ by `spread`.
    """
    draw, blocks, prompts = np.random.default_rng(seed), *completed.shape
    held = given = advised = 0
    for _ in range(runs):
        usual = 1000 * np.exp(spread * draw.standard_normal(prompts))
        ms = usual * np.exp(noise * draw.standard_normal((2, blocks, prompts)))
        rows: list[RequestRow] = []
        for block in range(blocks):
            for prompt in range(prompts):
                rows.append(fake(BASE.id, block, f"p{prompt}", float(ms[0, block, prompt])))
                rows.append(
                    fake(DRAFT.id, block, f"p{prompt}", float(ms[1, block, prompt]), draft_n=50)
                    if completed[block, prompt]
                    else failed(DRAFT.id, block, f"p{prompt}")
                )
        (answer,) = answers(summarize(rows, (BASE, DRAFT)), (BASE, DRAFT))
        advised += answer.decision == "speculate"
        if answer.speedup.low is not None and answer.speedup.high is not None:
            given += 1
            held += answer.speedup.low <= 1 <= answer.speedup.high
    return held / max(1, given), given / runs, advised / runs
