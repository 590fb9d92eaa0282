"""Sessions with servers that were found: llama-server by its own paths, all others by OpenAI's.

Times are those that a client sees, unless the server tells its own; tokens are those that it counts itself.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from specmeter.engines.http_client import (
    HttpLimits,
    Stream,
    StreamClosedError,
    StreamEndlessError,
    StreamHungError,
    Watch,
    garbage,
    json_object,
)
from specmeter.engines.llama_cpp.candidates import from_chosen
from specmeter.engines.llama_cpp.log import RequestLog
from specmeter.engines.llama_cpp.replies import split_reasoning
from specmeter.engines.llama_cpp.server import MAX_AT_ONCE, LlamaSession
from specmeter.engines.process import EngineProcess
from specmeter.engines.session import (
    Candidate,
    GivenUpError,
    Launch,
    Overlaps,
    SessionFacts,
    SlotReply,
    Stop,
    ThreadedSession,
    differences,
)
from specmeter.engines.url.dialects import (
    ACCEPTED,
    DRAFTED,
    DRAFTS,
    FORWARDS,
    DraftCounts,
    counters_of,
    field_of,
    numbers_of,
    told_by,
)
from specmeter.engines.url.found import Found, refused, unreachable
from specmeter.engines.url.replies import Received, received
from specmeter.errors import EngineDiedError, EngineError, EngineHungError, EngineProtocolError
from specmeter.record import Generation, Prompt, Reply, Step, Timings
from specmeter.record.base import utf8

_LISTED = 20
"""Candidates that a vLLM lists at most, unless it was started otherwise."""


class _Found(EngineProcess):
    """A process that is not ours: it is neither watched nor ended."""

    def __init__(self, log_path: Path) -> None:
        self.log_path = log_path

    def exit_code(self) -> int | None:
        return None

    def wait(self, timeout_s: float) -> int | None:  # noqa: ARG002
        return None

    def close(self) -> None:
        """It continues."""


class FoundLlama(LlamaSession):
    """A llama-server that others started: without its log, and never ended."""

    def __init__(self, launch: Launch, found: Found, facts: SessionFacts, model: str) -> None:  # noqa: ARG002
        super().__init__(launch, _Found(launch.log_path), found.client, facts)
        self._url, self._counts = found.url, "forwards" in found.tells

    def settle(self, replies: Sequence[Reply]) -> Sequence[Reply]:
        return replies

    def _counters(self) -> dict[str, float]:
        return super()._counters() if self._counts else {}

    def _log(self, log_at: int, among: Timings | None) -> RequestLog:  # noqa: ARG002
        return RequestLog((), complete=False)

    def _hung(self, what: str) -> EngineError:
        return _hung(self._url, what)

    def _gone(self, when: str) -> EngineError:
        return _gone(self._url, when)


def _hung(url: str, what: str) -> EngineError:
    return EngineHungError(f"{url}: {what}", fix="raise engine.idle_timeout_s if the model is slow")


def _gone(url: str, when: str, why: BaseException | None = None) -> EngineError:
    if isinstance(why, OSError):
        found = unreachable(url, why)
        return EngineDiedError(found.message, fix=found.fix)
    return EngineDiedError(f"{url} closed the connection {when}", fix="read the log of that server")


class OpenAiSession(ThreadedSession):
    """A server that speaks OpenAI's interface, and perhaps more."""

    def __init__(self, launch: Launch, found: Found, facts: SessionFacts, model: str) -> None:
        super().__init__()
        self.facts = facts
        self._launch, self._found, self._model = launch, found, model
        self._overlaps = Overlaps()
        self._named = ""
        """What replies call the model."""
        self._total: dict[str, float] = {}
        """Of a server that counts again whenever it is asked: the sum of its answers."""
        if (load := launch.arm.load) is not None:
            self.most_at_once = load.clients or MAX_AT_ONCE

    def answer(self, prompt: Prompt, generation: Generation, stop: Stop) -> Reply:
        """Generate for one prompt; what the server counts for all requests together is left out where another one ran
        at the same time."""
        if self._found.dialect.counts:
            with self._overlaps.watch() as alone:
                before = self.totals()
                reply = self._reply(prompt, generation, stop)
                after = self.totals()
                counted = differences(before, after) if alone() else {}
            return _counted(reply, counted)
        return self._reply(prompt, generation, stop)

    def fly(self, prompt: Prompt, generation: Generation, stop: Stop) -> SlotReply:
        """The same for a request that was submitted; under a load nothing else is asked of the server meanwhile."""
        if self._launch.arm.load is None:
            return super().fly(prompt, generation, stop)
        return SlotReply(self._reply(prompt, generation, stop))

    def totals(self) -> dict[str, float]:
        """What its metrics count; empty where it counts nothing."""
        dialect = self._found.dialect
        if not dialect.counts:
            return {}
        answer = self._call("GET", dialect.metrics)
        counted = counters_of(answer.decode("utf-8", "replace"))
        if not dialect.since_asked:
            return counted
        for name, value in counted.items():
            self._total[name] = self._total.get(name, 0.0) + value
        return dict(self._total)

    def _reply(self, prompt: Prompt, generation: Generation, stop: Stop) -> Reply:
        for text in (prompt.text, *(message.content for message in prompt.before)):
            utf8(text)
        most = prompt.max_tokens or generation.max_tokens
        dialect = self._found.dialect
        body = dialect.body(self._model, prompt, generation, most)
        body |= {"stream": True}
        path = dialect.chats if prompt.format == "chat" else dialect.completions
        if path != "/generate":
            body |= {"stream_options": {"include_usage": True}}
        if dialect.tokenizes:
            body |= {"cache_salt": uuid.uuid4().hex}  # what an earlier request left in the cache is not this one's
        stop.begin()
        started = time.perf_counter()
        got = received(self._stream(path, body, most, len(utf8(prompt.text)), stop))
        return self._read(prompt, got, most, started)

    def _read(self, prompt: Prompt, got: Received, most: int, started: float) -> Reply:
        count = got.count
        told = told_by(got.last).within(count or 0)
        if told.each and got.parts and not steps_in(got, told, 0.0):  # cut off behind tokens without a draft
            told = told.without(told.each[-1][1] + 1 - (got.parts[-1][1] or 0))
        if count is None or not got.parts or count > most:
            said = "does not say how many tokens it generated" if count is None else f"says it generated {count} tokens"
            raise EngineProtocolError(
                f"{self._found.url} {said}, of at most {most}, but sent {len(got.parts)} parts of text",
                fix="use a server that supports OpenAI's `stream_options.include_usage`",
            )
        named = str(got.last.get("model") or self._model)
        self._named = self._named or named  # gateways call a model by a name of their own
        if named not in (self._named, self._model):
            raise EngineProtocolError(
                f"{self._found.url} answered with the model {self._named[:200]!r} at first, now with {named[:200]!r}",
                fix="keep one model loaded during the measurement, and run the same command again",
            )
        first, last = got.parts[0][0], got.parts[-1][0]
        cached: Any = field_of(got.last, "usage.prompt_tokens_details.cached_tokens")
        cached = cached if cached is not None else field_of(got.last, "meta_info.cached_tokens")
        prompts: Any = field_of(got.last, "usage.prompt_tokens") or field_of(got.last, "meta_info.prompt_tokens")
        cache_n = cached if isinstance(cached, int) and cached > 0 else 0
        drafted, accepted = told.proposed, told.accepted
        if self._found.speculating is False and accepted is None:
            drafted = accepted = 0
        shown, reasoning = got.text, got.reasoning
        if prompt.format == "chat" and not reasoning:
            shown, reasoning = split_reasoning(got.text, "")
        return Reply(
            text=shown,
            reasoning=reasoning,
            token_ids=tuple(got.ids) if len(got.ids) == count else (),
            stop_reason={"length": "limit", "stop": "eos"}.get(got.finish, got.finish or "unknown"),
            timings=Timings(
                prompt_n=max(0, prompts - cache_n) if isinstance(prompts, int) else 0,
                prompt_ms=(first - started) * 1e3,
                predicted_n=count,
                predicted_ms=(last - first) * 1e3,
                cache_n=cache_n,
                draft_n=drafted,
                draft_n_accepted=accepted,
            ),
            raw_timings={**numbers_of(got.last.get("metrics")), **told.stated},
            counters={DRAFTS: float(told.steps)} if told.steps is not None else {},
            wall_ms=(last - started) * 1e3,
            ttft_ms=(first - started) * 1e3,
            arrival_ms=_arrivals(got, count, started),
            steps=steps_in(got, told, started),
        )

    def _stream(
        self, path: str, body: dict[str, Any], most: int, prompt_bytes: int, stop: Stop
    ) -> list[tuple[float, dict[str, Any]]]:
        url, idle_s = self._found.url, self._launch.idle_timeout_s
        size = 4 * 1024 * 1024 + 16384 * most + 12 * prompt_bytes
        size *= most if path == "/generate" else 1  # each part repeats what came before
        limits = HttpLimits(idle_s=idle_s, events=2 * most + 64, size_bytes=min(size, 256 * 1024 * 1024))
        try:
            answer = self._found.client.stream(path, body, limits, Watch(self.alive), stop)
        except StreamHungError:
            raise _hung(url, f"no token for {idle_s:g} s") from None
        except StreamEndlessError:
            raise EngineProtocolError(
                f"{url} generated more than the {most} tokens requested", fix="read the log of that server"
            ) from None
        except StreamClosedError as error:
            if stop.asked:
                raise GivenUpError from None
            raise _gone(url, "while it was generating", error.__cause__) from None
        if isinstance(answer, Stream):
            return answer.events(path)
        if answer.status != 200:
            raise refused(url, path, answer)
        return [(time.perf_counter(), json_object(answer.body, path))]

    def _call(self, method: str, path: str, body: object = None) -> bytes:
        url, client = self._found.url, self._found.client
        try:
            answer = client.call(method, path, body, timeout_s=self._launch.idle_timeout_s)
        except TimeoutError:
            raise _hung(url, f"no answer to {path} for {self._launch.idle_timeout_s:g} s") from None
        except OSError as error:
            raise _gone(url, f"on the request for {path}", error) from None
        if answer.status != 200:
            raise refused(url, path, answer)
        return answer.body

    def alive(self) -> bool:
        """Whether it may still answer, where that can be seen from outside."""
        return True

    def prompt_tokens(self, prompt: Prompt) -> tuple[int, ...]:
        """Token ids that the target processes for `prompt`."""
        asked = {"messages": prompt.messages} if prompt.format == "chat" else {"prompt": prompt.text}
        return self._tokens(asked)

    def tokenize(self, text: str) -> tuple[int, ...]:
        """Token ids of `text` without special tokens added."""
        return self._tokens({"prompt": text, "add_special_tokens": False})

    def _tokens(self, asked: Mapping[str, Any]) -> tuple[int, ...]:
        self._refuse_untold()
        answer = self._call("POST", "/tokenize", {"model": self._model, **asked})
        found: Any = json_object(answer, "/tokenize").get("tokens")
        if not isinstance(found, list) or not all(isinstance(it, int) for it in cast("list[object]", found)):
            raise garbage("/tokenize", answer)
        return tuple(cast("list[int]", found))

    def detokenize(self, token_ids: tuple[int, ...]) -> str:
        """Text of `token_ids`."""
        self._refuse_untold()
        asked = {"model": self._model, "tokens": list(token_ids)}
        found = json_object(self._call("POST", "/detokenize", asked), "/detokenize").get("prompt")
        if not isinstance(found, str):
            raise garbage("/detokenize", found)
        return found

    def _refuse_untold(self) -> None:
        if "tokens" not in self._found.tells:
            raise EngineProtocolError(
                f"{self._found.url} has no tokenizer endpoint, so prompts of an exact length cannot be made",
                fix="leave --depth and `lengths` out, or use a llama-server or vLLM",
            )

    def candidates(
        self,
        prompt: Prompt,
        generated: tuple[int, ...],
        generation: Generation,  # noqa: ARG002
        count: int,
    ) -> tuple[Candidate, ...]:
        """What may follow, as vLLM lists it: at most as many as it lists unless it was started otherwise."""
        path = "/v1/completions"
        asked = {"model": self._model, "prompt": [*self.prompt_tokens(prompt), *generated], "max_tokens": 1}
        asked |= {
            "temperature": 0,
            "logprobs": min(count, _LISTED),
            "return_tokens_as_token_ids": True,
            **self._found.dialect.extra,
        }
        answer = json_object(self._call("POST", path, asked), path)
        try:
            choice = answer["choices"][0]
            (chosen,), (listed,) = choice["token_ids"], choice["logprobs"]["top_logprobs"]
            found = [Candidate(int(name.removeprefix("token_id:")), float(it)) for name, it in listed.items()]
        except (LookupError, TypeError, ValueError, AttributeError):
            raise garbage(path, answer) from None
        found.sort(key=lambda it: -it.logprob)
        return from_chosen(tuple(found), chosen, ignore_eos=False)[:count]

    def end(self) -> None:
        """The server continues."""


def _arrivals(got: Received, count: int, started: float) -> tuple[float, ...]:
    """When each token came; nothing where it is not known how many came at once."""
    each = [(at, tokens) for at, tokens in got.parts]
    if any(tokens is None for _, tokens in each):
        each = [(at, 1) for at, _ in each] if len(each) == count else []
    found = tuple((at - started) * 1e3 for at, tokens in each for _ in range(tokens or 0))
    return found if len(found) == count else ()


def steps_in(got: Received, told: DraftCounts, started: float) -> tuple[Step, ...]:
    """Steps with the time at which their tokens came, those of several in one part where a server was in arrears;
    nothing where these do not go together."""
    left, found = list(told.each), list[Step]()
    for number, (at, tokens) in enumerate(got.parts):
        room = (1 if tokens is None else tokens) - (number == 0)
        while room > 0:
            if left and (tokens is None or left[0][1] < room):
                drafted, accepted = left.pop(0)
                found.append(Step(drafted=drafted, accepted=accepted, at_ms=(at - started) * 1e3))
                room -= 1 if tokens is None else accepted + 1
            else:
                room -= 1  # decoded without a draft
    return () if left else tuple(found)


def _counted(reply: Reply, counted: Mapping[str, float]) -> Reply:
    """The reply with what its server counted meanwhile; what the reply says itself comes first."""
    kept = {it: value for it, value in counted.items() if it.startswith("spec_decode_") or it == FORWARDS}
    changes: dict[str, object] = {"counters": {**kept, **reply.counters}}
    if reply.timings.draft_n_accepted is None and ACCEPTED in kept and DRAFTED in kept:
        steps = round(kept[DRAFTS]) if DRAFTS in kept else None
        told = DraftCounts(round(kept[DRAFTED]), round(kept[ACCEPTED]), steps).within(reply.timings.predicted_n)
        drafts = {"draft_n": told.proposed, "draft_n_accepted": told.accepted}
        changes["timings"] = reply.timings.model_copy(update=drafts)
    return reply.model_copy(update=changes)
