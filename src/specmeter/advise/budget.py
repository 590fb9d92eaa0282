"""Budgets of an advice: the default for a question, and which budget is too small."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from specmeter.advise.advice import AdviceQuestion
from specmeter.advise.candidates import Candidates, find_candidates
from specmeter.advise.grid import ROUNDS, grid_of
from specmeter.errors import UsageError
from specmeter.laboratory.run import fit
from specmeter.models.reference import Fetching
from specmeter.numbers.whole_answers import MIN_ANSWERS
from specmeter.text import duration

if TYPE_CHECKING:
    from specmeter.experiments.file import LoadedExperiment

MIN_SCREENED = 2
MIN_IN_ALL = MIN_SCREENED + 2 * MIN_ANSWERS
"""To search by, and of one configuration and its baseline."""
UNSURE = 1.5
"""How far an estimate of the time may be off, before anything was measured."""


def answer_s(asked: AdviceQuestion, grid: LoadedExperiment, *, offline: bool) -> float | None:
    """Seconds that an answer is expected to take here, before anything was measured; None if answers are not whole, or
    nothing is known of the model."""
    if asked.urls or grid.experiment.generation.ignore_eos:
        return None
    from specmeter.advise.outline import once
    from specmeter.laboratory.plan import make_plan

    drafting = {arm.id for arm in grid.experiment.expand() if arm.speculates}
    plain = make_plan(once(grid), offline=offline, leave_out=drafting)
    return None if plain.seconds is None or not plain.requests else plain.seconds / plain.requests


USUAL_S = 300.0
"""The budget of a question without one, for each number of clients."""


def ready(asked: AdviceQuestion, fetching: Fetching) -> tuple[AdviceQuestion, Candidates, LoadedExperiment]:
    """(The question with its budget, what can be tried, the grid of all loads); refuses what cannot be measured."""
    candidates = find_candidates(asked, fetching=fetching)
    grid = grid_of(asked, candidates)
    fit(grid, grid.experiment.targets, fetching)
    return with_budget(asked, grid, offline=fetching.offline), candidates, grid


def with_budget(asked: AdviceQuestion, grid: LoadedExperiment, *, offline: bool) -> AdviceQuestion:
    """The question with a budget, if it has none (0): the usual one, or longer for a model that is slow here."""
    if asked.budget_s:
        return asked
    least = UNSURE * MIN_IN_ALL * (answer_s(asked, grid, offline=offline) or 0.0)
    each = max(USUAL_S, ROUNDS * least if asked.clients else least)
    return asked.model_copy(update={"budget_s": each * max(1, len(asked.clients))})


def refuse_small_budget(asked: AdviceQuestion, grid: LoadedExperiment, *, offline: bool) -> None:
    """Raise `UsageError` if even the fewest whole answers that decide anything would take much longer than the budget.
    Nothing is started for that."""
    each = 0.0 if asked.clients else answer_s(asked, grid, offline=offline) or 0.0
    least = MIN_IN_ALL * each
    if least > UNSURE * asked.budget_s:
        from specmeter.laboratory.duration import TYPICAL_ANSWER

        tokens = max(1, int(0.8 * min(grid.experiment.generation.max_tokens, TYPICAL_ANSWER) * asked.budget_s / least))
        raise UsageError(
            f"--budget {duration(asked.budget_s)}: too short: an answer takes about {duration(each)} here, and "
            f"{MIN_IN_ALL} are needed",
            fix=f"give --budget {math.ceil(least / 60)}m or more, or ask for shorter outputs (-n {tokens})",
        )
