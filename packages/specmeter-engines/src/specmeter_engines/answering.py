"""What the children of engines have in common: a tokenizer of Hugging Face's form, and the account of a generation."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, NamedTuple

from specmeter.engines import Candidate
from specmeter.errors import EngineProtocolError, EngineStartError
from specmeter.numbers.reconciled import VERIFIED
from specmeter.record import Arm, Generation, Prompt, Reply, Step, Timings
from specmeter.record.base import utf8


class TargetForward(NamedTuple):
    """What came of a forward of the target: one token of its own, behind those of a draft that it accepted."""

    drafted: int
    """Tokens that were handed to it; those without which the same would have come are not among them."""
    tokens: int
    at: float
    """When it came, by `time.perf_counter`."""


class Answering:
    """Questions whose answers hardly depend on the engine; its `generate` is in `_generate`."""

    arm: Arm
    tokenizer: Any
    """One of Hugging Face's."""
    ends: Sequence[int]
    """Tokens that end a text."""

    def load_tokenizer(self, target: str, draft: str | None) -> None:
        """Raises `EngineStartError` for a draft of another vocabulary."""
        load: Any = import_module("transformers").AutoTokenizer.from_pretrained
        self.tokenizer = load(target, local_files_only=True)
        if draft is not None and load(draft, local_files_only=True).get_vocab() != self.tokenizer.get_vocab():
            raise EngineStartError(
                f"{draft}: the draft model's vocabulary differs from the target's",
                fix="use a draft model of the same family",
            )

    def close(self) -> None:
        """Nothing is left to do: the process ends."""

    def totals(self) -> dict[str, float]:
        """Nothing is counted from request to request."""
        return {}

    def tokenize(self, text: str) -> list[int]:
        """Token ids of `text` without special tokens added."""
        return self.tokenizer(text, add_special_tokens=False)["input_ids"]

    def detokenize(self, token_ids: Sequence[int]) -> str:
        """Text of `token_ids`."""
        return self.tokenizer.decode(token_ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)

    def prompt_tokens(self, prompt: Prompt) -> list[int]:
        """Token ids that the target processes for `prompt`."""
        for said in prompt.messages:
            utf8(said["content"])
        return self._read(prompt)

    def candidates(
        self, prompt: Prompt, generated: Sequence[int], generation: Generation, count: int
    ) -> list[Candidate]:
        """Of an engine that tells them: what the target thinks may follow, likeliest first."""
        raise NotImplementedError

    def _read(self, prompt: Prompt) -> list[int]:
        if prompt.format == "chat" and self.tokenizer.chat_template:
            given = prompt.template_arguments.get("chat_template_kwargs", {})
            text = self.tokenizer.apply_chat_template(
                prompt.messages, add_generation_prompt=True, tokenize=False, **given
            )
            return self.tokenize(text)
        return self.tokenizer(prompt.said)["input_ids"]

    def _text(self, token_ids: Sequence[int]) -> str:
        return self.tokenizer.decode(token_ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)

    def generate(self, prompt: Prompt, generation: Generation, *, progress: Callable[[int], None]) -> Reply:
        """Generate for one prompt. Raises `EngineProtocolError`."""
        ids, wanted = self.prompt_tokens(prompt), prompt.max_tokens or generation.max_tokens
        if not ids or len(ids) + wanted > self.arm.engine.full_context:
            raise EngineProtocolError(
                f"the prompt has {len(ids)} tokens and {wanted} are to be generated, but the context holds "
                f"{self.arm.engine.full_context}",
                fix="raise engine.context, or shorten the prompt",
            )
        started = time.perf_counter()
        said, reply = self._generate(ids, generation, wanted, progress)
        wall_ms = (time.perf_counter() - started) * 1e3
        stop_reason = "limit" if len(said) == wanted else "eos"
        return reply.model_copy(update={"text": self._text(said), "stop_reason": stop_reason, "wall_ms": wall_ms})

    def _generate(
        self, ids: Sequence[int], generation: Generation, wanted: int, progress: Callable[[int], None]
    ) -> tuple[list[int], Reply]:
        """(what was said, its account)."""
        raise NotImplementedError

    def account(
        self, read: int, said: Sequence[int], came: Sequence[TargetForward], started: float, *, first_s: float = 0.0
    ) -> Reply:
        """The account of a generation; `first_s` of the time until its first token went into a draft, which belongs to
        decoding. Raises `EngineProtocolError` where it does not close."""
        if not came or sum(it.tokens for it in came) != len(said):
            raise unknown_version(f"{sum(it.tokens for it in came)} tokens in {len(came)} steps, and {len(said)} came")
        begins, ends = came[0].at, came[-1].at
        steps = tuple(Step(drafted=it.drafted, accepted=it.tokens - 1, at_ms=(it.at - started) * 1e3) for it in came)
        return Reply(
            text="",
            token_ids=tuple(said),
            stop_reason="",
            timings=Timings(
                prompt_n=read,
                prompt_ms=(begins - started - first_s) * 1e3,
                predicted_n=len(said),
                predicted_ms=(ends - begins + first_s) * 1e3,
                draft_n=sum(it.drafted for it in came),
                draft_n_accepted=len(said) - len(came),
            ),
            counters={VERIFIED: sum(it.drafted > 0 for it in came)},
            wall_ms=0.0,
            ttft_ms=(begins - started) * 1e3,
            arrival_ms=tuple((it.at - started) * 1e3 for it in came for _ in range(it.tokens)),
            steps=steps if self.arm.speculates else (),
        )


def unknown_version(what: str) -> EngineProtocolError:
    """The error for counts that are not those of a known version."""
    return EngineProtocolError(what, fix="install a version of the engine that the extra of specmeter-engines allows")


def unreadable(engine: str, folder: str, error: Exception) -> EngineStartError:
    """The error for a model that an engine cannot load, whatever it raises for that."""
    return EngineStartError(
        f"{folder}: {engine} cannot load this model ({type(error).__name__}: {str(error)[:300]})",
        fix="check the model folder, or make one with `specmeter models export`",
    )
