"""Asks the target how sure it was where a greedy text differs from the text that it should equal.

If two tokens are nearly as likely, the shape of a forward decides which one is said: both texts are the target's. If
the target is sure, only an error makes a text differ (docs/explanation/trust.md). So an engine that does not
speculate is asked: after the prompt and all that both texts have in common, how likely is the one token, how likely the
other? That is done when a run has been measured. If it fails, margins are missing, and `output-differs` says so.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from specmeter.analysis.divergences import Divergence, alone, find_divergences, read_texts
from specmeter.engines import Candidate, Engine, EngineSession, Launch
from specmeter.errors import EngineError, EngineProtocolError
from specmeter.experiments.cells import first_id
from specmeter.record import Margin

if TYPE_CHECKING:
    from specmeter.measure import Work
    from specmeter.record import Prompt
    from specmeter.store import RunStore

MAX_QUESTIONS = 200
"""Asked per run, those of earlier starts of it included."""
CANDIDATES = 64
"""Likeliest tokens that the target lists; one that is not among them is far from a near tie."""
_REFUSALS = 3
"""This many refused questions in a row end a session."""


class MarginQuestion(NamedTuple):
    """What comes after these tokens? One answer serves every request that parted there."""

    baseline_id: str
    prompt_id: str
    before: tuple[int, ...]


def measure_margins(work: Work, engine: Engine, store: RunStore) -> None:
    """Ask the target about every place where a greedy text of the run left its reference, and keep the answers.

    What the store has already is not asked again. With penalties the likeliest token is not the one that is chosen, so
    nothing is asked. Engines that fail leave margins missing. Raises `StoreError`;
    Ctrl-C passes on, and what was answered by then is kept.
    """
    generation = work.experiment.generation
    if generation.temperature > 0 or generation.penalized or not {"tokens", "candidates"} <= set(work.traits.tells):
        return
    found = _sort(work, find_divergences(store, work.arms, read_texts(store)), store.margins())
    store.add_margins(found.repeated)
    by_baseline: dict[str, dict[MarginQuestion, list[Divergence]]] = defaultdict(dict)
    for question in _fairly(found.open, max(0, MAX_QUESTIONS - found.answered)):
        by_baseline[question.baseline_id][question] = found.open[question]
    for baseline_id, questions in by_baseline.items():
        with suppress(EngineError):
            _ask_session(work, engine, store, baseline_id, questions)


def _ask_session(
    work: Work, engine: Engine, store: RunStore, baseline_id: str, questions: dict[MarginQuestion, list[Divergence]]
) -> None:
    """Ask one baseline's target. Raises `EngineError` when the engine does not start, or gives up."""
    prompts = {prompt.id: prompt for prompt in work.prompts[baseline_id]}
    refused = 0
    with engine.start(_launch(work, store, baseline_id)) as session:
        for question in sorted(questions):
            try:
                candidates = _ask(work, session, prompts[question.prompt_id], question)
            except EngineProtocolError:
                refused += 1
                if refused == _REFUSALS:
                    raise
                continue
            refused = 0
            store.add_margins(_margin(it, candidates) for it in questions[question])


def _ask(work: Work, session: EngineSession, prompt: Prompt, question: MarginQuestion) -> tuple[Candidate, ...]:
    candidates = session.candidates(prompt, question.before, work.experiment.generation, CANDIDATES)
    if not candidates:
        raise EngineProtocolError("the engine lists no tokens", fix="read the engine's log in the run folder")
    return candidates


def _launch(work: Work, store: RunStore, baseline_id: str) -> Launch:
    arm, settings = work.arms[baseline_id], work.experiment.engine
    return Launch(
        arm=arm,
        target=work.models[arm.target],
        draft=None,
        log_path=store.log_path(f"margins-{uuid.uuid4().hex[:8]}", arm.id),
        start_timeout_s=settings.start_timeout_s,
        idle_timeout_s=settings.idle_timeout_s,
    )


@dataclass
class _Sorted:
    """Differences by what is known about them."""

    open: dict[MarginQuestion, list[Divergence]]
    """What is to be asked, with the requests it is about."""
    repeated: list[Margin]
    """Of requests that parted as others did before, about which the store has the answer."""
    answered: int
    """Questions that these have answered."""


def _sort(work: Work, differences: Sequence[Divergence], margins: Iterable[Margin]) -> _Sorted:
    stored = {_identity(margin): margin for margin in margins}
    answers: dict[tuple[MarginQuestion, int, int], Margin] = {}
    plain, prompts = alone(work.arms), {it.id: first_id(it) for of_arm in work.prompts.values() for it in of_arm}
    places = [(it, _question(work, plain, prompts, it)) for it in differences]
    for it, question in places:
        if (margin := stored.get(_place(it))) is not None:
            answers[question, it.reference_token, it.token] = margin
    result = _Sorted({}, [], len({question for question, _, _ in answers}))
    for it, question in places:
        if _place(it) in stored:
            continue
        if (margin := answers.get((question, it.reference_token, it.token))) is not None:
            where = it.key._asdict()
            result.repeated.append(margin.model_copy(update=where))
        elif it.can_be_asked:
            result.open.setdefault(question, []).append(it)
    return result


def _question(work: Work, plain: Mapping[str, str], prompts: Mapping[str, str], it: Divergence) -> MarginQuestion:
    """The target is asked alone, and once for all loads and repeats of a prompt."""
    baseline_id = work.arms[it.key.arm_id].baseline_id or it.key.arm_id
    return MarginQuestion(
        plain.get(baseline_id, baseline_id), prompts.get(it.key.prompt_id, it.key.prompt_id), it.before
    )


def _fairly(questions: dict[MarginQuestion, list[Divergence]], most: int) -> list[MarginQuestion]:
    """Up to `most` questions, from each arm in turn: no arm's differences crowd out another's."""
    of_arm: dict[str, list[MarginQuestion]] = defaultdict(list)
    for question, differences in questions.items():
        for arm_id in dict.fromkeys(it.key.arm_id for it in differences):
            of_arm[arm_id].append(question)
    chosen = dict.fromkeys(_in_turn(of_arm.values()))
    return list(chosen)[:most]


def _in_turn(rows: Iterable[Sequence[MarginQuestion]]) -> Iterator[MarginQuestion]:
    rows = list(rows)
    for place in range(max(map(len, rows), default=0)):
        yield from (row[place] for row in rows if place < len(row))


def _margin(difference: Divergence, candidates: Sequence[Candidate]) -> Margin:
    logprobs = {candidate.token: candidate.logprob for candidate in candidates}
    key = difference.key
    return Margin(
        arm_id=key.arm_id,
        prompt_id=key.prompt_id,
        invocation=key.invocation,
        block=key.block,
        position=difference.position,
        baseline_token=difference.reference_token,
        arm_token=difference.token,
        baseline_logprob=logprobs.get(difference.reference_token),
        arm_logprob=logprobs.get(difference.token),
        best_logprob=candidates[0].logprob,
    )


def _place(it: Divergence) -> tuple[object, ...]:
    return (*it.key, it.position, it.reference_token, it.token)


def _identity(it: Margin) -> tuple[object, ...]:
    return (it.invocation, it.block, it.arm_id, it.prompt_id, it.position, it.baseline_token, it.arm_token)
