"""A draft on another machine, for real: a second network namespace behind a relay that makes the network slow."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from engines.llama_fixtures import arm, greedy, launch, prompt
from engines.rpc.far_machine import far_machine, missing
from specmeter.analysis.reading import RunReport, read_run
from specmeter.cli import invoke
from specmeter.engines.llama_cpp.engine import NativeEngine
from specmeter.engines.llama_cpp.relay import relayed
from specmeter.engines.traffic import RECEIVED, SENT
from specmeter.errors import EngineStartError
from specmeter.record import EngineSettings, Reply, Session
from specmeter.store import RunStore

WHY_NOT = missing()
pytestmark = pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT))

LOCAL, REMOTE, FALLBACK = "dense/here", "dense/there", "dense/asked-for-there"
LATENCY_S = 0.002
GAMMA = 4


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, int]]:
    with far_machine(tmp_path_factory.mktemp("far")) as where:
        yield where


@pytest.fixture(scope="module")
def run_folder(remote: tuple[str, int], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One draft model in three arms: here, there, and there by name while its layers stay here."""
    folder = tmp_path_factory.mktemp("run")
    with relayed(remote, latency_s=LATENCY_S) as relay:
        there = {"rpc": [relay.address], "draft_devices": ["RPC0"]}
        asked = {
            "name": "remote",
            "targets": {"dense": "bench:dense"},
            "drafts": {"small": "bench:draft-small"},
            "workloads": [{"source": "bench", "name": "text", "kinds": ["fact", "code"], "per_kind": 1}],
            "arms": [
                {"name": "here", "draft": "small", "gamma": GAMMA},
                {"name": "there", "draft": "small", "gamma": GAMMA, "engine": there},
                {
                    "name": "asked-for-there",
                    "draft": "small",
                    "gamma": GAMMA,
                    "engine": there | {"draft_gpu_layers": 0},
                },
            ],
            "design": {"blocks": 2, "warmup": "short"},
            "engine": {"kind": "native", "context": 512, "threads": 1},
            "generation": {"max_tokens": 40},
        }
        file = folder / "remote.yaml"
        file.write_text(yaml.safe_dump(asked), encoding="utf-8")
        assert invoke(["run", str(file), "--out", str(folder / "run")]) == 1, "one arm is invalid"
    return folder / "run"


@pytest.fixture(scope="module")
def report(run_folder: Path) -> RunReport:
    return read_run(run_folder)


@pytest.fixture(scope="module")
def replies(run_folder: Path) -> dict[str, dict[tuple[int, str], Reply]]:
    """Arm id -> (block, prompt) -> reply."""
    found: dict[str, dict[tuple[int, str], Reply]] = defaultdict(dict)
    with RunStore.open(run_folder, readonly=True) as store:
        for request in store.requests():
            assert request.reply is not None
            found[request.arm_id][request.block, request.prompt_id] = request.reply
    return found


@pytest.fixture(scope="module")
def sessions(run_folder: Path) -> dict[str, Session]:
    with RunStore.open(run_folder, readonly=True) as store:
        return {session.arm_id: session for session in store.sessions()}


def holding(session: Session, *, draft: bool) -> set[str]:
    uses = session.draft_devices if draft else session.devices
    return {use.device for use in uses if use.model_buffer_bytes}


def test_the_draft_lay_there_and_the_target_stayed_here(sessions: dict[str, Session]) -> None:
    (address,) = {part.partition(":")[2] for part in sessions[REMOTE].argv if part.startswith("127.0.0.1:")}
    assert any(device == f"RPC0[127.0.0.1:{address}]" for device in holding(sessions[REMOTE], draft=True))
    for session in sessions.values():
        assert not any(device.startswith("RPC") for device in holding(session, draft=False))
    for arm_id in (LOCAL, FALLBACK):
        assert not any(device.startswith("RPC") for device in holding(sessions[arm_id], draft=True))


def test_every_drafted_token_crossed_the_network(replies: dict[str, dict[tuple[int, str], Reply]]) -> None:
    """The draft's output for each token comes back whole: four bytes for each of its 2048 tokens."""
    for reply in replies[REMOTE].values():
        assert reply.counters[RECEIVED] >= ((reply.timings.draft_n or 0) - 1) * 4 * 2048
        assert reply.counters[SENT] > 0
    assert not any(SENT in reply.counters for reply in replies[LOCAL].values())


def test_a_round_trip_for_every_drafted_token_at_least(replies: dict[str, dict[tuple[int, str], Reply]]) -> None:
    for reply in replies[REMOTE].values():
        (drafting,) = reply.drafting
        assert drafting.generate_ms >= (reply.timings.draft_n or 0) * 2 * LATENCY_S * 1e3


def test_text_and_acceptance_are_those_of_the_local_draft(replies: dict[str, dict[tuple[int, str], Reply]]) -> None:
    """So equal acceptance does not show that a draft ran here."""
    for key, here in replies[LOCAL].items():
        there = replies[REMOTE][key]
        assert there.token_ids == here.token_ids
        assert there.timings.draft_n_accepted == here.timings.draft_n_accepted
        assert there.timings.draft_n == here.timings.draft_n


def test_a_draft_that_stayed_here_is_found_out(report: RunReport) -> None:
    assert report.certificate is not None
    assert report.certificate.arms[FALLBACK] == "invalid"
    told = [finding for finding in report.findings if finding.check == "rpc-fallback"]
    assert {finding.arm_id for finding in told} == {FALLBACK}
    assert any(finding.message.code == "rpc-fallback.draft_stayed" for finding in told), "by its buffers"
    silent = [finding for finding in told if "silent" in finding.evidence]
    assert [finding.evidence["example_bytes"] for finding in silent] == [0.0], "and by the silence of the network"
    assert FALLBACK not in {arm.arm_id for arm in report.summary.arms if arm.speedup is not None}


def test_nothing_else_is_wrong_with_the_remote_arm(report: RunReport) -> None:
    grave = [finding for finding in report.findings if finding.severity == "invalid"]
    assert {finding.arm_id for finding in grave} <= {FALLBACK}, grave


def test_the_kernel_counts_what_the_relay_counts(remote: tuple[str, int], tmp_path: Path) -> None:
    with relayed(remote) as relay:
        there = {"rpc": (relay.address,), "draft_devices": ("RPC0",)}
        drafted = arm(methods=("draft-simple",), draft="d", gamma=GAMMA, engine=there)
        with NativeEngine().start(launch(tmp_path, drafted, draft="draft-small")) as session:
            session.generate(prompt(), greedy(32))  # not counted: what an engine still sends after its start is over
            relay.reset()
            replies = [session.generate(prompt(), greedy(32)) for _ in range(3)]
            last = session.generate(prompt(), greedy(1))
            relay.wait_until_quiet()
            sent, received = relay.sent, relay.received
    counted = [reply.counters for reply in (*replies, last)]
    # One question, or its answer, may be under way when a request ends; before the next begins it is in neither.
    assert 0 <= sent - sum(it[SENT] for it in counted) <= 512 * len(counted)
    assert 0 <= received - sum(it[RECEIVED] for it in counted) <= (4 * 2048 + 8) * len(counted)
    assert relay.commands["graph"] + relay.commands["graph-again"] >= sum((it.timings.draft_n or 0) for it in replies)


@pytest.mark.parametrize("address", ["{host}:1", "nowhere.invalid:50052"])
def test_a_machine_that_does_not_answer(remote: tuple[str, int], tmp_path: Path, address: str) -> None:
    address = address.format(host=remote[0])
    there = EngineSettings(context=512, rpc=(address,), draft_devices=("RPC0",))
    drafted = arm(methods=("draft-simple",), draft="d").model_copy(update={"engine": there})
    with pytest.raises(EngineStartError, match="no ggml-rpc-server answers at") as error:
        NativeEngine().start(launch(tmp_path, drafted, draft="draft-small"))
    assert address in str(error.value)
    assert error.value.fix


def test_what_answers_and_is_no_rpc_server(tmp_path: Path) -> None:
    """Anything that accepts a connection and hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        closing = threading.Thread(target=_hang_up, args=(other,), daemon=True)
        closing.start()
        there = {"rpc": (f"127.0.0.1:{other.getsockname()[1]}",), "draft_devices": ("RPC0",)}
        with pytest.raises(EngineStartError, match="offers no device, or is not a ggml-rpc-server"):
            NativeEngine().start(
                launch(tmp_path, arm(methods=("draft-simple",), draft="d", engine=there), draft="draft-small")
            )
        other.shutdown(socket.SHUT_RDWR)
        closing.join(5)


def _hang_up(server: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while True:
            server.accept()[0].close()


def test_a_device_that_the_machine_does_not_have(remote: tuple[str, int], tmp_path: Path) -> None:
    there = {"rpc": (f"{remote[0]}:{remote[1]}",), "draft_devices": ("RPC1",)}
    with pytest.raises(EngineStartError, match="invalid device: RPC1"):
        NativeEngine().start(
            launch(tmp_path, arm(methods=("draft-simple",), draft="d", engine=there), draft="draft-small")
        )
