"""Requests as columns: the same values as in rows, and the same errors."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from specmeter.record import Request
from specmeter.store import RequestRow
from specmeter.store.columns import NAMES, columns_of
from specmeter.store.rows import row_of


@pytest.fixture
def rows(make_request: Callable[..., Request]) -> list[RequestRow]:
    first = row_of(make_request(), 1)
    failed = first._replace(prompt_id="p2", status="failed", predicted_n=None, predicted_ms=None, stop_reason=None)
    return [first, failed, first._replace(block=first.block + 1)]


def test_columns_hold_what_rows_hold(rows: list[RequestRow]) -> None:
    found = columns_of(rows)
    for name in NAMES:
        if name in found.numbers:
            values = [None if math.isnan(it) else it for it in found.numbers[name].tolist()]
        else:
            values = [found.values[name][it] for it in found.codes[name].tolist()]
        assert values == [getattr(row, name) for row in rows]
    assert found.where("status", "failed").tolist() == [False, True, False]
    assert found.values["block"] == sorted(found.values["block"])


def test_there_may_be_no_requests() -> None:
    assert len(columns_of([]).codes["arm_id"]) == len(columns_of([]).numbers["predicted_ms"]) == 0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"predicted_ms": "x"}, "predicted_ms is 'x'"),
        ({"block": None}, "block is None"),
        ({"block": 1.5}, "block is 1.5"),
        ({"arm_id": b"\x00"}, "arm_id is b"),
        ({"started_at": math.inf}, "infinite"),
    ],
)
def test_a_value_that_is_none_of_ours_is_refused(rows: list[RequestRow], change: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        columns_of([*rows, rows[0]._replace(**change)])
