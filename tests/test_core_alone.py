"""specmeter without the package of studies: it runs, shows, reports and checks, and says where studies are missing."""

from __future__ import annotations

import json
import subprocess
import sys
import venv
from pathlib import Path

import pytest

EXPERIMENT = """
name: alone
study: moe-306
targets: {dense: "mock:dense"}
drafts: {small: "mock:small"}
workloads: [{source: bench, kinds: [fact, code], per_kind: 1}]
arms: [{draft: small, gamma: [2, 4]}]
engine: {kind: mock}
generation: {max_tokens: 16}
"""
INSTALL = "packages/specmeter-studies"
RUN = "run alone.yaml --out specmeter-runs/alone"
OF_THE_CORE = (
    "show",
    "check",
    "explain",
    "list",
    "compare alone alone",
    "export --out rows.csv",
    "audit --published moe-306",
)
REPORT, SITE = "report alone --out alone.html", "report --site public"
OF_STUDIES = (
    "study list",
    "quality bench:dense",
    "run moe-306",
    "report a-study",
    "report --published moe-306",
    "report --published list",
    "compare --machines alone alone",
)
INVOKE = """
import contextlib, io, json, sys
from specmeter.cli import invoke
told = {}
for command in json.loads(sys.argv[1]):
    text = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
        told[command] = (invoke(command.split()), text.buffer.getvalue().decode())
print(json.dumps(told))
"""
EVERY_MODULE = """
import importlib, pkgutil, sys
import specmeter
from specmeter import *
for it in pkgutil.walk_packages(specmeter.__path__, "specmeter."):
    if not it.name.endswith("__main__"):
        importlib.import_module(it.name)
assert not any(name.startswith("specmeter_studies") for name in sys.modules)
try:
    specmeter.studies
except AttributeError as error:
    print(error)
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python that has all that is installed here but the studies."""
    folder = tmp_path_factory.mktemp("core") / "venv"
    venv.create(folder, symlinks=True)
    (site,) = folder.glob("lib/python*/site-packages")
    here = next(Path(place) for place in sys.path if place.endswith("site-packages"))
    for entry in here.iterdir():
        if "specmeter_studies" not in entry.name and not (site / entry.name).exists():
            (site / entry.name).symlink_to(entry)
    return folder / "bin" / "python"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a run is measured, beside the folder of a study."""
    folder = tmp_path_factory.mktemp("runs")
    (folder / "alone.yaml").write_text(EXPERIMENT, encoding="utf-8")
    study = folder / "specmeter-runs" / "a-study"
    study.mkdir(parents=True)
    (study / "study.json").write_text("{}", encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def said(python: Path, folder: Path) -> dict[str, tuple[int, str]]:
    """Command -> its exit code, and what it said; all in one process."""
    order = json.dumps([RUN, *OF_THE_CORE, REPORT, SITE, *OF_STUDIES, "--help"])
    done = subprocess.run(
        [python, "-c", INVOKE, order], cwd=folder, capture_output=True, text=True, check=True, timeout=200
    )
    return json.loads(done.stdout)


def test_every_module_is_imported_and_python_says_where_studies_are(python: Path, tmp_path: Path) -> None:
    done = subprocess.run([python, "-c", EVERY_MODULE], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert INSTALL in done.stdout


@pytest.mark.parametrize("command", [RUN, *OF_THE_CORE])
def test_commands_of_the_core_need_no_studies(said: dict[str, tuple[int, str]], command: str) -> None:
    code, text = said[command]
    assert code in (0, 1), text
    assert INSTALL not in text


def test_a_report_says_that_its_study_cannot_be_read(said: dict[str, tuple[int, str]], folder: Path) -> None:
    code, text = said[REPORT]
    assert code == 0, text
    assert INSTALL in text
    assert "This run belongs to the study <bdi>moe-306</bdi>" in (folder / "alone.html").read_text(encoding="utf-8")


def test_a_site_keeps_runs_and_leaves_studies_out(said: dict[str, tuple[int, str]], folder: Path) -> None:
    code, text = said[SITE]
    assert code == 0, text
    assert "left out" in text
    assert INSTALL in text
    index = (folder / "public" / "index.html").read_text(encoding="utf-8")
    assert "alone" in index
    assert "a-study" in index


@pytest.mark.parametrize("command", OF_STUDIES)
def test_what_studies_bring_names_them(said: dict[str, tuple[int, str]], command: str) -> None:
    code, text = said[command]
    assert code == 2
    assert INSTALL in text


def test_help_names_no_command_that_is_not_there(said: dict[str, tuple[int, str]]) -> None:
    listed = {line.split()[0] for line in said["--help"][1].splitlines() if line.startswith("  ")}
    assert {"run", "report"} <= listed
    assert not listed & {"study", "quality"}
