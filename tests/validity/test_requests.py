"""Requests in columns: the same objects come out that went in."""

from __future__ import annotations

from dataclasses import replace

from factory import BASE, SD, run_data

from specmeter.validity.checks.request_data import Arrivals, RequestData, Steps
from specmeter.validity.checks.requests import in_columns

WHOLE = list(run_data().requests)


def _told(it: RequestData) -> RequestData:
    steps, arrivals = Steps(3, 12, 7, 10.5, 90.25), Arrivals(65, 9.5, 91.0, in_order=True)
    row = it.row._replace(prompt_n=2**62 + 1, cache_n=None, ttft_ms=None)
    return replace(it, row=row, steps=steps, arrivals=arrivals, calls=(("look", "{}"),), remote_bytes=7.0)


def test_what_went_in_comes_out() -> None:
    told = [_told(it) if it.row.item else it for it in WHOLE]
    found = in_columns(told)
    assert (list(found), found[-1], list(found[1:3])) == (told, told[-1], told[1:3])
    assert found.total("prompt_n") == sum(it.row.prompt_n or 0 for it in told)
    assert len(in_columns(())) == 0


def test_of_several_that_a_request_can_be_beside_it_is_the_last() -> None:
    again = replace(next(it for it in WHOLE if it.row.arm_id == BASE), tokens=1)
    found = in_columns([*WHOLE, again])
    own, base = (found.at(found.where("arm_id", arm_id)) for arm_id in (SD, BASE))
    pairs = own.beside(base, "invocation", "block", "prompt_id")
    assert len(pairs) == len(own)
    assert all(it.key == other.key._replace(arm_id=SD) for it, other in pairs)
    assert {other.tokens for it, other in pairs if it.key == again.key._replace(arm_id=SD)} == {1}
    assert not own.beside(base[:0], "block")
