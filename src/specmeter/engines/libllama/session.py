"""One arm in this process: models, memory and drafter; generates one request at a time, or what one asks for.

`child` runs it in a process of its own for experiments; probes and tests use it directly. `together` carries out
several requests at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from specmeter.engines import Candidate
from specmeter.engines.libllama.decoder import Decoder, Generated, Progress
from specmeter.engines.libllama.drafters import Drafter, FirstOf, ModelDrafter, NgramDrafter, Oracle
from specmeter.engines.libllama.spec import longest, parameters
from specmeter.engines.llama_cpp.draft_rules import NGRAM_GAMMA, NGRAM_N, NgramLookup
from specmeter.engines.llama_cpp.replies import split_reasoning
from specmeter.errors import EngineProtocolError, ExperimentError
from specmeter.llama_binding.context import Context, RoutingTap, alone
from specmeter.llama_binding.model import Model, log_softmax
from specmeter.record import Generation, Reply, Timings

if TYPE_CHECKING:
    from specmeter.llama_binding.context import Work
    from specmeter.record import Arm, Prompt

_COUNTERS = (
    "n_busy_slots_total",
    "spec_decode_num_drafts_total",
    "spec_decode_num_draft_tokens_total",
    "spec_decode_num_accepted_tokens_total",
)
"""As llama.cpp's server calls what requests add up to: forwards that each had a part in, drafts and their tokens."""


class InProcessSession:
    """Implements what an engine session does, in this process. A context manager."""

    def __init__(
        self,
        arm: Arm,
        target: Path,
        draft: Path | None,
        threads: int,
        *,
        announce: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Load everything. `announce` receives each stage, in the words of llama.cpp's server log.

        Vocabularies are not compared here: an experiment is refused such a pair before it starts (`models.preflight`).
        Neither is the arm (`registry.check_arm`). Raises `EngineStartError` when llama.cpp cannot load or has no room.
        """
        self.arm = arm
        self._resources = ExitStack()
        try:
            self._open(arm, target, draft, threads, announce)
        except BaseException:
            self.close()
            raise

    def _open(self, arm: Arm, target: Path, draft: Path | None, threads: int, announce: Callable[[str], None]) -> None:
        settings, stack = arm.engine, self._resources
        rows, slots = max(longest(arm) + 1, 2), settings.slots
        self.tap = RoutingTap() if settings.record_experts else None
        model = stack.enter_context(
            Model(target, gpu_layers=settings.gpu_layers, load_mode=_load_mode(settings.mmap), devices=settings.devices)
        )
        self.target = stack.enter_context(
            Context(model, settings, threads=threads, rows=slots * rows, tap=self.tap, sequences=slots)
        )
        self._draft: Context | None = None
        if draft is not None and "draft-simple" in arm.methods:
            announce(f"loading draft model '{draft}'")
            shared = _same_file(draft, target)
            own = (
                model
                if shared
                else stack.enter_context(
                    Model(
                        draft,
                        gpu_layers=settings.draft_gpu_layers,
                        load_mode=_load_mode(settings.mmap),
                        devices=settings.draft_devices,
                    )
                )
            )
            self._draft = stack.enter_context(Context(own, settings, threads=threads, draft=True, sequences=slots))
        for method, values in parameters(arm).items():
            announce(f"adding speculative implementation '{method}'")
            announce(": - " + ", ".join(f"{name}={value}" for name, value in values.items()))
        if arm.synthetic_rates:
            announce("synthetic acceptance is enabled: errors are planted into the target's own continuation")
        self._foretold: dict[tuple[str, int], list[int]] = {}
        self._foretelling = 0
        """Forwards that no request is answered by."""
        self._counted = dict.fromkeys(_COUNTERS, 0)

    def close(self) -> None:
        """Free everything; safe to call twice."""
        self._resources.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def resolved(self) -> dict[str, Any]:
        """Values in force, by the names that sessions record."""
        settings, target = self.arm.engine, self.target
        draft = (
            {}
            if self._draft is None
            else {"draft_n_ctx": self._draft.capacity, "draft_n_batch": self._draft.batch_size}
        )
        return {
            "n_ctx": target.capacity,
            "n_batch": target.batch_size,
            "n_ubatch": target.ubatch_size,
            "kv_type_k": settings.kv_type_k or "f16",
            "kv_type_v": settings.kv_type_v or "f16",
            "threads": target.threads,
            "batch_threads": target.threads,
            "total_slots": len(target.sequences),
            "methods": sorted(parameters(self.arm)),
            "sampling": dict(zip(("top_k", "top_p", "min_p"), Generation().filters, strict=True)),
            "method_parameters": parameters(self.arm),
            "policy": "confidence" if self.arm.p_min else "fixed",
            "rule": self.arm.rule or "rejection",
            **({"kv_unified": target.unified} if len(target.sequences) > 1 else {}),
            **draft,
        }

    def totals(self) -> dict[str, float]:
        """What was counted since the session started; of requests, when they end."""
        return {"n_decode_total": self.target.calls - self._foretelling, **self._counted}

    def foretell(self, prompt: Prompt, generation: Generation, *, progress: Progress | None = None) -> None:
        """For planted errors: find out without speculation what the target will say to `prompt`.

        `generate` does it itself if it was not done before, and then it counts as time that the client waits.
        """
        generation, text, tokens = self._prepared(prompt, generation)
        self._continuation(tokens, generation, text, progress)

    def generate(self, prompt: Prompt, generation: Generation, *, progress: Progress | None = None) -> Reply:
        """Generate for one prompt. Raises `EngineProtocolError`."""
        return alone(self.work(prompt, generation, progress=progress))

    def work(
        self, prompt: Prompt, generation: Generation, slot: int = 0, *, progress: Progress | None = None
    ) -> Work[Reply]:
        """`generate` in one of the slots, as forwards that may be shared with the other slots' (`together`)."""
        generation, text, tokens = self._prepared(prompt, generation)
        rng = np.random.default_rng(generation.seed)
        target = self.target.sequences[slot]
        drafter = self._drafter(generation, rng, slot)
        if isinstance(drafter, Oracle):
            drafter.foretell(self._continuation(tokens, generation, text, progress, slot))
        decoder = Decoder(
            target,
            generation,
            drafter=drafter,
            gamma=longest(self.arm),
            rule="sample-match" if self.arm.rule == "sample-match" else "rejection",
            gamma_min=self.arm.gamma_min or 0,
            rng=rng,
            tap=self.tap,
        )
        started = time.perf_counter()
        out = yield from decoder.work(tokens, progress=progress)
        return self._reply(out, text, prompt, (time.perf_counter() - started) * 1e3)

    def candidates(
        self, prompt: Prompt, generated: Sequence[int], generation: Generation, count: int
    ) -> tuple[Candidate, ...]:
        """What the target thinks may follow, likeliest first; see `specmeter.engines.EngineSession`."""
        model = self.target.model
        _, _, tokens = self._prepared(prompt, generation)
        self.target.cut(0)
        row = self.target.extend([*tokens, *generated])[0]
        logs = log_softmax(row)
        # Equal logits in the order of their ids, as greedy decoding takes them.
        order = np.argsort(-row, kind="stable")
        allowed = (int(it) for it in order if not (generation.ignore_eos and model.is_end(int(it))))
        return tuple(Candidate(token, float(logs[token])) for token, _ in zip(allowed, range(count), strict=False))

    def prompt_tokens(self, prompt: Prompt) -> list[int]:
        """Token ids that the target processes for `prompt`, the template's and BOS included."""
        return self._prepared(prompt, Generation())[2]

    def tokenize(self, text: str) -> list[int]:
        """Token ids of `text` without special tokens added."""
        return self.target.model.tokenize(text, add_special=False, parse_special=False)

    def detokenize(self, token_ids: Sequence[int]) -> str:
        """Text of `token_ids`."""
        return self.target.model.text_of(token_ids, special=True)

    def _prepared(self, prompt: Prompt, generation: Generation) -> tuple[Generation, str, list[int]]:
        """(what is generated for this prompt, its text in the model's template, its tokens)."""
        if prompt.max_tokens is not None:
            generation = generation.model_copy(update={"max_tokens": prompt.max_tokens})
        if prompt.thinking is not None:
            raise EngineProtocolError(
                f"{prompt.id}: `thinking` is an argument of the chat template, which llama.cpp's C interface does "
                "not run",
                fix="use the engine `embedded` or `native`, or leave `thinking` out",
            )
        model = self.target.model
        text = model.chat(prompt.messages) if prompt.format == "chat" and model.has_template else prompt.said
        return generation, text, self._tokens(text)

    def _tokens(self, text: str) -> list[int]:
        tokens = self.target.model.tokenize(text, add_special=True, parse_special=True)
        if not tokens:
            raise EngineProtocolError("the prompt is empty", fix="give a prompt of at least one token")
        if len(tokens) >= self.target.room:
            raise EngineProtocolError(
                f"the prompt has {len(tokens)} tokens, which fills the context of {self.target.room}",
                fix="raise engine.context (slots share it), or shorten the prompt",
            )
        return tokens

    def _drafter(self, generation: Generation, rng: np.random.Generator, slot: int) -> Drafter | None:
        arm = self.arm
        if not arm.speculates:
            return None
        # By rejection, a draft is drawn from the draft's own distribution; llama.cpp's rule takes its best token.
        draws = generation.temperature > 0 and (arm.rule or "rejection") == "rejection"
        by_model = (
            ModelDrafter(
                self._draft.sequences[slot],
                self.target.model.vocabulary_size,
                generation,
                drawn=rng if draws else None,
                p_min=arm.p_min or 0.0,
            )
            if self._draft is not None
            else None
        )
        if arm.synthetic_rates:
            if generation.temperature > 0:
                raise ExperimentError(
                    f"arm {arm.id}: synthetic_rates at temperature {generation.temperature:g}: the target's "
                    "next token is only known at temperature 0",
                    fix="set generation.temperature to 0",
                )
            model = self.target.model
            dice = np.random.default_rng(generation.seed)
            forbidden = frozenset(model.end_tokens.tolist())
            return Oracle(arm.synthetic_rates, dice, model.vocabulary_size, forbidden, cost=by_model)
        found: list[Drafter] = []
        if "ngram-simple" in arm.methods:
            found.append(NgramDrafter(NgramLookup(arm.ngram_n or NGRAM_N, arm.gamma or NGRAM_GAMMA)))
        if by_model is not None:
            found.append(by_model)
        return found[0] if len(found) == 1 else FirstOf(found)

    def _continuation(
        self, tokens: Sequence[int], generation: Generation, text: str, progress: Progress | None, slot: int = 0
    ) -> list[int]:
        """What the target says without speculation; not part of any measured time."""
        key = (text, generation.max_tokens)
        if key not in self._foretold:
            memory, before = self.target.sequences[slot], self.target.calls
            self._foretold[key] = Decoder(memory, generation).generate(tokens, progress=progress).tokens
            self._foretelling += self.target.calls - before
        return self._foretold[key]

    def _reply(self, out: Generated, text: str, prompt: Prompt, wall_ms: float) -> Reply:
        steps = out.steps
        counted = (out.forwards, sum(it.drafted > 0 for it in steps), out.drafted, out.accepted)
        for name, count in zip(_COUNTERS, counted, strict=True):
            self._counted[name] += count
        model = self.target.model
        said = model.text_of(out.tokens)
        shown, reasoning = split_reasoning(said, text) if prompt.format == "chat" else (said, "")
        timings = Timings(
            prompt_n=out.prompt_n,
            prompt_ms=out.prompt_ms,
            predicted_n=len(out.tokens),
            predicted_ms=out.decode_ms,
            draft_n=out.drafted,
            draft_n_accepted=out.accepted,
        )
        return Reply(
            text=shown,
            reasoning=reasoning,
            token_ids=tuple(out.tokens),
            stop_reason=out.stop_reason,
            timings=timings,
            raw_timings={},
            counters={"n_decode_total": out.forwards},
            wall_ms=wall_ms,
            ttft_ms=out.prompt_ms,
            arrival_ms=tuple(out.at_ms),
            steps=tuple(steps) if self.arm.engine.trace_steps else (),
        )


def _load_mode(mmap: bool | None) -> Any:
    return "auto" if mmap is None else "mmap" if mmap else "none"


def _same_file(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return False
