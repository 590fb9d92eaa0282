"""The instrumented engine's own process. Run by `engine.LibllamaEngine`.

Reads one JSON object from standard input (what to load, and where to listen with which key), listens on the loopback
interface for one client, and answers questions until it goes away: JSON in, JSON out, one at a time. Requests that are
submitted run together, and what became of each is sent as it ends; questions that need the models' memories wait
meanwhile. What llama.cpp logs goes to standard error. With `--identify` it prints what the library says about itself,
as JSON, and ends.
"""

from __future__ import annotations

import contextlib
import gc
import json
import socket
import sys
import time
from collections import deque
from multiprocessing.connection import Connection, Listener
from pathlib import Path
from typing import Any

from specmeter.engines.libllama.session import Session
from specmeter.engines.libllama.together import Together
from specmeter.errors import EngineError, EngineProtocolError, SpecmeterError
from specmeter.llama_binding import capi
from specmeter.record import Arm, Generation, Prompt, Reply

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
    _tell(f"initializing, n_slots = {len(session.target.sequences)}\n")
    library.listen(lambda level, text: _tell(text) if level >= _WARNING else None)
    return session


def _serve(session: Session, client: Connection) -> None:
    together, later = Together(session.target, session.work), deque[dict[str, Any]]()
    heart = _Heart(client)
    try:
        while True:
            while together.idle and later:
                _reply(session, later.popleft(), client)
            while together.idle or client.poll():
                question: dict[str, Any] = json.loads(client.recv_bytes())
                match question["ask"]:
                    case "cancel":  # without a ticket: of a request that has ended
                        together.cancel(question.get("ticket", 0))
                    case "submit":
                        prompt, generation = _asked(question)
                        together.submit(question["ticket"], prompt, generation, question["sent_at"])
                    case "tokenize" | "detokenize":
                        _reply(session, question, client)
                    case _ if together.idle:
                        _reply(session, question, client)
                    case _:
                        later.append(question)
            for ticket, result in together.advance():
                _send(client, {"ended": ticket, **_told(result)})
                gc.collect()
            heart.live()
    except (EOFError, OSError):
        return


def _told(result: Reply | SpecmeterError) -> dict[str, Any]:
    if isinstance(result, SpecmeterError):
        usage = not isinstance(result, EngineError)
        return {"error": {"message": result.message, "fix": result.fix, "usage": usage}}
    return {"answer": result.model_dump(mode="json", exclude_none=True)}


def _reply(session: Session, question: dict[str, Any], client: Connection) -> None:
    try:
        _send(client, {"answer": _answer(session, question, client)})
    except SpecmeterError as error:
        _send(client, _told(error))
    gc.collect()


def _asked(question: dict[str, Any]) -> tuple[Prompt, Generation]:
    return Prompt.model_validate(question["prompt"]), Generation.model_validate(question["generation"])


def _answer(session: Session, question: dict[str, Any], client: Connection) -> Any:
    model = session.target.model
    match question["ask"]:
        case "tokenize":
            return model.tokenize(question["text"], add_special=False, parse_special=False)
        case "detokenize":
            return model.text_of(question["tokens"], special=True)
        case "totals":
            return session.totals()
        case "candidates":
            prompt, generation = _asked(question)
            found = session.candidates(prompt, question["generated"], generation, question["count"])
            return [list(it) for it in found]
        case "prompt_tokens":
            return session.prompt_tokens(Prompt.model_validate(question["prompt"]))
        case about:
            prompt, generation = _asked(question)
            heart = _Heart(client)
            if about == "foretell":
                return session.foretell(prompt, generation, progress=heart.beat)
            reply = session.generate(prompt, generation, progress=heart.beat)
            return reply.model_dump(mode="json", exclude_none=True)


class _Heart:
    """Tells the client now and then that tokens come, and listens whether it still wants those of a lone request."""

    def __init__(self, client: Connection) -> None:
        self._client = client
        self._told = time.monotonic()

    def beat(self, tokens: int) -> None:
        if self.live(tokens) and self._client.poll():  # nothing but a cancellation is sent while a request runs
            self._client.recv_bytes()
            raise EngineProtocolError("the request was cancelled", fix="ask again")

    def live(self, tokens: int = 0) -> bool:
        """Whether it was time for a sign of life."""
        now = time.monotonic()
        if now - self._told < HEARTBEAT_S:
            return False
        self._told = now
        _send(self._client, {"progress": tokens})
        return True


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
