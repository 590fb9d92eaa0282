"""Tables as Markdown, CSV, LaTeX (booktabs) and bare HTML: numbers with their intervals, n and verdict marks."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator
from html import escape as safe
from typing import TYPE_CHECKING

from specmeter.show.table import Cell, Table, told
from specmeter.store.environment import code, escape
from specmeter.text import csv_cell, printable

if TYPE_CHECKING:
    from specmeter.show.words import Words

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
        text = told(cell.text, words)
        text = code(text) if cell.code else escape(text)
        if cell.estimate is not None:
            text = f"{text} {escape(cell.interval)}"
        text = f"~~{text}~~" if cell.struck else text
        return text + (f" ({', '.join(code(check) for check in cell.checks)})" if cell.checks else "")

    head = [escape(told(column.heading, words)) for column in table.columns]
    rule = ["---:" if column.kind == "number" else "---" for column in table.columns]
    rows = [[shown(cell) for cell in row.cells] for row in table.rows]
    lines = [f"| {' | '.join(cells)} |" for cells in (head, rule, *rows)]
    about = f"{escape(printable(table.about))}\n\n" if table.about else ""
    legend = "".join(f"\n{escape(phrase.told(words))}\n" for phrase in table.legend)
    return f"**{escape(told(table.caption, words))}**\n\n{about}" + "\n".join(lines) + "\n" + legend


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
        name = csv_cell(printable(column.title)) or column.key
        head.append(name)
        if place in estimated:
            head += [f"{name}_{part}" for part in ("low", "high", "level", "n", "of")]
    writer.writerow(head)
    for row in table.rows:
        values: list[str] = []
        for place, (cell, column) in enumerate(zip(row.cells, table.columns, strict=True)):
            values += _values(cell, words, is_number=column.kind == "number", is_estimated=place in estimated)
        writer.writerow(values)
    return out.getvalue()


def latex(table: Table, words: Words) -> str:
    """A `tabular` for booktabs, without a float around it; the LaTeX document needs `\\usepackage{booktabs}`."""

    def shown(cell: Cell) -> str:
        text = _tex(told(cell.text, words))
        if cell.struck:
            return rf"\textcolor{{gray}}{{\sout{{{text}}}}}"
        if cell.estimate is not None:
            return rf"{text} {{\footnotesize {_tex(cell.interval)}}}"
        return rf"\texttt{{{text}}}" if cell.code else text

    shape = "".join("r" if column.kind == "number" else "l" for column in table.columns)
    head = " & ".join(_tex(told(column.heading, words)) for column in table.columns)
    # After a line's end, LaTeX takes a bracket for an option.
    lines_of = (" & ".join(shown(cell) for cell in row.cells) for row in table.rows)
    rows = [("{}" if line.startswith("[") else "") + line + r" \\" for line in lines_of]
    struck = any(cell.struck for row in table.rows for cell in row.cells)
    needs = r"% needs \usepackage{booktabs}" + (r", \usepackage{xcolor}, \usepackage[normalem]{ulem}" if struck else "")
    lines = [
        f"% {told(table.caption, words)}",
        *([f"% {printable(table.about)}"] if table.about else []),
        needs,
        rf"\begin{{tabular}}{{{shape}}}",
        r"\toprule",
        head + r" \\",
        r"\midrule",
        *rows,
        r"\bottomrule",
        r"\end{tabular}",
        *(f"% {phrase.told(words)}" for phrase in table.legend),
    ]
    return "\n".join(lines) + "\n"


def html(table: Table, words: Words) -> str:
    """A bare HTML table, for notebooks, which bring their own style."""

    def shown(cell: Cell) -> str:
        text = safe(told(cell.text, words) + (f" {cell.interval}" if cell.estimate is not None else ""))
        return f"<s>{text}</s>" if cell.struck else text + (" ?" if cell.mark == "suspect" else "")

    def line(tag: str, cells: Iterable[str]) -> str:
        return "<tr>" + "".join(f"<{tag}>{cell}</{tag}>" for cell in cells) + "</tr>"

    head = line("th", (safe(told(column.heading, words)) for column in table.columns))
    rows = "".join(line("td", map(shown, row.cells)) for row in table.rows)
    legend = "".join(f"<p>{safe(phrase.told(words))}</p>" for phrase in table.legend)
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
        yield "" if cell.text == "-" else csv_cell(printable(cell.id) or told(cell.text, words))
    if is_estimated:
        yield from ("",) * 5


def _number(value: float) -> str:
    return f"{value:.0f}" if value.is_integer() else repr(value)


def _tex(text: str) -> str:
    return "".join(_TEX.get(char, char) for char in text)
