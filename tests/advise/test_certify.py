"""Rulings on controllers: what they say of simulated machines, and the whole road on the real engine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from specmeter.advise.controllers import Certification, Certified, certify, rule
from specmeter.cli import invoke
from specmeter.errors import UsageError
from specmeter.numbers.estimates import from_log, least_of
from specmeter.numbers.stats import geometric_speedup
from specmeter.record import Estimate
from specmeter.show.certification import names_of, sentence
from specmeter.show.page.document import read_document
from specmeter.show.page.page import run_page

MOCK: dict[str, Any] = {
    "name": "mocked",
    "target": "mock:dense",
    "draft": "mock:small",
    "arms": [{"gamma": 2, "policy": "utility"}],
    "workloads": [{"source": "bench", "kinds": ["fact", "edit"], "per_kind": 1}],
    "design": {"blocks": 3},
    "engine": {"kind": "mock"},
    "generation": {"max_tokens": 32},
}
REAL: dict[str, Any] = {
    "name": "real",
    "target": "bench:dense",
    "draft": "bench:draft-small",
    "arms": [{"gamma": 2, "policy": "entropy"}],
    "workloads": [{"source": "bench", "kinds": ["code", "fact"], "per_kind": 1}],
    "design": {"blocks": 2, "warmup": "none", "probe": "off"},
    "engine": {"kind": "libllama", "context": 512, "threads": 1},
    "generation": {"max_tokens": 32},
}


def written(folder: Path, keys: dict[str, Any], **changes: Any) -> str:
    path = folder / "mine.yaml"
    path.write_text(yaml.safe_dump(keys | changes), encoding="utf-8")
    return str(path)


def certified(folder: Path, keys: dict[str, Any], *options: str, **changes: Any) -> Certification:
    out = folder / "run"
    assert invoke(["run", "--certify", written(folder, keys, **changes), "--out", str(out), *options]) in (0, 1)
    return certify(out)


def told(found: Certification, controller: Certified) -> str:
    return str(sentence(controller, names_of(found)))


# --- rulings ---------------------------------------------------------------------------------------------------------


def estimate(low: float | None, high: float | None) -> Estimate:
    return Estimate(point=1.0, low=low, high=high, n=4, unit="x", method="made up")


@pytest.mark.parametrize(
    ("low", "high", "ruling"),
    [
        (0.981, 1.2, "never-below"),
        (0.979, 1.2, "not-shown"),
        (0.9, 0.979, "fails"),
        (0.9, 0.98, "not-shown"),
        (None, None, "not-shown"),
    ],
)
def test_a_ruling_says_what_the_interval_holds(low: float | None, high: float | None, ruling: str) -> None:
    assert rule(estimate(low, high)) == ruling


def test_the_smallest_of_several_lies_in_its_interval() -> None:
    """Of eight fixed lengths that are all alike, the luckiest looks best; of one that is best, it mostly is."""
    random = np.random.default_rng(5)
    for spread, least in ((0.0, 0.95), (0.05, 0.95)):
        true = -spread * np.arange(8)
        held = 0
        for _ in range(400):
            logs = random.normal(true, 0.02, size=(5, 8)) + random.normal(0, 0.02, size=(5, 1))
            each = [
                from_log(float(it.mean()), 2.776 * float(it.std(ddof=1)) / 5**0.5, "x", "Student t over blocks", n=5)
                for it in logs.T
            ]
            found = least_of(each, "fixed lengths")
            assert found.low is not None
            assert found.high is not None
            held += found.low <= float(np.exp(true.min())) <= found.high
        assert held / 400 > least - 0.03
    alone = geometric_speedup([((2.0, 1.0), (1.0, 1.0)), ((2.1, 1.0), (1.0, 1.0))])  # type: ignore[list-item]
    assert least_of([alone], "kinds of text") == alone
    assert least_of([alone, alone.model_copy(update={"low": None, "high": None})], "kinds of text").low is None


# --- on the mock engine ----------------------------------------------------------------------------------------------


def test_a_controller_is_ruled_on_by_kind_and_as_a_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The mock's controller drafts as its longest length does, which is the best one: it is as good as that."""
    found = certified(tmp_path, MOCK)
    said = capsys.readouterr().out
    (controller,) = found.controllers
    assert found.complete
    assert [it.kind for it in controller.rows] == ["edit", "fact", "all"]
    assert controller.ruling == "never-below"
    assert "at 0.98 of plain decoding or above (lowest: 1." in told(found, controller)
    assert "no oracle: the engine was simulated" in said
    assert "best fixed" in said
    whole = controller.rows[-1]
    assert set(whole.over_each) == {f"dense/draft-simple/small/g{gamma}" for gamma in (1, 2)}
    assert whole.best == "dense/draft-simple/small/g2"
    assert whole.over_best is not None
    assert whole.over_best.point == min(it.point for it in whole.over_each.values())
    assert whole.over_best.low == min(it.low or 0 for it in whole.over_each.values())
    assert whole.oracle is None
    assert whole.share is None

    page = run_page(read_document(tmp_path / "run"))
    assert 'id="controllers"' in page
    assert "at 0.98 of plain decoding or above (lowest: " in page
    assert "不低于普通解码的 0.98 倍" in page
    assert "没有理想上限：引擎是模拟的" in page

    assert invoke(["run", "--certify", str(tmp_path / "run"), "--json"]) == 0
    (document,) = json.loads(capsys.readouterr().out)
    assert document["passes"]
    assert Certification.model_validate({key: it for key, it in document.items() if key != "passes"}) == found


def test_a_controller_that_loses_fails_and_says_where(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    drafts = {"small": {"token_ms": 8.0, "acceptance": {"edit": [0.9]}, "other_acceptance": [0.1]}}
    found = certified(tmp_path, MOCK, engine={"kind": "mock", "mock": {"drafts": drafts}})
    (controller,) = found.controllers
    assert controller.ruling == "fails"
    assert controller.worst_kind == "fact"
    assert "fails: 0." in told(found, controller)
    assert "on fact" in told(found, controller)
    capsys.readouterr()
    assert invoke(["run", "--certify", str(tmp_path / "run")]) == 1


def test_false_numbers_rule_nothing(tmp_path: Path) -> None:
    faults = [{"kind": "decode-failed", "arm": "*utility*"}]
    found = certified(tmp_path, MOCK, engine={"kind": "mock", "mock": {"faults": faults}})
    (controller,) = found.controllers
    assert (controller.ruling, controller.verdict) == ("invalid", "invalid")
    assert controller.rows == ()
    assert not found.passes
    assert told(found, controller).endswith("invalid: its numbers are false")


def test_a_false_fixed_length_is_left_out(tmp_path: Path) -> None:
    faults = [{"kind": "decode-failed", "arm": "*/g2"}]
    found = certified(tmp_path, MOCK, engine={"kind": "mock", "mock": {"faults": faults}})
    (controller,) = found.controllers
    assert controller.left_out == ("dense/draft-simple/small/g2",)
    assert controller.rows[-1].best == "dense/draft-simple/small/g1"


def test_an_interrupted_certification_goes_on_by_the_same_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    stop = {"kind": "mock", "mock": {"faults": [{"kind": "interrupt", "call": 26}]}}
    assert invoke(["run", "--certify", written(tmp_path, MOCK, engine=stop)]) == 130
    assert "the same command resumes" in capsys.readouterr().err
    assert invoke(["run", "--certify", "mine.yaml"]) == 0
    assert "resuming" in capsys.readouterr().err
    assert len(list(Path("specmeter-runs").iterdir())) == 1


def test_what_cannot_be_ruled_on_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = written(tmp_path, MOCK, arms=[{"gamma": 4}])
    assert invoke(["run", "--certify", file]) == 2
    assert "no arm is a controller" in capsys.readouterr().err
    assert invoke(["run", file, "--out", str(tmp_path / "plain")]) == 0
    capsys.readouterr()
    assert invoke(["run", "--certify", str(tmp_path / "plain")]) == 2
    assert "no arm of this run is a controller" in capsys.readouterr().err
    alone = written(tmp_path, MOCK)
    assert invoke(["run", alone, "--out", str(tmp_path / "alone")]) == 0
    with pytest.raises(UsageError, match="share no prompt"):
        certify(tmp_path / "alone")


# --- on a real engine ------------------------------------------------------------------------------------------------


def test_the_oracle_is_above_every_fixed_length(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = certified(tmp_path, REAL)
    (controller,) = found.controllers
    assert controller.no_oracle is None
    assert controller.longest == 2
    assert "of the oracle" in told(found, controller)
    assert "oracle: the best of 0 to 2 tokens" in capsys.readouterr().out
    for held in controller.rows:
        assert held.oracle is not None
        assert held.over_oracle is not None
        assert held.over_off is not None
        # Over the same blocks, so what the controller gains over the oracle is what both gain over plain decoding.
        assert held.over_oracle.point == pytest.approx(held.over_off.point / held.oracle.point, rel=1e-6)
