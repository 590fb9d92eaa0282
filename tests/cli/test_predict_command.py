"""`specmeter predict` as a user types it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from measure.test_measure import measured, write
from mock_probe import mock_probe, written
from specmeter.cli import invoke

CATALOGUE = ["--device", "RTX 3090", "--model", "Qwen3-30B-A3B", "--format", "Q4_K_M"]


def predicted(capsys: pytest.CaptureFixture[str], *argv: str) -> dict[str, Any]:
    assert invoke(["predict", *argv, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_probe_and_an_alpha(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Dense mock: T(5) = 53, T(1) = 37, four drafts 3.2 ms; tau(0.8, 4) = 3.3616."""
    found = predicted(capsys, "--probe", written(tmp_path, mock_probe()), "--alpha", "0.8", "--gamma", "4,2,4")
    assert [at["gamma"] for at in found["by_gamma"]] == [2, 4]
    at = found["by_gamma"][1]
    assert at["speedup"]["point"] == pytest.approx(3.3616 / ((53 + 3.2) / 37), rel=1e-4)
    assert at["speedup"]["low"] < at["speedup"]["point"] < at["speedup"]["high"]
    assert found["best_gamma"] == 4
    assert found["drafting"] == "model"
    assert len(found["surface"]["speedups"]) == 2
    assert "probe.json" in found["cost"]["text"]


def test_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["predict", "--probe", written(tmp_path, mock_probe(longest=9)), "--rates", "0.8,0.7"]) == 0
    text = capsys.readouterr().out
    assert "break-even alpha" in text
    assert re.match(r"\d\.\d\dx as fast \[[\d., ]+\] with \d+ draft tokens? per step", text)
    assert "rates by position" in text


def test_a_catalogue_alone_and_no_acceptance_gives_a_wide_interval(capsys: pytest.CaptureFixture[str]) -> None:
    found = predicted(capsys, *CATALOGUE, "--draft-model", "Qwen3.5-0.8B", "--gamma", "4")
    speedup = found["by_gamma"][0]["speedup"]
    assert speedup["high"] > 1.5 * speedup["low"]
    assert found["acceptance"]["code"] == "rates.assumed"
    assert invoke(["predict", *CATALOGUE]) == 0
    assert "0% to 60% of steps" in capsys.readouterr().out


def test_what_a_recurrent_target_does_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    hybrid, dense = (
        ["predict", "--device", "M2 Ultra", "--model", name, "--alpha", "0", "--gamma", "1"]
        for name in ("Qwen3.5-9B", "Qwen3-8B")
    )
    assert invoke(hybrid) == 0
    assert "recurrent state" in capsys.readouterr().out
    assert invoke(dense) == 0
    assert "recurrent state" not in capsys.readouterr().out
    assert predicted(capsys, *hybrid[1:])["recurrent_target"] is True


def test_acceptance_from_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arms = [{"draft": "small", "gamma": [2, 8]}, {"method": "ngram-simple", "gamma": 8}]
    measured(write(tmp_path, arms=arms), tmp_path / "run")
    probe = written(tmp_path, mock_probe())
    given = ["--probe", probe, "--acceptance-from", str(tmp_path / "run")]
    found = predicted(capsys, *given, "--gamma", "4")
    # Acceptance of the mock's draft model is 0.8 for every token.
    assert found["by_gamma"][0]["tau"] == pytest.approx(3.36, rel=0.15)
    assert found["acceptance"]["values"]["prompts"] == 4
    of_kind = predicted(capsys, *given, "--kind", "edit", "--gamma", "4")
    assert of_kind["acceptance"]["code"] == "rates.of_kind"
    assert of_kind["acceptance"]["values"]["prompts"] == 2
    ngram = predicted(capsys, *given, "--no-draft", "--gamma", "8")
    assert ngram["drafting"] == "n-gram"
    assert ngram["by_gamma"][0]["drafted"] < 8
    one = predicted(capsys, *given, "--arm", "dense/draft-simple/small/g2", "--gamma", "2,4")
    assert [at["extrapolated"] for at in one["by_gamma"]] == [False, True]


REFUSED = [
    ([], "--probe FILE, or --device"),
    (["--device", "RTX 3090"], "--model"),
    (["--model", "Qwen3.5-9B"], "--device"),
    ([*CATALOGUE, "--alpha", "1.4"], "--alpha is 1.4"),
    ([*CATALOGUE, "--alpha", "nan"], "--alpha nan"),
    ([*CATALOGUE, "--rates", "0.5,nan"], "--rates[1] is nan"),
    ([*CATALOGUE, "--rates", "0.5,2"], "--rates[1] is 2"),
    ([*CATALOGUE, "--rates", ""], "list of numbers"),
    ([*CATALOGUE, "--gamma", "-1"], "--gamma -1: draft lengths"),
    ([*CATALOGUE, "--gamma", "2.5"], "whole numbers"),
    ([*CATALOGUE, "--gamma", "many"], "list of numbers"),
    ([*CATALOGUE, "--gamma", "100000"], "between 1 and 128"),
    ([*CATALOGUE, "--alpha", "0.5", "--rates", "0.5"], "more than once"),
    ([*CATALOGUE, "--kind", "code"], "--acceptance-from"),
    ([*CATALOGUE, "--acceptance-from", "nowhere"], "does not exist"),
    ([*CATALOGUE, "--context", "-5"], "--context -5: must be"),
    (["--device", "RTX 3091", "--model", "Qwen3.5-9B"], "RTX 3090"),
    (["--device", "RTX 3090", "--model", "Qwen35B"], "use one of"),
    ([*CATALOGUE[:4], "--format", "Q5"], "Q5_K_M"),
    (["--probe", "nowhere.json", "--alpha", "0.5"], "cannot be read"),
]


@pytest.mark.parametrize(
    ("argv", "words"), REFUSED, ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else ""
)
def test_what_cannot_be_is_refused(argv: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["predict", *argv]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert "fix:" in error


def test_runs_that_do_not_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arms = [{"draft": "small", "gamma": 4}, {"method": ["ngram-simple", "ngram-mod"], "gamma": 8}]
    measured(write(tmp_path, arms=arms), tmp_path / "run")
    probe, run = written(tmp_path, mock_probe()), str(tmp_path / "run")
    for argv, words in (
        (["--no-draft"], "several of its arms"),
        (["--kind", "zh"], "no prompt type 'zh'"),
        (["--arm", "dense/none"], "--arm dense/none: not a speculating configuration"),
    ):
        assert invoke(["predict", "--probe", probe, "--acceptance-from", run, *argv]) == 2
        assert words in capsys.readouterr().err
    stranger = written(
        tmp_path,
        mock_probe().model_copy(update={"target": mock_probe("moe").target.model_copy(update={"sha256": "0" * 64})}),
        "x.json",
    )
    assert invoke(["predict", "--probe", stranger, "--acceptance-from", run]) == 2
    measured(write(tmp_path, arms=[{"draft": "small", "gamma": 4}]), tmp_path / "drafted")
    assert invoke(["predict", *CATALOGUE, "--acceptance-from", str(tmp_path / "drafted")]) == 2
    assert "without a model" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (["--context", "-5"], "--context"),
        (["--gamma", "0"], "--gamma 0: draft lengths are whole numbers"),
        (["--no-draft", "--draft-model", "Qwen3.5-0.8B"], "--no-draft contradicts --draft-model"),
    ],
    ids=lambda it: str(it)[:20],
)
def test_what_cannot_be_is_refused_by_the_name_of_its_flag(
    capsys: pytest.CaptureFixture[str], flags: list[str], why: str
) -> None:
    assert invoke(["predict", "--device", "RTX 3090", "--model", "Qwen3.5-35B-A3B", *flags]) == 2
    assert why in capsys.readouterr().err


@pytest.mark.parametrize(
    "flags", [["--rtt", "1e300"], ["--bandwidth", "1e-300"], ["--rtt", "nan"], ["--draft-ms", "1e300"]], ids=" ".join
)
def test_networks_that_no_machine_has_are_refused(capsys: pytest.CaptureFixture[str], flags: list[str]) -> None:
    assert invoke(["study", "latency", "--vocabulary", "1000", *flags]) == 2
    assert f"{flags[0]} {flags[1].replace('1e300', '1e+300')}: out of range" in (capsys.readouterr().err)
