"""The engine `url`: sessions with the servers that its options name."""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from specmeter.engines.registry import EngineStatus
from specmeter.engines.session import Engine, Launch, SessionFacts
from specmeter.engines.url.dialects import DIALECTS, LLAMA, field_of
from specmeter.engines.url.found import Found, ask, call, client_of, is_here, key_of, models_of, processes
from specmeter.engines.url.session import FoundLlama, OpenAiSession
from specmeter.engines.url.spec import ANY, URL, UrlOptions
from specmeter.errors import EngineError, EngineStartError, ExperimentError, ModelError
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


def called(options: UrlOptions) -> dict[str, str]:
    """URL -> what people call the model there: its file's name, or the last part of its id. A server that serves
    several, or does not answer, is left out."""
    found: dict[str, str] = {}
    for url in options.all:
        with suppress(EngineError, ModelError):
            name = _asked_once(url, key_of(url, options), ANY).model(ANY)
            found[url] = re.split(r"[/\\]", name.rstrip("/\\"))[-1].removesuffix(".gguf")
    return found


def refuse_unlike(plain: Found, servers: Sequence[Found]) -> None:
    """A baseline is the same engine with the same model, and decodes without speculation. Raises `ExperimentError`."""
    if plain.speculating:
        raise ExperimentError(
            f"--baseline-url: {plain.url} speculates, but the baseline must not",
            fix="give the server without speculation (were --url and --baseline-url swapped?)",
        )
    for it in servers:
        names = {it.dialect.name, plain.dialect.name}
        if len(names) > 1 and DIALECTS[-1].name not in names:
            raise ExperimentError(
                f"{it.url} is {it.dialect.name}, but its baseline {plain.url} is {plain.dialect.name}, so their "
                "ratio is not a speedup",
                fix="compare two servers of one engine, or leave --baseline-url out",
            )
        one, other = (_about(server) for server in (it, plain))
        if told := [name for name in _WEIGHTS if name in one and name in other and one[name] != other[name]]:
            raise ExperimentError(
                f"{it.url} and its baseline {plain.url} serve different models ({told[0]} is {one[told[0]]} and "
                f"{other[told[0]]})",
                fix="serve the same model file on both",
            )


_WEIGHTS = ("n_params", "size", "n_vocab")
"""What llama-server says of a file, whatever it is called."""


def _about(server: Found) -> Mapping[str, Any]:
    """What a server of a single model says of its weights."""
    meta: Any = next(iter(server.models.values())).get("meta") if len(server.models) == 1 else None
    return cast("dict[str, Any]", meta) if isinstance(meta, dict) else {}


def running(options: UrlOptions) -> tuple[int, ...]:
    """Processes of all servers on this machine: those that rest are no other programs either."""
    return tuple(pid for it in options.all for pid in processes(it))


def examine(host: Host) -> EngineStatus:  # noqa: ARG001
    """It needs nothing here."""
    return EngineStatus("ok", "measures a running server: specmeter run --url http://HOST:PORT")


class UrlEngine(Engine):
    """Finds sessions on the servers of its options."""

    def __init__(self, options: UrlOptions) -> None:
        self.options = options

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
        """Which servers these are, and what all of them can tell. Raises `EngineError`, and `ExperimentError` for a
        baseline that is none."""
        servers = [self._found(url) for url in self.options.all]
        if (baseline := self.options.baseline_url) is not None:
            refuse_unlike(self._found(baseline), servers)
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
        if url is None or url not in self.options.all:
            raise EngineStartError(
                f"arm {launch.arm.id}: {url or 'its server'} is not one of the run's servers",
                fix="list all servers in engine.options: url, others and baseline_url",
            )
        started = time.perf_counter()
        found = self._found(url, launch.target.reference)
        now = models_of(url, call(url, found.client, "GET", "/v1/models"))
        model = found.model(launch.target.reference)
        if now.get(model) != found.models[model]:
            raise EngineStartError(
                f"{url} no longer serves {model[:200]}",
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
                "named": found.named,
                "total_slots": found.slots,
                "slot_context": found.context,
                "sampling": dict(found.sampling),
                "here": is_here(urlsplit(url).hostname or ""),
            },
            speculating=found.speculating,
            pids=running(self.options),
            in_flight=found.slots or launch.arm.engine.slots,
            server=hashlib.sha256(url.encode()).hexdigest()[:32],
        )
        kind = FoundLlama if found.dialect is LLAMA else OpenAiSession
        return kind(launch, found, facts, model)

    def clock(self) -> float:
        """Seconds since the epoch."""
        return time.time()
