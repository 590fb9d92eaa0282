"""An engine as another author would write it: a small real one, whose target says a word again and again.

It repeats the last word of the prompt, one token per character. The method `parrot` drafts what came `stride` tokens
ago. `toy` counts what it does; `shy` does the same and tells nothing of it.

Its clock is one of its own: a forward takes a millisecond, a tenth more for each token drafted, and by chance up to 5 %
more. By the machine's clock a millisecond of sleep takes ten while others work, and the speed-up would be theirs.
"""

from __future__ import annotations

import hashlib
import random
import time
from itertools import count
from pathlib import Path
from typing import Any

from specmeter.engines import EngineSession, Launch, SessionFacts
from specmeter.engines.registry import EngineSpec
from specmeter.engines.session import Ended, Ticket
from specmeter.errors import EngineDiedError, EngineError, EngineProtocolError, ModelError
from specmeter.record import (
    EngineIdentity,
    EngineTraits,
    Generation,
    MethodTraits,
    ModelIdentity,
    Prompt,
    Record,
    Reply,
    Step,
    Timings,
)
from specmeter.record.base import utf8

FORWARD_MS, DRAFTED_MS, CHANCE = 1.0, 0.1, 0.05


class Options(Record):
    """Settings of its own."""

    stride: int = 4
    """Tokens back that `parrot` looks; without influence on plain decoding."""
    shout: bool = False
    """Says everything in capitals."""


TOY = EngineTraits(
    methods=(MethodTraits(name="parrot", drafter="lookup", parameters=("gamma",)),),
    settings=("context", "stream_tokens"),
    draft_options=("stride",),
    tells=("drafts", "forwards", "steps", "tokens", "arrivals", "activation", "identity"),
)
SHY = TOY.model_copy(update={"tells": ()})


class ToyEngine:
    def __init__(self, kind: str, traits: EngineTraits) -> None:
        self.kind, self.traits = kind, traits

    def identify(self) -> EngineIdentity:
        tells = "identity" in self.traits.tells
        code = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()
        return EngineIdentity(
            kind=self.kind,
            version="1.2.3",
            build="toy 1.2.3",
            binary=__file__ if tells else "",
            binary_sha256=code if tells else "",
            traits=self.traits,
        )

    def start(self, launch: Launch) -> ToySession:
        return ToySession(launch, self.traits)

    def clock(self) -> float:
        return time.time()


class ToySession(EngineSession):
    def __init__(self, launch: Launch, traits: EngineTraits) -> None:
        self.arm, self.tells = launch.arm, set(traits.tells)
        self.options = Options.model_validate(launch.arm.engine.options)
        self.alive = True
        self.waiting: dict[Ticket, tuple[Prompt, Generation]] = {}
        self.numbers = count(1)
        self.facts = SessionFacts(
            argv=("toy", launch.target.reference),
            ready_ms=1.0,
            resolved={},
            speculating=launch.arm.speculates if "activation" in self.tells else None,
        )

    def generate(self, prompt: Prompt, generation: Generation) -> Reply:
        if not self.alive:
            raise EngineDiedError("the toy has ended", fix="start it again")
        wanted, room = prompt.max_tokens or generation.max_tokens, self.arm.engine.full_context
        if len(utf8(prompt.text).decode()) + wanted > room:
            raise EngineProtocolError(f"there is room for {room} tokens", fix="raise engine.context")
        said = self._says(prompt, wanted)
        now = prompt_ms = _forward(0)
        arrivals, steps, done = [prompt_ms], list[Step](), 1
        while done < len(said):
            gamma = min(self.arm.gamma or 4, len(said) - done - 1) if self.arm.speculates else 0
            drafted = [said[at - self.options.stride] for at in range(done, done + gamma) if at >= self.options.stride]
            accepted = 0
            while accepted < len(drafted) and drafted[accepted] == said[done + accepted]:
                accepted += 1
            now += _forward(len(drafted))
            steps.append(Step(drafted=len(drafted), accepted=accepted, at_ms=now))
            arrivals += [now] * (accepted + 1)
            done += accepted + 1
        counted = "drafts" in self.tells
        return Reply(
            text="".join(map(chr, said)),
            token_ids=tuple(said) if "tokens" in self.tells else (),
            stop_reason="limit",
            timings=Timings(
                prompt_n=len(prompt.text),
                prompt_ms=prompt_ms,
                predicted_n=len(said),
                predicted_ms=now - prompt_ms,
                draft_n=sum(step.drafted for step in steps) if counted else None,
                draft_n_accepted=sum(step.accepted for step in steps) if counted else None,
            ),
            counters={"n_decode_total": len(steps) + 1} if "forwards" in self.tells else {},
            wall_ms=now,
            ttft_ms=prompt_ms if "arrivals" in self.tells else None,
            arrival_ms=tuple(arrivals) if "arrivals" in self.tells else (),
            steps=tuple(steps) if "steps" in self.tells else (),
        )

    def submit(self, prompt: Prompt, generation: Generation) -> Ticket:
        self.waiting[ticket := Ticket(next(self.numbers))] = (prompt, generation)
        return ticket

    def collect(self, timeout_s: float | None = None) -> Ended | None:  # noqa: ARG002
        """One at a time, when it is asked for."""
        if not self.waiting:
            return None
        ticket = next(iter(self.waiting))
        try:
            return Ended(ticket, self.generate(*self.waiting.pop(ticket)))
        except EngineError as error:
            return Ended(ticket, error)

    def cancel(self, ticket: Ticket) -> None:
        self.waiting.pop(ticket, None)

    def _says(self, prompt: Prompt, length: int) -> list[int]:
        word = prompt.text.split()[-1].upper() if self.options.shout else prompt.text.split()[-1]
        text = f"{word} " * (length // len(word) + 1)
        return list(map(ord, text[:length]))

    def candidates(self, *asked: Any) -> Any:  # noqa: ARG002
        raise AssertionError("an engine must not be asked for what it does not tell")

    def prompt_tokens(self, prompt: Prompt) -> tuple[int, ...]:
        assert "tokens" in self.tells, "an engine must not be asked for what it does not tell"
        return tuple(map(ord, prompt.text))

    def tokenize(self, text: str) -> tuple[int, ...]:
        return tuple(map(ord, text))

    def detokenize(self, token_ids: tuple[int, ...]) -> str:
        return "".join(map(chr, token_ids))

    def close(self) -> None:
        self.alive = False
        self.waiting.clear()


def _forward(drafted: int) -> float:
    """Its ms; no less time passes."""
    ms = (FORWARD_MS + DRAFTED_MS * drafted) * random.uniform(1, 1 + CHANCE)
    time.sleep(ms / 1e3)
    return ms


def model(options: Options, name: str, reference: str) -> ModelIdentity:  # noqa: ARG001
    """Its only model."""
    if reference != "toy:parrot":
        raise ModelError(f"targets.{name}: {reference}: the toy has no such model", fix="name toy:parrot")
    sha256 = hashlib.sha256(reference.encode()).hexdigest()
    return ModelIdentity(name=name, reference=reference, path=reference, sha256=sha256, size_bytes=0, origin="engine")


KIND = EngineSpec(traits=TOY, make=lambda _: ToyEngine("toy", TOY), model=model, options=Options)
SHY_KIND = EngineSpec(traits=SHY, make=lambda _: ToyEngine("shy", SHY), model=model, options=Options)
NOT_A_KIND = ToyEngine
