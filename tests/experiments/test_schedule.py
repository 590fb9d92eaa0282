"""Orders: every design does what its name promises, from the seed alone; balance is read off the clock."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from itertools import groupby, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specmeter.errors import ExperimentError
from specmeter.experiments.schedule import Balance, Cell, Order, achieved_balance, item_order, plan

ORDERS: tuple[Order, ...] = ("latin", "williams", "random", "as-written")
arms = st.integers(1, 12).map(lambda k: [f"arm-{index}" for index in range(k)])
seeds = st.integers(0, 2**63 - 1)


def rows(cells: tuple[Cell, ...]) -> list[list[str]]:
    return [[c.arm_id for c in block] for _, block in groupby(cells, key=lambda c: (c.invocation, c.block))]


def carried_over(blocks: list[list[str]]) -> Counter[tuple[str, str]]:
    return Counter(pair for row in blocks for pair in pairwise(row))


def balance_of(cells: tuple[Cell, ...]) -> Balance:
    return achieved_balance((c.arm_id, (c.invocation, c.block), float(when)) for when, c in enumerate(cells))


@given(arms, st.integers(1, 9), st.integers(1, 3), st.sampled_from(ORDERS), seeds)
def test_every_block_holds_every_arm_once(
    ids: list[str], blocks: int, invocations: int, order: Order, seed: int
) -> None:
    cells = plan(ids, blocks, invocations, order, seed)
    assert len(cells) == len(ids) * blocks * invocations
    assert [c.position for c in cells] == list(range(len(ids))) * (blocks * invocations)
    assert all(sorted(row) == sorted(ids) for row in rows(cells))
    assert cells == plan(ids, blocks, invocations, order, seed)


@given(arms, seeds, st.integers(0, 30))
def test_latin_any_k_consecutive_blocks_balance_positions(ids: list[str], seed: int, start: int) -> None:
    k = len(ids)
    window = rows(plan(ids, start + k, 1, "latin", seed))[start:]
    assert all(sorted(column) == sorted(ids) for column in zip(*window, strict=True))


@given(arms, seeds)
def test_williams_balances_carry_over_and_position(ids: list[str], seed: int) -> None:
    k = len(ids)
    period = k if k % 2 == 0 else 2 * k
    blocks = rows(plan(ids, period, 1, "williams", seed))
    expected = 1 if k % 2 == 0 else 2
    followers = carried_over(blocks)
    assert all(followers[a, b] == expected for a in ids for b in ids if a != b)
    assert all(set(Counter(column).values()) == {expected} for column in zip(*blocks, strict=True))


@given(st.integers(1, 6).map(lambda half: [str(index) for index in range(2 * half)]), seeds, st.integers(1, 4))
def test_even_squares_are_balanced_after_every_second_block(ids: list[str], seed: int, pairs: int) -> None:
    assert balance_of(plan(ids, 2 * pairs, 1, "latin", seed)).score == pytest.approx(1 if len(ids) > 1 else None)


@given(st.integers(2, 12).map(lambda k: [str(index) for index in range(k)]), seeds)
def test_three_blocks_are_much_better_than_a_fixed_order(ids: list[str], seed: int) -> None:
    score = balance_of(plan(ids, 3, 1, "latin", seed)).score
    assert score is not None
    assert score >= 0.6


def test_fixed_order_scores_zero() -> None:
    assert balance_of(plan(["a", "b", "c"], 4, 1, "as-written", 1)).score == 0


def test_balance_is_read_from_the_clock_not_from_the_plan() -> None:
    # Block 1 was interrupted after "a"; the rest of it ran later, so there "a" was still first.
    starts = [("a", 0, 10.0), ("b", 0, 20.0), ("a", 1, 40.0), ("b", 1, 30.0), ("b", 1, 90.0)]
    assert achieved_balance(starts).score == 0


@pytest.mark.parametrize("starts", [[], [("a", 0, 1.0), ("a", 1, 2.0)]])
def test_no_score_without_a_comparison(starts: list[tuple[str, int, float]]) -> None:
    assert achieved_balance(starts).score is None


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 3), st.floats(0, 1e9))))
def test_score_is_within_bounds(starts: list[tuple[str, int, float]]) -> None:
    score = achieved_balance(starts).score
    assert score is None or -1e-9 <= score <= 1


def test_invocations_differ_and_seeds_matter() -> None:
    ids = [str(index) for index in range(8)]
    first, second = (rows(plan(ids, 16, 2, "latin", 1))[index : index + 16] for index in (0, 16))
    assert first != second
    assert rows(plan(ids, 16, 1, "latin", 2)) != first


@given(st.lists(st.text(min_size=1), unique=True, max_size=12), seeds, st.data())
def test_items_shared_by_two_arms_come_in_the_same_order(ids: list[str], seed: int, data: st.DataObject) -> None:
    some = data.draw(st.lists(st.sampled_from(ids), unique=True)) if ids else []
    whole = [ids[index] for index in item_order(ids, 0, 1, seed)]
    assert sorted(whole) == sorted(ids)
    assert [some[index] for index in item_order(some, 0, 1, seed)] == [name for name in whole if name in some]


def test_items_are_permuted_from_block_to_block() -> None:
    ids = [str(index) for index in range(10)]
    assert len({item_order(ids, 0, block, 1) for block in range(5)}) == 5


def test_schedule_does_not_depend_on_hash_randomisation() -> None:
    code = (
        "from specmeter.experiments.schedule import *; "
        "print(plan(list('abcde'), 4, 2, 'latin', 7), item_order('xyz', 0, 1, 7))"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONHASHSEED": salt},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for salt in ("1", "2")
    }
    assert len(outputs) == 1


@pytest.mark.parametrize(
    ("ids", "blocks", "invocations", "place"),
    [([], 1, 1, "arms"), (["a", "a"], 1, 1, "twice"), (["a"], 0, 1, "blocks"), (["a"], 1, 0, "invocations")],
)
def test_impossible_designs_are_refused(ids: list[str], blocks: int, invocations: int, place: str) -> None:
    with pytest.raises(ExperimentError, match=place):
        plan(ids, blocks, invocations, "latin", 1)


@given(arms, st.integers(1, 9), st.integers(1, 3), seeds)
def test_grouped_arms_have_all_their_blocks_in_succession(
    ids: list[str], blocks: int, invocations: int, seed: int
) -> None:
    cells = plan(ids, blocks, invocations, "grouped", seed)
    assert [(c.invocation, c.arm_id, c.block) for c in cells] == [
        (invocation, arm_id, block) for invocation in range(invocations) for arm_id in ids for block in range(blocks)
    ]
    assert balance_of(cells).score == (0 if len(ids) > 1 else None)


@given(arms, st.integers(1, 9), st.sampled_from(("latin", "williams")), seeds, st.data())
def test_arms_that_come_first_open_the_first_block_and_cost_no_balance(
    ids: list[str], blocks: int, order: Order, seed: int, data: st.DataObject
) -> None:
    first = data.draw(st.sets(st.sampled_from(ids)))
    cells = plan(ids, blocks, 2, order, seed, first=first)
    assert {cell.arm_id for cell in cells[: len(first)]} == first
    assert balance_of(cells[: len(ids) * blocks]).score == balance_of(plan(ids, blocks, 1, order, seed)).score
    again = plan(ids, blocks, 2, order, seed)
    assert cells[len(ids) * blocks :] == again[len(ids) * blocks :], "only the first invocation is relabelled"


def test_other_orders_stay_as_they_are() -> None:
    for order in ("random", "as-written", "grouped"):
        assert plan(["a", "b", "c"], 3, 1, order, 5, first=["c"]) == plan(["a", "b", "c"], 3, 1, order, 5)
