"""Faults that no working engine shows on demand: a stand-in shows them, over real HTTP, in a whole run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from engines.llama_fixtures import acting_binary
from provocations.provoked import BASE, SD, UNQUIET, Outcome, acting, caught, launching, provoke, withheld
from specmeter.cli import invoke
from specmeter.engines import Launch
from specmeter.store import RunStore

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the stand-in is wrapped in a shell script")

LOST = "the target and draft vocabs are not compatible - tokens will be translated between the two"
NO_RPC = "Failed to connect to 192.168.0.103:50052"
THERE = {"draft_devices": ["RPC0"], "extra_flags": ["--rpc", "192.168.0.103:50052"]}
DICE = "load_model: synthetic speculative acceptance is enabled: the text means nothing"


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    return act(tmp_path_factory.mktemp("clean"))


def act(
    folder: Path, speculative: dict[str, Any] | None = None, plain: dict[str, Any] | None = None, **changes: Any
) -> Outcome:
    binary = acting_binary(folder / "bin", speculative=speculative, plain=plain)
    return provoke(folder, **changes | {"engine": acting(binary) | changes.get("engine", {})})


def test_a_clean_run(clean: Outcome) -> None:
    assert not clean.false
    doubts = {finding.check for finding in clean.report.findings if finding.severity != "note"}
    # The stand-in makes its text up, and no draft model agrees with that as often as it says.
    assert doubts <= UNQUIET | {"clock-differs", "replay-differs"}
    assert not clean.blind
    assert SD in clean.speedups
    assert invoke(["check", str(clean.folder)]) == 0


@pytest.mark.parametrize(
    ("fault", "checks"),
    [
        ({"failed_decodes": 2}, {"target-decode-failed", "conservation"}),
        ({"uncounted": 2}, {"conservation"}),
        ({"draft_failures": 3}, {"draft-decode-failed"}),
        ({"replays": 9}, {"replay-livelock"}),
        ({"counts_replays_only": True}, {"acceptance-by-construction"}),
        ({"load_lines": [LOST]}, {"vocab-mismatch"}),
        ({"load_lines": [DICE]}, {"synthetic-on"}),
        ({"speculating": False}, {"speculation-not-active"}),
        ({"inflated": 3}, {"conservation"}),
        ({"printed": "all"}, {"window-mismatch"}),
        ({"kv_type": "q8_0"}, {"baseline-elsewhere"}),
        ({"threads": 2}, {"baseline-elsewhere"}),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_a_false_number(tmp_path: Path, clean: Outcome, fault: dict[str, Any], checks: set[str]) -> None:
    """Each makes the arm invalid, by the checks that are made for it and by no other."""
    outcome = act(tmp_path, fault, design={"blocks": 1})
    for check in checks:
        caught(outcome, clean, check, "invalid", SD)
    assert outcome.false == checks
    assert withheld(outcome)
    assert outcome.certificate.arms[BASE] != "invalid"


@pytest.mark.parametrize(
    ("fault", "check"),
    [
        ({"stop_at": 25}, "length-mismatch"),
        ({"cached": 20}, "server-shared"),
        ({"offloaded": [5, 8]}, "memory-fit"),
        ({"gamma": 2}, "flag-inert"),
        ({"slower": 0.2}, "speedup-above-tau"),
        ({"stuck": True}, "output-degenerate"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_a_doubtful_number(tmp_path: Path, clean: Outcome, fault: dict[str, Any], check: str) -> None:
    outcome = act(tmp_path, fault, {"offloaded": [8, 8]} if "offloaded" in fault else None, design={"blocks": 1})
    caught(outcome, clean, check, "suspect")
    assert not outcome.false
    assert outcome.certificate.arms[SD] == "suspect"


def test_a_clock_that_leaves_out_half_of_the_time(tmp_path: Path) -> None:
    outcome = act(tmp_path, {"left_out": 0.5, "slower": 24.0}, engine={"stream_tokens": True}, design={"blocks": 1})
    (finding,) = outcome.found("clock-differs", "suspect", SD)
    assert finding.remedy.code == "clock-differs.fix", "far beyond a wait for a processor"
    assert not outcome.false


def test_a_remote_draft_that_ran_here(tmp_path: Path, clean: Outcome) -> None:
    outcome = act(tmp_path, {"load_lines": [NO_RPC]}, engine=THERE, design={"blocks": 1})
    (arm_id,) = set(outcome.certificate.arms) - {BASE}
    caught(outcome, clean, "rpc-fallback", "invalid", arm_id)
    evidence = caught(outcome, clean, "rpc-fallback", "suspect", arm_id)
    assert "50052" in str(evidence["log"])
    assert withheld(outcome, arm_id)


def test_a_remote_draft_that_ran_here_in_silence(tmp_path: Path, clean: Outcome) -> None:
    """A remote machine without devices is passed over, and the log says nothing of it."""
    outcome = act(tmp_path, engine=THERE, design={"blocks": 1})
    (arm_id,) = set(outcome.certificate.arms) - {BASE}
    caught(outcome, clean, "rpc-fallback", "invalid", arm_id)


def test_reasoning_without_an_answer(tmp_path: Path, clean: Outcome) -> None:
    cut = {"reply": "<think>let us see"}
    chat = [{"source": "bench", "name": "text", "kinds": ["fact"], "per_kind": 1, "format": "chat"}]
    outcome = act(tmp_path, cut, cut, workloads=chat, design={"blocks": 1})
    caught(outcome, clean, "thinking-truncated", "suspect")


def test_reasoning_that_was_switched_off(tmp_path: Path, clean: Outcome) -> None:
    aloud = {"reply": "<think>let us see</think> four"}
    chat = [{"source": "bench", "name": "text", "kinds": ["fact"], "per_kind": 1, "format": "chat", "thinking": False}]
    outcome = act(tmp_path, aloud, aloud, workloads=chat, design={"blocks": 1})
    caught(outcome, clean, "thinking-differs", "suspect")


def test_requests_that_are_missing(tmp_path: Path, clean: Outcome) -> None:
    """The engine dies once in each session: after the warm-up one request is answered, and then none."""
    outcome = act(tmp_path, {"dies_at": 4}, design={"blocks": 1})
    assert outcome.certificate.state == "failed"
    caught(outcome, clean, "incomplete-matrix", "suspect")


def test_two_speeds(tmp_path: Path, clean: Outcome) -> None:
    """Only repetitions tell: prompts may differ in speed as much as they like."""
    prompts = [{"source": "bench", "name": "text", "per_kind": 6}]
    quick = {"max_tokens": 12}
    outcome = act(tmp_path, {"two_speeds": 1.6}, workloads=prompts, generation=quick)
    caught(outcome, clean, "bimodal", "suspect", SD)
    assert not outcome.found("bimodal", "suspect", BASE)


def test_more_threads_than_cores(tmp_path: Path, clean: Outcome) -> None:
    outcome = act(tmp_path, engine={"threads": (psutil.cpu_count() or 1) + 1}, design={"blocks": 1})
    caught(outcome, clean, "free-cores", "suspect", SD)


# --- what changes in the middle of a run -----------------------------------------------------------------------------


def exchanged(folder: Path, **changes: Any) -> Outcome:
    """A run of two blocks, between which the stand-in is replaced by another."""
    binary = acting_binary(folder / "bin")
    started: list[Launch] = []

    def exchange(launch: Launch) -> Launch:
        started.append(launch)
        if len(started) == 3:
            acting_binary(folder / "bin", **changes)
        return launch

    return provoke(folder, launching(exchange), engine=acting(binary))


def test_another_build(tmp_path: Path, clean: Outcome) -> None:
    newer = {"build": "11600 (1d2e68f09)"}
    caught(exchanged(tmp_path, speculative=newer, plain=newer), clean, "two-binaries", "suspect")


def test_other_bytes(tmp_path: Path, clean: Outcome) -> None:
    """A build that calls itself the same is not the same."""
    caught(exchanged(tmp_path, note="built with other flags"), clean, "two-binaries", "suspect")


def test_other_defaults(tmp_path: Path, clean: Outcome) -> None:
    caught(exchanged(tmp_path, speculative={"gamma": 2}), clean, "default-drift", "suspect", SD)


def test_another_pace(tmp_path: Path, clean: Outcome) -> None:
    caught(exchanged(tmp_path, plain={"slower": 2.0}), clean, "baseline-unstable", "suspect", SD)


# --- evidence --------------------------------------------------------------------------------------------------------


def test_a_failure_leaves_its_line_as_evidence(tmp_path: Path) -> None:
    outcome = act(tmp_path, {"failed_decodes": 2}, design={"blocks": 1, "warmup": "none"})
    (finding,) = outcome.found("target-decode-failed")
    assert finding.evidence["failed"] == 4, "two in each of two requests, each written in two lines"
    assert "failed" in str(finding.evidence["log"])
    with RunStore.open(outcome.folder, readonly=True) as store:
        replies = [request.reply for request in store.requests() if request.arm_id == SD]
    for reply in replies:
        assert reply is not None
        timings = reply.timings
        assert timings.predicted_n - 1 - (timings.draft_n_accepted or 0) == reply.counters["n_decode_total"] - 1 + 2
