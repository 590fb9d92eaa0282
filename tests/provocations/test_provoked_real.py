"""The embedded engine, really running and really put wrong: the right check says so, and only then."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from provocations.provoked import (
    BASE,
    EXPERIMENT,
    SD,
    UNQUIET,
    Outcome,
    asking,
    caught,
    launching,
    provoke,
    with_settings,
    withheld,
    write,
)
from specmeter.cli import invoke
from specmeter.engines import Launch
from specmeter.engines.llama_cpp import engine as llama_engine
from specmeter.engines.llama_cpp.spec import server_options
from specmeter.errors import ModelError
from specmeter.experiments.file import load
from specmeter.laboratory.run import predict_findings, prepare
from specmeter.messages import Message
from specmeter.models.bench import shipped
from specmeter.record import Generation, Prompt
from specmeter.store import RunStore


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    return provoke(tmp_path_factory.mktemp("clean"))


def test_a_clean_run(clean: Outcome) -> None:
    assert not clean.false
    assert {finding.check for finding in clean.report.findings if finding.severity != "note"} <= UNQUIET
    assert not clean.blind
    assert clean.certificate.state == "complete"
    assert SD in clean.speedups
    assert invoke(["check", str(clean.folder)]) == 0


# --- speculation that does not take place ----------------------------------------------------------------------------


def test_a_draft_model_that_is_loaded_and_never_used(
    tmp_path: Path, clean: Outcome, monkeypatch: pytest.MonkeyPatch
) -> None:
    def options(launch: Any, threads: int) -> dict[str, Any]:
        return server_options(launch, threads) | {"methods": ["none"]}

    monkeypatch.setattr(llama_engine, "server_options", options)
    outcome = provoke(tmp_path)
    with RunStore.open(outcome.folder, readonly=True) as store:
        sessions = [session for session in store.sessions() if session.arm_id == SD]
        assert [session.speculating for session in sessions] == [False, False]
        logs = [(outcome.folder / (session.log_file or "")).read_text("utf-8") for session in sessions]
        assert all("draft-small.gguf" in text for text in logs)
    caught(outcome, clean, "speculation-not-active", "invalid", SD)
    assert withheld(outcome)


@pytest.mark.parametrize(("draft", "condition"), [("other-vocab", "vocabulary-size"), ("other-special", "bos")])
def test_a_draft_with_another_vocabulary_is_refused(
    tmp_path: Path, draft: str, condition: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(tmp_path, drafts={"small": f"bench:draft-{draft}"})
    assert invoke(["run", file, "--out", str(tmp_path / "run")]) == 2
    error = capsys.readouterr().err
    assert "llama.cpp rejects it as a draft" in error
    assert condition in error
    assert not RunStore.exists(tmp_path / "run")


@pytest.mark.slow
def test_a_refused_draft_that_is_measured_all_the_same(tmp_path: Path, clean: Outcome) -> None:
    """The server goes on without speculation; its log says why at a level that is seldom read."""
    drafts = ("other-vocab", "other-special")
    outcome = provoke(
        tmp_path,
        drafts={draft: f"bench:draft-{draft}" for draft in drafts},
        arms=[{"draft": draft, "gamma": 4, "refused_draft": "measure"} for draft in drafts],
        design={"blocks": 1},
    )
    assert outcome.report.state.state == "complete"
    for draft in drafts:
        arm_id = f"dense/draft-simple/{draft}/g4"
        caught(outcome, clean, "speculation-not-active", "invalid", arm_id)
        caught(outcome, clean, "vocab-mismatch", "invalid", arm_id)
        assert withheld(outcome, arm_id)


@pytest.mark.slow
def test_a_refused_draft_has_to_be_asked_for_by_every_arm_that_has_it(tmp_path: Path) -> None:
    arms = [arm | {"refused_draft": "measure"} for arm in EXPERIMENT["arms"]]
    file = write(tmp_path, drafts={"small": "bench:draft-other-vocab"}, arms=[*arms, {"draft": "small", "gamma": 2}])
    assert invoke(["run", file, "--out", str(tmp_path / "run")]) == 2
    assert not RunStore.exists(tmp_path / "run")


@pytest.mark.slow
def test_such_a_draft_never_reaches_an_engine_that_does_not_compare_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arms = [arm | {"refused_draft": "measure"} for arm in EXPERIMENT["arms"]]
    file = write(tmp_path, drafts={"small": "bench:draft-other-vocab"}, arms=arms, engine={"kind": "libllama"})
    assert invoke(["run", file, "--out", str(tmp_path / "run")]) == 2
    assert "llama.cpp rejects it as a draft" in capsys.readouterr().err


@pytest.mark.slow
def test_a_drafter_that_never_drafts_and_a_draft_length_that_never_reached_the_engine(
    tmp_path: Path, clean: Outcome, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing in these prompts repeats twenty tokens; and one arm drafts by the engine's default."""

    def options(launch: Any, threads: int) -> dict[str, Any]:
        given = server_options(launch, threads)
        given.pop("draft_n_max", None)
        return given

    monkeypatch.setattr(llama_engine, "server_options", options)
    idle = {"method": "ngram-simple", "ngram_n": 20, "gamma": 4}
    outcome = provoke(tmp_path, arms=[idle, *EXPERIMENT["arms"]], design={"blocks": 1})
    (arm_id,) = set(outcome.certificate.arms) - {BASE, SD}
    caught(outcome, clean, "drafter-idle", "suspect", arm_id)
    assert not outcome.found("drafter-idle", arm_id=SD)
    caught(outcome, clean, "flag-inert", "suspect", SD)


# --- synthetic acceptance --------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_acceptance_by_dice_is_no_result(tmp_path: Path, clean: Outcome) -> None:
    outcome = provoke(tmp_path, arms=[{"draft": "small", "gamma": 4, "synthetic_rates": [1, 1, 1, 1]}])
    (arm_id,) = set(outcome.certificate.arms) - {BASE}
    caught(outcome, clean, "synthetic-on", "invalid", arm_id)
    assert withheld(outcome, arm_id)
    assert not outcome.speedups


@pytest.mark.slow
def test_controls_are_judged_and_pass(tmp_path: Path) -> None:
    outcome = provoke(tmp_path, design={"controls": True}, generation={"max_tokens": 24})
    again, everything, nothing = (f"{BASE}/{name}" for name in ("again", "accept-all", "accept-none"))
    assert {again, everything, nothing} < set(outcome.certificate.arms)
    assert not outcome.false
    with RunStore.open(outcome.folder, readonly=True) as store:
        drafted = [(row.arm_id, row.draft_n, row.draft_n_accepted) for row in store.rows() if row.draft_n]
    assert {
        (made, accepted) for arm_id, made, accepted in drafted if arm_id == everything and made != accepted
    } == set()
    assert {accepted for arm_id, _, accepted in drafted if arm_id == nothing} == {0}
    assert not {again, everything, nothing} & outcome.speedups


@pytest.mark.slow
def test_a_control_that_does_not_accept_what_it_must(
    tmp_path: Path, clean: Outcome, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The dice never reach the engine: the control drafts and accepts like any other arm."""

    def options(launch: Any, threads: int) -> dict[str, Any]:
        given = server_options(launch, threads)
        given.pop("synthetic_rates", None)
        return given

    monkeypatch.setattr(llama_engine, "server_options", options)
    outcome = provoke(tmp_path, design={"controls": True, "blocks": 1})
    caught(outcome, clean, "control-accept-all", "invalid")
    caught(outcome, clean, "control-accept-none", "invalid")
    assert set(outcome.certificate.arms.values()) == {"invalid"}


# --- arms that are not alike -----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_server_that_is_shared(tmp_path: Path, clean: Outcome) -> None:
    outcome = provoke(tmp_path, engine={"slots": 2, "context": 1024, "prompt_cache": True}, design={"blocks": 1})
    assert caught(outcome, clean, "server-shared", "suspect").keys() >= {"slots", "cached"}


@pytest.mark.slow
def test_a_baseline_with_other_settings(tmp_path: Path, clean: Outcome) -> None:
    kv = {"kv_type_k": "q8_0", "kv_type_v": "q8_0", "flash_attention": "on"}
    outcome = provoke(tmp_path, with_settings(BASE, **kv, context=1024), design={"blocks": 1})
    caught(outcome, clean, "baseline-elsewhere", "invalid")
    caught(outcome, clean, "memory-fit", "suspect")


@pytest.mark.slow
def test_another_prompt_than_the_baseline(tmp_path: Path, clean: Outcome) -> None:
    def cut(prompt: Prompt, generation: Generation) -> tuple[Prompt, Generation]:
        return prompt.model_copy(update={"text": prompt.text[40:]}), generation

    outcome = provoke(tmp_path, asking(SD, cut), design={"blocks": 1})
    caught(outcome, clean, "prompt-differs", "invalid", SD)
    assert withheld(outcome)


@pytest.mark.slow
def test_another_text_than_the_baseline_and_a_shorter_one(tmp_path: Path, clean: Outcome) -> None:
    """One arm samples at random while the record says greedy, and ends early."""

    def random(prompt: Prompt, generation: Generation) -> tuple[Prompt, Generation]:
        return prompt, generation.model_copy(update={"temperature": 3.0, "max_tokens": 30})

    outcome = provoke(tmp_path, asking(SD, random))
    caught(outcome, clean, "output-differs", "suspect", SD)
    caught(outcome, clean, "length-mismatch", "suspect", SD)


@pytest.mark.slow
def test_samples_of_another_distribution(tmp_path: Path, clean: Outcome) -> None:
    def hotter(prompt: Prompt, generation: Generation) -> tuple[Prompt, Generation]:
        return prompt, generation.model_copy(update={"temperature": 3.0})

    prompts = [{"source": "bench", "name": "text", "kinds": ["fact", "code", "reason"], "per_kind": 1}]
    sampled = {"max_tokens": 24, "temperature": 0.8, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
    outcome = provoke(
        tmp_path, asking(SD, hotter), workloads=prompts, generation=sampled, design={"blocks": 4, "warmup": "none"}
    )
    caught(outcome, clean, "sampled-distribution", "suspect", SD)
    assert not outcome.found("output-differs")


@pytest.mark.slow
def test_a_draft_that_is_larger_than_its_target(tmp_path: Path) -> None:
    """Said before anything is measured."""
    mixed_up = write(tmp_path, targets={"dense": "bench:draft-small"}, drafts={"small": "bench:dense"})
    assert [
        finding.check for finding in predict_findings(prepare(load(mixed_up))) if finding.check == "draft-not-smaller"
    ]
    usual = write(tmp_path)
    assert not [
        finding.check for finding in predict_findings(prepare(load(usual))) if finding.check == "draft-not-smaller"
    ]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["embedded", "libllama"])
def test_settings_with_which_nothing_is_drafted(tmp_path: Path, kind: str) -> None:
    """Said before anything is measured, of the one arm that they are settings of."""
    lookups = write(tmp_path, arms=[{"method": "ngram-simple", "ngram_n": 6, "gamma": [5, 6]}], engine={"kind": kind})
    (finding,) = [it for it in predict_findings(prepare(load(lookups))) if it.check == "drafter-idle"]
    assert (finding.severity, finding.arm_id) == ("suspect", "dense/ngram-simple/g5/n6")
    assert finding.message.code == "drafter-idle.short_lookups"
    assert finding.remedy == Message("drafter-idle.fix_short_lookups", ngram_n=6, gamma=5)


@pytest.mark.slow
def test_a_model_that_drafts_for_itself_under_another_name(tmp_path: Path) -> None:
    """Its drafts end where it is unsure, where answers do and where the last one is too short, and all are right."""
    copy = tmp_path / "copy.gguf"
    copy.write_bytes(shipped()["dense"].path.read_bytes() + bytes(64))
    outcome = provoke(
        tmp_path,
        drafts={"small": str(copy)},
        arms=[
            {"draft": "small", "gamma": 4},
            {"draft": "small", "gamma": 4, "p_min": 0.9},
            {"draft": "small", "gamma": 16, "gamma_min": 16},
        ],
        workloads=[
            {"source": "bench", "name": "text", "kinds": ["fact", "code", "edit"], "per_kind": 1, "max_tokens": 100},
            {"source": "bench", "name": "short", "kinds": ["reason"], "per_kind": 1, "max_tokens": 7},
        ],
        design={"blocks": 1, "warmup": "none"},
    )
    with RunStore.open(outcome.folder, readonly=True) as store:
        counts = {(row.draft_n or 0, row.draft_n_accepted or 0) for row in store.rows()}
    assert all(drafted == accepted for drafted, accepted in counts), "greedy drafts of the same weights are all right"
    assert max(counts)[0] > 50
    assert not outcome.found("acceptance-by-construction", "invalid")


@pytest.mark.slow
def test_random_tokens_for_prompts(tmp_path: Path, clean: Outcome) -> None:
    outcome = provoke(tmp_path, workloads=[{"source": "random", "lengths": [32]}], design={"blocks": 1})
    caught(outcome, clean, "random-prompts", "suspect", SD)


@pytest.mark.slow
def test_a_recurrent_target_pays_for_checkpoints(tmp_path: Path, clean: Outcome) -> None:
    outcome = provoke(tmp_path, targets={"dense": "bench:hybrid"}, design={"blocks": 1})
    caught(outcome, clean, "checkpoint-cost", "note")
    assert not outcome.false


@pytest.mark.slow
def test_another_model_in_the_middle_of_a_run(tmp_path: Path) -> None:
    """The run stops before the new file is measured under the old one's name."""
    model = tmp_path / "target.gguf"
    shutil.copy(shipped()["dense"].path, model)

    def exchange(prompt: Prompt, generation: Generation) -> tuple[Prompt, Generation]:
        shutil.copy(shipped()["draft-large"].path, tmp_path / "new.gguf")
        (tmp_path / "new.gguf").replace(model)
        return prompt, generation

    with pytest.raises(ModelError, match="the file has changed since the run started"):
        provoke(tmp_path, asking(SD, exchange), targets={"dense": str(model)})
    with RunStore.open(tmp_path / "run", readonly=True) as store:
        assert (store.state().state, store.state().ok) == ("failed", 4)
        assert {session.arm_id for session in store.sessions()} == {BASE, SD}


@pytest.mark.slow
def test_a_baseline_that_speculates(tmp_path: Path, clean: Outcome) -> None:
    def speculating(launch: Launch) -> Launch:
        if launch.arm.id != BASE:
            return launch
        update = {"methods": ("ngram-simple",), "ngram_n": 2, "gamma": 4}
        return replace(launch, arm=launch.arm.model_copy(update=update))

    edit = [{"source": "bench", "name": "text", "kinds": ["edit"], "per_kind": 1}]
    outcome = provoke(tmp_path, launching(speculating), workloads=edit, design={"blocks": 1})
    caught(outcome, clean, "counters-absurd", "invalid", BASE)
    assert withheld(outcome, SD)


# --- the machine, and the order --------------------------------------------------------------------------------------


@contextmanager
def burning(processes: int) -> Iterator[None]:
    """Other programs that use so many processors."""
    code = "print(flush=True)\nwhile True: pass"
    running = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) for _ in range(processes)]
    try:
        for process in running:
            assert process.stdout is not None
            process.stdout.readline()
        yield
    finally:
        for process in running:
            process.kill()
            process.communicate()


@pytest.mark.slow
def test_a_busy_machine(tmp_path: Path, clean: Outcome) -> None:
    with burning(2):
        outcome = provoke(
            tmp_path, engine={"context": 512, "threads": 2}, generation={"max_tokens": 250}, design={"blocks": 1}
        )
    assert outcome.found("host-busy", "suspect")
    with RunStore.open(clean.folder, readonly=True) as store:
        busiest = max((sample.other_cpu_percent for sample in store.telemetry()), default=0.0)
    if busiest > 5:
        pytest.skip(f"other programs use {busiest:.0f} % of this machine: a clean run is busy too")
    assert not clean.found("host-busy")


@pytest.mark.slow
def test_arms_in_the_same_order_in_every_block(tmp_path: Path, clean: Outcome) -> None:
    outcome = provoke(tmp_path, design={"order": "as-written", "blocks": 3, "warmup": "none"})
    (finding,) = outcome.found("order-confounded", "suspect", SD)
    assert finding.evidence["balance"] == 0
    # A machine that has other work may drift, and that is found as well, but the order of the clean run was balanced.
    assert not any("balance" in finding.evidence for finding in clean.found("order-confounded"))
