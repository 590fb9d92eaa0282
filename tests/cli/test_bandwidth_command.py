"""`specmeter doctor --bandwidth`, and the catalogue of devices."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from specmeter.cli import invoke
from specmeter.host import bandwidth


@pytest.fixture(autouse=True)
def quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECMETER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(bandwidth, "array_bytes", lambda *_: 4_000_000)


def test_the_machine_stands_beside_the_catalogue(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["doctor", "--bandwidth", "--no-measure"]) == 0
    assert invoke(["doctor", "--bandwidth"]) == 0
    shown = capsys.readouterr().out
    assert "GB/s [" in shown
    assert "x this machine's read" in shown
    assert "H200" in shown
    assert invoke(["doctor", "--bandwidth", "--no-measure", "--json"]) == 0
    remembered = json.loads(capsys.readouterr().out)
    assert f"{remembered['machine']['read']['point']:.1f} GB/s" in shown
    assert len(remembered["catalogue"]) >= 40


def test_named_devices_alone_are_shown_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["doctor", "--device", "NVIDIA GeForce RTX 3090", "--device", "rtx3090", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert [device["name"] for device in answer["catalogue"]] == ["RTX 3090"]
    assert answer["machine"] is None


@pytest.mark.parametrize(("name", "near"), [("rtx3091", "RTX 3090"), ("M2 Ultraa", "M2 Ultra"), ("x" * 5000, "RTX")])
def test_unknown_names_lead_to_the_nearest(name: str, near: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["doctor", "--device", name]) == 2
    error = capsys.readouterr().err
    assert near in error
    assert len(error) < 2000


def test_threads_of_ones_own_choice_are_not_remembered(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["doctor", "--bandwidth", "--threads", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["machine"]["threads"] == 1
    assert invoke(["doctor", "--bandwidth", "--no-measure", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["machine"] is None


def test_what_goes_with_the_measurement_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["doctor", "--threads", "1"]) == 2
    assert "add --bandwidth" in capsys.readouterr().err
