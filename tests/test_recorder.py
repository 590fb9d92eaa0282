"""The recorder passes everything on unchanged, writes chat calls down, and goes on with its file after a kill."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
from aiohttp import ClientSession, web
from aiohttp.test_utils import unused_port
from yarl import URL

from specmeter.errors import UsageError
from specmeter.recorder.book import Book
from specmeter.recorder.proxy import HOST, Recorder
from specmeter.recorder.replies import read_reply
from specmeter.workloads.sessions import read_sessions

Answer = TypeVar("Answer")
CHAT = "/v1/chat/completions"
ASKED: dict[str, Any] = {"messages": [{"role": "user", "content": "Hi, my key is sk-123."}], "temperature": 0.5}
ANSWER: dict[str, Any] = {
    "choices": [{"message": {"role": "assistant", "content": "Hello."}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 9, "completion_tokens": 2},
    "timings": {"cache_n": 4, "prompt_n": 5, "predicted_n": 2, "draft_n": 3, "draft_n_accepted": 1},
}
PIECES = (
    {"choices": [{"delta": {"role": "assistant", "content": None}, "finish_reason": None}]},
    {"choices": [{"delta": {"tool_calls": [{"index": 0, "id": "c1", "function": {"name": "read", "arguments": ""}}]}}]},
    {"choices": [{"delta": {"tool_calls": [{"index": 0, "function": {"arguments": '{"path":'}}]}}]},
    {"choices": [{"delta": {"tool_calls": [{"index": 0, "function": {"arguments": ' "a.py"}'}}]}}]},
    {"choices": [{"delta": {}, "finish_reason": "tool_calls"}], "timings": {"predicted_n": 12}},
)
STREAM = "".join(f"data: {json.dumps(it)}\n\n" for it in PIECES) + "data: [DONE]\n\n"


async def upstream(request: web.Request) -> web.StreamResponse:
    """A server: a stream, an error, or what it was sent."""
    body = await request.read()
    if request.path != CHAT:
        headers = {"X-Seen": request.headers.get("X-Own", ""), "X-Path": request.raw_path}
        return web.Response(body=body, headers=headers, content_type="application/octet-stream")
    asked = json.loads(body)
    if asked.get("fail"):
        return web.json_response({"error": {"message": "too long"}}, status=400)
    if not asked.get("stream"):
        return web.json_response(ANSWER)
    reply = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await reply.prepare(request)
    for piece in STREAM.split("\n\n")[:-1]:
        await reply.write(f"{piece}\n\n".encode())
    return reply


@asynccontextmanager
async def served(out: Path, *redact: str) -> AsyncIterator[tuple[Recorder, ClientSession, str]]:
    app = web.Application(client_max_size=2**26)
    app.router.add_route("*", "/{path:.*}", upstream)
    runner = web.AppRunner(app)
    await runner.setup()
    behind, port = unused_port(), unused_port()
    await web.TCPSite(runner, HOST, behind).start()
    book = Book(out, f"http://{HOST}:{behind}", redact)
    recorder, stop = Recorder(f"http://{HOST}:{behind}", port, book), asyncio.Event()
    serving = asyncio.create_task(recorder.serve(stop))
    try:
        async with ClientSession() as client:
            for _ in range(200):
                try:
                    await client.get(f"http://{HOST}:{port}/ping")
                    break
                except OSError:
                    await asyncio.sleep(0.01)
            yield recorder, client, f"http://{HOST}:{port}"
    finally:
        stop.set()
        await serving
        book.close()
        await runner.cleanup()


def in_own_loop(work: Coroutine[Any, Any, Answer]) -> Answer:
    """Runs `work` in another thread: the browser of other tests leaves a running loop in this one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


def recorded(out: Path, script: Callable[[Recorder, ClientSession, str], Awaitable[None]], *redact: str) -> Recorder:
    """What is left when a client has done its script."""

    async def run() -> Recorder:
        async with served(out, *redact) as (recorder, client, address):
            await script(recorder, client, address)
        return recorder

    return in_own_loop(run())


def lines(out: Path) -> list[dict[str, Any]]:
    return [json.loads(it) for it in out.read_text(encoding="utf-8").splitlines()]


def test_everything_is_passed_on_and_chats_are_recorded(tmp_path: Path) -> None:
    out = tmp_path / "s.jsonl"

    async def script(_: Recorder, client: ClientSession, address: str) -> None:
        async with client.post(f"{address}{CHAT}", json=ASKED, headers={"Authorization": "Bearer secret"}) as reply:
            assert await reply.json() == ANSWER
        more = [*ASKED["messages"], ANSWER["choices"][0]["message"], {"role": "user", "content": "Read a.py"}]
        async with client.post(f"{address}{CHAT}", json={"messages": more, "stream": True}) as reply:
            assert await reply.text() == STREAM
        async with client.post(f"{address}{CHAT}", json={**ASKED, "fail": True}) as reply:
            assert reply.status == 400
        blob = os.urandom(300_000)
        anywhere = URL(f"{address}/any/path%20here?q=%2F", encoded=True)
        async with client.put(anywhere, data=blob, headers={"X-Own": "1"}) as reply:
            assert await reply.read() == blob
            assert reply.headers["X-Seen"] == "1"
            assert reply.headers["X-Path"] == "/any/path%20here?q=%2F"

    recorder = recorded(out, script, r"sk-\d+")
    text = out.read_text(encoding="utf-8")
    assert "secret" not in text
    assert "sk-123" not in text
    first, second, failed = [it for it in lines(out) if "recorded" in it]
    assert first["timings"]["draft_n_accepted"] == 1
    assert (second["parent"], second["shared"], len(second["messages"])) == ("1", 2, 1)
    assert second["reply"]["tool_calls"][0]["function"] == {"name": "read", "arguments": '{"path": "a.py"}'}
    assert failed["status"] == 400
    assert recorder.passed_on.total() >= 2
    found = read_sessions([out])
    assert [(it.known, it.reply_tokens, it.cached_tokens) for it in found.calls] == [(0, 2, 4), (2, 12, None)]
    assert (found.calls[0].sampling, found.failed) == ({"temperature": 0.5}, 1)


def test_a_recording_goes_on_after_a_kill(tmp_path: Path) -> None:
    out = tmp_path / "s.jsonl"
    book = Book(out, "http://127.0.0.1:1")
    reply = read_reply(json.dumps(ANSWER).encode(), "application/json", "")
    book.add(ASKED, reply, 200, {"at": 1.0})
    book.close()
    with out.open("a", encoding="utf-8") as file:
        file.write('{"recorded": "2", "mess')
    again = Book(out, "http://127.0.0.1:1")
    more = [*ASKED["messages"], ANSWER["choices"][0]["message"], {"role": "user", "content": "And?"}]
    again.add({"messages": more}, reply, 200, {"at": 2.0})
    again.close()
    found = read_sessions([out])
    assert [(it.session, it.known) for it in found.calls] == [("s-1", 0), ("s-1", 2)]


def test_a_server_that_is_not_there_is_told_to_the_client(tmp_path: Path) -> None:
    async def run() -> None:
        book, port, stop = Book(tmp_path / "s.jsonl", "x"), unused_port(), asyncio.Event()
        recorder = Recorder(f"http://{HOST}:{unused_port()}", port, book)
        serving = asyncio.create_task(recorder.serve(stop))
        await asyncio.sleep(0.2)
        async with ClientSession() as client, client.post(f"http://{HOST}:{port}{CHAT}", json=ASKED) as reply:
            assert reply.status == 502
            assert "does not answer" in await reply.text()
        stop.set()
        await serving
        book.close()
        assert recorder.broken_off == 1

    in_own_loop(run())


def test_wrong_input_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other.jsonl").write_text("no recording\n", encoding="utf-8")
    with pytest.raises(UsageError, match="exists and is no recording"):
        Book(tmp_path / "other.jsonl", "x")
    with pytest.raises(UsageError, match="--redact"):
        Book(tmp_path / "s.jsonl", "x", ["("])
    book = Book(tmp_path / "t.jsonl", "x")
    with pytest.raises(UsageError, match="no address"):
        Recorder("ftp://x", 1, book)
    book.close()


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"choices": []}', b"\xff\xfe", b'{"choices": [{"message": 3}]}'])
def test_replies_that_are_none_are_left_out(body: bytes) -> None:
    assert read_reply(body, "application/json", "") is None
    assert read_reply(body, "text/event-stream", "") is None
    assert read_reply(body, "application/json", "gzip") is None


def test_streams_keep_their_characters_and_their_calls() -> None:
    def event(**delta: object) -> str:
        return f"data: {json.dumps({'choices': [{'delta': delta}]}, ensure_ascii=False)}\n\n"

    def piece(own: str, name: str, arguments: str) -> dict[str, object]:
        return {"id": own, "function": {"name": name, "arguments": arguments}}

    end = f"data: {json.dumps({'choices': [{'delta': {}, 'finish_reason': 'stop'}]})}\n\n"
    text = "\ufeff" + event(content="a\u2028b\u0085c") + event(tool_calls=[piece("a", "f", '{"x"')])
    text += event(tool_calls=[{"function": {"arguments": ": 1}"}}]) + event(tool_calls=[piece("b", "g", "{}")]) + end
    reply = read_reply(text.encode(), "text/event-stream", "")
    assert reply is not None
    assert reply.message["content"] == "a\u2028b\u0085c"
    calls = [(it["id"], it["function"]["name"], it["function"]["arguments"]) for it in reply.message["tool_calls"]]
    assert calls == [("a", "f", '{"x": 1}'), ("b", "g", "{}")]


def test_what_is_redacted_is_nowhere_in_the_file(tmp_path: Path) -> None:
    book = Book(tmp_path / "s.jsonl", "x", ["M\u00fcller", "hunter2"])
    arguments = json.dumps({"who": "M\u00fcller"})
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
    asked = [{"role": "user", "content": "hunter2"}, {"role": "assistant", "content": "", "tool_calls": [call]}]
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"properties": {"hunter2": {}}}}}]
    book.add({"messages": [*asked, {"role": "user", "content": "\ud83d"}], "tools": tools}, None, 200, {"at": 1.0})
    book.close()
    text = (tmp_path / "s.jsonl").read_text("utf-8")
    assert not any(it in text for it in ("hunter2", "M\u00fcller", "M\\u00fcller"))
    assert book.unread == 1
    assert len(read_sessions([tmp_path / "s.jsonl"]).calls) == 1


def test_a_file_without_calls_is_gone_on_with(tmp_path: Path) -> None:
    Book(tmp_path / "s.jsonl", "x").close()
    again = Book(tmp_path / "s.jsonl", "x")
    again.add({"messages": [{"role": "user", "content": "Hi"}]}, None, 200, {"at": 1.0})
    again.close()
    assert len(lines(tmp_path / "s.jsonl")) == 2
