"""A stand-in for a model hub on 127.0.0.1: the part of its HTTP that huggingface_hub uses to fetch one file."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

COMMIT = "1" * 40
NEXT_COMMIT = "2" * 40


@dataclass
class Hub:
    """What the stand-in has, how it misbehaves, and what it was asked."""

    files: dict[str, bytes] = field(default_factory=dict)
    """Path in the repository `owner/repo` -> content."""
    small: set[str] = field(default_factory=set)
    """Paths that are kept in git itself, not as large files."""
    commit: str = COMMIT
    """What the branch `main` points at."""
    token: str | None = None
    """Needed for access when it is set."""
    gated: bool = False
    status: int | None = None
    """Answer everything with this status."""
    false_checksum: bool = False
    break_after: list[int] = field(default_factory=list)
    """For each of the next downloads, after how many bytes the connection breaks."""
    ranges: list[str | None] = field(default_factory=list)
    """`Range` of each download."""
    requests: int = 0
    endpoint: str = ""


@contextmanager
def serving(hub: Hub) -> Iterator[Hub]:
    """Serve `hub` meanwhile; `hub.endpoint` is its address."""

    class Handler(_Handler):
        state = hub

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    hub.endpoint = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    state: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        hub = self.state
        hub.requests += 1
        path = unquote(urlsplit(self.path).path)
        if path.startswith("/cdn/"):
            return self._send_file(hub.files[path.removeprefix("/cdn/")], {})
        if hub.status is not None:
            return self._send(hub.status)
        if hub.token is not None and self.headers.get("Authorization") != f"Bearer {hub.token}":
            return self._send(401, {"X-Error-Code": "GatedRepo" if hub.gated else "RepoNotFound"})
        if path.startswith("/api/models/owner/repo/tree/"):
            tree = [{"type": "file", "path": name, "size": 1, "oid": "0" * 40} for name in hub.files]
            return self._send(200, {"Content-Type": "application/json"}, json.dumps(tree).encode())
        if not path.startswith("/owner/repo/resolve/"):
            return self._send(404, {"X-Error-Code": "RepoNotFound"})
        revision, _, name = path.removeprefix("/owner/repo/resolve/").partition("/")
        if revision not in ("main", hub.commit, COMMIT):
            return self._send(404, {"X-Error-Code": "RevisionNotFound"})
        if name not in hub.files:
            return self._send(404, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": hub.commit})
        commit = hub.commit if revision == "main" else revision
        return self._resolve(name, hub.files[name], commit)

    def _resolve(self, name: str, content: bytes, commit: str) -> None:
        hub = self.state
        if name in hub.small:
            blob = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
            return self._send_file(content, {"ETag": f'"{blob}"', "X-Repo-Commit": commit})
        sha256 = "0" * 64 if hub.false_checksum else hashlib.sha256(content).hexdigest()
        # Another host name, as a content delivery network has.
        location = f"{hub.endpoint.replace('127.0.0.1', 'localhost')}/cdn/{name}"
        headers = {"X-Linked-Size": str(len(content)), "X-Linked-Etag": f'"{sha256}"', "Location": location}
        return self._send(302, {**headers, "ETag": '"pointer"', "X-Repo-Commit": commit})

    def _send_file(self, content: bytes, headers: dict[str, str]) -> None:
        if self.command == "HEAD":
            return self._send(200, headers, content)
        asked = self.headers.get("Range")
        self.state.ranges.append(asked)
        start = int(asked.removeprefix("bytes=").rstrip("-")) if asked else 0
        if asked:
            headers = {**headers, "Content-Range": f"bytes {start}-{len(content) - 1}/{len(content)}"}
        limit = self.state.break_after.pop(0) if self.state.break_after else None
        return self._send(206 if asked else 200, headers, content[start:], limit)

    def _send(
        self, status: int, headers: dict[str, str] | None = None, body: bytes = b"", limit: int | None = None
    ) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body[:limit])
        if limit is not None:
            self.close_connection = True
