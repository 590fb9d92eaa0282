"""Whole runs on the mock engine, read back as checks get them."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from specmeter.advise.observer import Silent
from specmeter.errors import SpecmeterError
from specmeter.experiments.file import load
from specmeter.laboratory.run import prepare, run
from specmeter.store import RunStore
from specmeter.validity.checks.run_data import RunData, read_run_data


def mock_run(folder: Path, *, mock: dict[str, Any] | None = None, **changes: Any) -> RunData:
    """A run of a small experiment with `changes`, on the mock engine that `mock` describes.

    It may end before its time, as its faults will have it.
    """
    asked: dict[str, Any] = {
        "name": "mocked",
        "targets": {"dense": "mock:dense", "moe": "mock:moe"},
        "drafts": {"small": "mock:small"},
        "arms": [{"draft": "small", "gamma": 4}, {"method": "ngram-simple"}],
        "workloads": [{"source": "bench", "kinds": ["fact", "edit"], "per_kind": 2}],
        "design": {"blocks": 4},
        "generation": {"max_tokens": 48},
        "engine": {"kind": "mock", "mock": mock or {}},
    }
    file = folder / "mocked.yaml"
    file.write_text(yaml.safe_dump(asked | changes), encoding="utf-8")
    with suppress(SpecmeterError, KeyboardInterrupt):
        run(prepare(load(str(file))), folder / "run", Silent())
    with RunStore.open(folder / "run", readonly=True) as store:
        return read_run_data(store)
