"""A session's own process: one arm of OpenVINO GenAI, driven as anyone drives it, counted by what its streamer hears.

The streamer is given the tokens of each step together; the first token comes without a draft. A draft is as long as it
was told to be, or as tokens are left. OpenVINO's own counts leave the last step out: the account has to agree with them
in all others. They are kept beside it.

The number of threads is OpenVINO's own choice: told to use a single one, it divides by zero.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, cast

from specmeter.engines.serving import one_by_one, serve
from specmeter.errors import EngineError
from specmeter.record import Arm, Generation, Prompt, Reply
from specmeter_engines.answering import Answering, TargetForward, unknown_version, unreadable
from specmeter_engines.openvino.spec import Options

genai: Any = import_module("openvino_genai")
openvino: Any = import_module("openvino")
numpy: Any = import_module("numpy")

_GAMMA = 5
"""How long drafts are where nothing is said."""
_COUNTS = ("accepted", "draft", "draft_processed", "rejected")


def _streamer(came: list[tuple[int, float]], progress: Callable[[int], None], failed: list[EngineError]) -> Any:
    """What hears tokens as they come; a request that is given up ends it."""

    class Streamer(genai.StreamerBase):
        def write(self, token: Any) -> Any:
            several = cast("list[int]", token) if isinstance(token, list) else [token]
            came.append((len(several), time.perf_counter()))
            try:
                progress(len(came))
            except EngineError as error:
                failed.append(error)
                return genai.StreamingStatus.CANCEL
            return genai.StreamingStatus.RUNNING

        def end(self) -> None:
            """Nothing follows."""

    return Streamer()


class Session(Answering):
    """Models of an arm, and what they are asked."""

    def __init__(self, order: dict[str, Any]) -> None:
        self.arm = Arm.model_validate(order["arm"])
        options = Options.model_validate(self.arm.engine.options)
        device, exact = options.device, options.precision == "f32"
        self._properties = {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32"} if exact else {}
        self.gamma = (self.arm.gamma or _GAMMA) if self.arm.speculates else 0
        self._asked: dict[str, Any] = {"num_assistant_tokens": self.gamma} if self.gamma else {}
        try:
            draft: dict[str, Any] = {}
            if self.gamma:
                draft = {"draft_model": genai.draft_model(order["draft"], device, **self._properties)}
            scheduling = genai.SchedulerConfig()
            scheduling.enable_prefix_caching = False  # else a prompt that is asked again is not read again
            self.pipe: Any = genai.LLMPipeline(
                order["target"], device, scheduler_config=scheduling, **draft, **self._properties
            )
        except Exception as error:  # files of strangers
            raise unreadable("OpenVINO GenAI", order["target"], error) from error
        self.tokenizer = self.pipe.get_tokenizer()
        said = self.pipe.get_generation_config()
        self.ends = sorted(it for it in {*said.stop_token_ids, said.eos_token_id} if it >= 0)
        self._device = device

    @property
    def resolved(self) -> dict[str, Any]:
        """Values in force, by the names that sessions record."""
        return {
            "n_ctx": self.arm.engine.full_context,
            "total_slots": 1,
            "device": self._device,
            "properties": self._properties,
            "methods": [it for it in self.arm.methods if self.arm.speculates],
            "method_parameters": {self.arm.methods[0]: self._asked} if self._asked else {},
        }

    def tokenize(self, text: str) -> list[int]:
        return self._ids(text, special=False)

    def detokenize(self, token_ids: Sequence[int]) -> str:
        return self.tokenizer.decode(list(token_ids), skip_special_tokens=False)

    def _ids(self, text: str, *, special: bool) -> list[int]:
        return self.tokenizer.encode(text, add_special_tokens=special).input_ids.data[0].tolist() if text else []

    def _read(self, prompt: Prompt) -> list[int]:
        if prompt.format != "chat" or not getattr(self.tokenizer, "chat_template", True):
            return self._ids(prompt.said, special=True)
        given = prompt.template_arguments.get("chat_template_kwargs", {})
        text = self.tokenizer.apply_chat_template(prompt.messages, True, extra_context=given)
        return self._ids(text, special=False)

    def _text(self, token_ids: Sequence[int]) -> str:
        return self.tokenizer.decode(list(token_ids), skip_special_tokens=True)

    def _generate(
        self, ids: Sequence[int], generation: Generation, wanted: int, progress: Callable[[int], None]
    ) -> tuple[list[int], Reply]:
        heard, failed = list[tuple[int, float]](), list[EngineError]()
        asked = openvino.Tensor(numpy.array([ids], dtype=numpy.int64))
        started = time.perf_counter()
        out = self.pipe.generate(asked, self._config(generation, wanted), _streamer(heard, progress, failed))
        if failed:
            raise failed[0]
        said: list[int] = list(out.tokens[0])
        came, done = list[TargetForward](), 0
        for tokens, at in heard:
            came.append(TargetForward(min(self.gamma, wanted - done - 1) if came else 0, tokens, at))
            done += tokens
        told, drafted = _stated(out), sum(it.drafted for it in came[:-1])
        if told and len(said) == wanted and told["num_draft_tokens"] != drafted:
            raise unknown_version(
                f"{told['num_draft_tokens']:g} tokens were drafted before the last step, not {drafted}"
            )
        reply = self.account(len(ids), said, came, started)
        return said, reply.model_copy(update={"raw_timings": told})

    def _config(self, generation: Generation, wanted: int) -> Any:
        config = genai.GenerationConfig()
        config.max_new_tokens, config.apply_chat_template = wanted, False
        config.stop_token_ids = set(self.ends)
        config.ignore_eos = generation.ignore_eos
        # Without this the tokens that end a text would be said, and the text continue.
        config.min_new_tokens = wanted if generation.ignore_eos else 0
        config.do_sample = generation.temperature > 0
        if config.do_sample:
            top_k, config.top_p, _ = generation.filters
            config.temperature, config.rng_seed = generation.temperature, generation.seed
            if top_k:
                config.top_k = top_k
        for name, value in self._asked.items():
            setattr(config, name, value)
        return config


def _stated(out: Any) -> Mapping[str, float]:
    """OpenVINO's own counts, by its names; nothing where it does not speculate."""
    told = out.extended_perf_metrics
    names = [f"num_{it}_tokens" for it in _COUNTS]
    return {it: float(getattr(told, f"get_{it}")()) for it in names if hasattr(told, f"get_{it}")}


if __name__ == "__main__":
    sys.exit(serve(Session, one_by_one))
