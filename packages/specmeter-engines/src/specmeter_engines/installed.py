"""What an engine's package needs to be there, and the environment that its processes get."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from specmeter.errors import EngineStartError
from specmeter.extensions import installing

ALONE = {
    **{"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_DISABLE_PROGRESS_BARS": "1"},
    "ORT_DISABLE_TELEMETRY": "1",
}
"""It asks nothing of a hub, tells no one what it does, and starts no threads but those of arithmetic."""


def needed(engine: str, *packages: str) -> str:
    """Names and versions of what an engine consists of. Raises `EngineStartError`, with the line that installs it."""
    found: list[str] = []
    for package in packages:
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            raise EngineStartError(
                f"engine {engine}: the package {package} is not installed",
                fix=installing(engine, "specmeter-engines"),
            ) from None
    return ", ".join(found)
