"""What programs that stand in for llama-server have in common: plain HTTP/1.1, chunked streams, no noise."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

BUILD = "11549 (0c1e57098)"


class StandIn(BaseHTTPRequestHandler):
    """Answers and streams; what it answers is up to `get` and `post`."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.get()

    def do_POST(self) -> None:
        self.post(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    def get(self) -> None:
        raise NotImplementedError

    def post(self, asked: dict[str, Any]) -> None:
        raise NotImplementedError

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Quiet."""

    def answer(self, status: int, body: Any) -> None:
        data = (body if isinstance(body, str) else json.dumps(body)).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def begin_stream(self) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def event(self, content: dict[str, Any]) -> None:
        self.chunk(b"data: " + json.dumps(content).encode() + b"\n\n")

    def chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def end_stream(self) -> None:
        self.wfile.write(b"0\r\n\r\n")


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Quiet: breaking off is the point."""


def serve(port: int, handler: type[StandIn]) -> None:
    Server(("127.0.0.1", port), handler).serve_forever()
