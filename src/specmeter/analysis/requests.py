"""A run's requests as columns of numbers: 112 bytes each (144 with their energy), read once, sorted by arm; strings are
numbered.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from specmeter.errors import UsageError
from specmeter.record import RequestEnergy
from specmeter.store.columns import RequestColumns, columns_of

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


def _readings(read: RequestColumns, energy: Mapping[Key, RequestEnergy] | None, order: Ints) -> Floats:
    """What was read of each request's energy; of runs without energy, one row stands for all."""
    if not energy:
        return np.broadcast_to(np.array(_UNREAD), (len(order), 4))
    keys = read.of(("invocation", "block", "arm_id", "prompt_id"), np.arange(len(order)))
    found = (_UNREAD if (used := energy.get(key)) is None else _read(used) for key in keys)
    return np.array(list(found), dtype=np.float64).reshape(-1, 4)[order]


def distinct(values: Ints) -> Ints:
    """As `np.unique`, which hashes and takes ten times as long."""
    ordered = np.sort(values)
    return ordered[np.diff(ordered, prepend=ordered[:1] - 1) != 0]


def common(one: Ints, other: Ints) -> Ints:
    """Values that are in both, sorted."""
    return np.intersect1d(distinct(one), distinct(other), assume_unique=True)


class RequestTable:
    """The rows as columns, sorted by arm; strings are numbered."""

    def __init__(
        self,
        rows: Iterable[RequestRow] | RequestColumns,
        arms: Mapping[str, int],
        energy: Mapping[Key, RequestEnergy] | None = None,
        repeats: Mapping[str, str] | None = None,
    ) -> None:
        """`repeats`: prompt -> the prompt that it repeats under load; both count as that one."""
        read = rows if isinstance(rows, RequestColumns) else columns_of(rows)
        if unknown := [it for it in read.values["arm_id"] if it not in arms]:
            raise UsageError(
                f"a request names the unknown arm {unknown[0]!r}",
                fix="use another copy of the run: this one was changed or damaged",
            )
        same = repeats or {}
        asked = [str(same.get(it, it)) for it in read.values["prompt_id"]]
        prompts = {prompt_id: number for number, prompt_id in enumerate(dict.fromkeys(asked))}
        arm = read.mapped("arm_id", [arms[it] for it in read.values["arm_id"]])
        order = np.argsort(arm, kind="stable")
        self.arm: Ints = arm[order]
        self.prompt: Ints = read.mapped("prompt_id", [prompts[it] for it in asked])[order]
        self.kinds: dict[str, int] = {kind: number for number, kind in enumerate(read.values["kind"])}
        self.kind: Ints = read.mapped("kind", list(self.kinds.values()))[order]
        self.invocation: Ints = read.mapped("invocation", read.values["invocation"])[order]
        block = ("invocation", "block")
        first, cell = read.distinct(block, np.arange(len(order)))
        self.cells: list[BlockKey] = [(invocation, number) for invocation, number in read.of(block, first)]
        """Number -> (invocation, block)."""
        self.cell = cell[order]
        self.invocations = {invocation for invocation, _ in self.cells}
        self.prompts = list(prompts)
        """Number -> prompt id."""
        self.key: Ints = self.cell * max(1, len(prompts)) + self.prompt
        """Which prompt in which block: where an arm and its baseline can meet."""
        counts = ("prompt_n", "draft_n", "draft_n_accepted", "target_forwards")
        self.prompt_n, self.drafted, self.accepted, self.forwards = (read.whole(name)[order] for name in counts)
        self.tokens: Ints = np.maximum(read.whole("predicted_n") - 1, 0)[order]
        self.started_at = read.number("started_at")[order]
        self.prompt_ms, self.ms = (np.nan_to_num(read.number(name))[order] for name in ("prompt_ms", "predicted_ms"))
        self.ok: Bools = read.where("status", "ok")[order]
        self.uncounted: set[int] = set(self.arm[self.ok & np.isnan(read.number("draft_n")[order])].tolist())
        """Arms with answers whose drafted tokens the engine did not count."""
        self.decoded: Bools = self.ok & (self.tokens > 0) & (self.ms > 0)
        energies: list[Floats] = list(_readings(read, energy, order).T)
        self.joules, self.seconds, self.unseen_s, self.prompt_j = energies
        self.metered: Bools = self.decoded & np.isfinite(self.joules)
        """Whose energy was read; `seconds` and `unseen_s` are of that reading."""

    def of_arm(self, arm: int) -> Ints:
        """Indices of an arm's rows."""
        low, high = np.searchsorted(self.arm, [arm, arm + 1])
        return np.arange(int(low), int(high))

    def starts(self, arm_ids: Sequence[str]) -> Iterator[tuple[str, int, float]]:
        """(arm id, block, mean start) of every cell, for the balance."""
        place = self.arm * max(1, len(self.cells)) + self.cell
        cells, first, number = np.unique(place, return_index=True, return_inverse=True)
        means = np.bincount(number, weights=self.started_at) / np.bincount(number) if len(cells) else cells
        for at, mean in zip(first, means.tolist(), strict=True):
            yield arm_ids[int(self.arm[at])], int(self.cell[at]), mean

    def parts(self, rows: Ints, unit: Ints, counted: Ints | Floats, per: Ints | Floats) -> list[Part]:
        """(sum of `counted`, sum of `per`) of each unit where the latter is positive, in the order of the units."""
        if not len(rows):
            return []
        over = np.bincount(unit[rows], weights=counted[rows])
        under = np.bincount(unit[rows], weights=per[rows])
        return [(above, below) for above, below in zip(over.tolist(), under.tolist(), strict=True) if below > 0]
