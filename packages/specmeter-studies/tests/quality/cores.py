"""What the tests of quality share: the text of the stored values, and models to score."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from specmeter.models.bench import shipped
from specmeter.models.reference import resolve
from specmeter.record import ModelIdentity
from specmeter.workloads.texts import held_out_text

STORED: dict[str, Any] = json.loads(
    (Path(__file__).parent.parent / "data" / "quality" / "native.json").read_text(encoding="utf-8")
)
"""What llama-perplexity said, with its version and checksum (`benchmarks/perplexity.py --short --store`)."""


def short_text() -> str:
    """6,000 characters from the beginning and 6,000 from the end of the held-out text."""
    text = held_out_text()
    return (text[:6000] + text[-6000:]).removesuffix("\n")


def model(name: str) -> ModelIdentity:
    """`bench:...`, or `core:NAME` for the file of a shipped core."""
    reference = str(shipped()[name.removeprefix("core:")].path) if name.startswith("core:") else name
    return resolve(name.replace(":", "-"), reference, base_dir=Path())
