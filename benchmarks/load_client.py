"""What many clients cost: CPU of this process per request, its memory, and how late it sends.

    uv run python benchmarks/load_client.py [--clients 1,32,1000] [--requests 4000] [--tokens 16]
    uv run python benchmarks/load_client.py --streams 32 [--target bench:dense-100m]

A server in a process of its own answers every request at once, with a stream of some tokens like llama-server's, so
that all that is left is the client: sending, receiving, reading the events, making the record.

CPU per request     user and system time of this process, all threads, until the record is made
kept per request    memory by which this process grows until the records are stored
late                how much later a request was sent than its client could, 50th and 99th percentile

With `--streams` a real engine answers so many clients at once instead: the client's share of all cores.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import selectors
import socket
import subprocess
import sys
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, cast

import psutil

from specmeter.engines import Launch, SessionFacts
from specmeter.engines.http_client import HttpClient
from specmeter.engines.llama_cpp.server import LlamaSession
from specmeter.engines.process import EngineProcess
from specmeter.measure.clients import Clients, DueRequest, Told
from specmeter.measure.load import cpu_ms
from specmeter.record import Arm, EngineSettings, Generation, Load, ModelIdentity, Prompt, Reply
from specmeter.store import RunStore


def answer(tokens: int) -> bytes:
    """A stream as llama-server writes it."""
    events: list[dict[str, Any]] = [
        {"index": 0, "content": " word", "tokens": [7], "stop": False, "id_slot": 0, "tokens_predicted": n + 1}
        for n in range(tokens)
    ]
    timings = {"prompt_n": 8, "prompt_ms": 0.0, "predicted_n": tokens, "predicted_ms": 0.0}
    events.append({"content": "", "stop": True, "id_slot": 0, "stop_type": "limit", "timings": timings})
    parts = [b"data: " + json.dumps(it).encode() + b"\n\n" for it in events]
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(it), it) for it in parts)
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"


def serve(tell: Connection, tokens: int) -> None:
    """Answer whatever has come whole."""
    said = answer(tokens)
    listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
    listener.setblocking(False)
    chosen = selectors.DefaultSelector()
    chosen.register(listener, selectors.EVENT_READ, None)
    tell.send(listener.getsockname()[1])
    while True:
        for key, _ in chosen.select():
            if key.fileobj is listener:
                try:
                    while True:
                        connection, _ = listener.accept()
                        chosen.register(connection, selectors.EVENT_READ, bytearray())
                except BlockingIOError:
                    continue
            connection, data = cast("socket.socket", key.fileobj), cast("bytearray", key.data)
            data += connection.recv(65536)
            head, _, body = bytes(data).partition(b"\r\n\r\n")
            length = head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0]
            if length and len(body) >= int(length):
                connection.setblocking(True)
                connection.sendall(said)
                chosen.unregister(connection)
                connection.close()


class NoProcess:
    """The server is not a process of the session."""

    log_path = Path(os.devnull)

    def exit_code(self) -> None:
        return None

    def wait(self, _: float) -> None:
        return None

    def close(self) -> None:
        return None


def session_of(port: int, clients: int) -> LlamaSession:
    arm = Arm(
        id=f"stand-in/none/c{clients}",
        target="t",
        engine=EngineSettings(slots=min(clients, 64)),
        load=Load(clients=clients, requests=clients),
    )
    model = ModelIdentity(name="t", reference="t", path="t", sha256="", size_bytes=0, origin="path")
    launch = Launch(arm, model, None, log_path=Path(tempfile.gettempdir()) / "none")
    facts = SessionFacts(argv=(), ready_ms=0.0, resolved={}, in_flight=min(clients, 64))
    return LlamaSession(launch, cast("EngineProcess", NoProcess()), HttpClient(port, "key"), facts)


def measure(port: int, clients: int, requests: int, tokens: int) -> None:
    prompt = Prompt(id="p", workload="w", kind="fact", text="Once upon a time", sha256="0")
    asked = [DueRequest(n, prompt, Generation(max_tokens=tokens)) for n in range(requests)]
    found: list[Told] = []
    with session_of(port, clients) as session:
        Clients(session, time.time, lambda _: None).closed_loop(asked[:clients], clients)  # sockets, threads, imports
        rss = psutil.Process().memory_info().rss
        before, started = cpu_ms(), time.perf_counter()
        Clients(session, time.time, found.append).closed_loop(asked, clients)
        seconds, spent = time.perf_counter() - started, cpu_ms() - before
        grown = psutil.Process().memory_info().rss - rss
    assert all(isinstance(it.result, Reply) for it in found)
    late = sorted(it.late_ms for it in found)
    print(
        f"{clients:5} clients  {spent / requests:6.3f} ms CPU per request  {grown / requests / 1000:6.1f} kB kept per "
        f"request  {requests / seconds:7.0f} requests/s  late {late[len(late) // 2]:.2f} ms, "
        f"{late[int(len(late) * 0.99)]:.2f} ms"
    )


def streams(target: str, clients: int) -> None:
    """The client's share of the machine in a run with so many clients of a real engine."""
    load = {"clients": clients, "slots": clients, "rounds": 2}
    experiment = {"name": "streams", "targets": {"t": target}, "load": load, "arms": [{"method": "ngram-simple"}]}
    experiment |= {"workloads": [{"source": "bench", "per_kind": 2}], "design": {"blocks": 1, "warmup": "short"}}
    experiment |= {"generation": {"max_tokens": 64}, "engine": {"context": 512 * clients}}
    with tempfile.TemporaryDirectory() as name:
        file, folder = Path(name) / "streams.json", Path(name) / "run"
        file.write_text(json.dumps(experiment), encoding="utf-8")
        command = [sys.executable, "-m", "specmeter", "run", str(file), "--out", str(folder), "--quiet"]
        code = subprocess.run(command, check=False, stdout=subprocess.DEVNULL).returncode
        if code not in (0, 1):
            raise SystemExit(f"the run ended with {code}")
        with RunStore.open(folder, readonly=True) as store:
            cells = list(store.load_cells())
    seconds = sum(cell.ended_at - cell.began_at for cell in cells)
    spent = sum(cell.client_cpu_ms for cell in cells) / 1000
    share = spent / seconds / (os.cpu_count() or 1)
    print(f"{clients} streams of {target}: {seconds:.0f} s in {len(cells)} cells, client {share:.2%} of the machine")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", default="1,32,1000")
    parser.add_argument("--requests", type=int, default=4000)
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--streams", type=int, help="so many clients of a real engine, instead")
    parser.add_argument("--target", default="bench:dense-100m", help="of --streams")
    args = parser.parse_args()
    if args.streams:
        streams(args.target, args.streams)
        return
    ours, theirs = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(theirs, args.tokens), daemon=True)
    server.start()
    port = ours.recv()
    try:
        for clients in args.clients.split(","):
            measure(port, int(clients), max(args.requests, int(clients)), args.tokens)
    finally:
        server.terminate()


if __name__ == "__main__":
    main()
