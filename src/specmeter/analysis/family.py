"""Which arms compete, and on which prompts: those from which the best is picked.

A best arm is the best of those that ran the same prompts: on a kind of text all arms that were measured on it, over the
whole run the arms that were given all of its prompts. An arm that never completed a prompt which another one completed
does not compete. If that would leave no arm, the prompts that all of them completed count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from specmeter.analysis.requests import common, distinct

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from specmeter.analysis.requests import RequestTable
    from specmeter.numbers.stats import Ints

    Bools = NDArray[np.bool_]


class Family(NamedTuple):
    """Arms that compete with each other."""

    compared: int
    """How many they are."""
    prompts: Ints
    """Prompts that all of them completed, as did their baseline."""


class _Arm(NamedTuple):
    number: int
    given: Ints
    """Prompts that it was given, completed or not."""
    met: Ints
    """Those that it and its baseline completed in the same block."""


def families(table: RequestTable, choices: Sequence[tuple[int, int]]) -> dict[tuple[int, int | None], Family]:
    """(number of an arm, kind of text or None for the whole run) -> its family, for each arm that competes there.

    `choices` are the (arm, baseline) to choose from. Arms compete with those of their own baseline.
    """
    kinds = np.zeros(len(table.prompts), dtype=np.int64)
    kinds[table.prompt] = table.kind
    of_baseline: dict[int, list[_Arm]] = {}
    for number, baseline in choices:
        rows, base = table.of_arm(number), table.of_arm(baseline)
        shared = common(table.key[rows[table.decoded[rows]]], table.key[base[table.decoded[base]]])
        arm = _Arm(number, distinct(table.prompt[rows]), distinct(shared % max(1, len(table.prompts))))
        if len(arm.met):
            of_baseline.setdefault(baseline, []).append(arm)
    found: dict[tuple[int, int | None], Family] = {}
    for arms in of_baseline.values():
        everything = reduce(_either, (arm.given for arm in arms))
        found |= _family(None, [arm for arm in arms if len(arm.given) == len(everything)])
        for kind in table.kinds.values():
            there = [_Arm(arm.number, *(part[kinds[part] == kind] for part in (arm.given, arm.met))) for arm in arms]
            found |= _family(kind, [arm for arm in there if len(arm.met)])
    return found


def _either(one: Ints, other: Ints) -> Ints:
    return distinct(np.concatenate((one, other)))


def _family(kind: int | None, arms: Sequence[_Arm]) -> Mapping[tuple[int, int | None], Family]:
    if not arms:
        return {}
    given = reduce(common, (arm.given for arm in arms))
    if not len(given):
        # Prompts of one kind from workloads that no two arms share: nothing can be compared but what most arms ran.
        return _family(kind, [max(arms, key=lambda arm: len(arm.met))])
    known = common(given, reduce(_either, (arm.met for arm in arms)))
    able = [arm for arm in arms if len(known) and np.isin(known, arm.met).all()]
    if not able:
        able, known = list(arms), common(given, reduce(common, (arm.met for arm in arms)))
    if not len(known):
        return _family(kind, [max(arms, key=lambda arm: len(arm.met))]) if len(arms) > 1 else {}
    return {(arm.number, kind): Family(len(able), known) for arm in able}
