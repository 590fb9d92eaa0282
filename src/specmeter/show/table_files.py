"""Tables as Markdown, CSV, LaTeX (booktabs) and bare HTML: numbers with their intervals, n and verdict marks."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator
from html import escape as safe
from typing import TYPE_CHECKING

from specmeter.messages import Message
from specmeter.show.table import Cell, Row, Table
from specmeter.text import csv_cell, markdown_code, markdown_escaped, printable

if TYPE_CHECKING:
    from specmeter.messages import Words


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
