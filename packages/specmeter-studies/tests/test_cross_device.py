"""cross-device: what the document's numbers say of its claims, both directions of each claim, and a run of its own."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from claims_of import rulings, said, values
from engines.llama_fixtures import NO_NATIVE, native
from engines.rpc.far_machine import far_machine, missing
from specmeter.cli import invoke
from specmeter.engines.llama_cpp.relay import relayed
from specmeter.experiments.file import load
from specmeter.messages import Message
from specmeter.record import Estimate, Verdict, network_of
from specmeter_studies import findings
from specmeter_studies.folder import StudyFolder
from specmeter_studies.library.cross_device.costs import WITHDRAWN, backends
from specmeter_studies.library.cross_device.extra import acceptance, needs
from specmeter_studies.library.cross_device.published import published
from specmeter_studies.study import ArmResult, DraftPlace, ModelUsed, PromptResult, RulingWord, StudyData

VOCABULARY = 1000
OUTPUT = 4 * VOCABULARY + 8
DRAFTED, FORWARDS = 1000, 1300
WHY_NOT = missing()


# --- the document's numbers ------------------------------------------------------------------------------------------


def test_what_the_published_numbers_say_of_each_claim() -> None:
    assert rulings(published()) == {
        "reduction": "cannot tell",
        "overhead-per-token": "contradicted",
        "per-operation-calls": "contradicted",
        "not-bandwidth": "cannot tell",
        "first-runs-local": "supported",  # logs of all four runs that finished
        "acceptance-tells": "cannot tell",
        "not-viable": "cannot tell",
    }


@pytest.mark.parametrize(
    ("claim", "code", "numbers"),
    [
        ("reduction", "study.some_of", {"number": 2, "of": 2}),
        ("overhead-per-token", "cross-device.printed", {"name": "M1 Max", "drafting": 62.5, "alone": 11.5}),
        ("overhead-per-token", "study.single", {"point": 51.0}),
        ("overhead-per-token", "cross-device.against", {"name": "M1 Max", "prompt": "code"}),
        (
            "not-bandwidth",
            "cross-device.least_bytes",
            {"vocabulary": 248320, "mb": 0.99, "least": 7.95},
        ),
        (
            "first-runs-local",
            "cross-device.held",
            {"by": "Failed to connect to the remote machine: the draft ran locally"},
        ),
        ("first-runs-local", "cross-device.rate", {"name": "M1 Max"}),
        ("acceptance-tells", "cross-device.second_runs", {"equal": 3, "compared": 3}),
        ("acceptance-tells", "study.share", {"percent": 40.2}),
    ],
)
def test_the_numbers_that_published_rulings_rest_on(claim: str, code: str, numbers: dict[str, Any]) -> None:
    held = values(said(published(), claim), code)
    for name, number in numbers.items():
        assert held[name] == (number if isinstance(number, str | int) else pytest.approx(number, rel=5e-3)), name


def test_the_documents_table_from_the_documents_numbers() -> None:
    summary, withdrawn = findings("cross-device", published()).tables
    rates = [cell.value.point for cell in (row[1] for row in summary.rows) if isinstance(cell.value, Estimate)]
    assert [round(rate, 1) for rate in rates] == [53.8, 11.2, 9.4]
    assert [round(row[2].value.point - 1, 3) for row in summary.rows[1:] if isinstance(row[2].value, Estimate)] == [
        -0.792,
        -0.826,
    ]
    assert all(row[2].struck for row in summary.rows[1:]), "they are compared with impossible runs"
    assert [row[5].value for row in summary.rows] == [None, 86.62, 62.94]
    assert len(withdrawn.rows) == 9
    assert sum(row[2].text == Message("failed") and row[2].value is None for row in withdrawn.rows) == 2


# --- data that says something ----------------------------------------------------------------------------------------


def study(
    ratio: float = 0.2,
    local_ms: float = 7.0,
    remote_ms: float = 61.0,
    *,
    speedup: float = 0.5,
    acceptance: float = 0.5,
    received: float = FORWARDS * OUTPUT,
    sent: float = 30_000.0 * DRAFTED,
    noise: float = 0.001,
    held_by: tuple[str, ...] = ("RPC0[far:1]",),
    verdict: Verdict = "valid",
) -> StudyData:
    """Five blocks of two prompts: a local draft, and one elsewhere with `ratio` of its rate."""
    spread = [1 + noise * (block - 2) for block in range(5)]
    arms = [line("local", 1.0, "valid"), line("remote1", speedup, verdict)]
    rows = [
        PromptResult(
            config=f"t/{name}",
            target="t",
            draft="d",
            method="draft-simple",
            prompt=prompt,
            repeat=block,
            decode_rate=rate * (spread[block] if name == "remote1" else 1.0),
            acceptance=0.5 if name == "local" else acceptance,
        )
        for name, rate in (("local", 100.0), ("remote1", 100.0 * ratio))
        for prompt in ("code", "fact")
        for block in range(5)
    ]
    places = (
        DraftPlace(config="t/local", held_by=("CPU",), block_ms=(local_ms,) * 5),
        DraftPlace(
            config="t/remote1",
            machine="far:1",
            held_by=held_by,
            block_ms=tuple(remote_ms * factor for factor in spread),
            drafted=DRAFTED,
            forwards=FORWARDS,
            sent_bytes=sent,
            received_bytes=received,
            vocabulary=VOCABULARY,
        ),
    )
    return StudyData(
        study="cross-device", origin="measured", title="made up", results=tuple(rows), arms=tuple(arms), places=places
    )


def line(name: str, speedup: float, verdict: Verdict, suite: str = "") -> ArmResult:
    told = Estimate(point=speedup, low=0.98 * speedup, high=1.02 * speedup, level=0.95, n=5, unit="x", method="made up")
    return ArmResult(
        config=f"t/{name}",
        suite=suite,
        target="t",
        draft="d",
        method="draft-simple",
        gamma=4,
        requests=10,
        speedup=None if verdict == "invalid" else told,
        verdict=verdict,
        why=Message("made up") if verdict == "invalid" else None,
    )


@pytest.mark.parametrize(
    ("claim", "data", "ruling"),
    [
        ("reduction", study(0.19), "supported"),
        ("reduction", study(0.6), "contradicted"),
        ("reduction", study(0.19, noise=0.3), "cannot tell"),
        ("overhead-per-token", study(remote_ms=61.0), "supported"),
        ("overhead-per-token", study(remote_ms=9.0), "contradicted"),
        ("overhead-per-token", study(remote_ms=61.0, noise=0.2), "cannot tell"),
        ("per-operation-calls", study(), "contradicted"),
        ("per-operation-calls", study(received=FORWARDS * OUTPUT + 8 * 200 * DRAFTED), "cannot tell"),
        ("not-bandwidth", study(), "supported"),
        ("not-bandwidth", study(remote_ms=7.5), "contradicted"),
        ("not-bandwidth", study(remote_ms=8.0), "cannot tell"),
        ("acceptance-tells", study(), "contradicted"),
        ("acceptance-tells", study(acceptance=0.4), "supported"),
        ("acceptance-tells", study(held_by=("CPU",)), "cannot tell"),
        ("not-viable", study(), "supported"),
        ("not-viable", study(speedup=1.2), "contradicted"),
        ("not-viable", study(speedup=1.01), "cannot tell"),
    ],
)
def test_claims_follow_the_data(claim: str, data: StudyData, ruling: RulingWord) -> None:
    assert rulings(data)[claim] == ruling, said(data, claim)


def test_an_invalid_arm_supports_nothing() -> None:
    ruled = rulings(study(verdict="invalid"))
    # The withdrawn first runs are the document's own.
    assert {name for name, ruling in ruled.items() if ruling == "does not apply here"} == {"first-runs-local"}
    assert set(ruled.values()) == {"cannot tell", "does not apply here"}


def test_what_is_said_of_named_machines_does_not_apply_to_bench_models() -> None:
    bench = replace(study(0.6), models=(ModelUsed(name="t", reference="bench:t", stand_in=True),))
    ruled = rulings(bench)
    assert {name for name, ruling in ruled.items() if ruling == "does not apply here"} == {
        "reduction", "overhead-per-token", "first-runs-local",
    }  # fmt: skip
    assert values(said(bench, "reduction"), "cross-device.less")["less"] == pytest.approx(0.4, abs=1e-3)
    assert ruled["acceptance-tells"] == "contradicted"


@pytest.mark.parametrize(
    ("held_by", "ruling"),
    [(("Failed to connect",), "supported"), (("RPC0[far:1]",), "contradicted"), ((), "cannot tell")],
)
def test_first_runs_are_judged_by_their_logs(held_by: tuple[str, ...], ruling: RulingWord) -> None:
    arms = (line("local (first)", 1.0, "invalid", WITHDRAWN), line("far (first)", 1.0, "invalid", WITHDRAWN))
    places = (
        DraftPlace(config="t/local (first)"),
        DraftPlace(config="t/far (first)", machine="far", held_by=held_by),
    )
    data = StudyData(study="cross-device", origin="published", title="made up", arms=arms, places=places)
    assert rulings(data)["first-runs-local"] == ruling


def test_a_log_of_one_run_says_nothing_of_the_others() -> None:
    arms = tuple(line(f"{name} (first)", 1.0, "invalid", WITHDRAWN) for name in ("local", "far", "farther"))
    places = (
        DraftPlace(config="t/local (first)"),
        DraftPlace(config="t/far (first)", machine="far", held_by=("Failed to connect",)),
        DraftPlace(config="t/farther (first)", machine="farther"),
    )
    rows = tuple(
        PromptResult(config=f"t/{name} (first)", target="t", prompt="code", decode_rate=9.0)
        for name in ("far", "farther")
    )
    data = StudyData(study="cross-device", origin="published", title="made up", arms=arms, places=places, results=rows)
    assert rulings(data)["first-runs-local"] == "cannot tell"
    assert rulings(replace(data, results=rows[:1]))["first-runs-local"] == "supported"


def test_marks_of_rates_are_what_their_rows_are() -> None:
    figure = next(it for it in findings("cross-device", published()).figures if it.key == "rates")
    marks = {(point.x, point.series): point.verdict for point in figure.points}
    assert {place for (place, prompt), mark in marks.items() if mark == "invalid"} == {"local", "M1 Max", "M2 Pro"}
    assert {prompt for (_, prompt), mark in marks.items() if mark == "invalid"} == {"math"}
    assert sum(mark is None for mark in marks.values()) == 2


def test_tables_and_figures_of_measured_data() -> None:
    told = findings("cross-device", study())
    assert [table.key for table in told.tables] == ["table-1", "where"]
    assert [figure.key for figure in told.figures] == ["rates", "drafting"]
    (_, remote) = told.tables[1].rows
    assert [cell.value for cell in remote[3:5]] == [30.0, FORWARDS * OUTPUT / DRAFTED / 1e3]


# --- runs of our own -------------------------------------------------------------------------------------------------

SHORT = ["--set", "design.probe=off", "--set", "generation.max_tokens=16", "--set", "engine.threads=1"]


def test_the_complete_design_has_the_documents_nine_requests() -> None:
    experiment = load("cross-device", variants=["faithful"]).experiment
    arms = [arm for arm in experiment.expand() if arm.speculates]
    assert [arm.id for arm in arms] == ["9B_Q8/local", "9B_Q8/remote1", "9B_Q8/remote2"]
    assert {arm.baseline_id for arm in arms} == {"9B_Q8/none"}
    prompts = sum(len(workload.kinds or ()) for workload in experiment.workloads)  # pyright: ignore[reportAttributeAccessIssue]
    assert len(arms) * prompts * experiment.design.blocks == 9


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ([], "the embedded engine has no RPC"),
        (["engine.kind=native", "remotes.remote1=relay:1ms"], "/nowhere/llama-server"),
        (["engine.kind=native"], "no address is given"),
        (["engine.kind=native", "remotes.remote1=127.0.0.1:1"], "127.0.0.1:1"),
    ],
)
def test_what_keeps_remote_arms_away(changes: list[str], says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECMETER_LLAMA_SERVER", "/nowhere/llama-server")
    loaded = load("cross-device", changes, variants=["bench"])
    told = needs("cross-device", loaded, loaded.experiment.expand())
    assert set(told) == {"9B_Q8/remote1", "9B_Q8/remote2"}
    expected = "/nowhere/llama-server" if "127.0.0.1" in says else says  # the binary is looked for first
    assert expected in str(told["9B_Q8/remote1"])


def test_without_remote_machines_the_local_draft_is_measured(tmp_path: Path) -> None:
    order = ["study", "run", "cross-device", "--variant", "bench", "--variant", "quick", *SHORT]
    assert invoke([*order, "--set", "design.blocks=1", "--out", str(tmp_path / "s")]) == 0
    data = StudyFolder(tmp_path / "s").data()
    assert {row.config for row in data.results} == {"9B_Q8/none", "9B_Q8/local"}
    assert [place.config for place in data.places] == ["9B_Q8/local"]
    skipped = {ran.part.rpartition("/")[2]: ran.reason for ran in data.parts if ran.status == "skipped"}
    assert set(skipped) == {"remote1", "remote2"}
    assert set(rulings(data).values()) == {"cannot tell", "does not apply here"}


@pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT))
def test_with_remote_machines_it_is_told_where_drafts_ran(tmp_path: Path) -> None:
    with far_machine(tmp_path) as far, relayed(far, latency_s=0.001) as near, relayed(far, latency_s=0.004) as slow:
        order = ["study", "run", "cross-device", "--variant", "bench", "--variant", "quick", "--variant", "rpc"]
        order += ["--set", f"remotes.remote1={near.address}", "--set", f"remotes.remote2={slow.address}", *SHORT]
        assert invoke([*order, "--out", str(tmp_path / "s")]) == 0
    data = StudyFolder(tmp_path / "s").data()
    local, first, second = backends(data)
    assert not local.proven
    for backend, address in ((first, near.address), (second, slow.address)):
        assert backend.proven
        assert backend.place.machine == address
        assert any(device == f"RPC0[{address}]" for device in backend.place.held_by)
        assert backend.same_acceptance() == (6, 6)
        assert backend.bytes_per_token is not None
        # An output of 2048 numbers comes back for each drafted token, and for each forward of the target.
        assert backend.bytes_per_token[1] > 4 * 2048
    # Not as the study rules: beside other programs all of it is in doubt.
    assert acceptance(data)[0] == "contradicted"
    # Each drafted token waits for one round trip at least.
    assert min(second.place.block_ms) > 2 * 4.0
    report = json.loads((tmp_path / "s" / "study.json").read_text(encoding="utf-8"))
    assert all(not part["left_out"] for part in report["parts"])


@pytest.mark.slow
@pytest.mark.skipif(native("ggml-rpc-server") is None, reason=NO_NATIVE)
def test_relays_make_other_machines_of_this_one_and_a_latency_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The whole by one command, without root and without another machine; then the model by the next one."""
    order = ["study", "run", "cross-device", "--variant", "bench", "--variant", "quick", "--variant", "relay"]
    order += SHORT
    assert invoke([*order, "--out", str(tmp_path / "s")]) == 0
    data = StudyFolder(tmp_path / "s").data()
    local, *remote = backends(data)
    assert [backend.name for backend in remote] == ["remote1", "remote2", "far", "narrow"]
    assert not local.proven
    for backend in remote:
        assert backend.line.verdict != "invalid", backend.line.why
        assert f"RPC0[{backend.place.machine}]" in backend.place.held_by, "by the relay, not by each session's port"
        if sys.platform == "linux":  # elsewhere no bytes are counted
            assert backend.proven
        # Each drafted token waits for one round trip at least.
        network = network_of(backend.place.machine)
        assert network is not None
        assert min(backend.place.block_ms) > network.rtt_ms
        assert backend.same_acceptance() == (6, 6)
    assert "networks" in [table.key for table in findings("cross-device", data).tables]
    capsys.readouterr()
    assert invoke(["study", "latency", str(tmp_path / "s"), "--rtt", "1,100", "--bandwidth", "1000", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["measured"]
    assert told["model"]["round_trips"]["point"] > 0
    assert told["bytes_fitted"]
    near, far = told["forecasts"]
    assert (near["extrapolated"], far["extrapolated"]) == (False, True)
    assert far["speedup"]["point"] < near["speedup"]["point"]
    assert [end["than"] for end in told["faster_below"]] == ["plain decoding", "drafting on this machine"]
