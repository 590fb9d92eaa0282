"""Hints name commands as the user started specmeter; what is kept names plain `specmeter`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from specmeter.text import as_started, program

SCRIPT = Path(sys.executable).with_name("specmeter")
UNKNOWN = ["run", "nothing-of-this-name"]


def test_within_another_program_commands_stay_as_they_are() -> None:
    assert program() == "specmeter"
    assert (
        as_started("see `specmeter list`, or `specmeter run demo`") == "see `specmeter list`, or `specmeter run demo`"
    )


def test_only_commands_are_worded_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specmeter.text.program", lambda: "uv run specmeter")
    said = as_started("specmeter itself; `specmeter list`; specmeter-runs\n    specmeter run demo\n`specmeter-runs`")
    assert (
        said
        == "specmeter itself; `uv run specmeter list`; specmeter-runs\n    uv run specmeter run demo\n`specmeter-runs`"
    )


def _hint(*started: str, path: str = "") -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("UV")}
    environment["PATH"] = os.pathsep.join(filter(None, (path, os.defpath)))
    if Path(started[0]).stem == "uv":
        environment |= {"UV_OFFLINE": "1", "PATH": environment["PATH"]}
    ended = subprocess.run([*started, *UNKNOWN], env=environment, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 2
    (hint,) = (line for line in ended.stderr.splitlines() if "shows the bundled ones" in line)
    return hint.partition("`")[2].partition("`")[0]


@pytest.mark.skipif(sys.platform == "win32", reason="the environment of another shell")
def test_it_is_found_out_how_it_was_started() -> None:
    assert _hint(str(SCRIPT)) == f"{SCRIPT} list"
    assert _hint(str(SCRIPT), path=str(SCRIPT.parent)) == "specmeter list"
    assert _hint(sys.executable, "-m", "specmeter") == f"{sys.executable} -m specmeter list"


@pytest.mark.skipif(shutil.which("uv") is None, reason="no uv here")
def test_uv_is_named_with_its_own_options() -> None:
    uv = shutil.which("uv") or ""
    project = str(Path(__file__).parents[2])
    options = ("run", "--project", project, "--no-sync")
    assert _hint(uv, *options, "specmeter") == f"uv run --project {project} --no-sync specmeter list"
    assert _hint(uv, *options, "python", "-m", "specmeter") == (
        f"uv run --project {project} --no-sync python -m specmeter list"
    )
