"""A whole run whose energy is read: a counter of files that counts like a processor, everything behind it real."""

from __future__ import annotations

import csv
import json
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from specmeter.analysis.reading import read_run
from specmeter.cli import invoke
from specmeter.host import energy
from specmeter.host.ask import read_int
from specmeter.host.energy import EnergySources, find_sources
from specmeter.store import RunStore
from specmeter.store.integrity import hash_data

EXPERIMENT = """
name: metered
targets: {dense: bench:dense}
drafts: {small: bench:draft-small}
workloads: [{source: bench, name: text, kinds: [fact, code], per_kind: 1}]
arms: [{draft: small, gamma: 4}]
design: {blocks: 2, warmup: short}
engine: {context: 512, threads: 1}
generation: {max_tokens: 64}
"""
WATTS = 30.0


@pytest.fixture(scope="module")
def counting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A tree of /sys with one package that draws 30 W for as long as the tests run, and begins again every 20 s.

    It counts when it is read, as the real one does: a thread that wrote would lag behind on a busy machine.
    """
    root = tmp_path_factory.mktemp("sysfs")
    zone = root / "sys/class/powercap/intel-rapl:0"
    zone.mkdir(parents=True)
    (zone / "name").write_text("package-0\n")
    (zone / "energy_uj").write_text("0\n")
    (zone / "max_energy_range_uj").write_text(f"{round(WATTS * 20e6)}\n")
    start = time.monotonic()

    def count(path: Path) -> int | None:
        if path != zone / "energy_uj":
            return read_int(path)
        return round((time.monotonic() - start) * WATTS * 1e6) % round(WATTS * 20e6)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(energy, "read_int", count)
        yield root


@pytest.fixture(scope="module")
def run_folder(counting: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("metered")
    file = folder / "metered.yaml"
    file.write_text(EXPERIMENT, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(energy, "find_sources", lambda: find_sources(counting))
        patch.setattr(energy, "IDLE_S", 2.0)  # half a second may pass without a look at the counter on a busy machine
        assert invoke(["run", str(file), "--out", str(folder / "run")]) in (0, 1)
    return folder / "run"


def test_joules_are_power_times_time(run_folder: Path) -> None:
    report = read_run(run_folder)
    base, arm = report.summary.arms
    for summary in (base, arm):
        assert summary.energy is not None
        assert summary.energy.sources == ("package-0",)
        assert summary.energy.requests == summary.energy.requests_ok == 4
        assert summary.energy.power_w == pytest.approx(WATTS, rel=0.15)
        assert summary.energy.idle_w == pytest.approx(WATTS, rel=0.15)
    with RunStore.open(run_folder, readonly=True) as store:
        rows = {row.key: row for row in store.rows()}
        for used in store.energies():
            row = rows[used.invocation, used.block, used.arm_id, used.prompt_id]  # type: ignore[index]
            assert used.seconds >= (row.wall_ms or 0) / 1000 * 0.99
            assert used.joules["package-0"] == pytest.approx(WATTS * used.seconds, abs=WATTS * 0.1)
            assert used.prompt_j == pytest.approx(WATTS * (row.ttft_ms or 0) / 1000, abs=WATTS * 0.1)
    assert arm.energy is not None
    assert arm.energy.decoding is not None
    assert arm.energy.per_token is not None
    assert arm.energy.decoding.point < arm.energy.per_token.point
    assert arm.energy.ratio_decoding is not None


def test_every_view_has_them(run_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["show", str(run_folder), "--details"]) in (0, 1)
    shown = capsys.readouterr().out
    assert "J/token" in shown
    assert invoke(["show", str(run_folder), "--json"]) in (0, 1)
    told = json.loads(capsys.readouterr().out)["summary"]["arms"][1]["energy"]
    assert told["ratio"]["of"] == "blocks"
    out = tmp_path / "energy.csv"
    assert invoke(["export", str(run_folder), "--table", "energy", "--out", str(out)]) == 0
    rows = list(csv.DictReader(out.read_text(encoding="utf-8").splitlines()))
    assert len(rows) == 8
    assert float(rows[0]["j_per_token"]) == pytest.approx(float(rows[0]["energy_j"]) / 64)
    assert json.loads(rows[0]["joules"]).keys() == {"package-0"}
    assert invoke(["report", str(run_folder), "--out", str(tmp_path / "page.html")]) in (0, 1)
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "Memory of draft models" in page
    assert "energy read" in (run_folder / "BENCHMARK_ENV.md").read_text(encoding="utf-8")


def test_they_are_certified(run_folder: Path) -> None:
    with RunStore.open(run_folder, readonly=True) as store:
        certificate = store.certificate()
        assert certificate is not None
        assert certificate.data["energy"] == hash_data(store)["energy"]
        assert "energy-read" in {outcome.check for outcome in certificate.checks}


def test_a_run_with_nothing_left_to_measure_does_not_wait_at_rest(
    run_folder: Path, tmp_path: Path, counting: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped after its last request, before it was checked."""
    folder = shutil.copytree(run_folder, tmp_path / "stopped")
    with closing(sqlite3.connect(folder / "run.sqlite")) as db:
        db.execute("DELETE FROM certificate")
        db.commit()
    monkeypatch.setattr(energy, "find_sources", lambda: find_sources(counting))
    monkeypatch.setattr(energy.EnergyMeter, "at_rest", lambda _: pytest.fail("waited"))
    assert invoke(["run", str(run_folder.parent / "metered.yaml"), "--out", str(folder)]) in (0, 1)
    with RunStore.open(folder, readonly=True) as store:
        assert store.certificate() is not None
    assert read_run(folder).summary.arms[1].energy == read_run(run_folder).summary.arms[1].energy


@pytest.mark.slow
def test_a_machine_without_counters_measures_as_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(energy, "find_sources", lambda: EnergySources(unread=("no counter here",)))
    file = tmp_path / "metered.yaml"
    file.write_text(EXPERIMENT.replace("blocks: 2", "blocks: 1"), encoding="utf-8")
    assert invoke(["run", str(file), "--out", str(tmp_path / "run")]) in (0, 1)
    assert [arm.energy for arm in read_run(tmp_path / "run").summary.arms] == [None, None]
    with RunStore.open(tmp_path / "run", readonly=True) as store:
        assert [host.power_meter.unread for host in store.hosts() if host.power_meter] == [("no counter here",)]
