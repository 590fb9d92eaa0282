"""The package as specmeter asks for it."""

from __future__ import annotations

import tomllib
from importlib import resources
from pathlib import Path

import specmeter
from specmeter import extensions
from specmeter.messages import LANGUAGES
from specmeter.show.studies import ShownStudies, studies
from specmeter_studies.loading import NAMES
from specmeter_studies.show import hooks
from specmeter_studies.study import FINDINGS

ROOT = Path(__file__).parents[3]


def test_it_answers_all_that_is_asked() -> None:
    asked: ShownStudies = hooks  # the type checker compares them
    assert studies() is asked
    assert extensions.studies() is asked
    assert asked.names() == NAMES
    assert asked.RULINGS == FINDINGS
    folder = next(it for it in extensions.catalogues() if "specmeter_studies" in it)
    assert {it.name for it in Path(folder).iterdir()} == {f"{language}.json" for language in LANGUAGES}
    assert resources.files(asked.EXPERIMENTS).joinpath("moe-306.yaml").is_file()


def test_its_commands_stand_in_the_help_with_what_their_entries_say() -> None:
    assert set(extensions.OF_STUDIES) <= set(extensions.commands())
    for name, command in extensions.commands().items():
        assert command.about.endswith(".")
        assert extensions.load(command.place).name == name


def test_both_distributions_have_one_version() -> None:
    read = tomllib.loads((ROOT / "packages" / "specmeter-studies" / "pyproject.toml").read_text("utf-8"))["project"]
    core = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert read["version"] == specmeter.__version__
    assert read["dependencies"][0] == f"specmeter=={specmeter.__version__}"
    assert core["optional-dependencies"]["studies"] == [f"specmeter-studies=={specmeter.__version__}"]
