"""hardware-comparison: what the document printed, and machines that say either."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import stand_in_quality
from claims_of import ruled, values
from said import all_said
from specmeter.numbers.estimates import quotient, scaled
from specmeter.record import Estimate
from specmeter_studies import findings, from_claims
from specmeter_studies.library.hardware_comparison.extra import DENSE, of_machines
from specmeter_studies.library.hardware_comparison.published import published
from specmeter_studies.machines import Machine, MachineLine, MachineTable
from specmeter_studies.study import StudyData


def estimate(point: float, spread: float) -> Estimate:
    return Estimate(point=point, low=point / spread, high=point * spread, n=6, unit="tok/s", method="made up")


def machines(rates: dict[str, dict[str, float]], bandwidth: dict[str, float], spread: float = 1.01) -> StudyData:
    """Machine -> model -> tok/s, of models of 10 GB per token; bandwidths in GB/s."""
    made = tuple(
        Machine(
            name=name,
            device=name,
            hostname_sha256=name,
            bandwidth_bytes_per_s=bandwidth[name] * 1e9 if name in bandwidth else None,
            bandwidth_source="given",
        )
        for name in rates
    )
    first = next(iter(rates))
    lines: list[MachineLine] = []
    for name, models in rates.items():
        for subject, rate in models.items():
            moved = scaled(estimate(rate, spread), 10e9, "B/s")
            lines.append(
                MachineLine(
                    machine=name,
                    subject=subject,
                    test="tg128",
                    decodes=True,
                    rate=estimate(rate, spread),
                    ratio=None
                    if name == first
                    else quotient(estimate(rate, spread), estimate(rates[first][subject], spread), unit="x", method=""),
                    bytes_per_token=10e9,
                    moved_bytes_per_s=moved,
                    utilisation=scaled(moved, 1e-9 / bandwidth[name], "1") if name in bandwidth else None,
                )
            )
    return of_machines(MachineTable(what="made up", machines=made, lines=tuple(lines)))


def test_the_page_divides_gib_by_gb() -> None:
    claims = ruled(published())
    assert claims["utilisation"].ruling == "contradicted"
    shares = values(claims["utilisation"].found, "hardware-comparison.wrong")["shares"]
    names = [values(shares, "hardware-comparison.share", at=at)["name"] for at in range(3)]
    assert names == ["M2 Ultra", "M1 Max", "M2 Pro"]
    assert values(shares, "study.interval")["point"] == pytest.approx(68.8, abs=0.05)
    assert [values(shares, "study.share", at=at)["percent"] for at in (0, 1)] == pytest.approx([70.6, 82.3], abs=0.05)
    table = next(it for it in findings("hardware-comparison", published()).tables if it.key == "utilisation-printed")
    for row in table.rows:
        assert isinstance(row[1].value, float)
        assert isinstance(row[4].value, float)
        assert round(row[4].value) == row[1].value


def test_the_document_shows_a_ratio_and_not_what_it_concludes_from_it() -> None:
    claims = ruled(published())
    assert claims["machine-ratio"].ruling == "supported"
    ratios = [it.values for it in all_said(claims["machine-ratio"].found) if it.code == "study.row"]
    (ratio,) = (it["number"] for it in ratios if it["name"] == "9B_Q8")
    assert values(ratio, "study.single")["point"] == pytest.approx(3.34, abs=0.005)
    assert claims["scales-with-bandwidth"].ruling == "contradicted"
    assert claims["machine-ratio"].rests_on == claims["scales-with-bandwidth"].rests_on == "printed values"
    assert claims["memory-bound"].ruling == "contradicted"
    # One rule for values without an interval: those of a printed table count, all of them.
    assert claims["memory-bound"].rests_on == "printed values"
    shares = [it.values for it in all_said(claims["memory-bound"].found) if it.code == "hardware-comparison.on_machine"]
    assert [(it["subject"], it["machine"]) for it in shares[:2]] == [("0.8B_Q8", "M2 Ultra"), ("0.8B_Q8", "M1 Max")]
    assert values(shares[0]["share"], "study.interval")["point"] == pytest.approx(20.8, abs=0.05)


def test_published_tables_and_figures() -> None:
    found = findings("hardware-comparison", published())
    assert [(table.key, len(table.rows)) for table in found.tables] == [("machines", 20), ("utilisation-printed", 3)]
    assert {figure.key: len(figure.points) for figure in found.figures} == {"rate-by-bandwidth": 10, "utilisation": 10}


def test_machines_whose_memory_sets_the_pace() -> None:
    made = machines({"slow": {"m": 15.0}, "fast": {"m": 60.0}}, {"slow": 200, "fast": 800})
    claims = ruled(made)
    assert claims["memory-bound"].ruling == "supported"
    assert claims["scales-with-bandwidth"].ruling == "supported"
    assert {claims[name].ruling for name in ("machine-ratio", "utilisation")} == {"does not apply here"}


def test_machines_whose_memory_does_not() -> None:
    made = machines({"slow": {"m": 9.0}, "fast": {"m": 12.0}}, {"slow": 200, "fast": 800})
    claims = ruled(made)
    assert claims["memory-bound"].ruling == "contradicted"
    assert claims["scales-with-bandwidth"].ruling == "contradicted"


def test_wide_intervals_one_machine_and_unknown_memory_decide_nothing() -> None:
    wide = ruled(machines({"slow": {"m": 10.0}, "fast": {"m": 40.0}}, {"slow": 200, "fast": 800}, spread=1.5))
    assert {claim.ruling for claim in wide.values()} == {"cannot tell", "does not apply here"}
    assert wide["memory-bound"].ruling == wide["scales-with-bandwidth"].ruling == "cannot tell"
    alone = ruled(machines({"slow": {"m": 15.0}}, {"slow": 200}))
    assert alone["scales-with-bandwidth"].ruling == "cannot tell"
    unknown = ruled(machines({"slow": {"m": 15.0}, "fast": {"m": 40.0}}, {}))
    assert {claim.ruling for name, claim in unknown.items() if name != "machine-ratio"} == {"cannot tell"}


def test_the_documents_machines_can_also_be_found_right() -> None:
    rates = {"M2 Ultra": {DENSE: 0.64 * 80}, "M1 Max": {DENSE: 0.66 * 40}, "M2 Pro": {DENSE: 0.77 * 20}}
    claims = ruled(machines(rates, {"M2 Ultra": 800, "M1 Max": 400, "M2 Pro": 200}))
    assert claims["utilisation"].ruling == "supported"
    assert claims["machine-ratio"].ruling == "supported"
    other = ruled(machines({"M2 Ultra": {DENSE: 50.0}, "M2 Pro": {DENSE: 10.0}}, {"M2 Ultra": 800, "M2 Pro": 200}))
    assert other["machine-ratio"].ruling == "contradicted"


def test_the_quick_variant_is_measured_and_merged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The plan as one machine of the study."""
    from specmeter.analysis.quality import load_report
    from specmeter.cli import invoke
    from specmeter_studies.machines import from_quality

    stand_in_quality.install(monkeypatch)
    out = tmp_path / "study"
    command = ["study", "run", "hardware-comparison", "--variant", "bench", "--variant", "quick"]
    assert invoke([*command, "--set", "threads=1", "--out", str(out)]) == 0
    capsys.readouterr()
    (path,) = [file for file in out.rglob("hardware-comparison*.json") if file.name != "study.json"]
    side = from_quality(load_report(path), "here")
    assert len(side.measured) == 4 * 2
    assert invoke(["compare", "--machines", str(out), str(path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [machine["name"] for machine in found["machines"]] == ["study", "hardware-comparison"]
    assert any("one and the same machine" in difference for difference in found["differences"])


def test_published_rows_keep_the_verdict_of_the_audit() -> None:
    """What breaks a bound with assumptions is implausible, here as in every study."""
    table = published().machines
    assert table is not None
    said = {(line.subject, line.machine): line.verdict for line in table.lines if line.decodes}
    judged = list(from_claims.rulings("apple", "apple/multimodel.csv"))
    assert list(said.values()) == [from_claims.verdict_of(it)[0] for it in judged]
