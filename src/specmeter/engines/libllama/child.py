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
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, Listener
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from specmeter.engines.libllama.session import InProcessSession
from specmeter.errors import EngineError, EngineProtocolError, SpecmeterError
from specmeter.llama_binding import capi
from specmeter.llama_binding.context import TimedLogits
from specmeter.record import Arm, Generation, Prompt, Reply

if TYPE_CHECKING:
    from collections.abc import Callable

    from specmeter.engines import Candidate
    from specmeter.llama_binding.context import Context, Forward, Work


HEARTBEAT_S = 0.5
"""While a request runs, a sign of life is sent so often, if tokens come."""
_WARNING = 3


def at_once(connection: Connection) -> None:
    """Send what is written at once: a reply waits 40 ms for an acknowledgement otherwise."""
    with contextlib.suppress(OSError):
        borrowed = socket.socket(fileno=connection.fileno())
        borrowed.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        borrowed.detach()


class Asked(Protocol):
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


S = TypeVar("S", bound=Asked)


def serve(load: Callable[[dict[str, Any]], S], answer: Callable[[S, Connection], None]) -> int:
    """Serve what `load` makes of the order, by `answer`, until the client goes away; the exit code."""
    order: dict[str, Any] = json.load(sys.stdin)
    with Listener(("127.0.0.1", order["port"]), authkey=bytes.fromhex(order["key"])) as listener:
        client = listener.accept()
    at_once(client)
    with client:
        try:
            session = load(order)
        except SpecmeterError as error:
            _send(client, {"error": {"message": error.message, "fix": error.fix, "usage": error.exit_code == 2}})
            return 1
        gc.disable()  # it would stop the loop between two forwards; it runs after each answer instead
        gc.freeze()  # over what answers leave, not all that was imported: 15 ms, for which the next request waits
        with contextlib.closing(session), contextlib.suppress(EOFError, OSError):
            _send(client, {"ready": session.resolved})
            answer(session, client)
    return 0


def one_by_one(session: Asked, client: Connection) -> None:
    """Answer one question after the other, for as long as there is a client."""
    while True:
        question: dict[str, Any] = json.loads(client.recv_bytes())
        if question["ask"] != "cancel":  # of a request that has ended
            _reply(session, question, client)


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
    heart = _Heart(client)
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


def _told(result: Reply | SpecmeterError) -> dict[str, Any]:
    if isinstance(result, SpecmeterError):
        usage = not isinstance(result, EngineError)
        return {"error": {"message": result.message, "fix": result.fix, "usage": usage}}
    return {"answer": result.model_dump(mode="json", exclude_none=True)}


def _reply(session: Asked, question: dict[str, Any], client: Connection) -> None:
    try:
        _send(client, {"answer": _answer(session, question, client)})
    except SpecmeterError as error:
        _send(client, _told(error))
    gc.collect()


def _asked(question: dict[str, Any]) -> tuple[Prompt, Generation]:
    return Prompt.model_validate(question["prompt"]), Generation.model_validate(question["generation"])


def _answer(session: Asked, question: dict[str, Any], client: Connection) -> Any:
    match question["ask"]:
        case "tokenize":
            return session.tokenize(question["text"])
        case "detokenize":
            return session.detokenize(question["tokens"])
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
            if about == "foretell" and isinstance(session, InProcessSession):
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


# --- several requests at once ----------------------------------------------------------------------------------------


class Finished(NamedTuple):
    """A request that is over."""

    ticket: int
    result: Reply | SpecmeterError


@dataclass
class _Waiting:
    """A request that no slot was free for yet."""

    ticket: int
    prompt: Prompt
    generation: Generation
    sent_at: float
    """Seconds since the epoch."""


@dataclass
class _Flight:
    """A request in a slot."""

    ticket: int
    slot: int
    work: Work[Reply]
    forward: Forward
    """What it waits for."""
    queued_ms: float


class Together:
    """Requests of one session that share its forwards, at most one for each slot; further ones wait, in order.

        a request joins     as soon as a slot is free; its prompt is processed by itself, while the others wait
        draft               forwards of the draft model are shared by all that draft: the first tokens of all drafts
                            together, then the second ones, until the longest is done
        verify              one target forward over the last token and the draft of every request
        a request ends      and its slot is free before the next forward

    Every request has a memory of its own (a sequence of the context), and its text is that of plain decoding up to near
    ties: forwards over more tokens add up in another order. Requests that begin at once stay in step for as long as
    each needs one target forward; where a recurrent state has to be replayed, the replay joins the next forward of the
    others.

    Orca's iteration-level scheduling: Yu et al. 2022, OSDI; as llama.cpp's server does it, which adds prompts to the
    forwards of others, so that a step of these takes longer than with others that decode.
    """

    def __init__(self, target: Context, work: Callable[[Prompt, Generation, int], Work[Reply]]) -> None:
        """`work` answers a request in a slot: the number of a sequence of `target` (`InProcessSession.work`)."""
        self._target = target
        self._work = work
        self._free = list(range(len(target.sequences)))
        self._queue: deque[_Waiting] = deque()
        self._flights: list[_Flight] = []
        """In the order of their slots, so that their sequences have consecutive numbers where all slots are busy."""
        self._over: list[Finished] = []

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do."""
        return not (self._queue or self._flights or self._over)

    def submit(self, ticket: int, prompt: Prompt, generation: Generation, sent_at: float | None = None) -> None:
        """Add a request, which was sent at `sent_at` (seconds since the epoch; None: now)."""
        self._queue.append(_Waiting(ticket, prompt, generation, time.time() if sent_at is None else sent_at))

    def cancel(self, ticket: int) -> None:
        """Give a request up, wherever it is; nothing, if it has ended."""
        self._queue = deque(it for it in self._queue if it.ticket != ticket)
        for flight in [it for it in self._flights if it.ticket == ticket]:
            self._leave(flight)

    def advance(self) -> list[Finished]:
        """Let requests join, and carry out one forward of the target for all of them; the requests that are over."""
        while self._queue and self._free:
            self._join(self._queue.popleft())
        while drafting := [it for it in self._flights if it.forward.sequence.context is not self._target]:
            self._share(drafting)
        self._share(self._flights)
        over, self._over = self._over, []
        return over

    def _join(self, waiting: _Waiting) -> None:
        slot = self._free.pop(0)
        queued_ms = max(0.0, (time.time() - waiting.sent_at) * 1e3)
        work = self._work(waiting.prompt, waiting.generation, slot)
        try:
            forward = next(work)
        except StopIteration as done:
            self._free = sorted([*self._free, slot])
            self._over.append(Finished(waiting.ticket, _as_sent(done.value, queued_ms)))
        except SpecmeterError as error:
            self._free = sorted([*self._free, slot])
            self._over.append(Finished(waiting.ticket, error))
        else:
            self._flights.append(_Flight(waiting.ticket, slot, work, forward, queued_ms))
            self._flights.sort(key=lambda it: it.slot)

    def _share(self, flights: Sequence[_Flight]) -> None:
        """What these wait for, in one forward, or as few as their tokens fit into."""
        for group in list(_groups(flights)):
            context = group[0].forward.sequence.context
            began = time.perf_counter()
            try:
                rows = context.decode_together([it.forward for it in group])
            except SpecmeterError as error:
                for flight in group:
                    self._leave(flight)
                    self._over.append(Finished(flight.ticket, error))
                continue
            ended = time.perf_counter()
            for flight, its in zip(group, rows, strict=True):
                self._go_on(flight, TimedLogits(its, began, ended))

    def _go_on(self, flight: _Flight, answer: TimedLogits) -> None:
        try:
            flight.forward = flight.work.send(answer)
        except StopIteration as done:
            self._leave(flight)
            self._over.append(Finished(flight.ticket, _as_sent(done.value, flight.queued_ms)))
        except SpecmeterError as error:
            self._leave(flight)
            self._over.append(Finished(flight.ticket, error))

    def _leave(self, flight: _Flight) -> None:
        flight.work.close()
        self._flights.remove(flight)
        self._free = sorted([*self._free, flight.slot])


def _groups(flights: Iterable[_Flight]) -> Iterator[list[_Flight]]:
    """Requests whose forwards fit into one batch."""
    group: list[_Flight] = []
    tokens = rows = 0
    for flight in flights:
        forward, context = flight.forward, flight.forward.sequence.context
        its, its_rows = len(forward.tokens), len(forward.tokens) if forward.outputs == "all" else 1
        if group and (tokens + its > context.batch_size or rows + its_rows > context.rows):
            yield group
            group, tokens, rows = [], 0, 0
        group.append(flight)
        tokens, rows = tokens + its, rows + its_rows
    if group:
        yield group


def _as_sent(reply: Reply, queued_ms: float) -> Reply:
    """The reply with times from when it was sent, not from when it joined."""
    return reply.model_copy(
        update={
            "wall_ms": reply.wall_ms + queued_ms,
            "ttft_ms": None if reply.ttft_ms is None else reply.ttft_ms + queued_ms,
            "arrival_ms": tuple(at + queued_ms for at in reply.arrival_ms),
        }
    )


if __name__ == "__main__":
    sys.exit(identify() if sys.argv[1:] == ["--identify"] else serve(_load, _serve))
