"""The GitHub action: its script passes on what it is given, and ends as the gate does."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from programs import write_program

ACTION: dict[str, Any] = yaml.safe_load((Path(__file__).parents[2] / "action.yml").read_text("utf-8"))
(STEP,) = ACTION["runs"]["steps"]

pytestmark = pytest.mark.skipif(os.name != "posix", reason="the script is run by bash")


def run(folder: Path, head: str, **inputs: str) -> tuple[subprocess.CompletedProcess[str], dict[str, str]]:
    """Run the step as GitHub would, with `pip` and `uv` that start the specmeter at hand."""
    (folder / "bin").mkdir(exist_ok=True)
    write_program(folder / "bin" / "pip", "#!/bin/sh\n")
    skip = '#!/bin/sh\nwhile [ "$1" != specmeter ]; do shift; done\nshift\n'
    write_program(folder / "bin" / "uv", f'{skip}exec {shlex.quote(sys.executable)} -m specmeter "$@"\n')
    given = {name: it.get("default", "") for name, it in ACTION["inputs"].items()} | {"base": "mock:1", "head": head}
    given |= inputs
    told = {name: value for name, value in STEP["env"].items() if name != "SOURCE"}
    values = {name: given[value.split("inputs.")[1].split(" ")[0]] for name, value in told.items()}
    written = {"GITHUB_OUTPUT": str(folder / "output"), "GITHUB_STEP_SUMMARY": str(folder / "summary")}
    path = f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", STEP["run"]],
        cwd=folder,
        env={**os.environ, **values, **written, "SOURCE": "x", "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    lines = (folder / "output").read_text("utf-8").splitlines()
    return done, dict(line.split("=", 1) for line in lines)


def test_it_ends_as_the_gate_does_and_writes_a_summary(tmp_path: Path) -> None:
    done, outputs = run(tmp_path, "mock:1.05")
    assert (done.returncode, outputs["exit-code"]) == (1, "1"), done.stderr
    assert "fail: mock:1.05 is slower" in (tmp_path / "summary").read_text("utf-8")
    assert (tmp_path / outputs["markdown"]).is_file()
    assert (tmp_path / outputs["junit"]).is_file()


def test_it_may_pass_with_a_warning_what_the_gate_cannot_tell(tmp_path: Path) -> None:
    assert run(tmp_path, "mock:1", budget="1s")[0].returncode == 4
    done, outputs = run(tmp_path, "mock:1", budget="1s", undecided="pass")
    assert (done.returncode, outputs["exit-code"]) == (0, "4")
    assert "::warning" in done.stdout


def test_inputs_are_words_and_never_code(tmp_path: Path) -> None:
    done, _ = run(tmp_path, "mock:1", experiment="$(touch hacked).yaml")
    assert done.returncode == 2
    assert not (tmp_path / "hacked").exists()


def test_a_key_of_the_experiment_can_be_set(tmp_path: Path) -> None:
    done, outputs = run(tmp_path, "mock:1", set="generation.max_tokens=8", experiment="demo", budget="1s")
    assert outputs["exit-code"] in ("0", "4"), done.stderr
