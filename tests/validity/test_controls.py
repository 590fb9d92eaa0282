"""Controls: counters that must say all or nothing, and a baseline that must be as fast as itself."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from factory import (
    BASE,
    SD,
    before,
    experiment,
    found,
    run_data,
    simulated,
    unchecked,
    with_requests,
    without_requests,
)
from mock_run import mock_run

from specmeter.record import Arm
from specmeter.validity.checks import controls
from specmeter.validity.checks.check import Check
from specmeter.validity.checks.controls import accept_all, accept_none, baseline_again
from specmeter.validity.checks.request_data import RequestData
from specmeter.validity.checks.run_data import RunData
from specmeter.validity.inspection import judge

AGAIN, ALL, NONE = (f"{BASE}/{name}" for name in ("again", "accept-all", "accept-none"))
ASKED = experiment(design={"blocks": 4, "controls": True})


def controlled(again: Sequence[float] = (1.0,) * 4, speculative: float = 1.0, **changes: Any) -> RunData:
    """A clean run with controls; the second baseline takes so many times as long in each block."""

    def pace(arm: Arm, block: int, _: str) -> float:
        return again[block] if arm.id == AGAIN else speculative if arm.id == SD else 1.0

    data = run_data(ASKED, pace=pace, **changes)
    data = with_requests(data, ALL, lambda it: {"draft_n_accepted": it.row.draft_n})
    return with_requests(data, NONE, draft_n_accepted=0)


CLEAN = controlled()


# --- all of them -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("check", controls.CHECKS, ids=lambda check: check.id)
@pytest.mark.parametrize("data", [CLEAN, simulated(CLEAN)], ids=["real", "simulated"])
def test_clean_controls(check: Check, data: RunData) -> None:
    assert set(data.arms) == {BASE, SD, AGAIN, ALL, NONE}
    assert list(check.look(data)) == []


@pytest.mark.parametrize("check", controls.CHECKS, ids=lambda check: check.id)
def test_no_controls_nothing_to_check(check: Check) -> None:
    """The other arms may accept what they like."""
    for data in (run_data(), before(run_data())):
        assert found(check.look, data) == []
        assert len(unchecked(check.look, data, applies=False)) == 1
        assert not unchecked(check.look, data, applies=True)


@pytest.mark.parametrize("check", controls.CHECKS, ids=lambda check: check.id)
def test_controls_that_were_never_answered(check: Check) -> None:
    data = without_requests(CLEAN, lambda row: row.arm_id in (AGAIN, ALL, NONE))
    assert found(check.look, data) == []
    assert len(unchecked(check.look, data, applies=True)) == 1


# --- by dice ---------------------------------------------------------------------------------------------------------


def one(arm_id: str, accepted: int) -> RunData:
    """One request of the control accepts so many tokens."""
    return with_requests(
        CLEAN, lambda row: row.arm_id == arm_id and row.block == 2 and row.item == 1, draft_n_accepted=accepted
    )


def test_a_counter_that_misses_one_token() -> None:
    made = next(it for it in CLEAN.by_arm[ALL] if it.row.block == 2 and it.row.item == 1).row.draft_n or 0
    (finding,) = found(accept_all, one(ALL, made - 1))
    assert (finding.severity, finding.scope) == ("invalid", "run")
    evidence = finding.evidence
    assert (evidence["arm"], evidence["requests"], evidence["requests_that_differ"]) == (ALL, 12, 1)
    assert int(str(evidence["drafted"])) - int(str(evidence["accepted"])) == 1


def test_a_counter_that_counts_one_token_too_many() -> None:
    (finding,) = found(accept_none, one(NONE, 1))
    assert (finding.severity, finding.scope, finding.evidence["accepted"]) == ("invalid", "run", 1)


def test_counts_that_cancel_are_wrong_all_the_same() -> None:
    def swapped(it: RequestData) -> dict[str, Any]:
        return {"draft_n_accepted": (it.row.draft_n or 0) + (1 if it.row.item else -2)}

    (finding,) = found(accept_all, with_requests(CLEAN, lambda row: row.arm_id == ALL and row.block == 0, swapped))
    assert finding.evidence["requests_that_differ"] == 3
    assert finding.evidence["drafted"] == finding.evidence["accepted"]


def test_lying_counters_make_every_arm_invalid() -> None:
    judgement = judge(one(NONE, 1), controls.CHECKS)
    assert set(judgement.arms.values()) == {"invalid"}


@pytest.mark.parametrize(("look", "arm_id"), [(accept_all, ALL), (accept_none, NONE)])
def test_a_control_that_drafts_nothing_controls_nothing(look: Any, arm_id: str) -> None:
    data = with_requests(CLEAN, arm_id, draft_n=0, draft_n_accepted=0)
    assert found(look, data) == []
    assert [(gap.arm_id, gap.applies) for gap in unchecked(look, data)] == [(arm_id, True)]


@pytest.mark.parametrize("fault", ["acceptance-stuck", "decode-failed"])
def test_controls_on_the_mock_with_faults(tmp_path: Path, fault: str) -> None:
    """Neither fault bends what these controls count: all drafts are accepted whole, or none is."""
    faults = [{"kind": fault, "arm": "*/accept-*"}]
    data = mock_run(tmp_path, mock={"faults": faults}, design={"blocks": 2, "controls": True})
    assert found(accept_none, data) == []
    assert found(accept_all, data) == []


def test_controls_on_the_mock_without_dice(tmp_path: Path) -> None:
    """Speculation is silently off in both: they drafted nothing."""
    faults = [{"kind": "inactive", "arm": "*/accept-*"}]
    data = mock_run(tmp_path, mock={"faults": faults}, design={"blocks": 2, "controls": True})
    for look in (accept_all, accept_none):
        assert found(look, data) == []
        assert len(unchecked(look, data, applies=True)) == 2


# --- the baseline again ----------------------------------------------------------------------------------------------


def test_a_baseline_that_differs_from_itself() -> None:
    """10 % slower in every block: the interval excludes all that could be tolerated."""
    (finding,) = found(baseline_again, controlled([1.1, 1.1, 1.1, 1.1]))
    assert (finding.severity, finding.scope, finding.arm_id) == ("suspect", "arm", AGAIN)
    evidence = finding.evidence
    assert float(str(evidence["ratio"])) == pytest.approx(1 / 1.1, abs=0.005)
    assert float(str(evidence["high"])) < 1 / 1.03
    assert float(str(evidence["least_effect_percent"])) == pytest.approx(11, abs=1)
    assert evidence["arms_below_it"] is None


def test_a_small_difference_that_is_certain() -> None:
    assert [it.arm_id for it in found(baseline_again, controlled([1.045] * 4))] == [AGAIN]


def test_a_small_difference_that_is_tolerated() -> None:
    assert found(baseline_again, controlled([1.02] * 4)) == []
    assert found(baseline_again, controlled([0.98] * 4)) == []


def test_a_large_difference_that_is_not_certain() -> None:
    (finding,) = found(baseline_again, controlled([1.2, 0.98, 1.15, 0.95]))
    assert float(str(finding.evidence["high"])) > 1


def test_small_effects_are_named() -> None:
    """The arm gains less than the second baseline seems to lose."""
    speedup = next(arm.speedup for arm in CLEAN.summary.arms if arm.arm_id == SD)
    assert speedup is not None
    (finding,) = found(baseline_again, controlled([1.08] * 4, speculative=speedup.point / 1.04))
    assert finding.evidence["arms_below_it"] == SD


def test_one_block_has_no_interval() -> None:
    asked = experiment(design={"blocks": 1, "controls": True})
    slow = run_data(asked, pace=lambda arm, _, __: 1.1 if arm.id == AGAIN else 1.0)
    (finding,) = found(baseline_again, slow)
    assert (finding.evidence["low"], finding.evidence["blocks"]) == (None, 1)
    assert found(baseline_again, run_data(asked)) == []


def test_quiet_machines_seldom_raise_an_alarm() -> None:
    """5 % between blocks, as measured on two virtual cores: about one control in twenty lies beyond 5 %."""
    rng = np.random.default_rng(4)
    alarms = sum(
        bool(found(baseline_again, controlled([math.exp(it) for it in rng.normal(0, 0.05, 4)]))) for _ in range(60)
    )
    assert alarms <= 6


def test_a_second_baseline_that_is_cut_short_on_the_mock(tmp_path: Path) -> None:
    """Half of the tokens take half of the time: the rate is the same, and that is for others to judge."""
    data = mock_run(
        tmp_path,
        mock={"faults": [{"kind": "truncated", "arm": "*/again"}]},
        design={"blocks": 2, "controls": True},
    )
    assert found(baseline_again, data) == []
