"""A run's requests as columns of numbers: 112 bytes each (144 with their energy), read once, sorted by arm; strings are
numbered.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from specmeter.errors import UsageError
from specmeter.record import RequestEnergy

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from specmeter.numbers.stats import Floats, Ints
    from specmeter.store import RequestRow

    Bools = NDArray[np.bool_]


Part = tuple[float, float]
Key = tuple[int, int, str, str]
"""(invocation, block, arm id, prompt id) of a request."""
BlockKey = tuple[int, int]
"""(invocation, block)."""

_UNREAD = (float("nan"), 0.0, 0.0, float("nan"))


def _read(used: RequestEnergy) -> tuple[float, float, float, float]:
    prompt_j = float("nan") if used.prompt_j is None else used.prompt_j
    return sum(used.joules.values()), used.seconds, used.unseen_s, prompt_j


class RequestTable:
    """The rows as columns, sorted by arm; strings are numbered."""

    def __init__(
        self,
        rows: Iterable[RequestRow],
        arms: Mapping[str, int],
        energy: Mapping[Key, RequestEnergy] | None = None,
        repeats: Mapping[str, str] | None = None,
    ) -> None:
        """`repeats`: prompt -> the prompt that it repeats under load; both count as that one."""
        same = repeats or {}
        cells: dict[tuple[int, int], int] = {}
        prompts: dict[str, int] = {}
        self.kinds: dict[str, int] = {}
        self.uncounted: set[int] = set()
        """Arms with answers whose drafted tokens the engine did not count."""
        whole, real, read = array("q"), array("d"), array("d")
        for row in rows:
            arm = arms.get(row.arm_id)
            if arm is None:
                raise UsageError(
                    f"a request names the unknown arm {row.arm_id!r}",
                    fix="use another copy of the run: this one was changed or damaged",
                )
            cell = cells.setdefault((row.invocation, row.block), len(cells))
            prompt = prompts.setdefault(same.get(row.prompt_id, row.prompt_id), len(prompts))
            kind = self.kinds.setdefault(row.kind, len(self.kinds))
            if row.draft_n is None and row.status == "ok":
                self.uncounted.add(arm)
            tokens = max(0, (row.predicted_n or 0) - 1)
            whole.extend((arm, row.invocation, cell, prompt, kind, row.status == "ok", row.prompt_n or 0, tokens))
            whole.extend((row.draft_n or 0, row.draft_n_accepted or 0, row.target_forwards or 0))
            real.extend((row.started_at, row.prompt_ms or 0.0, row.predicted_ms or 0.0))
            if energy:
                used = energy.get((row.invocation, row.block, row.arm_id, row.prompt_id))
                read.extend(_UNREAD if used is None else _read(used))
        integers: Ints = np.array(whole, dtype=np.int64).reshape(-1, 11)
        floats: Floats = np.array(real, dtype=np.float64).reshape(-1, 3)
        order = np.argsort(integers[:, 0], kind="stable")
        columns: list[Ints] = list(integers[order].T)
        self.arm, self.invocation, self.cell, self.prompt, self.kind, ok = columns[:6]
        self.prompt_n, self.tokens, self.drafted, self.accepted, self.forwards = columns[6:]
        reals: list[Floats] = list(floats[order].T)
        self.started_at, self.prompt_ms, self.ms = reals
        self.ok: Bools = ok == 1
        self.decoded: Bools = self.ok & (self.tokens > 0) & (self.ms > 0)
        # Of runs without energy, one row stands for all.
        readings: Floats = np.array(read or _UNREAD, dtype=np.float64).reshape(-1, 4)
        sorted_readings: Floats = readings[order] if read else np.broadcast_to(readings, (len(order), 4))
        energies: list[Floats] = list(sorted_readings.T)
        self.joules, self.seconds, self.unseen_s, self.prompt_j = energies
        self.metered: Bools = self.decoded & np.isfinite(self.joules)
        """Whose energy was read; `seconds` and `unseen_s` are of that reading."""
        self.cells = list(cells)
        """Number -> (invocation, block)."""
        self.invocations = {invocation for invocation, _ in cells}
        self.prompts = list(prompts)
        """Number -> prompt id."""
        self.key: Ints = self.cell * max(1, len(prompts)) + self.prompt
        """Which prompt in which block: where an arm and its baseline can meet."""

    def of_arm(self, arm: int) -> Ints:
        """Indices of an arm's rows."""
        low, high = np.searchsorted(self.arm, [arm, arm + 1])
        return np.arange(int(low), int(high))

    def starts(self, arm_ids: Sequence[str]) -> Iterator[tuple[str, int, float]]:
        """(arm id, block, start) of every request, for the balance."""
        for arm, cell, started_at in zip(self.arm, self.cell, self.started_at, strict=True):
            yield arm_ids[int(arm)], int(cell), float(started_at)

    def parts(self, rows: Ints, unit: Ints, counted: Ints | Floats, per: Ints | Floats) -> list[Part]:
        """(sum of `counted`, sum of `per`) of each unit where the latter is positive, in the order of the units."""
        if not len(rows):
            return []
        over = np.bincount(unit[rows], weights=counted[rows])
        under = np.bincount(unit[rows], weights=per[rows])
        return [(above, below) for above, below in zip(over.tolist(), under.tolist(), strict=True) if below > 0]
