"""Measures what a step costs in a run, drafting included, through sessions of the run's own engine on its own prompts.

A round is a session that decodes without speculation, and right after it one for each way of drafting, with synthetic
acceptance of rate 0. Such a step makes its draft, verifies it and throws it away, and the token that it emits is the
target's own; so text and experts are those of decoding without speculation. Drafts shrink towards the end of the text:
gamma, gamma, ..., gamma - 1, ..., 2, 1. One session therefore shows what steps of every length cost, as its log times
them. What counts is the ratio to the plain session of the round. docs/explanation/prediction.md says when there are
further sessions: one in which every draft is accepted (MoE), or one for each length (`change_costs`).

A recurrent target cannot forget what it rejects: each such step is followed by a forward that restores a checkpoint and
replays, which emits a token more. Its time is kept as that of a step without a draft.

*Under load* requests are sent in waves, one by each client, and nothing of a wave counts but the time in which all of
its requests decode. Plainly, a step takes (window x requests) / tokens. Requests of a wave begin a step or two apart,
so near the end of the texts their drafts differ in length: such a step counts with the mean, and whole lengths are
interpolated. The log's steps are placed in time by the client's arrivals: every step ends where a token arrives.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from specmeter.engines import Launch
from specmeter.errors import EngineProtocolError
from specmeter.host.telemetry import TelemetrySampler
from specmeter.record import PARAMETERS, Arm, Generation, ModelIdentity, Prompt, Reply, StepRound, Telemetry

if TYPE_CHECKING:
    from specmeter.engines import Engine, EngineSession


WHOLE_STEPS = 5
"""Steps of a request that draft as much as they may, unless there is less time; the first one is not timed."""
CHANGE = 1.1
"""A step that is so much dearer than a longer one paid for its shape. Seen on an H200: 1.6 (no mixture), 2.1 (mixture
of experts), since kernels are launched one by one for a shape that is new; on CPUs 0.9 to 1.0."""
_WARMUP_TOKENS = 4
_WARMUP_CHARACTERS = 96


@dataclass(frozen=True)
class RoundSpec:
    """What is to be measured."""

    plain: Arm
    """The baseline."""
    drafting: Sequence[Arm]
    """Arms that draft as is to be priced, up to the longest draft; made by `pricing`."""
    models: Mapping[str, ModelIdentity]
    prompts: Sequence[Prompt]
    generation: Generation
    folder: Path
    """Where logs may go."""
    start_timeout_s: float = 600.0
    idle_timeout_s: float = 120.0
    whole_steps: int = WHOLE_STEPS
    """Steps of a request that draft as much as they may, after the first."""
    watched: bool = True
    """Whether there is a machine to watch while it is measured."""
    clients: int = 1
    """Requests at once; `prompts` are asked for in waves of this many."""
    shorter: Mapping[str, Sequence[Arm]] = field(default_factory=dict[str, Sequence[Arm]])
    """Ids of `drafting` -> arms that draft less, each timed for itself: `StepRound.steady_ms`."""
    warm: set[str] = field(default_factory=set[str])
    """Servers that are kept from round to round and were warmed up."""


def pricing(arm: Arm, gamma: int) -> Arm:
    """An arm whose steps cost what those of `arm` do and accept nothing.

    Drafts that are looked up in the text are looked up by single tokens, which nearly always finds one.
    """
    by_model = arm.draft is not None
    return arm.model_copy(
        update={
            **dict.fromkeys((*PARAMETERS, "policy", "rule")),
            "id": f"{arm.target}/{arm.draft or 'lookup'}/probe",
            "methods": ("draft-simple",) if by_model else ("ngram-simple",),
            "gamma": gamma,
            "ngram_n": None if by_model else 1,
            "synthetic_rates": (0.0,) * gamma,
        }
    )


def tokens_of(gamma: int, clients: int = 1, whole_steps: int = WHOLE_STEPS) -> int:
    """Tokens to be generated so that this many steps draft `gamma` tokens, of all clients at once."""
    return gamma + 1 + whole_steps + (max(STAGGER, clients) if clients > 1 else 0)


def measure_round(engine: Engine, spec: RoundSpec, index: int) -> list[StepRound]:
    """A session of the baseline and one of each drafting arm, in their order; an arm that found nothing to draft has no
    step times.

    Raises `EngineError` when the engine fails, and `EngineProtocolError` where it does not tell its steps apart.
    """
    longest = max(arm.gamma or 1 for arm in spec.drafting)
    waves: dict[str, list[list[WaveReply]]] = {}
    loads: dict[str, list[float]] = {}
    accepting = [accepted(arm) for arm in spec.drafting if routed(spec.models[arm.target])]
    turns = [spec.plain, *spec.drafting, *(arm for arms in spec.shorter.values() for arm in arms), *accepting]
    for arm in turns if index % 2 == 0 else reversed(turns):
        launch = Launch(
            arm,
            spec.models[arm.target],
            spec.models[arm.draft] if arm.draft is not None else None,
            spec.folder / f"{index}-{turns.index(arm)}.log",
            start_timeout_s=spec.start_timeout_s,
            idle_timeout_s=spec.idle_timeout_s,
        )
        with engine.start(launch) as session:
            each = (arm.gamma or longest) + 1
            tokens = tokens_of(each - 1, spec.clients, spec.whole_steps)
            if arm in accepting:  # as many steps, as far as the run's own texts go
                tokens = max(tokens, min(1 + each * (tokens - each), spec.generation.max_tokens))
            waves[arm.id], loads[arm.id] = _answers(session, spec, tokens, by_model=arm.draft is not None)
    plain = spec.plain.id
    found = read_rounds(waves[plain], [waves[arm.id] for arm in spec.drafting])
    rounds: list[StepRound] = []
    for it, arm in zip(found, spec.drafting, strict=True):
        also, shorter = accepted(arm).id, spec.shorter.get(arm.id, ())
        shares = (loads[name] for name in (plain, arm.id, also, *(one.id for one in shorter)) if name in loads)
        timed = [(one.gamma, _step_ms(waves[one.id])) for one in shorter]
        timed += [(arm.gamma, it.step_ms)] if shorter else []
        changed = {
            "steady_ms": {gamma: ms[gamma] for gamma, ms in timed if gamma in ms},
            "accepted_ms": _step_ms(waves.get(also, ())),
            "other_cpu_percent": tuple(share for each in shares for share in each),
        }
        rounds.append(it.model_copy(update=changed))
    return rounds


def change_costs(found: StepRound) -> bool:
    """Whether a step takes longer because the one before it had another length: the longest draft, timed after others
    as long, is cheaper than one a token shorter."""
    longest = max(found.step_ms, default=0)
    shorter = found.step_ms.get(longest - 1) if longest > 1 else None
    return shorter is not None and shorter > CHANGE * found.step_ms[longest]


def accepted(arm: Arm) -> Arm:
    """The same, whose drafts are all accepted."""
    return arm.model_copy(update={"id": f"{arm.id}/accepted", "synthetic_rates": (1.0,) * (arm.gamma or 1)})


def routed(target: ModelIdentity) -> bool:
    """Whether it is a mixture of experts."""
    return target.header is not None and target.header.experts > 0


def _answers(
    session: EngineSession, spec: RoundSpec, tokens: int, *, by_model: bool
) -> tuple[list[list[WaveReply]], list[float]]:
    """What was answered, and the share of the machine that others took meanwhile."""
    server = session.facts.server
    if server is None or server not in spec.warm:
        brief = _free(spec.prompts[0]).model_copy(
            update={"text": spec.prompts[0].text[:_WARMUP_CHARACTERS], "before": ()}
        )
        session.generate(brief, _timed(spec.generation, _WARMUP_TOKENS))
        spec.warm.update(() if server is None else (server,))
    samples: SimpleQueue[Telemetry] = SimpleQueue()
    generation = _timed(spec.generation, tokens)
    prompts = [_free(prompt) for prompt in spec.prompts]
    with TelemetrySampler(samples.put, pids=session.facts.pids) if spec.watched else nullcontext():
        if spec.clients > 1:
            # One request on its own tells how long the draft model reads its prompt: among others nothing does.
            alone = [[WaveReply(0.0, session.generate(prompts[0], generation))]] if by_model else []
            waves = alone + answer_waves(session, prompts, generation, spec.clients)
        else:
            waves = [[WaveReply(0.0, session.generate(prompt, generation))] for prompt in prompts]
    return waves, [samples.get().other_cpu_percent for _ in range(samples.qsize())]


def _timed(generation: Generation, tokens: int) -> Generation:
    """This many tokens, wherever the text may end: with synthetic acceptance it is none that a model would write."""
    return generation.model_copy(update={"max_tokens": tokens, "ignore_eos": True})


def _free(prompt: Prompt) -> Prompt:
    """The prompt without a length of its own."""
    return prompt.model_copy(update={"max_tokens": None})


def read_rounds(plain: Sequence[Wave], drafting: Sequence[Sequence[Wave]]) -> list[StepRound]:
    """One for each way of drafting; without times of steps where hardly anything was drafted. Raises
    `EngineProtocolError` where there is no plain token, or where what was drafted left no steps."""
    found = [read_round(plain, waves) for waves in drafting]
    if not any(it.step_ms for it in found):
        answers = [it for waves in drafting for wave in waves if len(wave) > 1 for it in wave]
        if any(it.reply.steps for it in answers):
            raise EngineProtocolError("no step drafted for all requests together", fix="lower load.clients")
        replies = [it.reply for waves in drafting for wave in waves for it in wave]
        if any(it.steps for it in replies) or (replies and all(it.timings.draft_n == 0 for it in replies)):
            return found
        raise EngineProtocolError(
            "the engine does not report its steps", fix="use a server that logs steps (LLAMA_TRACE, late 2026)"
        )
    return found


def read_round(plain: Sequence[Wave], drafting: Sequence[Wave]) -> StepRound:
    """Raises `EngineProtocolError` where there is no plain token."""
    together = max(len(wave) for wave in plain) > 1
    each = [ms for wave in plain if (ms := wave_plain_ms(wave) if together else _lone_plain_ms(wave)) is not None]
    if not each and together:
        raise EngineProtocolError(
            "requests sent together were never all decoded together", fix="lower load.clients, or load.depth"
        )
    if not each:
        raise EngineProtocolError("no output has a second token to time", fix="raise generation.max_tokens")
    lone = [wave[0].reply for wave in drafting if len(wave) == 1]
    drafted = sum(reply.timings.draft_n or 0 for reply in lone)
    spent = [] if together else [part.generate_ms for reply in lone for part in reply.drafting]
    alone_ms = _lone_step_ms(lone)
    first = [ms for reply in lone if (ms := _first_ms(reply, alone_ms)) is not None]
    return StepRound(
        plain_ms=statistics.median(each),
        step_ms=_step_ms(drafting),
        first_ms=max(0.0, statistics.median(first)) if first else None,
        drafting_ms=sum(spent) / drafted if spent and drafted else None,
    )


def _step_ms(waves: Sequence[Wave]) -> dict[int, float]:
    """Of requests together, where any were."""
    if max((len(wave) for wave in waves), default=0) > 1:
        return wave_step_ms([wave for wave in waves if len(wave) > 1])
    return _lone_step_ms([it.reply for wave in waves for it in wave])


def _lone_plain_ms(wave: Wave) -> float | None:
    (answer,) = wave
    return plain_ms(answer.reply) if answer.reply.timings.predicted_n > 1 else None


def _lone_step_ms(replies: Sequence[Reply]) -> dict[int, float]:
    times: dict[int, list[float]] = {}
    for reply in replies:
        for drafted, ms in step_times(reply):
            times.setdefault(drafted, []).append(ms)
    return {drafts: statistics.median(ms) for drafts, ms in sorted(times.items())}


def _first_ms(reply: Reply, step_ms: Mapping[int, float]) -> float | None:
    """What the first step took beyond others of its length: what the steps after it leave of the request's time."""
    steps = reply.steps
    if len(steps) < 2 or steps[0].drafted not in step_ms:
        return None
    return reply.timings.predicted_ms - (steps[-1].at_ms - steps[0].at_ms) - step_ms[steps[0].drafted]


def best_case(rounds: Sequence[StepRound]) -> float | None:
    """The speedup of the length that would gain most if every draft token were accepted; None if nothing was timed."""
    found = [(n + 1) * it.plain_ms / ms for it in rounds for n, ms in it.step_ms.items() if ms > 0]
    return max(found, default=None)


def plain_ms(reply: Reply) -> float:
    """Decode time of a token of a reply that has more than one; the first one comes with the prompt."""
    return reply.timings.predicted_ms / (reply.timings.predicted_n - 1)


def step_times(reply: Reply) -> Iterator[tuple[int, float]]:
    """(tokens drafted, ms) of each step that followed another one; nothing drafted: a replay after a rejection.

    A step without a draft leaves no line in a server's log, so the time until the next line holds it as well; by the
    drafts' lengths, which fall by one from step to step at the end of a text, such gaps are seen there, and a median
    takes care of those before.
    """
    for before, after in pairwise(reply.steps):
        gap = 1 < before.drafted < after.drafted or (before.drafted - after.drafted > 1 and not before.restored)
        replay = before.restored and after.drafted == 0
        if (replay or after.drafted > 0) and not gap and after.at_ms > before.at_ms:
            yield after.drafted, after.at_ms - before.at_ms


# --- several requests at once ----------------------------------------------------------------------------------------

STAGGER = 3
"""Steps by which requests of a wave may begin apart, or as many as there are, where these are more."""


class WaveReply(NamedTuple):
    """A request of a wave."""

    started_ms: float
    """By the clock of the engine."""
    reply: Reply


class _TimedStep(NamedTuple):
    began_ms: float
    ended_ms: float
    drafted: int


Wave = Sequence[WaveReply]


def answer_waves(
    session: EngineSession, prompts: Sequence[Prompt], generation: Generation, clients: int
) -> list[list[WaveReply]]:
    """Ask for all prompts, this many at once. Raises what a request failed with."""
    waves: list[list[WaveReply]] = []
    session.totals()  # what is logged from here on belongs to these requests
    for at in range(0, len(prompts), clients):
        for prompt in prompts[at : at + clients]:
            session.submit(prompt, generation)
        wave: list[WaveReply] = []
        while (over := session.collect()) is not None:
            if not isinstance(over.result, Reply):
                raise over.result
            wave.append(WaveReply(1000 * (over.started_at or 0.0), over.result))
        waves.append(wave)
    settled = iter(session.settle([it.reply for wave in waves for it in wave]))
    return [[WaveReply(it.started_ms, next(settled)) for it in wave] for wave in waves]


def wave_plain_ms(wave: Wave) -> float | None:
    """ms of a plain step of all requests together; None where they never all decoded at once."""
    arrivals = [it.started_ms + np.array(it.reply.arrival_ms) for it in wave]
    if min(len(times) for times in arrivals) < 2:
        return None
    start, end = max(times[0] for times in arrivals), min(times[-1] for times in arrivals)
    tokens = sum(int(((times > start) & (times <= end)).sum()) for times in arrivals)
    return float((end - start) * len(wave) / tokens) if end > start and tokens else None


def wave_step_ms(waves: Sequence[Wave]) -> dict[int, float]:
    """Tokens drafted for each request -> median ms of a step in which all of them drafted this many, in vain."""
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


def _at(steps: Sequence[_TimedStep], step: _TimedStep) -> int | None:
    """What another request drafted in the forward that ended a step; None where it took no part in it."""
    nearest = min(steps, key=lambda it: abs(it.ended_ms - step.ended_ms), default=None)
    apart = abs(nearest.ended_ms - step.ended_ms) if nearest is not None else np.inf
    return nearest.drafted if nearest is not None and apart < (step.ended_ms - step.began_ms) / 2 else None


def _steps(answer: WaveReply) -> list[_TimedStep]:
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
        _TimedStep(float(began), float(over), step.drafted)
        for (began, over), (before, step) in zip(pairwise(ended), pairwise(steps), strict=True)
        if over > began and (over - began < 1.5 * plain or before.drafted == step.drafted or before.restored)
    ]
