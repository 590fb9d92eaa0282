"""How many blocks an experiment of a study gets: until each claim is decided or a budget is spent, three at least.

Claims are looked at after this many blocks as `LOOKS` says and not in between: who looks after each block and stops at
a pleasing one finds too much. Intervals of such a run hold for all looks together (`rules.carrying`). Blocks are added
as the race of an advice adds them. A claim whose finding did not change since the look before waits for something else.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from specmeter.messages import Message
from specmeter_studies.rules import LOOKS

if TYPE_CHECKING:
    from specmeter.experiments.experiment import Experiment
    from specmeter.experiments.schedule import Cell
    from specmeter.store import RunStore
    from specmeter_studies.folder import Part, StudyFolder
    from specmeter_studies.loading import Study


@dataclass
class Deciding:
    """One part of a study that is measured until it decides."""

    study: Study
    folder: StudyFolder
    part: Part
    experiment: Experiment
    budget_s: float
    began: float = field(default_factory=time.monotonic)
    out_of_time: bool = False
    _found: dict[str, Message] = field(default_factory=dict[str, Message])
    """Claim that is not decided -> what was found at the last look."""

    def after_block(self, store: RunStore) -> Sequence[Cell] | None:
        """The next block; None where claims are decided, or there is no more time."""
        from specmeter.advise.race import next_block
        from specmeter.advise.stage import cells_s

        measured = max(turn.block for turn in store.cells()) + 1
        if measured >= self.experiment.design.blocks or any(not it.again for it in store.disturbances()):
            return None
        arms = list(store.arms())
        if measured in LOOKS and not self._open():
            return None
        needed_s = cells_s(store, [arm.id for arm in arms])
        self.out_of_time = measured >= LOOKS[0] and time.monotonic() - self.began + needed_s > self.budget_s
        if self.out_of_time:
            return None
        return next_block(self.experiment, arms, measured)

    def _open(self) -> bool:
        """Whether some claim may be decided by more blocks."""
        before, self._found = self._found, self.undecided()
        return any(before.get(claim) != found for claim, found in self._found.items())

    def undecided(self) -> dict[str, Message]:
        """Claim that is not decided by what was measured so far -> what was found of it."""
        claims = self.study.claims(self.folder.data(self.study, vouched=self.part))
        return {it.id: it.found for it in claims if it.ruling == "cannot tell"}
