"""What is published: wheels made from sdists, each installed with what it needs into an environment of its own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
AUDIT = ROOT / "docs" / "how-to" / "audit.md"
NAMES = ("specmeter", "specmeter_engines", "specmeter_fleet", "specmeter_studies")
OF_ALL = (
    ("doctor",),
    ("run", "alone.yaml", "--out", "alone"),
    ("audit", "table.csv"),
    ("show", "alone"),
    ("report", "alone"),
    ("check", "alone"),
)
OWN = {
    "specmeter": ("predict", "--help"),
    "specmeter_engines": ("engines", "--help"),
    "specmeter_fleet": ("fleet", "--help"),
    "specmeter_studies": ("study", "list"),
}
EXPERIMENT = """
name: alone
targets: {dense: "mock:dense"}
drafts: {small: "mock:small"}
workloads: [{source: bench, kinds: [fact, code], per_kind: 1}]
arms: [{draft: small, gamma: [2, 4]}]
engine: {kind: mock}
generation: {max_tokens: 16}
"""
TABLE = "model,gamma,tok/s,baseline tok/s,speedup,acceptance\nMoE Q4,16,69.7,55.3,1.26,0.2%\n"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(shutil.which("uv") is None, reason="needs uv: pip install uv"),
]


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A wheel of each package, built from its sdist; 40 MB each, so they are gone afterwards."""
    folder = tmp_path_factory.mktemp("dist")
    _uv("build", "--all-packages", "--out-dir", str(folder))
    yield folder
    shutil.rmtree(folder)


def _uv(*arguments: str) -> None:
    done = subprocess.run(["uv", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def _wheel(dist: Path, name: str) -> str:
    (found,) = dist.glob(f"{name}-*.whl")
    return str(found)


def _environment(folder: Path, *packages: list[str]) -> Path:
    """The program `specmeter` of a new environment with these packages."""
    _uv("venv", "--python", sys.executable, str(folder))
    for asked in packages:
        _uv("pip", "install", "--python", str(folder), *asked)
    return folder / ("Scripts" if os.name == "nt" else "bin") / "specmeter"


def _run(program: Path, folder: Path, *arguments: str) -> str:
    own = {name: it for name, it in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    done = subprocess.run([program, *arguments], cwd=folder, env=own, capture_output=True, check=False, timeout=120)
    text = (done.stdout + done.stderr).decode("utf-8", "replace")
    assert done.returncode == (4 if arguments[0] == "audit" else 0), text
    return text


def _measured(program: Path, folder: Path, *leave_out: str) -> None:
    """What every installation can do. The table has an implausible row, so its audit ends with 4."""
    (folder / "alone.yaml").write_text(EXPERIMENT, encoding="utf-8")
    (folder / "table.csv").write_text(TABLE, encoding="utf-8")
    for arguments in OF_ALL:
        if arguments[0] not in leave_out:
            _run(program, folder, *arguments)
    assert (folder / "alone" / "report.html").is_file()


@pytest.mark.parametrize("name", NAMES)
def test_a_package_works_with_what_it_asks_for_alone(name: str, dist: Path, tmp_path: Path) -> None:
    program = _environment(tmp_path / "env", [_wheel(dist, it) for it in dict.fromkeys(("specmeter", name))])
    _measured(program, tmp_path)
    _run(program, tmp_path, *OWN[name])


def test_what_only_reads_needs_no_engine(dist: Path, tmp_path: Path) -> None:
    """As the page about audits says."""
    line = re.search(r"pip install --no-deps \. && pip install (.*?) +#", AUDIT.read_text(encoding="utf-8"))
    assert line is not None
    program = _environment(tmp_path / "env", ["--no-deps", _wheel(dist, "specmeter")], line[1].split())
    _measured(program, tmp_path, "doctor")  # which ends with 1, as no engine can measure
    assert not list((tmp_path / "env").rglob("xllamacpp"))


def test_a_wheel_runs_without_being_installed(dist: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        ["uvx", "--python", sys.executable, "--from", _wheel(dist, "specmeter"), "specmeter", "--version"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "specmeter, version " in done.stdout, done.stderr


@pytest.mark.parametrize("name", NAMES)
def test_a_package_has_its_types_and_licences_and_nothing_else(name: str, dist: Path) -> None:
    with zipfile.ZipFile(_wheel(dist, name)) as wheel:
        in_wheel = wheel.namelist()
    (sdist,) = dist.glob(f"{name}-[0-9]*.tar.gz")
    with tarfile.open(sdist) as archive:
        in_sdist = [it.partition("/")[2] for it in archive.getnames()]
    licences = {"LICENSE", "THIRD_PARTY.md"} if name == "specmeter" else {"LICENSE"}
    assert f"{name}/py.typed" in in_wheel
    assert f"src/{name}/py.typed" in in_sdist
    assert {it.rpartition("/licenses/")[2] for it in in_wheel if "/licenses/" in it} == licences
    assert licences <= set(in_sdist)
    assert {it.partition("/")[0] for it in in_wheel if ".dist-info/" not in it} == {name}
    assert {it for it in in_sdist if it.startswith(("tests/", "docs/", "benchmarks/"))} == set()
