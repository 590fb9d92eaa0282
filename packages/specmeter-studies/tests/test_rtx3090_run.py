"""rtx3090-19 measured: all 190 requests on the mock engine in both arrangements, a reduced matrix on the real one."""

from __future__ import annotations

import csv
import json
from collections import Counter
from pathlib import Path

import pytest

from originals import rows
from said import all_said
from specmeter.cli import invoke
from specmeter.errors import ExperimentError
from specmeter.experiments.file import load
from specmeter.workloads import count
from specmeter_studies import findings
from specmeter_studies.from_claims import reasons
from specmeter_studies.library.rtx3090_19.lines import F16, OTHER_VOCABULARY, lines, ratio
from specmeter_studies.measured import from_run
from specmeter_studies.study import StudyData

ARMS = [row["config"] for row in rows("rtx3090_19_arms.csv")]
MOCK = {
    "targets.moe": "mock:moe",
    **dict.fromkeys(("drafts.small", "drafts.other-vocab", "drafts.second"), "mock:small"),
    "engine.kind": "mock",
    "workloads.0.max_tokens": "24",
    "workloads.1.max_tokens": "48",
}


def simulated(folder: Path, *flags: str) -> StudyData:
    changes = [word for key, value in MOCK.items() for word in ("--set", f"{key}={value}")]
    assert invoke(["run", "rtx3090-19", *flags, *changes, "--out", str(folder)]) in (0, 1)
    return from_run("rtx3090-19", folder)


@pytest.mark.parametrize(
    ("variants", "arms", "requests"),
    [
        ((), 19, 190),
        (("faithful",), 19, 190),
        (("bench",), 14, 70),
        (("blocks3",), 19, 570),
        (("controls",), 21, 210),
        (("bench", "controls", "blocks3"), 21, 315),
        (("bench", "quick"), 14, 28),
    ],
)
def test_counts_are_exact(variants: tuple[str, ...], arms: int, requests: int) -> None:
    experiment = load("rtx3090-19", variants=variants).experiment
    expanded, prompts = experiment.expand(), count(experiment.workloads)
    assert len(expanded) == arms
    few = "bench" in variants and "controls" not in variants
    assert ({arm.id for arm in expanded} >= {f"moe/{name}" for name in ARMS}) != few
    passes = experiment.design.blocks * experiment.design.invocations
    assert sum(prompts[name] for arm in expanded for name in arm.workloads) * passes == requests


def test_arms_are_those_of_the_study() -> None:
    experiment = load("rtx3090-19").experiment
    limits = {spec.name: spec.max_tokens for spec in experiment.workloads}
    arms = {arm.id.removeprefix("moe/"): arm for arm in experiment.expand()}
    references = {row["config"]: row["reference"] for row in rows("rtx3090_19_summary.csv")}
    for row in rows("rtx3090_19_arms.csv"):
        arm = arms[row["config"]]
        given = (arm.gamma, arm.gamma_min, arm.ngram_n)
        assert "+".join(arm.methods) == row["spec_type"]
        assert given == tuple(int(row[name]) if row[name] else None for name in ("draft_max", "draft_min", "ngram_n"))
        assert {limits[name] for name in arm.workloads} == {int(row["max_tokens"])}
        assert (arm.engine.kv_type_k, arm.engine.kv_type_v) == (row["kv_type"], row["kv_type"])
        assert (arm.draft is None) == (row["draft_model"] == "")
        reference = references[row["config"]]
        assert arm.baseline_id == (None if reference == row["config"] else f"moe/{reference}")
    assert [name for name, arm in arms.items() if arm.refused_draft == "measure"] == [OTHER_VOCABULARY]


def test_in_the_studys_order_arms_stand_as_its_scripts_ran_them() -> None:
    experiment = load("rtx3090-19", variants=["faithful"]).experiment
    order = [arm.id.removeprefix("moe/") for arm in experiment.expand()]
    assert experiment.design.order == "grouped"
    assert order[:5] == ["baseline", "ngram-cache", "ngram-mod-n24", OTHER_VOCABULARY, "baseline-rerun"]
    assert order[-1] == F16


def test_an_unknown_variant_names_the_known_ones() -> None:
    with pytest.raises(ExperimentError) as caught:
        load("rtx3090-19", variants=["fast"])
    assert "controls" in caught.value.fix


def test_all_190_requests_balanced_and_in_the_studys_order(tmp_path: Path) -> None:
    for flags in ((), ("--faithful",)):
        data = simulated(tmp_path / f"run{len(flags)}", *flags)
        assert len(data.results) == 190
        assert Counter(result.config for result in data.results) == {f"moe/{name}": 10 for name in ARMS}
        assert {result.prompt for result in data.results} >= {"short_greet", "multi_turn_2", "zh_cn"}
        assert {result.max_tokens for result in data.results} == {24, 48}
        f16 = lines(data)[F16]
        assert (f16.arm.verdict, f16.arm.speedup) == ("invalid", None)
        assert f16.arm.claimed_speedup is not None
        assert "baseline-unlike" in dict(reasons(f16.arm.why))


def test_controls_give_the_f16_arm_a_baseline_of_its_kind(tmp_path: Path) -> None:
    data = simulated(tmp_path / "run", "--variant", "controls", "--variant", "blocks3")
    known = lines(data)
    assert len(data.results) == 630
    assert known[F16].reference == "baseline-kv-fp16"
    assert "baseline-unlike" not in dict(reasons(known[F16].arm.why))
    found = {claim.id: claim for claim in findings("rtx3090-19", data).claims}
    assert found["kv-quantization"].found.code == "rtx3090-19.kv"
    assert "draft-second-max16" in [it.values.get("name") for it in all_said(found["draft-choice"].found)]


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rtx3090") / "study"
    flags = ["--variant", "bench", "--variant", "quick", "--set", "engine.threads=1", "--out", str(folder)]
    assert invoke(["study", "run", "rtx3090-19", *flags]) == 1
    return folder


@pytest.mark.slow
def test_the_quick_variant_on_the_real_engine(measured: Path) -> None:
    data = from_run("rtx3090-19", measured / "rtx3090-19")
    assert len(data.results) == 28
    assert all(result.decode_rate for result in data.results)
    known, found = lines(data), findings("rtx3090-19", data)
    assert {table.key for table in found.tables} == {"summary", "controls", "saturation", "requests", "experts"}
    assert len(found.figures) == 3
    assert known[F16].reference == "baseline-kv-fp16"
    other = known[OTHER_VOCABULARY]
    assert (other.arm.verdict, other.arm.speedup) == ("invalid", None)
    assert "vocab-mismatch" in dict(reasons(other.arm.why))
    assert ratio(known, other) is None
    assert other.sums is not None
    assert (other.sums.generated, other.sums.drafted) == (48, 0)
    assert "speculation-not-active" in dict(reasons(other.arm.why))
    row = next(
        row for table in found.tables if table.key == "summary" for row in table.rows if row[0].text == other.name
    )
    assert row[5].struck
    ruled = {claim.id: claim.ruling for claim in found.claims}
    # What a busy machine makes suspect decides nothing.
    assert ruled["silent-failure"] != "contradicted"
    assert ruled["full-acceptance"] != "supported"
    assert ruled["saturation-threshold"] == "does not apply here"  # it is about a model of 256 experts
    assert ruled["kv-quantization"] == "cannot tell"


@pytest.mark.slow
def test_one_command_gives_requests_summary_and_environment(
    measured: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(["study", "export", str(measured), "--out", str(tmp_path / "data")]) == 0
    written = {Path(line).name for line in capsys.readouterr().out.splitlines()}
    assert written >= {"summary.csv", "requests.csv", "requests.jsonl", "BENCHMARK_ENV.md", "controls.csv"}
    assert written == {path.name for path in (tmp_path / "data").iterdir()}
    with (tmp_path / "data" / "summary.csv").open(encoding="utf-8", newline="") as file:
        summary = list(csv.DictReader(file))
    assert set(rows("rtx3090_19_summary.csv")[0]) <= set(summary[0])
    names = {arm.id.removeprefix("moe/") for arm in load("rtx3090-19", variants=("bench", "quick")).experiment.expand()}
    assert {row["config"] for row in summary} == names
    assert {"baseline-kv-fp16", "draft-second-max16", "ngram-cache"} <= names
    lines_of = (tmp_path / "data" / "requests.jsonl").read_text("utf-8").splitlines()
    assert Counter(json.loads(line)["arm_id"] for line in lines_of) == {f"moe/{name}": 2 for name in names}
    assert "bench:hybrid" in (tmp_path / "data" / "BENCHMARK_ENV.md").read_text("utf-8")


def test_nothing_measured_is_said_with_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["study", "export", str(tmp_path), "--out", str(tmp_path / "data")]) == 2
    assert "specmeter study run" in capsys.readouterr().err
