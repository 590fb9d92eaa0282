"""What a step of several requests at once costs, read from waves: requests that are sent together, one by each client.

Nothing of a wave counts but the time in which all of its requests decode. Plainly, a step there emits a token for each
of them, so it takes (window x requests) / tokens. Where drafts are rejected whole, a step emits one token as well, and
the log says how many tokens it had drafted. Requests of a wave begin a step or two apart, since a prompt that comes
while another is processed waits for its end, so in steps near the end of the texts their drafts differ in length: such
a step counts with the mean, and whole lengths are interpolated between these.

The log gives each request's steps by a clock of its own. The client's arrival times say when these were: every step
ends where a token arrives.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from specmeter.record import Reply

if TYPE_CHECKING:
    from specmeter.engines import EngineSession
    from specmeter.record import Generation, Prompt

STAGGER = 3
"""Steps by which requests of a wave may begin apart."""


class Answer(NamedTuple):
    """A request of a wave."""

    started_ms: float
    """By the clock of the engine."""
    reply: Reply


class _Step(NamedTuple):
    began_ms: float
    ended_ms: float
    drafted: int


Wave = Sequence[Answer]


def answer_waves(
    session: EngineSession, prompts: Sequence[Prompt], generation: Generation, clients: int
) -> list[list[Answer]]:
    """Ask for all prompts, so many at once. Raises what a request failed with."""
    waves: list[list[Answer]] = []
    session.totals()  # what is logged from here on belongs to these requests
    for at in range(0, len(prompts), clients):
        for prompt in prompts[at : at + clients]:
            session.submit(prompt, generation)
        wave: list[Answer] = []
        while (over := session.collect()) is not None:
            if not isinstance(over.result, Reply):
                raise over.result
            wave.append(Answer(1000 * (over.started_at or 0.0), over.result))
        waves.append(wave)
    settled = iter(session.settle([it.reply for wave in waves for it in wave]))
    return [[Answer(it.started_ms, next(settled)) for it in wave] for wave in waves]


def wave_plain_ms(wave: Wave) -> float | None:
    """ms of a plain step of all requests together; None where they never all decoded at once."""
    arrivals = [it.started_ms + np.array(it.reply.arrival_ms) for it in wave]
    if min(len(times) for times in arrivals) < 2:
        return None
    start, end = max(times[0] for times in arrivals), min(times[-1] for times in arrivals)
    tokens = sum(int(((times > start) & (times <= end)).sum()) for times in arrivals)
    return float((end - start) * len(wave) / tokens) if end > start and tokens else None


def wave_step_ms(waves: Sequence[Wave]) -> dict[int, float]:
    """Tokens drafted for each request -> median ms of a step in which all of them drafted so many, in vain."""
    seen: dict[float, list[float]] = defaultdict(list)
    for wave in waves:
        steps = [_steps(it) for it in wave]
        for own in steps:
            for step in own:
                drafted = [found for other in steps if (found := _at(other, step)) is not None]
                if len(drafted) == len(wave):
                    seen[round(statistics.fmean(drafted), 3)].append(step.ended_ms - step.began_ms)
    return _whole({mean: statistics.median(times) for mean, times in seen.items()})


def _whole(seen: Mapping[float, float]) -> dict[int, float]:
    """Times at whole lengths, between those at any."""
    if not seen:
        return {}
    means = sorted(seen)
    lengths = range(int(np.ceil(means[0])), int(np.floor(means[-1])) + 1)
    return {length: float(np.interp(length, means, [seen[mean] for mean in means])) for length in lengths}


def _at(steps: Sequence[_Step], step: _Step) -> int | None:
    """What another request drafted in the forward that ended a step; None where it took no part in it."""
    nearest = min(steps, key=lambda it: abs(it.ended_ms - step.ended_ms), default=None)
    apart = abs(nearest.ended_ms - step.ended_ms) if nearest is not None else np.inf
    return nearest.drafted if nearest is not None and apart < (step.ended_ms - step.began_ms) / 2 else None


def _steps(answer: Answer) -> list[_Step]:
    """Steps of a request that followed another one, by the clock of all; those that stretch over a step without a
    draft, which leaves no line in the log, are left out."""
    reply = answer.reply
    arrivals, steps = np.array(reply.arrival_ms), reply.steps
    if not steps or len(arrivals) < 2:
        return []
    at = np.array([step.at_ms for step in steps])
    told = at[[not step.restored for step in steps]]
    if not len(told):
        return []
    ahead = arrivals[1 : max(2, len(arrivals) - len(told) + 1)] - told[0]
    apart = [float(np.abs(np.subtract.outer(told + it, arrivals)).min(axis=1).sum()) for it in ahead]
    ended = answer.started_ms + at + ahead[int(np.argmin(apart))]
    plain = statistics.median(np.diff(ended)) if len(ended) > 1 else 0.0
    return [
        _Step(float(began), float(over), step.drafted)
        for (began, over), (before, step) in zip(pairwise(ended), pairwise(steps), strict=True)
        if over > began and (over - began < 1.5 * plain or before.drafted == step.drafted or before.restored)
    ]
