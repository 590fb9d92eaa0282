"""The engine `url`: models and sessions of the servers that its options name."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from specmeter.engines.registry import EngineStatus
from specmeter.engines.session import Engine, Launch, SessionFacts
from specmeter.engines.url import ANY, URL, UrlOptions
from specmeter.engines.url.dialects import LLAMA, field_of
from specmeter.engines.url.found import Found, ask, call, client_of, is_here, key_of, models_of, processes
from specmeter.engines.url.session import FoundLlama, OpenAiSession
from specmeter.errors import EngineStartError, ModelError
from specmeter.files import without_links
from specmeter.record import EngineIdentity, ModelIdentity

if TYPE_CHECKING:
    from specmeter.record import Host


@cache
def _asked_once(url: str, key: str, wanted: str) -> Found:
    return ask(url, key, wanted)


def served_model(options: UrlOptions, name: str, reference: str) -> ModelIdentity:
    """What a server says of the model that a target names: a digest of these words, not of weights."""
    found = _asked_once(options.url or "", key_of(options.url or "", options), reference)
    model = found.model(reference)
    size: Any = field_of(found.models[model], "meta.size")
    return ModelIdentity(
        name=name,
        reference=reference,
        path=model,
        sha256=hashlib.sha256(json.dumps(found.models[model], sort_keys=True).encode()).hexdigest(),
        size_bytes=size if isinstance(size, int) and size > 0 else 0,
        origin="engine",
    )


def examine(host: Host) -> EngineStatus:  # noqa: ARG001
    """It needs nothing here."""
    return EngineStatus("ok", "measures a server that runs: specmeter run --url http://HOST:PORT")


class UrlEngine(Engine):
    """Finds sessions on the servers of its options."""

    def __init__(self, options: UrlOptions) -> None:
        self.options = options

    @property
    def _urls(self) -> Sequence[str]:
        named = (self.options.url, *self.options.others, self.options.baseline_url)
        return [it for it in dict.fromkeys(named) if it is not None]

    def _found(self, url: str, wanted: str = ANY) -> Found:
        try:
            return _asked_once(url, key_of(url, self.options), wanted)
        except ModelError:
            if wanted != ANY:
                raise
            # Which of several models is measured, a session says; what the server is does not depend on it.
            key = key_of(url, self.options)
            listed = models_of(url, call(url, client_of(url, key), "GET", "/v1/models"))
            return _asked_once(url, key, next(iter(listed), ANY))

    def identify(self) -> EngineIdentity:
        """Which servers these are, and what all of them can tell. Raises `EngineError`."""
        servers = [self._found(url) for url in self._urls]
        tells = [truth for truth in URL.traits.tells if all(truth in it.tells for it in servers)]
        named = [f"{it.dialect.name} {it.version}" for it in servers]
        return EngineIdentity(
            kind="url",
            version=" and ".join(dict.fromkeys(named)) or "of each server",
            build=", ".join(f"{it.url}: {name}" for it, name in zip(servers, named, strict=True))[:400],
            binary="",
            binary_sha256="",
            traits=URL.traits.model_copy(update={"tells": tuple(tells), "watched": "processes" in tells}),
        )

    def start(self, launch: Launch) -> FoundLlama | OpenAiSession:
        """A session with the server of an arm. Raises `EngineStartError` where it is not what it was."""
        own = UrlOptions.model_validate(launch.arm.engine.options)
        url = own.url if launch.arm.speculates else own.baseline_url
        if url is None or url not in self._urls:
            raise EngineStartError(
                f"arm {launch.arm.id}: {url or 'its server'} is not among the servers of the run",
                fix="name all of them under engine.options of the experiment: url, others and baseline_url",
            )
        started = time.perf_counter()
        found = self._found(url, launch.target.reference)
        now = models_of(url, call(url, found.client, "GET", "/v1/models"))
        model = found.model(launch.target.reference)
        if now.get(model) != found.models[model]:
            raise EngineStartError(
                f"{url} does not serve {model[:200]} as it did when the run began",
                fix="serve that model again and run the same command, or start a new run (--new)",
            )
        with open(launch.log_path, "w", encoding="utf-8", opener=without_links) as log:
            log.write(json.dumps({"url": url, "server": found.dialect.name, "version": found.version}) + "\n")
        facts = SessionFacts(
            argv=(url,),
            ready_ms=(time.perf_counter() - started) * 1e3,
            resolved={
                "url": url,
                "server_name": found.dialect.name,
                "server_version": found.version,
                "model": dict(found.models[model]),
                "total_slots": found.slots,
                "slot_context": found.context,
                "here": is_here(urlsplit(url).hostname or ""),
            },
            speculating=found.speculating,
            pids=tuple(pid for it in self._urls for pid in processes(it)),
            in_flight=found.slots or launch.arm.engine.slots,
            server=hashlib.sha256(url.encode()).hexdigest()[:32],
        )
        kind = FoundLlama if found.dialect is LLAMA else OpenAiSession
        return kind(launch, found, facts, model)

    def clock(self) -> float:
        """Seconds since the epoch."""
        return time.time()
