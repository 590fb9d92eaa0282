"""The report of a gate, for people, for a comment on a change (Markdown) and for machines of CI (JUnit XML)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from specmeter.gate.ruling import LOOKS, NOISE
from specmeter.messages import Message, words
from specmeter.show.names import Names
from specmeter.show.report import Report, Section, Tabled, Text
from specmeter.show.table import Cell, Column, Row, Table, Tone, estimate_cell, row, sized
from specmeter.show.table_files import markdown as markdown_table
from specmeter.text import brackets, markdown_escaped, printable

if TYPE_CHECKING:
    from specmeter.gate.bisect import Bisection
    from specmeter.gate.ruling import Gate, GateRow, Ruling

_TONES: dict[Ruling, Tone] = {"pass": "good", "fail": "bad", "cannot tell": "doubtful"}


def report(gate: Gate) -> Report:
    """The ruling, then a row for everything that was compared."""
    fix = _fix(gate)
    return Report(
        target=f"{gate.base} / {gate.head}",
        headline=headline(gate),
        document=lambda: gate.model_dump(mode="json"),
        answer=[Text(Message(fix, folder=gate.folder), "doubtful")] if fix else [],
        sections=[Section("gate", [Tabled(_table(gate)), *(Text(it, "faint") for it in _notes(gate))])],
    )


def _fix(gate: Gate) -> str | None:
    """Code of the message that says how to go on."""
    if gate.because == "time":
        return "gate.fix.time" if gate.blocks < LOOKS[-1] else "gate.fix.most"
    if gate.because == "checks":
        return "gate.fix.load" if NOISE & set(gate.findings) else "gate.fix.checks"
    return None


def headline(gate: Gate) -> Message:
    """The ruling in one sentence."""
    names = Names(gate.asked)
    about = [
        Message("gate.arm.text", name=names.in_full(it.arm_id), count=it.other_texts, texts=it.texts)
        if gate.because == "text"
        else Message("gate.arm", name=names.in_full(it.arm_id), ratio=_ratio(it))
        for it in gate.rows
        if (it.other_texts if gate.because == "text" else it.ruling == gate.ruling)
    ]
    code = f"gate.{gate.ruling}.{gate.because}" if gate.because else "gate.pass"
    said = {"base": gate.base, "head": gate.head, "blocks": gate.blocks, "seconds": gate.seconds, "arms": about}
    return Message(code, **said, tolerance=100 * gate.tolerance, count=len(gate.rows), checks=gate.findings)


def _ratio(it: GateRow) -> str:
    return "-" if it.ratio is None else f"{it.ratio.point:.3f}x {brackets(it.ratio, 3)}"


def _notes(gate: Gate) -> Iterator[Message]:
    if gate.simulated:
        yield Message("advised.note.simulated")
    yield Message("gate.about", tolerance=100 * gate.tolerance, looks=len(LOOKS))
    if gate.same_build:
        yield Message("gate.same_build")
    if gate.noise:
        yield Message("gate.noise", checks=gate.noise)
    if not any(it.texts for it in gate.rows):
        yield Message("gate.sampled")


def _table(gate: Gate) -> Table:
    names = Names(gate.asked)
    numbers = (Column(key, "number") for key in ("gate_base", "gate_head", "gate_ratio"))
    columns = (Column("arm", most=44), Column("gate_what"), *numbers, Column("gate_ruling"))
    rows = [made for it in gate.rows for made in _rows(it, Cell(names.in_full(it.arm_id), id=it.arm_id))]
    return Table("gate", columns, rows, Message("table.gate", base=gate.base, head=gate.head))


def _rows(it: GateRow, name: Cell) -> Iterator[Row]:
    rates = [Cell("-" if rate is None else f"{rate.point:.1f}") for rate in it.rates]
    yield row(name, Message("gate.rate"), *rates, estimate_cell(it.ratio, 3), _ruling(it.ruling))
    base, head = it.lengths
    if base and head:
        lengths = estimate_cell(base, 2), estimate_cell(head, 2)
        yield row("", Message("column.tau"), *lengths, f"{head.point / base.point:.3f}", "")
    if it.texts:
        others = it.other_texts + it.not_asked
        same = max(0, it.texts - it.near_ties - others)
        told = "gate.texts.differ" if it.near_ties or others else "gate.texts.same"
        ruling: Ruling = "fail" if it.other_texts else "cannot tell" if it.not_asked else "pass"
        texts = Message(told, equal=same, near=it.near_ties, others=others)
        yield row("", Message("gate.texts"), "", texts, "", _ruling(ruling))
    of_base, of_head = it.memory_bytes
    if of_base and of_head:
        yield row("", Message("gate.memory"), sized(of_base), sized(of_head), f"{of_head / of_base:.3f}", "")


def _ruling(ruling: Ruling) -> Cell:
    return Cell(Message(f"gate.ruling.{ruling}"), id=ruling, tone=_TONES[ruling])


def markdown(gate: Gate) -> str:
    """For a comment on a change."""
    told, *notes = (markdown_escaped(words().render(it)) for it in (headline(gate), *_notes(gate)))
    return (
        f"**{told}**\n\n{markdown_table(_table(gate), words())}\n"
        + "  \n".join([*notes, f"engine: {markdown_escaped(gate.engine)}"])
        + "\n"
    )


def junit(gate: Gate) -> str:
    """JUnit XML: a test for each row that has a result, and one for the gate as a whole."""
    suite = ElementTree.Element("testsuite", name="specmeter gate", time=f"{gate.seconds:.1f}")
    whole = Row((Cell("gate"), Cell(""), Cell(""), Cell(headline(gate)), Cell(""), _ruling(gate.ruling)))
    of = ""
    for it in (*_table(gate).rows, whole):
        shown = (f"{printable(words().render(cell.text))} {cell.interval}".strip() for cell in it.cells)
        (name, measured, *values, _), ruling = shown, it.cells[-1]
        of = name or of
        if ruling.id:
            case = ElementTree.SubElement(suite, "testcase", classname=f"specmeter.gate.{of}", name=measured or of)
            if ruling.id != "pass":
                tag = "failure" if ruling.id == "fail" else "error"
                labels = ("base ", "head ", "head / base ") if measured else ("", "", "")
                said = [label + value for label, value in zip(labels, values, strict=True) if value]
                ElementTree.SubElement(case, tag, message=", ".join(said), type=ruling.id)
    for attribute, path in (("tests", "testcase"), ("failures", "testcase/failure"), ("errors", "testcase/error")):
        suite.set(attribute, str(len(suite.findall(path))))
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def bisection(found: Bisection) -> Report:
    """Which build was the first to be slower, and what each gate said."""
    old, new = found.builds[0], found.builds[-1]
    if found.first_slower is None:
        code = "bisect.undecided" if found.stopped else "bisect.none"
        told = Message(code, old=old, new=new, stopped=found.stopped)
    else:
        code = "bisect.open" if found.stopped else "bisect.found"
        told = Message(code, old=old, base=found.last_as_fast, head=found.first_slower, stopped=found.stopped)
    lines = [Text(headline(gate)) for gate in found.gates.values()]
    if found.stopped:
        lines.append(Text(Message("bisect.fix"), "doubtful"))
    return Report(target=old, headline=told, document=lambda: found.model_dump(mode="json"), answer=lines)
