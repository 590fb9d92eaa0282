"""Drafts that the server draws (`draft_sampling: probabilistic`): its texts are distributed as without speculation."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from llama_fixtures import arm, launch, prompt
from scipy.stats import chi2_contingency

from specmeter.engines.llama_cpp.engine import EmbeddedEngine
from specmeter.record import Arm, Generation

RUNS = 1500
SAMPLED = Generation(max_tokens=6, temperature=1.5, top_k=4, top_p=1.0, min_p=0.0, ignore_eos=True)
DRAFTING = {"methods": ("draft-simple",), "draft": "d", "gamma": 3}


def texts(tmp_path: Path, of: Arm) -> tuple[Counter[tuple[int, ...]], float]:
    """(how often each three tokens came after the first one, drafted tokens that were accepted)."""
    found, drafted, accepted = Counter[tuple[int, ...]](), 0, 0
    with EmbeddedEngine().start(launch(tmp_path, of, draft="draft-small" if of.draft else None)) as session:
        for seed in range(RUNS):
            reply = session.generate(prompt("Anna"), SAMPLED.model_copy(update={"seed": seed}))
            found[reply.token_ids[1:4]] += 1
            drafted += reply.timings.draft_n or 0
            accepted += reply.timings.draft_n_accepted or 0
    return found, accepted / drafted if drafted else 0.0


def differ(one: Counter[tuple[int, ...]], other: Counter[tuple[int, ...]]) -> float:
    """p of the hypothesis that both come from one distribution; rare texts are put together."""
    often = [it for it, count in (one + other).items() if count >= 20]
    table = np.array([[*(side[it] for it in often), RUNS - sum(side[it] for it in often)] for side in (one, other)])
    return float(chi2_contingency(table[:, table.sum(axis=0) > 0])[1])  # type: ignore[arg-type]


@pytest.mark.slow
def test_drawn_drafts_leave_the_distribution_as_it_is(tmp_path: Path) -> None:
    plain, _ = texts(tmp_path, arm())
    drawn, accepted = texts(tmp_path, arm(**DRAFTING, draft_sampling="probabilistic"))
    greedy, _ = texts(tmp_path, arm(**DRAFTING))
    assert 0 < accepted < 1
    assert differ(plain, drawn) > 0.001
    assert differ(plain, greedy) > 0.001
    assert differ(plain, Counter({it: count for it, count in drawn.items() if it[0] % 2})) < 1e-6  # what it would find
