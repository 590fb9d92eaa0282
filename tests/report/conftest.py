"""Runs to report on (simulated, real, hostile) and a browser to look at pages with."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from report_pages import Looked, write_hostile

from specmeter.cli import invoke

if TYPE_CHECKING:
    from playwright.sync_api import Browser

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


def measured(folder: Path, experiment: str) -> Path:
    """A run of an experiment."""
    file = folder / "experiment.yaml"
    file.write_text(experiment, encoding="utf-8")
    assert invoke(["run", str(file), "--out", str(folder / "run")]) in (0, 1)
    return folder / "run"


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


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Debian's or anybody's Chromium, headless."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    program = next((path for name in ("chromium", "google-chrome", "chrome") if (path := shutil.which(name))), None)
    if program is None:
        pytest.skip("there is no chromium here")
    # The sandbox of Chromium refuses to run as root, as tests do in containers.
    flags = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=flags)
        yield browser
        browser.close()


@pytest.fixture
def look(browser: Browser) -> Iterator[Callable[..., Any]]:
    """Opens a page file and gives a `Looked`; whatever it complains about or asks for is kept there."""
    contexts: list[Any] = []

    def open_page(path: Path, *, wait: bool = True, **options: Any) -> Looked:
        context = browser.new_context(**{"locale": "en-US", "viewport": {"width": 1280, "height": 900}, **options})
        contexts.append(context)
        looked = Looked(context.new_page())
        looked.page.goto(path.resolve().as_uri())
        if wait:
            looked.page.wait_for_function("document.documentElement?.dataset.drawn !== undefined")
        return looked

    yield open_page
    for context in contexts:
        context.close()
