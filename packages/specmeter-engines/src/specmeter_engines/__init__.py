"""Engines besides llama.cpp: a room each, whose extra brings the engine itself."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from specmeter.errors import EngineStartError
from specmeter.record import MethodTraits, Truth

WHOLE: tuple[Truth, ...] = (
    *("drafts", "forwards", "steps", "tokens", "arrivals", "candidates"),
    *("activation", "identity", "processes"),
)
"""What an engine tells that is seen from inside."""

ALONE = {
    **{"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_DISABLE_PROGRESS_BARS": "1"},
    "ORT_DISABLE_TELEMETRY": "1",
}
"""It asks nothing of a hub, tells no one what it does, and starts no threads but those of arithmetic."""


def by_model(name: str, *more: str) -> MethodTraits:
    """Drafts of a draft model, by the engine's own name for it; `more`: what can be set besides their length."""
    return MethodTraits(name=name, drafter="model", draft_model="needed", parameters=("gamma", *more))


def by_lookup(name: str) -> MethodTraits:
    """Drafts copied from behind an earlier place like this one."""
    return MethodTraits(name=name, drafter="lookup", parameters=("gamma", "ngram_n"))


def needed(engine: str, *packages: str) -> str:
    """Names and versions of what an engine consists of. Raises `EngineStartError`, with the line that installs it."""
    found: list[str] = []
    for package in packages:
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            raise EngineStartError(
                f"engine {engine}: the package {package} is not installed",
                fix=f"pip install 'specmeter-engines[{engine}]'",
            ) from None
    return ", ".join(found)
