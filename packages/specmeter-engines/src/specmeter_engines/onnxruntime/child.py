"""A session's own process: one arm of onnxruntime-genai, driven as anyone drives it, and counted by its own statistics.

These are told after each token: a round drafts and verifies, and hands its tokens out one by one. Reading the prompt
ends before the first round begins, so that all of a round is decoding.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

from specmeter.engines import Candidate
from specmeter.engines.serving import one_by_one, serve
from specmeter.errors import SpecmeterError
from specmeter.record import Arm, Generation, Prompt, Reply
from specmeter_engines.answering import Answering, TargetForward, unknown_version, unreadable
from specmeter_engines.onnxruntime.folders import CONFIG
from specmeter_engines.onnxruntime.spec import ADAPTIVE, DRAFT

genai: Any = import_module("onnxruntime_genai")
numpy: Any = import_module("numpy")

_GAMMA = 4
"""How long drafts are where nothing is said."""
_VERIFYING = "target_verify_forward_passes"
_OTHERS = "target_reanchor_forward_passes", "target_reconciliation_forward_passes"
"""Forwards that put its cache right and emit nothing. Where drafts change their length they come with it, and are not
in the account; where they do not, none are due, so that one that came would not let the account close."""
_TOLD = (
    *("rounds", "draft_tokens_proposed", "draft_tokens_evaluated", "draft_tokens_accepted", "correction_tokens"),
    *("bonus_tokens", "tokens_emitted", "tokens_discarded", "acceptance_rate", "draft_forward_passes"),
    *(_VERIFYING, *_OTHERS, "effective_k", "adaptive_k_increases", "adaptive_k_decreases"),
)
"""Of its own statistics, what is kept beside the account."""


class Session(Answering):
    """Models of an arm, and what they are asked."""

    def __init__(self, order: dict[str, Any]) -> None:
        self.arm = Arm.model_validate(order["arm"])
        self._folder, self._threads = Path(order["target"]), order["threads"]
        self._asked: dict[str, Any] = {}
        if self.arm.speculates:
            self._asked["max_draft_tokens"] = self.arm.gamma or _GAMMA
        if self.arm.policy == ADAPTIVE:
            self._asked["min_adaptive_k"] = 1
        try:
            self.load_tokenizer(order["target"], order["draft"])
            said = _config(self._folder)
            own: dict[str, Any] = {}
            if self.arm.methods == (DRAFT,):
                draft = Path(order["draft"])
                decoder = _config(draft)["model"]["decoder"]
                within = os.path.relpath(draft / decoder["filename"], self._folder)
                decoder = decoder | {"filename": within, "session_options": self._options(decoder)}
                own = {"type": "speculative", "draft": decoder}
            self._model: Any = self._loaded(own)
        except SpecmeterError:
            raise
        except Exception as error:  # files of strangers
            raise unreadable("onnxruntime-genai", order["target"], error) from error
        ends, self._size = said["model"].get("eos_token_id", []), said["model"]["vocab_size"]
        self.ends = ends if isinstance(ends, list) else [ends]

    def _options(self, decoder: Mapping[str, Any]) -> dict[str, Any]:
        return {**decoder.get("session_options", {}), "intra_op_num_threads": self._threads}

    def _loaded(self, model: Mapping[str, Any]) -> Any:
        config = genai.Config(str(self._folder))
        config.overlay(json.dumps({"model": {"decoder": {"session_options": self._options({})}, **model}}))
        return genai.Model(config)

    @cached_property
    def _plain(self) -> Any:
        """The target alone."""
        return self._loaded({}) if self.arm.methods == (DRAFT,) else self._model

    @property
    def resolved(self) -> dict[str, Any]:
        """Values in force, by the names that sessions record."""
        return {
            "n_ctx": self.arm.engine.full_context,
            "threads": self._threads,
            "total_slots": 1,
            "device": str(self._model.device_type),
            "methods": [it for it in self.arm.methods if self.arm.speculates],
            "method_parameters": {DRAFT: self._asked} if self._asked else {},
        }

    def candidates(
        self, prompt: Prompt, generated: Sequence[int], generation: Generation, count: int
    ) -> list[Candidate]:
        """What the target thinks may follow, likeliest first."""
        ids = [*self.prompt_tokens(prompt), *generated]
        parameters = genai.GeneratorParams(self._plain)
        parameters.set_search_options(max_length=len(ids) + 1)
        generator = genai.Generator(self._plain, parameters)
        generator.append_tokens(numpy.array(ids, dtype=numpy.int32))
        row = generator.get_logits()[0, -1].astype(numpy.float64)
        logs = row - row.max() - numpy.log(numpy.exp(row - row.max()).sum())
        order = numpy.argsort(-logs, kind="stable")
        ruled_out = self.ends if generation.ignore_eos else ()
        allowed = [int(it) for it in order[: count + len(ruled_out)] if int(it) not in ruled_out]
        return [Candidate(it, float(logs[it])) for it in allowed[:count]]

    def _generate(
        self, ids: Sequence[int], generation: Generation, wanted: int, progress: Callable[[int], None]
    ) -> tuple[list[int], Reply]:
        most = len(ids) + wanted
        options: dict[str, Any] = {"max_length": most, "do_sample": generation.temperature > 0}
        if generation.ignore_eos:
            options["min_length"] = most
        if generation.temperature > 0:
            top_k, top_p, _ = generation.filters
            options |= {"temperature": generation.temperature, "top_p": top_p}
            options |= {"top_k": top_k or self._size, "random_seed": generation.seed}
        parameters = genai.GeneratorParams(self._model)
        parameters.set_search_options(**options)
        if self._asked:
            parameters.set_speculative_options(**self._asked)
        started = time.perf_counter()
        generator = genai.Generator(self._model, parameters)
        generator.append_tokens(numpy.array(ids, dtype=numpy.int32))
        read_s = time.perf_counter()
        came, said, plain = list[TargetForward](), list[int](), 0
        before: Mapping[str, Any] = generator.get_speculative_stats()
        while not generator.is_done():
            generator.generate_next_token()
            now: Mapping[str, Any] = generator.get_speculative_stats() if self._asked else before
            at = time.perf_counter()
            said.append(int(generator.get_next_tokens()[0]))
            if now["rounds"] > before["rounds"]:
                came.append(TargetForward(now["draft_tokens_proposed"] - before["draft_tokens_proposed"], 1, at))
            elif before["tokens_buffered"] > 0 and came:
                came[-1] = TargetForward(came[-1].drafted, came[-1].tokens + 1, at)
            else:
                came.append(TargetForward(0, 1, at))
                plain += 1
            before = now
            progress(len(came))
        if before["tokens_emitted"] + plain != len(said):
            raise unknown_version(
                f"{before['tokens_emitted']} of {len(said)} tokens came from rounds, and {plain} did not"
            )
        first_s = came[0].at - read_s if came and self.arm.speculates else 0.0
        reply = self.account(len(ids), said, came, started, first_s=first_s)
        counted = [_VERIFYING] if self.arm.policy == ADAPTIVE else [_VERIFYING, *_OTHERS]
        forwards = {"n_decode_total": plain + sum(before[it] for it in counted)}
        if self.arm.methods == (DRAFT,):
            forwards["draft_n_decode_total"] = before["draft_forward_passes"]
        told = {it: float(before[it]) for it in _TOLD if it in before} if self._asked else {}
        return said, reply.model_copy(update={"raw_timings": told, "counters": {**reply.counters, **forwards}})


def _config(folder: Path) -> Any:
    return json.loads((folder / CONFIG).read_bytes())


if __name__ == "__main__":
    sys.exit(serve(Session, one_by_one))
