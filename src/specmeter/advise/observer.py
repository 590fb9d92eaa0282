"""Who hears how an advice goes on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from specmeter.measure import Observer as MeasureObserver

if TYPE_CHECKING:
    from specmeter.advise.advice import Advice, Stage
    from specmeter.errors import EngineError
    from specmeter.experiments.schedule import Turn
    from specmeter.record import Arm, Request


class Observer(MeasureObserver, Protocol):
    """Hears what happens, for progress displays; never changes it."""

    def load_starting(self, clients: int, budget_s: float) -> None:
        """The question of a schedule at so many clients, and what it may take."""

    def stage_starting(self, stage: Stage, arms: Mapping[str, Arm], left_s: float) -> None:
        """A stage begins, or a further block of the race: its arms, and what is left of the budget."""

    def told(self, advice: Advice) -> None:
        """The best answer so far."""

    def note(self, text: str) -> None:
        """Something that a person wants to know."""


class Silent:
    """Hears all and says nothing."""

    def looking_ahead(self, arm_id: str) -> None: ...

    def session_starting(self, cell: Turn, requests: int) -> None: ...

    def request_done(self, request: Request) -> None: ...

    def session_failed(self, arm_id: str, error: EngineError) -> None: ...

    def load_starting(self, clients: int, budget_s: float) -> None: ...

    def stage_starting(self, stage: Stage, arms: Mapping[str, Arm], left_s: float) -> None: ...

    def told(self, advice: Advice) -> None: ...

    def note(self, text: str) -> None: ...
