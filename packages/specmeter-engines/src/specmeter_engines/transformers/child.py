"""A session's own process: one arm of transformers, driven as anyone drives it, and counted from outside.

transformers tells nothing of its drafts. Each step is a forward of the target over the last token and the draft, whose
length a hook sees, and after it a streamer is given the step's tokens: those accepted, and one of the target's own.

In assisted generation the first draft is verified by the forward that reads the prompt, so that the first token comes
with others. Drafting it belongs to decoding: its time is moved from that of the prompt to that of decoding.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, NamedTuple

from specmeter.engines import Candidate
from specmeter.engines.serving import one_by_one, serve
from specmeter.errors import SpecmeterError
from specmeter.record import Arm, Generation, Prompt, Reply
from specmeter_engines.answering import Answering, TargetForward, unknown_version, unreadable
from specmeter_engines.transformers.spec import ASSISTED, LOOKUP, Options

torch: Any = import_module("torch")
transformers: Any = import_module("transformers")

_DEFAULTS = {ASSISTED: 20, LOOKUP: 10}
"""How long drafts are where nothing is said."""
_MATCHED = 2
"""Tokens that a lookup looks for at most where nothing is said."""


class Forward(NamedTuple):
    """A forward of a model, seen by hooks."""

    tokens: int
    began: float
    ended: float


class Arrivals:
    """When tokens came, and how many with each step; the prompt is put before them."""

    def __init__(self, progress: Callable[[int], None]) -> None:
        self._progress = progress
        self.came: list[tuple[int, float]] = []
        self._prompt = True

    def put(self, value: Any) -> None:
        """Tokens of the prompt, and then of each step."""
        if not self._prompt:
            self.came.append((value.numel(), time.perf_counter()))
            self._progress(len(self.came))
        self._prompt = False

    def end(self) -> None:
        """Nothing follows."""


class Session(Answering):
    """Models of an arm, and what they are asked."""

    def __init__(self, order: dict[str, Any]) -> None:
        self.arm = Arm.model_validate(order["arm"])
        options = Options.model_validate(self.arm.engine.options)
        torch.set_num_threads(order["threads"])
        self._device = _device() if options.device == "auto" else options.device
        self._dtype = options.dtype
        try:
            self.load_tokenizer(order["target"], order["draft"])
            self.target, self._forwards, said = self._model(order["target"])
        except SpecmeterError:
            raise
        except Exception as error:
            # Files of strangers, read by a library that raises whatever its parts do.
            raise unreadable("transformers", order["target"], error) from error
        self.ends = _ends(said.eos_token_id)
        self._pad: int = said.pad_token_id if said.pad_token_id is not None else next(iter(self.ends), 0)
        self._drafting, self._drafted = dict[str, Any](), list[Forward]()
        method, gamma = self.arm.methods[0], self.arm.gamma or _DEFAULTS.get(self.arm.methods[0], 0)
        self._values: dict[str, Any] = {}
        if method == LOOKUP:
            self._values = {"prompt_lookup_num_tokens": gamma, "max_matching_ngram_size": self.arm.ngram_n or _MATCHED}
            self._drafting = self._values
        elif method == ASSISTED:
            self._values = {
                "num_assistant_tokens": gamma,
                "num_assistant_tokens_schedule": "constant",
                "assistant_confidence_threshold": self.arm.p_min or 0.0,
            }
            self._drafting = {"assistant_model": self._assistant(order["draft"])}

    def _model(self, folder: str) -> tuple[Any, list[Forward], Any]:
        """(a model, its forwards as they come, what its folder says of generations, which is not used as a default)."""
        found: Any = transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype=self._dtype, local_files_only=True, use_safetensors=True
        )
        model, seen, began = found.to(self._device).eval(), list[Forward](), list[float]()

        def after(_: Any, given: tuple[Any, ...], named: dict[str, Any], __: Any) -> None:
            ids = named["input_ids"] if named.get("input_ids") is not None else given[0]
            seen.append(Forward(int(ids.shape[-1]), began.pop(), time.perf_counter()))

        def before(*_: Any) -> None:
            began.append(time.perf_counter())

        model.register_forward_pre_hook(before)
        model.register_forward_hook(after, with_kwargs=True)
        said, model.generation_config = model.generation_config, transformers.GenerationConfig()
        return model, seen, said

    def _assistant(self, folder: str) -> Any:
        try:
            model, self._drafted, _ = self._model(folder)
        except Exception as error:
            raise unreadable("transformers", folder, error) from error
        model.generation_config = transformers.GenerationConfig(**self._values)
        return model

    @property
    def resolved(self) -> dict[str, Any]:
        """Values in force, by the names that sessions record."""
        return {
            "n_ctx": self.arm.engine.full_context,
            "threads": torch.get_num_threads(),
            "total_slots": 1,
            "device": self._device,
            "dtype": str(self.target.dtype).removeprefix("torch."),
            "attention": self.target.config._attn_implementation,
            "methods": [it for it in self.arm.methods if self.arm.speculates],
            "method_parameters": {self.arm.methods[0]: self._values} if self._values else {},
        }

    def candidates(
        self, prompt: Prompt, generated: Sequence[int], generation: Generation, count: int
    ) -> list[Candidate]:
        """What the target thinks may follow, likeliest first."""
        ids = [*self.prompt_tokens(prompt), *generated]
        with torch.inference_mode():
            row = self.target(torch.tensor([ids], device=self._device)).logits[0, -1].float()
            logs, order = row.log_softmax(-1), row.argsort(descending=True, stable=True)
        ruled_out: Sequence[int] = self.ends if generation.ignore_eos else ()
        allowed = [int(it) for it in order[: count + len(ruled_out)] if int(it) not in ruled_out]
        return [Candidate(it, float(logs[it])) for it in allowed[:count]]

    def _generate(
        self, ids: Sequence[int], generation: Generation, wanted: int, progress: Callable[[int], None]
    ) -> tuple[list[int], Reply]:
        arrivals = Arrivals(progress)
        self._forwards.clear()
        self._drafted.clear()
        torch.manual_seed(generation.seed)
        asked = torch.tensor([ids], device=self._device)
        started = time.perf_counter()
        with torch.inference_mode():
            out: Any = self.target.generate(
                asked,
                attention_mask=torch.ones_like(asked),
                generation_config=self._config(generation, wanted),
                streamer=arrivals,
                **self._drafting,
            )
        said: list[int] = out[0, len(ids) :].tolist()
        if len(arrivals.came) != len(self._forwards):
            raise unknown_version(f"{len(self._forwards)} forward passes of the target, but {len(arrivals.came)} steps")
        came = [
            TargetForward(forward.tokens - (1 if place else len(ids)), tokens, at)
            for place, (forward, (tokens, at)) in enumerate(zip(self._forwards, arrivals.came, strict=True))
        ]
        first_s = self._forwards[0].began - self._drafted[0].ended if self._drafted else 0.0
        reply = self.account(len(ids), said, came, started, first_s=first_s)
        forwards = {"n_decode_total": len(self._forwards), "draft_n_decode_total": len(self._drafted)}
        return said, reply.model_copy(update={"counters": {**reply.counters, **forwards}})

    def _config(self, generation: Generation, wanted: int) -> Any:
        top_k, top_p, min_p = generation.filters
        draws = {"temperature": generation.temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p}
        return transformers.GenerationConfig(
            max_new_tokens=wanted,
            do_sample=generation.temperature > 0,
            eos_token_id=self.ends,
            pad_token_id=self._pad,
            suppress_tokens=self.ends if generation.ignore_eos else None,
            **(draws if generation.temperature > 0 else {}),
        )


def _ends(said: int | list[int] | None) -> list[int]:
    return said if isinstance(said, list) else [] if said is None else [said]


def _device() -> str:
    return "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"


if __name__ == "__main__":
    sys.exit(serve(Session, one_by_one))
