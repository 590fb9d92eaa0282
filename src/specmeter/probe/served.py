"""Estimates T(n) through a server, for engines that have no call for a forward over n tokens.

With synthetic acceptance of rate 1 a step with a draft of gamma = n - 1 tokens always emits n, and the server's log
says when each step ended. So n is exact if a step accepted its whole draft of gamma tokens, and the time between two
such steps is that of one. The drafts come from `ngram-simple` looking up single tokens in a passage that the prompt
holds twice: it finds something nearly always, and takes microseconds. T(1) is decoding without speculation.

The numbers hold the server's own work for a step (sampling, sending) and, for recurrent targets, a checkpoint per step.
They do not show text that copies nothing, whose experts overlap less. A step that found no draft leaves no
line in the log; it lengthens one of the differences, which is why a session counts with their median. Each session is a
fresh server; sessions are the units, all n in every round, in a new random order.

The draft model's own cost is that of drafting by it: t(1) from the server's statistics (time to make drafts over tokens
drafted), and the catching up over n tokens from how much longer its steps are than those of the lookup.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from specmeter.engines import Launch
from specmeter.errors import EngineProtocolError, UsageError
from specmeter.host.telemetry import TelemetrySampler
from specmeter.record import Arm, EngineSettings, Generation, ModelIdentity, Prompt, Telemetry

if TYPE_CHECKING:
    from specmeter.engines import Engine, EngineSession
    from specmeter.record import Reply

MAX_TOKENS = 65
"""n of the longest verification that is tried."""
DRAFT_GAMMA = 4
"""gamma of the steps that the draft model is seen in."""
_STEPS = 4
"""Steps that a request should show. A text that copies itself soon runs in circles, and a lookup then finds fewer
tokens than gamma: several short requests show more whole drafts than a long one."""
_REQUESTS = 4
"""Requests of a session, each with a passage of its own, after one to warm up."""
_MIN_STEPS = 2
_WARMUP_TOKENS = 16
_REPEATED = 2
"""A prompt holds its passage this many times."""


class Served(NamedTuple):
    """What sessions showed: ms per session, one entry per round that showed the n at all."""

    target_ms: dict[int, list[float]]
    draft_ms: dict[int, list[float]]
    depth: int
    """Tokens of the prompt."""
    machine: list[Telemetry]
    """Its state in the sessions, about once a second."""


class _Kind(NamedTuple):
    tokens: int
    """n."""
    by_model: bool


def measure_served(
    engine: Engine,
    target: ModelIdentity,
    draft: ModelIdentity | None,
    settings: EngineSettings,
    *,
    tokens: Sequence[int],
    depth: int,
    rounds: int,
    seed: int,
    text: str,
    done: Callable[[int], None],
) -> Served:
    """Start a server for every n in every round; calls `done` with the number of sessions that are complete.

    n whose sessions never showed `_MIN_STEPS` steps with whole drafts are left out. Raises `UsageError` for an n
    that is too large or a text that is too short, `EngineError` when the server fails, `EngineProtocolError` when its
    log shows no steps at all.
    """
    if max(tokens) > MAX_TOKENS:
        raise UsageError(
            f"--tokens: n = {max(tokens)} is above {MAX_TOKENS}, the limit for a server",
            fix=f"lower it to {MAX_TOKENS}, or use --source libllama",
        )
    kinds = _kinds(tokens, draft=draft is not None)
    rng = np.random.default_rng(seed)
    seen: dict[_Kind, list[_Session]] = {kind: [] for kind in kinds}
    prompts: list[_Cut] = []
    loads: SimpleQueue[Telemetry] = SimpleQueue()
    with tempfile.TemporaryDirectory(prefix="specmeter-probe-") as folder:
        for index in range(rounds):
            order: list[int] = rng.permutation(len(kinds)).tolist()
            for place, which in enumerate(order):
                kind = kinds[which]
                launch = Launch(
                    _arm(kind, settings),
                    target,
                    draft if kind.by_model else None,
                    Path(folder) / f"{index}-{place}.log",
                )
                with engine.start(launch) as session, TelemetrySampler(loads.put, pids=session.facts.pids):
                    prompts = prompts or _cut(session, text, depth)
                    found = _session(session, kind, prompts)
                if found is not None:
                    seen[kind].append(found)
                done(index * len(kinds) + place + 1)
    target_ms = {
        kind.tokens: [session.step_ms for session in sessions]
        for kind, sessions in seen.items()
        if sessions and not kind.by_model and kind.tokens in {*tokens, 1}
    }
    if set(target_ms) == {1} and len(tokens) > 1:
        raise EngineProtocolError(
            "the server's log shows no draft steps",
            fix="use a server that logs steps (LLAMA_TRACE, late 2026), or --source libllama",
        )
    depth = round(statistics.mean(prompt.tokens for prompt in prompts))
    return Served(target_ms, _draft_ms(seen), depth, [loads.get() for _ in range(loads.qsize())])


class _Session(NamedTuple):
    step_ms: float
    drafting_ms: float
    """Time of the statistics to draft one token; 0 where the server has none."""


class _Cut(NamedTuple):
    text: str
    tokens: int


def sessions_per_round(tokens: Sequence[int], *, draft: bool) -> int:
    """Servers that each round starts."""
    return len(_kinds(tokens, draft=draft))


def _kinds(tokens: Sequence[int], *, draft: bool) -> list[_Kind]:
    kinds = [_Kind(n, by_model=False) for n in sorted({*tokens, 1})]
    if draft:
        kinds.append(_Kind(DRAFT_GAMMA + 1, by_model=True))
        kinds += [] if DRAFT_GAMMA + 1 in tokens else [_Kind(DRAFT_GAMMA + 1, by_model=False)]
    return kinds


def _arm(kind: _Kind, settings: EngineSettings) -> Arm:
    gamma = kind.tokens - 1
    if gamma == 0:
        return Arm(id="plain", target="target", engine=settings, role="baseline")
    rates = (1.0,) * gamma
    if kind.by_model:
        return Arm(
            id=f"draft/g{gamma}",
            target="target",
            draft="draft",
            methods=("draft-simple",),
            gamma=gamma,
            synthetic_rates=rates,
            engine=settings,
        )
    return Arm(
        id=f"lookup/g{gamma}",
        target="target",
        methods=("ngram-simple",),
        gamma=gamma,
        ngram_n=1,
        synthetic_rates=rates,
        engine=settings,
    )


def _cut(session: EngineSession, text: str, depth: int) -> list[_Cut]:
    """Prompts of about `depth` tokens, their passages from places all over the text."""
    ids = session.tokenize(text)
    each = depth // _REPEATED
    if each < 8 or len(ids) < each:
        raise UsageError(
            f"the text has {len(ids)} tokens, but --depth {depth} needs {max(each, 8)}",
            fix="give a longer text with --text, or another --depth (at least 16)",
        )
    places = [index * (len(ids) - each) // _REQUESTS for index in range(_REQUESTS + 1)]
    texts = [session.detokenize(ids[place : place + each]) * _REPEATED for place in places]
    return [_Cut(each_text, len(session.tokenize(each_text))) for each_text in texts]


def _session(session: EngineSession, kind: _Kind, prompts: Sequence[_Cut]) -> _Session | None:
    """One session's time of a step over n tokens; None where it showed too few."""
    warmup, *measured = (
        Prompt(id="probe", workload="probe", kind="probe", text=cut.text, sha256=sha256(cut.text.encode()).hexdigest())
        for cut in prompts
    )
    session.generate(warmup, Generation(max_tokens=_WARMUP_TOKENS, ignore_eos=True))
    wanted = Generation(max_tokens=wanted_tokens(kind.tokens), ignore_eos=True)
    replies = [session.generate(prompt, wanted) for prompt in measured]
    if kind.tokens == 1:
        tokens = sum(reply.timings.predicted_n - 1 for reply in replies)
        return _Session(sum(reply.timings.predicted_ms for reply in replies) / tokens, 0.0) if tokens > 0 else None
    steps = [ms for reply in replies for ms in step_times(reply, kind.tokens - 1)]
    if len(steps) < _MIN_STEPS:
        return None
    drafted = sum(step.drafted for reply in replies for step in reply.steps)
    spent = sum(part.generate_ms for reply in replies for part in reply.drafting)
    return _Session(statistics.median(steps), spent / drafted if drafted else 0.0)


def wanted_tokens(n: int) -> int:
    """Tokens to be generated so that enough steps over n tokens show."""
    return max(_WARMUP_TOKENS, _STEPS * n + 1)


def step_times(reply: Reply, gamma: int) -> Iterator[float]:
    """ms of each step that accepted a whole draft of `gamma` tokens right after another such step."""
    for before, after in pairwise(reply.steps):
        whole = all(step.drafted == step.accepted == gamma and not step.restored for step in (before, after))
        if whole and after.at_ms > before.at_ms:
            yield after.at_ms - before.at_ms


def _draft_ms(seen: dict[_Kind, list[_Session]]) -> dict[int, list[float]]:
    """t(1), and t(gamma + 1) where steps by the model are longer than lookup and drafting explain."""
    n = DRAFT_GAMMA + 1
    by_model = [session for session in seen.get(_Kind(n, by_model=True), []) if session.drafting_ms > 0]
    by_lookup = [session.step_ms for session in seen.get(_Kind(n, by_model=False), [])]
    if not by_model:
        return {}
    found = {1: [session.drafting_ms for session in by_model]}
    if by_lookup:
        lookup = statistics.median(by_lookup)
        rest = [session.step_ms - lookup - DRAFT_GAMMA * session.drafting_ms for session in by_model]
        if min(rest) > 0:
            found[n] = rest
    return found
