"""Conformance cases on how an engine starts, cancels, fails and ends, with several requests at once.

Each has a session of its own.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from specmeter.engines import EngineSession
from specmeter.engines.session import Ended, Ticket
from specmeter.errors import EngineDiedError, EngineError, EngineHungError, EngineProtocolError
from specmeter.record import Reply
from specmeter.testing.subject import (
    NotApplicable,
    NotMet,
    Subject,
    alike,
    demand,
    ended,
    failure,
    greedy,
    prompt,
    replied,
)

PATIENCE_S = 1.5
"""Idle timeout of sessions that are about to hang."""
COLLECTED_WITHIN_S = 120.0
_TRIES = 5


def _all(session: EngineSession, tickets: list[Ticket]) -> dict[Ticket, Ended]:
    """Everything in flight, collected; each ticket once and no others."""
    found: dict[Ticket, Ended] = {}
    while (it := session.collect(COLLECTED_WITHIN_S)) is not None:
        demand(it.ticket in tickets and it.ticket not in found, f"ticket {it.ticket} was collected and not expected")
        found[it.ticket] = it
    demand(len(found) == len(tickets), f"{len(found)} of {len(tickets)} requests ended in {COLLECTED_WITHIN_S:g} s")
    return found


def requests_in_flight_are_answered(subject: Subject) -> None:
    """More requests than run at once are all answered, each with its own text: the one it gets alone.

    Batches add in another order, so that greedy texts may part at near ties.
    """
    with subject.start() as session:
        alone = session.generate(prompt(), greedy(24))
        demand(session.collect() is None, "something was collected though nothing is in flight")
        lengths = [24, *range(5, 5 + session.facts.in_flight), 24]
        tickets = [session.submit(prompt(), greedy(tokens)) for tokens in lengths]
        demand(len(set(tickets)) == len(tickets), f"tickets repeat: {tickets}")
        found = _all(session, tickets)
        for ticket, tokens in zip(tickets, lengths, strict=True):
            reply = replied(found[ticket].result)
            demand(reply.timings.predicted_n == tokens, f"{reply.timings.predicted_n} tokens, not {tokens}")
            if tokens == 24 and subject.greedy_repeats:
                alike(session, alone, reply, "in flight")


def requests_in_flight_overlap(subject: Subject) -> None:
    """Where `in_flight` says that several run at once, each has its first token before any other has its last.

    Seen once in five tries, since a busy machine may start them apart.
    """
    with subject.start() as session:
        most = session.facts.in_flight
        if most == 1:
            raise NotApplicable("the engine takes one request at a time (facts.in_flight)")
        wanted, clock = greedy(min(400, subject.endless(session).max_tokens)), subject.engine.clock
        for _ in range(_TRIES):
            tickets = [session.submit(prompt(), wanted) for _ in range(most)]
            spans: list[tuple[float, float]] = []
            while (it := session.collect(COLLECTED_WITHIN_S)) is not None:
                now, reply = clock() * 1e3, replied(it.result)
                spans.append((now - reply.wall_ms + (reply.ttft_ms or 0), now))
            demand(len(spans) == len(tickets), f"{len(spans)} of {len(tickets)} requests ended")
            if max(first for first, _ in spans) < min(last for _, last in spans):
                return
        raise NotMet(f"facts.in_flight is {most}, and in {_TRIES} tries the requests ran one after the other")


def a_request_fails_alone(subject: Subject) -> None:
    """Of several in flight, one that cannot be answered is collected as its error; the others are answered."""
    with subject.start() as session:
        good, bad, other = (session.submit(prompt(it), greedy(8)) for it in (prompt().text, "a \ud800 b", "word"))
        found = _all(session, [good, bad, other])
        error = found[bad].result
        demand(isinstance(error, EngineError), f"a prompt that is not Unicode was answered with {error!r}")
        replied(found[good].result)
        replied(found[other].result)


def a_cancelled_request_is_never_collected(subject: Subject) -> None:
    """What is cancelled, running or waiting, is not collected, and the session continues as if it had not been asked.

    Cancelling it again, or after its end, does nothing.
    """
    with subject.start() as session:
        before = session.generate(prompt(), greedy(16))
        endless = subject.endless(session)
        long = [session.submit(prompt(), endless) for _ in range(session.facts.in_flight + 1)]
        for ticket in (*long, long[0]):
            session.cancel(ticket)
        demand(session.collect(0.0) is None, "a cancelled request was collected")
        wanted = session.submit(prompt(), greedy(16))
        after = replied(_all(session, [wanted])[wanted].result)
        session.cancel(wanted)
        if subject.greedy_repeats:
            alike(session, before, after, "after cancelling")


def a_dead_engine_fails_all_in_flight(subject: Subject) -> None:
    """An engine that ends while it generates fails every request in flight, and all later ones, with `EngineDiedError`.

    The measurement continues with a fresh session; a request that waits for ever would end it.
    """
    session = subject.start()
    if not session.facts.pids:
        session.close()
        session = subject.start(engine=subject.failing("dies"))
    with session:
        endless = subject.endless(session)
        tickets = [session.submit(prompt(), endless) for _ in range(session.facts.in_flight + 1)]
        demand(
            not session.facts.pids or session.collect(0.2) is None,
            "generations end too soon: give Subject more context",
        )
        for pid in session.facts.pids:
            with suppress(psutil.NoSuchProcess):
                psutil.Process(pid).kill()
        for it in _all(session, tickets).values():
            demand(isinstance(it.result, EngineDiedError), f"{type(it.result).__name__} instead of EngineDiedError")
        demand(isinstance(failure(session), EngineDiedError), "a later request does not raise EngineDiedError")
    ended(session)


def a_hung_engine_is_noticed(subject: Subject) -> None:
    """An engine that stops without ending fails its requests with `EngineHungError` after the idle timeout.

    It is ended by `close` all the same, though it cannot answer a polite signal.
    """
    session = subject.start(idle_timeout_s=PATIENCE_S)
    if not session.facts.pids:
        session.close()
        session = subject.start(engine=subject.failing("hangs"), idle_timeout_s=PATIENCE_S)
    elif sys.platform == "win32":
        session.close()
        raise NotApplicable("processes cannot be stopped on Windows")
    with session:
        endless = subject.endless(session)
        tickets = [session.submit(prompt(), endless) for _ in range(session.facts.in_flight)]
        for pid in session.facts.pids:
            os.kill(pid, signal.SIGSTOP)
        for it in _all(session, tickets).values():
            demand(isinstance(it.result, EngineHungError), f"{type(it.result).__name__} instead of EngineHungError")
    ended(session)


def garbage_is_told_from_an_answer(subject: Subject) -> None:
    """What cannot be understood raises `EngineProtocolError`; it is never taken for a short or empty reply.

    For engines that speak a protocol with another process.
    """
    engine = subject.failing("garbage")
    with subject.start(engine=engine, idle_timeout_s=PATIENCE_S * 4) as session:
        error = failure(session)
        demand(isinstance(error, EngineProtocolError), f"{error!r} instead of EngineProtocolError")
    ended(session)


def close_ends_the_engine(subject: Subject) -> None:
    """`close` ends every process, may be called twice, and a closed session answers with `EngineDiedError`."""
    session = subject.start()
    session.close()
    session.close()
    ended(session)
    demand(isinstance(failure(session), EngineDiedError), "a closed session does not raise EngineDiedError")
    session.close()


def close_ends_what_is_in_flight(subject: Subject) -> None:
    """`close` gives up every request in flight; one that another thread waits for ends with an `EngineError`.

    Ctrl-C takes this way out of a run.
    """
    session = subject.start()
    results: list[Reply | Exception] = []
    endless = subject.endless(session)

    def waits() -> None:
        try:
            results.append(session.generate(prompt(), endless))
        except Exception as error:
            results.append(error)

    waiting = threading.Thread(target=waits)
    with session:
        for _ in range(session.facts.in_flight + 1):
            session.submit(prompt(), endless)
        waiting.start()
        session.collect(0.1)
    waiting.join(COLLECTED_WITHIN_S)
    demand(not waiting.is_alive(), "a thread still waits for its reply after close")
    demand(isinstance(results[0], EngineError | Reply), f"close while generating raised {results[0]!r}")
    demand(session.collect() is None, "something was collected after close")
    ended(session)


def nothing_is_left_behind(subject: Subject) -> None:
    """After `close` there is no process, port, thread, open file or temporary file that was not there before.

    A run starts hundreds of sessions on a machine that it measures.
    """
    open_files: list[int] = []
    _ = subject.folder  # made before, so that it is not taken for something left
    with _temporary_files() as scratch:
        for _ in range(2):  # what is made once, such as a cache of modules, is not a leak
            threads = set(threading.enumerate())
            with subject.start() as session:
                session.submit(prompt(), greedy(4))
                session.collect(COLLECTED_WITHIN_S)
                ports = _listening(session.facts.pids)
            ended(session)
            demand(not (left := set(threading.enumerate()) - threads), f"threads: {left}")
            demand(not (found := [port for port in ports if _answers(port)]), f"ports: {found}")
            this = psutil.Process()
            open_files.append(this.num_handles() if sys.platform == "win32" else this.num_fds())
        demand(not (files := [it.name for it in scratch.iterdir()]), f"temporary files: {files}")
    demand(open_files[1] <= open_files[0], f"{open_files[1] - open_files[0]} open files more after each session")


@contextmanager
def _temporary_files() -> Generator[Path]:
    """An empty folder where this process and those that it starts make their temporary files."""
    names = ("TMPDIR", "TEMP", "TMP")
    before, default = {name: os.environ.get(name) for name in names}, tempfile.tempdir
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= dict.fromkeys(names, folder)
        tempfile.tempdir = None
        try:
            yield Path(folder)
        finally:
            tempfile.tempdir = default
            for name, value in before.items():
                os.environ.pop(name, None)
                if value is not None:
                    os.environ[name] = value


def _listening(pids: tuple[int, ...]) -> set[int]:
    ports: set[int] = set()
    for pid in pids:
        with suppress(psutil.Error):
            connections = psutil.Process(pid).net_connections("tcp")
            ports |= {it.laddr.port for it in connections if it.status == psutil.CONN_LISTEN and it.laddr}
    return ports


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1.0).close()
    except OSError:
        return False
    return True
