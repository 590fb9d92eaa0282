"""The process of the instrumented engine, started by `engine.LibllamaEngine`.

Requests that are submitted run together, and what became of each is sent as it ends; questions that need the models'
memories wait meanwhile. What llama.cpp logs goes to standard error. With `--identify` it prints what the library says
about itself, as JSON, and ends.
"""

from __future__ import annotations

import gc
import json
import sys
from collections import deque
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from specmeter.engines.libllama.session import InProcessSession
from specmeter.engines.libllama.together import Together
from specmeter.engines.serving import Heart, answer, asked, outcome_of, reply, send, serve
from specmeter.errors import SpecmeterError
from specmeter.llama_binding import capi
from specmeter.record import Arm

_WARNING = 3


def _load(order: dict[str, Any]) -> InProcessSession:
    """The session, its load told to standard error; afterwards only warnings are."""
    library = capi.library()
    library.listen(lambda _, text: _tell(text))
    _tell(f"llama.cpp {library.version}\nsystem_info: n_threads = {order['threads']} (n_threads_batch = ")
    _tell(f"{order['threads']}) | {library.system_info}\n  - CPU : {library.processor}\n")
    session = InProcessSession(
        Arm.model_validate(order["arm"]),
        Path(order["target"]),
        Path(order["draft"]) if order["draft"] else None,
        order["threads"],
        announce=lambda line: _tell(line + "\n"),
    )
    _tell(f"initializing, n_slots = {len(session.target.sequences)}\n")
    library.listen(lambda level, text: _tell(text) if level >= _WARNING else None)
    return session


def _serve(session: InProcessSession, client: Connection) -> None:
    together, later = Together(session.target, session.work), deque[dict[str, Any]]()
    heart = Heart(client)
    while True:
        while together.idle and later:
            _reply(session, later.popleft(), client)
        while together.idle or client.poll():
            question: dict[str, Any] = json.loads(client.recv_bytes())
            match question["ask"]:
                case "cancel":  # without a ticket: of a request that has ended
                    together.cancel(question.get("ticket", 0))
                case "submit":
                    prompt, generation = asked(question)
                    together.submit(question["ticket"], prompt, generation, question["sent_at"])
                case "tokenize" | "detokenize":
                    _reply(session, question, client)
                case _ if together.idle:
                    _reply(session, question, client)
                case _:
                    later.append(question)
        for ticket, result in together.advance():
            send(client, {"ended": ticket, **outcome_of(result)})
            gc.collect()
        heart.live()


def _reply(session: InProcessSession, question: dict[str, Any], client: Connection) -> None:
    about = _foretold if question["ask"] == "foretell" else answer
    reply(client, partial(about, session, question, client))


def _foretold(session: InProcessSession, question: dict[str, Any], client: Connection) -> None:
    prompt, generation = asked(question)
    session.foretell(prompt, generation, progress=Heart(client).beat)


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
    sys.exit(identify() if sys.argv[1:] == ["--identify"] else serve(_load, _serve))
