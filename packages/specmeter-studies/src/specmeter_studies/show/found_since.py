"""Page of all documents: what was found since, each number with a link to its row of data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from specmeter.audit import published as tables
from specmeter.messages import Message
from specmeter.show.report import Block, Tabled, Text
from specmeter.show.table import Cell, Column, Row, Table
from specmeter_studies.library.rtx3090_38 import extra as second
from specmeter_studies.show.tables import rows_of_data
from specmeter_studies.telling import quoted

if TYPE_CHECKING:
    from specmeter_studies.study import StudyData

_FILES = {"second": "rtx3090-38/arms.csv", "step": "rtx3090-38/steps.csv"}
_FACTS = ("rtx3090-38/other.csv", "rtx3090-aug/later.csv")
_ARM_COLUMNS = ("source_document", "target", "decode_rate", "baseline_rate", "change_percent", "ci_low", "ci_high")
_STEP_COLUMNS = ("source_document", "width", "k", "k_sd", "requests", "prompts")
_FACT_COLUMNS = ("source_document", "source_place", "value", "low", "high", "claim_notes")


def answer(data: StudyData) -> list[Text]:
    """What it leaves of the answer: a configuration that loses can lose without experts; another gains with them."""
    found = _named(data)
    small, dense, moe = (found[it] for it in ("draft08b-n8 C", "dense-mtp-n2 M", "moe-mtp-n2 M"))
    mtp = {"dense": quoted(dense.change, "%"), "moe": quoted(moe.change, "%")}
    return [
        Text(Message("documents.since_then", dense=quoted(small.change, "%")), row=_row_of(small)),
        Text(Message("documents.mtp_gains", **mtp), row=_row_of(moe)),
    ]


def blocks(data: StudyData) -> list[Block]:
    """A sentence about the source, and the table."""
    ends = {end: second.number("coverage", end) for end in ("low", "high")}
    return [Text(Message("documents.second", **ends), row="fact-coverage", at="page"), Tabled(_found(data))]


def rows() -> Iterator[Table]:
    """The rows of data that numbers link to."""
    arms = tables.cells(_FILES["second"])
    yield rows_of_data(
        "rows_second", arms, [_id(it["run"], it["label"].partition(", ")[0]) for it in arms], _ARM_COLUMNS
    )
    steps = tables.cells(_FILES["step"])
    yield rows_of_data("rows_second_steps", steps, [f"step-{it['label']}" for it in steps], _STEP_COLUMNS)
    facts = [it for name in _FACTS for it in tables.cells(name)]
    yield rows_of_data("rows_second_facts", facts, [f"fact-{it['key']}" for it in facts], _FACT_COLUMNS)


def _found(data: StudyData) -> Table:
    named = _named(data)
    steps = {it.name: it for it in second.steps()}

    def of_arm(name: str) -> Cell:
        change = named[name].change
        said = Message("documents.found.size", change=quoted(change, "%"))
        return Cell(said, change.point if change else None, row=_row_of(named[name]))

    registered = {end: second.number("anchor", end) for end in ("low", "high")}
    texts = {end: second.number("diverging", end) for end in ("low", "high")}
    lengths = {"whole": second.number("whole-answers"), "held": second.number("held-lengths")}
    share = {"share": second.number("checkpoints")}
    first = {"first": steps["mtp-n1"].k - 1}
    mean = {"mean": (steps["mtp-n7"].k - steps["mtp-n1"].k) / (steps["mtp-n7"].width - steps["mtp-n1"].width)}
    before = {"before": quoted(named["mtp-n7 n-max"].change, "%")}
    idle = second.number("ngram-mod")
    made: list[tuple[str, Mapping[str, float | Message], str, Cell]] = [
        ("dense", {}, "", of_arm("draft08b-n8 C")),
        ("moe", {}, "", of_arm("moe-mtp-n2 M")),
        ("mtp", {}, "", of_arm("mtp-n2 A")),
        ("anchor", registered, "fact-anchor", of_arm("moe-draft08b-n8 M")),
        ("checkpoints", {}, "", Cell(Message("documents.found.checkpoints.size", **share), row="fact-checkpoints")),
        ("lengths", {}, "", Cell(Message("documents.found.lengths.size", **lengths), row="fact-held-lengths")),
        ("position", first, "step-mtp-n1", Cell(Message("documents.found.position.size", **mean), row="step-mtp-n7")),
        ("kernel", before, "second-n-max-mtp-n7", of_arm("mtp-n8 n-max")),
        ("idle", {}, "", Cell(f"{idle:.0f}", idle, row="fact-ngram-mod")),
        ("texts", {}, "", Cell(Message("documents.found.texts.size", **texts), row="fact-diverging")),
    ]
    columns = [Column(it, title=Message(f"documents.column.{it}")) for it in ("what_found", "how_much", "changes")]
    return Table(
        "found_later",
        tuple(columns),
        [
            Row(
                (
                    Cell(Message(f"documents.found.{key}", **values), row=row),
                    size,
                    Cell(Message(f"documents.found.{key}.changes")),
                )
            )
            for key, values, row, size in made
        ],
        Message("documents.table.found_later"),
    )


def _named(data: StudyData) -> dict[str, second.InStudy]:
    return {it.name: it for it in second.arms(data)}


def _row_of(it: second.InStudy) -> str:
    return _id(it.line.suite, it.line.config)


def _id(run: str, config: str) -> str:
    return f"second-{run}-{config}"
