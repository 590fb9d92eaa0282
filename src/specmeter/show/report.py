"""What is said of one subject, before anything shows it: the answer, sections of blocks, and what to mind.

A subject has one function that makes its `Report` (`advice_report.report`, ...). `terminal.report` prints every report,
`page.page` makes a page of it, `page.files` writes its tables and figures, and `notebook` shows it in a cell; none of
these knows a subject.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

from specmeter.messages import Message, words
from specmeter.show.table import Cell
from specmeter.text import quoted, size

if TYPE_CHECKING:
    from pathlib import Path

    from specmeter.record import Certificate, EngineIdentity, Host
    from specmeter.record.verdict import Verdict
    from specmeter.show.figure import Figure
    from specmeter.show.table import Table, Tone


At = Literal["everywhere", "details", "page", "screen", "brief"]
"""Who sees a block: everyone; pages and those who ask a terminal for details; pages; terminals; terminals that were not
asked for details."""
Look = Literal["", "speculate", "stop"]
"""How a page shows a headline."""


@dataclass(frozen=True)
class Text:
    """A sentence; a `str` comes from outside."""

    said: str | Message
    tone: Tone = ""
    at: At = "everywhere"
    verdict: Verdict | Literal["unchecked"] | None = None
    """Whether an answer can be believed."""
    untold: Message | None = None
    """How a valid verdict is worded where an engine does not tell all that checks look at."""
    simulated: bool = False
    """Whether there is nothing to believe: a mock was asked."""
    indent: int = 0
    whole: bool = False
    """Not broken into lines: something in it is to be pasted."""
    row: str = ""
    """Id of the row of data, further down, that its numbers are from; a page links to it."""
    kind: ClassVar = "text"


@dataclass(frozen=True)
class Command:
    """A line to paste."""

    argv: Sequence[str]
    at: At = "everywhere"
    kind: ClassVar = "command"


@dataclass(frozen=True)
class Tabled:
    """A table, whose name no other of the report has; pages fold one of the details."""

    table: Table
    at: At = "everywhere"
    caption: bool = True
    """Whether terminals show it: pages and files do."""
    most: int | None = None
    """Rows that terminals show without being asked for details; pages and files have all."""
    kind: ClassVar = "table"


@dataclass(frozen=True)
class Chart:
    """A figure, made where it is drawn; None where there is nothing to see."""

    make: Callable[[], Figure | None]
    at: At = "page"
    kind: ClassVar = "chart"


@dataclass(frozen=True)
class Links:
    """(what it is called, its page)."""

    pages: Sequence[tuple[Message, str]]
    at: At = "page"
    kind: ClassVar = "links"


@dataclass(frozen=True)
class Facts:
    """(what, its value); what is not known is left out."""

    pairs: Sequence[tuple[str | Message, str | Message | None]]
    title: Message
    at: At = "page"
    kind: ClassVar = "facts"


Block: TypeAlias = "Text | Command | Tabled | Chart | Links | Facts"


@dataclass(frozen=True)
class Section:
    """`section.NAME` among the words is its heading, which pages show."""

    name: str
    blocks: Sequence[Block]


@dataclass(frozen=True)
class Report:
    """All that is said of a subject."""

    target: str
    """What it is about, in a word: the title of its page."""
    document: Callable[[], object]
    """The same for programs."""
    headline: Message | None = None
    """The answer; None where `answer` begins with several."""
    decision: str = ""
    look: Look = ""
    verdict: Verdict | None = None
    simulated: bool = False
    answer: Sequence[Block] = ()
    sections: Sequence[Section] = ()
    notes: Sequence[Text] = ()
    """What matters most first."""
    most_notes: int = 3
    """Those that a terminal shows without being asked for details."""
    facts: Sequence[str | Message] = ()
    """In few words, which a page shows below its answer."""
    closing: Sequence[Block] = ()
    """What to do next, and where it lies."""
    folder: Path | None = None
    """Where it lies, as its page names it."""
    filters: Mapping[str, Sequence[tuple[str, str | Message]]] = field(default_factory=dict[str, Any])
    """What rows of its tables are `filed` under: (value, what it is called), for readers of a page to choose from."""

    def figures(self) -> list[Figure]:
        """All that have something to see."""
        made = (it.make() for section in self.sections for it in section.blocks if isinstance(it, Chart))
        return [figure for figure in made if figure is not None]

    def tables(self) -> list[Table]:
        """All that have rows."""
        tabled = (it.table for section in self.sections for it in section.blocks if isinstance(it, Tabled))
        return [table for table in tabled if table.rows]


def as_told(certificate: Certificate | None) -> Message | None:
    """`valid, as far as this server can tell (not checked: forwards per request)`; None where all was looked at."""
    if certificate is None or not certificate.untold:
        return None
    code = "verdict.as_told.server" if certificate.asked else "verdict.as_told.engine"
    return Message(code, what=[Message(f"untold.{it}") for it in certificate.untold])


def verdict_said(verdict: str | None, *, simulated: bool, untold: Message | None = None) -> Message:
    """A verdict in words; of a simulation that word, and "valid" is not said as nothing was measured."""
    if simulated and verdict == "valid":
        return Message("verdict.simulated")
    said = untold if untold is not None and verdict == "valid" else Message(f"verdict.{verdict or 'unchecked'}")
    return Message("verdict.mock", verdict=said) if simulated else said


def beside_verdict(said: str | Message) -> tuple[str, str, str]:
    """A sentence in English, and what stands around its verdict: brackets of its own, or those that it ends with."""
    told, known = words().render(said), words().text
    ends = isinstance(said, Message) and known.get(said.code, "").endswith(")") and told.endswith(")")
    return (told[:-1], "; ", ")") if ends else (told, " (", ")")


def judged(verdict: str | None, *, simulated: bool, checks: tuple[str, ...] = ()) -> Cell:
    """A verdict in a table; valid without its colour where nothing was measured, as the heading says."""
    said = Message(f"verdict.{verdict or 'unchecked'}")
    return Cell(said, tone="faint" if simulated and verdict == "valid" else "", checks=checks)


def hints(folder: Path, *commands: str) -> list[Text]:
    """Where more is shown of what lies in a folder; `commands`: others that show something of it (`report.NAME`)."""
    here = quoted(str(folder))
    names = ("details", *commands)
    return [Text(Message(f"report.{name}", folder=here), "faint", "brief", whole=True) for name in names]


def machine(host: Host) -> Facts:
    """The machine that measured."""
    gpus = [f"{gpu.name} ({size(gpu.memory_bytes)})" if gpu.memory_bytes else gpu.name for gpu in host.gpus]
    return _facts(
        "environment.machine",
        cpu=host.cpu,
        cores=f"{host.physical_cores or '?'} / {host.logical_cores}",
        memory=size(host.memory_bytes),
        gpu=", ".join(gpus) or None,
        system=f"{host.os} {host.os_version}, {host.kernel} ({host.machine})",
        container=host.container,
        power=host.power_source,
        energy=", ".join(host.power_meter.sources) or None if host.power_meter else None,
        governor=host.governor,
        python=host.python,
        specmeter=host.specmeter,
        machine_id=host.hostname_sha256[:16],
    )


def engine(of: EngineIdentity) -> Facts:
    """The program that was measured."""
    return _facts(
        "environment.engine",
        kind=of.kind,
        version=of.version,
        build=of.build,
        sha256=of.binary_sha256,
    )


def _facts(title: str, **known: str | None) -> Facts:
    return Facts([(Message(f"fact.{name}"), value) for name, value in known.items()], Message(title))


def moment(seconds: float) -> str:
    """`2026-11-22 10:15 UTC`; a time that there is not stays a number."""
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")
    except (ValueError, OverflowError, OSError):
        return f"{seconds:g}"
