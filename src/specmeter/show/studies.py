"""What pages and commands ask the package of studies for; it is installed on its own (`specmeter.extensions`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from specmeter import extensions

if TYPE_CHECKING:
    from specmeter.analysis.reading import RunReport
    from specmeter.messages import Message
    from specmeter.show.figure import Figure
    from specmeter.show.table import Table


class StudySection(Protocol):
    """What a study says on a page: of a run that belongs to it, or of its own."""

    @property
    def title(self) -> Message | str: ...
    @property
    def prefix(self) -> str:
        """Begins the names of its files."""
        ...

    @property
    def claims(self) -> Table: ...
    @cached_property
    def tables(self) -> tuple[Table, ...]: ...
    @cached_property
    def figures(self) -> tuple[Figure, ...]: ...


class SiteStudy(Protocol):
    """A study on a site."""

    @property
    def slug(self) -> str:
        """Its folder."""
        ...

    @property
    def place(self) -> Path:
        """The folder that it was measured into; of a published one its name."""
        ...

    def write(self, folder: Path, languages: Sequence[str]) -> Path:
        """Write its page and its data; returns the page."""
        ...


@dataclass(frozen=True)
class Shown:
    """What can be written of something."""

    figures: Callable[[], Iterable[Figure]]
    tables: Callable[[Path, Sequence[str]], list[Path]]
    """Given a folder, and the columns of LaTeX tables: none are all."""
    page: Callable[[Path, bool], list[Path]]
    """Given its place and whether that is inside the folder that it is of; the page first."""
    place: Path
    """Where the page goes unless another place is named."""


class ShownStudies(extensions.Studies, Protocol):
    """What is shown of studies."""

    RULINGS: tuple[str, ...]
    """What can be said of a claim."""

    def of_run(self, run: RunReport) -> StudySection | None:
        """What a run says about its study, where its experiment is one on its own; None for all other runs."""
        ...

    def shown(self, folder: Path, languages: Sequence[str]) -> Shown:
        """A study folder. Raises `StoreError` or `UsageError` for a damaged one."""
        ...

    def load(self, folder: Path) -> Any:
        """What a study folder says, finished or not. Raises `StoreError` or `UsageError` for a damaged one."""
        ...

    def print_study(self, folder: Path, *, as_json: bool) -> int:
        """What `specmeter study show` does; returns its exit code."""
        ...

    def published(self, name: str, languages: Sequence[str]) -> Shown:
        """Studies by the numbers of their documents. Raises `UsageError` for an unknown name."""
        ...

    def list_published(self) -> Iterable[str]:
        """A line for each name that `published` takes."""
        ...

    def on_site(self, folder: Path, slug: Callable[[str], str]) -> SiteStudy:
        """A study folder for a site. Raises `StoreError` or `UsageError` for a damaged one."""
        ...

    def published_on_site(self, name: str, slug: Callable[[str], str]) -> Sequence[SiteStudy]:
        """The studies of a name, or of a group of them, each for a page of its own."""
        ...

    def site_claims(self, studies: Sequence[Any]) -> Table:
        """How many claims of each study of a site were ruled how."""
        ...

    def compare_machines(
        self,
        runs: Sequence[str],
        bandwidths: Sequence[str],
        html: Path | None,
        languages: Sequence[str],
        *,
        as_json: bool,
    ) -> int:
        """What `specmeter compare --machines` does; returns its exit code."""
        ...


def studies() -> ShownStudies | None:
    """The package of studies; None where it is not installed."""
    return cast("ShownStudies | None", extensions.studies())


def needed(what: str) -> ShownStudies:
    """The package of studies. Raises `UsageError`, which says how to install it, where `what` needs it in vain."""
    found = studies()
    if found is None:
        raise extensions.not_installed(what)
    return found
