"""The instrumented engine's own process. Run by `engine.LibllamaEngine`.

Reads one JSON object from standard input (what to load, and where to listen with which key), listens on the loopback
interface for one client, and answers requests until it goes away: JSON in, JSON out, one at a time. What llama.cpp
logs goes to standard error. With `--identify` it prints what the library says about itself, as JSON, and ends.
"""

from __future__ import annotations

import contextlib
import gc
import json
import socket
import sys
import time
from multiprocessing.connection import Connection, Listener
from pathlib import Path
from typing import Any

from specmeter.engines.libllama import capi
from specmeter.engines.libllama.session import Session
from specmeter.errors import EngineError, EngineProtocolError, SpecmeterError
from specmeter.record import Arm, Generation, Prompt

HEARTBEAT_S = 0.5
"""While a request runs, a sign of life is sent so often, if tokens come."""
_WARNING = 3


def at_once(connection: Connection) -> None:
    """Send what is written at once: a reply waits 40 ms for an acknowledgement otherwise."""
    with contextlib.suppress(OSError):
        borrowed = socket.socket(fileno=connection.fileno())
        borrowed.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        borrowed.detach()


def main() -> int:
    """Serve until the client goes away; the exit code."""
    order: dict[str, Any] = json.load(sys.stdin)
    with Listener(("127.0.0.1", order["port"]), authkey=bytes.fromhex(order["key"])) as listener:
        client = listener.accept()
    at_once(client)
    with client:
        try:
            session = _load(order)
        except SpecmeterError as error:
            _send(client, {"error": {"message": error.message, "fix": error.fix, "usage": error.exit_code == 2}})
            return 1
        gc.disable()  # it would stop the loop between two forwards; it runs after each answer instead
        with session:
            _send(client, {"ready": session.resolved})
            _serve(session, client)
    return 0


def _load(order: dict[str, Any]) -> Session:
    """The session, its load told to standard error; afterwards only warnings are."""
    library = capi.library()
    library.listen(lambda _, text: _tell(text))
    _tell(f"llama.cpp {library.version}\nsystem_info: n_threads = {order['threads']} (n_threads_batch = ")
    _tell(f"{order['threads']}) | {library.system_info}\n")
    session = Session(
        Arm.model_validate(order["arm"]),
        Path(order["target"]),
        Path(order["draft"]) if order["draft"] else None,
        order["threads"],
        announce=lambda line: _tell(line + "\n"),
    )
    _tell("initializing, n_slots = 1\n")
    library.listen(lambda level, text: _tell(text) if level >= _WARNING else None)
    return session


def _serve(session: Session, client: Connection) -> None:
    while True:
        try:
            question: dict[str, Any] = json.loads(client.recv_bytes())
        except (EOFError, OSError):
            return
        if question["ask"] == "cancel":  # its request has ended
            continue
        try:
            _send(client, {"answer": _answer(session, question, client)})
        except EngineError as error:
            _send(client, {"error": {"message": error.message, "fix": error.fix, "usage": False}})
        except SpecmeterError as error:
            _send(client, {"error": {"message": error.message, "fix": error.fix, "usage": True}})
        gc.collect()


def _answer(session: Session, question: dict[str, Any], client: Connection) -> Any:
    model = session.target.model
    match question["ask"]:
        case "tokenize":
            return model.tokenize(question["text"], add_special=False, parse_special=False)
        case "detokenize":
            return model.text_of(question["tokens"], special=True)
        case "candidates":
            found = session.candidates(
                Prompt.model_validate(question["prompt"]),
                question["generated"],
                Generation.model_validate(question["generation"]),
                question["count"],
            )
            return [list(it) for it in found]
        case "prompt_tokens":
            return session.prompt_tokens(Prompt.model_validate(question["prompt"]))
        case about:
            prompt = Prompt.model_validate(question["prompt"])
            generation = Generation.model_validate(question["generation"])
            heart = _Heart(client)
            if about == "foretell":
                return session.foretell(prompt, generation, progress=heart.beat)
            reply = session.generate(prompt, generation, progress=heart.beat)
            return reply.model_dump(mode="json", exclude_none=True)


class _Heart:
    """Tells the client now and then that tokens come, and listens whether it still wants them."""

    def __init__(self, client: Connection) -> None:
        self._client = client
        self._told = time.monotonic()

    def beat(self, tokens: int) -> None:
        now = time.monotonic()
        if now - self._told >= HEARTBEAT_S:
            self._told = now
            _send(self._client, {"progress": tokens})
            if self._client.poll():  # nothing but a cancellation is sent while a request runs
                self._client.recv_bytes()
                raise EngineProtocolError("the request was cancelled", fix="ask again")


def _send(client: Connection, message: dict[str, Any]) -> None:
    client.send_bytes(json.dumps(message).encode())


def _tell(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()


def identify() -> int:
    """Print version, CPU features and path of the library as one line of JSON."""
    try:
        library = capi.library()
    except SpecmeterError as error:
        print(json.dumps({"error": {"message": error.message, "fix": error.fix}}))
        return 1
    print(json.dumps({"version": library.version, "system_info": library.system_info, "path": str(library.path)}))
    return 0


if __name__ == "__main__":
    sys.exit(identify() if sys.argv[1:] == ["--identify"] else main())
