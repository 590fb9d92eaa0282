"""A table as it is meant, before it becomes text, HTML, Markdown, CSV or LaTeX: cells know their estimate and verdict.

Commands and pages make a `Table`; `terminal.console`, the macro `table` of the pages' templates and `formats` show it.
What comes from outside is cleaned there, and marks are explained below every table that has them.

Tables as Markdown, CSV, LaTeX (booktabs) and bare HTML: numbers with their intervals, n and verdict marks.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape as safe
from typing import TYPE_CHECKING, Literal, TypeVar

from specmeter.messages import Message
from specmeter.text import bound, brackets, csv_cell, markdown_code, markdown_escaped, printable, size

if TYPE_CHECKING:
    from specmeter.messages import Words
    from specmeter.record import Estimate, Standing


T = TypeVar("T")
Kind = Literal["text", "number"]
Tone = Literal["", "good", "doubtful", "bad", "strong", "faint"]
"""What colours say besides words, where there are any."""
TONES: dict[str, Tone] = {
    "valid": "good",
    "note": "faint",
    "suspect": "doubtful",
    "implausible": "doubtful",
    "invalid": "bad",
}
UNITS = ("blocks", "invocations", "prompts")
"""Over what intervals are, as legends say it (`legend.over.UNIT`)."""
Mark = Literal["suspect", "unchecked"]
"""What a cell says about its number where no column of verdicts does."""


@dataclass(frozen=True)
class Cell:
    """One cell. `text` comes from outside, a `Message` from us."""

    text: str | Message
    value: float | None = None
    """What the column is sorted by and what is copied; None: the text."""
    estimate: Estimate | None = None
    digits: int = 2
    scale: float = 1.0
    """Shown = estimate * scale (100 for percent)."""
    struck: bool = False
    """The number is false: shown struck out."""
    mark: Mark | None = None
    printed: bool = False
    """A document printed it: false or not, files that hold its numbers have it."""
    code: bool = False
    """An identifier."""
    id: str = ""
    """What programs know it by, where people read a name: files of numbers have it, pages as `data-id`."""
    tone: Tone = ""
    below: tuple[tuple[str | Message, Tone], ...] = ()
    """Further lines, which only terminals show in the cell."""
    checks: tuple[str, ...] = ()
    """Names of checks whose findings explain the cell."""
    page: str = ""
    """Where these findings are, relative to the page of the table; empty: on it."""
    row: str = ""
    """The `id` of the row of data that it comes from, which a page links to."""

    @property
    def low(self) -> str | None:
        """Lower end as shown; None without an interval."""
        if self.estimate is None or self.estimate.low is None:
            return None
        return bound(self.estimate.low * self.scale, self.digits)

    @property
    def high(self) -> str | None:
        """Upper end as shown."""
        if self.estimate is None or self.estimate.high is None:
            return None
        return bound(self.estimate.high * self.scale, self.digits)

    @property
    def interval(self) -> str:
        """`[1.85, 2.01]`, `[?]`, or nothing where there is no estimate."""
        return "" if self.estimate is None else brackets(self.estimate, self.digits, self.scale)


@dataclass(frozen=True)
class Column:
    """One column; `key` names its heading among the words, and the column in CSV."""

    key: str
    kind: Kind = "text"
    title: str | Message = ""
    """A heading of its own, instead of `column.KEY` among the words."""
    narrow: Literal["keep", "point", "drop"] = "keep"
    """On a screen that is too narrow for the table: the column as it is, without intervals, or, from the last column
    on until the others fit, not at all."""
    most: int | None = None
    """Characters beyond which a terminal breaks its text into lines."""

    @property
    def heading(self) -> str | Message:
        """What stands above the column."""
        return self.title or Message(f"column.{self.key}")

    @property
    def name(self) -> str:
        """What files of numbers call it."""
        return csv_cell(printable(str(self.title))) or self.key


@dataclass(frozen=True)
class Row:
    cells: tuple[Cell, ...]
    verdict: Standing | None = None
    tone: Tone = ""
    filed: Mapping[str, str] = field(default_factory=dict[str, str])
    """What readers of a page may filter it by: `target`, `method`, `kind`, `document`, `ruling`."""
    id: str = ""
    """What cells of other tables on its page link to."""
    why: tuple[str | Message, ...] = ()
    """What makes its verdict suspect, where its cells do not say it."""


@dataclass(frozen=True)
class Table:
    """A table with a name for files and a caption (`table.NAME` among the words)."""

    name: str
    columns: tuple[Column, ...]
    rows: Sequence[Row]
    title: str | Message = ""
    """A caption of its own, instead of `table.NAME` among the words."""
    about: str | Message = ""
    """What to mind."""
    told_over: bool = False
    """Whether its legend says over what the intervals of each column are: for tables whose words are not ours."""

    @property
    def caption(self) -> str | Message:
        """What stands above the table."""
        return self.title or Message(f"table.{self.name}")

    @property
    def legend(self) -> list[Message]:
        """What its marks mean (`legend.MARK` among the words): a line for each kind that it has."""
        cells = [cell for row in self.rows for cell in row.cells]
        struck = [Message("legend.struck")] if any(cell.struck for cell in cells) else []
        marked = struck + ([Message("legend.suspect")] if any(cell.mark == "suspect" for cell in cells) else [])
        over = self._over() if self.told_over else []
        return marked + over + ([Message("legend.no_interval")] if any(it.interval == "[?]" for it in cells) else [])

    def only(self, names: Sequence[str]) -> Table:
        """The columns of these names, in this order, as far as it has them; before them target and load, of several."""
        of = {column.name: place for place, column in enumerate(self.columns)}
        kept = [of[name] for name in names if name in of]
        for name in ("load", "target") if kept else ():
            place = of.get(name, -1)
            if place >= 0 and place not in kept and len({row.cells[place].text for row in self.rows}) > 1:
                kept.insert(0, place)
        rows = [replace(row, cells=tuple(row.cells[place] for place in kept)) for row in self.rows]
        return replace(self, columns=tuple(self.columns[place] for place in kept), rows=rows)

    def _over(self) -> list[Message]:
        """For each sort of unit the columns whose intervals are over it."""
        over: dict[str, list[str | Message]] = {}
        for place, column in enumerate(self.columns):
            found = (row.cells[place].estimate for row in self.rows)
            for unit in dict.fromkeys(
                it.of for it in found if it is not None and it.low is not None and it.of in UNITS
            ):
                over.setdefault(unit, []).append(column.title)
        return [Message(f"legend.over.{unit}", columns=titles) for unit, titles in over.items()]


def text(*titles: str) -> tuple[Column, ...]:
    """Columns of text with these headings."""
    return tuple(Column(title, title=title) for title in titles)


def numbers(*titles: str) -> tuple[Column, ...]:
    """Columns of numbers with these headings."""
    return tuple(Column(title, "number", title) for title in titles)


def made(
    name: str,
    items: Iterable[T],
    *columns: tuple[str, Kind, Callable[[T], Cell | Message | str]],
    verdict: Callable[[T], Standing | None] = lambda _: None,
    why: Callable[[T], tuple[str | Message, ...]] = lambda _: (),
    filed: Callable[[T], Mapping[str, str]] = lambda _: {},
) -> Table:
    """A table of one row per item; each column is its key, its kind and what it shows of an item."""
    shown = ((item, tuple(show(item) for _, _, show in columns)) for item in items)
    rows = [replace(row(*cells, verdict=verdict(it), filed=filed(it)), why=why(it)) for it, cells in shown]
    return Table(name, tuple(Column(key, kind) for key, kind, _ in columns), rows)


def row(
    *cells: str | Message | Cell,
    verdict: Standing | None = None,
    tone: Tone = "",
    filed: Mapping[str, str] | None = None,
) -> Row:
    """A row of cells, of which those that are text only may be given as such."""
    return Row(tuple(it if isinstance(it, Cell) else Cell(it) for it in cells), verdict, tone, filed or {})


def estimate_cell(
    estimate: Estimate | None, digits: int, *, scale: float = 1.0, struck: bool = False, mark: Mark | None = None
) -> Cell:
    """A cell with a number and its interval, or a dash."""
    if estimate is None:
        return Cell("-")
    text = f"{estimate.point * scale:.{digits}f}"
    return Cell(text, estimate.point, estimate, digits, scale, struck=struck, mark=mark)


def sized(size_bytes: float | None) -> Cell:
    """A number of bytes in words, sorted by what it is."""
    return Cell("-") if size_bytes is None else Cell(size(size_bytes), size_bytes)


def counted(count: int | None) -> Cell:
    """A cell with a whole number, or a dash."""
    return Cell("-") if count is None else Cell(str(count), float(count))


_TEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "×": r"$\times$",
    "✗": r"$\times$",
}


def markdown(table: Table, words: Words) -> str:
    """A Markdown table under its caption; false numbers are struck out."""

    def shown(cell: Cell) -> str:
        text = words.render(cell.text)
        text = markdown_code(text) if cell.code else markdown_escaped(text)
        if cell.estimate is not None:
            text = f"{text} {markdown_escaped(cell.interval)}"
        text = f"~~{text}~~" if cell.struck else text
        return text + (f" ({', '.join(markdown_code(check) for check in cell.checks)})" if cell.checks else "")

    head = [markdown_escaped(words.render(column.heading)) for column in table.columns]
    rule = ["---:" if column.kind == "number" else "---" for column in table.columns]
    rows = [[shown(cell) for cell in row.cells] for row in table.rows]
    lines = [f"| {' | '.join(cells)} |" for cells in (head, rule, *rows)]
    about = f"{markdown_escaped(words.render(table.about))}\n\n" if table.about else ""
    legend = "".join(f"\n{markdown_escaped(words.render(phrase))}\n" for phrase in table.legend)
    return f"**{markdown_escaped(words.render(table.caption))}**\n\n{about}" + "\n".join(lines) + "\n" + legend


def csv_text(table: Table, words: Words) -> str:
    """CSV with full digits; each estimate has columns for its ends, level and n. False numbers of ours are left out:
    their row's verdict says so. Those that a document printed stay, beside the same verdict."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    estimated = [
        place for place in range(len(table.columns)) if any(row.cells[place].estimate is not None for row in table.rows)
    ]
    head: list[str] = []
    for place, column in enumerate(table.columns):
        head.append(column.name)
        if place in estimated:
            head += [f"{column.name}_{part}" for part in ("low", "high", "level", "n", "of")]
    writer.writerow(head)
    for row in table.rows:
        values: list[str] = []
        for place, (cell, column) in enumerate(zip(row.cells, table.columns, strict=True)):
            values += _values(cell, words, is_number=column.kind == "number", is_estimated=place in estimated)
        writer.writerow(values)
    return out.getvalue()


def latex(table: Table, words: Words) -> str:
    """A `tabular` for booktabs, without a float around it; the LaTeX document needs `\\usepackage{booktabs}`. A suspect
    number has a dagger, which a line below explains; a false one is left out, or struck out where a document had it."""

    def shown(cell: Cell, row: Row) -> str:
        text = _tex(words.render(cell.text))
        if cell.struck:
            return rf"\textcolor{{gray}}{{\sout{{{text}}}}}" if cell.printed else "-"
        if doubtful(cell, row):
            text += _DAGGER
        if cell.low is not None:  # a paper has no room for what is not known
            return rf"{text} {{\footnotesize {_tex(cell.interval)}}}"
        return rf"\texttt{{{text}}}" if cell.code else text

    def doubtful(cell: Cell, row: Row) -> bool:
        return cell.mark == "suspect" or (row.verdict == "suspect" and cell.estimate is not None)

    shape = "".join(_shape(table, place, words) for place in range(len(table.columns)))
    head = " & ".join(_tex(words.render(column.heading)) for column in table.columns)
    # After a line's end, LaTeX takes a bracket for an option.
    lines_of = (" & ".join(shown(cell, row) for cell in row.cells) for row in table.rows)
    rows = [("{}" if line.startswith("[") else "") + line + r" \\" for line in lines_of]
    struck = any(cell.struck and cell.printed for row in table.rows for cell in row.cells)
    suspect = [row for row in table.rows if any(doubtful(cell, row) for cell in row.cells)]
    why = list(dict.fromkeys(words.render(it) for row in suspect for it in row.why))
    marks = ("legend.suspect", "legend.no_interval", *(() if struck else ("legend.struck",)))
    note = words.render(Message("legend.dagger", why=why) if why else Message("legend.dagger.alone"))
    needs = r"% needs \usepackage{booktabs}" + (r", \usepackage{xcolor}, \usepackage[normalem]{ulem}" if struck else "")
    if any("\u4e00" <= char <= "\u9fff" for char in head + "".join(rows)):
        needs += r", \usepackage{ctex} for its Chinese"
    lines = [
        f"% {words.render(table.caption)}",
        *([f"% {words.render(table.about)}"] if table.about else []),
        needs,
        rf"\begin{{tabular}}{{{shape}}}",
        r"\toprule",
        head + r" \\",
        r"\midrule",
        *rows,
        r"\bottomrule",
        r"\end{tabular}",
        *([rf"\par{{\footnotesize {_DAGGER} {_tex(note)}}}"] if suspect else []),
        *(f"% {words.render(phrase)}" for phrase in table.legend if phrase.code not in marks),
    ]
    return "\n".join(lines) + "\n"


_LONG = 40
"""Characters beyond which a text takes lines."""
_DAGGER = r"\textsuperscript{\dag}"


def _shape(table: Table, place: int, words: Words) -> str:
    """The letter of a column in a `tabular`; columns of long texts share the line by the roots of their lengths."""

    def root(place: int) -> float:
        longest = max((len(words.render(row.cells[place].text)) for row in table.rows), default=0)
        return longest**0.5 if table.columns[place].kind == "text" and longest > _LONG else 0.0

    if table.columns[place].kind == "number":
        return "r"
    of = root(place)
    return rf"p{{{0.8 * of / sum(map(root, range(len(table.columns)))):.2f}\linewidth}}" if of else "l"


def html(table: Table, words: Words) -> str:
    """A bare HTML table, for notebooks, which bring their own style."""

    def shown(cell: Cell) -> str:
        text = safe(words.render(cell.text) + (f" {cell.interval}" if cell.estimate is not None else ""))
        return f"<s>{text}</s>" if cell.struck else text + (" ?" if cell.mark == "suspect" else "")

    def line(tag: str, cells: Iterable[str]) -> str:
        return "<tr>" + "".join(f"<{tag}>{cell}</{tag}>" for cell in cells) + "</tr>"

    head = line("th", (safe(words.render(column.heading)) for column in table.columns))
    rows = "".join(line("td", map(shown, row.cells)) for row in table.rows)
    legend = "".join(f"<p>{safe(words.render(phrase))}</p>" for phrase in table.legend)
    return f"<table><thead>{head}</thead><tbody>{rows}</tbody></table>{legend}"


FORMATS: dict[str, Callable[[Table, Words], str]] = {"md": markdown, "csv": csv_text, "tex": latex}


def _values(cell: Cell, words: Words, *, is_number: bool, is_estimated: bool) -> Iterator[str]:
    """The fields of a cell; a number that is none (a dash, `baseline`, a false one) is empty."""
    left_out = cell.struck and not cell.printed
    estimate = None if left_out else cell.estimate
    if estimate is not None:
        low = "" if estimate.low is None else repr(estimate.low)
        high = "" if estimate.high is None else repr(estimate.high)
        yield from (repr(estimate.point), low, high, repr(estimate.level), str(estimate.n), estimate.of)
        return
    if is_number:
        yield "" if cell.value is None or left_out else _number(cell.value)
    else:
        yield "" if cell.text == "-" else csv_cell(printable(cell.id) or words.render(cell.text))
    if is_estimated:
        yield from ("",) * 5


def _number(value: float) -> str:
    return f"{value:.0f}" if float(value).is_integer() else repr(value)


def _tex(text: str) -> str:
    return "".join(_TEX.get(char, char) for char in text)
