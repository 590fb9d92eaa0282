"""All of our engines conform; the kit finds what does not."""

from __future__ import annotations

import dataclasses
import os
import sys
import unittest
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from llama_fixtures import HERE, NATIVE, NO_NATIVE, arm, core, faulty_binary

from specmeter.engines import Engine, Launch, SessionFacts, load_engine
from specmeter.engines.libllama import engine as libllama
from specmeter.engines.llama_cpp.engine import NativeEngine
from specmeter.engines.mock.engine import MockEngine, MockSession
from specmeter.engines.mock.spec import Fault, MockSpec, mock_model
from specmeter.engines.session import Ended, Ticket
from specmeter.errors import EngineError
from specmeter.record import Arm, EngineIdentity, Generation, Prompt, Reply
from specmeter.testing import CASES, Case, NotApplicable, NotMet, Subject, examine
from specmeter.testing import subject as kit

ROOMY = {"context": 8192, "slots": 2}
"""Some thousand tokens per slot; a prompt that just fits is read, at a cost that grows with the square of the room."""


def llama(kind: str, folder: Path, settings: dict[str, Any] = ROOMY) -> Subject:
    """Both servers have one kind of session, so one server that talks nonsense serves both."""
    planted: dict[Any, Engine] = {}
    if os.name == "posix":
        planted["garbage"] = NativeEngine(faulty_binary(folder, "garbage"))
    return Subject(
        load_engine(kind),
        arm(engine=settings),
        core("dense"),
        drafting=arm(methods=("draft-simple",), draft="d", gamma=4, engine=settings),
        draft=core("draft-small"),
        planted=planted,
    )


def instrumented(folder: Path) -> Subject:
    subject = llama("libllama", folder, {"context": 4096})
    return dataclasses.replace(subject, planted={"garbage": Nonsense("html")})


def case(name: str) -> Case:
    return next(it for it in CASES if it.__name__ == name)


class Nonsense(libllama.LibllamaEngine):
    """Starts a process that loads, and then talks nonsense."""

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def start(self, launch: Launch) -> libllama.LibllamaSession:
        with pytest.MonkeyPatch.context() as patch:
            child = (sys.executable, str(HERE / "libllama" / "nonsense_child.py"), self._kind)
            patch.setattr(libllama, "_CHILD", child)
            return super().start(launch)


def mock(engine: type[MockEngine] = MockEngine) -> Subject:
    settings = arm(engine={"slots": 2, "context": 4096}).engine
    kinds: tuple[Any, ...] = ("dies", "hangs", "garbage")
    return Subject(
        engine(),
        Arm(id="dense/none", target="dense", role="baseline", engine=settings),
        mock_model("dense", "mock:dense"),
        drafting=Arm(
            id="dense/small", target="dense", methods=("draft-simple",), draft="small", gamma=4, engine=settings
        ),
        draft=mock_model("small", "mock:small"),
        planted={kind: MockEngine(MockSpec(faults=(Fault(kind=kind),))) for kind in kinds},
    )


SUBJECTS: dict[str, Callable[[Path], Subject]] = {
    "embedded": lambda folder: llama("embedded", folder),
    "native": lambda folder: llama("native", folder),
    "libllama": instrumented,
    "mock": lambda _: mock(),
}
DEAR = {
    "native": (pytest.mark.skipif(NATIVE is None, reason=NO_NATIVE), pytest.mark.slow),
    "libllama": pytest.mark.slow,
}
"""Engines whose cases are left to the slow lane."""


@pytest.fixture(scope="module", params=[pytest.param(it, marks=DEAR.get(it, ())) for it in SUBJECTS])
def subject(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Subject]:
    with SUBJECTS[request.param](tmp_path_factory.mktemp(request.param)) as it:
        yield it


@pytest.mark.parametrize("a_case", CASES, ids=lambda it: it.__name__)
def test_our_engines_conform(a_case: Case, subject: Subject) -> None:
    a_case(subject)


def test_an_instrumented_engine_whose_numbers_cannot_be_read(tmp_path: Path) -> None:
    with dataclasses.replace(instrumented(tmp_path), planted={"garbage": Nonsense("wrong")}) as it:
        case("garbage_is_told_from_an_answer")(it)


# --- the kit can fail ------------------------------------------------------------------------------------------------


class Broken(MockSession):
    """A mock with one thing wrong; `engine` is of the class below that is named like it."""

    def other(self, reply: Reply, **changes: Any) -> Reply:
        return reply.model_copy(update=changes)


class Miscounts(Broken):
    def generate(self, prompt: Prompt, generation: Generation) -> Reply:
        reply = super().generate(prompt, generation)
        return self.other(reply, timings=reply.timings.model_copy(update={"prompt_n": reply.timings.prompt_n + 1}))


class GoesOn(Broken):
    def generate(self, prompt: Prompt, generation: Generation) -> Reply:
        reply = super().generate(prompt, generation.model_copy(update={"ignore_eos": True}))
        return self.other(reply, stop_reason="limit" if generation.ignore_eos else "eos")


class ClaimsTime(Broken):
    def generate(self, prompt: Prompt, generation: Generation) -> Reply:
        reply = super().generate(prompt, generation)
        return self.other(reply, wall_ms=reply.wall_ms / 2, arrival_ms=(), ttft_ms=None)


class OtherText(Broken):
    def generate(self, prompt: Prompt, generation: Generation) -> Reply:
        return self.other(super().generate(prompt, generation), text="something else")


class LosesAccents(Broken):
    def detokenize(self, token_ids: tuple[int, ...]) -> str:
        return super().detokenize(token_ids).encode("ascii", "ignore").decode()


class SaysSurrogates(Broken):
    def generate(self, prompt: Prompt, generation: Generation) -> Reply:
        return self.other(super().generate(prompt, generation), text="\ud83d")


class CutsPrompts(Broken):
    def generate(self, prompt: Prompt, generation: Generation) -> Reply:
        return super().generate(prompt.model_copy(update={"text": prompt.text[:1000]}), generation)


class Raises(Broken):
    def generate(self, prompt: Prompt, generation: Generation) -> Reply:
        prompt.text.encode()
        return super().generate(prompt, generation)


class Forgets(Broken):
    """Its sessions say what the last ones did not."""

    calls = 0

    def generate(self, prompt: Prompt, generation: Generation) -> Reply:
        type(self).calls += 1
        return super().generate(prompt.model_copy(update={"id": str(self.calls)}), generation)


class Guesses(Broken):
    def candidates(self, prompt: Prompt, generated: Any, generation: Generation, count: int) -> Any:
        return super().candidates(prompt, generated, generation, count)[::-1]


class CountsOnlyHalf(Broken):
    def generate(self, prompt: Prompt, generation: Generation) -> Reply:
        reply = super().generate(prompt, generation)
        half = (reply.timings.draft_n_accepted or 0) // 2
        return self.other(reply, timings=reply.timings.model_copy(update={"draft_n_accepted": half}))


class AnotherText(Broken):
    """Speculating, it says something else."""

    def generate(self, prompt: Prompt, generation: Generation) -> Reply:
        return super().generate(prompt.model_copy(update={"id": f"{self.facts.speculating}"}), generation)


class MixesUp(Broken):
    def collect(self, timeout_s: float | None = None) -> Ended | None:
        ended = super().collect(timeout_s)
        return None if ended is None else ended._replace(ticket=Ticket(1))


class OneByOne(Broken):
    """Says that it takes two, and takes one."""

    def _fill(self) -> None:
        if not self._running:
            facts = self.facts
            self.facts = dataclasses.replace(facts, in_flight=1)
            super()._fill()
            self.facts = facts


class FailsTogether(Broken):
    def collect(self, timeout_s: float | None = None) -> Ended | None:
        ended = super().collect(timeout_s)
        if ended and isinstance(ended.result, EngineError):
            self.error = ended.result
        return ended and ended._replace(result=getattr(self, "error", ended.result))


class CannotCancel(Broken):
    def cancel(self, ticket: Ticket) -> None:
        pass


class Survives(Broken):
    """Dead or hung, it still answers what waits."""

    def _told(self, result: Any) -> Reply:
        try:
            return super()._told(result)
        except EngineError:
            return self._player.play(ANY_PROMPT, Generation(max_tokens=2, ignore_eos=True), None, 0, 0)


ANY_PROMPT = Prompt(id="p", workload="w", kind="fact", text="x", sha256="0")


class EmptyReplies(Survives):
    """Takes garbage for a short reply."""


class StaysOpen(Broken):
    def close(self) -> None:
        pass


class LeavesFiles(Broken):
    def close(self) -> None:
        import tempfile

        Path(tempfile.mkstemp()[1]).write_text("left behind")
        super().close()


class LeavesProcesses(Broken):
    """Its process is this one, which does not end."""

    def __init__(self, engine: MockEngine, launch: Launch, block: int) -> None:
        super().__init__(engine, launch, block)
        self.facts = dataclasses.replace(self.facts, pids=(os.getpid(),))


class Unready(Broken):
    def __init__(self, engine: MockEngine, launch: Launch, block: int) -> None:
        super().__init__(engine, launch, block)
        self.facts = SessionFacts(argv=(), ready_ms=1.0, resolved={})


FOUND: dict[type[Broken], str] = {
    Unready: "a_session_says_what_it_is",
    Miscounts: "counts_are_exact",
    GoesOn: "the_end_is_obeyed",
    ClaimsTime: "times_lie_within_the_request",
    OtherText: "text_is_that_of_its_tokens",
    LosesAccents: "tokens_come_back_as_text",
    SaysSurrogates: "any_script_is_answered",
    Raises: "what_is_not_unicode_is_refused",
    CutsPrompts: "long_prompts_have_a_limit",
    Forgets: "greedy_decoding_repeats",
    Guesses: "candidates_begin_with_what_is_said",
    CountsOnlyHalf: "drafts_are_conserved",
    AnotherText: "drafting_changes_no_text",
    MixesUp: "requests_in_flight_are_answered",
    OneByOne: "requests_in_flight_overlap",
    FailsTogether: "a_request_fails_alone",
    CannotCancel: "a_cancelled_request_is_never_collected",
    Survives: "a_dead_engine_fails_all_in_flight",
    EmptyReplies: "garbage_is_told_from_an_answer",
    StaysOpen: "close_ends_what_is_in_flight",
    LeavesFiles: "nothing_is_left_behind",
}


def broken(session: type[Broken]) -> Subject:
    class Engine(MockEngine):
        def start(self, launch: Launch) -> MockSession:
            made = session(self, launch, 0)
            self.now_ms += made.facts.ready_ms
            return made

    subject = mock(Engine)
    planted = {kind: Engine(it.spec) for kind, it in subject.planted.items() if isinstance(it, MockEngine)}
    return dataclasses.replace(subject, planted=planted)


@pytest.mark.parametrize(("session", "name"), FOUND.items(), ids=lambda it: it if isinstance(it, str) else it.__name__)
def test_what_is_broken_is_found_by_the_case_for_it(session: type[Broken], name: str) -> None:
    report = examine(broken(session))
    results = {result.case: result for result in report.results}
    assert results[name].status == "failed", report
    assert results[name].reason
    assert not report.passed


def test_a_hang_that_is_not_noticed_is_found() -> None:
    with broken(Survives) as it, pytest.raises(NotMet, match="instead of EngineHungError"):
        case("a_hung_engine_is_noticed")(it)


def test_a_session_that_closed_stays_closed() -> None:
    with broken(StaysOpen) as it, pytest.raises(NotMet, match="does not raise EngineDiedError"):
        case("close_ends_the_engine")(it)


def test_an_identity_that_changes_or_lies_is_found(tmp_path: Path) -> None:
    (tmp_path / "engine").write_bytes(b"what it is")
    identity = MockEngine().identify()

    class Engine(MockEngine):
        told: ClassVar[list[EngineIdentity]] = []

        def identify(self) -> EngineIdentity:
            return self.told.pop(0) if len(self.told) > 1 else self.told[0]

    for told, why in (
        ([identity, identity.model_copy(update={"version": "2"})], "the second identity"),
        ([identity.model_copy(update={"binary": str(tmp_path / "engine")})], "has SHA-256"),
        ([identity.model_copy(update={"binary_sha256": "ABC"})], "is not a SHA-256"),
    ):
        Engine.told = list(told)
        with pytest.raises(NotMet, match=why):
            CASES[0](mock(Engine))


def test_a_damaged_model_that_starts_is_found(tmp_path: Path) -> None:
    (tmp_path / "model").write_bytes(b"whole" * 1000)
    subject = mock()
    target = subject.target.model_copy(update={"path": str(tmp_path / "model")})
    with dataclasses.replace(subject, target=target) as it, pytest.raises(NotMet, match="it started"):
        case("a_damaged_model_is_refused")(it)


def test_every_case_teaches_and_was_seen_to_fail() -> None:
    for it in CASES:
        assert (it.__doc__ or "").count(".") >= 1, it
    elsewhere = {
        "identity_is_stable",
        "a_damaged_model_is_refused",
        "a_hung_engine_is_noticed",
        "close_ends_the_engine",
    }
    assert {it.__name__ for it in CASES} == {*FOUND.values(), *elsewhere}


def test_the_report_says_what_passed_and_what_does_not_apply() -> None:
    subject = mock()
    report = examine(dataclasses.replace(subject, planted={}, drafting=None))
    assert report.passed, report
    text = str(report)
    assert "no engine was given that shows this (Subject.planted['hangs'])" in text
    assert text.splitlines()[-1].startswith("19 of 25 cases passed, 0 failed")


def test_what_is_left_running_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kit, "GONE_WITHIN_S", 0.1)
    with broken(LeavesProcesses) as it, pytest.raises(NotMet, match="still running"):
        case("close_ends_the_engine")(it)


def test_what_does_not_apply_is_skipped_by_pytest_and_unittest() -> None:
    assert issubclass(NotApplicable, unittest.SkipTest)
