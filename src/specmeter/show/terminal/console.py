"""What reaches a terminal: lines and tables, on standard output or standard error.

Text from anywhere may be printed: nothing in it is markup, and this is the one place where characters that a terminal
would act on, or that reverse the text, are replaced. Words are English; colours repeat what they say.
"""

from __future__ import annotations

import json
import os
import re
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

import click
from rich.console import Console
from rich.padding import Padding
from rich.segment import Segment
from rich.table import Table as Drawn
from rich.text import Text

from specmeter.messages import Message, words
from specmeter.text import as_started, encodable, printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rich.console import ConsoleOptions, RenderableType

    from specmeter.messages import Message, Words
    from specmeter.show.table import Cell, Row, Table, Tone

Said: TypeAlias = "str | Message"
"""A message, or a text from elsewhere."""
WIDTH = 120
"""Of tables off a terminal: there is no width to respect there, and a wrapped table cannot be read."""
_ENDLESS = 100_000
_BROAD = 110
"""Columns of a screen on which names are not cut in halves."""
_MANY = 6
"""Columns of a table that is turned on its side where it does not fit; fewer are wrapped."""
_LONGEST_WORD, _GAP = 40, 2
"""Of a column, that is kept whole; and between columns."""
STYLES: dict[Tone, str] = {
    "": "",
    "good": "green",
    "doubtful": "yellow",
    "bad": "red",
    "strong": "bold",
    "faint": "dim",
}


class Screen(Console):
    """Prints lines and tables, whatever is in them."""

    def __init__(self, *, width: int | None = None, stderr: bool = False, **more: Any) -> None:
        super().__init__(width=width, stderr=stderr, emoji=False, markup=False, highlight=False, **more)

    def say(self, *parts: Said | tuple[Said, Tone], tone: Tone = "", indent: int = 0, wrap: bool = True) -> None:
        """One line of parts, each of which may have a tone of its own; wrapped at the screen's width unless told."""
        text = Text.assemble(*(_toned(*it) if isinstance(it, tuple) else _toned(it, "") for it in parts))
        text.stylize_before(STYLES[tone])
        shown: RenderableType = text
        if indent:  # padding would cut off what is not wrapped
            shown = Padding(text, (0, 0, 0, indent), expand=False) if wrap else Text(" " * indent) + text
        self.print(shown, soft_wrap=not wrap)

    def say_all(self, lines: Iterable[Said], *, tone: Tone = "", wrap: bool = True) -> None:
        """Several lines."""
        for line in lines:
            self.say(line, tone=tone, wrap=wrap)

    def table(self, table: Table, *, caption: bool = False, heads: bool = True) -> None:
        """A table, and below it what its marks mean; `caption`: under its title, `heads`: with headings."""
        english = words()
        unbounded, kept = self.options.update(max_width=_ENDLESS), list(range(len(table.columns)))

        def draw(*, narrow: bool) -> Drawn:
            return _drawn(table, english, kept, heads=heads, narrow=narrow, part=1 if self.width >= _BROAD else 2)

        drawn = draw(narrow=False)
        narrow = self.measure(drawn, options=unbounded).maximum > self.width
        dropped = [place for place in kept if narrow and table.columns[place].narrow == "drop"]
        if narrow:
            drawn = draw(narrow=True)
        while dropped and self.measure(drawn, options=unbounded).maximum > self.width:
            kept.remove(dropped.pop())
            drawn = draw(narrow=True)
        if caption:
            self.say(table.caption, tone="strong")
        # Where not even the longest words of all columns fit, they would be cut letter by letter.
        turned = heads and len(kept) >= _MANY and self.measure(drawn, options=unbounded).minimum > self.width
        self._turned(table, english) if turned else self.print(self._fitted(drawn))
        if narrow and not turned and any(column.narrow != "keep" for column in table.columns):
            self.say("hidden columns: widen the terminal", tone="faint")
        if table.about:
            self.say(english.render(table.about), tone="faint")
        self.say_all(_seen(table, kept, narrow=narrow and not turned).legend, tone="faint")

    def _fitted(self, drawn: Drawn) -> Drawn:
        """Every column gets its longest word before any gets more; rich would take from all alike, and break words."""
        unbounded = self.options.update(max_width=_ENDLESS)
        least: list[int] = []
        wanted: list[int] = []
        for column in drawn.columns:
            sizes = [self.measure(cell, options=unbounded) for cell in (column.header, *column.cells)]
            word, most = (max(getattr(it, end) for it in sizes) for end in ("minimum", "maximum"))
            least.append(min(word, _LONGEST_WORD))
            wanted.append(max(0, min(most, column.max_width or most) - least[-1]))
        room = self.width - sum(least) - _GAP * (len(least) - 1)
        if 0 <= room < sum(wanted):
            for done, place in enumerate(sorted(range(len(wanted)), key=wanted.__getitem__)):
                more = min(wanted[place], room // (len(wanted) - done))  # who wants little gets it all
                drawn.columns[place].width = least[place] + more
                room -= more
        return drawn

    def _turned(self, table: Table, english: Words) -> None:
        """Headings down the side, as many rows beside each other as fit, the others below them."""
        unbounded, rest = self.options.update(max_width=_ENDLESS), list(table.rows)
        while rest:
            drawn, taken = _sideways(table, english, rest[:1]), 1
            while taken < len(rest):
                wider = _sideways(table, english, rest[: taken + 1])
                if self.measure(wider, options=unbounded).maximum > self.width:
                    break
                drawn, taken = wider, taken + 1
            self.print(drawn)
            rest = rest[taken:]
            if rest:
                self.line()

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Every piece of text on its way to the screen, cleaned, and in the characters that it has; rich's own controls
        are not text."""
        for text, style, control in super().render(renderable, options):
            cleaned = text if control else "\n".join(map(printable, text.split("\n")))
            yield Segment(encodable(cleaned, self.encoding), style, control)

    def on_broken_pipe(self) -> None:
        """On standard error continue without a word: a measurement does not end because its screen is gone."""
        if not self.stderr:
            super().on_broken_pipe()  # ends the program
        self.quiet = True
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stderr.fileno())
        os.close(nowhere)


def _seen(table: Table, kept: Sequence[int], *, narrow: bool) -> Table:
    """The same with the columns and intervals that are on the screen."""
    pointed = {place for place in kept if narrow and table.columns[place].narrow == "point"}
    rows = [
        replace(
            row, cells=tuple(replace(row.cells[it], estimate=None) if it in pointed else row.cells[it] for it in kept)
        )
        for row in table.rows
    ]
    return replace(table, columns=tuple(table.columns[it] for it in kept), rows=rows)


class JsonScreen(Screen):
    """Standard error for programs: one JSON object a line, whatever is said. `event` says what it is: `message`, which
    has a `text`, or what `tell` is given."""

    def __init__(self, *, quiet: bool = False, **more: Any) -> None:
        super().__init__(width=_ENDLESS, stderr=True, quiet=quiet, force_terminal=False, **more)

    def print(self, *objects: Any, **how: Any) -> None:
        """Each line of it as a message."""
        with self.capture() as captured:
            super().print(*objects, **how)
        for line in filter(None, map(str.strip, captured.get().splitlines())):
            self.tell({"event": "message", "text": line})

    def tell(self, document: Mapping[str, object]) -> None:
        """One object."""
        super().print(json.dumps(document), soft_wrap=True)


def output(width: int = WIDTH) -> Screen:
    """Standard output; off a terminal it is as wide as COLUMNS says, or else `width`."""
    columns = os.environ.get("COLUMNS", "")
    asked = int(columns) if re.fullmatch(r"[0-9]{2,4}", columns) else width
    return Screen(width=None if sys.stdout.isatty() else max(40, asked))


def errors(*, quiet: bool = False) -> Screen:
    """Standard error, for everything that is not data; `quiet`: nothing but errors."""
    return Screen(stderr=True, quiet=quiet)


def say_json(document: object, indent: int = 2) -> None:
    """A document on standard output as JSON; what a terminal would act on is escaped, as JSON can."""
    text = json.dumps(document, indent=indent, ensure_ascii=False, default=Message.to_json)
    if encodable(text, sys.stdout.encoding or "utf-8") != text:
        text = json.dumps(document, indent=indent, default=Message.to_json)
    click.echo("".join(char if char == "\n" or char.isprintable() else json.dumps(char)[1:-1] for char in text))


def _toned(text: Said, tone: Tone) -> tuple[str, str]:
    return as_started(words().render(text)), STYLES[tone]


def _drawn(table: Table, english: Words, kept: Sequence[int], *, heads: bool, narrow: bool, part: int) -> Drawn:
    drawn = Drawn(box=None, pad_edge=False, show_header=heads, title_justify="left")
    for column in (table.columns[place] for place in kept):
        number = column.kind == "number"
        drawn.add_column(
            Text(english.render(column.heading)),
            justify="right" if number else "left",
            no_wrap=number and not narrow,
            max_width=column.most and column.most // part,
            overflow="fold",
        )
    for row in table.rows:
        cells = ((row.cells[place], table.columns[place]) for place in kept)
        shown = (_shown(cell, english, point=narrow and column.narrow != "keep") for cell, column in cells)
        drawn.add_row(*shown, style=STYLES[row.tone])
    return drawn


def _sideways(table: Table, english: Words, rows: Sequence[Row]) -> Drawn:
    drawn = Drawn(box=None, pad_edge=False, show_header=False)
    drawn.add_column(style=STYLES["faint"], overflow="fold")
    for row in rows:
        drawn.add_column(style=STYLES[row.tone], overflow="fold")
    for place, column in enumerate(table.columns):
        cells = (_shown(row.cells[place], english, point=False) for row in rows)
        drawn.add_row(Text(english.render(column.heading)), *cells)
    return drawn


def _shown(cell: Cell, english: Words, *, point: bool) -> Text:
    """A cell: false numbers are said to be, doubtful ones have a question mark."""
    text = as_started(english.render(cell.text))
    if cell.estimate is not None and not point:
        text += f" {cell.interval}"
    text += {"suspect": " ?", "unchecked": " (not checked)"}.get(cell.mark or "", "")
    text = f"({text} is false)" if cell.struck else text
    shown = Text(text, STYLES["faint" if cell.struck else cell.tone])
    for line, tone in cell.below:
        shown.append("\n").append(*_toned(line, tone))
    return shown
