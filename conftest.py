"""Tests run in two processes, file by file; what kills, interrupts or counts processes runs while nothing else does.

Two, since engines decode on one thread and the suite is made for two cores; `-n 0` runs it in one process.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

os.environ.pop("COLUMNS", None)  # of the terminal in front: what a test reads is as wide as anywhere
os.environ["SPECMETER_DISTURBED"] = "keep"  # tests run beside each other: the machine is never calm
if os.environ.pop("PYTHONDONTWRITEBYTECODE", None):
    # Programs under test start hundreds of times, and would compile all that they import each time.
    sys.dont_write_bytecode = False
    sys.pycache_prefix = str(Path(__file__).parent / ".pytest_cache" / "bytecode")
    os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix

import hypothesis
import pytest

from real_models import PACKAGE, smollm2
from report_pages import Looked
from specmeter.files import locked

if TYPE_CHECKING:
    from playwright.sync_api import Browser
    from xdist.remote import Producer

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    # So a shell starts what it puts into the background; programs under test would never hear of Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _in_memory(folder: Path = Path("/dev/shm"), least: int = 4 * 2**30) -> bool:
    """Whether runs can be written to memory: each waits for the disk after every request."""
    if not os.access(folder, os.W_OK) or os.statvfs(folder).f_flag & os.ST_NOEXEC:
        return False
    return shutil.disk_usage(folder).free > least


if sys.platform == "linux" and _in_memory():
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", "/dev/shm")

# How long an example takes depends on what else the machine does.
hypothesis.settings.register_profile("any machine", deadline=None)
hypothesis.settings.load_profile("any machine")

TIMES = int(os.environ.get("SPECMETER_FAULTS", "1"))
"""By hand: so many times as many made-up inputs, mutations and kills as by default; see CONTRIBUTING.md."""
ONE_WORKER = ("tests/show/report/",)
"""Folders whose tests share fixtures that take seconds to make: they go to one process."""
DEAR = {"browser", "smol"}
"""Fixtures whose tests are slow, unless they are marked `smoke`."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first, so that neither process waits long for the other; those that run alone last."""
    files: dict[Path, int] = {}
    for item in items:
        if DEAR & set(getattr(item, "fixturenames", ())) and not item.get_closest_marker("smoke"):
            item.add_marker("slow")
        if TIMES > 1:
            item.add_marker(pytest.mark.timeout(0), append=False)
        made_up = getattr(getattr(item, "obj", None), "_hypothesis_internal_use_settings", None)
        if TIMES > 1 and made_up is not None:
            more = hypothesis.settings(made_up, max_examples=TIMES * made_up.max_examples)
            item.obj._hypothesis_internal_use_settings = more  # pyright: ignore[reportAttributeAccessIssue]
        long = item.nodeid.startswith(ONE_WORKER) or item.get_closest_marker("slow") is not None
        rank = 2 if item.get_closest_marker("alone") else 0 if long else 1
        files[item.path] = min(rank, files.get(item.path, 2))
    items.sort(key=lambda item: files[item.path])


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Any:
    """By file, or by folder where its tests share what is dear."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.split("::", 1)[0]
            return next((folder for folder in ONE_WORKER if file.startswith(folder)), file)

    return ByFile(config, log)


@pytest.fixture(autouse=True, scope="session")
def _beside_other_tests() -> Iterator[None]:
    """Engines have one thread where nothing else is said: several wait for each other in a loop, for as long as other
    tests have the processor. Nor do runs look for busy programs first, which takes half a second each time."""
    with pytest.MonkeyPatch.context() as patch:
        for module in ("process", "llama_cpp.engine", "libllama.engine"):
            patch.setattr(f"specmeter.engines.{module}.default_threads", lambda: 1)
        patch.setattr("specmeter_studies.quality.measure.default_threads", lambda: 1)
        patch.setattr("specmeter.host.machine.read_busy_processes", lambda *_: ())
        yield


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Before anything is timed: wait until this test may run beside what other processes test."""
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if workers == 1:
        return (yield)
    own = int(os.environ["PYTEST_XDIST_WORKER"].removeprefix("gw"))
    places: Sequence[int] = range(workers) if item.get_closest_marker("alone") else (own,)
    shared = item.config._tmp_path_factory.getbasetemp().parent  # pyright: ignore[reportAttributeAccessIssue]
    with _held(shared, places):
        return (yield)


@contextmanager
def _held(shared: Path, places: Sequence[int]) -> Iterator[None]:
    """Hold the places of these processes. A gate lets a test that wants all of them go first."""
    with ExitStack() as stack:
        with locked(shared / "gate.lock"):
            for place in places:
                stack.enter_context(locked(shared / f"{place}.lock"))
        yield


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is cached meanwhile is gone afterwards."""
    monkeypatch.setenv("SPECMETER_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def times() -> int:
    """How many times as long this is tried, by hand."""
    return TIMES


@pytest.fixture(scope="session")
def smol() -> Path:
    """A real model: SmolLM2-135M-Instruct in Q4_1."""
    path = smollm2()
    if path is None:
        pytest.skip(f"the package {PACKAGE} is not installed (CONTRIBUTING.md says how)")
    return path


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
    """Opens a page file, or an address, and gives a `Looked`; whatever it complains about or asks for is kept there."""
    contexts: list[Any] = []

    def open_page(path: Path | str, *, wait: bool = True, **options: Any) -> Looked:
        context = browser.new_context(**{"locale": "en-US", "viewport": {"width": 1280, "height": 900}, **options})
        contexts.append(context)
        looked = Looked(context.new_page())
        looked.page.goto(path if isinstance(path, str) else path.resolve().as_uri())
        if wait:
            looked.page.wait_for_function("document.documentElement?.dataset.drawn !== undefined")
        return looked

    yield open_page
    for context in contexts:
        context.close()
