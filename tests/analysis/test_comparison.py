"""Runs against each other: what is compared with what, and what an interval is allowed to say."""

from __future__ import annotations

import json
import math
import shutil
import sqlite3
from pathlib import Path

import numpy as np
import pytest
from scipy import stats as scipy_stats

from specmeter.analysis.comparison import compare_runs, conclude, read_side
from specmeter.cli import invoke
from specmeter.errors import UsageError
from specmeter.messages import words
from specmeter.numbers.stats import ratio_of_groups
from specmeter.record import Estimate
from specmeter.show.comparison_words import comparison_sentence
from specmeter.store.database import DATABASE_NAME

EXPERIMENT = """
name: compared
targets: {dense: "mock:dense"}
drafts: {small: "mock:small"}
workloads: [{source: bench, kinds: [fact, code], per_kind: 2}]
arms: [{draft: small, gamma: [2, 4]}]
design: {blocks: BLOCKS}
engine: {kind: mock, mock: {noise: 0.01, targets: {dense: {base_ms: BASE}}, FAULTS}}
generation: {max_tokens: 24}
"""


def measured(
    folder: Path,
    name: str,
    base_ms: float = 30,
    blocks: int = 4,
    faults: str = "faults: []",
    turns: str = "null",
    tokens: int = 24,
) -> Path:
    text = EXPERIMENT.replace("BASE", str(base_ms)).replace("BLOCKS", str(blocks)).replace("FAULTS", faults)
    text = text.replace("max_tokens: 24", f"max_tokens: {tokens}")
    text = text.replace("per_kind: 2", f"per_kind: 2, baseline_per_block: {turns}")
    file = folder / f"{name}.yaml"
    file.write_text(text, encoding="utf-8")
    assert invoke(["run", str(file), "--out", str(folder / name)]) in (0, 1)
    return folder / name


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("compared")
    return {
        "old": measured(folder, "old"),
        "slow": measured(folder, "slow", base_ms=36),
        "short": measured(folder, "short", blocks=1),
        "broken": measured(folder, "broken", faults='faults: [{kind: decode-failed, arm: "*/g2"}]'),
    }


def estimate(low: float | None, high: float | None) -> Estimate:
    return Estimate(point=1.0, low=low, high=high, n=6, unit="x", method="made up")


def test_welch_is_scipys_welch() -> None:
    ours, theirs = np.log([101.0, 99.0, 104.0]), np.log([90.0, 95.0, 93.0, 88.0])
    ratio = ratio_of_groups(ours, theirs)
    known = scipy_stats.ttest_ind(ours, theirs, equal_var=False).confidence_interval(0.95)
    assert ratio.low == pytest.approx(math.exp(known.low))
    assert ratio.high == pytest.approx(math.exp(known.high))
    assert ratio.n == 7
    wider = ratio_of_groups(ours, theirs, among=5)
    assert wider.low is not None
    assert ratio.low is not None
    assert wider.low < ratio.low
    assert wider.point == ratio.point


@pytest.mark.parametrize(("blocks", "least"), [((3, 3), 0.94), ((5, 5), 0.94), ((3, 5), 0.92)])
def test_intervals_cover_what_they_should(blocks: tuple[int, int], least: float) -> None:
    """Simulated pairs of runs without a difference, the first with three times the spread: Welch's weak spot."""
    draw = np.random.default_rng(1)
    inside, tries = 0, 4_000
    for _ in range(tries):
        ratio = ratio_of_groups(draw.normal(0, 0.03, blocks[0]), draw.normal(0, 0.01, blocks[1]))
        inside += ratio.low is not None and ratio.high is not None and ratio.low <= 1 <= ratio.high
    assert inside / tries > least


def test_no_interval_from_one_unit_or_from_copies() -> None:
    assert ratio_of_groups(np.array([0.1]), np.array([0.1, 0.2])).low is None
    assert ratio_of_groups(np.array([0.1, 0.1]), np.array([0.3, 0.3])).low is None
    with pytest.raises(UsageError):
        ratio_of_groups(np.array([]), np.array([0.3]))


@pytest.mark.parametrize(
    ("low", "high", "conclusion"),
    [
        (0.90, 0.97, "regression"),
        (0.90, 0.985, "slower"),
        (0.985, 0.995, "same"),
        (0.985, 1.015, "same"),
        (0.985, 1.05, "no regression"),
        (1.01, 1.05, "faster"),
        (0.95, 1.05, "undecided"),
        (None, None, "undecided"),
    ],
)
def test_what_an_interval_says(low: float | None, high: float | None, conclusion: str) -> None:
    assert conclude(estimate(low, high), 0.02) == conclusion


def test_a_slower_target_is_a_regression_of_rates_and_no_speedup_is_lost(runs: dict[str, Path]) -> None:
    old, slow = read_side(runs["old"]), read_side(runs["slow"])
    found = compare_runs(old, slow)
    assert {arm.conclusion for arm in found.arms if arm.arm_id == "dense/none"} == {"regression"}
    assert found.failed
    by_speedup = compare_runs(old, slow, measure="speedup")
    assert by_speedup.of("regression") == ()
    assert next(arm.conclusion for arm in by_speedup.arms if arm.arm_id == "dense/none") is None
    assert [it.what for it in found.differences if it.what.startswith("model")] == ["model dense"]


def test_a_loss_at_other_work_is_not_a_regression(runs: dict[str, Path], tmp_path: Path) -> None:
    old, other = read_side(runs["old"]), read_side(measured(tmp_path, "longer", base_ms=36, tokens=32))
    found = compare_runs(old, other)
    assert [it.what for it in found.other_work] == ["generation.max_tokens"]
    assert next(arm.conclusion for arm in found.arms if arm.arm_id == "dense/none") == "slower"
    assert not found.failed


def test_rates_beside_a_ratio_are_over_the_same_prompts(tmp_path: Path) -> None:
    """A row said "300 against 249 tok/s" beside "1.91x as fast": its rates were over prompts that only one run had."""
    text = EXPERIMENT.replace("BASE", "30").replace("BLOCKS", "3").replace("FAULTS", "faults: []")
    (tmp_path / "both.yaml").write_text(text, encoding="utf-8")
    (tmp_path / "code.yaml").write_text(text.replace("kinds: [fact, code]", "kinds: [code]"), encoding="utf-8")
    for name in ("both", "code"):
        assert invoke(["run", str(tmp_path / f"{name}.yaml"), "--out", str(tmp_path / name)]) in (0, 1)
    found = compare_runs(read_side(tmp_path / "both"), read_side(tmp_path / "code"))
    for arm in found.arms:
        assert arm.prompts == 2
        assert arm.rate is not None
        assert arm.reference_rate is not None
        assert arm.other_rate is not None
        assert arm.rate.point == pytest.approx(arm.other_rate.point / arm.reference_rate.point, rel=1e-9)


def test_a_run_and_its_copy_are_the_same_data(runs: dict[str, Path], tmp_path: Path) -> None:
    """That nothing differs between a run and a copy of it would be true, and would say nothing."""
    copy = tmp_path / "copy"
    shutil.copytree(runs["old"], copy)
    found = compare_runs(read_side(runs["old"]), read_side(copy))
    assert found.same_data
    assert found.shared_requests == sum(len(it) for it in read_side(copy).requests.values())
    assert {arm.conclusion for arm in found.arms} == {"same data"}
    assert all(arm.rate is None and arm.speedup is None for arm in found.arms)
    assert not found.failed
    assert "是同一份数据" in words("zh").render(comparison_sentence(found))


def test_a_run_that_shares_blocks_with_another_is_not_independent_of_it(runs: dict[str, Path], tmp_path: Path) -> None:
    """Half of the blocks copied, the others' times edited."""
    partly = tmp_path / "partly"
    shutil.copytree(runs["old"], partly)
    with sqlite3.connect(partly / DATABASE_NAME) as db:
        changed = db.execute("UPDATE request SET predicted_ms = predicted_ms * 1.01 WHERE block > 1").rowcount
    found = compare_runs(read_side(runs["old"]), read_side(partly))
    total = sum(len(it) for it in read_side(runs["old"]).requests.values())
    assert not found.same_data
    assert found.shared_requests == total - changed
    assert f"share {total - changed} requests" in str(comparison_sentence(found))


def test_the_ratio_is_that_of_rates_over_shared_prompts(runs: dict[str, Path]) -> None:
    old, slow = read_side(runs["old"]), read_side(runs["slow"])
    arm = compare_runs(old, slow).arms[0]
    means = []
    for side in (slow, old):
        blocks = side.rates[arm.arm_id].values()
        logs = [math.log(sum(n for n, _ in cell.values()) / sum(ms for _, ms in cell.values())) for cell in blocks]
        means.append(sum(logs) / len(logs))
    assert arm.rate is not None
    assert arm.rate.point == pytest.approx(math.exp(means[0] - means[1]))
    assert arm.prompts == 4


def test_one_block_gives_a_number_without_an_interval_and_no_verdict(runs: dict[str, Path]) -> None:
    found = compare_runs(read_side(runs["old"]), read_side(runs["short"]))
    assert all(arm.rate is not None and arm.rate.low is None for arm in found.arms)
    assert {arm.conclusion for arm in found.arms} == {"undecided"}


def test_false_numbers_are_not_compared_and_fail(runs: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert invoke(["compare", str(runs["old"]), str(runs["broken"]), "--json"]) == 1
    (found,) = json.loads(capsys.readouterr().out)
    invalid = [arm for arm in found["arms"] if arm["conclusion"] == "invalid"]
    assert [arm["arm_id"] for arm in invalid] == ["dense/draft-simple/small/g2"]
    assert invalid[0]["rate"] is None
    assert invalid[0]["other_rate"] is None


def test_exit_codes_and_words(runs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "compared.html"
    assert invoke(["compare", str(runs["old"]), str(runs["slow"]), str(runs["old"]), "--html", str(page)]) == 1
    shown = capsys.readouterr().out
    assert "slow against old" in shown
    assert "more than 2% slower" in shown
    assert "regression" in shown
    assert page.stat().st_size > 500_000
    assert invoke(["compare", str(runs["old"]), str(runs["slow"]), "--threshold", "60"]) == 0
    assert invoke(["compare", str(runs["old"])]) == 2


def test_runs_without_a_common_arm_are_refused(runs: dict[str, Path], sweep_like: Path) -> None:
    with pytest.raises(UsageError, match="no configuration in common"):
        compare_runs(read_side(runs["old"]), read_side(sweep_like))


@pytest.fixture(scope="module")
def sweep_like(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("other")
    file = folder / "other.yaml"
    file.write_text(
        EXPERIMENT.replace("BASE", "30")
        .replace("BLOCKS", "1")
        .replace("FAULTS", "faults: []")
        .replace("{dense:", "{moe:")
        .replace("mock:dense", "mock:moe"),
        encoding="utf-8",
    )
    assert invoke(["run", str(file), "--out", str(folder / "run")]) == 0
    return folder / "run"


def test_baselines_that_run_prompts_in_turn_are_compared_on_all_of_them(tmp_path: Path, runs: dict[str, Path]) -> None:
    turns, slow = (measured(tmp_path, f"turns-{ms}", ms, turns="3") for ms in (30, 36))
    plain = compare_runs(read_side(turns), read_side(slow)).arms[0]
    assert (plain.arm_id, plain.prompts) == ("dense/none", 4)
    assert plain.rate is not None
    assert plain.rate.point == pytest.approx((30 + 4) / (36 + 4), rel=0.03)
    for measure in ("rate", "speedup"):
        for reference, other in ((turns, runs["old"]), (runs["old"], turns)):
            for arm in compare_runs(read_side(reference), read_side(other), measure=measure).arms[1:]:
                assert arm.speedup is not None
                assert arm.speedup.point == pytest.approx(1.0, rel=0.02)
                assert arm.prompts == 4
