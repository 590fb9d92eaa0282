"""Runs to report on: simulated, real, hostile."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from report_pages import measured, write_hostile

SWEEP = """
name: sweep
targets: {dense: "mock:dense", moe: "mock:moe"}
drafts: {small: "mock:small"}
workloads:
  - {source: bench, kinds: [fact, code, edit], per_kind: 2}
  - {name: lengths, source: length, lengths: [32, 128]}
arms: [{draft: small, gamma: [2, 4, 8]}, {method: ngram-simple, gamma: 8}]
design: {controls: true}
engine:
  kind: mock
  mock:
    noise: 0.03
    faults: [{kind: decode-failed, arm: "moe/draft-simple/small/g8"}]
generation: {max_tokens: 32}
"""

REAL = """
name: real
targets: {dense: bench:dense, moe: bench:moe}
drafts: {small: bench:draft-small}
workloads: [{source: bench, kinds: [fact, code], per_kind: 1}]
arms: [{draft: small, gamma: [2, 4]}]
design: {blocks: 3, warmup: short}
engine: {context: 1024, threads: 1}
generation: {max_tokens: 64}
"""


@pytest.fixture(scope="session")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A simulated run with a failing arm, controls, several draft lengths and prompt lengths."""
    return measured(tmp_path_factory.mktemp("sweep"), SWEEP)


@pytest.fixture(scope="session")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the real engine on the shipped cores."""
    return measured(tmp_path_factory.mktemp("real"), REAL)


@pytest.fixture(scope="session")
def hostile(sweep: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The simulated run with every string in it made to attack."""
    folder = tmp_path_factory.mktemp("hostile") / "run"
    shutil.copytree(sweep, folder)
    write_hostile(folder)
    return folder
