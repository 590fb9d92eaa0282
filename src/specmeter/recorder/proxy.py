"""A proxy between a program and the model server that it uses: passes everything on, and records chat calls.

Bytes are passed on as they come, before anything is read from them. What is recorded is read and written when the reply
has ended, by one thread of its own, so that no other reply waits for it.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast
from urllib.parse import urlsplit

from aiohttp import ClientError, ClientSession, ClientTimeout, DummyCookieJar, TCPConnector, web
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from specmeter.errors import UsageError
from specmeter.recorder.book import Book
from specmeter.recorder.replies import MAX_REPLY_BYTES, read_reply

HOST = "127.0.0.1"
MAX_REQUEST_BYTES = 256 * 2**20
MAX_LINE_BYTES = 2**20
"""Of an address or a header."""
_CHAT = "/chat/completions"
_DONE = b"[DONE]"
"""Ends a stream."""
_OWN = frozenset(
    (
        *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te", "trailer"),
        *("transfer-encoding", "upgrade", "host", "content-length", "expect"),
    )
)
"""Headers that belong to one connection (RFC 9110, 7.6.1), and those that the client sets itself."""


class Recorder:
    """What is passed on between a port of this machine and a server."""

    def __init__(self, to: str, port: int, book: Book) -> None:
        """Raises `UsageError` for what is no address of a server."""
        parts = urlsplit(to)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.path not in ("", "/"):
            raise UsageError(f"--to {to[:200]}: no address of a server", fix="give one like http://127.0.0.1:8080")
        self._to = to.rstrip("/")
        self._port = port
        self._book = book
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="recorder")
        self.passed_on: Counter[str] = Counter()
        """Method and path of requests that were not recorded."""
        self.broken_off = 0
        """Replies that did not come to their end."""
        self.unread = 0
        """Chat requests that could not be read, so that they are not in the file."""
        self.problem: BaseException | None = None
        """Why nothing more could be written."""
        self.on_start: Callable[[], None] = lambda: None
        """Called when it listens."""
        self.lost = 0
        """Calls since then."""
        self.on_problem: Callable[[BaseException], None] = lambda _: None
        """Called once, when it is known."""

    async def serve(self, stop: asyncio.Event) -> None:
        """Pass on and record until `stop`; replies under way then have a second to end. Raises `UsageError` for a port
        that is in use."""
        connector = TCPConnector(limit=0)
        timeout = ClientTimeout(total=None, sock_connect=30)
        async with ClientSession(
            connector=connector,
            timeout=timeout,
            auto_decompress=False,
            cookie_jar=DummyCookieJar(),
            max_line_size=MAX_LINE_BYTES,
            max_field_size=MAX_LINE_BYTES,
        ) as self._client:
            app = web.Application(client_max_size=MAX_REQUEST_BYTES)
            app.router.add_route("*", "/{path:.*}", self._pass_on)
            runner = web.AppRunner(
                app,
                handle_signals=False,
                access_log=None,
                shutdown_timeout=1.0,
                max_line_size=MAX_LINE_BYTES,
                max_field_size=MAX_LINE_BYTES,
            )
            await runner.setup()
            try:
                await web.TCPSite(runner, HOST, self._port).start()
            except OSError as error:
                await runner.cleanup()
                raise UsageError(f"--port {self._port}: {error.strerror}", fix="give a free port") from None
            self.on_start()
            try:
                await stop.wait()
            finally:
                await runner.cleanup()
                self._writer.shutdown()

    async def _pass_on(self, request: web.Request) -> web.StreamResponse:
        if not request.raw_path.startswith("/"):
            return _refused(400, f"ask it as a server, not as a proxy for {request.raw_path[:100]}")
        began, at = time.perf_counter(), time.time()
        body = await request.read()
        recorded = request.method == "POST" and request.path.rstrip("/").endswith(_CHAT)
        if not recorded:
            self.passed_on[f"{request.method} {request.path[:80]}"] += 1
        received: list[bytes] = []
        kept, first_ms, reply, last = 0, 0.0, None, b""
        try:
            async with self._client.request(
                request.method,
                URL(self._to + request.raw_path, encoded=True),
                headers=_passed(request.headers),
                data=body or None,
                allow_redirects=False,
                skip_auto_headers=("User-Agent", "Content-Type", "Accept", "Accept-Encoding"),
            ) as answer:
                reply = web.StreamResponse(status=answer.status, reason=answer.reason, headers=_passed(answer.headers))
                if answer.content_length is not None:
                    reply.content_length = answer.content_length
                await reply.prepare(request)
                async for chunk in answer.content.iter_any():
                    first_ms = first_ms or (time.perf_counter() - began) * 1e3
                    if recorded and (kept := kept + len(chunk)) <= MAX_REPLY_BYTES:
                        received.append(chunk)
                    if last:
                        await reply.write(last)
                    # The end of an answer waits until it is on disk: what a program has seen whole is not lost.
                    last = chunk if recorded and (kept == answer.content_length or _DONE in chunk[-32:]) else b""
                    if not last:
                        await reply.write(chunk)
                if recorded:
                    took = {"at": at, "ttft_ms": first_ms, "wall_ms": (time.perf_counter() - began) * 1e3}
                    told = body, b"".join(received), answer.status, dict(answer.headers), took
                    await asyncio.get_running_loop().run_in_executor(self._writer, self._record, *told)
                await reply.write_eof(last)
        except ClientError as error:
            self.broken_off += 1
            if reply is not None:  # the status is gone already: all that is left is to break off as well
                if request.transport is not None:
                    request.transport.abort()
                return reply
            return _refused(502, f"{self._to} does not answer: {error}")
        except ConnectionError:  # the program hung up
            self.broken_off += 1
            return web.Response() if reply is None else reply
        except asyncio.CancelledError:
            self.broken_off += 1
            raise
        return reply

    def _record(
        self, body: bytes, answer: bytes, status: int, headers: Mapping[str, str], took: Mapping[str, float]
    ) -> None:
        try:
            asked: object = json.loads(body)
        except (ValueError, RecursionError):
            asked = None
        if not isinstance(asked, dict):
            self.unread += 1
            return
        told = {key.lower(): value for key, value in headers.items()}
        kind, encoding = told.get("content-type", ""), told.get("content-encoding", "")
        reply = read_reply(answer, kind, encoding) if status == 200 else None
        try:
            self._book.add(cast("dict[str, Any]", asked), reply, status, took)
        except RecursionError:  # nested too deeply
            self.unread += 1
        except (OSError, ValueError) as error:
            if self.problem is None:
                self.on_problem(error)
            self.problem = error
            self.lost += 1


def _refused(status: int, why: str) -> web.Response:
    return web.json_response({"error": {"message": f"specmeter record: {why}", "type": "proxy"}}, status=status)


def _passed(headers: CIMultiDictProxy[str]) -> CIMultiDict[str]:
    """Headers without those of the connection, `Connection` naming more of them."""
    named = {it.strip().lower() for value in headers.getall("Connection", []) for it in value.split(",")}
    return CIMultiDict((key, value) for key, value in headers.items() if key.lower() not in _OWN | named)
