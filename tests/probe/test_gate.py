"""Probes of a busy machine: told, passed over, and used where they are named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from probes import ENGINE, HOST, model, probe

from specmeter.cli import invoke
from specmeter.host.telemetry import gate_beside, is_busy
from specmeter.messages import Message
from specmeter.probe import make
from specmeter.probe.doubts import suspicions
from specmeter.probe.files import find_probe, load_probe, save_probe
from specmeter.record import Estimate
from specmeter.show.probe_report import report
from specmeter.show.report import Text
from specmeter.theory.curves import CostCurve, CostPoint

OTHERS = Message("disturbed.others")


def widely(low: float, point: float, high: float) -> CostCurve:
    first = Estimate(point=point, low=low, high=high, n=9, unit="ms", method="made up")
    return CostCurve(points=(CostPoint(tokens=1, ms=first), CostPoint(tokens=5, ms=first)))


@pytest.mark.parametrize(
    ("changes", "code", "values"),
    [
        ({"target_ms": widely(42, 125, 358)}, "uncertain", {"ms": 125, "low": 42, "high": 358}),
        ({"other_cpu_percent": (40.0, 60.0, 50.0)}, "busy", {"programs": [OTHERS], "mean": 0.5, "most": 0.6}),
        (
            {"other_cpu_percent": (0.0,) * 8 + (12.0, 14.0, 13.0), "programs": ("blender (0.98 cores)",)},
            "busy",
            {"programs": ["blender"], "mean": 0.39 / 11, "most": 0.14},
        ),
        ({"plain_rounds_ms": (10.0, 10.1, 9.9, 10.0, 14.0, 14.1, 13.9, 14.2)}, "drift", {"early": 10, "late": 14.05}),
    ],
)
def test_what_speaks_against_a_probe(changes: dict[str, object], code: str, values: dict[str, float]) -> None:
    (said,) = suspicions(probe(**changes))
    programs, told = said.values.get("programs"), {key: it for key, it in said.values.items() if key != "programs"}
    assert programs == values.pop("programs", None)
    assert (said.code, told) == (f"probe-doubt.{code}", pytest.approx(values))


def test_a_quiet_probe_and_one_of_a_single_round_stand() -> None:
    quiet = {"other_cpu_percent": (0.5, 1.2, 6.0, 0.0), "plain_rounds_ms": (10.0, 10.2, 11.0, 10.1, 9.9, 10.4)}
    assert suspicions(probe()) == ()
    assert suspicions(probe(**quiet)) == ()


def test_a_suspect_probe_is_not_found_and_an_older_quiet_one_is(tmp_path: Path) -> None:
    save_probe(probe(made_at=1.0), tmp_path / "quiet.json")
    save_probe(probe(made_at=2.0, target_ms=widely(42, 125, 358)), tmp_path / "busy.json")
    found = find_probe(model(), None, ENGINE, tmp_path)
    assert found is not None
    assert found[0].name == "quiet.json"


def test_a_suspect_probe_that_is_named_works_with_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = save_probe(probe(target_ms=widely(42, 125, 358)), tmp_path / "busy.json")
    assert invoke(["predict", "--probe", str(path), "--no-draft", "--alpha", "0.7", "--gamma", "4"]) == 0
    told = capsys.readouterr()
    assert "suspect probe: T(1) is 125 ms" in told.err
    assert load_probe(path).plain_rounds_ms == ()


def test_load_is_judged_as_in_runs() -> None:
    assert not is_busy([])
    assert not is_busy([0.8] * 50 + [6.4])
    assert is_busy([6.0] * 10)
    assert gate_beside(2, 2, 2) == (5.0, 0.0)
    assert gate_beside(64, 64, 128) == (pytest.approx(100 / 128), 0.0)
    assert gate_beside(None, 64, 128) == (5.0, 0.0)
    assert gate_beside(1, 2, 2) == (5.0, 50.0)


def test_what_others_always_have_of_cores_that_are_left_free_is_borne() -> None:
    gate = gate_beside(1, 2, 2)
    assert not is_busy([50.0, 51.0, 49.5, 50.3] * 5, gate)
    assert is_busy([50.0] * 12 + [1.0] * 8, gate), "it changed"
    assert is_busy([70.0] * 20, gate), "more than is left"
    assert is_busy([50.0] * 20, gate, [1.0] * 60), "not what is usual"


@pytest.mark.parametrize(
    ("rule", "shares", "disturbed"),
    [
        ("repeat", [(60.0, 40.0), (0.5, 0.0)], (50.0,)),
        ("repeat", [(60.0, 40.0), (30.0,), (20.0,)], (50.0, 30.0)),
        ("repeat", [(0.0, 1.0)], ()),
        ("keep", [(60.0, 40.0)], ()),
    ],
)
def test_a_probe_beside_other_work_is_measured_again(
    monkeypatch: pytest.MonkeyPatch, rule: str, shares: list[tuple[float, ...]], disturbed: tuple[float, ...]
) -> None:
    """Twice at most, each time after a wait for calm; what was excluded stays on record. Not where others are always
    busy: a test that probed waited for five minutes on such a machine."""
    monkeypatch.setenv("SPECMETER_DISTURBED", rule)
    left, waits = list(shares), list[float]()
    answered = make._Found(ENGINE, {1: [10.0, 10.1]}, {}, 128, "sweeps", ())
    monkeypatch.setattr(make, "refuse", lambda *_: None)
    monkeypatch.setattr(make, "_direct", lambda *_: replace(answered, other_cpu_percent=left.pop(0)))
    monkeypatch.setattr(make, "wait_for_calm", lambda most_s, _gate: waits.append(most_s))
    made = make.make_probe(make.ProbeSpec(target=model(), tokens=(1,)), HOST, lambda *_: None)
    assert made.disturbed_percent == disturbed
    assert made.other_cpu_percent == shares[-1]
    assert len(waits) == len(disturbed)
    assert all(0 < it <= 300 for it in waits)
    told = report(made, Path("p.json")).closing
    assert any(
        isinstance(it, Text) and isinstance(it.said, Message) and it.said.code == "probed.again" for it in told
    ) == bool(disturbed)
