"""Plain English, and counts that agree with the code.

Words that make a sentence read as translated stay out of everything that is read: documentation, docstrings, messages.
Numbers that the documentation states about specmeter itself are counted here.
"""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest

import specmeter_studies as studies
from specmeter.cli import invoke
from specmeter.engines.registry import installed
from specmeter.testing import CASES
from specmeter.validity.checks.registry import CHECKS

ROOT = Path(__file__).resolve().parent.parent
READ = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *(
        path
        for folder in ("src", "packages", "tests", "scripts", "benchmarks")
        for path in sorted((ROOT / folder).rglob("*.py"))
    ),
    *(path for folder in ("src", "packages") for path in sorted((ROOT / folder).rglob("*.yaml"))),
]

AVOIDED = {
    "nobody, somebody, whoever, whom": r"\b(?:nobody|somebody|whoever|whom)\b",
    "for certain": r"\bfor certain\b",
    "is no X (say: is not a X)": r"(?<!there )\bis no (?!(?:longer|more|less|better|worse|larger|smaller)\b)\w",
    "of no use": r"\bof no use\b",
    "speaks against": r"\bspeaks? against\b",
    "really achieved": r"\breally achieved\b",
    "could not look": r"\bcould not look\b",
    "to be had": r"\b(?:can(?:not)?|could|to) be had\b",
}
"""What is avoided -> the pattern that finds it, in text whose white space was made single spaces."""


def test_prose_is_plain() -> None:
    found: list[str] = []
    for path in READ:
        text = re.sub(r"\s+(?:#\s+)?", " ", path.read_text(encoding="utf-8"))
        found += [
            f"{path.relative_to(ROOT)}: {what}: ...{text[max(0, hit.start() - 60) : hit.end() + 40]}..."
            for what, pattern in AVOIDED.items()
            for hit in re.finditer(pattern, text, re.IGNORECASE)
            if path != Path(__file__).resolve()
        ]
    assert found == []


# --- counts ----------------------------------------------------------------------------------------------------------

WORDS = {
    word: n
    for n, word in enumerate(
        ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve", "thirteen"),
        start=2,
    )
}
COUNTS = {
    r"(\w+) studies": len(studies.names()),
    r"(\w+) checks(?! found)": len(CHECKS),
    r"specmeter's own (\w+) engines": sum(engine.ours for engine in installed().values()),
    r"conformance kit: (\w+) cases": len(CASES),
}
"""What a page counts -> how many there are."""
PAGES = [path for path in READ if path.suffix == ".md"]


def test_counts_that_pages_state_are_right() -> None:
    stated: set[str] = set()
    for page in PAGES:
        text = " ".join(page.read_text(encoding="utf-8").split())
        for pattern, real in COUNTS.items():
            for word in re.findall(pattern, text, re.IGNORECASE):
                told = int(word) if word.isdigit() else WORDS.get(word.lower())
                if told is not None:
                    stated.add(pattern)
                    assert told == real, f"{page.name}: {word} where there are {real} ({pattern})"
    assert stated >= {pattern for pattern in COUNTS if "checks" not in pattern}, "a count moved: look for it anew"


def test_sizes_are_decimal() -> None:
    """GB as on a disk's box and in a memory's GB/s; what `specmeter.text.size` prints."""
    for page in PAGES:
        text = re.sub(r"logs (?:print them|round sizes)[^|.]*", "", page.read_text(encoding="utf-8"))
        assert re.findall(r"\b\d[\d.,]* ?(?:GiB|MiB|KiB)\b", text) == [], page


# --- which question, which command -----------------------------------------------------------------------------------

WHICH = (ROOT / "docs" / "how-to" / "which-command.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^\|[^|]+\| `(specmeter [^`]+)`", WHICH, re.MULTILINE)
COSTLY = ("advise", "run", "fleet", "probe", "quality", "study", "models", "doctor")
"""They measure, start engines, or want models; other tests run them."""
CHEAP = [command for command in COMMANDS if command.split()[1] not in COSTLY]


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two runs of the mock engine, and a table."""
    folder = tmp_path_factory.mktemp("which")
    small = ["--set", "engine.kind=mock", "--set", "design.blocks=2", "--set", "generation.max_tokens=16"]
    for name in ("before", "after"):
        assert invoke(["run", "demo", *small, "--out", str(folder / "specmeter-runs" / name)]) in (0, 1)
    (folder / "table.csv").write_text("target,gamma,tok/s,speedup,acceptance\na,4,30,1.2,60%\n", encoding="utf-8")
    return folder


@pytest.mark.parametrize("command", sorted(set(CHEAP)))
def test_a_command_of_the_page_answers(
    command: str, measured: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(measured, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    words = shlex.split(command)[1:]
    if "--figures" in words:
        pytest.importorskip("vl_convert")
    assert invoke(words) == 0, capsys.readouterr().err
    assert "error" not in capsys.readouterr().err


def test_the_page_asks_what_people_ask() -> None:
    assert len(COMMANDS) >= 12
    assert len(set(CHEAP)) >= 8


def test_the_audit_page_shows_what_its_table_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (ROOT / "docs" / "how-to" / "audit.md").read_text(encoding="utf-8")
    table, shown = re.findall(r"```text\n(.*?)```", page, re.DOTALL)[:2]
    (tmp_path / "table.md").write_text(table, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    assert invoke(["audit", "table.md"]) == 4
    assert [line.rstrip() for line in capsys.readouterr().out.strip().splitlines()] == shown.splitlines()
