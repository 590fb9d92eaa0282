"""The report of a gate, for people, for a comment on a change (Markdown) and for machines of CI (JUnit XML)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from specmeter.messages import Message, words
from specmeter.show.names import Names
from specmeter.show.report import Report, Section, Tabled, Text
from specmeter.show.table import Cell, Column, Row, Table, Tone, estimate_cell, row, sized
from specmeter.show.table_files import markdown as markdown_table
from specmeter.text import brackets, markdown_escaped, printable

if TYPE_CHECKING:
    from specmeter.gate.bisect import Bisection
    from specmeter.gate.ruling import Gate, GateRow, Ruling
    from specmeter.record import Estimate

_TONES: dict[Ruling, Tone] = {"pass": "good", "fail": "bad", "cannot tell": "doubtful"}
_SHOWN = 3


def report(gate: Gate) -> Report:
    """What a gate found: its ruling, then a row for everything that was compared."""
    return Report(
        target=f"{gate.base} / {gate.head}",
        headline=headline(gate),
        document=lambda: gate.model_dump(mode="json"),
        look="stop" if gate.ruling == "fail" else "",
        answer=[Text(fix, "doubtful")] if (fix := _fix(gate)) is not None else [],
        sections=[Section("gate", [Tabled(_table(gate)), *(Text(it, "faint") for it in _notes(gate))])],
    )


def headline(gate: Gate) -> Message:
    """The ruling in one sentence."""
    said = {"base": gate.base, "head": gate.head, "blocks": gate.blocks}
    match gate.ruling, gate.because:
        case "pass", _:
            return Message("gate.pass", **said, tolerance=100 * gate.tolerance, count=len(gate.rows))
        case "fail", "text":
            names = Names(gate.asked)
            found = [it for it in gate.rows if it.other_texts]
            arms = [_with_texts(names, it) for it in found[:_SHOWN]]
            return Message("gate.fail.text", **said, arms=arms)
        case "fail", _:
            return Message("gate.fail.rate", **said, arms=_ratios(gate, "fail"))
        case _, "checks":
            return Message("gate.cannot.checks", blocks=gate.blocks, checks=gate.findings)
        case _, "not asked":
            return Message("gate.cannot.not_asked", blocks=gate.blocks)
        case _:
            arms = _ratios(gate, "cannot tell")
            return Message("gate.cannot.time", blocks=gate.blocks, seconds=gate.seconds, arms=arms)


def _with_texts(names: Names, it: GateRow) -> Message:
    return Message("gate.arm.text", name=names.in_full(it.base_id), count=it.other_texts, texts=it.texts)


def _ratios(gate: Gate, ruling: Ruling) -> list[Message]:
    names, found = Names(gate.asked), [it for it in gate.rows if it.ruling == ruling]
    return [
        Message("gate.arm", name=names.in_full(it.base_id), ratio=f"{it.rate.point:.3f}x {brackets(it.rate, 3)}")
        for it in found[:_SHOWN]
        if it.rate is not None
    ]


def _fix(gate: Gate) -> Message | None:
    if gate.undecided:
        return Message("gate.fix.time")
    return Message("gate.fix.checks", folder=gate.folder) if gate.because == "checks" else None


def _notes(gate: Gate) -> Iterator[Message]:
    yield Message("gate.about", looks=gate.looks)
    if gate.same_build:
        yield Message("gate.same_build")
    if gate.noise:
        yield Message("gate.noise", checks=gate.noise)
    if not any(it.texts for it in gate.rows):
        yield Message("gate.sampled")


def _table(gate: Gate) -> Table:
    names = Names(gate.asked)
    columns = (
        Column("arm", most=44),
        Column("gate_what"),
        *(Column(key, "number") for key in ("gate_base", "gate_head", "gate_ratio")),
        Column("gate_ruling"),
    )
    rows = [it for of in gate.rows for it in _rows(of, names)]
    return Table("gate", columns, rows, Message("table.gate", base=gate.base, head=gate.head))


def _rows(of: GateRow, names: Names) -> Iterator[Row]:
    ruling = Cell(Message(f"gate.ruling.{of.ruling}"), tone=_TONES[of.ruling])
    name = Cell(names.in_full(of.base_id), id=of.base_id)
    rates = _plain(of.base_rate, 1), _plain(of.head_rate, 1)
    yield row(name, Message("gate.rate"), *rates, estimate_cell(of.rate, 3), ruling)
    if of.accepted is not None:
        taus = _plain(of.base_accepted, 2), _plain(of.head_accepted, 2)
        yield row("", Message("gate.accepted"), *taus, estimate_cell(of.accepted, 3), "")
    if of.texts:
        yield row("", Message("gate.texts"), "", _texts(of), "", _text_ruling(of))
    if of.base_memory_bytes and of.head_memory_bytes:
        ratio = f"{of.head_memory_bytes / of.base_memory_bytes:.3f}"
        yield row("", Message("gate.memory"), sized(of.base_memory_bytes), sized(of.head_memory_bytes), ratio, "")


def _plain(estimate: Estimate | None, digits: int) -> Cell:
    """A number alone: what counts is the ratio's interval."""
    return Cell("-") if estimate is None else Cell(f"{estimate.point:.{digits}f}", estimate.point)


def _texts(of: GateRow) -> Cell:
    others = of.other_texts + of.not_asked
    if not of.near_ties and not others:
        return Cell(Message("gate.texts.same", texts=of.texts))
    equal = of.texts - of.near_ties - others
    return Cell(Message("gate.texts.differ", equal=max(0, equal), near=of.near_ties, other=others))


def _text_ruling(of: GateRow) -> Cell:
    ruling = _of_texts(of)
    return Cell(Message(f"gate.ruling.{ruling}"), tone=_TONES[ruling])


def _of_texts(of: GateRow) -> Ruling:
    return "fail" if of.other_texts else "cannot tell" if of.not_asked else "pass"


def markdown(gate: Gate) -> str:
    """For a comment on a change."""
    english = words()
    notes = [markdown_escaped(english.render(it)) for it in _notes(gate)]
    told = markdown_escaped(english.render(headline(gate)))
    notes.append(markdown_escaped(gate.engine))
    return "\n".join((f"**{told}**\n", markdown_table(_table(gate), english), "  \n".join(notes), ""))


def junit(gate: Gate) -> str:
    """JUnit XML: a test for the rate of each configuration, one for its texts, one for the run itself."""
    english, names = words(), Names(gate.asked)
    told = printable(english.render(headline(gate)))
    suite = ElementTree.Element("testsuite", name="specmeter gate", time=f"{gate.seconds:.1f}")

    def case(of: str, name: str, ruling: Ruling, why: str) -> None:
        test = ElementTree.SubElement(suite, "testcase", classname=f"specmeter.gate.{printable(of)}", name=name)
        if ruling != "pass":
            ElementTree.SubElement(test, "failure" if ruling == "fail" else "error", message=why, type=ruling)

    for it in gate.rows:
        of = english.render(names.in_full(it.base_id))
        ratio = "-" if it.rate is None else f"head / base {it.rate.point:.3f} {brackets(it.rate, 3)}"
        case(of, "rate", it.ruling, ratio)
        if it.texts:
            case(of, "outputs", _of_texts(it), english.render(_texts(it).text))
    case("run", "gate", gate.ruling, told)
    for attribute, tag in (("tests", "testcase"), ("failures", "testcase/failure"), ("errors", "testcase/error")):
        suite.set(attribute, str(len(suite.findall(tag))))
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def bisection(found: Bisection) -> Report:
    """Which build was the first to be slower."""
    old = found.builds[0]
    columns = (
        Column("bisect_build"),
        Column("bisect_ratio", title=Message("column.bisect_ratio", old=old)),
        Column("gate_ruling"),
    )
    rows = [
        row(name, "; ".join(_told(gate)), Cell(Message(f"gate.ruling.{gate.ruling}"), tone=_TONES[gate.ruling]))
        for name, gate in sorted(found.gates.items(), key=lambda it: found.builds.index(it[0]))
    ]
    table = Table("bisect", columns, rows, Message("table.bisect", old=old, new=found.builds[-1]))
    return Report(
        target=old,
        headline=bisected(found),
        document=lambda: found.model_dump(mode="json"),
        answer=[Text(Message("bisect.unusable", build=found.stopped, why=found.why), "bad")] if found.why else [],
        sections=[Section("bisect", [Tabled(table)])] if rows else [],
    )


def _told(gate: Gate) -> Iterator[str]:
    for it in gate.rows:
        if it.rate is not None:
            yield f"{it.rate.point:.3f}x {brackets(it.rate, 3)}"


def bisected(found: Bisection) -> Message:
    """The answer in one sentence."""
    old, new = found.builds[0], found.builds[-1]
    if found.first_slower is None:
        return Message("bisect.undecided" if found.stopped else "bisect.none", old=old, new=new)
    said = {"base": found.last_as_fast, "head": found.first_slower}
    if found.stopped:
        return Message("bisect.open", **said, stopped=found.stopped)
    return Message("bisect.found", **said, old=old)
