"""An older advice, asked whether it still holds: on the mock engine, and on the real one after an interruption."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from specmeter.advise.advice import Advice, AdviceQuestion
from specmeter.advise.advise import advise
from specmeter.advise.again import again, changes, holds
from specmeter.advise.observer import Silent
from specmeter.advise.verify_advice import certify_advice
from specmeter.errors import StoreError, UsageError
from specmeter.experiments.file import LoadedExperiment, load
from specmeter.record import Request
from specmeter.store import RunStore

ASKED = AdviceQuestion(target="mock:dense", budget_s=900)


def grid_of(**mock: Any) -> LoadedExperiment:
    return load(
        {
            "targets": {"t": "mock:dense"},
            "drafts": {"small": "mock:small"},
            "arms": [{"draft": "small", "gamma": [1, 4]}],
            "workloads": [{"source": "bench", "kinds": ["fact"], "per_kind": 8}],
            "generation": {"max_tokens": 32},
            "engine": {"kind": "mock", "mock": {"noise": 0.004, **mock}},
        }
    )


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> tuple[Advice, Path]:
    folder = tmp_path_factory.mktemp("before") / "advice"
    return advise(ASKED, grid_of(), folder, Silent()), folder


def test_what_still_holds_is_said_with_both_speedups(before: tuple[Advice, Path], tmp_path: Path) -> None:
    old, folder = before
    found = again(folder, tmp_path / "again", Silent())
    assert found.again is not None
    assert (found.again.holds, found.again.before, found.again.changed) == ("holds", old.speedup, ())
    assert (found.decision, found.arm, found.finished) == ("speculate", old.arm, True)
    assert found.again_of == old.stages[-1].certificate_sha256
    assert [stage.stage for stage in found.stages] == ["confirm"]
    with RunStore.open(folder / "confirm") as one, RunStore.open(tmp_path / "again" / "confirm") as other:
        assert list(one.prompts()) == list(other.prompts())
    assert again(folder, tmp_path / "again", Silent()) == found  # nothing is left to do
    with pytest.raises(StoreError, match="another advice"):
        again(folder, folder, Silent())


def test_what_no_longer_holds_is_found_out(before: tuple[Advice, Path], tmp_path: Path) -> None:
    drafts = {"small": {"token_ms": 30.0, "other_acceptance": [0.3], "load_ms": 50, "size_bytes": 2_000_000}}
    copy = tmp_path / "before"
    shutil.copytree(before[1], copy)
    (copy / "grid.yaml").write_text(grid_of(drafts=drafts).text, encoding="utf-8")  # as if the machine were another
    certify_advice(before[0], copy)
    found = again(copy, tmp_path / "again", Silent())
    assert found.again is not None
    assert found.again.holds == "does-not-hold"
    assert found.decision == "off"
    assert [change.what for change in found.again.changed] == ["engine", "draft"]  # the mock's spec is all of them


def test_what_was_not_decided_cannot_hold(tmp_path: Path) -> None:
    class Stop(Silent):
        def request_done(self, request: Request) -> None:  # noqa: ARG002
            raise KeyboardInterrupt

    advise(ASKED, grid_of(), tmp_path / "a", Stop())
    with pytest.raises(UsageError, match="undecided"):
        again(tmp_path / "a", tmp_path / "b", Silent())


def test_rulings_and_changes(before: tuple[Advice, Path]) -> None:
    old = before[0]
    assert holds("speculate", "gains") == holds("off", "none") == "holds"
    assert holds("speculate", "none") == holds("off", "gains") == "does-not-hold"
    assert holds("speculate", "open") == holds("off", "invalid") == "cannot-tell"
    assert old.target is not None
    newer = old.model_copy(update={"target": old.target.model_copy(update={"sha256": "f" * 64})})
    (change,) = changes(old, newer, old.draft)
    assert (change.what, change.now) == ("target", "f" * 12)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_on_the_real_engine_interrupted_gone_on_with_and_asked_again(tmp_path: Path) -> None:
    grid = load(
        {
            "targets": {"dense": "bench:dense"},
            "drafts": {"small": "bench:draft-small"},
            "arms": [{"draft": "small", "gamma": 4}, {"method": "ngram-simple", "gamma": 8, "ngram_n": 4}],
            "workloads": [{"source": "bench", "kinds": ["code"], "per_kind": 4}],
            "generation": {"max_tokens": 16},
            "engine": {"context": 512, "threads": 1},
        }
    )
    asked = AdviceQuestion(target="bench:dense", budget_s=300)

    class Stop(Silent):
        def __init__(self, stage: str) -> None:
            self.stage, self.here = stage, False

        def stage_starting(self, stage: Any, arms: Any, left_s: float) -> None:  # noqa: ARG002
            self.here = stage == self.stage

        def request_done(self, request: Request) -> None:  # noqa: ARG002
            if self.here:
                raise KeyboardInterrupt

    folder = tmp_path / "advice"
    for stage in ("screen", "race", "confirm"):
        found = advise(asked, grid, folder, Stop(stage))
        if found.finished:  # what the screen found left nothing to race
            break
        assert found.why_undecided == "interrupted"
        assert (folder / stage).is_dir()
    done = advise(asked, grid, folder, Silent())
    assert done.finished
    assert done.basis == "confirmed"
    assert done.decision in ("speculate", "off", "undecided")  # the machine decides
    assert done.target is not None
    assert len(done.target.sha256) == 64
    assert done.command[0] == "llama-server"
    for run in done.stages:
        assert run.certificate_sha256 is not None
        assert run.verdict in ("valid", "suspect")  # other programs may be busy
    if done.decision != "undecided":
        repeated = again(folder, tmp_path / "again", Silent())
        assert repeated.again is not None
        assert repeated.again.changed == ()
