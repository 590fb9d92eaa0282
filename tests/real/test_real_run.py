"""A whole run on the real embedded engine with the shipped cores, and what it refuses."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from specmeter.analysis.explain.experts import union_at
from specmeter.analysis.reading import read_run
from specmeter.cli import invoke
from specmeter.laboratory import run as laboratory
from specmeter.messages import Message
from specmeter.numbers import rates
from specmeter.record import Session
from specmeter.store import RunStore
from specmeter.theory.roofline import expected_union
from specmeter_studies.measured import from_run

pytestmark = pytest.mark.slow
EXPERIMENT = """
name: real
targets: {dense: bench:dense, moe: bench:moe}
drafts: {small: bench:draft-small}
workloads:
  - {source: bench, name: text, kinds: [fact, code], per_kind: 1}
  - {source: length, lengths: [48]}
arms:
  - {draft: small, gamma: 4}
  - {target: dense, method: ngram-mod+draft-simple, draft: small, gamma: 6}
design: {blocks: 2, warmup: short}
engine: {context: 1024, threads: 1}
generation: {max_tokens: 300}
"""


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("real")
    file = folder / "real.yaml"
    file.write_text(EXPERIMENT, encoding="utf-8")
    assert invoke(["run", str(file), "--out", str(folder / "run")]) == 0
    return folder / "run"


def test_counts_add_up_in_every_request(run_folder: Path) -> None:
    """The conservation law: tokens after the first = accepted + target forwards after the prompt."""
    with RunStore.open(run_folder, readonly=True) as store:
        sessions = {session.id: session for session in store.sessions()}
        requests = list(store.requests())
    assert len(requests) == 2 * 3 * 5
    for request in requests:
        assert request.reply is not None
        timings, counters = request.reply.timings, request.reply.counters
        prompt_forwards = sessions[request.session_id].prompt_forwards
        assert prompt_forwards is not None
        forwards = counters["n_decode_total"] - prompt_forwards
        assert timings.predicted_n - 1 == (timings.draft_n_accepted or 0) + forwards
        assert len(request.reply.token_ids) == timings.predicted_n == 300
        assert sum(step.drafted for step in request.reply.steps) == timings.draft_n
        assert sum(step.accepted for step in request.reply.steps) == timings.draft_n_accepted


def test_speculation_is_active_where_it_was_asked_for_and_only_there(run_folder: Path) -> None:
    with RunStore.open(run_folder, readonly=True) as store:
        for session in store.sessions():
            assert session.speculating == (not session.arm_id.endswith("/none"))
            assert session.ended_at is not None
            assert session.log_file is not None
            assert (run_folder / session.log_file).stat().st_size > 0
            assert session.engine.binary_sha256
            assert session.resolved["n_ctx"] == 1024


def test_the_machine_was_watched(run_folder: Path) -> None:
    with RunStore.open(run_folder, readonly=True) as store:
        samples = list(store.telemetry())
        (host,) = store.hosts()
    assert samples
    assert any(sample.engine_rss_bytes for sample in samples)
    assert host.logical_cores >= 1
    environment = (run_folder / "BENCHMARK_ENV.md").read_text(encoding="utf-8")
    assert "draft-small" in environment
    assert "xllamacpp" in environment


def test_lengths_are_exact_and_tau_agrees_with_the_steps(run_folder: Path) -> None:
    with RunStore.open(run_folder, readonly=True) as store:
        for request in store.requests():
            assert request.reply is not None
            if request.kind == "length-48":
                assert request.reply.timings.prompt_n == 48
            tau = rates.tau(request.reply.timings, request.reply.steps)
            assert tau is not None
            assert tau >= 1


def test_the_report_of_a_real_run(run_folder: Path) -> None:
    report = read_run(run_folder)
    assert report.state.state == "complete"
    assert report.summary.complete
    by_id = {arm.arm_id: arm for arm in report.summary.arms}
    drafted = by_id["dense/draft-simple/small/g4"]
    assert drafted.acceptance is not None
    assert 0 < drafted.acceptance.point <= 1
    assert drafted.tau is not None
    assert drafted.speedup is not None
    assert drafted.speedup.n == 2


def test_the_mixture_read_the_experts_of_its_texts(run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with RunStore.open(run_folder, readonly=True) as store:
        (routing,) = store.routing()
        certificate = store.certificate()
    assert (routing.target, routing.baseline_id, routing.failure) == ("moe", "moe/none", None)
    assert (routing.texts, routing.tokens) == (3, 900)
    assert routing.union is not None
    points = {point.tokens: point.union for point in routing.union.points}
    assert points[1].point == routing.union.used == 4
    assert 4 < points[2].point <= 8
    assert points[2].point < points[5].point < points[33].point <= 32
    assert points[5].low is not None
    for layer in routing.layers.values():
        assert 4 <= layer[1] <= 8
    assert certificate is not None
    assert "routing" in certificate.data
    assert invoke(["explain", str(run_folder)]) == 0
    out = capsys.readouterr().out
    assert "Experts that moe reads for n consecutive tokens" in out
    assert "Every draft length, replayed" in out
    assert "routing was not measured" not in out
    assert invoke(["export", str(run_folder), "--table", "routing", "--format", "jsonl"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(rows) == len(points) * (1 + len(routing.layers))
    (model,) = [it for it in from_run("moe-sd", run_folder).models if it.name == "moe"]
    assert model.union is not None
    read = union_at(model.union, 5)
    assert read is not None
    assert read == points[5]
    assert read.point < expected_union(5.0, model.union.experts, model.union.used)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("drafts.small=bench:draft-other-vocab", "llama.cpp rejects it as a draft"),
        ("drafts.small=bench:draft-other-special", "llama.cpp rejects it as a draft"),
        ("engine.context=64", "engine.context: prompt"),
        ("targets.dense=missing.gguf", "missing.gguf"),
        ("targets.dense=real.yaml", "real.yaml"),
        ("engine.extra_flags=[--foo]", "extra_flags"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_measured(
    tmp_path: Path, override: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "real.yaml"
    file.write_text(EXPERIMENT, encoding="utf-8")
    assert invoke(["run", str(file), "--out", str(tmp_path / "run"), "--set", override]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error
    if RunStore.exists(tmp_path / "run"):
        with RunStore.open(tmp_path / "run", readonly=True) as store:
            assert store.state().ok == 0


def test_where_prompts_are_read_once_all_requests_go_on_from_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = EXPERIMENT.replace("warmup: short", "warmup: prompts, session: run").replace(
        "max_tokens: 300", "max_tokens: 40"
    )
    (tmp_path / "kept.yaml").write_text(kept, encoding="utf-8")
    monkeypatch.setattr(laboratory, "kept", partial(laboratory.kept, prompts_mib=64))
    assert invoke(["run", str(tmp_path / "kept.yaml"), "--out", str(tmp_path / "run")]) == 0
    with RunStore.open(tmp_path / "run", readonly=True) as store:
        servers = {it.id: it.server for it in store.sessions()}
        rows = [row for row in store.rows() if servers[row.session_id] is not None and "moe" not in row.arm_id]
        assert rows
        assert {row.prompt_n for row in rows} == {1}
    report = read_run(tmp_path / "run")
    assert not [it for it in report.findings if it.severity == "invalid"]
    assert "server-shared.read_once" in {it.message.code for it in report.findings if isinstance(it.message, Message)}


def test_a_server_that_is_kept_serves_all_blocks_of_its_arm(tmp_path: Path) -> None:
    """Each cell is a session with a log of its own; the first of a server warms it up, and all checks hold."""
    kept = EXPERIMENT.replace("warmup: short", "warmup: brief, session: run").replace(
        "max_tokens: 300", "max_tokens: 40"
    )
    (tmp_path / "kept.yaml").write_text(kept, encoding="utf-8")
    assert invoke(["run", str(tmp_path / "kept.yaml"), "--out", str(tmp_path / "run")]) == 0
    with RunStore.open(tmp_path / "run", readonly=True) as store:
        sessions = list(store.sessions())
    servers: dict[str | None, list[Session]] = {}
    for session in sessions:
        servers.setdefault(session.server, []).append(session)
    alone = servers.pop(None)
    assert {it.arm_id for it in alone} == {it.arm_id for it in sessions if "ngram-mod" in it.arm_id}
    assert len(alone) == 2
    for first, second in servers.values():
        assert (first.arm_id, first.block, second.block) == (second.arm_id, 0, 1)
        assert first.warmup_ms > 0
        assert second.warmup_ms == 0
        assert first.log_file != second.log_file
    report = read_run(tmp_path / "run")
    assert not [it for it in report.findings if it.check in ("log-differs", "token-conservation", "times-overlap")]
    assert not [it for it in report.findings if it.severity == "invalid"]
