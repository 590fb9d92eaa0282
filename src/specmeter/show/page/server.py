"""A server for one person on this machine: loopback only, GET only, nothing but pages made here.

A page of a stranger that the browser has open elsewhere gets nothing from it: names that lead here by a trick of DNS
are refused, and so is what another site has fetched.
"""

from __future__ import annotations

import os
import socketserver
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from specmeter.errors import UsageError

if TYPE_CHECKING:
    from specmeter.show.page.live import Pages

LOOPBACK = "127.0.0.1"
_HOSTS = frozenset({"127.0.0.1", "localhost"})
"""With any port: one may be forwarded here by `ssh -L`."""
_AT_ONCE = 16
"""Requests; others are turned away."""
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class PageServer(ThreadingHTTPServer):
    """Listens once it is made; `serve_forever`, and `shutdown` from another thread."""

    daemon_threads = True
    allow_reuse_address = os.name == "posix"  # elsewhere two programs could then have one port

    def __init__(self, pages: Pages, port: int) -> None:
        """Raises `UsageError` for a port that is taken."""
        self.pages = pages
        self._room = threading.BoundedSemaphore(_AT_ONCE)
        try:
            super().__init__((LOOPBACK, port), _Handler)
        except OSError as error:
            why = error.strerror or str(error)
            raise UsageError(f"--port {port}: {why}", fix="use another port, or --port 0 for any free one") from None

    @property
    def address(self) -> str:
        """Of the first page."""
        return f"http://{LOOPBACK}:{self.server_address[1]}/"

    def server_bind(self) -> None:
        """Without asking a name server what this machine is called."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = LOOPBACK, int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._room.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that goes away in the middle is not an error."""


class _Handler(BaseHTTPRequestHandler):
    server_version, sys_version = "specmeter", ""
    timeout = 10
    """Seconds in which a request has to come."""

    def do_GET(self) -> None:
        hosts = self.headers.get_all("Host") or []
        if len(hosts) != 1 or hosts[0].rpartition(":")[0 if ":" in hosts[0] else 2].lower() not in _HOSTS:
            return self.send_error(HTTPStatus.MISDIRECTED_REQUEST)
        foreign = self.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin")
        if foreign and self.headers.get("Sec-Fetch-Dest") != "document":
            return self.send_error(HTTPStatus.FORBIDDEN)
        assert isinstance(self.server, PageServer)
        page = self.server.pages.page(self.path)
        if page.location:
            return self._send(page.status, "", {"Location": page.location})
        if not page.text:
            return self.send_error(page.status)
        return self._send(page.status, page.text, {"Content-Type": "text/html; charset=utf-8"})

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:  # noqa: ARG002
        """A line of text; nothing of what was asked is repeated."""
        more = {"Content-Type": "text/plain; charset=utf-8"}
        if code == HTTPStatus.NOT_IMPLEMENTED:
            code, more["Allow"] = HTTPStatus.METHOD_NOT_ALLOWED, "GET"
        self.close_connection = True
        self._send(code, f"{int(code)} {HTTPStatus(code).phrase}\n", more)

    def _send(self, code: int, text: str, more: dict[str, str]) -> None:
        body = text.encode()
        self.send_response(code)
        for name, value in ({**_HEADERS, **more, "Content-Length": str(len(body))}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Nothing is logged."""
