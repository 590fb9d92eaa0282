"""The engine `vllm`: a stand-in's start, crash and hang; the conformance kit against the real one where it is."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from programs import write_program
from specmeter.engines import Launch, load_engine
from specmeter.engines.registry import check_arm
from specmeter.errors import EngineStartError, ExperimentError
from specmeter.numbers.reconciled import reconciled
from specmeter.record import Arm, EngineSettings
from specmeter.testing import CASES, Case, Subject
from specmeter.testing.subject import greedy, prompt
from specmeter_engines.folders import folder_model
from specmeter_engines.vllm.spec import DRAFT_MODEL, NGRAM

SETTINGS = EngineSettings(context=2048, slots=2, extra_flags=("--dtype", "float32", "--enforce-eager"))
PLAIN = Arm(id="m/none", target="m", role="baseline", engine=SETTINGS)
DRAFTING = PLAIN.model_copy(
    update={"id": "m/draft", "methods": (DRAFT_MODEL,), "draft": "d", "gamma": 4, "role": "speculative"}
)
LOOKING_UP = DRAFTING.model_copy(update={"id": "m/ngram", "methods": (NGRAM,), "draft": None, "ngram_n": 3})

Acting = Callable[..., Subject]


@pytest.fixture
def acting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Acting]:
    """The engine with a stand-in for its interpreter, something being wrong with it."""
    python = tmp_path / "python"
    write_program(python, f'#!/bin/sh\nexec {sys.executable} {Path(__file__).with_name("acting_vllm.py")} "$@"\n')
    target, draft = (folder_model(None, it, f"bench:{it}") for it in ("dense", "draft-small"))
    made: list[Subject] = []

    def acting(wrong: str = "", version: str = "0.32.0") -> Subject:
        monkeypatch.setenv("ACTING_VLLM", wrong)
        monkeypatch.setenv("ACTING_VLLM_VERSION", version)
        engine = load_engine("vllm", python=str(python))
        made.append(Subject(engine, PLAIN, target, DRAFTING, draft, planted={"garbage": engine}))
        return made[-1]

    yield acting
    for it in made:
        it.close()


LIVES = (
    "identity_is_stable",
    "a_session_says_what_it_is",
    "requests_in_flight_overlap",
    "a_dead_engine_fails_all_in_flight",
    "a_hung_engine_is_noticed",
    "close_ends_the_engine",
    "close_ends_what_is_in_flight",
    "nothing_is_left_behind",
)


@pytest.mark.alone
@pytest.mark.parametrize("case", [it for it in CASES if it.__name__ in LIVES], ids=lambda case: case.__name__)
def test_a_server_is_started_watched_and_ended(case: Case, acting: Acting) -> None:
    case(acting())


def test_nonsense_is_told_from_an_answer(acting: Acting) -> None:
    case = next(it for it in CASES if it.__name__ == "garbage_is_told_from_an_answer")
    case(acting("garbage"))


def children() -> set[int]:
    return {it.pid for it in psutil.Process().children(recursive=True)}


@pytest.mark.alone
@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ("crashes", r"died while it was starting \(exit code 3\)\n.*no such architecture"),
        ("never", "was not ready for arm m/none within 1 s"),
        ("open", "does not require our key"),
    ],
)
def test_a_server_that_does_not_start_is_ended_and_says_why(
    wrong: str, says: str, acting: Acting, tmp_path: Path
) -> None:
    subject, before = acting(wrong), children()
    patience_s = 1.0 if wrong == "never" else 60.0
    launch = Launch(PLAIN, subject.target, None, tmp_path / "log", start_timeout_s=patience_s)
    with pytest.raises(EngineStartError, match=says):
        subject.engine.start(launch)
    assert children() <= before


@pytest.mark.parametrize(
    ("wrong", "version", "says"),
    [("", "0.99.1", r"cannot read the counts of vLLM 0\.99\.1"), ("absent", "0.32.0", "has no vLLM")],
)
def test_what_is_not_known_is_refused_with_what_to_install(wrong: str, version: str, says: str, acting: Acting) -> None:
    with pytest.raises(EngineStartError, match=says) as caught:
        acting(wrong, version)
    assert "pip install vllm==0.32.0" in caught.value.fix
    with pytest.raises(EngineStartError, match="not a Python interpreter"):
        load_engine("vllm", python="/nowhere/python")


def test_an_arm_becomes_flags(acting: Acting) -> None:
    subject = acting()
    for arm, wanted in (
        (
            DRAFTING,
            {"method": "draft_model", "num_speculative_tokens": 4, "model": subject.draft and subject.draft.path},
        ),
        (
            LOOKING_UP,
            {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_min": 3, "prompt_lookup_max": 3},
        ),
    ):
        with subject.start(arm) as session:
            argv = session.facts.argv
            assert session.facts.speculating
            assert session.facts.in_flight == 2
        assert json.loads(argv[argv.index("--speculative-config") + 1]) == wanted
        assert argv[argv.index("--max-model-len") + 1] == "2048"
        assert set(SETTINGS.extra_flags) <= set(argv)
    environment = session.facts.resolved["environment"]
    assert environment["VLLM_API_KEY"] == "***"


def test_drafts_need_a_length() -> None:
    with pytest.raises(ExperimentError, match="no default draft length"):
        check_arm("vllm", DRAFTING.model_copy(update={"gamma": None}), has_draft=True)


# --- the real one ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def subject() -> Iterator[Subject]:
    try:
        engine = load_engine("vllm")
    except EngineStartError as error:
        pytest.skip(f"{error.message}: {error.fix}")
    target, draft = (folder_model(None, it, f"bench:{it}") for it in ("dense", "draft-small"))
    with Subject(engine, arm=PLAIN, target=target, drafting=DRAFTING, draft=draft) as it:
        yield it


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_conformance(case: Case, subject: Subject) -> None:
    case(subject)


@pytest.mark.slow
@pytest.mark.parametrize("arm", [DRAFTING, LOOKING_UP], ids=lambda arm: arm.id)
def test_the_account_of_a_generation_closes(arm: Arm, subject: Subject) -> None:
    plain = subject.session.generate(prompt(), greedy(63))
    with subject.start(arm) as session:
        reply = session.generate(prompt(), greedy(63))
    assert reply.token_ids == plain.token_ids
    told = reconciled(reply).model_dump()
    assert None not in told.values()
    assert told["emitted"] == 63 == told["accepted"] + told["steps"] + told["plain"]
    assert told["proposed"] >= told["evaluated"] >= told["accepted"] > 0
    assert reply.counters["n_decode_total"] == told["steps"] + told["plain"]
