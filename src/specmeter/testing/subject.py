"""The subject of a conformance examination: the engine, what it may be asked, and where it may write."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property, wraps
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal, Self
from unittest import SkipTest

import psutil

from specmeter.engines import Engine, EngineSession, Launch
from specmeter.errors import EngineError, SpecmeterError
from specmeter.record import TRUTHS, Arm, Generation, ModelIdentity, Prompt, Reply, Truth

TEXT = "The people of the valley built a bridge. The people of the valley built"
NEAR_TIE = 0.3
"""Nats between two tokens that another order of summation may swap, as in the check of losslessness."""
GONE_WITHIN_S = 10.0

Fault = Literal["dies", "hangs", "garbage"]


class NotMet(AssertionError):  # noqa: N818
    """The engine does not do what a case demands."""


class NotApplicable(SkipTest):
    """The case cannot be tried on this engine; pytest and unittest skip it."""


def demand(met: object, otherwise: str) -> None:
    """Raise `NotMet` with what is wrong, unless `met`."""
    if not met:
        raise NotMet(otherwise)


Case = Callable[["Subject"], None]


def needs(*truths: Truth) -> Callable[[Case], Case]:
    """A case about what an engine tells: not applicable where its traits say that it does not."""

    def limited(case: Case) -> Case:
        @wraps(case)
        def tried(subject: Subject) -> None:
            if lacking := [TRUTHS[truth] for truth in truths if truth not in subject.tells]:
                raise NotApplicable(f"the engine does not report {lacking[0]}")
            case(subject)

        return tried

    return limited


@dataclass
class Subject:
    """The engine to be examined. A context manager, since some cases share one session."""

    engine: Engine
    arm: Arm
    """Decodes plainly. Its context should have room for some thousand tokens per slot: generations that are killed,
    stopped or cancelled have to last a moment. With `engine.slots` above 1, as many requests have to run at once."""
    target: ModelIdentity
    drafting: Arm | None = None
    """The same with speculative decoding; None for an engine that has none."""
    draft: ModelIdentity | None = None
    """Of `drafting`, where its method needs one."""
    greedy_repeats: bool = True
    """Whether the engine claims that greedy decoding says the same every time."""
    planted: Mapping[Fault, Engine] = field(default_factory=dict[Fault, Engine])
    """Engines of this kind with something wrong: one that dies or hangs while it generates (needed only where there is
    no process to be killed or stopped), and one that answers nonsense."""

    def __post_init__(self) -> None:
        self._resources = ExitStack()

    @cached_property
    def tells(self) -> frozenset[Truth]:
        """What the engine can tell, by its traits; everything where it states none."""
        traits = self.engine.identify().traits
        return frozenset(TRUTHS if traits is None else traits.tells)

    @cached_property
    def folder(self) -> Path:
        """Where engines may write their logs."""
        return Path(self._resources.enter_context(TemporaryDirectory(prefix="specmeter-testing-")))

    @cached_property
    def session(self) -> EngineSession:
        """A session for the cases that leave it as they found it."""
        return self._resources.enter_context(self.start())

    @property
    def room(self) -> int:
        """Tokens of a prompt and its answer together."""
        return self.arm.engine.full_context // self.arm.engine.slots

    def start(
        self,
        arm: Arm | None = None,
        *,
        engine: Engine | None = None,
        target: ModelIdentity | None = None,
        idle_timeout_s: float = 120.0,
    ) -> EngineSession:
        """A session of its own, of `arm` (default: the plain one)."""
        arm = arm or self.arm
        launch = Launch(
            arm=arm,
            target=target or self.target,
            draft=self.draft if arm.draft else None,
            log_path=self.folder / f"{time.monotonic_ns()}.log",
            start_timeout_s=300.0,
            idle_timeout_s=idle_timeout_s,
        )
        return (engine or self.engine).start(launch)

    def failing(self, fault: Fault) -> Engine:
        """The engine with that planted. Raises `NotApplicable` where the author gave none."""
        if fault not in self.planted:
            raise NotApplicable(f"no engine was given that shows this (Subject.planted[{fault!r}])")
        return self.planted[fault]

    def endless(self, session: EngineSession) -> Generation:
        """As many tokens as there is room for after `TEXT`. Asked before anything is in flight: it asks the engine."""
        taken = len(session.prompt_tokens(prompt())) if "tokens" in self.tells else len(TEXT)
        return greedy(max(1, self.room - taken - 8))

    def close(self) -> None:
        """End the shared session and remove what was written; safe to call twice, and both come back when needed."""
        self._resources.close()
        for name in ("session", "folder"):
            self.__dict__.pop(name, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def prompt(text: str = TEXT) -> Prompt:
    """A prompt to be continued, its text unchecked."""
    digest = sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    plain = Prompt(id="conformance", workload="conformance", kind="fact", text="", sha256=digest)
    return plain.model_copy(update={"text": text})


def greedy(max_tokens: int, *, ignore_eos: bool = True) -> Generation:
    """Greedy decoding of this many tokens."""
    return Generation(max_tokens=max_tokens, ignore_eos=ignore_eos)


def replied(result: Reply | SpecmeterError) -> Reply:
    """The reply of a request that was to succeed."""
    if not isinstance(result, Reply):
        raise NotMet(f"a request failed that should not: {result!r}")
    return result


def refused(session: EngineSession, text: str, why: str) -> None:
    """Demand that the engine refuses the prompt in words of ours, and that it continues."""
    try:
        session.generate(prompt(text), greedy(4))
    except SpecmeterError as error:
        demand(error.message and error.fix, f"{type(error).__name__} without a message or a fix")
    except Exception as error:
        raise NotMet(f"{why}: {type(error).__name__} instead of an EngineError: {error}") from error
    else:
        raise NotMet(f"{why}: accepted")
    demand(session.generate(prompt(), greedy(4)).timings.predicted_n == 4, f"unusable after refusing {why}")


def alike(session: EngineSession, one: Reply, other: Reply, what: str) -> None:
    """Demand that two greedy replies to `TEXT` are the same, or part where two tokens are nearly as likely."""
    for place, (mine, theirs) in enumerate(zip(one.token_ids, other.token_ids, strict=False)):
        if mine != theirs and -1 not in (mine, theirs):
            found = session.candidates(prompt(), one.token_ids[:place], greedy(1), 16)
            logs = {it.token: it.logprob for it in found}
            near = mine in logs and theirs in logs and abs(logs[mine] - logs[theirs]) <= NEAR_TIE
            demand(near, f"{what}: token {place} is {theirs} and not {mine}, which is not a near tie")
            return
    demand(
        len(one.token_ids) == len(other.token_ids), f"{what}: {len(other.token_ids)} tokens, not {len(one.token_ids)}"
    )


def alive(pids: Sequence[int]) -> list[int]:
    """Those of the processes that still run."""

    def lives(pid: int) -> bool:
        try:
            return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False

    return [pid for pid in pids if lives(pid)]


def gone_within(pids: Sequence[int], seconds: float) -> bool:
    """Whether all of the processes have ended, or do so in that time."""
    deadline = time.monotonic() + seconds
    while alive(pids) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not alive(pids)


def ended(session: EngineSession) -> None:
    """Demand that a closed session's processes are gone."""
    demand(gone_within(session.facts.pids, GONE_WITHIN_S), f"still running after close: {alive(session.facts.pids)}")


def failure(session: EngineSession) -> EngineError | None:
    """The error of one more request; None where it is answered."""
    try:
        session.generate(prompt(), greedy(2))
    except EngineError as error:
        return error
    return None
