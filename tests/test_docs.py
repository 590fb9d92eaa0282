"""Documentation that lists commands, keys or columns is written from the code; examples in it are real."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest
import yaml

import specmeter
from pasted_line import timings_of
from specmeter.cli import all_commands, invoke, root
from specmeter.experiments.experiment import Experiment
from specmeter.experiments.file import parse
from specmeter.laboratory.cautions import too_few

ROOT = Path(__file__).resolve().parent.parent
STARTED = r"(?:uv run (?:--extra \w+ )?)?specmeter"
"""How a page starts it, as a pattern."""
PAGES = sorted(
    [
        *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "THIRD_PARTY.md")),
        *(ROOT / "benchmarks").glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
    ]
)


@pytest.mark.slow
def test_reference_pages_are_up_to_date() -> None:
    result = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "make_reference.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, f"{result.stdout}{result.stderr}run: uv run python scripts/make_reference.py"


def test_commands_that_pages_show_exist() -> None:
    known = set(all_commands())
    for page in PAGES:
        shown = re.findall(rf"^{STARTED} ([a-z]+)\b", _code(page.read_text(encoding="utf-8")), re.MULTILINE)
        assert set(shown) <= known, page


def test_experiments_that_pages_show_are_valid() -> None:
    for page in PAGES:
        for block in re.findall(r"```yaml\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
            if re.search(r"^targets?:", block, re.MULTILINE) and "arms:" in block:
                Experiment.model_validate(yaml.safe_load(block)).expand()


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            assert "://" in target or (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.slow
def test_the_python_page_says_what_its_code_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every block in order, in one session, as a reader would run them; each prints the text below it."""
    text = (ROOT / "docs" / "how-to" / "python.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```\n(?:\n```text\n(.*?)```\n)?", text, re.DOTALL)
    assert len(blocks) >= 8
    monkeypatch.chdir(tmp_path)
    session: dict[str, object] = {}
    for code, expected in blocks:
        exec(compile(code, "python.md", "exec"), session)
        printed = capsys.readouterr().out
        assert [line.rstrip() for line in printed.splitlines()] == [line.rstrip() for line in expected.splitlines()]


@pytest.mark.slow
def test_the_tutorial_goes_from_nothing_to_a_pasted_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first commands as a reader would run them: install, measure (a smaller target, to stay short), and paste
    the line of the answer."""
    text = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
    found = re.search(r"```sh\n(.*?)```", text, re.DOTALL)
    assert found is not None
    install, measure = found[1].splitlines()
    (paste,) = re.findall(r"```text\n(llama-server -m .*)\n```", text)
    assert install.startswith("pip install uv")
    assert measure.startswith("uv run specmeter run ")
    argv = shlex.split(measure.replace("dense-100m", "dense"), comments=True)[3:]
    monkeypatch.chdir(tmp_path)
    assert invoke([*argv, "--details"]) == 0
    target = argv[1].removeprefix("bench:")
    lines = capsys.readouterr().out.splitlines()
    # Which arm wins, and whether it can be told, this machine decides; the lines of all arms are there in any case.
    assert lines[0].startswith(target)
    offered = [line.strip() for line in lines if line.startswith("  llama-server -m ")]
    line = next(line for line in offered if "--spec-draft-n-max 4" in line)
    shown = [it for it in shlex.split(paste, comments=True) if it.startswith("-")]
    assert [it for it in shlex.split(line) if it.startswith("-")] == shown
    assert timings_of(line, tmp_path)["draft_n"] > 0


def test_the_page_of_public_names_has_all_of_them() -> None:
    page = (ROOT / "docs" / "how-to" / "python.md").read_text(encoding="utf-8")
    table = page.partition("| name |")[2].partition("\n\n")[0]
    rows = [line.split("|")[1] for line in table.splitlines()[2:]]
    assert sorted(name for row in rows for name in re.findall(r"`(\w+)`", row)) == sorted(
        [*specmeter.__all__, "studies"]
    )


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", str(ROOT / "docs"), str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    pages = {page.relative_to(ROOT / "docs").with_suffix(".html") for page in PAGES if ROOT / "docs" in page.parents}
    assert pages <= {page.relative_to(tmp_path) for page in tmp_path.rglob("*.html")}


def _code(text: str) -> str:
    blocks = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    return "\n".join([*blocks, *re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))])


def test_options_that_pages_show_are_those_of_the_commands() -> None:
    """Each command line of the how-to pages and the tutorial, read as the program reads it."""
    seen = 0
    pages = (*(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "how-to").glob("*.md"), ROOT / "README.md")
    for page in pages:
        blocks = re.findall(r"```sh\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
        text = "\n".join(blocks).replace("\\\n", " ")
        for line in re.findall(rf"^(?:.* && )?{STARTED} (.*)$", text, re.MULTILINE):
            words = shlex.split(re.split(r" [|>] | && ", line)[0], comments=True)
            found: click.Command = root
            while isinstance(found, click.Group):
                name = words.pop(0)
                command = found.get_command(click.Context(found), name)
                assert command is not None, f"{page.name}: {line}"
                found = command
            context = click.Context(found, info_name=found.name)
            given, _, order = found.make_parser(context).parse_args(words)
            for param in (it for it in order if isinstance(it, click.Option)):
                if not isinstance(param.type, click.Path):
                    param.type_cast_value(context, given[param.name or ""])
            seen += 1
    assert seen > 80


@pytest.mark.parametrize("page", ["README.md", "docs/tutorial.md"])
def test_an_experiment_file_that_a_page_shows_can_answer(page: str) -> None:
    texts = re.findall(r"```yaml\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)
    found = [parse(text) for text in texts if "targets:" in text]
    assert found
    assert [told for it in found for told in too_few(it, it.expand())] == []
