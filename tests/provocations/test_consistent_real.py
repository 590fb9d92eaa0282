"""Runs of real engines, whole or in pieces: what they store agrees with itself."""

from __future__ import annotations

import pytest

from measure.test_measure import Interrupting, Silent
from provocations.provoked import Outcome, write
from specmeter.cli import invoke
from specmeter.experiments.file import load
from specmeter.laboratory.run import prepare, run
from specmeter.validity.checks import clocks, plan_fidelity, records

CONSISTENCY = {check.id for check in (*records.CHECKS, *clocks.CHECKS, *plan_fidelity.CHECKS)} | {"data-changed"}


@pytest.fixture(scope="module", params=["embedded", pytest.param("libllama", marks=pytest.mark.slow)])
def resumed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """Stopped by Ctrl-C in the middle of a session, and resumed."""
    folder = tmp_path_factory.mktemp(request.param)
    file = write(folder, engine={"kind": request.param})
    with pytest.raises(KeyboardInterrupt):
        run(prepare(load(file)), folder / "run", Interrupting(after=3))
    run(prepare(load(file)), folder / "run", Silent())
    return Outcome(folder / "run")


def test_a_run_that_was_interrupted_and_resumed_agrees_with_itself(resumed: Outcome) -> None:
    assert resumed.report.state.state == "complete"
    told = {check for check, _ in resumed.told}
    # Where others take the processor a client reads tokens in bursts: the check says so of itself.
    assert not told & CONSISTENCY - ({"decode-time-differs"} if "host-busy" in told else set[str]())


def test_what_was_measured_is_what_is_checked_again(resumed: Outcome) -> None:
    assert invoke(["report", str(resumed.folder)]) == 0
    assert invoke(["check", str(resumed.folder)]) == 0
