"""moe-306 measured: all 306 requests on the mock engine in both arrangements, and a reduced matrix on the real one."""

from __future__ import annotations

from pathlib import Path

import pytest

from specmeter.cli import invoke
from specmeter.record import Estimate
from specmeter_studies import findings
from specmeter_studies.from_claims import reasons
from specmeter_studies.library.moe_306.equations import equations
from specmeter_studies.library.moe_306.lines import overall, speculative
from specmeter_studies.measured import from_run
from specmeter_studies.study import StudyData

MOCK = {
    **dict.fromkeys(("targets.moe_q4", "targets.moe_q8"), "mock:moe"),
    **dict.fromkeys((f"targets.dense_{size}" for size in ("0.8b", "2b", "4b", "9b")), "mock:dense"),
    **dict.fromkeys(("drafts.draft_0.8b", "drafts.draft_2b"), "mock:small"),
    "engine.kind": "mock",
    "generation.max_tokens": "24",
}


def measured(folder: Path, *flags: str) -> StudyData:
    """A run, whatever its verdict."""
    assert invoke(["run", "moe-306", *flags, "--out", str(folder)]) in (0, 1)
    return from_run("moe-306", folder)


def simulated(folder: Path, *flags: str) -> StudyData:
    changes = [word for key, value in MOCK.items() for word in ("--set", f"{key}={value}")]
    return measured(folder, *flags, *changes)


def requests_by_suite(data: StudyData) -> dict[str, int]:
    found: dict[str, int] = {}
    for line in overall(data):
        found[line.suite] = found.get(line.suite, 0) + line.requests
    return found


def test_balanced_the_306_requests_decide_claims(tmp_path: Path) -> None:
    data = simulated(tmp_path / "run")
    assert requests_by_suite(data) == {"A": 18, "B": 144, "C": 36, "D": 72, "F": 36}
    assert len(data.results) == 306
    assert all(line.speedup is not None for line in speculative(data, "B", "D", "F"))
    ruled = {claim.id: claim.ruling for claim in findings("moe-306", data).claims}
    # The mock's MoE loses with every draft, and its dense targets gain: speedups do not follow total parameters.
    assert ruled["contribution-2"] == ruled["practice-1"] == ruled["finding-4"] == "contradicted"


def test_in_the_papers_arrangement_no_speedup_of_b_and_d_can_be_believed(tmp_path: Path) -> None:
    data = simulated(tmp_path / "run", "--faithful")
    assert requests_by_suite(data) == {"A": 18, "B": 144, "C": 36, "D": 72, "F": 36}
    for line in speculative(data, "B", "D"):
        assert line.verdict == "invalid"
        assert line.speedup is None
        assert any("baseline" in check for check, _ in reasons(line.why))
    found = findings("moe-306", data)
    ruled = {claim.id: claim.ruling for claim in found.claims}
    assert ruled["practice-3"] == ruled["finding-2"] == "cannot tell"
    table = next(table for table in found.tables if table.key == "table-5")
    place = [column.code for column in table.columns].index("speedup")
    assert all(row[place].struck for row in table.rows)


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> StudyData:
    return measured(
        tmp_path_factory.mktemp("moe306") / "run",
        "--variant",
        "bench",
        "--variant",
        "quick",
        "--set",
        "engine.threads=1",
        "--set",
        "design.blocks=1",
    )


@pytest.mark.slow
def test_the_quick_variant_fills_every_table_and_figure_on_the_real_engine(real: StudyData) -> None:
    found = findings("moe-306", real)
    assert set(requests_by_suite(real)) == set("ABCDF")
    assert {table.key for table in found.tables} >= {"table-2", "table-3", "table-4", "table-5", "table-6", "equations"}
    assert len(found.figures) == 6
    assert len(found.claims) == 24
    assert all(model.bytes_per_token for model in real.models)


@pytest.mark.slow
def test_eq_2_times_tau_over_gamma_is_the_measured_speedup(real: StudyData) -> None:
    rows = [row for row in equations(real) if row.line.speedup is not None]
    assert rows
    for row in rows:
        assert isinstance(row.claimed, Estimate)
        assert row.line.speedup is not None
        assert row.claimed.point * row.tau / (row.line.gamma or 0) == pytest.approx(row.line.speedup.point)
