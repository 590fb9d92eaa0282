"""A session in a process of its own: it reads an order, then answers a client's questions until the client goes away.

The order is one JSON object on standard input: what to load, and where to listen with which key. Questions and answers
are JSON over the loopback interface.
"""

from __future__ import annotations

import contextlib
import gc
import json
import socket
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing.connection import Connection, Listener
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from specmeter.errors import EngineError, EngineProtocolError, SpecmeterError
from specmeter.record import Generation, Prompt, Reply

if TYPE_CHECKING:
    from specmeter.engines import Candidate

HEARTBEAT_S = 0.5
"""While a request runs, a sign of life is sent so often, if tokens come."""


def at_once(connection: Connection) -> None:
    """Send what is written at once: a reply waits 40 ms for an acknowledgement otherwise."""
    with contextlib.suppress(OSError):
        borrowed = socket.socket(fileno=connection.fileno())
        borrowed.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        borrowed.detach()


class ChildSession(Protocol):
    """What a child asks its session for."""

    @property
    def resolved(self) -> dict[str, Any]: ...
    def totals(self) -> dict[str, float]: ...
    def generate(self, prompt: Prompt, generation: Generation, *, progress: Callable[[int], None]) -> Reply: ...
    def candidates(
        self, prompt: Prompt, generated: Sequence[int], generation: Generation, count: int
    ) -> Sequence[Candidate]: ...
    def prompt_tokens(self, prompt: Prompt) -> list[int]: ...
    def tokenize(self, text: str) -> list[int]: ...
    def detokenize(self, token_ids: Sequence[int]) -> str: ...
    def close(self) -> None: ...


S = TypeVar("S", bound=ChildSession)


def serve(load: Callable[[dict[str, Any]], S], converse: Callable[[S, Connection], None]) -> int:
    """Serve what `load` makes of the order, by `converse`, until the client goes away; the exit code."""
    order: dict[str, Any] = json.load(sys.stdin)
    with Listener(("127.0.0.1", order["port"]), authkey=bytes.fromhex(order["key"])) as listener:
        client = listener.accept()
    at_once(client)
    with client:
        try:
            session = load(order)
        except SpecmeterError as error:
            send(client, {"error": {"message": error.message, "fix": error.fix, "usage": error.exit_code == 2}})
            return 1
        gc.disable()  # it would stop the loop between two forwards; it runs after each answer instead
        gc.freeze()  # over what answers leave, not all that was imported: 15 ms, for which the next request waits
        with contextlib.closing(session), contextlib.suppress(EOFError, OSError):
            send(client, {"ready": session.resolved})
            converse(session, client)
    return 0


def one_by_one(session: ChildSession, client: Connection) -> None:
    """Answer one question after the other, for as long as there is a client."""
    while True:
        question: dict[str, Any] = json.loads(client.recv_bytes())
        if question["ask"] != "cancel":  # of a request that has ended
            reply(client, partial(answer, session, question, client))


def outcome_of(result: Reply | SpecmeterError) -> dict[str, Any]:
    """What became of a request, as it is sent."""
    if isinstance(result, SpecmeterError):
        usage = not isinstance(result, EngineError)
        return {"error": {"message": result.message, "fix": result.fix, "usage": usage}}
    return {"answer": result.model_dump(mode="json", exclude_none=True)}


def reply(client: Connection, answer: Callable[[], Any]) -> None:
    """Send the answer, or the error that it raises."""
    try:
        send(client, {"answer": answer()})
    except SpecmeterError as error:
        send(client, outcome_of(error))
    gc.collect()


def asked(question: dict[str, Any]) -> tuple[Prompt, Generation]:
    """What a question is about."""
    return Prompt.model_validate(question["prompt"]), Generation.model_validate(question["generation"])


def answer(session: ChildSession, question: dict[str, Any], client: Connection) -> Any:
    """The answer of `session`, as JSON can hold it; during a generation, `client` hears that it continues."""
    match question["ask"]:
        case "tokenize":
            return session.tokenize(question["text"])
        case "detokenize":
            return session.detokenize(question["tokens"])
        case "totals":
            return session.totals()
        case "candidates":
            prompt, generation = asked(question)
            found = session.candidates(prompt, question["generated"], generation, question["count"])
            return [list(it) for it in found]
        case "prompt_tokens":
            return session.prompt_tokens(Prompt.model_validate(question["prompt"]))
        case _:
            prompt, generation = asked(question)
            made = session.generate(prompt, generation, progress=Heart(client).beat)
            return made.model_dump(mode="json", exclude_none=True)


class Heart:
    """Tells the client now and then that tokens come, and listens whether it still wants those of a lone request."""

    def __init__(self, client: Connection) -> None:
        self._client = client
        self._told = time.monotonic()

    def beat(self, tokens: int) -> None:
        if self.live(tokens) and self._client.poll():  # nothing but a cancellation is sent while a request runs
            self._client.recv_bytes()
            raise EngineProtocolError("the request was cancelled", fix="send it again")

    def live(self, tokens: int = 0) -> bool:
        """Whether it was time for a sign of life."""
        now = time.monotonic()
        if now - self._told < HEARTBEAT_S:
            return False
        self._told = now
        send(self._client, {"progress": tokens})
        return True


def send(client: Connection, message: dict[str, Any]) -> None:
    """Send one message."""
    client.send_bytes(json.dumps(message).encode())
