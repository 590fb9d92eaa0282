"""The corpus of the audit: true tables and logs, the same made false, and what the audit says of each."""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from audit.doctoring import STRENGTH, Doctored, all_doctored
from audit.simulated import SIMULATED
from specmeter.audit.read.options import TableOptions
from specmeter.audit.reading import read_claims, rule
from specmeter.errors import UsageError
from specmeter.messages import Message

DATA = Path(__file__).resolve().parent.parent / "data" / "audit"


@dataclass(frozen=True)
class TrueTable:
    """A file that is held to be true, with the reason."""

    name: str
    """`own/...`, `published/...` or `simulated/...`."""
    shape: str
    source: str
    why: str
    text: str
    expect: str = "cannot tell"
    """The best word that a row of it should earn."""
    unseen: bool = False
    """Gathered when the readers of formats were finished."""
    known_false: str = ""
    """An assumption of bounds that does not hold there, so that `implausible` is right."""


def _index() -> dict[str, Any]:
    return yaml.safe_load((DATA / "corpus.yaml").read_text(encoding="utf-8"))


def misses() -> dict[tuple[str, str], str]:
    """(rule, file) -> why arithmetic does not see it."""
    return {(entry["rule"], entry["file"]): entry["why"] for entry in _index()["misses"]}


def ruled() -> list[dict[str, Any]]:
    """Published files that are not held to be true: `file`, `source`, `why`, and `rulings` by verdict."""
    return _index()["ruled"]


@cache
def true_tables() -> tuple[TrueTable, ...]:
    """All of them: measured, published, drawn."""
    stored = [
        TrueTable(
            entry["file"],
            entry["shape"],
            entry["source"],
            entry["why"],
            (DATA / entry["file"]).read_text(encoding="utf-8"),
            entry["expect"],
            entry.get("unseen", False),
            entry.get("known_false", ""),
        )
        for entry in _index()["tables"]
    ]
    drawn = [
        TrueTable(
            f"simulated/{item.name}",
            item.shape,
            "drawn with a seed (`tests/audit/simulated.py`)",
            "every step was drawn, and counted",
            item.make(),
            item.expect,
            known_false=item.known_false,
        )
        for item in SIMULATED
    ]
    return (*stored, *drawn)


@cache
def doctored_tables() -> tuple[Doctored, ...]:
    """All of them."""
    return tuple(all_doctored({item.name: item.text for item in true_tables()}))


@dataclass(frozen=True)
class Heard:
    """What the audit said of a file."""

    words: Counter[str]
    """Rows by verdict; rows that could not be read are `unread`."""
    lines: frozenset[Message | str]
    """Everything that it said beside the verdicts."""
    rulings: tuple[tuple[str, str, str, str], ...]
    """(row, verdict, bound, arithmetic)."""


def listen(name: str, text: str) -> Heard:
    """Audit a text as `specmeter audit FILE` does."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / PurePosixPath(name).name
        path.write_text(text, encoding="utf-8")
        try:
            form, claims = read_claims(path, None, TableOptions())
            audit = rule(claims, name, form)
        except UsageError as error:
            return Heard(Counter({"unread": 1}), frozenset({str(error)}), (("file", "unread", "", str(error)),))
    words, lines = Counter[str](), set[Message | str](audit.notes)
    for ruling in audit.rulings:
        unread = ruling.bound == "unreadable"
        words["unread" if unread else ruling.verdict] += 1
        lines |= {*ruling.contradictions, *ruling.others, *ruling.claim.notes, ruling.arithmetic}
    rulings = tuple((r.claim.row, r.verdict, r.bound, str(r.arithmetic)) for r in audit.rulings)
    return Heard(words, frozenset(lines), rulings)


def found(item: Doctored, before: Heard, after: Heard) -> str:
    """The word that the doctoring earned and the true file did not; empty for nothing."""
    for word in reversed(STRENGTH):
        if word != "note" and after.words[word] > before.words[word]:
            return word
    told = [line for line in after.lines - before.lines if item.rule.says and re.search(item.rule.says, repr(line))]
    return "note" if told else ""


def is_found(item: Doctored, before: Heard, after: Heard) -> bool:
    """Whether what must come of the rule came, or something stronger."""
    word = found(item, before, after)
    return bool(word) and STRENGTH.index(word) >= STRENGTH.index(item.rule.must)  # pyright: ignore[reportArgumentType]
