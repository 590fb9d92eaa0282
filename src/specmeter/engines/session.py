"""A running engine with its models loaded: what it says about itself, and what it can be asked."""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

if TYPE_CHECKING:
    from specmeter.record import DeviceUse, Generation, Prompt, Reply


@dataclass(frozen=True)
class SessionFacts:
    """What a session says about itself once it is ready; `measure` turns it into a `Session` record."""

    argv: tuple[str, ...]
    ready_ms: float
    resolved: dict[str, Any]
    speculating: bool | None = None
    devices: tuple[DeviceUse, ...] = ()
    draft_devices: tuple[DeviceUse, ...] = ()
    layers_offloaded: tuple[int, int] | None = None
    draft_layers_offloaded: tuple[int, int] | None = None
    pids: tuple[int, ...] = ()
    """Processes of the engine, for telemetry."""


class Candidate(NamedTuple):
    """A token that may come next."""

    token: int
    logprob: float
    """Natural logarithm of the target's probability, before any sampling."""


class EngineSession(Protocol):
    """One running engine with one target (and draft) loaded."""

    @property
    def facts(self) -> SessionFacts: ...

    def generate(self, prompt: Prompt, generation: Generation) -> Reply:
        """Generate for one prompt. Raises `EngineDiedError`, `EngineHungError` or `EngineProtocolError`."""
        ...

    def candidates(
        self, prompt: Prompt, generated: tuple[int, ...], generation: Generation, count: int
    ) -> tuple[Candidate, ...]:
        """What the target thinks may follow `prompt` and the tokens `generated` after it, likeliest first.

        At least one, at most `count`. The first is what greedy decoding says: likelier tokens that `generation` rules
        out (the end, with `ignore_eos`) are not listed. Raises what `generate` raises.
        """
        ...

    def prompt_tokens(self, prompt: Prompt) -> tuple[int, ...]:
        """Token ids that the target processes for `prompt`: its template and what the model adds are part of it."""
        ...

    def tokenize(self, text: str) -> tuple[int, ...]:
        """Token ids of `text` without special tokens added, for length-controlled prompts."""
        ...

    def detokenize(self, token_ids: tuple[int, ...]) -> str:
        """Text of `token_ids`."""
        ...

    def close(self) -> None:
        """End the engine and everything it started; safe to call twice."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
