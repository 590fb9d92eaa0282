"""A session's own process: one arm of mlx-lm, driven by its own generators, and counted from outside.

mlx-lm marks each token that came from a draft. A step ends with a token that did not, and drafts as many as it was
told, or as are left; what the models were called for has to agree with that.

The first draft is verified by the forward that reads the last token of the prompt. Drafting it belongs to decoding: its
time, for which both ends are waited for once, is moved there. Decoding without speculation reads one token further than
it needs to, while the last one is told: that forward is not counted.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from specmeter.engines import Candidate
from specmeter.engines.serving import one_by_one, serve
from specmeter.errors import SpecmeterError
from specmeter.record import Arm, Generation, Prompt, Reply
from specmeter_engines.answering import Answering, TargetForward, unknown_version, unreadable

mx: Any = import_module("mlx.core")
mlx_generate: Any = import_module("mlx_lm.generate")
make_sampler: Any = import_module("mlx_lm.sample_utils").make_sampler
load_model: Any = import_module("mlx_lm.utils").load_model

_GAMMA = 2
"""How long drafts are where nothing is said."""
_CHUNK = 512
"""Tokens of a prompt that are read at once."""


class Watched:
    """A model that notes how many tokens its forwards read, and can be told what it must not say."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.forwards = self.read = 0
        self.beyond_s: float | None = None
        """When the input of the first forward that reads beyond the prompt was there."""
        self._prompt, self._bias = 0, None

    def __call__(self, inputs: Any, *rest: Any, **named: Any) -> Any:
        self.forwards, self.read = self.forwards + 1, self.read + int(inputs.size)
        if self._prompt and self.beyond_s is None and self.read > self._prompt:
            mx.eval(inputs)
            self.beyond_s = time.perf_counter()
        logits = self.model(inputs, *rest, **named)
        return logits if self._bias is None else logits + self._bias

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)

    def begin(self, prompt: int, bias: Any) -> None:
        """Forget what was seen; `prompt`: its tokens, 0 where no time is needed."""
        self.forwards, self.read, self.beyond_s = 0, 0, None
        self._prompt, self._bias = prompt, bias


class Session(Answering):
    """Models of an arm, and what they are asked."""

    def __init__(self, order: dict[str, Any]) -> None:
        self.arm = Arm.model_validate(order["arm"])
        self.gamma = self.arm.gamma or _GAMMA
        try:
            self.load_tokenizer(order["target"], order["draft"])
            self.target, ends = _model(order["target"])
            self.draft = _model(order["draft"])[0] if order["draft"] else None
        except SpecmeterError:
            raise
        except Exception as error:  # files of strangers
            raise unreadable("mlx-lm", order["target"], error) from error
        self.ends = ends
        size = self.target.args.vocab_size
        self._never = mx.array([float("-inf") if it in ends else 0.0 for it in range(size)])

    @property
    def resolved(self) -> dict[str, Any]:
        """Values in force, by the names that sessions record."""
        return {
            "n_ctx": self.arm.engine.full_context,
            "total_slots": 1,
            "device": str(mx.default_device()),
            "methods": [it for it in self.arm.methods if self.arm.speculates],
            "method_parameters": {self.arm.methods[0]: {"num_draft_tokens": self.gamma}} if self.draft else {},
        }

    def candidates(
        self, prompt: Prompt, generated: Sequence[int], generation: Generation, count: int
    ) -> list[Candidate]:
        """What the target thinks may follow, likeliest first."""
        ids = mx.array([[*self.prompt_tokens(prompt), *generated]])
        row = self.target.model(ids)[0, -1].astype(mx.float32)
        logs: list[float] = (row - mx.logsumexp(row)).tolist()
        ruled_out = self.ends if generation.ignore_eos else ()
        order = sorted((it for it in range(len(logs)) if it not in ruled_out), key=lambda it: -logs[it])
        return [Candidate(it, logs[it]) for it in order[:count]]

    def _generate(
        self, ids: Sequence[int], generation: Generation, wanted: int, progress: Callable[[int], None]
    ) -> tuple[list[int], Reply]:
        mx.random.seed(generation.seed)
        for model in (self.target, self.draft):
            if model is not None:
                model.begin(len(ids) if self.draft else 0, self._never if generation.ignore_eos else None)
        started = time.perf_counter()
        said, came = list[int](), list[TargetForward]()
        accepted = 0
        for token, from_draft in self._tokens(mx.array(ids), generation, wanted):
            said.append(token)
            accepted += from_draft
            over = len(said) == wanted or (token in self.ends and not generation.ignore_eos)
            if not from_draft or over:
                own = not from_draft
                drafted = 0 if self.draft is None else min(self.gamma, wanted - len(said) + own + accepted)
                # The last token of a step that a limit cut off stands for the target's own, which is the same.
                came.append(
                    TargetForward(
                        drafted if own else drafted - 1, accepted + 1 if own else accepted, time.perf_counter()
                    )
                )
                accepted = 0
                progress(len(came))
            if over:
                break
        # One more where the last step was cut off, or for the token that decoding without speculation reads in vain.
        handed, drafted = self.target.read - len(ids) - (len(came) - 1), sum(it.drafted for it in came)
        if not drafted <= handed <= drafted + 1:
            raise unknown_version(f"the target read {handed} drafted tokens, and {drafted} are accounted for")
        first_s = 0.0
        if self.draft and self.draft.beyond_s and self.target.beyond_s:
            first_s = max(0.0, self.target.beyond_s - self.draft.beyond_s)
        reply = self.account(len(ids), said, came, started, first_s=first_s)
        drafts = {} if self.draft is None else {"draft_n_decode_total": self.draft.forwards}
        return said, reply.model_copy(update={"counters": {**reply.counters, "n_decode_total": len(came), **drafts}})

    def _tokens(self, ids: Any, generation: Generation, wanted: int) -> Iterator[tuple[int, bool]]:
        """(token, whether it came from a draft)."""
        top_k, top_p, min_p = generation.filters
        sampler = make_sampler(temp=generation.temperature, top_p=top_p, min_p=min_p, top_k=top_k)
        asked = {"max_tokens": wanted, "sampler": sampler, "prefill_step_size": _CHUNK}
        if self.draft is None:
            for token, _ in mlx_generate.generate_step(ids, self.target, **asked):
                yield int(token), False
        else:
            steps = mlx_generate.speculative_generate_step(
                ids, self.target, self.draft, num_draft_tokens=self.gamma, **asked
            )
            for token, _, from_draft in steps:
                yield int(token), bool(from_draft)


def _model(folder: str) -> tuple[Watched, list[int]]:
    """(a model, the tokens that end its texts)."""
    model, config = load_model(Path(folder))
    ends: Any = config.get("eos_token_id")
    return Watched(model), [ends] if isinstance(ends, int) else list(ends or ())


if __name__ == "__main__":
    sys.exit(serve(Session, one_by_one))
