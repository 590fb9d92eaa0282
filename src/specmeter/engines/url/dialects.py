"""What engines call their counts, and at which paths and fields they say them.

`told_by` reads a reply of any of them, since servers in front of others pass fields on. What is not there stays None:
no count is worked out from another here (`numbers.reconciled` does).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

from specmeter.engines.llama_cpp.log import parse_counters
from specmeter.errors import EngineProtocolError
from specmeter.numbers.reconciled import VERIFIED
from specmeter.record import Generation, Prompt

DRAFTS, DRAFTED, ACCEPTED, FORWARDS = (
    VERIFIED,
    "spec_decode_num_draft_tokens_total",
    "spec_decode_num_accepted_tokens_total",
    "n_decode_total",
)
"""Counters, as vLLM and llama.cpp call them and as they are kept."""
_ITERATIONS = re.compile(r"(?m)^vllm:iteration_tokens_total_count(?:\{[^{}\n]{0,1000}\})? +(\d{1,15})(?:\.0)?$")
"""How many steps a vLLM has made, with one forward of its target each."""
SERVED = frozenset({"generation_tokens_total", DRAFTS})
"""What a vLLM counts, the first whether or not it speculates, unless it was told to count nothing
(`--disable-log-stats`)."""
_MAX_STEPS = 1_000_000


class DraftCounts(NamedTuple):
    """What a reply says of its drafts; None: nothing."""

    proposed: int | None = None
    accepted: int | None = None
    steps: int | None = None
    each: tuple[tuple[int, int], ...] = ()
    """(drafted, accepted) of every step, where it says that."""
    stated: Mapping[str, float] = {}
    """The engine's own numbers under its own names, what it calls acceptance among them."""

    def within(self, tokens: int) -> DraftCounts:
        """The same for the tokens that came out. vLLM drafts beyond the limit, and counts what it accepts there; the
        last step is told here as one of an engine that knows when it ends."""
        return self.without((self.accepted or 0) + (self.steps or 0) - max(0, tokens - 1))

    def without(self, beyond: int) -> DraftCounts:
        """The same without this many accepted tokens of the last step."""
        if self.accepted is None or self.steps is None or not 0 < beyond <= self.accepted:
            return self
        cut, each = beyond, self.each
        if each and beyond <= each[-1][1]:
            cut, left = each[-1][0] - each[-1][1] + beyond, each[-1][1] - beyond
            each = (*each[:-1], (left, left))
        proposed = None if self.proposed is None else self.proposed - cut
        return self._replace(proposed=proposed, accepted=self.accepted - beyond, each=each)


def field_of(value: Any, path: str) -> Any:
    """What lies at `a.b.c` of nested objects; None where there is nothing."""
    for name in path.split(".") if path else ():
        value = cast("dict[str, Any]", value).get(name) if isinstance(value, dict) else None
    return value if path else None


def _count(value: Any) -> int | None:
    return int(value) if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def numbers_of(value: Any) -> dict[str, float]:
    """The numbers of an object, and of its short lists of numbers each under its place."""
    found: dict[str, float] = {}
    for name, it in cast("dict[str, Any]", value).items() if isinstance(value, dict) else ():
        listed = cast("list[Any]", it)[:64] if isinstance(it, list) else []
        named: list[tuple[str, Any]] = [(name, it), *((f"{name}.{at}", each) for at, each in enumerate(listed))]
        for key, number in named:
            if isinstance(number, int | float) and not isinstance(number, bool) and math.isfinite(number):
                found[key[:80]] = float(number)
    return found


_PLACES: tuple[tuple[str, tuple[str, str, str]], ...] = (
    ("metrics.speculative_decoding", ("num_draft_tokens", "num_accepted_draft_tokens", "num_spec_steps")),
    ("meta_info", ("spec_draft_token_num", "spec_accept_token_num", "spec_verify_ct")),
    ("meta_info", ("spec_num_proposed_drafts", "spec_num_correct_drafts", "spec_verify_ct")),
    ("sglext.spec_tokens_details", ("spec_num_proposed_drafts", "spec_num_correct_drafts", "spec_verify_ct")),
    ("timings", ("draft_n", "draft_n_accepted", "draft_rounds")),
    ("stats", ("total_draft_tokens_count", "accepted_draft_tokens_count", "")),
    ("usage", ("total_draft_tokens_count", "accepted_draft_tokens_count", "")),
)  # fmt: skip
"""Where a reply says it, and under which names: proposed, accepted, steps (vLLM, SGLang, llama.cpp and what follows its
names, LM Studio)."""


def told_by(last: Mapping[str, Any]) -> DraftCounts:
    """What the last part of a reply says of its drafts. Raises `EngineProtocolError` for counts that cannot be."""
    for place, names in _PLACES:
        said = field_of(last, place)
        own = cast("dict[str, Any]", said) if isinstance(said, dict) else {}
        proposed, accepted, steps = (_count(own.get(name)) for name in names)
        if accepted is None:
            continue
        if proposed is not None and accepted > proposed:
            raise EngineProtocolError(
                f"a reply says that {accepted} of {proposed} draft tokens were accepted",
                fix="report this to the authors of that server: its acceptance rate is wrong",
            )
        stated = {it: number for it, number in numbers_of(own).items() if not it.startswith("per_step_")}
        return DraftCounts(proposed, accepted, steps, _steps(own), stated)
    return DraftCounts()


def _steps(own: Mapping[str, Any]) -> tuple[tuple[int, int], ...]:
    """(drafted, accepted) of each step, where they are told and make sense."""
    drafted, accepted = own.get("per_step_drafted"), own.get("per_step_accepted")
    if not (isinstance(drafted, list) and isinstance(accepted, list)):
        return ()
    pairs = [
        (_count(one), _count(other))
        for one, other in zip(cast("list[Any]", drafted)[:_MAX_STEPS], cast("list[Any]", accepted), strict=False)
    ]
    found = tuple((one, other) for one, other in pairs if one is not None and other is not None and other <= one)
    return found if len(found) == len(pairs) else ()


def counters_of(text: str) -> dict[str, float]:
    """Totals of `/metrics` by their names without the engine's prefix, over all labels but a position.

    TensorRT-LLM answers in JSON, a list of what it counted since it was last asked.
    """
    if text.lstrip().startswith("["):
        return _iterations(text)
    try:
        parsed = parse_counters(text)
    except EngineProtocolError:
        return {}
    found: dict[str, float] = {}
    for name, value in parsed.items():
        plain, _, labels = name.partition("{")
        position = re.search(r'position="(\d{1,4})"', labels)
        key = f'{plain}{{position="{position[1]}"}}' if position else plain
        found[key] = found.get(key, 0.0) + value
    if iterations := _ITERATIONS.findall(text):
        found[FORWARDS] = float(sum(map(int, iterations)))
    return found


def _iterations(text: str) -> dict[str, float]:
    try:
        rows: Any = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    names = {
        DRAFTS: "specDecodingStats.numRequestsWithDraftTokens",
        DRAFTED: "specDecodingStats.numDraftTokens",
        ACCEPTED: "specDecodingStats.numAcceptedTokens",
    }
    told = [it for it in cast("list[Any]", rows) if isinstance(field_of(it, "specDecodingStats"), dict)]
    return {name: float(sum(_count(field_of(it, path)) or 0 for it in told)) for name, path in names.items() if told}


_OPENAI = {name: name for name in ("top_p", "presence_penalty", "frequency_penalty", "stop")}
_MORE = {**_OPENAI, "top_k": "top_k", "min_p": "min_p", "repeat_penalty": "repetition_penalty"}


@dataclass(frozen=True)
class Dialect:
    """How one engine speaks."""

    name: str
    owner: str = ""
    """Who owns its models, by `/v1/models`."""
    asked: str = ""
    """Its own path that says more."""
    version: str = "version"
    """Where it says its version."""
    metrics: str = ""
    """Where it counts."""
    counts: bool = False
    """It counts drafts there, whether or not its replies say them."""
    since_asked: bool = False
    """What it counts there begins again whenever it is asked."""
    completions: str = "/v1/completions"
    """Where prompts that are no chats go."""
    chats: str = "/v1/chat/completions"
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Fields of a request beyond OpenAI's."""
    names: Mapping[str, str] = field(default_factory=lambda: _OPENAI)
    """Field of `Generation` -> what it is called in a request; others cannot be asked for."""
    tokenizes: bool = False
    """It has `/tokenize` and `/detokenize`, as vLLM has them."""
    ends_early: bool = True
    """It cannot be told to continue after the end of a text."""
    mark: str = ""
    """What it alone answers at `asked`, where `/v1/models` does not say who speaks."""
    drafts_by: str = ""
    """What it answers there where it speculates, and null where it does not."""

    def active(self, info: Mapping[str, Any], counted: Mapping[str, float] | None) -> bool | None:
        """Whether it speculates, by what it says of itself and by its counters; None: it does not say."""
        if self.drafts_by in info:
            return bool(info[self.drafts_by])
        if counted is None or not self.counts or self.since_asked or SERVED.isdisjoint(counted):
            return None
        return DRAFTS in counted

    def body(self, model: str, prompt: Prompt, generation: Generation, most: int) -> dict[str, Any]:
        """A request: only what `generation` speaks of."""
        if self.completions == "/generate" and prompt.format != "chat":
            sampling = {"max_new_tokens": most, "temperature": generation.temperature, **self._sampling(generation)}
            return {"text": prompt.text, "sampling_params": sampling | {"ignore_eos": generation.ignore_eos}}
        asked: dict[str, Any] = {
            "model": model,
            "max_tokens": most,
            "temperature": generation.temperature,
            "seed": generation.seed,
            **self.extra,
            **self._sampling(generation),
        }
        if not self.ends_early:
            asked["ignore_eos"] = generation.ignore_eos
        if prompt.format == "chat":
            return asked | {"messages": prompt.messages} | prompt.template_arguments
        return asked | {"prompt": prompt.text}

    def _sampling(self, generation: Generation) -> dict[str, Any]:
        """What is asked for, by its names. Raises `EngineProtocolError` for what it cannot be asked."""
        asked = generation.sampling
        wrong = [name for name in asked if name not in self.names]
        if generation.ignore_eos and self.ends_early:
            wrong.append("ignore_eos")
        if wrong:
            raise EngineProtocolError(
                f"generation.{wrong[0]}: {self.name} does not have this setting",
                fix="add --set generation.ignore_eos=false"
                if wrong[0] == "ignore_eos"
                else f"leave it out; the server has {', '.join(self.names)}",
            )
        values = {self.names[name]: list(value) if name == "stop" else value for name, value in asked.items()}
        return values | ({"top_k": -1} if values.get("top_k") == 0 else {})


LLAMA = Dialect("llama-server", owner="llamacpp", version="build_info", metrics="/metrics", counts=True)
"""It is measured by its own paths, as servers that specmeter starts are."""
DIALECTS = (
    LLAMA,
    Dialect(
        "vLLM",
        owner="vllm",
        asked="/version",
        metrics="/metrics",
        counts=True,
        extra={"return_token_ids": True},
        names=_MORE,
        tokenizes=True,
        ends_early=False,
    ),
    Dialect(
        "SGLang",
        owner="sglang",
        asked="/get_server_info",
        completions="/generate",
        extra={"return_meta_info": True},
        names=_MORE,
        ends_early=False,
        mark="speculative_algorithm",
        drafts_by="speculative_algorithm",
    ),
    Dialect(
        "TensorRT-LLM",
        owner="tensorrt_llm",
        asked="/version",
        metrics="/metrics",
        counts=True,
        since_asked=True,
        names=_MORE,
        ends_early=False,
    ),
    Dialect(
        "LM Studio",
        owner="organization_owner",
        asked="/api/v0/models",
        completions="/api/v0/completions",
        chats="/api/v0/chat/completions",
        names={**_OPENAI, "top_k": "top_k", "repeat_penalty": "repeat_penalty"},
        mark="data",
    ),
    Dialect("Ollama", owner="library", asked="/api/version", mark="version"),
    Dialect("an OpenAI-compatible server"),
)
