"""The instrumented engine: llama.cpp as a library, in a process of its own, every step timed."""

from __future__ import annotations

import contextlib
import json
import math
import secrets
import subprocess
import sys
import time
from collections import deque
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from itertools import count
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection
from pathlib import Path
from threading import Lock
from typing import Any

from pydantic import ValidationError

from specmeter import __version__
from specmeter.cache import file_sha256
from specmeter.engines import Candidate, Launch, SessionFacts
from specmeter.engines.http_client import garbage, json_object
from specmeter.engines.libllama.spec import LIBLLAMA
from specmeter.engines.llama_cpp.log import parse_load
from specmeter.engines.llama_cpp.server import died_while_starting, quoted_log
from specmeter.engines.llama_cpp.tools import binary_libraries, checksums, wheel_libraries
from specmeter.engines.process import LOOPBACK, EngineProcess, clean_environment, default_threads, free_port
from specmeter.engines.registry import EngineStatus, check_arm
from specmeter.engines.serving import at_once
from specmeter.engines.session import Ended, GivenUpError, Stop, ThreadedSession, Ticket
from specmeter.errors import (
    EngineDiedError,
    EngineError,
    EngineHungError,
    EngineProtocolError,
    EngineStartError,
    ExperimentError,
    SpecmeterError,
)
from specmeter.llama_binding import capi
from specmeter.record import EngineIdentity, Generation, Host, Prompt, Reply
from specmeter.record.base import first_fault

_CHILD = (sys.executable, "-P", "-m", "specmeter.engines.libllama.child")
_MAX_ANSWER = 256 * 1024 * 1024
_MAX_LOAD_LOG = 64 * 1024 * 1024
_POLL_S = 0.1
_CANCEL = json.dumps({"ask": "cancel"}).encode()
"""Ends the request at hand with an error; means nothing between two."""


class LibllamaEngine:
    """Starts sessions on the wheel's library, or on that of `SPECMETER_LIBLLAMA`."""

    def identify(self) -> EngineIdentity:
        """Which engine this is, to the byte. Raises `EngineStartError` when the library cannot be used."""
        about, path = self._about, capi.library_path()
        ours = wheel_libraries(path.parent) if path.stem.startswith("xllamacpp") else binary_libraries(path)
        try:
            wheel = f" of xllamacpp {version('xllamacpp')}" if path.stem.startswith("xllamacpp") else ""
        except PackageNotFoundError:
            wheel = ""
        return EngineIdentity(
            kind="libllama",
            version=f"llama.cpp {about['version']}{wheel}",
            build=f"specmeter {__version__} on llama.cpp {about['version']}",
            binary=str(path),
            binary_sha256=file_sha256(path),
            libraries=checksums(ours),
            system_info=about["system_info"],
            traits=LIBLLAMA.traits,
        )

    def start(self, launch: Launch) -> LibllamaSession:
        """Start a session and wait until it is ready. Raises `EngineStartError`, or `ExperimentError` for an arm that
        this engine cannot honour."""
        check_arm("libllama", launch.arm, has_draft=launch.draft is not None)
        return start_child(_CHILD, launch, clean_environment(trace=False))

    def clock(self) -> float:
        """Seconds since the epoch."""
        return time.time()

    @cached_property
    def _about(self) -> dict[str, Any]:
        fix = "run `specmeter doctor`, or use the engine `embedded`"
        try:
            done = subprocess.run(
                [*_CHILD, "--identify"],
                capture_output=True,
                timeout=120,
                env=clean_environment(trace=False),
                check=False,
            )
            about: dict[str, Any] = json.loads(done.stdout)
        except (OSError, subprocess.SubprocessError, ValueError) as error:
            raise EngineStartError(f"llama.cpp's library cannot be loaded: {str(error)[:300]}", fix=fix) from None
        if "error" in about:
            raise EngineStartError(about["error"]["message"], fix=about["error"]["fix"])
        return about


def examine(_: Host) -> EngineStatus:
    """Whether the library that the instrumented engine and probes drive can be used."""
    try:
        identity = LibllamaEngine().identify()
    except SpecmeterError as error:
        return EngineStatus(
            "limited",
            error.message,
            "only needed for timing every step: reinstall the pinned wheel, or set SPECMETER_LIBLLAMA to a libllama "
            "of the same version",
        )
    return EngineStatus("ok", f"{identity.version} ({identity.binary})")


def start_child(command: tuple[str, ...], launch: Launch, environment: dict[str, str]) -> LibllamaSession:
    """A session of a child (`child.serve`) that is started by `command`, once it has loaded the models of `launch`.

    Raises `EngineStartError`, or `ExperimentError`.
    """
    order = {
        "arm": json.loads(launch.arm.model_dump_json()),
        "target": launch.target.path,
        "draft": launch.draft.path if launch.draft else None,
        "threads": launch.arm.engine.threads or default_threads(),
    }
    key = secrets.token_bytes(24)
    port = free_port()
    started = time.perf_counter()
    process = EngineProcess(
        command,
        env=environment,
        log_path=launch.log_path,
        stdin=json.dumps(order | {"port": port, "key": key.hex()}),
    )
    try:
        client = _connect(launch, process, port, key, started + launch.start_timeout_s)
        try:
            kind = LibllamaSession if launch.arm.engine.slots == 1 else SharedSession
            session = kind(launch, process, client, (*command, json.dumps(order)))
            session.wait_until_ready(started)
        except BaseException:
            client.close()
            raise
    except BaseException:
        process.close()
        raise
    return session


class LibllamaSession(ThreadedSession):
    """The near side of a session: questions to its process, one at a time, and patience with limits."""

    def __init__(self, launch: Launch, process: EngineProcess, client: Connection, argv: tuple[str, ...]) -> None:
        super().__init__()
        self._launch = launch
        self._process = process
        self._client = client
        self._argv = argv
        self._turn = Lock()

    def wait_until_ready(self, started: float) -> None:
        """Fill `facts` once everything is loaded. Raises `EngineStartError`, or `ExperimentError`."""
        launch = self._launch
        try:
            message = self._receive(started + launch.start_timeout_s - time.perf_counter(), "loaded nothing")
        except EngineHungError as error:
            raise EngineStartError(error.message, fix="raise engine.start_timeout_s if the model is large") from None
        except EngineError as error:
            raise EngineStartError(error.message, fix=error.fix) from None
        if "error" in message:
            kind = ExperimentError if message["error"]["usage"] else EngineStartError
            raise kind(
                f"arm {launch.arm.id}: {message['error']['message']}{quoted_log(launch.log_path)}",
                fix=message["error"]["fix"],
            )
        ready_ms = (time.perf_counter() - started) * 1e3
        with self._process.log_path.open("rb") as log:
            load = parse_load(log.read(_MAX_LOAD_LOG).decode("utf-8", "replace"))
        resolved: dict[str, Any] = load.resolved | message["ready"]
        self.facts = SessionFacts(
            argv=self._argv,
            ready_ms=ready_ms,
            resolved=resolved | {"system_info": load.system_info, "warnings": list(load.warnings)},
            speculating=launch.arm.speculates,
            devices=load.devices,
            draft_devices=load.draft_devices,
            layers_offloaded=load.layers_offloaded,
            draft_layers_offloaded=load.draft_layers_offloaded,
            pids=self._process.pids(),
            in_flight=launch.arm.engine.slots,
        )

    def answer(self, prompt: Prompt, generation: Generation, stop: Stop) -> Reply:
        """Generate for one prompt. Raises `EngineDiedError`, `EngineHungError` or `EngineProtocolError`."""
        if self._launch.arm.synthetic_rates:
            self._ask({"ask": "foretell", **_prompt(prompt, generation)}, stop)
        started = time.perf_counter()
        reply = _reply(self._ask({"ask": "generate", **_prompt(prompt, generation)}, stop))
        return reply.model_copy(update={"wall_ms": (time.perf_counter() - started) * 1e3})

    def totals(self) -> dict[str, float]:
        """What its process has counted since it started; see the protocol."""
        return {str(name): float(value) for name, value in self._ask({"ask": "totals"}).items()}

    def candidates(
        self, prompt: Prompt, generated: tuple[int, ...], generation: Generation, count: int
    ) -> tuple[Candidate, ...]:
        """What the target thinks may follow; see the protocol."""
        question = {"ask": "candidates", "generated": generated, "count": count, **_prompt(prompt, generation)}
        return tuple(Candidate(int(token), float(logprob)) for token, logprob in self._ask(question))

    def prompt_tokens(self, prompt: Prompt) -> tuple[int, ...]:
        """Token ids that the target processes for `prompt`; see the protocol."""
        return tuple(self._ask({"ask": "prompt_tokens", **_prompt(prompt, Generation())}))

    def tokenize(self, text: str) -> tuple[int, ...]:
        """Token ids of `text` without special tokens added."""
        return tuple(self._ask({"ask": "tokenize", "text": text}))

    def detokenize(self, token_ids: tuple[int, ...]) -> str:
        """Text of `token_ids`."""
        return str(self._ask({"ask": "detokenize", "tokens": token_ids}))

    def end(self) -> None:
        """End the engine; safe to call twice."""
        self._process.close()
        with self._turn:  # a file descriptor that another thread waits on is not closed under it
            self._client.close()

    def _ask(self, question: dict[str, Any], stop: Stop | None = None) -> Any:
        with self._turn:
            if stop is not None and stop.asked:
                raise GivenUpError
            self._send(question)
            if stop is None:
                return self._answer()
            stop.by(self._cancel)
            try:
                return self._answer()
            finally:
                stop.by(None)

    def _answer(self) -> Any:
        while True:
            message = self._receive(self._launch.idle_timeout_s, "no token")
            if "progress" not in message and not self._is_of_request(message):
                return self._result(message)

    def _is_of_request(self, message: dict[str, Any]) -> bool:  # noqa: ARG002
        """Whether a message is about a request that was submitted, which is then kept."""
        return False

    def _result(self, message: dict[str, Any]) -> Any:
        match message:
            case {"answer": answer}:
                return answer
            case {"error": {"message": str(said), "fix": str(fix), "usage": bool(usage)}}:
                kind = ExperimentError if usage else EngineProtocolError
                raise kind(f"arm {self._launch.arm.id}: {said}", fix=fix)
            case _:
                raise garbage("a question", message)

    def _send(self, question: dict[str, Any]) -> None:
        try:
            self._client.send_bytes(json.dumps(question).encode())
        except OSError:
            raise self._gone() from None

    def _cancel(self) -> None:
        with contextlib.suppress(OSError):  # it may have ended in the meantime
            self._client.send_bytes(_CANCEL)

    def _receive(self, patience_s: float, what: str, *, until: float = math.inf) -> dict[str, Any]:
        """The next message. Raises `_NothingYet` where there is none `until` that moment of `time.perf_counter`."""
        deadline = time.perf_counter() + patience_s
        try:
            while not self._client.poll(max(0.0, min(_POLL_S, until - time.perf_counter()))):
                if self._process.exit_code() is not None:
                    raise self._gone()
                if time.perf_counter() >= until:
                    raise _NothingYet
                if time.perf_counter() > deadline:
                    raise EngineHungError(
                        f"the engine of arm {self._launch.arm.id} hangs: {what} for {patience_s:g} s"
                        f"{quoted_log(self._process.log_path)}",
                        fix="raise engine.idle_timeout_s if the model is slow",
                    )
            answer = self._client.recv_bytes(_MAX_ANSWER)
        except (EOFError, OSError):
            raise self._gone() from None
        return json_object(answer, "a question")

    def _gone(self) -> EngineError:
        code = self._process.wait(2.0)
        log_path = self._process.log_path
        return EngineDiedError(
            f"the engine of arm {self._launch.arm.id} died (exit code {code}){quoted_log(log_path)}",
            fix=f"read the full log in {log_path}; exit code 137 usually means out of memory",
        )


class SharedSession(LibllamaSession):
    """A session with several slots: its process runs the requests together, and no thread waits for any of them."""

    def __init__(self, launch: Launch, process: EngineProcess, client: Connection, argv: tuple[str, ...]) -> None:
        super().__init__(launch, process, client, argv)
        self._tickets = count(1)
        self._submitted: dict[Ticket, float] = {}
        """When each was sent."""
        self._over: deque[Ended] = deque()

    def generate(self, prompt: Prompt, generation: Generation) -> Reply:
        """Generate for one prompt. Raises `EngineDiedError`, `EngineHungError` or `EngineProtocolError`."""
        ticket = self.submit(prompt, generation)
        others: list[Ended] = []
        while (ended := self.collect()) is not None and ended.ticket != ticket:
            others.append(ended)
        self._over.extendleft(reversed(others))
        self._submitted.update((it.ticket, it.started_at or 0.0) for it in others)
        assert ended is not None
        if isinstance(ended.result, SpecmeterError):
            raise ended.result
        return ended.result

    def submit(self, prompt: Prompt, generation: Generation) -> Ticket:
        """Put a request in flight and return at once; see the protocol."""
        ticket, sent_at = Ticket(next(self._tickets)), time.time()
        self._submitted[ticket] = sent_at
        try:
            self._send({"ask": "submit", "ticket": ticket, "sent_at": sent_at, **_prompt(prompt, generation)})
        except EngineError as error:
            self._over.append(Ended(ticket, error))
        return ticket

    def collect(self, timeout_s: float | None = None) -> Ended | None:
        """The next request that ends; see the protocol."""
        ends_at = math.inf if timeout_s is None else time.perf_counter() + timeout_s
        heard_at = time.perf_counter()
        while self._submitted:
            while self._over:
                ended = self._over.popleft()
                if (sent_at := self._submitted.pop(ended.ticket, None)) is not None:  # it was not cancelled
                    return ended._replace(started_at=sent_at)
            try:
                patience_s = heard_at + self._launch.idle_timeout_s - time.perf_counter()
                message = self._receive(patience_s, "no token", until=ends_at)
                heard_at = time.perf_counter()
                self._is_of_request(message)
            except _NothingYet:
                return None
            except EngineError as error:
                self._over.extend(Ended(ticket, error) for ticket in sorted(self._submitted))
        return None

    def cancel(self, ticket: Ticket) -> None:
        """Give a request up; see the protocol."""
        if self._submitted.pop(ticket, None) is not None:
            with contextlib.suppress(EngineError):
                self._send({"ask": "cancel", "ticket": ticket})

    def close(self) -> None:
        """Give up what is in flight, and end the engine; safe to call twice."""
        self._submitted.clear()
        self.end()

    def _is_of_request(self, message: dict[str, Any]) -> bool:
        match message:
            case {"ended": int(number)}:
                try:
                    result = _reply(self._result(message))
                except SpecmeterError as error:
                    result = error
                self._over.append(Ended(Ticket(number), result))
                return True
            case _:
                return False


class _NothingYet(Exception):  # noqa: N818
    """The caller waits no longer."""


def _reply(answer: Any) -> Reply:
    try:
        return Reply.model_validate(answer)
    except ValidationError as error:
        raise EngineProtocolError(
            f"cannot read the engine's reply: {first_fault(error)}", fix="reinstall specmeter"
        ) from None


def _prompt(prompt: Prompt, generation: Generation) -> dict[str, Any]:
    return {"prompt": prompt.model_dump(mode="json"), "generation": generation.model_dump(mode="json")}


def _connect(launch: Launch, process: EngineProcess, port: int, key: bytes, deadline: float) -> Connection:
    """A connection to the child, which proves that it knows the key as this side does."""
    while time.perf_counter() < deadline:
        if (code := process.exit_code()) is not None:
            raise died_while_starting(launch, code)
        try:
            client = Client((LOOPBACK, port), authkey=key)
        except (ConnectionError, TimeoutError):
            process.wait(0.02)
        except (AuthenticationError, EOFError, OSError):
            raise EngineStartError(
                f"another program listens on port {port}, not the engine of arm {launch.arm.id}", fix="try again"
            ) from None
        else:
            at_once(client)
            return client
    raise EngineStartError(
        f"the engine of arm {launch.arm.id} did not answer within {launch.start_timeout_s:g} s",
        fix=f"read its log in {Path(launch.log_path)}",
    )
