"""The interface of observers, who are told about the progress of an advice."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from specmeter.measure import Observer as MeasureObserver
from specmeter.record import Arm

if TYPE_CHECKING:
    from specmeter.advise.advice import Advice, Stage


class AdviseObserver(MeasureObserver, Protocol):
    """Observer for progress displays; must not change the run."""

    def load_starting(self, clients: int, budget_s: float) -> None:
        """The question of a schedule at this many clients, and what it may take."""

    def stage_starting(self, stage: Stage, arms: Mapping[str, Arm], left_s: float) -> None:
        """A stage begins, or a further block of the race: its arms, and what is left of the budget."""

    def best_so_far(self, advice: Advice) -> None:
        """The best answer so far."""

    def note(self, text: str) -> None:
        """Something that a person wants to know."""


class Silent(AdviseObserver):
    """Hears all and says nothing."""
