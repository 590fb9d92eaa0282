"""A session with one llama.cpp server over HTTP: sends requests, and gives each its part of the log."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple, cast

from specmeter.engines import Candidate, Launch, SessionFacts, traffic
from specmeter.engines.http_client import (
    SEE_LOG,
    HttpClient,
    HttpLimits,
    HttpResponse,
    Stream,
    StreamClosedError,
    StreamEndlessError,
    StreamHungError,
    Watch,
    garbage,
    json_object,
)
from specmeter.engines.llama_cpp.candidates import forced, from_chosen, question, read_chosen, read_listed
from specmeter.engines.llama_cpp.log import (
    RequestLog,
    drafting_between,
    evaluated,
    last_words,
    logs_at_once,
    parse_counters,
    parse_request,
    task_lines,
)
from specmeter.engines.llama_cpp.replies import (
    Received,
    read_answer,
    read_events,
    read_timings,
    split_reasoning,
    stop_reason,
)
from specmeter.engines.llama_cpp.spec import remote_machines
from specmeter.engines.process import EngineProcess
from specmeter.engines.session import GivenUpError, Overlaps, SlotReply, Stop, ThreadedSession, differences
from specmeter.errors import EngineDiedError, EngineError, EngineHungError, EngineProtocolError, EngineStartError
from specmeter.files import without_links
from specmeter.record import Drafting, Generation, Prompt, Reply, Timings
from specmeter.record.base import utf8

_PROCESSING = re.compile(rb'"is_processing" *: *true')
_LOG_TAIL = 256 * 1024
_MAX_REQUEST_LOG = 256 * 1024 * 1024
MAX_AT_ONCE = 1024
"""Requests on their way at once in an open loop; further ones wait here, which is recorded as the client's lateness."""
_LOG_PATIENCE_S = 1.0
"""How long to wait for the last log lines of a request that is over (seen: below 2 ms)."""
_LAST_LINES_S = 0.2
"""The same at the end of a session; builds that log no end of a request take so long."""
_LINES_APART_S = 0.01


class LlamaSession(ThreadedSession):
    """One running server with its models loaded. Made by an engine's `start`."""

    def __init__(self, launch: Launch, process: EngineProcess, client: HttpClient, facts: SessionFacts) -> None:
        super().__init__()
        self.facts = facts
        self._launch = launch
        self._process = process
        self._client = client
        self._beside = contextlib.ExitStack()
        """What was started for this session alone and ends with it."""
        self._token_ids_of: dict[str, tuple[int, ...]] = {}
        self._drafted: Mapping[str, Drafting] | None = {}
        """The server's statistics at the end of the last request; None where that was not seen."""
        self._overlaps = Overlaps()
        self._broke_off = False
        """A request was given up, and none that began later has ended: what the server counts may still grow by it."""
        self._cell_log_at: int | None = None
        """Length of the log when the cell under load began."""
        self._loaded = self._log_size()
        """Length of the log when the server was ready."""
        self._answered_at: int | None = None
        """Length of the log when the last request that was answered began."""
        self._copied: int | None = None
        """How far the log of a server that is kept was copied into that of its session; None: they are one."""
        self._recalled = 0
        """Tokens of a session that were read before the request at hand."""
        self.keeper: Callable[[], None] | None = None
        """Called instead of ending the server, which is kept for another session."""
        self.sound = True
        """No request has failed."""
        if (load := launch.arm.load) is not None:
            self.most_at_once = load.clients or MAX_AT_ONCE

    def take_along(self, beside: contextlib.ExitStack, pids: tuple[int, ...]) -> None:
        """End `beside` with the session. Its processes `pids` play other machines, and their load is the session's."""
        self._beside = beside
        self.facts = dataclasses.replace(self.facts, pids=(*self.facts.pids, *pids))

    def answer(self, prompt: Prompt, generation: Generation, stop: Stop) -> Reply:
        """Generate for one prompt. Raises `EngineDiedError`, `EngineHungError` or `EngineProtocolError`.

        Chat prompts go through the server's own template and then to the same endpoint as completions: that endpoint
        streams token ids, the chat endpoint does not. Calls of recorded sessions go to the chat endpoint, in one piece:
        it holds tool calls to their grammar and reads them. What the server counts for all requests together is left
        out where another one ran at the same time.
        """
        asked = self._request(prompt, generation)
        with self._overlaps.watch() as alone, self._logged():
            unsettled = self._broke_off
            before, sent_before = self._counters(), self._remote_bytes()
            log_at = self._log_size()
            started = time.perf_counter()
            received = self._stream(asked, stop)
            timings = read_timings(received.timings, asked.max_tokens, received.wall_ms(started))
            after, sent_after = self._counters(), self._remote_bytes()
            counted = alone() and not unsettled and not self._broke_off
            if unsettled:
                self._broke_off = _PROCESSING.search(self._answer("GET", "/slots", None).body) is not None
            log = self._log(log_at, None if counted else timings)
            self._answered_at = log_at
        reply = self._reply(prompt, asked.text, received, timings, started)
        counters = differences(before, after) | traffic.grown(sent_before, sent_after) if counted else {}
        return reply.model_copy(
            update={"counters": counters, "steps": log.steps, "drafting": self._drafting(log, counted)}
        )

    def fly(self, prompt: Prompt, generation: Generation, stop: Stop) -> SlotReply:
        """The same for a request that was submitted. Under a load nothing is asked of the server meanwhile: what it
        counts is read once per cell (`totals`), and so is its log (`settle`)."""
        if self._launch.arm.load is None:
            return super().fly(prompt, generation, stop)
        asked = self._request(prompt, generation)
        stop.begin()
        started = time.perf_counter()
        received = self._stream(asked, stop)
        timings = read_timings(received.timings, asked.max_tokens, received.wall_ms(started))
        reply = self._reply(prompt, asked.text, received, timings, started)
        slot: Any = received.final.get("id_slot")
        return SlotReply(
            reply,
            slot if isinstance(slot, int) and slot >= 0 else None,
            None if reply.ttft_ms is None else max(0.0, reply.ttft_ms - timings.prompt_ms),
        )

    def settle(self, replies: Sequence[Reply]) -> Sequence[Reply]:
        """The replies with their steps, distinguished in the log of the whole cell."""
        if not replies or not self._launch.arm.engine.trace_steps or self.facts.speculating is False:
            return replies
        deadline = time.perf_counter() + _LOG_PATIENCE_S
        while True:
            logs = logs_at_once(_read(self._process.log_path, self._cell_log_at or 0, _MAX_REQUEST_LOG))
            found = [logs.get(evaluated(it.timings.predicted_n, it.timings.predicted_ms)) for it in replies]
            if all(found) or time.perf_counter() > deadline:
                break
            time.sleep(0.02)
        return [
            reply if log is None else reply.model_copy(update={"steps": log.steps})
            for reply, log in zip(replies, found, strict=True)
        ]

    def totals(self) -> dict[str, float]:
        """What `/metrics` counts, over the server's life."""
        if self._cell_log_at is None:
            self._cell_log_at = self._log_size()
        return self._counters()

    def _request(self, prompt: Prompt, generation: Generation) -> _Asked:
        max_tokens = prompt.max_tokens or generation.max_tokens
        text = self._text(prompt)
        settings = self._launch.arm.engine
        reuse = settings.prompt_cache or self._launch.reuse
        if prompt.turn is None or self._bare:
            body = request_body(text, max_tokens, generation, prompt_cache=reuse, stream=settings.stream_tokens)
            return _Asked("/completion", text, body, max_tokens)
        body = request_body("", max_tokens, generation, prompt_cache=reuse, stream=False)
        del body["prompt"]
        body |= {"messages": prompt.messages, "verbose": True} | prompt.template_arguments
        return _Asked("/v1/chat/completions", text, body, max_tokens)

    def recall(self, prompt: Prompt) -> None:
        """Let the server read what it had of a session when this call came; see the protocol.

        That is as much as it reported then, else what it knew: the part of the prompt that stays the same if all
        messages that were new are changed.
        """
        turn, self._recalled = prompt.turn, 0
        if turn is None or not self._launch.arm.engine.prompt_cache:
            return
        ids = self.prompt_tokens(prompt)
        known = self._known(ids, prompt, turn.known) if turn.known else ()
        self._recalled = len(known)
        cached = known if turn.cached is None else ids[: round(turn.cached * len(ids))]
        if not cached:  # another token, so that nothing of earlier calls is left
            cached = tuple(it for it in ids if it != ids[0])[:1]
        body = request_body("", 1, Generation(), prompt_cache=True, stream=False) | {"prompt": list(cached)}
        with self._logged():
            self._stream(_Asked("/completion", "", body, 1), more_bytes=64 * len(cached))

    def _known(self, ids: Sequence[int], prompt: Prompt, messages: int) -> tuple[int, ...]:
        """Of the prompt's tokens those that do not change with what follows its first messages."""
        other = [it.model_copy(update={"content": _unlike(it.content)}) for it in prompt.before[messages:]]
        changed = {"before": (*prompt.before[:messages], *other), "text": _unlike(prompt.text) if prompt.text else ""}
        others = self.prompt_tokens(prompt.model_copy(update=changed))
        return tuple(ours for ours, _ in takewhile(lambda it: it[0] == it[1], zip(ids, others, strict=False)))

    def _reply(self, prompt: Prompt, text: str, received: Received, timings: Timings, started: float) -> Reply:
        """What came back, without what the server counts and logs beside it."""
        if (message := received.message) is not None:
            shown, reasoning = message.content, message.reasoning
        else:
            shown, reasoning = split_reasoning(received.text, text) if prompt.format == "chat" else (received.text, "")
        return Reply(
            text=shown,
            reasoning=reasoning,
            tool_calls=() if message is None else message.tool_calls,
            known_n=None if prompt.turn is None else self._recalled,
            token_ids=received.token_ids(timings.predicted_n, self._canonical_ids),
            stop_reason=stop_reason(received.final),
            timings=timings,
            raw_timings=received.timings,
            wall_ms=received.wall_ms(started),
            ttft_ms=(received.first_at - started) * 1e3 if received.first_at is not None else None,
            arrival_ms=received.arrival_ms(timings.predicted_n, started),
        )

    def candidates(
        self, prompt: Prompt, generated: tuple[int, ...], generation: Generation, count: int
    ) -> tuple[Candidate, ...]:
        """What the target thinks may follow `prompt` and the tokens `generated`, likeliest first; see the protocol."""
        text = self._text(prompt)
        asked = question(text, generated, count, ignore_eos=generation.ignore_eos)
        # The answer repeats the prompt as text; no token has more bytes than these.
        size = 64 * len(generated) + 512 * count
        answer = self._stream(_Asked("/completion", text, asked, 1), more_bytes=size).final
        chosen, listed = read_chosen(answer), read_listed(answer)
        if not listed:
            whole = self._canonical_ids("a")
            if not whole:
                raise garbage("/tokenize", whole)
            forced_one = _Asked("/completion", text, forced(asked, whole[0]), 1)
            listed = read_listed(self._stream(forced_one, more_bytes=size).final)
        return from_chosen(listed, chosen, ignore_eos=generation.ignore_eos)

    def prompt_tokens(self, prompt: Prompt) -> tuple[int, ...]:
        """Token ids that the target processes for `prompt`: `/completion` tokenizes its text in the same way."""
        return self._tokenize(self._text(prompt), special=True)

    def tokenize(self, text: str) -> tuple[int, ...]:
        """Token ids of `text` without special tokens added."""
        return self._tokenize(text, special=False)

    def _tokenize(self, text: str, *, special: bool) -> tuple[int, ...]:
        utf8(text)
        body = {"content": text, "add_special": special, "parse_special": special}
        answer = self._call("POST", "/tokenize", body)
        tokens: Any = answer.get("tokens")
        if not isinstance(tokens, list) or not all(isinstance(token, int) for token in cast("list[object]", tokens)):
            raise garbage("/tokenize", answer)
        return tuple(cast("list[int]", tokens))

    def detokenize(self, token_ids: tuple[int, ...]) -> str:
        """Text of `token_ids`."""
        content = self._call("POST", "/detokenize", {"tokens": list(token_ids)}).get("content")
        if not isinstance(content, str):
            raise garbage("/detokenize", content)
        return content

    # --- a server that is kept for other sessions ---------------------------------------------------------------------

    def log_to(self, launch: Launch) -> None:
        """From now on serve the session of this `launch`: its log gets what the server said when it loaded, and then
        what it says of the session's own requests."""
        self._launch, self._copied = launch, 0
        self._copy_log(self._loaded)
        self._copied = self._log_size()

    def again(self, launch: Launch) -> None:
        """The same for a server that waited. Raises `EngineError` where it does not answer any more."""
        started = time.perf_counter()
        self._answer("GET", "/health", None)
        with contextlib.suppress(OSError):  # the log of the session before may be gone
            self._copy_log()
        self.log_to(launch)
        self.facts = dataclasses.replace(self.facts, ready_ms=(time.perf_counter() - started) * 1e3)

    @contextlib.contextmanager
    def _logged(self) -> Generator[None]:
        """Around a request: what the server says of it is in the session's log before it is kept."""
        try:
            yield
        except BaseException:
            self.sound = False
            raise
        finally:
            self._copy_log()

    def _copy_log(self, until: int | None = None) -> None:
        if self._copied is None or (until or self._log_size()) <= self._copied:
            return
        with (
            self._process.log_path.open("rb") as log,
            open(self._launch.log_path, "ab", opener=without_links) as own,
        ):
            log.seek(self._copied)
            own.write(log.read(_MAX_REQUEST_LOG if until is None else until - self._copied))
            self._copied = log.tell()

    def close(self) -> None:
        """End the server, or leave it to its keeper; safe to call twice."""
        if (keeper := self.keeper) is None:
            super().close()
            return
        self.keeper = None
        self._await_last_lines()
        time.sleep(_LINES_APART_S)  # more lines may be on their way
        self._copy_log()
        keeper()

    def end(self) -> None:
        """End the server and everything it started; safe to call twice."""
        with self._beside, contextlib.closing(self._process):
            self._await_last_lines()

    def _await_last_lines(self) -> None:
        """Another thread of the server writes its log: what ends the server would lose the last request's lines."""
        began_at, self._answered_at = self._answered_at, None
        if began_at is not None:
            with contextlib.suppress(OSError):  # a log that is gone
                self._whole_log(began_at, None, _LAST_LINES_S)

    # --- one request -------------------------------------------------------------------------------------------------

    def _stream(self, asked: _Asked, stop: Stop | None = None, *, more_bytes: int = 0) -> Received:
        path, body, max_tokens = asked.path, asked.body, asked.max_tokens
        # The last event repeats the prompt, and each character may be escaped to six.
        limits = HttpLimits(
            idle_s=self._launch.idle_timeout_s,
            events=max_tokens + 64,
            size_bytes=4 * 1024 * 1024 + 8192 * max_tokens + 12 * (len(utf8(asked.text)) + more_bytes),
        )
        try:
            answer = self._client.stream(path, body, limits, self._watch(bool(body["stream"])), stop)
            ended_at = time.perf_counter()
        except StreamHungError:
            raise self._hung(f"no token for {limits.idle_s:g} s") from None
        except StreamEndlessError:
            raise EngineProtocolError(
                f"the engine generated more than the {max_tokens} tokens requested",
                fix=SEE_LOG,
            ) from None
        except StreamClosedError:
            if stop is not None and stop.asked:
                raise GivenUpError from None
            raise self._gone("while it was generating") from None
        finally:
            if stop is not None and stop.asked:  # whether the server hung up or answered all the same
                self._broke_off = True
        if isinstance(answer, Stream):
            return read_events(answer.events(path))
        if answer.status != 200:
            raise refusal(path, answer)
        return read_answer(json_object(answer.body, path), ended_at)

    def _watch(self, streamed: bool) -> Watch:
        def progress() -> object:
            try:
                return self._client.call("GET", "/slots", timeout_s=self._launch.idle_timeout_s).body
            except OSError:
                return None  # silence does not count as progress

        return Watch(is_alive=lambda: self._process.exit_code() is None, progress=None if streamed else progress)

    def _text(self, prompt: Prompt) -> str:
        """What the server is to continue."""
        for text in (prompt.text, *(message.content for message in prompt.before)):
            utf8(text)
        if prompt.format != "chat" or self._bare:
            return prompt.said
        answer = self._call("POST", "/apply-template", {"messages": prompt.messages} | prompt.template_arguments)
        text = answer.get("prompt")
        if not isinstance(text, str):
            raise garbage("/apply-template", answer)
        return text

    @property
    def _bare(self) -> bool:
        """The target has no chat template; left to itself, the server would use one of its own."""
        header, flags = self._launch.target.header, self._launch.arm.engine.extra_flags
        return header is not None and not header.chat_template and not any("chat-template" in it for it in flags)

    def _canonical_ids(self, text: str) -> tuple[int, ...]:
        if text not in self._token_ids_of:
            self._token_ids_of[text] = self.tokenize(text)
        return self._token_ids_of[text]

    def _counters(self) -> dict[str, float]:
        answer = self._answer("GET", "/metrics", None)
        return parse_counters(answer.body.decode("utf-8", "replace"))

    def _remote_bytes(self) -> dict[str, float] | None:
        """What was exchanged with remote machines so far, where there are any."""
        addresses = remote_machines(self._launch)
        return traffic.remote_bytes(self.facts.pids, addresses) if addresses else None

    def _log_size(self) -> int:
        return self._process.log_path.stat().st_size

    def _log(self, log_at: int, among: Timings | None) -> RequestLog:
        """What the log says about the request whose part of it begins at byte `log_at`; `among` others, the one with
        these timings."""
        if not self._launch.arm.engine.trace_steps or self.facts.speculating is False:
            return RequestLog((), complete=False)
        return self._whole_log(log_at, among, _LOG_PATIENCE_S)

    def _whole_log(self, log_at: int, among: Timings | None, patience_s: float) -> RequestLog:
        """The same, once its end is there; what there is after `patience_s`."""
        deadline = time.perf_counter() + patience_s
        while True:
            text = _read(self._process.log_path, log_at, _MAX_REQUEST_LOG)
            log = parse_request(text if among is None else task_lines(text, among.predicted_n, among.predicted_ms))
            if log.complete or time.perf_counter() > deadline:
                return log
            time.sleep(0.001)

    def _drafting(self, log: RequestLog, counted: bool) -> tuple[Drafting, ...]:
        """What drafting took since the last request; nothing where the end of one of the two was not seen."""
        before, self._drafted = self._drafted, log.totals if log.complete and counted else None
        return () if before is None or self._drafted is None else drafting_between(before, self._drafted)

    # --- plain calls and failures ------------------------------------------------------------------------------------

    def _call(self, method: str, path: str, body: object) -> dict[str, Any]:
        return json_object(self._answer(method, path, body).body, path)

    def _answer(self, method: str, path: str, body: object) -> HttpResponse:
        try:
            answer = self._client.call(method, path, body, timeout_s=self._launch.idle_timeout_s)
        except TimeoutError:
            raise self._hung(f"no answer to {path} for {self._launch.idle_timeout_s:g} s") from None
        except OSError:
            raise self._gone(f"on the request for {path}") from None
        if answer.status != 200:
            raise refusal(path, answer)
        return answer

    def _hung(self, what: str) -> EngineError:
        return EngineHungError(
            f"the engine of arm {self._launch.arm.id} hangs: {what}{quoted_log(self._process.log_path)}",
            fix="raise engine.idle_timeout_s if the model is slow; otherwise read the full log in "
            f"{self._launch.log_path}",
        )

    def _gone(self, when: str) -> EngineError:
        code = self._process.wait(2.0)
        log_path = self._process.log_path
        if code is None:
            return EngineProtocolError(
                f"the engine of arm {self._launch.arm.id} closed the connection {when}{quoted_log(log_path)}",
                fix=f"read the full log in {self._launch.log_path}",
            )
        return EngineDiedError(
            f"the engine of arm {self._launch.arm.id} died {when} (exit code {code}){quoted_log(log_path)}",
            fix=f"read the full log in {self._launch.log_path}; exit code 137 usually means out of memory",
        )


class _Asked(NamedTuple):
    """A request for tokens."""

    path: str
    text: str
    """What is continued."""
    body: dict[str, Any]
    max_tokens: int


def _unlike(text: str) -> str:
    """Another text, from the first character on."""
    return "-" if text[:1] != "-" else "+"


def request_body(
    text: str, max_tokens: int, generation: Generation, *, prompt_cache: bool, stream: bool
) -> dict[str, Any]:
    """The JSON for `/completion`: what `generation` asks for. Everything else is as the server has it."""
    return {
        "prompt": text,
        "n_predict": max_tokens,
        "stream": stream,
        "return_tokens": True,
        "cache_prompt": prompt_cache,
        "seed": generation.seed,
        "temperature": generation.temperature,
        "ignore_eos": generation.ignore_eos,
        **{name: list(value) if name == "stop" else value for name, value in generation.sampling.items()},
    }


def refusal(path: str, answer: HttpResponse) -> EngineProtocolError:
    """The error for an answer whose status is not 200."""
    message = answer.body[:300].decode("utf-8", "replace")
    with contextlib.suppress(EngineProtocolError):
        error: Any = json_object(answer.body, path).get("error")
        if isinstance(error, dict):
            message = str(cast("dict[str, Any]", error).get("message", message))[:300]
    fix = SEE_LOG
    if "context size" in message:
        fix = "raise engine.context, or shorten the prompt or generation.max_tokens"
    return EngineProtocolError(f"the engine refused {path} (status {answer.status}): {message}", fix=fix)


def quoted_log(path: Path) -> str:
    """The engine's last relevant log lines, ready to stand at the end of a message."""
    try:
        size = path.stat().st_size
        lines = last_words(_read(path, max(0, size - _LOG_TAIL), _LOG_TAIL))
    except OSError:
        return ""
    return "".join(f"\n  | {line}" for line in lines)


def died_while_starting(launch: Launch, code: int) -> EngineStartError:
    """The error for an engine that ended before it was ready."""
    return EngineStartError(
        f"the engine of arm {launch.arm.id} died while it was starting (exit code {code}){quoted_log(launch.log_path)}",
        fix="its last lines above say why; the full log of a session is in the folder `logs` of its run",
    )


def _read(path: Path, offset: int, limit: int) -> str:
    with path.open("rb") as log:
        log.seek(offset)
        return log.read(limit).decode("utf-8", "replace")
