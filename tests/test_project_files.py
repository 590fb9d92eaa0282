"""Files that a forge, an index or a citation reads: valid by their schemas, and of one mind with the code."""

from __future__ import annotations

import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
FORMS = sorted((GITHUB / "ISSUE_TEMPLATE").glob("*.yml"))
CHECKER = "check-jsonschema==0.39.0"
"""It has the schemas within itself."""


def _read(path: Path) -> dict[Any, Any]:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("uvx") is None, reason="needs uv: pip install uv")
@pytest.mark.parametrize(
    ("schema", "files"),
    [
        ("vendor.github-workflows", WORKFLOWS),
        ("custom.github-workflows-require-timeout", WORKFLOWS),
        ("vendor.github-issue-forms", FORMS),
        ("vendor.citation-file-format", [ROOT / "CITATION.cff"]),
    ],
)
def test_files_are_as_their_schemas_say(schema: str, files: list[Path]) -> None:
    command = ["uvx", "--from", CHECKER, "check-jsonschema", "--default-filetype", "yaml", "--builtin-schema", schema]
    done = subprocess.run([*command, *map(str, files)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_form_asks_for_what_the_machine_is() -> None:
    assert len(FORMS) == 3
    for form in FORMS:
        asked = {it["attributes"]["label"]: it.get("validations") for it in _read(form)["body"] if "id" in it}
        assert asked["specmeter doctor --json"] == {"required": True}, form.name


def test_all_packages_are_tested_with_the_versions_that_they_name() -> None:
    packages = [ROOT, *sorted((ROOT / "packages").iterdir())]
    about = [tomllib.loads((it / "pyproject.toml").read_text(encoding="utf-8"))["project"] for it in packages]
    named = [[it.rpartition(" ")[2] for it in one["classifiers"] if "Python :: 3." in it] for one in about]
    tested = _read(GITHUB / "workflows" / "test.yml")["jobs"]["fast"]["strategy"]["matrix"]["python"]
    assert len(named) == 4
    assert named == [tested] * 4


def test_only_publishing_may_do_more_than_read() -> None:
    for path in WORKFLOWS:
        workflow = _read(path)
        assert workflow["permissions"] in ({}, {"contents": "read"}), path.name
        more = {name: it for name, job in workflow["jobs"].items() if (it := job.get("permissions"))}
        expected = {"build": {"contents": "read"}, "publish": {"id-token": "write"}} if path.stem == "release" else {}
        assert more == expected
