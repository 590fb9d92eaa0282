"""Asks a server that already runs what it is, which models it serves, and what it can tell.

Nothing is believed that was not answered: `/v1/models` says who speaks, and each engine's own paths say the rest. One
short request shows which fields its replies have. What only a promise would tell stays untold.
"""

from __future__ import annotations

import json
import os
import socket
import ssl
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, cast
from urllib.parse import urlsplit

import psutil

from specmeter.engines.http_client import HttpClient, HttpResponse, json_object
from specmeter.engines.llama_cpp.engine import sampling_of
from specmeter.engines.url.dialects import DIALECTS, FORWARDS, LLAMA, SERVED, Dialect, counters_of, field_of, told_by
from specmeter.engines.url.replies import received
from specmeter.engines.url.spec import ANY, BASELINE_KEY, KEY, UrlOptions
from specmeter.errors import EngineError, EngineProtocolError, EngineStartError, ModelError
from specmeter.record import Generation, Prompt, Truth

_PATIENCE_S = 20.0
_FIRST_S = 300.0
"""How long the first reply may take: a server may compile for it (seen: 26 s)."""
_MAX_MODELS = 1000
_SHOWN = ("id", "root", "meta", "max_model_len", "owned_by")
"""What a server says of a model, as far as it is kept."""
_TRIED = "One two three four five. One two three four five. One two three"
_TRIED_TOKENS = 8


@dataclass(frozen=True)
class Found:
    """A server, and what it said."""

    url: str
    client: HttpClient
    dialect: Dialect
    version: str
    models: Mapping[str, Mapping[str, Any]]
    """By the names that requests use."""
    tells: frozenset[Truth] = frozenset()
    speculating: bool | None = None
    """None: it does not say."""
    slots: int | None = None
    context: object = None
    sampling: Mapping[str, float] = field(default_factory=dict[str, float])
    """How it samples where a request says nothing, as far as it tells."""
    named: str | None = None
    """What its replies call the model, where that is another name."""
    pids: tuple[int, ...] = ()
    """Its processes; none where they cannot be seen from here."""

    def model(self, reference: str) -> str:
        """The name that requests use for a target. Raises `ModelError`."""
        if reference != ANY:
            if reference in self.models:
                return reference
            raise ModelError(
                f"{self.url} serves no model {reference[:200]!r}", fix=f"use one of {_listed(self.models)}"
            )
        if len(self.models) != 1:
            raise ModelError(
                f"{self.url} serves {len(self.models)} models",
                fix=f"choose one, for example -m {_listed(self.models)}",
            )
        return next(iter(self.models))


def _listed(models: Mapping[str, object]) -> str:
    return ", ".join(list(models)[:8]) or "(it lists none)"


def client_of(url: str, key: str) -> HttpClient:
    """A client for a URL that `address` has seen."""
    parts = urlsplit(url)
    secure = parts.scheme == "https"
    return HttpClient(
        port=parts.port or (443 if secure else 80),
        api_key=key,
        host=parts.hostname or "",
        tls=ssl.create_default_context() if secure else None,
        below=parts.path,
    )


def key_of(url: str, options: UrlOptions) -> str:
    """The key for one of the servers, from the environment; all but the first get its key on the same host alone."""
    same = options.url is not None and urlsplit(options.url).hostname == urlsplit(url).hostname
    own = os.environ.get(KEY, "") if same else ""
    return os.environ.get(BASELINE_KEY, own) if url == options.baseline_url else own


def call(
    url: str, client: HttpClient, method: str, path: str, body: object = None, timeout_s: float = _PATIENCE_S
) -> HttpResponse:
    """One short question. Raises `EngineStartError` where nothing answers, a key is wanted or we are sent elsewhere;
    a path that is not there is an answer."""
    try:
        answer = client.call(method, path, body, timeout_s=timeout_s)
    except OSError as error:
        raise unreachable(url, error, timeout_s) from None
    if answer.status in (401, 403, 429) or 300 <= answer.status < 400:
        raise refused(url, path, answer, EngineStartError)
    return answer


def unreachable(url: str, error: Exception, waited_s: float = _PATIENCE_S) -> EngineStartError:
    """The error for a server that does not answer, or cannot prove what it is."""
    if isinstance(error, ssl.SSLError):
        return EngineStartError(
            f"{url}: no trusted TLS connection ({getattr(error, 'verify_message', '') or error.reason or error})",
            fix="correct the host in the URL, use http:// for a server without TLS, or set SSL_CERT_FILE to its CA "
            "file",
        )
    if isinstance(error, TimeoutError):
        plain = ", and that it speaks TLS (http:// does without)" if url.startswith("https:") else ""
        return EngineStartError(f"{url}: no answer for {waited_s:g} s", fix=f"check that the server is not busy{plain}")
    why = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return EngineStartError(f"{url}: cannot be reached ({why})", fix="check the URL and that the server is running")


def refused(url: str, path: str, answer: HttpResponse, kind: type[EngineError] = EngineProtocolError) -> EngineError:
    """The error for an answer whose status is not 200."""
    if answer.status in (401, 403):
        return kind(
            f"{url} refuses {path} without a valid key (status {answer.status})",
            fix=f"set {KEY} in the environment to a valid key",
        )
    if answer.status == 429:
        after = answer.headers.get("retry-after", "")[:40]
        wait = f"wait {after} seconds" if after.isdigit() else f"wait until {after}" if after else "wait"
        return kind(
            f"{url} limits the rate of requests (status 429)",
            fix=f"{wait}, then run the same command again; raise the limit for a measurement",
        )
    if 300 <= answer.status < 400:
        to = answer.headers.get("location", "another address")[:200]
        return kind(
            f"{url} redirects {path} to {to!r}; redirects are not followed", fix="use the URL of the server itself"
        )
    said = answer.body[:300].decode("utf-8", "replace")
    with suppress(EngineProtocolError):
        error: Any = json_object(answer.body, path).get("error")
        said = str(cast("dict[str, Any]", error).get("message", said))[:300] if isinstance(error, dict) else said
    return kind(f"{url} refused {path} (status {answer.status}): {said}", fix="read the log of that server")


def ask(url: str, key: str, wanted: str = ANY) -> Found:
    """What a server says of itself, and one short reply about `wanted`. Raises `EngineError` or `ModelError`."""
    client = client_of(url, key)

    def get(path: str) -> dict[str, Any]:
        answer = call(url, client, "GET", path)
        try:
            return json_object(answer.body, path) if answer.status == 200 else {}
        except EngineProtocolError:
            return {}

    models = models_of(url, call(url, client, "GET", "/v1/models"))
    props, info = get("/props"), dict[str, Any]()
    owners = {str(it.get("owned_by")) for it in models.values()}
    dialect = next((it for it in DIALECTS if it.owner in owners), None)
    if "default_generation_settings" in props:
        dialect = LLAMA
    for it in DIALECTS if dialect is None else (dialect,):
        info = get(it.asked) if it.asked else {}
        if dialect is None and it.mark in info:
            dialect = it
            break
    dialect = dialect or DIALECTS[-1]
    version = str(field_of(info or props, dialect.version) or "unknown version")[:100]
    metrics = call(url, client, "GET", dialect.metrics) if dialect.metrics else None
    counted = None
    if metrics is not None and metrics.status == 200:
        counted = counters_of(metrics.body.decode("utf-8", "replace"))
    elif dialect is not LLAMA:  # a gateway may let nothing but OpenAI's paths through
        dialect = replace(dialect, counts=False)
    found = Found(url, client, dialect, version, models, pids=processes(url))
    found = _llama(found, props, counted or {}) if dialect is LLAMA else _other(found, info, counted, wanted)
    also: set[Truth] = {"activation"} if found.speculating is not None else set()
    return replace(found, tells=found.tells | also | ({"processes"} if found.pids else set()))


def models_of(url: str, answer: HttpResponse) -> dict[str, dict[str, Any]]:
    try:
        listed: Any = json_object(answer.body, "/v1/models").get("data") if answer.status == 200 else None
    except EngineProtocolError:
        listed = None
    if not isinstance(listed, list):
        raise EngineStartError(
            f"{url} does not list its models at /v1/models (status {answer.status}, "
            f"{answer.headers.get('content-type', 'no content type')[:60]})",
            fix="give only the address and port of an OpenAI-compatible server, such as http://127.0.0.1:8080",
        )
    entries = (cast("dict[str, Any]", it) for it in cast("list[object]", listed)[:_MAX_MODELS] if isinstance(it, dict))
    return {
        it["id"]: {name: it[name] for name in _SHOWN if name in it}
        for it in entries
        if isinstance(it.get("id"), str) and 0 < len(it["id"]) <= 1000
    }


def _llama(found: Found, props: Mapping[str, Any], counted: Mapping[str, float]) -> Found:
    active: Any = None
    answer = call(found.url, found.client, "GET", "/slots")
    if answer.status == 200:
        with suppress(ValueError, TypeError, LookupError, RecursionError):
            active = json.loads(answer.body)[0]["speculative"]
    slots: Any = props.get("total_slots")
    tells: set[Truth] = {"drafts", "tokens", "arrivals", "candidates"}
    return replace(
        found,
        tells=frozenset(tells | ({"forwards"} if "n_decode_total" in counted else set())),
        speculating=active if isinstance(active, bool) else None,
        slots=slots if isinstance(slots, int) and 1 <= slots <= 1024 else None,
        context=field_of(props, "default_generation_settings.n_ctx"),
        sampling=sampling_of(props),
    )


def _other(found: Found, info: Mapping[str, Any], counted: Mapping[str, float] | None, wanted: str) -> Found:
    dialect, model = found.dialect, found.model(wanted)
    body = dialect.body(model, Prompt(id="", workload="", kind="", text=_TRIED, sha256=""), Generation(), _TRIED_TOKENS)
    body |= {"stream": False} | ({"logprobs": 1} if dialect.tokenizes else {})
    answer = call(found.url, found.client, "POST", dialect.completions, body, timeout_s=_FIRST_S)
    if answer.status == 404 and dialect.completions != DIALECTS[-1].completions:  # it is not what it resembles
        return _other(replace(found, dialect=DIALECTS[-1]), {}, None, wanted)
    if answer.status != 200:
        raise refused(found.url, dialect.completions, answer, EngineStartError)
    said = json_object(answer.body, dialect.completions)
    reply = received([(0.0, said)])
    told, active = told_by(reply.last), dialect.active(info, counted)
    if counted is not None and not dialect.since_asked and SERVED.isdisjoint(counted):
        dialect = replace(dialect, counts=False)  # it was told to count nothing
    tells: set[Truth] = {"drafts"} if told.accepted is not None or active is False or dialect.counts else set()
    if FORWARDS in (counted or {}):
        tells |= {"forwards"}
    if reply.ids:
        tells |= {"arrivals"}
        asked = {"model": model, "prompt": _TRIED}
        if dialect.tokenizes and call(found.url, found.client, "POST", "/tokenize", asked).status == 200:
            tells |= {"tokens"}
            with suppress(LookupError, TypeError):
                tells |= {"candidates"} if said["choices"][0]["logprobs"] else set()
    context = found.models[model].get("max_model_len")
    speculating = True if told.proposed else active
    named = str(said.get("model") or model)[:200]
    named = named if named != model else None
    return replace(
        found, dialect=dialect, tells=frozenset(tells), speculating=speculating, context=context, named=named
    )


def is_here(host: str) -> bool:
    """Whether a host is this machine."""
    try:
        own = {it.address for of in psutil.net_if_addrs().values() for it in of}
        found = {str(it[4][0]) for it in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    except OSError:
        return False
    return any(it in own or it.startswith("127.") or it == "::1" for it in found)


def processes(url: str) -> tuple[int, ...]:
    """Processes of the server on this machine that listens at a URL, with all that they started."""
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    if not is_here(parts.hostname or ""):
        return ()
    try:
        listening = {
            it.pid
            for it in psutil.net_connections("tcp")
            if it.status == psutil.CONN_LISTEN and it.laddr and it.laddr.port == port and it.pid
        }
        return tuple(
            pid for it in listening for pid in (it, *(child.pid for child in psutil.Process(it).children(True)))
        )
    except psutil.Error:
        return ()
