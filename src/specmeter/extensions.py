"""What other packages add: commands, experiments, messages, and the studies of published documents.

A package says so by entry points, and these are read from `*.dist-info/entry_points.txt` here: that takes a
millisecond, and with `importlib.metadata` every `--help` would wait forty.

    specmeter.commands     a name's first word is the command, the rest its line of help; its value is a click command
    specmeter.experiments  a name leads to a function that writes the experiment's file for this machine
    specmeter.studies      leads to a module with what `Studies` asks for
    specmeter.engines      leads to an `EngineSpec` (`engines.registry`)
    specmeter.messages     leads to a package whose folder `messages` has its catalogues
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple, Protocol, cast

from specmeter.errors import UsageError

INSTALL = "in a clone of specmeter, run `uv sync --inexact` (with pip: `pip install ./packages/specmeter-studies`)"
"""How the package of studies is installed."""
REINSTALL = (
    "in a clone of specmeter, run `uv sync --inexact --reinstall-package xllamacpp` "
    "(with pip: `pip install --force-reinstall specmeter`)"
)
"""How the packaged llama.cpp is installed again, in the version that is needed."""
OF_STUDIES = ("study", "quality")
"""Commands that come with the package of studies."""
OWN_CODE = "specmeter_study_"
"""How the names of modules begin that are code of a user's own study."""


class AddedCommand(NamedTuple):
    """A command of another package."""

    about: str
    """Its line of help."""
    place: str
    """`MODULE:NAME` of the click command."""


class Studies(Protocol):
    """What rooms of every floor ask the package of studies for; `show.studies` asks for more."""

    EXPERIMENTS: str
    """The package that its experiments lie in."""

    def names(self) -> tuple[str, ...]:
        """All its studies."""
        ...


def commands() -> dict[str, AddedCommand]:
    """The commands of other packages, by name."""
    named = ((*name.partition(" "), place) for name, place in _places("specmeter.commands").items())
    return {name: AddedCommand(about, place) for name, _, about, place in named}


def experiments() -> Mapping[str, str]:
    """Name -> place of what writes an experiment's file, of other packages."""
    return _places("specmeter.experiments")


def catalogues() -> list[str]:
    """Folders with the catalogues of other packages, none of which is imported for that."""
    specs = map(find_spec, _places("specmeter.messages").values())
    return [f"{folder}/messages" for spec in specs if spec for folder in spec.submodule_search_locations or ()]


def studies() -> Studies | None:
    """The package of studies; None where it is not installed."""
    place = next(iter(_places("specmeter.studies").values()), None)
    return None if place is None else cast("Studies", load(place))


def not_installed(what: str) -> UsageError:
    """The error for what only the package of studies can do."""
    return UsageError(f"{what}: the package specmeter-studies is not installed", fix=INSTALL)


def installing(extra: str, package: str = "") -> str:
    """How an extra of specmeter, or of a package beside it, is installed from a clone."""
    place = f"packages/{package}" if package else "."
    return f"in a clone of specmeter, run `uv pip install -e '{place}[{extra}]'`"


def load(place: str) -> Any:
    """What `MODULE` or `MODULE:NAME` leads to."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name) if name else import_module(module)


class Entry(NamedTuple):
    """An entry point of an installed package."""

    place: str
    """`MODULE:NAME`."""
    package: str
    """The distribution that brings it."""
    version: str

    @property
    def module(self) -> str:
        return self.place.partition(":")[0]


def entries(group: str) -> Mapping[str, list[Entry]]:
    """Name -> entry points of a group, in the order of the path; nothing is imported."""
    return _entries(tuple(sys.path)).get(group, {})


def _places(group: str) -> dict[str, str]:
    """Name -> place; what comes first on the path counts."""
    return {name: found[0].place for name, found in entries(group).items()}


@lru_cache(maxsize=1)
def _entries(path: tuple[str, ...]) -> Mapping[str, Mapping[str, list[Entry]]]:
    """Group -> name -> entry points, of the groups of specmeter; of packages of one name the first on the path
    counts."""
    found: dict[str, dict[str, list[Entry]]] = {}
    seen: set[str] = set()
    for folder in path:
        for package, version, text in _texts(folder or os.curdir):
            if package in seen:
                continue
            seen.add(package)
            group = ""
            for line in text.splitlines():
                name, equals, place = line.partition("=")
                if line.startswith("["):
                    group = line.strip("[] \t")
                elif equals and group.startswith("specmeter."):
                    entry = Entry(place.strip(), package, version)
                    found.setdefault(group, {}).setdefault(name.strip(), []).append(entry)
    return found


def _texts(folder: str) -> Iterable[tuple[str, str, str]]:
    """(name, version, entry points) of the packages in a folder of the path that add to specmeter; what cannot be read
    adds nothing."""
    with suppress(OSError), os.scandir(folder) as listed:
        for path, name in sorted((it.path, it.name) for it in listed if it.name.endswith(".dist-info")):
            with suppress(OSError, ValueError), open(f"{path}/entry_points.txt", encoding="utf-8") as file:  # noqa: PTH123
                text = file.read()
                if "[specmeter." in text:
                    package, _, version = name.removesuffix(".dist-info").partition("-")
                    yield package.lower().replace("_", "-"), version, text
