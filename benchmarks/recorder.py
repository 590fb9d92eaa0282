"""What `specmeter record` adds to a request, and what it takes of the processor with many streams.

    uv run python benchmarks/recorder.py

A server of ours answers at once, or streams a token each 20 ms; the same client asks it directly and through the
recorder, in turn.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing as mp
import statistics
import tempfile
import time
from pathlib import Path

import psutil
from aiohttp import ClientSession, web

from specmeter.recorder.book import Book
from specmeter.recorder.proxy import HOST, Recorder

BEHIND, PORT, STREAMS, TOKENS = 18480, 18481, 32, 100
PIECE = f"data: {json.dumps({'choices': [{'delta': {'content': 'word '}}]})}\n\n".encode()
LAST = f"data: {json.dumps({'choices': [{'delta': {}, 'finish_reason': 'stop'}]})}\n\ndata: [DONE]\n\n".encode()
BODY = {"messages": [{"role": "user", "content": "text " * 400}]}


async def _answer(request: web.Request) -> web.StreamResponse:
    if not (await request.json()).get("stream"):
        return web.json_response({"choices": [{"message": {"role": "assistant", "content": "Hi"}}]})
    reply = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await reply.prepare(request)
    for _ in range(TOKENS):
        await reply.write(PIECE)
        await asyncio.sleep(0.02)
    await reply.write(LAST)
    return reply


def _server() -> None:
    app = web.Application()
    app.router.add_post("/v1/chat/completions", _answer)
    web.run_app(app, host=HOST, port=BEHIND, print=None)


def _recorder(out: str) -> None:
    book = Book(Path(out), "benchmark")
    asyncio.run(Recorder(f"http://{HOST}:{BEHIND}", PORT, book).serve(asyncio.Event()))


async def _ask(client: ClientSession, port: int, **more: object) -> float:
    began = time.perf_counter()
    async with client.post(f"http://{HOST}:{port}/v1/chat/completions", json={**BODY, **more}) as reply:
        await reply.read()
    return (time.perf_counter() - began) * 1e3


async def _measure(pid: int) -> None:
    async with ClientSession() as client:
        for _ in range(20):
            await _ask(client, BEHIND)
            await _ask(client, PORT)
        pairs = [(await _ask(client, BEHIND), await _ask(client, PORT)) for _ in range(500)]
        direct, through = (statistics.median(it) for it in zip(*pairs, strict=True))
        print(f"a request: {direct:.2f} ms directly, {through:.2f} ms through the recorder: {through - direct:+.2f} ms")
        process = psutil.Process(pid)
        before, began = sum(process.cpu_times()[:2]), time.perf_counter()
        await asyncio.gather(*(_ask(client, PORT, stream=True) for _ in range(STREAMS)))
        took = time.perf_counter() - began
        share = (sum(process.cpu_times()[:2]) - before) / took / (psutil.cpu_count() or 1)
        print(f"{STREAMS} streams of 50 tokens/s: {share:.1%} of the machine's processors")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        processes = [mp.Process(target=_server), mp.Process(target=_recorder, args=(f"{folder}/s.jsonl",))]
        for it in processes:
            it.start()
        time.sleep(2)
        try:
            asyncio.run(_measure(processes[1].pid or 0))
        finally:
            for it in processes:
                it.terminate()


if __name__ == "__main__":
    main()
