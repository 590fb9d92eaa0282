"""The words of the glossary, and counts that agree with the code.

A term has one name in everything that a user reads: documentation, messages, help.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path

import click
import pytest

import specmeter_studies as studies
from specmeter.cli import invoke, root
from specmeter.engines.registry import installed
from specmeter.testing import CASES
from specmeter.validity.checks.registry import CHECKS

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
GLOSSARY = ROOT / "docs" / "glossary.md"
CATALOGUES = sorted(path for top in ("src", "packages") for path in (ROOT / top).rglob("messages/en.json"))


# --- the glossary ----------------------------------------------------------------------------------------------------


def glossary() -> dict[str, list[str]]:
    """Each term -> the names that are not used for it."""
    rows = re.findall(r"^\| (.+?) \| .+? \| .+? \| (.*?) ?\|$", GLOSSARY.read_text(encoding="utf-8"), re.MULTILINE)
    return {term: [it for it in unused.split(", ") if it] for term, unused in rows[1:]}


def what_users_read() -> dict[str, str]:
    """Where a user reads something -> the words there, without code."""
    code = re.compile(r"```.*?```|`[^`\n]*`|\]\([^)]*\)", re.DOTALL)
    read = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in PAGES if path != GLOSSARY}
    for path in CATALOGUES:
        messages = json.loads(path.read_text(encoding="utf-8"))
        read |= {f"{path.relative_to(ROOT).as_posix()}: {key}": said for key, said in messages.items()}
    stack: list[tuple[str, click.Command]] = [("specmeter", root)]
    while stack:
        name, command = stack.pop()
        context = click.Context(command, info_name=name, terminal_width=10_000, max_content_width=10_000)
        read[f"{name} --help"] = command.get_help(context)
        if isinstance(command, click.Group):
            found = ((f"{name} {it}", command.get_command(context, it)) for it in command.list_commands(context))
            stack += [(path, child) for path, child in found if child is not None]
    return {where: " ".join(code.sub(" ", text).split()) for where, text in read.items()}


def test_a_thing_has_one_name() -> None:
    terms = glossary()
    assert len(terms) >= 20
    found = [
        f"{where}: {wrong!r}: say {term!r} (docs/glossary.md)"
        for where, text in what_users_read().items()
        for term, unused in terms.items()
        for wrong in unused
        if re.search(rf"\b{wrong}\b(?!-)", text, re.IGNORECASE)
    ]
    assert found == []


# --- counts ----------------------------------------------------------------------------------------------------------

WORDS = {
    word: n
    for n, word in enumerate(
        (
            "two",
            "three",
            "four",
            "five",
            "six",
            "seven",
            "eight",
            "nine",
            "ten",
            "eleven",
            "twelve",
            "thirteen",
            "fourteen",
            "fifteen",
        ),
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
    assert stated >= {pattern for pattern in COUNTS if "checks" not in pattern}, "a count moved: find its new place"


def test_sizes_are_decimal() -> None:
    """GB as on a disk's box and in a memory's GB/s; what `specmeter.text.size` prints."""
    for page in PAGES:
        text = re.sub(r"logs (?:print them|round sizes)[^|.]*", "", page.read_text(encoding="utf-8"))
        assert re.findall(r"\b\d[\d.,]* ?(?:GiB|MiB|KiB)\b", text) == [], page


# --- which question, which command -----------------------------------------------------------------------------------

WHICH = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^\|[^|]+\| `(specmeter [^`]+)`", WHICH, re.MULTILINE)
COSTLY = ("advise", "run", "gate", "fleet", "probe", "quality", "study", "models", "doctor")
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
