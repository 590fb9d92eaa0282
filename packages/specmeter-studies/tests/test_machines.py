"""Several machines in one table: what is merged, what is refused and by which name, and what follows from bytes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from hosts import HOST
from records import ENGINE, header, identity
from specmeter.analysis.quality import ModelQuality, QualityReport, Rate, SpeedTest, TextIdentity, save_report
from specmeter.cli import invoke
from specmeter.errors import UsageError
from specmeter.numbers.stats import median_estimate
from specmeter.record import EngineSettings, Gpu, Host, ModelIdentity
from specmeter.store import RunStore
from specmeter_studies.machines import MachineSide, bandwidth_of, from_quality, from_run, merge

EXPERIMENT = """
name: compared
targets: {dense: "mock:dense"}
drafts: {small: "mock:small"}
workloads: [{source: bench, kinds: [fact, code], per_kind: PROMPTS}]
arms: [{draft: small, gamma: GAMMA}]
design: {blocks: 3}
engine: {kind: mock, context: CONTEXT, mock: {noise: 0.01, targets: {dense: {base_ms: BASE}}}}
generation: {max_tokens: TOKENS}
"""
ULTRA = HOST.model_copy(update={"hostname_sha256": "u" * 64, "cpu": "Apple M2 Ultra"})
PRO = HOST.model_copy(update={"hostname_sha256": "p" * 64, "cpu": "Apple M2 Pro"})
GENERATE, READ = SpeedTest(kind="generate", tokens=128), SpeedTest(kind="prompt", tokens=512)


@pytest.fixture(autouse=True)
def no_measured_bandwidth(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECMETER_CACHE", str(tmp_path / "cache"))


def run_on(folder: Path, name: str, host: Host, **changes: object) -> Path:
    values = {"BASE": 30, "GAMMA": 4, "PROMPTS": 1, "TOKENS": 24, "CONTEXT": 1024} | changes
    text = EXPERIMENT
    for key, value in values.items():
        text = text.replace(key, str(value))
    file = folder / f"{name}.yaml"
    file.write_text(text, encoding="utf-8")
    assert invoke(["run", str(file), "--out", str(folder / name)]) in (0, 1)
    with RunStore.open(folder / name) as store:
        # Begun anew, so that the run was measured there from the beginning; then certified as such.
        store.begin(0.0)
        store.set_host(host)
        store.end(1.0, interrupted=False, reason=None)
    assert invoke(["check", str(folder / name)]) in (0, 1)
    return folder / name


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("machines")
    return {
        "ultra": run_on(folder, "ultra", ULTRA),
        "pro": run_on(folder, "pro", PRO),
        "longer": run_on(folder, "longer", PRO, TOKENS=32),
        "more": run_on(folder, "more", PRO, PROMPTS=2),
        "wider": run_on(folder, "wider", PRO, CONTEXT=2048),
        "other-model": run_on(folder, "other-model", PRO, BASE=31),
    }


def model(name: str, size: int = 1000, *, sha: str = "", experts: int = 0, active: int | None = None) -> ModelIdentity:
    of = header(experts=experts, experts_used=min(experts, 1), bytes_per_token=active or size)
    return identity(name, size, reference=f"/here/{name}", sha256=sha or name[0] * 64, header=of)


def rated(test: SpeedTest, rate: float) -> Rate:
    ms = [1000 * test.tokens / (rate * slower) for slower in (0.99, 0.995, 1.0, 1.0, 1.005, 1.01)]
    rates = [1000 * test.tokens / it for it in ms]
    return Rate(test=test, rate=median_estimate(rates, unit="tok/s", of="blocks"), ms=tuple(ms))


def report(host: Host, *models: tuple[ModelIdentity, float], tests: Sequence[SpeedTest] = (GENERATE,)) -> QualityReport:
    return QualityReport(
        made_at=1.7e9,
        complete=True,
        host=host,
        settings=EngineSettings(),
        stride=0,
        text=TextIdentity(name="t", sha256="t" * 64, size_bytes=1, bundled=True),
        models=tuple(
            ModelQuality(
                model=identity,
                bits_per_weight=8.0,
                rates=tuple(rated(test, rate) for test in tests),
                rates_engine=ENGINE,
            )
            for identity, rate in models
        ),
        plan="three",
    )


def sides(*reports: QualityReport) -> list[MachineSide]:
    return [from_quality(made, name) for made, name in zip(reports, ("ultra", "pro", "max"), strict=False)]


# --- rates and memory -------------------------------------------------------------------------------------------------


def test_utilisation_is_bytes_per_token_times_rate_over_the_peak() -> None:
    large = model("large", 12_974_040_288)
    table = merge(sides(report(ULTRA, (large, 42.4)), report(PRO, (large, 12.7))))
    ultra, pro = table.of("large", "tg128")
    assert table.machines[0].bandwidth_bytes_per_s == 819.2e9
    assert "M2 Ultra, by the catalogue" in table.machines[0].bandwidth_source
    assert ultra.moved_bytes_per_s is not None
    assert ultra.moved_bytes_per_s.point == pytest.approx(12_974_040_288 * 42.4, rel=1e-3)
    assert ultra.utilisation is not None
    assert ultra.utilisation.point == pytest.approx(12_974_040_288 * 42.4 / 819.2e9, rel=1e-3)
    assert ultra.ratio is None
    assert pro.ratio is not None
    assert pro.ratio.point == pytest.approx(12.7 / 42.4, rel=1e-3)
    assert pro.ratio.low is not None
    assert pro.ratio.low < pro.ratio.point


def test_a_mixture_moves_its_chosen_experts_only() -> None:
    mixture = model("moe", 36_000_000_000, experts=256, active=3_000_000_000)
    table = merge(sides(report(ULTRA, (mixture, 50.0)), report(PRO, (mixture, 20.0))), {"ultra": 800e9})
    (line, _) = table.of("moe", "tg128")
    assert line.utilisation is not None
    assert line.utilisation.point == pytest.approx(0.1875, rel=1e-3)


def test_reading_prompts_has_no_utilisation() -> None:
    large = model("large")
    table = merge(sides(report(ULTRA, (large, 900.0), tests=[READ]), report(PRO, (large, 300.0), tests=[READ])))
    assert all(line.utilisation is None and line.rate is not None for line in table.lines)


def test_a_model_that_did_not_fit_is_missing_and_the_others_are_compared() -> None:
    small, large = model("small"), model("large", 2000)
    table = merge(sides(report(ULTRA, (small, 9.0), (large, 5.0)), report(PRO, (small, 3.0))))
    missing = table.of("large", "tg128")[1]
    assert missing.rate is None
    assert missing.ratio is None
    assert table.of("small", "tg128")[1].ratio is not None


def test_bandwidth_is_given_named_or_openly_unknown() -> None:
    large = model("large")
    both = sides(report(ULTRA, (large, 9.0)), report(HOST, (large, 3.0)))
    assert [it.bandwidth_bytes_per_s for it in merge(both).machines] == [819.2e9, None]
    named = merge(both, {"ultra": 800e9, "pro": "M2 Pro"})
    assert [it.bandwidth_bytes_per_s for it in named.machines] == [800e9, 204.8e9]
    with pytest.raises(UsageError, match="no such machine"):
        merge(both, {"elsewhere": 1e9})
    with pytest.raises(UsageError, match="is not in the catalogue"):
        merge(both, {"pro": "Abacus 3000"})


def test_bandwidth_of_a_gpu_is_that_of_the_gpu() -> None:
    host = HOST.model_copy(update={"gpus": (Gpu(index=0, name="NVIDIA GeForce RTX 3090", vendor="NVIDIA"),)})
    assert bandwidth_of(host, on_gpu=True)[0] == pytest.approx(936e9, rel=0.01)
    assert bandwidth_of(host, on_gpu=False)[0] is None


# --- what is refused --------------------------------------------------------------------------------------------------


def test_unlike_reports_are_refused_by_name() -> None:
    first = report(ULTRA, (model("large"), 9.0))
    with pytest.raises(UsageError, match=r"model large: 1000 bytes, SHA-256 l{16} and 1000 bytes, SHA-256 z{16}"):
        merge(sides(first, report(PRO, (model("large", sha="z" * 64), 3.0))))
    with pytest.raises(UsageError, match="tests: tg128 and pp512"):
        merge(sides(first, report(PRO, (model("large"), 3.0), tests=[READ])))
    other_text = report(PRO, (model("large"), 3.0)).model_copy(
        update={"text": TextIdentity(name="u", sha256="u" * 64, size_bytes=1, bundled=False)}
    )
    with pytest.raises(UsageError, match=r"text: t{16} and u{16}"):
        merge(sides(first, other_text))
    with pytest.raises(UsageError, match="nothing in common"):
        merge(sides(first, report(PRO, (model("small"), 3.0))))
    other_plan = report(PRO, (model("large"), 3.0)).model_copy(update={"plan": "four"})
    with pytest.raises(UsageError, match="plan three and four"):
        merge(sides(first, other_plan))


def test_unlike_runs_are_refused_by_name(runs: dict[str, Path]) -> None:
    def refused(name: str) -> str:
        with pytest.raises(UsageError) as caught:
            merge([from_run(runs["ultra"], "ultra"), from_run(runs[name], name)])
        return caught.value.message

    assert "generation.max_tokens: 24 and 32" in refused("longer")
    assert "prompt bench/" in refused("more")
    assert "context of dense/none: 1024 and 2048" in refused("wider")
    assert "model dense" in refused("other-model")


def test_a_run_and_a_report_are_refused(runs: dict[str, Path]) -> None:
    with pytest.raises(UsageError, match="one is a run, the other a quality report"):
        merge([from_run(runs["ultra"], "ultra"), from_quality(report(PRO, (model("large"), 1.0)), "pro")])


# --- runs and the command ---------------------------------------------------------------------------------------------


def test_runs_of_two_machines_become_one_table(runs: dict[str, Path]) -> None:
    table = merge([from_run(runs[name], name) for name in ("ultra", "pro")])
    assert [machine.device for machine in table.machines] == ["Apple M2 Ultra", "Apple M2 Pro"]
    plain = table.of("dense/none", "decode")
    assert [line.machine for line in plain] == ["ultra", "pro"]
    assert plain[1].ratio is not None
    assert plain[1].ratio.point == pytest.approx(1.0, abs=0.05)
    drafted = table.of("dense/draft-simple/small/g4", "decode")
    assert all(line.speculates and line.speedup is not None and line.utilisation is None for line in drafted)
    assert any("device" in difference for difference in table.differences)


def test_runs_of_one_machine_are_told(runs: dict[str, Path]) -> None:
    table = merge([from_run(runs["ultra"], "a"), from_run(runs["ultra"], "b")])
    assert table.differences[0] == "a and b were made on one and the same machine"


def test_the_command(runs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "machines.html"
    names = [str(runs["ultra"]), str(runs["pro"])]
    assert invoke(["compare", "--machines", *names, "--html", str(page), "--bandwidth", "pro=200"]) == 0
    shown = capsys.readouterr().out
    assert "Apple M2 Pro, 200.0 GB/s (given)" in shown
    assert "dense/none" in shown
    text = page.read_text(encoding="utf-8")
    assert "Token generation is bound by memory" in text
    assert invoke(["compare", "--machines", *names, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [machine["name"] for machine in found["machines"]] == ["ultra", "pro"]


def test_the_command_reads_reports_of_one_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files: list[str] = []
    for place, host, rate in (("a", ULTRA, 9.0), ("b", PRO, 3.0)):
        (tmp_path / place).mkdir()
        path = tmp_path / place / "three.json"
        save_report(report(host, (model("large"), rate)), path)
        files.append(str(path))
    assert invoke(["compare", "--machines", *files, "--bandwidth", f"{files[1]}=M2 Pro", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [machine["name"] for machine in found["machines"]] == ["a/three", "b/three"]
    assert found["machines"][1]["bandwidth_bytes_per_s"] == 204.8e9


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--bandwidth", "pro=200"], "only with --machines"),
        (["--machines", "--bandwidth", "200"], "not a run and a bandwidth"),
        (["--machines", "--bandwidth", "pro=-1"], "not a bandwidth in GB/s"),
        (["--machines", "--bandwidth", "other=200"], "no such machine"),
    ],
)
def test_flags_that_cannot_be(
    runs: dict[str, Path], arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(["compare", str(runs["ultra"]), str(runs["pro"]), *arguments]) == 2
    assert said in " ".join(capsys.readouterr().err.split())


def test_unlike_runs_end_with_two_and_reports_need_the_flag(
    runs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(["compare", "--machines", str(runs["ultra"]), str(runs["longer"])]) == 2
    assert "generation.max_tokens" in " ".join(capsys.readouterr().err.split())
    path = tmp_path / "report.json"
    save_report(report(ULTRA, (model("large"), 1.0)), path)
    assert invoke(["compare", str(path), str(path)]) == 2
    assert "add --machines" in " ".join(capsys.readouterr().err.split())
