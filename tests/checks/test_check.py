"""What every check has to say about itself."""

from __future__ import annotations

import pytest

from specmeter.store.integrity import PARTS
from specmeter.validity.checks import CHECKS
from specmeter.validity.checks.check import Check


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.id)
def test_every_check_says_what_it_assumes_and_what_follows_where_that_fails(check: Check) -> None:
    for said in (check.assumes, check.otherwise):
        assert len(said.split()) >= 4, f"{check.id} says only {said!r}"
        assert "|" not in said, "it stands in a table"
        assert not said.endswith("."), "it stands in a table"
    assert set(check.saw) <= set(PARTS)


def test_ids_are_unique() -> None:
    assert len({check.id for check in CHECKS}) == len(CHECKS)
