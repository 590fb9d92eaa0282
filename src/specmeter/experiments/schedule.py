"""In which order arms are measured, and how balanced that order turned out to be.

There are five orders, which docs/explanation/statistics.md compares:

`latin`     block b takes row b mod k of a Latin square for k arms, the zigzag one of Williams, with arms and rows drawn
            by the seed. Its rows come in pairs that mirror each other, hence few blocks, too, are nearly balanced
`williams`  for even k the square above; for odd k it and its mirror image, 2k blocks
`random`    an independent shuffle in every block
`as-written`, `grouped`    the order of the file in every block, or all blocks of an arm in succession

Which arm gets which label of a square is free. So arms that others are predicted from (baselines) get the labels that
the first row begins with: they are measured first, once, and the square is as balanced as before.

Shuffles sort by SHA-256 of seed and place, so a schedule is the same on every machine and Python version. Nothing
here reads a clock: `achieved_balance` is computed from start times that were measured.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Literal, TypeVar

from specmeter.errors import ExperimentError
from specmeter.record import Record

if TYPE_CHECKING:
    from specmeter.record import Prompt

Order = Literal["latin", "williams", "random", "as-written", "grouped"]
T = TypeVar("T")


@dataclass(frozen=True)
class Cell:
    """One arm's turn: all its requests in one block of one invocation."""

    invocation: int
    block: int
    position: int
    """Place within the block, from 0."""
    arm_id: str


class Balance(Record):
    """What an order achieved, computed from measured start times."""

    score: float | None
    """1 - sum over arms |sum over blocks c| / sum over both |c|, where c is an arm's place in a block counted from the
    block's middle. 1: fully balanced; 0: the same order in every block. None: no two arms ever shared a block."""


def plan(
    arm_ids: Sequence[str], blocks: int, invocations: int, order: Order, seed: int, *, first: Collection[str] = ()
) -> tuple[Cell, ...]:
    """Every cell of an experiment, in the order of measurement: invocation by invocation, block by block (`grouped`:
    arm by arm).

    Each invocation draws an order of its own. Arms in `first` open the very first block where the order is a square
    (`latin`, `williams`); other orders stay as they are. Raises `ExperimentError` on no arms, arms named twice, or a
    count < 1.
    """
    if not arm_ids:
        raise ExperimentError("arms: nothing to measure", fix="add at least one arm")
    if len(set(arm_ids)) < len(arm_ids):
        raise ExperimentError("arms: an id is used twice", fix="give every arm a unique id")
    for field, count in (("blocks", blocks), ("invocations", invocations)):
        if count < 1:
            raise ExperimentError(f"design.{field}: {count} is less than 1", fix=f"set design.{field} to 1 or more")
    if order == "grouped":
        return tuple(
            Cell(invocation, block, position, arm_id)
            for invocation in range(invocations)
            for position, arm_id in enumerate(arm_ids)
            for block in range(blocks)
        )
    return tuple(
        Cell(invocation, block, position, arm_ids[arm])
        for invocation in range(invocations)
        for block, row in enumerate(
            _rows(
                len(arm_ids),
                blocks,
                order,
                f"{seed}:{invocation}",
                [] if invocation else [arm for arm, arm_id in enumerate(arm_ids) if arm_id in first],
            )
        )
        for position, arm in enumerate(row)
    )


def item_order(prompt_ids: Sequence[str], invocation: int, block: int, seed: int) -> tuple[int, ...]:
    """Indices of an arm's prompts in the order in which this block measures them.

    The order depends on the block and on each prompt's own id only, so all arms of a block meet the prompts that they
    share in the same order, and no prompt is always the first one after a start.
    """
    return _shuffled(range(len(prompt_ids)), f"items:{seed}:{invocation}:{block}", key=lambda index: prompt_ids[index])


def prompt_order(prompts: Sequence[Prompt], invocation: int, block: int, seed: int) -> tuple[int, ...]:
    """`item_order` of prompts; calls of a recorded session stay together and in their order."""
    groups: dict[str, list[int]] = {}
    for index, it in enumerate(prompts):
        groups.setdefault(it.id if it.turn is None else f"{it.workload}/{it.turn.session}", []).append(index)
    names = list(groups)
    return tuple(index for place in item_order(names, invocation, block, seed) for index in groups[names[place]])


def arrivals(count: int, rate: float, invocation: int, block: int, seed: int) -> tuple[float, ...]:
    """When each of `count` requests is due in an open loop, in seconds after the first: a Poisson process of `rate`
    requests per second, drawn again in every block and the same for all of its arms."""
    due, at = [0.0], 0.0
    for place in range(1, count):
        digest = sha256(f"{seed}:{invocation}:{block}:arrival:{rate!r}:{place}".encode()).digest()
        at -= math.log1p(-int.from_bytes(digest[:6], "big") / 2**48) / rate
        due.append(at)
    return tuple(due[:count])


def in_turn(prompt_ids: Sequence[str], count: int, turn: int, seed: int) -> tuple[str, ...]:
    """The `count` prompts (or all, where there are no more) whose turn it is at `turn`, from 0; in their own order.

    They are dealt out one after the other, in a circle drawn by the seed and the prompts' own ids: after any number of
    turns no prompt was left out more than once more than any other. When all have had equally many turns, the next
    round begins one place further on, so that prompts do not come in the same company for ever: only then can what a
    prompt adds be told from what a block adds (`specmeter.numbers.stats`).
    """
    if not prompt_ids:
        return ()
    circle = _shuffled(prompt_ids, f"turns:{seed}")
    around = len(circle)
    first = turn * count + turn // (around // math.gcd(around, count))
    due = {circle[(first + place) % around] for place in range(min(count, around))}
    return tuple(prompt_id for prompt_id in prompt_ids if prompt_id in due)


def achieved_balance(starts: Iterable[tuple[str, Hashable, float]]) -> Balance:
    """Balance of (arm id, block, measured start time); blocks of different invocations must have different keys.

    Several starts of an arm in a block (requests, restarts, resumed runs) count with their mean time.
    """
    totals: dict[Hashable, dict[str, tuple[float, int]]] = defaultdict(dict)
    for arm_id, block, started_at in starts:
        total, count = totals[block].get(arm_id, (0.0, 0))
        totals[block][arm_id] = (total + started_at, count + 1)
    rows = [sorted(block, key=lambda arm_id: block[arm_id][0] / block[arm_id][1]) for block in totals.values()]
    offsets: dict[str, float] = defaultdict(float)
    spread = 0.0
    for row in rows:
        for place, arm_id in enumerate(row):
            offset = place - (len(row) - 1) / 2
            offsets[arm_id] += offset
            spread += abs(offset)
    return Balance(score=1 - sum(map(abs, offsets.values())) / spread if spread > 0 else None)


def _rows(k: int, blocks: int, order: Order, salt: str, first: Sequence[int]) -> list[tuple[int, ...]]:
    """For each block the arms (by index) in their order; `first` open the first row of a square."""
    if order == "as-written":
        return [tuple(range(k))] * blocks
    if order == "random":
        return [_shuffled(range(k), f"{salt}:{block}") for block in range(blocks)]
    offsets = _offsets(k, salt)
    labels = _opened_by(first, _shuffled(range(k), f"{salt}:arms"), [(step + offsets[0]) % k for step in _zigzag(k)])
    cycle = [tuple(labels[(step + offset) % k] for step in _zigzag(k)) for offset in offsets]
    if order == "williams" and k % 2:
        cycle = [row for straight in cycle for row in (straight, straight[::-1])]
    return [cycle[block % len(cycle)] for block in range(blocks)]


def _opened_by(first: Sequence[int], labels: Sequence[int], row: Sequence[int]) -> list[int]:
    """`labels` with arms exchanged so that those in `first` have the labels with which `row` begins."""
    arms = [labels[label] for label in row]
    opening = [arm for arm in arms if arm in first]
    arms = [*opening, *(arm for arm in arms if arm not in first)]
    named = dict(zip(row, arms, strict=True))
    return [named[label] for label in range(len(row))]


def _zigzag(k: int) -> list[int]:
    """0, 1, k-1, 2, k-2, ...: neighbours differ by 1, -2, 3, -4, ..., so modulo an even k each difference once."""
    return [(place + 1) // 2 if place % 2 else (k - place // 2) % k for place in range(k)]


def _offsets(k: int, salt: str) -> tuple[int, ...]:
    """Order of a square's k rows, each named by its shift of the zigzag.

    For even k the row shifted by k/2 is the mirror image of the row itself: such pairs stay together. For odd k a step
    of (k - 1)/2 comes closest to that and still visits every row.
    """
    if k % 2:
        first = _shuffled(range(k), f"{salt}:rows")[0]
        return tuple((first + index * (k - 1) // 2) % k for index in range(k))
    halves = _shuffled(range(k // 2), f"{salt}:rows")
    return tuple(row for half in halves for row in (half, half + k // 2))


def _shuffled(items: Iterable[T], salt: str, key: Callable[[T], str] = str) -> tuple[T, ...]:
    """A permutation drawn by `salt`, the same everywhere; `key` names an item."""
    return tuple(sorted(items, key=lambda item: sha256(f"{salt}:{key(item)}".encode()).digest()))
