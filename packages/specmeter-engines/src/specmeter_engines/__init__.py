"""Engines besides llama.cpp: a room each, whose extra brings the engine itself."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from specmeter.errors import EngineStartError


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
