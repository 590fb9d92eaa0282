"""Servers that already run: found by their URL, measured, and left as they were.

What a server is and what it can tell is asked of it (`found`); its answers are put together in `replies` and measured
in `session`. Here is what is known without asking: the most that any of them can tell, its options, and which
arms make sense.

An arm of method `served` is the server at `url`, which drafts as it was told when it was started, or not at all: none
of the engines takes speculation from a request. A plain arm is the server at `baseline_url`. Keys are read from the
environment and never kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from specmeter.engines.registry import EngineSpec, late
from specmeter.errors import ExperimentError
from specmeter.record import SAMPLING, Arm, EngineTraits, MethodTraits, Record

SERVED = "served"
"""The method of an arm whose server drafts as it was started."""
ANY = "served"
"""The name of a target: whatever the server serves, where that is a single model."""
KEY, BASELINE_KEY = "SPECMETER_API_KEY", "SPECMETER_BASELINE_API_KEY"
"""Environment variables with the keys of both servers."""
_SAFE_PATH = re.compile(r"[A-Za-z0-9._~/-]*")


def address(value: str) -> str:
    """A URL as it is kept, without what stands behind the server's address. Raises `ValueError` for what is none."""
    text = value if "://" in value else f"http://{value}"
    try:
        parts = urlsplit(text)
        named = parts.scheme in ("http", "https") and parts.hostname and (parts.port or 1)
    except ValueError:
        named = False
        parts = urlsplit("")
    if not named:
        raise ValueError(f"{value[:200]!r} is not a URL such as http://127.0.0.1:8080")
    if parts.username or parts.password:
        raise ValueError(f"a key must not be in the URL, which is stored: set {KEY}")
    if parts.query or parts.fragment or not _SAFE_PATH.fullmatch(parts.path):
        before = re.split(r"[?#]", value, maxsplit=1)[0][:200]  # what follows may be a key
        raise ValueError(f"{before!r} is followed by more than an address and a path")
    path = parts.path.rstrip("/").removesuffix("/v1")
    return f"{parts.scheme}://{parts.netloc.lower()}{path}"


def places(urls: Iterable[str]) -> dict[str, str]:
    """URL -> what tells a server from the others: its port (`:8081`), or its address where that does not."""
    parts = {url: urlsplit(url) for url in urls}
    ports = {it.port for it in parts.values()}
    alone = None not in ports and len(ports) == len(parts) and len({it.hostname for it in parts.values()}) == 1
    return {url: f":{it.port}" if alone else url.partition("://")[2] for url, it in parts.items()}


Url = Annotated[str, AfterValidator(address)]


class UrlOptions(Record):
    """The servers."""

    url: Url | None = None
    """The server that is measured."""
    others: Annotated[tuple[Url, ...], Field(max_length=16)] = ()
    """Further servers of the same model; an arm is one of them by an `engine.options.url` of its own."""
    baseline_url: Url | None = None
    """The same model without speculation, by another server. None: there is no speedup."""

    @property
    def all(self) -> tuple[str, ...]:
        """Every server, each once."""
        return tuple(dict.fromkeys(it for it in (self.url, *self.others, self.baseline_url) if it is not None))


def check_arm(arm: Arm, has_draft: bool) -> None:  # noqa: ARG001
    """Refuse an arm for which there is no server."""
    options = UrlOptions.model_validate(arm.engine.options)
    if options.url is None:
        raise ExperimentError("engine.options.url: no server given", fix="give --url http://HOST:PORT")
    if options.url == options.baseline_url:
        raise ExperimentError(
            f"engine.options.baseline_url: {options.url} is also the server to measure",
            fix="give a server with the same model without speculation, or leave --baseline-url out",
        )
    if not arm.speculates and options.baseline_url is None:
        raise ExperimentError(
            f"arm {arm.id}: no server runs without speculation",
            fix="give --baseline-url, or set `baseline: false` in the arms (no speedup then)",
        )


URL = EngineSpec(
    traits=EngineTraits(
        methods=(MethodTraits(name=SERVED, drafter="unknown"),),
        settings=("context", "slots"),
        sampling=SAMPLING,
        draft_options=("url",),
        asked=True,
        tells=("drafts", "forwards", "tokens", "arrivals", "candidates", "activation", "processes"),
    ),
    make=late("specmeter.engines.url.engine:UrlEngine"),
    model=late("specmeter.engines.url.engine:served_model"),
    options=UrlOptions,
    check_arm=check_arm,
    running=late("specmeter.engines.url.engine:running"),
    examine=late("specmeter.engines.url.engine:examine"),
)
