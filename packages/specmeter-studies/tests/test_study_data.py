"""Runs, quality reports and published claims as data of a study."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from claims_of import values
from said import all_said
from specmeter.advise.observer import Silent
from specmeter.analysis.reading import read_run
from specmeter.audit.claim import Claim, Ruling
from specmeter.audit.judge import rule_claim
from specmeter.errors import StoreError, UsageError
from specmeter.experiments.file import load
from specmeter.laboratory.run import prepare, run
from specmeter.messages import Message
from specmeter_studies import from_claims, setting
from specmeter_studies.measured import from_run, merged
from specmeter_studies.study import ArmResult, Ran
from specmeter_studies.telling import fallen
from stand_in_study import NAME, install


def measured(folder: Path, **changes: Any) -> Path:
    """A run folder of the mock engine: two targets, two draft lengths, one prompt of each kind, two lengths."""
    data: dict[str, Any] = {
        "name": "mocked",
        "targets": {"dense": "mock:dense", "moe": "mock:moe"},
        "drafts": {"small": "mock:small"},
        "arms": [{"draft": "small", "gamma": [4, 8]}],
        "workloads": [
            {"source": "bench", "kinds": ["fact"], "per_kind": 1},
            {"source": "bench", "name": "edits", "kinds": ["edit"], "per_kind": 2, "max_tokens": 24},
            {"source": "length", "lengths": [64, 32]},
        ],
        "engine": {"kind": "mock"},
        "design": {"blocks": 2},
        "generation": {"max_tokens": 32},
    }
    file = folder / "mocked.yaml"
    file.write_text(yaml.safe_dump(data | changes), encoding="utf-8")
    run(prepare(load(str(file))), folder / "run", Silent())
    return folder / "run"


@pytest.fixture(autouse=True)
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, "mocked", named=True)


def test_every_request_of_a_run_is_a_result(tmp_path: Path) -> None:
    data = from_run(NAME, measured(tmp_path))
    assert len(data.results) == 2 * 2 * 3 * 5
    assert {result.repeat for result in data.results} == {0, 1}
    prompts = {result.prompt for result in data.results}
    assert {"fact", "length-32", "length-64"} < prompts, "one prompt of a kind is called by its kind"
    assert len(prompts - {"fact", "length-32", "length-64"}) == 2, "two of a kind by their own names"
    first = next(result for result in data.results if result.prompt == "length-64")
    assert first.prompt_tokens == 64
    assert first.max_tokens == 32
    assert {result.max_tokens for result in data.results} == {24, 32}
    plain = [result for result in data.results if result.method == "none"]
    assert all(result.acceptance is None and result.tau == 1 and result.gamma is None for result in plain)
    drafted = [result for result in data.results if result.gamma == 8]
    assert all(result.draft == "small" and result.tau and result.tau > 1 for result in drafted)
    assert all(result.decode_rate and result.verdict == "valid" for result in data.results)


def test_lines_are_those_of_the_run_then_by_kind_and_length(tmp_path: Path) -> None:
    folder = measured(tmp_path)
    data, report = from_run(NAME, folder), read_run(folder)
    overall = [line for line in data.arms if line.prompt is None and line.prompt_tokens is None]
    assert data.arms[: len(overall)] == tuple(overall)
    by_id = {arm.arm_id: arm for arm in report.summary.arms}
    assert [line.config for line in overall] == [arm.id for arm in report.arms]
    for line in overall:
        assert line.speedup == by_id[line.config].speedup
        assert line.decode_rate == by_id[line.config].decode_rate
        assert line.requests == 10
        assert line.suite == ("B" if line.speculates else "A")
    parts = [line for line in data.arms if line.config == "dense/draft-simple/small/g4"][1:]
    assert [(line.prompt, line.prompt_tokens, line.requests) for line in parts] == [
        ("fact", None, 2),
        ("edit", None, 4),
        (None, 64, 2),
        (None, 32, 2),
    ]
    kinds = by_id["dense/draft-simple/small/g4"].kinds
    assert [line.speedup for line in parts] == [
        kinds[kind].speedup for kind in ("fact", "edit", "length-64", "length-32")
    ]


def test_a_false_speedup_is_a_claimed_one_with_its_reason(tmp_path: Path) -> None:
    fails = {"kind": "mock", "mock": {"faults": [{"kind": "decode-failed", "arm": "dense/*g4"}]}}
    data = from_run(NAME, measured(tmp_path, engine=fails))
    false = [line for line in data.arms if line.config == "dense/draft-simple/small/g4"]
    assert len(false) == 5
    assert all(line.verdict == "invalid" and line.speedup is None and line.claimed_speedup for line in false)
    assert any("decode" in check for check, _ in from_claims.reasons(false[0].why))
    assert all(
        result.verdict == "invalid" and result.why for result in data.results if result.config == false[0].config
    )
    sound = next(line for line in data.arms if line.config == "moe/draft-simple/small/g4")
    assert sound.verdict == "valid"
    assert sound.speedup is not None
    assert sound.claimed_speedup is None


def test_failed_requests_have_no_numbers_and_the_part_is_incomplete(tmp_path: Path) -> None:
    dies = {"kind": "mock", "mock": {"faults": [{"kind": "dies", "arm": "moe/none", "prompt": "length/*"}]}}
    data = from_run(NAME, measured(tmp_path, engine=dies))
    failed = [result for result in data.results if result.why and result.why.code == "study.why.failed"]
    assert len(failed) == 4
    assert all(result.decode_rate is None for result in failed)
    (part,) = data.parts
    assert part.status == "incomplete"
    assert part.reason is not None
    assert (part.reason.values["ok"], part.reason.values["planned"]) == (56, 60)


def test_several_parts_become_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, "one", "two")
    folder = measured(tmp_path)
    parts = [from_run(NAME, folder, part=part, several=True) for part in ("one", "two")]
    data = merged(NAME, parts, [Ran(part="three", status="skipped", reason=Message("no MLX"))])
    assert len(data.results) == 2 * len(parts[0].results)
    assert {line.suite for line in data.arms} == {"one", "two"}
    assert len(data.models) == 3
    assert len(data.hosts) == 1
    assert data.notes == (setting.MOCK_NOTE,)
    assert [part.status for part in data.parts] == ["measured", "measured", "skipped"]
    assert merged(NAME, [], [Ran(part="three", status="skipped")]).title == Message("study.measured.nothing")


def test_what_is_no_run_or_no_study_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError):
        from_run(NAME, tmp_path)
    with pytest.raises(UsageError, match="no such study"):
        from_run("unknown", measured(tmp_path))


@pytest.mark.parametrize(
    ("reference", "type_"),
    [
        ("hf:unsloth/Qwen3.5-2B-GGUF/Qwen3.5-2B-UD-Q4_K_XL.gguf", "Q4_K_XL"),
        ("bench:dense-100m?quant=Q4_0", "Q4_0"),
        ("bench:dense as Q5_1", "Q5_1"),
        ("models/x-bf16.gguf", "BF16"),
        ("models/x-IQ3_XXS.gguf", "IQ3_XXS"),
        ("bench:dense", ""),
        ("Q8team/model.gguf", ""),
    ],
)
def test_a_quantization_is_read_from_a_name_that_says_it(reference: str, type_: str) -> None:
    assert setting.quantization(reference) == type_


# --- published rows --------------------------------------------------------------------------------------------------


def ruled(**fields: Any) -> Ruling:
    return rule_claim(Claim(source="a paper", row="Table 1, row 1", label="a model, gamma 4", **fields))


_ABOVE_TAU: dict[str, Any] = {"gamma": 4, "acceptance": 0.01, "speedup": 1.5, "decode_rate": 15.0, "runs": 3}
_FAILED: dict[str, Any] = {"steps": 177, "target_forwards": 40, "failed_forwards": 137}


@pytest.mark.parametrize(
    ("more", "word", "verdict"), [({}, "implausible", "implausible"), (_FAILED, "impossible", "invalid")]
)
def test_a_row_that_breaks_a_bound_supports_nothing(more: dict[str, Any], word: str, verdict: str) -> None:
    """By counting it is impossible and struck out; by a bound with assumptions implausible, and they are named."""
    ruling = ruled(method="draft-simple", **_ABOVE_TAU, **more)
    assert ruling.verdict == word
    line = from_claims.arm(ruling, config="m/g4", target="m", draft="d")
    assert line.verdict == verdict
    assert not line.stands
    assert line.speedup is None
    assert line.claimed_speedup == 1.5
    assert line.speedup_cell.struck == (word == "impossible")
    assert next(from_claims.reasons(line.why))[0] == ruling.bound
    assert ("needs a forward pass over 5 tokens in 0.69 of the time" in str(line.why)) == (word == "implausible")
    assert line.requests == 3
    assert from_claims.result(ruling, target="m", prompt="code").verdict == verdict


def test_a_mean_is_as_good_as_the_worst_of_its_runs() -> None:
    rows = [
        from_claims.result(ruled(method="draft-simple", **_ABOVE_TAU, **more), target="m", prompt=prompt)
        for prompt, more in (("code", {}), ("math", _FAILED))
    ]
    verdict, why = from_claims.worst_of(rows)
    assert verdict == "invalid"
    assert why is not None
    counts = [it.values["number"] for it in all_said(why.values["counts"]) if it.code == "study.some"]
    assert (counts, why.values["runs"], why.values["prompt"]) == ([1, 1], 2, "math")
    assert next(from_claims.reasons(why))[0] == "target-decode-failed"
    assert from_claims.worst_of(rows[:1])[0] == "implausible"
    assert from_claims.worst_of([]) == (None, None)


def test_an_unlike_baseline_makes_the_comparison_false_and_leaves_the_rate() -> None:
    line = ArmResult(
        config="m/f16", target="m", method="ngram-cache", requests=10, verdict="invalid", claimed_speedup=0.84,
        comparison_only=True, rate_verdict="valid", why=Message("baseline-unlike: f16 against q8_0"),
    )  # fmt: skip
    assert not line.stands
    assert line.of_rate == "valid"
    assert line.speedup_cell.struck
    assert values(fallen([line], 3), "study.some_of") == {"number": 1, "of": 3, "what": Message("study.fallen.unlike")}


def test_a_possible_row_is_not_thereby_true() -> None:
    ruling = ruled(method="draft-simple", gamma=4, acceptance=0.9, speedup=1.5, speed_ratio=10.0)
    assert ruling.verdict == "possible"
    line = from_claims.arm(ruling)
    assert (line.verdict, line.why) == (None, None)
    assert line.speedup is not None
    assert line.speedup.point == 1.5
    assert line.speedup.low is None


def test_of_a_row_that_cannot_be_judged_it_is_said_what_is_missing() -> None:
    line = from_claims.arm(ruled(method="draft-simple", speedup=1.5))
    assert line.verdict is None
    assert line.why is not None
    assert line.why.code == "study.why.open"
    assert "acceptance" in str(line.why.values["arithmetic"])


def test_rates_have_intervals_where_their_spread_is_printed() -> None:
    rate = from_claims.printed_rate(Claim(source="s", row="r", decode_rate=50.0, decode_rate_sd=2.0, runs=4))
    assert rate is not None
    assert rate.low == pytest.approx(50 - 3.182 * 2 / 2, abs=1e-2)  # Student's 97.5 % point at 3 degrees of freedom
    assert rate.high == pytest.approx(50 + 3.182, abs=1e-2)
    alone = from_claims.printed_rate(Claim(source="s", row="r", decode_rate=50.0, decode_rate_sd=2.0, runs=1))
    assert alone is not None
    assert alone.low is None


def test_a_speedup_that_is_not_printed_is_the_ratio_of_rates() -> None:
    speedup = from_claims.printed_speedup(Claim(source="s", row="r", decode_rate=60.0, baseline_rate=50.0))
    assert speedup is not None
    assert speedup.point == pytest.approx(1.2)
    assert from_claims.printed_speedup(Claim(source="s", row="r", decode_rate=60.0)) is None
    baseline = from_claims.arm(ruled(method="none", decode_rate=50.0, baseline_rate=50.0))
    assert baseline.speedup is None


def test_published_studies_are_told_row_by_row() -> None:
    only = list(from_claims.rulings("moe-306", "moe-306/tables.csv"))
    assert {ruling.claim.source for ruling in only} == {"moe-306/tables.csv"}
    lines: list[ArmResult] = [from_claims.arm(ruling) for ruling in only]
    assert sum(line.verdict == "implausible" for line in lines) == 18
    assert all(line.speedup is None for line in lines if line.verdict == "implausible")


@pytest.mark.parametrize("name", ["moe-306", "apple", "rtx3090-19"])
def test_pages_and_audit_count_the_same(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    from specmeter.cli import invoke

    invoke(["audit", "--published", name])
    counted = [line for line in capsys.readouterr().out.splitlines() if " rows: " in line]
    assert counted
    assert any(str(from_claims.tally(name)) in line for line in counted)
