"""What every check has to say about itself, and what it says of a clean run and of one that has not begun."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from factory import before, experiment, found, run_data, simulated, unchecked
from mock_run import mock_run

from specmeter.messages import Message
from specmeter.store.integrity import PARTS
from specmeter.validity.checks.check import Check
from specmeter.validity.checks.registry import CHECKS
from specmeter.validity.inspection import judge

CLEAN = run_data()
TOLD = {
    "within-run-only": ["note"],
    "decode-time-differs": ["suspect", "suspect"],
    "experiment-differs": ["suspect"],
}
"""Of the made run, which has no arrivals and no experiment file."""
BLIND = {"speedup-above-cost-bound", "bandwidth-bound", "bimodal"}
"""What these need, the made run does not have."""
LATER = {
    *("baseline-elsewhere", "baseline-unstable", "order-confounded", "within-run-only", "bimodal", "pooled-vs-mean"),
    *("stalls", "default-drift", "flag-inert", "two-binaries", "memory-fit", "server-shared", "server-found"),
    *("host-busy", "times-overlap"),
}
"""They say that nothing was measured yet."""

each = pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.id)


@each
def test_every_check_says_what_it_assumes_and_what_follows_where_that_fails(check: Check) -> None:
    for said in (check.assumes, check.otherwise):
        assert len(said.split()) >= 4, f"{check.id} says only {said!r}"
        assert "|" not in said, "it stands in a table"
        assert not said.endswith("."), "it stands in a table"
    assert set(check.saw) <= set(PARTS)


def test_what_to_do_is_in_the_catalogue_for_every_check() -> None:
    """Under the check's own name; findings of these all say another."""
    assert {check.id for check in CHECKS if f"{check.id}.fix" in str(Message(f"{check.id}.fix"))} == {
        *("conservation", "control-accept-none", "decode-time-differs", "energy-read", "host-busy", "pooled-vs-mean"),
        *("power-source", "rpc-fallback", "server-found", "excluded-block"),
    }


def test_ids_are_unique() -> None:
    assert len({check.id for check in CHECKS}) == len(CHECKS)


@each
def test_a_clean_run_is_left_alone(check: Check) -> None:
    for data in (CLEAN, simulated(CLEAN)):
        assert [it.severity for it in found(check.look, data)] == TOLD.get(check.id, [])
    assert bool(unchecked(check.look, CLEAN, applies=True)) == (check.id in BLIND)
    assert not unchecked(check.look, simulated(CLEAN), applies=True) or check.id in BLIND


@each
def test_nothing_measured_is_nothing_seen(check: Check) -> None:
    assert not found(check.look, before(CLEAN)) or check.id in ("incomplete-matrix", "experiment-differs")
    assert bool(unchecked(check.look, before(CLEAN), applies=True)) == (check.id in LATER)


@each
def test_findings_name_their_check(check: Check) -> None:
    assert {it.check for it in found(check.look, run_data(experiment(design={"blocks": 1})))} <= {check.id}


def test_a_clean_run_is_valid() -> None:
    assert judge(CLEAN, [check for check in CHECKS if check.id not in TOLD]).verdict == "valid"


@pytest.mark.parametrize(
    "changes",
    [
        {
            "arms": [
                {"draft": "small", "gamma": 4, "p_min": 0.25, "gamma_min": 1},
                {"method": "ngram-mod", "ngram_n": 8},
                {"draft": "small", "gamma": 2, "synthetic_rates": [0.5, 0.5]},
            ]
        },
        {"mock": {"noise": 0.02, "block_drift": 0.02}},
        {"mock": {"noise": 0.01}, "design": {"blocks": 4, "controls": True}},
    ],
    ids=["arms", "drift", "controls"],
)
def test_a_clean_run_of_the_mock(tmp_path: Path, changes: dict[str, Any]) -> None:
    data = mock_run(tmp_path, **changes)
    for check in CHECKS:
        assert {it.severity for it in found(check.look, data)} <= {"note"} or check.id == "synthetic-on", check.id
        assert not unchecked(check.look, data, applies=True) or check.id in BLIND, check.id
