"""What rulings rest on: nothing that is in doubt, unfinished, without an interval, or inside a control's limit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

import moe306_data
import ratio_data
import rtx3090_data
from claims_of import ruled, rulings
from said import codes
from specmeter.analysis.reading import read_run
from specmeter.messages import Message
from specmeter.numbers.stats import STUDENT
from specmeter.record import Estimate
from specmeter_studies import find, names
from specmeter_studies import measured as of_runs
from specmeter_studies.rules import carrying
from specmeter_studies.study import ArmResult, StudyData
from test_study_data import measured

DECIDED = ("supported", "contradicted")
WITHOUT_ARMS = {"experts", "active-parameters", "few-active", "moe-tax", "first-runs-local"}
"""Claims that files, bytes and logs decide."""
NO_INTERVAL = {"study.single", "rtx3090-19.change.single"}


def published_as_own(name: str) -> StudyData | None:
    """The document's own arms, each with a narrow interval over five blocks, as if they had been measured here."""
    data = find(name).published()
    if data is None or not data.arms:
        return None

    def sound(line: ArmResult) -> ArmResult:
        found = line.any_speedup
        point = found.point if isinstance(found, Estimate) else found
        speedup = None if point is None else ratio_data.estimate(point)
        return line.model_copy(update={"verdict": "valid", "why": None, "speedup": speedup, "claimed_speedup": None})

    return replace(data, origin="measured", arms=tuple(map(sound, data.arms)), quality=())


@cache
def sources() -> dict[str, StudyData]:
    """Published arms as our own, and two made-up studies."""
    return {
        **{name: data for name in names() if (data := published_as_own(name)) is not None},
        "made moe-306": moe306_data.study(1.3),
        "made rtx3090-19": rtx3090_data.study(),
    }


def doubted(line: ArmResult) -> ArmResult:
    return line.model_copy(update={"verdict": "suspect", "why": Message("made up")})


def unfinished(line: ArmResult) -> ArmResult:
    return line.model_copy(update={"verdict": None, "why": Message("study.why.not_checked")})


@pytest.mark.parametrize("fault", [doubted, unfinished])
def test_no_ruling_rests_on_arms_that_nothing_vouches_for(fault: Callable[[ArmResult], ArmResult]) -> None:
    for name, data in sources().items():
        bad = replace(data, arms=tuple(map(fault, data.arms)))
        without = rulings(replace(data, arms=(), results=()))
        decided = {it for it, ruling in rulings(bad).items() if ruling in DECIDED and without[it] != ruling}
        assert decided <= WITHOUT_ARMS, name


def test_sound_arms_decide() -> None:
    assert sum(it in DECIDED for data in sources().values() for it in rulings(data).values()) > 40


def test_a_ruling_by_intervals_tells_no_number_without_one() -> None:
    for name in {*names(), *sources()}:
        data = sources().get(name) or find(name).published()
        for claim in ruled(data).values() if data else ():
            if claim.rests_on == "intervals":
                assert not codes(claim.found) & NO_INTERVAL, (name, claim.id)


def line(**changes: object) -> ArmResult:
    made = ArmResult(
        config="t/d/g4",
        target="t",
        draft="d",
        method="draft-simple",
        gamma=4,
        baseline="t/none",
        requests=9,
        decode_rate=ratio_data.estimate(60.0, unit="tok/s"),
        speedup=ratio_data.estimate(1.1),
        acceptance=ratio_data.estimate(0.5),
        verdict="valid",
    )
    return made.model_copy(update=changes)


def kept(*lines: ArmResult) -> ArmResult:
    data = StudyData(study="apple-sd", origin="measured", title="", arms=lines)
    return carrying(data).arms[-1]


NO_ENDS = Estimate(point=1.1, n=5, unit="x", method=STUDENT)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"speedup": ratio_data.estimate(1.1, n=2)}, "study.why.blocks"),
        ({"speedup": NO_ENDS}, "study.why.blocks"),
        ({"least_effect": 0.138}, "study.why.control"),
    ],
)
def test_a_speedup_that_shows_nothing_is_none(changes: dict[str, object], why: str) -> None:
    found = kept(line(**changes))
    assert found.speedup is None
    assert not found.stands
    assert found.why is not None
    assert found.why.code == why
    assert found.acceptance is not None  # counted, whatever the clock did


def test_an_effect_beyond_the_control_s_limit_stays() -> None:
    assert kept(line(least_effect=0.08)) == line(least_effect=0.08)


def test_a_speedup_over_a_doubted_baseline_is_none() -> None:
    plain = ratio_data.alone("t", 55.0).model_copy(update={"verdict": "suspect"})
    assert kept(plain, line()).speedup is None


def test_time_beyond_the_bound_has_to_exceed_what_the_control_shows() -> None:
    made = rtx3090_data.study()
    ruling = rulings(made)["saturation-explains"]
    noisy = replace(made, arms=tuple(it.model_copy(update={"least_effect": 0.9}) for it in made.arms))
    assert ruling == "contradicted"
    assert rulings(noisy)["saturation-explains"] == "cannot tell"


def test_no_more_experts_are_read_than_there_are() -> None:
    found = ruled(rtx3090_data.study(experts=(32, 4)))["saturation-explains"].found
    assert found.values["most"] == 32


def test_lines_of_a_run_that_is_not_finished_are_not_vouched_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = measured(tmp_path)
    report = read_run(folder)
    short = replace(report, state=replace(report.state, state="partial"))
    monkeypatch.setattr(of_runs, "read_run", lambda _: short)
    assert {it.verdict for it in of_runs.from_run("moe-306", folder).arms} == {None}
